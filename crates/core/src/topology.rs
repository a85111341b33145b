//! A lab as resolved from a scenario: every default filled in, every name checked, hosts numbered.
//! The lab builds it, the fabric emulates it, models compute ceilings on it, the report draws it.

use crate::units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Bytes that Ethernet adds to each IP packet on the wire: preamble and start 8, header 14, check 4, gap 12.
pub const ETHERNET_FRAMING_BYTES: u32 = 38;

/// Largest IP packet on the auxiliary network, in bytes.
pub const AUXILIARY_MTU: u32 = 1500;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Sites first, then switches and routers of their own, each in file order: the stages that links join.
    pub sites: Vec<Site>,
    /// In site order; `SITE-NUMBER`.
    pub hosts: Vec<Host>,
    /// Between stages.
    pub links: Vec<Link>,
    /// A second interface of every host, on a network of its own, for control.
    #[serde(default)]
    pub auxiliary: Option<Auxiliary>,
}

/// A stage of paths: a site with its switch, or a switch or router between sites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    pub name: String,
    pub tcp_profile: TcpProfile,
    #[serde(default)]
    pub stage: Stage,
    /// Bytes that the output queues of all its ports share; `None`: each queue has its own room.
    #[serde(default)]
    pub buffer: Option<Bytes>,
    /// Fixed routes: packets for hosts of the first stage leave by the link, both by index. Others take the first link of the
    /// shortest path, whatever is fixed elsewhere. The decoder refuses loops.
    #[serde(default)]
    pub routes: Vec<(usize, usize)>,
}

impl Site {
    /// A site with nothing but a name and a profile.
    pub fn new(name: &str, tcp_profile: TcpProfile) -> Site {
        Site { name: name.to_owned(), tcp_profile, stage: Stage::default(), buffer: None, routes: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Hosts behind a switch.
    #[default]
    Site,
    Switch,
    /// Takes one from the hop limit of what it forwards. With `replies` it answers what it cannot forward (time exceeded,
    /// packet too big); without it drops in silence, a black hole for path MTU discovery.
    Router {
        replies: bool,
    },
}

/// The second interface of every host: one switch, no impairments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auxiliary {
    /// `None`: as fast as the machine.
    pub rate: Option<BitsPerSecond>,
    /// From each host to the switch, one way, in nanoseconds.
    pub delay_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpProfile {
    /// The kernel's defaults.
    Stock,
    /// Cubic; socket memory up to four times the longest path's bandwidth-delay product.
    Modern,
    /// As hosts were in 2005 (EXPERIMENTS.md 3.4): Reno without SACK, timestamps, RACK and adaptive reordering.
    Legacy,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// Index into `Topology::sites`.
    pub site: usize,
    pub access: Access,
}

/// A host's own link to its site's switch; both directions alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// `None`: as fast as the machine.
    pub rate: Option<BitsPerSecond>,
    /// One way, in nanoseconds.
    pub delay_ns: u64,
    /// Probability that a packet is lost on the wire.
    #[serde(default)]
    pub loss: f64,
    #[serde(default)]
    pub impairments: Impairments,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Towards the switch: `None` holds packets back like a real interface and drops none. From the switch to the host:
    /// `None` is the default link queue.
    pub queue: Option<Queue>,
    pub framing_bytes: u32,
}

/// What the language means where nothing is said: as fast as the machine, no delay, MTU 1500 and Ethernet's framing.
impl Default for Access {
    fn default() -> Self {
        Access {
            rate: None,
            delay_ns: 0,
            loss: 0.0,
            impairments: Impairments::default(),
            mtu: 1500,
            queue: None,
            framing_bytes: ETHERNET_FRAMING_BYTES,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub name: String,
    /// Indices into `Topology::sites`; forward is from the first to the second.
    pub between: [usize; 2],
    pub forward: Direction,
    pub backward: Direction,
    /// Largest IP packet in bytes.
    pub mtu: u32,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    pub rate: Option<BitsPerSecond>,
    /// Propagation, one way, in nanoseconds.
    pub delay_ns: u64,
    /// Probability that a packet is lost on the wire.
    pub loss: f64,
    #[serde(default)]
    pub impairments: Impairments,
    /// Always resolved: the default is one bandwidth-delay product of the longest path, at least 256 KiB.
    pub queue: Queue,
    pub framing_bytes: u32,
}

/// As fast as the machine, no delay, Ethernet's framing, and a queue without a limit: the default one depends on the topology.
impl Default for Direction {
    fn default() -> Self {
        Direction {
            rate: None,
            delay_ns: 0,
            loss: 0.0,
            impairments: Impairments::default(),
            queue: Queue::drop_tail(None, None),
            framing_bytes: ETHERNET_FRAMING_BYTES,
        }
    }
}

/// What a wire does to packets beside delay and independent loss; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Impairments {
    pub jitter: Option<Jitter>,
    pub burst_loss: Option<BurstLoss>,
    /// Probability that one bit of a packet is inverted.
    pub corrupt: f64,
    pub reorder: Option<Reorder>,
}

/// Delay added to each packet, drawn anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    /// Largest addition in nanoseconds; draws are uniform from 0.
    pub by_ns: u64,
    /// True: a packet may overtake another; false: none does, so one late packet holds back those behind it.
    pub reorder: bool,
}

/// Loss in bursts, after Gilbert (1960) and Elliott (1963): a chain of a good and a bad state, one move a packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstLoss {
    /// Long-run share of packets that meet the bad state.
    pub bad: f64,
    /// Mean length of a stay in the bad state, at least 1.
    pub length_packets: f64,
    /// Probability of loss in the bad state.
    pub loss: f64,
}

