//! Events under assembly: assigned, joined by id and source, ended.

use super::{Action, Builder, Built, PAST_MAX};
use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::message::{Assignment, Done, Message, Outcome, Release};
use crate::payload::crc32c;
use crate::table::Table;
use crate::wire::{HEADER_BYTES, Header};
use std::cmp::Ordering;
use std::time::Duration;
use weir_core::Instant;

/// How often deadlines, early fragments and silent sources are looked after: the first where there is a deadline.
const LOOK_FINELY: Duration = Duration::from_millis(5);
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A source that has fragments to send and credit, and sends nothing for so long, is asked again.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(500);
/// So many at a time.
const ASKED_MAX: usize = 64;

/// What becomes of a fragment whose header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Place,
    /// Kept until its assignment comes.
    Early,
    Skip,
}

/// A set of sources: one bit for each slot.
#[derive(Default)]
pub(super) struct Slots {
    /// Below 64, as all are in most runs: these need no memory of their own.
    first: u64,
    rest: Vec<u64>,
}

impl Slots {
    /// Empty, for slots below this one.
    pub(super) fn reset(&mut self, slots: usize) {
        self.first = 0;
        self.rest.clear();
        self.rest.resize(slots.div_ceil(64).saturating_sub(1), 0);
    }
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }
    /// `slot` is below what it was made for.
    fn word(&mut self, slot: u16) -> &mut u64 {
        match usize::from(slot / 64).checked_sub(1) {
            None => &mut self.first,
            Some(at) => &mut self.rest[at],
        }
    }
    fn has(&self, slot: u16) -> bool {
        let word = match usize::from(slot / 64).checked_sub(1) {
            None => self.first,
            Some(at) => self.rest.get(at).copied().unwrap_or(0),
        };
        word >> (slot % 64) & 1 == 1
    }
    pub(super) fn put(&mut self, slot: u16) {
        *self.word(slot) |= 1 << (slot % 64);
    }
    fn take(&mut self, slot: u16) {
        *self.word(slot) &= !(1 << (slot % 64));
    }
    fn copy(&mut self, other: &Slots) {
        self.first = other.first;
        if !other.rest.is_empty() || !self.rest.is_empty() {
            self.rest.clone_from(&other.rest);
        }
    }
    fn count(&self) -> u32 {
        self.words().map(u64::count_ones).sum()
    }
    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..).zip(self.words()).flat_map(|(at, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at * 64 + bit as u16)
            })
        })
    }
}

pub(super) struct Event {
    epoch: u32,
    /// When its heartbeat was, as early as anybody has said.
    born: Instant,
    first_at: Option<Instant>,
    /// Sources of which it is made.
    wanted: Slots,
    /// Of them, those whose fragments are not here.
    missing: Slots,
    missing_count: u32,
    /// Asked again because theirs was corrupt.
    asked: Vec<u16>,
    fragments: Vec<(u16, Vec<u8>)>,
    /// Headers included.
    bytes: u64,
}

/// By id; what has ended leaves its memory to the next.
#[derive(Default)]
pub(super) struct Events {
    places: Table<u32>,
    pub(super) slab: Vec<Event>,
    free: Vec<u32>,
}

impl Events {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
    pub(super) fn ids(&self) -> Intervals {
        let mut ids = Intervals::default();
        for (id, _) in self.places.iter() {
            ids.insert(id);
        }
        ids
    }
    fn get(&self, id: u64) -> Option<&Event> {
        self.places.get(id).map(|place| &self.slab[*place as usize])
    }
    fn get_mut(&mut self, id: u64) -> Option<&mut Event> {
        self.places.get(id).map(|place| &mut self.slab[*place as usize])
    }
    fn iter(&self) -> impl Iterator<Item = (u64, &Event)> + '_ {
        self.places.iter().map(|(id, place)| (id, &self.slab[*place as usize]))
    }
    /// A new one, of these sources.
    fn add(&mut self, id: u64, epoch: u32, sources: &Slots, now: Instant) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slab.push(Event {
                epoch: 0,
                born: now,
                first_at: None,
                wanted: Slots::default(),
                missing: Slots::default(),
                missing_count: 0,
                asked: Vec::new(),
                fragments: Vec::new(),
                bytes: 0,
            });
            self.slab.len() as u32 - 1
        });
        self.places.insert(id, place);
        let event = &mut self.slab[place as usize];
        (event.epoch, event.born, event.first_at) = (epoch, now, None);
        event.wanted.copy(sources);
        event.missing.copy(sources);
        event.missing_count = sources.count();
        event.bytes = 0;
        event.asked.clear();
    }
}

