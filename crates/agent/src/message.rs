//! What coordinator and agent say to each other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use weir_core::chunk::Chunk;
use weir_core::record::Series;
use weir_seams::workload::{Assignment, Outcome, WorkloadError};

/// Number of this set of messages; both ends must speak the same.
pub const PROTOCOL: u32 = 6;
/// Largest message from the coordinator: assignments of a few hundred flows.
pub const TO_AGENT_BYTES_MAX: usize = 16 << 20;
/// Largest message from an agent: series of 16 flows at 1 ms over minutes.
pub const FROM_AGENT_BYTES_MAX: usize = 512 << 20;
/// How often an agent shows that it lives.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);
/// How often an agent tells what its samplers have gathered meanwhile.
pub const SERIES_EVERY: Duration = Duration::from_secs(1);
/// Silence after which an agent counts as lost. With detection and clean-up a trial fails well within five seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);

/// How often a host with a clock of its own is asked what it says.
pub const CLOCK_EVERY: Duration = Duration::from_millis(250);
/// Silence after which an agent that was asked for its clock takes its coordinator for gone, ends its load and itself.
pub const COORDINATOR_SILENCE_MAX: Duration = Duration::from_secs(10);

/// What an agent says of the host it is on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    /// The address at which the login that started the agent reached the host.
    pub reached_at: Option<IpAddr>,
    /// The interface of that address where it belongs to one link alone.
    pub reached_on: Option<String>,
    /// Addresses by interface, those that are up to carry load: none of the loopback interface, none of one link alone.
    pub interfaces: BTreeMap<String, Vec<IpAddr>>,
    /// As `environment.json` has it for one machine.
    pub environment: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToAgent {
    /// First on the stream. The agent answers `Hello` or `Refused` and ends.
    Hello { protocol: u32, version: String, schema: String, host: String },
    /// Bind, connect, allocate.
    Prepare { task: u64, assignment: Box<Assignment> },
    /// Begin at this instant of the host's monotonic clock. Until the task is done these samplers (by name) watch the host; what
    /// they gathered comes with the task's outcome, and as `Series` before.
    Start {
        task: u64,
        at_ns: u64,
        #[serde(default)]
        samplers: Vec<String>,
    },
    /// End the load now, drain, report.
    Stop { task: u64 },
    /// Give up; nothing will be kept.
    Abort { task: u64 },
    /// What does your clock say? Asked all the time of a host with a clock of its own; also tells it that we are here.
    Clock { sent_ns: u64 },
    /// A content that tasks will read, of so many bytes; the agent answers `Input`.
    Input { digest: String, bytes: u64 },
    /// The next bytes of it, in base 64; each is answered by `Input`.
    Piece { digest: String, data: String },
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
        /// Agents of other versions may not say it; their version is refused in words.
        #[serde(default)]
        host: HostReport,
    },
    /// Version or schema differ; nothing was started.
    Refused {
        text: String,
    },
    Prepared {
        task: u64,
        address: Option<String>,
    },
    /// How much of a content is here, or why it cannot be.
    Input {
        digest: String,
        have_bytes: u64,
        problem: Option<String>,
    },
    /// The question's instant on its asker's clock; when it was heard and when answered, on the host's.
    Clock {
        sent_ns: u64,
        heard_ns: u64,
        answered_ns: u64,
    },
    /// Of each task the payload bytes received or operations done so far, and the bytes sent of what may never arrive.
    Heartbeat {
        monotonic_ns: u64,
        progress: Vec<(u64, u64, u64)>,
    },
    /// A stretch of a running task's fine series, on the host's clock. All of a task's come before it has finished.
    Chunk {
        task: u64,
        chunk: Box<Chunk>,
    },
    /// What samplers gathered since the last of these, on the host's clock: of a task that is running, so that it is known should
    /// the task never end. All of it comes again with the outcome.
    Series {
        task: u64,
        series: Vec<Series>,
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

/// Why the two ends cannot work together; `None` when they can. `at` says where the other's versions and ours are.
pub fn mismatch(protocol: u32, version: &str, schema: &str, at: [&str; 2]) -> Option<String> {
    let [there, here] = at;
    let (own_version, own_schema) = (env!("CARGO_PKG_VERSION"), weir_core::record::SUMMARY_SCHEMA);
    let (version, schema) = (shown(version), shown(schema));
    let differ = if version != own_version {
        format!("weir is {version} {there} and {own_version} {here}")
    } else if protocol != PROTOCOL {
        format!("weir {version} speaks agent protocol {protocol} {there} and {PROTOCOL} {here}")
    } else if schema != own_schema {
        format!("results are {schema} {there} and {own_schema} {here}")
    } else {
        return None;
    };
    Some(format!(
        "{differ}; install the same version on both, or leave `agent` out of [hosts]: then this one is copied there"
    ))
}

/// A text from the other end as it may stand in a message: short, and nothing that steers a terminal.
fn shown(text: &str) -> String {
    weir_core::text::shown(text, 40)
}
