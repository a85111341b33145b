//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_sys::clock::monotonic;

// Spec: net-protocol.md#latency-1 net-protocol.md#latency-2
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
    assert!(
        outcomes
            .iter()
            .flat_map(|outcome| outcome.granted.values())
            .all(|granted| granted["nodelay"] == true)
    );
    let context = DeriveContext { values: &values, start_ns: 0, faults: &[] };
    assert_eq!(Latency.derive(&context, &outcomes).invalid, None);
}

/// A flow whose other end is in the test's hands.
fn flow() -> (crate::rendezvous::Flow, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let spec = crate::rendezvous::FlowSpec {
        index: 0,
        entity: "flow.a.b.0".to_owned(),
        peer: "b".to_owned(),
        sends: true,
    };
    (crate::rendezvous::Flow { spec, stream }, listener.accept().unwrap().0)
}

fn ask(flow: crate::rendezvous::Flow) -> Outcome {
    let mut values = Values::default();
    values.set("count", Value::Count(1000));
    let load = Load {
        plan: LatencyPlan::from_values(&values).unwrap(),
        host: "a".to_owned(),
        role: rendezvous::CONNECT.to_owned(),
        limits: Limits { reply: Duration::from_millis(200) },
    };
    pingpong::run(&load, vec![flow], &Control::new(monotonic())).unwrap()
}

// Spec: net-protocol.md#latency-3
#[test]
fn a_peer_that_is_silent_or_gone_or_answers_something_else_ends_the_task_with_a_reason() {
    use std::io::{Read, Write};
    let (silent, peer) = flow();
    assert!(ask(silent).failures[0].contains("silent for"));
    drop(peer);
    let (gone, peer) = flow();
    drop(peer);
    assert!(ask(gone).failures[0].contains("after 0 round trips"));
    let (fooled, mut peer) = flow();
    let answering = std::thread::spawn(move || {
        let mut message = [0; 64];
        peer.read_exact(&mut message).unwrap();
        message[0] ^= 1;
        peer.write_all(&message).unwrap();
        peer
    });
    let outcome = ask(fooled);
    assert!(outcome.failures[0].contains("not to its request"), "{:?}", outcome.failures);
    let context = DeriveContext { values: &Values::default(), start_ns: 0, faults: &[] };
    assert!(Latency.derive(&context, &[outcome]).invalid.is_some());
    drop(answering.join().unwrap());
}
