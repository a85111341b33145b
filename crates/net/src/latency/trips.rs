//! What the asking ends of a latency step come to.

use super::LatencyPlan;
use crate::generator::{self, Account, Lateness, Ticks};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::{self, Observed, Row};
use weir_seams::workload::Outcome;

/// Longest round trip the histogram tells apart from longer ones; extremes and sum are exact beyond.
const HISTOGRAM_NS_MAX: u64 = 1 << 40;

pub static METRICS: &[Metric] = &[
    Metric {
        name: "latency.round_trip_seconds",
        unit: "s",
        better: Better::Lower,
        scope: Scope::Operation,
        definition: "One request and its reply, by the requesting program's clock. Without `rate` one request is under way on a \
            connection at a time (closed loop): from the reply before, when the request is sent, to its own reply. With `rate` \
            (open loop): from when the request was intended, the step's start + n / rate, to its reply, so that a request that \
            had to wait counts its waiting. The first warm_up_count requests of each connection, and those within warm_up of the \
            step's start, are not counted. Lost requests are not in it.",
    },
    LOST,
    generator::LATENESS,
    generator::MISSED,
];

const LOST: Metric = Metric {
    name: "latency.lost_ratio",
    unit: "1",
    better: Better::Lower,
    scope: Scope::Flow,
    definition: "Share of the counted requests sent over UDP whose reply did not come within `timeout`: lost on either way, or \
        later than that. There is none over TCP, which sends again what is lost.",
};

/// Round trips of one connection. Memory is taken when it is made, and none later.
pub struct Trips {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    answered: u64,
    lost: u64,
}

impl Trips {
    pub fn new() -> io::Result<Trips> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, HISTOGRAM_NS_MAX, 3)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        // Touches every bucket's page before the load, so that no first count pays for it.
        histogram.reset();
        Ok(Trips { histogram, min_ns: u64::MAX, max_ns: 0, sum_ns: 0, answered: 0, lost: 0 })
    }

    pub fn record(&mut self, round_trip_ns: u64) {
        self.histogram.saturating_record(round_trip_ns);
        self.min_ns = self.min_ns.min(round_trip_ns);
        self.max_ns = self.max_ns.max(round_trip_ns);
        self.sum_ns += u128::from(round_trip_ns);
        self.answered += 1;
    }
    pub fn lose(&mut self) {
        self.lost += 1;
    }
    /// Requests that count and have come to an end.
    pub fn counted(&self) -> u64 {
        self.answered + self.lost
    }

    pub fn distribution(&self) -> Option<record::Histogram> {
        let (value_ns, count) = self
            .histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
            .unzip();
        let (min_ns, max_ns, sum_ns) = (self.min_ns, self.max_ns, self.sum_ns as f64);
        (self.answered > 0).then_some(record::Histogram { value_ns, count, min_ns, max_ns, sum_ns })
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
    pub failure: Option<String>,
}

/// What `derive` needs of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyBody {
    pub asked: Vec<Asked>,
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
        if let Some(text) = failure {
            outcome.failures.push(format!("{entity}: {text}"));
        }
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
        body.asked.push(Asked { entity, answered: trips.answered, lost: trips.lost, clock });
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}
