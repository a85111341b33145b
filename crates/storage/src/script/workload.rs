//! Scripted loads as workloads: the hosts' parts, and what they come to together.

use super::barrier::Barrier;
use super::run::{KINDS, OPERATIONS, ScriptLane, ScriptOutcome};
use super::{JobOrder, Kind, Manner, ScriptPlan, Section};
use crate::layout::{Laid, LaidFile};
use crate::load::{HostFigures, at_once, bodies, generator, judged, percentile_ns};
use crate::metrics;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;
use weir_core::chunk::FieldSet;
use weir_core::evidence::Factor;
use weir_core::metric::Metric;
use weir_core::record::{Observed, Row};
use weir_core::scenario::{RoleKey, Shape};
use weir_core::times::Times;
use weir_core::{Instant, Values};
use weir_seams::Entry;
use weir_seams::target::{TargetEntry, TargetError};
use weir_seams::workload::{
    Assignment, Bounds, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadEntry, WorkloadError,
};
use weir_transport::Key;

/// A load of unknown speed is planned as if it moved so much, and did so many operations.
const BYTES_PER_SECOND: u64 = 100_000_000;
const OPERATIONS_PER_SECOND: u64 = 1_000;
/// A host that looks through a trace is waited for as if it read so many of its lines; it reads some ten times as many.
const LOOKED_THROUGH_PER_SECOND: u64 = 500_000;
const COMPLETE_WITHIN: Duration = Duration::from_secs(5);

struct Scripted {
    kind: &'static dyn Kind,
    targets: &'static [TargetEntry],
    metrics: &'static [Metric],
}

pub fn entry(kind: &'static dyn Kind, targets: &'static [TargetEntry]) -> WorkloadEntry {
    // Entries live as long as the program does.
    let metrics: Vec<Metric> = kind.metrics().iter().chain(metrics::SCRIPTED).copied().collect();
    let metrics = metrics.leak();
    Entry {
        name: kind.name(),
        about: kind.about(),
        params: kind.params(),
        needs: &[],
        build: Box::leak(Box::new(Scripted { kind, targets, metrics })),
    }
}

static RECORDS: &[&FieldSet] = &[&OPERATIONS];
static ROLES: &[RoleKey] = &[RoleKey::many("hosts")];

/// What a host is told beyond the step's values.
#[derive(Debug, Serialize, Deserialize)]
struct HostPart {
    jobs: Vec<u32>,
    seed: u64,
    address: IpAddr,
    /// The first host's name, and the number of this one.
    first: String,
    number: u32,
    hosts: usize,
}

/// What the coordinator needs of a host beyond its rows.
#[derive(Debug, Serialize, Deserialize)]
struct HostBody {
    figures: HostFigures,
    sections: Vec<Section>,
}

impl Scripted {
    fn plan(&self, values: &Values) -> Result<ScriptPlan, WorkloadError> {
        let mut plan = ScriptPlan::of(values, self.targets)?;
        self.kind.settle(&mut plan)?;
        Ok(plan)
    }
}

