//! Workload `event`: a scheduler, sources and builders on hosts of a scenario.

use crate::evidence::{BuildingFacts, FACTORS, of_building};
use crate::ledger::Reason;
use crate::metrics::{self, METRICS};
use crate::original::Rules;
pub use crate::plan::SOURCES_MAX;
use crate::plan::{EventPlan, PARAMS, Profile, ROLES};
use crate::roles::{BuilderReport, BuilderRole, SchedulerReport, SchedulerRole, SourceReport, SourceRole};
use crate::shell::DIAL_LIMIT;
use crate::shell::ShellError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;
use weir_core::Values;
use weir_core::evidence::Factor;
use weir_core::hosts::PortRange;
use weir_core::metric::Metric;
use weir_core::record::{Histogram, Observed, Row, Series};
use weir_core::regression::slope;
use weir_core::scenario::{Opening, RoleKey, Shape};
use weir_core::shown::Shown;
use weir_seams::Entry;
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, Peer, StepRequest, Task, Workload,
    WorkloadEntry, WorkloadError,
};
use weir_sys::clock;
use weir_transport::tcp_options::TcpOptions;
use weir_transport::{Key, tcp};

mod original;

/// TCP's handshake, hello and challenge, proof and answer.
const OPENING: Opening = Opening { limit: DIAL_LIMIT, round_trips: 3 };
const SCHEDULER: &str = "scheduler";
const SOURCE: &str = "source";
const BUILDER: &str = "builder";
/// Heartbeats that a run may be off its planned length by (M002-6).
const LENGTH_TOLERANCE: f64 = 0.01;

pub struct Event;

pub static WORKLOADS: &[WorkloadEntry] = &[Entry {
    name: "event",
    about: "event building: sources, a scheduler and builders on hosts, and a ledger of every event",
    params: PARAMS,
    needs: &[],
    build: &Event,
}];

/// The body of an assignment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Body {
    /// Where this host takes part in the control traffic, and where fragments come to it.
    control: Option<IpAddr>,
    data: IpAddr,
    /// The host with the scheduler.
    scheduler: String,
    sources: u32,
    builders: u32,
    /// Among those of its role, from 0.
    number: u32,
    /// In the run: the host's, and a number where it has several of a role.
    name: String,
    seed: u64,
}

