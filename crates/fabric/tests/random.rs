//! Random labs under random traffic and faults in virtual time. `WEIR_SEED` narrows a run to one of them.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use weir_core::schedule::{Change, Effect, Match, Protocol, Rule, Set};
use weir_core::topology::{
    Access, Auxiliary, BurstLoss, Direction, Discipline, ETHERNET_FRAMING_BYTES, End, Host, Impairments,
    Jitter, Link, Queue, Reorder, Site, Stage, TcpProfile, Topology,
};
use weir_core::{BitsPerSecond, Bytes, Instant};
use weir_fabric::{Action, Answer, Fabric, LinkCounters, Network, PacketMeta};

const SEEDS: u64 = 260;
/// One scene of so many has 10^5 changes.
const LONG_SCHEDULE_EVERY: u64 = 20;

/// Prints how to run the scene again if it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = "random_labs_lose_nothing_and_keep_every_flow_in_order";
            eprintln!("replay: WEIR_SEED={} cargo test -p weir-fabric {test}", self.0);
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    }
}

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }
    fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }
    fn maybe<T>(&mut self, percent: u64, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        if self.chance(percent) { Some(make(self)) } else { None }
    }
    /// Less than 1, in thousandths.
    fn share(&mut self) -> f64 {
        self.below(1_000) as f64 / 1_000.0
    }

    fn rate(&mut self) -> Option<BitsPerSecond> {
        let rate = match self.below(5) {
            0 => return None,
            1 | 2 => 1_000_000 + self.below(1_000_000_000),
            _ => 1_000_000_000 + self.below(100_000_000_000),
        };
        Some(BitsPerSecond(rate))
    }

    fn queue(&mut self) -> Queue {
        let bytes = self.maybe(60, |dice| Bytes(dice.below(2 << 20)));
        let packets = self.maybe(25, |dice| dice.below(100));
        let discipline = match self.below(6) {
            0 => {
                let min_bytes = self.below(50_000);
                Discipline::Red {
                    min_bytes,
                    max_bytes: min_bytes + 1 + self.below(100_000),
                    probability: self.share(),
                }
            }
            1 => Discipline::Codel {
                target_ns: self.below(5_000_000),
                interval_ns: 1 + self.below(50_000_000),
            },
            _ => Discipline::DropTail,
        };
        Queue { bytes, packets, discipline }
    }

    fn impairments(&mut self) -> Impairments {
        Impairments {
            jitter: self.maybe(15, |dice| Jitter { by_ns: dice.below(2_000_000), reorder: dice.chance(50) }),
            burst_loss: self.maybe(10, |dice| BurstLoss {
                bad: dice.share() / 4.0,
                length_packets: 1.0 + dice.below(20) as f64,
                loss: dice.share(),
            }),
            corrupt: if self.chance(15) { self.share() / 10.0 } else { 0.0 },
            reorder: self.maybe(10, |dice| Reorder { share: dice.share(), by_ns: dice.below(3_000_000) }),
        }
    }

    fn direction(&mut self) -> Direction {
        Direction {
            rate: self.rate(),
            delay_ns: self.pick(&[0, 1_000, 5_000_000]),
            loss: if self.chance(20) { self.share() / 5.0 } else { 0.0 },
            impairments: self.impairments(),
            queue: self.queue(),
            framing_bytes: ETHERNET_FRAMING_BYTES,
        }
    }

    fn access(&mut self) -> Access {
        Access {
            rate: self.rate(),
            delay_ns: self.below(100_000),
            loss: 0.0,
            impairments: Impairments::default(),
            mtu: self.pick(&[1500, 9000]),
            queue: self.maybe(20, Dice::queue),
            framing_bytes: ETHERNET_FRAMING_BYTES,
        }
    }

    fn topology(&mut self) -> Topology {
        let mut topology = Topology::default();
        for index in 0..1 + self.index(7) {
            let mut site = Site::new(&format!("s{index}"), TcpProfile::Stock);
            site.stage = match self.below(10) {
                _ if index == 0 => Stage::Site,
                0..5 => Stage::Site,
                5..7 => Stage::Switch,
                _ => Stage::Router { replies: self.chance(70) },
            };
            site.buffer = self.maybe(20, |dice| Bytes(10_000 + dice.below(500_000)));
            topology.sites.push(site);
            for number in 0..2 + self.index(3) {
                if matches!(topology.sites[index].stage, Stage::Site) {
                    let name = format!("s{index}-{number}");
                    topology.hosts.push(Host::new(&name, index, self.access()));
                }
            }
        }
        let stages = topology.sites.len();
        let more = if stages > 1 { self.index(4) } else { 0 };
        for index in 1..stages + more {
            let ends = if index < stages {
                [index, self.index(index)]
            } else {
                [self.index(stages), self.index(stages)]
            };
            topology.links.push(Link {
                name: format!("l{index}"),
                between: if self.chance(50) { ends } else { [ends[1], ends[0]] },
                forward: self.direction(),
                backward: self.direction(),
                mtu: self.pick(&[1400, 1500, 9000]),
            });
        }
        for stage in 0..stages {
            let own: Vec<usize> = (0..topology.links.len())
                .filter(|link| topology.links[*link].between.contains(&stage))
                .collect();
            if !own.is_empty() && self.chance(25) {
                topology.sites[stage].routes.push((self.index(stages), self.pick(&own)));
            }
        }
        topology.auxiliary =
            self.maybe(40, |dice| Auxiliary { rate: dice.rate(), delay_ns: dice.below(50_000) });
        topology
    }

    fn set(&mut self, hosts: usize) -> Set {
        match self.below(7) {
            0 => Set::Outage(self.chance(40)),
            1 => Set::Rate(self.rate()),
            2 => Set::DelayAdd(self.below(3_000_000)),
            3 => Set::Loss(self.maybe(60, |dice| dice.share() / 4.0)),
            4 => Set::Corrupt(self.maybe(60, |dice| dice.share() / 4.0)),
            _ => Set::Rule {
                number: self.below(5) as u32,
                rule: self.maybe(60, |dice| Box::new(dice.rule(hosts))),
            },
        }
    }

    fn rule(&mut self, hosts: usize) -> Rule {
        let mut some_hosts = |percent| -> Vec<u32> {
            if self.chance(percent) {
                (0..hosts as u32).filter(|_| self.chance(40)).collect()
            } else {
                Vec::new()
            }
        };
        let (from, to) = (some_hosts(30), some_hosts(30));
        let port = self.maybe(20, |dice| dice.pick(&[80, 5_201]));
        let protocol = self.maybe(30, |dice| dice.pick(&[Protocol::Tcp, Protocol::Udp]));
        let effect = match self.below(5) {
            0 => Effect::Outage,
            1 => Effect::Loss(self.share()),
            2 => Effect::Corrupt(self.share()),
            3 => Effect::Delay(self.below(5_000_000)),
            _ => Effect::DelaySome { share: self.share(), by_ns: self.below(5_000_000) },
        };
        Rule { matches: Match { from, to, port, protocol, share: 1.0 }, effect }
    }

    fn changes(&mut self, seed: u64, topology: &Topology) -> Vec<Change> {
        let links = topology.directed_count();
        let count = if seed.is_multiple_of(LONG_SCHEDULE_EVERY) { 100_000 } else { self.below(40) };
        let mut changes: Vec<Change> = (0..count)
            .map(|_| Change {
                at_ns: self.below(100_000_000),
                link: self.index(links),
                set: self.set(topology.hosts.len()),
            })
            .collect();
        if self.chance(25) {
            // A link that flaps at 1 kHz.
            let link = self.index(links);
            changes.extend((0..200).map(|half_ms| Change {
                at_ns: half_ms * 500_000,
                link,
                set: Set::Outage(half_ms % 2 == 0),
            }));
        }
        changes
    }

    fn traffic(&mut self, topology: &Topology) -> Vec<Sent> {
        let hosts = topology.hosts.len();
        let mut at_ns = 0;
        let longest_gap_ns = self.pick(&[1, 2_000, 200_000]);
        (0..100 + self.below(900))
            .map(|_| {
                at_ns += self.below(longest_gap_ns);
                // To a host, or an echo request to a stage: `Fabric::router`.
                let to_stage = self.chance(10);
                let to = if to_stage { hosts + self.index(topology.sites.len()) } else { self.index(hosts) };
                let segments = if to_stage || self.chance(70) { 1 } else { 2 + self.below(43) as u16 };
                let segment_bytes = self.pick(&[1348, 1448, 8948]);
                let last_bytes = 1 + self.below(u64::from(segment_bytes)) as u32;
                let meta = PacketMeta {
                    to,
                    network: if self.chance(15) { Network::Auxiliary } else { Network::Data },
                    header_bytes: 52,
                    segment_bytes,
                    payload_bytes: u32::from(segments - 1) * u32::from(segment_bytes) + last_bytes,
                    segments,
                    hop_limit: self.pick(&[0, 1, 2, 3, 64, 64, 64, 255]),
                    protocol: self.pick(&[
                        Some(Protocol::Tcp),
                        Some(Protocol::Udp),
                        Some(Protocol::Icmp),
                        None,
                    ]),
                    ports: self.pick(&[[80, 40_000], [40_000, 80], [40_000, 5_201], [0, 0]]),
                    ipv6: self.chance(30),
                    answerable: self.chance(90),
                };
                Sent { at_ns, from: self.index(hosts), meta }
            })
            .collect()
    }
}

