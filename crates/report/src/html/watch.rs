//! The two views of a watched path on one axis of time: what short tests reported, and what the path did meanwhile.

use super::chart::{Axis, Frame, hue};
use super::series::{line, spread};
use super::stage::{Stage, draw_bands, fault_words, stage};
use super::steps::{self, Point};
use crate::Folder;
use crate::curve::Curve;
use crate::escape::{Html, T, put};
use crate::words::plural;
use weir_core::record::{Observed, TrialRecord};
use weir_core::shown::{Part, TwoViews};
use weir_core::units::human;

/// Lines of single flows at most.
const FLOWS_MAX: usize = 8;
const COLUMNS_MAX: usize = 900;
const TABLE_ROWS: usize = 60;

/// One point's own record of the trial that is drawn.
struct Seen<'a> {
    point: &'a str,
    stage: Stage,
    trial: u32,
    /// `None`: its run was killed before it wrote one.
    record: Option<&'a TrialRecord>,
    probes: Vec<&'a Curve>,
    long: Vec<Curve>,
}

impl Seen<'_> {
    fn of<'a>(declared: &TwoViews, folder: &'a Folder, point: &Point<'a>) -> Option<Seen<'a>> {
        let probes: Vec<&Curve> = folder.curves.of(point.id, &declared.dots).iter().collect();
        let long = folder.long.of(point.id);
        let trial = probes.first().map(|it| it.trial).or(long.first().map(|it| it.trial))?;
        let record = point.trials.iter().copied().find(|it| it.trial == trial);
        let stage = stage(folder, point, trial).or_else(|| as_far_as(&long))?;
        Some(Seen { point: point.id, stage, trial, record, probes, long })
    }

    fn row(&self, metric: &str) -> Option<f64> {
        let values =
            self.record.into_iter().flat_map(|record| &record.rows).filter(|row| row.metric == metric);
        let values: Vec<f64> = values
            .filter_map(|row| if let Observed::Value(value) = row.value { Some(value) } else { None })
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// Where a step lies whose end nobody wrote down.
fn as_far_as(long: &[Curve]) -> Option<Stage> {
    let columns = || long.iter().flat_map(|curve| &curve.columns);
    let start_ns = columns().map(|it| it.start_ns).fold(f64::INFINITY, f64::min);
    let seconds = (columns().map(|it| it.end_ns).fold(f64::NEG_INFINITY, f64::max) - start_ns) / 1e9;
    (seconds > 0.0).then(|| Stage { start_ns, seconds, bands: Vec::new(), warm_up: None })
}

pub(super) fn views(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    for declared in folder.shown.views.iter() {
        if let Some(seen) = Seen::of(declared, folder, point) {
            put!(&mut out, view(declared, &seen, folder, point));
        }
    }
    out
}

/// Where dots stand alone, the long flow of another step of the same configuration stands beside them, each from its own start.
fn view(declared: &TwoViews, seen: &Seen<'_>, folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let beside = if seen.long.is_empty() { neighbour(declared, folder, point) } else { None };
    let long = beside.as_ref().unwrap_or(seen);
    let lines = long.long.iter().flat_map(|curve| &curve.columns).map(|it| it.mean);
    let marks = seen.probes.iter().flat_map(|curve| &curve.columns).map(|it| it.high);
    let unimpaired = seen.row(&declared.reference.0);
    let top = lines.chain(marks).chain(unimpaired).fold(0.0, f64::max);
    let seconds = seen.stage.seconds.max(beside.as_ref().map_or(0.0, |it| it.stage.seconds));
    let axes = (Axis::exact(0.0, seconds, "s", 8), Axis::above_zero(top, "bit/s", 5));
    let (Some(x), Some(y)) = axes else { return out };
    let frame = Frame::new(940.0, 280.0, x, y);
    let mut svg =
        frame.begin(&format!("two views of the path, {}", point.id), "time from the step’s start", "goodput");
    draw_bands(&mut svg, &frame, &long.stage);
    if let Some(unimpaired) = unimpaired {
        let at = frame.py(unimpaired * declared.reference.1);
        let end = frame.width - frame.right;
        put!(&mut svg, "<path class=ceiling d=\"M", frame.left, " ", at, "H", end, "\"/>");
        put!(
            &mut svg,
            "<text class=soft text-anchor=end x=",
            end - 2.0,
            " y=",
            at + 13.0,
            ">",
            T(format!("{} of the unimpaired rate", declared.reference.1)),
            "</text>"
        );
    }
    for (index, curve) in long.long.iter().take(FLOWS_MAX).enumerate() {
        let thin = curve.thinned(COLUMNS_MAX);
        if long.long.len() == 1
            && let Some(spread) = spread(&frame, &clipped(&thin, frame.y.high), long.stage.start_ns)
        {
            put!(&mut svg, "<path class=\"spread f0\" d=\"", spread, "Z\"/>");
        }
        put!(
            &mut svg,
            "<path class=\"curve ",
            hue(index),
            "\" d=\"",
            line(&frame, &thin, long.stage.start_ns, true),
            "\"/>"
        );
    }
    for column in seen.probes.iter().flat_map(|curve| &curve.columns) {
        let at = frame.px((column.start_ns - seen.stage.start_ns) / 1e9);
        put!(&mut svg, "<circle class=probe cx=", at, " cy=", frame.py(column.mean), " r=4.5 />");
    }
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><figcaption>");
    put!(&mut out, T(caption(seen, beside.as_ref(), point.id)), T(fault_words(&long.stage)), "</figcaption>");
    put!(&mut out, table(declared, seen, long), figures(seen), "</figure>\n");
    out
}

/// The long flow of another watch of the same configuration.
fn neighbour<'a>(declared: &TwoViews, folder: &'a Folder, point: &Point<'_>) -> Option<Seen<'a>> {
    let configurations = &folder.plan.as_ref()?.configurations;
    let own = configurations.iter().find(|it| it.steps.iter().any(|step| step.point == point.id))?;
    let same = |other: &Point<'_>| own.steps.iter().any(|step| step.point == other.id);
    let others = steps::points(folder).into_iter().filter(|other| other.id != point.id && same(other));
    let mut seen =
        others.filter_map(|other| Seen::of(declared, folder, &other).filter(|seen| !seen.long.is_empty()));
    seen.next()
}

fn clipped(curve: &Curve, high: f64) -> Curve {
    let mut clipped = curve.clone();
    clipped.columns.iter_mut().for_each(|column| column.high = column.high.min(high));
    clipped
}

fn caption(seen: &Seen<'_>, beside: Option<&Seen<'_>>, point: &str) -> String {
    let mut words = String::from("Two views of the path, trial ");
    words.push_str(&seen.trial.to_string());
    words.push_str(". ");
    let long = beside.unwrap_or(seen);
    if !seen.probes.is_empty() {
        words.push_str("Dots: what each short test reported, where it began. ");
    }
    if let Some(first) = long.long.first() {
        let bin =
            first.thinned(COLUMNS_MAX).columns.first().map_or(0.0, |it| (it.end_ns - it.start_ns) / 1e9);
        let shaded = if bin > 1.5 { "; shaded: the poorest and best second in each" } else { "" };
        words.push_str(&format!("Line: the long flow, means of {}{shaded}. ", human(bin, "s")));
        if beside.is_some() {
            words.push_str(&format!(
                "It is that of {}, another time on the same path; {point} had none. ",
                long.point
            ));
        }
        if long.long.len() > FLOWS_MAX {
            words.push_str(&format!(
                "{} more are recorded. ",
                plural(long.long.len() - FLOWS_MAX, "flow", "flows")
            ));
        }
    }
    words
}

/// What each of the two would have had an operator believe.
fn table(declared: &TwoViews, seen: &Seen<'_>, long: &Seen<'_>) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<div class=wide><table class=tight><thead><tr><th>view<th>what it says</thead><tbody>");
    for ((name, sentences), of) in [(&declared.of_dots, seen), (&declared.of_line, long)] {
        let said: Vec<String> = sentences.iter().filter_map(|it| said(it, of, seen)).collect();
        if !said.is_empty() {
            put!(&mut out, "<tr><td>", T(name), "<td>", T(said.join("; ")));
        }
    }
    put!(&mut out, "</tbody></table></div>");
    out
}