/// A share of packets, chosen at random, takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reorder {
    pub share: f64,
    pub by_ns: u64,
}

/// A queue. A packet that does not fit is dropped; whichever limit is met first counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// IP bytes waiting, the packet being sent not counted.
    pub bytes: Option<Bytes>,
    pub packets: Option<u64>,
    #[serde(default)]
    pub discipline: Discipline,
}

impl Queue {
    /// A drop-tail queue with these limits.
    pub const fn drop_tail(bytes: Option<Bytes>, packets: Option<u64>) -> Queue {
        Queue { bytes, packets, discipline: Discipline::DropTail }
    }
}

/// What is dropped, and when, before the limit is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    #[default]
    DropTail,
    /// Random early detection (Floyd and Jacobson 1993): from `min_bytes` of mean queue drops with growing probability up to
    /// `probability` at `max_bytes`, from there everything.
    Red { min_bytes: u64, max_bytes: u64, probability: f64 },
    /// Controlled delay (RFC 8289).
    Codel { target_ns: u64, interval_ns: u64 },
}

/// Where a directed link runs from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Host(usize),
    Site(usize),
    /// The second interface of a host.
    AuxiliaryHost(usize),
    /// The one switch of the auxiliary network.
    AuxiliarySwitch,
}

/// One direction of an access or inter-site link, in the order every part of weir numbers them:
/// for each host `host.H.access.forward` (to the switch) and `host.H.access.backward` (to the host), then for each
/// link `link.L.forward` and `link.L.backward`, then, where the lab has an auxiliary network, for each host
/// `host.H.auxiliary.forward` and `host.H.auxiliary.backward`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectedLink {
    pub name: String,
    pub from: End,
    pub to: End,
    pub rate: Option<BitsPerSecond>,
    pub delay_ns: u64,
    pub loss: f64,
    pub impairments: Impairments,
    /// `None`: holds packets back and never drops.
    pub queue: Option<Queue>,
    pub framing_bytes: u32,
    pub mtu: u32,
}

impl Topology {
    /// Number of directed links.
    pub fn directed_count(&self) -> usize {
        let auxiliary = if self.auxiliary.is_some() { self.hosts.len() } else { 0 };
        2 * (self.hosts.len() + self.links.len() + auxiliary)
    }

