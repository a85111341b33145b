//! What wires do to segments: shares within their binomial bounds, lengths of bursts, who is overtaken.

use super::lab::*;
use crate::{Action, DropReason, Fabric};
use weir_core::Instant;
use weir_core::schedule::{Change, Effect, Match, Protocol, Rule, Set};
use weir_core::topology::{BurstLoss, Impairments, Jitter, Reorder, Topology};

const DELAY_NS: u64 = 1_000_000;
const GAP_NS: u64 = 100;

fn impaired(impairments: Impairments) -> Topology {
    let mut forward = direction(None, DELAY_NS);
    forward.impairments = impairments;
    pair(access(None, 0), forward)
}

/// What became of each of `count` single segments, sent 100 ns apart.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    dropped: Option<DropReason>,
    late_ns: u64,
    bit: Option<u32>,
    /// Its place among the deliveries.
    place: usize,
}

fn fates(topology: &Topology, changes: &[Change], count: u32) -> (Fabric, Vec<Fate>) {
    let mut fabric = Fabric::new(topology, 11);
    fabric.schedule(changes);
    let mut fates = vec![None; count as usize];
    let mut place = 0;
    let mut learn = |fabric: &mut Fabric| {
        while let Some(action) = fabric.poll() {
            let (buffer, fate) = match action {
                Action::Deliver { packet, planned, .. } => {
                    place += 1;
                    let late_ns = planned.as_ns() - DELAY_NS - u64::from(packet.buffer) * GAP_NS;
                    (packet.buffer, Fate { dropped: None, late_ns, bit: packet.inverted_bit(), place })
                }
                Action::Drop { packet, reason, .. } => {
                    (packet.buffer, Fate { dropped: Some(reason), late_ns: 0, bit: None, place: 0 })
                }
                Action::Seen { .. } => unreachable!("nothing is captured"),
            };
            assert_eq!(fates[buffer as usize].replace(fate), None);
        }
    };
    for buffer in 0..count {
        fabric.ingress(0, buffer, meta(1, 1, 1448, 1448), Instant::from_ns(u64::from(buffer) * GAP_NS));
        learn(&mut fabric);
    }
    fabric.advance(Instant::NEVER);
    learn(&mut fabric);
    (fabric, fates.into_iter().map(Option::unwrap).collect())
}

/// `count` of `n` is within four and a half standard deviations of what `share` gives.
fn assert_share(what: &str, count: usize, n: usize, share: f64) {
    let (expected, sigma) = (n as f64 * share, (n as f64 * share * (1.0 - share)).sqrt());
    assert!((count as f64 - expected).abs() <= 4.5 * sigma, "{what}: {count} of {n}, {expected} ± {sigma}");
}

