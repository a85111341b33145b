//! How much memory sockets need, or may have, on the paths of a lab.

use weir_core::BitsPerSecond;
use weir_core::topology::{DirectedLink, End, Topology};

/// A rate to size socket memory by where a whole path has none.
const RATE_WITHOUT_LIMIT: BitsPerSecond = BitsPerSecond(10_000_000_000);
/// The least that a sender of the profile `legacy` may have in flight.
const LEGACY_BYTES_MIN: u64 = 64 << 10;

/// Bytes that sockets of a host may have, beyond which its TCP profile does not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `modern`: four times the largest bandwidth-delay product of any path: the largest link rate on it times its round trip.
    /// Rounded up to 64 KiB, and at most what the kernel's settings can say.
    pub socket_bytes_max: u64,
    /// `legacy`: what fills the narrowest link of the longest path and half of its queue (of one bandwidth-delay product where
    /// it never drops), so that a slow start does not overflow it. `None` where no link has a rate.
    pub legacy_send_bytes_max: Option<u64>,
}

/// The hosts of a site as far as paths differ by them: the fastest and the farthest stand for all, so a site with both kinds
/// gets a little more memory than it needs.
#[derive(Clone, Copy, Default)]
struct Access {
    rate: Option<u64>,
    unlimited: bool,
    delay_ns: u64,
}

impl Limits {
    pub fn of(topology: &Topology) -> Limits {
        let mut sites: Vec<Option<Access>> = vec![None; topology.sites.len()];
        for host in &topology.hosts {
            let site = sites[host.site].get_or_insert_default();
            match host.access.rate {
                Some(rate) => site.rate = site.rate.max(Some(rate.0)),
                None => site.unlimited = true,
            }
            site.delay_ns = site.delay_ns.max(host.access.delay_ns);
        }
        let directed = topology.directed_links();
        let next: Vec<_> = (0..sites.len()).map(|stage| topology.next_links(stage)).collect();
        let way = |from: usize, to: usize| -> Option<Vec<&DirectedLink>> {
            let mut links = Vec::new();
            let mut here = from;
            while here != to {
                let link = &directed[next[here][to]?];
                links.push(link);
                // A circle of fixed routes leads nowhere.
                let End::Site(there) = link.to else { return None };
                if links.len() > sites.len() {
                    return None;
                }
                here = there;
            }
            Some(links)
        };
        let (mut worst, mut legacy) = (0, None);
        for (from, there) in sites.iter().enumerate() {
            for (to, here) in sites.iter().enumerate() {
                let (Some(there), Some(here)) = (there, here) else { continue };
                let Some((out, back)) = way(from, to).zip(way(to, from)) else { continue };
                let rtt_ns = out
                    .iter()
                    .chain(&back)
                    .fold(2 * u128::from(there.delay_ns.saturating_add(here.delay_ns)), |sum, link| {
                        sum + u128::from(link.delay_ns)
                    });
                let product =
                    |rate: u64| u64::try_from(u128::from(rate) * rtt_ns / 8_000_000_000).unwrap_or(u64::MAX);
                let links = out.iter().chain(&back).map(|link| link.rate.unwrap_or(RATE_WITHOUT_LIMIT).0);
                let fastest = links.chain([there, here].map(|access| access.fastest())).max().unwrap_or(0);
                worst = worst.max(product(fastest));
                legacy = legacy.max(narrowest(&out, *there, *here).map(|(rate, queue_bytes)| {
                    let queue_bytes = queue_bytes.unwrap_or(product(rate));
                    product(rate).saturating_add(queue_bytes / 2).max(LEGACY_BYTES_MIN)
                }));
            }
        }
        let most = i32::MAX as u64;
        Limits {
            socket_bytes_max: worst.saturating_mul(4).min(most - 65_535).next_multiple_of(65_536).min(most),
            legacy_send_bytes_max: legacy.map(|bytes| bytes.min(most)),
        }
    }
}

