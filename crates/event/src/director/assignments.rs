//! Which builder an event goes to, and how it ends. Rules: `docs/specs/event-building.md#credits-1`.

use super::Director;
use super::figures::FailureKind;
use super::table::{Place, UNANNOUNCED};
use crate::ledger::Reason;
use crate::message::{Assignment, Done, Outcome, Release};
use crate::wire::HEADER_BYTES;
use weir_core::Instant;
use weir_seams::scheduler::{BuilderId, Wanted};

impl Director {
    /// Gives events builders, the oldest first, until one finds none (credits-4).
    pub(super) fn assign_waiting(&mut self) {
        if self.reopening || !self.members.all_sources() {
            return;
        }
        while let Some(&id) = self.waiting.front() {
            let Some(event) = self.table.get_mut(id).filter(|event| event.place == Place::Waiting) else {
                self.waiting.pop_front();
                continue;
            };
            if event.unannounced > 0 {
                return;
            }
            let bytes = event.bytes;
            if bytes > self.members.memory_max && self.members.memory_max > 0 {
                self.waiting.pop_front();
                self.finish_event(id, Outcome::Dropped(Reason::NoCredit));
                continue;
            }
            let wanted =
                Wanted { heartbeat: id, bytes, host: self.members.main_host, membership_epoch: self.epoch };
            let Some(builder) = self.scheduler.choose(self.now, &wanted, &self.view) else { return };
            // Credits are kept here and not in the scheduler: one that is wrong loses no event.
            if !self.view.fits(builder, bytes) {
                return;
            }
            self.waiting.pop_front();
            self.assign(id, bytes, builder);
        }
    }

    fn assign(&mut self, id: u64, bytes: u64, builder: BuilderId) {
        let epoch = self.epoch;
        let Some(event) = self.table.get_mut(id) else { return };
        event.place = Place::At { builder: builder.0, epoch };
        self.ledger.aside.reassigned += u64::from(event.failure != 0);
        if let Some(line) = self.members.builder_mut(builder.0) {
            line.outstanding_bytes += bytes;
            line.outstanding_events += 1;
            line.line.assigned += 1;
            line.line.assigned_bytes += bytes;
        }
        self.view.charge(builder, bytes);
        self.scheduler.on_load(builder, &self.view);
        self.outbox.assign(Assignment { id, builder: builder.0, epoch });
    }

    /// An event has its outcome; everyone who has a part in it hears so. `false`: it was not held.
    pub(super) fn finish_event(&mut self, id: u64, outcome: Outcome) -> bool {
        let Some(at) = self.table.place(id) else { return false };
        let (event, gone) = self.table.end_event(at);
        let finished = self.ledger.finish(id, outcome);
        assert!(finished, "event {id} is in the table and not held by the ledger");
        self.free_sizes(at, gone);
        if let Place::At { builder, .. } = event.place {
            self.discharge(builder, event.bytes);
            if let Some(builder) = self.members.builder_mut(builder) {
                match outcome {
                    Outcome::Complete => builder.line.complete += 1,
                    Outcome::Partial => builder.line.partial += 1,
                    Outcome::Dropped(_) => builder.line.dropped += 1,
                }
            }
            let release = Release { first: id, count: 1, outcome: Some(outcome) };
            self.outbox.release_at_builder(builder, release);
        }
        if event.failure != 0 {
            self.figures.settled(event.failure, self.now);
        }
        self.outbox.release_at_sources(id, 1, outcome);
        true
    }

    fn discharge(&mut self, slot: u32, bytes: u64) {
        if let Some(builder) = self.members.builder_mut(slot) {
            builder.outstanding_bytes = builder.outstanding_bytes.saturating_sub(bytes);
            builder.outstanding_events = builder.outstanding_events.saturating_sub(1);
        }
        let id = BuilderId(slot);
        if self.view.get(id).is_some() {
            self.view.discharge(id, bytes);
            self.scheduler.on_load(id, &self.view);
        }
    }

    /// A builder says how events ended.
    pub(super) fn on_done(&mut self, connection: u64, slot: u32, all: &[Done]) {
        for done in all {
            let allowed = match done.outcome {
                Outcome::Complete => true,
                Outcome::Partial => self.settings.partial,
                Outcome::Dropped(reason) => {
                    matches!(reason, Reason::Deadline | Reason::Corrupt | Reason::StaleEpoch)
                }
            };
            if !allowed {
                return self.expel(connection, "a builder does not end events so");
            }
            let here = Place::At { builder: slot, epoch: done.epoch };
            if self.table.get_mut(done.id).is_some_and(|event| event.place == here) {
                self.finish_event(done.id, done.outcome);
            } else {
                self.ledger.aside.stale += 1;
            }
        }
    }

