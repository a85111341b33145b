//! The packets that wait for a link's serialiser, and which of them are dropped.

use crate::action::DropReason;
use crate::chance::Generator;
use crate::codel::Codel;
use crate::packet::Packet;
use crate::red::Red;
use std::collections::VecDeque;
use weir_core::topology::{self, Discipline};

/// First in, first out, with a limit in IP bytes, in packets, in both or in neither. What is being sent does not wait and
/// is not counted.
#[derive(Debug)]
pub(crate) struct Queue {
    runs: VecDeque<Packet>,
    bytes: u64,
    packets: u64,
    bytes_max: u64,
    packets_max: u64,
    early: Early,
}

/// What is dropped before the queue is full.
#[derive(Debug)]
enum Early {
    Nothing,
    Red(Box<Red>),
    Codel(Box<Codel>),
}

/// What becomes of the first run or segment of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Send(Packet),
    Drop(Packet),
}

/// Bytes that the output queues of one stage share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
}

impl Buffer {
    fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }
}

impl Queue {
    /// `None` never drops. `packet_ns` is how long a typical packet takes on the wire, `mtu` the largest packet in bytes.
    pub(crate) fn new(
        limits: Option<topology::Queue>,
        packet_ns: u64,
        mtu: u32,
        generator: Generator,
    ) -> Self {
        let limits = limits.unwrap_or(topology::Queue::drop_tail(None, None));
        Queue {
            runs: VecDeque::new(),
            bytes: 0,
            packets: 0,
            bytes_max: limits.bytes.map_or(u64::MAX, |bytes| bytes.0),
            packets_max: limits.packets.unwrap_or(u64::MAX),
            early: match limits.discipline {
                Discipline::DropTail => Early::Nothing,
                Discipline::Red { min_bytes, max_bytes, probability } => {
                    Early::Red(Box::new(Red::new(min_bytes, max_bytes, probability, packet_ns, generator)))
                }
                Discipline::Codel { target_ns, interval_ns } => {
                    Early::Codel(Box::new(Codel::new(target_ns, interval_ns, mtu)))
                }
            },
        }
    }

    /// IP bytes waiting.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Segments waiting.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Asks about each segment that arrives, whether it will have to wait or not.
    #[inline]
    pub(crate) fn asks_each(&self) -> bool {
        matches!(self.early, Early::Red(_))
    }

    /// Whether a segment that arrives at `now_ns` is dropped before the queue is full.
    pub(crate) fn drops_early(&mut self, now_ns: u64) -> bool {
        match &mut self.early {
            Early::Red(red) => red.drops(now_ns, self.bytes),
            Early::Nothing | Early::Codel(_) => false,
        }
    }

