//! IPv4 and IPv6 headers as far as a wire needs them: who, how far, how long, and where the transport header begins.

use crate::checksum::{Sum, update};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
pub const IPV4_HEADER_BYTES: usize = 20;
pub const IPV6_HEADER_BYTES: usize = 40;
/// The longest chain of headers before the transport header that is looked through.
pub const HEADERS_BYTES_MAX: usize = 256;
const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// Next headers of IPv6 that come before the transport header (RFC 8200).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// Bytes that are no IP packet, or whose headers contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    pub from: IpAddr,
    pub to: IpAddr,
    /// What the transport header is.
    pub protocol: u8,
    pub hop_limit: u8,
    /// Bytes before the transport header, IPv6 extension headers included.
    pub header_bytes: u16,
    /// Part of a larger packet, so that the transport header may be missing or half there.
    pub fragment: bool,
    /// A fragment that is not the first.
    pub later_fragment: bool,
    /// A router may not cut it: always so for IPv6.
    pub do_not_fragment: bool,
}

pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl IpHeader {
    /// Reads the header of a whole packet.
    pub fn parse(ip: &[u8]) -> Result<IpHeader, Refused> {
        match ip.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(ip),
            Some(6) => Self::parse_v6(ip),
            _ => Err(Refused),
        }
    }

    fn parse_v4(ip: &[u8]) -> Result<IpHeader, Refused> {
        if ip.len() < IPV4_HEADER_BYTES {
            return Err(Refused);
        }
        let header_bytes = usize::from(ip[0] & 0x0f) * 4;
        if header_bytes < IPV4_HEADER_BYTES || ip.len() < header_bytes || usize::from(word(ip, 2)) != ip.len()
        {
            return Err(Refused);
        }
        let flags = word(ip, 6);
        Ok(IpHeader {
            from: Ipv4Addr::from(double_word(ip, 12)).into(),
            to: Ipv4Addr::from(double_word(ip, 16)).into(),
            protocol: ip[9],
            hop_limit: ip[8],
            header_bytes: header_bytes as u16,
            fragment: flags & MORE_FRAGMENTS_OR_OFFSET != 0,
            later_fragment: flags & FRAGMENT_OFFSET != 0,
            do_not_fragment: flags & DO_NOT_FRAGMENT != 0,
        })
    }

    fn parse_v6(ip: &[u8]) -> Result<IpHeader, Refused> {
        if ip.len() < IPV6_HEADER_BYTES || usize::from(word(ip, 4)) + IPV6_HEADER_BYTES != ip.len() {
            return Err(Refused);
        }
        let address = |at: usize| {
            let octets: [u8; 16] = ip[at..at + 16].try_into().expect("sixteen bytes");
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let (mut protocol, mut at) = (ip[6], IPV6_HEADER_BYTES);
        let (mut fragment, mut later_fragment) = (false, false);
        while let HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS = protocol {
            if ip.len() < at + 8 {
                return Err(Refused);
            }
            let bytes = match protocol {
                FRAGMENT => 8,
                AUTHENTICATION => (usize::from(ip[at + 1]) + 2) * 4,
                _ => (usize::from(ip[at + 1]) + 1) * 8,
            };
            if protocol == FRAGMENT {
                fragment = true;
                later_fragment = word(ip, at + 2) >> 3 != 0;
            }
            protocol = ip[at];
            at += bytes;
            if at > ip.len() || at > HEADERS_BYTES_MAX {
                return Err(Refused);
            }
            if later_fragment {
                break; // what follows is not a header
            }
        }
        Ok(IpHeader {
            from: address(8),
            to: address(24),
            protocol,
            hop_limit: ip[7],
            header_bytes: at as u16,
            fragment,
            later_fragment,
            do_not_fragment: true,
        })
    }
}

/// Writes the hop limit into a packet's header and mends the IPv4 header's checksum by the difference (RFC 1624).
pub fn set_hop_limit(ip: &mut [u8], hop_limit: u8) {
    if ip[0] >> 4 == 6 {
        ip[7] = hop_limit;
        return;
    }
    // The word with the hop limit is shared with the protocol.
    let before = word(ip, 8);
    ip[8] = hop_limit;
    let checksum = update(word(ip, 10), before, word(ip, 8));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the length of the whole packet into its header; an IPv4 header needs its checksum set afterwards.
pub fn set_length(header: &mut [u8], total_bytes: usize) {
    if header[0] >> 4 == 6 {
        header[4..6].copy_from_slice(&((total_bytes - IPV6_HEADER_BYTES) as u16).to_be_bytes());
    } else {
        header[2..4].copy_from_slice(&(total_bytes as u16).to_be_bytes());
    }
}

/// Sets the checksum of an IPv4 header, options included; `header` is the header alone.
pub fn set_v4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = Sum::default().add(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The sum over the pseudo-header of a transport header and its payload (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub fn pseudo_header(ip_header: &[u8], protocol: u8, transport_bytes: usize) -> Sum {
    let addresses = if ip_header[0] >> 4 == 6 { &ip_header[8..40] } else { &ip_header[12..20] };
    Sum::default().add(addresses).add_number(u32::from(protocol)).add_number(transport_bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; IPV6_HEADER_BYTES];
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        (bytes[6], bytes[7]) = (next, 64);
        bytes[23] = 1;
        bytes[39] = 2;
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn the_transport_header_is_found_behind_extension_headers() {
        let options = [UDP, 0, 0, 0, 0, 0, 0, 0];
        let first_fragment = [DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 9];
        let rest = [&first_fragment[..], &options, &[0; 8]].concat();
        let header = IpHeader::parse(&v6(FRAGMENT, &rest)).unwrap();
        assert_eq!((header.protocol, header.header_bytes), (UDP, 56));
        assert!(header.fragment && !header.later_fragment);
        let later = [DESTINATION_OPTIONS, 0, 0, 8, 0, 0, 0, 9, 0xff, 0xff];
        let header = IpHeader::parse(&v6(FRAGMENT, &later)).unwrap();
        assert_eq!((header.header_bytes, header.later_fragment), (48, true));
    }

    #[test]
    fn a_chain_of_headers_that_leads_out_of_the_packet_is_refused() {
        assert_eq!(IpHeader::parse(&v6(HOP_BY_HOP, &[UDP, 9, 0, 0, 0, 0, 0, 0])), Err(Refused));
        assert_eq!(IpHeader::parse(&v6(ROUTING, &[UDP])), Err(Refused));
        let endless = [DESTINATION_OPTIONS, 0, 0, 0, 0, 0, 0, 0].repeat(200);
        assert_eq!(IpHeader::parse(&v6(DESTINATION_OPTIONS, &endless)), Err(Refused));
        assert_eq!(IpHeader::parse(&v6(UDP, &[0; 8])[..47]), Err(Refused));
    }

    // Spec: lab.md#lab-18
    #[test]
    fn a_rewritten_hop_limit_leaves_the_checksum_of_the_header_right() {
        for (first, protocol) in [(0x45, UDP), (0x46, TCP), (0x45, 0xff)] {
            let mut header = vec![0; usize::from(first & 0x0f_u8) * 4];
            header[0] = first;
            (header[8], header[9]) = (64, protocol);
            header[12..20].copy_from_slice(&[10, 64, 0, 1, 10, 64, 0, 2]);
            set_v4_checksum(&mut header);
            for hop_limit in (0..=255).rev() {
                set_hop_limit(&mut header, hop_limit);
                assert_eq!(header[8], hop_limit);
                let mended = header.clone();
                set_v4_checksum(&mut header);
                assert_eq!(mended, header, "hop limit {hop_limit}");
            }
        }
    }
}
