//! Event building: sources send fragments, builders join them, a scheduler says where; nothing is lost that the ledger does not name.
//! The rules are in `docs/specs/event-building.md`.

pub mod interval;
pub mod ledger;
pub mod message;
pub mod original;
