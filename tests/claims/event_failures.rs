//! A script that knows the daemons' flags and nothing else fails them at random.

use crate::support::{finish_within, need_lab, ran, repository, start, turn};
use std::process::Command;
use std::time::Duration;

fn seeds(arguments: &[&str]) {
    need_lab();
    let _turn = turn();
    let mut script = Command::new(repository().join("scripts/event-failures"));
    script.args(["--weir", env!("CARGO_BIN_EXE_weir"), "--events", "1600"]).args(arguments);
    let ran = ran(finish_within(start(&mut script), Duration::from_secs(300)));
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
}

// Spec: event-building.md#failure-3
#[test]
fn builders_and_sources_that_are_killed_stopped_and_cut_off_cost_no_event() {
    seeds(&["--seed", "201", "--seeds", "2"]);
}

// Spec: event-building.md#failure-5
#[test]
fn what_a_killed_scheduler_missed_is_named_and_nothing_else_is_lost() {
    seeds(&["--seed", "301", "--seeds", "1", "--kill-scheduler"]);
}
