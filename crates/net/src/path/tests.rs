//! Runs over loopback through the seam, both ends in this process, and ends whose peer is no good.

use super::*;
use crate::rendezvous::FlowSpec;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use metrics::*;
use outcome::PathBody;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use weir_core::Bytes;
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_sys::clock::monotonic;
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::Association;

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn one(derived: &Derived, metric: &str, entity: &str) -> f64 {
    let row = derived.rows.iter().find(|row| row.metric == metric && row.entity == entity);
    let row = row.unwrap_or_else(|| panic!("no {metric} of {entity} in {derived:#?}"));
    if let Observed::Value(value) = row.value { value } else { panic!("{row:?}") }
}

// Spec: net-protocol.md#path-3 net-protocol.md#path-4 net-protocol.md#path-6 net-protocol.md#path-7
#[test]
fn the_loopback_is_one_hop_that_takes_the_largest_datagrams_in_order_both_ways() {
    let values = values(&[("train", Value::Count(300)), ("transfer", Value::Size(Bytes(300_000)))]);
    let request = StepRequest {
        step: "look",
        seed: 1,
        values: &values,
        pairs: vec![(peer("a"), peer("b"))],
        roles: Vec::new(),
        key: KEY,
    };
    let tasks = prepare_all(&Path, Path.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let derived = Path.derive(
        &DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() },
        &outcomes,
    );
    assert_eq!((&derived.invalid, &derived.warnings[..]), (&None, &[][..]), "{outcomes:#?}");
    for (flow, hop) in [("flow.a.b.0", "hop.a.b.0.1.127.0.0.1"), ("flow.b.a.0", "hop.b.a.0.1.127.0.0.1")] {
        let of = |metric| one(&derived, metric, flow);
        assert_eq!((of(HOPS), of(MTU), of(BLACK_HOLED)), (1.0, 65_535.0, 0.0));
        assert_eq!((of(LOST), of(REORDERED), of(DUPLICATE), of(EXTENT)), (0.0, 0.0, 0.0, 0.0));
        assert!(of(SEGMENT) > 500.0 && of(KERNEL_MTU) >= 65_535.0, "{derived:#?}");
        assert_eq!(one(&derived, HOP_ANSWERED, hop), 1.0);
    }
    let declared = |name: &str| METRICS.iter().any(|metric| metric.name == name);
    assert!(derived.rows.iter().all(|row| declared(&row.metric)));
}

#[test]
fn what_contradicts_itself_is_refused_by_the_names_of_its_keys() {
    let refused = |pairs: &[(&str, Value)]| PathPlan::from_values(&values(pairs)).unwrap_err().text;
    let second = Value::Duration(Duration::from_secs(1));
    assert!(refused(&[("duration", second.clone())]).contains("`duration`"));
    assert!(refused(&[("warm_up", second)]).contains("`warm_up`"));
    assert!(refused(&[("streams", Value::Count(2))]).contains("`streams`"));
    assert!(refused(&[("probes", Value::Count(0))]).contains("`probes`"));
    assert!(refused(&[("timeout", Value::Duration(Duration::from_secs(60)))]).contains("`timeout`"));
}

/// A flow of this end with its connection, the other end of that, and the association of each.
fn ends(sends: bool) -> (Flow, TcpStream, Association, Association) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let spec = FlowSpec { index: 0, entity: "flow.a.b.0".to_owned(), peer: "b".to_owned(), sends };
    let far_flow = Flow { spec: spec.clone(), stream: far };
    let mut here = meeting::open_and_greet(std::slice::from_ref(&far_flow)).unwrap();
    let flow = Flow { spec, stream: near };
    let mut there = meeting::hear_all(std::slice::from_ref(&flow)).unwrap();
    let control = Control::new(monotonic());
    let (near, far) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| here.remove(&0).unwrap().meet(&control).unwrap());
        (there.remove(&0).unwrap().meet(&control).unwrap(), accepting.join().unwrap())
    });
    (flow, far_flow.stream, near, far)
}

fn answered(flow: &Flow, association: &Association, limit: Duration) -> (Received, io::Error) {
    let plan = PathPlan::from_values(&values(&[("transfer", Value::Size(Bytes(1_000)))])).unwrap();
    let control = Control::new(monotonic());
    let mut received = Received::default();
    let guard = Guard::new(&flow.stream, limit);
    threads::prepare(&flow.stream).unwrap();
    let answerer = Answerer { plan: &plan, control: &control, guard: &guard };
    let error = answerer.run(flow, association, &mut received).unwrap_err();
    (received, error)
}

