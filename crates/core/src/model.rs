//! The closed, cited list of models. Each says what it assumes; a scenario names one in `of` or `minus`.

mod fluid;
mod formula;
mod predict;

pub use formula::{closed_replay, mathis, overload_backlog, slow_start, window};

use crate::scenario::plan::{Configuration, Step};
use crate::topology::{DirectedLink, TcpProfile, Topology};
use fluid::{Aggregate, fill};
use std::collections::BTreeMap;

/// A model, by the name that scenarios use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// What framing leaves of the links' rates: `ceiling`.
    Ceiling,
    /// A window each round trip: `window`.
    Window,
    /// Reno under random loss: `mathis`.
    Mathis,
    /// The time of a fresh connection: `slow_start`.
    SlowStart,
    /// Max-min fair shares without a protocol.
    FluidShare,
    /// What overload leaves undelivered: `overload_backlog`.
    OverloadBacklog,
    /// Jobs that read in turn: `closed_replay`.
    ClosedReplay,
}

/// In the order of `Model`.
pub const NAMES: &[&str] =
    &["ceiling", "window", "mathis", "slow-start", "fluid-share", "overload-backlog", "closed-replay"];

impl Model {
    pub const ALL: [Model; 7] = [
        Model::Ceiling,
        Model::Window,
        Model::Mathis,
        Model::SlowStart,
        Model::FluidShare,
        Model::OverloadBacklog,
        Model::ClosedReplay,
    ];

    pub fn parse(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|model| model.name() == name)
    }
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// IPv4 header without options (RFC 791), IPv6 header (RFC 8200) and TCP header without options (RFC 9293), bytes.
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
const TCP_HEADER_BYTES: u32 = 20;
/// The timestamps option with its padding (RFC 7323), which Linux puts into every segment unless told not to.
const TIMESTAMPS_BYTES: u32 = 12;

/// Which way a step's payload flows: `Up` from the first host of a pair to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Up,
    Down,
    Both,
}

impl Flow {
    /// As the `direction` of a step says it; `None` for another word.
    pub fn parse(text: &str) -> Option<Flow> {
        Some(match text {
            "up" => Flow::Up,
            "down" => Flow::Down,
            "both" => Flow::Both,
            _ => return None,
        })
    }
}

/// What framing leaves for payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Sum over all flows, payload bit/s.
    pub total_bits_per_second: f64,
    /// Flows that share it.
    pub flow_count: u64,
}

/// What full segments of a connection are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    pub ipv6: bool,
    /// The timestamps option is in every segment; only where both ends have it.
    pub timestamps: bool,
    /// Cap on payload and options, bytes.
    pub mss_bytes: Option<u32>,
}

impl Segments {
    /// IPv4 with timestamps and full segments, as Linux sends unless told otherwise.
    pub const PLAIN: Segments = Segments { ipv6: false, timestamps: true, mss_bytes: None };

    /// As a step says.
    pub fn of(step: &Step) -> Segments {
        let mss = step.values.table("tcp").and_then(|tcp| tcp.size("mss"));
        Segments {
            ipv6: step.values.count("ip") == Some(6),
            timestamps: true,
            mss_bytes: mss.and_then(|mss| u32::try_from(mss.0).ok()),
        }
    }

    /// As they are between two hosts: the profile of 2005 has no timestamps.
    fn between(self, topology: &Topology, from: usize, to: usize) -> Segments {
        let legacy =
            |host: usize| topology.sites[topology.hosts[host].site].tcp_profile == TcpProfile::Legacy;
        Segments { timestamps: self.timestamps && !legacy(from) && !legacy(to), ..self }
    }

    fn header_bytes(self) -> u32 {
        TCP_HEADER_BYTES + if self.ipv6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES }
    }

    /// IP bytes of a full segment where the smallest MTU of the path is `mtu`.
    pub fn packet_bytes(self, mtu: u32) -> u32 {
        let whole = mtu.max(self.header_bytes());
        self.mss_bytes.map_or(whole, |mss| whole.min(self.header_bytes() + mss))
    }

    /// Payload bytes of it.
    pub fn payload_bytes(self, mtu: u32) -> u32 {
        let options = if self.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.packet_bytes(mtu).saturating_sub(self.header_bytes() + options)
    }
}

