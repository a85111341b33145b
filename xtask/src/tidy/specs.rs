//! Rules in `docs/specs` carry a number (`fabric-3`); tests cite them as `// Spec: fabric.md#fabric-3`.

use super::source;
use super::{Finding, Tree};
use std::collections::BTreeMap;

const FOLDER: &str = "docs/specs/";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // `fabric.md#fabric-3` to where it stands.
    let mut rules: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for file in tree.files().filter(|file| file.path.starts_with(FOLDER) && file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            let Some(rule) = rule(line) else { continue };
            let name = format!("{}#{rule}", &file.path[FOLDER.len()..]);
            if let Some((_, first)) = rules.insert(name, (&file.path, index + 1)) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    format!("{rule} is also the rule of line {first}"),
                ));
            }
        }
    }
    let mut uncited = rules.clone();
    for file in tree.rust() {
        for (index, line) in source::lines(&file.path, &file.text).iter().enumerate() {
            for cited in citations(&line.comment) {
                if rules.contains_key(cited) {
                    uncited.remove(cited);
                } else {
                    findings.push(Finding::fail(
                        &file.path,
                        index + 1,
                        format!("cites {cited}, which is no rule in {FOLDER}"),
                    ));
                }
            }
        }
    }
    findings.extend(
        uncited
            .iter()
            .map(|(rule, (path, line))| Finding::warn(path, *line, format!("no test cites {rule}"))),
    );
    findings
}

/// The id that a heading, list item or table row begins with: `- **fabric-3** …`.
fn rule(line: &str) -> Option<&str> {
    let marked = line.trim_start();
    if !marked.starts_with(['#', '-', '*', '|', '`']) {
        return None;
    }
    let start = marked.trim_start_matches(['#', '-', '*', '|', '`', ' ']);
    let end = start
        .find(|letter: char| !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'))
        .unwrap_or(start.len());
    let (area, number) = start[..end].rsplit_once('-')?;
    let fine = area.starts_with(|first: char| first.is_ascii_lowercase())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    // A bare word such as `sha-256` in a table needs the emphasis of a rule to count as one.
    let emphasised = ["**", "`", "#"].iter().any(|mark| marked[..marked.len() - start.len()].contains(mark));
    (fine && emphasised).then(|| &start[..end])
}

/// Only a comment that begins with the word cites; prose may speak of the form.
fn citations(comment: &str) -> impl Iterator<Item = &str> {
    let list = comment.trim_start_matches('/').trim_start().strip_prefix("Spec:").unwrap_or_default();
    list.split([' ', ',', ';'])
        .map(|word| word.trim_end_matches(['.', ')']))
        .filter(|word| word.contains(".md#"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Severity;

    const PAGE: &str = "# The fabric\n\n- **fabric-1** Packets leave in order.\n- **fabric-2** None is lost.\n\nSee fabric-9 elsewhere.\n";

    #[test]
    fn a_rule_without_a_test_is_a_warning() {
        let found = check(&Tree::of(&[
            ("docs/specs/fabric.md", PAGE),
            ("crates/fabric/src/a.rs", "// Spec: fabric.md#fabric-1.\n#[test]\nfn order() {}\n"),
        ]));
        assert_eq!(found, [Finding::warn("docs/specs/fabric.md", 4, "no test cites fabric.md#fabric-2")]);
    }

    #[test]
    fn citing_a_rule_that_is_not_there_fails() {
        let found =
            check(&Tree::of(&[("docs/specs/fabric.md", PAGE), ("a.rs", "// Spec: fabric.md#fabric-7\n")]));
        assert_eq!(found.iter().filter(|found| found.severity == Severity::Failure).count(), 1, "{found:?}");
    }

    #[test]
    fn two_rules_of_one_name_fail() {
        let found = check(&Tree::of(&[("docs/specs/fabric.md", "- **fabric-1** a\n- **fabric-1** b\n")]));
        assert!(found.iter().any(|found| found.severity == Severity::Failure), "{found:?}");
    }
}
