//! Streams of a pair that differ: in when they start, in their congestion control.

use super::*;

/// When the first byte of each flow came, seconds after the start, in the order of the flows' names.
fn first_bytes(outcomes: &[Outcome]) -> Vec<f64> {
    let all = outcomes.iter().flat_map(|outcome| &outcome.series);
    let mut firsts: Vec<(&str, f64)> = all
        .filter(|series| series.name == "stream.received_bytes")
        .map(|series| {
            let first = series.value.iter().position(|bytes| *bytes > 0.0).unwrap();
            (series.entity.as_str(), (series.t_ns[first] - series.t_ns[0]) as f64 / 1e9)
        })
        .collect();
    firsts.sort_by(|one, other| one.0.cmp(other.0));
    firsts.into_iter().map(|(_, at)| at).collect()
}

// Spec: net-protocol.md#ramp-1, net-protocol.md#ramp-2
#[test]
fn streams_of_a_ramp_start_one_after_the_other_and_the_steady_state_follows_the_last() {
    for source_rate in [None, Some(rate(80_000_000))] {
        let mut values = values(&[
            ("duration", Value::Duration(Duration::from_millis(900))),
            ("warm_up", Value::Duration(Duration::from_millis(100))),
            ("ramp", Value::Duration(Duration::from_millis(200))),
            ("streams", Value::Count(3)),
            ("direction", Value::Text("both".to_owned())),
            ("block", Value::Size(Bytes(10_000))),
        ]);
        if let Some(rate) = source_rate {
            values.set("source_rate", rate);
        }
        let (outcomes, derived) = run(&values, &[("a", "b")]);
        let at = first_bytes(&outcomes);
        assert_eq!(at.len(), 6);
        for (flow, at) in at.iter().enumerate() {
            let planned = 0.2 * (flow % 3) as f64;
            // A machine that is elsewhere makes it later, never earlier.
            assert!(*at >= planned && *at < 0.9, "flow {flow} began after {at} s");
        }
        for outcome in &outcomes {
            let body: outcome::StreamBody = serde_json::from_value(outcome.body.clone()).unwrap();
            for flow in body.received {
                let [[from, _], [to, _]] = flow.steady_ns_bytes.unwrap();
                let after = [from, to].map(|edge| edge.saturating_sub(outcome.started_ns) / 1_000_000);
                // The first look at or after each edge.
                assert!((500..900).contains(&after[0]) && after[1] >= 900, "{}: {after:?}", flow.entity);
            }
        }
        let stages: Vec<&str> = derived
            .rows
            .iter()
            .filter(|row| row.metric == "stream.ramp_goodput_bits_per_second")
            .map(|row| row.entity.as_str())
            .collect();
        assert_eq!(stages, ["streams.1", "streams.2", "streams.3"]);
    }
}

// Spec: net-protocol.md#mix-1, net-protocol.md#mix-2
#[test]
fn the_streams_of_a_mix_have_its_congestion_controls_in_turn_at_both_ends() {
    let tcp = |mix: &str| Value::Table([("congestion".to_owned(), Value::Text(mix.to_owned()))].into());
    let mixed = |mix: &str| {
        values(&[
            ("duration", Value::Duration(Duration::from_millis(300))),
            ("streams", Value::Count(3)),
            ("tcp", tcp(mix)),
        ])
    };
    let (outcomes, derived) = run(&mixed("reno+cubic"), &[("a", "b")]);
    let granted = |end: &str| {
        let of_flow = outcomes.iter().find_map(|outcome| outcome.granted.get(end)).unwrap();
        of_flow["congestion"].as_str().unwrap().to_owned()
    };
    for (flow, name) in ["reno", "cubic", "reno"].iter().enumerate() {
        for end in ["sender", "receiver"] {
            assert_eq!(granted(&format!("flow.a.b.{flow}.{end}")), *name);
        }
    }
    let parts: Vec<(&str, f64)> = derived
        .rows
        .iter()
        .filter(|row| row.metric == "stream.congestion_goodput_bits_per_second")
        .map(|row| match row.value {
            Observed::Value(value) => (row.entity.as_str(), value),
            Observed::Histogram(_) => panic!("{row:?}"),
        })
        .collect();
    assert_eq!(parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["cubic", "reno"]);
    let sum: f64 = parts.iter().map(|(_, part)| part).sum();
    let total = value(&derived, "stream.total_goodput_bits_per_second");
    assert!((sum / total - 1.0).abs() < 1e-9, "{sum} of {total}");
    // A name that is not there is refused before anything moves, wherever in the mix it stands.
    let values = mixed("reno+cubic+nosuchcc");
    let pairs = vec![(peer("a"), peer("b"))];
    let request = StepRequest { step: "load", seed: 1, values: &values, pairs, roles: Vec::new(), key: KEY };
    let refused = Stream.prepare(&Stream.assignments(&request)[0]).err().unwrap();
    assert!(refused.text.contains("\"nosuchcc\" is not available"), "{}", refused.text);
}
