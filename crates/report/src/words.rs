//! How results are said: shared by the terminal and the page, so that both say the same.

use crate::Folder;
use std::collections::BTreeMap;
use weir_core::record::{CriterionResult, Verdict};
use weir_core::units::human;

/// Always a word beside the sign: neither colour nor a sign alone carries a verdict.
pub(crate) fn verdict_word(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Pass) => "✓ pass",
        Some(Verdict::Fail) => "✗ fail",
        Some(Verdict::Inconclusive) => "? inconclusive",
        None => "… unfinished",
    }
}

/// A criterion's verdict, or the scenario's own word for it.
pub(crate) fn judged_word(criterion: &CriterionResult) -> String {
    match &criterion.otherwise {
        Some(word) => format!("? {word}"),
        None => verdict_word(Some(criterion.verdict)).to_owned(),
    }
}

/// As the summary document writes it.
pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "inconclusive",
    }
}

pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// The first label in real time that the run left.
pub(crate) fn date(folder: &Folder) -> Option<String> {
    let utc = &folder.timeline.first()?.utc;
    // RFC 3339; the fraction of a second is noise in a headline.
    let whole = utc.split('.').next().unwrap_or(utc).trim_end_matches('Z').replace('T', " ");
    Some(format!("{whole} UTC"))
}

pub(crate) fn origin(folder: &Folder) -> Option<&str> {
    let of_summary = folder.summary.as_ref().and_then(|summary| summary.origin.as_deref());
    of_summary.or(folder.plan.as_ref().and_then(|plan| plan.origin.as_deref()))
}

/// `rate 1:10, size 1:10`; `None` when nothing is scaled.
pub(crate) fn scale_text(scale: &BTreeMap<String, f64>) -> Option<String> {
    let parts: Vec<String> =
        scale.iter().map(|(name, factor)| format!("{name} 1:{}", human(*factor, "1"))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// One sentence on what the run showed.
pub(crate) fn statement(folder: &Folder) -> String {
    let valid = folder.valid_count;
    let records = plural(folder.trial_count, "trial of a step", "trials of steps");
    let Some(summary) = &folder.summary else {
        return format!(
            "The run did not finish and was not judged; {records} {} kept, {valid} of them valid.",
            if folder.trial_count == 1 { "was" } else { "were" }
        );
    };
    let decided = || summary.criteria.iter().filter(|it| it.otherwise.is_none());
    let count = |verdict| decided().filter(|it| it.verdict == verdict).count();
    let (passed, failed, open) = (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Inconclusive));
    let all = decided().count();
    let points = plural(summary.points.len(), "point", "points");
    let trials: u64 = summary.points.iter().map(|point| u64::from(point.trials)).sum();
    let valid: u64 = summary.points.iter().map(|point| u64::from(point.valid_trials)).sum();
    let basis = format!("{points}, {valid} of {trials} trials valid");
    let judged = match (passed, failed, open) {
        _ if all == 0 => "No criterion was stated".to_owned(),
        (_, 0, 0) if all == 1 => "The criterion holds".to_owned(),
        (_, 0, 0) => format!("All {all} criteria hold"),
        (_, 0, _) => format!("{passed} of {all} criteria hold, {open} could not be judged"),
        (_, _, 0) => format!("{failed} of {} missed", plural(all, "criterion is", "criteria are")),
        _ => format!("{failed} of {all} criteria are missed, {open} could not be judged"),
    };
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for word in summary.criteria.iter().filter_map(|it| it.otherwise.as_deref()) {
        *words.entry(word).or_default() += 1;
    }
    let words: String = words.iter().map(|(word, count)| format!(", {count} {word}")).collect();
    format!("{judged}{words}: {basis}.")
}

pub(crate) fn criterion_value(criterion: &CriterionResult) -> String {
    let unit = criterion.unit.as_deref().unwrap_or("1");
    match &criterion.value {
        None => "not measured".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.as_f64().map_or_else(|| value.to_string(), |number| human(number, unit)),
    }
}

/// `≥ 0.95`, `250 ms to 1 s`, `link-rate`.
pub(crate) fn bound_text(criterion: &CriterionResult) -> String {
    let unit = criterion.unit.as_deref().unwrap_or("1");
    let one = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.as_f64().map_or_else(|| other.to_string(), |number| human(number, unit)),
    };
    let parts = criterion.bound.iter().map(|(kind, value)| {
        match (kind.as_str(), value.as_array().map(Vec::as_slice)) {
            ("at_least", _) => format!("≥ {}", one(value)),
            ("at_most", _) => format!("≤ {}", one(value)),
            ("between", Some([low, high])) => format!("{} to {}", one(low), one(high)),
            ("limiting_factor", _) => one(value),
            _ => format!("{kind} {}", one(value)),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// `95 %: 0.962 to 0.968`, or the range over trials; `None` without either.
pub(crate) fn interval_text(
    ci95: Option<[f64; 2]>,
    range: Option<[f64; 2]>,
    unit: Option<&str>,
) -> Option<String> {
    let unit = unit.unwrap_or("1");
    let said = |[low, high]: [f64; 2]| format!("{} to {}", human(low, unit), human(high, unit));
    // The range of a single trial is the value itself.
    let range = range.filter(|[low, high]| low < high);
    ci95.map(|it| format!("95 %: {}", said(it))).or_else(|| range.map(|it| format!("range {}", said(it))))
}

/// A value of a parameter as it was written.
pub(crate) fn parameter_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "–".to_owned(),
        other => other.to_string(),
    }
}

/// A parameter as a number in its base unit with that unit, if it is one.
pub(crate) fn parameter_number(value: &serde_json::Value) -> Option<(f64, &'static str)> {
    match value {
        serde_json::Value::String(text) => weir_core::units::parse_any(text).ok(),
        other => other.as_f64().map(|number| (number, "1")),
    }
    .filter(|(number, _)| number.is_finite())
}

/// `key=value, key=value`
pub(crate) fn parameters_text(parameters: &serde_json::Map<String, serde_json::Value>) -> String {
    let parts: Vec<String> =
        parameters.iter().map(|(key, value)| format!("{key}={}", parameter_text(value))).collect();
    parts.join(", ")
}
