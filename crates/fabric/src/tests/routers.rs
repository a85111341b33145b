//! Routers: hop limits, answers, fixed routes.

use super::lab::*;
use crate::{Action, Answer, DropReason, Fabric, PacketMeta, Refusal};
use weir_core::Instant;
use weir_core::topology::{Host, Link, Site, Stage, TcpProfile, Topology};

/// Two sites with one host each and `routers` in a row between them, all links alike but for their delays: 1, 2, 4 ... ms
/// forward and a tenth of that backward. Links 0 to 3 are the hosts' own, `4 + 2 n` runs from stage to stage.
fn row(routers: &[Stage]) -> Topology {
    let mut topology = pair(access(None, 0), direction(None, 0));
    let link = topology.links[0].clone();
    topology.links.clear();
    for (index, stage) in routers.iter().enumerate() {
        let mut router = Site::new(&format!("r{index}"), TcpProfile::Stock);
        router.stage = *stage;
        topology.sites.push(router);
    }
    let stages: Vec<usize> = [0].into_iter().chain(2..2 + routers.len()).chain([1]).collect();
    for (index, between) in stages.windows(2).enumerate() {
        topology.links.push(Link {
            name: format!("l{index}"),
            between: [between[0], between[1]],
            forward: direction(None, 1_000_000 << index.min(9)),
            backward: direction(None, 100_000 << index.min(9)),
            ..link.clone()
        });
    }
    topology
}
const ROUTER: Stage = Stage::Router { replies: true };
const SILENT: Stage = Stage::Router { replies: false };

fn carried(topology: &Topology, metas: &[PacketMeta]) -> (Fabric, Vec<Action>) {
    let mut fabric = Fabric::new(topology, 0);
    let mut actions = Vec::new();
    for (buffer, meta) in metas.iter().enumerate() {
        fabric.ingress(0, buffer as u32, *meta, Instant::ZERO);
    }
    take(&mut fabric, &mut actions);
    drain(&mut fabric, &mut actions);
    assert_eq!(fabric.queued_segments(), 0);
    (fabric, actions)
}

