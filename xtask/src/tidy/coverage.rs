//! `docs/coverage.md` says of every experiment and feature what serves it, and says nothing untrue about scenarios.

use super::{Finding, Tree};
use std::collections::BTreeMap;

const PAGE: &str = "docs/coverage.md";

/// What begins with one of these is a file where the page names it.
const FOLDERS: [&str; 9] =
    ["adapters/", "bench/", "crates/", "docs/", "scenarios/", "scripts/", "src/", "tests/", "xtask/"];

/// How many ids each list has, counted from 01. None may vanish, and none be added here only.
const LISTS: [(&str, u32); 10] = [
    ("S000", 40),
    ("S001", 31),
    ("S002", 40),
    ("S003", 30),
    ("S004", 19),
    ("E000", 14),
    ("E001", 11),
    ("E002", 12),
    ("E003", 10),
    ("E004", 11),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::fail(PAGE, 1, "is missing")];
    };
    let mut findings = Vec::new();
    let mut rows: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (index, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(id) = cells.first().copied().filter(|id| is_id(id)) else { continue };
        let [_, title, status] = cells.as_slice() else {
            findings.push(Finding::fail(
                PAGE,
                index + 1,
                format!("{id}: expected `| id | title | status |`"),
            ));
            continue;
        };
        if rows.insert(id, (index + 1, *status)).is_some() {
            findings.push(Finding::fail(PAGE, index + 1, format!("{id} stands here twice")));
        }
        if title.is_empty() {
            findings.push(Finding::fail(PAGE, index + 1, format!("{id} has no title")));
        }
        if let Some(problem) = status_problem(status) {
            findings.push(Finding::fail(PAGE, index + 1, format!("{id}: {problem}")));
        }
    }
    for (index, line) in page.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        if let Some(path) = named_files(line).find(|path| !tree.has(path)) {
            findings.push(Finding::fail(PAGE, index + 1, format!("there is no {path}")));
        }
    }
    for (list, count) in LISTS {
        for number in 1..=count {
            let id = format!("{list}-{number:02}");
            if !rows.contains_key(id.as_str()) {
                findings.push(Finding::fail(PAGE, 1, format!("{id} is missing")));
            }
        }
    }
    for (id, (line, _)) in &rows {
        let known = LISTS.iter().any(|(list, count)| {
            id.strip_prefix(list)
                .and_then(|rest| rest[1..].parse::<u32>().ok())
                .is_some_and(|number| (1..=*count).contains(&number))
        });
        if !known {
            findings.push(Finding::fail(
                PAGE,
                *line,
                format!("{id} is in no list; mend LISTS in xtask/src/tidy/coverage.rs if it is new"),
            ));
        }
    }
    findings.extend(origins(tree, &rows));
    findings
}

/// `S000-24` or `E002-01`.
fn is_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 7
        && matches!(bytes[0], b'S' | b'E')
        && bytes[4] == b'-'
        && [1, 2, 3, 5, 6].iter().all(|at| bytes[*at].is_ascii_digit())
}

/// Files of this repository among what stands between backticks.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
}

fn status_problem(status: &str) -> Option<String> {
    if status == "not yet" {
        return None;
    }
    if let Some(reason) = status.strip_prefix("out of scope because ") {
        return (reason.trim().len() < 10).then(|| "the reason is missing".to_owned());
    }
    if let Some(feature) = status.strip_prefix("feature: ") {
        return (feature.trim().len() < 5).then(|| "the feature is missing".to_owned());
    }
    let Some(rest) = status.strip_prefix("scenario `") else {
        return Some("status must be \"scenario `scenarios/…`\", \"feature: …\", \"not yet\" or \"out of scope because …\"".to_owned());
    };
    let path = rest.split('`').next().unwrap_or_default();
    (!path.starts_with("scenarios/")).then(|| format!("{path:?} is no scenario"))
}

