//! What routers say of packets that they did not forward, and to who asks whether they are there (RFC 792, RFC 1191, RFC 4443).

use crate::checksum::{Sum, update};
use crate::ip::{
    ICMP, ICMP6, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, IpHeader, pseudo_header, set_length, set_v4_checksum,
    word,
};
use std::net::IpAddr;
use weir_core::topology::Topology;
use weir_fabric::Refusal;

const ICMP_HEADER_BYTES: usize = 8;
const V4_ECHO_REPLY: u8 = 0;
const V4_ECHO_REQUEST: u8 = 8;
const V6_ECHO_REQUEST: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;
const V4_UNREACHABLE: u8 = 3;
const V4_FRAGMENTATION_NEEDED: u8 = 4;
const V4_TIME_EXCEEDED: u8 = 11;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;
/// Precedence of network control, as routers mark what they send of their own (RFC 1812 section 5.3.2).
const NETWORK_CONTROL: u8 = 0xc0;

/// Whether a packet of this header, whose transport header begins with `transport`, may be answered by a router: no ICMP error,
/// no fragment but the first, sent by and to one station (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
pub fn answerable(header: &IpHeader, transport: &[u8]) -> bool {
    if header.later_fragment || header.to.is_multicast() || header.from.is_multicast() {
        return false;
    }
    match (header.protocol, transport.first()) {
        // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
        (ICMP, Some(kind)) => !matches!(kind, 3 | 4 | 5 | 11 | 12),
        // Errors have the highest bit clear; a redirect is none to answer either.
        (ICMP6, Some(kind)) => *kind >= 128 && *kind != 137,
        (ICMP | ICMP6, None) => false,
        _ => true,
    }
}

/// Whether a packet of this header, whose transport header begins with `transport`, is an ICMP echo request that a router
/// replies to: whole, because routers here join no fragments, and without IP options, which a reply would have to undo.
pub fn is_echo_request(header: &IpHeader, transport: &[u8]) -> bool {
    let (kind, header_bytes) = match header.protocol {
        ICMP if header.from.is_ipv4() => (V4_ECHO_REQUEST, IPV4_HEADER_BYTES),
        ICMP6 if header.from.is_ipv6() => (V6_ECHO_REQUEST, IPV6_HEADER_BYTES),
        _ => return false,
    };
    !header.fragment
        && usize::from(header.header_bytes) == header_bytes
        && transport.len() >= ICMP_HEADER_BYTES
        && transport[..2] == [kind, 0]
}

