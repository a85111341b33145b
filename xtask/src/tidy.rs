//! The rules that a reviewer should not have to remember. Each checker takes the tracked files and gives findings.

mod coverage;
mod decisions;
mod dependencies;
mod files;
mod links;
mod names;
mod owners;
mod places;
mod purity;
mod sizes;
mod source;
mod specs;
mod streams;
mod unsafety;
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Printed; does not fail the check.
    Warning,
    Failure,
}

/// One thing out of order, at a place a reader can go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// From 1.
    pub line: usize,
    pub severity: Severity,
    pub message: String,
}

impl Finding {
    pub fn fail(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, severity: Severity::Failure, message: message.into() }
    }

    pub fn warn(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, severity: Severity::Warning, message: message.into() }
    }
}

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
}

/// What the checkers look at: the text files, and the names of all files.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    texts: Vec<File>,
    all: BTreeSet<String>,
}

impl Tree {
    /// Tracked files and those that `git add` would take, so that a mistake is found before it is committed.
    fn read(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|problem| {
                format!("git could not be started: {problem}; tidy needs it to know the project's files")
            })?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let mut tree = Tree::default();
        for path in String::from_utf8_lossy(&output.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A file deleted but not yet committed is listed and gone.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            tree.all.insert(path.to_owned());
            if let Ok(text) = String::from_utf8(bytes) {
                tree.texts.push(File { path: path.to_owned(), text });
            }
        }
        tree.texts.sort_by(|one, other| one.path.cmp(&other.path));
        tree.texts.dedup_by(|one, other| one.path == other.path);
        Ok(tree)
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree {
            texts: files
                .iter()
                .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
                .collect(),
            all: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        }
    }

    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.texts.iter()
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with(".rs"))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Whether a file, or a folder with files in it, has this path.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.all.contains(path)
            || self.all.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    }
}

const CHECKERS: &[fn(&Tree) -> Vec<Finding>] = &[
    crate::layers::check,
    purity::check,
    unsafety::check,
    sizes::check,
    words::check,
    names::check,
    owners::check,
    places::check,
    streams::check,
    files::check,
    coverage::check,
    specs::check,
    decisions::check,
    links::check,
];

/// Prints one line a finding. `Ok(false)` when one of them is a failure.
pub fn run(root: &Path) -> Result<bool, String> {
    let tree = Tree::read(root)?;
    let mut findings: Vec<Finding> = CHECKERS.iter().flat_map(|checker| checker(&tree)).collect();
    findings.extend(dependencies::check(root));
    findings.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    for finding in &findings {
        let mark = if finding.severity == Severity::Warning { "warning: " } else { "" };
        println!("{}:{}: {mark}{}", finding.path, finding.line, finding.message);
    }
    let failures = findings.iter().filter(|finding| finding.severity == Severity::Failure).count();
    println!("tidy: {} files, {failures} failures, {} warnings", tree.all.len(), findings.len() - failures);
    Ok(failures == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_there_when_a_file_is_in_it() {
        let tree = Tree::of(&[("docs/guide/lab.md", ""), ("docs-old", "")]);
        assert!(tree.has("docs") && tree.has("docs/guide/") && tree.has("docs/guide/lab.md"));
        assert!(!tree.has("doc") && !tree.has("docs/guide/lab"));
    }
}
