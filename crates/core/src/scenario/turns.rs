//! Pairs of a step that take turns: rounds in which no two pairs are on the same link.

use super::plan::Step;
use crate::statistics::Resampler;
use crate::topology::Topology;
use std::collections::BTreeMap;

/// Pairs of a step that take turns, at most: what a matrix of 32 hosts needs.
pub(super) const TURNS_PAIRS_MAX: usize = 1_024;
/// Pairs placed while looking for fewer rounds, about: a few milliseconds.
const PLACED_MAX: usize = 50_000;
/// First word of a pair's entity; of a pair within one site, in a step that also has pairs between sites.
const PAIR: &str = "pair.";
const LOCAL: &str = "local.";

/// What two pairs of one round must not have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// A link, whichever way their packets pass it.
    Disjoint,
    /// A direction of a link, on the ways from `from` to `to` or on the ways back. A pair there and a pair back may meet.
    Duplex,
}

impl Turns {
    pub(super) const NAMES: &[&str] = &["disjoint", "duplex"];

    pub(super) fn parse(text: &str) -> Option<Turns> {
        match text {
            "disjoint" => Some(Turns::Disjoint),
            "duplex" => Some(Turns::Duplex),
            _ => None,
        }
    }
}

/// True for the entity of a pair that took its turn.
pub fn is_pair(entity: &str) -> bool {
    entity.starts_with(PAIR) || is_local(entity)
}

/// True for the entity of a pair within one site, the control of those between sites.
pub fn is_local(entity: &str) -> bool {
    entity.starts_with(LOCAL)
}

impl Step {
    /// Whether the step's pair at this index is within one site while others are between sites.
    pub fn is_local(&self, topology: &Topology, pair: usize) -> bool {
        let within = |(from, to): &(usize, usize)| topology.hosts[*from].site == topology.hosts[*to].site;
        within(&self.pairs[pair]) && !self.pairs.iter().all(within)
    }

    /// Name of a pair in records: `pair.FROM.TO`, or `local.FROM.TO`.
    pub fn pair_entity(&self, topology: &Topology, pair: usize) -> String {
        let (from, to) = self.pairs[pair];
        let first = if self.is_local(topology, pair) { LOCAL } else { PAIR };
        format!("{first}{}.{}", topology.hosts[from].name, topology.hosts[to].name)
    }

    /// Names of all pairs that take turns.
    pub fn pair_entities<'a>(&'a self, topology: &'a Topology) -> impl Iterator<Item = String> + 'a {
        let taking_turns = if self.rounds.is_empty() { 0 } else { self.pairs.len() };
        (0..taking_turns).map(|pair| self.pair_entity(topology, pair))
    }

    /// The same with one of its pairs alone, as it is loaded in its turn.
    pub fn of_pair(&self, pair: usize) -> Step {
        let pairs = vec![self.pairs[pair]];
        Step { roles: self.roles_of(&pairs), pairs, rounds: Vec::new(), ..self.clone() }
    }
}

/// Rounds of pairs, each by index and in order, so that in a round no two have in common what `turns` says. The same pairs on
/// the same network always get the same rounds. `real`: the hosts' links are not known, and no host is in two pairs of a round
/// (with `Duplex`: sends in two, or receives in two).
pub(super) fn rounds(
    topology: &Topology,
    pairs: &[(usize, usize)],
    turns: Turns,
    real: bool,
) -> Vec<Vec<usize>> {
    let shares = Shares::of(pairs, |from, to| footprint(topology, from, to, turns, real));
    let numbers: BTreeMap<(usize, usize), usize> = pairs.iter().copied().zip(0..).collect();
    let back = |pair: usize| numbers.get(&(pairs[pair].1, pairs[pair].0)).copied();
    let mut orders = first_orders(pairs);
    // Where ways there and back are alike, good rounds of the pairs there are good rounds of the pairs back.
    let there: Vec<Vec<usize>> = orders
        .iter()
        .map(|order| {
            order.iter().copied().filter(|pair| back(*pair).is_none_or(|back| *pair < back)).collect()
        })
        .collect();
    let there = shares.fewest(there).concat();
    let returning = there.iter().filter_map(|pair| back(*pair));
    orders.insert(0, there.iter().copied().chain(returning).collect());
    let mut rounds = shares.fewest(orders);
    for round in &mut rounds {
        round.sort_unstable();
    }
    rounds.sort();
    rounds
}

