//! Workload: what generates load.
//!
//! A step is carried out in four movements. The coordinator asks the workload for `assignments`, one for each host that
//! takes part, in stages: an acceptor is prepared before those who connect to it. Each agent turns its assignment into a
//! `Task` (sockets bound or connected, memory allocated) and says where it may be reached. At the agreed instant every
//! task runs. Afterwards the coordinator hands all outcomes to `derive`, which computes what no single host can know.

use crate::chunks::ChunkQueue;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use weir_core::behind::Behind;
use weir_core::chunk::FieldSet;
use weir_core::evidence::{Around, Candidate, Factor, LATENESS_ALLOWED_NS_LEAST, Load};
use weir_core::failure::Failures;
use weir_core::hosts::PortRange;
use weir_core::metric::Metric;
use weir_core::record::{Row, Series};
use weir_core::scenario::{Opening, RoleKey, Shape};
use weir_core::shown::Shown;
use weir_core::{Instant, Values};

/// What one host is asked to do in a step; travels to its agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub workload: String,
    pub step: String,
    /// Host name, as records name it.
    pub host: String,
    /// Lower stages are prepared first; their addresses are known to later ones.
    pub stage: u8,
    /// The workload's own: `accept`, `connect`, …
    pub role: String,
    pub values: Values,
    /// Where prepared tasks of lower stages may be reached, by host name: filled in by the coordinator.
    #[serde(default)]
    pub peers: BTreeMap<String, String>,
    /// Where this host's tasks may listen; `None`: any free port. Filled in by the coordinator.
    #[serde(default)]
    pub data_ports: Option<PortRange>,
    /// Secret of this run, hexadecimal; both ends prove that they know it before a byte is measured.
    pub key: String,
    /// Of the coordinator's files that this host was given a copy of, the digest by the path as `values` have it: the agent puts the name of
    /// its copy there. Filled in by the coordinator.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// The workload's own further details.
    pub body: serde_json::Value,
}

/// A step as the coordinator plans it.
#[derive(Clone, Debug)]
pub struct StepRequest<'a> {
    pub step: &'a str,
    pub values: &'a Values,
    /// Of everything random in the step: follows from the run's seed, the step and the trial, so that configurations that are
    /// compared draw alike.
    pub seed: u64,
    /// Host names and data addresses of those that load each other.
    pub pairs: Vec<(Peer, Peer)>,
    /// Hosts of each role, in the order of its keys.
    pub roles: Vec<(&'static str, Vec<Peer>)>,
    /// Hexadecimal.
    pub key: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    pub host: String,
    pub address: IpAddr,
    /// On the network beside the loaded one, where there is one.
    pub auxiliary: Option<IpAddr>,
}

/// How long a step will take and move; for the plan line, progress and the validity of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub duration: Duration,
    /// True when the duration is a bound that a valid trial keeps to within 1 %.
    pub duration_bounded: bool,
    pub bytes: Option<u64>,
    pub bounds: Bounds,
}

/// What a step is waited for, each until its agents are told that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the order to prepare until each stage is ready: connections are made, keys proven, files written.
    pub prepare: Duration,
    /// For how long a sound step may move nothing (waits, a drain, a read that takes its time); what is longer is a standstill.
    pub still: Duration,
    /// After the planned end of a step whose duration is bounded.
    pub drain: Duration,
}

impl Default for Bounds {
    /// Of a load over connections. A path with heavy loss needs retries of the kernel's own while they are made.
    fn default() -> Bounds {
        Bounds {
            prepare: Duration::from_secs(20),
            still: Duration::from_secs(20),
            drain: Duration::from_secs(10),
        }
    }
}

impl Estimate {
    /// Of a step that lasts as long as it is told to.
    pub fn bounded(duration: Duration) -> Estimate {
        Estimate { duration, duration_bounded: true, bytes: None, bounds: Bounds::default() }
    }
    /// Of one that lasts until its work is done, about so long.
    pub fn about(duration: Duration, bytes: Option<u64>) -> Estimate {
        Estimate { duration, duration_bounded: false, bytes, bounds: Bounds::default() }
    }
}

/// A fault's effect on the step, on the trial's clock, for metrics such as the recovery time.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultWindow {
    pub name: String,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// What the coordinator knows when it asks for derived metrics.
#[derive(Clone, Debug)]
pub struct DeriveContext<'a> {
    pub values: &'a Values,
    /// Start of the step in the trial's clock, ns.
    pub start_ns: i64,
    pub faults: &'a [FaultWindow],
    /// What was counted on the links, the hosts and the machine meanwhile.
    pub around: &'a Around,
}

