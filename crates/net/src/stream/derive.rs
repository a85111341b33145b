//! What no single host can know of a stream step.

use super::outcome::{ReceivedFlow, StreamBody};
use super::plan::{StreamPlan, Until};
use super::{audit, parts};
use crate::evidence::{self, TransportFacts};
use crate::generator::{self, Account};
use crate::rendezvous;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::record::{Observed, Row, Series};
use weir_core::statistics::jain;
use weir_seams::workload::{DeriveContext, Derived, FaultWindow, Outcome};

/// Of a flow of which only the sending end is left.
pub const ACKNOWLEDGED: &str = "stream.acknowledged_bits_per_second";
/// The name of trial-wide rows' entity.
pub const TRIAL: &str = "trial";
/// Measuring rule 6: a steady state that is off its planned length by more than this share of the step's planned duration
/// makes the trial invalid.
const LENGTH_TOLERANCE: f64 = 0.01;
const RECOVERED_RATIO: f64 = 0.9;
const BEFORE_NS: i64 = 1_000_000_000;
const WINDOW_NS: i64 = 100_000_000;
/// Longer than a window, so that one burst (what was lost, delivered at once) cannot be in all of them.
const STAYS_NS: i64 = 200_000_000;
const STEP_NS: i64 = 1_000_000;

/// Rows for the trial, facts for the limiting factor, and whether the trial counts. Series of the outcomes are on the
/// trial's clock, as the faults are.
pub fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let mut derived = Derived::default();
    let bodies = match rendezvous::bodies::<StreamBody>(outcomes) {
        Ok(bodies) => bodies,
        Err(text) => return Derived { invalid: Some(text), ..derived },
    };
    let received: Vec<&ReceivedFlow> = bodies.iter().flat_map(|body| &body.received).collect();
    let rates: Vec<f64> = received.iter().filter_map(|flow| Some(flow.goodput()?.0)).collect();
    let total: f64 = rates.iter().sum();
    let mut put = |metric: &str, value: f64| {
        derived.rows.push(Row {
            entity: TRIAL.to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        });
    };
    if !rates.is_empty() {
        put("stream.total_goodput_bits_per_second", total);
    }
    if let Some(jain) = jain(&rates) {
        put("stream.fairness_jain", jain);
    }
    let bytes: u64 = received.iter().map(|flow| flow.bytes).sum();
    let cpu_ns: u64 = bodies.iter().map(|body| body.cpu_ns).sum();
    if bytes > 0 {
        put("cost.cpu_seconds_per_gigabyte", cpu_ns as f64 / 1e9 / (bytes as f64 / 1e9));
    }
    let plan = StreamPlan::from_values(context.values).ok();
    // Merging the series of thousands of flows is only worth it where there is something to recover from.
    let curve = if context.faults.is_empty() { None } else { Curve::total(outcomes) };
    let last_ns = curve.as_ref().map_or(context.start_ns, Curve::end_ns);
    let end_ns = match plan.as_ref().map(|plan| plan.until) {
        Some(Until::Duration(duration)) => context.start_ns + duration.as_nanos() as i64,
        _ => last_ns,
    };
    if let Some(curve) = &curve {
        for fault in context.faults {
            if let Some(seconds) = recovery_seconds(curve, fault, context.start_ns, end_ns) {
                put("stream.recovery_seconds", seconds);
            }
        }
    }
    let mut transport = facts(&bodies, total);
    if let (Some(transport), Some(plan)) = (&mut transport, &plan) {
        audit::complete(&mut transport.window, plan, outcomes, &bodies);
    }
    derived.rows.extend(acknowledged(&bodies, &received));
    derived.rows.extend(parts::by_congestion(outcomes, &received));
    derived.rows.extend(plan.iter().flat_map(|plan| parts::by_streams(plan, outcomes)));
    let clocks: Vec<Account> = bodies
        .iter()
        .flat_map(|body| {
            let sent = body.sent.iter().filter_map(|flow| flow.clock);
            sent.chain(body.received.iter().filter_map(|flow| flow.clock))
        })
        .collect();
    (derived.load, derived.candidates) =
        evidence::of_flows(transport.as_ref(), generator::facts(&clocks, outcomes), context.around);
    derived.warnings = rendezvous::clamped(outcomes);
    derived.invalid = plan.and_then(|plan| invalid(&plan, &received, outcomes, !context.faults.is_empty()));
    derived
}

