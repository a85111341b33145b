//! Relative links in Markdown lead somewhere.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.path.ends_with(".md")) {
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            for target in targets(line) {
                let Some(path) = local(target) else { continue };
                match resolve(&file.path, path) {
                    Some(path) if path.is_empty() || tree.has(&path) => {}
                    _ => findings.push(Finding::fail(
                        &file.path,
                        index + 1,
                        format!("link to {target}, which is not here"),
                    )),
                }
            }
        }
    }
    findings
}

/// What stands in `](…)`, outside of `code`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (place, part) in line.split('`').enumerate() {
        // A link's text may be code, so `[`x`](y)` leaves `](y)` at the start of an even part.
        if place % 2 == 0 {
            let pieces = part.split("](").skip(1);
            found.extend(
                pieces.filter_map(|piece| piece.split([')', ' ']).next()).filter(|target| !target.is_empty()),
            );
        }
    }
    found
}

/// The path of a target in this repository.
fn local(target: &str) -> Option<&str> {
    let elsewhere = target.starts_with('#') || target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or_default();
    (!elsewhere && !path.is_empty()).then_some(path)
}

/// `None` when the link leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("docs/guide/lab.md", text), ("docs/specs/fabric.md", ""), ("README.md", "")]))
            .len()
    }

    #[test]
    fn a_link_into_nothing_or_out_of_the_repository_is_found() {
        for bad in
            ["[x](missing.md)", "![x](../guide/none.png)", "[x](../../../README.md)", "[`x`](none.md#a)"]
        {
            assert_eq!(count(bad), 1, "{bad}");
        }
    }

    #[test]
    fn links_that_resolve_or_lead_elsewhere_pass() {
        for good in [
            "[x](../specs/fabric.md#fabric-1)",
            "[x](../../README.md)",
            "[x](#here)",
            "[x](https://a.example/b)",
            "[x](../specs)",
            "`[x](y.md)`",
            "```\n[x](y.md)\n```",
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
    }
}
