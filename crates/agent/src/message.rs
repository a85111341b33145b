//! What coordinator and agent say to each other.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_seams::workload::{Assignment, Outcome, WorkloadError};

/// Number of this set of messages; both ends must speak the same.
pub const PROTOCOL: u32 = 1;
/// Largest message from the coordinator: assignments of a few hundred flows.
pub const TO_AGENT_BYTES_MAX: usize = 16 << 20;
/// Largest message from an agent: series of 16 flows at 1 ms over minutes.
pub const FROM_AGENT_BYTES_MAX: usize = 512 << 20;
/// How often an agent shows that it lives.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// Silence after which an agent counts as lost. With detection and clean-up a trial fails well within five seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToAgent {
    /// First on the stream. The agent answers `Hello` or `Refused` and ends.
    Hello { protocol: u32, version: String, schema: String, host: String },
    /// Bind, connect, allocate.
    Prepare { task: u64, assignment: Box<Assignment> },
    /// Begin at this instant of the host's monotonic clock.
    Start { task: u64, at_ns: u64 },
    /// End the load now, drain, report.
    Stop { task: u64 },
    /// Give up; nothing will be kept.
    Abort { task: u64 },
    /// End the agent.
    Bye,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum FromAgent {
    Hello {
        protocol: u32,
        version: String,
        schema: String,
        process: u32,
        monotonic_ns: u64,
    },
    /// Version or schema differ; nothing was started.
    Refused {
        text: String,
    },
    Prepared {
        task: u64,
        address: Option<String>,
    },
    /// Payload bytes or operations of each task so far.
    Heartbeat {
        monotonic_ns: u64,
        progress: Vec<(u64, u64)>,
    },
    Finished {
        task: u64,
        outcome: Box<Outcome>,
    },
    Failed {
        task: u64,
        error: WorkloadError,
    },
}

/// Why the two ends cannot work together; `None` when they can.
pub fn mismatch(protocol: u32, version: &str, schema: &str) -> Option<String> {
    let own_version = env!("CARGO_PKG_VERSION");
    let own_schema = weir_core::record::SUMMARY_SCHEMA;
    if protocol != PROTOCOL {
        return Some(format!(
            "the agent protocol is {protocol} there and {PROTOCOL} here; install weir {own_version} on both"
        ));
    }
    if version != own_version {
        return Some(format!(
            "weir is {version} there and {own_version} here; install the same version on both"
        ));
    }
    if schema != own_schema {
        return Some(format!(
            "results are {schema} there and {own_schema} here; install the same version on both"
        ));
    }
    None
}
