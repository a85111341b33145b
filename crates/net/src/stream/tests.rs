//! Runs over loopback through the seam, both ends in this process.

use super::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use weir_core::Bytes;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_seams::workload::Peer;
use weir_sys::clock::monotonic;

pub const KEY: &str = "00112233445566778899aabbccddeeff";

pub fn peer(host: &str) -> Peer {
    Peer { host: host.to_owned(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) }
}

pub fn prepare_all(workload: &dyn Workload, assignments: Vec<Assignment>) -> Vec<Box<dyn Task>> {
    let mut peers = BTreeMap::new();
    let mut tasks = Vec::new();
    for mut assignment in assignments {
        assignment.peers.clone_from(&peers);
        let task = workload.prepare(&assignment).unwrap();
        if let Some(address) = task.address() {
            peers.insert(assignment.host.clone(), address);
        }
        tasks.push(task);
    }
    tasks
}

pub fn run_all(tasks: Vec<Box<dyn Task>>, control: &Control) -> Vec<Result<Outcome, WorkloadError>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = tasks.into_iter().map(|task| scope.spawn(move || task.run(control))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn run(values: &Values, pairs: &[(&str, &str)]) -> (Vec<Outcome>, Derived) {
    let pairs = pairs.iter().map(|(from, to)| (peer(from), peer(to))).collect();
    let request = StepRequest { step: "load", values, pairs, key: KEY };
    let tasks = prepare_all(&Stream, Stream.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext { values, start_ns: control.start_at().as_ns() as i64, faults: &[] };
    let derived = Stream.derive(&context, &outcomes);
    (outcomes, derived)
}

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn received(outcomes: &[Outcome]) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = outcomes
        .iter()
        .flat_map(|outcome| {
            serde_json::from_value::<outcome::StreamBody>(outcome.body.clone()).unwrap().received
        })
        .map(|flow| (flow.entity, flow.bytes))
        .collect();
    all.sort();
    all
}

fn value(derived: &Derived, metric: &str) -> f64 {
    match derived.rows.iter().find(|row| row.metric == metric).unwrap().value {
        Observed::Value(value) => value,
        Observed::Histogram(_) => panic!("{metric} is one value"),
    }
}

#[test]
fn a_flow_bounded_by_bytes_delivers_exactly_these() {
    for direction in ["up", "down", "both"] {
        let values = values(&[
            ("bytes", Value::Size(Bytes(3_000_001))),
            ("direction", Value::Text(direction.to_owned())),
            ("streams", Value::Count(2)),
        ]);
        let (outcomes, derived) = run(&values, &[("a", "b")]);
        let up = [("flow.a.b.0".to_owned(), 3_000_001), ("flow.a.b.1".to_owned(), 3_000_001)];
        let down = [("flow.b.a.0".to_owned(), 3_000_001), ("flow.b.a.1".to_owned(), 3_000_001)];
        let expected = match direction {
            "up" => up.to_vec(),
            "down" => down.to_vec(),
            _ => up.into_iter().chain(down).collect(),
        };
        assert_eq!(received(&outcomes), expected);
        assert_eq!(derived.invalid, None);
        assert!(outcomes.iter().all(|outcome| outcome.failures.is_empty()));
        assert!(value(&derived, "stream.total_goodput_bits_per_second") > 0.0);
        assert!(value(&derived, "cost.cpu_seconds_per_gigabyte") > 0.0);
    }
}

#[test]
fn what_is_sent_in_a_given_time_is_all_received() {
    for streams in [1, 3] {
        let values = values(&[
            ("duration", Value::Duration(Duration::from_millis(400))),
            ("warm_up", Value::Duration(Duration::from_millis(100))),
            ("streams", Value::Count(streams)),
        ]);
        let (outcomes, derived) = run(&values, &[("a", "b")]);
        let sent: u64 = outcomes
            .iter()
            .flat_map(|outcome| {
                serde_json::from_value::<outcome::StreamBody>(outcome.body.clone()).unwrap().sent
            })
            .map(|flow| flow.bytes)
            .sum();
        let got: u64 = received(&outcomes).into_iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(sent, got);
        assert!(got > 0);
        let failures: Vec<_> = outcomes.iter().flat_map(|outcome| outcome.failures.clone()).collect();
        assert_eq!(failures, Vec::<String>::new());
        let facts = derived.transport.unwrap();
        assert_eq!(facts.flow_count, streams);
        assert!(facts.sent_segments > 0);
        assert!(outcomes.iter().any(|outcome| {
            outcome
                .series
                .iter()
                .any(|series| series.name == "stream.received_bytes" && series.t_ns.len() > 5)
        }));
    }
}

#[test]
fn a_host_in_several_pairs_has_one_acceptor_and_every_flow_finds_its_end() {
    let values = values(&[("bytes", Value::Size(Bytes(100_000)))]);
    let (outcomes, derived) = run(&values, &[("a", "c"), ("b", "c"), ("c", "a"), ("a", "c")]);
    assert_eq!(
        received(&outcomes),
        [("flow.a.c.0", 100_000), ("flow.a.c.1", 100_000), ("flow.b.c.0", 100_000), ("flow.c.a.0", 100_000)]
            .map(|(entity, bytes)| (entity.to_owned(), bytes))
    );
    assert_eq!(derived.invalid, None);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.role == rendezvous::ACCEPT).count(), 2);
}
