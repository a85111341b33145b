//! What sections of jobs come to together.

use super::Section;
use std::collections::BTreeMap;
use weir_core::record::{Observed, Row};

/// Sections of a kind by their round: what all jobs did after the same barrier.
pub fn of_rounds<'a>(sections: &'a [Section], kind: &str) -> BTreeMap<u32, Vec<&'a Section>> {
    let mut rounds: BTreeMap<u32, Vec<&Section>> = BTreeMap::new();
    for section in sections.iter().filter(|section| section.kind == kind) {
        rounds.entry(section.round).or_default().push(section);
    }
    rounds
}

/// `None` of none.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

pub fn value(entity: &str, metric: &str, value: f64) -> Row {
    Row { entity: entity.to_owned(), metric: metric.to_owned(), value: Observed::Value(value) }
}