impl Workload for Event {
    fn roles(&self) -> &'static [RoleKey] {
        ROLES
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn shown(&self) -> &'static Shown {
        &crate::shown::SHOWN
    }

    fn factors(&self) -> &'static [&'static Factor] {
        FACTORS
    }

    fn estimate(&self, values: &Values, _shape: &Shape) -> Result<Estimate, WorkloadError> {
        let plan = EventPlan::from_values(values)?;
        // The original's waits before the first heartbeat are long, and a part of what it did.
        let around = match plan.profile {
            Profile::Weir => Duration::ZERO,
            Profile::O2Balancer2 => original::waits(&Rules::from_values(values)),
        };
        // How long the drain takes is a part of what is measured; the workload itself says whether the heartbeats kept their time.
        // A search tries ten rates or so.
        let times = if plan.search_to_hz.is_some() { 12 } else { 1 };
        let period = Duration::try_from_secs_f64(1.0 / plan.rate_hz).unwrap_or(Duration::MAX);
        let mut estimate = Estimate::about(plan.length() * times + around, None);
        for own in [around, plan.drain, period] {
            estimate.bounds.still = estimate.bounds.still.saturating_add(own);
        }
        Ok(estimate)
    }

    fn opening(&self, values: &Values) -> Opening {
        match values.text("profile").as_deref() {
            Some("o2balancer2") => original::OPENING,
            _ => OPENING,
        }
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        let hosts = |key: &str| -> &[Peer] {
            let found = request.roles.iter().find(|(role, _)| *role == key);
            found.map_or(&[], |(_, peers)| peers.as_slice())
        };
        let (sources, builders) = (hosts("sources"), hosts("builders"));
        let Some(scheduler) = hosts("scheduler_host").first() else { return Vec::new() };
        let auxiliary = request.values.text("control").as_deref() == Some("auxiliary");
        let per_host = |key: &str| request.values.count(key).unwrap_or(1).max(1) as usize;
        let (sources_each, builders_each) = (per_host("sources_per_host"), per_host("builders_per_host"));
        let assignment = |stage: u8, role: &str, (each, number): (usize, usize), peer: &Peer| {
            let name = match each {
                1 => peer.host.clone(),
                _ => format!("{}-{}", peer.host, number % each),
            };
            let body = Body {
                name,
                control: if auxiliary { peer.auxiliary } else { Some(peer.address) },
                data: peer.address,
                scheduler: scheduler.host.clone(),
                sources: (sources.len() * sources_each) as u32,
                builders: (builders.len() * builders_each) as u32,
                number: number as u32,
                seed: request.seed,
            };
            Assignment {
                workload: "event".to_owned(),
                step: request.step.to_owned(),
                host: peer.host.clone(),
                stage,
                role: role.to_owned(),
                values: request.values.clone(),
                peers: BTreeMap::new(),
                data_ports: None,
                key: request.key.to_owned(),
                inputs: BTreeMap::new(),
                body: serde_json::to_value(body).expect("names and numbers are JSON"),
            }
        };
        let all = |role: &'static str, peers: &'_ [Peer], each: usize| -> Vec<Assignment> {
            let numbered = peers.iter().flat_map(|peer| std::iter::repeat_n(peer, each)).enumerate();
            numbered.map(|(number, peer)| assignment(1, role, (each, number), peer)).collect()
        };
        let mut assignments = vec![assignment(0, SCHEDULER, (1, 0), scheduler)];
        assignments.extend(all(BUILDER, builders, builders_each));
        assignments.extend(all(SOURCE, sources, sources_each));
        assignments
    }

    fn outlives_hosts(&self, values: &Values) -> bool {
        // The original's program does not take up its part again.
        values.text("profile").as_deref() != Some("o2balancer2")
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        derive(context, outcomes).unwrap_or_else(|text| Derived { invalid: Some(text), ..Derived::default() })
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let host = &assignment.host;
        let stop = |text: String| WorkloadError::new(format!("host {host}: {text}"));
        let plan = EventPlan::from_values(&assignment.values)?;
        let body: Body = serde_json::from_value(assignment.body.clone())
            .map_err(|error| stop(format!("its assignment is malformed: {error}")))?;
        if body.sources as usize > SOURCES_MAX {
            return Err(stop(format!("{} sources; at most {SOURCES_MAX} are possible", body.sources)));
        }
        let control = body.control.ok_or_else(|| {
            stop("`control` = \"auxiliary\" needs a network beside the loaded one; write auxiliary = true in [lab]".to_owned())
        })?;
        let key = Key::from_hexadecimal(&assignment.key).map_err(|error| stop(error.to_string()))?;
        let listen = |address: IpAddr, options: Option<&TcpOptions>| -> Result<TcpListener, WorkloadError> {
            PortRange::bind(assignment.data_ports, |port| {
                tcp::listen(SocketAddr::new(address, port), options)
            })
            .map_err(|error| stop(error.to_string()))
        };
        // A source keeps a connection to every builder, and a scheduler one to everyone.
        weir_sys::socket::raise_open_files().map_err(|error| stop(error.to_string()))?;
        let scheduler = || -> Result<SocketAddr, WorkloadError> {
            let address = assignment.peers.get(&body.scheduler);
            address
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| stop("where the scheduler listens is not known".to_owned()))
        };
        if plan.profile == Profile::O2Balancer2 {
            let ends = original::Ends {
                plan,
                rules: Rules::from_values(&assignment.values),
                number: body.number,
                sources: body.sources,
                builders: body.builders,
                key,
            };
            let part = match assignment.role.as_str() {
                SCHEDULER => ends.scheduler(listen(control, None)?),
                BUILDER => {
                    let listener = listen(body.data, Some(&ends.plan.tcp))?;
                    ends.builder(listener, scheduler()?)
                }
                _ => ends.source(scheduler()?),
            };
            let part = part.map_err(|error| stop(error.text))?;
            return Ok(Box::new(original::Prepared {
                host: host.clone(),
                role: assignment.role.clone(),
                part,
            }));
        }
        // One that is started again is found where it was.
        let before = scheduler().ok().filter(|_| assignment.role == SCHEDULER);
        let listen_again = |address: SocketAddr| {
            tcp::listen(address, None).map_err(|error| stop(format!("{address}: {error}")))
        };
        let part = match assignment.role.as_str() {
            SCHEDULER => Part::Scheduler {
                listener: before.map_or_else(|| listen(control, None), listen_again)?,
                sources: body.sources,
                builders: body.builders,
                seed: body.seed,
            },
            BUILDER => {
                Part::Builder { listener: listen(body.data, Some(&plan.tcp))?, scheduler: scheduler()? }
            }
            SOURCE => Part::Source { scheduler: scheduler()? },
            other => return Err(stop(format!("no role is called {other:?}"))),
        };
        let (name, role) = (body.name, assignment.role.clone());
        Ok(Box::new(Prepared { host: host.clone(), name, role, plan, key, part }))
    }
}

