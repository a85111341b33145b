//! The table for people: 80 columns, one line a point.

use super::summary::{self, Point, point_id};
use crate::stream::derive;
use crate::watch::metrics;
use crate::{burst, path, udp};
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

/// A path is no line but a list of hops.
fn paths(points: &[Point]) -> String {
    let mut out = String::new();
    for point in points {
        let id = point_id("path", &point.parameters);
        if points.len() > 1 {
            let _ = writeln!(out, "{id}");
        }
        out.push_str(&path::table::describe(&point.measurement.rows));
        let mut notes = point.measurement.warnings.clone();
        notes.extend(point.measurement.invalid.iter().map(|reason| format!("{id} does not count: {reason}")));
        for note in notes {
            out.push_str(&wrapped(&note));
            out.push('\n');
        }
    }
    out
}

/// `workload` is `stream`, `latency`, `burst`, `connect`, `udp`, `path` or `watch`.
pub fn table(workload: &str, definitions: &[Metric], points: &[Point]) -> String {
    if workload == "path" {
        return paths(points);
    }
    let columns: &[(&str, usize)] = match workload {
        "stream" => &[("goodput", 13), ("slowest flow", 14), ("Jain", 7), ("resent", 8), ("stalled", 9)],
        "udp" => &[("goodput", 13), ("lost", 9), ("reordered", 9), ("jitter", 10), ("packets/s", 11)],
        "connect" => {
            &[("connections/s", 14), ("handshake", 10), ("exchange", 10), ("close", 10), ("99 %", 10)]
        }
        "watch" => {
            &[("goodput", 13), ("worst second", 12), ("below 0.9", 9), ("probes", 13), ("of them good", 12)]
        }
        "burst" => &[("bursts", 8), ("least", 10), ("mean", 10), ("most", 10), ("goodput", 13)],
        _ => &[("round trips", 11), ("median", 10), ("mean", 10), ("99 %", 10), ("most", 10)],
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
        let all = summary::metrics(&point.measurement.rows, definitions);
        let get = |name: &str| all.get(name);
        let count = |of: Option<&MetricSummary>| of.map_or("–".to_owned(), |metric| metric.n.to_string());
        let cells = if workload == "burst" {
            let completion = get("burst.completion_seconds");
            [
                count(completion),
                cell(completion, |it| it.min),
                cell(completion, |it| it.mean),
                cell(completion, |it| it.max),
                cell(get("burst.goodput_bits_per_second"), |it| it.mean),
            ]
        } else if workload == "watch" {
            let share = |name: &str, read: fn(&MetricSummary) -> f64| {
                get(name).map_or("–".to_owned(), |it| format!("{:.1} %", read(it) * 100.0))
            };
            [
                cell(get("stream.total_goodput_bits_per_second"), |it| it.mean),
                share(metrics::DEEPEST, |it| it.min),
                share(metrics::BELOW, |it| it.max),
                cell(get(metrics::PROBE), |it| it.median),
                share(metrics::PROBES_GOOD, |it| it.mean),
            ]
        } else if workload == "connect" {
            let median = |name: &str| cell(get(name), |it| it.median);
            [
                get("connect.per_second").map_or("–".to_owned(), |it| format!("{:.0}", it.mean)),
                median("connect.handshake_seconds"),
                median("connect.exchange_seconds"),
                median("connect.close_seconds"),
                cell(get("connect.total_seconds"), |it| it.p99),
            ]
        } else if workload == "udp" {
            let share =
                |name: &str| get(name).map_or("–".to_owned(), |it| format!("{:.3} %", it.mean * 100.0));
            [
                cell(get("udp.total_goodput_bits_per_second"), |it| it.mean),
                share("udp.loss_ratio"),
                share("udp.reordered_ratio"),
                cell(get("udp.jitter_seconds"), |it| it.mean),
                get("udp.sent_per_second")
                    .map_or("–".to_owned(), |it| format!("{:.0}", it.mean * it.n as f64)),
            ]
        } else if workload == "stream" {
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
                count(trips),
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
        if let Some(spread) = get("burst.spread_ratio") {
            notes.push(format!(
                "{id}: between the flows of a repetition (slowest - fastest)/mean was {:.3}, at most {:.3}",
                spread.mean, spread.max
            ));
        }
        if let Some(doubt) = get("burst.clock_uncertainty_seconds").filter(|doubt| doubt.max > 0.0) {
            let doubt = human(doubt.max, &doubt.unit);
            notes.push(format!("{id}: one-way times are within {doubt}, as the two clocks were compared"));
        }
        for (name, what) in [
            ("udp.duplicate_ratio", "came more than once"),
            ("udp.unsent_ratio", "were not taken by the sender's kernel, which is no loss"),
            (
                "udp.socket_dropped_ratio",
                "or more found the receiver's socket full: it is the program that lost them",
            ),
        ] {
            if let Some(share) = get(name).filter(|share| share.mean > 0.0) {
                notes.push(format!("{id}: {:.3} % of the datagrams {what}", share.mean * 100.0));
            }
        }
        for (name, what) in [
            (derive::ACKNOWLEDGED, "had been acknowledged by the receiving host, over the time until then"),
            (
                udp::outcome::ARRIVED,
                "had arrived, by the receiving end's last word, over the time until then",
            ),
            (
                burst::metrics::ARRIVED,
                "had arrived, by the receiving end's last word, over the time until then",
            ),
        ] {
            if let Some(rate) = get(name) {
                notes.push(format!("{id}: {} {what}", human(rate.mean * rate.n as f64, &rate.unit)));
            }
        }
        if let Some(lost) = get("latency.lost_ratio").filter(|lost| lost.mean > 0.0) {
            notes.push(format!("{id}: {:.3} % of the requests were lost", lost.mean * 100.0));
        }
        if let Some(generator) =
            point.measurement.load.generator.filter(|generator| generator.missed_count > 0)
        {
            notes.push(format!(
                "{id}: the generator gave up {} of {} ticks because it woke up too late",
                generator.missed_count, generator.due_count
            ));
        }
        for (metric, what) in [
            ("stream.congestion_goodput_bits_per_second@", "by congestion control"),
            ("stream.ramp_goodput_bits_per_second@streams.", "by the number of streams"),
        ] {
            let parts = all.iter().filter_map(|(name, part)| Some((name.strip_prefix(metric)?, part)));
            let mut parts: Vec<_> = parts.collect();
            // 10 streams come after 9.
            parts.sort_by_key(|(name, _)| (name.len(), *name));
            let texts: Vec<String> = parts
                .iter()
                .map(|(name, part)| format!("{name}: {}", human(part.mean, &part.unit)))
                .collect();
            if !texts.is_empty() {
                notes.push(format!("{id}, {what}: {}", texts.join(", ")));
            }
        }
        if workload == "stream" && point.measurement.invalid.is_none() {
            let factor = point.limiting_factor();
            notes.push(format!("{id}: bounded by {}", factor.name));
            // Of a sweep the document has the rest.
            let evidence = if points.len() == 1 { factor.evidence } else { Vec::new() };
            for line in evidence {
                // A command stands alone, to be copied.
                let (said, command) = line.split_at(line.find("sysctl -w").unwrap_or(line.len()));
                notes.push(said.to_owned());
                notes.extend((!command.is_empty()).then(|| command.to_owned()));
            }
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
