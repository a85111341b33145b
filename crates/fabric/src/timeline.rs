//! The changes of links that are still to come.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use weir_core::schedule::Change;

/// In time order; changes of one instant in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pending: BinaryHeap<Reverse<Pending>>,
    given: u64,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    change: Change,
}

impl Timeline {
    /// Costs the logarithm of what is pending, however the changes come.
    pub(crate) fn add(&mut self, change: Change) {
        self.pending.push(Reverse(Pending { number: self.given, change }));
        self.given += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    #[inline]
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.pending.peek().map(|first| first.0.change.at_ns)
    }

    /// The next change, if it is due at `now_ns`.
    #[inline]
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Change> {
        if self.next_at_ns()? > now_ns {
            return None;
        }
        self.pending.pop().map(|first| first.0.change)
    }
}

impl Pending {
    fn key(&self) -> (u64, u64) {
        (self.change.at_ns, self.number)
    }
}
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Pending {}
