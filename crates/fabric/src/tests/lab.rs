//! Random labs, traffic and schedules, and a shell that carries packets for tests.

use crate::{Action, Fabric, Network, PacketMeta};
use proptest::prelude::*;
use weir_core::schedule::{Change, Protocol, Set};
use weir_core::topology::{
    Access, Direction, ETHERNET_FRAMING_BYTES, Host, Impairments, Link, Queue, Site, TcpProfile, Topology,
};
use weir_core::{BitsPerSecond, Bytes, Instant};

/// A buffer handed in; its token is its index in the traffic.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at_ns: u64,
    pub from: usize,
    pub meta: PacketMeta,
}

#[derive(Clone, Debug)]
pub struct Scene {
    pub topology: Topology,
    pub changes: Vec<Change>,
    pub traffic: Vec<Sent>,
    pub seed: u64,
}

/// A buffer of `segments` segments, the last with `last_bytes` of payload.
pub fn meta(to: usize, segments: u16, segment_bytes: u16, last_bytes: u16) -> PacketMeta {
    let payload_bytes = u32::from(segments - 1) * u32::from(segment_bytes) + u32::from(last_bytes);
    PacketMeta {
        to,
        network: Network::Data,
        header_bytes: 52,
        segment_bytes,
        payload_bytes,
        segments,
        hop_limit: 64,
        protocol: Some(Protocol::Tcp),
        ports: [40_000, 5_201],
        ipv6: false,
        answerable: true,
    }
}

pub fn access(rate: Option<u64>, delay_ns: u64) -> Access {
    Access { rate: rate.map(BitsPerSecond), delay_ns, mtu: 9000, ..Access::default() }
}

pub fn direction(rate: Option<u64>, delay_ns: u64) -> Direction {
    Direction { rate: rate.map(BitsPerSecond), delay_ns, ..Direction::default() }
}

/// Two sites with one host each: links 0 to 3 are the hosts' own, 4 runs from left to right, 5 back.
pub fn pair(access: Access, forward: Direction) -> Topology {
    let site = |name: &str| Site::new(name, TcpProfile::Stock);
    let host = |name: &str, site| Host::new(name, site, access.clone());
    let link =
        Link { name: "wan".to_owned(), between: [0, 1], backward: forward.clone(), forward, mtu: 9000 };
    Topology {
        sites: vec![site("left"), site("right")],
        hosts: vec![host("left-0", 0), host("right-0", 1)],
        links: vec![link],
        auxiliary: None,
    }
}
pub const WAN: usize = 4;

fn any_rate() -> impl Strategy<Value = Option<BitsPerSecond>> {
    prop_oneof![
        1 => Just(None),
        2 => (1_000_000_u64..1_000_000_000).prop_map(|rate| Some(BitsPerSecond(rate))),
        2 => (1_000_000_000_u64..100_000_000_000).prop_map(|rate| Some(BitsPerSecond(rate))),
    ]
}

fn any_queue() -> impl Strategy<Value = Queue> {
    let bytes = prop_oneof![Just(None), (0_u64..2 << 20).prop_map(|bytes| Some(Bytes(bytes)))];
    let packets = prop_oneof![3 => Just(None), 1 => (0_u64..100).prop_map(Some)];
    (bytes, packets).prop_map(|(bytes, packets)| Queue::drop_tail(bytes, packets))
}

fn any_mtu() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(1400), 4 => Just(1500), 4 => Just(9000)]
}

fn any_access() -> impl Strategy<Value = Access> {
    (any_rate(), 0_u64..1_000_000, any_mtu(), proptest::option::weighted(0.3, any_queue())).prop_map(
        |(rate, delay_ns, mtu, queue)| Access {
            rate,
            delay_ns,
            loss: 0.0,
            impairments: Impairments::default(),
            mtu,
            queue,
            framing_bytes: ETHERNET_FRAMING_BYTES,
        },
    )
}

fn any_direction() -> impl Strategy<Value = Direction> {
    let loss = prop_oneof![6 => Just(0.0), 2 => 0.0..0.3, 1 => Just(1.0)];
    (any_rate(), 0_u64..5_000_000, loss, any_queue(), 0_u32..60).prop_map(
        |(rate, delay_ns, loss, queue, framing_bytes)| Direction {
            rate,
            delay_ns,
            loss,
            impairments: Impairments::default(),
            queue,
            framing_bytes,
        },
    )
}

