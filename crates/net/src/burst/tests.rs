//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::door::{Door, Way};
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use weir_core::Bytes;
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_seams::workload::Peer;
use weir_sys::clock::monotonic;

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn run_between(values: &Values, pairs: Vec<(Peer, Peer)>) -> (Vec<Outcome>, Derived, u64) {
    let request = StepRequest { step: "bursts", seed: 1, values, pairs, roles: Vec::new(), key: KEY };
    let tasks = prepare_all(&Burst, Burst.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = Burst.derive(&context, &outcomes);
    (outcomes, derived, control.progress())
}

fn run_two(values: &Values) -> (Vec<Outcome>, Derived, u64) {
    run_between(values, vec![(peer("a"), peer("b")), (peer("c"), peer("d"))])
}

fn all(derived: &Derived, metric: &str) -> Vec<f64> {
    let of = derived.rows.iter().filter(|row| row.metric == metric);
    of.map(|row| match row.value {
        Observed::Value(value) => value,
        Observed::Histogram(_) => panic!("{metric}: few bursts are kept one by one"),
    })
    .collect()
}

// Spec: net-protocol.md#burst-1 net-protocol.md#burst-2 net-protocol.md#burst-3
#[test]
fn every_burst_is_timed_by_itself_whatever_comes_back_and_however_connected() {
    for reply in ["none", "ack", "echo"] {
        for connection in ["outside-timing", "timed", "per-burst"] {
            for size in [1, 700_001] {
                let values = values(&[
                    ("size", Value::Size(Bytes(size))),
                    ("repetitions", Value::Count(4)),
                    ("warm_up_count", Value::Count(2)),
                    ("reply", text(reply)),
                    ("connection", text(connection)),
                ]);
                let (outcomes, derived, moved) = run_two(&values);
                let what = format!("{reply} {connection} {size}: {outcomes:?}");
                assert_eq!(derived.invalid, None, "{what}");
                let answer = match (reply, connection) {
                    ("echo", _) => size,
                    ("none", _) => 0,
                    _ => 1,
                };
                // Counted by both ends.
                assert_eq!(moved, 2 * 6 * (size + answer), "{what}");
                let completion = all(&derived, metrics::COMPLETION);
                assert_eq!(completion.len(), 8, "{what}");
                let first = all(&derived, metrics::FIRST_BYTE);
                for (first, last) in first.iter().zip(&completion) {
                    assert!(0.0 < *first && first <= last && *last < 1.0, "{first} {last} {what}");
                }
                assert_eq!(all(&derived, metrics::GOODPUT).len(), 8, "{what}");
                assert_eq!(all(&derived, metrics::SPREAD).len(), 4, "{what}");
                let connections = if connection == "per-burst" { 8 } else { 0 };
                assert_eq!(all(&derived, metrics::CONNECT).len(), connections, "{what}");
                assert_eq!(all(&derived, metrics::DISCONNECT).len(), connections, "{what}");
                // One machine has one clock.
                let doubts = if reply == "none" { vec![0.0; 2] } else { Vec::new() };
                assert_eq!(all(&derived, metrics::CLOCK), doubts, "{what}");
                let entities: BTreeSet<_> = derived.series.iter().map(|series| &series.entity).collect();
                assert_eq!(entities.len(), 2, "{what}");
                assert!(
                    derived.series.iter().all(|series| series.t_ns.len() == 4 && series.t_ns.is_sorted())
                );
            }
        }
    }
}

// Spec: net-protocol.md#burst-4
#[test]
fn bursts_at_the_ticks_of_a_clock_begin_together_and_count_from_there() {
    let values = values(&[
        ("size", Value::Size(Bytes(1_000))),
        ("repetitions", Value::Count(20)),
        ("every", Value::Duration(Duration::from_millis(5))),
    ]);
    let (outcomes, derived, _) = run_two(&values);
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    for series in &derived.series {
        let expected: Vec<i64> = (0..20).map(|number| number * 5_000_000).collect();
        assert_eq!(series.t_ns, expected);
    }
    let generator = derived.load.generator.unwrap();
    assert_eq!(generator.missed_count, 0);
    // The first begins with the step; of the others some may find the burst before still under way.
    assert!(generator.due_count <= 40 && generator.due_count > 20, "{generator:?}");
}

#[test]
fn disconnecting_is_within_the_time_where_that_is_asked() {
    let with = |disconnect: &str| {
        let values = values(&[
            ("size", Value::Size(Bytes(1))),
            ("repetitions", Value::Count(50)),
            ("reply", text("ack")),
            ("connection", text("per-burst")),
            ("disconnect", text(disconnect)),
        ]);
        let (_, derived, _) = run_between(&values, vec![(peer("a"), peer("b"))]);
        assert_eq!(derived.invalid, None);
        let sum = |metric| all(&derived, metric).iter().sum::<f64>();
        (sum(metrics::COMPLETION), sum(metrics::DISCONNECT), sum(metrics::CONNECT))
    };
    let (completion, disconnect, connect) = with("timed");
    assert!(completion > disconnect + connect, "{completion} {disconnect} {connect}");
    let (completion, disconnect, connect) = with("outside-timing");
    assert!(disconnect > 0.0 && completion > connect, "{completion} {disconnect} {connect}");
}

// Spec: net-protocol.md#burst-5
#[test]
fn a_stop_ends_after_the_burst_under_way_and_the_trial_does_not_count() {
    for connection in ["outside-timing", "per-burst"] {
        let values = values(&[
            ("size", Value::Size(Bytes(10_000))),
            ("repetitions", Value::Count(1_000)),
            ("every", Value::Duration(Duration::from_millis(20))),
            ("connection", text(connection)),
        ]);
        let request = StepRequest {
            step: "bursts",
            seed: 1,
            values: &values,
            pairs: vec![(peer("a"), peer("b"))],
            roles: Vec::new(),
            key: KEY,
        };
        let tasks = prepare_all(&Burst, Burst.assignments(&request));
        let control = Control::new(monotonic() + Duration::from_millis(30));
        let outcomes = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                control.stop();
            });
            run_all(tasks, &control)
        });
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(|outcome| outcome.unwrap()).collect();
        assert!(outcomes.iter().all(|outcome| outcome.failures.is_empty()), "{outcomes:?}");
        let context = DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() };
        let invalid = Burst.derive(&context, &outcomes).invalid.unwrap();
        assert!(invalid.contains("of 1000 bursts"), "{invalid}");
    }
}