// Spec: fabric.md#fabric-17
// Spec: fabric.md#fabric-18
#[test]
fn rising_hop_limits_name_the_routers_in_their_order_each_at_its_own_round_trip() {
    let probe = |hop_limit| PacketMeta { hop_limit, ..meta(1, 1, 8, 8) };
    let (fabric, actions) =
        carried(&row(&[ROUTER, ROUTER, ROUTER]), &[probe(1), probe(2), probe(3), probe(4)]);
    let seen: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Deliver { host, packet, planned } => {
                (packet.buffer, *host, packet.answer(), packet.hop_limit(), planned.as_ns())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let exceeded = |stage| Some(Answer::Refused { stage, why: Refusal::TimeExceeded });
    assert_eq!(
        seen,
        [
            (0, 0, exceeded(2), 64, 1_100_000),
            (1, 0, exceeded(3), 63, 3_300_000),
            (2, 0, exceeded(4), 62, 7_700_000),
            (3, 1, None, 1, 15_000_000),
        ]
    );
    let counted: Vec<u64> = (0..4).map(|link| fabric.counters(4 + 2 * link).dropped_hop_limit).collect();
    assert_eq!(counted, [0, 1, 1, 1]);
    assert_eq!((fabric.totals().answered, fabric.totals().dropped, fabric.totals().delivered), (3, 3, 4));
}

// Spec: fabric.md#fabric-17
#[test]
fn a_router_without_replies_drops_in_silence_and_so_does_any_for_what_may_not_be_answered() {
    let spent = PacketMeta { hop_limit: 1, ..meta(1, 3, 1448, 1448) };
    let not_answerable = PacketMeta { answerable: false, ..spent };
    for (stage, meta) in [(SILENT, spent), (ROUTER, not_answerable)] {
        let (fabric, actions) = carried(&row(&[stage]), &[meta]);
        let [Action::Drop { packet, link: 6, reason: DropReason::HopLimit, at }] = actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!((packet.count, at.as_ns(), fabric.totals().answered), (3, 1_000_000, 0));
        assert_eq!((fabric.counters(6).dropped_hop_limit, fabric.counters(6).packets_in), (3, 3));
    }
    let (_, actions) = carried(&row(&[Stage::Switch]), &[spent]);
    assert!(matches!(actions[..], [Action::Deliver { host: 1, packet, .. }] if packet.hop_limit() == 1));
}

// Spec: fabric.md#fabric-11
// Spec: fabric.md#fabric-17
// Spec: fabric.md#fabric-18
#[test]
fn each_segment_too_big_for_the_next_link_is_answered_with_its_mtu_and_the_others_pass() {
    let mut topology = row(&[ROUTER, ROUTER]);
    topology.links[1].mtu = 1400;
    // Segments of 1,500 bytes, the last of 152.
    let (fabric, actions) = carried(&topology, &[meta(1, 4, 1448, 100)]);
    let too_big = Some(Answer::Refused { stage: 2, why: Refusal::TooBig { mtu: 1400 } });
    let seen: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Deliver { host, packet, .. } => {
                (*host, packet.first, packet.count, packet.ip_bytes(), packet.answer())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let answer = |first| (0, first, 1, 576, too_big);
    assert_eq!(seen, [answer(0), answer(1), answer(2), (1, 3, 1, 152, None)]);
    assert_eq!((fabric.counters(6).dropped_mtu, fabric.counters(6).packets_sent), (3, 1));

    topology.sites[2].stage = SILENT;
    let (fabric, actions) = carried(&topology, &[meta(1, 4, 1448, 100)]);
    assert!(
        matches!(
            actions[..],
            [Action::Drop { link: 6, reason: DropReason::Mtu, .. }, Action::Deliver { host: 1, .. }]
        ),
        "{actions:?}"
    );
    assert_eq!((fabric.counters(6).dropped_mtu, fabric.totals().answered), (3, 0));
}

// Spec: fabric.md#fabric-18
#[test]
fn answers_meet_losses_and_hop_limits_on_their_way_and_are_never_answered() {
    let probe = PacketMeta { hop_limit: 2, ..meta(1, 1, 8, 8) };
    let mut lossy = row(&[ROUTER, ROUTER]);
    lossy.links[0].backward.loss = 1.0;
    let (fabric, actions) = carried(&lossy, &[probe]);
    let [Action::Drop { packet, link: 5, reason: DropReason::Loss, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert!(packet.answer().is_some());
    assert_eq!((fabric.totals().answered, fabric.totals().dropped), (1, 2));

    // The way back from the last router is longer than an answer's hop limit.
    let long = PacketMeta { hop_limit: 80, ..probe };
    let (_, actions) = carried(&row(&[ROUTER; 90]), &[long]);
    let [Action::Drop { packet, reason: DropReason::HopLimit, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(packet.answer(), Some(Answer::Refused { stage: 2 + 79, why: Refusal::TimeExceeded }));
}

// Spec: fabric.md#fabric-31
#[test]
fn an_echo_request_to_a_router_comes_back_from_it_over_its_own_way_as_long_as_it_was() {
    let topology = row(&[ROUTER, ROUTER]);
    let mut fabric = Fabric::new(&topology, 0);
    for (buffer, (router, hop_limit, payload)) in
        [(2, 1, 8), (3, 2, 1_000), (3, 1, 8)].into_iter().enumerate()
    {
        let meta = PacketMeta { hop_limit, ..meta(fabric.router(router), 1, payload, payload) };
        fabric.ingress(0, buffer as u32, meta, Instant::ZERO);
    }
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let seen: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Deliver { host: 0, packet, planned } => (
                packet.buffer,
                packet.answer().unwrap(),
                packet.hop_limit(),
                packet.ip_bytes(),
                planned.as_ns(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, Answer::Echo { stage: 2 }, 64, 60, 1_100_000),
            // Its hop limit ended on the way, and the router there says so.
            (2, Answer::Refused { stage: 2, why: Refusal::TimeExceeded }, 64, 88, 1_100_000),
            (1, Answer::Echo { stage: 3 }, 63, 1_052, 3_300_000),
        ]
    );
    let totals = fabric.totals();
    assert_eq!((totals.entered, totals.answered, totals.delivered, totals.dropped), (3, 3, 5, 1));
    assert_eq!(fabric.queued_segments(), 0);
}

// Spec: fabric.md#fabric-31
#[test]
fn a_silent_router_cannot_be_asked_and_a_wrong_request_is_lost_on_the_link_that_brought_it() {
    let mut topology = row(&[SILENT, ROUTER]);
    let ask = |topology: &Topology, stage: usize| {
        let number = Fabric::new(topology, 0).router(stage);
        carried(topology, &[meta(number, 1, 8, 8)])
    };
    // A switch, a site and no stage at all are no routers either.
    for stage in [2, 0, 1, 4, usize::MAX] {
        let (fabric, actions) = ask(&topology, stage);
        assert!(
            matches!(actions[..], [Action::Drop { reason: DropReason::Unroutable, .. }]),
            "{stage}: {actions:?}"
        );
        assert_eq!((fabric.totals().unroutable, fabric.counters(0).packets_in), (1, 0));
    }
    topology.links[1].forward.impairments.corrupt = 1.0;
    let (fabric, actions) = ask(&topology, 3);
    assert!(matches!(actions[..], [Action::Drop { link: 6, reason: DropReason::Loss, .. }]), "{actions:?}");
    assert_eq!((fabric.counters(6).dropped_loss, fabric.counters(6).packets_sent), (1, 1));
    assert_eq!((fabric.totals().dropped, fabric.totals().answered), (1, 0));
}

/// Three sites in a triangle, a host at the first two; `stage` is what the third is. Links: 0 between 0 and 1, 1 between 1 and
/// 2, 2 between 2 and 0.
fn triangle(stage: Stage) -> Topology {
    let mut topology = pair(access(None, 0), direction(None, 1_000));
    let mut third = Site::new("third", TcpProfile::Stock);
    third.stage = stage;
    topology.sites.push(third);
    for between in [[1, 2], [2, 0]] {
        let name = format!("l{}", between[0]);
        topology.links.push(Link { name, between, ..topology.links[0].clone() });
    }
    topology
}

// Spec: fabric.md#fabric-4
#[test]
fn a_fixed_route_makes_there_and_back_differ() {
    let mut topology = triangle(Stage::Switch);
    topology.sites[0].routes = vec![(1, 2)];
    let mut fabric = Fabric::new(&topology, 0);
    fabric.ingress(0, 0, meta(1, 1, 8, 8), Instant::ZERO);
    fabric.ingress(1, 1, meta(0, 1, 8, 8), Instant::ZERO);
    drain(&mut fabric, &mut Vec::new());
    let packets: Vec<u64> = (4..10).map(|link| fabric.counters(link).packets_sent).collect();
    // Out over links 2 (against its direction) and 1 (likewise), back over link 0.
    assert_eq!(packets, [0, 1, 0, 1, 0, 1]);
    assert_eq!(fabric.totals().delivered, 2);
}

// Spec: fabric.md#fabric-4
#[test]
fn routes_in_circles_end_by_the_hop_limit_where_a_router_is_and_are_no_path_where_none_is() {
    let circle = |stage| {
        let mut topology = triangle(stage);
        let host = Host { site: 2, name: "third-0".to_owned(), ..topology.hosts[0].clone() };
        topology.hosts.push(host);
        // For host 1 of stage 1: 0 sends to 2, and 2 back to 0.
        topology.sites[0].routes = vec![(1, 2)];
        topology.sites[2].routes = vec![(1, 2)];
        topology
    };
    let (fabric, actions) = carried(&circle(Stage::Switch), &[meta(1, 1, 8, 8)]);
    assert!(matches!(actions[..], [Action::Drop { reason: DropReason::Unroutable, .. }]), "{actions:?}");
    assert_eq!(fabric.totals().unroutable, 1);
    let (fabric, actions) = carried(&circle(SILENT), &[meta(1, 1, 8, 8)]);
    assert!(matches!(actions[..], [Action::Drop { reason: DropReason::HopLimit, .. }]), "{actions:?}");
    // Sixty-three times past the router and a sixty-fourth time to it.
    assert_eq!(fabric.counters(6 + 5).packets_sent, 64);
    // A route by a link that does not leave the stage, or for no stage, is none.
    let mut odd = triangle(Stage::Switch);
    odd.sites[0].routes = vec![(1, 1), (9, 0), (0, 0), (1, 99)];
    let (_, actions) = carried(&odd, &[meta(1, 1, 8, 8)]);
    assert!(matches!(actions[..], [Action::Deliver { host: 1, .. }]), "{actions:?}");
}

// Spec: fabric.md#fabric-16
// Spec: fabric.md#fabric-31
#[test]
fn a_shell_that_wakes_for_deliveries_alone_is_told_of_the_echo_of_a_router_on_no_way_to_a_host() {
    let mut topology = triangle(ROUTER);
    topology.links.remove(1);
    topology.links[1].backward.delay_ns = 5_000;
    let mut fabric = Fabric::new(&topology, 0);
    fabric.ingress(0, 0, meta(fabric.router(2), 1, 8, 8), Instant::ZERO);
    let mut actions = Vec::new();
    while let Some(at) = fabric.deliver_at() {
        fabric.advance(at);
        take(&mut fabric, &mut actions);
    }
    assert!(
        matches!(actions[..], [Action::Deliver { planned, .. }] if planned == Instant::from_ns(6_000)),
        "{actions:?}"
    );
}
