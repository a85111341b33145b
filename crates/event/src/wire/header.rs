//! A fragment's header.

use thiserror::Error;

pub const HEADER_BYTES: usize = 40;
const MAGIC: [u8; 2] = [0x57, 0x46];
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

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&self.source.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.age_ns.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&bytes[..COVERED_BYTES]);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        if bytes[..2] != MAGIC || bytes[36..] != [0; 4] {
            return Err(HeaderError::NotAFragment);
        }
        let wanted = crc_fast::crc32_iscsi(&bytes[..COVERED_BYTES]);
        let found = u32::from_le_bytes(part(bytes, 32));
        if found != wanted {
            return Err(HeaderError::Damaged { found, wanted });
        }
        Ok(Header {
            source: u16::from_le_bytes(part(bytes, 2)),
            bytes: u32::from_le_bytes(part(bytes, 4)),
            id: u64::from_le_bytes(part(bytes, 8)),
            epoch: u32::from_le_bytes(part(bytes, 16)),
            payload_crc: u32::from_le_bytes(part(bytes, 20)),
            age_ns: u64::from_le_bytes(part(bytes, 24)),
        })
    }
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
