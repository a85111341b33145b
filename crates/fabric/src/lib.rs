//! The emulator's pure core: opaque packets move over the directed links of a topology, with a store-and-forward switch
//! at each site, and switches and routers between. It takes time as an argument and returns what to do next; a shell in the lab owns buffers, clocks and
//! devices. Its rules are numbered in docs/specs/fabric.md.

mod action;
mod calendar;
mod chance;
mod codel;
mod counters;
mod fabric;
mod flight;
mod hazards;
mod link;
mod packet;
mod queue;
mod red;
mod route;
mod rules;
mod slack;
mod timeline;
mod wire;

pub use action::{Action, DropReason};
pub use counters::{LinkCounters, Totals};
pub use fabric::Fabric;
pub use packet::{ANSWER_HOP_LIMIT, Answer, Network, Packet, PacketMeta, Refusal};

#[cfg(test)]
mod tests;
