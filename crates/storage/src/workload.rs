//! The io workloads: their plan, their hosts' parts, and what they come to together.

use crate::lane::{Apart, JobPlan, Lane, LaneOutcome};
use crate::layout::{InMemory, Laid};
use crate::load::{HostFigures, TRIAL, at_once, bodies, generator, judged, percentile_ns};
use crate::metrics;
use crate::plan::{Pattern, Plan};
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::time::Duration;
use weir_core::Values;
use weir_core::evidence::Factor;
use weir_core::metric::Metric;
use weir_core::record::{Observed, Row};
use weir_core::scenario::{RoleKey, Shape};
use weir_core::shown::Shown;
use weir_core::times::Times;
use weir_seams::target::{TargetEntry, TargetError};
use weir_seams::workload::{
    Assignment, Bounds, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};

/// Files are taken to be made at this rate at least; what is slower is given up.
const MADE_BYTES_PER_SECOND: u64 = 10_000_000;
/// A load of unknown size is planned as if it moved so much.
const BYTES_PER_SECOND: u64 = 100_000_000;
/// Jobs of a host of which each has its own distribution, and its own curve.
const TIMES_MAX: usize = 64;
const CURVES_MAX: usize = 16;

pub struct Io {
    pub name: &'static str,
    pub pattern: Pattern,
    pub targets: &'static [TargetEntry],
}

static ROLES: &[RoleKey] = &[RoleKey::many("hosts")];

/// What a host is told beyond the step's values.
#[derive(Debug, Serialize, Deserialize)]
struct HostPart {
    jobs: Vec<u32>,
    seed: u64,
    /// Of files that all share it makes those that lack.
    makes_shared: bool,
}

impl Io {
    fn plan(&self, values: &Values) -> Result<Plan, WorkloadError> {
        Plan::of(self.pattern, values, self.targets)
    }
}

impl Workload for Io {
    fn roles(&self) -> &'static [RoleKey] {
        ROLES
    }
    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }
    fn factors(&self) -> &'static [&'static Factor] {
        metrics::FACTORS
    }
    fn shown(&self) -> &'static Shown {
        &metrics::SHOWN
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let plan = self.plan(values)?;
        let hosts: usize = shape.hosts.iter().map(|(_, count)| count).sum();
        if hosts > plan.jobs as usize {
            return Err(WorkloadError::new(format!(
                "`jobs` is {} and there are {hosts} hosts; each host needs a job",
                plan.jobs
            )));
        }
        let made_bytes = plan.file_bytes.unwrap_or(0).saturating_mul(plan.file_count());
        let bounds = Bounds {
            prepare: Bounds::default().prepare + Duration::from_secs(made_bytes / MADE_BYTES_PER_SECOND),
            still: plan.timeout + Duration::from_secs(10),
            drain: plan.timeout + Duration::from_secs(10),
        };
        let estimate = match plan.duration {
            Some(duration) => Estimate::bounded(duration),
            None => {
                let bytes = plan.bytes();
                let of_rate = plan.period.zip(plan.count).map(|(period, count)| period.mul_f64(count as f64));
                let guessed = Duration::from_secs(1 + bytes.unwrap_or(0) / BYTES_PER_SECOND);
                Estimate::about(of_rate.unwrap_or(guessed), bytes)
            }
        };
        Ok(Estimate { bounds, ..estimate })
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        let hosts: Vec<_> = request.roles.iter().flat_map(|(_, hosts)| hosts).collect();
        let jobs = request.values.count("jobs").unwrap_or(1) as u32;
        let assignment = |(index, peer): (usize, &&weir_seams::workload::Peer)| {
            let own = (index as u32..jobs).step_by(hosts.len().max(1)).collect();
            let part = HostPart { jobs: own, seed: request.seed, makes_shared: index == 0 };
            Assignment {
                // Whoever makes what all share is ready before the others look for it.
                stage: u8::from(index > 0),
                body: serde_json::to_value(part).unwrap_or_default(),
                ..Assignment::alone(self.name, request, peer)
            }
        };
        hosts.iter().enumerate().map(assignment).collect()
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = self.plan(&assignment.values)?;
        let part: HostPart = serde_json::from_value(assignment.body.clone()).map_err(|error| {
            WorkloadError::new(format!("the coordinator's order is not understood: {error}"))
        })?;
        // Where it cannot be raised, opening the files will tell.
        let _ = weir_sys::socket::raise_open_files();
        let in_words = |error: TargetError| WorkloadError::new(error.text);
        let laid = Laid::lay(&plan, &part.jobs, part.makes_shared).map_err(in_words)?;
        let threads =
            std::thread::available_parallelism().map_or(1, NonZero::get).min(part.jobs.len()).max(1);
        let apart = Apart { times: part.jobs.len() <= TIMES_MAX, curves: part.jobs.len() <= CURVES_MAX };
        let mut of_lanes: Vec<Vec<JobPlan>> = vec![Vec::new(); threads];
        for (index, job) in part.jobs.iter().enumerate() {
            of_lanes[index % threads].push((*job, laid.of_job(&plan, *job)));
        }
        let lanes = of_lanes.into_iter().enumerate().map(|(index, jobs)| {
            let name = format!("{}.{index}", assignment.host);
            Lane::prepare(&plan, name, jobs, part.seed, apart).map_err(in_words)
        });
        let lanes = lanes.collect::<Result<_, _>>()?;
        let resident = laid.resident();
        Ok(Box::new(Loading { host: assignment.host.clone(), plan, lanes, laid, resident }))
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        let bodies: Vec<HostFigures> = match bodies(outcomes) {
            Ok(bodies) => bodies,
            Err(text) => return Derived { invalid: Some(text), ..Derived::default() },
        };
        let is_remote = self.plan(context.values).is_ok_and(|plan| plan.target.build.offers().is_remote);
        let figures: Vec<&HostFigures> = bodies.iter().collect();
        let rate = context.values.frequency("rate").map(|rate| rate.0).filter(|rate| *rate > 0.0);
        let jobs = context.values.count("jobs").unwrap_or(1) as f64;
        let generator = rate.map(|rate| generator(&figures, jobs / rate));
        let mut derived = judged(context, &figures, is_remote, generator);
        for (moment, metric) in [metrics::RESIDENT_BEFORE, metrics::RESIDENT_AFTER].into_iter().enumerate() {
            let share = InMemory::share(figures.iter().map(|host| host.resident[moment].as_ref()));
            derived.rows.extend(share.map(|share| Row {
                entity: TRIAL.to_owned(),
                metric: metric.to_owned(),
                value: Observed::Value(share),
            }));
        }
        let mix = context.values.ratio("mix").unwrap_or(1.0);
        let total = derived.rows.iter().find(|row| row.metric == metrics::BYTES_TOTAL).cloned();
        let kind =
            [(1.0, metrics::READ_TOTAL), (0.0, metrics::WRITE_TOTAL)].into_iter().find(|(of, _)| *of == mix);
        if let (Some(total), Some((_, metric))) = (total, kind) {
            derived.rows.push(Row { metric: metric.to_owned(), ..total });
        }
        derived
    }
}

