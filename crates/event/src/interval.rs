//! Sets of heartbeat ids as intervals: ids come nearly in order, so a run's outcomes are a few intervals and not a few million ids.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use thiserror::Error;

/// A set of ids, kept as intervals. The largest id is `u64::MAX - 1`.
///
/// Its length in intervals is not bounded here: a set that a peer says is as long as its message, and one that grows with a peer's
/// messages is to be bounded by whoever keeps it (`interval_count`).
// Invariant: each first is below its end, and each end is below the next first, so that equal sets are equal lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Intervals {
    /// First ids and the ones behind the last, ascending. Sets grow at their end and shrink at their front, where a ring does both at once.
    ends: VecDeque<(u64, u64)>,
}

/// Numbers that are no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotIntervals {
    #[error("ids come in pairs of numbers: how many are left out, and how many follow")]
    Odd,
    #[error("an interval has no ids, or touches the one before it")]
    Empty,
    #[error("an id is larger than there are")]
    TooLarge,
}

impl TryFrom<Vec<u64>> for Intervals {
    type Error = NotIntervals;
    fn try_from(numbers: Vec<u64>) -> Result<Self, NotIntervals> {
        let (pairs, []) = numbers.as_chunks() else { return Err(NotIntervals::Odd) };
        let (mut ends, mut behind) = (VecDeque::with_capacity(pairs.len()), 0u64);
        for &[left_out, count] in pairs {
            if count == 0 || (left_out == 0 && !ends.is_empty()) {
                return Err(NotIntervals::Empty);
            }
            let first = behind.checked_add(left_out).ok_or(NotIntervals::TooLarge)?;
            behind = first.checked_add(count).ok_or(NotIntervals::TooLarge)?;
            ends.push_back((first, behind));
        }
        Ok(Intervals { ends })
    }
}
impl From<Intervals> for Vec<u64> {
    fn from(set: Intervals) -> Self {
        let mut behind = 0;
        let pairs = set.ends.into_iter().flat_map(|(first, end)| {
            let pair = [first - behind, end - first];
            behind = end;
            pair
        });
        pairs.collect()
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
        self.ends.front().map(|(first, _)| *first)
    }
    pub fn last(&self) -> Option<u64> {
        self.ends.back().map(|(_, end)| end - 1)
    }
    pub fn contains(&self, id: u64) -> bool {
        let behind = self.ends.partition_point(|(first, _)| *first <= id);
        behind.checked_sub(1).is_some_and(|at| id < self.ends[at].1)
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
        match self.ends.back_mut() {
            Some((_, last)) if *last == first => {
                *last = end;
                return end - first;
            }
            Some((_, last)) if *last > first => {}
            _ => {
                self.ends.push_back((first, end));
                return end - first;
            }
        }
        // Those that it meets or touches become one.
        let (from, to) = self.near(|near_end| near_end < first, |near_first| near_first <= end);
        if from == to {
            self.ends.insert(from, (first, end));
            return end - first;
        }
        let known = self.overlap(from, to, first, end);
        self.ends[from] = (first.min(self.ends[from].0), end.max(self.ends[to - 1].1));
        self.ends.drain(from + 1..to);
        (end - first) - known
    }

    /// From the first interval whose end is not `before`, to behind the last whose first id is `within`.
    fn near(&self, before: impl Fn(u64) -> bool, within: impl Fn(u64) -> bool) -> (usize, usize) {
        let from = self.ends.partition_point(|(_, end)| before(*end));
        (from, self.ends.partition_point(|(first, _)| within(*first)).max(from))
    }
    /// How many ids of `first..end` are in the intervals `from..to`.
    fn overlap(&self, from: usize, to: usize, first: u64, end: u64) -> u64 {
        let shares = self.ends.range(from..to);
        shares.map(|(near, behind)| behind.min(&end).saturating_sub(*near.max(&first))).sum()
    }