// Spec: fabric.md#fabric-9
// Spec: fabric.md#fabric-21
// Spec: fabric.md#fabric-22
// Spec: fabric.md#fabric-23
// Spec: scenario.md#impairment-2
#[test]
fn of_a_million_segments_each_impairment_takes_its_share() {
    const N: usize = 1_000_000;
    let burst = BurstLoss { bad: 0.02, length_packets: 5.0, loss: 1.0 };
    let mut topology = impaired(Impairments {
        jitter: None,
        burst_loss: Some(burst),
        corrupt: 0.003,
        reorder: Some(Reorder { share: 0.01, by_ns: 2_000 }),
    });
    topology.links[0].forward.loss = 0.001;
    let (fabric, fates) = fates(&topology, &[], N as u32);
    let lost = |reason| fates.iter().filter(|fate| fate.dropped == Some(reason)).count();
    assert_share("loss", lost(DropReason::Loss), N, 0.001);

    // Stays in the bad state have a geometric length of mean 5, so a variance of 20.
    let judged: Vec<bool> = fates
        .iter()
        .filter(|fate| fate.dropped != Some(DropReason::Loss))
        .map(|fate| fate.dropped == Some(DropReason::BurstLoss))
        .collect();
    let bursts = judged.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let in_bursts = lost(DropReason::BurstLoss);
    let length = in_bursts as f64 / bursts as f64;
    let error = (20.0 / bursts as f64).sqrt();
    assert!((length - 5.0).abs() < 4.5 * error, "mean burst of {length}, 5 ± {error}");
    // Correlated by 1 - 1/5 - 0.02/(5 · 0.98) from one to the next, which widens the binomial interval.
    let correlation: f64 = 1.0 - 0.2 - 0.2 * 0.02 / 0.98;
    let sigma = (judged.len() as f64 * 0.02 * 0.98 * (1.0 + correlation) / (1.0 - correlation)).sqrt();
    let expected = judged.len() as f64 * 0.02;
    assert!((in_bursts as f64 - expected).abs() < 4.5 * sigma, "{in_bursts}, {expected} ± {sigma}");

    let arrived: Vec<&Fate> = fates.iter().filter(|fate| fate.dropped.is_none()).collect();
    let bits: Vec<u32> = arrived.iter().filter_map(|fate| fate.bit).collect();
    assert_share("corrupted", bits.len(), arrived.len(), 0.003);
    assert_eq!(fabric.counters(WAN).corrupted, bits.len() as u64);
    assert_share("first half", bits.iter().filter(|bit| **bit < 6_000).count(), bits.len(), 0.5);
    assert!(bits.iter().all(|bit| *bit < 12_000));

    let late: Vec<&&Fate> = arrived.iter().filter(|fate| fate.late_ns > 0).collect();
    assert_share("late", late.len(), arrived.len(), 0.01);
    assert!(late.iter().all(|fate| fate.late_ns == 2_000));
    // By 2,000 ns, 20 gaps: nearly every late one was overtaken, and nothing else.
    let mut last_place = 0;
    let overtaken = fates
        .iter()
        .rev()
        .filter(|fate| fate.dropped.is_none())
        .fold((0, usize::MAX), |(count, least), fate| {
            (count + usize::from(fate.place > least), least.min(fate.place))
        });
    last_place += overtaken.0;
    assert_eq!(fabric.counters(WAN).reordered, last_place as u64);
    assert!(late.len() - last_place < late.len() / 100, "{last_place} of {}", late.len());
}

// Spec: fabric.md#fabric-15
#[test]
fn one_impairment_more_does_not_change_what_another_does() {
    let only = Impairments { corrupt: 0.01, ..Impairments::default() };
    let more = Impairments {
        jitter: Some(Jitter { by_ns: 500, reorder: true }),
        reorder: Some(Reorder { share: 0.1, by_ns: 1_000 }),
        ..only
    };
    let bits = |impairments| fates(&impaired(impairments), &[], 20_000).1.into_iter().map(|fate| fate.bit);
    assert!(bits(only).eq(bits(more)));
}

// Spec: fabric.md#fabric-20
#[test]
fn jitter_is_even_up_to_its_bound_and_overtakes_only_where_it_may() {
    let with = |reorder| {
        let jitter = Some(Jitter { by_ns: 1_000, reorder });
        fates(&impaired(Impairments { jitter, ..Impairments::default() }), &[], 100_000)
    };
    let (fabric, free) = with(true);
    let late: Vec<u64> = free.iter().map(|fate| fate.late_ns).collect();
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
    // A uniform draw from 0 to 1,000 has a standard deviation of 289.
    assert!((mean - 500.0).abs() < 4.5 * 289.0 / 100_000_f64.sqrt(), "{mean}");
    assert_eq!((late.iter().min(), late.iter().max()), (Some(&0), Some(&1_000)));
    assert!(fabric.counters(WAN).reordered > 50_000, "{:?}", fabric.counters(WAN));
    assert!(!free.is_sorted_by_key(|fate| fate.place));

    let (fabric, kept) = with(false);
    assert!(kept.is_sorted_by_key(|fate| fate.place));
    assert_eq!(fabric.counters(WAN).reordered, 0);
    // The same draws; each arrives with the latest of those before it.
    let mut latest = 0;
    for (index, (kept, free)) in kept.iter().zip(&free).enumerate() {
        latest = latest.max(index as u64 * GAP_NS + free.late_ns);
        assert_eq!(index as u64 * GAP_NS + kept.late_ns, latest);
    }
}

fn rule(at_ns: u64, number: u32, matches: Match, effect: Effect) -> Change {
    Change { at_ns, link: WAN, set: Set::Rule { number, rule: Some(Box::new(Rule { matches, effect })) } }
}
fn no_rule(at_ns: u64, number: u32) -> Change {
    Change { at_ns, link: WAN, set: Set::Rule { number, rule: None } }
}

