//! All points in one table, each metric of each point in another, and the trials that do not count.

use super::steps::{points, published, published_of};
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::matrix::short;
use crate::words::{interval_text, parameters_text};
use std::collections::BTreeMap;
use weir_core::record::{Observed, PointSummary};
use weir_core::units::human;

const ROWS_MAX: usize = 1_000;
const METRIC_ROWS_MAX: usize = 3_000;
const COLUMNS_MAX: usize = 12;
pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    match &folder.summary {
        Some(summary) if !summary.points.is_empty() => {
            let published = published(folder);
            let (overview, full) =
                (overview(folder, &summary.points, &published), full(&summary.points, &published));
            put!(&mut out, "<h2>All points</h2>\n", overview, full)
        }
        Some(_) => {}
        None => put!(&mut out, so_far(folder)),
    }
    put!(&mut out, invalid(folder));
    out
}

/// By point: `metric.statistic` to value.
type Published<'a> = BTreeMap<&'a str, &'a BTreeMap<String, f64>>;

fn overview(folder: &Folder, points: &[PointSummary], published: &Published<'_>) -> Html {
    let mut out = Html::new();
    let mut columns: Vec<(u8, &str)> = Vec::new();
    let is_measured = |name: &str| points.iter().any(|point| point.metrics.contains_key(name));
    columns.extend(folder.definitions.iter().filter_map(|it| Some((it.column?, it.name.as_str()))));
    columns.retain(|(_, name)| is_measured(name));
    columns.sort_unstable();
    let mut metrics: Vec<&str> = columns.into_iter().map(|(_, name)| name).take(COLUMNS_MAX).collect();
    if metrics.is_empty() {
        // Workloads that ask for no column: the first metrics of its first point, those of the machine and its like last.
        metrics = points[0].metrics.keys().map(String::as_str).collect();
        metrics.sort_by_key(|name| name.contains('@'));
        metrics.truncate(4);
    }
    let told = points.iter().any(|point| point.case.is_some() || !point.parameters.is_empty());
    put!(&mut out, "<div class=wide><table><thead><tr><th>point");
    if told {
        put!(&mut out, "<th>parameters");
    }
    put!(&mut out, "<th class=n>valid trials");
    for metric in &metrics {
        put!(&mut out, "<th class=n>", T(short(metric)));
    }
    put!(&mut out, "<th>limited by</thead><tbody>");
    for point in points.iter().take(ROWS_MAX) {
        put!(&mut out, "<tr><td>", T(&point.id));
        if told {
            put!(&mut out, "<td>");
        }
        if let Some(case) = &point.case {
            put!(&mut out, "<b>", T(case), "</b> ");
        }
        put!(
            &mut out,
            T(parameters_text(&point.parameters)),
            "<td class=n>",
            point.valid_trials as usize,
            " of ",
            point.trials as usize
        );
        for metric in &metrics {
            put!(&mut out, "<td class=n>");
            match point.metrics.get(*metric) {
                Some(measured) => {
                    // A distribution is told by its middle, a value a trial by its mean.
                    let value = if folder.is_distribution(metric) { measured.median } else { measured.mean };
                    put!(&mut out, T(human(value, &measured.unit)));
                    for (statistic, value) in known(published, point, metric) {
                        put!(
                            &mut out,
                            "<small>",
                            T(statistic),
                            " published ",
                            T(human(value, &measured.unit)),
                            "</small>"
                        );
                    }
                }
                None => put!(&mut out, "–"),
            }
        }
        put!(&mut out, "<td>", T(&point.limiting_factor.name), "\n");
    }
    put!(
        &mut out,
        "</tbody></table></div>\n<p class=quiet>Means over valid trials; of distributions the median."
    );
    if points.len() > ROWS_MAX {
        put!(&mut out, " ", points.len() - ROWS_MAX, " more points are in summary.json.");
    }
    put!(&mut out, "</p>\n");
    out
}

fn known<'a>(
    published: &Published<'a>,
    point: &PointSummary,
    metric: &'a str,
) -> impl Iterator<Item = (&'a str, f64)> {
    published.get(point.id.as_str()).copied().into_iter().flat_map(move |of| published_of(of, metric))
}

