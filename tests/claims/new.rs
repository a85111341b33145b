//! `weir new`: what it writes can be checked and run as it is, and it takes nothing away.

use crate::support;
use crate::support::{Ran, finish_within, need_lab, ran, run, run_file, start, turn, weir};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn new(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = weir();
    command.current_dir(folder).arg("new").args(arguments);
    ran(finish_within(start(&mut command), Duration::from_secs(20)))
}

#[test]
fn every_template_passes_the_check_and_its_own_criteria() {
    need_lab();
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for template in ["quickstart", "sweep", "faults"] {
        let name = format!("my-{template}");
        let made = new(folder.path(), &[&name, "--from", template]);
        assert_eq!(made.status, 0, "{}", made.stderr);
        let file = folder.path().join(format!("{name}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("name   = \"{name}\"")) && !text.contains("NAME"), "{text}");
        let checked = run(&["check", file.to_str().unwrap()]);
        assert_eq!(checked.status, 0, "{}", checked.stderr);
        let (status, summary, _) =
            support::settled(|| run_file(&file, folder.path(), &[]), |(_, summary, _)| summary);
        assert_eq!(status, 0, "{template}: {summary:#}");
        assert_eq!(summary["scenario"], name);
    }
}

#[test]
fn what_is_there_is_left_alone_and_names_are_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "years of work").unwrap();
    let refused = new(folder.path(), &["mine"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("mine.toml is there already"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), "years of work");
    for bad in ["../x", "A", "a b", "é", "x/y"] {
        let refused = new(folder.path(), &[bad]);
        assert_eq!(refused.status, 2, "{bad}");
        assert!(refused.stderr.contains("is no name"), "{bad}: {}", refused.stderr);
    }
    let unknown = new(folder.path(), &["x", "--from", "nothing"]);
    assert!(unknown.status == 2 && unknown.stderr.contains("quickstart"), "{}", unknown.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
