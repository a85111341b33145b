//! Runs that are due at a host, joined again where they were one packet.

use crate::buffer::Buffer;
use weir_fabric::Packet;

/// Consecutive segments of one buffer for one host, written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub host: usize,
    pub buffer: u32,
    pub first: u16,
    pub count: u16,
    /// Once written: the end of the write, and later by the time that the packet may have lain unread. What an arrival was
    /// planned before this is its lateness.
    pub late_from_ns: u64,
}

impl Delivery {
    pub fn of(host: usize, packet: &Packet) -> Self {
        Delivery { host, buffer: packet.buffer, first: packet.first, count: packet.count, late_from_ns: 0 }
    }
}

/// Joins a run to this turn's last one of the same buffer if it continues it, else adds it. Segments of a flow arrive in order,
/// so nothing of the same flow can be between the two. Returns the place in the list.
pub fn collect(deliveries: &mut Vec<Delivery>, buffer: &mut Buffer, turn: u64, run: Delivery) -> usize {
    if buffer.open_turn == turn {
        let open = &mut deliveries[buffer.open_run];
        if open.host == run.host && open.first + open.count == run.first {
            open.count += run.count;
            return buffer.open_run;
        }
    }
    buffer.open_turn = turn;
    buffer.open_run = deliveries.len();
    deliveries.push(run);
    buffer.open_run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use crate::packet;

    // Spec: lab.md#lab-5
    #[test]
    fn segments_are_joined_across_other_flows_but_never_across_a_lost_one_or_another_turn() {
        let mut buffers = Buffers::default();
        let mut keep = |segments| {
            buffers.spare();
            buffers.keep(100, packet::Packet { segments, ..packet::Packet::default() }, 0)
        };
        let (one, other) = (keep(9), keep(9));
        let (mut deliveries, mut places) = (Vec::new(), Vec::new());
        let run = |buffer, first, count| Delivery { host: 1, buffer, first, count, late_from_ns: 0 };
        // Segment 3 of the first buffer was lost.
        for (buffer, first) in [(one, 0), (other, 0), (one, 1), (one, 2), (other, 1), (one, 4), (one, 5)] {
            places.push(collect(&mut deliveries, buffers.get_mut(buffer), 1, run(buffer, first, 1)));
        }
        assert_eq!(deliveries, [run(one, 0, 3), run(other, 0, 2), run(one, 4, 2)]);
        assert_eq!(places, [0, 1, 0, 0, 1, 2, 2]);
        deliveries.clear();
        collect(&mut deliveries, buffers.get_mut(one), 2, run(one, 6, 3));
        assert_eq!(deliveries, [run(one, 6, 3)]);
    }
}
