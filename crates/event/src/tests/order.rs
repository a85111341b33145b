//! The plainest send order: the lowest heartbeat first.

use std::collections::BTreeMap;
use weir_seams::Entry;
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::{SendOrder, SendOrderEntry, Sendable};

#[derive(Default)]
pub struct Plain {
    queues: BTreeMap<BuilderId, BTreeMap<u64, Sendable>>,
}

impl SendOrder for Plain {
    fn push(&mut self, fragment: Sendable) {
        self.queues.entry(fragment.builder).or_default().insert(fragment.heartbeat, fragment);
    }
    fn remove(&mut self, heartbeat: u64) -> Option<Sendable> {
        self.queues.values_mut().find_map(|queue| queue.remove(&heartbeat))
    }
    fn peek(&mut self, builder: BuilderId) -> Option<Sendable> {
        self.queues.get(&builder)?.first_key_value().map(|(_, fragment)| *fragment)
    }
    fn pop(&mut self, builder: BuilderId) -> Option<Sendable> {
        self.queues.get_mut(&builder)?.pop_first().map(|(_, fragment)| fragment)
    }
    fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId> {
        ready.iter().filter_map(|id| self.peek(*id)).min_by_key(|one| one.heartbeat).map(|one| one.builder)
    }
    fn drain(&mut self, builder: BuilderId) -> Vec<Sendable> {
        self.queues.remove(&builder).unwrap_or_default().into_values().collect()
    }
}

pub static ORDERS: &[SendOrderEntry] = &[Entry {
    name: "plain",
    about: "the lowest heartbeat first",
    params: &[],
    needs: &[],
    build: |_values| Box::new(Plain::default()),
}];