#[derive(Clone, Copy)]
struct Sent {
    at_ns: u64,
    from: usize,
    meta: PacketMeta,
}

struct Scene {
    seed: u64,
    topology: Topology,
    changes: Vec<Change>,
    traffic: Vec<Sent>,
}

impl Scene {
    fn of(seed: u64) -> Scene {
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let topology = dice.topology();
        let changes = dice.changes(seed, &topology);
        let traffic = dice.traffic(&topology);
        Scene { seed, topology, changes, traffic }
    }

    fn fabric(&self) -> Fabric {
        let mut fabric = Fabric::new(&self.topology, self.seed);
        fabric.schedule(&self.changes);
        fabric
    }

    /// Wakes for every event and looks at everything each time.
    fn run_awake(&self) -> (Fabric, Vec<Action>) {
        let (mut fabric, mut actions) = (self.fabric(), Vec::new());
        let mut watch = Watch::new(&self.topology);
        for (buffer, sent) in self.traffic.iter().enumerate() {
            let now = Instant::from_ns(sent.at_ns);
            while let Some(at) = fabric.wake_at().filter(|at| *at <= now) {
                watch.advance(&mut fabric, at, &mut actions);
            }
            fabric.ingress(sent.from, buffer as u32, sent.meta, now);
            watch.look(&mut fabric, Instant::ZERO, &mut actions);
        }
        while let Some(at) = fabric.wake_at() {
            watch.advance(&mut fabric, at, &mut actions);
        }
        (fabric, actions)
    }

