//! What a trial draws from. Nothing of a configuration is in it, so that those that are compared draw alike.

use weir_core::seed;

/// Of one trial's parts, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialSeed(u64);

impl TrialSeed {
    /// `run` is the scenario's seed.
    pub fn new(run: u64, trial: u32) -> TrialSeed {
        TrialSeed(seed::split(run, &format!("trial {trial}")))
    }

    pub fn step(self, name: &str) -> u64 {
        seed::split(self.0, &format!("step {name}"))
    }

    pub fn faults(self) -> u64 {
        seed::split(self.0, "faults")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // Spec: scenario.md#step-6
    #[test]
    fn every_step_of_every_trial_of_every_run_draws_anew_and_so_do_its_faults() {
        let mut all = BTreeSet::new();
        for (run, trial) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
            let own = TrialSeed::new(run, trial);
            all.extend([own.step("load"), own.step("build"), own.faults()]);
        }
        assert_eq!(all.len(), 12);
        assert_eq!(TrialSeed::new(1, 0), TrialSeed::new(1, 0));
    }
}