/// A flow whose other end is in the test's hands.
fn flow() -> (Flow, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let spec =
        rendezvous::FlowSpec { index: 0, entity: "flow.a.b.0".to_owned(), peer: "b".to_owned(), sends: true };
    (Flow { spec, stream }, listener.accept().unwrap().0)
}

fn send(flow: Flow) -> Outcome {
    send_of(flow, 1_000_000, &Control::new(monotonic()))
}

fn send_of(flow: Flow, size: u64, control: &Control) -> Outcome {
    let values = values(&[
        ("size", Value::Size(Bytes(size))),
        ("reply", text("ack")),
        ("repetitions", Value::Count(3)),
    ]);
    let load = Load {
        plan: BurstPlan::from_values(&values).unwrap(),
        host: "a".to_owned(),
        role: rendezvous::CONNECT.to_owned(),
        silence: Duration::from_millis(200),
    };
    run(&load, vec![flow], BTreeMap::new(), control).unwrap()
}

/// Whoever watches over the step takes one that moves nothing for broken.
// Spec: net-protocol.md#burst-7
#[test]
fn a_burst_of_minutes_moves_all_the_while() {
    use std::io::Read;
    const READ: usize = 20 << 20;
    let (flow, mut peer) = flow();
    let control = Control::new(monotonic());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_of(flow, 1 << 30, &control));
        peer.read_exact(&mut vec![0; READ]).unwrap();
        let moved = control.sent();
        assert!((READ as u64 / 2..1 << 30).contains(&moved), "{moved}");
        drop(peer);
        assert!(sender.join().unwrap().failures.first().unwrap().text.contains("burst 0"));
    });
}

// Spec: net-protocol.md#burst-7
#[test]
fn a_peer_that_never_reads_or_is_gone_ends_the_flow_with_a_reason() {
    let (unread, peer) = flow();
    let outcome = send(unread);
    assert!(outcome.failures.first().unwrap().text.contains("silent for"), "{outcome:?}");
    drop(peer);
    let (gone, peer) = flow();
    drop(peer);
    let outcome = send(gone);
    assert!(outcome.failures.first().unwrap().text.contains("burst "), "{outcome:?}");
}

#[test]
fn strangers_at_the_door_are_not_taken_for_the_flow() {
    use std::io::Read;
    let options = weir_transport::tcp_options::TcpOptions::default();
    let address = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let door = Door::open((address, 0).into(), None, &options).unwrap();
    let greeting = door.greeting();
    let port = u16::from_le_bytes([greeting[0], greeting[1]]);
    let (near, mut far) = flow();
    far.write_all(&greeting).unwrap();
    let way = Way::hear(&near.stream).unwrap();
    let mut wrong = TcpStream::connect((address, port)).unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let left = TcpStream::connect((address, port)).unwrap();
    drop(left);
    let mut right = way.connect(&options).unwrap();
    right.write_all(&[way.token.as_slice(), b"x"].concat()).unwrap();
    let control = Control::new(monotonic());
    let guard = threads::Guard::new(&far, Duration::from_secs(5));
    let mut accepted = door.accept(&far, &control, &guard).unwrap().unwrap();
    let mut byte = [0];
    accepted.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    // With the flow the waiting ends.
    drop(near);
    assert!(door.accept(&far, &control, &guard).unwrap().is_none());
}

#[test]
fn what_contradicts_itself_is_refused_by_the_names_of_its_keys() {
    let refused = |pairs: &[(&str, Value)]| BurstPlan::from_values(&values(pairs)).unwrap_err().text;
    assert!(refused(&[("count", Value::Count(3))]).contains("`repetitions`"));
    assert!(refused(&[("duration", Value::Duration(Duration::from_secs(1)))]).contains("`duration`"));
    assert!(refused(&[("disconnect", text("timed"))]).contains("`connection`"));
    let many = values(&[("repetitions", Value::Count(100_000)), ("streams", Value::Count(4))]);
    let error = Burst.estimate(&many, &Shape::of_pairs(4, Duration::ZERO)).unwrap_err();
    assert!(error.text.contains("1600000 bursts"), "{}", error.text);
}
