//! Results and words leave the program through one module: whoever writes past it loses errors, or panics at them.

use super::source::lines;
use super::{Finding, Tree};

/// May write: the module itself, and programs that are no command of weir's.
const MAY: [&str; 6] = [
    "src/output.rs",
    "crates/disk/src/process.rs",
    "crates/lab/src/fabric_process.rs",
    "crates/lab/src/holder_process.rs",
    "crates/lab/src/bin/weir-lab-test.rs",
    "crates/guide/build.rs",
];
const MACROS: [&str; 4] = ["print!", "println!", "eprint!", "eprintln!"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let ours = |path: &str| ["src/", "crates/", "adapters/"].iter().any(|folder| path.starts_with(folder));
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| ours(&file.path) && !MAY.contains(&file.path.as_str())) {
        for (index, line) in lines(&file.path, &file.text).iter().enumerate().filter(|(_, line)| !line.test) {
            let writes = MACROS.iter().find(|name| stands_in(&line.code, name));
            if let Some(name) = writes.or(stands_in(&line.code, "stdout()").then_some(&"stdout()")) {
                let message = format!("{name} loses errors of the stream; write through src/output.rs");
                findings.push(Finding::fail(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether `name` is in `code` and not the end of a longer word.
fn stands_in(code: &str, name: &str) -> bool {
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_writes_past_the_one_module_is_found_and_nobody_else() {
        let found = |path: &str, code: &str| check(&Tree::of(&[(path, code)])).len();
        for code in ["println!(\"x\");", "eprint!(\"x\");", "let out = io::stdout().lock();"] {
            assert_eq!(found("src/commands/list.rs", code), 1, "{code}");
            assert_eq!(found("src/output.rs", code), 0, "{code}");
            assert_eq!(found("tests/claims/list.rs", code), 0, "{code}");
        }
        for code in ["child.take_stdout();", "command.stdout(Stdio::piped());", "// println! panics"] {
            assert_eq!(found("crates/agent/src/fleet.rs", code), 0, "{code}");
        }
    }
}