impl Workload for Scripted {
    fn roles(&self) -> &'static [RoleKey] {
        ROLES
    }
    fn metrics(&self) -> &'static [Metric] {
        self.metrics
    }
    fn factors(&self) -> &'static [&'static Factor] {
        metrics::FACTORS
    }
    fn records(&self) -> &'static [&'static FieldSet] {
        RECORDS
    }

    fn estimate(&self, values: &Values, _shape: &Shape) -> Result<Estimate, WorkloadError> {
        let plan = self.plan(values)?;
        let expected = self.kind.expected(&plan)?;
        let jobs = u64::from(plan.jobs);
        let operations = jobs.saturating_mul(expected.acts);
        let bytes = expected.bytes.saturating_mul(jobs);
        let seconds = 1 + bytes / BYTES_PER_SECOND + operations / OPERATIONS_PER_SECOND;
        let bounds = Bounds {
            prepare: Bounds::default().prepare
                + Duration::from_secs(expected.looked_through / LOOKED_THROUGH_PER_SECOND),
            still: plan.timeout + self.kind.pause(&plan) + Duration::from_secs(10),
            drain: plan.timeout + Duration::from_secs(10),
        };
        let time = expected.time.saturating_add(Duration::from_secs(seconds));
        Ok(Estimate { bounds, ..Estimate::about(time, Some(bytes)) })
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        let jobs = request.values.count("jobs").unwrap_or(1) as u32;
        // Hosts beyond the last job have nothing to do.
        let hosts = request.roles.iter().flat_map(|(_, hosts)| hosts).take(jobs as usize);
        let hosts: Vec<_> = hosts.collect();
        let first = hosts.first().map(|peer| peer.host.clone()).unwrap_or_default();
        let assignment = |(index, peer): (usize, &&weir_seams::workload::Peer)| {
            let own = (index as u32..jobs).step_by(hosts.len().max(1)).collect();
            let part = HostPart {
                jobs: own,
                seed: request.seed,
                address: peer.address,
                first: first.clone(),
                number: index as u32,
                hosts: hosts.len(),
            };
            Assignment {
                // The first host listens before the others come to its barrier.
                stage: u8::from(index > 0),
                body: serde_json::to_value(part).unwrap_or_default(),
                ..Assignment::alone(self.kind.name(), request, peer)
            }
        };
        hosts.iter().enumerate().map(assignment).collect()
    }

    fn inputs(&self, values: &Values) -> Vec<String> {
        self.kind.inputs(values)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = self.plan(&assignment.values)?;
        let part: HostPart = serde_json::from_value(assignment.body.clone()).map_err(|error| {
            WorkloadError::new(format!("the coordinator's order is not understood: {error}"))
        })?;
        // Where it cannot be raised, opening the files will tell.
        let _ = weir_sys::socket::raise_open_files();
        let in_words = |error: TargetError| WorkloadError::new(error.text);
        let files = self.kind.lays(&plan)?;
        let laid =
            files.as_ref().map(|files| Laid::lay(files, &part.jobs, part.number == 0).map_err(in_words));
        let laid = laid.transpose()?;
        let manner = self.kind.manner(&plan);
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads =
            if manner.thread_for_each { part.jobs.len() } else { cores.min(part.jobs.len()) }.max(1);
        let mut of_lanes: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, job) in part.jobs.iter().enumerate() {
            let of_job: Vec<LaidFile> = match (&files, &laid) {
                (Some(files), Some(laid)) => laid.of_job(files, *job),
                _ => Vec::new(),
            };
            let order = JobOrder { number: *job, seed: part.seed, files: &of_job };
            of_lanes[index % threads].push((*job, self.kind.script(&plan, order)?));
        }
        let lanes =
            of_lanes.into_iter().map(|scripts| ScriptLane::prepare(&plan, manner, scripts).map_err(in_words));
        let lanes = lanes.collect::<Result<_, _>>()?;
        let barrier = barrier(assignment, &part)?;
        let (host, kind) = (assignment.host.clone(), self.kind);
        Ok(Box::new(Loading { host, kind, plan, manner, lanes, barrier, laid }))
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        let bodies: Vec<HostBody> = match bodies(outcomes) {
            Ok(bodies) => bodies,
            Err(text) => return Derived { invalid: Some(text), ..Derived::default() },
        };
        let plan = match self.plan(context.values) {
            Ok(plan) => plan,
            Err(error) => return Derived { invalid: Some(error.text), ..Derived::default() },
        };
        let figures: Vec<&HostFigures> = bodies.iter().map(|body| &body.figures).collect();
        let period = self.kind.manner(&plan).period;
        let generator = period.map(|period| generator(&figures, period.as_secs_f64()));
        let mut derived = judged(context, &figures, plan.target.build.offers().is_remote, generator);
        let sections: Vec<Section> = bodies.iter().flat_map(|body| body.sections.iter().cloned()).collect();
        derived.rows.extend(self.kind.derive(&plan, &sections, context.around));
        derived.warnings.extend(self.kind.remarks(&plan));
        derived
    }
}

