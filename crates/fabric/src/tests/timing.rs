//! Times are exact: computed here a second time, as fractions.

use super::lab::*;
use crate::{Action, DropReason, Fabric, Network};
use proptest::prelude::*;
use weir_core::schedule::{Change, Set};
use weir_core::topology::Queue;
use weir_core::{BitsPerSecond, Bytes, Instant};

/// Nanoseconds as a fraction over `rate`: `parts / rate`.
fn bits_ns(wire_bytes: u64) -> i128 {
    i128::from(wire_bytes) * 8_000_000_000
}

fn ceil(parts: i128, rate: u64) -> u64 {
    u64::try_from((parts + i128::from(rate) - 1) / i128::from(rate)).unwrap()
}

/// When each delivered run arrived, in order.
fn arrivals_ns(actions: &[Action]) -> Vec<u64> {
    let planned = |action: &Action| match action {
        Action::Deliver { planned, .. } => Some(planned.as_ns()),
        Action::Drop { .. } | Action::Seen { .. } => None,
    };
    actions.iter().filter_map(planned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Spec: fabric.md#fabric-3
    // Spec: fabric.md#fabric-6
    #[test]
    fn on_an_idle_path_the_delay_is_exact_to_the_nanosecond(
        topology in any_tree(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        payload in 1_u16..1300,
        at_ns in 0_u64..1_000_000_000_000,
        add in proptest::option::of((any::<prop::sample::Index>(), 0_u64..10_000_000)),
    ) {
        let hosts = topology.hosts.len();
        prop_assume!(hosts > 1);
        let from = from.index(hosts);
        let to = (from + 1 + to.index(hosts - 1)) % hosts;
        let mut topology = topology;
        for link in &mut topology.links {
            (link.forward.loss, link.backward.loss) = (0.0, 0.0);
        }
        let path = topology.path(from, to).unwrap();
        let added = add.map(|(index, ns)| (path[index.index(path.len())], ns));
        let changes: Vec<Change> =
            added.iter().map(|(link, ns)| Change { at_ns: 0, link: *link, set: Set::DelayAdd(*ns) }).collect();

        let directed = topology.directed_links();
        let mut expected_ns = at_ns;
        for index in path {
            let link = &directed[index];
            if let Some(rate) = link.rate {
                expected_ns += ceil(bits_ns(52 + u64::from(payload) + u64::from(link.framing_bytes)), rate.0);
            }
            expected_ns += link.delay_ns + added.filter(|(added, _)| *added == index).map_or(0, |(_, ns)| ns);
        }
        let sent = Sent { at_ns, from, meta: meta(to, 1, payload, payload) };
        prop_assert_eq!(arrivals_ns(&outcome(&topology, &changes, &[sent])), vec![expected_ns]);
    }

    // Spec: fabric.md#fabric-5
    #[test]
    fn the_rate_is_exact_over_any_window_of_a_thousand_packets(
        rate in prop_oneof![10_000_000_u64..2_000_000_000, 2_500_000_000_u64..400_000_000_000],
        delay_ns in 0_u64..1_000_000,
        buffers in proptest::collection::vec((1_u16..=44, 1_u16..=1448), 150),
    ) {
        let topology = pair(access(None, 0), direction(Some(rate), delay_ns));
        // Handed in at once, so that the link is never idle from its first packet to its last.
        let traffic: Vec<Sent> = buffers
            .iter()
            .map(|(segments, last)| Sent { at_ns: 0, from: 0, meta: meta(1, *segments, 1448, *last) })
            .collect();
        let actions = outcome(&topology, &[], &traffic);
        let mut departures: Vec<(u64, i128)> = vec![(0, 0)]; // as seen, and parts sent by then
        for action in &actions {
            let Action::Deliver { packet, planned, .. } = action else { panic!("{action:?}") };
            let sent = departures.last().unwrap().1 + bits_ns(packet.wire_bytes(38));
            departures.push((planned.as_ns() - delay_ns, sent));
        }
        prop_assert_eq!(departures.len() - 1 == traffic.len(), rate >= 2_500_000_000, "split or not");
        let window = 1000.min(departures.len() - 1);
        for ends in departures.windows(window + 1) {
            let ((from_ns, from), (to_ns, to)) = (ends[0], ends[window]);
            // Both ends are rounded up, so the difference is off by less than one nanosecond.
            let error = i128::from(to_ns - from_ns) * i128::from(rate) - (to - from);
            prop_assert!(error.abs() < i128::from(rate), "{error} / {rate} ns in {from_ns} to {to_ns}");
        }
    }

    // Spec: fabric.md#fabric-5
    #[test]
    fn a_packet_leaves_after_its_arrival_and_the_one_before_however_late_the_calls_are(
        rate in 1_000_000_u64..100_000_000_000,
        delay_ns in 0_u64..1_000_000,
        packets in proptest::collection::vec((0_u64..30_000, 1_u16..=1448), 1..300),
    ) {
        let topology = pair(access(None, 0), direction(Some(rate), delay_ns));
        let (mut at_ns, mut departure, mut expected) = (0_u64, 0_i128, Vec::new());
        let mut traffic = Vec::new();
        for (gap_ns, payload) in packets {
            at_ns += gap_ns;
            traffic.push(Sent { at_ns, from: 0, meta: meta(1, 1, payload, payload) });
            departure = departure.max(i128::from(at_ns) * i128::from(rate)) + bits_ns(90 + u64::from(payload));
            expected.push(ceil(departure, rate) + delay_ns);
        }
        prop_assert_eq!(arrivals_ns(&outcome(&topology, &[], &traffic)), expected);
    }

    // Spec: fabric.md#fabric-8
    // Spec: fabric.md#fabric-14
    #[test]
    fn a_packet_is_dropped_exactly_when_it_meets_a_full_queue(
        // 1,500 wire bytes in a whole number of microseconds: many arrive at the instant at which one leaves.
        tx_us in 1_u64..6,
        // Limits that whole packets of both sizes meet exactly, and others.
        bytes in proptest::option::of((0_u64..8, 0_u64..8, 0_u64..2).prop_map(|(a, b, c)| 712 * a + 1462 * b + c)),
        packets in proptest::option::of(0_u64..12),
        gaps_us in proptest::collection::vec((0_u64..8, any::<bool>()), 1..200),
    ) {
        let mut forward = direction(Some(12_000_000_000 / tx_us), 0);
        forward.queue = Queue::drop_tail(bytes.map(Bytes), packets);
        let topology = pair(access(None, 0), forward);
        let (mut at_ns, mut traffic, mut expected) = (0, Vec::new(), Vec::new());
        let mut accepted: Vec<(u64, u64, u64)> = Vec::new(); // begins, leaves, bytes
        for (gap_us, small) in gaps_us {
            at_ns += gap_us * 1_000;
            let payload = if small { 660 } else { 1410 };
            let size = u64::from(payload) + 52;
            traffic.push(Sent { at_ns, from: 0, meta: meta(1, 1, payload, payload) });
            let waiting: Vec<u64> = accepted.iter().filter(|one| one.0 > at_ns).map(|one| one.2).collect();
            let free_ns = accepted.last().map_or(0, |one| one.1);
            let fits = bytes.is_none_or(|bytes| waiting.iter().sum::<u64>() + size <= bytes)
                && packets.is_none_or(|packets| (waiting.len() as u64) < packets);
            if at_ns < free_ns && !fits {
                expected.push(false);
                continue;
            }
            let begins = at_ns.max(free_ns);
            accepted.push((begins, begins + (size + 38) * tx_us * 1_000 / 1_500, size));
            expected.push(true);
        }
        let mut seen = vec![false; traffic.len()];
        for action in outcome(&topology, &[], &traffic) {
            match action {
                Action::Deliver { packet, .. } => seen[packet.buffer as usize] = true,
                Action::Drop { reason, link, .. } => prop_assert_eq!((reason, link), (DropReason::Queue, WAN)),
                Action::Seen { .. } => unreachable!("nothing is captured"),
            }
        }
        prop_assert_eq!(seen, expected);
    }

    // Spec: fabric.md#fabric-7
    #[test]
    fn whole_and_split_super_packets_end_within_one_serialisation_of_each_other(
        rates in (2_500_000_000_u64..40_000_000_000, 2_500_000_000_u64..40_000_000_000),
        buffers in proptest::collection::vec((0_u64..200_000, 2_u16..=44), 1..60),
    ) {
        let topology = pair(access(Some(rates.0), 10_000), direction(Some(rates.1), 1_000_000));
        let mut at_ns = 0;
        let mut traffic = Vec::new();
        for (gap_ns, segments) in buffers {
            at_ns += gap_ns;
            traffic.push(Sent { at_ns, from: 0, meta: meta(1, segments, 1448, 1448) });
        }
        // A loss that comes long after the last packet makes the link split.
        let later = Change { at_ns: 1 << 40, link: WAN, set: Set::Loss(Some(0.5)) };
        let ends = |changes: &[Change]| {
            let mut ends = vec![(0, 0); traffic.len()];
            for action in outcome(&topology, changes, &traffic) {
                let Action::Deliver { packet, planned, .. } = action else { panic!("{action:?}") };
                let (end_ns, runs) = &mut ends[packet.buffer as usize];
                (*end_ns, *runs) = (planned.as_ns().max(*end_ns), *runs + 1);
            }
            ends
        };
        let (whole, split) = (ends(&[]), ends(&[later]));
        let one_ns = ceil(bits_ns(44 * 1538), rates.0.min(rates.1));
        for ((whole, split), sent) in whole.into_iter().zip(split).zip(&traffic) {
            prop_assert_eq!((whole.1, split.1), (1, sent.meta.segments));
            prop_assert!(split.0 <= whole.0, "split {split:?} ends after whole {whole:?}");
            prop_assert!(whole.0 - split.0 <= one_ns, "whole {whole:?}, split {split:?}, one takes {one_ns} ns");
        }
    }
}

// Spec: fabric.md#fabric-5
#[test]
fn a_changed_rate_holds_from_the_next_packet_taken_into_service() {
    // 1462 + 38 bytes: 1.2 ms at 10 Mbit/s, 0.6 ms at 20 Mbit/s.
    let topology = pair(access(None, 0), direction(Some(10_000_000), 0));
    let traffic = vec![Sent { at_ns: 0, from: 0, meta: meta(1, 1, 1410, 1410) }; 4];
    let rate =
        |at_ns, rate: Option<u64>| Change { at_ns, link: WAN, set: Set::Rate(rate.map(BitsPerSecond)) };
    let changes = [rate(500_000, Some(20_000_000)), rate(1_900_000, None)];
    assert_eq!(
        arrivals_ns(&outcome(&topology, &changes, &traffic)),
        [1_200_000, 1_800_000, 2_400_000, 3_600_000]
    );
}

// Spec: fabric.md#fabric-6
#[test]
fn a_delay_that_shrinks_does_not_let_a_packet_overtake() {
    let topology = pair(access(None, 0), direction(None, 1_000));
    let sent = |at_ns| Sent { at_ns, from: 0, meta: meta(1, 1, 100, 100) };
    let add = |at_ns, ns| Change { at_ns, link: WAN, set: Set::DelayAdd(ns) };
    let traffic = [sent(0), sent(10), sent(20), sent(6_000)];
    let changes = [add(5, 5_000), add(15, 0)];
    assert_eq!(arrivals_ns(&outcome(&topology, &changes, &traffic)), [1_000, 6_010, 6_010, 7_000]);
}

// Spec: fabric.md#fabric-14
#[test]
fn a_packet_handed_in_with_an_earlier_time_counts_as_handed_in_at_the_latest_one_seen() {
    let mut fabric = Fabric::new(&pair(access(None, 0), direction(None, 1_000)), 0);
    fabric.advance(Instant::from_ns(500));
    fabric.advance(Instant::from_ns(100));
    fabric.ingress(0, 0, meta(1, 1, 100, 100), Instant::from_ns(400));
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    assert_eq!(arrivals_ns(&actions), [1_500]);
}

// Spec: evidence.md#fitness-1
#[test]
fn a_link_counts_how_often_it_ran_empty() {
    let topology = pair(access(Some(12_000_000), 0), direction(None, 0));
    let mut fabric = Fabric::new(&topology, 0);
    let send = |fabric: &mut Fabric, count, at_ms: u64| {
        for buffer in 0..count {
            fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::from_ns(at_ms * 1_000_000));
        }
    };
    // 1,500 wire bytes take 1 ms each.
    send(&mut fabric, 3, 0);
    fabric.advance(Instant::from_ns(1_500_000));
    send(&mut fabric, 2, 2);
    fabric.advance(Instant::from_ns(4_999_999));
    assert_eq!(fabric.counters(0).ran_empty, 0, "five packets, each there before the one ahead has left");
    fabric.advance(Instant::from_ns(5_000_000));
    assert_eq!(fabric.counters(0).ran_empty, 1);
    send(&mut fabric, 1, 5);
    fabric.advance(Instant::from_ns(7_000_000));
    assert_eq!(fabric.counters(0).ran_empty, 2, "a packet that finds the link idle leaves it so");
}

// Spec: fabric.md#fabric-8
#[test]
fn a_host_is_told_what_waits_for_its_own_link() {
    let topology = pair(access(Some(12_000_000), 0), direction(None, 0));
    let mut fabric = Fabric::new(&topology, 0);
    for buffer in 0..1_000 {
        fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::ZERO);
    }
    assert_eq!((fabric.hold_bytes(Network::Data, 0), fabric.hold_bytes(Network::Data, 1)), (999 * 1462, 0));
    // 1,500 wire bytes take 1 ms each.
    fabric.advance(Instant::from_ns(10_000_000));
    assert_eq!(fabric.hold_bytes(Network::Data, 0), 989 * 1462);
    assert_eq!((fabric.counters(0).dropped_queue, fabric.counters(0).busy_ns), (0, 10_000_000));
}