// Spec: fabric.md#fabric-25
#[test]
fn delay_some_takes_exactly_its_share_and_the_others_overtake() {
    let plain = impaired(Impairments::default());
    for (share, of_ten) in [(0.5, 5), (0.1, 1), (0.7, 7), (0.0, 0), (1.0, 10)] {
        let some = Effect::DelaySome { share, by_ns: 250 };
        // From the 100th segment to the 1,099th.
        let changes = [rule(100 * GAP_NS, 3, Match::default(), some), no_rule(1_100 * GAP_NS, 3)];
        let (fabric, fates) = fates(&plain, &changes, 2_000);
        let delayed: Vec<bool> = fates.iter().map(|fate| fate.late_ns > 0).collect();
        for matched in 0..1_000 {
            let taken = (matched + 1) * of_ten / 10 - matched * of_ten / 10;
            assert_eq!(delayed[100 + matched], taken == 1, "{share}: {matched}");
        }
        assert!(!delayed[..100].iter().chain(&delayed[1_100..]).any(|delayed| *delayed));
        assert!(fates.iter().all(|fate| [0, 250].contains(&fate.late_ns)));
        let overtaken = fabric.counters(WAN).reordered;
        if share == 0.5 {
            assert_eq!(overtaken, 500, "each by the one after it");
        }
        assert_eq!(overtaken == 0, share == 0.0, "{share}: {overtaken}");
    }
}

// Spec: fabric.md#fabric-24
#[test]
fn a_rule_that_is_set_again_counts_from_its_beginning_and_draws_anew() {
    let plain = impaired(Impairments::default());
    let every_third = || Effect::DelaySome { share: 1.0 / 3.0, by_ns: 50 };
    let changes =
        [rule(0, 0, Match::default(), every_third()), rule(4 * GAP_NS, 0, Match::default(), every_third())];
    let delayed: Vec<bool> = fates(&plain, &changes, 9).1.iter().map(|fate| fate.late_ns > 0).collect();
    assert_eq!(delayed, [false, false, true, false, false, false, true, false, false]);

    let lose = |at_ns| rule(at_ns, 0, Match::default(), Effect::Loss(0.5));
    let lost = fates(&plain, &[lose(0), lose(1_000 * GAP_NS)], 2_000).1;
    let (first, second) = lost.split_at(1_000);
    assert_share(
        "lost",
        lost.iter().filter(|fate| fate.dropped == Some(DropReason::Rule)).count(),
        2_000,
        0.5,
    );
    assert!(first.iter().map(|fate| fate.dropped).ne(second.iter().map(|fate| fate.dropped)));
}

/// Whether a packet with this sender, receiver, protocol and these ports is to be selected.
type Selects = dyn Fn(usize, usize, Protocol, [u16; 2]) -> bool;

// Spec: fabric.md#fabric-24
#[test]
fn a_rule_acts_on_what_meets_every_condition_and_on_nothing_else() {
    let topology = {
        let mut topology = impaired(Impairments::default());
        for site in [0, 1] {
            let host = topology.hosts[site].clone();
            topology.hosts.push(host);
        }
        topology
    };
    // Hosts 0 and 2 send, 1 and 3 receive; link 8 is the one between the sites.
    let matches: [(&str, Match, &Selects); 7] = [
        ("all", Match::default(), &|_, _, _, _| true),
        ("from", Match { from: vec![2], ..Match::default() }, &|from, _, _, _| from == 2),
        ("either", Match { from: vec![0, 2], ..Match::default() }, &|_, _, _, _| true),
        ("to", Match { to: vec![1], ..Match::default() }, &|_, to, _, _| to == 1),
        ("port", Match { port: Some(80), ..Match::default() }, &|_, _, _, ports| ports.contains(&80)),
        ("protocol", Match { protocol: Some(Protocol::Udp), ..Match::default() }, &|_, _, it, _| {
            it == Protocol::Udp
        }),
        (
            "several",
            Match { from: vec![0], to: vec![3], port: Some(80), protocol: Some(Protocol::Tcp), share: 1.0 },
            &|from, to, it, ports| from == 0 && to == 3 && it == Protocol::Tcp && ports.contains(&80),
        ),
    ];
    for (name, matches, selects) in matches {
        let mut fabric = Fabric::new(&topology, 0);
        let rule = Rule { matches, effect: Effect::Outage };
        fabric.schedule(&[Change {
            at_ns: 0,
            link: 8,
            set: Set::Rule { number: 0, rule: Some(Box::new(rule)) },
        }]);
        let (mut expected, mut lost, mut buffer) = (Vec::new(), Vec::new(), 0);
        for (from, to) in [(0, 1), (0, 3), (2, 1), (2, 3)] {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Icmp] {
                for ports in [[80, 40_000], [40_000, 80], [40_000, 443]] {
                    let meta = crate::PacketMeta { protocol: Some(protocol), ports, ..meta(to, 2, 1448, 9) };
                    fabric.ingress(from, buffer, meta, Instant::ZERO);
                    if selects(from, to, protocol, ports) {
                        expected.push(buffer);
                    }
                    buffer += 1;
                }
            }
        }
        assert!(!fabric.splits(8), "all segments of a run match alike");
        fabric.advance(Instant::NEVER);
        while let Some(action) = fabric.poll() {
            if let Action::Drop { packet, link: 8, reason: DropReason::Rule, .. } = action {
                lost.push(packet.buffer);
            }
        }
        assert_eq!(lost, expected, "{name}");
        assert_eq!(fabric.counters(8).dropped_rule, 2 * expected.len() as u64, "{name}");
        assert_eq!(fabric.counters(8).packets_sent, 72, "{name}: what a rule takes away has used the wire");
    }
}

