//! Which crate may depend on which: the one table, and the check that manifests keep to it.

use crate::tidy::{Finding, Tree};

/// Crate by folder name, and the `weir-*` crates that it may name. A new edge is a one-line diff here.
pub const EDGES: &[(&str, &[&str])] = &[
    // Vocabulary: pure, on `core` alone.
    ("core", &[]),
    ("seams", &["core"]),
    ("fabric", &["core"]),
    // Mechanism: sideways edges go only the ways listed.
    ("sys", &["core"]),
    ("transport", &["core", "sys"]),
    ("telemetry", &["core", "seams", "sys"]),
    ("agent", &["core", "seams", "sys", "telemetry", "transport"]),
    // Capabilities: never each other, nor lab, nor agent.
    ("net", &["core", "seams", "sys", "telemetry", "transport"]),
    ("event", &["core", "seams", "sys", "telemetry", "transport"]),
    ("storage", &["core", "seams", "sys", "transport"]),
    ("service", &["core", "sys", "telemetry"]),
    // Disks under services: mechanism, and a pure model.
    ("disk", &["core", "sys"]),
    // What the guide shows of a capability.
    ("guide", &["core", "seams", "sys"]),
    // Evidence.
    ("lab", &["core", "seams", "fabric", "sys", "telemetry", "agent"]),
    ("report", &["core", "seams", "sys"]),
];

/// What an adapter, a crate in `adapters/` around one foreign client, may name: no capability and no other adapter. Nothing in
/// `crates/` names an adapter: the registry alone joins them.
const ADAPTER_EDGES: &[&str] = &["core", "seams", "sys", "transport"];

const SECTIONS: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];

/// Every crate in `crates/` stands in the table and names no crate beyond its row, for tests neither; nor does one in `adapters/`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.path.ends_with("/Cargo.toml")) {
        if let Some(name) = crate_name(&file.path, "adapters/") {
            if EDGES.iter().any(|(known, _)| *known == name) {
                findings.push(Finding::fail(&file.path, 1, format!("crates/{name} has the same name")));
            }
            findings.extend(manifest(&file.path, &file.text, name, ADAPTER_EDGES));
            continue;
        }
        let Some(name) = crate_name(&file.path, "crates/") else { continue };
        match EDGES.iter().find(|(known, _)| *known == name) {
            Some((_, allowed)) => findings.extend(manifest(&file.path, &file.text, name, allowed)),
            None => findings.push(Finding::fail(
                &file.path,
                1,
                format!("crate {name:?} has no row in xtask/src/layers.rs; add one that says what it may depend on"),
            )),
        }
    }
    findings
}

/// `net` from `crates/net/Cargo.toml`.
fn crate_name<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_suffix("/Cargo.toml").filter(|name| !name.contains('/'))
}

fn manifest(path: &str, text: &str, name: &str, allowed: &[&str]) -> Vec<Finding> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(problem) => return vec![Finding::fail(path, 1, format!("not TOML: {problem}"))],
    };
    let mut tables = vec![&table];
    // `[target.'cfg(…)'.dependencies]` is a way around the table otherwise.
    if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut findings = Vec::new();
    for dependencies in
        tables.iter().flat_map(|table| SECTIONS.iter().filter_map(|key| table.get(*key)?.as_table()))
    {
        for (key, value) in dependencies {
            // A renamed dependency counts as what it is.
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
            let Some(other) = package.strip_prefix("weir-") else { continue };
            if !allowed.contains(&other) {
                let line = text
                    .lines()
                    .position(|line| line.trim_start().starts_with(key.as_str()))
                    .map_or(1, |at| at + 1);
                findings.push(Finding::fail(
                    path,
                    line,
                    format!(
                        "{name} must not depend on {other}; allowed: {}",
                        if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
                    ),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPABILITIES: [&str; 5] = ["net", "event", "storage", "transfer", "service"];

    fn checked(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn a_capability_that_names_the_lab_is_refused_at_its_line() {
        let found = checked(
            "crates/net/Cargo.toml",
            "[dependencies]\nweir-core.workspace = true\nweir-lab.workspace = true\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 3);
        assert!(found[0].message.contains("net must not depend on lab"), "{}", found[0].message);
    }

    #[test]
    fn an_edge_for_tests_or_one_target_or_under_another_name_counts_too() {
        for text in [
            "[dev-dependencies]\nweir-agent.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nweir-agent.workspace = true\n",
            "[dependencies]\nhelper = { package = \"weir-agent\", path = \"../agent\" }\n",
        ] {
            assert_eq!(checked("crates/net/Cargo.toml", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_allowed_edges_pass_and_an_unknown_crate_does_not() {
        assert!(
            checked("crates/lab/Cargo.toml", "[dependencies]\nweir-agent.workspace = true\nserde = \"1\"\n")
                .is_empty()
        );
        assert_eq!(checked("crates/gossip/Cargo.toml", "[dependencies]\n").len(), 1);
    }

    #[test]
    fn an_adapter_names_mechanism_alone_and_no_crate_names_an_adapter() {
        let adapter = "adapters/zookeeper/Cargo.toml";
        let good = "[dependencies]\nweir-core.workspace = true\nweir-seams.workspace = true\nweir-sys.workspace = true\n";
        assert!(checked(adapter, good).is_empty());
        for other in ["event", "agent", "lab", "report", "etcd"] {
            let found = checked(adapter, &format!("[dependencies]\nweir-{other}.workspace = true\n"));
            assert_eq!(found.len(), 1, "{other}: {found:?}");
            assert!(
                found[0].message.starts_with(&format!("zookeeper must not depend on {other}")),
                "{found:?}"
            );
        }
        for (name, _) in EDGES {
            let path = format!("crates/{name}/Cargo.toml");
            let found = checked(&path, "[dev-dependencies]\nweir-zookeeper.workspace = true\n");
            assert_eq!(found.len(), 1, "{name}");
        }
        assert_eq!(checked("adapters/event/Cargo.toml", "[dependencies]\n").len(), 1, "a name of both");
        let known = |edge: &&&str| EDGES.iter().any(|(name, _)| name == *edge);
        assert_eq!(ADAPTER_EDGES.iter().filter(known).count(), ADAPTER_EDGES.len(), "every edge names a row");
    }

    #[test]
    fn the_table_has_no_cycle_and_keeps_capabilities_apart() {
        for (place, (name, allowed)) in EDGES.iter().enumerate() {
            for other in *allowed {
                let earlier =
                    EDGES.iter().position(|(known, _)| known == other).expect("every edge names a row");
                assert!(earlier < place, "{name} → {other} points up the table");
            }
            if CAPABILITIES.contains(name) {
                let forbidden =
                    |other: &&&str| CAPABILITIES.contains(other) || ["lab", "agent"].contains(*other);
                assert_eq!(allowed.iter().find(forbidden), None, "{name}");
            }
        }
    }
}