enum Part {
    Scheduler { listener: TcpListener, sources: u32, builders: u32, seed: u64 },
    Builder { listener: TcpListener, scheduler: SocketAddr },
    Source { scheduler: SocketAddr },
}

struct Prepared {
    host: String,
    name: String,
    role: String,
    plan: EventPlan,
    key: Key,
    part: Part,
}

impl Task for Prepared {
    fn address(&self) -> Option<String> {
        match &self.part {
            Part::Scheduler { listener, .. } => listener.local_addr().ok().map(|address| address.to_string()),
            // Sources hear of builders from the scheduler.
            Part::Builder { .. } | Part::Source { .. } => None,
        }
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        let Prepared { host, name, role, plan, key, part } = *self;
        let failed = |error: ShellError| WorkloadError::new(format!("host {host}: {role}: {error}"));
        control.begin(clock::monotonic());
        let mut outcome = Outcome {
            host: host.clone(),
            role: role.clone(),
            started_ns: control.start_at().as_ns(),
            ..Outcome::default()
        };
        let key = Some(key);
        let body = match part {
            Part::Scheduler { listener, sources, builders, seed } => {
                let events = plan.search_to_hz.is_none().then_some(plan.events);
                let not_before = control.start_at();
                let role = SchedulerRole {
                    listener,
                    key,
                    plan,
                    sources,
                    builders,
                    not_before,
                    seed,
                    events,
                    members: Vec::new(),
                };
                let mut report = role.run(control, |_, _| {}).map_err(failed)?;
                outcome.series = std::mem::take(&mut report.series);
                serde_json::to_value(report)
            }
            Part::Builder { listener, scheduler } => {
                let data = listener
                    .local_addr()
                    .map_err(|error| WorkloadError::new(format!("host {host}: {error}")))?;
                let role = BuilderRole {
                    name,
                    host: host.clone(),
                    scheduler,
                    listener,
                    data,
                    key,
                    plan,
                    membership: None,
                };
                let mut report = role.run(control).map_err(failed)?;
                outcome.series = vec![std::mem::take(&mut report.taken)];
                serde_json::to_value(report)
            }
            Part::Source { scheduler } => {
                let role = SourceRole { name, host: host.clone(), scheduler, key, plan, membership: None };
                serde_json::to_value(role.run(control).map_err(failed)?)
            }
        };
        outcome.body =
            body.map_err(|error| WorkloadError::new(format!("host {host}: its report: {error}")))?;
        outcome.ended_ns = clock::monotonic().as_ns();
        Ok(outcome)
    }
}

fn bodies<T: DeserializeOwned>(outcomes: &[Outcome], role: &str) -> Result<Vec<(String, T)>, String> {
    let of_role = outcomes.iter().filter(|outcome| outcome.role == role);
    of_role
        .map(|outcome| {
            let body = serde_json::from_value(outcome.body.clone());
            let body =
                body.map_err(|error| format!("host {}: its outcome is malformed: {error}", outcome.host))?;
            Ok((outcome.host.clone(), body))
        })
        .collect()
}

