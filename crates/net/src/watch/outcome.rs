//! From what both ends saw to what a watch says: the probes' view beside the long one.

use super::metrics::{
    BELOW, DEEPEST, PROBE, PROBE_PERIOD, PROBES_FAILED, PROBES_GOOD, SAMPLES_LOST, UNIMPAIRED,
};
use super::plan::WatchPlan;
use super::probe::Probe;
use crate::rendezvous;
use crate::stream::derive::{self, TRIAL};
use crate::stream::outcome::ReceivedFlow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::record::{Observed, Row, Series};
use weir_core::units::human;
use weir_seams::workload::{DeriveContext, Derived, Outcome};

/// Below this share of the unimpaired rate a path is not what it should be.
pub const GOOD_RATIO: f64 = 0.9;
/// Cycles of a period that telling it takes (measuring rule 8).
const CYCLES_MIN: f64 = 4.0;
/// Share of the seconds that stay below what a long flow is taken to be able to.
const BEST_SHARE: f64 = 0.95;

/// What `derive` needs of one end, beside its streams' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchBody {
    #[serde(default)]
    pub received: Vec<ReceivedFlow>,
    /// By the entity of the pair's first flow: as sent, and as received.
    #[serde(default)]
    pub probes_sent: BTreeMap<String, Vec<Probe>>,
    #[serde(default)]
    pub probes_received: BTreeMap<String, Vec<Probe>>,
    #[serde(default)]
    pub lost_samples: u64,
    #[serde(default)]
    pub stopped: bool,
}

/// All probes of one pair: those that gave a figure by the receiver's count, the others with their reason.
fn joined(sent: &[Probe], received: &[Probe]) -> Vec<Probe> {
    let by_number: BTreeMap<u32, &Probe> = received.iter().map(|probe| (probe.number, probe)).collect();
    sent.iter()
        .map(|sent| {
            let Some(received) = by_number.get(&sent.number) else {
                let text = sent.failure.clone().unwrap_or_else(|| "it never arrived".to_owned());
                return Probe { failure: Some(text), ..sent.clone() };
            };
            let failure = received.failure.clone().or_else(|| sent.failure.clone());
            // Begun by the sender's clock: both ends count from the same start.
            Probe { began_ns: sent.began_ns, failure, ..(*received).clone() }
        })
        .collect()
}

/// The longest period that a run of this length can tell.
pub fn longest_period(length: Duration) -> Duration {
    length.div_f64(CYCLES_MIN)
}

/// What is said of every short test.
pub fn remark(length: Duration) -> String {
    format!(
        "each probe of {} is too short for periods > {}: telling a period takes {CYCLES_MIN} of its cycles in one run",
        human(length.as_secs_f64(), "s"),
        human(longest_period(length).as_secs_f64(), "s")
    )
}

