//! How much later than an event on a link the delivery can be that follows from it: by what still lies ahead at least.

use crate::route::Routes;
use weir_core::topology::{DirectedLink, End, Stage, Topology};

/// Per directed link the least sum of propagation delays from its far end to any host that a packet on it may be for, or that a
/// router further on may answer. `u64::MAX` where none can be. Topologies do not change and changes only ever add delay, so this
/// holds for good.
pub(crate) fn slack_ns(topology: &Topology, directed: &[DirectedLink], routes: &Routes) -> Vec<u64> {
    let last_link = LastLink::of_sites(topology);
    let sites = topology.sites.len();
    // Any host stands for its site: all of a site's are reached over the same links but for the last. Routers stand for themselves.
    let destination: Vec<Option<usize>> = (0..sites)
        .map(|site| match topology.sites[site].stage {
            Stage::Router { replies } => replies.then(|| routes.router(site)),
            Stage::Site | Stage::Switch => topology.hosts.iter().position(|host| host.site == site),
        })
        .collect();
    let between: Vec<Vec<Option<u64>>> = (0..sites)
        .map(|to| match destination[to] {
            Some(number) => sums_to(to, number, sites, directed, routes),
            None => vec![None; sites],
        })
        .collect();
    // From each stage to the nearest host, whichever it is.
    let nearest: Vec<Option<u64>> = (0..sites)
        .map(|from| {
            let ways = (0..sites)
                .filter_map(|to| Some(between[to][from]?.saturating_add(last_link[to].least_ns(None)?)));
            ways.min()
        })
        .collect();
    let answers: Vec<Vec<Option<u64>>> = destination
        .iter()
        .map(|number| answers_on_the_way(*number, topology, directed, routes, &nearest))
        .collect();
    let hosts = topology.hosts.len();
    let of_link = |index: usize, link: &DirectedLink| {
        let far = match link.to {
            End::Site(far) => far,
            End::AuxiliarySwitch => return topology.auxiliary.map_or(0, |network| network.delay_ns),
            End::Host(_) | End::AuxiliaryHost(_) => return 0,
        };
        let least = (0..sites).filter_map(|to| {
            let sender = match index < 2 * hosts {
                true => Some(index / 2),
                // Only what is routed over this link, or an answer to it, is ever on it.
                false if routes.next(near(topology, index), destination[to]?) != Some(index) => return None,
                false => None,
            };
            let delivered = between[to][far]
                .zip(last_link[to].least_ns(sender))
                .map(|(sum, last)| sum.saturating_add(last));
            [delivered, answers[to][far]].into_iter().flatten().min()
        });
        least.min().unwrap_or(u64::MAX)
    };
    directed.iter().enumerate().map(|(index, link)| of_link(index, link)).collect()
}

/// Per stage the least sum of delays over a router on the way to a destination that answers, itself included, and from there to
/// the host nearest to it.
fn answers_on_the_way(
    destination: Option<usize>,
    topology: &Topology,
    directed: &[DirectedLink],
    routes: &Routes,
    nearest: &[Option<u64>],
) -> Vec<Option<u64>> {
    let stages = topology.sites.len();
    let answers = |stage: usize| matches!(topology.sites[stage].stage, Stage::Router { replies: true });
    let from = |start: usize| {
        let (mut least, mut sum, mut at) = (None::<u64>, 0_u64, start);
        // A way in circles comes back to where it was after so many steps at most.
        for _ in 0..=stages {
            if answers(at)
                && let Some(back) = nearest[at]
            {
                let answer = sum.saturating_add(back);
                least = Some(least.map_or(answer, |least| least.min(answer)));
            }
            let Some(link) = destination.and_then(|number| routes.next(at, number)) else { break };
            let End::Site(next) = directed[link].to else { break };
            sum = sum.saturating_add(directed[link].delay_ns);
            at = next;
        }
        least
    };
    if (0..stages).any(answers) { (0..stages).map(from).collect() } else { vec![None; stages] }
}

/// Per site the sum of delays from its switch to that of site `to`, where the destination `number` is.
fn sums_to(
    to: usize,
    number: usize,
    sites: usize,
    directed: &[DirectedLink],
    routes: &Routes,
) -> Vec<Option<u64>> {
    let mut sums = vec![None; sites];
    sums[to] = Some(0);
    let mut way = Vec::new();
    for from in 0..sites {
        let mut at = from;
        // Fixed routes may lead in circles; what does has no sum.
        while sums[at].is_none() && way.len() <= sites {
            let Some(link) = routes.next(at, number) else { break };
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
