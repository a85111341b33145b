//! Statistics over trials: pooled values, their summaries, and intervals that resample trials.

use crate::record::{Histogram, Observed};
use std::collections::BTreeMap;

/// Resamples of a bootstrap interval.
pub const RESAMPLES: usize = 2_000;
/// Fewer trials than this have no interval: five values have at most 126 different resamples.
pub const INTERVAL_TRIALS_MIN: usize = 5;

/// What is taken of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Mean,
    Min,
    Max,
    /// Standard deviation (of a sample) over mean.
    Cv,
    /// (max − min) / mean
    Spread,
    /// 0 to 1; interpolated between ranks (Hyndman, Fan, American Statistician 50(4), 1996, type 7).
    Quantile(f64),
}

impl Statistic {
    /// Reads `mean`, `median`, `min`, `max`, `cv`, `spread`, `p1` to `p99`.
    pub fn parse(name: &str) -> Option<Statistic> {
        Some(match name {
            "mean" => Statistic::Mean,
            "median" => Statistic::Quantile(0.5),
            "min" => Statistic::Min,
            "max" => Statistic::Max,
            "cv" => Statistic::Cv,
            "spread" => Statistic::Spread,
            _ => {
                let digits = name.strip_prefix('p').filter(|digits| digits.len() <= 2)?;
                let percent: u8 = digits.parse().ok().filter(|percent| (1..=99).contains(percent))?;
                Statistic::Quantile(f64::from(percent) / 100.0)
            }
        })
    }
}

/// One trial's count, sum, extremes and sum of squares around `Pool::centre`.
#[derive(Clone, Copy, Debug)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

/// The values of one metric in all valid trials of a point, in the metric's unit, each knowing its trial.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    trials: Vec<Moments>,
    /// `(value, trial, count)`, by value.
    entries: Vec<(f64, usize, f64)>,
    /// Squares are kept around this value, so that a small deviation of large values survives.
    centre: f64,
}

impl Pool {
    /// Pools the observations of each trial: `[trial][observation]`. Trials without any are left out. Histograms are of
    /// nanoseconds and become seconds.
    pub fn new(trials: &[Vec<&Observed>]) -> Pool {
        let mut pool = Pool::default();
        let mut sums: Vec<(f64, f64)> = Vec::new();
        for observations in trials {
            let trial = sums.len();
            let mut moments =
                Moments { count: 0.0, sum: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };
            for observed in observations {
                match observed {
                    Observed::Value(value) if value.is_finite() => {
                        moments.count += 1.0;
                        moments.sum += value;
                        moments.min = moments.min.min(*value);
                        moments.max = moments.max.max(*value);
                        pool.entries.push((*value, trial, 1.0));
                    }
                    Observed::Value(_) => {}
                    Observed::Histogram(histogram) => pool.add_histogram(histogram, trial, &mut moments),
                }
            }
            if moments.count > 0.0 {
                sums.push((moments.count, moments.sum));
                pool.trials.push(moments);
            }
        }
        pool.entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (count, sum) = sums.iter().fold((0.0, 0.0), |all, trial| (all.0 + trial.0, all.1 + trial.1));
        pool.centre = if count > 0.0 { sum / count } else { 0.0 };
        for (value, trial, count) in &pool.entries {
            pool.trials[*trial].squares += count * (value - pool.centre).powi(2);
        }
        pool
    }

    /// A bucket's value is its upper edge; the exact extremes and sum are taken where they are known.
    fn add_histogram(&mut self, histogram: &Histogram, trial: usize, moments: &mut Moments) {
        let (least, most) = (histogram.min_ns as f64 / 1e9, histogram.max_ns as f64 / 1e9);
        let mut count = 0.0;
        for (value_ns, times) in
            histogram.value_ns.iter().zip(&histogram.count).filter(|(_, times)| **times > 0)
        {
            let value = (*value_ns as f64 / 1e9).max(least).min(most.max(least));
            self.entries.push((value, trial, *times as f64));
            count += *times as f64;
        }
        if count > 0.0 {
            moments.count += count;
            moments.sum += histogram.sum_ns / 1e9;
            moments.min = moments.min.min(least);
            moments.max = moments.max.max(most);
        }
    }

