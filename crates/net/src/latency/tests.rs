//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_core::units::Hertz;
use weir_seams::workload::Control;
use weir_sys::clock::monotonic;
use weir_transport::udp::Association;

// Spec: net-protocol.md#latency-1 net-protocol.md#latency-2
#[test]
fn every_round_trip_asked_for_is_counted_once_and_the_warm_up_is_not() {
    let mut values = Values::defaults(PARAMS);
    values.set("count", Value::Count(200));
    let pairs = vec![(peer("a"), peer("b")), (peer("c"), peer("b"))];
    let request = StepRequest { step: "idle", seed: 1, values: &values, pairs, roles: Vec::new(), key: KEY };
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
    let context = DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() };
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
    assert!(ask(silent).failures.first().unwrap().text.contains("silent for"));
    drop(peer);
    let (gone, peer) = flow();
    drop(peer);
    assert!(ask(gone).failures.first().unwrap().text.contains("after 0 round trips"));
    let (fooled, mut peer) = flow();
    let answering = std::thread::spawn(move || {
        let mut message = [0; 64];
        peer.read_exact(&mut message).unwrap();
        message[0] ^= 1;
        peer.write_all(&message).unwrap();
        peer
    });
    let outcome = ask(fooled);
    assert!(outcome.failures.first().unwrap().text.contains("not to its request"), "{:?}", outcome.failures);
    let context =
        DeriveContext { values: &Values::default(), start_ns: 0, faults: &[], around: &Around::default() };
    assert!(Latency.derive(&context, &[outcome]).invalid.is_some());
    drop(answering.join().unwrap());
}

fn udp_values(pairs: &[(&str, Value)]) -> Values {
    let mut values = with(pairs);
    values.set("transport", Value::Text("udp".to_owned()));
    values
}

