//! Builders by what is outstanding at them: the least loaded that has room, of all or of one host.

use super::tournament::Tournament;
use std::cmp::Reverse;
use weir_seams::scheduler::{Builder, BuilderId, Builders};

/// Among whom one is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// The builders of one host.
    Hosts,
}

/// Two tournaments over the listed builders, which stand in the order of their memory (within their host, where hosts count).
///
/// That order is why two look-ups are enough: nobody before the first that has room has any, and the least loaded of the first and those
/// behind it has at least the memory of the first and at most its load, so it has room too.
#[derive(Clone, Debug)]
pub(super) struct Least {
    among: Among,
    /// By place.
    members: Vec<BuilderId>,
    /// Host, and the places of its builders; one for all where hosts do not count. Ascending by host.
    groups: Vec<(u32, usize, usize)>,
    /// By slot; what stands at slots that are not listed is not read.
    places: Vec<usize>,
    /// By slot: number of the choice that last fell on it. Of builders that are loaded alike the one that was chosen longest ago has
    /// its turn; otherwise the first would get everything while the load is low.
    turns: Vec<u64>,
    turn: u64,
    free: Tournament<u64>,
    load: Tournament<Reverse<(u64, u64)>>,
}

impl Least {
    pub(super) fn new(among: Among) -> Least {
        Least {
            among,
            members: Vec::new(),
            groups: Vec::new(),
            places: Vec::new(),
            turns: Vec::new(),
            turn: 0,
            free: Tournament::default(),
            load: Tournament::default(),
        }
    }

    fn group(&self, builder: &Builder) -> u32 {
        match self.among {
            Among::All => 0,
            Among::Hosts => builder.host,
        }
    }

    pub(super) fn on_membership(&mut self, builders: &Builders) {
        let mut order: Vec<&Builder> = builders.iter().collect();
        order.sort_unstable_by_key(|builder| (self.group(builder), builder.memory_bytes, builder.id));
        self.turns.resize(builders.slot_count(), 0);
        self.places.resize(builders.slot_count(), 0);
        self.groups.clear();
        for (place, builder) in order.iter().enumerate() {
            self.places[builder.id.0 as usize] = place;
            let group = self.group(builder);
            match self.groups.last_mut() {
                Some((last, _, to)) if *last == group => *to = place + 1,
                _ => self.groups.push((group, place, place + 1)),
            }
        }
        self.free.fill(order.iter().map(|builder| Some(builder.free_bytes())));
        let turns = &self.turns;
        self.load.fill(order.iter().map(|builder| Some(key(builder, turns))));
        self.members = order.into_iter().map(|builder| builder.id).collect();
    }

    pub(super) fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        let Some(builder) = builders.get(id) else { return };
        let place = self.places[id.0 as usize];
        self.free.set(place, Some(builder.free_bytes()));
        self.load.set(place, Some(key(builder, &self.turns)));
    }

    /// `group` is a host, or 0 where hosts do not count.
    pub(super) fn least(&self, group: u32, bytes: u64) -> Option<BuilderId> {
        let at = self.groups.binary_search_by_key(&group, |(group, ..)| *group).ok()?;
        let (_, from, to) = self.groups[at];
        let first = self.free.first_reaching(from, bytes)?;
        // Nobody, if the first is of another host.
        self.load.best(first, to).map(|(_, place)| self.members[place])
    }

    /// Bytes outstanding at the least loaded of all, whether it has room or not.
    pub(super) fn least_bytes(&self) -> Option<u64> {
        self.load.best(0, self.members.len()).map(|(Reverse((bytes, _)), _)| bytes)
    }

    /// `id` has had its turn. This counts from `on_load` on, which follows every choice that is taken up.
    pub(super) fn took(&mut self, id: BuilderId) {
        self.turn += 1;
        self.turns[id.0 as usize] = self.turn;
    }
}

fn key(builder: &Builder, turns: &[u64]) -> Reverse<(u64, u64)> {
    Reverse((builder.outstanding_bytes, turns[builder.id.0 as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Spec: event-building.md#choose-6
        #[test]
        fn the_least_loaded_with_room_is_found_whatever_the_memories_are(
            states in prop::collection::vec((0_u64..60, 0_u64..60, 0_u32..3), 1..24),
            bytes in 0_u64..40,
            host in 0_u32..4,
        ) {
            let mut builders = Builders::default();
            for (slot, (memory_bytes, outstanding_bytes, host)) in states.into_iter().enumerate() {
                builders.list(Builder {
                    id: BuilderId(slot as u32),
                    host,
                    memory_bytes,
                    outstanding_bytes,
                    outstanding_events: u32::from(outstanding_bytes > 0),
                });
            }
            let load = |id: Option<BuilderId>| id.map(|id| builders.get(id).expect("is listed").outstanding_bytes);
            let fitting = || builders.iter().filter(|builder| builder.fits(bytes));
            let mut all = Least::new(Among::All);
            all.on_membership(&builders);
            let found = all.least(0, bytes);
            prop_assert_eq!(load(found), fitting().map(|builder| builder.outstanding_bytes).min());
            prop_assert!(found.is_none_or(|id| builders.fits(id, bytes)));
            let mut hosts = Least::new(Among::Hosts);
            hosts.on_membership(&builders);
            let found = hosts.least(host, bytes);
            let there = || fitting().filter(|builder| builder.host == host);
            prop_assert_eq!(load(found), there().map(|builder| builder.outstanding_bytes).min());
            prop_assert!(found.is_none_or(|id| there().any(|builder| builder.id == id)));
        }
    }
}