/// What one host measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub host: String,
    pub role: String,
    /// When the load itself ran, ns on the host's monotonic clock; the agent puts in when the last thread really began.
    pub started_ns: u64,
    pub ended_ns: u64,
    pub rows: Vec<Row>,
    /// Timestamps in ns on the host's monotonic clock; the coordinator shifts them to the trial's.
    pub series: Vec<Series>,
    /// What the kernel granted, by entity.
    #[serde(default)]
    pub granted: serde_json::Map<String, serde_json::Value>,
    /// What `derive` needs beyond that.
    #[serde(default)]
    pub body: serde_json::Value,
    /// What failed and did not end the task. None of them makes the trial invalid: `derive` does, where they say so much.
    #[serde(default)]
    pub failures: Failures,
    /// Waits for a core of the thread of this part that measured and waited longest; the agent puts it in.
    #[serde(default)]
    pub waits: Behind,
}

/// Metrics that need more than one host's view, and further series for the report.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    pub rows: Vec<Row>,
    pub series: Vec<Series>,
    /// Why the trial must not count, if so.
    pub invalid: Option<String>,
    /// For the question whether the trial may be judged: what the load says of itself.
    pub load: Load,
    /// What may have bounded it, as far as the workload can see it; one of them, or a shared one, is chosen by rank.
    pub candidates: Vec<Candidate>,
    /// What a reader of the results should know and what invalidates nothing, such as a request the kernel granted in part.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize)]
#[error("{text}")]
pub struct WorkloadError {
    /// What happened, where, and what to do.
    pub text: String,
}

impl Assignment {
    /// The part of one host in a step without peers: its values, and nothing that others must know.
    pub fn alone(workload: &str, request: &StepRequest<'_>, peer: &Peer) -> Assignment {
        Assignment {
            workload: workload.to_owned(),
            step: request.step.to_owned(),
            host: peer.host.clone(),
            stage: 0,
            role: String::new(),
            values: request.values.clone(),
            peers: BTreeMap::new(),
            data_ports: None,
            key: request.key.to_owned(),
            inputs: BTreeMap::new(),
            body: serde_json::Value::Null,
        }
    }
}

impl WorkloadError {
    pub fn new(text: impl Into<String>) -> Self {
        WorkloadError { text: text.into() }
    }
}

/// The plan of a step and the meaning of its results; pure.
pub trait Workload: Sync {
    /// Keys by which a step says who takes part: `FROM_TO` of a workload that loads pairs of hosts.
    fn roles(&self) -> &'static [RoleKey];
    /// The first is the one that stands for the workload where there is room for one: in the cells of a matrix.
    fn metrics(&self) -> &'static [Metric];
    /// Factors that `derive` may name beside the shared ones.
    fn factors(&self) -> &'static [&'static Factor] {
        &[]
    }
    /// How its series and counts are drawn.
    fn shown(&self) -> &'static Shown {
        Shown::NOTHING
    }
    /// Fields of what it records of a run sample by sample, or operation by operation (`Control::chunks`).
    fn records(&self) -> &'static [&'static FieldSet] {
        &[]
    }
    /// Whether it tries to fill the path, so that a step of it has a ceiling.
    fn fills_path(&self) -> bool {
        false
    }
    /// Refuses parameters that contradict each other or the step's shape, in words that name the keys.
    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError>;
    /// What making a connection takes, of a workload that makes some: over a path for which that is too long a step is refused before anything starts.
    fn opening(&self, _values: &Values) -> Opening {
        Opening::NONE
    }
    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment>;
    /// Values that are paths of files which every host of the step reads: those elsewhere are given a copy before they prepare.
    fn inputs(&self, _values: &Values) -> Vec<String> {
        Vec::new()
    }
    /// Whether the step goes on without a host that a fault has killed: it is prepared and started again when the host is back, with
    /// its own earlier address among its peers', and leaves no outcome where it stays away.
    fn outlives_hosts(&self, _values: &Values) -> bool {
        false
    }
    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived;
    /// In the agent: binds or connects and allocates; nothing is measured yet.
    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError>;
}

/// A prepared part of a step on one host.
pub trait Task: Send {
    /// Where peers of later stages reach this task (`ADDRESS:PORT`), if they do.
    fn address(&self) -> Option<String>;
    /// Carries the step out: waits for `control.start_at()`, loads, drains, reports. Returns soon after `control` says stop
    /// (what is under way is drained and reported), and at once after it says cut (what there is is reported) or abort.
    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError>;
}

/// How a running task is steered and watched; shared between the agent's control thread and the task's threads.
#[derive(Debug, Default)]
pub struct Control {
    start_at_ns: AtomicU64,
    /// 0 run, 1 stop and drain, 2 report at once, 3 abort.
    order: AtomicU8,
    /// Payload bytes (or operations) received so far, for live progress.
    progress: AtomicU64,
    /// Payload bytes sent so far by what may never arrive: a sign of life, counted apart so that nothing is counted twice.
    sent: AtomicU64,
    /// When the last thread began, 0 before; its distance from `start_at_ns` is what the start really reached.
    began_ns: AtomicU64,
    /// Fine series that the task hands on while it runs; empty of use unless `record` was said.
    chunks: Arc<ChunkQueue>,
    recording: AtomicBool,
    /// Of the thread that was kept waiting longest.
    waits: Mutex<Behind>,
}

