//! Runs over loopback through the seam, both ends in this process.

mod differing;

use super::receive::Receiver;
use super::*;
use crate::rendezvous::{Flow, FlowSpec};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use weir_core::Bytes;
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_seams::workload::Control;
use weir_seams::workload::Peer;
use weir_sys::clock::monotonic;
use weir_sys::socket;

pub const KEY: &str = "00112233445566778899aabbccddeeff";

pub fn peer(host: &str) -> Peer {
    Peer { host: host.to_owned(), address: IpAddr::V4(Ipv4Addr::LOCALHOST), auxiliary: None }
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
    let request = StepRequest { step: "load", seed: 1, values, pairs, roles: Vec::new(), key: KEY };
    let tasks = prepare_all(&Stream, Stream.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext {
        values,
        start_ns: control.start_at().as_ns() as i64,
        faults: &[],
        around: &Around::default(),
    };
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

// Spec: net-protocol.md#stream-1
/// What TCP said of all flows.
fn facts_of(outcomes: &[Outcome]) -> crate::evidence::TransportFacts {
    derive::facts(&rendezvous::bodies(outcomes).unwrap(), 0.0).unwrap()
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

// Spec: net-protocol.md#stream-10
#[test]
fn discarded_payload_is_counted_like_any_other() {
    let values = values(&[
        ("bytes", Value::Size(Bytes(3_000_001))),
        ("direction", Value::Text("both".to_owned())),
        ("receive", Value::Text("discard".to_owned())),
    ]);
    let (outcomes, derived) = run(&values, &[("a", "b")]);
    assert_eq!(received(&outcomes).iter().map(|flow| flow.1).collect::<Vec<_>>(), [3_000_001; 2]);
    assert_eq!(derived.invalid, None);
    assert!(outcomes.iter().all(|outcome| outcome.granted["receive"] == "discarded in the kernel"));
}

// Spec: net-protocol.md#stream-2
#[test]
fn what_is_sent_in_a_given_time_is_all_received() {
    for streams in [1, 3] {
        let values = values(&[
            ("duration", Value::Duration(Duration::from_millis(400))),
            ("warm_up", Value::Duration(Duration::from_millis(100))),
            ("streams", Value::Count(streams)),
        ]);
        let (outcomes, _) = run(&values, &[("a", "b")]);
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
        let failures: Vec<_> = outcomes.iter().flat_map(|outcome| outcome.failures.iter()).collect();
        assert!(failures.is_empty(), "{failures:?}");
        let facts = facts_of(&outcomes);
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

/// Two connected sockets as the two ends of one flow.
fn flow_pair(index: u32) -> (Flow, Flow) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let flow = |stream, sends| Flow {
        spec: rendezvous::FlowSpec { index, entity: format!("flow.a.b.{index}"), peer: String::new(), sends },
        stream,
    };
    (flow(near, true), flow(far, false))
}

fn load(values: &Values, flows: u64, patience: Patience) -> Load {
    let plan = StreamPlan::from_values(values).unwrap();
    let ending = Ending::Drained;
    Load { plan, host: "a".to_owned(), role: "connect".to_owned(), flow_total: flows, patience, ending }
}

fn hasty() -> Patience {
    let short = Duration::from_millis(200);
    Patience { drain_idle: short, drain: Duration::from_secs(2), stall: short }
}

fn seconds_of(outcome: &Outcome, metric: &str) -> f64 {
    match outcome.rows.iter().find(|row| row.metric == metric).unwrap().value {
        Observed::Value(value) => value,
        Observed::Histogram(_) => panic!("{metric} is one value"),
    }
}

#[test]
fn a_hundred_and_twenty_eight_flows_on_two_threads_all_move_and_all_drain() {
    let values = values(&[
        ("duration", Value::Duration(Duration::from_millis(600))),
        ("streams", Value::Count(128)),
        ("threads", Value::Count(2)),
        ("block", Value::Size(Bytes(16 << 10))),
    ]);
    let (near, far): (Vec<Flow>, Vec<Flow>) = (0..128).map(flow_pair).unzip();
    let load = load(&values, 128, Patience::default());
    let control = Control::new(monotonic() + Duration::from_millis(20));
    let (sent, got) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| engine::run(&load, near, &control).unwrap());
        let got = engine::run(&load, far, &control).unwrap();
        (sending.join().unwrap(), got)
    });
    assert!(sent.failures.is_empty() && got.failures.is_empty(), "{sent:?} {got:?}");
    let flows = received(std::slice::from_ref(&got));
    assert_eq!(flows.len(), 128);
    assert!(flows.iter().all(|(_, bytes)| *bytes > 0));
    // Spec: net-protocol.md#series-2
    assert_eq!(got.granted["series"]["interval_ns"], 80_000_000);
}

// Spec: net-protocol.md#series-1
#[test]
fn a_pause_of_the_sender_is_seen_as_long_as_it_was() {
    use std::io::Write;
    let values = values(&[("duration", Value::Duration(Duration::from_millis(500)))]);
    let (near, far) = flow_pair(0);
    let load = load(&values, 1, Patience::default());
    let control = Control::new(monotonic());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = near.stream;
            let begun = std::time::Instant::now();
            let mut paused = false;
            while begun.elapsed() < Duration::from_millis(510) {
                if !paused && begun.elapsed() > Duration::from_millis(150) {
                    std::thread::sleep(Duration::from_millis(120));
                    paused = true;
                }
                stream.write_all(&[7; 1000]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        engine::run(&load, vec![far], &control).unwrap()
    });
    let stalled = seconds_of(&outcome, "stream.stalled_seconds");
    assert!((0.12..0.4).contains(&stalled), "{stalled}");
    // The series is flat in the pause: its first sample after it is an interval or less from the pause's end.
    let series = outcome.series.iter().find(|series| series.name == "stream.received_bytes").unwrap();
    let widest = series.t_ns.windows(2).max_by_key(|pair| pair[1] - pair[0]).unwrap();
    assert!((widest[1] - widest[0]) as f64 / 1e9 <= stalled + 0.001);
}

// Spec: net-protocol.md#stream-4
#[test]
fn a_peer_that_never_reads_is_given_up_after_the_load_with_what_is_left() {
    for threads in [1, 2] {
        let values = values(&[("duration", Value::Duration(Duration::from_millis(100)))]);
        let (flows, deaf): (Vec<Flow>, Vec<Flow>) = (0..threads).map(flow_pair).unzip();
        let load = load(&values, u64::from(threads), hasty());
        let outcome = engine::run(&load, flows, &Control::new(monotonic())).unwrap();
        assert_eq!(outcome.failures.count(), u64::from(threads), "{:?}", outcome.failures);
        assert!(outcome.failures.first().unwrap().text.contains("not drained"), "{:?}", outcome.failures);
        drop(deaf);
    }
}

// Spec: net-protocol.md#stream-4
#[test]
fn what_is_refused_after_an_order_to_stop_is_no_failure_and_after_a_planned_end_it_is() {
    let failures = |stop: bool, planned_ms: u64| {
        let values = values(&[("duration", Value::Duration(Duration::from_millis(planned_ms)))]);
        let (far, near) = flow_pair(0);
        let load = load(&values, 1, Patience::default());
        let control = Control::new(monotonic());
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                if stop {
                    control.stop();
                }
                // The sender has seen its end by then; what it has sent lies unread.
                std::thread::sleep(Duration::from_millis(400));
                drop(near);
            });
            engine::run(&load, vec![far], &control).unwrap()
        });
        outcome.failures.count()
    };
    assert_eq!((failures(true, 60_000), failures(false, 100)), (0, 1));
}