// Spec: net-protocol.md#path-8
#[test]
fn a_probing_end_that_leaves_says_nonsense_or_sends_more_than_agreed_ends_the_flow_with_a_reason() {
    for (words, reason) in [
        (&[][..], "left before the path was described"),
        (&[0, 0, 7][..], "says 7"),
        (&[1; 3_000][..], "1000 were agreed"),
    ] {
        let (flow, mut far, near, _far_association) = ends(false);
        far.write_all(words).unwrap();
        let held = if words.is_empty() {
            drop(far);
            None
        } else {
            Some(far)
        };
        let (_, error) = answered(&flow, &near, Duration::from_secs(30));
        assert!(error.to_string().contains(reason), "{words:?}: {error}");
        drop(held);
    }
}

// Spec: net-protocol.md#path-8
#[test]
fn an_answering_end_that_is_deaf_or_leaves_ends_the_probing_one_with_a_reason() {
    for leaves in [false, true] {
        let (flow, far, near, _far_association) = ends(true);
        let plan =
            PathPlan { timeout: Duration::from_millis(20), ..PathPlan::from_values(&values(&[])).unwrap() };
        let control = Control::new(monotonic());
        let guard = Guard::new(&flow.stream, SILENCE);
        threads::prepare(&flow.stream).unwrap();
        let far = if leaves {
            drop(far);
            None
        } else {
            Some(far)
        };
        let turns = Turns::new(0);
        let prober = Prober { plan: &plan, control: &control, guard: &guard, turns: &turns };
        let error = prober.run(&flow, &near, &mut Found::default()).unwrap_err();
        assert!(error.to_string().contains("answers none of ten"), "{error}");
        drop(far);
    }
}

// Spec: net-protocol.md#path-6
#[test]
fn what_is_doubled_overtaken_or_forged_of_a_train_is_told_apart() {
    let (flow, mut far, near, far_association) = ends(false);
    let mut datagram = vec![0; HEADER_BYTES + 8];
    for (tag, number) in [(0, 0), (0, 1), (0, 3), (0, 2), (0, 2), (1, 9)] {
        let tag = far_association.tag ^ tag;
        Header { tag, kind: Kind::Message, number }.write(&mut datagram);
        far_association.socket.send(&datagram).unwrap();
    }
    let answering = std::thread::spawn(move || answered(&flow, &near, Duration::from_secs(30)));
    std::thread::sleep(Duration::from_millis(200));
    // Nonsense, so that it ends.
    far.write_all(&[9]).unwrap();
    let (received, _) = answering.join().unwrap();
    assert_eq!(
        (received.distinct, received.duplicate, received.reordered, received.extent_max),
        (4, 1, 1, 1),
        "{received:?}"
    );
    let _ = far.read(&mut [0]);
}

#[test]
fn a_body_survives_its_way_to_who_derives() {
    let hop = found::Hop { number: 2, asked: 3, small_ns: vec![5], ..found::Hop::default() };
    let found = Found { entity: "flow.a.b.0".to_owned(), hops: vec![hop], ..Found::default() };
    let body = PathBody { found: vec![found], received: Vec::new() };
    let text = serde_json::to_string(&body).unwrap();
    assert_eq!(serde_json::from_str::<PathBody>(&text).unwrap(), body);
}

// Spec: net-protocol.md#path-1 net-protocol.md#path-2
#[test]
fn a_probe_is_waited_for_as_the_peer_takes_and_no_longer_than_asked() {
    let (_flow, _far, near, far_association) = ends(true);
    let limit = Duration::from_millis(700);
    let mut asker = ask::Asker::new(&near, limit).unwrap();
    assert_eq!(asker.patience(), limit);
    // Nobody answers, and then the answer to the first probe comes to the second, which it is not.
    assert_eq!(asker.ask(100, None).unwrap(), ask::Answer::Silence);
    let mut request = [0; 200];
    let count = far_association.socket.recv(&mut request).unwrap();
    assert_eq!(count, 100 - 28);
    let first = far_association.header(&request[..count]).unwrap();
    let reply = |number| far_association.send_bare(Kind::Reply, number).unwrap();
    reply(first.number);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut request = [0; 200];
            let count = far_association.socket.recv(&mut request).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            reply(far_association.header(&request[..count]).unwrap().number);
        });
        let answer = asker.ask(60, Some(5)).unwrap();
        assert!(matches!(answer, ask::Answer::Reply { time_ns } if time_ns >= 50_000_000), "{answer:?}");
    });
    assert!((Duration::from_millis(350)..=limit).contains(&asker.patience()), "{:?}", asker.patience());
}
