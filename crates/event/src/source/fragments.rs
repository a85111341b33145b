//! The fragments a source keeps: made at a heartbeat, assigned, released.

use super::trigger::later;
use super::{Action, Recover, Source};
use crate::interval::Intervals;
use crate::ledger::Settled;
use crate::message::{Assignment, Message, Release};
use crate::wire::HEADER_BYTES;
use std::mem;
use weir_core::Instant;
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::Sendable;

/// A fragment; its payload follows from its id and takes no room.
#[derive(Debug)]
pub(super) struct Held {
    /// Header included.
    pub bytes: u32,
    pub born: Instant,
    pub assigned: Option<Assigned>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub builder: u32,
    pub epoch: u32,
    pub stage: Stage,
    /// It has gone out whole before, to this builder or another.
    pub sent_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The channel does not work.
    Waiting,
    /// In the send order.
    Queued,
    /// Handed to the channel, not all of it written.
    Begun,
    Sent,
}

impl Source {
    /// Whether `id` needs no making: it is held, or has had its end.
    pub(super) fn knows(&self, id: u64) -> bool {
        self.held.contains(id) || self.is_over(id)
    }

    fn is_over(&self, id: u64) -> bool {
        self.settled.covers(id) || self.past.contains(id)
    }

    /// Makes a fragment. Errors (`false`): the buffer has no room for it.
    // Spec: event-building.md#credits-1
    pub(super) fn make(&mut self, id: u64, born: Instant) -> bool {
        let bytes = self.payload.bytes(id) + HEADER_BYTES as u32;
        if self.held_bytes + u64::from(bytes) > self.settings.buffer_bytes || id == u64::MAX {
            return false;
        }
        self.held_bytes += u64::from(bytes);
        self.figures.made += 1;
        self.figures.made_bytes += u64::from(bytes);
        self.held.insert(id, Held { bytes, born, assigned: None });
        self.announce(id, bytes);
        true
    }

    pub(super) fn lose(&mut self, first: u64, count: u32) {
        self.figures.lost += u64::from(count);
        match self.lost.last_mut() {
            Some((last, known))
                if last.checked_add(u64::from(*known)) == Some(first)
                    && known.checked_add(count).is_some() =>
            {
                *known += count;
            }
            _ => self.lost.push((first, count)),
        }
    }

    pub(super) fn say_lost(&mut self) {
        if !self.lost.is_empty() && self.member.is_in() {
            self.actions.push_back(Action::Send(Message::Lost(mem::take(&mut self.lost))));
        }
    }

    fn announce(&mut self, id: u64, bytes: u32) {
        if self.payload.sizes().is_fixed() || !self.member.is_in() {
            return;
        }
        let (first, sizes) = &self.announced;
        if first.checked_add(sizes.len() as u64) != Some(id) {
            self.say_sizes();
            self.announced.0 = id;
        }
        self.announced.1.push(bytes);
    }

    pub(super) fn say_sizes(&mut self) {
        if !self.announced.1.is_empty() && self.member.is_in() {
            let (first, bytes) = (self.announced.0, mem::take(&mut self.announced.1));
            self.actions.push_back(Action::Send(Message::Announce { first, bytes }));
        }
    }

    /// After a welcome: the scheduler may be another one than before, and know no sizes.
    pub(super) fn announce_held(&mut self) {
        self.announced.1.clear();
        if self.payload.sizes().is_fixed() {
            return;
        }
        let sizes: Vec<(u64, u32)> = self.held.iter().map(|(id, held)| (id, held.bytes)).collect();
        for (id, bytes) in sizes {
            self.announce(id, bytes);
        }
    }

    pub(super) fn held_ids(&self) -> Intervals {
        let mut ids = Intervals::default();
        for (id, _) in self.held.iter() {
            ids.insert(id);
        }
        ids
    }

    /// Heartbeats `first…` have happened, the first of them `age_ns` ago.
    pub(super) fn on_beats(&mut self, first: u64, count: u32, age_ns: u64, now: Instant) {
        let Some(run) = &mut self.run else { return };
        let (period_ns, since) = (run.period_ns, run.since);
        if count == 0 {
            return;
        }
        let first_born = Instant::from_ns(now.as_ns().saturating_sub(age_ns));
        // The largest id has none behind it, and is none.
        let last = first.saturating_add(u64::from(count) - 1).min(u64::MAX - 1);
        if first > last {
            return;
        }
        if run.last.is_none_or(|(known, _)| known < last) {
            run.last = Some((last, later(first_born, last - first, period_ns)));
        }
        if let Some(trigger) = &mut self.trigger {
            trigger.set(first, first_born);
        }
        let mut next = first;
        while next <= last {
            let id = next;
            // Ids that have had their end are passed over as a whole, however many a peer names.
            if self.settled.covers(id) {
                let open = self.settled.open.within(id, self.settled.below).next();
                next = open.map_or(self.settled.below, |(first, _)| first);
                continue;
            }
            if let Some(behind) = self.past.end_of(id) {
                next = behind;
                continue;
            }
            next = id + 1;
            if self.held.contains(id) {
                continue;
            }
            let born = later(first_born, id - first, period_ns);
            let gone = self.settings.recover == Recover::Lose && born < since;
            if gone {
                self.lose(id, 1);
            } else if !self.make(id, born) {
                // What follows would find no room either; a scheduler that counts credits never gets here.
                self.lose(id, (last - id + 1) as u32);
                return;
            }
        }
    }

