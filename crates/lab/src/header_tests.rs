//! Claims about reading and rewriting headers, checked with checksums computed here, independently and over whole packets.

use crate::packet::{Packet, TCP, UDP};
use crate::run::Run;
use crate::vnet::{GSO_ECN, GSO_NONE, GSO_TCP4, GSO_UDP_L4, NEEDS_CHECKSUM, VNET_HEADER_BYTES, VnetHeader};
use proptest::prelude::*;

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

/// What a kernel that sends a super-packet hands to the device: virtio-net header, IP, transport with the pseudo-header's sum
/// where the checksum will be, payload.
fn super_packet(
    protocol: u8,
    flags: u8,
    ip_options: usize,
    tcp_options: usize,
    payload: &[u8],
    size: u16,
    ecn: bool,
) -> Vec<u8> {
    let ip_header = 20 + ip_options;
    let transport_header = if protocol == TCP { 20 + tcp_options } else { 8 };
    let total = ip_header + transport_header + payload.len();
    let (gso_type, checksum_offset) = if protocol == TCP { (GSO_TCP4, 16) } else { (GSO_UDP_L4, 6) };
    let vnet = VnetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: gso_type | if ecn { GSO_ECN } else { 0 },
        header_bytes: (ip_header + transport_header) as u16,
        gso_bytes: size,
        checksum_start: ip_header as u16,
        checksum_offset,
    };
    let mut bytes = vnet.encode().to_vec();
    let ip = VNET_HEADER_BYTES;
    bytes.resize(ip + ip_header + transport_header, 0);
    bytes[ip] = 0x40 | (ip_header / 4) as u8;
    bytes[ip + 2..ip + 4].copy_from_slice(&(total as u16).to_be_bytes());
    bytes[ip + 4..ip + 6].copy_from_slice(&0xfffe_u16.to_be_bytes());
    bytes[ip + 6] = 0x40; // do not fragment
    bytes[ip + 8] = 64;
    bytes[ip + 9] = protocol;
    bytes[ip + 12..ip + 16].copy_from_slice(&[10, 64, 0, 1]);
    bytes[ip + 16..ip + 20].copy_from_slice(&[10, 64, 0, 2]);
    for (index, byte) in bytes[ip + 20..ip + ip_header].iter_mut().enumerate() {
        *byte = index as u8 + 1;
    }
    let checksum = !ones_complement(&[&bytes[ip..ip + ip_header]]);
    bytes[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    let transport = ip + ip_header;
    bytes[transport..transport + 4].copy_from_slice(&[0x13, 0x88, 0x14, 0x51]);
    let transport_bytes = transport_header + payload.len();
    if protocol == TCP {
        bytes[transport + 4..transport + 8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        bytes[transport + 8..transport + 12].copy_from_slice(&77_u32.to_be_bytes());
        bytes[transport + 12] = (((20 + tcp_options) / 4) << 4) as u8;
        bytes[transport + 13] = flags;
        for (index, byte) in bytes[transport + 20..transport + 20 + tcp_options].iter_mut().enumerate() {
            *byte = 0xa0 + index as u8;
        }
    } else {
        bytes[transport + 4..transport + 6].copy_from_slice(&(transport_bytes as u16).to_be_bytes());
    }
    let pseudo = ones_complement(&[
        &[10, 64, 0, 1, 10, 64, 0, 2, 0, protocol],
        &(transport_bytes as u16).to_be_bytes(),
    ]);
    let at = transport + usize::from(checksum_offset);
    bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
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

fn assert_checksums_hold(ip: &[u8]) {
    let header = usize::from(ip[0] & 15) * 4;
    assert_eq!(ones_complement(&[&ip[..header]]), 0xffff, "IP header checksum");
    assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "IP total length");
    let transport_bytes = (ip.len() - header) as u16;
    let pseudo = [&ip[12..20], &[0, ip[9]], &transport_bytes.to_be_bytes()].concat();
    assert_eq!(ones_complement(&[&pseudo, &ip[header..]]), 0xffff, "transport checksum");
    if ip[9] == UDP {
        assert_eq!(u16::from_be_bytes([ip[header + 4], ip[header + 5]]), transport_bytes, "UDP length");
    }
}

fn written(packet: &Packet, bytes: &[u8], first: u16, count: u16) -> Vec<u8> {
    let ip = &bytes[VNET_HEADER_BYTES..];
    let run = Run::cut(packet, ip, first, count);
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
        ip_words in 0usize..3,
        tcp_words in 0usize..11,
        flags: u8,
        ecn: bool,
        mut cuts in proptest::collection::vec(1u16..20, 0..40),
    ) {
        let payload = numbered_payload(payload_bytes);
        let bytes = super_packet(TCP, flags, ip_words * 4, tcp_words * 4, &payload, size, ecn);
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
            assert_checksums_hold(&ip);
            let header = usize::from(packet.header_bytes);
            let transport = usize::from(packet.ip_header_bytes);
            let sequence = u32::from_be_bytes(ip[transport + 4..transport + 8].try_into().unwrap());
            prop_assert_eq!(sequence, 0xffff_f000_u32.wrapping_add(collected.len() as u32));
            prop_assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 0xfffe_u16.wrapping_add(first));
            let is_last = first + count == packet.segments;
            let expected = flags & !(if is_last { 0 } else { 0x09 }) & !(if first == 0 { 0 } else { 0x80 });
            prop_assert_eq!(ip[transport + 13], expected);
            prop_assert_eq!(&ip[transport + 20..header], &bytes[VNET_HEADER_BYTES..][transport + 20..header]);
            if count == 1 {
                prop_assert_eq!((vnet.gso_type, vnet.gso_bytes), (GSO_NONE, 0));
            } else {
                let ecn = if ecn && first == 0 { GSO_ECN } else { 0 };
                prop_assert_eq!((vnet.gso_type, vnet.gso_bytes), (GSO_TCP4 | ecn, size));
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
        step in 1u16..5,
    ) {
        let payload = numbered_payload(payload_bytes);
        let bytes = super_packet(UDP, 0, 0, 0, &payload, size, false);
        let packet = Packet::parse(&bytes).unwrap();
        if packet.segments < 2 {
            return Ok(());
        }
        let mut collected = Vec::new();
        for first in (0..packet.segments).step_by(usize::from(step)) {
            let (_, ip) = completed(&written(&packet, &bytes, first, step.min(packet.segments - first)));
            assert_checksums_hold(&ip);
            collected.extend_from_slice(&ip[28..]);
        }
        prop_assert_eq!(collected, payload);
    }

    // Spec: lab.md#lab-6
    #[test]
    fn no_byte_string_makes_the_parser_panic_and_what_it_accepts_can_be_cut_anywhere(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        like_ip: bool,
        likely_type in 0u8..7,
    ) {
        if like_ip && bytes.len() >= 40 {
            // Make the first checks pass, so that the later ones are met as well.
            let ip_bytes = (bytes.len() - VNET_HEADER_BYTES) as u16;
            bytes[0] = NEEDS_CHECKSUM;
            bytes[1] = likely_type;
            bytes[6..8].copy_from_slice(&20_u16.to_ne_bytes());
            bytes[8..10].copy_from_slice(&(if likely_type == 1 { 16_u16 } else { 6 }).to_ne_bytes());
            bytes[10] = 0x45;
            bytes[12..14].copy_from_slice(&ip_bytes.to_be_bytes());
            bytes[16..18].fill(0);
            bytes[19] = if likely_type == 1 { TCP } else { UDP };
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(packet.total_bytes as usize, bytes.len() - VNET_HEADER_BYTES);
            for first in 0..packet.segments {
                if packet.segments > 1 {
                    written(&packet, &bytes, first, 1);
                    written(&packet, &bytes, first, packet.segments - first);
                }
            }
        }
    }
}

