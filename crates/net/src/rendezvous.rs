//! How the two ends of a step find each other: who accepts, who connects, and which connection is which flow.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::failure::Failure;
use weir_core::hosts::PortRange;
use weir_core::scenario::Opening;
use weir_seams::workload::{Assignment, Control, Outcome, StepRequest, Task, WorkloadError};
use weir_sys::{clock, errno};
use weir_transport::address::Shown;
use weir_transport::associate::open_all;
use weir_transport::dial::{Call, dial};
use weir_transport::gate::{Gate, GateLimits};
use weir_transport::handshake::{Mode, Status, Token};
use weir_transport::tcp_options::TcpOptions;
use weir_transport::udp::{Association, UdpGate};
use weir_transport::{Key, tcp};

pub const ACCEPT: &str = "accept";
pub const CONNECT: &str = "connect";
/// Time one connection may take to be made and to prove itself.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// TCP's handshake, hello and challenge, proof and answer; a lost SYN is not counted in.
pub const TCP_OPENING: Opening = Opening { limit: CONNECT_LIMIT, round_trips: 3 };
/// Knock and challenge, proof and answer.
pub const UDP_OPENING: Opening = Opening { limit: CONNECT_LIMIT, round_trips: 2 };
/// How long after the start an acceptor waits for flows; all should be there before.
const LATE_LIMIT: Duration = Duration::from_secs(1);
/// How soon a client over UDP that asks again is heard, and how soon associations are collected: well within the time from
/// the order to start to the start.
const AGAIN: Duration = Duration::from_millis(5);
/// Flows of a scenario's step belong to no session: the run's key says enough.
const NO_TOKEN: Token = [0; 16];
/// A flow's connection, and its copy that a watch may hold.
const DESCRIPTORS_PER_FLOW: u64 = 2;
/// What a process has open beside its flows.
const DESCRIPTORS_BESIDE: u64 = 64;
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

impl FlowSpec {
    /// What this end does with the payload.
    pub fn operation(&self) -> &'static str {
        if self.sends { "send" } else { "receive" }
    }

    /// What ended this flow's `operation` at this end just now, as a record.
    pub fn failure(&self, operation: &str, error: &io::Error) -> Failure {
        let code = errno::name(error).map(str::to_owned);
        Failure { code, ..self.gave_up(operation, clock::monotonic().as_ns(), error.to_string()) }
    }

    /// What this end gave up at `at_ns` of the host's clock.
    pub fn gave_up(&self, operation: &str, at_ns: u64, text: String) -> Failure {
        Failure {
            at_ns: i64::try_from(at_ns).unwrap_or(i64::MAX),
            job: self.entity.clone(),
            operation: operation.to_owned(),
            target: self.peer.clone(),
            text,
            ..Failure::default()
        }
    }
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
            WorkloadError::new(format!("the assignment of step {:?} is malformed: {error}", assignment.step))
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
                inputs: BTreeMap::new(),
                body: serde_json::to_value(body).expect("names and numbers are JSON"),
            }
        })
        .collect()
}

/// A flow with its connection.
#[derive(Debug)]
pub struct Flow<C = TcpStream> {
    pub spec: FlowSpec,
    pub stream: C,
}

struct Arrivals<C> {
    streams: BTreeMap<u32, C>,
    broken: Option<String>,
}

struct Shared<C> {
    arrivals: Mutex<Arrivals<C>>,
    changed: Condvar,
    /// The start is near: what has come is collected.
    wanted: AtomicBool,
    unwanted: AtomicBool,
}

