//! Whether the hosts of a step are near enough to each other for a connection to be made.

use super::errors::{Place, Problems};
use super::path::link_name;
use super::plan::{Opening, RoleHosts, RoleKey};
use super::tree::{Node, Table};

use crate::topology::Topology;
use crate::units::human;
use std::cell::OnceCell;
use std::time::Duration;

/// Two hosts by index, and their round trip.
type Far = (Duration, usize, usize);

/// A configuration's paths; their lengths are computed at most once.
pub(super) struct Reach<'a> {
    root: &'a Table,
    topology: &'a Topology,
    delays: OnceCell<Vec<Vec<Option<u64>>>>,
}

impl<'a> Reach<'a> {
    pub fn new(root: &'a Table, topology: &'a Topology) -> Reach<'a> {
        Reach { root, topology, delays: OnceCell::new() }
    }

    /// The longest round trip of the pairs; zero where there is no path at all.
    pub fn longest(&self, pairs: &[(usize, usize)]) -> Duration {
        self.farthest(pairs.iter().copied()).map_or(Duration::ZERO, |(rtt, ..)| rtt)
    }

    fn farthest(&self, pairs: impl Iterator<Item = (usize, usize)>) -> Option<Far> {
        let delays = self.delays.get_or_init(|| self.topology.stage_delays());
        let hosts = &self.topology.hosts;
        let rtt = |from: usize, to: usize| {
            let (near, far) = (hosts[from].site, hosts[to].site);
            let access = hosts[from].access.delay_ns.saturating_add(hosts[to].access.delay_ns);
            let between = delays[far][near]?.saturating_add(delays[near][far]?);
            Some(Duration::from_nanos(access.saturating_mul(2).saturating_add(between)))
        };
        pairs
            .filter(|(from, to)| from != to)
            .filter_map(|(from, to)| Some((rtt(from, to)?, from, to)))
            .max_by_key(|(rtt, ..)| *rtt)
    }

    /// Refuses a step whose connections cannot be made in the time they have: its loaded pairs, and who decides with all others.
    // Spec: scenario.md#step-7
    pub fn check(
        &self,
        step: &str,
        pairs: &[(usize, usize)],
        (role_keys, roles): (&[RoleKey], &[(&'static str, Vec<usize>)]),
        apart: bool,
        opening: Opening,
        problems: &Problems<'_>,
    ) {
        let most = opening.rtt_max();
        let spoken = spoken(role_keys, roles);
        let mut far = self.farthest(pairs.iter().copied());
        match self.topology.auxiliary {
            Some(auxiliary) if apart => {
                let rtt = Duration::from_nanos(auxiliary.delay_ns.saturating_mul(4));
                if let (Some((from, to)), true) = (spoken.first(), rtt > most) {
                    let part = self.auxiliary_part();
                    self.refuse(step, (rtt, *from, *to), opening, part, problems);
                    return;
                }
            }
            _ => far = far.max(self.farthest(spoken.into_iter())),
        }
        if let Some(far) = far.filter(|(rtt, ..)| *rtt > most) {
            self.refuse(step, far, opening, self.longest_part(far.1, far.2), problems);
        }
    }

    fn refuse(
        &self,
        step: &str,
        (rtt, from, to): Far,
        opening: Opening,
        part: Option<(String, Place)>,
        problems: &Problems<'_>,
    ) {
        let seconds = |time: Duration| human(time.as_secs_f64(), "s");
        let hosts = &self.topology.hosts;
        let message = format!(
            "no connection of step {step:?} can be made over the {} round trip from {} to {}: it takes {} round trips and has {}, \
             so a round trip may be {} at most",
            seconds(rtt),
            hosts[from].name,
            hosts[to].name,
            opening.round_trips,
            seconds(opening.limit),
            seconds(opening.rtt_max()),
        );
        let (path, at) = part.unwrap_or_else(|| ("the delays of the path".to_owned(), Place::default()));
        problems.add_help(at, message, format!("the longest part of the way is `{path}`: make it shorter"));
    }

    /// Of the way there and back the key that adds most, as paths name it, and where it is written.
    fn longest_part(&self, from: usize, to: usize) -> Option<(String, Place)> {
        let (there, back) = (self.topology.path(from, to)?, self.topology.path(to, from)?);
        let longest =
            there.into_iter().chain(back).rev().max_by_key(|directed| self.topology.delay_ns(*directed))?;
        let lab = self.root.get("lab")?.as_table()?;
        let named = |key: &str, name: &str| {
            lab.tables(key).into_iter().find(|table| table.text("name") == Some(name))
        };
        let access_count = 2 * self.topology.hosts.len();
        if longest < access_count {
            let host = &self.topology.hosts[longest / 2];
            let site = &self.topology.sites[host.site].name;
            return written("host", &host.name, named("host", &host.name), &["access", "delay"])
                .or_else(|| written("site", site, named("site", site), &["access", "delay"]));
        }
        let name = &self.topology.links[(longest - access_count) / 2].name;
        let way = if longest.is_multiple_of(2) { "forward" } else { "backward" };
        let link = lab.tables("link").into_iter().find(|table| link_name(table).as_ref() == Some(name));
        let keys: [&[&str]; 3] = [&[way, "delay"], &["rtt"], &["delay"]];
        keys.into_iter().find_map(|keys| written("link", name, link, keys))
    }

    fn auxiliary_part(&self) -> Option<(String, Place)> {
        let auxiliary = self.root.get("lab")?.as_table()?.get("auxiliary")?.as_table()?;
        Some(("lab.auxiliary.delay".to_owned(), auxiliary.get("delay")?.at))
    }
}

/// A value below `table`: its path by name, and its place.
fn written(word: &str, name: &str, table: Option<&Table>, keys: &[&str]) -> Option<(String, Place)> {
    let (last, above) = keys.split_last()?;
    let inner = above.iter().try_fold(table?, |table, key| table.get(key).and_then(Node::as_table))?;
    Some((format!("{word}.{name}.{}", keys.join(".")), inner.get(last)?.at))
}

/// The one host that decides with every other that has a role.
fn spoken(keys: &[RoleKey], roles: &[(&'static str, Vec<usize>)]) -> Vec<(usize, usize)> {
    let single = |key: &str| keys.iter().any(|role| role.key == key && role.hosts == RoleHosts::One);
    let deciders = roles.iter().filter(|(key, _)| single(key)).flat_map(|(_, hosts)| hosts);
    let others = || roles.iter().filter(|(key, _)| !single(key)).flat_map(|(_, hosts)| hosts);
    deciders.flat_map(|decider| others().map(move |other| (*decider, *other))).collect()
}
