//! Scaling curves: a metric against a swept number, with the ceiling and the spread over trials.

use super::chart::{Axis, Frame, diamond, hue, path};
use super::fit;
use super::steps::{points, published, published_of};
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::{parameter_number, parameter_text};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::record::{MetricSummary, PointSummary, Summary};
use weir_core::units::human;

const FIGURES_MAX: usize = 12;
const CURVES_MAX: usize = 8;
const ROWS_MAX: usize = 200;

/// One measured point of a curve.
struct Mark<'a> {
    x: f64,
    x_text: String,
    metric: &'a MetricSummary,
    ceiling: Option<f64>,
    /// A figure from elsewhere, with the statistic that it is.
    published: Option<(&'a str, f64)>,
    point: &'a PointSummary,
}

/// What the plan knows of the points, by point, and the fits of the criteria.
struct Known<'a> {
    folder: &'a Folder,
    summary: &'a Summary,
    ceilings: BTreeMap<&'a str, f64>,
    published: BTreeMap<&'a str, &'a BTreeMap<String, f64>>,
}

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let Some(summary) = &folder.summary else { return out };
    let mut by_step: BTreeMap<&str, Vec<&PointSummary>> = BTreeMap::new();
    for point in &summary.points {
        by_step.entry(&point.step).or_default().push(point);
    }
    let ceilings =
        points(folder).iter().filter_map(|it| Some((it.id, it.plan?.ceiling_bits_per_second?))).collect();
    let known = Known { folder, summary, ceilings, published: published(folder) };
    let mut judged: BTreeSet<&str> = summary.criteria.iter().filter_map(|it| it.metric.as_deref()).collect();
    // A criterion names a metric of links or hosts without the entity; its fits name both.
    let fits = summary.criteria.iter().flat_map(|it| &it.fits);
    judged.extend(fits.map(|fit| fit.metric.as_str()));
    let mut figures = 0;
    for (step, points) in by_step {
        for parameter in swept(&points) {
            for metric in metrics(folder, &points, &judged) {
                if figures == FIGURES_MAX {
                    return out;
                }
                if let Some(figure) = figure(step, &parameter, metric, &points, &known) {
                    if figures == 0 {
                        put!(&mut out, "<h2>Scaling</h2>\n");
                    }
                    figures += 1;
                    put!(&mut out, figure);
                }
            }
        }
    }
    out
}

/// Parameters that are numbers everywhere and take at least two values.
fn swept(points: &[&PointSummary]) -> Vec<String> {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.parameters.keys()).collect();
    let takes_several = |name: &&String| {
        let values: Option<Vec<f64>> =
            points.iter().map(|point| Some(parameter_number(point.parameters.get(*name)?)?.0)).collect();
        values.is_some_and(|values| values.iter().any(|value| *value != values[0]))
    };
    names.into_iter().filter(takes_several).cloned().collect()
}

/// What is judged, and what every reader asks for.
fn metrics<'a>(folder: &Folder, points: &[&'a PointSummary], judged: &BTreeSet<&str>) -> Vec<&'a str> {
    let all: BTreeSet<&str> =
        points.iter().flat_map(|point| point.metrics.keys().map(String::as_str)).collect();
    let wanted = |name: &&str| {
        let judged = judged
            .iter()
            .any(|it| *it == *name || it.strip_prefix(*name).is_some_and(|rest| rest.starts_with('.')));
        judged || folder.definition(name).is_some_and(|it| it.swept)
    };
    all.into_iter().filter(wanted).collect()
}