impl Access {
    fn fastest(&self) -> u64 {
        let unlimited = self.unlimited.then_some(RATE_WITHOUT_LIMIT.0);
        unlimited.max(self.rate).unwrap_or(RATE_WITHOUT_LIMIT.0)
    }
    /// The fastest host's, as a limit; `None` for a host without one.
    fn limit(&self) -> Option<u64> {
        if self.unlimited { None } else { self.rate }
    }
}

/// Rate and queue, in bytes, of the narrowest link on the way out, of several that with the shortest queue. An access link has
/// none that could overflow: towards the switch it holds packets back, and from the switch others are in the way.
fn narrowest(out: &[&DirectedLink], there: Access, here: Access) -> Option<(u64, Option<u64>)> {
    let queue_bytes = |link: &DirectedLink| {
        let queue = link.queue?;
        let packets = queue.packets.map(|packets| packets.saturating_mul(u64::from(link.mtu)));
        match (queue.bytes.map(|bytes| bytes.0), packets) {
            (Some(bytes), Some(packets)) => Some(bytes.min(packets)),
            (bytes, packets) => bytes.or(packets),
        }
    };
    let links = out.iter().filter_map(|link| Some((link.rate?.0, queue_bytes(link))));
    let access = [there, here].into_iter().filter_map(|access| Some((access.limit()?, None)));
    links.chain(access).min_by_key(|(rate, queue)| (*rate, queue.unwrap_or(u64::MAX)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use weir_core::Bytes;
    use weir_core::topology::{self, Direction, Host, Link, Queue, Site, TcpProfile};

    /// Two sites of one host each, 10 Gbit/s access without delay, 25 ms there and back.
    pub fn two_sites(rate: Option<u64>, queue: Queue) -> Topology {
        let access =
            topology::Access { rate: Some(BitsPerSecond(10_000_000_000)), ..topology::Access::default() };
        let direction =
            Direction { rate: rate.map(BitsPerSecond), delay_ns: 12_500_000, queue, ..Direction::default() };
        let host = |site| Host::new(&format!("s{site}-0"), site, access.clone());
        Topology {
            sites: vec![Site::new("s0", TcpProfile::Legacy), Site::new("s1", TcpProfile::Legacy)],
            hosts: vec![host(0), host(1)],
            links: vec![Link {
                name: "wan".to_owned(),
                between: [0, 1],
                forward: direction.clone(),
                backward: direction,
                mtu: 1500,
            }],
            auxiliary: None,
        }
    }

    // Spec: lab.md#lab-2
    #[test]
    fn modern_memory_follows_the_fastest_link_and_a_legacy_sender_the_narrowest_and_half_its_queue() {
        let in_bytes =
            Limits::of(&two_sites(Some(1_000_000_000), Queue::drop_tail(Some(Bytes(1 << 20)), None)));
        let modern = (4 * 10_000_000_000_u64 / 8 / 40).next_multiple_of(65_536);
        let product = 1_000_000_000 / 8 / 40;
        assert_eq!(
            in_bytes,
            Limits { socket_bytes_max: modern, legacy_send_bytes_max: Some(product + (1 << 19)) }
        );
        let in_packets = Limits::of(&two_sites(Some(1_000_000_000), Queue::drop_tail(None, Some(100))));
        assert_eq!(in_packets.legacy_send_bytes_max, Some(product + 75_000));
        // Without a rate of its own the access links are the narrowest.
        let access = Limits::of(&two_sites(None, Queue::drop_tail(None, None)));
        assert_eq!(access.legacy_send_bytes_max, Some(15 * product));
    }

    #[test]
    fn a_lab_without_any_rate_caps_no_sender_and_one_site_alone_needs_no_path() {
        let mut topology = two_sites(None, Queue::drop_tail(None, None));
        for host in &mut topology.hosts {
            host.access.rate = None;
        }
        assert_eq!(Limits::of(&topology).legacy_send_bytes_max, None);
        topology.links.clear();
        assert_eq!(Limits::of(&topology).socket_bytes_max, 0);
    }
}
