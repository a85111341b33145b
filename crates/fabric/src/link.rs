//! One directed link: a queue, a serialiser and the wire behind it.

use crate::action::{Action, DropReason};
use crate::calendar::{NEVER, arrival_key, departure_key};
use crate::counters::{LinkCounters, Totals};
use crate::packet::Packet;
use crate::queue::DropTail;
use crate::wire::Wire;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use weir_core::schedule::Set;
use weir_core::topology::DirectedLink;
use weir_core::{BitsPerSecond, Instant, seed};

/// Below this a super-packet of 64 KiB would hold the wire for more than about 0.2 ms.
const WHOLE_RATE_MIN: BitsPerSecond = BitsPerSecond(2_500_000_000);
/// A shorter queue, less than four super-packets, would drop them by large parts. The default queue is never shorter.
const WHOLE_QUEUE_BYTES_MIN: u64 = 4 * 64 * 1024;

/// Where links leave what the shell must know.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) actions: VecDeque<Action>,
    pub(crate) totals: Totals,
}

/// A packet on its way behind the serialiser.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    arrival_ns: u64,
    packet: Packet,
}

#[derive(Debug)]
pub(crate) struct Link {
    index: usize,
    /// As the topology has it; what a change replaces and its end restores.
    own: DirectedLink,
    generator: Xoshiro256PlusPlus,
    queue: DropTail,
    wire: Wire,
    in_service: Option<Packet>,
    /// When the serialiser took up the packet it serves, and when that leaves.
    service_start_ns: u64,
    departure_ns: u64,
    in_flight: VecDeque<InFlight>,
    /// Of the packet sent last; none may overtake it.
    last_arrival_ns: u64,
    delay_add_ns: u64,
    /// Of 2^53 draws, how many lose a segment.
    loss_threshold: u64,
    outage: bool,
    splits: bool,
    pub(crate) counters: LinkCounters,
}

impl Link {
    pub(crate) fn new(index: usize, own: DirectedLink, run_seed: u64) -> Self {
        let mut link = Link {
            index,
            generator: Xoshiro256PlusPlus::seed_from_u64(seed::split(run_seed, &own.name)),
            queue: DropTail::new(own.queue),
            wire: Wire::new(own.rate),
            in_service: None,
            service_start_ns: 0,
            departure_ns: NEVER,
            in_flight: VecDeque::new(),
            last_arrival_ns: 0,
            delay_add_ns: 0,
            loss_threshold: threshold(own.loss),
            outage: false,
            splits: false,
            counters: LinkCounters::default(),
            own,
        };
        link.splits = link.splits_of_its_own();
        link
    }

    /// Whether super-packets are split when they enter.
    pub(crate) fn splits(&self) -> bool {
        self.splits
    }

    /// Key of the link's next event.
    #[inline]
    pub(crate) fn next_key(&self) -> u64 {
        let arrival = self.in_flight.front().map_or(NEVER, |first| arrival_key(first.arrival_ns));
        departure_key(self.departure_ns).min(arrival)
    }

    /// When a run next reaches the far end, at the earliest: none overtakes another, and changes only add delay.
    #[inline]
    pub(crate) fn arrival_ns_min(&self) -> u64 {
        match self.in_flight.front() {
            Some(first) => first.arrival_ns,
            None => self.departure_ns.saturating_add(self.own.delay_ns),
        }
    }

    /// A run arrives at the link's queue.
    pub(crate) fn arrive(&mut self, now_ns: u64, packet: Packet, out: &mut Out) {
        self.counters.packets_in += u64::from(packet.count);
        self.counters.bytes_in += packet.ip_bytes();
        if self.outage {
            self.drop(packet, DropReason::Outage, now_ns, out);
            return;
        }
        let Some(packet) = self.admit_by_size(packet, now_ns, out) else { return };
        let Some(waiting) = self.serve_at_once(now_ns, packet, out) else { return };
        let rejected = self.queue.offer(waiting);
        self.count_queue();
        if let Some(rejected) = rejected {
            self.drop(rejected, DropReason::Queue, now_ns, out);
        }
    }

    /// Drops the segments that are larger than the MTU and returns the others.
    #[inline]
    fn admit_by_size(&mut self, packet: Packet, now_ns: u64, out: &mut Out) -> Option<Packet> {
        let too_large = |bytes: u32| bytes > self.own.mtu;
        let (body, last) =
            (packet.count > 1 && too_large(packet.segment_ip_bytes), too_large(packet.last_ip_bytes));
        if !body && !last {
            return Some(packet);
        }
        if packet.count == 1 || body == last {
            self.drop(packet, DropReason::Mtu, now_ns, out);
            return None;
        }
        // Only the body or only the last segment is too large.
        let (head, rest) = packet.cut(packet.count - 1);
        let (dropped, kept) = if body { (Some(head), rest) } else { (rest, Some(head)) };
        if let Some(dropped) = dropped {
            self.drop(dropped, DropReason::Mtu, now_ns, out);
        }
        kept
    }

    /// Hands an idle serialiser as much of the run as it takes; returns what has to wait.
    #[inline]
    fn serve_at_once(&mut self, now_ns: u64, packet: Packet, out: &mut Out) -> Option<Packet> {
        if self.in_service.is_some() {
            return Some(packet);
        }
        let mut left = Some(packet);
        while let Some(packet) = left {
            let (unit, rest) = packet.cut(if self.splits { 1 } else { packet.count });
            left = rest;
            if self.wire.has_rate() {
                self.departure_ns = self.wire.serve_idle(now_ns, unit.wire_bytes(self.own.framing_bytes));
                self.service_start_ns = now_ns;
                self.in_service = Some(unit);
                break;
            }
            self.leave(unit, now_ns, out);
        }
        left
    }