/// Of flows whose receiving end was lost: what their senders know to have arrived.
fn acknowledged(bodies: &[StreamBody], received: &[&ReceivedFlow]) -> Vec<Row> {
    let received: BTreeSet<&str> = received.iter().map(|flow| flow.entity.as_str()).collect();
    let sent = bodies.iter().flat_map(|body| &body.sent);
    let rows = sent.filter(|sent| !received.contains(sent.entity.as_str())).filter_map(|sent| {
        let [bytes, length_ns] = sent.acknowledged_bytes_ns?;
        Some(Row {
            entity: sent.entity.clone(),
            metric: ACKNOWLEDGED.to_owned(),
            value: Observed::Value(bytes as f64 * 8e9 / length_ns as f64),
        })
    });
    rows.collect()
}

pub(super) fn facts(bodies: &[StreamBody], goodput_bits_per_second: f64) -> Option<TransportFacts> {
    let mut sum = TransportFacts { goodput_bits_per_second, ..TransportFacts::default() };
    let received = bodies.iter().flat_map(|body| &body.received);
    let still: BTreeSet<&str> =
        received.filter(|flow| flow.got_nothing()).map(|flow| flow.entity.as_str()).collect();
    for flow in bodies.iter().flat_map(|body| &body.sent) {
        let facts = flow.facts?;
        // How a flow waited of which nothing arrived tells nothing of what bounded the others.
        if goodput_bits_per_second > 0.0 && still.contains(flow.entity.as_str()) {
            continue;
        }
        sum.flow_count += facts.flow_count;
        sum.observed_seconds += facts.observed_seconds;
        sum.busy_seconds += facts.busy_seconds;
        sum.receive_window_limited_seconds += facts.receive_window_limited_seconds;
        sum.send_buffer_limited_seconds += facts.send_buffer_limited_seconds;
        sum.sent_segments += facts.sent_segments;
        sum.retransmitted_segments += facts.retransmitted_segments;
        sum.duplicate_segments += facts.duplicate_segments;
        sum.rtt_seconds += facts.rtt_seconds;
        sum.source_waiting_seconds += facts.source_waiting_seconds;
        sum.application_limited_seconds += facts.application_limited_seconds;
        sum.window.min_rtt_seconds += facts.window.min_rtt_seconds;
        sum.window.offered_bytes += facts.window.offered_bytes;
        sum.window.in_flight_bytes_max += facts.window.in_flight_bytes_max;
    }
    if sum.flow_count == 0 {
        return None;
    }
    let window = &mut sum.window;
    let seen = [&mut window.min_rtt_seconds, &mut window.offered_bytes, &mut window.in_flight_bytes_max];
    for mean in seen.into_iter().chain([&mut sum.rtt_seconds]) {
        *mean /= sum.flow_count as f64;
    }
    let mut looks = 0.0;
    for flow in bodies.iter().flat_map(|body| &body.received) {
        sum.receive_observed_seconds += flow.goodput().map_or(0.0, |(_, seconds)| seconds);
        sum.receiver_waiting_seconds += flow.waited_ns as f64 / 1e9;
        if let Some([bytes, ratio]) = flow.unread {
            sum.receive_queue_bytes += bytes;
            sum.receive_queue_ratio += ratio;
            looks += 1.0;
        }
    }
    if looks > 0.0 {
        sum.receive_queue_bytes /= looks;
        sum.receive_queue_ratio /= looks;
    }
    for body in bodies {
        let (ran, waited) = (body.sender_thread_busy_ratio, body.sender_thread_wait_ratio);
        if ran + waited > sum.sender_thread_busy_ratio + sum.sender_thread_wait_ratio {
            (sum.sender_thread_busy_ratio, sum.sender_thread_wait_ratio) = (ran, waited);
        }
        let (ran, waited) = (body.receiver_thread_busy_ratio, body.receiver_thread_wait_ratio);
        if ran + waited > sum.receiver_thread_busy_ratio + sum.receiver_thread_wait_ratio {
            (sum.receiver_thread_busy_ratio, sum.receiver_thread_wait_ratio) = (ran, waited);
        }
    }
    Some(sum)
}

/// What helps where connections open and no payload passes.
const TRY: &str = ". The connections were made, so small packets pass; where large ones vanish, `weir net path` finds the \
    largest that passes, and a smaller `mss` goes round it";

