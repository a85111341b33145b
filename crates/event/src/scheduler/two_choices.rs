//! Two builders at random, and the less loaded of them.

use super::ring::{Ring, Room};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_core::{Instant, Kind, Param, Values, seed};
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

pub const PARAMS: &[Param] =
    &[Param::new("seed", Kind::Count, "Seed of the draws; the run's own unless given.")];

/// Draws two different listed builders and takes the one with fewer outstanding bytes, the first drawn on a draw; if only one has room,
/// that one; if neither has, the next in the order of slots after the first drawn that has.
///
/// Source: Azar, Broder, Karlin, Upfal, SIAM J. Computing 29(1), 1999: the fullest of n bins after n balls has ln ln n / ln 2 + O(1) instead of
/// the ln n / ln ln n of one draw.
pub struct TwoChoices {
    generator: Xoshiro256PlusPlus,
    ring: Ring,
}

impl TwoChoices {
    /// `values`: of `PARAMS`.
    pub fn new(values: &Values) -> TwoChoices {
        let seed = seed::split(values.count("seed").unwrap_or(1), "scheduler.two-choices");
        TwoChoices { generator: Xoshiro256PlusPlus::seed_from_u64(seed), ring: Ring::new(Room::Now) }
    }

    /// Evenly from 0 to `count` − 1; one draw.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.generator.next_u64()) * count as u128) >> 64) as usize
    }
}

impl Scheduler for TwoChoices {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        let listed = builders.listed();
        if listed.is_empty() {
            return None;
        }
        let first = self.below(listed.len());
        // A different one: of the others, those behind the first move up by one place.
        let second = match listed.len() {
            1 => first,
            count => {
                let other = self.below(count - 1);
                other + usize::from(other >= first)
            }
        };
        let fitting = |place: usize| builders.get(listed[place]).filter(|builder| builder.fits(event.bytes));
        match (fitting(first), fitting(second)) {
            (Some(one), Some(other)) if other.outstanding_bytes < one.outstanding_bytes => Some(other.id),
            (Some(one), _) => Some(one.id),
            (None, Some(other)) => Some(other.id),
            (None, None) => self.ring.next(listed[first].0, event.bytes),
        }
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.ring.on_membership(builders);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.ring.on_load(id, builders);
    }
}
