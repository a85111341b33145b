//! Runs that are due at a host, joined again where they were one packet.

use crate::buffer::Buffer;
use weir_core::Instant;
use weir_fabric::Packet;

/// Consecutive segments of one buffer for one host, written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub host: usize,
    pub buffer: u32,
    pub first: u16,
    pub count: u16,
    /// Lateness of each arrival in it is measured from here: the earliest one's.
    pub planned: Instant,
    pub arrivals: u64,
}

impl Delivery {
    pub fn of(host: usize, packet: &Packet, planned: Instant) -> Self {
        Delivery {
            host,
            buffer: packet.buffer,
            first: packet.first,
            count: packet.count,
            planned,
            arrivals: 1,
        }
    }
}

/// Joins a run to this turn's last one of the same buffer if it continues it, else adds it. Segments of a flow arrive in order,
/// so nothing of the same flow can be between the two.
pub fn collect(deliveries: &mut Vec<Delivery>, buffer: &mut Buffer, turn: u64, run: Delivery) {
    if buffer.open_turn == turn {
        let open = &mut deliveries[buffer.open_run];
        if open.host == run.host && open.first + open.count == run.first {
            open.count += run.count;
            open.arrivals += 1;
            return;
        }
    }
    buffer.open_turn = turn;
    buffer.open_run = deliveries.len();
    deliveries.push(run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use crate::packet;

    #[test]
    fn segments_are_joined_across_other_flows_but_never_across_a_lost_one_or_another_turn() {
        let mut buffers = Buffers::default();
        let mut keep = |segments| {
            buffers.spare();
            buffers.keep(100, packet::Packet { segments, ..packet::Packet::default() }, 0)
        };
        let (one, other) = (keep(9), keep(9));
        let mut deliveries = Vec::new();
        let planned = Instant::from_ns(5);
        let run =
            |buffer, first, count, arrivals| Delivery { host: 1, buffer, first, count, planned, arrivals };
        // Segment 3 of the first buffer was lost.
        for (buffer, first) in [(one, 0), (other, 0), (one, 1), (one, 2), (other, 1), (one, 4), (one, 5)] {
            collect(&mut deliveries, buffers.get_mut(buffer), 1, run(buffer, first, 1, 1));
        }
        assert_eq!(deliveries, [run(one, 0, 3, 3), run(other, 0, 2, 2), run(one, 4, 2, 2)]);
        deliveries.clear();
        collect(&mut deliveries, buffers.get_mut(one), 2, run(one, 6, 3, 1));
        assert_eq!(deliveries, [run(one, 6, 3, 1)]);
    }
}