/// The packet, from its IP header on, by which the router at `stage` says why it did not forward the segment `refused`: of `bytes`
/// bytes, what does not fit of the segment being left out.
///
/// Panics if there is no room for the headers.
pub fn error(stage: usize, why: Refusal, refused: &[u8], bytes: usize, hop_limit: u8) -> Vec<u8> {
    let header = IpHeader::parse(refused).expect("it was read as a packet when it was sent");
    let v6 = header.from.is_ipv6();
    let ip_header_bytes = if v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    let quoted = bytes.checked_sub(ip_header_bytes + ICMP_HEADER_BYTES).expect("an answer has its headers");
    let (kind, code, mtu) = match (why, v6) {
        (Refusal::TimeExceeded, false) => (V4_TIME_EXCEEDED, 0, 0),
        (Refusal::TimeExceeded, true) => (V6_TIME_EXCEEDED, 0, 0),
        (Refusal::TooBig { mtu }, false) => (V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED, mtu),
        (Refusal::TooBig { mtu }, true) => (V6_TOO_BIG, 0, mtu),
    };
    let mut icmp = vec![0; ICMP_HEADER_BYTES];
    (icmp[0], icmp[1]) = (kind, code);
    icmp[6..8].copy_from_slice(&mtu.to_be_bytes()); // the lower half of ICMPv6's 32 bits
    icmp.extend_from_slice(&refused[..quoted.min(refused.len())]);

    let mut packet = from_router(stage, header.from, NETWORK_CONTROL, hop_limit, &icmp);
    let (ip_header, icmp) = packet.split_at_mut(ip_header_bytes);
    let covered = if v6 { pseudo_header(ip_header, ICMP6, icmp.len()) } else { Sum::default() };
    let checksum = covered.add(icmp).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The reply, from its IP header on, of the router at `stage` to an echo request (`is_echo_request`), as long as the request: its
/// identifier, sequence number, data and class of traffic (RFC 1812 section 4.3.2.5).
pub fn echo_reply(stage: usize, request: &[u8], hop_limit: u8) -> Vec<u8> {
    let header = IpHeader::parse(request).expect("it was read as a packet when it was sent");
    let (kind, class) = match header.from {
        IpAddr::V4(_) => (V4_ECHO_REPLY, request[1]),
        IpAddr::V6(_) => (V6_ECHO_REPLY, request[0] << 4 | request[1] >> 4),
    };
    let mut icmp = request[usize::from(header.header_bytes)..].to_vec();
    // By the difference, so that a wrong checksum stays one. The same addresses the other way round sum up to the same.
    let before = word(&icmp, 0);
    icmp[0] = kind;
    let checksum = update(word(&icmp, 2), before, word(&icmp, 0));
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    from_router(stage, header.from, class, hop_limit, &icmp)
}

/// An ICMP message behind a header from the router at `stage`.
fn from_router(stage: usize, to: IpAddr, class: u8, hop_limit: u8, icmp: &[u8]) -> Vec<u8> {
    let ip_header_bytes = if to.is_ipv6() { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    let mut packet = vec![0; ip_header_bytes];
    match to {
        IpAddr::V4(to) => {
            (packet[0], packet[1]) = (0x45, class);
            (packet[8], packet[9]) = (hop_limit, ICMP);
            packet[12..16].copy_from_slice(&Topology::router_ipv4(stage).octets());
            packet[16..20].copy_from_slice(&to.octets());
        }
        IpAddr::V6(to) => {
            // The traffic class lies across the first two bytes.
            (packet[0], packet[1]) = (0x60 | class >> 4, class << 4);
            (packet[6], packet[7]) = (ICMP6, hop_limit);
            packet[8..24].copy_from_slice(&Topology::router_ipv6(stage).octets());
            packet[24..40].copy_from_slice(&to.octets());
        }
    }
    packet.extend_from_slice(icmp);
    let total = packet.len();
    set_length(&mut packet, total);
    if to.is_ipv4() {
        set_v4_checksum(&mut packet[..IPV4_HEADER_BYTES]);
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{TCP, UDP};

    /// A UDP datagram of 1,500 bytes whose payload counts up.
    fn datagram(v6: bool) -> Vec<u8> {
        let mut ip = if v6 { vec![0; 40] } else { vec![0; 20] };
        if v6 {
            (ip[0], ip[6], ip[7]) = (0x60, UDP, 1);
            ip[8..24].copy_from_slice(&Topology::ipv6(0).octets());
            ip[24..40].copy_from_slice(&Topology::ipv6(1).octets());
        } else {
            (ip[0], ip[8], ip[9]) = (0x45, 1, UDP);
            ip[12..16].copy_from_slice(&Topology::ipv4(0).octets());
            ip[16..20].copy_from_slice(&Topology::ipv4(1).octets());
        }
        ip.extend((ip.len()..1500).map(|index| index as u8));
        set_length(&mut ip, 1500);
        if !v6 {
            set_v4_checksum(&mut ip[..20]);
        }
        ip
    }

    // Spec: lab.md#lab-19
    #[test]
    fn an_ipv4_answer_has_right_checksums_and_quotes_what_fits_of_the_packet() {
        let refused = datagram(false);
        let packet = error(3, Refusal::TooBig { mtu: 1400 }, &refused, 576, 61);
        assert_eq!((packet.len(), usize::from(word(&packet, 2))), (576, 576));
        assert_eq!(Sum::default().add(&packet[..20]).folded(), 0xffff);
        assert_eq!(Sum::default().add(&packet[20..]).folded(), 0xffff);
        assert_eq!((packet[8], packet[9], packet[20], packet[21], word(&packet, 26)), (61, ICMP, 3, 4, 1400));
        assert_eq!(packet[12..16], Topology::router_ipv4(3).octets());
        assert_eq!(packet[16..20], Topology::ipv4(0).octets());
        assert_eq!(packet[28..], refused[..548]);
    }

    // Spec: lab.md#lab-19
    #[test]
    fn an_ipv6_answer_has_the_right_checksum_over_its_pseudo_header() {
        let refused = datagram(true);
        for (why, kind, mtu) in [(Refusal::TimeExceeded, 3, 0), (Refusal::TooBig { mtu: 1280 }, 2, 1280)] {
            let packet = error(3, why, &refused, 1280, 64);
            assert_eq!((packet.len(), word(&packet, 4), packet[6], packet[7]), (1280, 1240, ICMP6, 64));
            assert_eq!((packet[40], packet[41], word(&packet, 44), word(&packet, 46)), (kind, 0, 0, mtu));
            // Addresses, length and next header, written out here once more.
            let pseudo = [&packet[8..40], &1240_u32.to_be_bytes(), &[0, 0, 0, ICMP6]].concat();
            assert_eq!(Sum::default().add(&pseudo).add(&packet[40..]).folded(), 0xffff);
            assert_eq!(packet[48..], refused[..1232]);
        }
    }

    // Spec: lab.md#lab-19
    #[test]
    fn errors_later_fragments_and_packets_to_many_are_not_answered() {
        let of = |protocol, to: IpAddr, later_fragment| IpHeader {
            from: Topology::ipv4(0).into(),
            to,
            protocol,
            hop_limit: 1,
            header_bytes: 20,
            fragment: later_fragment,
            later_fragment,
            do_not_fragment: false,
        };
        let host: IpAddr = Topology::ipv4(1).into();
        assert!(answerable(&of(TCP, host, false), &[0; 20]));
        assert!(!answerable(&of(TCP, host, true), &[0; 20]));
        assert!(!answerable(&of(UDP, "224.0.0.1".parse().unwrap(), false), &[0; 8]));
        for (kind, answered) in [(8, true), (0, true), (3, false), (5, false), (11, false), (12, false)] {
            assert_eq!(answerable(&of(ICMP, host, false), &[kind, 0]), answered, "ICMP {kind}");
        }
        for (kind, answered) in [(128, true), (129, true), (1, false), (2, false), (3, false), (137, false)] {
            assert_eq!(answerable(&of(ICMP6, host, false), &[kind, 0]), answered, "ICMPv6 {kind}");
        }
        assert!(!answerable(&of(ICMP, host, false), &[]));
    }

    /// An echo request from host 0 to router 3 with 56 bytes of data, right in all its checksums.
    fn request(v6: bool) -> Vec<u8> {
        let mut icmp = vec![if v6 { V6_ECHO_REQUEST } else { V4_ECHO_REQUEST }, 0, 0, 0, 0x12, 0x34, 0, 7];
        icmp.extend(0..56);
        let mut packet = if v6 { vec![0; 40] } else { vec![0; 20] };
        if v6 {
            // Class 0x2e and a flow label.
            packet[..8].copy_from_slice(&[0x62, 0xe5, 6, 7, 0, 64, ICMP6, 9]);
            packet[8..24].copy_from_slice(&Topology::ipv6(0).octets());
            packet[24..40].copy_from_slice(&Topology::router_ipv6(3).octets());
        } else {
            packet[..10].copy_from_slice(&[0x45, 0x2e, 0, 84, 0xab, 0xcd, 0x40, 0, 9, ICMP]);
            packet[12..16].copy_from_slice(&Topology::ipv4(0).octets());
            packet[16..20].copy_from_slice(&Topology::router_ipv4(3).octets());
            set_v4_checksum(&mut packet);
        }
        let covered = if v6 { pseudo_header(&packet, ICMP6, icmp.len()) } else { Sum::default() };
        let checksum = covered.add(&icmp).checksum();
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        [packet, icmp].concat()
    }

    // Spec: lab.md#lab-25
    #[test]
    fn an_echo_comes_back_from_the_router_with_everything_it_brought_and_right_checksums() {
        for v6 in [false, true] {
            let request = request(v6);
            let at = if v6 { 40 } else { 20 };
            let reply = echo_reply(3, &request, 64);
            let header = IpHeader::parse(&reply).unwrap();
            let router: IpAddr =
                if v6 { Topology::router_ipv6(3).into() } else { Topology::router_ipv4(3).into() };
            let host: IpAddr = if v6 { Topology::ipv6(0).into() } else { Topology::ipv4(0).into() };
            assert_eq!((header.from, header.to, header.hop_limit), (router, host, 64));
            assert_eq!((reply.len(), reply[at]), (request.len(), if v6 { 129 } else { 0 }));
            assert_eq!(reply[at + 4..], request[at + 4..], "identifier, sequence number and data");
            let covered = if v6 { pseudo_header(&reply, ICMP6, 64) } else { Sum::default() };
            assert_eq!(covered.add(&reply[at..]).folded(), 0xffff);
            if v6 {
                assert_eq!(reply[..4], [0x62, 0xe0, 0, 0], "the class, and no flow of the other's");
            } else {
                assert_eq!((reply[1], Sum::default().add(&reply[..20]).folded()), (0x2e, 0xffff));
            }
            let mut wrong = request.clone();
            wrong[at + 20] ^= 1;
            let reply = echo_reply(3, &wrong, 64);
            let covered = if v6 { pseudo_header(&reply, ICMP6, 64) } else { Sum::default() };
            assert_ne!(covered.add(&reply[at..]).folded(), 0xffff, "a wrong request has a wrong reply");
        }
    }

    // Spec: lab.md#lab-25
    #[test]
    fn whole_echo_requests_are_known_and_nothing_else_is_taken_for_one() {
        for v6 in [false, true] {
            let packet = request(v6);
            let header = IpHeader::parse(&packet).unwrap();
            let icmp = &packet[usize::from(header.header_bytes)..];
            assert!(is_echo_request(&header, icmp));
            assert!(!is_echo_request(&header, &icmp[..7]));
            assert!(!is_echo_request(&header, &[&[icmp[0], 1], &icmp[2..]].concat()), "another code");
            assert!(!is_echo_request(&header, &[&[icmp[0] ^ 1], &icmp[1..]].concat()), "a reply");
            let part = IpHeader { fragment: true, ..header };
            assert!(!is_echo_request(&part, icmp));
            let options = IpHeader { header_bytes: header.header_bytes + 4, ..header };
            assert!(!is_echo_request(&options, icmp));
            let other = IpHeader { protocol: if v6 { ICMP } else { ICMP6 }, ..header };
            assert!(!is_echo_request(&other, icmp), "the other version's");
            assert!(!is_echo_request(&IpHeader { protocol: UDP, ..header }, icmp));
        }
    }
}
