//! One segment of a buffer as a packet of its own, complete as on a wire: nothing left for the receiver's kernel to do.

use crate::checksum::Sum;
use crate::ip::{UDP, set_hop_limit};
use crate::packet::{Packet, UDP_CHECKSUM};
use crate::run::Run;
use crate::vnet::{NEEDS_CHECKSUM, VNET_HEADER_BYTES, VnetHeader};

/// Segment `number` of the buffer `bytes` (virtio-net header first), from its IP header on, with this hop limit and with its
/// transport checksum computed. A packet that is whole is its own only segment.
///
/// Panics if the packet has no such segment.
pub fn on_the_wire(packet: &Packet, bytes: &[u8], number: u16, hop_limit: u8) -> Vec<u8> {
    let ip = &bytes[VNET_HEADER_BYTES..];
    if packet.segments == 1 {
        assert_eq!(number, 0, "a plain packet has one segment");
        let mut segment = ip.to_vec();
        set_hop_limit(&mut segment, hop_limit);
        complete_checksum(&packet.vnet, packet.ip.protocol, &mut segment);
        return segment;
    }
    let run = Run::cut(packet, ip, number, 1, hop_limit);
    let (vnet, header) = run.head().split_first_chunk::<VNET_HEADER_BYTES>().expect("a head begins with it");
    let mut segment = [header, &ip[run.payload.clone()]].concat();
    complete_checksum(&VnetHeader::decode(vnet), packet.ip.protocol, &mut segment);
    segment
}

/// Does what `NEEDS_CHECKSUM` asks for: the place of the checksum holds the sum over the pseudo-header (virtio 5.1.6.2).
pub fn complete_checksum(vnet: &VnetHeader, protocol: u8, ip: &mut [u8]) {
    let start = usize::from(vnet.checksum_start);
    let at = start + usize::from(vnet.checksum_offset);
    if vnet.flags & NEEDS_CHECKSUM == 0 || at + 2 > ip.len() {
        return;
    }
    let mut checksum = Sum::default().add(&ip[start..]).checksum();
    // 0 would say that there is none (RFC 768).
    if protocol == UDP && vnet.checksum_offset == UDP_CHECKSUM && checksum == 0 {
        checksum = 0xffff;
    }
    ip[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Inverts bit `number`, counted from the highest of the first byte; one beyond the packet inverts nothing.
pub fn invert_bit(ip: &mut [u8], number: u32) {
    if let Some(byte) = ip.get_mut(number as usize / 8) {
        *byte ^= 0x80 >> (number % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_inverted_where_it_was_said_and_one_beyond_the_packet_nowhere() {
        let mut bytes = [0_u8; 3];
        invert_bit(&mut bytes, 0);
        invert_bit(&mut bytes, 9);
        invert_bit(&mut bytes, 23);
        invert_bit(&mut bytes, 24);
        assert_eq!(bytes, [0x80, 0x40, 0x01]);
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
        let vnet = VnetHeader {
            flags: NEEDS_CHECKSUM,
            checksum_start: 2,
            checksum_offset: UDP_CHECKSUM,
            ..VnetHeader::default()
        };
        // Nothing but a word that makes the sum 0xffff, whose complement is 0.
        let mut ip = [9, 9, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
        complete_checksum(&vnet, UDP, &mut ip);
        assert_eq!(ip[8..], [0xff, 0xff]);
    }
}