#[test]
fn a_fragment_and_a_foreign_protocol_are_one_segment_and_ipv6_is_refused() {
    let mut bytes = super_packet(UDP, 0, 0, 0, &numbered_payload(100), 100, false);
    bytes[..VNET_HEADER_BYTES].fill(0);
    assert_eq!(Packet::parse(&bytes).unwrap().segments, 1);
    bytes[VNET_HEADER_BYTES + 6] = 0x20; // more fragments
    assert_eq!(Packet::parse(&bytes).unwrap().segments, 1);
    bytes[VNET_HEADER_BYTES + 9] = 1; // ICMP
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.segments, packet.total_bytes, packet.meta(3).payload_bytes), (1, 128, 108));
    bytes[VNET_HEADER_BYTES] = 0x60;
    assert!(Packet::parse(&bytes).is_err());
}

// Spec: lab.md#lab-6
#[test]
fn a_super_packet_whose_length_or_checksum_request_is_wrong_is_refused() {
    let good = super_packet(TCP, 0x18, 0, 12, &numbered_payload(5000), 1448, false);
    assert_eq!(Packet::parse(&good).unwrap().segments, 4);
    let spoilt = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Packet::parse(&bytes)
    };
    assert!(Packet::parse(&good[..good.len() - 1]).is_err(), "shorter than it says");
    assert!(spoilt(0, 0).is_err(), "no checksum asked for");
    assert!(spoilt(1, 3).is_err(), "a type that TUN never sends");
    assert!(spoilt(VNET_HEADER_BYTES + 9, UDP).is_err(), "a TCP super-packet of UDP");
    assert!(spoilt(VNET_HEADER_BYTES + 20 + 12, 0x10).is_err(), "a TCP header of 4 bytes");
}
