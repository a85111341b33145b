//! How a builder makes events of what arrives.

use super::rules::{Grouping, Rules};
use std::collections::BTreeMap;

/// Sources that one event may have.
pub const SOURCES_MAX: u64 = 128;
/// Events that are kept open for want of fragments; the oldest goes when there are more.
const OPEN_MAX: usize = 65_536;

/// An event is to be acknowledged, or a group has ended without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The first fragment's heartbeat.
    Acknowledge { id: u64, mixed: bool },
    /// The heartbeats of its fragments differ.
    Refuse { id: u64, mixed: bool },
}

/// The builder's core.
#[derive(Clone, Debug)]
pub struct Joiner {
    sources: u64,
    kind: Kind,
    /// Fragments of events given up.
    discarded: u64,
    duplicates: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Arrivals(Group),
    /// Sources that have come, by heartbeat.
    Keyed(BTreeMap<u64, u128>),
}

#[derive(Clone, Debug)]
struct Group {
    id_check: bool,
    come: u64,
    /// What arrivals are compared with: it only ever grows, with the first fragment of a group.
    compared: u64,
    differs: bool,
    first: u64,
    mixed: bool,
}

impl Joiner {
    pub fn new(rules: &Rules, sources: u64) -> Joiner {
        let kind = match rules.grouping {
            Grouping::Arrivals => Kind::Arrivals(Group {
                id_check: rules.id_check,
                come: 0,
                compared: 0,
                differs: false,
                first: 0,
                mixed: false,
            }),
            Grouping::Keyed => Kind::Keyed(BTreeMap::new()),
        };
        Joiner { sources: sources.clamp(1, SOURCES_MAX), kind, discarded: 0, duplicates: 0 }
    }

    /// A fragment has come whole.
    pub fn on_fragment(&mut self, id: u64, source: u64) -> Option<Ended> {
        match &mut self.kind {
            Kind::Arrivals(group) => {
                let ended = group.on_arrival(id, self.sources);
                if matches!(ended, Some(Ended::Refuse { .. })) {
                    self.discarded += self.sources;
                }
                ended
            }
            Kind::Keyed(open) => {
                let bit = 1u128 << (source % u128::BITS as u64);
                let come = open.entry(id).or_default();
                if *come & bit != 0 {
                    self.duplicates += 1;
                }
                *come |= bit;
                if u64::from(come.count_ones()) >= self.sources {
                    open.remove(&id);
                    return Some(Ended::Acknowledge { id, mixed: false });
                }
                if open.len() > OPEN_MAX {
                    let oldest = open.pop_first().map_or(0, |(_, come)| come.count_ones());
                    self.discarded += u64::from(oldest);
                }
                None
            }
        }
    }

    /// Fragments thrown away with their group.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
    /// Fragments of one source for one heartbeat beyond the first; counted by key only.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
    /// Fragments that wait for others.
    pub fn open(&self) -> u64 {
        match &self.kind {
            Kind::Arrivals(group) => group.come,
            Kind::Keyed(open) => open.values().map(|come| u64::from(come.count_ones())).sum(),
        }
    }
}

impl Group {
    fn on_arrival(&mut self, id: u64, sources: u64) -> Option<Ended> {
        if self.come == 0 {
            self.compared = self.compared.max(id);
            (self.first, self.mixed) = (id, false);
        }
        self.come += 1;
        self.differs |= id != self.compared;
        self.mixed |= id != self.first;
        if self.come < sources {
            return None;
        }
        let refused = self.id_check && self.differs;
        (self.come, self.differs) = (0, false);
        let (id, mixed) = (self.first, self.mixed);
        Some(if refused { Ended::Refuse { id, mixed } } else { Ended::Acknowledge { id, mixed } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heartbeats acknowledged, mixed ones among them, and groups refused.
    fn joined(rules: &Rules, sources: u64, arrivals: &[(u64, u64)]) -> (Vec<u64>, usize, usize) {
        let mut joiner = Joiner::new(rules, sources);
        let (mut acknowledged, mut mixed_count, mut refused) = (Vec::new(), 0, 0);
        for (id, source) in arrivals {
            match joiner.on_fragment(*id, *source) {
                Some(Ended::Acknowledge { id, mixed }) => {
                    acknowledged.push(id);
                    mixed_count += usize::from(mixed);
                }
                Some(Ended::Refuse { .. }) => refused += 1,
                None => {}
            }
        }
        (acknowledged, mixed_count, refused)
    }

    /// Source 1 is one event behind from the second on.
    const LATE: &[(u64, u64)] =
        &[(0, 0), (0, 1), (5, 0), (10, 0), (5, 1), (15, 0), (10, 1), (15, 1), (20, 0), (20, 1)];

    // Spec: event-original.md#grouping-1
    #[test]
    fn grouping_by_arrival_acknowledges_mixed_heartbeats_when_a_source_is_late() {
        let (acknowledged, mixed, refused) = joined(&Rules::baseline(), 2, LATE);
        assert_eq!((acknowledged.len(), mixed, refused), (5, 3, 0));
    }

    // Spec: event-original.md#grouping-2
    #[test]
    fn with_the_check_a_mixed_group_is_refused_and_its_fragments_are_discarded() {
        let (acknowledged, mixed, refused) = joined(&Rules::round_robin(), 2, LATE);
        // (5, 10), (5, 15) and (10, 15) are refused, the last pair is whole.
        assert_eq!((acknowledged, mixed, refused), (vec![0, 20], 0, 3));
    }

    // Spec: event-original.md#grouping-2
    #[test]
    fn a_whole_event_older_than_what_was_seen_is_refused_too_since_the_compared_id_only_grows() {
        let arrivals = [(10, 0), (10, 1), (5, 0), (5, 1), (15, 0), (15, 1)];
        assert_eq!(joined(&Rules::round_robin(), 2, &arrivals), (vec![10, 15], 0, 1));
    }

    // Spec: event-original.md#grouping-3
    #[test]
    fn keyed_grouping_completes_every_event_whatever_the_order() {
        let rules = Rules { grouping: Grouping::Keyed, ..Rules::round_robin() };
        assert_eq!(joined(&rules, 2, LATE), (vec![0, 5, 10, 15, 20], 0, 0));
    }

    // Spec: event-original.md#grouping-3
    #[test]
    fn one_lost_fragment_costs_keyed_grouping_one_event_and_arrivals_all_that_follow() {
        let mut arrivals: Vec<(u64, u64)> = (0..50).flat_map(|id| [(id, 0), (id, 1)]).collect();
        arrivals.remove(11);
        let (by_arrival, ..) = joined(&Rules::round_robin(), 2, &arrivals);
        assert_eq!(by_arrival, vec![0, 1, 2, 3, 4]);
        let keyed = Rules { grouping: Grouping::Keyed, ..Rules::round_robin() };
        assert_eq!(joined(&keyed, 2, &arrivals).0.len(), 49);
    }

    #[test]
    fn events_that_never_end_do_not_fill_the_memory() {
        let rules = Rules { grouping: Grouping::Keyed, ..Rules::round_robin() };
        let mut joiner = Joiner::new(&rules, 2);
        for id in 0..OPEN_MAX as u64 + 100 {
            joiner.on_fragment(id, 0);
            joiner.on_fragment(id, 0);
        }
        let events = OPEN_MAX as u64;
        assert_eq!((joiner.open(), joiner.discarded()), (events, 100));
        assert_eq!(joiner.duplicates(), events + 100);
    }
}