#[test]
fn a_peer_that_never_reads_ends_a_flow_bounded_by_bytes_too() {
    let values = values(&[("bytes", Value::Size(Bytes(1 << 30)))]);
    let (flow, deaf) = flow_pair(0);
    let outcome = engine::run(&load(&values, 1, hasty()), vec![flow], &Control::new(monotonic())).unwrap();
    assert!(
        outcome.failures.first().unwrap().text.contains("the peer took nothing"),
        "{:?}",
        outcome.failures
    );
    drop(deaf);
}

#[test]
fn a_sender_that_is_silent_for_ever_ends_the_receiver() {
    for values in [
        values(&[("duration", Value::Duration(Duration::from_millis(100)))]),
        values(&[("bytes", Value::Size(Bytes(1000)))]),
    ] {
        let (silent, flow) = flow_pair(0);
        let outcome =
            engine::run(&load(&values, 1, hasty()), vec![flow], &Control::new(monotonic())).unwrap();
        assert_eq!(outcome.failures.count(), 1);
        drop(silent);
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_makes_the_trial_invalid_with_a_reason() {
    let values = values(&[("duration", Value::Duration(Duration::from_millis(300)))]);
    let (dying, flow) = flow_pair(0);
    let control = Control::new(monotonic());
    let load = load(&values, 1, hasty());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(dying);
        });
        engine::run(&load, vec![flow], &control).unwrap()
    });
    assert!(outcome.failures.first().unwrap().text.contains("its sender ended it"), "{:?}", outcome.failures);
    let context = DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() };
    let reason = Stream.derive(&context, &[outcome]).invalid.unwrap();
    assert!(reason.contains("more than 1 % of the step"), "{reason}");
}