pub fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let plan = match WatchPlan::from_values(context.values) {
        Ok(plan) => plan,
        Err(error) => return Derived { invalid: Some(error.text), ..Derived::default() },
    };
    let bodies = match rendezvous::bodies::<WatchBody>(outcomes) {
        Ok(bodies) => bodies,
        Err(text) => return Derived { invalid: Some(text), ..Derived::default() },
    };
    let mut derived = if plan.long_flow { derive::derive(context, outcomes) } else { Derived::default() };
    let mut sent: BTreeMap<&str, &[Probe]> = BTreeMap::new();
    let mut received: BTreeMap<&str, &[Probe]> = BTreeMap::new();
    for body in &bodies {
        sent.extend(body.probes_sent.iter().map(|(entity, probes)| (entity.as_str(), probes.as_slice())));
        received
            .extend(body.probes_received.iter().map(|(entity, probes)| (entity.as_str(), probes.as_slice())));
    }
    let probes: BTreeMap<&str, Vec<Probe>> = sent
        .into_iter()
        .map(|(entity, sent)| (entity, joined(sent, received.get(entity).copied().unwrap_or_default())))
        .collect();
    let figures: Vec<f64> = probes.values().flatten().filter_map(Probe::goodput).collect();
    let watched: Vec<(&str, _)> = bodies
        .iter()
        .flat_map(|body| &body.received)
        .filter_map(|flow| Some((flow.entity.as_str(), flow.seconds.as_ref()?)))
        .collect();
    let best = watched.iter().filter_map(|(_, seconds)| seconds.quantile(BEST_SHARE));
    let best = best.chain(figures.iter().copied()).fold(0.0, f64::max);
    let unimpaired = plan.unimpaired_bits_per_second.map_or(best, |rate| rate as f64);
    let mut put = |entity: &str, metric: &str, value: f64| {
        let (entity, metric) = (entity.to_owned(), metric.to_owned());
        derived.rows.push(Row { entity, metric, value: Observed::Value(value) });
    };
    for (entity, probes) in &probes {
        for probe in probes {
            let Some(goodput) = probe.goodput() else { continue };
            put(entity, PROBE, goodput);
            let length = Duration::from_nanos(probe.length_ns);
            put(entity, PROBE_PERIOD, longest_period(length).as_secs_f64());
        }
    }
    let count = probes.values().map(Vec::len).sum::<usize>();
    if count > 0 {
        put(TRIAL, PROBES_FAILED, (count - figures.len()) as f64);
    }
    if unimpaired > 0.0 {
        put(TRIAL, UNIMPAIRED, unimpaired);
        if count > 0 {
            let good = figures.iter().filter(|rate| **rate >= unimpaired * GOOD_RATIO).count();
            put(TRIAL, PROBES_GOOD, good as f64 / count as f64);
        }
        for (entity, seconds) in &watched {
            if let Some(below) = seconds.below(unimpaired * GOOD_RATIO) {
                put(entity, BELOW, below);
                put(entity, DEEPEST, seconds.least_bits_per_second / unimpaired);
            }
        }
    }
    let mut lost = 0;
    for (outcome, body) in outcomes.iter().zip(&bodies).filter(|(_, body)| body.lost_samples > 0) {
        put(&format!("host.{}", outcome.host), SAMPLES_LOST, body.lost_samples as f64);
        lost += body.lost_samples;
    }
    for (entity, probes) in &probes {
        let begun =
            probes.iter().filter_map(|probe| Some((context.start_ns + probe.began_ns, probe.goodput()?)));
        let (t_ns, value): (Vec<i64>, Vec<f64>) = begun.unzip();
        if !value.is_empty() {
            let (entity, name) = ((*entity).to_owned(), PROBE.to_owned());
            let unit = "bit/s".to_owned();
            derived.series.push(Series { entity, name, unit, cumulative: false, t_ns, value });
        }
        for probe in probes.iter().filter(|probe| probe.failure.is_some()).take(3) {
            let reason = probe.failure.as_deref().unwrap_or_default();
            derived.warnings.push(format!("{entity}: probe {} gave no figure: {reason}", probe.number));
        }
    }
    if plan.probe_every.is_some() {
        derived.warnings.push(remark(plan.probe_duration));
    }
    if lost > 0 {
        derived
            .warnings
            .push(format!("{lost} samples of the fine series are missing: nobody carried them away in time"));
    }
    let stopped = bodies.iter().any(|body| body.stopped);
    let broken = rendezvous::first_failure(outcomes);
    if !plan.long_flow {
        derived.warnings.extend(rendezvous::clamped(outcomes));
        derived.invalid = broken.or_else(|| figures.is_empty().then(|| "no probe gave a figure".to_owned()));
    } else if stopped {
        // Off its planned length, as it was told to be.
        let steady = bodies.iter().flat_map(|body| &body.received).all(|flow| flow.goodput().is_some());
        derived.invalid =
            broken.or_else(|| (!steady).then(|| "it was stopped before its warm-up was over".to_owned()));
    }
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::evidence::Around;
    use weir_core::{Value, Values};

    fn probe(number: u32, bytes: u64, failure: Option<&str>) -> Probe {
        let failure = failure.map(str::to_owned);
        Probe { number, began_ns: i64::from(number) * 73, bytes, length_ns: 10_000_000_000, failure }
    }

    // Spec: net-protocol.md#watch-5
    // Spec: net-protocol.md#watch-6
    #[test]
    fn the_probes_view_counts_failed_ones_and_every_run_says_what_it_cannot_see() {
        let mut values = Values::default();
        values.set("duration", Value::Duration(Duration::from_secs(300)));
        values.set("probe_every", Value::Duration(Duration::from_secs(73)));
        values.set("long_flow", Value::Flag(false));
        let entity = "flow.a.b.0".to_owned();
        let sent = [probe(0, 0, None), probe(1, 0, None), probe(2, 0, None), probe(3, 0, Some("refused"))];
        // 800, 780 and 400 Mbit/s.
        let received =
            [probe(0, 1_000_000_000, None), probe(1, 975_000_000, None), probe(2, 500_000_000, None)];
        let outcome = |host: &str, body: WatchBody| Outcome {
            host: host.to_owned(),
            body: serde_json::to_value(body).unwrap(),
            ..Outcome::default()
        };
        let outcomes = [
            outcome(
                "a",
                WatchBody { probes_sent: [(entity.clone(), sent.to_vec())].into(), ..WatchBody::default() },
            ),
            outcome(
                "b",
                WatchBody { probes_received: [(entity, received.to_vec())].into(), ..WatchBody::default() },
            ),
        ];
        let context =
            DeriveContext { values: &values, start_ns: 1_000, faults: &[], around: &Around::default() };
        let derived = derive(&context, &outcomes);
        assert_eq!(derived.invalid, None);
        let of = |metric: &str| -> Vec<f64> {
            let rows = derived.rows.iter().filter(|row| row.metric == metric);
            rows.map(|row| if let Observed::Value(value) = row.value { value } else { f64::NAN }).collect()
        };
        assert_eq!(of(PROBE), [800e6, 780e6, 400e6]);
        assert_eq!((of(PROBES_GOOD), of(PROBES_FAILED)), (vec![0.5], vec![1.0]));
        assert_eq!(of(PROBE_PERIOD), [2.5; 3]);
        assert_eq!(derived.series[0].t_ns, [1_000, 1_073, 1_146]);
        let said = derived.warnings.join("\n");
        assert!(said.contains("too short for periods > 2.5 s"), "{said}");
        assert!(said.contains("probe 3 gave no figure: refused"), "{said}");
    }
}
