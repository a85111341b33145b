//! One directed link: a queue, a serialiser and the wire behind it.

use crate::action::{Action, DropReason};
use crate::calendar::{NEVER, arrival_key, departure_key};
use crate::chance::{self, Chance};
use crate::counters::{LinkCounters, Totals, dropped_mut};
use crate::flight::Flight;
use crate::hazards::{Fate, Hazards};
use crate::packet::Packet;
use crate::queue::{Buffer, Queue, Taken};
use crate::wire::{Wire, time_ns};
use std::collections::VecDeque;
use weir_core::schedule::{Effect, Set};
use weir_core::topology::{self, DirectedLink, Discipline, Impairments};
use weir_core::{BitsPerSecond, Instant};

/// Below this a super-packet of 64 KiB would hold the wire for more than about 0.2 ms.
const WHOLE_RATE_MIN: BitsPerSecond = BitsPerSecond(2_500_000_000);
/// A shorter queue, less than four super-packets, would drop them by large parts. The default queue is never shorter.
const WHOLE_QUEUE_BYTES_MIN: u64 = 4 * 64 * 1024;
/// IP bytes of a typical packet, for disciplines that count idle time in packets.
const TYPICAL_IP_BYTES: u64 = 1000;

/// What links share: where they leave what the shell must know, and the buffers of stages.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) actions: VecDeque<Action>,
    pub(crate) totals: Totals,
    pub(crate) buffers: Vec<Buffer>,
}

#[derive(Debug)]
pub(crate) struct Link {
    index: usize,
    /// As the topology has it; what a change replaces and its end restores. What every packet needs is beside it, in reach.
    own: Box<DirectedLink>,
    delay_ns: u64,
    framing_bytes: u32,
    mtu: u32,
    run_seed: u64,
    queue: Queue,
    /// The buffer that the queue shares with others of its stage, an index into `Out::buffers`.
    buffer: Option<usize>,
    /// Queue and buffer hold less than whole super-packets need.
    short: bool,
    wire: Wire,
    in_service: Option<Packet>,
    /// When the serialiser took up the packet it serves, and when that leaves.
    service_start_ns: u64,
    departure_ns: u64,
    flight: Flight,
    /// Of the packet sent last, of those in order; none may overtake it.
    last_arrival_ns: u64,
    delay_add_ns: u64,
    hazards: Box<Hazards>,
    /// Nothing happens on the wire but the delay: the hazards need not be asked.
    harmless: bool,
    outage: bool,
    splits: bool,
    captured: bool,
    pub(crate) counters: LinkCounters,
}

impl Link {
    /// `buffer`: the number of the one its stage's queues share, and its size in bytes.
    pub(crate) fn new(index: usize, own: DirectedLink, run_seed: u64, buffer: Option<(usize, u64)>) -> Self {
        let hazards = Box::new(Hazards::new(&own, run_seed));
        let mut link = Link {
            index,
            run_seed,
            queue: queue_of(&own, run_seed),
            buffer: buffer.map(|(number, _)| number),
            short: own.queue.is_some_and(|queue| is_short(&queue))
                || buffer.is_some_and(|(_, bytes)| bytes < WHOLE_QUEUE_BYTES_MIN),
            wire: Wire::new(own.rate),
            in_service: None,
            service_start_ns: 0,
            departure_ns: NEVER,
            flight: Flight::new(),
            last_arrival_ns: 0,
            delay_add_ns: 0,
            harmless: hazards.are_none(),
            hazards,
            outage: false,
            splits: false,
            captured: false,
            counters: LinkCounters::default(),
            delay_ns: own.delay_ns,
            framing_bytes: own.framing_bytes,
            mtu: own.mtu,
            own: Box::new(own),
        };
        link.splits = link.splits_of_its_own();
        link
    }

    /// Whether super-packets are split when they enter.
    pub(crate) fn splits(&self) -> bool {
        self.splits
    }

    pub(crate) fn capture(&mut self, on: bool) {
        self.captured = on;
    }

    /// Largest IP packet in bytes, no larger than any can be.
    pub(crate) fn mtu(&self) -> u16 {
        u16::try_from(self.mtu).unwrap_or(u16::MAX)
    }

