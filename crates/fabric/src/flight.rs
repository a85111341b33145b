//! What propagates on a wire: nearly always first in, first out, beside the few that others may overtake.

use crate::calendar::NEVER;
use crate::packet::Packet;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug)]
struct InFlight {
    arrival_ns: u64,
    packet: Packet,
}

/// One that may be overtaken.
#[derive(Clone, Copy, Debug)]
struct Late {
    arrival_ns: u64,
    /// Among the late ones, in the order of sending.
    number: u64,
    /// How many of those in order had been sent before it.
    after: u64,
    packet: Packet,
}

/// Those that arrive at one instant come in the order of sending: of a late one and one in order the late one was sent first,
/// because it arrives later than what was sent in order before it.
#[derive(Debug)]
pub(crate) struct Flight {
    in_order: VecDeque<InFlight>,
    late: BinaryHeap<Reverse<Late>>,
    /// Arrival of the first late one: looked at far more often than it changes.
    late_ns: u64,
    /// Arrived so far of those in order.
    in_order_count: u64,
    late_count: u64,
    /// One more than the highest number of a late one that has arrived.
    late_arrived: u64,
}

impl Flight {
    pub(crate) fn new() -> Self {
        Flight {
            in_order: VecDeque::new(),
            late: BinaryHeap::new(),
            late_ns: NEVER,
            in_order_count: 0,
            late_count: 0,
            late_arrived: 0,
        }
    }

    /// When the next arrives; `NEVER` if none is on its way.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.in_order_ns().min(self.late_ns)
    }

    /// When the next of those in order arrives. None that is sent from now on arrives before it.
    #[inline]
    pub(crate) fn in_order_ns(&self) -> u64 {
        self.in_order.front().map_or(NEVER, |first| first.arrival_ns)
    }

    /// When the next late one arrives.
    #[inline]
    pub(crate) fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Sends one that arrives no earlier than those sent in order before it.
    #[inline]
    pub(crate) fn send(&mut self, arrival_ns: u64, packet: Packet) {
        debug_assert!(self.in_order.back().is_none_or(|last| last.arrival_ns <= arrival_ns));
        self.in_order.push_back(InFlight { arrival_ns, packet });
    }

    /// Sends one that arrives later than those sent in order before it, or one of a wire that keeps none in order.
    pub(crate) fn send_late(&mut self, arrival_ns: u64, packet: Packet) {
        let after = self.in_order_count + self.in_order.len() as u64;
        self.late.push(Reverse(Late { arrival_ns, number: self.late_count, after, packet }));
        self.late_count += 1;
        self.late_ns = self.late_ns.min(arrival_ns);
    }

    /// Takes the next that arrives, and whether one that was sent later has arrived before it.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Packet, bool)> {
        if self.late_ns <= self.in_order_ns() {
            return self.take_late();
        }
        let first = self.in_order.pop_front()?;
        self.in_order_count += 1;
        Some((first.packet, false))
    }

    fn take_late(&mut self) -> Option<(Packet, bool)> {
        let Reverse(first) = self.late.pop()?;
        self.late_ns = self.late.peek().map_or(NEVER, |next| next.0.arrival_ns);
        let overtaken = self.in_order_count > first.after || self.late_arrived > first.number;
        self.late_arrived = self.late_arrived.max(first.number + 1);
        Some((first.packet, overtaken))
    }
}

impl Late {
    fn key(&self) -> (u64, u64) {
        (self.arrival_ns, self.number)
    }
}
impl Ord for Late {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Late {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lab::meta;
    use proptest::prelude::*;

    proptest! {
        /// Against a list that is searched each time.
        #[test]
        fn packets_arrive_in_the_order_of_their_times_and_the_overtaken_are_known(
            // Later by, late, and how many arrive after it was sent.
            sent in proptest::collection::vec((0_u64..40, any::<bool>(), 0_usize..3), 1..200),
        ) {
            let mut flight = Flight::new();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let (mut last_ns, mut arrived) = (0, Vec::<u32>::new());
            let mut arrive = |flight: &mut Flight, model: &mut Vec<(u64, u32)>| -> Result<(), TestCaseError> {
                let next = model.iter().copied().min();
                prop_assert_eq!(flight.next_ns(), next.map_or(NEVER, |next| next.0));
                let Some(next) = next else { return Ok(()) };
                model.retain(|one| *one != next);
                let (packet, overtaken) = flight.take().unwrap();
                prop_assert_eq!(packet.buffer, next.1);
                prop_assert_eq!(overtaken, arrived.iter().any(|before| *before > next.1));
                arrived.push(next.1);
                Ok(())
            };
            for (buffer, (by, late, arrivals)) in sent.into_iter().enumerate() {
                let packet = Packet::whole(buffer as u32, 0, &meta(1, 1, 8, 8));
                // In-order ones move on by small steps, late ones start from there.
                if late {
                    flight.send_late(last_ns + 1 + by, packet);
                    model.push((last_ns + 1 + by, buffer as u32));
                } else {
                    last_ns += by / 8;
                    flight.send(last_ns, packet);
                    model.push((last_ns, buffer as u32));
                }
                for _ in 0..arrivals {
                    arrive(&mut flight, &mut model)?;
                }
            }
            while !model.is_empty() {
                arrive(&mut flight, &mut model)?;
            }
            prop_assert!(flight.take().is_none());
        }
    }
}
