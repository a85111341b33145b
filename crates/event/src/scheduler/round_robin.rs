//! Builders in turn.

use super::ring::{Ring, Room};
use weir_core::{Instant, Kind, Param, Values};
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

pub const PARAMS: &[Param] = &[Param::new(
    "when_full",
    Kind::Choice(&["next", "hold"]),
    "What to do when the builder whose turn it is has no room: pass it over, or wait for it.",
)
.default("next")];

/// Goes through the listed builders by slot, round and round. One without room loses its turn (`next`) or is waited for (`hold`); one
/// whose whole memory is too small for the event loses it either way.
pub struct RoundRobin {
    /// Where the search for the next begins.
    from: u32,
    ring: Ring,
}

impl RoundRobin {
    /// `values`: of `PARAMS`.
    pub fn new(values: &Values) -> RoundRobin {
        let hold = values.text("when_full").as_deref() == Some("hold");
        RoundRobin { from: 0, ring: Ring::new(if hold { Room::Ever } else { Room::Now }) }
    }
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        let id = self.ring.next(self.from, event.bytes).filter(|id| builders.fits(*id, event.bytes))?;
        self.from = id.0.saturating_add(1);
        Some(id)
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.ring.on_membership(builders);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.ring.on_load(id, builders);
    }
}