    /// All directed links, numbered as `DirectedLink` says.
    pub fn directed_links(&self) -> Vec<DirectedLink> {
        let mut all = Vec::with_capacity(self.directed_count());
        let longest_rtt = self.longest_rtt();
        for (index, host) in self.hosts.iter().enumerate() {
            let access = &host.access;
            let one_way = |name: &str, from, to, queue| DirectedLink {
                name: format!("host.{}.access.{name}", host.name),
                from,
                to,
                rate: access.rate,
                delay_ns: access.delay_ns,
                loss: access.loss,
                impairments: access.impairments,
                queue,
                framing_bytes: access.framing_bytes,
                mtu: access.mtu,
            };
            let down = access.queue.unwrap_or_else(|| Self::queue_for(access.rate, longest_rtt));
            all.push(one_way("forward", End::Host(index), End::Site(host.site), access.queue));
            all.push(one_way("backward", End::Site(host.site), End::Host(index), Some(down)));
        }
        for link in &self.links {
            for (name, direction, [from, to]) in [
                ("forward", &link.forward, link.between),
                ("backward", &link.backward, [link.between[1], link.between[0]]),
            ] {
                all.push(DirectedLink {
                    name: format!("link.{}.{name}", link.name),
                    from: End::Site(from),
                    to: End::Site(to),
                    rate: direction.rate,
                    delay_ns: direction.delay_ns,
                    loss: direction.loss,
                    impairments: direction.impairments,
                    queue: Some(direction.queue),
                    framing_bytes: direction.framing_bytes,
                    mtu: link.mtu,
                });
            }
        }
        if let Some(auxiliary) = self.auxiliary {
            for (index, host) in self.hosts.iter().enumerate() {
                let one_way = |name: &str, from, to, queue| DirectedLink {
                    name: format!("host.{}.auxiliary.{name}", host.name),
                    from,
                    to,
                    rate: auxiliary.rate,
                    delay_ns: auxiliary.delay_ns,
                    loss: 0.0,
                    impairments: Impairments::default(),
                    queue,
                    framing_bytes: ETHERNET_FRAMING_BYTES,
                    mtu: AUXILIARY_MTU,
                };
                let rtt = Duration::from_nanos(auxiliary.delay_ns.saturating_mul(4));
                let down = Self::queue_for(auxiliary.rate, rtt);
                all.push(one_way("forward", End::AuxiliaryHost(index), End::AuxiliarySwitch, None));
                all.push(one_way("backward", End::AuxiliarySwitch, End::AuxiliaryHost(index), Some(down)));
            }
        }
        all
    }

    /// The default drop-tail queue of a link with this rate: one bandwidth-delay product of the longest path, at least
    /// 256 KiB.
    pub fn default_queue(&self, rate: Option<BitsPerSecond>) -> Queue {
        Self::queue_for(rate, self.longest_rtt())
    }

    /// As `default_queue`, for a caller that looked the longest round trip up once.
    pub fn queue_for(rate: Option<BitsPerSecond>, longest_rtt: Duration) -> Queue {
        // A link without a rate never queues; the figure only bounds a burst while the fabric is late.
        let rate = rate.unwrap_or(BitsPerSecond(10_000_000_000));
        let bytes = rate.as_f64() / 8.0 * longest_rtt.as_secs_f64();
        Queue::drop_tail(Some(Bytes((bytes as u64).max(256 * 1024))), None)
    }

