//! Things by heartbeat id.

use std::collections::VecDeque;

/// A sorted ring: ids are mostly put in at the end and taken out near the front, and both cost nothing there and allocate nothing once
/// it has been that long. In between, what is nearer to an end is moved.
#[derive(Debug)]
pub struct Table<T> {
    entries: VecDeque<(u64, T)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: VecDeque::new() }
    }
}

impl<T> Table<T> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Where `id` is, or where it would be.
    fn place(&self, id: u64) -> Result<usize, usize> {
        match self.entries.back() {
            Some((last, _)) if *last < id => Err(self.entries.len()),
            None => Err(0),
            _ => self.entries.binary_search_by_key(&id, |entry| entry.0),
        }
    }
    pub fn contains(&self, id: u64) -> bool {
        self.place(id).is_ok()
    }
    pub fn get(&self, id: u64) -> Option<&T> {
        self.place(id).ok().map(|at| &self.entries[at].1)
    }
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.place(id).ok().map(|at| &mut self.entries[at].1)
    }
    /// What was there before.
    pub fn insert(&mut self, id: u64, value: T) -> Option<T> {
        match self.place(id) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (id, value));
                None
            }
        }
    }
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.place(id).ok()?;
        self.entries.remove(at).map(|entry| entry.1)
    }
    /// The lowest id of `first..end` that is in it.
    pub fn first_within(&self, first: u64, end: u64) -> Option<u64> {
        let at = self.place(first).unwrap_or_else(|at| at);
        self.entries.get(at).map(|entry| entry.0).filter(|id| *id < end)
    }
    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> + '_ {
        self.entries.iter().map(|(id, value)| (*id, value))
    }
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_table_holds_what_a_map_would(steps in prop::collection::vec((0u64..40, 0u8..3), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (at, (id, what)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => prop_assert_eq!(table.insert(id, at), map.insert(id, at)),
                    _ => prop_assert_eq!(table.remove(id), map.remove(&id)),
                }
                prop_assert_eq!(table.first_within(id, id + 5), map.range(id..id + 5).next().map(|(id, _)| *id));
                prop_assert_eq!(table.get(id), map.get(&id));
            }
            prop_assert!(table.iter().eq(map.iter().map(|(id, at)| (*id, at))));
        }
    }
}
