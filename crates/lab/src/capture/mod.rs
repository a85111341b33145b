//! Captures: what passes the ports of a lab, written to pcapng files by threads of their own.
//!
//! The fabric's thread encodes packets into batches and hands them over a bounded channel. It never waits: a batch for which
//! there is no room is counted as lost, and what was lost is said at the end.

mod client;
mod pcapng;
mod ports;
mod service;
mod tap;
mod writer;

pub use client::{Capturing, Stop, open};
pub use ports::{UnknownPort, matching};
pub(crate) use service::Captures;
pub(crate) use tap::Record;

use serde::{Deserialize, Serialize};

/// What to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Names of directed links, as `matching` understands them.
    pub ports: Vec<String>,
    /// Bytes kept of each packet; `None`: all.
    pub snap_bytes: Option<u32>,
    /// Ends after so many packets.
    pub count: Option<u64>,
    /// Ends after this time, in nanoseconds.
    pub duration_ns: Option<u64>,
    pub epoch: Epoch,
}

/// What the time stamps of a capture count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Epoch {
    /// The start of the lab's fabric.
    Lab,
    /// An instant on the experiment's clock (`CLOCK_MONOTONIC`), in nanoseconds: the start of a trial.
    At(u64),
    /// 1970-01-01 UTC, as the machine's real-time clock had it when the capture began.
    Real,
}

/// How a capture ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that are not, because the file could not be written as fast as they came.
    pub lost: u64,
    /// Why writing ended early, if it did.
    pub error: Option<String>,
}
