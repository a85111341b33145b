//! The auxiliary network, and what a capture sees.

use super::lab::*;
use crate::{Action, DropReason, Fabric, Network, PacketMeta};
use weir_core::Instant;
use weir_core::schedule::{Change, Set};
use weir_core::topology::{Auxiliary, Topology};
use weir_core::{BitsPerSecond, Bytes};

/// Links 6 to 9 are the hosts' own on the auxiliary network: 1 Gbit/s and 20 µs.
fn with_auxiliary() -> Topology {
    let mut topology = pair(access(None, 0), direction(Some(10_000_000), 5_000_000));
    topology.auxiliary = Some(Auxiliary { rate: Some(BitsPerSecond(1_000_000_000)), delay_ns: 20_000 });
    topology
}

fn on_auxiliary(to: usize) -> PacketMeta {
    PacketMeta { network: Network::Auxiliary, hop_limit: 1, ..meta(to, 1, 1410, 1410) }
}

// Spec: fabric.md#fabric-28
#[test]
fn the_auxiliary_network_has_times_of_its_own_whatever_the_data_network_carries() {
    let mut fabric = Fabric::new(&with_auxiliary(), 0);
    for buffer in 0..100 {
        fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::ZERO);
    }
    assert_eq!((fabric.hold_bytes(Network::Data, 0), fabric.hold_bytes(Network::Auxiliary, 0)), (0, 0));
    fabric.ingress(0, 100, on_auxiliary(1), Instant::ZERO);
    fabric.ingress(0, 101, on_auxiliary(1), Instant::ZERO);
    assert_eq!(fabric.hold_bytes(Network::Auxiliary, 0), 1_462);
    // 1,500 wire bytes take 12 µs on each of its two links.
    assert_eq!(fabric.deliver_at(), Some(Instant::from_ns(12_000 + 2 * 20_000)));
    let mut actions = Vec::new();
    drain(&mut fabric, &mut actions);
    let of_auxiliary: Vec<(u32, usize, u64)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Deliver { host, packet, planned } if packet.network() == Network::Auxiliary => {
                Some((packet.buffer, *host, planned.as_ns()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(of_auxiliary, [(100, 1, 64_000), (101, 1, 76_000)]);
    assert_eq!(fabric.totals().delivered, 102);
    assert_eq!((fabric.counters(6).packets_sent, fabric.counters(9).packets_sent), (2, 2));
}

// Spec: fabric.md#fabric-28
#[test]
fn a_change_of_an_auxiliary_link_is_its_own_and_without_the_network_nothing_gets_through() {
    let mut fabric = Fabric::new(&with_auxiliary(), 0);
    fabric.schedule(&[Change { at_ns: 0, link: 9, set: Set::Outage(true) }]);
    fabric.ingress(0, 0, on_auxiliary(1), Instant::ZERO);
    fabric.ingress(0, 1, meta(1, 1, 8, 8), Instant::ZERO);
    fabric.ingress(0, 2, on_auxiliary(0), Instant::ZERO);
    fabric.ingress(0, 3, on_auxiliary(2), Instant::ZERO);
    let mut alone = Fabric::new(&pair(access(None, 0), direction(None, 0)), 0);
    alone.ingress(0, 4, on_auxiliary(1), Instant::ZERO);
    let mut actions = Vec::new();
    for fabric in [&mut fabric, &mut alone] {
        take(fabric, &mut actions);
        drain(fabric, &mut actions);
    }
    let mut ends: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Deliver { packet, .. } => (packet.buffer, None),
            Action::Drop { packet, link, reason, .. } => (packet.buffer, Some((*link, *reason))),
            Action::Seen { .. } => panic!("nothing is captured"),
        })
        .collect();
    ends.sort_unstable();
    let unroutable = |link| Some((link, DropReason::Unroutable));
    let expected = [
        (0, Some((9, DropReason::Outage))),
        (1, None),
        (2, unroutable(6)),
        (3, unroutable(6)),
        (4, unroutable(0)),
    ];
    assert_eq!(ends, expected);
}

// Spec: fabric.md#fabric-29
#[test]
fn a_capture_sees_what_the_serialiser_takes_up_and_every_drop_at_its_instant_until_it_ends() {
    // 1,500 wire bytes take 1.2 ms; two packets may wait.
    let mut topology = pair(access(None, 0), direction(Some(10_000_000), 0));
    topology.links[0].forward.queue.bytes = Some(Bytes(2 * 1_462));
    let mut fabric = Fabric::new(&topology, 0);
    fabric.capture(WAN, true);
    fabric.schedule(&[Change { at_ns: 3_000_000, link: WAN, set: Set::Loss(Some(1.0)) }]);
    for buffer in 0..4 {
        fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::ZERO);
    }
    let mut actions = Vec::new();
    take(&mut fabric, &mut actions);
    drain(&mut fabric, &mut actions);
    fabric.capture(WAN, false);
    fabric.ingress(0, 4, meta(1, 1, 1410, 1410), Instant::from_ns(9_000_000));
    drain(&mut fabric, &mut actions);
    let said: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Seen { packet, link: WAN, at, dropped } => ("seen", packet.buffer, at.as_ns(), *dropped),
            Action::Deliver { packet, planned, .. } => ("delivered", packet.buffer, planned.as_ns(), None),
            Action::Drop { packet, at, reason, .. } => ("dropped", packet.buffer, at.as_ns(), Some(*reason)),
            Action::Seen { .. } => panic!("another link is captured"),
        })
        .collect();
    let (queue, loss) = (Some(DropReason::Queue), Some(DropReason::Loss));
    assert_eq!(
        said,
        [
            ("seen", 0, 0, None),
            ("seen", 3, 0, queue),
            ("dropped", 3, 0, queue),
            ("seen", 1, 1_200_000, None),
            ("delivered", 0, 1_200_000, None),
            ("seen", 2, 2_400_000, None),
            ("delivered", 1, 2_400_000, None),
            ("seen", 2, 3_600_000, loss),
            ("dropped", 2, 3_600_000, loss),
            ("dropped", 4, 10_200_000, loss),
        ]
    );
}
