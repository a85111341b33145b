//! A scheduler and death policies, as small as they can be, and a generator.

use weir_core::Instant;
use weir_seams::death_policy::{DeathPolicy, Remedy};
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

/// Builders in turn, those that have room.
#[derive(Default)]
pub struct Turns {
    next: usize,
}

impl Scheduler for Turns {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        let listed = builders.listed();
        let turn = (0..listed.len()).map(|step| (self.next + step) % listed.len());
        let at = turn.into_iter().find(|at| builders.fits(listed[*at], event.bytes))?;
        self.next = at + 1;
        Some(listed[at])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Whitelist,
    Blacklist,
    Reinitialise,
}

impl DeathPolicy for Policy {
    fn on_death(&mut self, id: BuilderId) -> Vec<Remedy> {
        match self {
            Policy::Whitelist => vec![],
            Policy::Blacklist => vec![Remedy::CloseChannel(id)],
            Policy::Reinitialise => vec![Remedy::CloseChannel(id), Remedy::ReopenAll],
        }
    }
    fn on_join(&mut self, id: BuilderId, again: bool) -> Vec<Remedy> {
        let mut remedies = vec![Remedy::OpenChannel(id)];
        if *self == Policy::Reinitialise && again {
            remedies.push(Remedy::ReopenAll);
        }
        remedies.push(Remedy::List(id));
        remedies
    }
}

/// SplitMix64: Steele, Lea, Flood, OOPSLA 2014.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// `low..high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }
}
