//! Quantities with their units, parsed from and printed as the text people write in scenarios.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// A rate on a wire or of payload, in bits (never bytes) per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitsPerSecond(pub u64);

/// A size of a buffer, file or message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hertz(pub f64);

/// Why a text is not the quantity asked for; the text says what would have been.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct UnitError {
    pub problem: String,
}

fn refuse(problem: String) -> UnitError {
    UnitError { problem }
}

/// Splits `12.5MiB` into its number and `MiB`.
fn number_and_unit(text: &str) -> Result<(f64, &str), UnitError> {
    let trimmed = text.trim();
    let end = trimmed
        .char_indices()
        .find(|(index, letter)| {
            let exponent_sign = *index > 0
                && matches!(letter, '+' | '-')
                && matches!(trimmed.as_bytes()[index - 1], b'e' | b'E');
            let exponent = matches!(letter, 'e' | 'E')
                && trimmed[index + 1..]
                    .starts_with(|next: char| next.is_ascii_digit() || next == '-' || next == '+');
            let sign = *index == 0 && matches!(letter, '+' | '-');
            !(letter.is_ascii_digit()
                || *letter == '.'
                || *letter == '_'
                || exponent
                || exponent_sign
                || sign)
        })
        .map_or(trimmed.len(), |(index, _)| index);
    let digits = trimmed[..end].replace('_', "");
    let number: f64 = digits.parse().map_err(|_| refuse(format!("{text:?} does not start with a number")))?;
    if !number.is_finite() {
        return Err(refuse(format!("{text:?} is not a finite number")));
    }
    Ok((number, trimmed[end..].trim_start()))
}

fn scaled(text: &str, units: &[(&str, f64)], what: &str, example: &str) -> Result<f64, UnitError> {
    let (number, unit) = number_and_unit(text)?;
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => Ok(number * factor),
        None => {
            let known: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            let found =
                if unit.is_empty() { "has no unit".to_owned() } else { format!("has the unit {unit:?}") };
            Err(refuse(format!(
                "{text:?} {found}; {what} is written like {example:?} (units: {})",
                known.join(" ")
            )))
        }
    }
}

fn whole(value: f64, text: &str) -> Result<u64, UnitError> {
    if value < 0.0 {
        return Err(refuse(format!("{text:?} is negative")));
    }
    if value > 9.0e18 {
        return Err(refuse(format!("{text:?} is too large")));
    }
    Ok(value.round() as u64)
}

const RATES: &[(&str, f64)] =
    &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
/// What disks do.
const BYTE_RATES: &[(&str, f64)] = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("KiB/s", 1024.0),
    ("MiB/s", 1048576.0),
    ("GiB/s", 1073741824.0),
];
const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
];
const TIMES: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];
const FREQUENCIES: &[(&str, f64)] = &[("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6)];
const RATIOS: &[(&str, f64)] = &[("%", 0.01), ("ppm", 1e-6), ("", 1.0)];

impl BitsPerSecond {
    /// Reads `1Gbit/s`, or `120MB/s`. Errors: no number, no such unit, negative, zero.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let in_bytes =
            BYTE_RATES.iter().any(|(unit, _)| text.trim_end().ends_with(unit) && !text.contains("bit"));
        let scaled = match in_bytes {
            true => scaled(text, BYTE_RATES, "a rate", "120MB/s")? * 8.0,
            false => scaled(text, RATES, "a rate", "1Gbit/s")?,
        };
        let value = whole(scaled, text)?;
        if value == 0 {
            return Err(refuse(format!("{text:?} is no rate at all; for a cut use a fault with `outage`")));
        }
        Ok(BitsPerSecond(value))
    }
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// Time on the wire of `bytes` bytes, rounded up to a nanosecond.
    pub fn time_of(self, bytes: u64) -> Duration {
        let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.0.max(1)));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Bytes {
    /// Reads `64KiB`, `3MB`, `58000B`.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        Ok(Bytes(whole(scaled(text, SIZES, "a size", "64KiB")?, text)?))
    }
}

impl Hertz {
    /// Reads `200Hz`. Errors: zero or less.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let value = scaled(text, FREQUENCIES, "a frequency", "200Hz")?;
        if value <= 0.0 {
            return Err(refuse(format!("{text:?} is not above zero")));
        }
        Ok(Hertz(value))
    }
}

/// Reads `16ms`, `0.54ms`, `20us`, `2min`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    Ok(Duration::from_nanos(whole(scaled(text, TIMES, "a time", "16ms")?, text)?))
}

/// Reads `2%`, `820ppm` or a plain number; may be negative (a criterion's bound may be).
pub fn parse_ratio(text: &str) -> Result<f64, UnitError> {
    scaled(text, RATIOS, "a ratio", "2%")
}

/// Any quantity as a plain number in its base unit (bit/s, bytes, seconds, hertz, ratio) with that unit's name as
/// metrics use it. For bounds of criteria, where the metric's unit decides which is meant.
pub fn parse_any(text: &str) -> Result<(f64, &'static str), UnitError> {
    let (number, unit) = number_and_unit(text)?;
    for (units, base, divide) in [
        (RATES, "bit/s", 1.0),
        (BYTE_RATES, "B/s", 1.0),
        (SIZES, "B", 1.0),
        (TIMES, "s", 1e9),
        (FREQUENCIES, "Hz", 1.0),
        (RATIOS, "1", 1.0),
    ] {
        if let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) {
            return Ok((number * factor / divide, base));
        }
    }
    Err(refuse(format!("{text:?} has the unknown unit {unit:?}")))
}