impl Event {
    /// One that is missing is here.
    fn add(&mut self, slot: u16, header: &Header, buffer: Vec<u8>, now: Instant) {
        let born = Instant::from_ns(now.as_ns().saturating_sub(header.age_ns));
        self.born = self.born.min(born);
        self.first_at.get_or_insert(now);
        self.missing.take(slot);
        self.missing_count -= 1;
        self.bytes += HEADER_BYTES as u64 + u64::from(header.bytes);
        self.fragments.push((slot, buffer));
    }
}

impl Builder {
    pub(super) fn on_assignment(&mut self, assignment: Assignment, now: Instant) {
        let Assignment { id, builder, epoch } = assignment;
        let Some(run) = &mut self.run else { return };
        if builder != run.slot || id == u64::MAX {
            self.figures.unexpected += 1;
            return;
        }
        run.epoch = run.epoch.max(epoch);
        run.assigned_epoch = epoch;
        if run.last.is_none_or(|(last, _)| last < id) {
            run.last = Some((id, now));
        }
        if self.finished.get(id).is_some_and(|(ended, _)| *ended >= epoch) {
            return;
        }
        match self.events.get(id).map(|event| event.epoch) {
            Some(before) if before >= epoch => return,
            // The sources send all of it again under this epoch.
            Some(_) => self.give_away(id),
            None => {}
        }
        // Not even headers would fit: the scheduler does not count.
        if self.events.len() as u64 >= self.settings.memory_bytes / HEADER_BYTES as u64 {
            self.figures.unexpected += 1;
            return;
        }
        self.finished.remove(id);
        self.events.add(id, epoch, &self.listed, now);
        for slot in 0..self.lanes.len() as u16 {
            if self.lanes[usize::from(slot)].listed {
                self.with_lane(slot, |lane| {
                    if lane.missing == 0 {
                        // Its silence counts from here.
                        lane.moved_at = now;
                    }
                    lane.missing += 1;
                });
            }
        }
        self.adopt_early(id, epoch, now);
        if let Some(run) = &self.run
            && run.deadline.is_some()
        {
            self.look_at = self.look_at.min(now + LOOK_FINELY);
        }
    }

    pub(super) fn is_assigned(&self, id: u64, epoch: u32) -> bool {
        self.events.get(id).is_some_and(|event| event.epoch == epoch)
    }

    // Spec: event-building.md#delivery-2
    pub(super) fn judge(&mut self, slot: u16, header: &Header, now: Instant) -> Verdict {
        let born = Instant::from_ns(now.as_ns().saturating_sub(header.age_ns));
        let Some(run) = &self.run else { return Verdict::Skip };
        let assigned_epoch = run.assigned_epoch;
        let Some(event) = self.events.get_mut(header.id) else {
            let ended = self.finished.get(header.id).map(|(epoch, _)| epoch);
            let ended = ended.or_else(|| self.past.get(header.id));
            let over = ended.is_some_and(|epoch| header.epoch <= *epoch)
                || header.epoch < assigned_epoch
                || self.settled.covers(header.id);
            if over || header.id == u64::MAX {
                self.count_unwanted(header);
                return Verdict::Skip;
            }
            return self.judge_early(slot, header, now);
        };
        if header.epoch > event.epoch {
            return self.judge_early(slot, header, now);
        }
        if header.epoch < event.epoch || !event.missing.has(slot) {
            self.count_unwanted(header);
            return Verdict::Skip;
        }
        event.born = event.born.min(born);
        event.first_at.get_or_insert(now);
        self.note_age(header.id, born);
        let bytes = HEADER_BYTES as u64 + u64::from(header.bytes);
        if self.held_bytes + bytes > self.settings.memory_bytes {
            self.drop_early();
        }
        if self.held_bytes + bytes > self.settings.memory_bytes {
            self.finish(header.id, Outcome::Dropped(Reason::NoCredit), now);
            return Verdict::Skip;
        }
        Verdict::Place
    }

    /// Under which name a fragment goes that no event takes.
    // Spec: event-building.md#ledger-2
    fn count_unwanted(&mut self, header: &Header) {
        let figures = &mut self.figures;
        if let Some(event) = self.events.get(header.id) {
            match header.epoch.cmp(&event.epoch) {
                Ordering::Equal if !event.wanted.has(header.source) => figures.mismatched += 1,
                Ordering::Equal if !event.missing.has(header.source) => figures.duplicate += 1,
                _ => figures.stale += 1,
            }
            return;
        }
        match self.finished.get(header.id) {
            Some((epoch, Outcome::Complete)) if *epoch == header.epoch => figures.duplicate += 1,
            Some((epoch, Outcome::Partial | Outcome::Dropped(Reason::Deadline)))
                if *epoch == header.epoch =>
            {
                figures.late += 1;
            }
            _ => figures.stale += 1,
        }
    }

