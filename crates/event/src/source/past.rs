//! How released fragments ended, so that a scheduler that is started again can learn it.

use crate::interval::Intervals;
use crate::ledger::{OUTCOMES, Reason, Settled, index};
use crate::message::Outcome;
use std::collections::BTreeMap;
use std::mem;

/// Intervals of released ids that are remembered; beyond it the lowest are forgotten, so that a run of any length costs the same.
const INTERVALS_MAX: usize = 8192;
/// Releases that wait to be put into the sets: builders that take turns end events in small pieces, which meet here.
const LATELY_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Past {
    all: Intervals,
    complete: Intervals,
    partial: Intervals,
    dropped: BTreeMap<Reason, Intervals>,
    /// First ids, the ones behind the last, and how they ended: not in the sets yet.
    lately: Vec<(u64, u64, Outcome)>,
    /// The same by outcome, on their way there.
    fresh: [Intervals; OUTCOMES],
    /// Behind the highest of all.
    behind: u64,
}

impl Past {
    pub fn add(&mut self, first: u64, end: u64, outcome: Outcome) {
        self.behind = self.behind.max(end);
        match self.lately.last_mut() {
            Some((_, last, same)) if *last == first && *same == outcome => *last = end,
            _ => self.lately.push((first, end, outcome)),
        }
        if self.lately.len() >= LATELY_MAX {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let mut lately = mem::take(&mut self.lately);
        // Runs of each builder: near to sorted already.
        lately.sort_by_key(|(first, ..)| *first);
        for (first, end, outcome) in lately.drain(..) {
            self.fresh[index(outcome)].insert_range(first, end);
        }
        self.lately = lately;
        for (outcome, fresh) in Outcome::all().zip(&mut self.fresh) {
            if fresh.is_empty() {
                continue;
            }
            let ids = match outcome {
                Outcome::Complete => &mut self.complete,
                Outcome::Partial => &mut self.partial,
                Outcome::Dropped(reason) => self.dropped.entry(reason).or_default(),
            };
            for ids in [ids, &mut self.all] {
                ids.union(fresh);
                ids.keep_highest(INTERVALS_MAX);
            }
            fresh.clear();
        }
    }

    /// What is settled needs no remembering.
    pub fn settle(&mut self, settled: &Settled) {
        self.fold();
        let sets = [&mut self.all, &mut self.complete, &mut self.partial]
            .into_iter()
            .chain(self.dropped.values_mut());
        for ids in sets {
            ids.remove_range(0, settled.below);
        }
    }

    /// Where the released ids from `id` on end, if it is one.
    pub fn end_of(&mut self, id: u64) -> Option<u64> {
        if id >= self.behind {
            return None;
        }
        self.fold();
        self.all.within(id, u64::MAX).next().filter(|(first, _)| *first == id).map(|(_, end)| end)
    }

    pub fn contains(&mut self, id: u64) -> bool {
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
            list in prop::collection::vec((0u64..3000, 1u64..4), 0..2500), settled in 0u64..3000,
        ) {
            let (mut past, mut model) = (Past::default(), BTreeMap::new());
            let outcome = |id: u64| if id.is_multiple_of(7) { Outcome::Dropped(Reason::Deadline) } else { Outcome::Complete };
            for (first, count) in list {
                for id in first..first + count {
                    past.add(id, id + 1, outcome(id));
                    model.insert(id, outcome(id));
                }
                prop_assert!(past.lately.len() < LATELY_MAX);
            }
            past.settle(&Settled { below: settled, ..Settled::default() });
            model.retain(|id, _| *id >= settled);
            for id in 0..3010 {
                prop_assert_eq!(past.contains(id), model.contains_key(&id), "{}", id);
            }
            let ended = |wanted| model.iter().filter(move |(_, outcome)| **outcome == wanted).map(|(id, _)| *id);
            let (complete, partial, dropped) = past.sets();
            prop_assert!(complete.iter().eq(ended(Outcome::Complete)) && partial.is_empty());
            let late = dropped.values().flat_map(Intervals::iter);
            prop_assert!(late.eq(ended(Outcome::Dropped(Reason::Deadline))));
        }
    }
}
