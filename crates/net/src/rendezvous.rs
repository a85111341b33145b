//! How the two ends of a step find each other: who accepts, who connects, and which connection is which flow.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::hosts::PortRange;
use weir_seams::workload::{Assignment, Control, StepRequest, WorkloadError};
use weir_transport::gate::{Gate, GateLimits};
use weir_transport::handshake::{self, Mode, Status};
use weir_transport::tcp_options::TcpOptions;
use weir_transport::{Key, tcp};

pub const ACCEPT: &str = "accept";
pub const CONNECT: &str = "connect";
/// Time one connection may take to be made and to prove itself.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long after the start an acceptor waits for flows; all should be there before.
const LATE_LIMIT: Duration = Duration::from_secs(1);
/// How soon the accepting thread notices that it is no longer wanted.
const NOTICE: Duration = Duration::from_millis(50);

/// One flow as one of its ends sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSpec {
    /// In the step; both ends know the flow by it.
    pub index: u32,
    /// `flow.SOURCE.DESTINATION.N`: where payload comes from and goes to, whoever connected.
    pub entity: String,
    /// The host at the other end.
    pub peer: String,
    /// Whether this end sends.
    pub sends: bool,
}

/// The body of an assignment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// This host's data address.
    pub address: IpAddr,
    pub flows: Vec<FlowSpec>,
    /// Flows of the whole step.
    pub flow_total: u64,
}

impl Body {
    pub fn of(assignment: &Assignment) -> Result<Body, WorkloadError> {
        serde_json::from_value(assignment.body.clone()).map_err(|error| {
            WorkloadError::stop(format!("the assignment of step {:?} is malformed: {error}", assignment.step))
        })
    }
}

/// Acceptors (stage 0) on the `to` hosts and connectors (stage 1) on the `from` hosts, one of each a host however many
/// pairs it is in. Each pair has `streams` connections for each entry of `connector_sends`.
pub fn assignments(
    workload: &str,
    request: &StepRequest<'_>,
    streams: u64,
    connector_sends: &[bool],
) -> Vec<Assignment> {
    let mut ends: BTreeMap<(u8, String), Body> = BTreeMap::new();
    let mut numbers: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut index = 0;
    for (from, to) in &request.pairs {
        for sends in connector_sends {
            for _ in 0..streams {
                let (source, destination) = if *sends { (from, to) } else { (to, from) };
                let number = numbers.entry((source.host.clone(), destination.host.clone())).or_insert(0);
                let entity = format!("flow.{}.{}.{number}", source.host, destination.host);
                *number += 1;
                for (stage, near, far, near_sends) in [(0, to, from, !sends), (1, from, to, *sends)] {
                    let spec =
                        FlowSpec { index, entity: entity.clone(), peer: far.host.clone(), sends: near_sends };
                    ends.entry((stage, near.host.clone()))
                        .or_insert_with(|| Body { address: near.address, flows: Vec::new(), flow_total: 0 })
                        .flows
                        .push(spec);
                }
                index += 1;
            }
        }
    }
    ends.into_iter()
        .map(|((stage, host), mut body)| {
            body.flow_total = u64::from(index);
            Assignment {
                workload: workload.to_owned(),
                step: request.step.to_owned(),
                host,
                stage,
                role: if stage == 0 { ACCEPT } else { CONNECT }.to_owned(),
                values: request.values.clone(),
                peers: BTreeMap::new(),
                data_ports: None,
                key: request.key.to_owned(),
                body: serde_json::to_value(body).expect("names and numbers are JSON"),
            }
        })
        .collect()
}

/// A flow with its connection.
#[derive(Debug)]
pub struct Flow {
    pub spec: FlowSpec,
    pub stream: TcpStream,
}

#[derive(Default)]
struct Arrivals {
    streams: BTreeMap<u32, TcpStream>,
    broken: Option<String>,
}

struct Shared {
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
    unwanted: AtomicBool,
}