// Spec: fabric.md#fabric-24
#[test]
fn a_rule_may_take_an_evenly_spread_share_of_what_matches() {
    let mut fabric = Fabric::new(&impaired(Impairments::default()), 0);
    let matches = Match { protocol: Some(Protocol::Udp), share: 0.25, ..Match::default() };
    fabric.schedule(&[rule(0, 0, matches, Effect::Outage)]);
    for buffer in 0..24 {
        let protocol = Some(if buffer % 2 == 0 { Protocol::Tcp } else { Protocol::Udp });
        let meta = crate::PacketMeta { protocol, ..meta(1, 1, 8, 8) };
        fabric.ingress(0, buffer, meta, Instant::from_ns(u64::from(buffer) * 100));
    }
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let lost: Vec<u32> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Drop { packet, reason: DropReason::Rule, .. } => Some(packet.buffer),
            _ => None,
        })
        .collect();
    assert_eq!(lost, [7, 15, 23], "every fourth of the odd ones");
}

// Spec: fabric.md#fabric-24
#[test]
fn what_a_rule_delays_keeps_its_order_beyond_the_rules_end_and_others_overtake() {
    let mut fabric = Fabric::new(&impaired(Impairments::default()), 0);
    let of_tcp = || Match { protocol: Some(Protocol::Tcp), ..Match::default() };
    fabric.schedule(&[rule(0, 0, of_tcp(), Effect::Delay(1_000)), no_rule(250, 0)]);
    for buffer in 0..6 {
        let protocol = Some(if buffer % 2 == 0 { Protocol::Tcp } else { Protocol::Udp });
        let meta = crate::PacketMeta { protocol, ..meta(1, 1, 8, 8) };
        fabric.ingress(0, buffer, meta, Instant::from_ns(u64::from(buffer) * 100));
    }
    fabric.ingress(0, 6, meta(1, 1, 8, 8), Instant::from_ns(1_200));
    fabric.ingress(0, 7, meta(1, 1, 8, 8), Instant::from_ns(1_300));
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let arrivals: Vec<(u32, u64)> = actions
        .iter()
        .map(|action| match action {
            Action::Deliver { packet, planned, .. } => (packet.buffer, planned.as_ns() - DELAY_NS),
            other => panic!("{other:?}"),
        })
        .collect();
    // Sent at 400 after the rule's end, 4 waits for 2; 6 comes at the same instant and 7 is free.
    assert_eq!(
        arrivals,
        [(1, 100), (3, 300), (5, 500), (0, 1_000), (2, 1_200), (4, 1_200), (6, 1_200), (7, 1_300)]
    );
}

// Spec: fabric.md#fabric-22
#[test]
fn a_changed_share_of_corruption_holds_until_it_is_restored() {
    let change = |at_ns, ratio| Change { at_ns, link: WAN, set: Set::Corrupt(ratio) };
    let changes = [change(100 * GAP_NS, Some(1.0)), change(200 * GAP_NS, None)];
    let (_, fates) = fates(&impaired(Impairments::default()), &changes, 300);
    let corrupted: Vec<bool> = fates.iter().map(|fate| fate.bit.is_some()).collect();
    assert!((0..300).all(|index| corrupted[index] == (100..200).contains(&index)), "{corrupted:?}");
}