    /// Trials that have a value.
    pub fn trial_count(&self) -> usize {
        self.trials.len()
    }
    /// Values, of all trials together.
    pub fn count(&self) -> u64 {
        self.trials.iter().map(|trial| trial.count).sum::<f64>() as u64
    }

    /// The statistic of all values; `None` without any, or where it is not defined (a spread around a mean of zero).
    pub fn estimate(&self, statistic: Statistic) -> Option<f64> {
        self.weighted(statistic, &vec![1.0; self.trials.len()])
    }

    /// The statistic of one trial's values alone.
    pub fn of_trial(&self, statistic: Statistic, trial: usize) -> Option<f64> {
        let mut weights = vec![0.0; self.trials.len()];
        *weights.get_mut(trial)? = 1.0;
        self.weighted(statistic, &weights)
    }

    /// The statistic where trial `i` counts `weights[i]` times.
    pub fn weighted(&self, statistic: Statistic, weights: &[f64]) -> Option<f64> {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for (trial, weight) in self.trials.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            count += weight * trial.count;
            sum += weight * trial.sum;
            squares += weight * trial.squares;
            min = min.min(trial.min);
            max = max.max(trial.max);
        }
        if count <= 0.0 {
            return None;
        }
        let mean = sum / count;
        let value = match statistic {
            Statistic::Mean => mean,
            Statistic::Min => min,
            Statistic::Max => max,
            Statistic::Spread => (max - min) / mean,
            Statistic::Cv => {
                let around_mean = (squares - count * (mean - self.centre).powi(2)).max(0.0);
                if count > 1.0 { (around_mean / (count - 1.0)).sqrt() / mean } else { 0.0 }
            }
            Statistic::Quantile(share) => self.quantile(share, count, weights),
        };
        value.is_finite().then_some(value)
    }

    fn quantile(&self, share: f64, count: f64, weights: &[f64]) -> f64 {
        let rank = (count - 1.0) * share;
        let (below, fraction) = (rank.floor(), rank.fract());
        let mut seen = 0.0;
        let mut lower = None;
        for (value, trial, times) in &self.entries {
            seen += times * weights[*trial];
            if lower.is_none() && seen > below {
                lower = Some(*value);
            }
            if let Some(lower) = lower
                && (fraction == 0.0 || seen > below + 1.0)
            {
                return lower + (value - lower) * fraction;
            }
        }
        lower.unwrap_or(f64::NAN)
    }
}

/// Draws trials with replacement; the same seed draws the same (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Resampler(u64);

impl Resampler {
    pub fn new(seed: u64) -> Self {
        Resampler(seed)
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// A number below `count`, which is not nought.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
    /// How often each of `count` trials was drawn in `count` draws.
    pub fn weights(&mut self, count: usize) -> Vec<f64> {
        let mut weights = vec![0.0; count];
        for _ in 0..count {
            weights[self.below(count)] += 1.0;
        }
        weights
    }
}

/// 95 % percentile interval of what `resample` gives in 2,000 resamples (Efron, Tibshirani, An Introduction to the
/// Bootstrap, 1993, chapter 13). `None` when a resample has no value.
pub fn interval95(seed: u64, mut resample: impl FnMut(&mut Resampler) -> Option<f64>) -> Option<[f64; 2]> {
    let mut resampler = Resampler::new(seed);
    let mut estimates = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        estimates.push(resample(&mut resampler)?);
    }
    estimates.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (RESAMPLES - 1) as f64 * share;
        let below = estimates[rank.floor() as usize];
        below + (estimates[rank.ceil() as usize] - below) * rank.fract()
    };
    Some([at(0.025), at(0.975)])
}

/// How far an estimate can be trusted: an interval from five trials on, the range over the trials below.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uncertainty {
    pub ci95: Option<[f64; 2]>,
    pub range: Option<[f64; 2]>,
}

impl Uncertainty {
    /// Of one statistic of one pool.
    pub fn of(pool: &Pool, statistic: Statistic, seed: u64) -> Uncertainty {
        let count = pool.trial_count();
        if count >= INTERVAL_TRIALS_MIN {
            let resample = |resampler: &mut Resampler| pool.weighted(statistic, &resampler.weights(count));
            return Uncertainty { ci95: interval95(seed, resample), range: None };
        }
        let values = (0..count).filter_map(|trial| pool.of_trial(statistic, trial));
        Uncertainty { ci95: None, range: range(values) }
    }
}

