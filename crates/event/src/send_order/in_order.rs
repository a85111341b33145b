//! The oldest heartbeat first.

use std::collections::{BTreeMap, VecDeque};
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::{SendOrder, Sendable};

/// To each builder the oldest first; among builders the one that waits for the oldest. Whatever order fragments are pushed in: those that
/// come back from a builder that died are older than what was assigned since.
///
/// A push, a look and a pop cost the logarithm of the number of builders and allocate nothing once the queues have grown; a turn costs that for
/// each builder that is ready, and taking a fragment back for each builder there is. An emptied queue stays until its builder is drained.
#[derive(Default)]
pub struct InOrder {
    /// Each ascending by heartbeat.
    queues: BTreeMap<BuilderId, VecDeque<Sendable>>,
}

impl SendOrder for InOrder {
    fn push(&mut self, fragment: Sendable) {
        let queue = self.queues.entry(fragment.builder).or_default();
        match queue.back() {
            Some(last) if last.heartbeat >= fragment.heartbeat => {
                match queue.binary_search_by_key(&fragment.heartbeat, |there| there.heartbeat) {
                    Ok(at) => queue[at] = fragment,
                    Err(at) => queue.insert(at, fragment),
                }
            }
            _ => queue.push_back(fragment),
        }
    }
    fn remove(&mut self, heartbeat: u64) -> Option<Sendable> {
        self.queues.values_mut().find_map(|queue| {
            let at = queue.binary_search_by_key(&heartbeat, |fragment| fragment.heartbeat).ok()?;
            queue.remove(at)
        })
    }
    fn peek(&mut self, builder: BuilderId) -> Option<Sendable> {
        self.queues.get(&builder)?.front().copied()
    }
    fn pop(&mut self, builder: BuilderId) -> Option<Sendable> {
        self.queues.get_mut(&builder)?.pop_front()
    }
    fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId> {
        let oldest = ready.iter().filter_map(|id| self.queues.get(id)?.front());
        oldest.min_by_key(|fragment| fragment.heartbeat).map(|fragment| fragment.builder)
    }
    fn drain(&mut self, builder: BuilderId) -> Vec<Sendable> {
        self.queues.remove(&builder).map(Vec::from).unwrap_or_default()
    }
}