    /// Learns of everything only when it sends, and captures every third link.
    fn run_asleep(&self) -> (Fabric, Vec<Action>) {
        let (mut fabric, mut actions) = (self.fabric(), Vec::new());
        (0..fabric.link_count()).filter(|link| link % 3 == 0).for_each(|link| fabric.capture(link, true));
        let mut seen = vec![(0, 0); fabric.link_count()];
        let mut take = |fabric: &mut Fabric| {
            while let Some(action) = fabric.poll() {
                match action {
                    Action::Seen { packet, link, dropped: None, .. } => {
                        seen[link].0 += u64::from(packet.count)
                    }
                    Action::Seen { packet, link, dropped: Some(_), .. } => {
                        seen[link].1 += u64::from(packet.count)
                    }
                    other => actions.push(other),
                }
            }
        };
        for (buffer, sent) in self.traffic.iter().enumerate() {
            fabric.ingress(sent.from, buffer as u32, sent.meta, Instant::from_ns(sent.at_ns));
            take(&mut fabric);
        }
        fabric.advance(Instant::NEVER);
        take(&mut fabric);
        for (link, (taken_up, dropped)) in seen.into_iter().enumerate() {
            let c = fabric.counters(link);
            if link % 3 > 0 {
                assert_eq!((taken_up, dropped), (0, 0), "link {link} is not captured");
                continue;
            }
            assert_eq!(dropped, all_drops(c), "link {link}: {c:?}");
            // An outage drops some before and some after they were taken up.
            let cut = c.dropped_outage;
            assert!(
                (c.packets_sent..=c.packets_sent + cut).contains(&taken_up),
                "link {link}: {taken_up} {c:?}"
            );
        }
        (fabric, actions)
    }
}

