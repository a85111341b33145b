//! What is said on a control connection.

use super::{CLIENT, SERVER};
use crate::burst::{self, plan::BurstPlan};
use crate::connect::{self, plan::ConnectPlan};
use crate::door::Link;
use crate::latency::{LatencyPlan, Travel, datagrams, open, pingpong};
use crate::path::{self, meeting::Meeting, plan::PathPlan};
use crate::rendezvous::{self, Body, Flow, FlowSpec};
use crate::stream::clock::{Ending, Patience};
use crate::stream::engine;
use crate::stream::plan::{BLOCK_BYTES_MAX, StreamPlan, Until};
use crate::udp::{self, plan::UdpPlan};
use crate::watch::{self, plan::WatchPlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use weir_core::Values;
use weir_core::chunk::Chunk;
use weir_seams::workload::{Control, Outcome, Peer, StepRequest, WorkloadError};
use weir_transport::tcp_options::{TcpOptions, is_congestion_name};
use weir_transport::udp::Association;

/// Largest frame a server reads.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Largest frame a client reads: an outcome with its series.
pub const OUTCOME_BYTES_MAX: usize = 512 << 20;
/// Longest a session may load.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Blocks and socket buffers of one session together, at one end.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const FLOWS_MAX: u64 = 4096;
const THREADS_MAX: u64 = 64;

/// What a client wants measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    Stream(StreamPlan),
    Latency(LatencyPlan),
    Burst(BurstPlan),
    Connect(ConnectPlan),
    Udp(UdpPlan),
    Path(PathPlan),
    Watch(WatchPlan),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromClient {
    Request(Box<Job>),
    /// All flows are connected: both ends start so long after this message.
    Start {
        in_ns: u64,
    },
    /// End the load now, drain and report.
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromServer {
    /// Connect the flows with this token (hexadecimal).
    Ready {
        token: String,
    },
    Connected,
    /// The server was told to end: the client stops its load too, both drain and report.
    Stopping,
    /// Payload bytes received (or round trips) so far, and when that was, from the start by the server's clock.
    Progress {
        count: u64,
        at_ns: u64,
    },
    /// A stretch of a fine series of the server's end, where the client wants it; counts from the start by the server's clock.
    Chunk(Box<Chunk>),
    Done(Box<Outcome>),
    /// The session ends; why.
    Failed {
        text: String,
    },
}

/// The connected flows of one end.
pub enum Flows {
    /// With what they have for connections of their own, by index.
    Streams(Vec<Flow>, BTreeMap<u32, Link>),
    Datagrams(Vec<Flow<Association>>),
    /// With how their datagrams meet, by index.
    Paths(Vec<Flow>, BTreeMap<u32, Meeting>),
}

impl Job {
    /// What a step of this workload with these values asks for. Errors: what contradicts itself, by the names of the keys.
    pub fn of(workload: &str, values: &Values) -> Result<Job, WorkloadError> {
        Ok(match workload {
            "stream" => Job::Stream(StreamPlan::from_values(values)?),
            "latency" => Job::Latency(LatencyPlan::from_values(values)?),
            "burst" => Job::Burst(BurstPlan::from_values(values)?),
            "connect" => Job::Connect(ConnectPlan::from_values(values)?),
            "udp" => Job::Udp(UdpPlan::from_values(values)?),
            "path" => Job::Path(PathPlan::from_values(values)?),
            "watch" => Job::Watch(WatchPlan::from_values(values)?),
            other => return Err(WorkloadError::new(format!("no {other} is measured between two machines"))),
        })
    }

    /// The workload's.
    pub fn name(&self) -> &'static str {
        match self {
            Job::Stream(_) => "stream",
            Job::Latency(_) => "latency",
            Job::Burst(_) => "burst",
            Job::Connect(_) => "connect",
            Job::Udp(_) => "udp",
            Job::Path(_) => "path",
            Job::Watch(_) => "watch",
        }
    }

    /// Whether its flows travel over UDP.
    pub fn over_datagrams(&self) -> bool {
        matches!(self, Job::Udp(_) | Job::Latency(LatencyPlan { transport: Travel::Udp, .. }))
    }

    /// Whether its flows make connections while they run, and must be told where.
    pub fn makes_connections(&self) -> bool {
        match self {
            Job::Connect(_) => true,
            Job::Burst(plan) => plan.connection.made_within(),
            Job::Watch(plan) => plan.probe_every.is_some(),
            _ => false,
        }
    }

    /// Whether fine series are wanted of it.
    pub fn records(&self) -> bool {
        matches!(self, Job::Watch(plan) if plan.record)
    }

    /// `None` where there is no connection.
    pub fn tcp(&self) -> Option<&TcpOptions> {
        match self {
            Job::Stream(plan) => Some(&plan.tcp),
            Job::Latency(plan) => Some(&plan.tcp),
            Job::Burst(plan) => Some(&plan.tcp),
            Job::Connect(plan) => Some(&plan.tcp),
            Job::Path(plan) => Some(&plan.tcp),
            Job::Watch(plan) => Some(&plan.stream.tcp),
            Job::Udp(_) => None,
        }
    }

    /// Planned end of sending, where there is one.
    pub fn duration(&self) -> Option<Duration> {
        match self {
            Job::Stream(StreamPlan { until: Until::Duration(duration), .. }) => Some(*duration),
            Job::Stream(_) => None,
            Job::Latency(plan) => plan.planned(),
            // The last burst, and a path's answers, may take as long as they need.
            Job::Burst(_) | Job::Path(_) => None,
            Job::Connect(plan) => plan.planned(),
            Job::Udp(plan) => Some(plan.planned()),
            Job::Watch(plan) => Some(plan.duration),
        }
    }

    /// What holds wherever a job comes from, a stranger included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        let (flows, held_bytes) = match self {
            Job::Stream(plan) => {
                plan.check()?;
                if plan.threads > THREADS_MAX {
                    return stop(format!(
                        "`threads` is {}; at most {THREADS_MAX} are possible here",
                        plan.threads
                    ));
                }
                let threads = if plan.threads == 0 { THREADS_MAX.min(16) } else { plan.threads };
                (plan.flows_per_pair(), threads * plan.block_bytes.min(BLOCK_BYTES_MAX))
            }
            Job::Latency(plan) => {
                plan.check()?;
                // The ring of requests without reply is beside the messages.
                (1, 2 * plan.size_bytes + open::FLIGHT_MAX)
            }
            Job::Burst(plan) => {
                plan.check()?;
                if plan.planned().is_some_and(|planned| planned > DURATION_MAX) {
                    return stop(format!("`every` and `repetitions` come to more than {DURATION_MAX:?}"));
                }
                if plan.streams > burst::plan::FLOWS_MAX {
                    return stop(format!(
                        "{} flows; bursts have at most {}",
                        plan.streams,
                        burst::plan::FLOWS_MAX
                    ));
                }
                (plan.streams, plan.streams * 2 * burst::plan::BLOCK_BYTES as u64)
            }
            Job::Connect(plan) => {
                plan.check()?;
                let most = connect::plan::FLOWS_MAX;
                if plan.streams > most {
                    return stop(format!("{} flows; connects have at most {most}", plan.streams));
                }
                (plan.streams, plan.streams * (plan.request_bytes + plan.response_bytes))
            }
            Job::Udp(plan) => {
                plan.check()?;
                let flows = plan.flows_per_pair();
                if flows > udp::plan::FLOWS_MAX {
                    return stop(format!(
                        "{flows} flows; at most {} are possible over UDP",
                        udp::plan::FLOWS_MAX
                    ));
                }
                (flows, flows.saturating_mul(plan.receive_buffer_bytes.saturating_add(1 << 20)))
            }
            Job::Path(plan) => {
                plan.check()?;
                (path::SENDS.len() as u64, 1 << 20)
            }
            Job::Watch(plan) => {
                plan.check()?;
                let flows = plan.flows_per_pair();
                (flows, (flows + 1) * plan.stream.block_bytes.min(BLOCK_BYTES_MAX))
            }
        };
        if flows > FLOWS_MAX {
            return stop(format!("{flows} flows; at most {FLOWS_MAX} are possible here"));
        }
        if self.duration().is_some_and(|duration| duration > DURATION_MAX) {
            return stop(format!("`duration` is longer than {DURATION_MAX:?}"));
        }
        let tcp = self.tcp().cloned().unwrap_or_default();
        if !tcp.congestions().all(is_congestion_name) {
            return stop("the congestion control's name has characters no name has".to_owned());
        }
        let receive = tcp.receive_buffer.or(tcp.window.map(|window| window.saturating_mul(2))).unwrap_or(0);
        let buffers = tcp.send_buffer.unwrap_or(0).saturating_add(receive).saturating_mul(2 * flows);
        if buffers.saturating_add(held_bytes) > MEMORY_BYTES_MAX {
            return stop(format!("buffers, window and blocks of {flows} flows come to more than 4 GiB"));
        }
        Ok(())
    }

    /// The flows as the client or the server sees them.
    pub fn flows(&self, server: bool) -> Vec<FlowSpec> {
        let peer = |host: &str| Peer {
            host: host.to_owned(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            auxiliary: None,
        };
        let values = Values::default();
        let pairs = vec![(peer(CLIENT), peer(SERVER))];
        let request = StepRequest { step: "", seed: 1, values: &values, pairs, roles: Vec::new(), key: "" };
        let assignments = match self {
            Job::Stream(plan) => {
                rendezvous::assignments("stream", &request, plan.streams, plan.direction.connector_sends())
            }
            Job::Latency(_) => rendezvous::assignments("latency", &request, 1, &[true]),
            Job::Burst(plan) => rendezvous::assignments("burst", &request, plan.streams, &[true]),
            Job::Connect(plan) => rendezvous::assignments("connect", &request, plan.streams, &[true]),
            Job::Path(_) => rendezvous::assignments("path", &request, 1, path::SENDS),
            Job::Udp(plan) => {
                rendezvous::assignments("udp", &request, plan.streams, plan.direction.connector_sends())
            }
            Job::Watch(plan) => rendezvous::assignments("watch", &request, plan.flows_per_pair(), &[true]),
        };
        let stage = u8::from(!server);
        let mine = assignments.iter().find(|assignment| assignment.stage == stage);
        mine.and_then(|assignment| Body::of(assignment).ok()).map_or_else(Vec::new, |body| body.flows)
    }

    /// Carries out one end.
    pub fn run(&self, server: bool, flows: Flows, control: &Control) -> Result<Outcome, WorkloadError> {
        let (host, role) = if server { (SERVER, rendezvous::ACCEPT) } else { (CLIENT, rendezvous::CONNECT) };
        match (self, flows) {
            (Job::Stream(plan), Flows::Streams(flows, _)) => {
                let load = engine::Load {
                    plan: plan.clone(),
                    host: host.to_owned(),
                    role: role.to_owned(),
                    flow_total: plan.flows_per_pair(),
                    patience: Patience::default(),
                    ending: Ending::Drained,
                };
                engine::run(&load, flows, control)
            }
            (Job::Latency(plan), flows) => {
                let load = pingpong::Load {
                    plan: plan.clone(),
                    host: host.to_owned(),
                    role: role.to_owned(),
                    limits: pingpong::Limits::default(),
                };
                match flows {
                    Flows::Streams(flows, _) | Flows::Paths(flows, _) => pingpong::run(&load, flows, control),
                    Flows::Datagrams(flows) => datagrams::run(&load, flows, control),
                }
            }
            (Job::Burst(plan), Flows::Streams(flows, links)) => {
                let load = burst::Load {
                    plan: plan.clone(),
                    host: host.to_owned(),
                    role: role.to_owned(),
                    silence: burst::SILENCE,
                };
                burst::run(&load, flows, links, control)
            }
            (Job::Connect(plan), Flows::Streams(flows, links)) => {
                let load = connect::Load { plan: plan.clone(), host: host.to_owned(), role: role.to_owned() };
                connect::run(&load, flows, links, control)
            }
            (Job::Udp(plan), Flows::Datagrams(flows)) => {
                let load = udp::Load { plan: plan.clone(), host: host.to_owned(), role: role.to_owned() };
                udp::run(&load, flows, control)
            }
            (Job::Path(plan), Flows::Paths(flows, meetings)) => {
                let load = path::Load { plan: plan.clone(), host: host.to_owned(), role: role.to_owned() };
                path::run(&load, flows, meetings, control)
            }
            (Job::Watch(plan), Flows::Streams(flows, links)) => {
                let load = watch::Load {
                    plan: plan.clone(),
                    host: host.to_owned(),
                    role: role.to_owned(),
                    flow_total: plan.flows_per_pair(),
                };
                watch::run(&load, flows, links, control)
            }
            (
                Job::Stream(_) | Job::Burst(_) | Job::Connect(_) | Job::Udp(_) | Job::Path(_) | Job::Watch(_),
                Flows::Streams(..) | Flows::Datagrams(_) | Flows::Paths(..),
            ) => Err(WorkloadError::new(format!("a {} step does not travel so", self.name()))),
        }
    }
}

/// A token as text and back.
pub fn token_text(token: &[u8; 16]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn token_of(text: &str) -> Option<[u8; 16]> {
    let mut token = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (slot, index) in token.iter_mut().zip((0..32).step_by(2)) {
        *slot = u8::from_str_radix(text.get(index..index + 2)?, 16).ok()?;
    }
    Some(token)
}
