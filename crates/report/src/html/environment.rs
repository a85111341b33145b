//! What the figures rest on: warnings, the machine, the timeline, the meaning of each metric, the scenario.

use crate::Folder;
use crate::escape::{Html, Prose, T, put};
use serde_json::Value;

const ENTRIES_MAX: usize = 400;
const EVENTS_MAX: usize = 80;
const SCENARIO_LINES_MAX: usize = 2_000;

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let warnings = folder.summary.as_ref().map_or(&[][..], |it| it.warnings.as_slice());
    if !warnings.is_empty() {
        put!(&mut out, "<h2>Warnings</h2>\n<div class=box><ul>");
        for warning in warnings.iter().take(ENTRIES_MAX) {
            put!(&mut out, "<li>", T(warning));
        }
        put!(&mut out, "</ul></div>\n");
    }
    put!(&mut out, services(folder));
    if let Some(environment) = &folder.environment {
        put!(&mut out, "<h2>Environment</h2>\n");
        let mut entries = Vec::new();
        flatten(String::new(), environment, &mut entries);
        let (head, tail) = entries.split_at(entries.len().min(14));
        put!(&mut out, list(head));
        if !tail.is_empty() {
            let tail = &tail[..tail.len().min(ENTRIES_MAX)];
            put!(
                &mut out,
                "<details><summary>",
                tail.len(),
                " more settings</summary>",
                list(tail),
                "</details>\n"
            );
        }
    }
    put!(&mut out, timeline(folder), definitions(folder));
    if let Some(scenario) = &folder.scenario_toml {
        put!(
            &mut out,
            "<h2>Scenario</h2>\n<details><summary>As resolved, every default spelled out</summary><pre><code>"
        );
        for line in scenario.lines().take(SCENARIO_LINES_MAX) {
            put!(&mut out, T(line), "\n");
        }
        put!(&mut out, "</code></pre></details>\n");
    }
    out
}

/// What real systems were loaded, and where they were.
fn services(folder: &Folder) -> Html {
    let mut out = Html::new();
    if folder.services.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<h2>Services</h2>\n<div class=wide><table class=tight><thead><tr><th>service<th>system<th>version"
    );
    put!(&mut out, "<th>tuned<th>hosts<th>address</thead><tbody>");
    for service in &folder.services {
        let hosts: Vec<String> =
            service.place.iter().map(|(role, hosts)| format!("{role} {}", hosts.join(", "))).collect();
        put!(&mut out, "<tr><td>", T(&service.name), "<td>", T(&service.system), "<td>", T(&service.version));
        let tuned: Vec<String> =
            service.tuning.iter().map(|(option, value)| format!("{option} {value}")).collect();
        let tuned = if tuned.is_empty() { "nothing".to_owned() } else { tuned.join(", ") };
        put!(
            &mut out,
            "<td>",
            T(&tuned),
            "<td>",
            T(&hosts.join("; ")),
            "<td><code>",
            T(&service.at),
            "</code>\n"
        );
    }
    put!(&mut out, "</tbody></table></div>\n");
    put!(
        &mut out,
        "<p class=quiet>Their configuration and logs are beside this page, in <code>services/</code>.</p>\n"
    );
    out
}

fn list(entries: &[(String, String)]) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<dl>");
    for (key, value) in entries {
        put!(&mut out, "<dt>", T(key), "<dd>", T(value), "\n");
    }
    put!(&mut out, "</dl>\n");
    out
}

/// Nested keys joined by a space; lists of plain values on one line.
fn flatten(key: String, value: &Value, out: &mut Vec<(String, String)>) {
    if out.len() > ENTRIES_MAX + 14 {
        return;
    }
    let below = |name: &str| {
        if key.is_empty() { name.replace('_', " ") } else { format!("{key} {}", name.replace('_', " ")) }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| flatten(below(name), value, out)),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let texts: Vec<String> = items.iter().take(200).map(crate::words::parameter_text).collect();
            out.push((key, texts.join(", ")));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| flatten(below(&index.to_string()), item, out));
        }
        plain => out.push((key, crate::words::parameter_text(plain))),
    }
}

fn timeline(folder: &Folder) -> Html {
    let mut out = Html::new();
    let Some(first) = folder.timeline.first() else { return out };
    put!(&mut out, "<h2>Timeline</h2>\n<details><summary>");
    let shown = folder.timeline.len().min(EVENTS_MAX);
    if shown < folder.timeline.len() {
        put!(
            &mut out,
            "The first ",
            shown,
            " of ",
            folder.timeline.len(),
            " events; all are in timeline.jsonl"
        );
    } else {
        put!(&mut out, shown, if shown == 1 { " event" } else { " events" });
    }
    put!(
        &mut out,
        "</summary><div class=wide><table class=tight><thead><tr><th class=n>from the start<th>event<th class=n>trial<th>step<th>what</thead><tbody>"
    );
    for event in folder.timeline.iter().take(shown) {
        let seconds = (event.at_ns as f64 - first.at_ns as f64) / 1e9;
        put!(
            &mut out,
            "<tr><td class=n>",
            T(format!("{seconds:.3} s")),
            "<td>",
            T(&event.event),
            "<td class=n>"
        );
        put!(
            &mut out,
            T(event.trial.map(|trial| trial.to_string()).unwrap_or_default()),
            "<td>",
            T(event.step.as_deref().unwrap_or(""))
        );
        put!(&mut out, "<td>", T(&event.text), "\n");
    }
    put!(&mut out, "</tbody></table></div></details>\n");
    out
}

fn definitions(folder: &Folder) -> Html {
    let mut out = Html::new();
    let used = folder.used();
    let definitions: Vec<_> =
        folder.definitions.iter().filter(|it| used.contains(it.name.as_str())).collect();
    if definitions.is_empty() {
        return out;
    }
    put!(
        &mut out,
        "<h2>Metrics</h2>\n<details><summary>What each figure means</summary><div class=wide><table class=tight><thead><tr><th>metric<th>unit<th>better"
    );
    put!(&mut out, "<th>one value for each<th>definition</thead><tbody>");
    for metric in definitions.into_iter().take(ENTRIES_MAX) {
        put!(
            &mut out,
            "<tr><td><code>",
            T(&metric.name),
            "</code><td>",
            T(&metric.unit),
            "<td>",
            T(&metric.better),
            "<td>",
            T(&metric.scope)
        );
        put!(&mut out, "<td>", Prose(&metric.definition), "\n");
    }
    put!(&mut out, "</tbody></table></div></details>\n");
    out
}