fn figure<'a>(
    step: &str,
    parameter: &str,
    metric: &'a str,
    points: &[&'a PointSummary],
    known: &Known<'a>,
) -> Option<Html> {
    // One curve for each combination of everything but the swept parameter.
    let mut curves: BTreeMap<String, Vec<Mark<'_>>> = BTreeMap::new();
    for point in points {
        let (Some(measured), Some(value)) = (point.metrics.get(metric), point.parameters.get(parameter))
        else {
            continue;
        };
        let Some((x, _)) = parameter_number(value) else { continue };
        let mut others: Vec<String> = point.case.iter().cloned().collect();
        let rest = point.parameters.iter().filter(|(name, _)| *name != parameter);
        others.extend(rest.map(|(name, value)| format!("{name}={}", parameter_text(value))));
        let ceiling =
            known.ceilings.get(point.id.as_str()).copied().filter(|_| known.folder.is_whole_rate(metric));
        // The mean where that is known, as ours is drawn; else what there is, and the caption says what it is.
        let elsewhere = known.published.get(point.id.as_str()).copied();
        let mut elsewhere: Vec<(&str, f64)> =
            elsewhere.into_iter().flat_map(|of| published_of(of, metric)).collect();
        elsewhere.sort_by_key(|(statistic, _)| *statistic != "mean");
        let published = elsewhere.first().copied();
        let mark = Mark { x, x_text: parameter_text(value), metric: measured, ceiling, published, point };
        curves.entry(others.join(", ")).or_default().push(mark);
    }
    for marks in curves.values_mut() {
        marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let count = curves.len();
    let lines = curves.values().filter(|marks| marks.len() >= 2).count();
    // Of an arm of which one point counts there is a mark beside the lines of the others, where there is room for all.
    curves.retain(|_, marks| marks.len() >= 2 || lines > 0 && count <= CURVES_MAX);
    let all: Vec<&Mark<'_>> = curves.values().take(CURVES_MAX).flatten().collect();
    let unit = all.first()?.metric.unit.clone();
    let on_curve = |id: &str| {
        let mut drawn = curves.values().take(CURVES_MAX);
        drawn.position(|marks| marks.iter().any(|mark| mark.point.id == id))
    };
    let (fits, fit_count) = fit::of(known.summary, metric, parameter, on_curve);
    let spread = |mark: &Mark<'_>| mark.metric.ci95.or(mark.metric.range);
    let values = all.iter().flat_map(|mark| {
        let [low, high] = spread(mark).unwrap_or([mark.metric.mean; 2]);
        let mean = mark.metric.mean;
        [mean, low, high, mark.ceiling.unwrap_or(mean), mark.published.map_or(mean, |(_, value)| value)]
    });
    let values = values.chain(fits.iter().flat_map(fit::Drawn::heights));
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
    let least = all.iter().map(|mark| mark.x).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|mark| mark.x).fold(f64::NEG_INFINITY, f64::max);
    // Sweeps double as often as they add: where the largest is far above the smallest the axis is logarithmic. A line that was
    // fitted is straight on a linear one only.
    let logarithmic = least > 0.0 && most / least >= 8.0 && fits.is_empty();
    let at = |x: f64| if logarithmic { x.log2() } else { x };
    let pad = (at(most) - at(least)) * 0.05;
    let mut ticks: Vec<(f64, String)> = all.iter().map(|mark| (at(mark.x), mark.x_text.clone())).collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    ticks.dedup_by(|a, b| a.0 == b.0);
    let apart = (at(most) - at(least)) / 16.0;
    let mut last = f64::NEG_INFINITY;
    ticks.retain(|(x, _)| {
        let keep = *x - last >= apart;
        last = if keep { *x } else { last };
        keep
    });
    if !(pad.is_finite() && pad > 0.0) {
        return None;
    }
    let x = Axis { low: at(least) - pad, high: at(most) + pad, ticks, unit: String::new() };
    // Times of bursts from a byte to gigabytes are decades apart, and on a linear axis all but the longest would be nought.
    let means = || all.iter().map(|mark| mark.metric.mean);
    let lowest = means().fold(f64::INFINITY, f64::min);
    let decades = lowest > 0.0 && means().fold(0.0, f64::max) / lowest >= 100.0 && fits.is_empty();
    let y =
        if decades { Axis::decades(lowest, high, &unit)? } else { Axis::linear(low, high, &unit, 5, true)? };
    // What an interval has below the lowest decade, nought included, ends at it.
    let bottom = y.low;
    let height = |value: f64| if decades { value.log10().max(bottom) } else { value };
    let frame = Frame::new(940.0, 270.0, x, y);
    let mut svg = frame.begin(&format!("{metric} against {parameter}, {step}"), parameter, metric);
    put!(&mut svg, fit::lines(&frame, &fits));
    for (index, marks) in curves.values().take(CURVES_MAX).enumerate() {
        let ceilings: Vec<(f64, f64)> = marks
            .iter()
            .filter_map(|mark| Some((frame.px(at(mark.x)), frame.py(height(mark.ceiling?)))))
            .collect();
        if index == 0 && ceilings.len() >= 2 {
            let (x, y) = ceilings[ceilings.len() - 1];
            put!(&mut svg, "<path class=ceiling d=\"", path(ceilings), "\"/>");
            put!(&mut svg, "<text class=soft text-anchor=end x=", x, " y=", y - 6.0, ">ceiling</text>");
        }
        put!(
            &mut svg,
            "<path class=\"curve ",
            hue(index),
            "\" d=\"",
            path(marks.iter().map(|mark| (frame.px(at(mark.x)), frame.py(height(mark.metric.mean))))),
            "\"/>"
        );
        put!(&mut svg, elsewhere(&frame, marks, (at, height), index));
        for mark in marks {
            let x = frame.px(at(mark.x));
            if let Some([low, high]) = spread(mark) {
                let (low, high) = (frame.py(height(low)), frame.py(height(high)));
                put!(
                    &mut svg,
                    "<path class=\"curve ",
                    hue(index),
                    "\" d=\"M",
                    x,
                    " ",
                    low,
                    "V",
                    high,
                    "M",
                    x - 4.0,
                    " ",
                    low,
                    "h8M",
                    x - 4.0,
                    " ",
                    high,
                    "h8\"/>"
                );
            }
            put!(
                &mut svg,
                "<circle class=\"curve ",
                hue(index),
                "\" fill=\"var(--paper)\" cx=",
                x,
                " cy=",
                frame.py(height(mark.metric.mean)),
                " r=3.5 />"
            );
        }
    }
    let mut out = Html::new();
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div>");
    if curves.len() > 1 {
        put!(&mut out, "<div class=legend>");
        for (index, name) in curves.keys().take(CURVES_MAX).enumerate() {
            put!(
                &mut out,
                "<span><svg viewBox=\"0 0 20 10\"><path class=\"curve ",
                hue(index),
                "\" d=\"M0 5H20\"/></svg>",
                T(name),
                "</span>"
            );
        }
        put!(&mut out, "</div>");
    }
    put!(
        &mut out,
        "<figcaption>Mean of <code>",
        T(metric),
        "</code> in step <b>",
        T(step),
        "</b> against <b>",
        T(parameter),
        "</b>; bars: 95 % "
    );
    put!(&mut out, "interval over trials, or their range below five trials.");
    let axes = match (logarithmic, decades) {
        (true, true) => " Both axes logarithmic.",
        (true, false) => " Horizontal axis logarithmic.",
        (false, true) => " Vertical axis logarithmic.",
        (false, false) => "",
    };
    put!(&mut out, axes);
    let statistics: BTreeSet<&str> = all.iter().filter_map(|mark| Some(mark.published?.0)).collect();
    if !statistics.is_empty() {
        let named = statistics.into_iter().collect::<Vec<_>>().join(", ");
        put!(&mut out, " Diamonds: published (", T(named), ").");
    }
    if curves.len() > CURVES_MAX {
        put!(&mut out, " ", curves.len() - CURVES_MAX, " further curves are in the table of all points.");
    }
    put!(&mut out, fit::caption(&fits, fit_count), "</figcaption>");
    put!(&mut out, table(parameter, &curves, &unit, fit::table(&fits)), "</figure>\n");
    Some(out)
}