impl Control {
    pub fn new(start_at: Instant) -> Arc<Self> {
        let control = Control::default();
        control.start_at_ns.store(start_at.as_ns(), Ordering::Relaxed);
        Arc::new(control)
    }
    /// On the host's monotonic clock.
    pub fn start_at(&self) -> Instant {
        Instant::from_ns(self.start_at_ns.load(Ordering::Relaxed))
    }
    pub fn stop(&self) {
        self.order.fetch_max(1, Ordering::Relaxed);
    }
    /// The other end is gone, or has had its time to drain.
    pub fn cut(&self) {
        self.order.fetch_max(2, Ordering::Relaxed);
    }
    pub fn abort(&self) {
        self.order.store(3, Ordering::Relaxed);
    }
    /// The load should end now; drain and report.
    pub fn stopping(&self) -> bool {
        self.order.load(Ordering::Relaxed) >= 1
    }
    /// Nobody is to be waited for any more; what was measured until now is reported, unless all was aborted.
    pub fn is_cut(&self) -> bool {
        self.order.load(Ordering::Relaxed) >= 2
    }
    /// Give up; nothing will be kept.
    pub fn aborted(&self) -> bool {
        self.order.load(Ordering::Relaxed) >= 3
    }
    /// A thread of the task begins its part at `now`.
    pub fn begin(&self, now: Instant) {
        self.began_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
    }
    /// When the last thread began; `None` while none has.
    pub fn began(&self) -> Option<Instant> {
        let began_ns = self.began_ns.load(Ordering::Relaxed);
        (began_ns > 0).then(|| Instant::from_ns(began_ns))
    }
    /// A thread of the task that sends, receives or generates is through, and waited so for its core.
    pub fn waited(&self, waits: Behind) {
        let mut worst = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.beyond_ns(LATENESS_ALLOWED_NS_LEAST) > worst.beyond_ns(LATENESS_ALLOWED_NS_LEAST) {
            *worst = waits;
        }
    }
    pub fn waits(&self) -> Behind {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Somebody takes what the task records while it runs; to be said before it does.
    pub fn record(&self) {
        self.recording.store(true, Ordering::Relaxed);
    }
    /// Where fine series go; `None` where nobody takes them.
    pub fn chunks(&self) -> Option<Arc<ChunkQueue>> {
        self.recording.load(Ordering::Relaxed).then(|| Arc::clone(&self.chunks))
    }
    pub fn advance(&self, by: u64) {
        self.progress.fetch_add(by, Ordering::Relaxed);
    }
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
    pub fn send(&self, by: u64) {
        self.sent.fetch_add(by, Ordering::Relaxed);
    }
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// An implementation in the registry.
pub type WorkloadEntry = crate::Entry<&'static dyn Workload>;

/// Claims every workload must keep; called by each crate that has some, and by adapters.
pub mod conformance {
    use super::WorkloadEntry;
    use std::collections::BTreeSet;
    use std::time::Duration;
    use weir_core::scenario::Shape;
    use weir_core::{Value, Values};

    /// Declarations are complete and consistent, and the defaults give an estimate.
    pub fn check(entries: &[WorkloadEntry]) {
        check_given(entries, &[]);
    }

    /// As `check`, where the estimate also needs what has no default.
    pub fn check_given(entries: &[WorkloadEntry], given: &[(&str, Value)]) {
        for entry in entries {
            let name = entry.name;
            assert!(!entry.about.is_empty(), "{name}: no description");
            let mut seen = BTreeSet::new();
            for param in entry.params {
                assert!(seen.insert(param.name), "{name}: parameter {} is declared twice", param.name);
                assert!(
                    !param.about.is_empty(),
                    "{name}: parameter {} says nothing about itself",
                    param.name
                );
            }
            let mut defaults = Values::defaults(entry.params);
            given.iter().for_each(|(key, value)| defaults.set(key, value.clone()));
            let mut bounded = defaults.clone();
            bounded.set("duration", Value::Duration(Duration::from_secs(1)));
            for set in entry.build.records() {
                let known = |field: &str| set.position(field).is_some();
                assert!(set.shown.is_none_or(known), "{name}: {} shows a field that it lacks", set.name);
                assert!(!set.about.is_empty(), "{name}: {} is not described", set.name);
            }
            for factor in entry.build.factors() {
                assert!(
                    !factor.about.is_empty() && !factor.next.is_empty(),
                    "{name}: {} says nothing",
                    factor.name
                );
            }
            let mut metrics = BTreeSet::new();
            for metric in entry.build.metrics() {
                assert!(metrics.insert(metric.name), "{name}: metric {} is defined twice", metric.name);
                assert!(metric.name.contains('.'), "{name}: metric {} has no domain", metric.name);
                assert!(!metric.definition.is_empty(), "{name}: metric {} is not defined", metric.name);
            }
            // Some are bounded by what their defaults say, the others by a time.
            let shape = Shape::of_pairs(1, Duration::from_millis(1));
            let estimate = |values| entry.build.estimate(values, &shape);
            let tried = estimate(&defaults).or_else(|_| estimate(&bounded));
            assert!(tried.is_ok(), "{name}: defaults are refused: {tried:?}");
        }
    }
}
