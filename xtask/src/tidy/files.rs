//! Files are made in one module: whoever makes one by its path follows the links that others put there, and waits for their pipes.

use super::source::lines;
use super::{Finding, Tree};

/// May make files: the module's crate, which has the others' functions, a folder of samples for tests, and what only a build runs.
const MAY: [&str; 3] = ["crates/sys/", "crates/report/src/sample/", "crates/guide/build.rs"];
const MAKERS: [&str; 7] = [
    "File::create(",
    "File::create_new(",
    "fs::write(",
    "fs::copy(",
    "fs::create_dir_all(",
    ".create(true)",
    ".create_new(true)",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let ours = |path: &str| {
        ["src/", "crates/", "adapters/"].iter().any(|folder| path.starts_with(folder))
            && !MAY.iter().any(|folder| path.starts_with(folder))
    };
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| ours(&file.path)) {
        for (index, line) in lines(&file.path, &file.text).iter().enumerate().filter(|(_, line)| !line.test) {
            if let Some(maker) = MAKERS.iter().find(|maker| line.code.contains(**maker)) {
                let message = format!(
                    "{} follows links and waits for pipes; make it by weir_sys::directory (or trusted)",
                    maker.trim_end_matches('(')
                );
                findings.push(Finding::fail(&file.path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_makes_a_file_by_its_path_is_found_and_nobody_else() {
        let found = |path: &str, code: &str| check(&Tree::of(&[(path, code)])).len();
        for code in ["let file = File::create(path)?;", "fs::write(path, text)?;", "options.create(true);"] {
            assert_eq!(found("src/commands/capture.rs", code), 1, "{code}");
            assert_eq!(found("crates/lab/src/named/up.rs", code), 1, "{code}");
            assert_eq!(found("crates/sys/src/directory.rs", code), 0, "{code}");
            assert_eq!(found("crates/report/src/tests.rs", code), 0, "{code}");
            assert_eq!(found("xtask/src/accuracy.rs", code), 0, "{code}");
        }
        for code in ["File::open(path)?;", "File::options().write(true).open(path)?;", "// fs::write(x)"] {
            assert_eq!(found("src/commands/capture.rs", code), 0, "{code}");
        }
    }
}