/// What must hold at every instant.
struct Watch {
    last: Instant,
    open: u64,
    /// Bytes of each shared buffer and the links that share it.
    buffers: Vec<(u64, Vec<usize>)>,
    queues: Vec<Option<Queue>>,
}

impl Watch {
    fn new(topology: &Topology) -> Watch {
        let directed = topology.directed_links();
        let leaving = |stage| {
            let from = |(index, link): (usize, &weir_core::topology::DirectedLink)| {
                (link.from == End::Site(stage)).then_some(index)
            };
            directed.iter().enumerate().filter_map(from).collect()
        };
        let buffer = |(stage, site): (usize, &Site)| Some((site.buffer?.0, leaving(stage)));
        Watch {
            last: Instant::ZERO,
            open: 0,
            buffers: topology.sites.iter().enumerate().filter_map(buffer).collect(),
            queues: directed.iter().map(|link| link.queue).collect(),
        }
    }

    fn advance(&mut self, fabric: &mut Fabric, at: Instant, actions: &mut Vec<Action>) {
        let bound = fabric.deliver_at().unwrap_or(Instant::NEVER);
        fabric.advance(at);
        self.look(fabric, bound, actions);
    }

    /// Takes the actions; nothing is delivered before `bound`.
    fn look(&mut self, fabric: &mut Fabric, bound: Instant, actions: &mut Vec<Action>) {
        while let Some(action) = fabric.poll() {
            let (at, packet) = match action {
                Action::Deliver { planned, packet, .. } => {
                    assert!(planned >= bound, "delivered at {planned:?}, not before {bound:?} it was said");
                    (planned, packet)
                }
                Action::Drop { at, packet, .. } => (at, packet),
                Action::Seen { .. } => panic!("nothing is captured"),
            };
            assert!(at >= self.last, "{action:?} after {:?}", self.last);
            self.last = at;
            self.open += u64::from(packet.count);
            actions.push(action);
        }
        let totals = fabric.totals();
        assert_eq!(totals.entered - self.open, fabric.queued_segments(), "{totals:?}");
        for (bytes_max, links) in &self.buffers {
            let bytes: u64 = links.iter().map(|link| fabric.counters(*link).queue_bytes).sum();
            assert!(bytes <= *bytes_max, "{bytes} wait in a buffer of {bytes_max}");
        }
        for (link, queue) in self.queues.iter().enumerate() {
            let (counters, Some(queue)) = (fabric.counters(link), queue) else { continue };
            assert!(queue.bytes.is_none_or(|bytes| counters.queue_bytes <= bytes.0), "{counters:?}");
            assert!(queue.packets.is_none_or(|packets| counters.queue_packets <= packets), "{counters:?}");
        }
    }
}

