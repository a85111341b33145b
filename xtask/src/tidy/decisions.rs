//! Decisions are numbered once: `docs/decisions/NNNN-title.md`.

use super::{Finding, Tree};
use std::collections::BTreeMap;

const FOLDER: &str = "docs/decisions/";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for file in tree.files().filter(|file| file.path.starts_with(FOLDER)) {
        let name = &file.path[FOLDER.len()..];
        if name == "README.md" {
            continue;
        }
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) || !name.ends_with(".md") {
            findings.push(Finding::fail(&file.path, 1, "expected NNNN-title.md"));
            continue;
        }
        if let Some(other) = seen.insert(number, name) {
            findings.push(Finding::fail(&file.path, 1, format!("{number} is already the number of {other}")));
        }
        if !file.text.starts_with(&format!("# {number} ")) {
            findings.push(Finding::fail(
                &file.path,
                1,
                format!("the first line must be `# {number} Title     (status, …)`"),
            ));
        }
        let index = tree.text("docs/decisions/README.md").unwrap_or_default();
        if !index.contains(&format!("({name})")) {
            findings.push(Finding::fail(&file.path, 1, "docs/decisions/README.md does not list it"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_used_twice_or_unlisted_or_untitled_is_refused() {
        let index = ("docs/decisions/README.md", "- [a](0001-a.md)\n- [b](0001-b.md)\n- [c](0002-c.md)\n");
        let good = ("docs/decisions/0001-a.md", "# 0001 A     (accepted)\n");
        assert!(check(&Tree::of(&[index, good])).is_empty());
        assert_eq!(check(&Tree::of(&[index, good, ("docs/decisions/0001-b.md", "# 0001 B\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[index, ("docs/decisions/0002-c.md", "# C\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[index, ("docs/decisions/0003-d.md", "# 0003 D\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[index, ("docs/decisions/notes.md", "# N\n")])).len(), 1);
    }
}
