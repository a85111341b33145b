//! Runs over loopback through the seam, both ends in this process.

use super::*;
use crate::stream::tests::{KEY, peer, prepare_all, run_all};
use std::time::Duration;
use weir_core::Bytes;
use weir_core::evidence::Around;
use weir_core::param::Value;
use weir_core::record::Observed;
use weir_core::units::{BitsPerSecond, Hertz};
use weir_sys::clock::monotonic;

fn values(pairs: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(plan::PARAMS);
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    values
}

fn run_step(values: &Values) -> (Vec<Outcome>, Derived) {
    let request = StepRequest {
        step: "datagrams",
        seed: 1,
        values,
        pairs: vec![(peer("a"), peer("b"))],
        roles: Vec::new(),
        key: KEY,
    };
    let tasks = prepare_all(&Udp, Udp.assignments(&request));
    let control = Control::new(monotonic() + Duration::from_millis(30));
    let outcomes: Vec<Outcome> =
        run_all(tasks, &control).into_iter().map(|outcome| outcome.unwrap()).collect();
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = Udp.derive(&context, &outcomes);
    (outcomes, derived)
}

fn all(derived: &Derived, metric: &str) -> Vec<f64> {
    let of = derived.rows.iter().filter(|row| row.metric == metric);
    of.map(|row| if let Observed::Value(value) = row.value { value } else { panic!("{row:?}") }).collect()
}

fn bodies(outcomes: &[Outcome]) -> Vec<outcome::UdpBody> {
    outcomes.iter().map(|outcome| serde_json::from_value(outcome.body.clone()).unwrap()).collect()
}

// Spec: net-protocol.md#udp-1 net-protocol.md#udp-2
#[test]
fn every_datagram_that_was_sent_is_accounted_for_in_single_file_and_in_batches() {
    for (batch, size) in [(1, 24), (7, 1_200), (0, 1_400), (2, 30_000)] {
        let values = values(&[
            ("count", Value::Count(1_000)),
            ("packet_rate", Value::Frequency(Hertz(5_000.0))),
            ("batch", Value::Count(batch)),
            ("size", Value::Size(Bytes(size))),
            ("direction", Value::Text("both".to_owned())),
        ]);
        let (outcomes, derived) = run_step(&values);
        let what = format!("{batch} {size}: {outcomes:?}");
        assert_eq!(derived.invalid, None, "{what}");
        let (mut sent, mut came, mut overflowed) = (0, 0, 0);
        for body in bodies(&outcomes) {
            overflowed += body.received.iter().filter_map(|flow| flow.overflowed).sum::<u64>();
            sent += body.sent.iter().map(|flow| flow.sent).sum::<u64>();
            came += body.received.iter().map(|flow| flow.distinct).sum::<u64>();
            assert!(
                body.received.iter().all(|flow| flow.duplicate == Some(0) && flow.reordered == Some(0)),
                "{what}"
            );
        }
        // A tick that was slept through is no loss. What a receiver that the machine kept waiting had no room for is named.
        assert!(sent == came || sent > came && overflowed > 0, "{what}");
        assert!(sent > 1_000, "{what}");
        let lost = all(&derived, outcome::LOSS).iter().filter(|ratio| **ratio > 0.0).count();
        assert_eq!(lost == 0, sent == came, "{what}");
        assert_eq!(all(&derived, outcome::REORDERED), [0.0, 0.0]);
        assert!(all(&derived, outcome::JITTER).iter().all(|jitter| (0.0..0.01).contains(jitter)), "{what}");
    }
}

// Spec: net-protocol.md#udp-1
#[test]
fn the_rate_is_that_of_the_datagrams_and_the_warm_up_is_left_out() {
    let values = values(&[
        ("duration", Value::Duration(Duration::from_millis(600))),
        ("warm_up", Value::Duration(Duration::from_millis(200))),
        ("rate", Value::Rate(BitsPerSecond(20_000_000))),
    ]);
    let (outcomes, derived) = run_step(&values);
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    let missed = derived.load.generator.unwrap().missed_count as f64
        / derived.load.generator.unwrap().due_count as f64;
    let goodput = all(&derived, outcome::GOODPUT)[0];
    assert!((goodput / 20e6 - 1.0).abs() < 0.05 + missed, "{goodput} {missed}");
    let sent = all(&derived, outcome::SENT)[0];
    assert!((sent / (20e6 / 8.0 / 1_400.0) - 1.0).abs() < 0.05 + missed, "{sent} {missed}");
}