fn with(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn hertz(rate: f64) -> (&'static str, Value) {
    ("rate", Value::Frequency(weir_core::units::Hertz(rate)))
}

fn run_step(values: &Values) -> (Vec<Outcome>, Derived) {
    let request = StepRequest {
        step: "probe",
        seed: 1,
        values,
        pairs: vec![(peer("a"), peer("b"))],
        roles: Vec::new(),
        key: KEY,
    };
    let tasks = prepare_all(&Latency, Latency.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(20));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = Latency.derive(&context, &outcomes);
    (outcomes, derived)
}

fn asked(outcomes: &[Outcome]) -> trips::Asked {
    let bodies =
        outcomes.iter().map(|outcome| serde_json::from_value::<LatencyBody>(outcome.body.clone()).unwrap());
    let mut all: Vec<_> = bodies.flat_map(|body| body.asked).collect();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn histogram(outcomes: &[Outcome], metric: &str) -> weir_core::record::Histogram {
    let rows: Vec<_> =
        outcomes.iter().flat_map(|outcome| &outcome.rows).filter(|row| row.metric == metric).collect();
    assert_eq!(rows.len(), 1, "{metric}");
    let Observed::Histogram(histogram) = &rows[0].value else { panic!("{metric}") };
    histogram.clone()
}

// Spec: net-protocol.md#latency-4
#[test]
fn over_either_transport_and_in_either_loop_every_request_asked_for_is_accounted_for() {
    for transport in ["tcp", "udp"] {
        for rate in [None, Some(hertz(2000.0))] {
            let mut values = udp_values(&[("count", Value::Count(200))]);
            values.set("transport", Value::Text(transport.to_owned()));
            if let Some((key, rate)) = &rate {
                values.set(key, rate.clone());
            }
            let (outcomes, derived) = run_step(&values);
            assert_eq!(derived.invalid, None, "{transport} {rate:?}");
            let asked = asked(&outcomes);
            let missed = asked.clock.map_or(0, |clock| clock.missed);
            let trips = histogram(&outcomes, "latency.round_trip_seconds");
            assert_eq!(trips.count.iter().sum::<u64>(), asked.answered);
            // Ticks that a busy machine sleeps through are given up, and counted.
            assert!(asked.answered + asked.lost + missed >= 200, "{asked:?}");
            assert!(asked.answered + asked.lost <= 200, "{asked:?}");
            assert_eq!(derived.load.generator.is_some(), rate.is_some());
            if rate.is_some() {
                let lateness = histogram(&outcomes, "generator.lateness_seconds");
                assert_eq!(lateness.count.iter().sum::<u64>(), asked.clock.unwrap().due);
            }
        }
    }
}

/// A responder that is slow now and then, over TCP.
fn slow_peer(mut stream: std::net::TcpStream, pause: Duration, every: u64) {
    use std::io::{Read, Write};
    let mut message = [0; 64];
    let mut count = 0;
    while stream.read_exact(&mut message).is_ok() {
        count += 1;
        if count % every == 0 {
            std::thread::sleep(pause);
        }
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

fn open_loop(count: u64, rate: f64) -> Load {
    let mut values = Values::default();
    values.set("count", Value::Count(count));
    values.set("warm_up_count", Value::Count(0));
    let (key, rate) = hertz(rate);
    values.set(key, rate);
    Load {
        plan: LatencyPlan::from_values(&values).unwrap(),
        host: "a".to_owned(),
        role: rendezvous::CONNECT.to_owned(),
        limits: Limits { reply: Duration::from_secs(10) },
    }
}

/// A generator that a busy machine put to sleep has asked for less than a claim is about: made again until it was awake, each time after a
/// little longer, since what keeps the machine busy ends.
fn awake_once(mut measure: impl FnMut() -> Outcome) -> Outcome {
    let awake =
        |outcome: &Outcome| asked(std::slice::from_ref(outcome)).clock.is_none_or(|clock| clock.missed < 10);
    let mut tried = (0..50).map(|tries| {
        std::thread::sleep(Duration::from_millis(20 * tries));
        measure()
    });
    tried.find(awake).expect("the machine was too busy for this claim, fifty times")
}

// Spec: net-protocol.md#latency-4
#[test]
fn requests_that_wait_behind_a_stall_count_their_waiting_from_when_they_were_intended() {
    let stall = Duration::from_millis(100);
    let measure = || {
        let (flow, peer) = flow();
        let answering = std::thread::spawn(move || slow_peer(peer, stall, 40));
        let outcome = pingpong::run(&open_loop(75, 400.0), vec![flow], &Control::new(monotonic())).unwrap();
        assert_eq!(outcome.failures, weir_core::failure::Failures::default());
        answering.join().unwrap();
        outcome
    };
    let outcome = awake_once(measure);
    let trips = histogram(std::slice::from_ref(&outcome), "latency.round_trip_seconds");
    let slow: u64 = trips
        .value_ns
        .iter()
        .zip(&trips.count)
        .filter(|(value, _)| **value >= 50_000_000)
        .map(|(_, count)| *count)
        .sum();
    // A closed loop would have seen one; here about twenty of the forty requests of those 100 ms waited half of it or longer.
    assert!(slow >= 10, "{slow} of {trips:?}");
    assert!(trips.max_ns >= 99_000_000);
}

/// A flow over UDP whose other end is in the test's hands.
fn association(gate: &mut weir_transport::udp::UdpGate) -> (rendezvous::Flow<Association>, Association) {
    let address = gate.address().unwrap();
    let near = std::thread::spawn(move || {
        weir_transport::associate::open(address, [0; 16], 0, None, Duration::from_secs(5)).unwrap()
    });
    let far = gate.next(Duration::from_secs(5), |_, _| true).unwrap().unwrap().association;
    let spec =
        rendezvous::FlowSpec { index: 0, entity: "flow.a.b.0".to_owned(), peer: "b".to_owned(), sends: true };
    (rendezvous::Flow { spec, stream: near.join().unwrap() }, far)
}

// Spec: net-protocol.md#latency-6
#[test]
fn lost_late_doubled_and_forged_replies_are_never_latencies() {
    use weir_transport::datagram::{Header, Kind};
    let measure = |rate: Option<f64>| {
        let mut gate = weir_transport::udp::UdpGate::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let (flow, far) = association(&mut gate);
        // Every tenth request is never answered; every other tenth too late, and all others twice with garbage between.
        let answering = std::thread::spawn(move || {
            let mut message = [0; 2000];
            far.socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut late = Vec::new();
            while let Ok(count) = far.socket.recv(&mut message) {
                let Some(header) = far.header(&message[..count]) else { continue };
                if header.kind == Kind::End {
                    far.send_bare(Kind::Ended, 0).unwrap();
                    return;
                }
                Header { kind: Kind::Reply, ..header }.write(&mut message);
                match header.number % 10 {
                    3 => {}
                    7 => late.push(message[..count].to_vec()),
                    _ => {
                        let forged = Header { kind: Kind::Reply, tag: header.tag ^ 1, number: header.number };
                        let mut other = vec![0; count];
                        forged.write(&mut other);
                        far.socket.send(&other).unwrap();
                        far.socket.send(&message[..count - 1]).unwrap();
                        far.socket.send(&message[..count]).unwrap();
                        far.socket.send(&message[..count]).unwrap();
                    }
                }
                if header.number % 10 == 9 {
                    for reply in late.drain(..) {
                        far.socket.send(&reply).unwrap();
                    }
                }
            }
        });
        let mut pairs = vec![
            ("count", Value::Count(100)),
            ("warm_up_count", Value::Count(0)),
            ("timeout", Value::Duration(Duration::from_millis(if rate.is_some() { 40 } else { 10 }))),
        ];
        pairs.extend(rate.map(hertz));
        let load = Load {
            plan: LatencyPlan::from_values(&udp_values(&pairs)).unwrap(),
            host: "a".to_owned(),
            role: rendezvous::CONNECT.to_owned(),
            limits: Limits { reply: Duration::from_secs(10) },
        };
        let control = Control::new(monotonic());
        let outcome = datagrams::run(&load, vec![flow], &control).unwrap();
        answering.join().unwrap();
        assert_eq!(outcome.failures, weir_core::failure::Failures::default());
        outcome
    };
    for rate in [None, Some(1000.0)] {
        let outcome = awake_once(|| measure(rate));
        let asked = asked(std::slice::from_ref(&outcome));
        let trips = histogram(std::slice::from_ref(&outcome), "latency.round_trip_seconds");
        assert_eq!(trips.count.iter().sum::<u64>(), asked.answered);
        // Ticks that the machine slept through asked for nothing.
        assert!(12 * asked.lost >= asked.lost + asked.answered, "{rate:?} {asked:?}");
        assert!(trips.max_ns <= if rate.is_some() { 40_000_000 } else { 200_000_000 }, "{trips:?}");
        if rate.is_none() {
            assert_eq!(asked.answered + asked.lost, 100);
            assert_eq!(asked.lost, 20, "the late ones count as lost too");
        }
        assert!(outcome.rows.iter().any(|row| row.metric == "latency.lost_ratio"));
    }
}

#[test]
fn a_udp_peer_that_is_silent_ends_the_closed_loop_with_a_reason_and_all_requests_lost() {
    let mut gate = weir_transport::udp::UdpGate::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let (flow, _deaf) = association(&mut gate);
    let timeout = ("timeout", Value::Duration(Duration::from_millis(5)));
    let load = Load {
        plan: LatencyPlan::from_values(&udp_values(&[("count", Value::Count(100_000)), timeout])).unwrap(),
        host: "a".to_owned(),
        role: rendezvous::CONNECT.to_owned(),
        limits: Limits { reply: Duration::from_millis(200) },
    };
    let outcome = datagrams::run(&load, vec![flow], &Control::new(monotonic())).unwrap();
    assert!(outcome.failures.first().unwrap().text.contains("silent for"), "{:?}", outcome.failures);
    let asked = asked(std::slice::from_ref(&outcome));
    assert!(asked.answered == 0 && asked.lost > 0, "{asked:?}");
}

// Spec: net-protocol.md#latency-7
#[test]
fn requests_of_which_none_can_count_are_refused_with_what_would_do() {
    let plan = |pairs: &[(&str, Value)]| LatencyPlan::from_values(&with(pairs));
    let (seconds, hertz) = (|s| Value::Duration(Duration::from_secs(s)), |f| Value::Frequency(Hertz(f)));
    let of = |duration, rate, warm_up_count| {
        plan(&[
            ("duration", seconds(duration)),
            ("rate", hertz(rate)),
            ("warm_up_count", Value::Count(warm_up_count)),
        ])
    };
    let said = of(3, 1.0, 10).unwrap_err().text;
    assert!(
        said.contains("make 3 requests, and none counts") && said.contains("`duration` of 11 s"),
        "{said}"
    );
    assert!(of(10, 1.0, 10).is_err() && of(11, 1.0, 10).is_ok() && of(3, 1.0, 2).is_ok());
    let late = plan(&[("count", Value::Count(3)), ("rate", hertz(1.0)), ("warm_up", seconds(20))]);
    let said = late.unwrap_err().text;
    assert!(said.contains("`count` of 11"), "{said}");
    let enough = plan(&[("count", Value::Count(11)), ("rate", hertz(1.0)), ("warm_up", seconds(20))]);
    assert!(enough.is_ok());
    // In a closed loop the path's round trip tells, where it is known.
    let closed = |rtt| {
        let values = with(&[("duration", seconds(2))]);
        Latency.estimate(&values, &Shape::of_pairs(1, Duration::from_millis(rtt))).map_err(|error| error.text)
    };
    assert!(closed(0).is_ok() && closed(199).is_ok());
    assert!(closed(200).unwrap_err().contains("the first 10 (`warm_up_count`)"));
    let udp = |rtt| {
        Latency.estimate(
            &udp_values(&[("count", Value::Count(5))]),
            &Shape::of_pairs(1, Duration::from_millis(rtt)),
        )
    };
    assert!(udp(1_000).is_ok() && udp(1_001).unwrap_err().text.contains("every reply would count as lost"));
}
