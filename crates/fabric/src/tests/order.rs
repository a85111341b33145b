//! Nothing is lost or doubled, overtaken or misled, and chance is repeatable.

use super::lab::*;
use crate::{Action, DropReason, Fabric};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::Instant;
use weir_core::topology::{End, Link, Topology};

fn segments(action: &Action) -> (u32, u16, u16) {
    let (Action::Deliver { packet, .. } | Action::Drop { packet, .. } | Action::Seen { packet, .. }) = action;
    (packet.buffer, packet.first, packet.count)
}

/// Segments of each link's drops for one reason.
fn dropped(actions: &[Action], links: usize, wanted: DropReason) -> Vec<u64> {
    let mut sums = vec![0; links];
    for action in actions {
        if let Action::Drop { packet, link, reason, .. } = action
            && *reason == wanted
        {
            sums[*link] += u64::from(packet.count);
        }
    }
    sums
}

/// Every segment at most once; returns how many came out in all.
fn came_out_once(scene: &Scene, actions: &[Action]) -> u64 {
    let mut seen: Vec<Vec<bool>> =
        scene.traffic.iter().map(|sent| vec![false; usize::from(sent.meta.segments)]).collect();
    let mut count = 0;
    for action in actions {
        let (buffer, first, run) = segments(action);
        for segment in first..first + run {
            let seen = &mut seen[buffer as usize][usize::from(segment)];
            assert!(!*seen, "segment {segment} of buffer {buffer} came out twice");
            *seen = true;
            count += 1;
        }
        if let Action::Deliver { host, .. } = action {
            assert_eq!(*host, scene.traffic[buffer as usize].meta.to, "buffer {buffer} went to another host");
        }
    }
    count
}

/// Segments of a link that wait or are being sent.
fn before_the_wire(fabric: &Fabric, link: usize) -> u64 {
    let c = fabric.counters(link);
    let left = c.packets_sent + c.dropped_queue + c.dropped_outage + c.dropped_mtu;
    let before = c.packets_in.checked_sub(left).expect("more left the link than came in");
    assert!(c.queue_packets <= before, "link {link} counts more waiting than there are: {c:?}");
    before
}

