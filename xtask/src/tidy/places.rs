//! The repository names no machine: neither a package registry's or mirror's host nor a path of one developer's disk.

use super::{Finding, Tree};

// Spelt in pieces so that this file does not name what it looks for.
const HOSTS: [&str; 11] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("deb.debian", ".org"),
    concat!("ftp.debian", ".org"),
    concat!("security.debian", ".org"),
    concat!("snapshot.debian", ".org"),
    concat!("archive.ubuntu", ".com"),
    concat!("proxy.golang", ".org"),
];
const FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/tmp/", "target-")];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Cargo writes the index's name into the lock file by itself.
    for file in tree.files().filter(|file| file.path != "Cargo.lock") {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    format!("names the registry host {host}"),
                ));
            }
            if let Some(folder) = FOLDERS.iter().find(|folder| starts_a_path(line, folder)) {
                findings.push(Finding::fail(
                    &file.path,
                    index + 1,
                    format!("names {folder}, a path of one machine"),
                ));
            }
        }
    }
    findings
}

/// `folder` begins a path here, rather than being in the middle of one.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|before: char| {
            before.is_alphanumeric() || matches!(before, '_' | '-' | '.' | '}' | ')')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_registries_and_paths_of_machines_are_found() {
        for bad in [
            format!("url = \"https://{}/x\"", HOSTS[0]),
            format!("cd {}main", FOLDERS[0]),
            format!("\"{}shared\"", FOLDERS[0]),
        ] {
            assert_eq!(check(&Tree::of(&[("a.sh", &bad)])).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_relative_folder_of_that_name_and_the_lock_file_are_fine() {
        assert!(check(&Tree::of(&[("a.sh", &format!("cd results{}x", FOLDERS[0]))])).is_empty());
        assert!(check(&Tree::of(&[("Cargo.lock", HOSTS[0])])).is_empty());
    }
}
