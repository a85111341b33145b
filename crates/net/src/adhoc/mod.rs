//! Measurements between any two machines: a server that waits, a client that asks. One port carries both the control
//! connection (JSON frames) and the data connections; `docs/specs/net-protocol.md` says how.

pub mod client;
pub mod message;
#[cfg(test)]
mod relay;
pub mod search;
pub mod server;
mod session;
pub mod summary;
pub mod table;
#[cfg(test)]
mod tests;

pub use client::{Client, Counted, Keep, Measurement, Progress};
pub use message::Job;
pub use server::{Server, ServerLimits};
pub use summary::metrics;

use thiserror::Error;

/// Where `weir net serve` listens unless told otherwise. Not iperf3's 5201, so that both may run on one host.
pub const DEFAULT_PORT: u16 = 5301;
/// How the two ends are called in records.
pub const CLIENT: &str = "client";
pub const SERVER: &str = "server";

/// What went wrong, where, and what to do.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct AdhocError(pub String);

impl AdhocError {
    pub fn new(text: impl Into<String>) -> Self {
        AdhocError(text.into())
    }
}
