//! Each point in turn: what limited it, its distributions and its series.

use super::{distribution, failures, ledger, matrix, operations, series};
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::{parameters_text, plural};
use std::collections::BTreeMap;
use weir_core::evidence::UNKNOWN;
use weir_core::record::{LimitingFactor, StepRecord, TrialRecord};

/// Bytes of drawings after which further points are listed but not drawn: the page must open at once anywhere.
const DRAWN_BYTES_MAX: usize = 1_300_000;

/// Points up to which a page needs no list of them, and those that a list names.
const UNLISTED_MAX: usize = 3;
const LISTED_MAX: usize = 40;

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

/// Figures from elsewhere that stand beside a point's own, by point: `metric.statistic` to value in the metric's base unit.
pub(crate) fn published(folder: &Folder) -> BTreeMap<&str, &BTreeMap<String, f64>> {
    let configurations = folder.plan.iter().flat_map(|plan| &plan.configurations);
    let known = configurations.filter(|it| !it.published.is_empty());
    known.flat_map(|it| it.steps.iter().map(move |step| (step.point.as_str(), &it.published))).collect()
}

/// What is published of one metric: statistic and value.
pub(crate) fn published_of<'a>(
    published: &'a BTreeMap<String, f64>,
    metric: &'a str,
) -> impl Iterator<Item = (&'a str, f64)> {
    published.iter().filter_map(move |(name, value)| {
        let statistic = name.strip_prefix(metric)?;
        if statistic.is_empty() {
            Some(("mean", *value))
        } else {
            Some((statistic.strip_prefix('.')?, *value))
        }
    })
}

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let points = points(folder);
    let mut left_out = 0;
    for (number, point) in points.iter().filter(|point| is_drawn(folder, point)).enumerate() {
        if out.len() > DRAWN_BYTES_MAX {
            left_out += 1;
            continue;
        }
        if out.is_empty() {
            put!(&mut out, "<h2>Step by step</h2>\n");
        }
        put!(
            &mut out,
            "<section id=step-",
            number,
            "><h3>",
            T(point.id),
            "</h3>\n<p class=quiet>",
            about(point),
            "</p>\n"
        );
        if let Some(factor) = factor_of(folder, point) {
            put!(&mut out, limited_by(folder, point, &factor));
        }
        put!(
            &mut out,
            failures::table(folder, point),
            matrix::figure(folder, point),
            ledger::figures(folder, point)
        );
        put!(&mut out, distribution::figures(folder, point), operations::figures(folder, point));
        put!(&mut out, series::panels(folder, point), "</section>\n");
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

/// Of a run that was killed, or is under way, a point may have series and no trial.
fn is_drawn(folder: &Folder, point: &Point<'_>) -> bool {
    let has_series = || !folder.long.of(point.id).is_empty() || !folder.curves.names(point.id).is_empty();
    !point.trials.is_empty() || has_series()
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
        for role in step.roles.iter().filter(|_| step.pairs.is_empty()) {
            put!(&mut out, " · ", T(&role.role), " ", T(role.hosts.first().map_or("none", String::as_str)));
            if role.hosts.len() > 1 {
                put!(&mut out, " and ", T(plural(role.hosts.len() - 1, "more host", "more hosts")));
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

fn limited_by(folder: &Folder, point: &Point<'_>, factor: &LimitingFactor) -> Html {
    let mut out = Html::new();
    let lead = if factor.is(&UNKNOWN) { "Limiting factor " } else { "Limited by " };
    put!(&mut out, "<p>", lead, "<b>", T(&factor.name), "</b>");
    let valid = point.trials.iter().filter(|trial| trial.valid);
    let alike = valid.clone().filter(|trial| trial.limiting_factor.name == factor.name).count();
    match valid.count() {
        0 | 1 => {}
        all if all == alike => put!(&mut out, " in all ", all, " valid trials"),
        all => put!(&mut out, " in ", alike, " of ", all, " valid trials"),
    }
    put!(&mut out, "</p>");
    // What an unknown factor advises says nothing of the point.
    if !factor.next.is_empty() && !factor.is(&UNKNOWN) {
        put!(&mut out, "<p class=quiet>Next: ", T(&factor.next), "</p>");
    }
    let mut lines: Vec<String> =
        factor.evidence.iter().filter(|line| !is_tally(line)).take(20).cloned().collect();
    lines.extend(distribution::lateness_line(folder, point));
    if !lines.is_empty() {
        put!(&mut out, "<ul class=quiet>");
        for line in lines {
            put!(&mut out, "<li>", T(line));
        }
        put!(&mut out, "</ul>");
    }
    put!(&mut out, "\n");
    out
}

/// `3 of 5 valid trials`: said beside the factor's name already.
fn is_tally(line: &str) -> bool {
    let numbers = line.strip_suffix(" valid trials").and_then(|rest| rest.split_once(" of "));
    numbers.is_some_and(|(some, all)| some.parse::<u32>().is_ok() && all.parse::<u32>().is_ok())
}

/// Links to the steps, where there are too many to be seen at a glance.
pub(crate) fn contents(folder: &Folder) -> Html {
    let mut out = Html::new();
    let points = points(folder);
    let drawn: Vec<&Point<'_>> = points.iter().filter(|point| is_drawn(folder, point)).collect();
    if drawn.len() <= UNLISTED_MAX {
        return out;
    }
    put!(&mut out, "<nav>Step by step:");
    for (number, point) in drawn.iter().take(LISTED_MAX).enumerate() {
        put!(&mut out, " <a href=#step-", number, ">", T(point.id), "</a>");
    }
    if drawn.len() > LISTED_MAX {
        put!(&mut out, " and ", drawn.len() - LISTED_MAX, " more");
    }
    put!(&mut out, "</nav>\n");
    out
}
