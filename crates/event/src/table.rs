//! Things by heartbeat id.

use std::cell::Cell;
use std::collections::VecDeque;

/// Entries that were taken out may lie between the others before they are cleared out, beside as many as are there.
const GONE_MAX: usize = 4096;

/// A sorted ring: ids are mostly put in at the end and taken out near the front, and both cost nothing there and allocate nothing once
/// it has been that long. What is taken out elsewhere leaves a gap that goes when the front or the back comes by. Ids that lie evenly
/// are found at once.
#[derive(Debug)]
pub struct Table<T> {
    /// Neither the first nor the last is a gap.
    entries: VecDeque<(u64, Option<T>)>,
    gone: usize,
    /// Entries that have left the front, and the last that was found, counted from the first of all.
    left: usize,
    found: Cell<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: VecDeque::new(), gone: 0, left: 0, found: Cell::new(0) }
    }
}

impl<T> Table<T> {
    pub fn len(&self) -> usize {
        self.entries.len() - self.gone
    }
    /// Where `id` is, as an entry or a gap, or where it would be.
    fn place(&self, id: u64) -> Result<usize, usize> {
        let (Some(&(first, _)), Some(&(last, _))) = (self.entries.front(), self.entries.back()) else {
            return Err(0);
        };
        if last < id {
            return Err(self.entries.len());
        }
        if id <= first {
            return if id == first { Ok(0) } else { Err(0) };
        }
        if last - first == (self.entries.len() - 1) as u64 {
            return Ok((id - first) as usize);
        }
        // The last that was found or the next, mostly; ids rise by one at least.
        let hint = self.found.get().wrapping_sub(self.left).min(self.entries.len() - 1);
        let near = [hint, hint + 1]
            .into_iter()
            .find(|at| self.entries.get(*at).is_some_and(|(there, _)| *there == id));
        if let Some(at) = near {
            self.found.set(self.left.wrapping_add(at));
            return Ok(at);
        }
        let (mut low, mut high) =
            if id >= self.entries[hint].0 { (hint, self.entries.len() - 1) } else { (0, hint) };
        high = high.min(low.saturating_add(usize::try_from(id - self.entries[low].0).unwrap_or(usize::MAX)));
        let mut evenly = true;
        loop {
            // What is between them holds `id`, if anything does.
            let (near, far) = (self.entries[low].0, self.entries[high].0);
            if far == id || near == id {
                let at = if far == id { high } else { low };
                self.found.set(self.left.wrapping_add(at));
                return Ok(at);
            }
            if high - low <= 1 {
                return Err(high);
            }
            // As if ids lay evenly: right for one builder of several that take turns.
            let share = if evenly { (id - near) as f64 / (far - near) as f64 } else { 0.5 };
            evenly = false;
            let guess = (low + ((high - low) as f64 * share) as usize).clamp(low + 1, high - 1);
            if self.entries[guess].0 <= id { low = guess } else { high = guess }
        }
    }
    fn there(&self, id: u64) -> Option<usize> {
        self.place(id).ok().filter(|at| self.entries[*at].1.is_some())
    }
    pub fn contains(&self, id: u64) -> bool {
        self.there(id).is_some()
    }
    pub fn get(&self, id: u64) -> Option<&T> {
        self.entries[self.place(id).ok()?].1.as_ref()
    }
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let at = self.place(id).ok()?;
        self.entries[at].1.as_mut()
    }
    /// What was there before.
    pub fn insert(&mut self, id: u64, value: T) -> Option<T> {
        match self.place(id) {
            Ok(at) => {
                let before = self.entries[at].1.replace(value);
                self.gone -= usize::from(before.is_none());
                before
            }
            Err(at) if at == self.entries.len() => {
                self.entries.push_back((id, Some(value)));
                None
            }
            Err(at) => {
                self.entries.insert(at, (id, Some(value)));
                None
            }
        }
    }
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.place(id).ok()?;
        let value = self.entries[at].1.take()?;
        self.gone += 1;
        while self.entries.front().is_some_and(|(_, value)| value.is_none()) {
            self.entries.pop_front();
            self.left = self.left.wrapping_add(1);
            self.gone -= 1;
        }
        while self.entries.back().is_some_and(|(_, value)| value.is_none()) {
            self.entries.pop_back();
            self.gone -= 1;
        }
        if self.gone > GONE_MAX + self.len() {
            self.entries.retain(|(_, value)| value.is_some());
            self.gone = 0;
        }
        Some(value)
    }
    /// The lowest id of `first..end` that is in it.
    pub fn first_within(&self, first: u64, end: u64) -> Option<u64> {
        if first >= end {
            return None;
        }
        if end - first <= 1 {
            return self.contains(first).then_some(first);
        }
        let at = self.place(first).unwrap_or_else(|at| at);
        let within = self.entries.range(at..).take_while(|(id, _)| *id < end);
        within.filter(|(_, value)| value.is_some()).map(|(id, _)| *id).next()
    }
    /// Takes the lowest of `first..end` out; the next is behind it.
    pub fn remove_within(&mut self, first: u64, end: u64) -> Option<(u64, T)> {
        if first >= end {
            return None;
        }
        // The usual case: one that is there.
        if let Some(value) = self.remove(first) {
            return Some((first, value));
        }
        let id = self.first_within(first, end)?;
        self.remove(id).map(|value| (id, value))
    }
    /// Takes the lowest of all out.
    pub fn pop_first(&mut self) -> Option<(u64, T)> {
        let id = self.entries.front()?.0;
        self.remove(id).map(|value| (id, value))
    }
    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> + '_ {
        self.entries.iter().filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }
    pub fn clear(&mut self) {
        self.entries.clear();
        self.gone = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_table_holds_what_a_map_would(steps in prop::collection::vec((0u64..40, 0u8..4), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (at, (id, what)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => prop_assert_eq!(table.insert(id, at), map.insert(id, at)),
                    2 if id == 0 => prop_assert_eq!(table.pop_first(), map.pop_first()),
                    2 => {
                        let first = map.range(id..id + 3).next().map(|(id, _)| *id);
                        prop_assert_eq!(table.remove_within(id, id + 3), first.and_then(|first| map.remove_entry(&first)));
                    }
                    _ => prop_assert_eq!(table.remove(id), map.remove(&id)),
                }
                prop_assert_eq!(table.first_within(id, id + 5), map.range(id..id + 5).next().map(|(id, _)| *id));
                prop_assert_eq!(table.get(id), map.get(&id));
                prop_assert_eq!((table.len(), table.contains(id)), (map.len(), map.contains_key(&id)));
            }
            prop_assert!(table.iter().eq(map.iter().map(|(id, at)| (*id, at))));
        }
    }
}
