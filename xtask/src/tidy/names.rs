//! Where a type says nothing of the unit, the name does.

use super::source;
use super::{Finding, Tree};

/// Last words of names that hold a quantity.
const QUANTITIES: [&str; 14] = [
    "delay",
    "latency",
    "rtt",
    "jitter",
    "duration",
    "interval",
    "timeout",
    "elapsed",
    "rate",
    "goodput",
    "throughput",
    "size",
    "length",
    "capacity",
];
const NUMBERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i32", "i64", "i128", "isize", "f32", "f64"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (index, line) in source::lines(&file.path, &file.text).iter().enumerate() {
            for word in line.words().filter(|word| measured_as_width(word)) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    format!("{word}: a measured rate is called goodput, a configured one rate"),
                ));
            }
            if let Some(name) = field_without_unit(&line.code) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    format!("{name}: a plain number needs its unit in the name, such as {name}_ns, {name}_bytes, {name}_bits_per_second"),
                ));
            }
        }
    }
    findings
}

/// The bandwidth-delay product keeps its name; nothing else is called so.
fn measured_as_width(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    lower.contains(concat!("band", "width"))
        && !lower.replace('_', "").contains(concat!("band", "widthdelay"))
}

/// The name in `pub delay: u64,`: public fields only, since they are what travels.
fn field_without_unit(code: &str) -> Option<&str> {
    let rest = code.trim().strip_prefix("pub ")?;
    let (name, kind) = rest.split_once(':')?;
    let name = name.trim();
    if name.is_empty()
        || !name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    {
        return None;
    }
    let kind = kind.trim().trim_end_matches(',').trim();
    let kind = kind.strip_prefix("Option<").and_then(|inner| inner.strip_suffix('>')).unwrap_or(kind);
    let last = name.rsplit('_').next().unwrap_or(name);
    (NUMBERS.contains(&kind) && QUANTITIES.contains(&last)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/x/src/a.rs", text)])).len()
    }

    #[test]
    fn a_public_number_without_a_unit_is_refused() {
        for bad in
            ["    pub delay: u64,", "pub max_rate: f64,", "pub queue_size: Option<u32>,", "pub rtt: u128"]
        {
            assert_eq!(count(bad), 1, "{bad}");
        }
    }

    #[test]
    fn types_units_and_counts_carry_the_meaning() {
        for good in [
            "pub delay_ns: u64,",
            "pub rate: BitsPerSecond,",
            "pub delay: Duration,",
            "pub count: u64,",
            "let delay: u64 = 3;",
            "pub fn rate(x: u64) -> u64 {",
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
    }

    #[test]
    fn a_rate_is_not_called_a_width() {
        assert_eq!(count("let bandwidth = 3;"), 1);
        assert_eq!(count("struct PeakBandwidth;"), 1);
        assert_eq!(count("fn bandwidth_delay_product() {}"), 0);
        assert_eq!(count("// bandwidth in a comment"), 0);
    }
}