#[test]
fn an_order_to_stop_ends_the_load_and_keeps_it_and_an_abort_ends_it_at_once() {
    for abort in [false, true] {
        let values =
            values(&[("duration", Value::Duration(Duration::from_secs(60))), ("streams", Value::Count(2))]);
        let (near, far): (Vec<Flow>, Vec<Flow>) = (0..2).map(flow_pair).unzip();
        let load = load(&values, 2, Patience::default());
        let control = Control::new(monotonic());
        let began = std::time::Instant::now();
        let results = std::thread::scope(|scope| {
            let sending = scope.spawn(|| engine::run(&load, near, &control));
            let receiving = scope.spawn(|| engine::run(&load, far, &control));
            std::thread::sleep(Duration::from_millis(150));
            if abort {
                control.abort()
            } else {
                control.stop()
            }
            [sending.join().unwrap(), receiving.join().unwrap()]
        });
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), if abort { 2 } else { 0 });
        assert!(abort || control.progress() > 0);
    }
}

// Spec: net-protocol.md#opening-4
#[test]
fn the_wrong_key_is_refused_and_garbage_on_the_data_port_changes_nothing() {
    use std::io::Write;
    let values = values(&[("bytes", Value::Size(Bytes(1000)))]);
    let request = StepRequest {
        step: "load",
        seed: 1,
        values: &values,
        pairs: vec![(peer("a"), peer("b"))],
        roles: Vec::new(),
        key: KEY,
    };
    let mut assignments = Stream.assignments(&request);
    let mut connector = assignments.pop().unwrap();
    let acceptor = Stream.prepare(&assignments[0]).unwrap();
    let address = acceptor.address().unwrap();
    let mut garbage = Vec::new();
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(&[0xff; 300]).unwrap();
        garbage.push(std::net::TcpStream::connect(&address).unwrap());
    }
    connector.peers.insert("b".to_owned(), address);
    let mut wrong = connector.clone();
    wrong.key = "ff112233445566778899aabbccddeeff".to_owned();
    let text = Stream.prepare(&wrong).err().unwrap().text;
    assert!(text.contains("the keys at the two ends differ"), "{text}");
    let connector = Stream.prepare(&connector).unwrap();
    let control = Control::new(monotonic());
    let outcomes: Vec<Outcome> =
        run_all(vec![acceptor, connector], &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    assert_eq!(received(&outcomes), [("flow.a.b.0".to_owned(), 1000)]);
}

#[test]
fn a_flow_that_never_connects_is_named() {
    let values = values(&[("bytes", Value::Size(Bytes(1000)))]);
    let request = StepRequest {
        step: "load",
        seed: 1,
        values: &values,
        pairs: vec![(peer("a"), peer("b"))],
        roles: Vec::new(),
        key: KEY,
    };
    let acceptor = Stream.prepare(&Stream.assignments(&request)[0]).unwrap();
    let error = acceptor.run(&Control::new(monotonic())).unwrap_err();
    assert!(error.text.contains("flow.a.b.0"), "{error:?}");
}

// Spec: net-protocol.md#stream-5
#[test]
fn a_window_asked_for_holds_after_the_first_moments_and_is_recorded() {
    let window = 48 << 10;
    let tcp = std::collections::BTreeMap::from([("window".to_owned(), Value::Size(Bytes(window)))]);
    let values =
        values(&[("duration", Value::Duration(Duration::from_millis(300))), ("tcp", Value::Table(tcp))]);
    let (outcomes, derived) = run(&values, &[("a", "b")]);
    let seen: Vec<f64> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.series)
        .filter(|series| series.name == "tcp.peer_window_bytes")
        .flat_map(|series| series.value.clone())
        .collect();
    // The kernel rounds a window up to the unit of its scale.
    assert!(seen.last().unwrap() <= &(window as f64 * 1.05), "{seen:?}");
    let granted = outcomes.iter().find_map(|outcome| outcome.granted.get("flow.a.b.0.receiver")).unwrap();
    assert_eq!(granted["window_bytes"], window);
    assert_eq!(granted["congestion"], "cubic");
    assert!(facts_of(&outcomes).observed_seconds > 0.29);
    assert!(derived.load.fills_path);
}

