//! Which way packets take through a topology, and how long they are on it.

use super::Topology;
use std::collections::VecDeque;
use std::time::Duration;

impl Topology {
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
        let delays = self.stage_delays();
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

    /// Propagation over a directed link.
    pub fn delay_ns(&self, directed: usize) -> u64 {
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

    /// Propagation from each stage to each other in nanoseconds: `[to][from]`; `None` without a path.
    pub fn stage_delays(&self) -> Vec<Vec<Option<u64>>> {
        self.sums(&|index| self.delay_ns(index))
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::*;

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
}
