//! Claims about reading and rewriting headers, checked with checksums computed here, independently and over whole packets.

use crate::ip::{ICMP6, TCP, UDP};
use crate::packet::Packet;
use crate::run::Run;
use crate::vnet::{
    GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, GSO_UDP_L4, NEEDS_CHECKSUM, VNET_HEADER_BYTES, VnetHeader,
};
use proptest::prelude::*;
use weir_fabric::Network;

/// The sum of RFC 1071 over any bytes, big-endian, odd lengths padded; a correct checksum makes it 0xffff.
fn ones_complement(parts: &[&[u8]]) -> u16 {
    let mut bytes: Vec<u8> = parts.concat();
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) * 256 + u64::from(pair[1]);
    }
    while sum >= 65_536 {
        sum = sum % 65_536 + sum / 65_536;
    }
    sum as u16
}

const V4: [[u8; 4]; 2] = [[10, 64, 0, 1], [10, 64, 0, 2]];
const V6: [[u8; 16]; 2] = [
    [0xfd, 0x77, 0x65, 0x69, 0x72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0xfd, 0x77, 0x65, 0x69, 0x72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
];

/// What a super-packet is made of beside its payload.
#[derive(Clone, Copy)]
struct Shape {
    v6: bool,
    protocol: u8,
    flags: u8,
    /// IPv4 options, or IPv6 destination options in units of eight.
    ip_options: usize,
    tcp_options: usize,
    size: u16,
    ecn: bool,
}

const UDP_SHAPE: Shape =
    Shape { v6: false, protocol: UDP, flags: 0, ip_options: 0, tcp_options: 0, size: 100, ecn: false };

/// The IP header of a packet, IPv4 with options of four bytes each, IPv6 with one header of destination options.
fn ip_header(shape: &Shape, payload_bytes: usize) -> Vec<u8> {
    if shape.v6 {
        let extension = shape.ip_options * 8;
        let mut ip = vec![0; 40 + extension];
        (ip[0], ip[3]) = (0x60, 0x99);
        ip[4..6].copy_from_slice(&((extension + payload_bytes) as u16).to_be_bytes());
        (ip[6], ip[7]) = (shape.protocol, 64);
        ip[8..24].copy_from_slice(&V6[0]);
        ip[24..40].copy_from_slice(&V6[1]);
        if extension > 0 {
            ip[6] = 60;
            (ip[40], ip[41]) = (shape.protocol, (shape.ip_options - 1) as u8);
        }
        return ip;
    }
    let bytes = 20 + shape.ip_options * 4;
    let mut ip = vec![0; bytes];
    ip[0] = 0x40 | (bytes / 4) as u8;
    ip[2..4].copy_from_slice(&((bytes + payload_bytes) as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&0xfffe_u16.to_be_bytes());
    ip[6] = 0x40; // do not fragment
    (ip[8], ip[9]) = (64, shape.protocol);
    ip[12..16].copy_from_slice(&V4[0]);
    ip[16..20].copy_from_slice(&V4[1]);
    for (index, byte) in ip[20..].iter_mut().enumerate() {
        *byte = index as u8 + 1;
    }
    let checksum = !ones_complement(&[&ip]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// The sum over the pseudo-header of a packet with `transport_bytes` after its IP headers.
fn pseudo_sum(v6: bool, protocol: u8, transport_bytes: usize) -> u16 {
    let rest = [0, protocol];
    let length = (transport_bytes as u16).to_be_bytes();
    match v6 {
        true => ones_complement(&[&V6[0], &V6[1], &rest, &length]),
        false => ones_complement(&[&V4[0], &V4[1], &rest, &length]),
    }
}

/// What a kernel that sends a super-packet hands to the device: virtio-net header, IP, transport with the pseudo-header's sum
/// where the checksum will be, payload.
fn super_packet(shape: &Shape, payload: &[u8]) -> Vec<u8> {
    let Shape { v6, protocol, flags, tcp_options, size, ecn, .. } = *shape;
    let transport_header = if protocol == TCP { 20 + tcp_options } else { 8 };
    let transport_bytes = transport_header + payload.len();
    let ip = ip_header(shape, transport_bytes);
    let (gso_type, checksum_offset) = match (protocol, v6) {
        (TCP, false) => (GSO_TCP4, 16),
        (TCP, true) => (GSO_TCP6, 16),
        _ => (GSO_UDP_L4, 6),
    };
    let vnet = VnetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: gso_type | if ecn { GSO_ECN } else { 0 },
        header_bytes: (ip.len() + transport_header) as u16,
        gso_bytes: size,
        checksum_start: ip.len() as u16,
        checksum_offset,
    };
    let mut transport = vec![0; transport_header];
    transport[..4].copy_from_slice(&[0x13, 0x88, 0x14, 0x51]);
    if protocol == TCP {
        transport[4..8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        transport[8..12].copy_from_slice(&77_u32.to_be_bytes());
        transport[12] = (((20 + tcp_options) / 4) << 4) as u8;
        transport[13] = flags;
        for (index, byte) in transport[20..].iter_mut().enumerate() {
            *byte = 0xa0 + index as u8;
        }
    } else {
        transport[4..6].copy_from_slice(&(transport_bytes as u16).to_be_bytes());
    }
    let at = usize::from(checksum_offset);
    transport[at..at + 2].copy_from_slice(&pseudo_sum(v6, protocol, transport_bytes).to_be_bytes());
    [&vnet.encode()[..], &ip, &transport, payload].concat()
}

/// What a receiver would have after completing the checksum as the virtio-net header asks.
fn completed(bytes: &[u8]) -> (VnetHeader, Vec<u8>) {
    let (vnet, ip) = bytes.split_first_chunk::<VNET_HEADER_BYTES>().unwrap();
    let vnet = VnetHeader::decode(vnet);
    let mut ip = ip.to_vec();
    if vnet.flags & NEEDS_CHECKSUM != 0 {
        let start = usize::from(vnet.checksum_start);
        let checksum = !ones_complement(&[&ip[start..]]);
        let at = start + usize::from(vnet.checksum_offset);
        ip[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    (vnet, ip)
}

fn assert_checksums_hold(ip: &[u8], transport_start: usize, protocol: u8) {
    let v6 = ip[0] >> 4 == 6;
    if v6 {
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])) + 40, ip.len(), "IPv6 payload length");
    } else {
        assert_eq!(ones_complement(&[&ip[..transport_start]]), 0xffff, "IP header checksum");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "IP total length");
    }
    let transport = &ip[transport_start..];
    let pseudo = pseudo_sum(v6, protocol, transport.len());
    assert_eq!(ones_complement(&[&pseudo.to_be_bytes(), transport]), 0xffff, "transport checksum");
    if protocol == UDP {
        assert_eq!(
            usize::from(u16::from_be_bytes([transport[4], transport[5]])),
            transport.len(),
            "UDP length"
        );
    }
}

fn written(packet: &Packet, bytes: &[u8], first: u16, count: u16) -> Vec<u8> {
    let ip = &bytes[VNET_HEADER_BYTES..];
    let run = Run::cut(packet, ip, first, count, packet.ip.hop_limit - 3);
    [run.head(), &ip[run.payload.clone()]].concat()
}

fn numbered_payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect()
}

