//! Probabilities that are drawn from a link's own generators.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_core::seed;

pub(crate) type Generator = Xoshiro256PlusPlus;

/// The generator of one cause on one link: split from the run's seed by both names, so that no cause reshuffles another.
pub(crate) fn generator(run_seed: u64, name: &str) -> Generator {
    Generator::seed_from_u64(seed::split(run_seed, name))
}

/// A probability as a share of 2^53 draws. What is not a probability never hits (below 0, NaN) or always does (above 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(probability: f64) -> Chance {
        Chance((probability * (1_u64 << 53) as f64).ceil() as u64)
    }
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
    /// One draw.
    #[inline]
    pub(crate) fn hits(self, generator: &mut Generator) -> bool {
        generator.next_u64() >> 11 < self.0
    }
}

/// Evenly from 0 to `most`, both included; one draw.
#[inline]
pub(crate) fn up_to(most: u64, generator: &mut Generator) -> u64 {
    ((u128::from(generator.next_u64()) * (u128::from(most) + 1)) >> 64) as u64
}

/// Takes a share of what it is asked about, evenly spread: after `n` questions it has taken `n · share`, rounded down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    share: u64,
    due: u64,
}

const ONE: u64 = 1 << 53;

impl Spread {
    pub(crate) fn of(share: f64) -> Spread {
        // One unit more, because 0.7 as a float is a little less than seven tenths, and ten of it have to make seven. Shares that
        // people write come out exactly for the first 2^40 questions and more.
        let share = if share > 0.0 { ((share * ONE as f64) as u64).saturating_add(1).min(ONE) } else { 0 };
        Spread { share, due: 0 }
    }
    #[inline]
    pub(crate) fn takes(&mut self) -> bool {
        self.due += self.share;
        let taken = self.due >= ONE;
        if taken {
            self.due -= ONE;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: fabric.md#fabric-25
    #[test]
    fn a_share_is_spread_evenly_and_exactly() {
        for (parts, of) in [(1, 2), (1, 10), (1, 3), (2, 3), (7, 10), (99, 100), (0, 1), (1, 1)] {
            let mut spread = Spread::of(f64::from(parts) / f64::from(of));
            let mut taken = 0;
            for asked in 1..=300_000 {
                taken += u32::from(spread.takes());
                assert_eq!(taken, asked * parts / of, "{parts}/{of} of {asked}");
            }
        }
        assert!(!Spread::of(f64::NAN).takes() && !Spread::of(-1.0).takes() && Spread::of(9.0).takes());
    }

    #[test]
    fn draws_up_to_a_bound_reach_both_its_ends() {
        let mut generator = generator(1, "jitter");
        let mut seen = [0; 4];
        (0..4_000).for_each(|_| seen[up_to(3, &mut generator) as usize] += 1);
        assert!(seen.iter().all(|count| (900..1_100).contains(count)), "{seen:?}");
        assert_eq!(up_to(0, &mut generator), 0);
        up_to(u64::MAX, &mut generator);
    }
}
