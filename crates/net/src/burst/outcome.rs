//! What the ends of a burst step come to, and what follows from both of them.

use super::metrics::{CLOCK, COMPLETION, CONNECT, DISCONNECT, FIRST_BYTE, GOODPUT, SPREAD};
use super::plan::{BurstPlan, Connection, Reply};
use crate::generator::{self, Account, Lateness, Ticks};
use crate::latency::trips::Trips;
use crate::offset::Offset;
use crate::rendezvous;
use crate::stream::derive::TRIAL;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_core::failure::Failure;
use weir_core::record::{Observed, Row, Series};
use weir_seams::workload::{DeriveContext, Derived, Outcome};

/// Bursts of a flow that are recorded one by one; more of them as a distribution.
const ROWS_MAX: usize = 1_000;

/// Times in ns from the start that was agreed, by the end's own clock; lengths where they say so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SentFlow {
    pub entity: String,
    /// The agreed start on this end's clock.
    pub start_ns: u64,
    /// One for each burst, as intended or as it was.
    pub began_ns: Vec<i64>,
    /// Of the reply; empty where there is none.
    pub first_ns: Vec<i64>,
    pub done_ns: Vec<i64>,
    /// Lengths, one for each connection made.
    pub connect_ns: Vec<i64>,
    /// When both sides of a burst's connection were closed, and how long that took.
    pub closed_ns: Vec<i64>,
    pub disconnect_ns: Vec<i64>,
    /// The receiver's clock.
    pub clock: Option<Offset>,
    /// Of `every`.
    pub account: Option<Account>,
}

impl SentFlow {
    /// With room for every burst, so that none waits for memory.
    pub fn new(entity: String, start_ns: u64, plan: &BurstPlan) -> SentFlow {
        let room = |wanted: bool| Vec::with_capacity(if wanted { plan.bursts() as usize } else { 0 });
        let (replies, each) = (plan.reply != Reply::None, plan.connection == Connection::PerBurst);
        SentFlow {
            entity,
            start_ns,
            began_ns: room(true),
            first_ns: room(replies),
            done_ns: room(replies),
            connect_ns: room(each),
            closed_ns: room(each),
            disconnect_ns: room(each),
            ..SentFlow::default()
        }
    }
}

/// As `SentFlow`, at the receiving end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceivedFlow {
    pub entity: String,
    pub start_ns: u64,
    /// Of each burst.
    pub first_ns: Vec<i64>,
    pub last_ns: Vec<i64>,
}

impl ReceivedFlow {
    pub fn new(entity: String, start_ns: u64, plan: &BurstPlan) -> ReceivedFlow {
        let room = || Vec::with_capacity(plan.bursts() as usize);
        ReceivedFlow { entity, start_ns, first_ns: room(), last_ns: room() }
    }
}

