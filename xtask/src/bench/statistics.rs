//! Ratios of interleaved rounds, their median, and a bootstrap interval of it.

const RESAMPLES: usize = 10_000;

/// What a figure must not be significantly beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Printed for the reader: the peer against itself.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// The median is beyond the bound, but part of the interval is not.
    NotSignificant,
    /// The whole interval is beyond the bound.
    Fail,
    NotJudged,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub n: usize,
    pub median: f64,
    /// 95 % percentile bootstrap of the median.
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// `None` for no values or one that is not finite.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        // A fixed seed: the same record gives the same interval again.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % values.len()
        };
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut sample: Vec<f64> = (0..values.len()).map(|_| values[draw()]).collect();
                median(&mut sample)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
        Some(Estimate {
            n: values.len(),
            median: median(&mut values.to_vec()),
            low: at(0.025),
            high: at(0.975),
        })
    }

    pub fn judge(&self, bound: Bound) -> Verdict {
        let (beyond, wholly) = match bound {
            Bound::None => return Verdict::NotJudged,
            Bound::AtLeast(least) => (self.median < least, self.high < least),
            Bound::AtMost(most) => (self.median > most, self.low > most),
        };
        match (wholly, beyond) {
            (true, _) => Verdict::Fail,
            (false, true) => Verdict::NotSignificant,
            (false, false) => Verdict::Pass,
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_rounds() {
        let few: Vec<f64> = (0..10).map(|round| 0.95 + 0.01 * f64::from(round)).collect();
        let many: Vec<f64> = (0..200).map(|round| 0.95 + 0.01 * f64::from(round % 10)).collect();
        let (few, many) = (Estimate::of(&few).unwrap(), Estimate::of(&many).unwrap());
        assert!(
            (few.median - 0.995).abs() < 1e-9 && few.low < few.median && few.median < few.high,
            "{few:?}"
        );
        assert!(many.high - many.low < few.high - few.low, "{many:?} {few:?}");
    }

    #[test]
    fn only_an_interval_wholly_beyond_the_bound_fails() {
        let estimate = Estimate { n: 20, median: 0.96, low: 0.94, high: 0.98 };
        assert_eq!(estimate.judge(Bound::AtLeast(0.97)), Verdict::NotSignificant);
        assert_eq!(Estimate { high: 0.969, ..estimate }.judge(Bound::AtLeast(0.97)), Verdict::Fail);
        assert_eq!(estimate.judge(Bound::AtLeast(0.9)), Verdict::Pass);
        assert_eq!(estimate.judge(Bound::AtMost(0.95)), Verdict::NotSignificant);
        assert_eq!(estimate.judge(Bound::AtMost(0.93)), Verdict::Fail);
        assert_eq!(estimate.judge(Bound::None), Verdict::NotJudged);
    }

    #[test]
    fn nothing_or_a_value_that_is_none_gives_no_estimate() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
    }
}
