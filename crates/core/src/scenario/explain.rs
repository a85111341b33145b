//! `weir explain KEY`: what a key of the scenario language means, from the same declarations that read it.

use super::plan::Language;
use super::reader::kind_text;
use super::schema::{TABLES, TableSchema};
use crate::param::{Kind, Param};
use std::fmt::Write as _;

/// One place where a key may be written.
struct Found {
    /// `lab.link.queue.bytes`
    path: String,
    /// `[[lab.link]]`, or the workload's steps.
    header: String,
    /// The workload whose key it is.
    workload: Option<&'static str>,
    param: &'static Param,
}

/// Explains a key: `step.duration`, `lab.link.rtt`, `link.rtt` as paths have it, a bare `rtt` for every place that has
/// one, or a table. Without a key, an overview. Errors: there is no such key; the text says which is nearest.
pub fn explain(key: Option<&str>, language: &Language<'_>) -> Result<String, String> {
    let Some(key) = key.map(str::trim).filter(|key| !key.is_empty()) else { return Ok(overview(language)) };
    let asked: String = key.chars().filter(|letter| !matches!(letter, '[' | ']' | ' ')).collect();
    let all = everything(language);
    let table = TABLES.iter().find(|table| table.name == asked || short_name(table.name) == asked);
    let suffix = format!(".{asked}");
    let mut found: Vec<&Found> =
        all.iter().filter(|found| found.path == asked || short_name(&found.path) == asked).collect();
    if found.is_empty() {
        found = all.iter().filter(|found| found.path.ends_with(&suffix)).collect();
    }
    if table.is_none() && found.is_empty() {
        let last: Vec<&str> = all.iter().map(|found| found.param.name).collect();
        let paths = all.iter().map(|found| found.path.as_str());
        let names = TABLES.iter().map(|table| table.name).chain(paths).chain(last);
        let nearest = crate::nearest::nearest(&asked, names).map(|near| format!("; did you mean `{near}`?"));
        return Err(format!(
            "no key is called `{asked}`{}",
            nearest.unwrap_or_else(|| "; `weir explain` lists all".to_owned())
        ));
    }
    let mut out = String::new();
    if let Some(table) = table {
        write_table(&mut out, table, language);
    }
    for found in found {
        if !out.is_empty() {
            out.push('\n');
        }
        write_key(&mut out, found);
    }
    Ok(out)
}

/// Places that `homes` names.
const HOMES_SHOWN: usize = 3;

/// Where a key of this name may be written: within the table `near` first, then in the order of the language. `None`: nowhere.
pub(super) fn homes(key: &str, near: &str, language: &Language<'_>) -> Option<String> {
    if let Some(table) = TABLES.iter().find(|table| table.name == key) {
        return Some(format!("the file itself, as {}", table.header));
    }
    let all = everything(language);
    let within = format!("{near}.");
    let (own, others): (Vec<&Found>, Vec<&Found>) =
        all.iter().filter(|found| found.param.name == key).partition(|found| found.path.starts_with(&within));
    let mut homes: Vec<String> = Vec::new();
    for found in own.into_iter().chain(others) {
        let table = TABLES
            .iter()
            .filter(|table| found.path.starts_with(&format!("{}.", table.name)))
            .max_by_key(|table| table.name.len())?;
        let below = &found.path[table.name.len() + 1..];
        // `[lab]` names its tables as keys, which have headers of their own.
        let nested = TABLES.iter().find(|table| table.name == found.path);
        homes.push(match (below.rsplit_once('.'), nested) {
            (_, Some(nested)) => format!("[lab], as {}", nested.header),
            (Some((inner, _)), None) => format!("`{inner}` of {}", found.header),
            (None, None) => found.header.clone(),
        });
    }
    homes.dedup();
    let more = homes.len().saturating_sub(HOMES_SHOWN);
    homes.truncate(HOMES_SHOWN);
    let shown = homes.join(", or ");
    match (homes.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown),
        (false, more) => Some(format!("{shown}; `weir explain {key}` has {more} more places")),
    }
}

/// `lab.link.rtt` is `link.rtt` in paths.
fn short_name(path: &str) -> &str {
    path.strip_prefix("lab.").unwrap_or(path)
}

fn everything(language: &Language<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for table in TABLES {
        collect(table.name, table.header, None, keys_of(table, language), &mut all);
    }
    for schema in language.workloads.iter().filter(|schema| schema.is_workload()) {
        let header = format!("[[step]] with workload = \"{}\"", schema.name);
        collect("step", &header, Some(schema.name), schema.params, &mut all);
    }
    all
}