    /// Key of the link's next event.
    #[inline]
    pub(crate) fn next_key(&self) -> u64 {
        departure_key(self.departure_ns).min(arrival_key(self.flight.next_ns()))
    }

    /// When a run next reaches the far end, at the earliest: none overtakes those in order, and changes only add delay.
    #[inline]
    pub(crate) fn arrival_ns_min(&self) -> u64 {
        let in_order_ns = match self.flight.in_order_ns() {
            NEVER => self.departure_ns.saturating_add(self.delay_ns),
            first => first,
        };
        in_order_ns.min(self.flight.late_ns())
    }

    /// A run arrives at the link's queue.
    pub(crate) fn arrive(&mut self, now_ns: u64, packet: Packet, out: &mut Out) {
        self.counters.packets_in += u64::from(packet.count);
        self.counters.bytes_in += packet.ip_bytes();
        if self.outage {
            self.drop(packet, DropReason::Outage, now_ns, out);
            return;
        }
        if self.fits(&packet) {
            self.enter_queue(now_ns, packet, out);
            return;
        }
        let (kept, too_large) = self.by_size(packet);
        if let Some(too_large) = too_large {
            self.drop(too_large, DropReason::Mtu, now_ns, out);
        }
        if let Some(packet) = kept {
            self.enter_queue(now_ns, packet, out);
        }
    }

    #[inline]
    fn enter_queue(&mut self, now_ns: u64, packet: Packet, out: &mut Out) {
        if self.queue.asks_each() {
            self.enter_each(now_ns, packet, out);
        } else {
            self.enter(now_ns, packet, out);
        }
    }

    #[inline]
    fn enter(&mut self, now_ns: u64, packet: Packet, out: &mut Out) {
        let Some(waiting) = self.serve_at_once(now_ns, packet, out) else { return };
        let buffer = self.buffer.map(|number| &out.buffers[number]);
        let rejected = self.queue.offer(waiting, now_ns, buffer);
        self.count_queue(out);
        if let Some((rejected, reason)) = rejected {
            self.drop(rejected, reason, now_ns, out);
        }
    }

    /// The queue decides on each segment before it enters.
    #[cold]
    fn enter_each(&mut self, now_ns: u64, packet: Packet, out: &mut Out) {
        let mut left = Some(packet);
        while let Some(packet) = left {
            let (segment, rest) = packet.cut(1);
            left = rest;
            if self.queue.drops_early(now_ns) {
                self.drop(segment, DropReason::Early, now_ns, out);
            } else {
                self.enter(now_ns, segment, out);
            }
        }
    }

    /// Whether the MTU lets all of a run pass.
    #[inline]
    pub(crate) fn fits(&self, packet: &Packet) -> bool {
        let too_large = |bytes: u16| u32::from(bytes) > self.mtu;
        !too_large(packet.last_ip_bytes()) && (packet.count == 1 || !too_large(packet.segment_ip_bytes()))
    }

