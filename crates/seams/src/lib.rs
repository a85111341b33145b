//! The narrow traits that implementations plug into, and the entries by which the registry knows them.

pub mod chunks;
pub mod entry;
pub mod launcher;
pub mod sampler;
pub mod sink;
pub mod transport;
pub mod workload;

pub use entry::{Entry, Need};
