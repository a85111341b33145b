//! Claims every scheduler must keep: `docs/specs/event-building.md#choose-1` to `#choose-3`.

use super::{Builder, BuilderId, Builders, Scheduler, SchedulerEntry, Wanted};
use crate::entry::conformance::variants;
use weir_core::{Instant, Values, seed};

const SEEDS: u64 = 24;
const STEPS: u64 = 2_000;
/// Near each other, and one far off.
const SLOTS: [u32; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 30, 31, 700];

/// Chooses only builders that are listed and have room, holds nothing when nothing could change, and chooses the same again when called
/// in the same order: with its defaults and with every other value its parameters declare.
pub fn check(entry: &SchedulerEntry) {
    crate::entry::conformance::check(entry);
    for values in variants(entry.params) {
        for seed in 0..SEEDS {
            walk(entry, &values, seed);
        }
    }
}

/// Draws that depend on the seed alone.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        seed::split(self.0, "conformance") % bound
    }
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The part of a core that a scheduler sees, with two schedulers that are told the same.
struct Yard {
    builders: Builders,
    schedulers: [Box<dyn Scheduler>; 2],
    in_flight: Vec<(BuilderId, u64)>,
    now: Instant,
    /// What to say where a claim does not hold.
    place: String,
}

impl Yard {
    fn list(&mut self, builder: Builder) {
        let id = builder.id;
        // What the slot held before is another builder's story: the core has taken it away.
        self.in_flight.retain(|(at, _)| *at != id);
        if builder.outstanding_events > 0 {
            self.in_flight.push((id, builder.outstanding_bytes));
        }
        self.builders.list(builder);
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.on_membership(id, &self.builders));
    }

    fn unlist(&mut self, id: BuilderId) {
        self.builders.unlist(id);
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.on_membership(id, &self.builders));
    }

    fn end(&mut self, at: usize) {
        let (id, bytes) = self.in_flight.swap_remove(at);
        self.builders.discharge(id, bytes);
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.on_load(id, &self.builders));
    }

    fn want(&mut self, event: &Wanted) -> Option<BuilderId> {
        let builders = &self.builders;
        let [first, second] =
            self.schedulers.each_mut().map(|scheduler| scheduler.choose(self.now, event, builders));
        let place = &self.place;
        assert_eq!(first, second, "{place}: the same calls gave two choices for {event:?}");
        let Some(id) = first else {
            let still = builders.iter().all(|builder| builder.outstanding_events == 0);
            let room = builders.iter().find(|builder| builder.fits(event.bytes));
            assert!(
                !still || room.is_none(),
                "{place}: {event:?} is held for ever, though it fits into {room:?}"
            );
            return None;
        };
        let chosen = builders.get(id);
        assert!(chosen.is_some(), "{place}: {id:?} was chosen and is not listed");
        assert!(builders.fits(id, event.bytes), "{place}: {event:?} does not fit into {chosen:?}");
        self.builders.charge(id, event.bytes);
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.on_load(id, &self.builders));
        self.in_flight.push((id, event.bytes));
        first
    }
}