// Spec: net-protocol.md#udp-4
#[test]
fn what_a_slow_receiver_drops_is_its_own() {
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(listener.local_addr().unwrap()).unwrap();
    use std::os::fd::AsFd;
    use weir_sys::socket::{Buffer, dropped_datagrams, set_buffer};
    set_buffer(listener.as_fd(), Buffer::Receive, 4_096).unwrap();
    assert_eq!(dropped_datagrams(listener.as_fd()).unwrap(), 0);
    for _ in 0..100 {
        sender.send(&[0; 1_000]).unwrap();
    }
    let dropped = dropped_datagrams(listener.as_fd()).unwrap();
    assert!((50..100).contains(&dropped), "{dropped}");
}

#[test]
fn batches_keep_ticks_apart_and_fit_what_the_kernel_takes() {
    let plan = |rate: u64, size: u64| {
        UdpPlan::from_values(&values(&[
            ("duration", Value::Duration(Duration::from_secs(1))),
            ("rate", Value::Rate(BitsPerSecond(rate))),
            ("size", Value::Size(Bytes(size))),
        ]))
        .unwrap()
    };
    assert_eq!(plan(10_000_000, 1_400).batch(), 1);
    assert_eq!(plan(1_000_000_000, 1_400).batch(), 9);
    assert_eq!(plan(100_000_000_000, 1_400).batch(), 46);
    assert_eq!(plan(10_000_000_000, 64).batch(), 64);
    assert_eq!(plan(100_000_000_000, 65_000).batch(), 1);
}

#[test]
fn what_contradicts_itself_is_refused_by_the_names_of_its_keys() {
    let refused = |pairs: &[(&str, Value)]| UdpPlan::from_values(&values(pairs)).unwrap_err().text;
    let second = || Value::Duration(Duration::from_secs(1));
    let (rate, packet_rate) = (Value::Rate(BitsPerSecond(1)), Value::Frequency(Hertz(1.0)));
    assert!(refused(&[]).contains("`duration`"));
    assert!(
        refused(&[("duration", second()), ("rate", rate), ("packet_rate", packet_rate)])
            .contains("`rate` and `packet_rate`")
    );
    assert!(refused(&[("duration", second()), ("warm_up", second())]).contains("`warm_up`"));
    let batch = [("duration", second()), ("batch", Value::Count(64)), ("size", Value::Size(Bytes(1_400)))];
    assert!(refused(&batch).contains("`batch`"));
    let slow = |warm_up| {
        let packet_rate = Value::Frequency(weir_core::units::Hertz(1.0));
        let warm_up = Value::Duration(Duration::from_millis(warm_up));
        let duration = Value::Duration(Duration::from_millis(2_500));
        UdpPlan::from_values(&values(&[
            ("duration", duration),
            ("packet_rate", packet_rate),
            ("warm_up", warm_up),
        ]))
    };
    assert!(slow(2_000).is_ok());
    assert!(
        slow(2_001).unwrap_err().text.contains("a flow sends every 1 s, the last time within the `warm_up`")
    );
}

// Spec: net-protocol.md#udp-5
#[test]
fn a_single_datagram_has_no_rate_and_of_many_that_were_all_lost_it_is_zero() {
    let values = values(&[("count", Value::Count(1))]);
    let (outcomes, derived) = run_step(&values);
    assert_eq!(derived.invalid, None, "{outcomes:?}");
    for metric in [outcome::GOODPUT, outcome::TOTAL, outcome::SENT] {
        assert_eq!(all(&derived, metric), [0.0; 0], "{metric}");
    }
    assert_eq!(all(&derived, outcome::LOSS), [0.0]);
    assert!(derived.warnings.iter().any(|text| text.contains("no rate")), "{:?}", derived.warnings);

    let of = |sent: u64, distinct: u64, last_ns: u64| {
        let entity = "flow.a.b.0".to_owned();
        let mut body = outcome::UdpBody::default();
        body.sent.push(outcome::SentFlow { entity: entity.clone(), sent, ..Default::default() });
        body.received.push(outcome::ReceivedFlow { entity, distinct, last_ns, ..Default::default() });
        let outcome =
            Outcome { body: serde_json::to_value(body).expect("it is plain"), ..Outcome::default() };
        Udp.derive(
            &DeriveContext { values: &values, start_ns: 0, faults: &[], around: &Around::default() },
            &[outcome],
        )
    };
    assert_eq!(all(&of(2, 2, 1_000_000), outcome::TOTAL), [2.0 * 1_400.0 * 8.0 / 0.002]);
    // Two of one look came over no time.
    assert_eq!(all(&of(2, 2, 0), outcome::TOTAL), [0.0; 0]);
    assert_eq!(all(&of(1_000, 1, 0), outcome::TOTAL), [0.0; 0]);
    let lost = of(1_000, 0, 0);
    assert_eq!(all(&lost, outcome::TOTAL), [0.0]);
    assert!(lost.warnings[0].contains("weir net path"), "{:?}", lost.warnings);
}
