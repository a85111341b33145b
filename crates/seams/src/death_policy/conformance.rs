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