/// One to four sites in a random tree, one to five hosts each.
pub fn any_tree() -> impl Strategy<Value = Topology> {
    let hosts = proptest::collection::vec(proptest::collection::vec(any_access(), 1..=5), 1..=4);
    let links = proptest::collection::vec(
        (any::<prop::sample::Index>(), any::<bool>(), any_direction(), any_direction(), any_mtu()),
        3,
    );
    (hosts, links).prop_map(|(hosts, links)| {
        let mut topology = Topology::default();
        for (site, accesses) in hosts.into_iter().enumerate() {
            topology.sites.push(Site::new(&format!("s{site}"), TcpProfile::Stock));
            for (number, access) in accesses.into_iter().enumerate() {
                topology.hosts.push(Host::new(&format!("s{site}-{number}"), site, access));
            }
        }
        for (site, (parent, turned, forward, backward, mtu)) in (1..topology.sites.len()).zip(links) {
            let parent = parent.index(site);
            let between = if turned { [site, parent] } else { [parent, site] };
            topology.links.push(Link { name: format!("l{site}"), between, forward, backward, mtu });
        }
        topology
    })
}

fn any_set() -> impl Strategy<Value = Set> {
    prop_oneof![
        any::<bool>().prop_map(Set::Outage),
        any_rate().prop_map(Set::Rate),
        (0_u64..3_000_000).prop_map(Set::DelayAdd),
        proptest::option::of(0.0..1.0).prop_map(Set::Loss),
    ]
}

/// Traffic with super-packets, bursts and pauses, on a random tree with a random schedule.
pub fn any_scene() -> impl Strategy<Value = Scene> {
    let segments = prop_oneof![3 => Just(1_u16), 2 => 2_u16..=44];
    let gap_ns = prop_oneof![Just(0_u64), 0_u64..20_000, 0_u64..2_000_000];
    let index = any::<prop::sample::Index>;
    let sent = (gap_ns, index(), index(), segments, 1_u16..=1448);
    let change = (0_u64..30_000_000, index(), any_set());
    (
        any_tree(),
        proptest::collection::vec(change, 0..8),
        proptest::collection::vec(sent, 1..120),
        any::<u64>(),
    )
        .prop_map(|(topology, changes, traffic, seed)| {
            let changes = changes.into_iter().map(|(at_ns, link, set)| Change {
                at_ns,
                link: link.index(topology.directed_count()),
                set,
            });
            let mut at_ns = 0;
            let traffic = traffic.into_iter().map(|(gap_ns, from, to, segments, last)| {
                at_ns += gap_ns;
                let hosts = topology.hosts.len();
                Sent { at_ns, from: from.index(hosts), meta: meta(to.index(hosts), segments, 1448, last) }
            });
            Scene { changes: changes.collect(), traffic: traffic.collect(), seed, topology }
        })
}

/// Takes what the fabric has to say.
pub fn take(fabric: &mut Fabric, actions: &mut Vec<Action>) {
    actions.extend(std::iter::from_fn(|| fabric.poll()));
}

/// Runs the fabric dry, step by step.
pub fn drain(fabric: &mut Fabric, actions: &mut Vec<Action>) {
    while let Some(at) = fabric.wake_at() {
        fabric.advance(at);
        take(fabric, actions);
    }
}

/// Hands all traffic in, calling `between` after each step, and runs the fabric dry. An `eager` shell wakes for every
/// event; one that is not learns of them when it sends next.
pub fn run(scene: &Scene, eager: bool, mut between: impl FnMut(&Fabric, &[Action])) -> (Fabric, Vec<Action>) {
    let mut fabric = Fabric::new(&scene.topology, scene.seed);
    fabric.schedule(&scene.changes);
    let mut actions = Vec::new();
    for (buffer, sent) in scene.traffic.iter().enumerate() {
        let now = Instant::from_ns(sent.at_ns);
        while eager && fabric.wake_at().is_some_and(|at| at <= now) {
            fabric.advance(fabric.wake_at().unwrap());
            take(&mut fabric, &mut actions);
            between(&fabric, &actions);
        }
        fabric.ingress(sent.from, buffer as u32, sent.meta, now);
        take(&mut fabric, &mut actions);
        between(&fabric, &actions);
    }
    if eager {
        while let Some(at) = fabric.wake_at() {
            fabric.advance(at);
            take(&mut fabric, &mut actions);
            between(&fabric, &actions);
        }
    } else {
        fabric.advance(Instant::NEVER);
        take(&mut fabric, &mut actions);
    }
    (fabric, actions)
}

/// Hands `traffic` to a fresh fabric over `topology` and returns everything that became of it.
pub fn outcome(topology: &Topology, changes: &[Change], traffic: &[Sent]) -> Vec<Action> {
    let scene =
        Scene { topology: topology.clone(), changes: changes.to_vec(), traffic: traffic.to_vec(), seed: 1 };
    run(&scene, false, |_, _| {}).1
}
