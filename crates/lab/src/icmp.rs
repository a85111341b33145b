//! What routers say of packets that they did not forward (RFC 792, RFC 1191, RFC 4443).

use crate::checksum::Sum;
use crate::ip::{
    ICMP, ICMP6, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, IpHeader, pseudo_header, set_length, set_v4_checksum,
};
use std::net::IpAddr;
use weir_core::topology::Topology;
use weir_fabric::{Answer, Refusal};

const ICMP_HEADER_BYTES: usize = 8;
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

/// The answer's packet, from its IP header on, of `bytes` bytes: what does not fit of `refused`, the segment that was not
/// forwarded, is left out.
///
/// Panics if there is no room for the headers.
pub fn packet(answer: Answer, refused: &[u8], bytes: usize, hop_limit: u8) -> Vec<u8> {
    let header = IpHeader::parse(refused).expect("it was read as a packet when it was sent");
    let v6 = header.from.is_ipv6();
    let ip_header_bytes = if v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    let mut packet = vec![0; ip_header_bytes + ICMP_HEADER_BYTES];
    let quoted = bytes.checked_sub(packet.len()).expect("an answer has its headers");
    let (kind, code, mtu) = match (answer.why, v6) {
        (Refusal::TimeExceeded, false) => (V4_TIME_EXCEEDED, 0, 0),
        (Refusal::TimeExceeded, true) => (V6_TIME_EXCEEDED, 0, 0),
        (Refusal::TooBig { mtu }, false) => (V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED, mtu),
        (Refusal::TooBig { mtu }, true) => (V6_TOO_BIG, 0, mtu),
    };
    let icmp = &mut packet[ip_header_bytes..];
    (icmp[0], icmp[1]) = (kind, code);
    icmp[6..8].copy_from_slice(&mtu.to_be_bytes()); // the lower half of ICMPv6's 32 bits
    packet.extend_from_slice(&refused[..quoted.min(refused.len())]);

    match header.from {
        IpAddr::V4(to) => {
            packet[0] = 0x45;
            packet[1] = NETWORK_CONTROL;
            (packet[8], packet[9]) = (hop_limit, ICMP);
            packet[12..16].copy_from_slice(&Topology::router_ipv4(answer.stage).octets());
            packet[16..20].copy_from_slice(&to.octets());
        }
        IpAddr::V6(to) => {
            // The traffic class lies across the first two bytes.
            (packet[0], packet[1]) = (0x60 | NETWORK_CONTROL >> 4, NETWORK_CONTROL << 4);
            (packet[6], packet[7]) = (ICMP6, hop_limit);
            packet[8..24].copy_from_slice(&Topology::router_ipv6(answer.stage).octets());
            packet[24..40].copy_from_slice(&to.octets());
        }
    }
    let total = packet.len();
    set_length(&mut packet, total);
    let (ip_header, icmp) = packet.split_at_mut(ip_header_bytes);
    let covered = if v6 { pseudo_header(ip_header, ICMP6, icmp.len()) } else { Sum::default() };
    let checksum = covered.add(icmp).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    if !v6 {
        set_v4_checksum(ip_header);
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{TCP, UDP, word};

    fn answer(why: Refusal) -> Answer {
        Answer { stage: 3, why }
    }

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
        let packet = packet(answer(Refusal::TooBig { mtu: 1400 }), &refused, 576, 61);
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
            let packet = packet(answer(why), &refused, 1280, 64);
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
}
