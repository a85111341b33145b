//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use metrics::{BELOW, DEEPEST, PROBE, PROBES_FAILED, SAMPLES};
use weir_core::chunk::{Chunk, RECEIVED, SETS, TCP_INFO};
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::{Observed, Row};
use weir_core::{BitsPerSecond, Bytes};
use weir_sys::clock::monotonic;

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn ms(count: u64) -> Value {
    Value::Duration(Duration::from_millis(count))
}

fn paced() -> Value {
    let tcp = [("pacing".to_owned(), Value::Rate(BitsPerSecond(20_000_000)))];
    Value::Table(tcp.into_iter().collect())
}

/// What came of a run, and the chunks that it handed on; `stop_after` sends a stop.
fn run(values: &Values, stop_after: Option<Duration>) -> (Vec<Outcome>, Derived, Vec<Chunk>) {
    let pairs = vec![(peer("a"), peer("b"))];
    let request = StepRequest { step: "watch", seed: 1, values, pairs, roles: Vec::new(), key: KEY };
    let tasks = prepare_all(&Watch, Watch.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    control.record();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        if let Some(pause) = stop_after {
            let control = &control;
            scope.spawn(move || {
                std::thread::sleep(pause);
                control.stop();
            });
        }
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect()
    });
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = Watch.derive(&context, &outcomes);
    let queue = control.chunks().unwrap();
    let chunks = std::iter::from_fn(|| queue.next()).collect();
    (outcomes, derived, chunks)
}

fn all(outcomes: &[Outcome], derived: &Derived, metric: &str) -> Vec<f64> {
    let rows = outcomes.iter().flat_map(|outcome| &outcome.rows).chain(&derived.rows);
    let value = |row: &Row| if let Observed::Value(value) = row.value { Some(value) } else { None };
    rows.filter(|row| row.metric == metric).filter_map(value).collect()
}

// Spec: net-protocol.md#watch-1
// Spec: net-protocol.md#watch-4
#[test]
fn a_paced_flow_is_recorded_in_full_at_both_ends_while_probes_come_and_go() {
    let values = values(&[
        ("duration", ms(2_500)),
        ("interval", ms(10)),
        ("block", Value::Size(Bytes(16 << 10))),
        ("probe_every", ms(700)),
        ("probe_duration", ms(200)),
        ("tcp", paced()),
    ]);
    let (outcomes, derived, chunks) = run(&values, None);
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    assert_eq!(all(&outcomes, &derived, PROBE).len(), 4, "{derived:?}");
    assert_eq!(all(&outcomes, &derived, PROBES_FAILED), [0.0]);
    assert_eq!(all(&outcomes, &derived, BELOW).len(), 1);
    assert_eq!(all(&outcomes, &derived, DEEPEST).len(), 1);
    let of = |set: &str| {
        let mut samples: Vec<(i64, Vec<Option<u64>>)> = Vec::new();
        for chunk in chunks.iter().filter(|chunk| chunk.fields == set) {
            let set = SETS.iter().find(|set| set.name == chunk.fields).unwrap();
            chunk.unpack(set.fields.len(), |at, values| samples.push((at, values.to_vec()))).unwrap();
        }
        samples
    };
    let (sent, received) = (of(TCP_INFO.name), of(RECEIVED.name));
    for samples in [&sent, &received] {
        assert!(samples.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(samples.len() > 20, "{}", samples.len());
    }
    // Every sample that was taken is there, and the last says what the flow carried.
    assert_eq!(all(&outcomes, &derived, SAMPLES), [sent.len() as f64]);
    let carried = outcomes.iter().find_map(|it| it.body["received"].get(0)?["bytes"].as_u64()).unwrap();
    assert_eq!(received.last().unwrap().1, [Some(carried)]);
    let place = TCP_INFO.position("bytes_acked_bytes").unwrap();
    assert!(sent.last().unwrap().1[place].is_some_and(|acked| acked > 0));
}

// Spec: net-protocol.md#watch-4
#[test]
fn probes_alone_make_a_connection_each_and_a_stop_keeps_what_was_measured() {
    let values = values(&[
        ("duration", ms(60_000)),
        ("long_flow", Value::Flag(false)),
        ("probe_every", ms(400)),
        ("probe_duration", ms(200)),
    ]);
    let (outcomes, derived, chunks) = run(&values, Some(Duration::from_millis(1_400)));
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    let probes = all(&outcomes, &derived, PROBE);
    assert!((1..=4).contains(&probes.len()) && probes.iter().all(|rate| *rate > 0.0), "{derived:?}");
    assert!(all(&outcomes, &derived, "stream.total_goodput_bits_per_second").is_empty());
    assert_eq!(chunks, []);
}

#[test]
fn a_second_of_a_flow_that_nobody_takes_away_still_ends_with_its_figures() {
    let values = values(&[("duration", ms(1_200)), ("tcp", paced())]);
    let pairs = vec![(peer("a"), peer("b"))];
    let request = StepRequest { step: "watch", seed: 1, values: &values, pairs, roles: Vec::new(), key: KEY };
    let tasks = prepare_all(&Watch, Watch.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> = run_all(tasks, &control).into_iter().map(Result::unwrap).collect();
    let derived = Watch.derive(
        &DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() },
        &outcomes,
    );
    assert_eq!(derived.invalid, None);
    assert_eq!(all(&outcomes, &derived, BELOW).len(), 1);
    assert!(control.chunks().is_none());
}
