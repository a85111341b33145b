//! The builder with the fewest bytes outstanding.

use super::least::{Among, Least};
use weir_core::Instant;
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

/// Fewest outstanding bytes first, of those with room; of several the one that was chosen longest ago.
pub struct LeastOutstanding {
    least: Least,
}

impl Default for LeastOutstanding {
    fn default() -> Self {
        LeastOutstanding { least: Least::new(Among::All) }
    }
}

impl Scheduler for LeastOutstanding {
    fn choose(&mut self, _now: Instant, event: &Wanted, _builders: &Builders) -> Option<BuilderId> {
        let id = self.least.least(0, event.bytes)?;
        self.least.took(id);
        Some(id)
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.least.on_membership(builders);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.least.on_load(id, builders);
    }
}