    /// Divides a run into what the MTU lets pass and what is too large.
    #[cold]
    pub(crate) fn by_size(&self, packet: Packet) -> (Option<Packet>, Option<Packet>) {
        let too_large = |bytes: u16| u32::from(bytes) > self.mtu;
        let (body, last) =
            (packet.count > 1 && too_large(packet.segment_ip_bytes()), too_large(packet.last_ip_bytes()));
        if !body && !last {
            return (Some(packet), None);
        }
        if packet.count == 1 || body == last {
            return (None, Some(packet));
        }
        // Only the body or only the last segment is too large.
        let (head, rest) = packet.cut(packet.count - 1);
        if body { (rest, Some(head)) } else { (Some(head), rest) }
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
            if self.captured {
                self.see(unit, None, now_ns, out);
            }
            if self.wire.has_rate() {
                self.departure_ns = self.wire.serve_idle(now_ns, unit.wire_bytes(self.framing_bytes));
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
        while let Some(unit) = self.take_waiting(now_ns, out) {
            if self.captured {
                self.see(unit, None, now_ns, out);
            }
            if self.wire.has_rate() {
                self.departure_ns = self.wire.serve_next(unit.wire_bytes(self.framing_bytes));
                self.service_start_ns = now_ns;
                self.in_service = Some(unit);
                break;
            }
            self.leave(unit, now_ns, out);
        }
        self.counters.ran_empty += u64::from(self.in_service.is_none());
        self.count_queue(out);
    }

    /// The next of the queue; what the queue drops instead is dropped.
    #[inline]
    fn take_waiting(&mut self, now_ns: u64, out: &mut Out) -> Option<Packet> {
        loop {
            match self.queue.take(self.splits, now_ns)? {
                Taken::Send(packet) => return Some(packet),
                Taken::Drop(packet) => self.drop(packet, DropReason::Early, now_ns, out),
            }
        }
    }

    /// A run leaves the serialiser.
    #[inline]
    fn leave(&mut self, packet: Packet, now_ns: u64, out: &mut Out) {
        if self.outage {
            self.drop(packet, DropReason::Outage, now_ns, out);
            return;
        }
        if !self.harmless {
            self.leave_into_hazards(packet, now_ns, out);
            return;
        }
        self.count_sent(&packet);
        let arrival_ns = now_ns.saturating_add(self.delay_ns).saturating_add(self.delay_add_ns);
        self.last_arrival_ns = arrival_ns.max(self.last_arrival_ns);
        self.flight.send(self.last_arrival_ns, packet);
    }

    fn leave_into_hazards(&mut self, packet: Packet, now_ns: u64, out: &mut Out) {
        self.count_sent(&packet);
        let delay_ns = self.delay_ns.saturating_add(self.delay_add_ns);
        let mut left = Some(packet);
        while let Some(packet) = left {
            // A link that needs single segments splits, but a run may have been in service when that need came up.
            let (mut unit, rest) = packet.cut(if self.splits { 1 } else { packet.count });
            left = rest;
            let whole = unit.inverted_bit();
            match self.hazards.decide(&mut unit, now_ns, delay_ns, &mut self.last_arrival_ns) {
                Fate::Lost(reason) => self.drop(unit, reason, now_ns, out),
                Fate::Arrives(at_ns) => self.flight.send(at_ns, unit),
                Fate::ArrivesLate(at_ns) => self.flight.send_late(at_ns, unit),
            }
            self.counters.corrupted += u64::from(unit.inverted_bit() != whole);
        }
        // What rules that have ended still hold back may have been the last of it.
        self.harmless = self.hazards.are_none();
    }

    #[inline]
    fn count_sent(&mut self, packet: &Packet) {
        self.counters.packets_sent += u64::from(packet.count);
        self.counters.bytes_sent += packet.ip_bytes();
        self.counters.wire_bytes_sent += packet.wire_bytes(self.framing_bytes);
    }

    /// The run that has reached the link's far end.
    #[inline]
    pub(crate) fn emerge(&mut self) -> Option<Packet> {
        let (packet, overtaken) = self.flight.take()?;
        if overtaken {
            self.counters.reordered += u64::from(packet.count);
        }
        Some(packet)
    }

    #[inline]
    fn count_queue(&mut self, out: &mut Out) {
        let before = self.counters.queue_bytes;
        self.counters.queue_bytes = self.queue.bytes();
        self.counters.queue_packets = self.queue.packets();
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.counters.queue_bytes);
        if let Some(number) = self.buffer {
            let buffer = &mut out.buffers[number];
            buffer.bytes = buffer.bytes + self.counters.queue_bytes - before;
        }
    }

