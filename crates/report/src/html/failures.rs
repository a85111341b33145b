//! What failed in a point, as a table by operation and code.

use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::plural;

/// Nothing for a point in which nothing failed.
pub(crate) fn table(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let kinds = folder.failures.of(point.id);
    if kinds.is_empty() {
        return out;
    }
    let counted: u64 = point.trials.iter().map(|trial| trial.failure_count).sum();
    let listed: u64 = kinds.iter().map(|kind| kind.count).sum();
    put!(
        &mut out,
        "<h4>Failures</h4>\n<p class=quiet>",
        T(plural(listed as usize, "operation", "operations"))
    );
    put!(&mut out, " failed; <code>failures.jsonl</code> has each.");
    if counted > listed {
        put!(&mut out, " Another ", T((counted - listed).to_string()), " were counted and not kept.");
    }
    put!(
        &mut out,
        "</p>\n<div class=wide><table class=tight><thead><tr><th>operation<th>code<th class=n>failures<th class=n>trials",
        "<th class=n>jobs<th class=n>tried again<th class=n>first<th class=n>last<th>for example</thead><tbody>"
    );
    for kind in kinds {
        let seconds = |ns: i64| format!("{:.3} s", ns as f64 / 1e9);
        let first = &kind.example;
        let target = if first.target.is_empty() { String::new() } else { format!(" → {}", first.target) };
        put!(
            &mut out,
            "<tr><td>",
            T(&kind.operation),
            "<td>",
            T(if kind.code.is_empty() { "–" } else { &kind.code })
        );
        put!(&mut out, "<td class=n>", T(kind.count.to_string()), "<td class=n>", kind.trials.len());
        put!(&mut out, "<td class=n>", kind.jobs.len(), "<td class=n>", T(kind.retry_count.to_string()));
        put!(&mut out, "<td class=n>", T(seconds(kind.first_ns)), "<td class=n>", T(seconds(kind.last_ns)));
        put!(&mut out, "<td>", T(format!("{} on {}{target}: {}", first.job, first.host, first.text)));
    }
    put!(&mut out, "</tbody></table></div>\n");
    out
}
