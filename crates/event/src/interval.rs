//! Sets of heartbeat ids as intervals: ids come nearly in order, so a run's outcomes are a few intervals and not a few million ids.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// A set of ids, kept as intervals. The largest id is `u64::MAX - 1`.
///
/// Its length in intervals is not bounded here: a set that a peer says is as long as its message, and one that grows with a peer's
/// messages is to be bounded by whoever keeps it (`interval_count`).
// Invariant: each first is below its end, and each end is below the next first, so that equal sets are equal maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Intervals {
    /// First id to the one behind the last.
    ends: BTreeMap<u64, u64>,
}

/// An interval that ends before it begins, or begins before the one before it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("intervals are not ascending and apart: [{0}, {1}) is out of place")]
pub struct Unordered(pub u64, pub u64);

impl TryFrom<Vec<(u64, u64)>> for Intervals {
    type Error = Unordered;
    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Self, Unordered> {
        let mut behind = None;
        for &(first, end) in &pairs {
            if first >= end || behind.is_some_and(|behind| first <= behind) {
                return Err(Unordered(first, end));
            }
            behind = Some(end);
        }
        Ok(Intervals { ends: pairs.into_iter().collect() })
    }
}
impl From<Intervals> for Vec<(u64, u64)> {
    fn from(set: Intervals) -> Self {
        set.ends.into_iter().collect()
    }
}

impl Intervals {
    /// `first..end`; empty where `first >= end`.
    pub fn of(first: u64, end: u64) -> Intervals {
        let mut set = Intervals::default();
        set.insert_range(first, end);
        set
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// How many ids are in it.
    pub fn count(&self) -> u64 {
        self.ends.iter().map(|(first, end)| end - first).sum()
    }
    /// How many intervals it takes: what it costs.
    pub fn interval_count(&self) -> usize {
        self.ends.len()
    }
    pub fn first(&self) -> Option<u64> {
        self.ends.first_key_value().map(|(first, _)| *first)
    }
    pub fn last(&self) -> Option<u64> {
        self.ends.last_key_value().map(|(_, end)| end - 1)
    }
    pub fn contains(&self, id: u64) -> bool {
        self.ends.range(..=id).next_back().is_some_and(|(_, end)| id < *end)
    }

    /// Whether it was new.
    pub fn insert(&mut self, id: u64) -> bool {
        assert!(id < u64::MAX, "an id has one behind it");
        self.insert_range(id, id + 1) == 1
    }

    /// Adds `first..end` and says how many of them were new.
    pub fn insert_range(&mut self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        // The usual case: ids come in order.
        if let Some(mut last) = self.ends.last_entry()
            && *last.get() == first
        {
            *last.get_mut() = end;
            return end - first;
        }
        let (mut low, mut high) = (first, end);
        let mut known = 0;
        while let Some((&near_first, &near_end)) = self.ends.range(..=high).next_back() {
            if near_end < low {
                break;
            }
            known += near_end.min(end).saturating_sub(near_first.max(first));
            low = low.min(near_first);
            high = high.max(near_end);
            self.ends.remove(&near_first);
        }
        self.ends.insert(low, high);
        (end - first) - known
    }

    /// Whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        id < u64::MAX && self.remove_range(id, id + 1) == 1
    }

    /// Takes `first..end` out and says how many of them were there.
    pub fn remove_range(&mut self, first: u64, end: u64) -> u64 {
        let mut removed = 0;
        if first >= end {
            return 0;
        }
        while let Some((&near_first, &near_end)) = self.ends.range(..end).next_back() {
            if near_end <= first {
                break;
            }
            self.ends.remove(&near_first);
            if near_first < first {
                self.ends.insert(near_first, first);
            }
            if near_end > end {
                self.ends.insert(end, near_end);
            }
            removed += near_end.min(end) - near_first.max(first);
        }
        removed
    }