/// What one flow came to at one of its ends.
#[derive(Default)]
pub struct Report {
    pub entity: String,
    pub sent: Option<SentFlow>,
    pub received: Option<ReceivedFlow>,
    pub lateness: Option<(Lateness, Ticks)>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstBody {
    pub sent: Vec<SentFlow>,
    pub received: Vec<ReceivedFlow>,
}

/// Puts the reports of one end into its outcome.
pub fn assemble(outcome: &mut Outcome, reports: Vec<Report>) {
    let mut body = BurstBody::default();
    for Report { entity, sent, received, lateness, failure } in reports {
        failure.into_iter().for_each(|failure| outcome.failures.push(failure));
        if let Some((lateness, _)) = lateness {
            outcome.rows.extend(lateness.rows(&entity));
        }
        body.sent.extend(sent);
        body.received.extend(received);
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}

/// One flow's bursts by the sender's clock, those that count: beginnings from the start, and lengths, ns.
struct Bursts {
    entity: String,
    began_ns: Vec<i64>,
    completion_ns: Vec<i64>,
    first_byte_ns: Vec<i64>,
}

impl Bursts {
    fn of(plan: &BurstPlan, sent: &SentFlow, received: Option<&ReceivedFlow>) -> Bursts {
        // What the receiver's times have to be shifted by.
        let shift_ns = received.zip(sent.clock).map(|(received, clock)| {
            let starts = i128::from(received.start_ns) - i128::from(sent.start_ns);
            (starts - i128::from(clock.offset_ns)) as i64
        });
        let seen = |times: &[i64], number: usize| times.get(number).copied();
        let there = |times: fn(&ReceivedFlow) -> &[i64], number: usize| {
            Some(seen(times(received?), number)? + shift_ns?)
        };
        let mut bursts = Bursts {
            entity: sent.entity.clone(),
            began_ns: Vec::new(),
            completion_ns: Vec::new(),
            first_byte_ns: Vec::new(),
        };
        for (number, began_ns) in sent.began_ns.iter().enumerate().skip(plan.warm_up_count as usize) {
            let (first, last) = match plan.reply {
                Reply::None => (
                    there(|received| &received.first_ns, number),
                    there(|received| &received.last_ns, number),
                ),
                _ => (seen(&sent.first_ns, number), seen(&sent.done_ns, number)),
            };
            let last = if plan.disconnect_timed { seen(&sent.closed_ns, number) } else { last };
            let (Some(first), Some(last)) = (first, last) else { continue };
            bursts.began_ns.push(*began_ns);
            bursts.first_byte_ns.push(first - began_ns);
            bursts.completion_ns.push(last - began_ns);
        }
        bursts
    }
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// One row a value, or all of them as a distribution where there are many.
fn rows(entity: &str, metric: &str, values_ns: &[i64]) -> Vec<Row> {
    let row = |value| Row { entity: entity.to_owned(), metric: metric.to_owned(), value };
    if values_ns.len() <= ROWS_MAX {
        return values_ns.iter().map(|value| row(Observed::Value(seconds(*value)))).collect();
    }
    let Ok(mut trips) = Trips::new() else { return Vec::new() };
    // A length below zero is a clock's doubt; it is shown where lengths are shown one by one.
    values_ns.iter().for_each(|value| trips.record(u64::try_from(*value).unwrap_or(0)));
    trips.distribution().map(|distribution| row(Observed::Histogram(distribution))).into_iter().collect()
}

/// (slowest - fastest) / mean of each repetition that all flows have.
fn spreads(all: &[Bursts]) -> Vec<f64> {
    let count = all.iter().map(|bursts| bursts.completion_ns.len()).min().unwrap_or(0);
    if all.len() < 2 || count > ROWS_MAX {
        return Vec::new();
    }
    (0..count)
        .filter_map(|number| {
            let times: Vec<f64> = all.iter().map(|bursts| seconds(bursts.completion_ns[number])).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let slowest = times.iter().copied().fold(f64::MIN, f64::max);
            let fastest = times.iter().copied().fold(f64::MAX, f64::min);
            (mean > 0.0).then(|| (slowest - fastest) / mean)
        })
        .collect()
}

pub fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let mut derived = Derived::default();
    let plan = match BurstPlan::from_values(context.values) {
        Ok(plan) => plan,
        Err(error) => {
            derived.invalid = Some(error.text);
            return derived;
        }
    };
    let (mut all_sent, mut all_received) = (Vec::new(), BTreeMap::new());
    let bodies = match rendezvous::bodies::<BurstBody>(outcomes) {
        Ok(bodies) => bodies,
        Err(text) => return Derived { invalid: Some(text), ..derived },
    };
    for body in bodies {
        all_sent.extend(body.sent);
        all_received.extend(body.received.into_iter().map(|flow| (flow.entity.clone(), flow)));
    }
    let mut missing = None;
    let mut all = Vec::with_capacity(all_sent.len());
    for sent in &all_sent {
        let bursts = Bursts::of(&plan, sent, all_received.get(&sent.entity));
        let entity = &bursts.entity;
        if bursts.completion_ns.len() as u64 != plan.repetitions {
            let count = bursts.completion_ns.len();
            missing.get_or_insert(format!("{entity}: {count} of {} bursts were measured", plan.repetitions));
        }
        derived.rows.extend(rows(entity, COMPLETION, &bursts.completion_ns));
        derived.rows.extend(rows(entity, FIRST_BYTE, &bursts.first_byte_ns));
        let warm_up = plan.warm_up_count as usize;
        // A single connection belongs to no burst that counts, unless the first does.
        derived.rows.extend(rows(entity, CONNECT, sent.connect_ns.get(warm_up..).unwrap_or(&[])));
        derived.rows.extend(rows(entity, DISCONNECT, sent.disconnect_ns.get(warm_up..).unwrap_or(&[])));
        let mut put = |metric: &str, value: f64| {
            let metric = metric.to_owned();
            derived.rows.push(Row { entity: entity.clone(), metric, value: Observed::Value(value) });
        };
        if bursts.completion_ns.len() <= ROWS_MAX {
            for length in bursts.completion_ns.iter().filter(|length| **length > 0) {
                put(GOODPUT, plan.size_bytes as f64 * 8.0 / seconds(*length));
            }
        }
        if let Some(clock) = sent.clock {
            put(CLOCK, clock.uncertainty_ns as f64 / 1e9);
        }
        derived.series.push(Series {
            entity: entity.clone(),
            name: COMPLETION.to_owned(),
            unit: "s".to_owned(),
            cumulative: false,
            t_ns: bursts.began_ns.iter().map(|began| context.start_ns + began).collect(),
            value: bursts.completion_ns.iter().map(|length| seconds(*length)).collect(),
        });
        all.push(bursts);
    }
    for spread in spreads(&all) {
        derived.rows.push(Row {
            entity: TRIAL.to_owned(),
            metric: SPREAD.to_owned(),
            value: Observed::Value(spread),
        });
    }
    let clocks: Vec<Account> = all_sent.iter().filter_map(|sent| sent.account).collect();
    derived.load.generator = generator::facts(&clocks, outcomes);
    derived.warnings = rendezvous::clamped(outcomes);
    let broken = rendezvous::first_failure(outcomes);
    let nothing = all_sent.is_empty().then(|| "no burst was sent".to_owned());
    derived.invalid = broken.or(missing).or(nothing);
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Values;

    fn plan(more: impl Fn(&mut BurstPlan)) -> BurstPlan {
        let mut plan = BurstPlan::from_values(&Values::default()).unwrap();
        more(&mut plan);
        plan
    }

    fn sent(entity: &str) -> SentFlow {
        SentFlow {
            entity: entity.to_owned(),
            start_ns: 1_000,
            began_ns: vec![0, 100, 200],
            clock: Some(Offset { offset_ns: 50_000, uncertainty_ns: 7 }),
            ..SentFlow::default()
        }
    }

    // Spec: net-protocol.md#burst-2
    #[test]
    fn a_burst_without_reply_ends_at_the_receiver_by_the_senders_clock() {
        // The receiver's clock is 50 us ahead, and its start was 500 ns later than the sender's.
        let received = ReceivedFlow {
            entity: "flow.a.b.0".to_owned(),
            start_ns: 51_500,
            first_ns: vec![-490, -390, -290],
            last_ns: vec![-460, -350, -240],
        };
        let plan = plan(|plan| plan.warm_up_count = 1);
        let bursts = Bursts::of(&plan, &sent("flow.a.b.0"), Some(&received));
        assert_eq!(bursts.began_ns, [100, 200]);
        assert_eq!(bursts.first_byte_ns, [10, 10]);
        assert_eq!(bursts.completion_ns, [50, 60]);
    }

    // Spec: net-protocol.md#burst-2
    #[test]
    fn a_burst_with_a_reply_ends_with_it_and_with_its_connection_where_that_is_asked() {
        let mut sent = sent("flow.a.b.0");
        (sent.first_ns, sent.done_ns) = (vec![30, 130, 230], vec![40, 145, 250]);
        sent.closed_ns = vec![60, 165, 270];
        let with = |timed: bool| {
            plan(|plan| {
                (plan.reply, plan.connection, plan.disconnect_timed) =
                    (Reply::Ack, Connection::PerBurst, timed);
            })
        };
        assert_eq!(Bursts::of(&with(false), &sent, None).completion_ns, [40, 45, 50]);
        assert_eq!(Bursts::of(&with(true), &sent, None).completion_ns, [60, 65, 70]);
        assert_eq!(Bursts::of(&with(true), &sent, None).first_byte_ns, [30, 30, 30]);
    }

    #[test]
    fn spread_compares_the_flows_of_one_repetition() {
        let bursts = |lengths: [i64; 2]| Bursts {
            entity: "flow.a.b.0".to_owned(),
            began_ns: vec![0, 0],
            completion_ns: lengths.to_vec(),
            first_byte_ns: vec![0, 0],
        };
        let all = [bursts([100, 400]), bursts([100, 200]), bursts([100, 300])];
        assert_eq!(spreads(&all), [0.0, 2.0 / 3.0]);
        assert_eq!(spreads(&all[..1]), [0.0; 0]);
    }

    // Spec: net-protocol.md#burst-6
    #[test]
    fn many_bursts_are_kept_as_a_distribution() {
        let many: Vec<i64> = (1..=2_000).map(|number| number * 1_000).collect();
        let made = rows("flow.a.b.0", COMPLETION, &many);
        let [Row { value: Observed::Histogram(histogram), .. }] = made.as_slice() else { panic!("{made:?}") };
        assert_eq!(histogram.count.iter().sum::<u64>(), 2_000);
        assert_eq!(histogram.max_ns, 2_000_000);
        assert_eq!(rows("flow.a.b.0", COMPLETION, &many[..3]).len(), 3);
    }
}
