//! Where a switch sends a packet next.

use std::collections::VecDeque;
use weir_core::topology::Topology;

/// No path.
const NOWHERE: u32 = u32::MAX;

/// Per site and destination host, the directed link to take: fewest links first, the order in the file where two paths
/// tie, as in `Topology::path`. Of all shortest paths that one's link numbers come first when read like words, so the rest
/// of it from any switch on is that switch's own path, and deciding anew at each switch stays on it.
#[derive(Debug)]
pub(crate) struct Routes {
    hosts: usize,
    /// `[site][destination host]`
    next: Vec<u32>,
}

impl Routes {
    pub(crate) fn new(topology: &Topology) -> Self {
        let hosts = topology.hosts.len();
        let mut neighbours: Vec<Vec<(u32, usize)>> = vec![Vec::new(); topology.sites.len()];
        for (index, link) in topology.links.iter().enumerate() {
            let directed = u32::try_from(2 * (hosts + index)).expect("links are few");
            let [from, to] = link.between;
            neighbours[from].push((directed, to));
            neighbours[to].push((directed + 1, from));
        }
        let mut next = Vec::with_capacity(topology.sites.len() * hosts);
        for site in 0..topology.sites.len() {
            let first_links = first_links(site, &neighbours);
            next.extend(topology.hosts.iter().enumerate().map(|(index, host)| {
                if host.site == site { 2 * index as u32 + 1 } else { first_links[host.site] }
            }));
        }
        Routes { hosts, next }
    }

    #[inline]
    pub(crate) fn next(&self, site: usize, to: usize) -> Option<usize> {
        if to >= self.hosts {
            return None;
        }
        let next = self.next[site * self.hosts + to];
        (next != NOWHERE).then_some(next as usize)
    }
}

/// For each site the first link on the way to it from `start`.
fn first_links(start: usize, neighbours: &[Vec<(u32, usize)>]) -> Vec<u32> {
    let mut first = vec![NOWHERE; neighbours.len()];
    let mut reached = vec![false; neighbours.len()];
    reached[start] = true;
    let mut frontier = VecDeque::from([start]);
    while let Some(site) = frontier.pop_front() {
        for &(link, there) in &neighbours[site] {
            if !reached[there] {
                reached[there] = true;
                first[there] = if site == start { link } else { first[site] };
                frontier.push_back(there);
            }
        }
    }
    first
}
