//! Geometric ranges of quantities, as sweeps and flags write them: `1B..2GB`, `1..16*2`.

use crate::param::{Kind, Value, parse_default};
use crate::units::UnitError;

/// More values than any run has configurations.
const VALUES_MAX: usize = 10_000;

/// Whether a text of this kind is to be read by `values`.
pub fn is_range(kind: Kind, text: &str) -> bool {
    let quantity = matches!(
        kind,
        Kind::Count | Kind::Ratio | Kind::Rate | Kind::Size | Kind::Duration | Kind::Frequency
    );
    quantity && text.contains("..")
}

/// `A..B` is A, ten times as much, and so on, and B; in `A..B*FACTOR` each value is `FACTOR` times the one before. Values are rounded to what the
/// kind is counted in, none comes twice. A text without `..` is one value.
pub fn values(kind: Kind, text: &str) -> Result<Vec<Value>, UnitError> {
    let refuse = |problem: String| Err(UnitError { problem: format!("{text:?}: {problem}") });
    let Some((from, rest)) = text.split_once("..") else {
        return Ok(vec![parse_default(kind, text.trim())?]);
    };
    let (to, factor) = rest.split_once('*').unwrap_or((rest, "10"));
    let [first, last] = [from, to].map(|end| parse_default(kind, end.trim()));
    let (first, last) = (first?, last?);
    let (Some(from), Some(to)) = (first.as_number(), last.as_number()) else {
        return refuse("only quantities have ranges".to_owned());
    };
    let factor = match factor.trim().parse::<f64>() {
        Ok(factor) if factor >= 1.001 && factor.is_finite() => factor,
        _ => return refuse(format!("{:?} is no factor above 1", factor.trim())),
    };
    if from <= 0.0 || from > to {
        return refuse("a range goes from a value above zero to a larger one".to_owned());
    }
    let mut all = vec![first.clone()];
    for step in 1.. {
        let number = from * factor.powi(step);
        // The last step is never a mere rounding of the factor's powers.
        if number >= to * (1.0 - 1e-9) {
            break;
        }
        if all.len() >= VALUES_MAX {
            return refuse(format!("more than {VALUES_MAX} values"));
        }
        all.extend(first.with_number(number).filter(|value| all.last() != Some(value)));
    }
    if all.last() != Some(&last) {
        all.push(last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(kind: Kind, text: &str) -> Vec<f64> {
        values(kind, text).unwrap().iter().map(|value| value.as_number().unwrap()).collect()
    }

    #[test]
    fn a_range_has_both_ends_and_what_the_factor_puts_between_them() {
        let sizes = |text| numbers(Kind::Size, text);
        assert_eq!(sizes("30MB"), [3e7]);
        assert_eq!(sizes("1B..2kB"), [1.0, 10.0, 100.0, 1e3, 2e3]);
        assert_eq!(sizes("1KiB..4KiB*2"), [1024.0, 2048.0, 4096.0]);
        assert_eq!(sizes("5B .. 5B"), [5.0]);
        assert_eq!(sizes("1B..100B * 2.1544347"), [1.0, 2.0, 5.0, 10.0, 22.0, 46.0, 100.0]);
        // Whole bytes, and none twice.
        assert_eq!(sizes("1B..3B*1.3"), [1.0, 2.0, 3.0]);
        assert_eq!(numbers(Kind::Count, "1..16*2"), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(numbers(Kind::Rate, "10Mbit/s..1Gbit/s"), [1e7, 1e8, 1e9]);
        assert_eq!(numbers(Kind::Duration, "1ms..1s"), [0.001, 0.01, 0.1, 1.0]);
    }

    #[test]
    fn what_is_no_range_is_refused_in_words() {
        for bad in
            ["1B..", "2kB..1kB", "0B..1kB", "1B..1kB*1", "1B..1kB*x", "1B..1kB*inf", "1B..2GB*1.001", "x"]
        {
            let refused = values(Kind::Size, bad).unwrap_err().problem;
            assert!(refused.len() > bad.len(), "{bad}: {refused}");
        }
        assert!(!is_range(Kind::Text, "a..b") && !is_range(Kind::Size, "1B"));
    }
}
