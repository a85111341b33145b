//! In which order a plan's configurations run: labs are rebuilt only where a configuration has another, and what is
//! compared is interleaved.

use super::plan::Configuration;
use crate::seed;
use std::collections::BTreeMap;

/// Configurations by index, those with the same lab (or the same real hosts) together, and among these those with the same services,
/// in the order of the first of them.
///
/// One pass over them builds each lab once and starts its services once. Passes go there and back (`of_trial`), so that what is up at
/// the turn stays up.
pub fn grouped(configurations: &[Configuration]) -> Vec<usize> {
    let lab = |index: usize| {
        let text = serde_json::to_string(&configurations[index].topology).unwrap_or_default();
        seed::split(0, &text)
    };
    let same_lab = |a: usize, b: usize| {
        let (a, b) = (&configurations[a], &configurations[b]);
        a.topology == b.topology && a.hosts == b.hosts
    };
    let same_services = |a: usize, b: usize| configurations[a].services == configurations[b].services;
    let count = |index: usize| configurations[index].services.len() as u64;
    blocks(0..configurations.len(), lab, same_lab)
        .into_iter()
        .flat_map(|block| blocks(block.into_iter(), count, same_services))
        .flatten()
        .collect()
}

/// Those that are the same together. `hint` is the same of those, and seldom of others: comparing each with each takes long where a
/// sweep changes them.
fn blocks(
    indices: impl Iterator<Item = usize>,
    hint: impl Fn(usize) -> u64,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut by_hint: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for index in indices {
        let candidates = by_hint.entry(hint(index)).or_default();
        match candidates.iter().copied().find(|block| same(blocks[*block][0], index)) {
            Some(block) => blocks[block].push(index),
            None => {
                candidates.push(blocks.len());
                blocks.push(vec![index]);
            }
        }
    }
    blocks
}

/// The order of one trial: there and back again (A B B A), so that what drifts over a run weighs on every configuration alike.
pub fn of_trial(grouped: &[usize], trial: u32) -> Vec<usize> {
    match trial.is_multiple_of(2) {
        true => grouped.to_vec(),
        false => grouped.iter().rev().copied().collect(),
    }
}