    /// Whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        id < u64::MAX && self.remove_range(id, id + 1) == 1
    }

    /// Takes `first..end` out and says how many of them were there.
    pub fn remove_range(&mut self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        let (from, to) = self.near(|near_end| near_end <= first, |near_first| near_first < end);
        if from == to {
            return 0;
        }
        let removed = self.overlap(from, to, first, end);
        let (low, high) = (self.ends[from].0, self.ends[to - 1].1);
        let left = (low < first).then_some((low, first));
        let right = (end < high).then_some((end, high));
        let mut at = from;
        for piece in [left, right].into_iter().flatten() {
            if at < to {
                self.ends[at] = piece;
            } else {
                self.ends.insert(at, piece);
            }
            at += 1;
        }
        if at < to {
            self.ends.drain(at..to);
        }
        removed
    }

    /// Forgets the lowest intervals beyond so many.
    pub fn keep_highest(&mut self, count: usize) {
        self.ends.drain(..self.ends.len().saturating_sub(count));
    }

    /// Likewise beyond what its JSON may have in bytes.
    pub fn keep_highest_written(&mut self, bytes_max: usize) {
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        // Both brackets, and what is left out before the lowest that is kept.
        let mut bytes = 2 + digits(u64::MAX);
        let before = self.ends.iter().rev().skip(1).map(|(_, end)| *end).chain([0]);
        let kept = self.ends.iter().rev().zip(before).take_while(|((first, end), before)| {
            bytes += digits(end - first) + digits(first - before) + 2;
            bytes <= bytes_max
        });
        let kept = kept.count();
        self.keep_highest(kept);
    }

    // Both go through both sets once: a peer may say long ones.
    pub fn union(&mut self, other: &Intervals) {
        let mut all: Vec<(u64, u64)> = self.ranges().chain(other.ranges()).collect();
        // Two runs in order: a merge.
        all.sort();
        self.ends.clear();
        for (first, end) in all {
            match self.ends.back_mut() {
                Some((_, last)) if first <= *last => *last = end.max(*last),
                _ => self.ends.push_back((first, end)),
            }
        }
    }
    /// Takes out what is in `other`.
    pub fn difference(&mut self, other: &Intervals) {
        let mut left = VecDeque::new();
        let mut others = other.ranges().peekable();
        for (first, end) in self.ranges() {
            let mut from = first;
            while let Some((near, behind)) = others.peek().copied().filter(|(near, _)| *near < end) {
                if from < near {
                    left.push_back((from, near));
                }
                from = from.max(behind);
                // It may reach into the next one, too.
                if behind > end {
                    break;
                }
                others.next();
            }
            if from < end {
                left.push_back((from, end));
            }
        }
        self.ends = left;
    }

    /// First ids and the ones behind the last, ascending.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ends.iter().copied()
    }
    /// Every id, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges().flat_map(|(first, end)| first..end)
    }
    /// What of `first..end` is in it, ascending.
    pub fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.ends.partition_point(|(_, behind)| *behind <= first);
        let near = self.ends.range(from..).map(move |(near, behind)| (*near.max(&first), *behind.min(&end)));
        near.take_while(|(near, behind)| near < behind)
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
        fn what_is_kept_to_be_written_fits_and_is_the_highest(
            pairs in prop::collection::vec((0u64..1 << 40, 1u64..1 << 20), 0..50), bytes in 0usize..1200,
        ) {
            let mut set = Intervals::default();
            pairs.into_iter().for_each(|(first, count)| _ = set.insert_range(first, first + count));
            let mut kept = set.clone();
            kept.keep_highest_written(bytes);
            let all: Vec<_> = set.ranges().collect();
            prop_assert!(kept.ranges().eq(all[all.len() - kept.interval_count()..].iter().copied()));
            let written = |set: &Intervals| serde_json::to_string(set).unwrap().len();
            prop_assert!(kept.is_empty() || written(&kept) <= bytes);
            // Less than the largest number and a comma more would have been too long.
            set.keep_highest(kept.interval_count() + 1);
            prop_assert!(set == kept || written(&set) + 21 > bytes);
        }

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
        fn text_gives_it_back_and_nothing_else_passes_for_it(steps in steps(), numbers in prop::collection::vec(0u64..4, 0..7)) {
            let (set, _) = built(&steps);
            let text = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<Intervals>(&text).unwrap(), set);
            if let Ok(set) = Intervals::try_from(numbers.clone()) {
                prop_assert!(set.ranges().all(|(first, end)| first < end));
                prop_assert_eq!(Vec::from(set), numbers);
            }
        }
    }

    #[test]
    fn numbers_that_are_no_set_are_refused() {
        let refused = |numbers: &[u64]| Intervals::try_from(numbers.to_vec()).unwrap_err();
        assert_eq!(refused(&[0, 3, 5]), NotIntervals::Odd);
        assert_eq!(refused(&[0, 3, 0, 1]), NotIntervals::Empty);
        assert_eq!(refused(&[4, 0]), NotIntervals::Empty);
        assert_eq!(refused(&[1, u64::MAX]), NotIntervals::TooLarge);
        assert_eq!(refused(&[0, 1, u64::MAX, 1]), NotIntervals::TooLarge);
        assert_eq!(Vec::from(Intervals::of(0, 3)), [0, 3]);
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