    /// The packet in service leaves, and the next is taken up.
    pub(crate) fn depart(&mut self, now_ns: u64, out: &mut Out) {
        let Some(packet) = self.in_service.take() else { return };
        self.counters.busy_ns += now_ns - self.service_start_ns;
        self.departure_ns = NEVER;
        self.leave(packet, now_ns, out);
        while let Some(unit) = self.queue.take(self.splits) {
            if self.wire.has_rate() {
                self.departure_ns = self.wire.serve_next(unit.wire_bytes(self.own.framing_bytes));
                self.service_start_ns = now_ns;
                self.in_service = Some(unit);
                break;
            }
            self.leave(unit, now_ns, out);
        }
        self.count_queue();
    }

    /// A run leaves the serialiser.
    #[inline]
    fn leave(&mut self, packet: Packet, now_ns: u64, out: &mut Out) {
        if self.outage {
            self.drop(packet, DropReason::Outage, now_ns, out);
            return;
        }
        self.counters.packets_sent += u64::from(packet.count);
        self.counters.bytes_sent += packet.ip_bytes();
        self.counters.wire_bytes_sent += packet.wire_bytes(self.own.framing_bytes);
        if self.loss_threshold == 0 {
            self.propagate(packet, now_ns);
            return;
        }
        // A link that may lose splits, but a run may have been in service when the loss was scheduled.
        let mut left = Some(packet);
        while let Some(packet) = left {
            let (segment, rest) = packet.cut(1);
            left = rest;
            if self.generator.next_u64() >> 11 < self.loss_threshold {
                self.drop(segment, DropReason::Loss, now_ns, out);
            } else {
                self.propagate(segment, now_ns);
            }
        }
    }

    #[inline]
    fn propagate(&mut self, packet: Packet, now_ns: u64) {
        let arrival_ns = now_ns.saturating_add(self.own.delay_ns).saturating_add(self.delay_add_ns);
        self.last_arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.in_flight.push_back(InFlight { arrival_ns: self.last_arrival_ns, packet });
    }

    /// The run that has reached the link's far end.
    #[inline]
    pub(crate) fn emerge(&mut self) -> Option<Packet> {
        self.in_flight.pop_front().map(|first| first.packet)
    }

    #[inline]
    fn count_queue(&mut self) {
        self.counters.queue_bytes = self.queue.bytes();
        self.counters.queue_packets = self.queue.packets();
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.counters.queue_bytes);
    }

    #[cold]
    fn drop(&mut self, packet: Packet, reason: DropReason, now_ns: u64, out: &mut Out) {
        let count = u64::from(packet.count);
        match reason {
            DropReason::Queue => self.counters.dropped_queue += count,
            DropReason::Loss => self.counters.dropped_loss += count,
            DropReason::Outage => self.counters.dropped_outage += count,
            DropReason::Mtu => self.counters.dropped_mtu += count,
            DropReason::Unroutable => {}
        }
        out.totals.dropped += count;
        out.actions.push_back(Action::Drop {
            packet,
            link: self.index,
            reason,
            at: Instant::from_ns(now_ns),
        });
    }

    /// Carries out a change.
    pub(crate) fn set(&mut self, set: Set) {
        match set {
            Set::Outage(on) => self.outage = on,
            Set::Rate(rate) => self.wire.set_rate(rate.or(self.own.rate)),
            Set::DelayAdd(ns) => self.delay_add_ns = ns,
            Set::Loss(loss) => self.loss_threshold = threshold(loss.unwrap_or(self.own.loss)),
            Set::Corrupt(_) | Set::Rule { .. } => {}
        }
    }

    /// Makes ready for a change to come: a link that will need single segments splits from now until it is restored.
    pub(crate) fn expect(&mut self, set: &Set) {
        self.splits |= match *set {
            Set::Rate(rate) => rate.is_some_and(|rate| self.rate_splits(rate)),
            Set::Loss(loss) => loss.is_some_and(|loss| threshold(loss) > 0),
            Set::Outage(_) | Set::DelayAdd(_) | Set::Corrupt(_) | Set::Rule { .. } => false,
        };
    }

    /// Back to the topology's settings.
    pub(crate) fn restore(&mut self) {
        self.set(Set::Outage(false));
        self.set(Set::Rate(None));
        self.set(Set::DelayAdd(0));
        self.set(Set::Loss(None));
        self.splits = self.splits_of_its_own();
    }

    fn splits_of_its_own(&self) -> bool {
        threshold(self.own.loss) > 0 || self.own.rate.is_some_and(|rate| self.rate_splits(rate))
    }

    /// Without a rate nothing ever waits, so a short queue alone is no reason to split.
    fn rate_splits(&self, rate: BitsPerSecond) -> bool {
        rate < WHOLE_RATE_MIN
            || self.own.queue.is_some_and(|queue| {
                queue.packets.is_some() || queue.bytes.is_some_and(|bytes| bytes.0 < WHOLE_QUEUE_BYTES_MIN)
            })
    }
}

/// A probability as a share of 2^53 draws. What is not a probability loses nothing (below 0, NaN) or everything (above 1).
fn threshold(loss: f64) -> u64 {
    (loss * (1_u64 << 53) as f64).ceil() as u64
}
