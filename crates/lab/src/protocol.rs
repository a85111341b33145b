//! What the owner of a lab and its fabric process say to each other: JSON lines on the process's standard input and output.

use crate::capture::{Outcome, Request};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_core::schedule::Change;
use weir_core::topology::Topology;

/// The hidden subcommand that runs the fabric.
pub const SUBCOMMAND: &str = "fabric-process";
/// Longest line either side accepts: a schedule of some hundred thousand changes.
pub const LINE_BYTES_MAX: usize = 32 << 20;

/// The first line: what to emulate and the descriptors that came along.
#[derive(Serialize, Deserialize)]
pub struct Setup {
    pub topology: Topology,
    pub seed: u64,
    /// TUN devices in host order, then, where the topology has an auxiliary network, those on it in host order.
    pub ports: Vec<i32>,
    pub page: i32,
    /// The socket at which other processes ask for captures, where there is one.
    pub listener: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Adds changes at absolute times.
    Schedule(Vec<Change>),
    /// Forgets the schedule and restores every link.
    Reset,
    /// Lives on after its owner has gone.
    Detach,
    /// Captures into a file.
    Capture { request: Request, file: PathBuf },
    /// Ends the capture with this number; answered when its file is complete.
    EndCapture(u64),
}

/// One for the setup and one for each command.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Done {
        /// What the machine forbade, for people.
        notes: Vec<String>,
    },
    Refused(String),
    /// The number of the capture that has begun.
    Capturing(u64),
    /// How the capture went that was ended.
    Captured(Outcome),
}
