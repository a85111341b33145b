//! Series of a point: goodput over time with faults drawn on it, then every other series of one trial.

use super::chart::{Axis, Frame, hue, path};
use super::steps::Point;
use crate::Folder;
use crate::curve::{Column, Curve};
use crate::escape::{Html, T, put};
use crate::words::plural;
use std::collections::BTreeMap;
use weir_core::record::TrialRecord;
use weir_core::units::human;

/// Lines of a plot at most; more cannot be told apart.
const LINES_MAX: usize = 16;
/// Lines of ports, hosts and the like, which have names of their own in a legend.
const NAMED_LINES_MAX: usize = 8;
/// Columns of each line where there are many.
const CROWDED_COLUMNS_MAX: usize = 220;
const PANELS_MAX: usize = 9;
const TABLE_ROWS: usize = 40;

/// A fault's effect on the step's clock, in seconds.
struct Band {
    name: String,
    from: f64,
    to: f64,
}

/// Where the trial's step lies, and what happened in it.
struct Stage {
    start_ns: f64,
    seconds: f64,
    bands: Vec<Band>,
}

/// Names people know, for the common series; others go by their own.
fn spoken(name: &str) -> Option<&'static str> {
    Some(match name {
        "stream.received_bytes" => "goodput",
        "port.queue_bytes" => "queue depth",
        "port.wire_bytes" => "rate on the wire",
        "port.dropped_queue_packets" => "drops, full queue",
        "port.dropped_loss_packets" => "drops, random loss",
        "port.dropped_outage_packets" => "drops, outage",
        "port.sent_packets" => "packets sent",
        "tcp.congestion_window_segments" => "congestion window",
        "tcp.rtt_seconds" => "round trip as TCP sees it",
        "tcp.retransmitted_segments" => "retransmissions",
        "host.cpu_ratio" | "cpu.ratio" => "CPU in use",
        "cpu.process_seconds" => "CPU of each process",
        _ => return None,
    })
}

/// The order in which panels answer questions: how fast, what queued, what was lost, what TCP thought, who worked.
const ORDER: [&str; 8] = [
    "stream.received_bytes",
    "port.queue_bytes",
    "port.dropped_queue_packets",
    "port.dropped_loss_packets",
    "tcp.congestion_window_segments",
    "tcp.rtt_seconds",
    "tcp.retransmitted_segments",
    "port.wire_bytes",
];

pub(crate) fn panels(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let mut names = folder.curves.names(point.id);
    if names.is_empty() {
        return out;
    }
    names.sort_by_key(|name| (ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()), *name));
    // A long timeline is searched once a trial, not once a plot.
    let mut stages: BTreeMap<u32, Option<Stage>> = BTreeMap::new();
    let (mut zero, mut further) = (Vec::new(), Vec::new());
    let mut drawn = 0;
    for name in names {
        let curves = folder.curves.of(point.id, name);
        let sums = folder.curves.sums(point.id, name);
        if sums.is_empty() && curves.iter().all(Curve::flat_zero) {
            zero.push(name);
        } else if drawn == PANELS_MAX {
            further.push(name);
        } else {
            drawn += 1;
            for trial in sums
                .first()
                .map(|(front, _)| front.trial)
                .into_iter()
                .chain(curves.first().map(|it| it.trial))
            {
                stages.entry(trial).or_insert_with(|| stage(folder, point, trial));
            }
            let stage_of = |trial: u32| stages.get(&trial).and_then(Option::as_ref);
            if let Some((front, _)) = sums.first()
                && let Some(stage) = stage_of(front.trial)
            {
                put!(&mut out, total(point, name, &sums, stage));
            }
            if curves.len() > 1 || sums.is_empty() {
                let stage = curves.first().and_then(|first| stage_of(first.trial));
                if let Some(stage) = stage {
                    put!(&mut out, singles(folder, point, name, curves, stage));
                }
            }
        }
    }
    for (what, list) in [("Zero throughout and not drawn: ", zero), ("Recorded and not drawn: ", further)] {
        if !list.is_empty() {
            put!(&mut out, "<p class=quiet>", what, T(list.join(", ")), ".</p>\n");
        }
    }
    out
}

