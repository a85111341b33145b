//! Series of a point: what answers a question openly, the rest behind one fold.

use super::chart::{Axis, Frame, hue, path};
use super::distribution;
use super::stage::{Stage, draw_bands, fault_words, stage};
use super::steps::Point;
use super::watch;
use crate::Folder;
use crate::curve::{Column, Curve};
use crate::escape::{Html, T, put};
use crate::words::plural;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::shown::{Place, SeriesShown};
use weir_core::units::human;

/// Lines of a plot at most; more cannot be told apart.
const LINES_MAX: usize = 16;
/// Lines of ports, hosts and the like, which have names of their own in a legend.
const NAMED_LINES_MAX: usize = 8;
/// Columns of each line where there are many.
const CROWDED_COLUMNS_MAX: usize = 220;
/// Panels behind the fold at most; a run of series nobody here knows must not fill the page.
const FOLDED_MAX: usize = 9;
/// Up to this many lines a rate is drawn bin by bin; more lines would be a thicket of steps.
const STEPPED_LINES_MAX: usize = 3;
const TABLE_ROWS: usize = 40;
/// A queue that never held this share of what the fullest held is no part of the story.
const QUEUED_SHARE: f64 = 0.1;

/// What a series says of itself that nobody declared.
const UNDECLARED: &SeriesShown = &SeriesShown::new("", "", Place::Folded);

fn declared<'a>(folder: &'a Folder, name: &str) -> &'a SeriesShown {
    folder.shown.series(name).unwrap_or(UNDECLARED)
}

/// Names people know, for the series that have one; others go by their own.
fn spoken<'a>(folder: &'a Folder, name: &'a str) -> &'a str {
    let spoken = declared(folder, name).spoken.as_ref();
    if spoken.is_empty() { name } else { spoken }
}

/// Every panel of the point. In a step that streams nothing all series are behind the fold: its picture is the distribution.
pub(crate) fn panels(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = watch::views(folder, point);
    let mut names = folder.curves.names(point.id);
    let place = |name: &str| declared(folder, name).place;
    names.retain(|name| place(name) != Place::Elsewhere);
    names.sort_by_key(|name| (place(name), *name));
    let leads = names.first().is_some_and(|name| matches!(place(name), Place::Lead(_)));
    // A long timeline is searched once a trial, not once a plot.
    let mut stages: BTreeMap<u32, Option<Stage>> = BTreeMap::new();
    let mut folded = Html::new();
    let (mut still, mut further) = (Still::default(), Vec::new());
    let mut folded_count = 0;
    for name in names {
        let curves: Vec<&Curve> =
            folder.curves.of(point.id, name).iter().filter(|it| has_line(folder, name, it)).collect();
        let sums = folder.curves.sums(point.id, name);
        let trials = sums.first().map(|(front, _)| front.trial).into_iter();
        for trial in trials.chain(curves.first().map(|it| it.trial)) {
            stages.entry(trial).or_insert_with(|| stage(folder, point, trial));
        }
        let stage_of = |trial: u32| stages.get(&trial).and_then(Option::as_ref);
        let open = leads && place(name) != Place::Folded;
        let (into, foreground) = if open { (&mut out, true) } else { (&mut folded, false) };
        if let Some((front, _)) = sums.first()
            && foreground
            && let Some(stage) = stage_of(front.trial)
        {
            put!(&mut *into, total(folder, point, name, &sums, stage));
            if curves.len() == 1 || curves.len() > LINES_MAX {
                continue;
            }
        }
        if curves.iter().all(|curve| curve.constant()) {
            still.add(name, &curves);
        } else if !foreground && folded_count == FOLDED_MAX {
            further.push(name);
        } else if let Some(stage) = curves.first().and_then(|first| stage_of(first.trial)) {
            folded_count += usize::from(!foreground);
            let (loud, faint) = if foreground && declared(folder, name).is_queue {
                by_depth(curves)
            } else {
                (curves, Vec::new())
            };
            put!(&mut *into, singles(folder, point, name, &loud, stage));
            if !faint.is_empty() {
                put!(&mut folded, singles(folder, point, name, &faint, stage));
            }
        }
    }
    put!(&mut folded, still.said());
    if !further.is_empty() {
        put!(&mut folded, "<p class=quiet>Recorded and not drawn: ", T(further.join(", ")), ".</p>\n");
    }
    put!(&mut folded, distribution::lateness(point));
    if !folded.is_empty() {
        put!(
            &mut out,
            "<details class=fold><summary>Links, machine and emulator</summary>\n",
            folded,
            "</details>\n"
        );
    }
    out
}

