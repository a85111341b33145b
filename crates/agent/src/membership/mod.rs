//! Who takes part, without a service of others: what this process's own connections say, or a fixed list.

mod built_in;
mod fixed;
mod table;

pub use built_in::BuiltIn;
pub use fixed::Fixed;

use weir_seams::Entry;
use weir_seams::membership::MembershipEntry;

pub static MEMBERSHIPS: &[MembershipEntry] = &[
    Entry {
        name: "built-in",
        about: "who is connected to the scheduler; no other service",
        params: &[],
        needs: &[],
        build: |_values, group| Ok(Box::new(BuiltIn::new(group)?)),
    },
    Entry {
        name: "static",
        about: "a fixed list: whoever stands on it counts, alive or not",
        params: fixed::PARAMS,
        needs: &[],
        build: |values, group| Ok(Box::new(Fixed::from_values(values, group)?)),
    },
];

#[cfg(test)]
mod tests;