/// On the wire, after it was sent.
fn lost(c: &LinkCounters) -> u64 {
    c.dropped_loss + c.dropped_burst_loss + c.dropped_rule
}
fn all_drops(c: &LinkCounters) -> u64 {
    let before_the_wire = [
        c.dropped_queue,
        c.dropped_outage,
        c.dropped_mtu,
        c.dropped_hop_limit,
        c.dropped_buffer,
        c.dropped_early,
    ];
    lost(c) + before_the_wire.iter().sum::<u64>()
}

/// Segments that came to hosts and that were dropped, and among both the routers' replies to echo requests.
struct Fates {
    delivered: u64,
    dropped: u64,
    echoed: u64,
}

/// Every segment came out once, where it may.
fn came_out_once(scene: &Scene, actions: &[Action]) -> Fates {
    let mut open: Vec<Vec<bool>> =
        scene.traffic.iter().map(|sent| vec![true; usize::from(sent.meta.segments)]).collect();
    let mut fates = Fates { delivered: 0, dropped: 0, echoed: 0 };
    for action in actions {
        let (Action::Deliver { packet, .. } | Action::Drop { packet, .. } | Action::Seen { packet, .. }) =
            action;
        for segment in packet.first..packet.first + packet.count {
            let open = &mut open[packet.buffer as usize][usize::from(segment)];
            assert!(std::mem::take(open), "segment {segment} of buffer {} came out twice", packet.buffer);
        }
        fates.echoed += u64::from(matches!(packet.answer(), Some(Answer::Echo { .. })));
        let sent = &scene.traffic[packet.buffer as usize];
        let Action::Deliver { host, packet, planned } = action else {
            fates.dropped += u64::from(packet.count);
            continue;
        };
        fates.delivered += u64::from(packet.count);
        assert_eq!(packet.network(), sent.meta.network);
        assert!(planned.as_ns() >= sent.at_ns);
        match packet.answer() {
            None => assert_eq!(*host, sent.meta.to, "{action:?}"),
            Some(Answer::Refused { .. }) => {
                assert!(*host == sent.from && sent.meta.answerable && packet.count == 1, "{action:?}");
            }
            Some(Answer::Echo { stage }) => {
                assert!(
                    *host == sent.from && sent.meta.to == scene.topology.hosts.len() + stage,
                    "{action:?}"
                );
            }
        }
    }
    assert!(open.iter().flatten().all(|open| !open), "some segment never came out");
    fates
}

fn counters_agree(fabric: &Fabric, fates: &Fates) {
    let totals = *fabric.totals();
    // A request that a router replies to has been delivered there.
    assert_eq!(totals.delivered, fates.delivered + fates.echoed);
    let refused = totals.answered - fates.echoed;
    assert_eq!(totals.dropped + totals.unroutable - refused, fates.dropped, "{totals:?}");
    assert_eq!(
        (0..fabric.link_count()).map(|link| all_drops(fabric.counters(link))).sum::<u64>(),
        totals.dropped
    );
    for link in 0..fabric.link_count() {
        let c = fabric.counters(link);
        assert_eq!(c.packets_in, c.packets_sent + all_drops(c) - lost(c), "link {link}: {c:?}");
        assert_eq!((c.queue_bytes, c.queue_packets), (0, 0), "link {link}: {c:?}");
        assert!(c.corrupted <= c.packets_sent && c.reordered <= c.packets_sent, "link {link}: {c:?}");
    }
}