/// A sum whose parts are drawn by themselves has none.
fn has_line(folder: &Folder, name: &str, curve: &Curve) -> bool {
    !curve.columns.is_empty() && declared(folder, name).sum != curve.entity
}

/// Queues that held something worth a line, and those that held next to nothing.
fn by_depth(curves: Vec<&Curve>) -> (Vec<&Curve>, Vec<&Curve>) {
    let deepest = curves.iter().map(|curve| curve.high()).fold(0.0, f64::max);
    curves
        .into_iter()
        .filter(|curve| curve.high() > 0.0)
        .partition(|curve| curve.high() >= deepest * QUEUED_SHARE)
}

/// Series that stood still: a line of text each says all that a plot would.
#[derive(Default)]
struct Still {
    zero: BTreeSet<String>,
    constant: BTreeSet<String>,
}

impl Still {
    fn add(&mut self, name: &str, curves: &[&Curve]) {
        let Some(first) = curves.first() else { return };
        let same = curves.iter().all(|curve| curve.low() == first.low());
        if curves.iter().all(|curve| curve.flat_zero()) {
            self.zero.insert(name.to_owned());
        } else if same {
            self.constant.insert(format!("{name} {}", said(first.low(), &first.unit)));
        } else {
            self.constant.insert(name.to_owned());
        }
    }
    fn said(&self) -> Html {
        let mut out = Html::new();
        for (what, names) in [("Zero throughout: ", &self.zero), ("Constant: ", &self.constant)] {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                put!(&mut out, "<p class=quiet>", what, T(names.join(", ")), ".</p>\n");
            }
        }
        out
    }
}

/// A value in its unit; CPU as a share of a core.
fn said(value: f64, unit: &str) -> String {
    if unit == "core" { format!("{:.1} %", value * 100.0) } else { human(value, unit) }
}

fn middle(column: &Column, start_ns: f64) -> f64 {
    ((column.start_ns + column.end_ns) / 2.0 - start_ns) / 1e9
}

/// A curve through the middle of each column, or along its top from edge to edge where it is a rate and there is room.
pub(super) fn line(frame: &Frame, curve: &Curve, start_ns: f64, stepped: bool) -> Html {
    let x = |t_ns: f64| frame.px((t_ns - start_ns) / 1e9);
    if stepped && curve.bin_seconds.is_some() {
        let edges = |it: &Column| [it.start_ns, it.end_ns].map(|t| (x(t), frame.py(it.mean)));
        path(curve.columns.iter().flat_map(edges))
    } else {
        path(curve.columns.iter().map(|it| (frame.px(middle(it, start_ns)), frame.py(it.mean))))
    }
}

/// The extremes of the samples in each column, where they differ from its mean.
pub(super) fn spread(frame: &Frame, curve: &Curve, start_ns: f64) -> Option<Html> {
    if curve.columns.iter().all(|column| column.low == column.high) {
        return None;
    }
    let x = |t_ns: f64| frame.px((t_ns - start_ns) / 1e9);
    let edges = |it: &Column, value: f64| match curve.bin_seconds {
        Some(_) => [it.start_ns, it.end_ns].map(|t| (x(t), frame.py(value))),
        None => [(frame.px(middle(it, start_ns)), frame.py(value)); 2],
    };
    let top = curve.columns.iter().flat_map(|it| edges(it, it.high));
    let low = curve.columns.iter().rev().flat_map(|it| {
        let [from, to] = edges(it, it.low);
        [to, from]
    });
    Some(path(top.chain(low)))
}

