//! Parts of a step's goodput that are told apart: what ran under each congestion control, and with how many streams.

use super::outcome::ReceivedFlow;
use super::plan::{StreamPlan, Until};
use std::collections::BTreeMap;
use weir_core::record::{Observed, Row};
use weir_core::scenario::plan::ramp_length;
use weir_seams::workload::Outcome;
use weir_transport::tcp_options::is_congestion_name;

fn row(entity: String, metric: &str, value: f64) -> Row {
    Row { entity, metric: metric.to_owned(), value: Observed::Value(value) }
}

/// Goodput of the steady state summed over the flows of each congestion control, as granted to their senders; nothing where all have the same.
// Spec: net-protocol.md#mix-2
pub fn by_congestion(outcomes: &[Outcome], received: &[&ReceivedFlow]) -> Vec<Row> {
    let mut of_flow: BTreeMap<&str, &str> = BTreeMap::new();
    for (end, granted) in outcomes.iter().flat_map(|outcome| &outcome.granted) {
        if let (Some(flow), Some(name)) = (end.strip_suffix(".sender"), granted["congestion"].as_str())
            && is_congestion_name(name)
        {
            of_flow.insert(flow, name);
        }
    }
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for flow in received {
        if let (Some(name), Some((goodput, _))) = (of_flow.get(flow.entity.as_str()), flow.goodput()) {
            *sums.entry(name).or_default() += goodput;
        }
    }
    if sums.len() < 2 {
        return Vec::new();
    }
    let metric = "stream.congestion_goodput_bits_per_second";
    sums.into_iter().map(|(name, sum)| row(name.to_owned(), metric, sum)).collect()
}

/// Goodput of all flows together from the start of each stream to that of the next, and from the last to the planned end. Each
/// receiver's series begins at the step's start by its own clock.
// Spec: net-protocol.md#ramp-3
pub fn by_streams(plan: &StreamPlan, outcomes: &[Outcome]) -> Vec<Row> {
    let Until::Duration(duration) = plan.until else { return Vec::new() };
    if plan.ramp.is_zero() || plan.streams < 2 {
        return Vec::new();
    }
    let after = |count: u64| ramp_length(plan.ramp, count).as_nanos() as i64;
    let series = || outcomes.iter().flat_map(|outcome| &outcome.series);
    let mut rows = Vec::new();
    for count in 1..=plan.streams {
        let end_ns = if count == plan.streams { duration.as_nanos() as i64 } else { after(count + 1) };
        let start_ns = after(count);
        let received = series().filter(|series| series.name == "stream.received_bytes");
        let bytes: f64 = received
            .filter_map(|series| {
                let begun_ns = *series.t_ns.first()?;
                let after_begin = |after_ns: i64| begun_ns.saturating_add(after_ns);
                Some(series.growth_between(after_begin(start_ns), after_begin(end_ns)))
            })
            .sum();
        let rate = bytes * 8e9 / (end_ns - start_ns) as f64;
        rows.push(row(format!("streams.{count}"), "stream.ramp_goodput_bits_per_second", rate));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;
    use weir_core::record::Series;
    use weir_core::{Value, Values};

    fn told(rows: Vec<Row>) -> Vec<(String, f64)> {
        let value = |row: Row| match row.value {
            Observed::Value(value) => (row.entity, value.round()),
            Observed::Histogram(_) => panic!("{row:?}"),
        };
        rows.into_iter().map(value).collect()
    }

    fn flow(entity: &str, bytes: u64) -> ReceivedFlow {
        ReceivedFlow {
            entity: entity.to_owned(),
            bytes,
            steady_ns_bytes: Some([[0, 0], [1_000_000_000, bytes]]),
            waited_ns: 0,
            unread: None,
            slack_ns: 0,
            clock: None,
            seconds: None,
        }
    }

    // Spec: net-protocol.md#mix-2
    #[test]
    fn goodput_is_summed_by_the_control_that_each_sender_was_granted() {
        let mut outcome = Outcome::default();
        for (end, name) in
            [("0.sender", "cubic"), ("1.sender", "bbr"), ("2.sender", "cubic"), ("1.receiver", "cubic")]
        {
            outcome.granted.insert(format!("flow.a.b.{end}"), json!({ "congestion": name }));
        }
        let flows = [flow("flow.a.b.0", 1000), flow("flow.a.b.1", 100), flow("flow.a.b.2", 10)];
        let all: Vec<&ReceivedFlow> = flows.iter().collect();
        let rows = by_congestion(&[outcome.clone()], &all);
        assert_eq!(told(rows), [("bbr".to_owned(), 800.0), ("cubic".to_owned(), 8080.0)]);
        // Where all have the same it would only repeat the total.
        assert_eq!(by_congestion(&[outcome], &all[..1]), Vec::new());
    }

    // Spec: net-protocol.md#ramp-3
    #[test]
    fn each_stage_of_a_ramp_has_the_total_of_the_flows_that_ran() {
        let mut values = Values::default();
        values.set("duration", Value::Duration(Duration::from_secs(5)));
        values.set("ramp", Value::Duration(Duration::from_secs(1)));
        values.set("streams", Value::Count(3));
        let plan = StreamPlan::from_values(&values).unwrap();
        // Stream k carries 1000 B/s from its start on; the clocks of the ends differ.
        let series = |number: i64, start_ns: i64| Series {
            name: "stream.received_bytes".to_owned(),
            t_ns: [0, number, 5].iter().map(|second| start_ns + second * 1_000_000_000).collect(),
            value: vec![0.0, 0.0, (5 - number) as f64 * 1000.0],
            ..Series::default()
        };
        let outcome =
            |number: i64| Outcome { series: vec![series(number, number * 77)], ..Outcome::default() };
        let rows = by_streams(&plan, &[outcome(0), outcome(1), outcome(2)]);
        let of = |count: u32, rate: f64| (format!("streams.{count}"), rate);
        assert_eq!(told(rows), [of(1, 8000.0), of(2, 16_000.0), of(3, 24_000.0)]);
        let without = StreamPlan { ramp: Duration::ZERO, ..plan };
        assert_eq!(by_streams(&without, &[outcome(0)]), Vec::new());
    }
}