/// A scenario's origin is listed, and the row names that scenario back.
fn origins(tree: &Tree, rows: &BTreeMap<&str, (usize, &str)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in
        tree.files().filter(|file| file.path.starts_with("scenarios/") && file.path.ends_with(".toml"))
    {
        let table: toml::Table = match file.text.parse() {
            Ok(table) => table,
            Err(problem) => {
                findings.push(Finding::fail(&file.path, 1, format!("not TOML: {problem}")));
                continue;
            }
        };
        let Some(origin) = table.get("scenario").and_then(|scenario| scenario.get("origin")) else {
            continue;
        };
        let line =
            file.text.lines().position(|line| line.trim_start().starts_with("origin")).map_or(1, |at| at + 1);
        match origin.as_str().and_then(|origin| rows.get(origin)) {
            None => {
                findings.push(Finding::fail(&file.path, line, format!("origin {origin} is not in {PAGE}")))
            }
            Some((_, status)) if !status.contains(&file.path) => {
                findings.push(Finding::fail(
                    &file.path,
                    line,
                    format!("{PAGE} does not name this scenario at {origin}"),
                ));
            }
            Some(_) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(change: &dyn Fn(&str) -> Option<String>) -> String {
        let ids = LISTS
            .iter()
            .flat_map(|(list, count)| (1..=*count).map(move |number| format!("{list}-{number:02}")));
        ids.filter_map(|id| change(&id)).collect::<Vec<_>>().join("\n")
    }
    fn row(id: &str, status: &str) -> Option<String> {
        Some(format!("| {id} | a title | {status} |"))
    }
    fn messages(page: &str, scenario: Option<&str>) -> Vec<String> {
        let mut files = vec![(PAGE, page)];
        files.extend(scenario.map(|text| ("scenarios/a.toml", text)));
        check(&Tree::of(&files)).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn the_lists_hold_218_ids() {
        assert_eq!(LISTS.iter().map(|(_, count)| count).sum::<u32>(), 218);
    }

    #[test]
    fn a_whole_page_passes_and_a_vanished_id_is_named() {
        assert_eq!(messages(&page(&|id| row(id, "not yet")), None), Vec::<String>::new());
        let without = page(&|id| if id == "S002-17" { None } else { row(id, "not yet") });
        assert_eq!(messages(&without, None), ["S002-17 is missing"]);
    }

    #[test]
    fn doubled_unknown_and_untitled_ids_are_found() {
        let whole = page(&|id| row(id, "not yet"));
        for extra in ["| S000-01 | again | not yet |", "| S000-41 | new | not yet |", "| S000-01 | not yet |"]
        {
            assert!(!messages(&format!("{whole}\n{extra}\n"), None).is_empty(), "{extra}");
        }
    }

    #[test]
    fn only_the_four_kinds_of_status_pass() {
        for (status, fine) in [
            ("later", false),
            ("out of scope because ", false),
            ("out of scope because tape is not ours", true),
            ("feature: `weir net stream`", true),
            ("feature: `weir net stream` (`tests/none.rs`)", false),
            ("feature: `weir net stream` (`docs/coverage.md`)", true),
            ("scenario `scenarios/none.toml`", false),
        ] {
            let text = page(&|id| row(id, if id == "E001-01" { status } else { "not yet" }));
            assert_eq!(messages(&text, None).is_empty(), fine, "{status}");
        }
    }

    #[test]
    fn a_scenario_and_its_row_name_each_other() {
        let scenario = "[scenario]\nname = \"a\"\norigin = \"E001-02\"\n";
        let named =
            page(&|id| row(id, if id == "E001-02" { "scenario `scenarios/a.toml`" } else { "not yet" }));
        assert_eq!(messages(&named, Some(scenario)), Vec::<String>::new());
        assert_eq!(messages(&page(&|id| row(id, "not yet")), Some(scenario)).len(), 1);
        assert_eq!(messages(&named, Some("[scenario]\norigin = \"E009-02\"\n")).len(), 1);
        assert_eq!(messages(&named, None).len(), 1, "the file named must exist");
    }
}
