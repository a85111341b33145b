//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_sys::clock::monotonic;

// Spec: net-protocol.md#latency-2
#[test]
fn every_round_trip_asked_for_is_counted_once_and_the_warm_up_is_not() {
    let mut values = Values::defaults(PARAMS);
    values.set("count", Value::Count(200));
    let pairs = vec![(peer("a"), peer("b")), (peer("c"), peer("b"))];
    let request = StepRequest { step: "idle", values: &values, pairs, key: KEY };
    let tasks = prepare_all(&Latency, Latency.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(20));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let rows: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.rows).collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let Observed::Histogram(histogram) = &row.value else { panic!("{row:?}") };
        assert_eq!(histogram.count.iter().sum::<u64>(), 200);
        assert!(histogram.min_ns > 0 && histogram.min_ns <= histogram.max_ns);
        assert!(histogram.sum_ns >= 200.0 * histogram.min_ns as f64);
    }
    assert_eq!(control.progress(), 2 * 210);
    let context = DeriveContext { values: &values, start_ns: 0, faults: &[] };
    assert_eq!(Latency.derive(&context, &outcomes).invalid, None);
}
