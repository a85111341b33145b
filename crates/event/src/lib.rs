//! Event building: sources send fragments, builders join them, a scheduler says where; nothing is lost that the ledger does not name.
//! The rules are in `docs/specs/event-building.md`.

pub mod builder;
pub mod death_policy;
pub mod interval;
pub mod ledger;
mod member;
pub mod message;
pub mod metrics;
pub mod payload;
pub mod plan;
pub mod preset;
pub mod scheduler;
pub mod send_order;
pub mod shell;
pub mod sizes;
pub mod source;
mod table;
pub mod wire;
