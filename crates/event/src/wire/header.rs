//! A fragment's header.

use thiserror::Error;

pub const HEADER_BYTES: usize = 40;
/// `WF`.
const MAGIC: u16 = u16::from_le_bytes(*b"WF");
/// The bytes that the header's own checksum covers.
const COVERED_BYTES: usize = 32;

/// What goes before a fragment's payload on a data connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Slot of the source.
    pub source: u16,
    /// Of the payload, this header not included.
    pub bytes: u32,
    /// Heartbeat.
    pub id: u64,
    /// Of the assignment under which it is sent.
    pub epoch: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// Age of the heartbeat when this was sent, ns.
    pub age_ns: u64,
}

/// Why bytes are not a header. The connection cannot be used further: where the next header begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    #[error("what comes is not a fragment (is the peer speaking this protocol?)")]
    NotAFragment,
    #[error("a fragment's header is damaged: its checksum is {found:#010x}, not {wanted:#010x}")]
    Damaged { found: u32, wanted: u32 },
}

// In words: what is written by halves and read as a whole at once, as a checksum does, waits for the processor's stores.
impl Header {
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let words = [
            u64::from(MAGIC) | u64::from(self.source) << 16 | u64::from(self.bytes) << 32,
            self.id,
            u64::from(self.epoch) | u64::from(self.payload_crc) << 32,
            self.age_ns,
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc_fast::crc32_iscsi(&bytes[..COVERED_BYTES]);
        bytes[COVERED_BYTES..].copy_from_slice(&u64::from(crc).to_le_bytes());
        bytes
    }

    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let [first, id, third, age_ns, last] = [0, 1, 2, 3, 4].map(|at| word(bytes, at));
        if first as u16 != MAGIC || last >> 32 != 0 {
            return Err(HeaderError::NotAFragment);
        }
        let wanted = crc_fast::crc32_iscsi(&bytes[..COVERED_BYTES]);
        let found = last as u32;
        if found != wanted {
            return Err(HeaderError::Damaged { found, wanted });
        }
        Ok(Header {
            source: (first >> 16) as u16,
            bytes: (first >> 32) as u32,
            id,
            epoch: third as u32,
            payload_crc: (third >> 32) as u32,
            age_ns,
        })
    }
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
    u64::from_le_bytes(word)
}
