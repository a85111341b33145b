//! What one segment costs a hop: thirty-four hosts at two sites, seventy directed links with the trunk, one flow a host
//! from left to right. Prints nanoseconds a segment and hop, and a packet (a run) and hop; the median of nine rounds.

use std::time::Instant as Clock;
use weir_core::schedule::Protocol;
use weir_core::topology::{Access, Direction, Host, Link, Queue, Site, TcpProfile, Topology};
use weir_core::{BitsPerSecond, Bytes, Instant};
use weir_fabric::{Action, Fabric, Network, PacketMeta};

const HOSTS_A_SITE: usize = 17;
const ROUNDS: usize = 9;

fn main() {
    // Each host offers what keeps the trunk just below its rate.
    run("single segments, 10 Gbit/s trunk", 10_000_000_000, 0.0, 1, 200_000);
    run("single segments, loss 1e-4", 10_000_000_000, 1e-4, 1, 200_000);
    run("single segments, 1 Gbit/s trunk", 1_000_000_000, 0.0, 1, 200_000);
    run("44-segment super-packets, whole", 10_000_000_000, 0.0, 44, 40_000);
    run("44-segment super-packets, split", 1_000_000_000, 0.0, 44, 5_000);
}

fn run(what: &str, trunk: u64, loss: f64, segments: u16, buffers: u32) {
    let mut each: Vec<(f64, f64)> =
        (0..ROUNDS).map(|seed| round(trunk, loss, segments, buffers, seed as u64)).collect();
    each.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (segment_ns, packet_ns) = each[ROUNDS / 2];
    println!(
        "{what:36} {segment_ns:7.1} ns/segment-hop  {packet_ns:7.1} ns/packet  [{:.1}, {:.1}]",
        each[0].0,
        each[ROUNDS - 1].0
    );
}

/// Nanoseconds a segment and hop, and nanoseconds a delivered packet over its whole path.
fn round(trunk: u64, loss: f64, segments: u16, buffers: u32, seed: u64) -> (f64, f64) {
    let mut fabric = Fabric::new(&topology(trunk, loss), seed);
    let meta = |to| PacketMeta {
        to,
        network: Network::Data,
        header_bytes: 52,
        segment_bytes: 1448,
        payload_bytes: 1448 * u32::from(segments),
        segments,
        hop_limit: 64,
        protocol: Some(Protocol::Tcp),
        ports: [40_000, 5_201],
        ipv6: false,
        answerable: true,
    };
    let gap_ns = (u64::from(segments) * 1538 * 8_000_000_000).div_ceil(trunk) * 101 / 100;
    let mut drive = |from: u32, to: u32| {
        let (mut delivered, mut actions) = (0_u64, 0_u64);
        for index in from..to {
            let host = index as usize % HOSTS_A_SITE;
            let now = Instant::from_ns(u64::from(index) * gap_ns);
            fabric.ingress(host, index, meta(HOSTS_A_SITE + host), now);
            while let Some(action) = fabric.poll() {
                actions += 1;
                if let Action::Deliver { packet, .. } = action {
                    delivered += u64::from(packet.count);
                }
            }
        }
        let links = fabric.link_count();
        let hops: u64 = (0..links).map(|link| fabric.counters(link).packets_sent).sum();
        (hops, delivered, actions)
    };
    let (hops_before, ..) = drive(0, buffers / 4); // fills the wires and grows the queues
    let start = Clock::now();
    let (hops, delivered, actions) = drive(buffers / 4, buffers);
    let spent_ns = start.elapsed().as_nanos() as f64;
    assert!(delivered > 0, "nothing arrived");
    (spent_ns / (hops - hops_before) as f64, spent_ns / actions as f64)
}

fn topology(trunk: u64, loss: f64) -> Topology {
    let direction = Direction {
        rate: Some(BitsPerSecond(trunk)),
        delay_ns: 8_000_000,
        loss,
        queue: Queue::drop_tail(Some(Bytes(16 << 20)), None),
        ..Direction::default()
    };
    let access = Access { rate: Some(BitsPerSecond(10_000_000_000)), delay_ns: 20_000, ..Access::default() };
    let site = |name: &str| Site::new(name, TcpProfile::Modern);
    Topology {
        sites: vec![site("left"), site("right")],
        hosts: (0..2 * HOSTS_A_SITE)
            .map(|index| Host::new(&format!("h-{index}"), index / HOSTS_A_SITE, access.clone()))
            .collect(),
        links: vec![Link {
            name: "trunk".to_owned(),
            between: [0, 1],
            forward: direction.clone(),
            backward: direction,
            mtu: 1500,
        }],
        auxiliary: None,
    }
}
