//! A criterion that is asked of a share of the trials, each by itself.

use super::{Base, Judge, Outcome, holds, margin, why};
use crate::metric::Metric;
use crate::statistics::{INTERVAL_TRIALS_MIN, Pool, Resampler, Statistic, Uncertainty, interval95, range};
use crate::units::human;

/// Trials that must keep the bound where `share` of `count` is asked; rounding does not ask for one more.
pub(super) fn needed(share: f64, count: usize) -> usize {
    ((share * count as f64 - 1e-9).ceil() as usize).clamp(1, count.max(1))
}

pub(super) struct Asked<'a> {
    pub judge: &'a Judge<'a>,
    pub id: &'a str,
    pub metric: &'a Metric,
    pub entity: Option<&'a str>,
    pub statistic: Statistic,
    pub share: f64,
}

impl Asked<'_> {
    /// Judges the trial that decides: as many as are asked for are at least as good as it.
    pub fn outcome(
        &self,
        pool: &Pool,
        base: Option<&Base>,
        combine: &dyn Fn(f64, Option<f64>) -> Option<f64>,
    ) -> Result<Outcome, String> {
        let criterion = self.judge.criterion;
        let base = match base {
            Some(Base::Constant(value)) => Some(*value),
            Some(Base::Pool(pool)) => {
                Some(pool.estimate(self.statistic).ok_or("what it is compared with has no value")?)
            }
            None => None,
        };
        let of_trial = |trial: usize| pool.of_trial(self.statistic, trial).and_then(|own| combine(own, base));
        let mut values: Vec<(f64, usize)> = Vec::new();
        for trial in 0..pool.trial_count() {
            values.push((of_trial(trial).ok_or("a trial has no value to compare")?, trial));
        }
        // The best first, by their distance to the bound.
        values.sort_by(|a, b| margin(&criterion.bound, b.0).total_cmp(&margin(&criterion.bound, a.0)));
        let count = values.len();
        let needed = needed(self.share, count);
        let value = values[needed - 1].0;
        let good = values.iter().filter(|(value, _)| holds(&criterion.bound, *value)).count();
        let uncertainty = if count >= INTERVAL_TRIALS_MIN {
            let seed = self.judge.seed(self.id, self.metric, self.entity);
            let resample = |resampler: &mut Resampler| {
                let weights = resampler.weights(count);
                let mut seen = 0.0;
                let reached = |(_, trial): &&(f64, usize)| {
                    seen += weights[*trial];
                    seen >= needed as f64
                };
                values.iter().find(reached).map(|(value, _)| *value)
            };
            Uncertainty { ci95: interval95(seed, resample), range: None }
        } else {
            Uncertainty { ci95: None, range: range(values.iter().map(|(value, _)| *value)) }
        };
        let passes = holds(&criterion.bound, value);
        let whose = self.entity.map_or(String::new(), |entity| format!(" on {entity}"));
        let unit = self.judge.unit();
        Ok(Outcome {
            verdict: self.judge.verdict(passes, uncertainty),
            margin: margin(&criterion.bound, value),
            value: Some(value.into()),
            uncertainty,
            why: format!(
                "{good} of {count} trials keep to {}{whose} and {needed} ({}) are asked, so {} decides; {}",
                why::bound_text(&criterion.bound, unit),
                human(self.share * 100.0, "%"),
                why::told_apart(value, &criterion.bound, unit),
                why::trust(uncertainty, &criterion.bound, unit, count),
            ),
            fit: None,
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_share_asks_for_whole_trials_and_never_for_one_more_by_rounding() {
        let needed: Vec<usize> = [(0.95, 20), (0.95, 10), (0.7, 10), (1.0, 3), (0.001, 5), (0.75, 4)]
            .map(|(share, count)| super::needed(share, count))
            .to_vec();
        assert_eq!(needed, [19, 10, 7, 3, 1, 3]);
    }
}