    /// A source says how large its fragments are.
    pub(super) fn on_announce(&mut self, connection: u64, slot: u32, first: u64, bytes: &[u32]) {
        let Some(source) = self.members.source_mut(slot) else { return };
        if source.fixed {
            return self.expel(connection, "it announces sizes and has said that all are alike");
        }
        for (id, size) in (first..).zip(bytes) {
            let bytes = u64::from(*size);
            if bytes < HEADER_BYTES as u64 || bytes > source.fragment_bytes_max {
                return self.expel(connection, "it announces a size that its fragments do not have");
            }
            let Some(at) = self.table.place(id) else { continue };
            let Some(place) = source.sizes.get_mut(at) else { continue };
            // After a restart it says the same again.
            if *place == UNANNOUNCED {
                *place = *size;
                if let Some(event) = self.table.get_mut(id) {
                    event.bytes += bytes;
                    event.unannounced -= 1;
                }
                source.used_bytes -= source.fragment_bytes_max - bytes;
            }
        }
    }

    /// A source that is new to this scheduler has a part in every event that is held.
    pub(super) fn add_sizes(&mut self, slot: u32) {
        let Some(source) = self.members.sources.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        for event in self.table.held_mut() {
            if source.fixed {
                event.bytes += source.fragment_bytes_max;
            } else {
                event.unannounced += 1;
            }
        }
        if !source.fixed {
            source.sizes.resize(self.table.width(), UNANNOUNCED);
            source.used_bytes = self.ledger.held_count() * source.fragment_bytes_max;
        }
    }

    /// The event at a place has ended, and so many places in front are gone.
    fn free_sizes(&mut self, at: usize, gone: usize) {
        let stays = if self.table.is_sparse() { self.table.compact() } else { Vec::new() };
        if self.members.variable_sources == 0 {
            return;
        }
        for source in self.members.sources.iter_mut().flatten().filter(|source| !source.fixed) {
            if let Some(size) = source.sizes.get_mut(at) {
                let bytes = if *size == UNANNOUNCED { source.fragment_bytes_max } else { u64::from(*size) };
                source.used_bytes -= bytes;
                *size = 0;
            }
            source.sizes.drain(..gone.min(source.sizes.len()));
            if !stays.is_empty() {
                let mut stays = stays.iter();
                source.sizes.retain(|_| stays.next().copied().unwrap_or(true));
            }
        }
    }

    /// Fragments that cannot be had any more.
    pub(super) fn on_lost(&mut self, ranges: &[(u64, u32)]) {
        for (first, count) in ranges {
            let end = first.saturating_add(u64::from(*count));
            for id in self.table.held_within(*first, end) {
                self.finish_event(id, Outcome::Dropped(Reason::SourceLost));
            }
        }
    }

    /// What is in flight at a builder is waiting again (failure-3); the number of events.
    pub(super) fn requeue(&mut self, slot: u32, kind: FailureKind, heard: Instant) -> u64 {
        let Some(builder) = self.members.builder_mut(slot) else { return 0 };
        builder.outstanding_bytes = 0;
        builder.outstanding_events = 0;
        let name = builder.name.clone();
        let here = |place: Place| matches!(place, Place::At { builder, .. } if builder == slot);
        let taken: Vec<u64> =
            self.table.held().filter(|event| here(event.place)).map(|event| event.id).collect();
        let number = self.figures.failed(&name, true, kind, self.now, heard, taken.len() as u64);
        for &id in &taken {
            let Some(event) = self.table.get_mut(id) else { continue };
            event.place = Place::Waiting;
            let before = std::mem::replace(&mut event.failure, number);
            if before != 0 {
                self.figures.settled(before, self.now);
            }
            self.outbox.release_at_builder(slot, Release { first: id, count: 1, outcome: None });
        }
        let count = taken.len() as u64;
        self.merge_waiting(taken);
        count
    }

    /// Both ascending.
    fn merge_waiting(&mut self, ids: Vec<u64>) {
        if ids.is_empty() {
            return;
        }
        let mut merged = std::collections::VecDeque::with_capacity(self.waiting.len() + ids.len());
        let mut ids = ids.into_iter().peekable();
        for id in self.waiting.drain(..) {
            while let Some(older) = ids.next_if(|older| *older < id) {
                merged.push_back(older);
            }
            merged.push_back(id);
        }
        merged.extend(ids);
        self.waiting = merged;
    }

    /// Everything that is held ends so.
    pub(super) fn drop_all(&mut self, reason: Reason) {
        for id in self.ledger.held().iter() {
            self.finish_event(id, Outcome::Dropped(reason));
        }
        self.waiting.clear();
    }

    /// Events without a builder that are older than the deadline (delivery-5); builders give up theirs themselves.
    pub(super) fn give_up_late(&mut self) {
        let Some(deadline) = self.settings.deadline else { return };
        let deadline_ns = weir_core::time::nanoseconds(deadline);
        while let Some(&id) = self.waiting.front() {
            if self.age_ns(id) < deadline_ns {
                return;
            }
            self.waiting.pop_front();
            if self.table.get_mut(id).is_some_and(|event| event.place == Place::Waiting) {
                self.finish_event(id, Outcome::Dropped(Reason::Deadline));
            }
        }
    }
}
