//! What the fabric needs to know of a packet that a host sent: where to, how long, and how the kernel meant it to be cut.

use crate::vnet::{GSO_ECN, GSO_NONE, GSO_TCP4, GSO_UDP_L4, NEEDS_CHECKSUM, VNET_HEADER_BYTES, VnetHeader};
use std::net::Ipv4Addr;
use weir_core::schedule::Protocol;
use weir_fabric::{Network, PacketMeta};

const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// Offset of the checksum in a TCP header.
pub const TCP_CHECKSUM: u16 = 16;
/// Offset of the checksum in a UDP header.
pub const UDP_CHECKSUM: u16 = 6;
const IPV4_HEADER_BYTES: usize = 20;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;

/// A packet that cannot be carried: not IPv4, or its headers contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// One packet or super-packet as read from a TUN device, its virtio-net header not counted in any offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    pub vnet: VnetHeader,
    pub from: u32,
    pub to: u32,
    pub protocol: u8,
    pub ip_header_bytes: u16,
    /// IP and, where the packet can be cut, transport header: what each segment repeats.
    pub header_bytes: u16,
    pub total_bytes: u32,
    /// Payload of each segment but the last.
    pub segment_bytes: u16,
    pub segments: u16,
    pub hop_limit: u8,
    /// Source and destination of TCP and UDP; 0 in fragments.
    pub ports: [u16; 2],
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Packet {
    /// Reads the headers of `bytes`: virtio-net header, then an IP packet.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Refused> {
        let (vnet, ip) = bytes.split_first_chunk::<VNET_HEADER_BYTES>().ok_or(Refused)?;
        let vnet = VnetHeader::decode(vnet);
        if ip.len() < IPV4_HEADER_BYTES || ip.len() > usize::from(u16::MAX) || ip[0] >> 4 != 4 {
            return Err(Refused);
        }
        let ip_header_bytes = usize::from(ip[0] & 0x0f) * 4;
        if ip_header_bytes < IPV4_HEADER_BYTES
            || usize::from(word(ip, 2)) != ip.len()
            || ip.len() < ip_header_bytes
        {
            return Err(Refused);
        }
        let fragment = word(ip, 6) & MORE_FRAGMENTS_OR_OFFSET != 0;
        let mut packet = Packet {
            vnet,
            from: double_word(ip, 12),
            to: double_word(ip, 16),
            protocol: ip[9],
            ip_header_bytes: ip_header_bytes as u16,
            header_bytes: ip_header_bytes as u16,
            total_bytes: ip.len() as u32,
            segment_bytes: (ip.len() - ip_header_bytes) as u16,
            segments: 1,
            hop_limit: ip[8],
            ports: [0; 2],
        };
        let transport = &ip[ip_header_bytes..];
        if matches!(packet.protocol, TCP | UDP) && !fragment && transport.len() >= 4 {
            packet.ports = [word(transport, 0), word(transport, 2)];
        }
        match vnet.gso_type & !GSO_ECN {
            GSO_NONE => Ok(packet),
            GSO_TCP4 if packet.protocol == TCP && !fragment => packet.cut_as_tcp(transport),
            GSO_UDP_L4 if packet.protocol == UDP && !fragment => packet.cut_as_udp(transport),
            _ => Err(Refused),
        }
    }

    fn cut_as_tcp(self, transport: &[u8]) -> Result<Packet, Refused> {
        if transport.len() < TCP_HEADER_BYTES {
            return Err(Refused);
        }
        let header = usize::from(transport[12] >> 4) * 4;
        if header < TCP_HEADER_BYTES {
            return Err(Refused);
        }
        self.cut(header, TCP_CHECKSUM)
    }

    fn cut_as_udp(self, _transport: &[u8]) -> Result<Packet, Refused> {
        self.cut(UDP_HEADER_BYTES, UDP_CHECKSUM)
    }

    fn cut(mut self, transport_header_bytes: usize, checksum_offset: u16) -> Result<Packet, Refused> {
        let header = usize::from(self.ip_header_bytes) + transport_header_bytes;
        let payload = (self.total_bytes as usize).checked_sub(header).ok_or(Refused)?;
        let size = usize::from(self.vnet.gso_bytes);
        let completes_checksum = self.vnet.flags & NEEDS_CHECKSUM != 0
            && self.vnet.checksum_start == self.ip_header_bytes
            && self.vnet.checksum_offset == checksum_offset;
        if size == 0 || payload == 0 || !completes_checksum {
            return Err(Refused);
        }
        self.header_bytes = header as u16;
        self.segment_bytes = size as u16;
        self.segments = payload.div_ceil(size) as u16;
        Ok(self)
    }

    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.to)
    }

    pub fn payload_bytes(&self) -> u32 {
        self.total_bytes - u32::from(self.header_bytes)
    }

    /// What the fabric's core is told; `to` is the destination's host number.
    pub fn meta(&self, to: usize) -> PacketMeta {
        PacketMeta {
            to,
            network: Network::Data,
            header_bytes: self.header_bytes,
            segment_bytes: self.segment_bytes,
            payload_bytes: self.payload_bytes(),
            segments: self.segments,
            hop_limit: self.hop_limit,
            protocol: match self.protocol {
                TCP => Some(Protocol::Tcp),
                UDP => Some(Protocol::Udp),
                ICMP => Some(Protocol::Icmp),
                _ => None,
            },
            ports: self.ports,
            ipv6: false,
            answerable: false,
        }
    }
}
