//! In which order a plan's configurations run: labs are rebuilt only where a configuration has another, and what is
//! compared is interleaved.

use super::plan::Configuration;
use crate::seed;
use std::collections::BTreeMap;

/// Configurations by index, those with the same lab (or the same real hosts) together, in the order of the first of them.
///
/// One pass over them builds each lab once. Passes go there and back (`of_trial`), so that the lab at the turn stays up.
pub fn grouped(configurations: &[Configuration]) -> Vec<usize> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // By a hash of the lab, since comparing each with each takes long where a sweep changes it.
    let mut by_hash: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, configuration) in configurations.iter().enumerate() {
        let text = serde_json::to_string(&configuration.topology).unwrap_or_default();
        let candidates = by_hash.entry(seed::split(0, &text)).or_default();
        let same = candidates.iter().copied().find(|group| {
            let first = &configurations[groups[*group][0]];
            first.topology == configuration.topology && first.hosts == configuration.hosts
        });
        match same {
            Some(group) => groups[group].push(index),
            None => {
                candidates.push(groups.len());
                groups.push(vec![index]);
            }
        }
    }
    groups.concat()
}

/// The order of one trial: there and back again (A B B A), so that what drifts over a run weighs on every configuration alike.
pub fn of_trial(grouped: &[usize], trial: u32) -> Vec<usize> {
    match trial.is_multiple_of(2) {
        true => grouped.to_vec(),
        false => grouped.iter().rev().copied().collect(),
    }
}