fn full(points: &[PointSummary], published: &Published<'_>) -> Html {
    let mut out = Html::new();
    put!(
        &mut out,
        "<details><summary>Every metric of every point</summary><div class=wide><table class=tight><thead><tr><th>point<th>metric"
    );
    put!(
        &mut out,
        "<th class=n>n<th class=n>min<th class=n>mean<th class=n>median<th class=n>95 %<th class=n>99 %<th class=n>max<th class=n>of the mean"
    );
    put!(&mut out, if published.is_empty() { "" } else { "<th class=n>published" }, "</thead><tbody>");
    let mut rows = 0;
    for point in points {
        for (name, metric) in &point.metrics {
            rows += 1;
            if rows > METRIC_ROWS_MAX {
                continue;
            }
            put!(
                &mut out,
                "<tr><td>",
                T(&point.id),
                "<td>",
                T(name),
                "<td class=n>",
                T(metric.n.to_string())
            );
            for value in [metric.min, metric.mean, metric.median, metric.p95, metric.p99, metric.max] {
                put!(&mut out, "<td class=n>", T(human(value, &metric.unit)));
            }
            let interval = interval_text(metric.ci95, metric.range, Some(&metric.unit));
            put!(&mut out, "<td class=n>", T(interval.unwrap_or_else(|| "–".to_owned())));
            if !published.is_empty() {
                let all: Vec<String> = known(published, point, name)
                    .map(|(statistic, value)| format!("{statistic} {}", human(value, &metric.unit)))
                    .collect();
                put!(
                    &mut out,
                    "<td class=n>",
                    T(if all.is_empty() { "–".to_owned() } else { all.join(", ") })
                );
            }
            put!(&mut out, "\n");
        }
    }
    put!(&mut out, "</tbody></table></div>");
    if rows > METRIC_ROWS_MAX {
        put!(&mut out, "<p class=quiet>", rows - METRIC_ROWS_MAX, " more rows are in summary.json.</p>");
    }
    put!(&mut out, "</details>\n");
    out
}

/// A run that did not finish: what its trials showed, one row a metric and point, no statistics that would need judging.
fn so_far(folder: &Folder) -> Html {
    let mut out = Html::new();
    let all = points(folder);
    if all.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<h2>Measured so far</h2>\n<div class=wide><table class=tight><thead><tr><th>point<th class=n>valid trials<th>metric"
    );
    put!(&mut out, "<th class=n>lowest<th class=n>highest</thead><tbody>");
    let mut rows = 0;
    for point in &all {
        let valid: Vec<_> = point.trials.iter().filter(|trial| trial.valid).collect();
        let mut extremes: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for row in valid.iter().flat_map(|trial| &trial.rows) {
            let (low, high) = match &row.value {
                Observed::Value(value) => (*value, *value),
                Observed::Histogram(histogram) => {
                    (histogram.min_ns as f64 / 1e9, histogram.max_ns as f64 / 1e9)
                }
            };
            let entry = extremes.entry(&row.metric).or_insert((low, high));
            *entry = (entry.0.min(low), entry.1.max(high));
        }
        let planned = folder.plan.as_ref().map_or(point.trials.len(), |plan| plan.trials as usize);
        let begin = |out: &mut Html| {
            put!(out, "<tr><td>", T(point.id), "<td class=n>", valid.len(), " of ", planned);
        };
        if extremes.is_empty() {
            begin(&mut out);
            put!(&mut out, "<td class=quiet>not reached<td class=n>–<td class=n>–\n");
        }
        for (metric, (low, high)) in extremes {
            rows += 1;
            if rows > METRIC_ROWS_MAX {
                break;
            }
            let unit = folder.definition(metric).map_or("", |it| it.unit.as_str());
            begin(&mut out);
            put!(&mut out, "<td>", T(metric));
            put!(&mut out, "<td class=n>", T(human(low, unit)), "<td class=n>", T(human(high, unit)), "\n");
        }
    }
    put!(&mut out, "</tbody></table></div>\n");
    out
}

fn invalid(folder: &Folder) -> Html {
    let mut out = Html::new();
    let invalid: Vec<_> = folder.trials.iter().filter(|trial| !trial.valid).collect();
    if invalid.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<h2>Trials that do not count</h2>\n<p class=quiet>Kept, and not averaged in.</p><div class=wide><table class=tight><thead><tr>"
    );
    put!(&mut out, "<th>point<th class=n>trial<th>why</thead><tbody>");
    for trial in invalid.iter().take(ROWS_MAX) {
        put!(
            &mut out,
            "<tr><td>",
            T(&trial.point),
            "<td class=n>",
            trial.trial as usize,
            "<td>",
            T(trial.reason.as_deref().unwrap_or("no reason recorded")),
            "\n"
        );
    }
    put!(&mut out, "</tbody></table></div>\n");
    if invalid.len() > ROWS_MAX {
        put!(&mut out, "<p class=quiet>", invalid.len() - ROWS_MAX, " more are in trials.jsonl.</p>\n");
    }
    out
}