    /// The largest round trip between any two hosts (propagation only).
    pub fn longest_rtt(&self) -> Duration {
        // Host by host this would be cubic; only the two farthest hosts of each site matter.
        let mut farthest = vec![[None::<u64>; 2]; self.sites.len()];
        for host in &self.hosts {
            let delay = Some(host.access.delay_ns);
            let [first, second] = &mut farthest[host.site];
            if delay > *first {
                (*first, *second) = (delay, *first);
            } else if delay > *second {
                *second = delay;
            }
        }
        let delays = self.sums(&|index| self.delay_ns(index));
        let mut longest = 0u64;
        for (from, [first, second]) in farthest.iter().enumerate() {
            let Some(first) = first else { continue };
            if let Some(second) = second {
                longest = longest.max(first.saturating_add(*second).saturating_mul(2));
            }
            for (to, [other, _]) in farthest.iter().enumerate().skip(from + 1) {
                let (Some(other), Some(there), Some(back)) = (other, delays[from][to], delays[to][from])
                else {
                    continue;
                };
                let access = first.saturating_add(*other).saturating_mul(2);
                longest = longest.max(access.saturating_add(there).saturating_add(back));
            }
        }
        Duration::from_nanos(longest)
    }

    /// Propagation there and back between two hosts; `None` if there is no path.
    pub fn rtt(&self, from: usize, to: usize) -> Option<Duration> {
        let there = self.path(from, to)?;
        let back = self.path(to, from)?;
        let delays = there.iter().chain(&back).map(|index| self.delay_ns(*index));
        Some(Duration::from_nanos(delays.fold(0, u64::saturating_add)))
    }

    fn delay_ns(&self, directed: usize) -> u64 {
        let access_count = 2 * self.hosts.len();
        if directed < access_count {
            return self.hosts[directed / 2].access.delay_ns;
        }
        let link = &self.links[(directed - access_count) / 2];
        if directed.is_multiple_of(2) { link.forward.delay_ns } else { link.backward.delay_ns }
    }