/// Upper bound on TCP payload over a path: on every link each segment of `mtu` IP bytes costs `mtu + framing` bytes of the
/// wire and carries `mtu − 20 (IPv4; IPv6 40) − 20 (TCP) − 12 (timestamps, where both ends have them)` of payload. Flows that share links get max-min fair shares
/// by progressive filling; acknowledgements are not counted.
///
/// - Units: payload bits per second at the receiver.
/// - `None`: no pairs, or a pair whose path has no link with a rate.
/// - Source: RFC 791, 9293, 7323 and IEEE 802.3 for the sizes (1500 B on Ethernet carries 1448 of 1538 B: 0.94148);
///   Bertsekas, Gallager, Data Networks, 2nd ed. 1992, section 6.5.2, for progressive filling. Not valid for connections
///   without full-sized segments.
pub fn ceiling(
    topology: &Topology,
    pairs: &[(usize, usize)],
    streams_per_pair: u64,
    flow: Flow,
    segments: Segments,
) -> Option<Ceiling> {
    let links = topology.directed_links();
    let aggregates = aggregates(topology, &links, pairs, streams_per_pair, flow, segments)?;
    let rates = fill(&links, &aggregates)?;
    let flows: f64 = aggregates.iter().map(|aggregate| aggregate.weight).sum();
    let total = aggregates.iter().zip(&rates).map(|(aggregate, rate)| aggregate.weight * rate).sum();
    Some(Ceiling { total_bits_per_second: total, flow_count: flows as u64 })
}

/// The flows of a step, those between the same two hosts together; `None` where one meets no link with a rate.
fn aggregates(
    topology: &Topology,
    links: &[DirectedLink],
    pairs: &[(usize, usize)],
    streams_per_pair: u64,
    flow: Flow,
    segments: Segments,
) -> Option<Vec<Aggregate>> {
    let directed: Vec<(usize, usize)> = match flow {
        Flow::Up => pairs.to_vec(),
        Flow::Down => pairs.iter().map(|(from, to)| (*to, *from)).collect(),
        Flow::Both => pairs.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]).collect(),
    };
    // Pairs of the same hosts share everything; they are one aggregate of that many flows.
    let mut weights: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for pair in &directed {
        *weights.entry(*pair).or_default() += streams_per_pair.max(1) as f64;
    }
    weights
        .into_iter()
        .map(|(pair, weight)| Aggregate::new(topology, links, pair, weight, segments))
        .collect()
}

impl Aggregate {
    fn new(
        topology: &Topology,
        links: &[DirectedLink],
        (from, to): (usize, usize),
        weight: f64,
        segments: Segments,
    ) -> Option<Aggregate> {
        let path = topology.path(from, to)?;
        let mtu = path.iter().map(|index| links[*index].mtu).min()?;
        let segments = segments.between(topology, from, to);
        let (packet, payload) = (segments.packet_bytes(mtu), segments.payload_bytes(mtu));
        let cost = |index: &usize| f64::from(packet + links[*index].framing_bytes) / f64::from(payload);
        let rated = path.iter().filter(|index| links[**index].rate.is_some());
        let costs: Vec<(usize, f64)> = rated.map(|index| (*index, cost(index))).collect();
        (!costs.is_empty() && payload > 0).then_some(Aggregate { weight, costs })
    }
}

/// The ceiling of a step's flows together, by its `streams`, `direction`, `ip` and `tcp.mss`; payload bit/s.
pub fn total_ceiling(configuration: &Configuration, step: &Step) -> Option<f64> {
    ceiling_of(configuration, step).map(|ceiling| ceiling.total_bits_per_second)
}

fn ceiling_of(configuration: &Configuration, step: &Step) -> Option<Ceiling> {
    let streams = step.values.count("streams").unwrap_or(1);
    ceiling(&configuration.topology, &step.pairs, streams, flow_of(step)?, Segments::of(step))
}

/// Which way a step's payload flows; `None` for a direction that is none.
fn flow_of(step: &Step) -> Option<Flow> {
    match step.values.get("direction") {
        Some(crate::Value::Text(text)) => Flow::parse(text),
        _ => Some(Flow::Up),
    }
}

/// True where the step has a ceiling at all: a direction, and a link with a rate on every pair's path.
pub fn has_ceiling(configuration: &Configuration, step: &Step) -> bool {
    let topology = &configuration.topology;
    let rated_host = |host: usize| topology.hosts[host].access.rate.is_some();
    let mut rated_sites: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let first_link = 2 * topology.hosts.len();
    !step.pairs.is_empty()
        && step.pairs.iter().all(|(from, to)| {
            rated_host(*from) || rated_host(*to) || {
                let sites = (topology.hosts[*from].site, topology.hosts[*to].site);
                *rated_sites.entry(sites).or_insert_with(|| {
                    let path = topology.site_path(sites.0, sites.1).unwrap_or_default();
                    path.iter().any(|index| {
                        let link = &topology.links[(index - first_link) / 2];
                        link.forward.rate.is_some() && link.backward.rate.is_some()
                    })
                })
            }
        })
}