/// The directed links from one host to another by the rules for routes, as far as they do not repeat.
fn path(topology: &Topology, sent: &Sent) -> Vec<usize> {
    let hosts = &topology.hosts;
    if sent.meta.network == Network::Auxiliary {
        let first = 2 * (hosts.len() + topology.links.len());
        return vec![first + 2 * sent.from, first + 2 * sent.meta.to + 1];
    }
    let (mut stage, to) = (hosts[sent.from].site, hosts[sent.meta.to].site);
    let mut path = vec![2 * sent.from];
    while stage != to {
        let fixed = topology.sites[stage].routes.iter().rfind(|route| route.0 == to);
        let next = match fixed {
            Some((_, link)) => {
                let turned = topology.links[*link].between[0] != stage;
                2 * (hosts.len() + link) + usize::from(turned)
            }
            None => shortest_first(topology, stage, to),
        };
        if path.contains(&next) {
            return path;
        }
        path.push(next);
        let link = next / 2 - hosts.len();
        stage = topology.links[link].between[(next + 1) % 2];
    }
    path.push(2 * sent.meta.to + 1);
    path
}

/// The first link of the shortest path between two stages.
fn shortest_first(topology: &Topology, stage: usize, to: usize) -> usize {
    let arrived_by = topology.routes_from(stage);
    let (mut before, mut directed) = arrived_by[to].expect("every stage is reached");
    while before != stage {
        (before, directed) = arrived_by[before].expect("it is on the way");
    }
    directed
}

fn flows_are_in_order(scene: &Scene, actions: &[Action]) -> usize {
    let directed = scene.topology.directed_links();
    let mut reorders: Vec<bool> = directed
        .iter()
        .map(|link| {
            link.impairments.reorder.is_some() || link.impairments.jitter.is_some_and(|jitter| jitter.reorder)
        })
        .collect();
    for change in &scene.changes {
        if let Set::Rule { rule: Some(rule), .. } = &change.set {
            reorders[change.link] |= matches!(rule.effect, Effect::DelaySome { .. });
        }
    }
    let mut last = BTreeMap::new();
    let mut ordered = BTreeMap::new();
    for action in actions {
        let Action::Deliver { packet, .. } = action else { continue };
        if packet.answer().is_some() {
            continue;
        }
        let sent = &scene.traffic[packet.buffer as usize];
        let between = (sent.from, sent.meta.to, sent.meta.network);
        let in_order = *ordered
            .entry(between)
            .or_insert_with(|| !path(&scene.topology, sent).into_iter().any(|link| reorders[link]));
        let flow = (between, sent.meta.protocol.map(|protocol| protocol as u8), sent.meta.ports);
        let here = (packet.buffer, packet.first);
        if let Some(before) = last.insert(flow, here).filter(|_| in_order) {
            assert!(before < here, "{flow:?}: {before:?} was delivered before {here:?}");
        }
    }
    ordered.into_values().filter(|in_order| *in_order).count()
}

// Spec: fabric.md#fabric-1
// Spec: fabric.md#fabric-2
// Spec: fabric.md#fabric-13
// Spec: fabric.md#fabric-16
// Spec: fabric.md#fabric-19
// Spec: fabric.md#fabric-29
// Spec: fabric.md#fabric-31
#[test]
fn random_labs_lose_nothing_and_keep_every_flow_in_order() {
    let (mut flows_in_order, mut echoed) = (0, 0);
    for seed in seeds() {
        let _replay = Replay(seed);
        let scene = Scene::of(seed);
        let (fabric, actions) = scene.run_awake();
        let fates = came_out_once(&scene, &actions);
        echoed += fates.echoed;
        assert_eq!(fabric.queued_segments(), 0);
        counters_agree(&fabric, &fates);
        flows_in_order += flows_are_in_order(&scene, &actions);
        let (asleep, same) = scene.run_asleep();
        assert_eq!(actions.len(), same.len());
        assert!(actions == same, "{:?}", actions.iter().zip(&same).find(|(one, other)| one != other));
        for link in 0..fabric.link_count() {
            assert_eq!(fabric.counters(link), asleep.counters(link), "link {link}");
        }
    }
    assert!(flows_in_order > 0, "nothing was checked for its order");
    assert!(echoed > 0 || std::env::var("WEIR_SEED").is_ok(), "no router was asked");
}