    /// The directed links a packet from host `from` to host `to` passes, by index, fewest links first and the order in the
    /// file where two paths tie. `None` if there is no path; empty for a host and itself.
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        if from == to {
            return Some(Vec::new());
        }
        let mut path = vec![2 * from];
        path.extend(self.site_path(self.hosts[from].site, self.hosts[to].site)?);
        path.push(2 * to + 1);
        Some(path)
    }

    /// Directed links from one site's switch to another's, as the stages send packets on: hop by hop.
    pub fn site_path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        if self.sites.iter().all(|site| site.routes.is_empty()) {
            return self.shortest_path(from, to);
        }
        let mut path = Vec::new();
        let mut here = from;
        while here != to {
            let directed = self.next_links(here)[to]?;
            path.push(directed);
            here = self.stages_of(directed).1;
            if path.len() > self.sites.len() {
                return None; // a loop, which no decoded topology has
            }
        }
        Some(path)
    }

    fn shortest_path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let arrived_by = self.routes_from(from);
        if from != to {
            arrived_by[to]?;
        }
        let mut path = Vec::new();
        let mut site = to;
        while let Some((before, directed)) = arrived_by[site] {
            path.push(directed);
            site = before;
        }
        path.reverse();
        Some(path)
    }

    /// The stages a directed link between stages runs from and to.
    fn stages_of(&self, directed: usize) -> (usize, usize) {
        let [first, second] = self.links[(directed - 2 * self.hosts.len()) / 2].between;
        if directed.is_multiple_of(2) { (first, second) } else { (second, first) }
    }

    /// By which directed link a stage sends packets for the hosts of each stage: its fixed route, else the first link of the
    /// shortest path (fewest links, the order in the file where two tie). `None` for itself and what it cannot reach.
    pub fn next_links(&self, stage: usize) -> Vec<Option<usize>> {
        let arrived_by = self.routes_from(stage);
        let mut next: Vec<Option<usize>> = vec![None; self.sites.len()];
        for there in 0..self.sites.len() {
            // Back to a stage whose first link is known.
            let mut way = Vec::new();
            let mut here = there;
            let first = loop {
                if let Some(known) = next[here] {
                    break Some(known);
                }
                match arrived_by[here] {
                    None => break None,
                    Some((before, directed)) => {
                        way.push(here);
                        if before == stage {
                            break Some(directed);
                        }
                        here = before;
                    }
                }
            };
            for on_the_way in way {
                next[on_the_way] = first;
            }
        }
        for (there, link) in &self.sites[stage].routes {
            let forward = 2 * (self.hosts.len() + link);
            // A route by a link that does not leave the stage, or to no other stage, is none.
            let directed = match self.links.get(*link).map(|link| link.between) {
                Some([from, _]) if from == stage => forward,
                Some([_, to]) if to == stage => forward + 1,
                _ => continue,
            };
            if *there != stage
                && let Some(next) = next.get_mut(*there)
            {
                *next = Some(directed);
            }
        }
        next
    }

    /// How each site is reached from one by the shortest path, whatever routes are fixed: the site before it and the directed
    /// link between. `None` for the site itself and for those without a path. Fewest links first, and the order in the file
    /// where two paths tie.
    pub fn routes_from(&self, from: usize) -> Vec<Option<(usize, usize)>> {
        let mut leaving: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.sites.len()];
        for (index, link) in self.links.iter().enumerate() {
            let forward = 2 * (self.hosts.len() + index);
            leaving[link.between[0]].push((link.between[1], forward));
            leaving[link.between[1]].push((link.between[0], forward + 1));
        }
        let mut arrived_by: Vec<Option<(usize, usize)>> = vec![None; self.sites.len()];
        let mut frontier = VecDeque::from([from]);
        while let Some(site) = frontier.pop_front() {
            for (there, directed) in &leaving[site] {
                if *there != from && arrived_by[*there].is_none() {
                    arrived_by[*there] = Some((site, *directed));
                    frontier.push_back(*there);
                }
            }
        }
        arrived_by
    }

    /// For each destination, the sums from every stage to it of what each directed link adds: `[to][from]`; `None` without a
    /// path.
    fn sums(&self, adds: &dyn Fn(usize) -> u64) -> Vec<Vec<Option<u64>>> {
        let next: Vec<Vec<Option<usize>>> =
            (0..self.sites.len()).map(|stage| self.next_links(stage)).collect();
        (0..self.sites.len()).map(|to| self.sums_to(to, &next, adds)).collect()
    }

    fn sums_to(
        &self,
        to: usize,
        next: &[Vec<Option<usize>>],
        adds: &dyn Fn(usize) -> u64,
    ) -> Vec<Option<u64>> {
        let mut sums: Vec<Option<u64>> = vec![None; self.sites.len()];
        let mut known = vec![false; self.sites.len()];
        (sums[to], known[to]) = (Some(0), true);
        for from in 0..self.sites.len() {
            // On to a stage whose sum is known, then back again.
            let mut way = Vec::new();
            let mut here = from;
            while !known[here] {
                known[here] = true; // without a path, and in a loop (which no decoded topology has), it stays without a sum
                let Some(directed) = next[here][to] else { break };
                way.push((here, directed));
                here = self.stages_of(directed).1;
            }
            let mut sum = sums[here];
            for (stage, directed) in way.into_iter().rev() {
                sum = sum.map(|sum| sum.saturating_add(adds(directed)));
                sums[stage] = sum;
            }
        }
        sums
    }

    /// Directed links between stages on the way from each stage to each other: `[to][from]`; `None` without a path.
    pub fn link_counts(&self) -> Vec<Vec<Option<u64>>> {
        self.sums(&|_| 1)
    }

    /// The stages that packets for the hosts of `to` would pass again and again, if fixed routes send them round: the first
    /// such circle.
    pub fn loop_towards(&self, to: usize, next: &[Vec<Option<usize>>]) -> Option<Vec<usize>> {
        let mut safe = vec![false; self.sites.len()];
        safe[to] = true;
        for from in 0..self.sites.len() {
            let mut way: Vec<usize> = Vec::new();
            let mut here = from;
            while !safe[here] {
                if let Some(start) = way.iter().position(|stage| *stage == here) {
                    return Some(way.split_off(start));
                }
                way.push(here);
                match next[here][to] {
                    Some(directed) => here = self.stages_of(directed).1,
                    None => break,
                }
            }
            for stage in way {
                safe[stage] = true;
            }
        }
        None
    }

    pub fn host_index(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The host's IPv4 address inside the lab: 10.64.0.0/10, 4,094 hosts at most.
    /// The same number is the last part of its IPv6 address.
    pub fn ipv4(host: usize) -> Ipv4Addr {
        let number = u32::try_from(host).expect("a lab has at most a few thousand hosts") + 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) + number)
    }
    pub fn ipv6(host: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7200, 0, 0, 0, 0, u16::try_from(host + 1).expect("few hosts"))
    }
    /// The address of the host's auxiliary interface: 10.128.0.0/10.
    pub fn auxiliary_ipv4(host: usize) -> Ipv4Addr {
        Ipv4Addr::from(
            u32::from(Self::ipv4(host)) - u32::from(Ipv4Addr::new(10, 64, 0, 0))
                + u32::from(Ipv4Addr::new(10, 128, 0, 0)),
        )
    }
    pub fn auxiliary_ipv6(host: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7201, 0, 0, 0, 0, u16::try_from(host + 1).expect("few hosts"))
    }
    /// The address that a router answers from, by its index in `sites`: 10.127.0.0/16, the last part of the hosts' network.
    pub fn router_ipv4(stage: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 127, 0, 1)) + u32::try_from(stage).expect("few stages"))
    }
    pub fn router_ipv6(stage: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7200, 0, 0, 0, 1, u16::try_from(stage + 1).expect("few stages"))
    }
    /// The host that has this address, if any.
    pub fn host_of_ipv4(&self, address: Ipv4Addr) -> Option<usize> {
        let number = u32::from(address).checked_sub(u32::from(Ipv4Addr::new(10, 64, 0, 1)))? as usize;
        (number < self.hosts.len()).then_some(number)
    }
}

