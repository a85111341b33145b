//! The events that are held, by id.

use std::cell::Cell;
use std::collections::VecDeque;

/// In place of a fragment's size that its source has not said yet.
pub(super) const UNANNOUNCED: u32 = u32::MAX;
/// Ended events that may lie between held ones before they are cleared out, beside as many as are held.
const ENDED_MAX: usize = 1024;

/// Where an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has its outcome.
    Ended,
    Waiting,
    At {
        builder: u32,
        epoch: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub id: u64,
    /// Fragments whose sizes are known, headers included.
    pub bytes: u64,
    /// Sources that have yet to say theirs.
    pub unannounced: u32,
    /// Number of the failure by which it lost its builder, from 1; 0: none.
    pub failure: u32,
    pub place: Place,
}

/// Ids come in order and leave nearly so: a queue in which ended events stay until they are in front, or too many. In its stride there is
/// neither search nor allocation.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Ascending by id.
    events: VecDeque<Event>,
    held: usize,
    /// How many ids had no place between the front and the last that was found.
    skipped: Cell<usize>,
}

impl Table {
    pub fn clear(&mut self) {
        self.events.clear();
        self.held = 0;
    }
    /// Places, ended ones included.
    pub fn width(&self) -> usize {
        self.events.len()
    }
    /// One that is held, newer than all before.
    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
        self.held += 1;
    }

    /// The place of one that is held, counted from the front.
    pub fn place(&self, id: u64) -> Option<usize> {
        let first = self.events.front()?.id;
        let dense = usize::try_from(id.checked_sub(first)?).ok()?;
        let guess = dense.wrapping_sub(self.skipped.get());
        let at = match self.events.get(guess) {
            Some(event) if event.id == id => guess,
            // Events that were dropped at birth have no place.
            _ => {
                let at = self.events.binary_search_by_key(&id, |event| event.id).ok()?;
                self.skipped.set(dense - at);
                at
            }
        };
        (self.events[at].place != Place::Ended).then_some(at)
    }
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Event> {
        let at = self.place(id)?;
        self.events.get_mut(at)
    }
    /// Takes the one at a place out: the event as it was, and how many places in front are gone.
    pub fn end_event(&mut self, at: usize) -> (Event, usize) {
        let was = self.events[at];
        self.events[at].place = Place::Ended;
        self.held -= 1;
        let mut gone = 0;
        while self.events.front().is_some_and(|event| event.place == Place::Ended) {
            self.events.pop_front();
            gone += 1;
        }
        (was, gone)
    }
    /// Held ones, ascending.
    pub fn held(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.place != Place::Ended)
    }
    /// Those of `first..end`, ascending.
    pub fn held_within(&self, first: u64, end: u64) -> Vec<u64> {
        let from = self.events.partition_point(|event| event.id < first);
        let within = self.events.range(from..).take_while(|event| event.id < end);
        within.filter(|event| event.place != Place::Ended).map(|event| event.id).collect()
    }
    pub fn held_mut(&mut self) -> impl Iterator<Item = &mut Event> {
        self.events.iter_mut().filter(|event| event.place != Place::Ended)
    }

    /// Whether ended events take more room than the held ones deserve, as they do behind one that stays for long.
    pub fn is_sparse(&self) -> bool {
        self.events.len() > 2 * self.held + ENDED_MAX
    }
    /// Clears ended events out and says which places stay.
    pub fn compact(&mut self) -> Vec<bool> {
        let stays: Vec<bool> = self.events.iter().map(|event| event.place != Place::Ended).collect();
        self.events.retain(|event| event.place != Place::Ended);
        stays
    }
}
