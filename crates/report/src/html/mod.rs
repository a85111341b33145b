//! The page. Verdict first, then what was built, what was seen, and everything behind it.

mod chart;
mod distribution;
mod environment;
mod failures;
mod fit;
mod ledger;
mod matrix;
mod operations;
mod points;
mod published;
mod scaling;
mod series;
mod stage;
mod steps;
mod topology;
mod verdict;
mod watch;

use crate::Folder;
use crate::escape::{Html, T, put};

/// A self-contained page: no script, no network, nothing outside the one file.
pub fn html(folder: &Folder) -> String {
    let mut out = Html::new();
    let scenario = folder.summary.as_ref().map(|it| it.scenario.as_str());
    let scenario = scenario.or(folder.plan.as_ref().map(|it| it.scenario.as_str())).unwrap_or("run");
    put!(&mut out, "<!doctype html>\n<html lang=en dir=ltr><head><meta charset=utf-8>");
    put!(&mut out, "<meta name=viewport content=\"width=device-width,initial-scale=1\">");
    // Should an escape ever fail, the browser still loads and runs nothing.
    put!(
        &mut out,
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    );
    put!(
        &mut out,
        "<title>",
        T(scenario),
        " · weir</title>\n<style>",
        include_str!("style.css"),
        "</style></head>\n<body><main>\n"
    );
    put!(&mut out, verdict::head(folder));
    if let Some(summary) = &folder.summary {
        put!(&mut out, verdict::criteria(&summary.criteria));
    }
    put!(&mut out, steps::contents(folder), topology::section(folder));
    put!(&mut out, published::section(folder), scaling::section(folder));
    put!(&mut out, steps::section(folder));
    put!(&mut out, points::section(folder));
    put!(&mut out, environment::section(folder));
    put!(&mut out, "<footer class=quiet>Drawn by weir ", env!("CARGO_PKG_VERSION"));
    put!(
        &mut out,
        " from the records in this folder; <code>weir report DIR</code> draws it again.</footer>\n</main></body></html>\n"
    );
    out.into_string()
}
