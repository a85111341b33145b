//! The closed, cited list of models. Each says what it assumes; a scenario names one in `of` or `minus`.

use crate::scenario::plan::{Configuration, Step};
use crate::topology::{DirectedLink, Topology};
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// IPv4 header without options (RFC 791) and TCP header without options (RFC 9293), bytes.
const IPV4_HEADER_BYTES: u32 = 20;
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

/// Payload bytes of a full segment where the smallest MTU of the path is `mtu`.
pub fn payload_bytes(mtu: u32, timestamps: bool) -> u32 {
    mtu.saturating_sub(IPV4_HEADER_BYTES + TCP_HEADER_BYTES + if timestamps { TIMESTAMPS_BYTES } else { 0 })
}

/// Upper bound on TCP payload over a path: on every link each segment of `mtu` IP bytes costs `mtu + framing` bytes of the
/// wire and carries `mtu − 20 (IP) − 20 (TCP) − 12 (timestamps)` of payload. Flows that share links get max-min fair shares
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
    timestamps: bool,
) -> Option<Ceiling> {
    let links = topology.directed_links();
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
    let aggregates: Option<Vec<Aggregate>> = weights
        .into_iter()
        .map(|(pair, weight)| Aggregate::new(topology, &links, pair, weight, timestamps))
        .collect();
    let total = fill(&links, aggregates?)?;
    Some(Ceiling {
        total_bits_per_second: total,
        flow_count: directed.len() as u64 * streams_per_pair.max(1),
    })
}

/// Flows between the same two hosts in one direction.
struct Aggregate {
    weight: f64,
    /// Links with a rate, and the bits of their wire that one bit of payload costs.
    costs: Vec<(usize, f64)>,
}

impl Aggregate {
    fn new(
        topology: &Topology,
        links: &[DirectedLink],
        (from, to): (usize, usize),
        weight: f64,
        timestamps: bool,
    ) -> Option<Aggregate> {
        let path = topology.path(from, to)?;
        let mtu = path.iter().map(|index| links[*index].mtu).min()?;
        let payload = f64::from(payload_bytes(mtu, timestamps));
        let cost = |index: &usize| f64::from(mtu + links[*index].framing_bytes) / payload;
        let rated = path.iter().filter(|index| links[**index].rate.is_some());
        let costs: Vec<(usize, f64)> = rated.map(|index| (*index, cost(index))).collect();
        (!costs.is_empty()).then_some(Aggregate { weight, costs })
    }
}

/// Progressive filling: every flow's rate grows alike until a link is full, whose flows then stay; and so on.
fn fill(links: &[DirectedLink], mut growing: Vec<Aggregate>) -> Option<f64> {
    if growing.is_empty() {
        return None;
    }
    let mut room: Vec<f64> =
        links.iter().map(|link| link.rate.map_or(f64::INFINITY, |rate| rate.as_f64())).collect();
    let (mut share, mut total) = (0.0, 0.0);
    while !growing.is_empty() {
        let mut demand: BTreeMap<usize, f64> = BTreeMap::new();
        for aggregate in &growing {
            for (link, cost) in &aggregate.costs {
                *demand.entry(*link).or_default() += aggregate.weight * cost;
            }
        }
        let step =
            demand.iter().map(|(link, demand)| (room[*link] / demand).max(0.0)).min_by(f64::total_cmp)?;
        share += step;
        // Links that fill up together are full together, whatever rounding says.
        let mut full: BTreeSet<usize> = BTreeSet::new();
        for (link, demand) in demand {
            room[link] -= step * demand;
            if room[link] <= demand * share * 1e-9 {
                room[link] = 0.0;
                full.insert(link);
            }
        }
        let (done, rest): (Vec<Aggregate>, Vec<Aggregate>) = growing
            .into_iter()
            .partition(|aggregate| aggregate.costs.iter().any(|(link, _)| full.contains(link)));
        total += done.iter().map(|aggregate| aggregate.weight * share).sum::<f64>();
        growing = rest;
    }
    Some(total)
}

/// The ceiling of a step's flows together, by its `streams` and `direction`; payload bit/s. Linux's TCP has timestamps on.
pub fn total_ceiling(configuration: &Configuration, step: &Step) -> Option<f64> {
    ceiling_of(configuration, step).map(|ceiling| ceiling.total_bits_per_second)
}

fn ceiling_of(configuration: &Configuration, step: &Step) -> Option<Ceiling> {
    let streams = step.values.count("streams").unwrap_or(1);
    let direction = match step.values.get("direction") {
        Some(crate::Value::Text(text)) => Flow::parse(text)?,
        _ => Flow::Up,
    };
    ceiling(&configuration.topology, &step.pairs, streams, direction, true)
}

/// True where the step has a ceiling at all: a direction, and a link with a rate on every pair's path.
pub fn has_ceiling(configuration: &Configuration, step: &Step) -> bool {
    let topology = &configuration.topology;
    let rated_host = |host: usize| topology.hosts[host].access.rate.is_some();
    let mut rated_sites: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let first_link = 2 * topology.hosts.len();
    step.pairs.iter().all(|(from, to)| {
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

/// Upper bound on one connection's payload rate by its window: a window each round trip.
///
/// - Units: bit/s. `None` for a round trip of zero.
/// - Source: RFC 7323, section 1.1.
pub fn window(window: Bytes, rtt: Duration) -> Option<f64> {
    (!rtt.is_zero()).then(|| window.0 as f64 * 8.0 / rtt.as_secs_f64())
}

/// Mean payload rate of one Reno-like connection under random loss: `mss / rtt × √(3 / 2p)`.
///
/// - Units: bit/s; `loss` is a probability. `None` unless `0 < loss ≤ 1` and `rtt > 0`.
/// - Source: Mathis, Semke, Mahdavi, Ott, CCR 27(3), 1997, with every segment acknowledged. Not valid for CUBIC or BBR.
pub fn mathis(mss: Bytes, rtt: Duration, loss: f64) -> Option<f64> {
    let valid = loss > 0.0 && loss <= 1.0 && !rtt.is_zero();
    valid.then(|| mss.0 as f64 * 8.0 / rtt.as_secs_f64() * (1.5 / loss).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::sample::two_sites;
    use crate::units::BitsPerSecond;

    const RTT: Duration = Duration::from_millis(16);

    fn total(topology: &Topology, pairs: &[(usize, usize)], streams: u64, flow: Flow) -> f64 {
        ceiling(topology, pairs, streams, flow, true).unwrap().total_bits_per_second
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
        assert_eq!(ceiling(&topology, &[(0, 1)], 8, Flow::Both, true).unwrap().flow_count, 16);
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
        assert_eq!(ceiling(&topology, &[(0, 1)], 1, Flow::Up, true), None);
        assert_eq!(ceiling(&topology, &[], 1, Flow::Up, true), None);
    }

    #[test]
    fn a_window_of_64_kib_over_16_ms_is_32_8_mbit() {
        assert_eq!(window(Bytes(65_536), RTT), Some(32_768_000.0));
        assert_eq!(window(Bytes(65_536), Duration::ZERO), None);
    }

    #[test]
    fn mathis_at_25_ms_and_820_ppm_is_19_8_mbit() {
        let rate = mathis(Bytes(1448), Duration::from_millis(25), 820e-6).unwrap();
        assert_eq!((rate / 1e5).round(), 198.0);
        assert_eq!(mathis(Bytes(1448), Duration::ZERO, 0.1), None);
        assert_eq!(mathis(Bytes(1448), RTT, 0.0), None);
    }
}