/// What the scheduler alone knows.
pub fn scheduler_rows(report: &SchedulerReport) -> Vec<Row> {
    let totals = &report.totals;
    let generated = totals.generated as f64;
    let of_generated = |count: u64| if generated > 0.0 { count as f64 / generated } else { 0.0 };
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let late = totals.dropped.get(&Reason::Deadline).copied().unwrap_or(0);
    let mut values = vec![
        (metrics::LOSS, of_generated(totals.partial + totals.dropped_total())),
        ("event.generated", generated),
        ("event.complete", totals.complete as f64),
        ("event.partial", totals.partial as f64),
        ("event.dropped", totals.dropped_total() as f64),
        ("event.held", totals.held as f64),
        ("event.undelivered_ratio", of_generated(report.undelivered)),
        ("event.unacknowledged_ratio", of_generated(totals.dropped_total() + totals.held)),
        // Assembly is by key: fragments of different heartbeats do not meet.
        ("event.mismatched_ratio", 0.0),
        ("event.late_ratio", of_generated(late)),
        ("event.drain_seconds", seconds(report.last_beat_ns, report.ended_ns)),
        ("event.reassigned", report.builders.iter().map(|line| line.taken).sum::<u64>() as f64),
    ];
    let issued = seconds(report.first_beat_ns, report.last_beat_ns);
    if totals.generated > report.first_generated && issued > 0.0 {
        values.push(("event.rate_hertz", (totals.generated - report.first_generated) as f64 / issued));
    }
    let row =
        |metric: &str, value: Observed| Row { entity: "trial".to_owned(), metric: metric.to_owned(), value };
    let mut rows: Vec<Row> =
        values.into_iter().map(|(metric, value)| row(metric, Observed::Value(value))).collect();
    let builders = || report.failures.iter().filter(|failure| failure.is_builder);
    let detected: Vec<u64> = builders().map(|failure| failure.detect_ns).collect();
    let recovered: Vec<u64> = builders().filter_map(|failure| failure.recover_ns).collect();
    rows.extend(histogram(&detected).map(|all| row("event.detection_seconds", Observed::Histogram(all))));
    rows.extend(histogram(&recovered).map(|all| row("event.recovery_seconds", Observed::Histogram(all))));
    rows
}

fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Result<Derived, String> {
    let plan = EventPlan::from_values(context.values).map_err(|error| error.text)?;
    if plan.profile == Profile::O2Balancer2 {
        return original::derive(&plan, outcomes);
    }
    let schedulers: Vec<(String, SchedulerReport)> = bodies(outcomes, SCHEDULER)?;
    let builders: Vec<(String, BuilderReport)> = bodies(outcomes, BUILDER)?;
    let sources: Vec<(String, SourceReport)> = bodies(outcomes, SOURCE)?;
    let (_, scheduler) = schedulers.first().ok_or("the scheduler left no outcome")?;
    let mut derived = Derived { rows: scheduler_rows(scheduler), ..Derived::default() };
    let totals = &scheduler.totals;
    let mut put = |entity: &str, metric: &str, value: f64| {
        derived.rows.push(Row {
            entity: entity.to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        });
    };
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let sum = |of: fn(&crate::builder::Figures) -> u64| {
        builders.iter().map(|(_, report)| of(&report.figures)).sum::<u64>()
    };
    let unacknowledged = totals.dropped_total() + totals.held;
    put("trial", metrics::UNACKNOWLEDGED_SECONDS, unacknowledged as f64 / plan.rate_hz);
    put("trial", "event.duplicate_fragments", sum(|figures| figures.duplicate) as f64);
    put("trial", "event.stale_fragments", sum(|figures| figures.stale) as f64);
    put("trial", "event.corrupt_fragments", sum(|figures| figures.corrupt) as f64);
    let of_sources = sources.iter().map(|(_, report)| report.grant_bytes).sum::<u64>();
    put("trial", "event.control_bytes", (scheduler.control_bytes + of_sources) as f64);
    let issued = seconds(scheduler.first_beat_ns, scheduler.last_beat_ns);
    if !scheduler.searched.is_empty() {
        let carried = scheduler.searched.iter().filter(|probe| probe.carried).map(|probe| probe.rate_hz);
        put("trial", metrics::HIGHEST_RATE, carried.fold(0.0, f64::max));
    } else if totals.generated > scheduler.first_generated && issued > 0.0 {
        let planned = plan.events.saturating_sub(scheduler.first_generated) as f64 / plan.rate_hz;
        if (issued / planned - 1.0).abs() > LENGTH_TOLERANCE {
            derived.invalid = Some(format!(
                "the heartbeats took {issued:.3} s and were planned to take {planned:.3} s, more than 1 % off"
            ));
        }
    }
    let mut put = |entity: &str, metric: &str, value: Observed| {
        derived.rows.push(Row { entity: entity.to_owned(), metric: metric.to_owned(), value });
    };
    let hosts = schedulers.iter().map(|(host, report)| (host, report.resident_bytes_max));
    let hosts = hosts.chain(sources.iter().map(|(host, report)| (host, report.resident_bytes_max)));
    let hosts = hosts.chain(builders.iter().map(|(host, report)| (host, report.resident_bytes_max)));
    let mut resident: BTreeMap<&str, u64> = BTreeMap::new();
    for (host, bytes) in hosts {
        let most = resident.entry(host).or_default();
        *most = bytes.max(*most);
    }
    for (host, bytes) in resident {
        put(&format!("host.{host}"), metrics::RESIDENT, Observed::Value(bytes as f64));
    }
    for (_, report) in &builders {
        let entity = &format!("builder.{}", report.name);
        put(entity, metrics::BUILT, Observed::Value(report.figures.complete as f64));
        if let Some(assembly) = &report.assembly {
            put(entity, metrics::ASSEMBLY, Observed::Histogram(assembly.clone()));
        }
    }
    // Goodput by the times at which fragments came, on each builder's clock, which the coordinator has put on the trial's.
    let begun_ns = outcomes
        .iter()
        .filter(|outcome| outcome.role == SCHEDULER)
        .flat_map(|outcome| &outcome.series)
        .filter(|series| series.name == "event.generated")
        .find_map(|series| {
            series.t_ns.iter().zip(&series.value).find(|(_, issued)| **issued > 0.0).map(|(t_ns, _)| *t_ns)
        })
        .unwrap_or(context.start_ns);
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4);
    let held = outcomes.iter().flat_map(|outcome| &outcome.series).find(|series| series.name == "event.held");
    // At several rates one after the other it has no meaning.
    let held_slope = held
        .filter(|_| scheduler.searched.is_empty())
        .and_then(|held| slope_after(held, begun_ns + ns(plan.length() / 3), begun_ns + ns(plan.length())));
    if let Some(slope) = held_slope {
        put("trial", metrics::HELD_SLOPE, Observed::Value(slope));
    }
    let (start_ns, end_ns) = (begun_ns + ns(plan.warm_up), begun_ns + ns(plan.length()));
    let taken = outcomes.iter().filter(|outcome| outcome.role == BUILDER).flat_map(|outcome| &outcome.series);
    let bytes: f64 = taken.map(|series| series.growth_between(start_ns, end_ns)).sum();
    let measured = (end_ns - start_ns) as f64 / 1e9;
    if measured > 0.0 && scheduler.searched.is_empty() {
        put("trial", metrics::GOODPUT, Observed::Value(bytes * 8.0 / measured));
    }
    for (reason, count) in totals.dropped.iter().filter(|(_, count)| **count > 0) {
        put(&format!("reason.{reason}"), metrics::DROPPED_FOR, Observed::Value(*count as f64));
    }
    let building = BuildingFacts {
        generated: totals.generated,
        dropped_no_credit: totals.dropped.get(&Reason::NoCredit).copied().unwrap_or(0),
        waiting_ratio: scheduler.waiting_ratio,
        scheduler_busy_ratio: scheduler.busy_ratio,
        scheduler_wait_ratio: scheduler.core_wait_ratio,
        held_growth_ratio: held_slope.map_or(0.0, |slope| slope / plan.rate_hz),
        faulty: !context.faults.is_empty(),
        of_each_rate_seconds: (!scheduler.searched.is_empty()).then(|| plan.length().as_secs_f64()),
    };
    (derived.load, derived.candidates) = of_building(&building, context.around);
    for (reason, count) in totals.dropped.iter().filter(|(_, count)| **count > 0) {
        derived.warnings.push(format!("{count} events were dropped: {reason}"));
    }
    Ok(derived)
}

/// By how much a series grows a second between two times.
fn slope_after(series: &Series, from_ns: i64, to_ns: i64) -> Option<f64> {
    let all = series.t_ns.iter().zip(&series.value).filter(|(t_ns, _)| (from_ns..=to_ns).contains(t_ns));
    let points: Vec<(f64, f64)> = all.map(|(t_ns, value)| ((t_ns - from_ns) as f64 / 1e9, *value)).collect();
    slope(&points).map(|fitted| fitted.value)
}

/// Few values, kept exactly.
fn histogram(times: &[u64]) -> Option<Histogram> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (min_ns, max_ns) = (*sorted.first()?, *sorted.last()?);
    let sum_ns = sorted.iter().map(|ns| *ns as f64).sum();
    let count = vec![1; sorted.len()];
    Some(Histogram { value_ns: sorted, count, min_ns, max_ns, sum_ns })
}