/// Which way no flow got a byte in its steady state, if there is one.
fn nothing_moved(received: &[&ReceivedFlow]) -> Option<String> {
    let mut ways: BTreeMap<&str, Vec<&ReceivedFlow>> = BTreeMap::new();
    for flow in received {
        let way = flow.entity.rsplit_once('.').map_or(flow.entity.as_str(), |(way, _)| way);
        ways.entry(way).or_default().push(flow);
    }
    let (way, flows) = ways.into_iter().find(|(_, flows)| flows.iter().all(|flow| flow.got_nothing()))?;
    let seconds = flows.iter().filter_map(|flow| Some(flow.goodput()?.1)).fold(0.0, f64::max);
    Some(format!("{way}: nothing was acknowledged in {seconds:.1} s of steady state, no byte arrived{TRY}"))
}

/// Why the trial must not count, if so. What a fault cuts may well carry nothing: then `faulty`.
fn invalid(
    plan: &StreamPlan,
    received: &[&ReceivedFlow],
    outcomes: &[Outcome],
    faulty: bool,
) -> Option<String> {
    if received.is_empty() {
        return Some("no flow was received".to_owned());
    }
    for flow in received {
        let Some((_, seconds)) = flow.goodput() else {
            return Some(format!("{}: it ended before its warm-up was over", flow.entity));
        };
        if let Until::Duration(duration) = plan.until {
            let planned = (duration - plan.steady_after()).as_secs_f64();
            let tolerance = LENGTH_TOLERANCE * duration.as_secs_f64();
            if seconds < planned - tolerance || seconds > planned + tolerance + flow.slack_ns as f64 / 1e9 {
                return Some(format!(
                    "{}: measured over {seconds:.3} s where {planned:.3} s were planned (off by more than 1 % of the step)",
                    flow.entity
                ));
            }
        }
        if let Until::Bytes(bytes) = plan.until
            && flow.bytes != bytes
        {
            let tries = if flow.bytes == 0 { TRY } else { "" };
            return Some(format!("{}: {} of {bytes} bytes arrived{tries}", flow.entity, flow.bytes));
        }
    }
    if !faulty && let Some(text) = nothing_moved(received) {
        return Some(text);
    }
    rendezvous::first_failure(outcomes)
}

/// Bytes received by all flows together as a function of time, straight between samples.
struct Curve {
    points: Vec<(i64, f64)>,
}

impl Curve {
    fn total(outcomes: &[Outcome]) -> Option<Curve> {
        let mut steps: Vec<(i64, usize, f64)> = Vec::new();
        let all: Vec<&Series> = outcomes
            .iter()
            .flat_map(|outcome| &outcome.series)
            .filter(|series| series.name == "stream.received_bytes")
            .collect();
        for (flow, series) in all.iter().enumerate() {
            steps.extend(series.t_ns.iter().zip(&series.value).map(|(at, value)| (*at, flow, *value)));
        }
        if all.is_empty() || steps.is_empty() {
            return None;
        }
        let mut times: Vec<i64> = steps.iter().map(|(at, _, _)| *at).collect();
        times.sort_unstable();
        times.dedup();
        let mut points: Vec<(i64, f64)> = times.into_iter().map(|at| (at, 0.0)).collect();
        for series in all {
            let flow = Cursor::new(series);
            add(&mut points, flow);
        }
        Some(Curve { points })
    }

    fn end_ns(&self) -> i64 {
        self.points.last().map_or(0, |(at, _)| *at)
    }

    /// Bytes at `at_ns`, held before the first sample and after the last.
    fn at(&self, at_ns: i64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at <= at_ns);
        match (after.checked_sub(1).and_then(|index| self.points.get(index)), self.points.get(after)) {
            (Some(before), Some(next)) => between(*before, *next, at_ns),
            (Some(last), None) => last.1,
            (None, Some(first)) => first.1,
            (None, None) => 0.0,
        }
    }

    /// Bytes a nanosecond.
    fn rate(&self, from_ns: i64, to_ns: i64) -> f64 {
        (self.at(to_ns) - self.at(from_ns)) / (to_ns - from_ns) as f64
    }
}

fn between(before: (i64, f64), next: (i64, f64), at_ns: i64) -> f64 {
    let share = (at_ns - before.0) as f64 / (next.0 - before.0).max(1) as f64;
    before.1 + (next.1 - before.1) * share
}

/// Walks one series once while the merged times grow.
struct Cursor<'a> {
    series: &'a Series,
    next: usize,
}

impl<'a> Cursor<'a> {
    fn new(series: &'a Series) -> Self {
        Cursor { series, next: 0 }
    }
    fn at(&mut self, at_ns: i64) -> f64 {
        let (times, values) = (&self.series.t_ns, &self.series.value);
        while self.next < times.len() && times[self.next] <= at_ns {
            self.next += 1;
        }
        match (self.next.checked_sub(1), self.next < times.len()) {
            (Some(index), true) => {
                between((times[index], values[index]), (times[self.next], values[self.next]), at_ns)
            }
            (Some(index), false) => values[index],
            (None, true) => values[0],
            (None, false) => 0.0,
        }
    }
}

