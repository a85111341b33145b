//! Where a stage sends a packet next.

use std::collections::VecDeque;
use weir_core::topology::{Stage, Topology};

/// No path.
const NOWHERE: u32 = u32::MAX;

/// Per stage and destination host, the directed link to take: the stage's fixed route for the host's site, else the fewest
/// links, and the order in the file where two paths tie. Of all shortest paths that one's link numbers come first when read
/// like words, so the rest of it from any stage on is that stage's own path, and deciding anew at each stage stays on it.
///
/// Fixed routes may lead in circles. Where a router is in the circle the hop limit ends them; where none is, what would get
/// there has no path.
///
/// Destinations are hosts and, numbered on after them, the routers that answer. To one of these a packet is underway until it is
/// there: at its own stage nothing is next.
#[derive(Debug)]
pub(crate) struct Routes {
    hosts: usize,
    /// `[stage][destination host]`
    next: Vec<u32>,
    stages: usize,
    /// `[stage][destination stage]`, apart from the one above, which every packet needs at each stage.
    to_router: Vec<u32>,
}

impl Routes {
    pub(crate) fn new(topology: &Topology) -> Self {
        let hosts = topology.hosts.len();
        let stages = topology.sites.len();
        let mut neighbours: Vec<Vec<(u32, usize)>> = vec![Vec::new(); stages];
        for (index, link) in topology.links.iter().enumerate() {
            let directed = u32::try_from(2 * (hosts + index)).expect("links are few");
            let [from, to] = link.between;
            neighbours[from].push((directed, to));
            neighbours[to].push((directed + 1, from));
        }
        // `[stage][destination stage]`
        let mut between: Vec<Vec<u32>> = (0..stages).map(|stage| first_links(stage, &neighbours)).collect();
        for (stage, site) in topology.sites.iter().enumerate() {
            for (to, link) in &site.routes {
                let fixed = neighbours[stage].iter().find(|(directed, _)| {
                    let index = *directed as usize / 2;
                    index.checked_sub(hosts) == Some(*link)
                });
                if let (Some((directed, _)), Some(next)) = (fixed, between[stage].get_mut(*to))
                    && *to != stage
                {
                    *next = *directed;
                }
            }
        }
        for to in 0..stages {
            forget_dead_ends(to, topology, &neighbours, &mut between);
        }
        let mut next = Vec::with_capacity(stages * hosts);
        for (stage, first_links) in between.iter().enumerate() {
            next.extend(topology.hosts.iter().enumerate().map(|(index, host)| {
                if host.site == stage { 2 * index as u32 + 1 } else { first_links[host.site] }
            }));
        }
        let answers = |stage: usize| topology.sites[stage].stage == Stage::Router { replies: true };
        let to_router = between.into_iter().flat_map(|first_links| {
            let link_to = |(to, link)| if answers(to) { link } else { NOWHERE };
            first_links.into_iter().enumerate().map(link_to).collect::<Vec<u32>>()
        });
        Routes { hosts, next, stages, to_router: to_router.collect() }
    }

    /// The destination that the router at `stage` is.
    pub(crate) fn router(&self, stage: usize) -> usize {
        self.hosts.saturating_add(stage)
    }

    #[inline]
    pub(crate) fn next(&self, stage: usize, to: usize) -> Option<usize> {
        if to >= self.hosts {
            return self.next_to_router(stage, to - self.hosts);
        }
        let next = self.next[stage * self.hosts + to];
        (next != NOWHERE).then_some(next as usize)
    }

    #[cold]
    fn next_to_router(&self, stage: usize, router: usize) -> Option<usize> {
        if router >= self.stages {
            return None;
        }
        let next = self.to_router[stage * self.stages + router];
        (next != NOWHERE).then_some(next as usize)
    }
}

/// For each stage the first link on the way to it from `start`.
fn first_links(start: usize, neighbours: &[Vec<(u32, usize)>]) -> Vec<u32> {
    let mut first = vec![NOWHERE; neighbours.len()];
    let mut reached = vec![false; neighbours.len()];
    reached[start] = true;
    let mut frontier = VecDeque::from([start]);
    while let Some(stage) = frontier.pop_front() {
        for &(link, there) in &neighbours[stage] {
            if !reached[there] {
                reached[there] = true;
                first[there] = if stage == start { link } else { first[stage] };
                frontier.push_back(there);
            }
        }
    }
    first
}

/// Takes the routes for `to` away from stages from which following them never ends.
fn forget_dead_ends(
    to: usize,
    topology: &Topology,
    neighbours: &[Vec<(u32, usize)>],
    between: &mut [Vec<u32>],
) {
    // Whether packets get through, or round until their hop limit ends; `None`: not known yet.
    let mut ends = vec![None; between.len()];
    ends[to] = Some(true);
    for start in 0..between.len() {
        let (mut way, mut at) = (Vec::new(), start);
        let result = loop {
            if let Some(known) = ends[at] {
                break known;
            }
            if let Some(circle) = way.iter().position(|stage| *stage == at) {
                let router = |stage: &usize| matches!(topology.sites[*stage].stage, Stage::Router { .. });
                break way[circle..].iter().any(router);
            }
            way.push(at);
            let next = neighbours[at].iter().find(|(link, _)| *link == between[at][to]);
            let Some((_, there)) = next else { break false };
            at = *there;
        };
        for stage in way {
            ends[stage] = Some(result);
        }
    }
    for (stage, ends) in ends.into_iter().enumerate() {
        if ends == Some(false) {
            between[stage][to] = NOWHERE;
        }
    }
}