/// Writes `value` with the largest unit that leaves at least 1 before it, to `digits` significant digits.
fn engineering(value: f64, units: &[(&str, f64)], digits: usize) -> String {
    let magnitude = value.abs();
    let (name, factor) = units.iter().rev().find(|(_, factor)| magnitude >= *factor).unwrap_or(&units[0]);
    let scaled = value / factor;
    // Below 1 the zeros after the point are not significant: 8 ppm is 0.000008, not 0.
    let whole_digits = if scaled == 0.0 { 1 } else { scaled.abs().log10().floor() as i64 + 1 };
    let mut text = format!("{scaled:.*}", (digits as i64 - whole_digits).clamp(0, 12) as usize);
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} {name}")
}

/// A share or a probability for people: `3 %`, `20 ppm`.
pub fn share(ratio: f64) -> String {
    match ratio {
        small if small > 0.0 && small < 1e-3 => format!("{} ppm", human(small * 1e6, "1")),
        other => format!("{} %", human(other * 100.0, "1")),
    }
}

/// A measured value for people: `941.3 Mbit/s`, `16.2 ms`, `3.1 %`. `unit` is a metric's unit (`bit/s`, `s`, `B`,
/// `1`, or a counted noun), four significant digits.
pub fn human(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match unit {
        "bit/s" => engineering(value, RATES, 4),
        "B" => engineering(value, &SIZES[..5], 4),
        "B/s" => engineering(value, &SIZES[..5], 4) + "/s",
        "s" => {
            let seconds = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
            if value == 0.0 { "0 s".to_owned() } else { engineering(value, &seconds, 4) }
        }
        "Hz" => engineering(value, FREQUENCIES, 4),
        "1" | "" => engineering(value, &[("", 1.0)], 4).trim_end().to_owned(),
        other => format!("{} {other}", engineering(value, &[("", 1.0)], 4).trim_end()),
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        exact(self.0, &RATES.iter().map(|(name, factor)| (*name, *factor as u64)).collect::<Vec<_>>(), out)
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        exact(self.0, &SIZES.iter().map(|(name, factor)| (*name, *factor as u64)).collect::<Vec<_>>(), out)
    }
}
impl fmt::Display for Hertz {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}Hz", self.0)
    }
}

/// The text that parses back to exactly this duration.
pub fn duration_text(duration: Duration) -> String {
    let ns = crate::time::nanoseconds(duration);
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (name, factor) = exact_unit(ns, &units);
    format!("{}{name}", ns / factor)
}

fn exact_unit<'a>(value: u64, units: &[(&'a str, u64)]) -> (&'a str, u64) {
    let divides = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    *units.iter().filter(divides).max_by_key(|(_, factor)| *factor).unwrap_or(&units[0])
}

/// The largest unit that divides the value exactly, so that printing and parsing is the identity.
fn exact(value: u64, units: &[(&str, u64)], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (name, factor) = exact_unit(value, units);
    write!(out, "{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_units_of_the_scenario_language_are_read() {
        assert_eq!(BitsPerSecond::parse("1Gbit/s").unwrap().0, 1_000_000_000);
        assert_eq!(BitsPerSecond::parse("0.5 Mbit/s").unwrap().0, 500_000);
        assert_eq!(Bytes::parse("64KiB").unwrap().0, 65_536);
        assert_eq!(Bytes::parse("58000B").unwrap().0, 58_000);
        assert_eq!(parse_duration("0.54ms").unwrap(), Duration::from_micros(540));
        assert_eq!(parse_duration("0us").unwrap(), Duration::ZERO);
        assert!((parse_ratio("820ppm").unwrap() - 0.00082).abs() < 1e-12);
        assert_eq!(parse_ratio("2%").unwrap(), 0.02);
        assert_eq!(parse_any("16.6ms").unwrap(), (0.0166, "s"));
        assert_eq!(parse_any("-2%").unwrap(), (-0.02, "1"));
    }

    #[test]
    fn a_quantity_without_its_unit_is_refused_with_an_example() {
        let problem = BitsPerSecond::parse("100").unwrap_err().problem;
        assert!(problem.contains("1Gbit/s"), "{problem}");
        assert!(Bytes::parse("3 megabytes").is_err());
        assert!(parse_duration("-1s").is_err());
        assert!(Bytes::parse("1e300MB").is_err());
        assert!(BitsPerSecond::parse("0bit/s").is_err());
    }

    #[test]
    fn people_see_four_digits_and_a_unit() {
        assert_eq!(human(941_300_000.0, "bit/s"), "941.3 Mbit/s");
        assert_eq!(human(0.016_24, "s"), "16.24 ms");
        assert_eq!(human(0.97, "1"), "0.97");
        assert_eq!(human(0.994_21, "1"), "0.9942");
        assert_eq!(human(0.000_008, "1"), "0.000008");
        assert_eq!(human(0.0, "s"), "0 s");
        assert_eq!(human(0.000_05, "s"), "50 µs");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_a_quantity_is_the_identity(value in 1u64..9_000_000_000_000_000) {
            prop_assert_eq!(BitsPerSecond::parse(&BitsPerSecond(value).to_string()).unwrap().0, value);
            prop_assert_eq!(Bytes::parse(&Bytes(value).to_string()).unwrap().0, value);
            let duration = Duration::from_nanos(value);
            prop_assert_eq!(parse_duration(&duration_text(duration)).unwrap(), duration);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,40}") {
            let _ = (BitsPerSecond::parse(&text), Bytes::parse(&text), Hertz::parse(&text));
            let _ = (parse_duration(&text), parse_ratio(&text), parse_any(&text));
        }
    }
}