/// Goodput of all flows together: the emphasised trial in front, the others thin behind it.
fn total(folder: &Folder, point: &Point<'_>, name: &str, sums: &[(Curve, usize)], stage: &Stage) -> Html {
    let mut out = Html::new();
    let Some((front, flows)) = sums.first() else { return out };
    let ceiling = point.plan.and_then(|plan| plan.ceiling_bits_per_second).filter(|_| front.unit == "bit/s");
    let means = sums.iter().flat_map(|(curve, _)| &curve.columns).map(|column| column.mean);
    let top = means.chain(ceiling).fold(0.0, f64::max);
    let axes = (Axis::exact(0.0, stage.seconds, "s", 8), Axis::above_zero(top, &front.unit, 5));
    let (Some(x), Some(y)) = axes else { return out };
    let frame = Frame::new(940.0, 260.0, x, y);
    let title = spoken(folder, name);
    let mut svg =
        frame.begin(&format!("{title} over time, {}", point.id), "time from the step’s start", title);
    draw_bands(&mut svg, &frame, stage);
    if let Some(ceiling) = ceiling {
        let at = frame.py(ceiling);
        put!(
            &mut svg,
            "<path class=ceiling d=\"M",
            frame.left,
            " ",
            at,
            "H",
            frame.width - frame.right,
            "\"/>"
        );
        put!(
            &mut svg,
            "<text class=soft text-anchor=end x=",
            frame.width - frame.right - 2.0,
            " y=",
            at - 5.0,
            ">ceiling "
        );
        put!(&mut svg, T(human(ceiling, "bit/s")), "</text>");
    }
    for (curve, _) in sums[1..].iter().take(30) {
        let start_ns = point
            .trials
            .iter()
            .find(|it| it.trial == curve.trial)
            .map_or(stage.start_ns, |it| it.start_ns as f64);
        put!(&mut svg, "<path class=thin d=\"", line(&frame, curve, start_ns, true), "\"/>");
    }
    if let Some(spread) = spread(&frame, front, stage.start_ns) {
        put!(&mut svg, "<path class=\"spread f0\" d=\"", spread, "Z\"/>");
    }
    put!(&mut svg, "<path class=\"curve c0\" d=\"", line(&frame, front, stage.start_ns, true), "\"/>");
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><figcaption>");
    put!(
        &mut out,
        T(format!(
            "{}{} received, {}, trial {}",
            title[..1].to_uppercase(),
            &title[1..],
            match &declared(folder, name).of {
                (one, many) if !one.is_empty() => plural(*flows, one, &format!("{many} summed")),
                _ => plural(*flows, "flow", "flows summed"),
            },
            front.trial
        ))
    );
    if sums.len() > 1 {
        put!(&mut out, "; thin: ", T(plural(sums.len() - 1, "other trial", "other trials")));
    }
    put!(&mut out, ". ", T(resolution(front)), T(fault_words(stage)), "</figcaption>");
    let shown: Vec<(String, &Curve)> =
        sums.iter().take(8).map(|(curve, _)| (format!("trial {}", curve.trial), curve)).collect();
    put!(&mut out, table(&shown, stage, point), "</figure>\n");
    out
}

/// What a point of the line stands for.
fn resolution(curve: &Curve) -> String {
    let lowest = curve.columns.iter().any(|column| column.low < column.mean * 0.999);
    match curve.bin_seconds {
        Some(bin) if lowest => {
            format!("Rate over bins of {}; shaded below: the lowest stretch in each.", human(bin, "s"))
        }
        Some(bin) => format!("Rate over bins of {}.", human(bin, "s")),
        None if curve.columns.len() < curve.sample_count.saturating_sub(1) => format!(
            "Line: means of {} intervals; shaded: lowest and highest of {} samples.",
            curve.columns.len(),
            curve.sample_count
        ),
        None => String::new(),
    }
}

/// What lies above the plot is cut: one sample must not flatten all others.
fn clipped(curve: &Curve, high: f64) -> Curve {
    let mut clipped = curve.clone();
    for column in &mut clipped.columns {
        column.high = column.high.min(high);
        column.low = column.low.min(high);
    }
    clipped
}