fn stage(folder: &Folder, point: &Point<'_>, trial: u32) -> Option<Stage> {
    let record: &TrialRecord = point.trials.iter().find(|it| it.trial == trial)?;
    let (start_ns, end_ns) = (record.start_ns as f64, record.end_ns as f64);
    let seconds = (end_ns - start_ns) / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    let mut bands: Vec<Band> = Vec::new();
    let mut open: BTreeMap<String, f64> = BTreeMap::new();
    let here = |at: i64| ((at as f64) - start_ns) / 1e9;
    for event in &folder.timeline {
        let (Some(at), true) = (event.trial_ns, event.trial == Some(trial)) else { continue };
        if event.configuration.as_ref().is_some_and(|it| *it != record.configuration) {
            continue;
        }
        let named = ["fault", "name"].iter().find_map(|key| event.data.get(*key)?.as_str());
        let name = named.unwrap_or(&event.text).to_owned();
        match event.event.as_str() {
            "fault-start" => {
                open.insert(name, here(at));
            }
            "fault-end" => {
                if let Some(from) = open.remove(&name) {
                    bands.push(Band { name, from, to: here(at) });
                }
            }
            _ => {}
        }
    }
    bands.extend(open.into_iter().map(|(name, from)| Band { name, from, to: seconds }));
    bands.retain(|band| band.to >= 0.0 && band.from <= seconds);
    bands.sort_by(|a, b| a.from.total_cmp(&b.from));
    bands.truncate(200);
    Some(Stage { start_ns, seconds, bands })
}

fn draw_bands(out: &mut Html, frame: &Frame, stage: &Stage) {
    let mut named_until = f64::NEG_INFINITY;
    for band in &stage.bands {
        let (from, to) = (frame.px(band.from.max(0.0)), frame.px(band.to.min(stage.seconds)));
        put!(&mut *out, "<rect class=band x=", from, " y=", frame.top, " width=", (to - from).max(1.0));
        put!(
            &mut *out,
            " height=",
            frame.floor() - frame.top,
            " /><path class=bandedge d=\"M",
            from,
            " ",
            frame.top,
            "V",
            frame.floor()
        );
        put!(&mut *out, "M", to, " ", frame.top, "V", frame.floor(), "\"/>");
        // Names that would lie over each other are left to the caption.
        if from >= named_until {
            let name: String = band.name.chars().take(24).collect();
            named_until = from + 7.0 * name.chars().count() as f64 + 8.0;
            let at_end = named_until > frame.width - frame.right;
            let x = if at_end { from - 4.0 } else { from + 2.0 };
            let anchor = if at_end { "end" } else { "start" };
            put!(
                &mut *out,
                "<text class=bandname text-anchor=",
                anchor,
                " x=",
                x,
                " y=",
                frame.top - 4.0,
                ">",
                T(name),
                "</text>"
            );
        }
    }
}

fn fault_words(stage: &Stage) -> String {
    let said: Vec<String> = stage
        .bands
        .iter()
        .take(6)
        .map(|band| {
            format!(
                "{} from {} for {}",
                band.name,
                human(band.from.max(0.0), "s"),
                human(band.to - band.from, "s")
            )
        })
        .collect();
    let more = stage.bands.len().saturating_sub(6);
    match (said.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" Shaded: {}.", said.join("; ")),
        (false, _) => format!(" Shaded: {}; and {more} more.", said.join("; ")),
    }
}

fn middle(column: &Column, start_ns: f64) -> f64 {
    ((column.start_ns + column.end_ns) / 2.0 - start_ns) / 1e9
}

/// The curve itself, and behind it the extremes of the samples in each column where they differ from its mean.
fn line(frame: &Frame, curve: &Curve, start_ns: f64) -> Html {
    path(curve.columns.iter().map(|column| (frame.px(middle(column, start_ns)), frame.py(column.mean))))
}

fn spread(frame: &Frame, curve: &Curve, start_ns: f64) -> Option<Html> {
    if curve.columns.iter().all(|column| column.low == column.high) {
        return None;
    }
    let top = curve.columns.iter().map(|it| (frame.px(middle(it, start_ns)), frame.py(it.high)));
    let low = curve.columns.iter().rev().map(|it| (frame.px(middle(it, start_ns)), frame.py(it.low)));
    Some(path(top.chain(low)))
}

