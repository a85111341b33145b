//! The builder with the most free memory.

use super::tournament::Tournament;
use std::cmp::Reverse;
use weir_core::Instant;
use weir_seams::scheduler::{Builder, BuilderId, Builders, Scheduler, Wanted};

/// Most free bytes first; of several the one that was chosen longest ago.
#[derive(Default)]
pub struct MemoryAware {
    /// By slot: free bytes, then number of the last choice.
    free: Tournament<(u64, Reverse<u64>)>,
    /// By slot: number of the choice that last fell on it.
    turns: Vec<u64>,
    turn: u64,
}

fn key(builder: &Builder, turns: &[u64]) -> (u64, Reverse<u64>) {
    (builder.free_bytes(), Reverse(turns[builder.id.0 as usize]))
}

impl Scheduler for MemoryAware {
    fn choose(&mut self, _now: Instant, event: &Wanted, _builders: &Builders) -> Option<BuilderId> {
        let ((free_bytes, _), slot) = self.free.best(0, self.turns.len())?;
        if free_bytes < event.bytes {
            return None;
        }
        // Counts from `on_load` on, which follows every choice that is taken up.
        self.turn += 1;
        self.turns[slot] = self.turn;
        Some(BuilderId(slot as u32))
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.turns.resize(builders.slot_count(), 0);
        let turns = &self.turns;
        let keys = (0..turns.len())
            .map(|slot| builders.get(BuilderId(slot as u32)).map(|builder| key(builder, turns)));
        self.free.fill(keys);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        if let Some(builder) = builders.get(id) {
            self.free.set(id.0 as usize, Some(key(builder, &self.turns)));
        }
    }
}
