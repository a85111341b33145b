//! The pure crates do no I/O, know no clock and iterate in order, so that the same core runs under virtual time.

use super::source::{self, Line};
use super::{Finding, Tree};

const PURE: [&str; 2] = ["crates/core/src/", "crates/fabric/src/"];

/// Path and what to do instead. A path stands for everything below it.
const FORBIDDEN_PATHS: &[(&str, &str)] = &[
    ("std::fs", "a shell reads and writes files"),
    ("std::thread", "a shell owns the threads"),
    ("std::env", "take the value as an argument"),
    ("std::process", "a shell starts processes"),
    ("std::os", "system calls live in crates/sys"),
    ("std::time::Instant", "take weir_core::Instant as an argument"),
    ("std::time::SystemTime", "take the time as an argument"),
    ("std::collections::HashMap", "its order is random; use BTreeMap"),
    ("std::collections::HashSet", "its order is random; use BTreeSet"),
    ("std::collections::hash_map", "its order is random; use BTreeMap"),
    ("std::collections::hash_set", "its order is random; use BTreeSet"),
];

/// Values, not sockets.
const NET_VALUES: [&str; 7] =
    ["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6", "AddrParseError"];

const FORBIDDEN_WORDS: &[(&str, &str)] = &[
    ("HashMap", "its order is random; use BTreeMap"),
    ("HashSet", "its order is random; use BTreeSet"),
    ("SystemTime", "take the time as an argument"),
    ("TcpStream", "sockets live in crates/sys"),
    ("TcpListener", "sockets live in crates/sys"),
    ("UdpSocket", "sockets live in crates/sys"),
];

const FORBIDDEN_MACROS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let pure = |path: &str| PURE.iter().any(|folder| path.starts_with(folder));
    tree.rust().filter(|file| pure(&file.path)).flat_map(|file| pure_file(&file.path, &file.text)).collect()
}

fn pure_file(path: &str, text: &str) -> Vec<Finding> {
    let lines = source::lines(path, text);
    let mut findings = Vec::new();
    let mut refuse = |line: usize, what: &str, instead: &str| {
        let finding = Finding::fail(path, line, format!("a pure crate must not name {what}: {instead}"));
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    };
    for (line, named) in source::paths(&lines) {
        if lines[line - 1].test {
            continue;
        }
        for (forbidden, instead) in FORBIDDEN_PATHS {
            if named == *forbidden || named.starts_with(&format!("{forbidden}::")) {
                refuse(line, &named, instead);
            }
        }
        if let Some(item) = named.strip_prefix("std::net::") {
            let first = item.split("::").next().unwrap_or_default();
            if !NET_VALUES.contains(&first) {
                refuse(line, &named, "addresses are values, sockets are not");
            }
        }
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.test) {
        for (word, instead) in FORBIDDEN_WORDS.iter().filter(|(word, _)| has_word(line, word)) {
            refuse(index + 1, word, instead);
        }
        let printed = FORBIDDEN_MACROS.iter().find(|name| calls(&line.code, name));
        if let Some(name) = printed {
            refuse(index + 1, name, "return what is to be said");
        }
    }
    findings
}

fn has_word(line: &Line, word: &str) -> bool {
    line.words().any(|found| found == word)
}

/// `name` is `print!` or the like, and not the end of a longer word.
pub fn calls(code: &str, name: &str) -> bool {
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/fabric/src/port.rs", text)]))
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    #[test]
    fn every_way_of_naming_the_world_is_refused() {
        for bad in [
            "use std::fs;",
            "use std::{collections::BTreeMap, thread};",
            "let now = std::time::Instant::now();",
            "use std::time::{Duration, Instant};",
            "use std::time::SystemTime;",
            "use std::net::{IpAddr, TcpStream};",
            "use std::net::*;",
            "fn f(map: &HashMap<u32, u32>) {}",
            "use std::collections::HashSet;",
            "let home = std::env::var(name);",
            "println!(\"{x}\");",
        ] {
            assert!(!messages(bad).is_empty(), "{bad} passed");
        }
    }

    #[test]
    fn values_own_clocks_tests_and_texts_are_not() {
        for good in [
            "use std::net::Ipv4Addr;\nuse std::time::Duration;\nuse crate::time::Instant;",
            "// HashMap would do, but its order is random\nlet text = \"std::fs\";",
            "writeln!(out, \"x\")?;",
            "#[cfg(test)]\nmod tests {\n    use std::collections::HashSet;\n}",
        ] {
            assert_eq!(messages(good), Vec::<String>::new(), "{good}");
        }
        assert!(check(&Tree::of(&[("crates/lab/src/shell.rs", "use std::fs;")])).is_empty());
    }
}