/// A listening end: a thread lets the expected flows in, each once, and closes the port when all are there.
pub struct Acceptor {
    address: SocketAddr,
    expected: Vec<FlowSpec>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens at a free port of the host's data address, within its `data_ports` if it has some.
    pub fn listen(assignment: &Assignment, options: &TcpOptions) -> Result<Acceptor, WorkloadError> {
        let body = Body::of(assignment)?;
        let key = key_of(assignment)?;
        let host = &assignment.host;
        let stop = |error: std::io::Error| WorkloadError::stop(format!("host {host}: {error}"));
        let listener = PortRange::bind(assignment.data_ports, |port| {
            tcp::listen(SocketAddr::new(body.address, port), Some(options))
        })
        .map_err(stop)?;
        let address = listener.local_addr().map_err(stop)?;
        let shared = Arc::new(Shared {
            arrivals: Mutex::default(),
            changed: Condvar::new(),
            unwanted: AtomicBool::new(false),
        });
        let indices = body.flows.iter().map(|flow| flow.index).collect();
        let thread = std::thread::Builder::new()
            .name("weir-accept".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept_all(listener, key, indices, &shared)
            })
            .map_err(stop)?;
        Ok(Acceptor { address, expected: body.flows, shared, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every flow has come. Errors name those that have not, a second after `deadline` at the latest.
    pub fn collect(mut self, deadline: Instant) -> Result<Vec<Flow>, WorkloadError> {
        let deadline = deadline + LATE_LIMIT;
        let mut arrivals = self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        while arrivals.streams.len() < self.expected.len() && arrivals.broken.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            arrivals =
                self.shared.changed.wait_timeout(arrivals, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(text) = arrivals.broken.take() {
            return Err(WorkloadError::retry(text));
        }
        let mut streams = std::mem::take(&mut arrivals.streams);
        drop(arrivals);
        let expected = std::mem::take(&mut self.expected);
        let (mut flows, mut missing) = (Vec::with_capacity(expected.len()), Vec::new());
        for spec in expected {
            match streams.remove(&spec.index) {
                Some(stream) => flows.push(Flow { spec, stream }),
                None => missing.push(spec.entity),
            }
        }
        if let Some(first) = missing.first() {
            let count = missing.len();
            return Err(WorkloadError::retry(format!("{count} flows never connected, the first is {first}")));
        }
        Ok(flows)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.unwanted.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within `NOTICE`; if it panicked, `collect` has said which flows are missing.
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: TcpListener, key: Key, expected: Vec<u32>, shared: &Shared) {
    let limits = GateLimits { pending_max: expected.len().max(256), ..GateLimits::default() };
    let result = Gate::new(listener, Some(key), limits).and_then(|mut gate| {
        let mut left = expected.len();
        while left > 0 && !shared.unwanted.load(Ordering::Relaxed) {
            for client in gate.next(NOTICE)? {
                let hello = client.hello;
                let mut arrivals = shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                let welcome = hello.mode == Mode::Data
                    && expected.contains(&hello.flow)
                    && !arrivals.streams.contains_key(&hello.flow);
                if !welcome {
                    client.refuse(Status::UnknownFlow);
                    continue;
                }
                // A client that is gone before it heard the answer has its place free to try again.
                if let Ok(stream) = client.welcome() {
                    arrivals.streams.insert(hello.flow, stream);
                    left -= 1;
                    shared.changed.notify_all();
                }
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        let mut arrivals = shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.broken = Some(format!("the data port broke: {error}"));
        shared.changed.notify_all();
    }
}

fn key_of(assignment: &Assignment) -> Result<Key, WorkloadError> {
    Key::from_hexadecimal(&assignment.key)
        .map_err(|error| WorkloadError::stop(format!("step {:?}: {error}", assignment.step)))
}

/// The connecting end: makes every flow of the assignment and proves to each acceptor that it belongs there.
pub fn connect(assignment: &Assignment, options: &TcpOptions) -> Result<Vec<Flow>, WorkloadError> {
    let body = Body::of(assignment)?;
    let key = key_of(assignment)?;
    let mut flows = Vec::with_capacity(body.flows.len());
    for spec in body.flows {
        let address = assignment.peers.get(&spec.peer).ok_or_else(|| {
            WorkloadError::stop(format!("{}: where {} listens is not known", spec.entity, spec.peer))
        })?;
        let address: SocketAddr = address
            .parse()
            .map_err(|_| WorkloadError::stop(format!("{}: {address:?} is not ADDRESS:PORT", spec.entity)))?;
        let stream = open(address, &key, spec.index, options)
            .map_err(|text| WorkloadError::retry(format!("{} to {address}: {text}", spec.entity)))?;
        flows.push(Flow { spec, stream });
    }
    Ok(flows)
}

fn open(address: SocketAddr, key: &Key, index: u32, options: &TcpOptions) -> Result<TcpStream, String> {
    let stream = tcp::connect(address, Some(options), CONNECT_LIMIT).map_err(|error| error.to_string())?;
    handshake::open(&stream, Mode::Data, [0; 16], index, Some(key), CONNECT_LIMIT)
        .map_err(|error| error.to_string())?;
    Ok(stream)
}

/// What the kernel granted to each flow's end, by `ENTITY.sender` and `ENTITY.receiver`.
pub fn granted(flows: &[Flow], options: &TcpOptions) -> serde_json::Map<String, serde_json::Value> {
    flows
        .iter()
        .map(|flow| {
            let end = if flow.spec.sends { "sender" } else { "receiver" };
            (format!("{}.{end}", flow.spec.entity), options.granted(flow.stream.as_fd()).into())
        })
        .collect()
}

/// The agreed start on this process's clock.
pub fn deadline(control: &Control) -> Instant {
    Instant::now() + control.start_at().since(weir_sys::clock::monotonic())
}

/// One end of a workload's flows, from the moment it is prepared until they are all there.
pub enum Side {
    Accept(Acceptor),
    Connect(Vec<Flow>),
}

impl Side {
    /// Listens or connects, as the assignment's role says.
    pub fn prepare(assignment: &Assignment, options: &TcpOptions) -> Result<Side, WorkloadError> {
        // A host of a scenario may be one where weir has no privileges; the record has what was granted.
        let options = &TcpOptions { or_as_allowed: true, ..options.clone() };
        if assignment.role == ACCEPT {
            return Ok(Side::Accept(Acceptor::listen(assignment, options)?));
        }
        Ok(Side::Connect(connect(assignment, options)?))
    }

    /// Where peers of later stages reach this end, if they do.
    pub fn address(&self) -> Option<String> {
        match self {
            Side::Accept(acceptor) => Some(acceptor.address().to_string()),
            Side::Connect(_) => None,
        }
    }

    /// All flows; an accepting end waits for those still to come.
    pub fn flows(self, control: &Control) -> Result<Vec<Flow>, WorkloadError> {
        match self {
            Side::Accept(acceptor) => acceptor.collect(deadline(control)),
            Side::Connect(flows) => Ok(flows),
        }
    }
}