/// `None` where a figure of it was not measured.
fn said(sentence: &[Part], of: &Seen<'_>, dots: &Seen<'_>) -> Option<String> {
    let mut words = String::new();
    for part in sentence {
        match part {
            Part::Text(text) => words += text,
            Part::Figure(metric, unit) => words += &human(of.row(metric)?, unit),
            Part::Percent(metric) => words += &format!("{:.1} %", of.row(metric)? * 100.0),
            Part::Dots(one, many) => {
                words += &plural(dots.probes.iter().map(|it| it.sample_count).sum(), one, many)
            }
        }
    }
    Some(words)
}

/// The probes' figures one by one.
fn figures(seen: &Seen<'_>) -> Html {
    let mut out = Html::new();
    let all: Vec<_> =
        seen.probes.iter().flat_map(|curve| curve.columns.iter().map(|it| (&curve.entity, it))).collect();
    if all.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<details><summary>The short tests one by one</summary><div class=wide><table class=tight>"
    );
    put!(&mut out, "<thead><tr><th>flow<th class=n>began<th class=n>goodput</thead><tbody>");
    for (entity, column) in all.iter().take(TABLE_ROWS) {
        let began = (column.start_ns - seen.stage.start_ns) / 1e9;
        put!(&mut out, "<tr><td>", T(*entity), "<td class=n>", T(format!("{began:.1} s")));
        put!(&mut out, "<td class=n>", T(human(column.mean, "bit/s")));
    }
    put!(&mut out, "</tbody></table></div>");
    if all.len() > TABLE_ROWS {
        put!(&mut out, "<p class=quiet>", all.len() - TABLE_ROWS, " more are in samples.jsonl.</p>");
    }
    put!(&mut out, "</details>");
    out
}

