//! The table for people: 80 columns, one line a point.

use super::summary::{Point, metrics, point_id};
use std::fmt::Write;
use weir_core::metric::Metric;
use weir_core::record::MetricSummary;
use weir_core::units::human;

const WIDTH: usize = 80;
const NAME: usize = 20;

fn cell(metric: Option<&MetricSummary>, read: fn(&MetricSummary) -> f64) -> String {
    metric.map_or("–".to_owned(), |metric| human(read(metric), &metric.unit))
}

/// Cut to `width` characters; what is cut ends in an ellipsis.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Breaks at blanks so that no line is longer than the table.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > WIDTH {
            out.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        let word = fit(word, WIDTH - used.min(WIDTH - 1));
        used += word.chars().count();
        out.push_str(&word);
    }
    out
}

/// `workload` is `stream` or `latency`.
pub fn table(workload: &str, definitions: &[Metric], points: &[Point]) -> String {
    let columns: &[(&str, usize)] = if workload == "stream" {
        &[("goodput", 13), ("slowest flow", 14), ("Jain", 7), ("resent", 8), ("stalled", 9)]
    } else {
        &[("round trips", 11), ("median", 10), ("mean", 10), ("99 %", 10), ("most", 10)]
    };
    let mut out = String::new();
    let mut line = format!("{:NAME$}", "");
    for (name, width) in columns {
        let _ = write!(line, " {name:>width$}");
    }
    out.push_str(line.trim_end());
    out.push('\n');
    let mut notes = Vec::new();
    for point in points {
        let id = point_id(workload, &point.parameters);
        let all = metrics(&point.measurement.rows, definitions);
        let get = |name: &str| all.get(name);
        let cells = if workload == "stream" {
            let resent = get("stream.retransmitted_segments");
            [
                cell(get("stream.total_goodput_bits_per_second"), |it| it.mean),
                cell(get("stream.flow_goodput_bits_per_second"), |it| it.min),
                get("stream.fairness_jain").map_or("–".to_owned(), |it| format!("{:.3}", it.mean)),
                resent.map_or("–".to_owned(), |it| format!("{:.0}", it.mean * it.n as f64)),
                cell(get("stream.stalled_seconds"), |it| it.max),
            ]
        } else {
            let trips = get("latency.round_trip_seconds");
            [
                trips.map_or("–".to_owned(), |it| it.n.to_string()),
                cell(trips, |it| it.median),
                cell(trips, |it| it.mean),
                cell(trips, |it| it.p99),
                cell(trips, |it| it.max),
            ]
        };
        let mut line = format!("{:NAME$}", fit(&id, NAME));
        for ((_, width), cell) in columns.iter().zip(cells) {
            let _ = write!(line, " {:>width$}", fit(&cell, *width));
        }
        out.push_str(&line);
        out.push('\n');
        if let Some(cost) = get("cost.cpu_seconds_per_gigabyte") {
            notes.push(format!("{id}: {:.3} CPU seconds per gigabyte, both ends", cost.mean));
        }
        if let Some(lost) = get("latency.lost_ratio").filter(|lost| lost.mean > 0.0) {
            notes.push(format!("{id}: {:.3} % of the requests were lost", lost.mean * 100.0));
        }
        if let Some(generator) = point.measurement.generator.filter(|generator| generator.missed_count > 0) {
            notes.push(format!(
                "{id}: the generator gave up {} of {} ticks because it woke up too late",
                generator.missed_count, generator.due_count
            ));
        }
        notes.extend(point.measurement.warnings.iter().map(|text| format!("{id}: {text}")));
        if let Some(reason) = &point.measurement.invalid {
            notes.push(format!("{id} does not count: {reason}"));
        }
    }
    for note in notes {
        out.push_str(&wrapped(&note));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adhoc::Measurement;
    use crate::stream::metrics::METRICS;
    use weir_core::Value;
    use weir_core::record::{Observed, Row};

    #[test]
    fn no_line_is_longer_than_eighty_columns() {
        let row = |metric: &str, value| Row {
            entity: "trial".to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        };
        let rows = METRICS.iter().map(|metric| row(metric.name, 123_456_789_012.3)).collect();
        let invalid = Some("a reason of many words ".repeat(20));
        let points = [Point {
            parameters: vec![
                ("streams".to_owned(), Value::Count(4)),
                ("block".to_owned(), Value::Text("x".repeat(90))),
            ],
            measurement: Measurement { rows, invalid, ..Measurement::default() },
        }];
        let text = table("stream", METRICS, &points);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(text.contains("does not count"));
    }
}
