//! What was published beside what was measured: a column a case, a mark a point, and a diamond for the figure from elsewhere.

use super::chart::{Axis, Frame, diamond, hue};
use super::steps::{published, published_of};
use crate::Folder;
use crate::escape::{Html, T, put};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::record::{MetricSummary, PointSummary};
use weir_core::units::human;

const FIGURES_MAX: usize = 6;
/// More columns have no room for their names.
const CASES_MAX: usize = 24;
const VARIANTS_MAX: usize = 8;

/// What one figure shows: a metric of a step, and the statistic of it that was published.
type Subject<'a> = (&'a str, &'a str, &'a str);

/// One column.
#[derive(Default)]
struct Column<'a> {
    published: Option<f64>,
    /// By what differs between the points of the case: `profile=weir`.
    measured: BTreeMap<&'a str, (f64, &'a MetricSummary)>,
}

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let Some(summary) = &folder.summary else { return out };
    let published = published(folder);
    // Cases in the order of the file, which is that of the points.
    let mut figures: Vec<(Subject<'_>, Vec<(&str, Column<'_>)>)> = Vec::new();
    for point in &summary.points {
        let (Some(case), Some(known)) = (point.case.as_deref(), published.get(point.id.as_str())) else {
            continue;
        };
        for (metric, measured) in &point.metrics {
            for (statistic, value) in published_of(known, metric) {
                let Some(ours) = statistic_of(measured, statistic) else { continue };
                let subject = (point.step.as_str(), metric.as_str(), statistic);
                let columns = entry(&mut figures, &subject);
                let column = entry(columns, &case);
                column.published = Some(value);
                column.measured.insert(variant(point, case), (ours, measured));
            }
        }
    }
    // One case alone is told by the table of all points.
    figures.retain(|(_, columns)| columns.len() >= 2);
    for (number, (subject, columns)) in figures.iter().take(FIGURES_MAX).enumerate() {
        if let Some(figure) = figure(*subject, columns) {
            put!(&mut out, if number == 0 { "<h2>Published and measured</h2>\n" } else { "" }, figure);
        }
    }
    out
}

/// The value under `key`, at the end where there is none yet.
fn entry<'a, K: PartialEq + Copy, V: Default>(list: &'a mut Vec<(K, V)>, key: &K) -> &'a mut V {
    let at = list.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
        list.push((*key, V::default()));
        list.len() - 1
    });
    &mut list[at].1
}

/// What is left of `step/case,profile=weir` without the step and the case.
fn variant<'a>(point: &'a PointSummary, case: &str) -> &'a str {
    let rest = point.id.strip_prefix(point.step.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let rest = rest.and_then(|rest| rest.strip_prefix(case)).unwrap_or(&point.id);
    let rest = rest.trim_start_matches(',');
    if rest.is_empty() { "measured" } else { rest }
}

fn statistic_of(metric: &MetricSummary, name: &str) -> Option<f64> {
    Some(match name {
        "mean" => metric.mean,
        "median" => metric.median,
        "min" => metric.min,
        "max" => metric.max,
        "p95" => metric.p95,
        "p99" => metric.p99,
        _ => return None,
    })
}

fn figure((step, metric, statistic): Subject<'_>, columns: &[(&str, Column<'_>)]) -> Option<Html> {
    let shown = &columns[..columns.len().min(CASES_MAX)];
    let variants: BTreeSet<&str> =
        shown.iter().flat_map(|(_, column)| column.measured.keys().copied()).collect();
    let variants: Vec<&str> = variants.into_iter().take(VARIANTS_MAX).collect();
    let spread = |(value, metric): (f64, &MetricSummary)| {
        metric.ci95.or(metric.range).filter(|_| statistic == "mean").unwrap_or([value; 2])
    };
    let measured = || shown.iter().flat_map(|(_, column)| column.measured.values().copied());
    let values = measured().flat_map(|(value, metric)| {
        let [low, high] = spread((value, metric));
        [value, low, high]
    });
    let values = values.chain(shown.iter().filter_map(|(_, column)| column.published));
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
    let unit = measured().next()?.1.unit.clone();
    let ticks = shown.iter().enumerate().map(|(at, (case, _))| (at as f64, (*case).to_owned())).collect();
    let x = Axis { low: -0.6, high: shown.len() as f64 - 0.4, ticks, unit: String::new() };
    let frame = Frame::new(940.0, 270.0, x, Axis::linear(low, high, &unit, 5, true)?);
    let mut svg = frame.begin(&format!("{metric} published and measured, {step}"), "case", metric);
    for (at, (_, column)) in shown.iter().enumerate() {
        // Side by side, so that equal values do not hide each other.
        let x = |place: usize| frame.px(at as f64 + (place as f64 / (variants.len() as f64) - 0.5) * 0.6);
        if let Some(value) = column.published {
            put!(&mut svg, diamond("known", x(0), frame.py(value)));
        }
        for (place, variant) in variants.iter().enumerate() {
            let Some(mark) = column.measured.get(variant) else { continue };
            let x = x(place + 1);
            let [low, high] = spread(*mark).map(|value| frame.py(value));
            put!(&mut svg, "<path class=\"curve ", hue(place), "\" d=\"M", x, " ", low, "V", high, "\"/>");
            put!(&mut svg, "<circle class=\"curve ", hue(place), "\" fill=\"var(--paper)\" cx=", x, " cy=");
            put!(&mut svg, frame.py(mark.0), " r=3.5 />");
        }
    }
    let mut out = Html::new();
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><div class=legend>");
    put!(
        &mut out,
        "<span><svg viewBox=\"0 0 20 10\">",
        diamond("known", 10.0, 5.0),
        "</svg>published</span>"
    );
    for (place, variant) in variants.iter().enumerate() {
        put!(&mut out, "<span><svg viewBox=\"0 0 20 10\"><circle class=\"curve ", hue(place));
        put!(&mut out, "\" fill=\"var(--paper)\" cx=10 cy=5 r=3.5 /></svg>", T(*variant), "</span>");
    }
    put!(
        &mut out,
        "</div><figcaption>",
        T(statistic_text(statistic)),
        " of <code>",
        T(metric),
        "</code> in step <b>"
    );
    put!(&mut out, T(step), "</b>, by case");
    if statistic == "mean" {
        put!(&mut out, "; bars: 95 % interval over trials, or their range below five trials");
    }
    put!(&mut out, ".");
    if columns.len() > shown.len() {
        put!(&mut out, " ", columns.len() - shown.len(), " further cases are in the table.");
    }
    put!(&mut out, "</figcaption>", table(columns, &unit), "</figure>\n");
    Some(out)
}

