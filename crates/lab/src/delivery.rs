//! Runs that are due at a host, joined again where they were one packet.

use crate::buffer::Buffer;
use weir_fabric::Packet;

/// Consecutive segments of one buffer for one device, written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub device: usize,
    /// As the core delivered the first of its runs, with the segments of all.
    pub run: Packet,
    /// Once written: the end of the write, and later by the time that the packet may have lain unread. What an arrival was
    /// planned before this is its lateness.
    pub late_from_ns: u64,
}

/// Joins a run to this turn's last one of the same buffer if it continues it, else adds it. Nothing of the same flow can be between
/// the two: segments of a flow arrive in order, and where they do not the run does not continue the last one. Returns the
/// place in the list.
pub fn collect(
    deliveries: &mut Vec<Delivery>,
    buffer: &mut Buffer,
    turn: u64,
    device: usize,
    run: Packet,
) -> usize {
    if is_changed(&run) {
        // What is joined later must not be joined to it.
        buffer.open_turn = 0;
        deliveries.push(Delivery { device, run, late_from_ns: 0 });
        return deliveries.len() - 1;
    }
    if buffer.open_turn == turn {
        let open = &mut deliveries[buffer.open_run];
        if open.device == device && open.run.first + open.run.count == run.first {
            open.run.count += run.count;
            return buffer.open_run;
        }
    }
    buffer.open_turn = turn;
    buffer.open_run = deliveries.len();
    deliveries.push(Delivery { device, run, late_from_ns: 0 });
    buffer.open_run
}

/// Whether it is not just what the host sent: such a run goes alone.
fn is_changed(run: &Packet) -> bool {
    run.answer().is_some() || run.inverted_bit().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use crate::limits::tests::two_sites;
    use crate::packet;
    use weir_core::Instant;
    use weir_core::topology::Queue;
    use weir_fabric::{Action, Fabric, Network};

    /// Two runs of the core's making: one like any, and one of which a bit was inverted.
    fn runs() -> [Packet; 2] {
        let mut topology = two_sites(None, Queue::drop_tail(None, None));
        let meta = packet::Packet { segments: 1, total_bytes: 100, ..packet::Packet::default() };
        [0.0, 1.0].map(|corrupt| {
            topology.links[0].forward.impairments.corrupt = corrupt;
            let mut fabric = Fabric::new(&topology, 1);
            fabric.ingress(0, 0, meta.meta(Network::Data, 1), Instant::ZERO);
            fabric.advance(Instant::from_ns(1_000_000_000));
            match fabric.poll() {
                Some(Action::Deliver { packet, .. }) => packet,
                other => panic!("{other:?}"),
            }
        })
    }

    fn part(mut like: Packet, buffer: u32, first: u16, count: u16) -> Packet {
        (like.buffer, like.first, like.count) = (buffer, first, count);
        like
    }

    // Spec: lab.md#lab-5
    #[test]
    fn segments_are_joined_across_other_flows_but_never_across_a_lost_one_or_another_turn() {
        let [like, _] = runs();
        let mut buffers = Buffers::default();
        let mut keep = |segments| {
            buffers.spare();
            buffers.keep(100, packet::Packet { segments, ..packet::Packet::default() }, 0)
        };
        let (one, other) = (keep(9), keep(9));
        let (mut deliveries, mut places) = (Vec::new(), Vec::new());
        let delivery = |buffer, first, count| Delivery {
            device: 1,
            run: part(like, buffer, first, count),
            late_from_ns: 0,
        };
        // Segment 3 of the first buffer was lost.
        for (buffer, first) in [(one, 0), (other, 0), (one, 1), (one, 2), (other, 1), (one, 4), (one, 5)] {
            places.push(collect(
                &mut deliveries,
                buffers.get_mut(buffer),
                1,
                1,
                part(like, buffer, first, 1),
            ));
        }
        assert_eq!(deliveries, [delivery(one, 0, 3), delivery(other, 0, 2), delivery(one, 4, 2)]);
        assert_eq!(places, [0, 1, 0, 0, 1, 2, 2]);
        deliveries.clear();
        collect(&mut deliveries, buffers.get_mut(one), 2, 1, part(like, one, 6, 3));
        assert_eq!(deliveries, [delivery(one, 6, 3)]);
    }

    // Spec: lab.md#lab-20
    #[test]
    fn a_corrupted_segment_is_joined_to_nothing_and_nothing_to_it() {
        let [like, corrupted] = runs();
        assert!(corrupted.inverted_bit().is_some());
        let mut buffers = Buffers::default();
        buffers.spare();
        let buffer = buffers.keep(100, packet::Packet { segments: 4, ..packet::Packet::default() }, 0);
        let mut deliveries = Vec::new();
        for (first, run) in [(0, like), (1, corrupted), (2, like), (3, like)] {
            collect(&mut deliveries, buffers.get_mut(buffer), 1, 1, part(run, buffer, first, 1));
        }
        let counts: Vec<u16> = deliveries.iter().map(|delivery| delivery.run.count).collect();
        assert_eq!(counts, [1, 1, 2]);
    }
}
