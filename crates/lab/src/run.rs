//! Headers for a run of consecutive segments of a super-packet, so that the run is a packet, or a smaller super-packet, of
//! its own. The payload stays where it is.

use crate::packet::{Packet, TCP, TCP_CHECKSUM, UDP, UDP_CHECKSUM};
use crate::vnet::{GSO_ECN, GSO_NONE, VNET_HEADER_BYTES};
use std::ops::Range;

/// Room for the virtio-net header and the longest IPv4 and TCP headers.
pub const HEAD_BYTES_MAX: usize = VNET_HEADER_BYTES + 60 + 60;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// What goes before the payload, and which part of the packet's bytes (virtio-net header not counted) the payload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    pub payload: Range<usize>,
}

impl Run {
    /// Virtio-net header, IP header, transport header.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// Cuts segments `first .. first + count` out of a packet with more than one segment. `ip` is the whole packet from its
    /// IP header on.
    ///
    /// Panics if the packet has no such segments: the caller counts them.
    pub fn cut(packet: &Packet, ip: &[u8], first: u16, count: u16) -> Run {
        assert!(count > 0 && packet.segments > 1, "a run is part of a super-packet");
        assert!(
            first.checked_add(count).is_some_and(|end| end <= packet.segments),
            "a run ends within its packet"
        );
        let header_bytes = usize::from(packet.header_bytes);
        let ip_header_bytes = usize::from(packet.ip_header_bytes);
        let size = usize::from(packet.segment_bytes);
        let start = header_bytes + usize::from(first) * size;
        let end = (start + usize::from(count) * size).min(ip.len());

        let mut run = Run {
            head: [0; HEAD_BYTES_MAX],
            head_bytes: VNET_HEADER_BYTES + header_bytes,
            payload: start..end,
        };
        let (vnet, headers) = run.head.split_at_mut(VNET_HEADER_BYTES);
        let headers = &mut headers[..header_bytes];
        headers.copy_from_slice(&ip[..header_bytes]);
        let (ip_header, transport) = headers.split_at_mut(ip_header_bytes);

        let is_first = first == 0;
        let is_last = first + count == packet.segments;
        let total = header_bytes + (end - start);
        set_ip_header(ip_header, total as u16, first);
        let transport_bytes = (total - ip_header_bytes) as u16;
        let pseudo = pseudo_header_sum(ip_header, packet.protocol, transport_bytes);
        match packet.protocol {
            TCP => set_tcp_header(transport, u32::from(first) * size as u32, is_first, is_last, pseudo),
            UDP => set_udp_header(transport, transport_bytes, pseudo),
            other => unreachable!("protocol {other} has no super-packets"),
        }

        let mut header = packet.vnet;
        header.header_bytes = packet.header_bytes;
        if count == 1 {
            header.gso_type = GSO_NONE;
            header.gso_bytes = 0;
        } else if !is_first {
            header.gso_type &= !GSO_ECN;
        }
        vnet.copy_from_slice(&header.encode());
        run
    }
}

/// Total length, identification as the kernel would have numbered the segments, checksum.
fn set_ip_header(header: &mut [u8], total_bytes: u16, first: u16) {
    header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(first);
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn set_tcp_header(header: &mut [u8], offset: u32, is_first: bool, is_last: bool, pseudo: u16) {
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]).wrapping_add(offset);
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_last {
        header[13] &= !(TCP_FIN | TCP_PSH);
    }
    if !is_first {
        header[13] &= !TCP_CWR;
    }
    let at = usize::from(TCP_CHECKSUM);
    header[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
}

fn set_udp_header(header: &mut [u8], udp_bytes: u16, pseudo: u16) {
    header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    let at = usize::from(UDP_CHECKSUM);
    header[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// What a checksum to be completed starts from: the sum over the pseudo-header, not complemented (virtio 5.1.6.2).
fn pseudo_header_sum(ip_header: &[u8], protocol: u8, transport_bytes: u16) -> u16 {
    fold(sum(&ip_header[12..20]) + u32::from(protocol) + u32::from(transport_bytes))
}

/// RFC 1071, before folding; `bytes` is even in all uses.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
