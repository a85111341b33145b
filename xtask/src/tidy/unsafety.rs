//! `unsafe` only in `crates/sys`, and each with the reason why it is sound.

use super::source::{self, Line};
use super::{Finding, Tree};

const HOME: &str = "crates/sys/";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = source::lines(&file.path, &file.text);
        for index in 0..lines.len() {
            if !lines[index].words().any(|word| word == "unsafe") {
                continue;
            }
            if !file.path.starts_with(HOME) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    "unsafe outside crates/sys; give the call a safe function there",
                ));
            } else if !explained(&lines, index) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    "unsafe without a `// Safety:` comment above it",
                ));
            }
        }
    }
    findings
}

/// A `// Safety:` comment stands directly above the line or above the statement that it is part of.
fn explained(lines: &[Line], index: usize) -> bool {
    let declares = lines[index].code.contains("unsafe fn") || lines[index].code.contains("unsafe trait");
    let mut at = index;
    // Up to the first line of the statement: the line before it ends another one.
    while at > 0 {
        let before = &lines[at - 1];
        if before.is_comment_only() || before.is_attribute() {
            let block = (0..at)
                .rev()
                .take_while(|line| lines[*line].is_comment_only() || lines[*line].is_attribute());
            return block.map(|line| lines[line].comment.trim()).any(|comment| {
                comment.starts_with("// Safety:") || (declares && comment.starts_with("/// # Safety"))
            });
        }
        let code = before.code.trim_end();
        if code.trim().is_empty() || code.ends_with([';', '{', '}', ',']) {
            return false;
        }
        at -= 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn unsafe_elsewhere_is_refused_however_well_explained() {
        assert_eq!(count("crates/net/src/lib.rs", "// Safety: none needed.\nunsafe { f() }\n"), 1);
    }

    #[test]
    fn each_unsafe_needs_its_own_reason() {
        let sys = "crates/sys/src/tun.rs";
        assert_eq!(count(sys, "fn f() {\n    unsafe { g() }\n}\n"), 1);
        assert_eq!(count(sys, "// Safety: the descriptor is ours.\nunsafe { g() };\nunsafe { h() };\n"), 1);
        assert_eq!(
            count(
                sys,
                "// Safety: no pointers.\nunsafe impl Send for Page {}\nunsafe impl Sync for Page {}\n"
            ),
            1
        );
        assert_eq!(count(sys, "// the descriptor is ours\nunsafe { g() };\n"), 1);
    }

    #[test]
    fn a_reason_above_the_statement_or_the_attributes_counts() {
        let sys = "crates/sys/src/tun.rs";
        assert_eq!(
            count(
                sys,
                "// Safety: the buffer outlives the call,\n// and is initialised.\nlet n =\n    unsafe { read() };\n"
            ),
            0
        );
        assert_eq!(count(sys, "// Safety: signal-safe only.\n#[inline]\npub unsafe fn f() {}\n"), 0);
        assert_eq!(
            count(sys, "/// Maps a page.\n///\n/// # Safety\n/// `fd` is a memfd.\npub unsafe fn f() {}\n"),
            0
        );
        assert_eq!(count(sys, "#![deny(unsafe_op_in_unsafe_fn)]\nlet text = \"unsafe\";\n"), 0);
    }
}
