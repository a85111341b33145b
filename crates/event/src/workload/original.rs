//! The original's profile as tasks and metrics of an event step.

use super::{BUILDER, LENGTH_TOLERANCE, SCHEDULER, SOURCE, bodies};
use crate::metrics;
use crate::original::{
    Builder, BuilderAccount, BuilderPlan, CONNECT_LIMIT, ConductorPlan, Rules, Scheduler, SchedulerAccount,
    SchedulerPlan, Source, SourceAccount, SourcePlan,
};
use crate::plan::EventPlan;
use serde::Serialize;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use weir_core::record::{Observed, Row, Series};
use weir_core::scenario::Opening;
use weir_seams::workload::{Control, Derived, Outcome, Task, WorkloadError};
use weir_sys::clock;
use weir_transport::Key;

/// Beyond the planned end, so that a role whose scheduler is gone ends too.
const GRACE: Duration = Duration::from_secs(60);

/// Once TCP has made it, hello and challenge, proof and answer.
pub(super) const OPENING: Opening = Opening { limit: CONNECT_LIMIT, round_trips: 2 };

/// Before the first heartbeat and after the last, as far as the rules say.
pub(super) fn waits(rules: &Rules) -> Duration {
    let before = match rules.ready_check {
        true => Duration::ZERO,
        false => rules.register_wait + rules.start_wait + rules.channel_wait,
    };
    before + rules.late_source + rules.stop_wait
}

/// What all roles of a step have in common.
pub(super) struct Ends {
    pub plan: EventPlan,
    pub rules: Rules,
    pub number: u32,
    pub sources: u32,
    pub builders: u32,
    pub key: Key,
}

pub(super) enum Part {
    Scheduler(Scheduler, String),
    Source(Source),
    Builder(Builder),
}

impl Ends {
    fn limit(&self) -> Duration {
        self.plan.length() + waits(&self.rules) + self.plan.drain + GRACE
    }

    pub fn scheduler(self, listener: TcpListener) -> Result<Part, WorkloadError> {
        let stop = |error: std::io::Error| WorkloadError::new(error.to_string());
        let address = listener.local_addr().map_err(stop)?.to_string();
        let conductor = ConductorPlan {
            rules: self.rules,
            rate_hz: self.plan.rate_hz,
            heartbeats: self.plan.events,
            sources: u64::from(self.sources),
            builders: u64::from(self.builders),
            drain: self.plan.drain,
        };
        let plan = SchedulerPlan { conductor, interval: self.plan.interval, key: Some(self.key) };
        Ok(Part::Scheduler(Scheduler::prepare(plan, listener).map_err(stop)?, address))
    }

    pub fn builder(self, listener: TcpListener, scheduler: SocketAddr) -> Result<Part, WorkloadError> {
        let limit = self.limit();
        let plan = BuilderPlan {
            rules: self.rules,
            number: self.number,
            sources: self.sources,
            scheduler,
            announced: None,
            key: Some(self.key),
            interval: self.plan.interval,
            drain: self.plan.drain,
            limit,
        };
        Builder::prepare(plan, listener)
            .map(Part::Builder)
            .map_err(|error| WorkloadError::new(error.to_string()))
    }

    pub fn source(self, scheduler: SocketAddr) -> Result<Part, WorkloadError> {
        let limit = self.limit();
        let plan = SourcePlan {
            rules: self.rules,
            number: self.number,
            sources: self.sources,
            fragment_bytes: self.plan.fixed_size().unwrap_or(0),
            scheduler,
            key: Some(self.key),
            tcp: self.plan.tcp,
            interval: self.plan.interval,
            drain: self.plan.drain,
            limit,
        };
        Source::prepare(plan).map(Part::Source)
    }
}

pub(super) struct Prepared {
    pub host: String,
    pub role: String,
    pub part: Part,
}

impl Task for Prepared {
    fn address(&self) -> Option<String> {
        match &self.part {
            Part::Scheduler(_, address) => Some(address.clone()),
            Part::Source(_) | Part::Builder(_) => None,
        }
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        let Prepared { host, role, part } = *self;
        control.begin(clock::monotonic());
        let started_ns = control.start_at().as_ns();
        let mut outcome = Outcome { host: host.clone(), role, started_ns, ..Outcome::default() };
        let named = |series: Vec<Series>| -> Vec<Series> {
            series.into_iter().map(|series| Series { entity: format!("host.{host}"), ..series }).collect()
        };
        outcome.body = match part {
            Part::Scheduler(scheduler, _) => {
                let mut account = scheduler.run(control)?;
                outcome.series = named(std::mem::take(&mut account.series));
                json(&account)?
            }
            Part::Source(source) => {
                let mut account = source.run(control)?;
                outcome.series = named(std::mem::take(&mut account.series));
                json(&account)?
            }
            Part::Builder(builder) => {
                let mut account = builder.run(control)?;
                outcome.series = named(std::mem::take(&mut account.series));
                json(&account)?
            }
        };
        outcome.ended_ns = clock::monotonic().as_ns();
        Ok(outcome)
    }
}