#[cfg(test)]
mod tests {
    use crate::{Folder, html, sample};
    use std::fs;
    use std::path::Path;

    /// A watch of ten minutes with a dip every 61 s, as chunks.
    fn watched(run: &Path, sets: &[&str]) {
        use weir_core::chunk::{Chunk, ChunkRecord, Packer, RECEIVED};
        let mut chunks = Vec::new();
        let (mut bytes, mut tick) = (0_u64, 0_u64);
        for _ in 0..60 {
            let mut packer = Packer::new(&RECEIVED, Vec::new());
            for _ in 0..1_000 {
                bytes += if tick / 100 % 61 < 2 { 1_000 } else { 1_250_000 };
                assert!(packer.push(tick * 10_000_000, &[Some(bytes)]));
                tick += 1;
            }
            let (start_ns, count, data) = packer.take(Vec::new());
            for fields in sets {
                let (entity, fields) = ("flow.left-0.right-0.0".to_owned(), (*fields).to_owned());
                let chunk = Chunk { entity, fields, start_ns: start_ns as i64, count, data: data.clone() };
                let (point, step) = ("outage".to_owned(), "outage".to_owned());
                chunks.push(ChunkRecord { point, trial: 0, step, chunk });
            }
        }
        sample::write_chunks(run, chunks);
    }

    // Spec: results.md#chunk-3
    #[test]
    fn fine_series_are_drawn_and_kinds_nobody_knows_are_passed_over_aloud() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        sample::write(&run, &sample::summary(), 400);
        watched(&run, &["received/1", "tcp-info/77"]);
        let folder = Folder::read(&run).unwrap();
        let said = folder.notes.join("\n");
        assert!(said.contains("60 lines are of fields that this weir does not know"), "{said}");
        let drawn = html(&folder);
        assert!(drawn.contains("Two views of the path, trial 0"));
        // A damaged line is named, one that was cut short is left out.
        let path = run.join("chunks.jsonl");
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        assert!(
            Folder::read(&run)
                .unwrap()
                .notes
                .join("\n")
                .contains("chunks.jsonl: line 120, the last, was cut short")
        );
        fs::write(&path, whole.replacen("\"count\":1000", "\"count\":999", 1)).unwrap();
        let refused = Folder::read(&run).unwrap_err().to_string();
        assert!(refused.contains("chunks.jsonl line 1") && refused.contains("damaged"), "{refused}");
    }
}