fn counters_agree(topology: &Topology, fabric: &Fabric, actions: &[Action]) {
    let directed = topology.directed_links();
    let counters: Vec<_> = (0..directed.len()).map(|link| *fabric.counters(link)).collect();
    for (reason, of) in [
        (DropReason::Queue, counters.iter().map(|c| c.dropped_queue).collect::<Vec<_>>()),
        (DropReason::Loss, counters.iter().map(|c| c.dropped_loss).collect()),
        (DropReason::Outage, counters.iter().map(|c| c.dropped_outage).collect()),
        (DropReason::Mtu, counters.iter().map(|c| c.dropped_mtu).collect()),
    ] {
        assert_eq!(dropped(actions, directed.len(), reason), of, "{reason:?}");
    }
    for (link, c) in counters.iter().enumerate() {
        assert_eq!(before_the_wire(fabric, link), 0, "link {link} is not dry or miscounts: {c:?}");
        assert_eq!((c.queue_packets, c.queue_bytes), (0, 0), "link {link}");
        let framing = u64::from(directed[link].framing_bytes);
        assert_eq!(c.wire_bytes_sent, c.bytes_sent + framing * c.packets_sent, "link {link}");
    }
    // What links bring to a switch or host is what it passes on.
    let arrived = |end| -> u64 {
        let here = directed.iter().zip(&counters).filter(|(link, _)| link.to == end);
        here.map(|(_, c)| c.packets_sent - c.dropped_loss).sum()
    };
    for site in 0..topology.sites.len() {
        let left = directed.iter().zip(&counters).filter(|(link, _)| link.from == End::Site(site));
        assert_eq!(left.map(|(_, c)| c.packets_in).sum::<u64>(), arrived(End::Site(site)), "site {site}");
    }
    let delivered: u64 = (0..topology.hosts.len()).map(|host| arrived(End::Host(host))).sum();
    assert_eq!(delivered, fabric.totals().delivered);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // Spec: fabric.md#fabric-1
    #[test]
    fn every_segment_is_delivered_once_dropped_once_or_inside(scene in any_scene()) {
        let mut entered_at = scene.traffic.iter().map(|sent| u64::from(sent.meta.segments));
        let (mut entered, mut out, mut known) = (0, 0, 0);
        let (fabric, actions) = run(&scene, true, |fabric, actions| {
            while entered < fabric.totals().entered {
                entered += entered_at.next().unwrap();
            }
            out += actions[known..].iter().map(|action| u64::from(segments(action).2)).sum::<u64>();
            known = actions.len();
            assert_eq!((entered, entered - out), (fabric.totals().entered, fabric.queued_segments()));
            let at_serialisers: u64 = (0..fabric.link_count()).map(|link| before_the_wire(fabric, link)).sum();
            assert!(at_serialisers <= fabric.queued_segments());
        });
        let all: u64 = scene.traffic.iter().map(|sent| u64::from(sent.meta.segments)).sum();
        prop_assert_eq!(came_out_once(&scene, &actions), all);
        prop_assert_eq!(fabric.queued_segments(), 0);
        let totals = *fabric.totals();
        prop_assert_eq!(totals.entered, totals.delivered + totals.dropped + totals.unroutable);
        let links = fabric.link_count();
        let unroutable: u64 = dropped(&actions, links, DropReason::Unroutable).iter().sum();
        prop_assert_eq!(unroutable, totals.unroutable);
        counters_agree(&scene.topology, &fabric, &actions);
    }

    // Spec: fabric.md#fabric-2
    #[test]
    fn no_segment_of_a_flow_overtakes_another(scene in any_scene()) {
        let (_, actions) = run(&scene, false, |_, _| {});
        let mut last: BTreeMap<(usize, usize), (Instant, u32, u16)> = BTreeMap::new();
        for action in &actions {
            let Action::Deliver { host, packet, planned } = action else { continue };
            let flow = (scene.traffic[packet.buffer as usize].from, *host);
            let here = (*planned, packet.buffer, packet.first);
            if let Some(before) = last.insert(flow, here) {
                prop_assert!(before.0 <= here.0, "{flow:?}: {before:?} then {here:?}");
                prop_assert!((before.1, before.2) < (here.1, here.2), "{flow:?}: {before:?} then {here:?}");
            }
        }
    }

    // Spec: fabric.md#fabric-13
    #[test]
    fn a_late_shell_sees_the_same_actions_as_one_that_wakes_for_every_event(scene in any_scene()) {
        let eager = run(&scene, true, |_, _| {});
        let late = run(&scene, false, |_, _| {});
        prop_assert_eq!(eager.1, late.1);
        for link in 0..scene.topology.directed_count() {
            prop_assert_eq!(eager.0.counters(link), late.0.counters(link));
        }
    }

    #[test]
    fn actions_come_in_the_order_of_their_times(scene in any_scene()) {
        let (_, actions) = run(&scene, false, |_, _| {});
        let times: Vec<Instant> = actions
            .iter()
            .map(|action| match action {
                Action::Deliver { planned, .. } => *planned,
                Action::Drop { at, .. } | Action::Seen { at, .. } => *at,
            })
            .collect();
        prop_assert!(times.is_sorted(), "{times:?}");
    }

    // Spec: fabric.md#fabric-8
    #[test]
    fn a_queue_never_holds_more_than_its_limit(scene in any_scene()) {
        let directed = scene.topology.directed_links();
        let within = |fabric: &Fabric| {
            for (index, link) in directed.iter().enumerate() {
                let counters = fabric.counters(index);
                match link.queue {
                    Some(queue) => {
                        assert!(queue.bytes.is_none_or(|bytes| counters.queue_bytes_max <= bytes.0), "{link:?}");
                        assert!(queue.packets.is_none_or(|packets| counters.queue_packets <= packets), "{link:?}");
                    }
                    None => assert_eq!(counters.dropped_queue, 0, "{link:?}"),
                }
            }
        };
        run(&scene, true, |fabric, _| within(fabric));
    }

    // Spec: fabric.md#fabric-15
    #[test]
    fn the_same_seed_gives_the_same_drops(scene in any_scene()) {
        let (again, first) = (run(&scene, false, |_, _| {}).1, run(&scene, false, |_, _| {}).1);
        prop_assert_eq!(first, again);
    }

    // Spec: fabric.md#fabric-4
    #[test]
    fn a_packet_takes_exactly_the_links_of_its_path_in_any_graph(
        sites in 1_usize..7,
        edges in proptest::collection::vec((0_usize..7, 0_usize..7), 0..14),
        from in 0_usize..7,
        to in 0_usize..7,
    ) {
        let (from, to) = (from % sites, to % sites);
        let mut topology = pair(access(None, 0), direction(None, 0));
        let (site, host, link) = (topology.sites[0].clone(), topology.hosts[0].clone(), topology.links[0].clone());
        topology.sites = vec![site; sites];
        topology.hosts = (0..sites).map(|site| { let mut host = host.clone(); host.site = site; host }).collect();
        topology.links = edges
            .into_iter()
            .map(|(one, other)| Link { between: [one % sites, other % sites], ..link.clone() })
            .collect();
        let mut fabric = Fabric::new(&topology, 0);
        let mut actions = Vec::new();
        fabric.ingress(from, 0, meta(to, 1, 1448, 1448), Instant::ZERO);
        take(&mut fabric, &mut actions);
        drain(&mut fabric, &mut actions);
        let mut taken: Vec<usize> =
            (0..fabric.link_count()).filter(|link| fabric.counters(*link).packets_in == 1).collect();
        taken.sort_unstable();
        let mut path = topology.path(from, to).unwrap_or_default();
        path.sort_unstable();
        prop_assert_eq!(&taken, &path);
        let arrived = matches!(actions[..], [Action::Deliver { host, .. }] if host == to);
        let refused = matches!(actions[..], [Action::Drop { reason: DropReason::Unroutable, .. }]);
        prop_assert_eq!((arrived, refused), (!path.is_empty(), path.is_empty()));
    }
}

// Spec: fabric.md#fabric-4
#[test]
fn a_destination_that_is_no_host_is_unroutable_and_no_link_counts_it() {
    let topology = pair(access(None, 0), direction(None, 0));
    let mut fabric = Fabric::new(&topology, 0);
    fabric.ingress(0, 7, meta(99, 3, 1448, 10), Instant::from_ns(5));
    let Some(Action::Drop { packet, link: 0, reason: DropReason::Unroutable, at }) = fabric.poll() else {
        panic!("not refused")
    };
    assert_eq!((packet.buffer, packet.count, at.as_ns()), (7, 3, 5));
    assert_eq!((fabric.poll(), fabric.wake_at(), fabric.queued_segments()), (None, None, 0));
    assert_eq!(fabric.counters(0).packets_in, 0);
}