/// Least and largest; `None` without values.
pub fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.fold(None, |range: Option<[f64; 2]>, value| match range {
        Some([least, most]) => Some([least.min(value), most.max(value)]),
        None => Some([value, value]),
    })
}

/// The most frequent of some things, with its count; the first in order where counts tie.
pub fn most_frequent<T: Ord + Copy>(things: impl Iterator<Item = T>) -> Option<(T, usize)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for thing in things {
        *counts.entry(thing).or_default() += 1;
    }
    let most = *counts.values().max()?;
    counts.into_iter().find(|(_, count)| *count == most)
}

/// Jain's fairness index of rates (Jain, Chiu and Hawe 1984): 1 where all are alike, 1/n where one of n has everything; `None` without one
/// that is more than 0.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(trials: &[&[f64]]) -> Pool {
        let observed: Vec<Vec<Observed>> =
            trials.iter().map(|trial| trial.iter().map(|value| Observed::Value(*value)).collect()).collect();
        Pool::new(&observed.iter().map(|trial| trial.iter().collect()).collect::<Vec<_>>())
    }

    fn histogram(values_ns: &[(u64, u64)]) -> Observed {
        Observed::Histogram(Histogram {
            value_ns: values_ns.iter().map(|(value, _)| *value).collect(),
            count: values_ns.iter().map(|(_, count)| *count).collect(),
            min_ns: values_ns[0].0,
            max_ns: values_ns[values_ns.len() - 1].0,
            sum_ns: values_ns.iter().map(|(value, count)| (*value * *count) as f64).sum(),
        })
    }

    // Spec: judging.md#pool-3
    #[test]
    fn every_statistic_of_one_to_ten_is_what_the_textbook_says() {
        let pool = pool(&[&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]]);
        let of = |name: &str| pool.estimate(Statistic::parse(name).unwrap()).unwrap();
        assert_eq!((of("mean"), of("median"), of("min"), of("max")), (5.5, 5.5, 1.0, 10.0));
        assert!((of("p90") - 9.1).abs() < 1e-12 && (of("p25") - 3.25).abs() < 1e-12);
        assert!((of("cv") - 3.027_650_354_097_491_7 / 5.5).abs() < 1e-12);
        assert!((of("spread") - 9.0 / 5.5).abs() < 1e-12);
        assert_eq!((pool.count(), pool.trial_count()), (10, 2));
        assert_eq!(Statistic::parse("p0"), None);
        assert_eq!(Statistic::parse("p100"), None);
    }

    #[test]
    fn the_spread_of_large_values_survives_their_size() {
        let pool = pool(&[&[1e9 + 1.0, 1e9 - 1.0], &[1e9 + 1.0, 1e9 - 1.0]]);
        let cv = pool.estimate(Statistic::Cv).unwrap();
        assert!((cv * 1e9 - (4.0f64 / 3.0).sqrt()).abs() < 1e-3, "{cv}");
    }

    // Spec: judging.md#pool-1
    #[test]
    fn histograms_of_trials_are_pooled_and_become_seconds() {
        let (one, two) = (histogram(&[(1_000_000, 90), (3_000_000, 10)]), histogram(&[(2_000_000, 100)]));
        let pool = Pool::new(&[vec![&one], vec![&two]]);
        assert_eq!(pool.count(), 200);
        assert_eq!(pool.estimate(Statistic::Quantile(0.5)), Some(0.002));
        assert_eq!(pool.estimate(Statistic::Quantile(0.99)), Some(0.003));
        assert_eq!(pool.estimate(Statistic::Min), Some(0.001));
        assert!((pool.estimate(Statistic::Mean).unwrap() - 0.0016).abs() < 1e-12);
        assert_eq!(pool.of_trial(Statistic::Quantile(0.5), 0), Some(0.001));
    }

    #[test]
    fn a_trial_without_values_is_no_trial() {
        let pool = pool(&[&[1.0], &[], &[f64::NAN], &[3.0]]);
        assert_eq!(pool.trial_count(), 2);
        assert_eq!(pool.estimate(Statistic::Mean), Some(2.0));
        assert_eq!(Pool::new(&[]).estimate(Statistic::Mean), None);
        assert_eq!(Pool::new(&[]).estimate(Statistic::Quantile(0.5)), None);
    }

    // Spec: judging.md#interval-1
    #[test]
    fn intervals_resample_trials_and_not_the_samples_within_them() {
        // A thousand samples a trial, all alike within a trial: only the trials vary.
        let trials: Vec<Vec<f64>> = (0..6).map(|trial| vec![f64::from(trial); 1000]).collect();
        let slices: Vec<&[f64]> = trials.iter().map(Vec::as_slice).collect();
        let [low, high] = Uncertainty::of(&pool(&slices), Statistic::Mean, 1).ci95.unwrap();
        let of_means =
            Uncertainty::of(&pool(&[&[0.0], &[1.0], &[2.0], &[3.0], &[4.0], &[5.0]]), Statistic::Mean, 1);
        assert_eq!(of_means.ci95.unwrap(), [low, high]);
        assert!(high - low > 2.0, "resampling samples would have given a width near 0.09: {low} {high}");
    }

    // Spec: judging.md#interval-2
    #[test]
    fn below_five_trials_the_range_is_given_instead() {
        let four = Uncertainty::of(&pool(&[&[1.0], &[2.0], &[3.0], &[4.0]]), Statistic::Mean, 1);
        assert_eq!(four, Uncertainty { ci95: None, range: Some([1.0, 4.0]) });
        let five = Uncertainty::of(&pool(&[&[1.0], &[2.0], &[3.0], &[4.0], &[5.0]]), Statistic::Mean, 1);
        assert!(five.ci95.is_some() && five.range.is_none());
    }

    #[test]
    fn the_interval_of_a_mean_covers_it_about_as_often_as_it_says() {
        // 400 experiments of 20 trials, uniform on 0..1, whose mean is 0.5; the percentile interval of a mean of 20
        // covers in about 93 % of them.
        let mut draw = Resampler::new(7);
        let covered = (0..400u64)
            .filter(|experiment| {
                let values: Vec<f64> = (0..20).map(|_| draw.next() as f64 / u64::MAX as f64).collect();
                let slices: Vec<&[f64]> = values.chunks(1).collect();
                let [low, high] = Uncertainty::of(&pool(&slices), Statistic::Mean, *experiment).ci95.unwrap();
                (low..=high).contains(&0.5)
            })
            .count();
        assert!((352..=392).contains(&covered), "{covered} of 400");
    }

    // Spec: judging.md#verdict-3
    #[test]
    fn ties_go_to_the_first_in_order() {
        assert_eq!(most_frequent([2, 1, 2, 1].into_iter()), Some((1, 2)));
        assert_eq!(most_frequent(std::iter::empty::<u8>()), None);
    }

    proptest! {
        #[test]
        fn a_weighted_pool_says_what_the_repeated_trials_say(
            trials in prop::collection::vec(prop::collection::vec(-1e6f64..1e6, 1..5), 1..6),
            seed in any::<u64>(),
        ) {
            let slices: Vec<&[f64]> = trials.iter().map(Vec::as_slice).collect();
            let weights = Resampler::new(seed).weights(trials.len());
            let repeated: Vec<&[f64]> = slices
                .iter()
                .zip(&weights)
                .flat_map(|(trial, weight)| std::iter::repeat_n(*trial, *weight as usize))
                .collect();
            for name in ["mean", "median", "p7", "p99", "min", "max"] {
                let statistic = Statistic::parse(name).unwrap();
                let weighted = pool(&slices).weighted(statistic, &weights).unwrap();
                let plain = pool(&repeated).estimate(statistic).unwrap();
                prop_assert!((weighted - plain).abs() <= 1e-6, "{name}: {weighted} and {plain}");
            }
        }

        #[test]
        fn quantiles_lie_between_the_extremes(
            values in prop::collection::vec(-1e9f64..1e9, 1..40), share in 0.0f64..1.0,
        ) {
            let pool = pool(&[&values]);
            let quantile = pool.estimate(Statistic::Quantile(share)).unwrap();
            prop_assert!(quantile >= pool.estimate(Statistic::Min).unwrap());
            prop_assert!(quantile <= pool.estimate(Statistic::Max).unwrap());
        }
    }

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_one_that_has_all() {
        assert_eq!(jain(&[5.0; 8]), Some(1.0));
        assert_eq!(jain(&[0.0, 0.0, 0.0, 7.0]), Some(0.25));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
    }
}
