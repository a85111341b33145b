//! A tournament among numbered places: the greatest key of any range of them in a number of steps that grows with the logarithm.

/// Places 0, 1, 2 …; each has a key or none. Nothing is allocated but by `resize`.
#[derive(Clone, Debug, Default)]
pub(super) struct Tournament<K> {
    /// A binary heap's layout: the root at 1, the children of `i` at `2i` and `2i + 1`, the places from `leaf_count` on. A parent
    /// has the greater key of its children.
    nodes: Vec<Option<K>>,
    /// A power of two.
    leaf_count: usize,
}

impl<K: Copy + Ord> Tournament<K> {
    /// Room for `count` places; all are without a key afterwards.
    pub(super) fn resize(&mut self, count: usize) {
        self.leaf_count = count.next_power_of_two();
        self.nodes.clear();
        self.nodes.resize(2 * self.leaf_count, None);
    }

    /// Sets all places from 0 on, in one go.
    pub(super) fn fill(&mut self, keys: impl ExactSizeIterator<Item = Option<K>>) {
        self.resize(keys.len());
        for (place, key) in keys.enumerate() {
            self.nodes[self.leaf_count + place] = key;
        }
        for node in (1..self.leaf_count).rev() {
            self.nodes[node] = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
        }
    }

    pub(super) fn set(&mut self, place: usize, key: Option<K>) {
        let mut node = self.leaf_count + place;
        self.nodes[node] = key;
        while node > 1 {
            node /= 2;
            let greater = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
            if self.nodes[node] == greater {
                return;
            }
            self.nodes[node] = greater;
        }
    }

    /// The first place from `from` on whose key is at least `least`.
    pub(super) fn first_reaching(&self, from: usize, least: K) -> Option<usize> {
        if from >= self.leaf_count {
            return None;
        }
        let mut node = self.leaf_count + from;
        while self.nodes[node] < Some(least) {
            // A right child has nothing beside it: its parents neither, until one is a left child.
            while node % 2 == 1 {
                if node == 1 {
                    return None;
                }
                node /= 2;
            }
            node += 1;
        }
        while node < self.leaf_count {
            node *= 2;
            if self.nodes[node] < Some(least) {
                node += 1;
            }
        }
        Some(node - self.leaf_count)
    }

    /// The place with the greatest key of `from..to`, the first of several; `None` if none of them has a key.
    pub(super) fn best(&self, from: usize, to: usize) -> Option<(K, usize)> {
        let (mut low, mut high) = (self.leaf_count + from, self.leaf_count + to.min(self.leaf_count));
        let mut best = 0;
        let mut key = None;
        // Nodes from the left come in order of their places, those from the right in reverse: on a draw the left ones keep.
        let mut right = 0;
        let mut right_key = None;
        while low < high {
            if low % 2 == 1 {
                if self.nodes[low] > key {
                    (best, key) = (low, self.nodes[low]);
                }
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                if self.nodes[high] >= right_key {
                    (right, right_key) = (high, self.nodes[high]);
                }
            }
            (low, high) = (low / 2, high / 2);
        }
        if right_key > key {
            (best, key) = (right, right_key);
        }
        let greatest = key?;
        while best < self.leaf_count {
            best *= 2;
            if self.nodes[best] != key {
                best += 1;
            }
        }
        Some((greatest, best - self.leaf_count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tournament_answers_as_a_look_at_every_place_would(
            count in 1_usize..40,
            changes in prop::collection::vec((0_usize..40, prop::option::of(0_u32..3)), 0..120),
            range in (0_usize..45, 0_usize..45),
            least in 0_u32..4,
            at_once in any::<bool>(),
        ) {
            let mut places: Vec<Option<u32>> = vec![None; count];
            let mut tournament = Tournament::default();
            tournament.resize(count);
            for (place, key) in changes {
                places[place % count] = key;
                tournament.set(place % count, key);
            }
            if at_once {
                tournament.fill(places.iter().copied());
            }
            let (from, to) = (range.0.min(range.1), range.0.max(range.1));
            let first = (from..count).find(|place| places[*place] >= Some(least));
            prop_assert_eq!(tournament.first_reaching(from, least), first);
            // The greatest key, and the first place that has it.
            let best = (from..to.min(count))
                .filter_map(|place| places[place].map(|key| (key, place)))
                .max_by_key(|(key, place)| (*key, std::cmp::Reverse(*place)));
            prop_assert_eq!(tournament.best(from, to), best);
        }
    }

    #[test]
    fn a_tournament_without_places_has_no_best() {
        let mut empty = Tournament::<u32>::default();
        assert_eq!((empty.first_reaching(0, 0), empty.best(0, 9)), (None, None));
        empty.resize(0);
        assert_eq!((empty.first_reaching(0, 0), empty.best(0, 9)), (None, None));
    }
}
