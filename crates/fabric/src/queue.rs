//! The packets that wait for a link's serialiser: drop-tail. Other disciplines take this place.

use crate::packet::Packet;
use std::collections::VecDeque;
use weir_core::topology;

/// First in, first out, with a limit in IP bytes, in packets, in both or in neither. What is being sent does not wait and
/// is not counted.
#[derive(Debug)]
pub(crate) struct DropTail {
    runs: VecDeque<Packet>,
    bytes: u64,
    packets: u64,
    bytes_max: u64,
    packets_max: u64,
}

impl DropTail {
    /// `None` never drops.
    pub(crate) fn new(limits: Option<topology::Queue>) -> Self {
        let limits = limits.unwrap_or(topology::Queue::drop_tail(None, None));
        DropTail {
            runs: VecDeque::new(),
            bytes: 0,
            packets: 0,
            bytes_max: limits.bytes.map_or(u64::MAX, |bytes| bytes.0),
            packets_max: limits.packets.unwrap_or(u64::MAX),
        }
    }

    /// IP bytes waiting.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Segments waiting.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Takes the run, or as many of its first segments as fit, and returns those it has to drop.
    #[inline]
    pub(crate) fn offer(&mut self, packet: Packet) -> Option<Packet> {
        let (room_bytes, room_packets) = (self.bytes_max - self.bytes, self.packets_max - self.packets);
        if packet.ip_bytes() <= room_bytes && u64::from(packet.count) <= room_packets {
            self.push(packet);
            return None;
        }
        // The run's last segment may be shorter than the others. That it alone might still fit is no reason to take it:
        // the limit has been met, and what a burst loses is its tail.
        let fitting = room_bytes.checked_div(u64::from(packet.segment_ip_bytes)).unwrap_or(u64::MAX);
        let fitting = fitting.min(room_packets).min(u64::from(packet.count - 1));
        if fitting == 0 {
            return Some(packet);
        }
        let (head, rest) = packet.cut(fitting as u16);
        self.push(head);
        rest
    }

    fn push(&mut self, packet: Packet) {
        self.bytes += packet.ip_bytes();
        self.packets += u64::from(packet.count);
        self.runs.push_back(packet);
    }

    /// The next run to send, or only its first segment.
    #[inline]
    pub(crate) fn take(&mut self, single: bool) -> Option<Packet> {
        let front = self.runs.front_mut()?;
        let (head, rest) = front.cut(if single { 1 } else { front.count });
        match rest {
            Some(rest) => *front = rest,
            None => {
                self.runs.pop_front();
            }
        }
        self.bytes -= head.ip_bytes();
        self.packets -= u64::from(head.count);
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketMeta;
    use weir_core::Bytes;

    fn run(segments: u16) -> Packet {
        let payload_bytes = 1448 * u32::from(segments);
        Packet::whole(
            0,
            &PacketMeta { to: 0, header_bytes: 52, segment_bytes: 1448, payload_bytes, segments, flow: 0 },
        )
    }

    // Spec: fabric.md#fabric-8
    #[test]
    fn a_run_that_does_not_fit_whole_is_cut_at_the_limit() {
        let mut bytes = DropTail::new(Some(topology::Queue::drop_tail(Some(Bytes(6_000)), None)));
        assert_eq!(bytes.offer(run(3)), None);
        let rest = bytes.offer(run(4)).unwrap();
        assert_eq!((rest.first, rest.count), (1, 3));
        assert_eq!((bytes.bytes(), bytes.packets()), (6_000, 4));
        assert_eq!(bytes.offer(run(1)), Some(run(1)));

        let mut packets = DropTail::new(Some(topology::Queue::drop_tail(None, Some(2))));
        assert_eq!(packets.offer(run(5)).unwrap().count, 3);
        assert_eq!(packets.take(true).unwrap().first, 0);
        assert_eq!(packets.take(false).unwrap().first, 1);
        assert_eq!(packets.take(false), None);
        assert_eq!((packets.bytes(), packets.packets()), (0, 0));
    }
}