    pub fn union(&mut self, other: &Intervals) {
        for (first, end) in other.ranges() {
            self.insert_range(first, end);
        }
    }
    /// Takes out what is in `other`.
    pub fn difference(&mut self, other: &Intervals) {
        for (first, end) in other.ranges() {
            self.remove_range(first, end);
        }
    }

    /// First ids and the ones behind the last, ascending.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(first, end)| (*first, *end))
    }
    /// Every id, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges().flat_map(|(first, end)| first..end)
    }
    /// What of `first..end` is in it, ascending.
    pub fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.ends.range(..first).next_back().map(|(first, end)| (*first, *end));
        let rest = self.ends.range(first..end.max(first)).map(|(first, end)| (*first, *end));
        before
            .into_iter()
            .chain(rest)
            .map(move |(near, behind)| (near.max(first), behind.min(end)))
            .filter(|(near, behind)| near < behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn model(set: &Intervals) -> BTreeSet<u64> {
        set.iter().collect()
    }
    fn whole(set: &Intervals) -> bool {
        Intervals::try_from(Vec::from(set.clone())).as_ref() == Ok(set)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64, u64),
    }
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u64..60, 0u64..9).prop_map(|(first, count)| Step::Insert(first, first + count)),
            (0u64..60, 0u64..9).prop_map(|(first, count)| Step::Remove(first, first + count)),
        ];
        prop::collection::vec(step, 0..60)
    }
    fn built(steps: &[Step]) -> (Intervals, BTreeSet<u64>) {
        let (mut set, mut ids) = (Intervals::default(), BTreeSet::new());
        for step in steps {
            match *step {
                Step::Insert(first, end) => {
                    let new = (first..end).filter(|id| ids.insert(*id)).count() as u64;
                    assert_eq!(set.insert_range(first, end), new, "{step:?}");
                }
                Step::Remove(first, end) => {
                    let gone = (first..end).filter(|id| ids.remove(id)).count() as u64;
                    assert_eq!(set.remove_range(first, end), gone, "{step:?}");
                }
            }
            assert_eq!(model(&set), ids, "after {step:?}");
            assert!(whole(&set), "after {step:?}: {set:?}");
        }
        (set, ids)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_set_of_ids_holds(steps in steps(), id in 0u64..70, width in 0u64..30) {
            let (set, ids) = built(&steps);
            prop_assert_eq!(set.count(), ids.len() as u64);
            prop_assert_eq!(set.contains(id), ids.contains(&id));
            prop_assert_eq!((set.first(), set.last()), (ids.first().copied(), ids.last().copied()));
            let within: Vec<u64> = set.within(id, id + width).flat_map(|(first, end)| first..end).collect();
            let wanted: Vec<u64> = ids.range(id..id + width).copied().collect();
            prop_assert_eq!(within, wanted);
        }

        #[test]
        fn union_and_difference_are_those_of_plain_sets(one in steps(), other in steps()) {
            let ((one, ids), (other, others)) = (built(&one), built(&other));
            let mut both = one.clone();
            both.union(&other);
            prop_assert_eq!(model(&both), &ids | &others);
            let mut rest = one;
            rest.difference(&other);
            prop_assert_eq!(model(&rest), &ids - &others);
            prop_assert!(whole(&both) && whole(&rest));
        }

        #[test]
        fn text_gives_it_back_and_nothing_else_passes_for_it(steps in steps(), pairs in prop::collection::vec((0u64..9, 0u64..9), 0..4)) {
            let (set, _) = built(&steps);
            let text = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<Intervals>(&text).unwrap(), set);
            if let Ok(odd) = Intervals::try_from(pairs.clone()) {
                prop_assert_eq!(Vec::from(odd), pairs);
            }
        }
    }

    #[test]
    fn ids_in_order_are_one_interval() {
        let mut set = Intervals::default();
        for id in 0..1000 {
            assert!(set.insert(id));
            assert!(!set.insert(id));
            assert_eq!(set.interval_count(), 1);
        }
        assert!(set.remove(500) && !set.remove(500));
        assert_eq!(set.interval_count(), 2);
        assert!(!set.remove(u64::MAX));
    }
}
