//! How much later than an event on a link the delivery can be that follows from it: by what still lies ahead at least.

use crate::route::Routes;
use weir_core::topology::{DirectedLink, End, Topology};

/// Per directed link the least sum of propagation delays from its far end to any host that a packet on it may be for.
/// `u64::MAX` where none can be. Topologies do not change and changes only ever add delay, so this holds for good.
pub(crate) fn slack_ns(topology: &Topology, directed: &[DirectedLink], routes: &Routes) -> Vec<u64> {
    let last_link = LastLink::of_sites(topology);
    let sites = topology.sites.len();
    // Any host stands for its site: all of a site's are reached over the same links but for the last.
    let a_host: Vec<Option<usize>> =
        (0..sites).map(|site| topology.hosts.iter().position(|host| host.site == site)).collect();
    let between: Vec<Vec<Option<u64>>> = (0..sites)
        .map(|to| match a_host[to] {
            Some(host) => sums_to(to, host, sites, directed, routes),
            None => vec![None; sites],
        })
        .collect();
    let hosts = topology.hosts.len();
    let of_link = |index: usize, link: &DirectedLink| {
        let End::Site(far) = link.to else { return 0 };
        let least = (0..sites).filter_map(|to| {
            let sender = match index < 2 * hosts {
                true => Some(index / 2),
                // Only what is routed over this link is ever on it.
                false if routes.next(near(topology, index), a_host[to]?) != Some(index) => return None,
                false => None,
            };
            Some(between[to][far]?.saturating_add(last_link[to].least_ns(sender)?))
        });
        least.min().unwrap_or(u64::MAX)
    };
    directed.iter().enumerate().map(|(index, link)| of_link(index, link)).collect()
}

/// Per site the sum of delays from its switch to that of site `to`, where `host` is.
fn sums_to(
    to: usize,
    host: usize,
    sites: usize,
    directed: &[DirectedLink],
    routes: &Routes,
) -> Vec<Option<u64>> {
    let mut sums = vec![None; sites];
    sums[to] = Some(0);
    let mut way = Vec::new();
    for from in 0..sites {
        let mut at = from;
        while sums[at].is_none() {
            let Some(link) = routes.next(at, host) else { break };
            let End::Site(next) = directed[link].to else { break };
            way.push((at, directed[link].delay_ns));
            at = next;
        }
        // Back along the way, so that no part of it is walked again.
        let mut sum: Option<u64> = sums[at];
        for (site, delay_ns) in way.drain(..).rev() {
            sum = sum.map(|sum| sum.saturating_add(delay_ns));
            sums[site] = sum;
        }
    }
    sums
}

/// The site that a link between two sites leads away from.
fn near(topology: &Topology, index: usize) -> usize {
    let between = index - 2 * topology.hosts.len();
    topology.links[between / 2].between[between % 2]
}

/// The shortest way from a switch to a host of its own, and the shortest to another host: nobody sends to itself.
#[derive(Clone, Copy, Debug, Default)]
struct LastLink {
    first: Option<(u64, usize)>,
    second: Option<(u64, usize)>,
}

impl LastLink {
    fn of_sites(topology: &Topology) -> Vec<LastLink> {
        let mut all = vec![LastLink::default(); topology.sites.len()];
        for (index, host) in topology.hosts.iter().enumerate() {
            let (site, own) = (&mut all[host.site], Some((host.access.delay_ns, index)));
            if site.first.is_none() || own < site.first {
                site.second = site.first;
                site.first = own;
            } else if site.second.is_none() || own < site.second {
                site.second = own;
            }
        }
        all
    }

    fn least_ns(&self, sender: Option<usize>) -> Option<u64> {
        let (ns, host) = self.first?;
        if sender == Some(host) { Some(self.second?.0) } else { Some(ns) }
    }
}