/// What `of = { model = "ceiling" }` means for a metric: the total for `domain.total_…`, else one flow's mean share.
pub fn ceiling_of_metric(configuration: &Configuration, step: &Step, metric: &str) -> Option<f64> {
    let ceiling = ceiling_of(configuration, step)?;
    let total = metric.split_once('.').is_some_and(|(_, quantity)| quantity.starts_with("total_"));
    let flows = if total { 1.0 } else { ceiling.flow_count as f64 };
    Some(ceiling.total_bits_per_second / flows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::sample::two_sites;
    use crate::units::BitsPerSecond;
    use std::time::Duration;

    const RTT: Duration = Duration::from_millis(16);

    fn total(topology: &Topology, pairs: &[(usize, usize)], streams: u64, flow: Flow) -> f64 {
        ceiling(topology, pairs, streams, flow, Segments::PLAIN).unwrap().total_bits_per_second
    }

    // Spec: judging.md#ceiling-1
    #[test]
    fn a_gigabit_of_ethernet_carries_941_48_mbit_of_tcp_at_mtu_1500_and_990_04_at_9000() {
        let at = |mtu| total(&two_sites(1_000_000_000, RTT, mtu), &[(0, 1)], 1, Flow::Up);
        assert_eq!((at(1500) / 1e4).round(), 94148.0);
        assert_eq!((at(9000) / 1e4).round(), 99004.0);
        assert_eq!((at(1500) - 1e9 * 1448.0 / 1538.0).abs().round(), 0.0);
        let slow = total(&two_sites(100_000_000, RTT, 1500), &[(0, 1)], 1, Flow::Up);
        assert_eq!((slow / 1e3).round(), 94148.0);
    }

    #[test]
    fn streams_share_the_total_and_both_directions_have_one_each() {
        let topology = two_sites(1_000_000_000, RTT, 1500);
        let one = total(&topology, &[(0, 1)], 1, Flow::Up);
        assert!((total(&topology, &[(0, 1)], 8, Flow::Up) - one).abs() < 1.0);
        assert!((total(&topology, &[(0, 1)], 8, Flow::Down) - one).abs() < 1.0);
        assert!((total(&topology, &[(0, 1)], 1, Flow::Both) - 2.0 * one).abs() < 1.0);
        assert_eq!(ceiling(&topology, &[(0, 1)], 8, Flow::Both, Segments::PLAIN).unwrap().flow_count, 16);
    }

    // Spec: judging.md#ceiling-2
    #[test]
    fn pairs_behind_one_trunk_are_bounded_by_their_access_first_and_the_trunk_then() {
        let mut topology = two_sites(1_000_000_000, RTT, 1500);
        for number in 1..16 {
            for site in 0..2 {
                let mut host = topology.hosts[site].clone();
                host.name = format!("{}-{number}", topology.sites[site].name);
                topology.hosts.push(host);
            }
        }
        for host in &mut topology.hosts {
            host.access.rate = Some(BitsPerSecond(100_000_000));
        }
        let pairs: Vec<(usize, usize)> = (0..16).map(|number| (2 * number, 2 * number + 1)).collect();
        let share = 1448.0 / 1538.0;
        assert!((total(&topology, &pairs[..9], 1, Flow::Up) - 9e8 * share).abs() < 1.0);
        assert!((total(&topology, &pairs, 1, Flow::Up) - 1e9 * share).abs() < 1.0);
        // One slow host: it has its own ceiling and the others share what it leaves.
        topology.hosts[0].access.rate = Some(BitsPerSecond(10_000_000));
        assert!((total(&topology, &pairs[..9], 1, Flow::Up) - 8.1e8 * share).abs() < 1.0);
        assert!((total(&topology, &pairs, 1, Flow::Up) - 1e9 * share).abs() < 1.0);
    }

    #[test]
    fn the_smallest_mtu_of_the_path_sizes_the_segments() {
        let mut topology = two_sites(1_000_000_000, RTT, 9000);
        topology.hosts[1].access.mtu = 1500;
        assert_eq!((total(&topology, &[(0, 1)], 1, Flow::Up) / 1e4).round(), 94148.0);
    }

    #[test]
    fn a_path_without_any_rate_has_no_ceiling() {
        let mut topology = two_sites(1_000_000_000, RTT, 1500);
        topology.links[0].forward.rate = None;
        for host in &mut topology.hosts {
            host.access.rate = None;
        }
        assert_eq!(ceiling(&topology, &[(0, 1)], 1, Flow::Up, Segments::PLAIN), None);
        assert_eq!(ceiling(&topology, &[], 1, Flow::Up, Segments::PLAIN), None);
    }

    // Spec: judging.md#ceiling-1
    #[test]
    fn ipv6_a_small_mss_and_ends_without_timestamps_change_what_a_segment_carries() {
        let mut topology = two_sites(1_000_000_000, RTT, 1500);
        let of = |topology: &Topology, segments| {
            let ceiling = ceiling(topology, &[(0, 1)], 1, Flow::Up, segments).unwrap();
            ceiling.total_bits_per_second / 1e9
        };
        let near = |value: f64, share: f64| assert!((value - share).abs() < 1e-9, "{value} is not {share}");
        near(of(&topology, Segments { ipv6: true, ..Segments::PLAIN }), 1428.0 / 1538.0);
        near(of(&topology, Segments { mss_bytes: Some(536), ..Segments::PLAIN }), 524.0 / 614.0);
        topology.sites[1].tcp_profile = TcpProfile::Legacy;
        near(of(&topology, Segments::PLAIN), 1460.0 / 1538.0);
    }
}