/// Builders of all sizes come, go and come back changed; events of all sizes are assigned and end, some after their builder has gone.
fn walk(entry: &SchedulerEntry, values: &Values, seed: u64) {
    let mut draws = Draws(seed << 32);
    let mut yard = Yard {
        builders: Builders::default(),
        schedulers: [(entry.build)(values), (entry.build)(values)],
        in_flight: Vec::new(),
        now: Instant::ZERO,
        place: format!("{}: seed {seed}, {values:?}", entry.name),
    };
    // Some walks have builders that are alike, which is what most runs have.
    let memories: &[u64] =
        if seed.is_multiple_of(3) { &[5_000] } else { &[0, 900, 5_000, 5_001, 20_000, u64::MAX] };
    let mut epoch = 0;
    for step in 0..STEPS {
        yard.now = Instant::from_ns(step * 1_000_000);
        match draws.below(20) {
            0 => {
                let outstanding = if draws.below(4) == 0 { 300 } else { 0 };
                epoch += 1;
                yard.list(Builder {
                    id: BuilderId(draws.one_of(&SLOTS)),
                    host: draws.below(4) as u32,
                    memory_bytes: draws.one_of(memories),
                    outstanding_bytes: outstanding,
                    outstanding_events: u32::from(outstanding > 0),
                });
            }
            1 if draws.below(2) == 0 => {
                epoch += 1;
                yard.unlist(BuilderId(draws.one_of(&SLOTS)));
            }
            // Now and then everything ends, so that nothing is left that could change.
            2 if draws.below(10) == 0 => (0..yard.in_flight.len()).rev().for_each(|at| yard.end(at)),
            2..=9 => {
                if !yard.in_flight.is_empty() {
                    let at = draws.below(yard.in_flight.len() as u64) as usize;
                    yard.end(at);
                }
            }
            _ => {
                let bytes = match draws.below(16) {
                    0 => 0,
                    1 => u64::MAX,
                    2 => draws.one_of(memories),
                    3..=8 => 700,
                    _ => draws.below(2_500),
                };
                let host = draws.below(5) as u32;
                yard.want(&Wanted { heartbeat: step, bytes, host, membership_epoch: epoch });
            }
        }
    }
    (0..yard.in_flight.len()).rev().for_each(|at| yard.end(at));
    yard.want(&Wanted { heartbeat: STEPS, bytes: 700, host: 0, membership_epoch: epoch });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The listed builder that `pick` says, as it would be without a suite.
    struct Bad(fn(&Wanted, &Builders) -> Option<BuilderId>);

    impl Scheduler for Bad {
        fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
            (self.0)(event, builders)
        }
    }

    fn entry(build: fn(&Values) -> Box<dyn Scheduler>) -> SchedulerEntry {
        Entry { name: "bad", about: "breaks a rule", params: &[], needs: &[], build }
    }

    fn first_with_room(event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        builders.iter().find(|builder| builder.fits(event.bytes)).map(|builder| builder.id)
    }

    #[test]
    fn the_plainest_scheduler_passes() {
        check(&entry(|_| Box::new(Bad(first_with_room))));
    }

    #[test]
    #[should_panic(expected = "is not listed")]
    fn a_choice_that_is_not_listed_is_caught() {
        check(&entry(|_| Box::new(Bad(|_, _| Some(BuilderId(3))))));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_choice_without_room_is_caught() {
        check(&entry(|_| Box::new(Bad(|_, builders| builders.listed().first().copied()))));
    }

    #[test]
    #[should_panic(expected = "held for ever")]
    fn a_scheduler_that_waits_for_the_first_builder_alone_is_caught() {
        check(&entry(|_| {
            Box::new(Bad(|event, builders| {
                builders.listed().first().copied().filter(|id| builders.fits(*id, event.bytes))
            }))
        }));
    }

    #[test]
    #[should_panic(expected = "two choices")]
    fn a_choice_that_no_seed_explains_is_caught() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        check(&entry(|_| {
            Box::new(Bad(|event, builders| {
                let from = CALLS.fetch_add(1, Ordering::Relaxed) as usize % builders.listed().len().max(1);
                let turned = builders.listed()[from..].iter().chain(builders.listed());
                turned.copied().find(|id| builders.fits(*id, event.bytes))
            }))
        }));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_scheduler_that_hears_of_no_load_is_caught() {
        /// Keeps what was free when a builder was listed.
        struct Deaf(std::collections::BTreeMap<BuilderId, u64>);
        impl Scheduler for Deaf {
            fn choose(&mut self, _: Instant, event: &Wanted, _: &Builders) -> Option<BuilderId> {
                self.0.iter().find(|(_, free_bytes)| **free_bytes >= event.bytes).map(|(id, _)| *id)
            }
            fn on_membership(&mut self, id: BuilderId, builders: &Builders) {
                match builders.get(id) {
                    Some(builder) => self.0.insert(id, builder.free_bytes()),
                    None => self.0.remove(&id),
                };
            }
        }
        check(&entry(|_| Box::new(Deaf(Default::default()))));
    }
}