#[cfg(test)]
pub mod sample {
    //! Small topologies for tests.
    use super::*;

    /// Two sites of one host each, 10 Gbit/s access with 20 µs, one link.
    pub fn two_sites(rate: u64, rtt: Duration, mtu: u32) -> Topology {
        let access =
            Access { rate: Some(BitsPerSecond(10_000_000_000)), delay_ns: 20_000, mtu, ..Access::default() };
        let direction = Direction {
            rate: Some(BitsPerSecond(rate)),
            delay_ns: u64::try_from(rtt.as_nanos()).unwrap() / 2,
            queue: Queue::drop_tail(Some(Bytes(2 << 20)), None),
            ..Direction::default()
        };
        let site = |name: &str| Site::new(name, TcpProfile::Modern);
        let host = |name: &str, site| Host { name: name.to_owned(), site, access: access.clone() };
        Topology {
            sites: vec![site("left"), site("right")],
            hosts: vec![host("left-0", 0), host("right-0", 1)],
            links: vec![Link {
                name: "wan".to_owned(),
                between: [0, 1],
                forward: direction.clone(),
                backward: direction,
                mtu,
            }],
            auxiliary: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_runs_over_access_trunk_access() {
        let topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        let names: Vec<String> = topology.directed_links().into_iter().map(|link| link.name).collect();
        let path: Vec<&str> =
            topology.path(0, 1).unwrap().into_iter().map(|index| names[index].as_str()).collect();
        assert_eq!(path, ["host.left-0.access.forward", "link.wan.forward", "host.right-0.access.backward"]);
        let back: Vec<&str> =
            topology.path(1, 0).unwrap().into_iter().map(|index| names[index].as_str()).collect();
        assert_eq!(back, ["host.right-0.access.forward", "link.wan.backward", "host.left-0.access.backward"]);
        assert_eq!(topology.rtt(0, 1).unwrap(), Duration::from_micros(16_080));
    }

    #[test]
    fn the_longest_round_trip_is_that_of_the_farthest_pair() {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        let mut far = topology.hosts[1].clone();
        far.access.delay_ns = 5_000_000;
        topology.hosts.push(far.clone());
        far.access.delay_ns = 9_000_000;
        topology.hosts.push(far);
        let pairs = (0..4).flat_map(|from| (0..4).filter(move |to| *to != from).map(move |to| (from, to)));
        let slow = pairs.map(|(from, to)| topology.rtt(from, to).unwrap()).max().unwrap();
        assert_eq!(topology.longest_rtt(), slow);
    }

    #[test]
    fn sites_without_a_link_have_no_path_and_three_in_a_row_do() {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        topology.sites.push(Site::new("far", TcpProfile::Stock));
        assert_eq!(topology.site_path(0, 2), None);
        let mut second = topology.links[0].clone();
        second.between = [2, 1];
        topology.links.push(second);
        assert_eq!(topology.site_path(0, 2).unwrap(), vec![4, 7]);
    }

    #[test]
    fn the_longest_round_trip_is_that_of_the_farthest_two_hosts() {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        for (name, between) in [("far", [1, 2]), ("farther", [3, 2]), ("alone", [1, 2])] {
            topology.sites.push(Site::new(name, TcpProfile::Stock));
            let mut host = topology.hosts[0].clone();
            (host.name, host.site) = (format!("{name}-0"), topology.sites.len() - 1);
            topology.hosts.push(host);
            if name != "alone" {
                let mut link = topology.links[0].clone();
                link.between = between;
                link.forward.delay_ns += topology.links.len() as u64;
                topology.links.push(link);
            }
        }
        let all = (0..topology.hosts.len()).flat_map(|a| (0..topology.hosts.len()).map(move |b| (a, b)));
        let longest = all.filter_map(|(a, b)| topology.rtt(a, b)).max().unwrap();
        assert_eq!(topology.longest_rtt(), longest);
        let counts: Vec<Option<u64>> = topology.link_counts().iter().map(|from| from[0]).collect();
        assert_eq!(counts, [Some(0), Some(1), Some(2), Some(3), None]);
    }

    // Spec: scenario.md#route-1
    #[test]
    fn a_fixed_route_takes_one_way_there_and_leaves_the_way_back_alone() {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        let mut second = topology.links[0].clone();
        (second.name, second.forward.delay_ns) = ("detour".to_owned(), 50_000_000);
        topology.links.push(second);
        topology.sites[0].routes.push((1, 1));
        assert_eq!(topology.site_path(0, 1).unwrap(), [6], "forward of the second link");
        assert_eq!(topology.site_path(1, 0).unwrap(), [5], "backward of the first");
        assert_eq!(topology.rtt(0, 1).unwrap(), Duration::from_micros(58_080));
        assert_eq!(topology.longest_rtt(), Duration::from_micros(58_080));
        assert_eq!(topology.next_links(0), [None, Some(6)]);
    }

    // Spec: scenario.md#route-2
    #[test]
    fn routes_that_send_packets_round_are_found() {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(16), 1500);
        topology.sites.push(Site::new("far", TcpProfile::Stock));
        let mut second = topology.links[0].clone();
        second.between = [1, 2];
        topology.links.push(second);
        let circle = |topology: &Topology| {
            let next: Vec<_> = (0..3).map(|stage| topology.next_links(stage)).collect();
            topology.loop_towards(2, &next)
        };
        assert_eq!(circle(&topology), None);
        topology.sites[1].routes.push((2, 0));
        assert_eq!(circle(&topology), Some(vec![0, 1]));
        assert_eq!(topology.site_path(0, 2), None, "and nothing hangs");
    }

    #[test]
    fn an_address_names_its_host_and_no_other() {
        let topology = sample::two_sites(1, Duration::ZERO, 1500);
        assert_eq!(topology.host_of_ipv4(Topology::ipv4(1)), Some(1));
        assert_eq!(topology.host_of_ipv4(Topology::ipv4(2)), None);
        assert_eq!(topology.host_of_ipv4(Ipv4Addr::new(9, 9, 9, 9)), None);
    }
}
