//! Events under assembly: assigned, joined by id and source, ended.

use super::{Action, Builder, Built, PAST_MAX};
use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::message::{Assignment, Done, Message, Outcome, Release};
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

/// Which of the sources: one bit for each slot, three sets behind each other.
#[derive(Default)]
struct Sets {
    words: Vec<u64>,
    width: usize,
}

#[derive(Clone, Copy)]
enum Set {
    /// The event is made of them.
    Wanted = 0,
    Here = 1,
    /// Asked for again because it was corrupt.
    Asked = 2,
}

impl Sets {
    fn reset(&mut self, slots: usize) {
        self.width = slots.div_ceil(64);
        self.words.clear();
        self.words.resize(3 * self.width, 0);
    }
    fn has(&self, set: Set, slot: u16) -> bool {
        let (word, bit) = (usize::from(slot) / 64, slot % 64);
        word < self.width && self.words[set as usize * self.width + word] >> bit & 1 == 1
    }
    /// `slot` is below what it was made for.
    fn put(&mut self, set: Set, slot: u16) {
        let (word, bit) = (usize::from(slot) / 64, slot % 64);
        self.words[set as usize * self.width + word] |= 1 << bit;
    }
    fn is_missing(&self, slot: u16) -> bool {
        self.has(Set::Wanted, slot) && !self.has(Set::Here, slot)
    }
    fn slots(&self) -> u16 {
        (self.width * 64).min(usize::from(u16::MAX)) as u16
    }
}

pub(super) struct Event {
    epoch: u32,
    /// When its heartbeat was, as early as anybody has said.
    born: Instant,
    first_at: Option<Instant>,
    sets: Sets,
    missing: u32,
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
    /// A new one, of no sources yet.
    fn add(&mut self, id: u64, epoch: u32, now: Instant) -> &mut Event {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slab.push(Event {
                epoch: 0,
                born: now,
                first_at: None,
                sets: Sets::default(),
                missing: 0,
                fragments: Vec::new(),
                bytes: 0,
            });
            self.slab.len() as u32 - 1
        });
        self.places.insert(id, place);
        let event = &mut self.slab[place as usize];
        (event.epoch, event.born, event.first_at) = (epoch, now, None);
        (event.missing, event.bytes) = (0, 0);
        event
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
        let slots = self.lanes.len();
        let event = self.events.add(id, epoch, now);
        event.sets.reset(slots);
        for slot in 0..slots as u16 {
            if self.lanes[usize::from(slot)].listed {
                event.sets.put(Set::Wanted, slot);
                event.missing += 1;
            }
        }
        for slot in 0..slots as u16 {
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
        self.grant_all();
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
        let Some(run) = &mut self.run else { return Verdict::Skip };
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
        if header.epoch < event.epoch || !event.sets.is_missing(slot) {
            self.count_unwanted(header);
            return Verdict::Skip;
        }
        event.born = event.born.min(born);
        event.first_at.get_or_insert(now);
        if let Some((last, at)) = &mut run.last
            && *last == header.id
        {
            *at = born.min(*at);
        }
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
                Ordering::Equal if event.sets.has(Set::Here, header.source) => figures.duplicate += 1,
                Ordering::Equal if !event.sets.has(Set::Wanted, header.source) => figures.mismatched += 1,
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
        let Some(event) = event.filter(|event| event.sets.is_missing(slot)) else {
            self.count_unwanted(&header);
            self.pool.give(buffer);
            self.held_bytes -= bytes;
            return;
        };
        if !right {
            let asked = event.sets.has(Set::Asked, slot);
            event.sets.put(Set::Asked, slot);
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
        // One that came early has not been looked at for these.
        let born = Instant::from_ns(now.as_ns().saturating_sub(header.age_ns));
        event.born = event.born.min(born);
        event.first_at.get_or_insert(now);
        event.sets.put(Set::Here, slot);
        event.missing -= 1;
        event.bytes += bytes;
        event.fragments.push((slot, buffer));
        let complete = event.missing == 0;
        self.with_lane(slot, |lane| lane.missing -= 1);
        if complete {
            self.complete(header.id, header.epoch, now);
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
            if self.events.get(id).is_some_and(|event| event.epoch == epoch && event.missing == 0) {
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
        let missing = std::mem::take(&mut event.missing);
        if missing > 0 {
            for slot in 0..self.events.slab[place as usize].sets.slots() {
                if !self.events.slab[place as usize].sets.is_missing(slot) {
                    continue;
                }
                self.with_lane(slot, |lane| lane.missing -= 1);
                if self.lanes[usize::from(slot)].is_reading(id) {
                    self.turn_away(slot);
                }
            }
        }
        self.events.free.push(place);
    }

    pub(super) fn on_release(&mut self, release: Release) {
        // Whatever the outcome: the scheduler knows it, and this builder is done with it.
        self.forget(release.first, release.first.saturating_add(u64::from(release.count)));
    }

    fn forget(&mut self, first: u64, end: u64) {
        while let Some(id) = self.finished.first_within(first, end) {
            if let Some((epoch, _)) = self.finished.remove(id) {
                self.pass(id, epoch);
            }
        }
        while let Some(id) = self.events.places.first_within(first, end) {
            let epoch = self.events.get(id).map_or(0, |event| event.epoch);
            self.give_away(id);
            self.pass(id, epoch);
        }
    }

    fn pass(&mut self, id: u64, epoch: u32) {
        self.past.insert(id, epoch);
        if self.past.len() > PAST_MAX
            && let Some(lowest) = self.past.first_within(0, u64::MAX)
        {
            self.past.remove(lowest);
        }
    }

    /// All that is below and not open has had its end.
    // Spec: event-building.md#ledger-4
    pub(super) fn on_settled(&mut self, settled: &Settled) {
        let mut first = 0;
        for (near, behind) in settled.open.ranges().chain([(settled.below, settled.below)]) {
            self.forget(first, near.min(settled.below));
            first = behind;
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
        let (deadline, partial, patience, early) = (run.deadline, run.partial, run.patience, run.early_limit);
        if let Some(deadline) = deadline {
            self.give_up_old(deadline, partial, now);
        }
        self.expire_early(early, now);
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
        let old = |event: &Event| event.missing > 0 && now.since(event.born) >= deadline;
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
        let missing = self.events.iter().filter(|(_, event)| event.sets.is_missing(slot));
        let list: Vec<(u64, u32)> = missing.take(ASKED_MAX).map(|(id, event)| (id, event.epoch)).collect();
        let lane = &mut self.lanes[usize::from(slot)];
        lane.moved_at = now;
        if let Some(link) = lane.link.filter(|_| !list.is_empty()) {
            self.figures.asked_again += list.len() as u64;
            self.actions.push_back(Action::SendTo { link, message: Message::Again(list) });
        }
    }
}
