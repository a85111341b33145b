//! Claims every death policy must keep: `docs/specs/event-building.md#failure-6`.

use super::{DeathPolicyEntry, Remedy};
use crate::entry::conformance::variants;
use crate::scheduler::BuilderId;
use std::collections::BTreeSet;
use weir_core::{Values, seed};

const SEEDS: u64 = 32;
const STEPS: u64 = 300;
const BUILDERS: u64 = 6;

/// What lives is listed and has its channel, what is dead is not listed, no remedy is for another builder than the one it is about, and
/// nothing waits for a channel to a builder that is dead.
pub fn check(entry: &DeathPolicyEntry) {
    crate::entry::conformance::check(entry);
    for values in variants(entry.params) {
        for seed in 0..SEEDS {
            walk(entry, &values, seed);
        }
    }
}

/// What follows from the remedies.
#[derive(Default)]
struct Run {
    alive: BTreeSet<BuilderId>,
    listed: BTreeSet<BuilderId>,
    channels: BTreeSet<BuilderId>,
}

fn walk(entry: &DeathPolicyEntry, values: &Values, seed: u64) {
    let mut policy = (entry.build)(values);
    let mut run = Run::default();
    let mut known = BTreeSet::new();
    for step in 0..STEPS {
        let id = BuilderId((seed::split(seed * STEPS + step, "builder") % BUILDERS) as u32);
        let place = format!("{}: seed {seed}, step {step}, {id:?}", entry.name);
        let remedies = if run.alive.remove(&id) {
            run.listed.remove(&id);
            policy.on_death(id)
        } else {
            run.alive.insert(id);
            policy.on_join(id, !known.insert(id))
        };
        assert!(remedies.len() <= 8, "{place}: {} remedies", remedies.len());
        for remedy in remedies {
            run.apply(remedy, id, &place);
        }
        assert_eq!(run.listed, run.alive, "{place}: listed, and alive");
        assert!(run.channels.is_superset(&run.alive), "{place}: {:?} have channels", run.channels);
    }
}

impl Run {
    fn apply(&mut self, remedy: Remedy, about: BuilderId, place: &str) {
        match remedy {
            Remedy::Unlist(id) | Remedy::List(id) | Remedy::CloseChannel(id) | Remedy::OpenChannel(id) => {
                assert_eq!(id, about, "{place}: {remedy:?} is for another builder");
            }
            Remedy::ReopenAll => {}
        }
        match remedy {
            Remedy::Unlist(id) => {
                self.listed.remove(&id);
            }
            Remedy::List(id) => {
                assert!(self.channels.contains(&id), "{place}: listed and never reached");
                self.listed.insert(id);
            }
            Remedy::CloseChannel(id) => {
                self.channels.remove(&id);
            }
            Remedy::OpenChannel(id) => {
                self.channels.insert(id);
            }
            Remedy::ReopenAll => {
                let dead: Vec<_> = self.channels.difference(&self.alive).collect();
                assert!(dead.is_empty(), "{place}: nothing is assigned until {dead:?} are reached");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;
    use crate::death_policy::DeathPolicy;
    use Remedy::{CloseChannel, List, OpenChannel, ReopenAll, Unlist};

    /// What follows a death, and what follows a joining.
    struct Bad(fn(BuilderId) -> Vec<Remedy>, fn(BuilderId) -> Vec<Remedy>);

    impl DeathPolicy for Bad {
        fn on_death(&mut self, id: BuilderId) -> Vec<Remedy> {
            (self.0)(id)
        }
        fn on_join(&mut self, id: BuilderId, _again: bool) -> Vec<Remedy> {
            (self.1)(id)
        }
    }

    fn entry(build: fn(&Values) -> Box<dyn DeathPolicy>) -> DeathPolicyEntry {
        Entry { name: "bad", about: "breaks a rule", params: &[], needs: &[], build }
    }

    #[test]
    #[should_panic(expected = "nothing is assigned until")]
    fn waiting_for_a_channel_to_the_dead_is_caught() {
        check(&entry(|_| Box::new(Bad(|_| vec![ReopenAll], |id| vec![OpenChannel(id), List(id)]))));
    }

    #[test]
    #[should_panic(expected = "never reached")]
    fn listing_a_builder_without_a_channel_is_caught() {
        check(&entry(|_| Box::new(Bad(|id| vec![CloseChannel(id)], |id| vec![List(id)]))));
    }

    #[test]
    #[should_panic(expected = "for another builder")]
    fn a_death_that_unlists_a_neighbour_is_caught() {
        check(&entry(|_| {
            Box::new(Bad(|id| vec![Unlist(BuilderId(id.0 ^ 1))], |id| vec![OpenChannel(id), List(id)]))
        }));
    }

    #[test]
    #[should_panic(expected = "listed, and alive")]
    fn forgetting_a_builder_that_returned_is_caught() {
        check(&entry(|_| Box::new(Bad(|_| Vec::new(), |id| vec![OpenChannel(id)]))));
    }
}