    /// The router that the link leaves does not forward the run. With `answered` it lives on as answers.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        packet: Packet,
        reason: DropReason,
        answered: bool,
        now_ns: u64,
        out: &mut Out,
    ) {
        self.counters.packets_in += u64::from(packet.count);
        self.counters.bytes_in += packet.ip_bytes();
        if answered {
            self.count_dropped(packet, reason, now_ns, out);
            out.totals.answered += u64::from(packet.count);
        } else {
            self.drop(packet, reason, now_ns, out);
        }
    }

    /// What was at the far end already is of no use there: lost on the wire, as it turns out.
    #[cold]
    pub(crate) fn lose(&mut self, packet: Packet, now_ns: u64, out: &mut Out) {
        self.drop(packet, DropReason::Loss, now_ns, out);
    }

    #[cold]
    fn drop(&mut self, packet: Packet, reason: DropReason, now_ns: u64, out: &mut Out) {
        self.count_dropped(packet, reason, now_ns, out);
        let at = Instant::from_ns(now_ns);
        out.actions.push_back(Action::Drop { packet, link: self.index, reason, at });
    }

    fn count_dropped(&mut self, packet: Packet, reason: DropReason, now_ns: u64, out: &mut Out) {
        let count = u64::from(packet.count);
        if let Some(counter) = dropped_mut(&mut self.counters, reason) {
            *counter += count;
        }
        out.totals.dropped += count;
        if self.captured {
            self.see(packet, Some(reason), now_ns, out);
        }
    }

    #[cold]
    fn see(&self, packet: Packet, dropped: Option<DropReason>, now_ns: u64, out: &mut Out) {
        let at = Instant::from_ns(now_ns);
        out.actions.push_back(Action::Seen { packet, link: self.index, at, dropped });
    }

    /// Carries out a change.
    pub(crate) fn set(&mut self, set: Set) {
        match set {
            Set::Outage(on) => self.outage = on,
            Set::Rate(rate) => self.wire.set_rate(rate.or(self.own.rate)),
            Set::DelayAdd(ns) => self.delay_add_ns = ns,
            Set::Loss(loss) => self.hazards.set_loss(loss.unwrap_or(self.own.loss)),
            Set::Corrupt(ratio) => {
                self.hazards.set_corrupt(ratio.unwrap_or(self.own.impairments.corrupt));
            }
            Set::Rule { number, rule } => {
                self.hazards.rules.set(number, rule, self.run_seed, &self.own.name);
            }
        }
        self.harmless = self.hazards.are_none();
    }

    /// Makes ready for a change to come: a link that will need single segments splits from now until it is restored.
    pub(crate) fn expect(&mut self, set: &Set) {
        let some = |ratio: f64| !Chance::of(ratio).is_none();
        self.splits |= match set {
            Set::Rate(rate) => rate.is_some_and(|rate| self.rate_splits(rate)),
            Set::Loss(ratio) | Set::Corrupt(ratio) => ratio.is_some_and(some),
            Set::Rule { rule: Some(rule), .. } if rule.matches.share < 1.0 => true,
            Set::Rule { rule, .. } => rule.as_ref().is_some_and(|rule| match rule.effect {
                Effect::Loss(ratio) | Effect::Corrupt(ratio) => some(ratio),
                Effect::DelaySome { .. } => true,
                // Segments of a run match alike.
                Effect::Outage | Effect::Delay(_) => false,
            }),
            Set::Outage(_) | Set::DelayAdd(_) => false,
        };
    }

    /// Back to the topology's settings.
    pub(crate) fn restore(&mut self) {
        self.set(Set::Outage(false));
        self.set(Set::Rate(None));
        self.set(Set::DelayAdd(0));
        self.set(Set::Loss(None));
        self.set(Set::Corrupt(None));
        self.hazards.rules.clear();
        self.harmless = self.hazards.are_none();
        self.splits = self.splits_of_its_own();
    }

    fn splits_of_its_own(&self) -> bool {
        !Chance::of(self.own.loss).is_none()
            || self.own.impairments != Impairments::default()
            || self.own.rate.is_some_and(|rate| self.rate_splits(rate))
    }

    /// Without a rate nothing ever waits, so a short queue alone is no reason to split.
    fn rate_splits(&self, rate: BitsPerSecond) -> bool {
        rate < WHOLE_RATE_MIN || self.short
    }
}

fn is_short(queue: &topology::Queue) -> bool {
    queue.packets.is_some()
        || queue.bytes.is_some_and(|bytes| bytes.0 < WHOLE_QUEUE_BYTES_MIN)
        || queue.discipline != Discipline::DropTail
}

fn queue_of(own: &DirectedLink, run_seed: u64) -> Queue {
    let typical_bytes = TYPICAL_IP_BYTES + u64::from(own.framing_bytes);
    let packet_ns = own.rate.map_or(0, |rate| time_ns(typical_bytes, rate));
    Queue::new(own.queue, packet_ns, own.mtu, chance::generator(run_seed, &format!("{}.red", own.name)))
}
