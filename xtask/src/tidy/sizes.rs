//! A file has one reason to change; its length is the first hint that it has two.

use super::{Finding, Tree};

const LINES_TO_WARN: usize = 600;
const LINES_MAX: usize = 1000;
const LIST: &str = "xtask/large_files.txt";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut excused: Vec<(usize, &str)> = Vec::new();
    for (index, line) in tree.text(LIST).unwrap_or_default().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(": ") {
            Some((path, reason)) if !reason.trim().is_empty() => excused.push((index + 1, path)),
            _ => findings.push(Finding::fail(LIST, index + 1, "expected `path: why it stays whole`")),
        }
    }
    for file in tree.rust() {
        let count = file.text.lines().count();
        let excuse = excused.iter().any(|(_, path)| *path == file.path);
        if count > LINES_MAX && !excuse {
            findings.push(Finding::fail(
                &file.path,
                count,
                format!(
                    "{count} lines, more than {LINES_MAX}: split it, or say in {LIST} why it stays whole"
                ),
            ));
        } else if count > LINES_TO_WARN && !excuse {
            findings.push(Finding::warn(&file.path, count, format!("{count} lines: is this two nouns?")));
        }
    }
    for (line, path) in excused {
        let needed = tree.text(path).is_some_and(|text| text.lines().count() > LINES_MAX);
        if !needed {
            findings.push(Finding::fail(
                LIST,
                line,
                format!("{path} is not a file of more than {LINES_MAX} lines"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Severity;

    #[test]
    fn long_files_warn_longer_ones_fail_and_a_reason_excuses() {
        let long = "x\n".repeat(601);
        let longer = "x\n".repeat(1001);
        let found = check(&Tree::of(&[("a.rs", &long), ("b.rs", &longer), ("c.rs", "x\n")]));
        let seen: Vec<(&str, Severity)> =
            found.iter().map(|found| (found.path.as_str(), found.severity)).collect();
        assert_eq!(seen, [("a.rs", Severity::Warning), ("b.rs", Severity::Failure)]);
        assert!(check(&Tree::of(&[("b.rs", &longer), (LIST, "b.rs: one table\n")])).is_empty());
    }

    #[test]
    fn an_excuse_needs_a_reason_and_a_large_file() {
        assert_eq!(check(&Tree::of(&[("b.rs", "x\n"), (LIST, "b.rs: one table\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[("b.rs", &"x\n".repeat(1001)), (LIST, "b.rs:\n")])).len(), 2);
    }
}
