//! Shares of links without a protocol: max-min fair rates, and how long bytes take at them.

use crate::topology::DirectedLink;
use std::collections::{BTreeMap, BTreeSet};

/// Flows between the same two hosts in one direction.
#[derive(Clone, Debug)]
pub(super) struct Aggregate {
    /// Number of flows.
    pub weight: f64,
    /// Links with a rate, and the bits of their wire that one bit of payload costs.
    pub costs: Vec<(usize, f64)>,
}

/// Progressive filling: every flow's rate grows alike until a link is full, whose flows then stay; and so on. The rate of one
/// flow of each aggregate, payload bit/s; `None` without any, or where one has no link with a rate.
pub(super) fn fill(links: &[DirectedLink], aggregates: &[Aggregate]) -> Option<Vec<f64>> {
    if aggregates.is_empty() {
        return None;
    }
    let mut room: Vec<f64> =
        links.iter().map(|link| link.rate.map_or(f64::INFINITY, |rate| rate.as_f64())).collect();
    let mut rates = vec![0.0; aggregates.len()];
    let mut growing: Vec<usize> = (0..aggregates.len()).collect();
    let mut share = 0.0;
    while !growing.is_empty() {
        let mut demand: BTreeMap<usize, f64> = BTreeMap::new();
        for aggregate in growing.iter().map(|index| &aggregates[*index]) {
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
        let done = |index: &usize| aggregates[*index].costs.iter().any(|(link, _)| full.contains(link));
        for index in growing.iter().filter(|index| done(index)) {
            rates[*index] = share;
        }
        growing.retain(|index| !done(index));
    }
    Some(rates)
}

/// Mean time in seconds in which every flow moves `bytes`, each at its share of what the flows not yet done leave; `None` where
/// one has no share.
pub(super) fn mean_completion(links: &[DirectedLink], aggregates: &[Aggregate], bytes: f64) -> Option<f64> {
    let mut left: Vec<(Aggregate, f64)> =
        aggregates.iter().map(|aggregate| (aggregate.clone(), bytes * 8.0)).collect();
    let flows: f64 = aggregates.iter().map(|aggregate| aggregate.weight).sum();
    let (mut now, mut sum) = (0.0, 0.0);
    while !left.is_empty() {
        let running: Vec<Aggregate> = left.iter().map(|(aggregate, _)| aggregate.clone()).collect();
        let rates = fill(links, &running)?;
        let next = left.iter().zip(&rates).map(|((_, bits), rate)| bits / rate).min_by(f64::total_cmp)?;
        if !next.is_finite() {
            return None;
        }
        now += next;
        for ((_, bits), rate) in left.iter_mut().zip(&rates) {
            *bits -= next * rate;
        }
        let done = |bits: f64| bits <= bytes * 8.0 * 1e-9;
        sum += left.iter().filter(|(_, bits)| done(*bits)).map(|(it, _)| it.weight * now).sum::<f64>();
        left.retain(|(_, bits)| !done(*bits));
    }
    (flows > 0.0).then_some(sum / flows)
}