/// Numbers of what a pair uses, each of which one pair of a round may use.
fn footprint(topology: &Topology, from: usize, to: usize, turns: Turns, real: bool) -> Vec<usize> {
    if real {
        return match turns {
            Turns::Disjoint => vec![2 * from, 2 * to],
            Turns::Duplex => vec![2 * from, 2 * to + 1],
        };
    }
    let there = topology.path(from, to).unwrap_or_default();
    let back = topology.path(to, from).unwrap_or_default();
    let mut used: Vec<usize> = match turns {
        Turns::Disjoint => there.into_iter().chain(back).map(|link| link / 2).collect(),
        Turns::Duplex => {
            let of_way = |link: usize, way: usize| 2 * link + way;
            there
                .into_iter()
                .map(|link| of_way(link, 0))
                .chain(back.into_iter().map(|link| of_way(link, 1)))
                .collect()
        }
    };
    used.sort_unstable();
    used.dedup();
    used
}

/// What each pair uses, numbered densely: `[pair][…]`.
struct Shares {
    used: Vec<Vec<usize>>,
    count: usize,
}

impl Shares {
    fn of(pairs: &[(usize, usize)], footprint: impl Fn(usize, usize) -> Vec<usize>) -> Shares {
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let used = pairs
            .iter()
            .map(|(from, to)| {
                let number = |one| {
                    let next = numbers.len();
                    *numbers.entry(one).or_insert(next)
                };
                footprint(*from, *to).into_iter().map(number).collect()
            })
            .collect();
        Shares { used, count: numbers.len() }
    }

    /// Pairs, of these, that use the same: no fewer rounds are possible.
    fn most_wanted(&self, pairs: &[usize]) -> usize {
        let mut wanted = vec![0; self.count];
        for one in pairs.iter().flat_map(|pair| &self.used[*pair]) {
            wanted[*one] += 1;
        }
        wanted.into_iter().max().unwrap_or(0)
    }

    /// The fewest rounds found, from these orders of the same pairs on. Taken again round by round, in whatever order of rounds,
    /// pairs never need more rounds than before, and may need fewer (Culberson, Iterated Greedy Graph Coloring, 1992).
    fn fewest(&self, orders: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        let least = orders.first().map_or(0, |order| self.most_wanted(order));
        let pairs = orders.first().map_or(1, |order| order.len().max(1));
        let found = orders.into_iter().map(|order| self.first_fit(order.into_iter()));
        let mut best = found.min_by_key(Vec::len).unwrap_or_default();
        let mut current = best.clone();
        let mut random = Resampler::new(1); // the same shuffles every time
        for attempt in 0..(PLACED_MAX / pairs).clamp(16, 400) {
            if best.len() <= least {
                break;
            }
            match attempt % 3 {
                0 => current.reverse(),
                1 => current.sort_by_key(|round| std::cmp::Reverse(round.len())),
                _ => shuffle(&mut current, &mut random),
            }
            current = self.first_fit(current.concat().into_iter());
            if current.len() < best.len() {
                best.clone_from(&current);
            }
        }
        best
    }

    /// Each pair in turn gets the first round in which nothing that it uses is taken.
    fn first_fit(&self, order: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
        let words = self.used.len().div_ceil(64);
        let mut taken = vec![0_u64; self.count * words];
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        for pair in order {
            let of = |one: &usize, word: usize| one * words + word;
            let free = (0..words).find_map(|word| {
                let busy = self.used[pair].iter().fold(0, |busy, one| busy | taken[of(one, word)]);
                (busy != u64::MAX).then(|| word * 64 + busy.trailing_ones() as usize)
            });
            // There are as many rounds to choose from as pairs, so one is always free.
            let round = free.unwrap_or(rounds.len()).min(rounds.len());
            for one in &self.used[pair] {
                taken[of(one, round / 64)] |= 1 << (round % 64);
            }
            match rounds.get_mut(round) {
                Some(round) => round.push(pair),
                None => rounds.push(vec![pair]),
            }
        }
        rounds
    }
}

/// Fisher and Yates.
fn shuffle(rounds: &mut [Vec<usize>], random: &mut Resampler) {
    for last in (1..rounds.len()).rev() {
        rounds.swap(last, random.below(last + 1));
    }
}

