//! Nothing half done is committed: no reminders, no placeholders, no test that is switched off.

use super::purity::calls;
use super::source;
use super::{Finding, Tree};

// Spelt in two pieces so that this file does not name what it looks for.
const REMINDERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in
        tree.files().filter(|file| !file.path.ends_with(".lock") && !file.path.starts_with("bench/runs/"))
    {
        if !file.path.ends_with(".rs") {
            let lines = file.text.lines().enumerate();
            findings.extend(lines.filter_map(|(index, line)| reminder(&file.path, index, line)));
            continue;
        }
        for (index, line) in source::lines(&file.path, &file.text).iter().enumerate() {
            findings.extend(reminder(&file.path, index, &line.comment));
            for name in MACROS.iter().filter(|name| calls(&line.code, name)) {
                findings.push(Finding::fail(&file.path, index + 1, format!("{name} must not be committed")));
            }
            if line.code.trim_start().starts_with("#[ignore") {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    "a test is run or it is removed; skip aloud what this host cannot do",
                ));
            }
        }
    }
    findings
}

fn reminder(path: &str, index: usize, text: &str) -> Option<Finding> {
    let words = |letter: char| !(letter.is_alphanumeric() || letter == '_');
    let found = REMINDERS.iter().find(|reminder| text.split(words).any(|word| word == **reminder))?;
    Some(Finding::fail(
        path,
        index + 1,
        format!("{found}: finish it, or open an issue and take the line out"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_placeholders_and_sleeping_tests_are_found() {
        let marker = REMINDERS[0];
        for (path, bad) in [
            ("a.rs", format!("// {marker}: later\n")),
            ("a.md", format!("- {}(me) later\n", REMINDERS[1])),
            ("a.rs", "fn f() { todo!() }\n".to_owned()),
            ("a.rs", "fn f() { unimplemented!(\"x\") }\n".to_owned()),
            ("a.rs", "let x = dbg!(y);\n".to_owned()),
            ("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n".to_owned()),
        ] {
            assert_eq!(check(&Tree::of(&[(path, &bad)])).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_word_that_only_contains_one_is_fine() {
        let good = "let mastodont = \"dbg!(x)\"; // see todos in the tracker\n";
        assert!(check(&Tree::of(&[("a.rs", good)])).is_empty());
    }
}
