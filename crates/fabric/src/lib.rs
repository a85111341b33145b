//! The emulator's pure core: opaque packets move over the directed links of a topology, with a store-and-forward switch
//! at each site. It takes time as an argument and returns what to do next; a shell in the lab owns buffers, clocks and
//! devices. Its rules are numbered in docs/specs/fabric.md.

mod action;
mod calendar;
mod counters;
mod fabric;
mod link;
mod packet;
mod queue;
mod route;
mod slack;
mod timeline;
mod wire;

pub use action::{Action, DropReason};
pub use counters::{LinkCounters, Totals};
pub use fabric::Fabric;
pub use packet::{Packet, PacketMeta};

#[cfg(test)]
mod tests;