// Spec: scenario.md#step-4
#[test]
fn the_steady_state_begins_and_ends_at_its_edges_even_when_nothing_comes() {
    let values = values(&[
        ("duration", Value::Duration(Duration::from_millis(400))),
        ("warm_up", Value::Duration(Duration::from_millis(100))),
    ]);
    let (silent, flow) = flow_pair(0);
    let control = Control::new(monotonic());
    let start = control.start_at().as_ns();
    let outcome = engine::run(&load(&values, 1, hasty()), vec![flow], &control).unwrap();
    let body: outcome::StreamBody = serde_json::from_value(outcome.body).unwrap();
    let [[from, _], [to, _]] = body.received[0].steady_ns_bytes.unwrap();
    assert!(from >= start + 100_000_000 && to >= start + 400_000_000);
    drop(silent);
}

// Spec: net-protocol.md#stream-3
#[test]
fn what_has_arrived_and_lies_unread_counts_at_both_edges() {
    let patience = clock::Patience::default();
    let received = |ending: clock::Ending, unread: [usize; 2]| {
        let (mut far, near) = flow_pair(0);
        let lies = |bytes: u64| while socket::unread_bytes(near.stream.as_fd()).unwrap() < bytes {};
        let schedule = clock::Schedule {
            ending,
            ..clock::Schedule::new(0, Duration::from_nanos(100), Some(Duration::from_nanos(1100)), patience)
        };
        far.stream.write_all(&vec![0; unread[0]]).unwrap();
        lies(unread[0] as u64);
        let copy = near.stream.try_clone().unwrap();
        let spec = FlowSpec { index: 0, entity: "flow".to_owned(), peer: "peer".to_owned(), sends: false };
        let mut receiver = Receiver::new(spec, copy, &schedule, None, 16, 1_000);
        receiver.look(&schedule, 100);
        receiver.turn(&schedule, &mut vec![0; unread[0]], || 500);
        far.stream.write_all(&vec![0; unread[1]]).unwrap();
        lies(unread[1] as u64);
        receiver.on_idle(&schedule, 1100, 1100);
        let bytes = |edge: Option<receive::Edge>| edge.unwrap().bytes;
        (bytes(receiver.steady_start), bytes(receiver.steady_end), receiver.bytes)
    };
    assert_eq!(received(clock::Ending::Drained, [1000, 3000]), (1000, 4000, 1000));
    // Where nothing is drained, what had arrived before the cut is received.
    assert_eq!(received(clock::Ending::Cut, [1000, 3000]), (1000, 4000, 4000));
}

fn rate(bits_per_second: u64) -> Value {
    Value::Rate(weir_core::units::BitsPerSecond(bits_per_second))
}

// Spec: net-protocol.md#stream-7
#[test]
fn a_slow_source_and_a_slow_reader_are_as_slow_as_they_say_and_tell_so() {
    let base = |name: &str| {
        values(&[
            ("duration", Value::Duration(Duration::from_millis(800))),
            ("warm_up", Value::Duration(Duration::from_millis(200))),
            ("block", Value::Size(Bytes(16 << 10))),
            (name, rate(80_000_000)),
        ])
    };
    // The kernel keeps the flag of its fastest sample: once its window has been full, because the receiver got no
    // processor for ten milliseconds, the flow counts as limited by the network for good. This window holds 0.4 s.
    let mut source = base("source_rate");
    let tcp = [("window".to_owned(), Value::Size(Bytes(4 << 20)))].into();
    source.set("tcp", Value::Table(tcp));
    let (of_source, source) = run(&source, &[("a", "b")]);
    let facts = facts_of(&of_source);
    let goodput = value(&source, "stream.total_goodput_bits_per_second");
    // Ticks that a busy machine sleeps through are given up, so it may be slower, but not faster.
    assert!(goodput < 84e6 && goodput > 20e6, "{goodput}");
    assert!(facts.source_waiting_seconds > 0.4 * facts.observed_seconds, "{facts:?}");
    assert!(facts.application_limited_seconds > 0.5 * facts.observed_seconds, "{facts:?}");
    assert_eq!(facts.receiver_waiting_seconds, 0.0);
    assert!(source.load.generator.unwrap().due_count > 50);

    let (of_reader, reader) = run(&base("read_rate"), &[("a", "b")]);
    let facts = facts_of(&of_reader);
    let goodput = value(&reader, "stream.total_goodput_bits_per_second");
    assert!(goodput < 84e6 && goodput > 20e6, "{goodput}");
    assert!(facts.receiver_waiting_seconds > 0.4 * facts.receive_observed_seconds, "{facts:?}");
    assert!(facts.receive_queue_ratio > 0.5, "{facts:?}");
    assert_eq!(facts.source_waiting_seconds, 0.0);
    assert!(facts.receive_window_limited_seconds > 0.5 * facts.busy_seconds, "{facts:?}");
    assert_eq!((source.invalid, reader.invalid), (None, None));

    let plain = values(&[("duration", Value::Duration(Duration::from_millis(500)))]);
    let (of_plain, plain) = run(&plain, &[("a", "b")]);
    let facts = facts_of(&of_plain);
    assert_eq!((facts.source_waiting_seconds, facts.receiver_waiting_seconds), (0.0, 0.0));
    assert!(facts.sender_thread_busy_ratio > 0.0 && facts.receiver_thread_busy_ratio > 0.0);
    assert!(plain.load.generator.is_none());
}