fn add(points: &mut [(i64, f64)], mut flow: Cursor<'_>) {
    for (at, value) in points {
        *value += flow.at(*at);
    }
}

/// As `stream.recovery_seconds` is defined. `None`: the fault is not within the step, or nothing flowed before it.
fn recovery_seconds(curve: &Curve, fault: &FaultWindow, start_ns: i64, end_ns: i64) -> Option<f64> {
    let before_ns = (fault.start_ns - BEFORE_NS).max(start_ns);
    if fault.start_ns <= before_ns || fault.end_ns >= end_ns || fault.end_ns < fault.start_ns {
        return None;
    }
    let wanted = curve.rate(before_ns, fault.start_ns) * RECOVERED_RATIO;
    if wanted <= 0.0 {
        return None;
    }
    let mut good_since = None;
    let mut at = fault.end_ns;
    while at + WINDOW_NS <= end_ns {
        if curve.rate(at, at + WINDOW_NS) >= wanted {
            let since = *good_since.get_or_insert(at);
            if at - since >= STAYS_NS {
                return Some((since - fault.end_ns) as f64 / 1e9);
            }
        } else {
            good_since = None;
        }
        at += STEP_NS;
    }
    // The step ended while it was coming back: what was seen of it was good to the end.
    let since = good_since.unwrap_or(end_ns);
    Some((since - fault.end_ns) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::SentFlow;
    use super::*;
    use std::time::Duration;
    use weir_core::evidence::Around;
    use weir_core::{Value, Values};

    const MS: i64 = 1_000_000;

    /// One flow with a sample every 10 ms; `rate` gives bytes a millisecond at each time.
    fn series(entity: &str, milliseconds: i64, rate: impl Fn(i64) -> f64) -> Series {
        let mut series = Series {
            entity: entity.to_owned(),
            name: "stream.received_bytes".to_owned(),
            ..Series::default()
        };
        let mut bytes = 0.0;
        for ms in 0..=milliseconds {
            if ms % 10 == 0 {
                series.t_ns.push(ms * MS);
                series.value.push(bytes);
            }
            bytes += rate(ms);
        }
        series
    }

    fn recovery(rate: impl Fn(i64) -> f64) -> Option<f64> {
        let outcome = Outcome { series: vec![series("flow.a.b.0", 4000, rate)], ..Outcome::default() };
        let fault = FaultWindow { name: "cut".to_owned(), start_ns: 1000 * MS, end_ns: 1300 * MS };
        recovery_seconds(&Curve::total(&[outcome]).unwrap(), &fault, 0, 4000 * MS)
    }

    #[test]
    fn recovery_is_the_time_from_the_faults_end_to_a_rate_that_stays() {
        let back = |at: i64| move |ms: i64| if (1000..at).contains(&ms) { 0.0 } else { 100.0 };
        assert!(recovery(back(1300)).unwrap() < 0.001);
        // A window of 100 ms is 90 % full 10 ms before the rate is back.
        let seconds = recovery(back(1700)).unwrap();
        assert!((0.38..=0.40).contains(&seconds), "{seconds}");
        // A short burst (what was lost, delivered at once) is not the way back.
        let burst = |ms: i64| match ms {
            1400..1410 => 2000.0,
            1000..2000 => 10.0,
            _ => 100.0,
        };
        let seconds = recovery(burst).unwrap();
        assert!((0.65..=0.70).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_rate_that_never_comes_back_gives_the_time_to_the_steps_end() {
        let seconds = recovery(|ms| if ms < 1000 { 100.0 } else { 50.0 }).unwrap();
        assert!((seconds - 2.7).abs() < 0.001, "{seconds}");
    }

    #[test]
    fn without_a_rate_before_there_is_no_way_back_to_it() {
        assert_eq!(recovery(|ms| if ms < 1300 { 0.0 } else { 100.0 }), None);
    }

    #[test]
    fn the_total_adds_flows_whose_samples_are_at_other_times() {
        let mut second = series("flow.a.b.1", 1000, |_| 50.0);
        second.t_ns.iter_mut().for_each(|at| *at += 3 * MS);
        let outcome =
            Outcome { series: vec![series("flow.a.b.0", 1000, |_| 100.0), second], ..Outcome::default() };
        let curve = Curve::total(&[outcome]).unwrap();
        assert!((curve.rate(100 * MS, 900 * MS) * 1e6 - 150.0).abs() < 0.01);
    }

    fn outcome(edges: [[u64; 2]; 2]) -> Outcome {
        let flow = ReceivedFlow {
            entity: "flow.a.b.0".to_owned(),
            bytes: 5000,
            steady_ns_bytes: Some(edges),
            waited_ns: 0,
            unread: None,
            clock: None,
            seconds: None,
            slack_ns: 0,
        };
        let body = StreamBody { cpu_ns: 1000, received: vec![flow], ..StreamBody::default() };
        Outcome { body: serde_json::to_value(body).unwrap(), ..Outcome::default() }
    }

    fn derived(length_ms: u64) -> Derived {
        derived_of(length_ms, 4000, &[])
    }

    fn derived_of(length_ms: u64, bytes: u64, faults: &[FaultWindow]) -> Derived {
        let mut values = Values::default();
        values.set("duration", Value::Duration(Duration::from_millis(1100)));
        values.set("warm_up", Value::Duration(Duration::from_millis(100)));
        let context = DeriveContext { values: &values, start_ns: 0, faults, around: &Around::default() };
        let end_ns = 100_000_000 + length_ms * 1_000_000;
        derive(&context, &[outcome([[100_000_000, 1000], [end_ns, bytes]])])
    }

    // Spec: net-protocol.md#stream-3
    #[test]
    fn a_steady_state_off_by_more_than_one_percent_of_the_step_makes_the_trial_invalid() {
        assert_eq!(derived(1000).invalid, None);
        // The step is planned to take 1.1 s, warm-up included.
        assert_eq!(derived(1010).invalid, None);
        assert_eq!(derived(990).invalid, None);
        assert!(derived(1012).invalid.unwrap().contains("1.012 s where 1.000 s were planned"));
        assert!(derived(988).invalid.is_some());
    }

    // Spec: net-protocol.md#stream-11
    #[test]
    fn a_steady_state_in_which_no_byte_arrived_does_not_count_and_says_what_to_try() {
        let why = derived_of(1000, 1000, &[]).invalid.unwrap();
        assert!(why.starts_with("flow.a.b: nothing was acknowledged in 1.0 s"), "{why}");
        assert!(why.contains("weir net path") && why.contains("mss"), "{why}");
        // An end before its time has another reason.
        assert!(derived_of(500, 1000, &[]).invalid.unwrap().contains("0.500 s"));
        // Nothing is a figure where a fault of the scenario took the rest.
        let cut = FaultWindow { name: "cut".to_owned(), start_ns: 0, end_ns: 2_000_000_000 };
        assert_eq!(derived_of(1000, 1000, &[cut]).invalid, None);
    }

    // Spec: evidence.md#order-3
    #[test]
    fn of_flows_that_moved_and_flows_that_did_not_only_the_first_tell_what_bounded_them() {
        let flow = |entity: &str, bytes: u64, limited_seconds: f64| {
            let facts = TransportFacts {
                flow_count: 1,
                observed_seconds: 1.0,
                send_buffer_limited_seconds: limited_seconds,
                ..TransportFacts::default()
            };
            let received = outcome([[0, 0], [1_000_000_000, bytes]]);
            let mut body: StreamBody = serde_json::from_value(received.body).unwrap();
            body.received[0].entity = entity.to_owned();
            let (entity, facts) = (entity.to_owned(), Some(facts));
            body.sent = vec![SentFlow { entity, bytes: 9000, facts, ..SentFlow::default() }];
            body
        };
        let bodies = [flow("flow.a.b.0", 5000, 0.0), flow("flow.a.b.1", 0, 1.0)];
        let sum = facts(&bodies, 40_000.0).unwrap();
        assert_eq!((sum.flow_count, sum.send_buffer_limited_seconds), (1, 0.0));
        assert_eq!(facts(&bodies[1..], 0.0).unwrap().flow_count, 1);
    }

    #[test]
    fn goodput_counts_the_steady_state_and_cost_the_whole_step() {
        let rows = derived(1000).rows;
        let value = |metric: &str| {
            let row = rows.iter().find(|row| row.metric == metric).unwrap();
            if let Observed::Value(value) = row.value { value } else { panic!("{row:?}") }
        };
        assert_eq!(value("stream.total_goodput_bits_per_second"), 24_000.0);
        assert!((value("cost.cpu_seconds_per_gigabyte") - 1e-6 / 5e-6).abs() < 1e-9);
    }
}
