//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use outcome::{CLOSE, EXCHANGE, HANDSHAKE, PER_SECOND, TOTAL};
use weir_core::Bytes;
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_sys::clock::monotonic;

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn run(values: &Values) -> (Vec<Outcome>, Derived) {
    let pairs = vec![(peer("a"), peer("b")), (peer("c"), peer("d"))];
    let request = StepRequest { step: "connects", seed: 1, values, pairs, roles: Vec::new(), key: KEY };
    let tasks = prepare_all(&Connect, Connect.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = Connect.derive(&context, &outcomes);
    (outcomes, derived)
}

/// Connections, and seconds in all.
fn of(outcomes: &[Outcome], metric: &str) -> (u64, f64) {
    let mut all = (0, 0.0);
    for row in outcomes.iter().flat_map(|outcome| &outcome.rows).filter(|row| row.metric == metric) {
        let Observed::Histogram(histogram) = &row.value else { panic!("{row:?}") };
        all.0 += histogram.count.iter().sum::<u64>();
        all.1 += histogram.sum_ns / 1e9;
    }
    all
}

fn per_second(derived: &Derived) -> f64 {
    let row = derived.rows.iter().find(|row| row.metric == PER_SECOND).unwrap();
    if let Observed::Value(value) = row.value { value } else { panic!("{row:?}") }
}

// Spec: net-protocol.md#connect-1 net-protocol.md#connect-2 net-protocol.md#connect-3
#[test]
fn each_connection_is_counted_once_with_its_phases_whoever_closes_it() {
    for close in ["server", "client", "reset"] {
        let values = values(&[
            ("count", Value::Count(100)),
            ("streams", Value::Count(2)),
            ("request", Value::Size(Bytes(300))),
            ("response", Value::Size(Bytes(70_000))),
            ("close", Value::Text(close.to_owned())),
        ]);
        let (outcomes, derived) = run(&values);
        assert_eq!(derived.invalid, None, "{close}: {outcomes:?}");
        let phases = [HANDSHAKE, EXCHANGE, CLOSE].map(|metric| of(&outcomes, metric));
        assert!(phases.iter().all(|(count, seconds)| *count == 400 && *seconds > 0.0), "{close}: {phases:?}");
        let (count, seconds) = of(&outcomes, TOTAL);
        assert_eq!(count, 400);
        let sum: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
        assert!((sum - seconds).abs() < 1e-6, "{close}: {sum} {seconds}");
        assert!(per_second(&derived) > 100.0, "{close}");
    }
}

// Spec: net-protocol.md#connect-1
#[test]
fn with_a_duration_those_count_that_end_in_the_steady_state() {
    let values = values(&[
        ("duration", Value::Duration(Duration::from_millis(400))),
        ("warm_up", Value::Duration(Duration::from_millis(200))),
    ]);
    let (outcomes, derived) = run(&values);
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    let (count, _) = of(&outcomes, TOTAL);
    assert!((per_second(&derived) - count as f64 / 0.2).abs() < 0.01, "{count} {}", per_second(&derived));
}

// Spec: net-protocol.md#connect-4
#[test]
fn a_connection_that_cannot_be_made_ends_the_flow_with_the_reason() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    // Nobody listens at the port that is told.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    far.write_all(&[&gone.to_le_bytes()[..], &[7; 16]].concat()).unwrap();
    let spec =
        rendezvous::FlowSpec { index: 0, entity: "flow.a.b.0".to_owned(), peer: "b".to_owned(), sends: true };
    let flows = vec![Flow { spec, stream }];
    let links = door::hear_all(&flows).unwrap();
    let plan = ConnectPlan::from_values(&values(&[("count", Value::Count(3))])).unwrap();
    let load = Load { plan, host: "a".to_owned(), role: rendezvous::CONNECT.to_owned() };
    let outcome = super::run(&load, flows, links, &Control::new(monotonic())).unwrap();
    assert!(outcome.failures.first().unwrap().text.contains("connection 0"), "{outcome:?}");
    let context = DeriveContext {
        values: &values(&[("count", Value::Count(3))]),
        start_ns: 0,
        faults: &[],
        around: &Around::default(),
    };
    assert!(Connect.derive(&context, &[outcome]).invalid.is_some());
}

#[test]
fn what_contradicts_itself_is_refused_by_the_names_of_its_keys() {
    let refused = |pairs: &[(&str, Value)]| ConnectPlan::from_values(&values(pairs)).unwrap_err().text;
    let second = || Value::Duration(Duration::from_secs(1));
    assert!(refused(&[]).contains("`duration`"));
    assert!(
        refused(&[("count", Value::Count(1)), ("duration", second())]).contains("`count` and `duration`")
    );
    assert!(refused(&[("duration", second()), ("warm_up", second())]).contains("`warm_up`"));
    let large = Value::Size(Bytes(2 << 20));
    assert!(refused(&[("count", Value::Count(1)), ("request", large)]).contains("`request`"));
}