fn json(account: &impl Serialize) -> Result<serde_json::Value, WorkloadError> {
    serde_json::to_value(account).map_err(|error| WorkloadError::new(error.to_string()))
}

/// The account as metrics: what was acknowledged at the stop, and what came later.
pub(super) fn derive(plan: &EventPlan, outcomes: &[Outcome]) -> Result<Derived, String> {
    let schedulers: Vec<(String, SchedulerAccount)> = bodies(outcomes, SCHEDULER)?;
    let builders: Vec<(String, BuilderAccount)> = bodies(outcomes, BUILDER)?;
    let sources: Vec<(String, SourceAccount)> = bodies(outcomes, SOURCE)?;
    let (_, scheduler) = schedulers.first().ok_or("the scheduler left no outcome")?;
    let mut derived = Derived::default();
    let mut put = |entity: &str, metric: &str, value: f64| {
        derived.rows.push(Row {
            entity: entity.to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        });
    };
    let generated = scheduler.heartbeats as f64;
    let of_generated = |count: u64| if generated > 0.0 { count as f64 / generated } else { 0.0 };
    let mismatched: u64 = builders.iter().map(|(_, account)| account.mismatched).sum();
    // What nobody acknowledged when all was over did not come to its end: the original has no other word for it.
    let ended = scheduler.distinct;
    let seconds = |from: Option<u64>, to: u64| to.saturating_sub(from.unwrap_or(to)) as f64 / 1e9;
    for (metric, value) in [
        ("event.generated", generated),
        ("event.complete", ended as f64),
        ("event.partial", 0.0),
        ("event.dropped", scheduler.heartbeats.saturating_sub(ended) as f64),
        ("event.held", 0.0),
        (metrics::LOSS, of_generated(scheduler.heartbeats.saturating_sub(ended))),
        ("event.undelivered_ratio", scheduler.undelivered_ratio().unwrap_or(0.0)),
        ("event.unacknowledged_ratio", scheduler.unacknowledged_ratio().unwrap_or(0.0)),
        ("event.mismatched_ratio", of_generated(mismatched)),
        ("event.drain_seconds", seconds(scheduler.last_beat_ns, scheduler.ended_ns)),
    ] {
        put("trial", metric, value);
    }
    let unacknowledged = scheduler.unacknowledged_ratio().unwrap_or(0.0) * generated;
    put("trial", metrics::UNACKNOWLEDGED_SECONDS, unacknowledged / plan.rate_hz);
    let run = scheduler.run().as_secs_f64();
    if scheduler.heartbeats > 1 && run > 0.0 {
        put("trial", "event.rate_hertz", (generated - 1.0) / run);
        put("trial", "event.ahead_heartbeats", scheduler.ahead_max);
    }
    let payload: u64 = builders.iter().map(|(_, account)| account.payload_bytes).sum();
    if run > 0.0 {
        put("trial", metrics::GOODPUT, payload as f64 * 8.0 / run);
    }
    if let Some(first_ns) = scheduler.first_beat_ns {
        let after = |at_ns: u64| at_ns.saturating_sub(first_ns) as f64 / 1e9;
        let times =
            builders.iter().flat_map(|(_, account)| &account.mismatched_at).map(|(at_ns, _)| after(*at_ns));
        put("trial", "event.last_mismatch_seconds", times.fold(0.0, f64::max));
    }
    for (host, account) in &builders {
        put(&format!("host.{host}"), metrics::BUILT, account.acknowledged as f64);
    }
    let dropped: u64 =
        sources.iter().map(|(_, account)| account.dropped + account.no_channel + account.cut).sum();
    if dropped > 0 {
        derived.warnings.push(format!(
            "sources dropped {dropped} fragments: a full queue, no channel, or a channel that ended"
        ));
    }
    let planned = plan.events.saturating_sub(1) as f64 / plan.rate_hz;
    // The burst at the start makes a run shorter than its rate says; the document let 1 % pass.
    if let Some(text) = &scheduler.failure {
        derived.invalid = Some(text.clone());
    } else if scheduler.heartbeats < plan.events {
        derived.invalid =
            Some(format!("only {} of {} heartbeats were sent", scheduler.heartbeats, plan.events));
    } else if run > planned * (1.0 + LENGTH_TOLERANCE) {
        derived.invalid =
            Some(format!("the heartbeats took {run:.3} s and were planned to take {planned:.3} s"));
    }
    Ok(derived)
}
