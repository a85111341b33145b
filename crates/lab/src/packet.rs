//! What the fabric needs to know of a packet that a host sent: where to, how long, and how the kernel meant it to be cut.

use crate::icmp::{answerable, is_echo_request};
use crate::ip::{ICMP, ICMP6, IpHeader, Refused, TCP, UDP, word};
use crate::vnet::{
    GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, GSO_UDP_L4, NEEDS_CHECKSUM, VNET_HEADER_BYTES, VnetHeader,
};
use std::net::{IpAddr, Ipv4Addr};
use weir_core::schedule::Protocol;
use weir_fabric::{Network, PacketMeta};

/// Offset of the checksum in a TCP header.
pub const TCP_CHECKSUM: u16 = 16;
/// Offset of the checksum in a UDP header.
pub const UDP_CHECKSUM: u16 = 6;
/// The longest IP header, IPv6 extension headers included, that a super-packet may have.
pub const SUPER_IP_HEADER_BYTES_MAX: usize = 128;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

/// One packet or super-packet as read from a TUN device, its virtio-net header not counted in any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub vnet: VnetHeader,
    pub ip: IpHeader,
    /// IP and, where the packet can be cut, transport header: what each segment repeats.
    pub header_bytes: u16,
    pub total_bytes: u32,
    /// Payload of each segment but the last.
    pub segment_bytes: u16,
    pub segments: u16,
    /// Ports of sender and receiver of TCP and UDP; 0 where there are none, and in fragments.
    pub ports: [u16; 2],
    /// Whether a router may answer it.
    pub answerable: bool,
    /// Whether a router replies to it.
    pub echo_request: bool,
}

impl Default for Packet {
    fn default() -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let ip = IpHeader {
            from: nobody,
            to: nobody,
            protocol: 0,
            hop_limit: 0,
            header_bytes: 0,
            fragment: false,
            later_fragment: false,
            do_not_fragment: false,
        };
        Packet {
            vnet: VnetHeader::default(),
            ip,
            header_bytes: 0,
            total_bytes: 0,
            segment_bytes: 0,
            segments: 1,
            ports: [0; 2],
            answerable: false,
            echo_request: false,
        }
    }
}

impl Packet {
    /// Reads the headers of `bytes`: virtio-net header, then an IP packet.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Refused> {
        let (vnet, ip) = bytes.split_first_chunk::<VNET_HEADER_BYTES>().ok_or(Refused)?;
        let vnet = VnetHeader::decode(vnet);
        // IPv6 could say 40 bytes more; no device hands them over.
        if ip.len() > usize::from(u16::MAX) {
            return Err(Refused);
        }
        let header = IpHeader::parse(ip)?;
        let transport = &ip[usize::from(header.header_bytes)..];
        let ports = match header.protocol {
            TCP | UDP if !header.fragment && transport.len() >= 4 => [word(transport, 0), word(transport, 2)],
            _ => [0; 2],
        };
        let packet = Packet {
            vnet,
            ip: header,
            header_bytes: header.header_bytes,
            total_bytes: ip.len() as u32,
            segment_bytes: transport.len() as u16,
            segments: 1,
            ports,
            answerable: answerable(&header, transport),
            echo_request: is_echo_request(&header, transport),
        };
        match (vnet.gso_type & !GSO_ECN, header.from) {
            (GSO_NONE, _) => Ok(packet),
            _ if header.fragment => Err(Refused),
            (GSO_TCP4, IpAddr::V4(_)) | (GSO_TCP6, IpAddr::V6(_)) if header.protocol == TCP => {
                packet.cut_as_tcp(transport)
            }
            (GSO_UDP_L4, _) if header.protocol == UDP => packet.cut(UDP_HEADER_BYTES, UDP_CHECKSUM),
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

    fn cut(mut self, transport_header_bytes: usize, checksum_offset: u16) -> Result<Packet, Refused> {
        let header = usize::from(self.ip.header_bytes) + transport_header_bytes;
        let payload = (self.total_bytes as usize).checked_sub(header).ok_or(Refused)?;
        let size = usize::from(self.vnet.gso_bytes);
        let completes_checksum = self.vnet.flags & NEEDS_CHECKSUM != 0
            && self.vnet.checksum_start == self.ip.header_bytes
            && self.vnet.checksum_offset == checksum_offset;
        let too_long = usize::from(self.ip.header_bytes) > SUPER_IP_HEADER_BYTES_MAX;
        if size == 0 || payload == 0 || !completes_checksum || too_long {
            return Err(Refused);
        }
        self.header_bytes = header as u16;
        self.segment_bytes = size as u16;
        self.segments = payload.div_ceil(size) as u16;
        Ok(self)
    }

    pub fn payload_bytes(&self) -> u32 {
        self.total_bytes - u32::from(self.header_bytes)
    }

    /// What the fabric's core is told; `to` is the destination's number, on `network`.
    pub fn meta(&self, network: Network, to: usize) -> PacketMeta {
        PacketMeta {
            network,
            to,
            header_bytes: self.header_bytes,
            segment_bytes: self.segment_bytes,
            payload_bytes: self.payload_bytes(),
            segments: self.segments,
            hop_limit: self.ip.hop_limit,
            protocol: match self.ip.protocol {
                TCP => Some(Protocol::Tcp),
                UDP => Some(Protocol::Udp),
                ICMP | ICMP6 => Some(Protocol::Icmp),
                _ => None,
            },
            ports: self.ports,
            ipv6: self.ip.from.is_ipv6(),
            answerable: self.answerable,
        }
    }
}