#[test]
fn a_slow_source_bounded_by_bytes_sends_exactly_these() {
    let values = values(&[
        ("bytes", Value::Size(Bytes(1_000_001))),
        ("block", Value::Size(Bytes(50_000))),
        ("source_rate", rate(100_000_000)),
        ("read_rate", rate(200_000_000)),
        ("streams", Value::Count(3)),
    ]);
    let (outcomes, derived) = run(&values, &[("a", "b")]);
    assert_eq!(derived.invalid, None);
    assert!(received(&outcomes).iter().all(|(_, bytes)| *bytes == 1_000_001));
}

// Spec: net-protocol.md#stream-9
#[test]
fn a_thousand_flows_are_connected_move_and_meet_the_edges_together() {
    let values = values(&[
        ("duration", Value::Duration(Duration::from_millis(1500))),
        ("warm_up", Value::Duration(Duration::from_millis(500))),
        ("streams", Value::Count(1000)),
        ("threads", Value::Count(2)),
    ]);
    let (outcomes, _) = run(&values, &[("a", "b")]);
    assert_eq!(received(&outcomes).len(), 1000);
    let bodies: Vec<outcome::StreamBody> =
        outcomes.iter().map(|outcome| serde_json::from_value(outcome.body.clone()).unwrap()).collect();
    let mut edges: Vec<u64> = bodies
        .iter()
        .flat_map(|body| &body.received)
        .map(|flow| flow.steady_ns_bytes.expect("every flow meets both edges")[0][0])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    // For each of two threads the look of the flow whose turn it was, and one of all others.
    assert!(edges.len() <= 4, "{} different first edges", edges.len());
    assert_eq!(facts_of(&outcomes).flow_count, 1000);
    assert!(outcomes.iter().all(|outcome| outcome.failures.is_empty()));
}

// Spec: net-protocol.md#clock-3
#[test]
fn no_thread_begins_before_the_agreed_instant_however_many_there_are_and_none_waits_after_an_abort() {
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let start = control.start_at();
    let began: Vec<weir_core::Instant> = std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    assert!(engine::wait_for_start(&control, start));
                    monotonic()
                })
            })
            .collect();
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(began.iter().all(|at| *at >= start));
    assert!(control.began().unwrap() >= start);
    let called_off = Control::new(monotonic() + Duration::from_secs(3600));
    called_off.abort();
    assert!(!engine::wait_for_start(&called_off, called_off.start_at()));
}

// Spec: net-protocol.md#stream-6
#[test]
fn a_segment_size_that_the_kernel_does_not_take_is_refused_before_the_start() {
    let planned = |mss: u64| {
        let mut values = Values::defaults(plan::PARAMS);
        values.set("duration", Value::Duration(Duration::from_secs(1)));
        let tcp = [("mss".to_owned(), Value::Size(Bytes(mss)))].into_iter().collect();
        values.set("tcp", Value::Table(tcp));
        StreamPlan::from_values(&values)
    };
    for mss in [0, 87, 32_768] {
        let text = planned(mss).unwrap_err().text;
        assert!(text.contains("88 to 32767"), "{text}");
    }
    assert!(planned(88).is_ok() && planned(32_767).is_ok());
}
