//! Loss, outage, MTU, and the schedule that brings them.

use super::lab::*;
use crate::{Action, DropReason, Fabric};
use proptest::prelude::*;
use weir_core::schedule::{Change, Set};
use weir_core::topology::{Queue, Topology};
use weir_core::{BitsPerSecond, Bytes, Instant};

fn lossy(loss: f64) -> Topology {
    let mut forward = direction(Some(1_000_000_000), 5_000);
    forward.loss = loss;
    pair(access(None, 0), forward)
}

/// Which segments were lost of `buffers` super-packets of ten.
fn lost(topology: &Topology, to: usize, seed: u64, buffers: u32) -> Vec<(u32, u16)> {
    let mut fabric = Fabric::new(topology, seed);
    let mut actions = Vec::new();
    for buffer in 0..buffers {
        fabric.ingress(0, buffer, meta(to, 10, 1448, 700), Instant::from_ns(u64::from(buffer) * 100_000));
        take(&mut fabric, &mut actions);
    }
    drain(&mut fabric, &mut actions);
    let of = |action: &Action| match action {
        Action::Drop { packet, reason: DropReason::Loss, .. } => Some((packet.buffer, packet.first)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

// Spec: fabric.md#fabric-9
#[test]
fn the_share_of_lost_segments_is_within_its_binomial_bounds() {
    let n = 100_000.0;
    for (seed, loss) in [1e-4, 0.001, 0.01, 0.1, 0.5, 0.99].into_iter().enumerate() {
        let count = lost(&lossy(loss), 1, seed as u64, 10_000).len() as f64;
        let sigma = (n * loss * (1.0 - loss)).sqrt();
        assert!((count - n * loss).abs() <= 4.0 * sigma + 1.0, "{count} lost of {n} at {loss}");
    }
    assert_eq!(lost(&lossy(0.0), 1, 0, 1_000).len(), 0);
    assert_eq!(lost(&lossy(1.0), 1, 0, 1_000).len(), 10_000);
}

// Spec: fabric.md#fabric-15
#[test]
fn another_seed_gives_other_drops() {
    assert_eq!(lost(&lossy(0.1), 1, 7, 500), lost(&lossy(0.1), 1, 7, 500));
    assert_ne!(lost(&lossy(0.1), 1, 7, 500), lost(&lossy(0.1), 1, 8, 500));
}

// Spec: fabric.md#fabric-15
#[test]
fn one_more_host_does_not_change_what_a_link_loses() {
    let mut larger = lossy(0.1);
    let mut host = larger.hosts[0].clone();
    host.name = "left-1".to_owned();
    larger.hosts.insert(1, host);
    assert_eq!(lost(&lossy(0.1), 1, 7, 500), lost(&larger, 2, 7, 500));
}

// Spec: fabric.md#fabric-15
#[test]
fn two_links_lose_different_segments_under_one_seed() {
    let mut fabric = Fabric::new(&lossy(0.5), 7);
    for buffer in 0..1_000 {
        for host in [0, 1] {
            fabric.ingress(host, 2 * buffer + host as u32, meta(1 - host, 1, 100, 100), Instant::ZERO);
        }
    }
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let lost_from = |host: u32| -> Vec<u32> {
        let of = |action: &Action| match action {
            Action::Drop { packet, .. } if packet.buffer % 2 == host => Some(packet.buffer / 2),
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    };
    assert_ne!(lost_from(0), lost_from(1));
}

// Spec: fabric.md#fabric-9
#[test]
fn a_lost_segment_has_used_the_wire() {
    let mut fabric = Fabric::new(&lossy(1.0), 0);
    fabric.ingress(0, 0, meta(1, 10, 1448, 1448), Instant::ZERO);
    drain(&mut fabric, &mut Vec::new());
    let counters = fabric.counters(WAN);
    assert_eq!((counters.packets_sent, counters.dropped_loss), (10, 10));
    assert_eq!((counters.wire_bytes_sent, counters.busy_ns), (15_380, 15_380 * 8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Spec: fabric.md#fabric-10
    // Spec: fabric.md#fabric-14
    #[test]
    fn an_outage_drops_exactly_the_segments_in_its_window(
        // 1,000 wire bytes take a whole number of microseconds, so events meet the window's edges again and again.
        tx_us in 1_u64..20,
        on_us in 0_u64..300,
        span_us in 0_u64..300,
        gaps_us in proptest::collection::vec(0_u64..15, 1..100),
        delay_us in 0_u64..500,
    ) {
        let topology = pair(access(None, 0), direction(Some(8_000_000_000 / tx_us), delay_us * 1_000));
        let tx_ns = |index: u64| (8_000_000_000_000_u64 * index).div_ceil(8_000_000_000 / tx_us);
        let cut = |at_ns: u64| (on_us * 1_000..(on_us + span_us) * 1_000).contains(&at_ns);
        let changes = [(on_us, true), (on_us + span_us, false)]
            .map(|(at, on)| Change { at_ns: at * 1_000, link: WAN, set: Set::Outage(on) });
        let (mut at_ns, mut traffic, mut expected) = (0, Vec::new(), Vec::new());
        let (mut busy_from, mut served, mut departure) = (0, 0, 0);
        for (buffer, gap_us) in gaps_us.into_iter().enumerate() {
            at_ns += gap_us * 1_000;
            traffic.push(Sent { at_ns, from: 0, meta: meta(1, 1, 910, 910) });
            let buffer = buffer as u32;
            if cut(at_ns) {
                expected.push((buffer, None, at_ns));
                continue;
            }
            if served == 0 || at_ns >= departure {
                (busy_from, served) = (at_ns, 0);
            }
            served += 1;
            departure = busy_from + tx_ns(served);
            if cut(departure) {
                expected.push((buffer, None, departure));
            } else {
                expected.push((buffer, Some(1), departure + delay_us * 1_000));
            }
        }
        let mut seen: Vec<(u32, Option<usize>, u64)> = outcome(&topology, &changes, &traffic)
            .into_iter()
            .map(|action| match action {
                Action::Deliver { host, packet, planned } => (packet.buffer, Some(host), planned.as_ns()),
                Action::Drop { packet, link: WAN, reason: DropReason::Outage, at } => (packet.buffer, None, at.as_ns()),
                other => panic!("{other:?}"),
            })
            .collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, expected);
    }

    // Spec: fabric.md#fabric-12
    #[test]
    fn a_cleared_schedule_leaves_no_trace(scene in any_scene()) {
        let mut fresh = Fabric::new(&scene.topology, scene.seed);
        let mut cleared = Fabric::new(&scene.topology, scene.seed);
        let every = |at_ns| -> Vec<Change> {
            let sets = [Set::Outage(true), Set::Rate(Some(BitsPerSecond(1))), Set::DelayAdd(9), Set::Loss(Some(1.0))];
            let links = 0..scene.topology.directed_count();
            links.flat_map(|link| sets.clone().map(|set| Change { at_ns, link, set })).collect()
        };
        cleared.schedule(&every(5));
        cleared.schedule(&every(1 << 50));
        cleared.advance(Instant::from_ns(10));
        prop_assert_eq!(cleared.wake_at(), Some(Instant::from_ns(1 << 50)));
        cleared.clear_schedule();
        prop_assert_eq!(cleared.wake_at(), None);
        for (buffer, sent) in scene.traffic.iter().enumerate() {
            let now = Instant::from_ns(10 + sent.at_ns);
            cleared.ingress(sent.from, buffer as u32, sent.meta, now);
            fresh.ingress(sent.from, buffer as u32, sent.meta, now);
        }
        let (mut of_cleared, mut of_fresh) = (Vec::new(), Vec::new());
        drain(&mut cleared, &mut of_cleared);
        drain(&mut fresh, &mut of_fresh);
        prop_assert_eq!(of_cleared, of_fresh);
    }
}

// Spec: fabric.md#fabric-12
#[test]
fn a_change_in_the_past_is_carried_out_at_once_and_one_of_no_link_not_at_all() {
    let mut fabric = Fabric::new(&pair(access(None, 0), direction(None, 1_000)), 0);
    fabric.advance(Instant::from_ns(500));
    fabric.schedule(&[
        Change { at_ns: 100, link: WAN, set: Set::Outage(true) },
        Change { at_ns: 100, link: 99, set: Set::Outage(true) },
    ]);
    assert_eq!(fabric.wake_at(), None);
    fabric.ingress(0, 0, meta(1, 3, 1000, 1000), Instant::from_ns(500));
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let [Action::Drop { packet, link: WAN, reason: DropReason::Outage, at }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((packet.count, at.as_ns()), (3, 500));
}

// Spec: fabric.md#fabric-12
#[test]
fn changes_are_carried_out_in_time_order_however_they_were_given() {
    let mut fabric = Fabric::new(&pair(access(None, 0), direction(None, 0)), 0);
    let add = |at_ns, ns| Change { at_ns, link: WAN, set: Set::DelayAdd(ns) };
    fabric.schedule(&[add(300, 3_000), add(100, 77), add(100, 1_000)]);
    fabric.schedule(&[add(200, 2_000)]);
    assert_eq!(fabric.wake_at(), Some(Instant::from_ns(100)));
    let mut actions = Vec::new();
    for (buffer, at_ns) in [150, 250, 350].into_iter().enumerate() {
        fabric.ingress(0, buffer as u32, meta(1, 1, 100, 100), Instant::from_ns(at_ns));
    }
    fabric.advance(Instant::from_ns(355));
    fabric.schedule(&[add(360, 0)]);
    assert_eq!(fabric.wake_at(), Some(Instant::from_ns(360)), "a change may come before the next packet");
    drain(&mut fabric, &mut actions);
    let planned_ns = |action: &Action| match action {
        Action::Deliver { planned, .. } => planned.as_ns(),
        Action::Drop { .. } | Action::Seen { .. } => panic!("{action:?}"),
    };
    assert_eq!(actions.iter().map(planned_ns).collect::<Vec<_>>(), [1_150, 2_250, 3_350]);
}

// Spec: fabric.md#fabric-11
#[test]
fn only_the_segments_larger_than_the_mtu_are_dropped() {
    let mut topology = pair(access(None, 0), direction(None, 0));
    topology.links[0].mtu = 1500;
    let runs = |segment_bytes, last_bytes| {
        let sent = Sent { at_ns: 0, from: 0, meta: meta(1, 4, segment_bytes, last_bytes) };
        let run = |action| match action {
            Action::Deliver { packet, .. } => (packet.first, packet.count, packet.ip_bytes(), None),
            Action::Drop { packet, reason, .. } => {
                (packet.first, packet.count, packet.ip_bytes(), Some(reason))
            }
            Action::Seen { .. } => panic!("nothing is captured"),
        };
        outcome(&topology, &[], &[sent]).into_iter().map(run).collect::<Vec<_>>()
    };
    let mtu = Some(DropReason::Mtu);
    assert_eq!(runs(1448, 1448), [(0, 4, 6_000, None)]);
    assert_eq!(runs(1449, 1449), [(0, 4, 6_004, mtu)]);
    assert_eq!(runs(1449, 1448), [(0, 3, 4_503, mtu), (3, 1, 1_500, None)]);
    assert_eq!(runs(1448, 1449), [(3, 1, 1_501, mtu), (0, 3, 4_500, None)]);
}

// Spec: fabric.md#fabric-7
#[test]
fn a_link_splits_only_where_something_needs_single_segments() {
    let splits = |rate: Option<u64>, loss, bytes: Option<u64>, packets, changes: &[Set]| {
        let mut forward = direction(rate, 0);
        (forward.loss, forward.queue) = (loss, Queue::drop_tail(bytes.map(Bytes), packets));
        let mut fabric = Fabric::new(&pair(access(None, 0), forward), 0);
        fabric.schedule(
            &changes.iter().map(|set| Change { at_ns: 9, link: WAN, set: set.clone() }).collect::<Vec<_>>(),
        );
        let splits = fabric.splits(WAN);
        fabric.advance(Instant::from_ns(10));
        assert_eq!(fabric.splits(WAN), splits, "carrying a change out does not change the decision");
        splits
    };
    let (fast, slow) = (Some(2_500_000_000), Some(2_499_999_999));
    assert!(!splits(None, 0.0, Some(1), Some(1), &[]));
    assert!(!splits(fast, 0.0, Some(256 << 10), None, &[]));
    assert!(!splits(fast, 0.0, None, None, &[Set::Outage(true), Set::DelayAdd(5), Set::Loss(Some(0.0))]));
    assert!(splits(slow, 0.0, None, None, &[]));
    assert!(splits(None, 1e-9, None, None, &[]));
    assert!(splits(fast, 0.0, Some((256 << 10) - 1), None, &[]));
    assert!(splits(fast, 0.0, None, Some(1_000_000), &[]));
    assert!(splits(fast, 0.0, None, None, &[Set::Loss(Some(0.1)), Set::Loss(None)]));
    assert!(splits(fast, 0.0, None, None, &[Set::Rate(slow.map(BitsPerSecond))]));
    assert!(splits(None, 0.0, Some(1), None, &[Set::Rate(fast.map(BitsPerSecond))]));
}

#[test]
fn nonsense_from_outside_is_survived() {
    let mut forward = direction(Some(0), 1 << 61);
    forward.loss = f64::NAN;
    let mut fabric = Fabric::new(&pair(access(Some(u64::MAX), 0), forward), 0);
    for (buffer, segments) in [0, 1, u16::MAX].into_iter().enumerate() {
        for (bytes, payload_bytes) in [(0, 0), (u16::MAX, 0), (1, u32::MAX)] {
            let meta = crate::PacketMeta {
                header_bytes: bytes,
                segment_bytes: bytes,
                payload_bytes,
                segments,
                ..meta(1, 1, 1, 1)
            };
            fabric.ingress(0, buffer as u32, meta, Instant::from_ns(u64::from(bytes)));
        }
    }
    fabric.schedule(&[
        Change { at_ns: u64::MAX, link: WAN, set: Set::Rate(Some(BitsPerSecond(0))) },
        Change { at_ns: 0, link: WAN, set: Set::Loss(Some(-1.0)) },
        Change { at_ns: 1, link: WAN, set: Set::DelayAdd(u64::MAX) },
    ]);
    fabric.advance(Instant::NEVER);
    let inside = fabric.queued_segments();
    let mut out = 0;
    while let Some(Action::Deliver { packet, .. } | Action::Drop { packet, .. }) = fabric.poll() {
        out += u64::from(packet.count);
    }
    assert_eq!(out + inside, fabric.totals().entered);
}