    /// When heartbeat `id` was, as far as can be told.
    fn born(&self, id: u64, now: Instant) -> Instant {
        let Some(run) = &self.run else { return now };
        match run.last {
            Some((last, at)) if id <= last => {
                Instant::from_ns(at.as_ns().saturating_sub(((last - id) as f64 * run.period_ns) as u64))
            }
            _ => now,
        }
    }

    pub(super) fn on_assignment(&mut self, assignment: Assignment, now: Instant) {
        let Assignment { id, builder, epoch } = assignment;
        if let Some(run) = &mut self.run {
            run.epoch = run.epoch.max(epoch);
        }
        let works = self.touch(builder);
        // The usual case.
        if let Some(held) = self.held.get_mut(id).filter(|held| works && held.assigned.is_none()) {
            held.assigned = Some(Assigned { builder, epoch, stage: Stage::Queued, sent_before: false });
            let fragment = Sendable { heartbeat: id, builder: BuilderId(builder), bytes: held.bytes };
            if let Some(order) = &mut self.order {
                order.push(fragment);
            }
            return;
        }
        match self.held.get(id).map(|held| held.assigned) {
            Some(None) => {}
            // Said again, or overtaken.
            Some(Some(old)) if old.epoch > epoch || (old.epoch == epoch && old.builder == builder) => return,
            Some(Some(old)) => self.withdraw(id, old, now),
            None if self.is_over(id) => return,
            None => {
                let born = self.born(id, now);
                // Where no beat was heard yet, what is asked for is from before.
                let old = |run: &super::Run| run.last.is_none() || born < run.since;
                let gone = self.settings.recover == Recover::Lose && self.run.as_ref().is_some_and(old);
                if gone || !self.make(id, born) {
                    return self.lose(id, 1);
                }
            }
        }
        if let Some(held) = self.held.get_mut(id) {
            let sent_before = held.assigned.is_some_and(|old| old.sent_before);
            held.assigned = Some(Assigned { builder, epoch, stage: Stage::Waiting, sent_before });
        }
        if works {
            self.queue(id);
        }
    }

    /// Puts an assigned fragment into the send order of its builder, whose channel works.
    pub(super) fn queue(&mut self, id: u64) {
        let Some(held) = self.held.get_mut(id) else { return };
        let Some(assigned) = &mut held.assigned else { return };
        assigned.stage = Stage::Queued;
        let fragment = Sendable { heartbeat: id, builder: BuilderId(assigned.builder), bytes: held.bytes };
        if let Some(order) = &mut self.order {
            order.push(fragment);
        }
    }

    /// Takes a fragment back from where it is on its way, unless some of it has gone already.
    fn withdraw(&mut self, id: u64, assigned: Assigned, now: Instant) {
        match assigned.stage {
            Stage::Queued => {
                if let Some(order) = &mut self.order {
                    order.remove(id);
                }
            }
            Stage::Begun => {
                if let Some(channel) = self.channels.get_mut(&assigned.builder) {
                    channel.withdraw(id, assigned.epoch);
                }
            }
            Stage::Waiting | Stage::Sent => return,
        }
        self.refresh(assigned.builder, now);
    }

    pub(super) fn on_release(&mut self, release: Release, now: Instant) {
        // An order to one builder.
        let Some(outcome) = release.outcome else { return };
        let end = release.first.saturating_add(u64::from(release.count));
        self.forget(release.first, end, now);
        self.past.add(release.first, end, outcome);
    }

    fn forget(&mut self, first: u64, end: u64, now: Instant) {
        let mut from = first;
        while let Some((id, held)) = self.held.remove_within(from, end) {
            from = id + 1;
            self.held_bytes -= u64::from(held.bytes);
            if let Some(assigned) = held.assigned {
                self.withdraw(id, assigned, now);
            }
        }
    }

    /// All that is below and not open has had its end.
    // Spec: event-building.md#ledger-4
    pub(super) fn on_settled(&mut self, settled: &Settled, now: Instant) {
        for id in settled.covered(self.held.iter().map(|(id, _)| id)) {
            self.forget(id, id + 1, now);
        }
        self.past.settle(settled);
        self.settled = settled.clone();
    }
}