    /// A fragment is whole; its room is counted already. `right`: its checksum is.
    pub(super) fn join_fragment(
        &mut self,
        slot: u16,
        header: Header,
        buffer: Vec<u8>,
        right: bool,
        now: Instant,
    ) {
        let bytes = HEADER_BYTES as u64 + u64::from(header.bytes);
        let event = self.events.get_mut(header.id).filter(|event| event.epoch == header.epoch);
        let Some(event) = event.filter(|event| event.missing.has(slot)) else {
            self.count_unwanted(&header);
            self.pool.give(buffer);
            self.held_bytes -= bytes;
            return;
        };
        if !right {
            let asked = event.asked.contains(&slot);
            event.asked.push(slot);
            self.figures.corrupt += 1;
            self.pool.give(buffer);
            self.held_bytes -= bytes;
            // Spec: event-building.md#delivery-3
            if asked {
                self.finish(header.id, Outcome::Dropped(Reason::Corrupt), now);
            } else {
                self.ask_again(slot, header.id, header.epoch);
            }
            return;
        }
        event.add(slot, &header, buffer, now);
        let complete = event.missing_count == 0;
        self.with_lane(slot, |lane| lane.missing -= 1);
        if complete {
            self.complete(header.id, header.epoch, now);
        }
    }

    /// The usual case of a small fragment, all of which has come at once: it is wanted, it is right, and there is room for it. `false`:
    /// nothing was done with it.
    pub(super) fn join_whole(&mut self, slot: u16, header: &Header, payload: &[u8], now: Instant) -> bool {
        let bytes = HEADER_BYTES as u64 + u64::from(header.bytes);
        let Some(event) = self.events.get_mut(header.id) else { return false };
        if event.epoch != header.epoch
            || !event.missing.has(slot)
            || self.held_bytes + bytes > self.settings.memory_bytes
            || crc32c([payload, &[]]) != header.payload_crc
        {
            return false;
        }
        let mut buffer = self.pool.take(payload.len());
        buffer[..payload.len()].copy_from_slice(payload);
        event.add(slot, header, buffer, now);
        let (born, complete) = (event.born, event.missing_count == 0);
        self.held_bytes += bytes;
        self.figures.received_bytes += bytes;
        self.figures.received += 1;
        self.with_lane(slot, |lane| {
            lane.receive(bytes, now);
            lane.missing -= 1;
        });
        self.note_age(header.id, born);
        if complete {
            self.complete(header.id, header.epoch, now);
        }
        true
    }

    /// The last heartbeat that was heard of is as old as a fragment of it says.
    fn note_age(&mut self, id: u64, born: Instant) {
        if let Some((last, at)) = self.run.as_mut().and_then(|run| run.last.as_mut())
            && *last == id
        {
            *at = born.min(*at);
        }
    }

    fn complete(&mut self, id: u64, epoch: u32, now: Instant) {
        if self.settings.work.is_zero() {
            self.finish(id, Outcome::Complete, now);
        } else {
            let begin = self.working.back().map_or(now, |(at, ..)| *at).max(now);
            self.working.push_back((begin + self.settings.work, id, epoch));
        }
    }

    pub(super) fn end_work(&mut self, now: Instant) {
        while let Some((_, id, epoch)) = self.working.front().copied().filter(|(at, ..)| *at <= now) {
            self.working.pop_front();
            // It may have been taken away meanwhile, or assigned anew.
            if self.events.get(id).is_some_and(|event| event.epoch == epoch && event.missing_count == 0) {
                self.finish(id, Outcome::Complete, now);
            }
        }
    }

    /// An event has its end here, and the scheduler is told.
    fn finish(&mut self, id: u64, outcome: Outcome, now: Instant) {
        let Some(event) = self.events.get(id) else { return };
        let built = Built {
            id,
            epoch: event.epoch,
            outcome,
            fragments: event.fragments.len() as u32,
            bytes: event.bytes,
            held_bytes: self.held_bytes - event.bytes,
            assembly_ns: event.first_at.map_or(0, |at| now.since(at).as_nanos() as u64),
            age_ns: now.since(event.born).as_nanos() as u64,
        };
        let figures = &mut self.figures;
        match outcome {
            Outcome::Complete => figures.complete += 1,
            Outcome::Partial => figures.partial += 1,
            Outcome::Dropped(_) => figures.dropped += 1,
        }
        if !matches!(outcome, Outcome::Dropped(_)) {
            figures.joined += u64::from(built.fragments);
            figures.joined_bytes += built.bytes;
        } else {
            figures.given_away += u64::from(built.fragments);
            figures.given_away_bytes += built.bytes;
        }
        self.clear(id);
        self.done.push(Done { id, epoch: built.epoch, outcome });
        self.finished.insert(id, (built.epoch, outcome));
        self.actions.push_back(Action::Built(built));
    }

