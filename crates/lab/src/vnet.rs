//! The virtio-net header that the kernel puts before each packet of a TUN device (virtio 1.2, section 5.1.6;
//! little-endian here because the device is the host's own).

pub use weir_sys::tun::VNET_HEADER_BYTES;

/// The transport checksum is to be completed from `checksum_start` on.
pub const NEEDS_CHECKSUM: u8 = 1;
pub const GSO_NONE: u8 = 0;
pub const GSO_TCP4: u8 = 1;
pub const GSO_TCP6: u8 = 4;
/// UDP, each segment with a UDP header of its own.
pub const GSO_UDP_L4: u8 = 5;
/// Set beside a TCP type: the first segment alone carries CWR.
pub const GSO_ECN: u8 = 0x80;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    pub flags: u8,
    pub gso_type: u8,
    /// Bytes of all headers; a hint.
    pub header_bytes: u16,
    /// Payload of each segment but the last.
    pub gso_bytes: u16,
    pub checksum_start: u16,
    pub checksum_offset: u16,
}

impl VnetHeader {
    pub fn decode(bytes: &[u8; VNET_HEADER_BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: word(2),
            gso_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub fn encode(&self) -> [u8; VNET_HEADER_BYTES] {
        let mut bytes = [0; VNET_HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        for (at, word) in
            [(2, self.header_bytes), (4, self.gso_bytes), (6, self.checksum_start), (8, self.checksum_offset)]
        {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}
