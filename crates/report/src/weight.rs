//! What records weigh in memory, near enough to keep many of them within a bound: structures, the texts and lists in them, and the
//! few words that each allocation takes beside what it holds.

use serde_json::{Map, Value};
use std::mem::size_of;
use weir_core::record::{LimitingFactor, Observed, PairRecord, Row, TimelineEvent, TrialRecord};

/// The allocator's own, and what rounding up takes.
const ALLOCATION: usize = 24;

pub(crate) fn of_event(event: &TimelineEvent) -> usize {
    let texts = [Some(&event.utc), Some(&event.event), Some(&event.text), event.configuration.as_ref()];
    let texts = texts.into_iter().chain([event.step.as_ref()]).flatten();
    size_of::<TimelineEvent>() + texts.map(|text| of_text(text)).sum::<usize>() + of_map(&event.data)
}

pub(crate) fn of_trial(trial: &TrialRecord) -> usize {
    let texts = [Some(&trial.point), Some(&trial.configuration), Some(&trial.step), trial.reason.as_ref()];
    size_of::<TrialRecord>()
        + texts.into_iter().flatten().map(|text| of_text(text)).sum::<usize>()
        + of_factor(&trial.limiting_factor)
        + of_rows(&trial.rows)
        + trial.pairs.iter().map(of_pair).sum::<usize>()
        + of_map(&trial.granted)
}

fn of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION }
}

fn of_factor(factor: &LimitingFactor) -> usize {
    ALLOCATION + factor.evidence.iter().map(|line| size_of::<String>() + of_text(line)).sum::<usize>()
}

fn of_rows(rows: &[Row]) -> usize {
    let of_row = |row: &Row| {
        let counts = match &row.value {
            Observed::Value(_) => 0,
            Observed::Histogram(histogram) => {
                2 * ALLOCATION + 8 * (histogram.value_ns.capacity() + histogram.count.capacity())
            }
        };
        size_of::<Row>() + of_text(&row.entity) + of_text(&row.metric) + counts
    };
    ALLOCATION + rows.iter().map(of_row).sum::<usize>()
}

fn of_pair(pair: &PairRecord) -> usize {
    let texts = [Some(&pair.entity), Some(&pair.from), Some(&pair.to), pair.failure.as_ref()];
    size_of::<PairRecord>()
        + texts.into_iter().flatten().map(|text| of_text(text)).sum::<usize>()
        + of_factor(&pair.limiting_factor)
        + of_rows(&pair.rows)
}

fn of_map(map: &Map<String, Value>) -> usize {
    // Beside key and value each entry has its hash and its place.
    let of_entry =
        |(key, value): (&String, &Value)| size_of::<String>() + of_text(key) + 32 + of_value(value);
    if map.is_empty() { 0 } else { 2 * ALLOCATION + map.iter().map(of_entry).sum::<usize>() }
}

fn of_value(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => of_text(text),
            Value::Array(list) => ALLOCATION + list.iter().map(of_value).sum::<usize>(),
            Value::Object(map) => of_map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}
