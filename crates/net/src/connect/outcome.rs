//! What the ends of a connect step come to.

use super::plan::ConnectPlan;
use crate::latency::pingpong::Until;
use crate::latency::trips::Trips;
use crate::rendezvous;
use crate::stream::derive::TRIAL;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::failure::Failure;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::{Observed, Row};
use weir_seams::workload::{DeriveContext, Derived, Outcome};

pub const PER_SECOND: &str = "connect.per_second";
pub const TOTAL: &str = "connect.total_seconds";
pub const HANDSHAKE: &str = "connect.handshake_seconds";
pub const EXCHANGE: &str = "connect.exchange_seconds";
pub const CLOSE: &str = "connect.close_seconds";

pub static METRICS: &[Metric] = &[
    Metric::new(
        PER_SECOND,
        "1/s",
        Better::Higher,
        Scope::Trial,
        "Connections of all flows that were made, used and closed a second: those that ended in the steady state, by \
            the client's clock, divided by its length (with `count`: from the start to the end of the last). A flow makes one \
            after the other.",
    ).column(17),
    Metric::new(
        TOTAL,
        "s",
        Better::Lower,
        Scope::Operation,
        "One connection, from before its socket is made until it is closed: the sum of its phases.",
    ),
    Metric::new(
        HANDSHAKE,
        "s",
        Better::Lower,
        Scope::Operation,
        "From before the socket is made until it is connected.",
    ),
    Metric::new(
        EXCHANGE,
        "s",
        Better::Lower,
        Scope::Operation,
        "From the connection to the last byte of the response: request, the server's acceptance, response.",
    ),
    Metric::new(
        CLOSE,
        "s",
        Better::Lower,
        Scope::Operation,
        "From the response until the client's socket is closed; where the server closes first, its end is waited for.",
    ),
];

/// Lengths of the phases of a flow's connections.
pub struct Phases {
    pub handshake: Trips,
    pub exchange: Trips,
    pub close: Trips,
    pub total: Trips,
}

impl Phases {
    pub fn new() -> std::io::Result<Phases> {
        let [handshake, exchange, close, total] =
            [Trips::new()?, Trips::new()?, Trips::new()?, Trips::new()?];
        Ok(Phases { handshake, exchange, close, total })
    }
}

/// What one flow came to at its client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub entity: String,
    /// That count.
    pub connections: u64,
    /// From the agreed start to the end of the last one, ns.
    pub last_ns: u64,
    /// From the agreed start to its own end, of a flow that ended before its time.
    #[serde(default)]
    pub ended_early_ns: Option<u64>,
}

#[derive(Default)]
pub struct Report {
    pub entity: String,
    /// `None` for the server's end.
    pub made: Option<(Made, Phases)>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectBody {
    pub made: Vec<Made>,
}

/// Puts the reports of one end into its outcome.
pub fn assemble(outcome: &mut Outcome, reports: Vec<Report>) {
    let mut body = ConnectBody::default();
    for Report { entity, made, failure } in reports {
        failure.into_iter().for_each(|failure| outcome.failures.push(failure));
        let Some((made, phases)) = made else { continue };
        let all = [
            (TOTAL, phases.total),
            (HANDSHAKE, phases.handshake),
            (EXCHANGE, phases.exchange),
            (CLOSE, phases.close),
        ];
        for (metric, trips) in all {
            outcome.rows.extend(trips.distribution().map(|histogram| Row {
                entity: entity.clone(),
                metric: metric.to_owned(),
                value: Observed::Histogram(histogram),
            }));
        }
        body.made.push(made);
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}

pub fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let mut derived = Derived::default();
    let all: Vec<Made> = match rendezvous::bodies::<ConnectBody>(outcomes) {
        Ok(bodies) => bodies.into_iter().flat_map(|body| body.made).collect(),
        Err(text) => return Derived { invalid: Some(text), ..derived },
    };
    let plan = match ConnectPlan::from_values(context.values) {
        Ok(plan) => plan,
        Err(error) => {
            derived.invalid = Some(error.text);
            return derived;
        }
    };
    let seconds = match plan.until {
        Until::Duration(duration) => {
            let ended = all.iter().map(|made| made.ended_early_ns.map(Duration::from_nanos));
            let ended = ended.map(|early| early.unwrap_or(duration)).max().unwrap_or(duration);
            ended.min(duration).saturating_sub(plan.warm_up).as_secs_f64()
        }
        Until::Count(_) => all.iter().map(|made| made.last_ns).max().unwrap_or(0) as f64 / 1e9,
    };
    let connections: u64 = all.iter().map(|made| made.connections).sum();
    if seconds > 0.0 && connections > 0 {
        derived.rows.push(Row {
            entity: TRIAL.to_owned(),
            metric: PER_SECOND.to_owned(),
            value: Observed::Value(connections as f64 / seconds),
        });
    }
    let short = all.iter().find_map(|made| match plan.until {
        Until::Count(count) if made.connections != count => {
            Some(format!("{}: {} of {count} connections were made", made.entity, made.connections))
        }
        Until::Duration(duration) if made.ended_early_ns.is_some() => {
            let seconds = Duration::from_nanos(made.ended_early_ns.unwrap_or(0)).as_secs_f64();
            Some(format!("{}: it ended {seconds:.3} s after the start, of {duration:?}", made.entity))
        }
        // A long round trip may leave none; then there is nothing to tell.
        Until::Duration(_) if made.connections == 0 => {
            Some(format!("{}: no connection ended in the steady state", made.entity))
        }
        _ => None,
    });
    let broken = rendezvous::first_failure(outcomes);
    let nothing = all.is_empty().then(|| "no connection was made".to_owned());
    derived.invalid = broken.or(short).or(nothing);
    derived.warnings = rendezvous::clamped(outcomes);
    derived
}
