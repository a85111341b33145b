//! `weir event` with a membership service: a real ZooKeeper says who takes part.

use crate::support::event_run::{Run, of, pause};
use crate::support::light;
use crate::support::zookeeper::Server;
use serde_json::Value;

fn with(server: &Server, scheduler_flags: &[&str]) -> Run {
    let mut run = Run::new(scheduler_flags);
    let servers = format!("servers={}", server.address());
    let flags =
        ["--membership", "zookeeper", "--membership-set", &servers, "--membership-set", "session_timeout=1s"];
    run.flags = flags.map(str::to_owned).to_vec();
    run
}

fn failures(summary: &Value) -> Vec<(&str, &str)> {
    let all = summary["failures"].as_array().unwrap().iter();
    all.map(|failure| (failure["name"].as_str().unwrap(), failure["kind"].as_str().unwrap())).collect()
}

// Spec: event-building.md#names-4
// Spec: membership.md#membership-8
#[test]
fn a_hung_builder_is_fenced_when_its_ephemeral_node_expires() {
    let _turn = light();
    let server = Server::start();
    // Probes would take half a minute to find it.
    let flags =
        ["--rate", "100Hz", "--events", "500", "--builders", "2", "--detect", "30s", "--drain", "30s"];
    let mut run = with(&server, &flags);
    run.scheduler();
    run.source("s0");
    run.builder("b0");
    run.builder("b1");
    pause(2500);
    run.signal("b1", "-STOP");
    let summary = run.finish();
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (500, 500), "{summary:#}");
    assert_eq!(failures(&summary), [("b1", "unlisted")]);
}

// Spec: membership.md#membership-7
#[test]
fn a_server_that_is_killed_and_forgets_everything_stops_nobody() {
    let _turn = light();
    let mut server = Server::start();
    let mut run = with(&server, &["--rate", "100Hz", "--events", "800"]);
    run.scheduler();
    run.source("s0");
    run.builder("b0");
    pause(2000);
    server.kill();
    server.forget();
    pause(1500);
    assert!(server.again());
    let summary = run.finish();
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (800, 800), "{summary:#}");
    assert_eq!(failures(&summary), []);
}

// Spec: event-building.md#names-4
#[test]
fn who_is_not_listed_takes_no_part() {
    let _turn = light();
    let server = Server::start();
    let mut run = with(&server, &["--rate", "200Hz", "--events", "100"]);
    run.scheduler();
    run.source("s0");
    let flags = std::mem::take(&mut run.flags);
    run.builder("unlisted");
    pause(1500);
    run.flags = flags;
    run.builder("b0");
    let summary = run.finish();
    assert_eq!(of(&summary, "complete"), 100, "{summary:#}");
    let builders = summary["builders"].as_array().unwrap();
    assert!(builders.len() == 1 && builders[0]["name"] == "b0", "{builders:#?}");
}