fn barrier(assignment: &Assignment, part: &HostPart) -> Result<Barrier, WorkloadError> {
    let stop = |error: &dyn std::fmt::Display| {
        WorkloadError::new(format!(
            "host {}: the barrier of step {:?}: {error}",
            assignment.host, assignment.step
        ))
    };
    let jobs = part.jobs.len();
    if part.hosts <= 1 {
        return Ok(Barrier::alone(jobs));
    }
    let key = Key::from_hexadecimal(&assignment.key).map_err(|error| stop(&error))?;
    if part.number == 0 {
        let made = Barrier::first(jobs, part.hosts - 1, part.address, assignment.data_ports, key);
        return made.map_err(|error| stop(&error));
    }
    let hub = assignment.peers.get(&part.first).and_then(|address| address.parse::<SocketAddr>().ok());
    let hub = hub.ok_or_else(|| stop(&format!("where {} waits for the others is not known", part.first)))?;
    Barrier::other(jobs, part.number, hub, &key).map_err(|error| stop(&error))
}

/// One host's part, ready to run.
struct Loading {
    host: String,
    kind: &'static dyn Kind,
    plan: ScriptPlan,
    manner: Manner,
    lanes: Vec<ScriptLane>,
    barrier: Barrier,
    /// The files that were made go away with it.
    laid: Option<Laid>,
}

impl Task for Loading {
    fn address(&self) -> Option<String> {
        self.barrier.address()
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        let Loading { host, kind, plan, manner, lanes, barrier, laid } = *self;
        let stop = |error: std::io::Error| WorkloadError::new(format!("{}: {error}", plan.url));
        barrier.complete(COMPLETE_WITHIN).map_err(stop)?;
        let lanes = at_once(lanes, |lane| lane.run(control, &barrier)).map_err(stop)?;
        drop(laid);
        Ok(outcome(host, (kind, &plan, manner), control.start_at(), lanes))
    }
}

fn outcome(
    host: String,
    (kind, plan, manner): (&dyn Kind, &ScriptPlan, Manner),
    start: Instant,
    lanes: Vec<ScriptOutcome>,
) -> Outcome {
    let mut outcome = Outcome { host, started_ns: start.as_ns(), ..Outcome::default() };
    outcome.ended_ns = lanes.iter().map(|lane| lane.ended_ns).max().unwrap_or(outcome.started_ns);
    let mut figures = HostFigures {
        counted_ns: outcome.ended_ns.saturating_sub(outcome.started_ns),
        ..HostFigures::default()
    };
    let mut sections = Vec::new();
    for lane in lanes {
        figures.cpu_ns += lane.cpu.as_nanos() as u64;
        figures.busier(lane.ran_and_waited);
        for job in &lane.jobs {
            figures.add(&job.done);
            outcome.rows.extend(kind.job_rows(plan, job));
            sections.extend(job.sections.iter().cloned());
        }
        let late = lane.lateness.as_ref().and_then(Times::distribution);
        if let (Some(metric), Some(late)) = (manner.lateness, late) {
            figures.due += late.count.iter().sum::<u64>();
            figures.lateness_p99_ns = figures.lateness_p99_ns.max(percentile_ns(&late, 0.99));
            figures.lateness_max_ns = figures.lateness_max_ns.max(late.max_ns);
            outcome.rows.push(Row {
                entity: format!("host.{}", outcome.host),
                metric: metric.to_owned(),
                value: Observed::Histogram(late),
            });
        }
        for ((_, metric), times) in KINDS.iter().zip(&lane.times) {
            if let Some(histogram) = times.distribution() {
                let seconds = histogram.sum_ns / 1e9;
                let mean = seconds / histogram.count.iter().sum::<u64>().max(1) as f64;
                if *metric != metrics::CLOSE {
                    let quicker = figures.operation_seconds.map_or(mean, |quickest| quickest.min(mean));
                    figures.operation_seconds = Some(quicker);
                }
                figures.all_seconds += seconds;
                figures.names_seconds += if metrics::OF_NAMES.contains(metric) { seconds } else { 0.0 };
                outcome.rows.push(Row {
                    entity: format!("host.{}", outcome.host),
                    metric: (*metric).to_owned(),
                    value: Observed::Histogram(histogram),
                });
            }
        }
        figures.first_failed(&lane.failures);
        outcome.failures.absorb(lane.failures);
    }
    outcome.body = serde_json::to_value(HostBody { figures, sections }).unwrap_or_default();
    outcome
}
