//! How released fragments ended, so that a scheduler that is started again can learn it.

use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::message::Outcome;
use crate::outcomes::Outcomes;
use std::collections::BTreeMap;
use std::mem;

/// Intervals of released ids that are remembered; beyond it the lowest are forgotten, so that a run of any length costs the same.
const INTERVALS_MAX: usize = 1 << 16;
/// More ids than this are put into the sets at once.
const TOGETHER_MAX: u64 = 4096;
/// Ids without an outcome between those with one: as many as a scheduler holds at once.
const GAP_MAX: u64 = 1 << 17;

#[derive(Default)]
pub(super) struct Past {
    complete: Intervals,
    partial: Intervals,
    dropped: BTreeMap<Reason, Intervals>,
    /// The latest, which are not in the sets.
    recent: Outcomes,
    /// Behind the highest of all.
    behind: u64,
}

impl Past {
    pub fn add(&mut self, first: u64, end: u64, outcome: Outcome) {
        self.behind = self.behind.max(end);
        // Of long ago, or more than a scheduler that builds events would end at once.
        if first < self.recent.below() || end - first > TOGETHER_MAX {
            return self.put(first, end, outcome);
        }
        if !self.recent.reaches(end) || first > self.recent.behind() + GAP_MAX {
            self.fold();
            self.recent.restart(first);
        }
        self.recent.extend(end);
        for id in first..end {
            self.recent.put(id, outcome);
        }
    }

    /// Puts the latest into the sets.
    fn fold(&mut self) {
        let recent = mem::take(&mut self.recent);
        for (first, end, outcome) in recent.ended() {
            self.put(first, end, outcome);
        }
        self.recent.restart(recent.behind());
    }

    fn put(&mut self, first: u64, end: u64, outcome: Outcome) {
        let ids = match outcome {
            Outcome::Complete => &mut self.complete,
            Outcome::Partial => &mut self.partial,
            Outcome::Dropped(reason) => self.dropped.entry(reason).or_default(),
        };
        ids.insert_range(first, end);
        ids.keep_highest(INTERVALS_MAX);
    }

    /// What is settled needs no remembering.
    pub fn settle(&mut self, settled: &Settled) {
        let sets = [&mut self.complete, &mut self.partial].into_iter().chain(self.dropped.values_mut());
        for ids in sets {
            ids.remove_range(0, settled.below);
        }
        // What is open will have its end, and find its place.
        self.recent.forget(settled.open.first().unwrap_or(settled.below));
    }

    /// Where released ids from `id` on end that ended alike, if it is one.
    pub fn end_of(&self, id: u64) -> Option<u64> {
        if id >= self.behind {
            return None;
        }
        if self.recent.has(id) {
            return Some(self.recent.end_from(id));
        }
        let sets = [&self.complete, &self.partial].into_iter().chain(self.dropped.values());
        sets.filter_map(|ids| ids.within(id, u64::MAX).next().filter(|(first, _)| *first == id))
            .map(|(_, end)| end)
            .max()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.end_of(id).is_some()
    }

    /// Complete, partial, and dropped by reason.
    pub fn sets(&mut self) -> (&Intervals, &Intervals, &BTreeMap<Reason, Intervals>) {
        self.fold();
        (&self.complete, &self.partial, &self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_remembers_how_each_ended_until_that_is_settled(
            list in prop::collection::vec((0u64..3000, 1u64..4), 0..2500), settled in 0u64..3000, folded in 0u64..3000,
        ) {
            let (mut past, mut model) = (Past::default(), BTreeMap::new());
            let outcome = |id: u64| if id.is_multiple_of(7) { Outcome::Dropped(Reason::Deadline) } else { Outcome::Complete };
            for (first, count) in list {
                for id in first..first + count {
                    past.add(id, id + 1, outcome(id));
                    model.insert(id, outcome(id));
                }
                if first == folded {
                    past.sets();
                }
            }
            // Far ahead, and back again.
            for (first, count) in [(5 << 20, 1), (8, 1), (4 << 20, 3 << 20), (6 << 20, 1)] {
                past.add(first, first + count, Outcome::Complete);
                prop_assert_eq!(past.end_of(first).is_some(), true);
                prop_assert!(past.contains(first + count - 1));
            }
            model.entry(8).or_insert(Outcome::Complete);
            past.settle(&Settled { below: settled, ..Settled::default() });
            model.retain(|id, _| *id >= settled);
            for id in 0..3010 {
                prop_assert_eq!(past.contains(id), model.contains_key(&id), "{}", id);
            }
            let ended = |wanted| model.iter().filter(move |(_, outcome)| **outcome == wanted).map(|(id, _)| *id);
            let (complete, partial, dropped) = past.sets();
            prop_assert!(complete.iter().take_while(|id| *id < 3010).eq(ended(Outcome::Complete)) && partial.is_empty());
            let late = dropped.values().flat_map(Intervals::iter);
            prop_assert!(late.eq(ended(Outcome::Dropped(Reason::Deadline))));
        }
    }
}
