//! Headers for a run of consecutive segments of a super-packet, so that the run is a packet, or a smaller super-packet, of
//! its own. The payload stays where it is.

use crate::ip::{TCP, UDP, pseudo_header, set_length, set_v4_checksum};
use crate::packet::{Packet, SUPER_IP_HEADER_BYTES_MAX, TCP_CHECKSUM, UDP_CHECKSUM};
use crate::vnet::{GSO_ECN, GSO_NONE, VNET_HEADER_BYTES};
use std::ops::Range;

/// Room for the virtio-net header and the longest IP and TCP headers.
pub const HEAD_BYTES_MAX: usize = VNET_HEADER_BYTES + SUPER_IP_HEADER_BYTES_MAX + 60;

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
    /// IP header on, `hop_limit` what routers have left of its hop limit.
    ///
    /// Panics if the packet has no such segments: the caller counts them.
    pub fn cut(packet: &Packet, ip: &[u8], first: u16, count: u16, hop_limit: u8) -> Run {
        assert!(count > 0 && packet.segments > 1, "a run is part of a super-packet");
        assert!(
            first.checked_add(count).is_some_and(|end| end <= packet.segments),
            "a run ends within its packet"
        );
        let header_bytes = usize::from(packet.header_bytes);
        let ip_header_bytes = usize::from(packet.ip.header_bytes);
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
        set_ip_header(ip_header, total, first, hop_limit);
        let transport_bytes = total - ip_header_bytes;
        // What a checksum to be completed starts from is not complemented (virtio 5.1.6.2).
        let pseudo = pseudo_header(ip_header, packet.ip.protocol, transport_bytes).folded();
        match packet.ip.protocol {
            TCP => set_tcp_header(transport, u32::from(first) * size as u32, is_first, is_last, pseudo),
            UDP => set_udp_header(transport, transport_bytes as u16, pseudo),
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

/// Length and hop limit, and for IPv4 identification as the kernel would have numbered the segments, and checksum.
fn set_ip_header(header: &mut [u8], total_bytes: usize, first: u16, hop_limit: u8) {
    set_length(header, total_bytes);
    if header[0] >> 4 == 6 {
        header[7] = hop_limit;
        return;
    }
    header[8] = hop_limit;
    let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(first);
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    set_v4_checksum(header);
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