/// One host's part, ready to run.
struct Loading {
    host: String,
    plan: Plan,
    lanes: Vec<Lane>,
    /// The files that were made go away with it.
    laid: Laid,
    /// Before the load.
    resident: Option<InMemory>,
}

impl Task for Loading {
    fn address(&self) -> Option<String> {
        None
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        let Loading { host, plan, lanes, laid, resident } = *self;
        let lanes = at_once(lanes, |lane| lane.run(control))
            .map_err(|error| WorkloadError::new(format!("{}: {error}", plan.url)))?;
        let resident = [resident, laid.resident()];
        drop(laid);
        Ok(outcome(host, &plan, control, lanes, resident))
    }
}

fn outcome(
    host: String,
    plan: &Plan,
    control: &Control,
    lanes: Vec<LaneOutcome>,
    resident: [Option<InMemory>; 2],
) -> Outcome {
    let start_ns = (control.start_at() + plan.warm_up).as_ns();
    let mut outcome = Outcome { host, started_ns: control.start_at().as_ns(), ..Outcome::default() };
    outcome.ended_ns = lanes.iter().map(|lane| lane.ended_ns).max().unwrap_or(outcome.started_ns);
    let is_timed = plan.duration.is_some();
    let last_ns = lanes.iter().flat_map(|lane| &lane.jobs).map(|job| job.done.last_ns).max().unwrap_or(0);
    let end_ns = if is_timed { outcome.ended_ns } else { last_ns };
    let counted_ns = end_ns.saturating_sub(start_ns);
    let mut body = HostFigures { counted_ns, resident, ..HostFigures::default() };
    for lane in lanes {
        body.cpu_ns += lane.cpu.as_nanos() as u64;
        body.busier(lane.ran_and_waited);
        if let Some(late) = lane.lateness.as_ref().and_then(Times::distribution) {
            body.due += late.count.iter().sum::<u64>();
            body.lateness_p99_ns = body.lateness_p99_ns.max(percentile_ns(&late, 0.99));
            body.lateness_max_ns = body.lateness_max_ns.max(late.max_ns);
        }
        for job in &lane.jobs {
            let done = job.done;
            body.add(&done);
            let own_end_ns = if is_timed { end_ns } else { done.last_ns };
            let seconds = own_end_ns.saturating_sub(start_ns) as f64 / 1e9;
            let mut put = |metric: &str, value: f64| {
                let entity = job.entity.clone();
                outcome.rows.push(Row { entity, metric: metric.to_owned(), value: Observed::Value(value) });
            };
            if done.operations > 0 && seconds > 0.0 {
                put(metrics::OPERATIONS, done.operations as f64 / seconds);
                put(metrics::BYTES, done.bytes as f64 / seconds);
                put(metrics::PAUSE, done.pause_ns as f64 / 1e9);
                if !is_timed {
                    put(metrics::JOBS, seconds);
                }
            }
        }
        let of_host = |times: &Times| Some((format!("host.{}", outcome.host), times.distribution()?));
        let opens = of_host(&lane.open_times).map(|it| (metrics::OPEN, it));
        let syncs = lane.sync_times.as_ref().and_then(of_host).map(|it| (metrics::SYNC, it));
        let latencies = lane
            .times
            .iter()
            .filter_map(|(entity, times)| Some((metrics::LATENCY, (entity.clone(), times.distribution()?))));
        for (metric, (entity, histogram)) in opens.into_iter().chain(syncs).chain(latencies) {
            outcome.rows.push(Row {
                entity,
                metric: metric.to_owned(),
                value: Observed::Histogram(histogram),
            });
        }
        outcome.series.extend(lane.series);
        body.first_failed(&lane.failures);
        outcome.failures.absorb(lane.failures);
    }
    outcome.body = serde_json::to_value(body).unwrap_or_default();
    outcome
}
