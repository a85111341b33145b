//! Event building: sources send fragments, builders join them, a scheduler says where; nothing is lost that the ledger does not name.
//! The rules are in `docs/specs/event-building.md`.

pub mod builder;
pub mod death_policy;
pub mod director;
mod evidence;
pub mod interval;
pub mod ledger;
mod member;
pub mod message;
pub mod metrics;
pub mod original;
mod outcomes;
pub mod payload;
pub mod plan;
pub mod preset;
pub mod roles;
pub mod scheduler;
pub mod send_order;
pub mod shell;
mod shown;
pub mod sizes;
pub mod source;
mod sums;
mod table;
pub mod wire;
pub mod workload;

#[cfg(test)]
mod tests;

pub use death_policy::DEATH_POLICIES;
pub use scheduler::SCHEDULERS;
pub use send_order::SEND_ORDERS;
pub use workload::WORKLOADS;