proptest! {
    // Spec: lab.md#lab-5
    #[test]
    fn any_division_of_a_tcp_super_packet_is_packets_with_right_checksums_that_add_up_to_its_bytes(
        payload_bytes in 1usize..60_000,
        size in 500u16..9000,
        v6: bool,
        ip_options in 0usize..3,
        tcp_words in 0usize..11,
        flags: u8,
        ecn: bool,
        mut cuts in proptest::collection::vec(1u16..20, 0..40),
    ) {
        let payload = numbered_payload(payload_bytes);
        let shape = Shape { v6, protocol: TCP, flags, ip_options, tcp_options: tcp_words * 4, size, ecn };
        let bytes = super_packet(&shape, &payload);
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(usize::from(packet.segments), payload_bytes.div_ceil(usize::from(size)));
        if packet.segments < 2 {
            return Ok(()); // passes through untouched
        }
        let mut first = 0;
        let mut collected = Vec::new();
        while first < packet.segments {
            let count = cuts.pop().unwrap_or(1).min(packet.segments - first);
            let (vnet, ip) = completed(&written(&packet, &bytes, first, count));
            let header = usize::from(packet.header_bytes);
            let transport = usize::from(packet.ip.header_bytes);
            assert_checksums_hold(&ip, transport, TCP);
            let sequence = u32::from_be_bytes(ip[transport + 4..transport + 8].try_into().unwrap());
            prop_assert_eq!(sequence, 0xffff_f000_u32.wrapping_add(collected.len() as u32));
            if v6 {
                prop_assert_eq!(ip[7], 61, "hop limit");
                prop_assert_eq!(&ip[8..transport], &bytes[VNET_HEADER_BYTES..][8..transport]);
            } else {
                prop_assert_eq!(ip[8], 61, "time to live");
                prop_assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 0xfffe_u16.wrapping_add(first));
            }
            let is_last = first + count == packet.segments;
            let expected = flags & !(if is_last { 0 } else { 0x09 }) & !(if first == 0 { 0 } else { 0x80 });
            prop_assert_eq!(ip[transport + 13], expected);
            prop_assert_eq!(&ip[transport + 20..header], &bytes[VNET_HEADER_BYTES..][transport + 20..header]);
            if count == 1 {
                prop_assert_eq!((vnet.gso_type, vnet.gso_bytes), (GSO_NONE, 0));
            } else {
                let ecn = if ecn && first == 0 { GSO_ECN } else { 0 };
                prop_assert_eq!((vnet.gso_type, vnet.gso_bytes), (if v6 { GSO_TCP6 } else { GSO_TCP4 } | ecn, size));
            }
            collected.extend_from_slice(&ip[header..]);
            first += count;
        }
        prop_assert_eq!(collected, payload);
    }

    // Spec: lab.md#lab-5
    #[test]
    fn any_division_of_a_udp_super_packet_is_datagrams_with_right_checksums_and_lengths(
        payload_bytes in 2usize..60_000,
        size in 500u16..9000,
        v6: bool,
        step in 1u16..5,
    ) {
        let payload = numbered_payload(payload_bytes);
        let shape = Shape { v6, size, ..UDP_SHAPE };
        let bytes = super_packet(&shape, &payload);
        let packet = Packet::parse(&bytes).unwrap();
        if packet.segments < 2 {
            return Ok(());
        }
        let mut collected = Vec::new();
        for first in (0..packet.segments).step_by(usize::from(step)) {
            let (_, ip) = completed(&written(&packet, &bytes, first, step.min(packet.segments - first)));
            let transport = if v6 { 40 } else { 20 };
            assert_checksums_hold(&ip, transport, UDP);
            collected.extend_from_slice(&ip[transport + 8..]);
        }
        prop_assert_eq!(collected, payload);
    }

    // Spec: lab.md#lab-6
    #[test]
    fn no_byte_string_makes_the_parser_panic_and_what_it_accepts_can_be_cut_anywhere(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        like_ip in 0u8..3,
        likely_type in 0u8..7,
    ) {
        if like_ip > 0 && bytes.len() >= 60 {
            // Make the first checks pass, so that the later ones are met as well.
            let v6 = like_ip == 2;
            let ip_bytes = (bytes.len() - VNET_HEADER_BYTES) as u16;
            let tcp = matches!(likely_type, GSO_TCP4 | GSO_TCP6);
            bytes[0] = NEEDS_CHECKSUM;
            bytes[1] = likely_type;
            bytes[6..8].copy_from_slice(&(if v6 { 40_u16 } else { 20 }).to_ne_bytes());
            bytes[8..10].copy_from_slice(&(if tcp { 16_u16 } else { 6 }).to_ne_bytes());
            if v6 {
                bytes[10] = 0x60;
                bytes[14..16].copy_from_slice(&(ip_bytes - 40).to_be_bytes());
                bytes[16] = [TCP, UDP, ICMP6, 0, 43, 44, 51, 60][usize::from(bytes[16] % 8)];
            } else {
                bytes[10] = 0x45;
                bytes[12..14].copy_from_slice(&ip_bytes.to_be_bytes());
                bytes[16..18].fill(0);
                bytes[19] = if tcp { TCP } else { UDP };
            }
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(packet.total_bytes as usize, bytes.len() - VNET_HEADER_BYTES);
            for first in 0..packet.segments {
                if packet.segments > 1 {
                    let _ = Run::cut(&packet, &bytes[VNET_HEADER_BYTES..], first, 1, 1);
                    let _ = Run::cut(&packet, &bytes[VNET_HEADER_BYTES..], first, packet.segments - first, 1);
                }
            }
        }
    }
}