    /// An event goes without an end of its own here.
    pub(super) fn give_away(&mut self, id: u64) {
        if let Some(event) = self.events.get(id) {
            self.figures.given_away += event.fragments.len() as u64;
            self.figures.given_away_bytes += event.bytes;
            self.clear(id);
        }
    }

    /// Gives back what an event takes.
    fn clear(&mut self, id: u64) {
        let Some(place) = self.events.places.remove(id) else { return };
        let event = &mut self.events.slab[place as usize];
        self.held_bytes -= event.bytes;
        for (_, buffer) in event.fragments.drain(..) {
            self.pool.give(buffer);
        }
        if std::mem::take(&mut event.missing_count) > 0 {
            let missing = std::mem::take(&mut event.missing);
            for slot in missing.iter() {
                self.with_lane(slot, |lane| lane.missing -= 1);
                if self.lanes[usize::from(slot)].is_reading(id) {
                    self.turn_away(slot);
                }
            }
            self.events.slab[place as usize].missing = missing;
        }
        self.events.free.push(place);
    }

    pub(super) fn on_release(&mut self, release: Release) {
        // Whatever the outcome: the scheduler knows it, and this builder is done with it.
        self.forget(release.first, release.first.saturating_add(u64::from(release.count)));
    }

    fn forget(&mut self, first: u64, end: u64) {
        let mut from = first;
        while let Some((id, (epoch, _))) = self.finished.remove_within(from, end) {
            from = id + 1;
            self.pass(id, epoch);
        }
        while let Some(id) = self.events.places.first_within(first, end) {
            let epoch = self.events.get(id).map_or(0, |event| event.epoch);
            self.give_away(id);
            self.pass(id, epoch);
        }
    }

    fn pass(&mut self, id: u64, epoch: u32) {
        self.past.insert(id, epoch);
        if self.past.len() > PAST_MAX {
            self.past.pop_first();
        }
    }

    /// All that is below and not open has had its end.
    // Spec: event-building.md#ledger-4
    pub(super) fn on_settled(&mut self, settled: &Settled) {
        let finished = settled.covered(self.finished.iter().map(|(id, _)| id));
        let begun = settled.covered(self.events.places.iter().map(|(id, _)| id));
        for id in finished.into_iter().chain(begun) {
            self.forget(id, id + 1);
        }
        self.settled = settled.clone();
    }

    pub(super) fn ask_again(&mut self, slot: u16, id: u64, epoch: u32) {
        if let Some(link) = self.lanes.get(usize::from(slot)).and_then(|lane| lane.link) {
            self.figures.asked_again += 1;
            self.actions.push_back(Action::SendTo { link, message: Message::Again(vec![(id, epoch)]) });
        }
    }

    pub(super) fn look_around(&mut self, now: Instant) {
        let Some(run) = &self.run else {
            self.look_at = Instant::NEVER;
            return;
        };
        let (deadline, partial, patience, early) =
            (run.deadline, run.partial, run.patience(), run.early_limit());
        if let Some(deadline) = deadline {
            self.give_up_old(deadline, partial, now);
        }
        self.expire_early(early, now);
        self.grant_waiting();
        for slot in 0..self.lanes.len() as u16 {
            let lane = &self.lanes[usize::from(slot)];
            if lane.is_active() && lane.out_bytes() > lane.early_bytes && now.since(lane.moved_at) >= patience
            {
                self.ask_silent(slot, now);
            }
        }
        let often = deadline.is_some() && self.events.len() > 0;
        self.look_at = now + if often { LOOK_FINELY } else { LOOK_EVERY };
    }

    // Spec: event-building.md#delivery-5
    fn give_up_old(&mut self, deadline: Duration, partial: bool, now: Instant) {
        let old = |event: &Event| event.missing_count > 0 && now.since(event.born) >= deadline;
        let ids: Vec<u64> = self.events.iter().filter(|(_, event)| old(event)).map(|(id, _)| id).collect();
        for id in ids {
            let some = self.events.get(id).is_some_and(|event| !event.fragments.is_empty());
            let outcome = if partial && some { Outcome::Partial } else { Outcome::Dropped(Reason::Deadline) };
            self.finish(id, outcome, now);
        }
    }

    /// It may hold fragments for sent that have not come: those of which an early copy was given up.
    // Spec: event-building.md#delivery-6
    fn ask_silent(&mut self, slot: u16, now: Instant) {
        let missing = self.events.iter().filter(|(_, event)| event.missing.has(slot));
        let list: Vec<(u64, u32)> = missing.take(ASKED_MAX).map(|(id, event)| (id, event.epoch)).collect();
        let lane = &mut self.lanes[usize::from(slot)];
        lane.moved_at = now;
        if let Some(link) = lane.link.filter(|_| !list.is_empty()) {
            self.figures.asked_again += list.len() as u64;
            self.actions.push_back(Action::SendTo { link, message: Message::Again(list) });
        }
    }
}
