//! The protocol of iperf3, so that one end may be what a site already runs: a client of a stock server, and a server for stock
//! clients. The data path is that of `stream` and a plain one over UDP; what the two ends say is in
//! `docs/specs/net-protocol.md`, learnt from the public sources of esnet/iperf 3.0 to 3.21.

pub mod client;
pub mod datagrams;
pub mod outcome;
pub mod parameters;
pub mod results;
pub mod server;
mod session;
#[cfg(test)]
mod tests;
pub mod wire;

pub use client::Client;
pub use server::Server;

use std::time::Duration;

/// Where a stock server listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 5201;
/// Streams each way, as a stock end has it.
pub const STREAMS_MAX: u64 = 128;
/// Seconds of a test, and of what is left out at its beginning.
pub const SECONDS_MAX: u64 = 86_400;
pub const OMIT_SECONDS_MAX: u64 = 600;
/// Time for each thing that the other end has to say.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon orders and messages are noticed while the load runs.
const LOOK: Duration = Duration::from_millis(20);

/// Both ends number the streams by the order of their connections, as 1, 3, 4, 5 and so on.
fn stream_id(index: usize) -> u64 {
    if index == 0 { 1 } else { index as u64 + 2 }
}
