//! The narrow traits that implementations plug into, and the entries by which the registry knows them.

pub mod chunks;
pub mod death_policy;
pub mod entry;
pub mod launcher;
pub mod membership;
pub mod sampler;
pub mod scheduler;
pub mod send_order;
pub mod sink;
pub mod target;
pub mod workload;

pub use entry::{Entry, Need};