/// Goodput of all flows together: the emphasised trial in front, the others thin behind it.
fn total(point: &Point<'_>, name: &str, sums: &[(Curve, usize)], stage: &Stage) -> Html {
    let mut out = Html::new();
    let Some((front, flows)) = sums.first() else { return out };
    let ceiling = point.plan.and_then(|plan| plan.ceiling_bits_per_second).filter(|_| front.unit == "bit/s");
    // The extremes of single samples may be far above (a burst after a gap): the means decide the axis, the spread is
    // clipped to what fits within a third more.
    let means = sums.iter().flat_map(|(curve, _)| &curve.columns).map(|column| column.mean);
    let top = means.chain(ceiling).fold(0.0, f64::max);
    let high = front.high().min(top * 1.25).max(top);
    let axes = (Axis::exact(0.0, stage.seconds, "s", 8), Axis::linear(0.0, high, &front.unit, 5, true));
    let (Some(x), Some(y)) = axes else { return out };
    let frame = Frame::new(940.0, 260.0, x, y);
    let title = spoken(name).unwrap_or(name);
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
        put!(&mut svg, "<path class=thin d=\"", line(&frame, curve, start_ns), "\"/>");
    }
    if let Some(spread) = spread(&frame, &clipped(front, frame.y.high), stage.start_ns) {
        put!(&mut svg, "<path class=\"spread f0\" d=\"", spread, "Z\"/>");
    }
    put!(&mut svg, "<path class=\"curve c0\" d=\"", line(&frame, front, stage.start_ns), "\"/>");
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><figcaption>");
    put!(
        &mut out,
        T(format!(
            "{}{} received, {}, trial {}",
            title[..1].to_uppercase(),
            &title[1..],
            plural(*flows, "flow", "flows summed"),
            front.trial
        ))
    );
    if sums.len() > 1 {
        put!(&mut out, "; thin: ", T(plural(sums.len() - 1, "other trial", "other trials")));
    }
    put!(&mut out, ". ", resolution(front), T(fault_words(stage)), "</figcaption>");
    let shown: Vec<(String, &Curve)> =
        sums.iter().take(8).map(|(curve, _)| (format!("trial {}", curve.trial), curve)).collect();
    put!(&mut out, table(&shown, stage, point), "</figure>\n");
    out
}

fn clipped(curve: &Curve, high: f64) -> Curve {
    let mut clipped = curve.clone();
    for column in &mut clipped.columns {
        column.high = column.high.min(high);
        column.low = column.low.min(high);
    }
    clipped
}

fn resolution(curve: &Curve) -> Html {
    let mut out = Html::new();
    if curve.columns.len() < curve.sample_count.saturating_sub(1) {
        put!(
            &mut out,
            "Line: means of ",
            T(curve.columns.len().to_string()),
            " intervals; shaded around it: lowest and highest of "
        );
        put!(&mut out, T(curve.sample_count.to_string()), " samples.");
    }
    out
}

/// Every entity's own curve, one trial: flows, ports, hosts.
fn singles(folder: &Folder, point: &Point<'_>, name: &str, curves: &[Curve], stage: &Stage) -> Html {
    let mut out = Html::new();
    let Some(first) = curves.first() else { return out };
    let flows = curves.iter().all(|curve| curve.entity.starts_with("flow."));
    let mut ranked: Vec<&Curve> =
        curves.iter().filter(|curve| !curve.flat_zero() && !curve.columns.is_empty()).collect();
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
    // Round trips and the like vary little around a value far from zero; rates and depths are read from zero.
    let from_zero = !(first.unit == "s" && low > 0.0 && low > high * 0.5);
    let low = if from_zero { low.min(0.0) } else { low };
    let limit = queue_limit(folder, point, name, &ranked);
    let high = limit.map_or(high, |limit| high.max(limit));
    let axes = (Axis::exact(0.0, stage.seconds, "s", 8), Axis::linear(low, high, &first.unit, 4, from_zero));
    let (Some(x), Some(y)) = axes else { return out };
    let frame = Frame::new(940.0, 210.0, x, y);
    let title = spoken(name).unwrap_or(name);
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
            line(&frame, curve, stage.start_ns),
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
    if let [only] = ranked.as_slice() {
        put!(&mut out, resolution(only), " ");
    }
    if left_out > 0 {
        put!(&mut out, "The ", ranked.len(), " with the highest values; ", left_out, " more are recorded. ");
    }
    put!(&mut out, T(fault_words(stage).trim_start()), "</figcaption>");
    let shown: Vec<(String, &Curve)> =
        ranked.iter().map(|curve| (short_entity(&curve.entity, curves), *curve)).collect();
    put!(&mut out, table(&shown, stage, point), "</figure>\n");
    out
}

/// The size of the queue drawn, where it is one link's between sites.
fn queue_limit(folder: &Folder, point: &Point<'_>, name: &str, curves: &[&Curve]) -> Option<f64> {
    let ([only], "port.queue_bytes") = (curves, name) else { return None };
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
fn short_entity(entity: &str, all: &[Curve]) -> String {
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
    put!(
        &mut out,
        "<details><summary>The figures behind this plot</summary><div class=wide><table class=tight><thead><tr><th class=n>from"
    );
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
                T(if weight > 0.0 { human(sum / weight, &curve.unit) } else { "–".to_owned() })
            );
        }
    }
    put!(&mut out, "</tbody></table></div></details>");
    out
}
