//! Which link has the next event: a tournament over the links' keys, so that a change costs the tree's height and the
//! next event costs nothing.

/// No event.
pub(crate) const NEVER: u64 = u64::MAX;

/// Keys order events: time first, and at one instant departures before arrivals, so that room that a departure makes is
/// there for a packet that arrives at the same instant. Times beyond 2^63 ns (292 years) never come.
#[inline]
pub(crate) fn departure_key(at_ns: u64) -> u64 {
    if at_ns >= 1 << 63 { NEVER } else { at_ns << 1 }
}
#[inline]
pub(crate) fn arrival_key(at_ns: u64) -> u64 {
    if at_ns >= 1 << 63 { NEVER } else { at_ns << 1 | 1 }
}
#[inline]
pub(crate) fn is_arrival(key: u64) -> bool {
    key & 1 == 1
}
/// The event's time; of `NEVER`, a time that no clock reaches.
#[inline]
pub(crate) fn key_ns(key: u64) -> u64 {
    if key == NEVER { NEVER } else { key >> 1 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    link: u32,
}

/// Node 1 is the root, the children of node `n` are `2n` and `2n + 1`, and the leaves are the links in their order; of
/// two equal keys the lower link wins.
#[derive(Debug)]
pub(crate) struct Calendar {
    nodes: Vec<Entry>,
    leaves: usize,
}

impl Calendar {
    pub(crate) fn new(links: usize) -> Self {
        let leaves = links.next_power_of_two();
        let mut nodes = vec![Entry { key: NEVER, link: 0 }; 2 * leaves];
        for (link, node) in nodes[leaves..].iter_mut().enumerate() {
            node.link = u32::try_from(link).expect("links are few");
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Calendar { nodes, leaves }
    }

    /// The earliest key and its link.
    #[inline]
    pub(crate) fn first(&self) -> (u64, usize) {
        let root = self.nodes[1];
        (root.key, root.link as usize)
    }

    #[inline]
    pub(crate) fn set(&mut self, link: usize, key: u64) {
        let mut node = self.leaves + link;
        if self.nodes[node].key == key {
            return;
        }
        self.nodes[node].key = key;
        while node > 1 {
            let (left, right) = (self.nodes[node & !1], self.nodes[node | 1]);
            let winner = if right.key < left.key { right } else { left };
            node /= 2;
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// The least of `value` over all links that have an event, where no link's value is less than its event's time. Looks at
    /// few links: of those that come later than the least value known, none can have a lesser one.
    pub(crate) fn least(&self, value: impl Fn(usize) -> u64) -> u64 {
        let mut least = NEVER;
        self.least_below(1, &value, &mut least);
        least
    }

    fn least_below(&self, node: usize, value: &impl Fn(usize) -> u64, least: &mut u64) {
        let Entry { key, link } = self.nodes[node];
        if key_ns(key) >= *least {
            return;
        }
        if node >= self.leaves {
            *least = (*least).min(value(link as usize));
            return;
        }
        // The child with the earlier event first: it most likely has the least value, which then rules out the other.
        let near = 2 * node + usize::from(self.nodes[2 * node].link != link);
        self.least_below(near, value, least);
        self.least_below(near ^ 1, value, least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_key_is_the_least_and_of_equal_ones_the_lowest_link(
            links in 1_usize..40,
            sets in proptest::collection::vec((0_usize..40, 0_u64..20), 1..200),
        ) {
            let mut calendar = Calendar::new(links);
            let mut keys = vec![NEVER; links];
            for (link, key) in sets {
                let (link, key) = (link % links, if key == 0 { NEVER } else { key });
                calendar.set(link, key);
                keys[link] = key;
                let least = (0..links).map(|link| (keys[link], link)).min().unwrap();
                prop_assert_eq!(calendar.first(), least);
            }
        }

        #[test]
        fn the_least_value_is_found_whatever_lies_between_events_and_values(
            links in proptest::collection::vec((proptest::option::of(0_u64..50), 0_u64..50), 1..40),
        ) {
            let mut calendar = Calendar::new(links.len());
            for (link, (at_ns, _)) in links.iter().enumerate() {
                calendar.set(link, at_ns.map_or(NEVER, arrival_key));
            }
            let value = |link: usize| links[link].0.unwrap() + links[link].1;
            let with_event = (0..links.len()).filter(|link| links[*link].0.is_some());
            prop_assert_eq!(calendar.least(value), with_event.map(value).min().unwrap_or(NEVER));
        }
    }

    #[test]
    fn departures_come_before_arrivals_of_the_same_instant_and_after_those_of_an_earlier_one() {
        assert!(departure_key(7) < arrival_key(7));
        assert!(arrival_key(6) < departure_key(7));
        assert_eq!((key_ns(arrival_key(7)), key_ns(departure_key(7))), (7, 7));
        assert_eq!((departure_key(1 << 63), arrival_key(u64::MAX)), (NEVER, NEVER));
    }
}
