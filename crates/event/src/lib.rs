//! Event building: sources send fragments, builders join them, a scheduler says where; nothing is lost that the ledger does not name.
//! The rules are in `docs/specs/event-building.md`.

pub mod builder;
pub mod interval;
pub mod ledger;
mod member;
pub mod message;
pub mod payload;
pub mod sizes;
pub mod source;
mod table;
pub mod wire;

#[cfg(test)]
mod tests;
