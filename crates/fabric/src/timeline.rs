//! The changes of links that are still to come.

use std::collections::VecDeque;
use weir_core::schedule::Change;

/// In time order; changes of one instant in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pending: VecDeque<Change>,
}

impl Timeline {
    pub(crate) fn extend(&mut self, changes: impl Iterator<Item = Change>) {
        self.pending.extend(changes);
        self.pending.make_contiguous().sort_by_key(|change| change.at_ns);
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    #[inline]
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.pending.front().map(|change| change.at_ns)
    }

    /// The next change, if it is due at `now_ns`.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Change> {
        if self.next_at_ns()? > now_ns {
            return None;
        }
        self.pending.pop_front()
    }
}
