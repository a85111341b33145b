//! The search for the largest packet that a path takes. Pure: it is told what became of a size and says which is next.

/// Largest packet that is tried: what a datagram over IPv4 can be.
pub const PACKET_BYTES_MAX: u64 = 65_535;

/// What became of packets of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrived,
    /// Somebody said that only `mtu` bytes pass.
    TooBig {
        mtu: u64,
    },
    /// None arrived, and nobody said a word.
    Vanished,
}

/// Sizes are those of whole IP packets, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Known to arrive.
    least: u64,
    /// What may still arrive.
    most: u64,
    /// Whether `most` itself is worth a try: it is somebody's word.
    told: bool,
    vanished: Option<u64>,
}

impl Search {
    /// `least` is known to arrive; `most` is what the sender's own interface takes.
    pub fn new(least: u64, most: u64) -> Search {
        let most = most.min(PACKET_BYTES_MAX).max(least);
        Search { least, most, told: true, vanished: None }
    }

    /// The size to try next; `None` when the answer is known.
    pub fn next(&self) -> Option<u64> {
        if self.least >= self.most {
            None
        } else if self.told {
            Some(self.most)
        } else {
            Some(self.least + (self.most - self.least).div_ceil(2))
        }
    }

    /// `size` is what `next` gave.
    pub fn on(&mut self, size: u64, fate: Fate) {
        match fate {
            Fate::Arrived => self.least = self.least.max(size),
            // A word that contradicts what is known is none.
            Fate::TooBig { mtu } if mtu >= self.least && mtu < size => {
                (self.most, self.told) = (mtu, true);
            }
            Fate::TooBig { .. } => (self.most, self.told) = (size - 1, false),
            Fate::Vanished => {
                (self.most, self.told) = (size - 1, false);
                self.vanished = Some(self.vanished.map_or(size, |known| known.min(size)));
            }
        }
    }

    /// The largest that arrives, once `next` is `None`.
    pub fn found(&self) -> u64 {
        self.least
    }

    /// The smallest that vanished without a word.
    pub fn vanished(&self) -> Option<u64> {
        self.vanished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Links one after the other: what each takes, and whether the router before it says so.
    fn carry(links: &[(u64, bool)], size: u64) -> Fate {
        match links.iter().find(|(mtu, _)| size > *mtu) {
            None => Fate::Arrived,
            Some((mtu, true)) => Fate::TooBig { mtu: *mtu },
            Some((_, false)) => Fate::Vanished,
        }
    }

    fn search(own: u64, links: &[(u64, bool)]) -> (u64, Option<u64>, u32) {
        let (mut search, mut tries) = (Search::new(52, own), 0);
        while let Some(size) = search.next() {
            search.on(size, carry(links, size));
            tries += 1;
        }
        (search.found(), search.vanished(), tries)
    }

    // Spec: net-protocol.md#path-4
    #[test]
    fn a_size_that_arrives_or_is_told_costs_one_try_each() {
        assert_eq!(search(1500, &[(1500, true)]), (1500, None, 1));
        assert_eq!(search(9000, &[(1500, true), (1280, true)]), (1280, None, 3));
    }

    // Spec: net-protocol.md#path-4
    #[test]
    fn where_nobody_says_a_word_the_size_is_found_by_halving() {
        let (found, vanished, tries) = search(1500, &[(1400, false)]);
        assert_eq!((found, vanished), (1400, Some(1401)));
        assert!(tries <= 13, "{tries}");
        // One router speaks, the one after it does not.
        assert_eq!(search(9000, &[(1500, true), (1300, false)]).0, 1300);
    }

    #[test]
    fn a_router_that_says_nonsense_is_not_believed() {
        let mut search = Search::new(52, 1500);
        search.on(1500, Fate::TooBig { mtu: 0 });
        assert_eq!(search.next(), Some(776));
        search.on(776, Fate::TooBig { mtu: 9000 });
        assert!(search.next().is_some_and(|size| size < 776));
    }

    proptest! {
        #[test]
        fn the_narrowest_link_is_found_whoever_says_so_and_in_a_bounded_number_of_tries(
            own in 52u64..70_000,
            links in prop::collection::vec((52u64..70_000, any::<bool>()), 0..6),
        ) {
            let (found, vanished, tries) = search(own, &links);
            let narrowest = links.iter().map(|(mtu, _)| *mtu).min().unwrap_or(u64::MAX);
            prop_assert_eq!(found, narrowest.min(own).min(PACKET_BYTES_MAX));
            prop_assert!(vanished.is_none_or(|size| size > found));
            prop_assert!(tries <= 17 * 6 + 1, "{}", tries);
        }
    }
}
