//! The oldest heartbeat first.

use std::collections::VecDeque;
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::{SendOrder, Sendable};

/// To each builder the oldest first; among builders the one that waits for the oldest. Whatever order fragments are pushed in: those that
/// come back from a builder that died are older than what was assigned since.
///
/// A push, a look and a pop cost the logarithm of the number of builders and allocate nothing once the queues have grown; a turn costs that for
/// each builder that is ready, and taking a fragment back for each builder there is. An emptied queue stays until its builder is drained.
#[derive(Default)]
pub struct InOrder {
    /// By builder, each ascending by heartbeat.
    queues: Vec<(BuilderId, VecDeque<Sendable>)>,
}

impl InOrder {
    fn place(&self, builder: BuilderId) -> Result<usize, usize> {
        self.queues.binary_search_by_key(&builder, |(id, _)| *id)
    }
    fn queue(&self, builder: BuilderId) -> Option<&VecDeque<Sendable>> {
        self.place(builder).ok().map(|at| &self.queues[at].1)
    }
}

impl SendOrder for InOrder {
    fn push(&mut self, fragment: Sendable) {
        let at = self.place(fragment.builder).unwrap_or_else(|at| {
            self.queues.insert(at, (fragment.builder, VecDeque::new()));
            at
        });
        let queue = &mut self.queues[at].1;
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
        self.queues.iter_mut().find_map(|(_, queue)| {
            let at = queue.binary_search_by_key(&heartbeat, |fragment| fragment.heartbeat).ok()?;
            queue.remove(at)
        })
    }
    fn peek(&mut self, builder: BuilderId) -> Option<Sendable> {
        self.queue(builder)?.front().copied()
    }
    fn pop(&mut self, builder: BuilderId) -> Option<Sendable> {
        let at = self.place(builder).ok()?;
        self.queues[at].1.pop_front()
    }
    fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId> {
        let oldest = ready.iter().filter_map(|id| self.queue(*id)?.front());
        oldest.min_by_key(|fragment| fragment.heartbeat).map(|fragment| fragment.builder)
    }
    fn drain(&mut self, builder: BuilderId) -> Vec<Sendable> {
        self.place(builder).map(|at| self.queues.remove(at).1.into()).unwrap_or_default()
    }
}
