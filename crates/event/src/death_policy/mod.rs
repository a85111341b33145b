//! What the end or the return of a builder means for the channels: one file a policy. Rule: `docs/specs/event-building.md#failure-6`.

pub mod blacklist;
pub mod reinitialise;
pub mod whitelist;

#[cfg(test)]
mod tests;

use weir_seams::Entry;
use weir_seams::death_policy::DeathPolicyEntry;

/// Name of the one that is used unless another is asked for.
pub const DEFAULT: &str = "whitelist";

pub static DEATH_POLICIES: &[DeathPolicyEntry] = &[
    Entry {
        name: "whitelist",
        about: "channels stay; builders listed as alive are used",
        params: &[],
        needs: &[],
        build: |_values| Box::new(whitelist::Whitelist),
    },
    Entry {
        name: "blacklist",
        about: "the channel of a dead builder is taken down, and made anew when it returns",
        params: &[],
        needs: &[],
        build: |_values| Box::new(blacklist::Blacklist),
    },
    Entry {
        name: "re-initialise",
        about: "at a death and at a return all channels are taken down and made anew; nothing is assigned meanwhile",
        params: &[],
        needs: &[],
        build: |_values| Box::new(reinitialise::Reinitialise),
    },
];

pub fn entry(name: &str) -> Option<&'static DeathPolicyEntry> {
    DEATH_POLICIES.iter().find(|entry| entry.name == name)
}
