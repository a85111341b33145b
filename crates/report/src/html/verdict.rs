//! The top of the page: verdict, what was run, and each criterion with its value against its bound.

use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::{
    bound_text, criterion_value, date, interval_text, judged_word, origin, scale_text, statement,
    verdict_word,
};
use weir_core::record::{CriterionResult, Verdict};

/// Rows of a table at most; more are in `summary.json`.
const ROWS_MAX: usize = 1_000;

pub(crate) fn class(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail) => "fail",
        Some(Verdict::Inconclusive) | None => "open",
    }
}

pub(crate) fn head(folder: &Folder) -> Html {
    let mut out = Html::new();
    let (summary, plan) = (folder.summary.as_ref(), folder.plan.as_ref());
    let name = summary
        .map(|it| it.scenario.as_str())
        .or(plan.map(|it| it.scenario.as_str()))
        .unwrap_or("unnamed run");
    let verdict = summary.map(|it| it.verdict);
    put!(&mut out, "<p class=kicker>weir report");
    if let Some(date) = date(folder) {
        put!(&mut out, " · ", T(date));
    }
    put!(
        &mut out,
        "</p>\n<div class=head><h1>",
        T(name),
        "</h1><span class=\"verdict ",
        class(verdict),
        "\">"
    );
    put!(&mut out, verdict_word(verdict), "</span></div>\n");
    if let Some(plan) = plan.filter(|plan| !plan.about.is_empty()) {
        put!(&mut out, "<p class=about>", T(&plan.about), "</p>\n");
    }
    put!(&mut out, "<p class=line>", T(statement(folder)), "</p>\n<ul class=facts>");
    let scale = summary.map(|it| &it.scale).or(plan.map(|it| &it.scale));
    if let Some(text) = scale.and_then(scale_text) {
        put!(&mut out, "<li><span class=scaled>scaled ", T(text), "</span>");
    }
    if let Some(origin) = origin(folder) {
        put!(&mut out, "<li>origin <b>", T(origin), "</b>");
    }
    if let Some(plan) = plan {
        put!(
            &mut out,
            "<li>trials planned <b>",
            plan.trials as usize,
            "</b> (at least ",
            plan.trials_min as usize
        );
        put!(&mut out, " valid)<li>seed <b>", T(plan.seed.to_string()), "</b>");
        if plan.configurations.len() > 1 {
            put!(&mut out, "<li>configurations <b>", plan.configurations.len(), "</b>");
        }
    }
    put!(&mut out, "</ul>\n");
    if plan.is_some_and(|plan| plan.configurations.iter().any(|it| !it.topology.sites.is_empty())) {
        put!(
            &mut out,
            "<p class=quiet>Emulated on one machine: absolute rates are not results, ratios within this run are."
        );
        if scale.and_then(scale_text).is_some() {
            put!(&mut out, " A scaled run reproduces shapes and ratios, not the original numbers.");
        }
        put!(&mut out, "</p>\n");
    }
    if !folder.notes.is_empty() {
        put!(&mut out, "<div class=box><b>This folder is not whole.</b><ul>");
        for note in &folder.notes {
            put!(&mut out, "<li>", T(note));
        }
        put!(&mut out, "</ul></div>\n");
    }
    out
}

pub(crate) fn criteria(criteria: &[CriterionResult]) -> Html {
    let mut out = Html::new();
    if criteria.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<h2>Criteria</h2>\n<div class=wide><table class=criteria><thead><tr><th>verdict<th>criterion<th class=n>value"
    );
    put!(&mut out, "<th class=n>bound<th>value and bound</thead>\n<tbody>");
    for criterion in criteria.iter().take(ROWS_MAX) {
        let class = class(Some(criterion.verdict));
        put!(&mut out, "<tr><td class=\"v ", class, "\">", T(judged_word(criterion)), "<td>");
        put!(&mut out, T(&criterion.text));
        if let Some(metric) = &criterion.metric {
            put!(&mut out, "<small>", T(metric), "</small>");
        }
        if !criterion.why.is_empty() {
            put!(&mut out, "<span class=why>", T(&criterion.why), "</span>");
        }
        put!(&mut out, "<td class=n>", T(criterion_value(criterion)));
        if let Some(interval) = interval_text(criterion.ci95, criterion.range, criterion.unit.as_deref()) {
            put!(&mut out, "<small>", T(interval), "</small>");
        }
        put!(&mut out, "<td class=n>", T(bound_text(criterion)), "<td>", bullet(criterion), "\n");
    }
    put!(&mut out, "</tbody></table></div>\n");
    if criteria.len() > ROWS_MAX {
        put!(
            &mut out,
            "<p class=quiet>",
            criteria.len() - ROWS_MAX,
            " more criteria are in summary.json.</p>\n"
        );
    }
    put!(
        &mut out,
        "<p class=quiet>Shaded: where the bound holds. Tick: the bound. Dot: the value judged; bar: its 95 % interval over "
    );
    put!(&mut out, "trials, or their range where there are fewer than five.</p>\n");
    out
}

/// A small picture of the value against its bound; empty where either is not a number.
fn bullet(criterion: &CriterionResult) -> Html {
    let number = |key: &str| criterion.bound.get(key).and_then(serde_json::Value::as_f64);
    let pair = criterion.bound.get("between").and_then(serde_json::Value::as_array);
    let (least, most) = match pair.map(Vec::as_slice) {
        Some([low, high]) => (low.as_f64(), high.as_f64()),
        _ => (number("at_least"), number("at_most")),
    };
    let value = criterion.value.as_ref().and_then(serde_json::Value::as_f64);
    let spread = criterion.ci95.or(criterion.range);
    let mut all: Vec<f64> = [least, most, value].into_iter().flatten().collect();
    let (Some(value), true) = (value, all.len() >= 2) else { return Html::new() };
    all.extend(spread.into_iter().flatten());
    let (low, high) =
        all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(*it), high.max(*it)));
    let span = high - low;
    if !span.is_finite() || all.iter().any(|it| it.abs() > 1e200) {
        return Html::new();
    }
    let pad = if span == 0.0 { low.abs().max(1.0) * 0.1 } else { span * 0.3 };
    let (low, high) = (low - pad, high + pad);
    let x = |value: f64| 2.0 + 164.0 * (value - low) / (high - low);
    let (from, to) = (least.map_or(2.0, x), most.map_or(166.0, x));
    let mut out = Html::new();
    put!(
        &mut out,
        "<svg class=bullet viewBox=\"0 0 168 22\" aria-hidden=true><rect class=base x=2 y=6 width=164 height=10 />"
    );
    put!(&mut out, "<rect class=ok x=", from, " y=6 width=", (to - from).max(0.0), " height=10 />");
    for bound in [least, most].into_iter().flatten() {
        put!(&mut out, "<path class=bound d=\"M", x(bound), " 2V20\"/>");
    }
    if let Some([from, to]) = spread {
        put!(&mut out, "<path class=ci d=\"M", x(from), " 11H", x(to), "\"/>");
    }
    put!(
        &mut out,
        "<circle class=\"dot ",
        class(Some(criterion.verdict)),
        "\" cx=",
        x(value),
        " cy=11 r=4 /></svg>"
    );
    out
}