fn statistic_text(statistic: &str) -> String {
    match statistic {
        "mean" => "Mean".to_owned(),
        "median" => "Median".to_owned(),
        other => other.to_owned(),
    }
}

fn table(columns: &[(&str, Column<'_>)], unit: &str) -> Html {
    let variants: BTreeSet<&str> =
        columns.iter().flat_map(|(_, column)| column.measured.keys().copied()).collect();
    let mut out = Html::new();
    put!(&mut out, "<details><summary>The figures behind this plot</summary><div class=wide>");
    put!(&mut out, "<table class=tight><thead><tr><th>case<th class=n>published");
    for variant in &variants {
        put!(&mut out, "<th class=n>", T(*variant));
    }
    put!(&mut out, "</thead><tbody>");
    for (case, column) in columns {
        let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| human(value, unit));
        put!(&mut out, "<tr><td>", T(*case), "<td class=n>", T(text(column.published)));
        for variant in &variants {
            put!(&mut out, "<td class=n>", T(text(column.measured.get(variant).map(|mark| mark.0))));
        }
        put!(&mut out, "\n");
    }
    put!(&mut out, "</tbody></table></div></details>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html, json, sample};

    /// Two cases and two schemes; the mean of `stream.total_goodput_bits_per_second` is published of both cases.
    fn page(cases: &[(&str, f64)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let mut summary = sample::failing_summary();
        sample::write(&run, &summary, 400);
        let name = "stream.total_goodput_bits_per_second";
        let one = summary.points.iter().find(|point| point.metrics.contains_key(name)).unwrap().clone();
        let mut plan = sample::plan();
        let configuration = plan.configurations.remove(0);
        summary.points.clear();
        for (case, value) in cases {
            for (scheme, factor) in [("old", 0.9), ("own", 1.1)] {
                let mut configuration = configuration.clone();
                let mut point = one.clone();
                point.id = format!("{}/{case},scheme={scheme}", point.step);
                point.case = Some((*case).to_owned());
                let metric = point.metrics.get_mut(name).unwrap();
                (metric.mean, metric.ci95) =
                    (value * factor, Some([value * factor - 1e6, value * factor + 1e6]));
                configuration.case = Some((*case).to_owned());
                configuration.published = BTreeMap::from([(name.to_owned(), *value)]);
                configuration.steps.retain(|step| step.name == one.step);
                configuration.steps[0].point.clone_from(&point.id);
                summary.points.push(point);
                plan.configurations.push(configuration);
            }
        }
        std::fs::write(run.join("summary.json"), json(&summary)).unwrap();
        std::fs::write(run.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
        html(&Folder::read(&run).unwrap())
    }

    // Spec: results.md#published-1
    #[test]
    fn what_was_published_of_cases_stands_beside_every_scheme_in_one_figure() {
        let page = page(&[("near", 400e6), ("far", 200e6)]);
        let from = page.find("<h2>Published and measured</h2>").expect("the section");
        let figure = &page[from..from + page[from..].find("</figure>").unwrap()];
        let (drawing, words) = figure.split_once("</svg>").unwrap();
        assert_eq!(drawing.matches("class=\"curve known\"").count(), 2, "a diamond a case: {drawing}");
        assert_eq!(drawing.matches("<circle class=\"curve c0\"").count(), 2, "{drawing}");
        assert_eq!(drawing.matches("<circle class=\"curve c1\"").count(), 2, "{drawing}");
        assert!(drawing.contains(">near</text>") && drawing.contains(">far</text>"), "{drawing}");
        assert!(words.contains("scheme=old</span>") && words.contains("scheme=own</span>"), "{words}");
        let row = "<tr><td>far<td class=n>200 Mbit/s<td class=n>180 Mbit/s<td class=n>220 Mbit/s";
        assert!(words.contains(row), "{words}");
    }

    #[test]
    fn one_case_needs_no_figure() {
        assert!(!page(&[("near", 400e6)]).contains("Published and measured"));
    }
}
