//! What a capability measures and does is named by it alone: spine, report and terminal that knew one of its metrics or workloads
//! would need a change with every new one.

use super::source::lines;
use super::{Finding, Tree};
use std::collections::BTreeSet;

/// Folders whose files declare metrics, and what a name of theirs may stand in beside them.
const CAPABILITIES: [&str; 2] = ["crates/net/", "crates/event/"];
/// Must name none: the spine, the report, and what runs a scenario.
const NAMELESS: [&str; 8] = [
    "crates/core/src/",
    "crates/seams/src/",
    "crates/report/src/",
    "crates/agent/src/",
    "crates/telemetry/src/",
    "crates/lab/src/",
    "src/run/",
    "src/output.rs",
];
/// A synthetic run for the report's tests.
const SAMPLE: &str = "crates/report/src/sample/";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let declared = declared(tree);
    let domains: BTreeSet<&str> = declared.iter().filter_map(|name| name.split('.').next()).collect();
    let mut findings = Vec::new();
    let nameless = |path: &str| !path.starts_with(SAMPLE) && NAMELESS.iter().any(|it| path.starts_with(it));
    for file in tree.rust().filter(|file| nameless(&file.path)) {
        let parsed = lines(&file.path, &file.text);
        for (index, (text, line)) in file.text.lines().zip(&parsed).enumerate() {
            if line.test || line.is_comment_only() || line.is_attribute() {
                continue;
            }
            let known = |it: &&str| {
                declared.contains(*it)
                    || it.split_once('.').is_some_and(|(domain, rest)| {
                        domains.contains(domain) && rest.contains('_') && !rest.contains([' ', '.'])
                    })
            };
            if let Some(name) = literals(text).find(known) {
                let message = format!(
                    "`{name}` belongs to the capability that measures it; it says there how it is shown"
                );
                findings.push(Finding::fail(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Names of metrics: the first text of each definition, or a constant that looks like one.
fn declared(tree: &Tree) -> BTreeSet<String> {
    let of_capability = |path: &str| CAPABILITIES.iter().any(|it| path.starts_with(it));
    let mut names = BTreeSet::new();
    for file in tree.rust().filter(|file| of_capability(&file.path) && file.text.contains("Metric")) {
        let is_name = |it: &&str| {
            it.split_once('.').is_some_and(|(domain, rest)| {
                let word = |it: &str| it.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                !domain.is_empty() && word(domain) && !rest.is_empty() && word(rest)
            })
        };
        names.extend(file.text.lines().flat_map(literals).filter(is_name).map(str::to_owned));
    }
    names
}

/// Texts between quotes on one line.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_named_outside_its_capability_is_found_and_no_other_text() {
        let of_net = ("crates/net/src/a.rs", "Metric::new(\n\"stream.fairness_jain\",\n\"1\")");
        let found = |path: &str, code: &str| check(&Tree::of(&[of_net, (path, code)])).len();
        for code in ["let key = \"stream.fairness_jain\";", "f(\"stream.other_seconds\")"] {
            assert_eq!(found("crates/report/src/a.rs", code), 1, "{code}");
            assert_eq!(found("src/commands/net/a.rs", code), 0, "{code}");
            assert_eq!(found("crates/report/src/sample/a.rs", code), 0, "{code}");
        }
        for code in ["f(\"stream of bytes\")", "f(\"port.queue_bytes\")", "// \"stream.fairness_jain\""] {
            assert_eq!(found("crates/report/src/a.rs", code), 0, "{code}");
        }
        let test = "#[cfg(test)]\nmod tests {\n    const A: &str = \"stream.fairness_jain\";\n}\n";
        assert_eq!(found("crates/report/src/a.rs", test), 0);
    }
}