impl<C> Shared<C> {
    fn arrivals(&self) -> MutexGuard<'_, Arrivals<C>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening end: a thread lets the expected flows in, each once, and closes the port when all are there.
pub struct Acceptor<C = TcpStream> {
    address: SocketAddr,
    expected: Vec<FlowSpec>,
    shared: Arc<Shared<C>>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens at a free port of the host's data address, within its `data_ports` if it has some. `greet` says the first word
    /// on each flow that is let in.
    pub fn listen(
        assignment: &Assignment,
        options: &TcpOptions,
        greet: impl Fn(u32, &TcpStream) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Acceptor, WorkloadError> {
        allow_many(assignment)?;
        let body = Body::of(assignment)?;
        let key = key_of(assignment)?;
        let host = &assignment.host;
        let stop = |error: std::io::Error| WorkloadError::new(format!("host {host}: {error}"));
        let listener = PortRange::bind(assignment.data_ports, |port| {
            tcp::listen(SocketAddr::new(body.address, port), Some(options))
        })
        .map_err(stop)?;
        let address = listener.local_addr().map_err(stop)?;
        let indices = body.flows.iter().map(|flow| flow.index).collect();
        Acceptor::begin(host, address, body.flows, move |shared| {
            accept_all(listener, key, indices, shared, greet)
        })
    }
}

impl Acceptor<Association> {
    /// Hears at a free UDP port of the host's data address, within its `data_ports` if it has some.
    pub fn listen_datagrams(assignment: &Assignment) -> Result<Self, WorkloadError> {
        allow_many(assignment)?;
        let body = Body::of(assignment)?;
        let host = &assignment.host;
        let stop = |error: std::io::Error| WorkloadError::new(format!("host {host}: {error}"));
        let key = key_of(assignment)?;
        let gate = PortRange::bind(assignment.data_ports, |port| {
            UdpGate::bind(SocketAddr::new(body.address, port), Some(key.clone()))
        })
        .map_err(stop)?;
        let address = gate.address().map_err(stop)?;
        let indices = body.flows.iter().map(|flow| flow.index).collect();
        Acceptor::begin(host, address, body.flows, move |shared| hear_all(gate, indices, shared))
    }
}

impl<C: Send + 'static> Acceptor<C> {
    fn begin(
        host: &str,
        address: SocketAddr,
        expected: Vec<FlowSpec>,
        let_in: impl FnOnce(&Shared<C>) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Self, WorkloadError> {
        let shared = Arc::new(Shared {
            arrivals: Mutex::new(Arrivals { streams: BTreeMap::new(), broken: None }),
            changed: Condvar::new(),
            wanted: AtomicBool::new(false),
            unwanted: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new().name("weir-accept".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                if let Err(error) = let_in(&shared) {
                    shared.arrivals().broken = Some(format!("the data port broke: {error}"));
                    shared.changed.notify_all();
                }
            }
        });
        let thread = thread.map_err(|error| WorkloadError::new(format!("host {host}: {error}")))?;
        Ok(Acceptor { address, expected, shared, thread: Some(thread) })
    }
}

impl<C> Acceptor<C> {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every flow has come. Errors name those that have not, a second after `deadline` at the latest.
    pub fn collect(mut self, deadline: Instant) -> Result<Vec<Flow<C>>, WorkloadError> {
        let deadline = deadline + LATE_LIMIT;
        self.shared.wanted.store(true, Ordering::Relaxed);
        let mut arrivals = self.shared.arrivals();
        while arrivals.streams.len() < self.expected.len() && arrivals.broken.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            arrivals =
                self.shared.changed.wait_timeout(arrivals, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(text) = arrivals.broken.take() {
            return Err(WorkloadError::new(text));
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
            return Err(WorkloadError::new(format!("{count} flows never connected, the first is {first}")));
        }
        Ok(flows)
    }
}

impl<C> Drop for Acceptor<C> {
    fn drop(&mut self) {
        self.shared.unwanted.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within `NOTICE`; if it panicked, `collect` has said which flows are missing.
            let _ = thread.join();
        }
    }
}

fn accept_all(
    listener: TcpListener,
    key: Key,
    expected: Vec<u32>,
    shared: &Shared<TcpStream>,
    greet: impl Fn(u32, &TcpStream) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let limits = GateLimits { pending_max: expected.len().max(256), ..GateLimits::default() };
    let expected: BTreeSet<u32> = expected.into_iter().collect();
    let mut gate = Gate::new(listener, Some(key), limits)?;
    let mut left = expected.len();
    while left > 0 && !shared.unwanted.load(Ordering::Relaxed) {
        for client in gate.next(NOTICE)? {
            let hello = client.hello;
            let mut arrivals = shared.arrivals();
            let welcome = hello.mode == Mode::Data
                && expected.contains(&hello.flow)
                && !arrivals.streams.contains_key(&hello.flow);
            if !welcome {
                client.refuse(Status::UnknownFlow);
                continue;
            }
            // A client that is gone before it heard the answer has its place free to try again.
            let greeted = client.welcome().and_then(|stream| greet(hello.flow, &stream).map(|()| stream));
            if let Ok(stream) = greeted {
                arrivals.streams.insert(hello.flow, stream);
                left -= 1;
                shared.changed.notify_all();
            }
        }
    }
    Ok(())
}

/// Holds the associations until they are collected: a client that did not hear that it was let in asks again at its own
/// socket, where nobody else listens before the start.
fn hear_all(mut gate: UdpGate, expected: Vec<u32>, shared: &Shared<Association>) -> std::io::Result<()> {
    let mut missing: BTreeSet<u32> = expected.into_iter().collect();
    let mut held: Vec<(u32, Association)> = Vec::with_capacity(missing.len());
    while !shared.unwanted.load(Ordering::Relaxed) {
        let expects = |token: &Token, flow| *token == NO_TOKEN && missing.contains(&flow);
        if let Some(arrival) = gate.next(AGAIN, expects)? {
            missing.remove(&arrival.flow);
            held.push((arrival.flow, arrival.association));
        }
        for (_, association) in &held {
            association.answer_again()?;
        }
        if shared.wanted.load(Ordering::Relaxed) {
            shared.arrivals().streams.extend(held.drain(..));
            shared.changed.notify_all();
            if missing.is_empty() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A thousand flows need more descriptors than many systems give a program unasked.
fn allow_many(assignment: &Assignment) -> Result<(), WorkloadError> {
    let wanted = Body::of(assignment)?.flows.len() as u64 * DESCRIPTORS_PER_FLOW + DESCRIPTORS_BESIDE;
    let host = &assignment.host;
    match weir_sys::socket::raise_open_files() {
        Ok(limit) if limit < wanted => Err(WorkloadError::new(format!(
            "host {host}: {wanted} open files are needed for its flows and {limit} are allowed; raise the hard limit \
             (ulimit -Hn, LimitNOFILE=)"
        ))),
        // Where the limit cannot be read, opening the sockets will tell.
        _ => Ok(()),
    }
}

fn key_of(assignment: &Assignment) -> Result<Key, WorkloadError> {
    Key::from_hexadecimal(&assignment.key)
        .map_err(|error| WorkloadError::new(format!("step {:?}: {error}", assignment.step)))
}

/// Each flow of the assignment with the address its other end listens at.
fn called(assignment: &Assignment) -> Result<Vec<(FlowSpec, SocketAddr)>, WorkloadError> {
    let mut calls = Vec::new();
    for spec in Body::of(assignment)?.flows {
        let address = assignment.peers.get(&spec.peer).ok_or_else(|| {
            WorkloadError::new(format!("{}: where {} listens is not known", spec.entity, spec.peer))
        })?;
        let address: SocketAddr = address
            .parse()
            .map_err(|_| WorkloadError::new(format!("{}: {address:?} is not ADDRESS:PORT", spec.entity)))?;
        calls.push((spec, address));
    }
    Ok(calls)
}

/// The connecting end: makes every flow of the assignment, many at once, and proves to each acceptor that it belongs there.
pub fn connect(assignment: &Assignment, options: &TcpOptions) -> Result<Vec<Flow>, WorkloadError> {
    allow_many(assignment)?;
    let key = key_of(assignment)?;
    let called = called(assignment)?;
    let calls: Vec<Call> = called
        .iter()
        .map(|(spec, address)| Call {
            address: *address,
            mode: Mode::Data,
            token: NO_TOKEN,
            flow: spec.index,
        })
        .collect();
    let streams = dial(&calls, Some(&key), Some(options), CONNECT_LIMIT).map_err(|failed| {
        let (spec, address) = &called[failed.index];
        WorkloadError::new(format!("{} to {}: {}", spec.entity, Shown(*address), failed.error))
    })?;
    Ok(called.into_iter().zip(streams).map(|((spec, _), stream)| Flow { spec, stream }).collect())
}

/// Likewise over UDP.
pub fn associate(assignment: &Assignment) -> Result<Vec<Flow<Association>>, WorkloadError> {
    allow_many(assignment)?;
    let key = key_of(assignment)?;
    let called = called(assignment)?;
    let calls: Vec<(SocketAddr, u32)> = called.iter().map(|(spec, address)| (*address, spec.index)).collect();
    let streams = open_all(&calls, NO_TOKEN, Some(&key), CONNECT_LIMIT).map_err(|failed| {
        let (spec, address) = &called[failed.index];
        WorkloadError::new(format!("{} to UDP {}: {}", spec.entity, Shown(*address), failed.error))
    })?;
    Ok(called.into_iter().zip(streams).map(|((spec, _), stream)| Flow { spec, stream }).collect())
}

/// What the kernel granted to each flow's end, by `ENTITY.sender` and `ENTITY.receiver`.
pub fn granted(flows: &[Flow], options: &TcpOptions) -> serde_json::Map<String, serde_json::Value> {
    granted_each(flows, |_| options.clone())
}

/// Likewise, where flows were asked for with different options.
pub fn granted_each(
    flows: &[Flow],
    options: impl Fn(&FlowSpec) -> TcpOptions,
) -> serde_json::Map<String, serde_json::Value> {
    flows
        .iter()
        .map(|flow| {
            let end = if flow.spec.sends { "sender" } else { "receiver" };
            let granted = options(&flow.spec).granted(flow.stream.as_fd());
            (format!("{}.{end}", flow.spec.entity), granted.into())
        })
        .collect()
}

/// Refuses a mix of congestion controls where a step's flows do not take its names in turn.
// Spec: net-protocol.md#mix-1
pub fn one_congestion(options: &TcpOptions) -> Result<(), WorkloadError> {
    if options.is_mixed() {
        return Err(WorkloadError::new(format!(
            "`tcp.congestion` {:?} is a mix, which only a stream has; give one name",
            options.congestion
        )));
    }
    Ok(())
}

/// Flows of a step of `pair_count` pairs. Errors: more than the `most` that its workload allows.
pub fn flow_count(per_pair: u64, pair_count: usize, most: u64) -> Result<u64, WorkloadError> {
    let flows = per_pair.saturating_mul(pair_count as u64);
    if flows > most {
        return Err(WorkloadError::new(format!(
            "{pair_count} pairs with {per_pair} flows each are {flows} flows; at most {most} are possible"
        )));
    }
    Ok(flows)
}

/// The outcome of one end, so far without anything in it but when it began.
pub fn outcome(host: &str, role: &str, control: &Control) -> Outcome {
    Outcome {
        host: host.to_owned(),
        role: role.to_owned(),
        started_ns: control.start_at().as_ns(),
        ..Outcome::default()
    }
}

/// The workload's own part of every outcome. Errors name the host whose part is not what it should be.
pub fn bodies<T: serde::de::DeserializeOwned>(outcomes: &[Outcome]) -> Result<Vec<T>, String> {
    let body = |outcome: &Outcome| {
        serde_json::from_value(outcome.body.clone())
            .map_err(|error| format!("host {}: its outcome is malformed: {error}", outcome.host))
    };
    outcomes.iter().map(body).collect()
}

/// Why a load of which every flow counts is not valid: the first flow that broke.
pub fn first_failure(outcomes: &[Outcome]) -> Option<String> {
    outcomes.iter().find_map(|outcome| outcome.failures.first()).map(Failure::to_string)
}

/// What the kernel granted less of than was asked, from the grants of all outcomes: each text once, with how many ends of
/// flows it was so for.
pub fn clamped(outcomes: &[Outcome]) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for granted in outcomes.iter().flat_map(|outcome| outcome.granted.values()) {
        let texts = granted.get("clamped").and_then(serde_json::Value::as_array);
        for text in texts.into_iter().flatten().filter_map(serde_json::Value::as_str) {
            *counts.entry(text).or_default() += 1;
        }
    }
    counts.into_iter().map(|(text, count)| format!("{text} ({count} ends of flows)")).collect()
}

/// The agreed start on this process's clock.
pub fn deadline(control: &Control) -> Instant {
    Instant::now() + control.start_at().since(weir_sys::clock::monotonic())
}

/// One end of a workload's flows, from the moment it is prepared until they are all there.
pub enum Side<C = TcpStream> {
    Accept(Acceptor<C>),
    Connect(Vec<Flow<C>>),
}

impl Side {
    /// Listens or connects, as the assignment's role says.
    pub fn prepare(assignment: &Assignment, options: &TcpOptions) -> Result<Side, WorkloadError> {
        Side::prepare_greeting(assignment, options, |_, _| Ok(()))
    }

    /// Likewise; an accepting end says a first word on each flow.
    pub fn prepare_greeting(
        assignment: &Assignment,
        options: &TcpOptions,
        greet: impl Fn(u32, &TcpStream) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Side, WorkloadError> {
        // A host of a scenario may be one where weir has no privileges; the record has what was granted.
        let options = &TcpOptions { or_as_allowed: true, ..options.clone() };
        if assignment.role == ACCEPT {
            return Ok(Side::Accept(Acceptor::listen(assignment, options, greet)?));
        }
        Ok(Side::Connect(connect(assignment, options)?))
    }
}

impl Side<Association> {
    /// Likewise over UDP.
    pub fn prepare_datagrams(assignment: &Assignment) -> Result<Self, WorkloadError> {
        if assignment.role == ACCEPT {
            return Ok(Side::Accept(Acceptor::listen_datagrams(assignment)?));
        }
        Ok(Side::Connect(associate(assignment)?))
    }
}

impl<C> Side<C> {
    /// Where peers of later stages reach this end, if they do.
    pub fn address(&self) -> Option<String> {
        match self {
            Side::Accept(acceptor) => Some(acceptor.address().to_string()),
            Side::Connect(_) => None,
        }
    }

    /// All flows; an accepting end waits for those still to come.
    pub fn flows(self, control: &Control) -> Result<Vec<Flow<C>>, WorkloadError> {
        match self {
            Side::Accept(acceptor) => acceptor.collect(deadline(control)),
            Side::Connect(flows) => Ok(flows),
        }
    }
}

/// A prepared end: once all its flows are there, `run` loads them.
struct Prepared<C, F> {
    side: Side<C>,
    run: F,
}

/// The task of a workload that is nothing but its flows.
pub fn task<C: Send + 'static>(
    side: Side<C>,
    run: impl FnOnce(Vec<Flow<C>>, &Control) -> Result<Outcome, WorkloadError> + Send + 'static,
) -> Box<dyn Task> {
    Box::new(Prepared { side, run })
}

impl<C, F> Task for Prepared<C, F>
where
    C: Send,
    F: FnOnce(Vec<Flow<C>>, &Control) -> Result<Outcome, WorkloadError> + Send,
{
    fn address(&self) -> Option<String> {
        self.side.address()
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        let Prepared { side, run } = *self;
        run(side.flows(control)?, control)
    }
}
