//! Each point in turn: what limited it, its distributions and its series.

use super::{distribution, series};
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::{parameters_text, plural};
use weir_core::record::{LimitingFactor, StepRecord, TrialRecord};

/// Bytes of drawings after which further points are listed but not drawn: the page must open at once anywhere.
const DRAWN_BYTES_MAX: usize = 1_300_000;

/// One point with all that the folder knows of it.
pub(crate) struct Point<'a> {
    pub id: &'a str,
    pub plan: Option<&'a StepRecord>,
    pub trials: Vec<&'a TrialRecord>,
}

/// Points in the plan's order; those not planned but recorded come last.
pub(crate) fn points(folder: &Folder) -> Vec<Point<'_>> {
    let mut points: Vec<Point<'_>> = Vec::new();
    let mut index = std::collections::BTreeMap::new();
    for step in folder.plan.iter().flat_map(|plan| &plan.configurations).flat_map(|it| &it.steps) {
        index.entry(step.point.as_str()).or_insert_with(|| {
            points.push(Point { id: &step.point, plan: Some(step), trials: Vec::new() });
            points.len() - 1
        });
    }
    for trial in &folder.trials {
        let at = *index.entry(trial.point.as_str()).or_insert_with(|| {
            points.push(Point { id: &trial.point, plan: None, trials: Vec::new() });
            points.len() - 1
        });
        points[at].trials.push(trial);
    }
    points
}

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let points = points(folder);
    let mut left_out = 0;
    for point in points.iter().filter(|point| !point.trials.is_empty()) {
        if out.len() > DRAWN_BYTES_MAX {
            left_out += 1;
            continue;
        }
        if out.is_empty() {
            put!(&mut out, "<h2>Step by step</h2>\n");
        }
        put!(&mut out, "<section><h3>", T(point.id), "</h3>\n<p class=quiet>", about(point), "</p>\n");
        if let Some(factor) = factor_of(folder, point) {
            put!(&mut out, limited_by(&factor));
        }
        put!(&mut out, distribution::figures(folder, point), series::panels(folder, point), "</section>\n");
    }
    if left_out > 0 {
        put!(&mut out, "<p class=box>", T(plural(left_out, "further point is", "further points are")));
        put!(
            &mut out,
            " not drawn, to keep the page light; the table of all points has their figures.</p>\n"
        );
    }
    out
}

fn about(point: &Point<'_>) -> Html {
    let mut out = Html::new();
    if let Some(step) = point.plan {
        put!(&mut out, "workload <b>", T(&step.workload), "</b>");
        if let [[from, to], rest @ ..] = step.pairs.as_slice() {
            put!(&mut out, " · ", T(from), " → ", T(to));
            if !rest.is_empty() {
                put!(&mut out, " and ", T(plural(rest.len(), "more pair", "more pairs")));
            }
        }
        if !step.parameters.is_empty() {
            put!(&mut out, " · ", T(parameters_text(&step.parameters)));
        }
        put!(&mut out, " · ");
    }
    let valid = point.trials.iter().filter(|trial| trial.valid).count();
    put!(&mut out, valid, " of ", T(plural(point.trials.len(), "trial", "trials")), " valid");
    out
}

/// The summary's judgement of the point, or that of its first valid trial where the run did not finish.
fn factor_of(folder: &Folder, point: &Point<'_>) -> Option<LimitingFactor> {
    let judged = folder.summary.iter().flat_map(|it| &it.points).find(|it| it.id == point.id);
    judged
        .map(|it| it.limiting_factor.clone())
        .or_else(|| point.trials.iter().find(|trial| trial.valid).map(|trial| trial.limiting_factor.clone()))
}

fn limited_by(factor: &LimitingFactor) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<p>Limited by <b>", factor.name.name(), "</b>");
    if factor.confidence.is_finite() {
        put!(&mut out, " <span class=quiet>confidence ", T(format!("{:.2}", factor.confidence)), "</span>");
    }
    put!(&mut out, "</p>");
    if !factor.evidence.is_empty() {
        put!(&mut out, "<ul class=quiet>");
        for line in factor.evidence.iter().take(20) {
            put!(&mut out, "<li>", T(line));
        }
        put!(&mut out, "</ul>");
    }
    put!(&mut out, "\n");
    out
}
