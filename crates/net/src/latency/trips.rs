//! What the asking ends of a latency step come to.

use super::LatencyPlan;
use crate::generator::{self, Account, Lateness, Ticks};
use crate::rendezvous::FlowSpec;
use serde::{Deserialize, Serialize};
use std::io;
use weir_core::failure::Failure;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::{self, Observed, Row};
use weir_core::times::Times;
use weir_seams::workload::Outcome;

pub static METRICS: &[Metric] = &[
    Metric::new(
        "latency.round_trip_seconds",
        "s",
        Better::Lower,
        Scope::Operation,
        "One request and its reply, by the requesting program's clock. Without `rate` one request is under way on a \
            connection at a time (closed loop): from the reply before, when the request is sent, to its own reply. With `rate` \
            (open loop): from when the request was intended, the step's start + n / rate, to its reply, so that a request that \
            had to wait counts its waiting. The first warm_up_count requests of each connection, and those within warm_up of the \
            step's start, are not counted. Lost requests are not in it.",
    ).column(11),
    LOST,
    generator::LATENESS,
    generator::MISSED,
];

const LOST: Metric = Metric::new(
    "latency.lost_ratio",
    "1",
    Better::Lower,
    Scope::Flow,
    "Share of the counted requests sent over UDP whose reply did not come within `timeout`: lost on either way, or \
        later than that. There is none over TCP, which sends again what is lost.",
);

/// Round trips of one connection. Memory is taken when it is made, and none later.
pub struct Trips {
    times: Times,
    lost: u64,
}

impl Trips {
    pub fn new() -> io::Result<Trips> {
        Ok(Trips { times: Times::new()?, lost: 0 })
    }

    pub fn record(&mut self, round_trip_ns: u64) {
        self.times.record(round_trip_ns);
    }
    pub fn lose(&mut self) {
        self.lost += 1;
    }
    /// Requests that count and have come to an end.
    pub fn counted(&self) -> u64 {
        self.times.count() + self.lost
    }

    pub fn distribution(&self) -> Option<record::Histogram> {
        self.times.distribution()
    }
}

/// What one connection came to at one of its ends.
#[derive(Default)]
pub struct Report {
    pub entity: String,
    /// `None` for the answering end, and for one that never began.
    pub trips: Option<Trips>,
    /// Of an open loop.
    pub clock: Option<(Lateness, Ticks)>,
    pub failure: Option<Failure>,
}

/// What `derive` needs of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyBody {
    pub asked: Vec<Asked>,
}

/// What an end of round trips does.
pub fn operation(spec: &FlowSpec) -> &'static str {
    if spec.sends { "ask" } else { "answer" }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub entity: String,
    pub answered: u64,
    pub lost: u64,
    pub clock: Option<Account>,
}

/// Puts the reports of one end into its outcome.
pub fn assemble(outcome: &mut Outcome, plan: &LatencyPlan, reports: Vec<Report>) {
    let mut body = LatencyBody::default();
    for Report { entity, trips, clock, failure } in reports {
        failure.into_iter().for_each(|failure| outcome.failures.push(failure));
        if let Some((lateness, _)) = &clock {
            outcome.rows.extend(lateness.rows(&entity));
        }
        let Some(trips) = trips else { continue };
        let row = |metric: &str, value| Row { entity: entity.clone(), metric: metric.to_owned(), value };
        if let Some(histogram) = trips.distribution() {
            outcome.rows.push(row("latency.round_trip_seconds", Observed::Histogram(histogram)));
        }
        if plan.transport.loses() && trips.counted() > 0 {
            let ratio = trips.lost as f64 / trips.counted() as f64;
            outcome.rows.push(row(LOST.name, Observed::Value(ratio)));
        }
        let clock = clock.and_then(|(lateness, ticks)| lateness.account(&ticks));
        body.asked.push(Asked { entity, answered: trips.times.count(), lost: trips.lost, clock });
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}
