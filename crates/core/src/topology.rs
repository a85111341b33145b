//! A lab as resolved from a scenario: every default filled in, every name checked, hosts numbered.
//! The lab builds it, the fabric emulates it, models compute ceilings on it, the report draws it.

mod address;
mod routes;

use crate::units::{BitsPerSecond, Bytes, human, share};
use serde::{Deserialize, Serialize};
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
    #[serde(default, skip_serializing_if = "HostLimits::is_none")]
    pub limits: HostLimits,
}

impl Host {
    /// One that may have as much of the machine as there is; `site` is an index into `Topology::sites`.
    pub fn new(name: &str, site: usize, access: Access) -> Host {
        Host { name: name.to_owned(), site, access, limits: HostLimits::default() }
    }
}

/// What all that runs on a host may have of the machine together; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostLimits {
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
}

impl HostLimits {
    pub fn is_none(&self) -> bool {
        *self == HostLimits::default()
    }
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

impl Impairments {
    /// Each that there is in a few words, for pictures of a network.
    pub fn words(&self) -> Vec<String> {
        let time = |ns: u64| human(ns as f64 / 1e9, "s");
        let bursts = self.burst_loss.map(|bursts| format!("bursty loss {}", share(bursts.bad * bursts.loss)));
        let jitter = self.jitter.map(|jitter| {
            format!("jitter ≤ {}{}", time(jitter.by_ns), if jitter.reorder { ", out of order" } else { "" })
        });
        let late = self.reorder.map(|late| format!("{} later by {}", share(late.share), time(late.by_ns)));
        let corrupt = (self.corrupt > 0.0).then(|| format!("corrupts {}", share(self.corrupt)));
        [bursts, jitter, late, corrupt].into_iter().flatten().collect()
    }
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

    pub fn host_index(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
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
        let host = |name: &str, site| Host::new(name, site, access.clone());
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