    /// Takes the run, or as many of its first segments as fit, and returns those it has to drop. `buffer` is what the stage's
    /// queues share.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        packet: Packet,
        now_ns: u64,
        buffer: Option<&Buffer>,
    ) -> Option<(Packet, DropReason)> {
        let own_room = self.bytes_max - self.bytes;
        let room_bytes = buffer.map_or(own_room, |buffer| own_room.min(buffer.room()));
        let room_packets = self.packets_max - self.packets;
        if packet.ip_bytes() <= room_bytes && u64::from(packet.count) <= room_packets {
            self.push(packet, now_ns);
            return None;
        }
        // The run's last segment may be shorter than the others. That it alone might still fit is no reason to take it:
        // the limit has been met, and what a burst loses is its tail.
        let of_bytes = |room: u64| room.checked_div(u64::from(packet.segment_ip_bytes())).unwrap_or(u64::MAX);
        let own = of_bytes(own_room).min(room_packets).min(u64::from(packet.count - 1));
        let fitting = own.min(of_bytes(room_bytes));
        let own_fits = packet.ip_bytes() <= own_room && u64::from(packet.count) <= room_packets;
        let reason = if own_fits || fitting < own { DropReason::Buffer } else { DropReason::Queue };
        if fitting == 0 {
            return Some((packet, reason));
        }
        let (head, rest) = packet.cut(fitting as u16);
        self.push(head, now_ns);
        rest.map(|rest| (rest, reason))
    }

    #[inline]
    fn push(&mut self, packet: Packet, now_ns: u64) {
        self.bytes += packet.ip_bytes();
        self.packets += u64::from(packet.count);
        self.runs.push_back(packet);
        if let Early::Codel(codel) = &mut self.early {
            codel.entered(now_ns);
        }
    }

    /// The next run, or only its first segment, to send or to drop; `None`: nothing waits.
    #[inline]
    pub(crate) fn take(&mut self, single: bool, now_ns: u64) -> Option<Taken> {
        if let Early::Nothing = self.early {
            return self.first(single).map(|(packet, _)| Taken::Send(packet));
        }
        self.take_and_tell(single, now_ns)
    }

    /// The discipline learns of what is taken, and may drop it.
    #[inline(never)]
    fn take_and_tell(&mut self, single: bool, now_ns: u64) -> Option<Taken> {
        let first = self.first(single);
        match &mut self.early {
            Early::Nothing => {}
            Early::Red(red) => {
                if first.is_some() && self.runs.is_empty() {
                    red.emptied(now_ns);
                }
            }
            Early::Codel(codel) => match first {
                None => codel.found_empty(),
                Some((packet, ends_run)) => {
                    if codel.drops(now_ns, ends_run, self.bytes) {
                        return Some(Taken::Drop(packet));
                    }
                }
            },
        }
        first.map(|(packet, _)| Taken::Send(packet))
    }

    /// The first run or segment, and whether it is the end of its run.
    #[inline]
    fn first(&mut self, single: bool) -> Option<(Packet, bool)> {
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
        Some((head, rest.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;
    use crate::tests::lab::meta;
    use weir_core::Bytes;

    fn run(segments: u16) -> Packet {
        Packet::whole(0, 0, &meta(0, segments, 1448, 1448))
    }
    fn queue(bytes: Option<u64>, packets: Option<u64>) -> Queue {
        let limits = topology::Queue::drop_tail(bytes.map(Bytes), packets);
        Queue::new(Some(limits), 0, 1500, generator(0, ""))
    }
    fn offered(queue: &mut Queue, run: Packet, buffer: Option<u64>) -> Option<(u16, u16, DropReason)> {
        let buffer = buffer.map(|bytes_max| Buffer { bytes: queue.bytes(), bytes_max });
        let rejected = queue.offer(run, 0, buffer.as_ref());
        rejected.map(|(run, reason)| (run.first, run.count, reason))
    }

    // Spec: fabric.md#fabric-8
    #[test]
    fn a_run_that_does_not_fit_whole_is_cut_at_the_limit() {
        let mut bytes = queue(Some(6_000), None);
        assert_eq!(offered(&mut bytes, run(3), None), None);
        assert_eq!(offered(&mut bytes, run(4), None), Some((1, 3, DropReason::Queue)));
        assert_eq!((bytes.bytes(), bytes.packets()), (6_000, 4));
        assert_eq!(offered(&mut bytes, run(1), None), Some((0, 1, DropReason::Queue)));

        let mut packets = queue(None, Some(2));
        assert_eq!(offered(&mut packets, run(5), None), Some((2, 3, DropReason::Queue)));
        let mut take = |single| match packets.take(single, 0) {
            Some(Taken::Send(packet)) => Some(packet.first),
            Some(Taken::Drop(packet)) => panic!("dropped {packet:?}"),
            None => None,
        };
        assert_eq!([take(true), take(false), take(false)], [Some(0), Some(1), None]);
        assert_eq!((packets.bytes(), packets.packets()), (0, 0));
    }

    // Spec: fabric.md#fabric-19
    #[test]
    fn what_the_shared_buffer_has_no_room_for_is_cut_off_and_blamed_on_it() {
        for (own, shared, segments, expected) in [
            (9_000, 6_000, 4, None),
            (9_000, 6_000, 5, Some((4, 1, DropReason::Buffer))),
            (6_000, 9_000, 5, Some((4, 1, DropReason::Queue))),
            (6_000, 6_000, 5, Some((4, 1, DropReason::Queue))),
            (9_000, 1_499, 1, Some((0, 1, DropReason::Buffer))),
        ] {
            let mut queue = queue(Some(own), None);
            assert_eq!(
                offered(&mut queue, run(segments), Some(shared)),
                expected,
                "{own} {shared} {segments}"
            );
        }
    }
}
