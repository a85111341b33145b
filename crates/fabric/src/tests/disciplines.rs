//! RED and CoDel at work on a link, and the buffer that the ports of a stage share.

use super::lab::*;
use crate::{Action, DropReason, Fabric};
use weir_core::topology::{Discipline, Host, Queue, Topology};
use weir_core::{Bytes, Instant};

/// 12 Mbit/s: 1,500 wire bytes, 1,462 of IP, take 1 ms.
fn bottleneck(discipline: Discipline) -> Topology {
    let mut forward = direction(Some(12_000_000), 0);
    forward.queue = Queue { bytes: Some(Bytes(10 << 20)), packets: None, discipline };
    let mut topology = pair(access(None, 0), forward);
    topology.links[0].mtu = 1500;
    topology
}

/// Offers a packet each `gap_ns` for `count` packets; when each was dropped or delivered, by its time.
fn offered(topology: &Topology, gap_ns: u64, count: u32) -> (Fabric, Vec<Action>) {
    let (mut fabric, mut actions) = (Fabric::new(topology, 3), Vec::new());
    for buffer in 0..count {
        fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::from_ns(u64::from(buffer) * gap_ns));
        take(&mut fabric, &mut actions);
    }
    (fabric, actions)
}

// Spec: fabric.md#fabric-26
#[test]
fn under_overload_red_holds_the_queue_where_its_drops_are_the_excess() {
    // Half as much again as the link carries: a third must be dropped. Evenly spread, a base probability p drops 2p/(1 + p) of
    // the packets, so p is 0.2 and the mean lies 0.2 / 0.4 of the way from 20,000 to 100,000 bytes.
    let topology = bottleneck(Discipline::Red { min_bytes: 20_000, max_bytes: 100_000, probability: 0.4 });
    let (fabric, _) = offered(&topology, 666_667, 60_000);
    let c = fabric.counters(WAN);
    let share = c.dropped_early as f64 / 60_000.0;
    assert!((share - 1.0 / 3.0).abs() < 0.01, "{share}");
    assert_eq!(c.dropped_queue, 0);
    let (mut sum, mut fabric) = (0.0, Fabric::new(&topology, 4));
    for buffer in 0..60_000 {
        fabric.ingress(0, buffer, meta(1, 1, 1410, 1410), Instant::from_ns(u64::from(buffer) * 666_667));
        while fabric.poll().is_some() {}
        if buffer >= 20_000 {
            sum += fabric.counters(WAN).queue_bytes as f64 / 40_000.0;
        }
    }
    assert!((sum - 60_000.0).abs() < 3_000.0, "a mean queue of {sum} bytes");
}

// Spec: fabric.md#fabric-27
#[test]
fn under_overload_codel_drops_first_an_interval_after_the_target_and_leaves_short_queues_alone() {
    let codel = Discipline::Codel { target_ns: 5_000_000, interval_ns: 100_000_000 };
    // One more in ten than the link carries: the wait grows by 0.1 ms a packet sent.
    let (_, actions) = offered(&bottleneck(codel), 909_091, 400);
    let first = actions.iter().find_map(|action| match action {
        Action::Drop { reason: DropReason::Early, at, packet, .. } => Some((at.as_ns(), packet.buffer)),
        _ => None,
    });
    let (at_ns, buffer) = first.unwrap();
    // The packet taken up at n ms came at 0.909 n ms: 5 ms are waited by the 55th, and the drop comes 100 ms later.
    assert!((155_000_000..=156_000_000).contains(&at_ns), "{at_ns}");
    assert!((154..=157).contains(&buffer), "{buffer}: dropped at the head of the queue, not at its tail");
    let (fabric, _) = offered(&bottleneck(codel), 1_000_000, 400);
    assert_eq!(fabric.counters(WAN).dropped_early, 0);
}

// Spec: fabric.md#fabric-19
// Spec: scenario.md#stage-2
#[test]
fn ports_of_one_stage_share_its_buffer_and_another_stage_has_its_own() {
    // Host 0 floods hosts 2 and 3 behind one switch, whose access links take 1 ms a packet.
    let mut topology = pair(access(Some(12_000_000), 0), direction(None, 0));
    topology.hosts[0].access.rate = None;
    for number in [1, 2] {
        let host = Host { name: format!("right-{number}"), ..topology.hosts[1].clone() };
        topology.hosts.push(host);
    }
    topology.sites[1].buffer = Some(Bytes(10 * 1_462));
    let mut fabric = Fabric::new(&topology, 0);
    for buffer in 0..40 {
        fabric.ingress(0, buffer, meta(2 + buffer as usize % 2, 1, 1410, 1410), Instant::ZERO);
    }
    fabric.advance(Instant::ZERO);
    // Links 5 and 7 lead to hosts 2 and 3: each sends one, ten wait for both together.
    let waiting = |fabric: &Fabric| fabric.counters(5).queue_packets + fabric.counters(7).queue_packets;
    assert_eq!(
        (waiting(&fabric), fabric.counters(5).dropped_buffer, fabric.counters(7).dropped_buffer),
        (10, 14, 14)
    );
    // A packet sent makes room for one, whichever port it is for.
    fabric.advance(Instant::from_ns(1_000_000));
    assert_eq!(waiting(&fabric), 8);
    for buffer in 40..44 {
        fabric.ingress(0, buffer, meta(3, 1, 1410, 1410), Instant::from_ns(1_000_000));
    }
    fabric.advance(Instant::from_ns(1_000_000));
    assert_eq!(
        (waiting(&fabric), fabric.counters(7).queue_packets, fabric.counters(7).dropped_buffer),
        (10, 6, 16)
    );
    assert_eq!(fabric.counters(7).dropped_queue, 0);
    assert!(fabric.splits(5), "a small buffer needs single segments");
    let mut actions = Vec::new();
    take(&mut fabric, &mut actions);
    drain(&mut fabric, &mut actions);
    assert_eq!((waiting(&fabric), fabric.queued_segments()), (0, 0));
    // Nothing of the buffer is left over.
    for buffer in 44..64 {
        fabric.ingress(0, buffer, meta(2, 1, 1410, 1410), Instant::from_ns(1_000_000_000));
    }
    fabric.advance(Instant::from_ns(1_000_000_000));
    assert_eq!(fabric.counters(5).queue_packets, 10);
}