/// The keys of a table, those with which others come from among them.
fn keys_of(table: &TableSchema, language: &Language<'_>) -> &'static [Param] {
    match table.name {
        "fault" => language.faults.keys(),
        _ => table.keys,
    }
}

fn collect(
    prefix: &str,
    header: &str,
    workload: Option<&'static str>,
    keys: &'static [Param],
    all: &mut Vec<Found>,
) {
    for param in keys {
        let path = format!("{prefix}.{}", param.name);
        all.push(Found { path: path.clone(), header: header.to_owned(), workload, param });
        if let Kind::Table(inner) = param.kind {
            collect(&path, header, workload, inner, all);
        }
    }
}

/// Shape of keys that are read by hand.
fn shape(path: &str, param: &Param) -> String {
    let words = match path {
        "scenario.scale" => "a table of factors like { rate = 10 }",
        "lab.auxiliary" => "true, or a table like { rate = \"100Mbit/s\" }",
        _ if param.name == "jitter" => "a time like \"1ms\", or { by = \"1ms\", reorder = true }",
        "lab.site" | "lab.host" | "lab.link" | "lab.switch" | "lab.router" => "tables with a double header",
        "lab.link.between" => "two sites' names in a list",
        "lab.site.routes" | "lab.switch.routes" | "lab.router.routes" => "a table of SITE = \"LINK\"",
        "fault.phase" => "a table of HOST = time, like { dresden-1 = \"17s\" }",
        "sweep.values" | "short.cases" => "a list",
        "case.set" | "short.set" => "a table of PATH = value",
        "case.published" => "a table of \"metric.statistic\" = value",
        "criterion.where" => "a table of parameter = value, [values] or { from, to }",
        "criterion.case" => "a name or a list of names",
        "criterion.at_least" | "criterion.at_most" => "a value in the metric's unit, like \"16ms\" or 0.95",
        "criterion.fit.over" => "a list of two values of `x`, like [1, 10]",
        "criterion.between" => "a list of two values in the metric's unit",
        "criterion.minus.point" | "criterion.of.point" => "a table of dimension = value",
        _ => return kind_text(param.kind),
    };
    words.to_owned()
}

fn write_key(out: &mut String, found: &Found) {
    let of = found.workload.map_or(String::new(), |workload| format!(" ({workload})"));
    let _ = writeln!(out, "{}{of}", found.path);
    for line in wrapped(found.param.about, 76) {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  in      {}", found.header);
    for (index, line) in wrapped(&shape(&found.path, found.param), 68).into_iter().enumerate() {
        let _ = writeln!(out, "  {:<7} {line}", if index == 0 { "value" } else { "" });
    }
    let default = match (found.param.default, found.param.required) {
        (Some(default), _) => format!("{default:?}").trim_matches('"').to_owned(),
        (None, true) => "none: it must be given".to_owned(),
        (None, false) => "none".to_owned(),
    };
    let _ = writeln!(out, "  default {}", if default.is_empty() { "the empty text" } else { &default });
    if let Some(range) = range_text(found.param) {
        let _ = writeln!(out, "  range   {range}");
    }
    if let Kind::Table(inner) = found.param.kind {
        let names: Vec<&str> = inner.iter().map(|param| param.name).collect();
        for (index, line) in wrapped(&names.join(", "), 68).into_iter().enumerate() {
            let _ = writeln!(out, "  {:<7} {line}", if index == 0 { "keys" } else { "" });
        }
    }
}

pub(super) fn range_text(param: &Param) -> Option<String> {
    let (least, most) = param.range;
    if !least.is_finite() && !most.is_finite() {
        return None;
    }
    let bound = |bound: f64| match param.kind {
        Kind::Duration => crate::units::human(bound / 1e9, "s"),
        Kind::Rate => crate::units::human(bound, "bit/s"),
        Kind::Size => crate::units::human(bound, "B"),
        _ if bound >= 1e15 => format!("{bound:e}"),
        _ => bound.to_string(),
    };
    Some(match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("{} to {}", bound(least), bound(most)),
        (true, false) => format!("{} or more", bound(least)),
        _ => format!("{} or less", bound(most)),
    })
}

fn write_table(out: &mut String, table: &TableSchema, language: &Language<'_>) {
    let _ = writeln!(out, "{}", table.header);
    for line in wrapped(table.about, 76) {
        let _ = writeln!(out, "  {line}");
    }
    write_keys(out, keys_of(table, language));
    if table.name == "step" {
        for schema in language.workloads.iter().filter(|schema| schema.is_workload()) {
            let _ = writeln!(out, "  with workload = \"{}\": {}", schema.name, schema.about);
            write_keys(out, schema.params);
        }
    }
}

fn write_keys(out: &mut String, keys: &[Param]) {
    for param in keys {
        let must = if param.required { " (required)" } else { "" };
        for (index, line) in wrapped(&format!("{}{must}", param.about), 60).into_iter().enumerate() {
            let _ = writeln!(out, "  {:<16} {line}", if index == 0 { param.name } else { "" });
        }
    }
}

fn overview(language: &Language<'_>) -> String {
    let mut out =
        String::from("A scenario is a TOML file of these tables; `weir explain KEY` says more of each.\n");
    for table in TABLES {
        let _ = writeln!(out, "\n{}", table.header);
        for line in wrapped(table.about, 76) {
            let _ = writeln!(out, "  {line}");
        }
        let names: Vec<&str> = table.keys.iter().map(|param| param.name).collect();
        for line in wrapped(&names.join(", "), 76) {
            let _ = writeln!(out, "  {line}");
        }
        if table.name == "step" {
            for schema in
                language.workloads.iter().filter(|schema| schema.is_workload() && !schema.params.is_empty())
            {
                let names: Vec<&str> = schema.params.iter().map(|param| param.name).collect();
                for line in wrapped(&format!("{}: {}", schema.name, names.join(", ")), 76) {
                    let _ = writeln!(out, "  {line}");
                }
            }
        }
    }
    let paths = "\nPaths for --set, [sweep] and set: step.NAME.key, fault.NAME.key, \
                 link.NAME[.forward|.backward].key, site.NAME.key, host.NAME.key, switch.NAME.key, router.NAME.key, \
                 lab.auxiliary.key; --set and [short] also \
                 scenario.key and sweep.DIMENSION. NAME may be a glob.";
    for line in wrapped(paths, 78) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Breaks text at spaces into lines of at most `width` letters where words allow.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKinds;
    use crate::fault::links::LINKS;
    use crate::scenario::WorkloadSchema;
    use std::sync::LazyLock;

    static OWN: &[Param] = &[Param::new("size", Kind::Size, "Payload.").default("64B")];

    static SCHEMAS: &[WorkloadSchema] = &[WorkloadSchema {
        name: "latency",
        about: "ping-pong",
        params: OWN,
        metrics: &[],
        roles: crate::scenario::FROM_TO,
        factors: &[],
        fills_path: false,
        refusal: |_, _, _| None,
        opening: |_, _| super::super::plan::Opening { limit: std::time::Duration::ZERO, round_trips: 1 },
    }];

    fn language() -> Language<'static> {
        static FAULTS: LazyLock<FaultKinds> = LazyLock::new(|| FaultKinds::join(&[LINKS]));
        Language { workloads: SCHEMAS, faults: *FAULTS, ..Language::NONE }
    }

    fn of(key: &str) -> String {
        explain(Some(key), &language()).unwrap()
    }

    #[test]
    fn a_key_is_explained_with_its_place_value_default_and_range() {
        assert_eq!(
            of("lab.link.rtt"),
            "lab.link.rtt\n  Propagation there and back, split evenly between the directions; instead of\n  `delay`.\n  \
             in      [[lab.link]]\n  value   a time like \"16ms\"\n  default none\n  range   0 s to 3600 s\n"
        );
        assert_eq!(of("link.rtt"), of("lab.link.rtt"));
        assert!(of("step.duration").starts_with("step.duration\n"));
        assert!(of("criterion.at_least").contains("metric's unit"));
        assert!(of("step.size").starts_with("step.size (latency)\n"));
    }

    #[test]
    fn a_bare_key_lists_every_place_that_has_it() {
        let text = of("delay");
        for place in [
            "lab.auxiliary.delay",
            "lab.site.access.delay",
            "lab.link.delay",
            "lab.link.forward.delay",
            "fault.do.delay",
        ] {
            assert!(text.contains(&format!("{place}\n")), "{place} is not in\n{text}");
        }
        assert!(!text.contains("lab.link.rtt\n"));
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_and_one_of_later_with_not_yet() {
        assert_eq!(
            explain(Some("raet"), &language()).unwrap_err(),
            "no key is called `raet`; did you mean `rate`?"
        );
        assert!(explain(Some("step.durtion"), &language()).unwrap_err().contains("`step.duration`"));
        assert!(explain(Some("criterion.fit.over"), &language()).unwrap().contains("[1, 10]"));
    }

    #[test]
    fn everything_fits_80_columns() {
        let mut texts = vec![explain(None, &language()).unwrap()];
        texts.extend(everything(&language()).iter().map(|found| of(&found.path)));
        texts.extend(TABLES.iter().map(|table| of(table.name)));
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