/// Every entity's own curve, one trial: flows, ports, hosts.
fn singles(folder: &Folder, point: &Point<'_>, name: &str, curves: &[&Curve], stage: &Stage) -> Html {
    let mut out = Html::new();
    let Some(first) = curves.first() else { return out };
    let flows = curves.iter().all(|curve| curve.entity.starts_with("flow."));
    let mut ranked: Vec<&Curve> = curves.iter().copied().filter(|curve| !curve.flat_zero()).collect();
    ranked.sort_by(|a, b| b.high().total_cmp(&a.high()));
    let most = if flows { LINES_MAX } else { NAMED_LINES_MAX };
    let left_out = ranked.len().saturating_sub(most);
    ranked.truncate(most);
    // Shown in the order of their names; ranked only to choose them.
    ranked.sort_by(|a, b| a.entity.cmp(&b.entity));
    let low = ranked.iter().map(|curve| curve.low()).fold(f64::INFINITY, f64::min);
    let high =
        ranked.iter().flat_map(|curve| &curve.columns).map(|it| it.mean).fold(f64::NEG_INFINITY, f64::max);
    // Where there is one line its extremes are drawn too; those far above all means are clipped.
    let high = match ranked.as_slice() {
        [only] => only.high().min(high * 1.5).max(high),
        _ => high,
    };
    // Shares of a core are read against the whole core.
    let high = if first.unit == "core" { high.max(1.0) } else { high };
    // Round trips and the like vary little around a value far from zero; rates and depths are read from zero.
    let from_zero = !(first.unit == "s" && low > 0.0 && low > high * 0.5);
    let low = if from_zero { low.min(0.0) } else { low };
    let limit = queue_limit(folder, point, name, &ranked);
    let high = limit.map_or(high, |limit| high.max(limit));
    let y = if low == 0.0 {
        Axis::above_zero(high, &first.unit, 4)
    } else {
        Axis::linear(low, high, &first.unit, 4, from_zero)
    };
    let (Some(x), Some(y)) = (Axis::exact(0.0, stage.seconds, "s", 8), y) else { return out };
    let frame = Frame::new(940.0, 190.0, x, y);
    let title = spoken(folder, name);
    let y_title = if flows && ranked.len() > 1 { format!("{title} of each flow") } else { title.to_owned() };
    let mut svg =
        frame.begin(&format!("{y_title} over time, {}", point.id), "time from the step’s start", &y_title);
    draw_bands(&mut svg, &frame, stage);
    if let Some(limit) = limit {
        let (at, end) = (frame.py(limit), frame.width - frame.right);
        put!(&mut svg, "<path class=ceiling d=\"M", frame.left, " ", at, "H", end, "\"/>");
        put!(
            &mut svg,
            "<text class=soft text-anchor=end x=",
            end - 2.0,
            " y=",
            at - 5.0,
            ">the queue’s size</text>"
        );
    }
    if let [only] = ranked.as_slice()
        && let Some(spread) = spread(&frame, &clipped(only, frame.y.high), stage.start_ns)
    {
        put!(&mut svg, "<path class=\"spread f0\" d=\"", spread, "Z\"/>");
    }
    let columns = if ranked.len() > 4 { CROWDED_COLUMNS_MAX } else { usize::MAX };
    let thinned: Vec<Curve> = ranked.iter().map(|curve| curve.thinned(columns)).collect();
    for (index, curve) in thinned.iter().enumerate() {
        put!(
            &mut svg,
            "<path class=\"curve ",
            hue(index),
            "\"",
            dash(index),
            " d=\"",
            line(&frame, curve, stage.start_ns, ranked.len() <= STEPPED_LINES_MAX),
            "\"/>"
        );
    }
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div>");
    if ranked.len() > 1 {
        put!(&mut out, "<div class=legend>");
        for (index, curve) in ranked.iter().enumerate() {
            put!(
                &mut out,
                "<span><svg viewBox=\"0 0 20 10\"><path class=\"curve ",
                hue(index),
                "\"",
                dash(index),
                " d=\"M0 5H20\"/></svg>"
            );
            put!(&mut out, T(short_entity(&curve.entity, curves)), "</span>");
        }
        put!(&mut out, "</div>");
    }
    put!(&mut out, "<figcaption>");
    let capital = y_title.chars().next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
    put!(&mut out, T(capital), T(y_title.chars().skip(1).collect::<String>()));
    if let [only] = ranked.as_slice() {
        put!(&mut out, ", ", T(&only.entity));
    }
    put!(&mut out, ", trial ", first.trial as usize, " <code>", T(name), "</code>. ");
    match ranked.as_slice() {
        [only] => put!(&mut out, T(resolution(only)), " "),
        _ if first.bin_seconds.is_some() => {
            let bins = ranked.iter().filter_map(|curve| curve.bin_seconds).fold(0.0, f64::max);
            put!(&mut out, "Rates over bins of ", T(human(bins, "s")), ". ");
        }
        _ => {}
    }
    if left_out > 0 {
        put!(&mut out, "The ", ranked.len(), " with the highest values; ", left_out, " more are recorded. ");
    }
    // One band has its name in the picture; names of many may lie over each other.
    if stage.bands.len() > 1 {
        put!(&mut out, T(fault_words(stage).trim_start()));
    }
    put!(&mut out, "</figcaption>");
    let shown: Vec<(String, &Curve)> =
        ranked.iter().map(|curve| (short_entity(&curve.entity, curves), *curve)).collect();
    put!(&mut out, table(&shown, stage, point), "</figure>\n");
    out
}

