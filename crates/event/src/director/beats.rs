//! Heartbeats: when they are due, and what is born. Rules: `docs/specs/event-building.md#beats-1`.

use super::outbox::To;
use super::table::{Event, Place, UNANNOUNCED};
use super::{Director, Phase};
use crate::ledger::Reason;
use crate::message::{Message, Outcome};
use std::time::Duration;
use weir_core::Instant;

/// Above this rate heartbeats are told of several at once, so often: a message for each would cost more than the events. Their ages are exact.
const SINGLE_HZ_MAX: f64 = 10_000.0;
const TOGETHER: Duration = Duration::from_millis(1);

/// Wide enough for whatever a peer says of the run's age.
fn ns(at: Instant) -> i128 {
    i128::from(at.as_ns())
}

fn bounded(ns: i128) -> u64 {
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

impl Director {
    /// When heartbeat `id` is due, ns; it may be before the clock began.
    fn due_ns(&self, id: u64) -> i128 {
        // As a float a year of heartbeats is exact to some microseconds, and nothing adds up: each is reckoned from the start.
        self.origin_ns + (id as f64 * 1e9 / self.settings.rate_hz) as i128
    }

    pub(super) fn due(&self, id: u64) -> Instant {
        Instant::from_ns(bounded(self.due_ns(id)))
    }

    pub(super) fn age_ns(&self, id: u64) -> u64 {
        bounded(ns(self.now) - self.due_ns(id))
    }

    /// The clock is set so that `id` is due at `at_ns`.
    pub(super) fn set_clock(&mut self, id: u64, at_ns: i128) {
        self.origin_ns = 0;
        self.origin_ns = at_ns - self.due_ns(id);
    }

    /// When the next heartbeat is told of.
    // Spec: event-building.md#beats-1
    pub(super) fn next_beat(&self) -> Instant {
        let due = self.due(self.ledger.generated());
        if self.settings.rate_hz > SINGLE_HZ_MAX { due.max(self.beaten + TOGETHER) } else { due }
    }

    /// How long what comes may wait, so that it is answered together: until heartbeats are told of again, where that is often.
    pub fn rest(&self) -> Duration {
        let often = matches!(self.phase, Phase::Running) && self.settings.rate_hz > SINGLE_HZ_MAX;
        if often { self.next_beat().since(self.now).min(TOGETHER) } else { Duration::ZERO }
    }

    /// How many heartbeats were due by `at`: the id behind the last of them.
    fn due_by(&self, at_ns: i128) -> u64 {
        let since = at_ns - self.origin_ns;
        if since < 0 {
            return 0;
        }
        let mut count = (since as f64 * self.settings.rate_hz / 1e9) as u64;
        // The product is rounded; what counts is when each is due, or the shell would wake for it again and again.
        while count < u64::MAX && self.due_ns(count) <= at_ns {
            count += 1;
        }
        while count > 0 && self.due_ns(count - 1) > at_ns {
            count -= 1;
        }
        count
    }

    /// The first heartbeat may come when everyone is there (beats-2).
    pub(super) fn begin(&mut self) {
        let ready = matches!(self.phase, Phase::Gathering)
            && self.members.all_sources()
            && self.view.listed().len() >= self.settings.builders.max(1) as usize
            && self.all_channels_work();
        if ready {
            let start = (self.now + self.settings.start_pause).max(self.settings.not_before);
            self.set_clock(self.ledger.generated(), ns(start));
            self.phase = Phase::Running;
            self.tell_start(To::Sources);
        }
    }

    /// Sources with a clock of their own hear when the next heartbeat is due.
    pub(super) fn tell_start(&mut self, to: To) {
        if self.settings.trigger_at_source && matches!(self.phase, Phase::Running) {
            let first = self.ledger.generated();
            let in_ns = bounded(self.due_ns(first) - ns(self.now));
            self.outbox.send(to, Message::Start { first, in_ns });
        }
    }

    pub(super) fn issue_beats(&mut self) {
        if !matches!(self.phase, Phase::Running) || self.search_pauses() || self.now < self.next_beat() {
            return;
        }
        self.beaten = self.now;
        let events = self.settings.events.unwrap_or(u64::MAX);
        let first = self.ledger.generated();
        let end = self.due_by(ns(self.now)).min(events);
        if first < end {
            let late_max = self.settings.late_max.as_nanos() as i128;
            let in_time = self.due_by(ns(self.now) - late_max - 1).clamp(first, end);
            self.stillborn(first, in_time, Reason::NoScheduler);
            self.bear(in_time, end);
        }
        if self.ledger.generated() >= events {
            self.drain();
        }
    }

    /// Events `first..end` are born, as far as there is room for them.
    fn bear(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        if self.sources_lost() {
            return self.stillborn(first, end, Reason::SourceLost);
        }
        let room = self.room().min(end - first);
        let count = if self.members.variable_sources == 0 { room } else { self.room_by_size(room) };
        if count > 0 {
            self.ledger.generate(count);
            self.push_events(first, first + count);
            self.waiting.extend(first..first + count);
            for part in (first..first + count).step_by(u32::MAX as usize) {
                let age_ns = self.age_ns(part);
                self.outbox.beats(part, (first + count - part).min(u64::from(u32::MAX)) as u32, age_ns);
            }
        }
        let nobody = self.view.listed().is_empty();
        self.stillborn(first + count, end, if nobody { Reason::NoBuilder } else { Reason::NoCredit });
    }

    /// Events that end as they are born.
    fn stillborn(&mut self, first: u64, end: u64, reason: Reason) {
        if first >= end {
            return;
        }
        let outcome = Outcome::Dropped(reason);
        self.ledger.generate_ended(end - first, outcome);
        match u32::try_from(end - first) {
            Ok(count) => self.outbox.release_at_sources(first, count, outcome),
            // After an absence of months: more than messages should name one by one.
            Err(_) => self.settle(),
        }
    }

    /// The table of a ledger that was recovered; sources and their sizes come after.
    pub(super) fn fill_table(&mut self) {
        self.table.clear();
        let held = self.ledger.held();
        for id in held.iter() {
            self.table.push(Event { id, bytes: 0, unannounced: 0, failure: 0, place: Place::Waiting });
        }
        self.waiting = held.iter().collect();
    }

    fn push_events(&mut self, first: u64, end: u64) {
        let bytes = self.members.fixed_bytes;
        let unannounced = self.members.variable_sources;
        for id in first..end {
            self.table.push(Event { id, bytes, unannounced, failure: 0, place: Place::Waiting });
            if unannounced > 0 {
                self.push_sizes();
            }
        }
    }

    fn push_sizes(&mut self) {
        for source in self.members.sources.iter_mut().flatten().filter(|source| !source.fixed) {
            source.sizes.push_back(UNANNOUNCED);
            source.used_bytes += source.fragment_bytes_max;
        }
    }

    /// Events that there is room for, by count.
    fn room(&self) -> u64 {
        self.members.fixed_room.min(self.settings.held_max).saturating_sub(self.ledger.held_count())
    }

    /// Of `room`, events that every source of varying sizes has room for as well.
    fn room_by_size(&self, room: u64) -> u64 {
        let varying = self.members.sources.iter().flatten().filter(|source| !source.fixed);
        let rooms = varying
            .map(|source| source.buffer_bytes.saturating_sub(source.used_bytes) / source.fragment_bytes_max);
        rooms.min().unwrap_or(room).min(room)
    }
}
