//! What ships is bounded: the crates of the release tree, and of the small agent without features. Every direct
//! dependency has its line in `docs/dependencies.md`.

use super::Finding;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const CRATES_MAX: usize = 260;
const CRATES_MAX_WITHOUT_FEATURES: usize = 60;
const PAGE: &str = "docs/dependencies.md";

pub fn check(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (flags, most) in
        [(&[][..], CRATES_MAX), (&["--no-default-features"][..], CRATES_MAX_WITHOUT_FEATURES)]
    {
        match tree(root, flags) {
            Ok(listing) => findings.extend(bounded(&listing, most, flags)),
            Err(problem) => findings.push(Finding::fail("Cargo.lock", 1, problem)),
        }
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let page = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    findings.extend(explained(&manifest, &page));
    findings
}

fn tree(root: &Path, flags: &[&str]) -> Result<String, String> {
    // The toolchain that runs this; a plain `cargo` may be another one.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--package", "weir", "-e", "normal,build", "--target", "x86_64-unknown-linux-gnu"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(flags)
        .current_dir(root)
        .output()
        .map_err(|problem| format!("cargo tree could not be started: {problem}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "the crates could not be counted, cargo tree says: {}",
            String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")
        ))
    }
}

fn bounded(listing: &str, most: usize, flags: &[&str]) -> Option<Finding> {
    // "name v1.2.3 (path or note) (*)": name and version make a crate.
    let crates: BTreeSet<String> = listing
        .lines()
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .filter(|name| !name.is_empty())
        .collect();
    let form = if flags.is_empty() { "in full".to_owned() } else { format!("with {}", flags.join(" ")) };
    if crates.is_empty() {
        return Some(Finding::fail("Cargo.lock", 1, format!("cargo tree {form} named no crate")));
    }
    (crates.len() > most).then(|| {
        Finding::fail("Cargo.lock", 1, format!("{} crates {form}, at most {most} are allowed", crates.len()))
    })
}

/// Every outside crate of `[workspace.dependencies]` has a row that begins with its name, and no row is left over.
fn explained(manifest: &str, page: &str) -> Vec<Finding> {
    let table: toml::Table = match manifest.parse() {
        Ok(table) => table,
        Err(problem) => return vec![Finding::fail("Cargo.toml", 1, format!("not TOML: {problem}"))],
    };
    let direct = table
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(toml::Value::as_table);
    let names: BTreeSet<&str> = direct
        .map(|direct| direct.keys().map(String::as_str).filter(|name| !name.starts_with("weir-")).collect())
        .unwrap_or_default();
    let rows: Vec<(usize, &str)> = page
        .lines()
        .enumerate()
        .filter_map(|(index, line)| Some((index + 1, line.strip_prefix("| `")?.split('`').next()?)))
        .collect();
    let mut findings = Vec::new();
    for name in names.iter().filter(|name| !rows.iter().any(|(_, row)| row == *name)) {
        findings.push(Finding::fail(PAGE, 1, format!("{name} is a direct dependency without a line here")));
    }
    for (line, row) in rows.iter().filter(|(_, row)| !names.contains(row)) {
        findings.push(Finding::fail(PAGE, *line, format!("{row} is no direct dependency")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_counted_once_and_bounded() {
        let listing = "weir v0.1.0 (/x)\nserde v1.0.0\nserde v1.0.0 (*)\nserde v2.0.0\n\n";
        assert_eq!(bounded(listing, 3, &[]), None);
        assert!(bounded(listing, 2, &[]).unwrap().message.starts_with("3 crates in full"));
        assert!(bounded("", 2, &[]).is_some(), "a count of nothing proves nothing");
    }

    #[test]
    fn a_dependency_without_a_reason_and_a_reason_without_a_dependency_are_found() {
        let manifest =
            "[workspace.dependencies]\nweir-core = { path = \"x\" }\nserde = \"1\"\nclap = \"4\"\n";
        let page = "| crate | why |\n|---|---|\n| `serde` | records |\n| `rand` | gone |\n";
        let messages: Vec<String> =
            explained(manifest, page).into_iter().map(|found| found.message).collect();
        assert_eq!(
            messages,
            ["clap is a direct dependency without a line here", "rand is no direct dependency"]
        );
    }
}
