//! The control plane: agents on hosts, spoken to over their standard streams.
//!
//! One agent a host. The coordinator sends length-prefixed JSON to its standard input and reads the same from its
//! standard output; no control port is opened and no password kept. An agent whose input ends gives up at once, so a
//! killed coordinator leaves no load behind.

pub mod clock;
mod faults;
pub mod fleet;
mod inputs;
pub mod job;
pub mod launcher;
pub mod membership;
pub mod message;
pub mod serve;
pub mod step;
#[cfg(test)]
mod tests;

pub use clock::ClockMap;
pub use faults::FAULTS;
pub use fleet::{AgentLost, Event, Fleet};
pub use message::{FromAgent, PROTOCOL, ToAgent};