/// Orders of pairs to begin with: as they are, and as a tournament plays them, which is best where hosts alone are in the way.
fn first_orders(pairs: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut ranks: BTreeMap<usize, usize> =
        pairs.iter().flat_map(|(from, to)| [(*from, 0), (*to, 0)]).collect();
    for (rank, (_, place)) in ranks.iter_mut().enumerate() {
        *place = rank;
    }
    let count = ranks.len();
    // The circle method: with an even number of hosts the last one stays where it is.
    let circle = (count - usize::from(count.is_multiple_of(2))).max(1);
    let game = |pair: &usize| {
        let (from, to) = pairs[*pair];
        let (one, other) = (ranks[&from].min(ranks[&to]), ranks[&from].max(ranks[&to]));
        let class = if other == circle { 2 * one % circle } else { (one + other) % circle };
        // There in one half of the rounds and back in the other.
        (from > to, class)
    };
    let distance = |pair: &usize| {
        let (from, to) = pairs[*pair];
        (ranks[&to] + count - ranks[&from]) % count
    };
    let as_they_are: Vec<usize> = (0..pairs.len()).collect();
    let (mut tournament, mut by_distance) = (as_they_are.clone(), as_they_are.clone());
    tournament.sort_by_key(game);
    by_distance.sort_by_key(distance);
    vec![tournament, by_distance, as_they_are]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Host, Link, sample};
    use std::time::Duration;

    fn all(from: std::ops::Range<usize>, to: std::ops::Range<usize>) -> Vec<(usize, usize)> {
        from.flat_map(|a| to.clone().map(move |b| (a, b))).filter(|(a, b)| a != b).collect()
    }

    /// Every pair once, and no two of a round share what they must not.
    fn checked(topology: &Topology, pairs: &[(usize, usize)], turns: Turns, real: bool) -> usize {
        let rounds = rounds(topology, pairs, turns, real);
        let mut seen = vec![0; pairs.len()];
        for round in &rounds {
            let mut taken = std::collections::BTreeSet::new();
            for pair in round {
                seen[*pair] += 1;
                let (from, to) = pairs[*pair];
                for one in footprint(topology, from, to, turns, real) {
                    assert!(taken.insert(one), "{turns:?}: {one} twice in {round:?} of {pairs:?}");
                }
            }
        }
        assert_eq!(seen, vec![1; pairs.len()], "each pair has one turn");
        assert_eq!(rounds, super::rounds(topology, pairs, turns, real), "the same again");
        rounds.len()
    }

    // Spec: scenario.md#turns-3
    #[test]
    fn hosts_without_known_links_play_as_many_rounds_as_a_tournament() {
        let none = Topology { sites: Vec::new(), hosts: Vec::new(), links: Vec::new(), auxiliary: None };
        for hosts in 2..=32 {
            let games = if hosts % 2 == 0 { hosts - 1 } else { hosts };
            let pairs = all(0..hosts, 0..hosts);
            assert_eq!(checked(&none, &pairs, Turns::Disjoint, true), 2 * games, "{hosts} hosts");
            assert!(checked(&none, &pairs, Turns::Duplex, true) <= games + 2, "{hosts} hosts");
        }
    }

    // Spec: scenario.md#turns-2
    #[test]
    fn pairs_over_one_trunk_take_turns_and_pairs_within_the_sites_fill_the_rounds() {
        // Three hosts a site: nine pairs go each way over the trunk, and twelve stay within the sites.
        let topology = mesh(2, 3);
        let pairs = all(0..6, 0..6);
        assert_eq!(checked(&topology, &pairs, Turns::Disjoint, false), 18);
        assert_eq!(checked(&topology, &pairs, Turns::Duplex, false), 9);
    }

    #[test]
    fn a_mesh_of_sites_needs_no_more_rounds_than_its_busiest_link_or_host() {
        // Two hosts at each of four sites: a host is in fourteen pairs, a link between sites in eight.
        assert_eq!(checked(&mesh(4, 2), &all(0..8, 0..8), Turns::Disjoint, false), 14);
        assert!(checked(&mesh(4, 2), &all(0..8, 0..8), Turns::Duplex, false) <= 8);
        // The first hosts alone: twelve pairs, three at a time of each host, there and back.
        let first: Vec<(usize, usize)> = all(0..4, 0..4).iter().map(|(a, b)| (2 * a, 2 * b)).collect();
        assert_eq!(checked(&mesh(4, 2), &first, Turns::Disjoint, false), 6);
        assert_eq!(checked(&mesh(4, 2), &first, Turns::Duplex, false), 3);
    }

    /// Sites of `each` hosts, every two with a link of their own.
    fn mesh(sites: usize, each: usize) -> Topology {
        let mut topology = sample::two_sites(1_000_000_000, Duration::from_millis(10), 1500);
        let (site, link, host) =
            (topology.sites[0].clone(), topology.links[0].clone(), topology.hosts[0].clone());
        topology.sites = vec![site; sites];
        topology.hosts = (0..sites * each).map(|index| Host { site: index / each, ..host.clone() }).collect();
        let between = (0..sites).flat_map(|a| (a + 1..sites).map(move |b| [a, b]));
        topology.links = between.map(|between| Link { between, ..link.clone() }).collect();
        topology
    }

    #[test]
    fn many_pairs_on_one_host_are_as_many_rounds() {
        let none = Topology { sites: Vec::new(), hosts: Vec::new(), links: Vec::new(), auxiliary: None };
        let star: Vec<(usize, usize)> = (1..TURNS_PAIRS_MAX).map(|host| (0, host)).collect();
        assert_eq!(checked(&none, &star, Turns::Disjoint, true), star.len());
    }
}