/// Published figures as open diamonds, joined where neighbours have one too.
fn elsewhere(
    frame: &Frame,
    marks: &[Mark<'_>],
    (at, height): (impl Fn(f64) -> f64, impl Fn(f64) -> f64),
    index: usize,
) -> Html {
    let mut out = Html::new();
    let places: Vec<(f64, f64)> = marks
        .iter()
        .filter_map(|mark| Some((frame.px(at(mark.x)), frame.py(height(mark.published?.1)))))
        .collect();
    if places.len() >= 2 {
        put!(
            &mut out,
            "<path class=\"published ",
            hue(index),
            "\" d=\"",
            path(places.iter().copied()),
            "\"/>"
        );
    }
    for (x, y) in places {
        put!(&mut out, diamond(hue(index), x, y));
    }
    out
}

fn table(parameter: &str, curves: &BTreeMap<String, Vec<Mark<'_>>>, unit: &str, fits: Html) -> Html {
    let mut out = Html::new();
    put!(
        &mut out,
        "<details><summary>The figures behind this plot</summary><div class=wide><table class=tight><thead><tr><th>point<th class=n>"
    );
    put!(
        &mut out,
        T(parameter),
        "<th class=n>mean<th class=n>interval or range<th class=n>ceiling<th class=n>share of it"
    );
    let published = curves.values().flatten().any(|mark| mark.published.is_some());
    put!(&mut out, if published { "<th class=n>published" } else { "" }, "<th>limited by</thead><tbody>");
    for mark in curves.values().flatten().take(ROWS_MAX) {
        put!(
            &mut out,
            "<tr><td>",
            T(&mark.point.id),
            "<td class=n>",
            T(&mark.x_text),
            "<td class=n>",
            T(human(mark.metric.mean, unit))
        );
        let interval = crate::words::interval_text(mark.metric.ci95, mark.metric.range, Some(unit));
        put!(&mut out, "<td class=n>", T(interval.unwrap_or_else(|| "–".to_owned())));
        put!(&mut out, "<td class=n>", T(mark.ceiling.map_or_else(|| "–".to_owned(), |it| human(it, unit))));
        put!(
            &mut out,
            "<td class=n>",
            T(mark
                .ceiling
                .map_or_else(|| "–".to_owned(), |it| format!("{:.1} %", mark.metric.mean / it * 100.0)))
        );
        if published {
            let value =
                mark.published.map(|(statistic, value)| format!("{statistic} {}", human(value, unit)));
            put!(&mut out, "<td class=n>", T(value.unwrap_or_else(|| "–".to_owned())));
        }
        put!(&mut out, "<td>", T(&mark.point.limiting_factor.name));
    }
    put!(&mut out, "</tbody></table></div>");
    let rows = curves.values().map(Vec::len).sum::<usize>();
    if rows > ROWS_MAX {
        put!(
            &mut out,
            "<p class=quiet>The first ",
            ROWS_MAX,
            " of ",
            rows,
            " rows; the table of all points has more.</p>"
        );
    }
    put!(&mut out, fits, "</details>");
    out
}

#[cfg(test)]
mod tests {
    use crate::html::fit::tests::{page, scaling};

    #[test]
    fn values_that_are_decades_apart_stand_on_a_logarithmic_axis() {
        let near = page(|_| ());
        assert!(!scaling(&near).contains("logarithmic"), "{}", scaling(&near));
        let far = page(|summary| {
            summary.criteria.iter_mut().for_each(|criterion| criterion.fits.clear());
            for (point, mean) in summary.points.iter_mut().zip([2e3, 3e6, 4e9].into_iter().cycle()) {
                for metric in point.metrics.values_mut() {
                    (metric.mean, metric.ci95, metric.range) = (mean, None, Some([0.0, mean]));
                }
            }
        });
        let figure = scaling(&far);
        assert!(figure.contains("ertical axis logarithmic") || figure.contains("Both axes"), "{figure}");
        // A line each decade.
        for text in ["1 kbit/s", "1 Mbit/s", "10 Gbit/s"] {
            assert!(figure.contains(text), "{text}: {figure}");
        }
        assert!(!figure.contains("NaN") && !figure.contains("inf"), "{figure}");
    }

    #[test]
    fn an_arm_of_which_one_point_counts_is_a_mark_beside_the_lines_of_the_others() {
        let page = page(|summary| {
            let mut of_step = summary.points.iter_mut().filter(|point| point.step == "many");
            of_step.next().unwrap().case = Some("single".to_owned());
        });
        let figure = scaling(&page);
        assert!(figure.contains("single</span>"), "{figure}");
    }
}