/// The size of the queue drawn, where it is one link's between sites.
fn queue_limit(folder: &Folder, point: &Point<'_>, name: &str, curves: &[&Curve]) -> Option<f64> {
    let [only] = curves else { return None };
    declared(folder, name).is_queue.then_some(())?;
    let (link, direction) = only.entity.strip_prefix("link.")?.rsplit_once('.')?;
    let configurations = &folder.plan.as_ref()?.configurations;
    let of_point = configurations.iter().find(|it| it.steps.iter().any(|step| step.point == point.id))?;
    let link = of_point.topology.links.iter().find(|it| it.name == link)?;
    let direction = if direction == "forward" { &link.forward } else { &link.backward };
    direction.queue.bytes.map(|bytes| bytes.0 as f64)
}

/// Beyond eight lines colours repeat, dashed.
fn dash(index: usize) -> &'static str {
    if index < 8 { "" } else { " stroke-dasharray=\"4 3\"" }
}

/// Drops the part that all entities have in common: `flow.left-0.right-0.3` among its like is `flow 3`.
fn short_entity(entity: &str, all: &[&Curve]) -> String {
    if let Some(short) = entity.strip_prefix("process.").or_else(|| entity.strip_prefix("machine.")) {
        return short.to_owned();
    }
    let pair = |entity: &str| entity.rsplit_once('.').map(|(pair, _)| pair.to_owned());
    match entity.strip_prefix("flow.").and_then(|rest| rest.rsplit_once('.')) {
        Some((_, number)) if all.iter().all(|other| pair(&other.entity) == pair(entity)) => {
            format!("flow {number}")
        }
        Some((pair, number)) => format!("{pair} {number}"),
        None => entity.to_owned(),
    }
}

/// The plot's figures: the mean of each curve in each of at most 40 stretches of the step.
fn table(curves: &[(String, &Curve)], stage: &Stage, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let longest = curves.iter().map(|(_, curve)| curve.columns.len()).max().unwrap_or(0);
    let rows = longest.min(TABLE_ROWS);
    if rows == 0 {
        return out;
    }
    let stretch = stage.seconds / rows as f64;
    put!(&mut out, "<details><summary>The figures behind this plot</summary>");
    put!(&mut out, "<p class=quiet>Means over stretches of ", T(human(stretch, "s")), ".</p>");
    put!(&mut out, "<div class=wide><table class=tight><thead><tr><th class=n>from");
    for (name, _) in curves {
        put!(&mut out, "<th class=n>", T(name));
    }
    put!(&mut out, "</thead><tbody>");
    let starts: Vec<f64> = curves
        .iter()
        .map(|(_, curve)| {
            point
                .trials
                .iter()
                .find(|it| it.trial == curve.trial)
                .map_or(stage.start_ns, |it| it.start_ns as f64)
        })
        .collect();
    for row in 0..rows {
        let (from, to) = (row as f64 * stretch, (row + 1) as f64 * stretch);
        put!(&mut out, "<tr><td class=n>", T(format!("{from:.3} s")));
        if stage.warm_up.is_some_and(|warm_up| from < warm_up) {
            put!(&mut out, " <span class=quiet>warm-up</span>");
        }
        for ((_, curve), start_ns) in curves.iter().zip(&starts) {
            let inside = |column: &&Column| (from..to).contains(&middle(column, *start_ns));
            // Weighted by the time each column covers, so that a counter's rate stays what was counted over the time.
            let (sum, weight) =
                curve.columns.iter().filter(inside).fold((0.0, 0.0), |(sum, weight), column| {
                    let covers = (column.end_ns - column.start_ns).max(1.0);
                    (sum + column.mean * covers, weight + covers)
                });
            put!(
                &mut out,
                "<td class=n>",
                T(if weight > 0.0 { said(sum / weight, &curve.unit) } else { "–".to_owned() })
            );
        }
    }
    put!(&mut out, "</tbody></table></div></details>");
    out
}