#[test]
fn a_fragment_and_a_foreign_protocol_are_one_segment() {
    let mut bytes = super_packet(&UDP_SHAPE, &numbered_payload(100));
    bytes[..VNET_HEADER_BYTES].fill(0);
    assert_eq!(Packet::parse(&bytes).unwrap().segments, 1);
    bytes[VNET_HEADER_BYTES + 6] = 0x20; // more fragments
    assert_eq!(Packet::parse(&bytes).unwrap().segments, 1);
    bytes[VNET_HEADER_BYTES + 9] = 1; // ICMP
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(
        (packet.segments, packet.total_bytes, packet.meta(Network::Data, 3).payload_bytes),
        (1, 128, 108)
    );
    bytes[VNET_HEADER_BYTES] = 0x50;
    assert!(Packet::parse(&bytes).is_err());
}

// Spec: lab.md#lab-6
#[test]
fn a_super_packet_whose_length_or_checksum_request_is_wrong_is_refused() {
    let shape = Shape { protocol: TCP, flags: 0x18, tcp_options: 12, size: 1448, ..UDP_SHAPE };
    for v6 in [false, true] {
        let good = super_packet(&Shape { v6, ..shape }, &numbered_payload(5000));
        assert_eq!(Packet::parse(&good).unwrap().segments, 4);
        let spoilt = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Packet::parse(&bytes)
        };
        let (next, transport) = if v6 { (6, 40) } else { (9, 20) };
        assert!(Packet::parse(&good[..good.len() - 1]).is_err(), "shorter than it says");
        assert!(spoilt(0, 0).is_err(), "no checksum asked for");
        assert!(spoilt(1, 3).is_err(), "a type that TUN never sends");
        assert!(spoilt(1, if v6 { GSO_TCP4 } else { GSO_TCP6 }).is_err(), "the other version's type");
        assert!(spoilt(VNET_HEADER_BYTES + next, UDP).is_err(), "a TCP super-packet of UDP");
        assert!(spoilt(VNET_HEADER_BYTES + transport + 12, 0x10).is_err(), "a TCP header of 4 bytes");
    }
}
