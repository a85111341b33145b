//! Event building in real labs: hosts that faults kill and bring back, the search for the highest rate, and the report's ledger.

use crate::support::{beside, light, need_lab, run_file, settled, turn};
use serde_json::Value;
use std::fs;
use std::path::Path;

const LAB: &str = r#"
[scenario]
name = "built"
trials = 1
seed = 1

[lab]
auxiliary = { rate = "100Mbit/s", delay = "20us" }
[[lab.site]]
name = "pi"
hosts = 5
access = { rate = "100Mbit/s", delay = "20us", mtu = 1500 }
tcp_profile = "stock"

[[step]]
name = "build"
workload = "event"
scheduler_host = "pi-0"
sources = ["pi-1", "pi-2"]
builders = ["pi-3", "pi-4"]
control = "auxiliary"
fragment_size = "20kB"
"#;

/// Status, summary, timeline and page.
fn run(keys: &str, rest: &str) -> (i32, Value, Vec<Value>, String) {
    run_with(&[], keys, rest)
}

fn run_with(arguments: &[&str], keys: &str, rest: &str) -> (i32, Value, Vec<Value>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, format!("{LAB}{keys}{rest}")).unwrap();
    let (status, summary, _) =
        settled(|| run_file(&file, folder.path(), arguments), |(_, summary, _)| summary);
    let results = Path::new(summary["results"].as_str().unwrap());
    let timeline = fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    let events = timeline.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let page = fs::read_to_string(results.join("report.html")).unwrap();
    (status, summary, events, page)
}

fn metric(summary: &Value, name: &str) -> f64 {
    summary["points"][0]["metrics"][name]["mean"].as_f64().unwrap_or_else(|| panic!("{name}: {summary:#}"))
}

fn fault(name: &str, host: &str, action: &str) -> String {
    format!(
        "[[fault]]\nname = \"{name}\"\nat = \"1500ms\"\nstep = \"build\"\non = \"host.{host}\"\ndo = {{ {action} }}\n"
    )
}

// Spec: scenario.md#fault-6
// Spec: event-building.md#ledger-3
#[test]
fn a_builder_that_a_fault_kills_takes_up_its_part_again_and_no_event_is_lost() {
    need_lab();
    let _turn = light();
    let killed = fault("death", "pi-4", "kill = { for = \"1s\" }");
    let (status, summary, events, page) = run("rate = \"100Hz\"\nduration = \"5s\"\n", &killed);
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!(summary["points"][0]["valid_trials"], 1, "{summary:#}");
    assert_eq!((metric(&summary, "event.generated"), metric(&summary, "event.complete")), (500.0, 500.0));
    let kinds: Vec<&str> = events
        .iter()
        .filter(|event| event["data"]["fault"] == "death")
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["fault-start", "fault-end"]);
    // What it built before it died is not among its own figures, and what it built after it came back is.
    let built = metric(&summary, "event.built@builder.pi-4");
    assert!((50.0..240.0).contains(&built), "{built}");
    assert!(page.contains("generated  500") && page.contains("complete  500"), "the ledger's flow");
}

// Spec: scenario.md#fault-6
#[test]
fn a_builder_that_stays_dead_leaves_no_outcome_and_costs_no_event() {
    need_lab();
    let _turn = beside();
    let (status, summary, ..) =
        run("rate = \"100Hz\"\nduration = \"4s\"\n", &fault("death", "pi-4", "kill = {}"));
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!((metric(&summary, "event.generated"), metric(&summary, "event.complete")), (400.0, 400.0));
    assert!(metric(&summary, "event.reassigned") <= 40.0);
}

// Spec: event-building.md#failure-5
#[test]
fn a_scheduler_that_a_fault_kills_is_found_where_it_was_and_names_what_it_missed() {
    need_lab();
    let _turn = beside();
    let killed = fault("death", "pi-0", "kill = { for = \"1s\" }");
    let (status, summary, ..) = run("rate = \"100Hz\"\nduration = \"6s\"\n", &killed);
    assert_eq!(status, 0, "{summary:#}");
    let (dropped, complete) = (metric(&summary, "event.dropped"), metric(&summary, "event.complete"));
    assert_eq!(metric(&summary, "event.generated"), 600.0);
    assert!(dropped + complete == 600.0 && (60.0..300.0).contains(&dropped), "{dropped} dropped");
    assert_eq!(metric(&summary, "event.dropped_for@reason.no-scheduler"), dropped, "all for one reason");
    assert!(summary["warnings"].to_string().contains("dropped: no-scheduler"), "{}", summary["warnings"]);
}

// Spec: scenario.md#fault-2
#[test]
fn a_fault_with_a_spread_comes_at_another_time_in_each_trial_and_at_the_same_in_each_configuration() {
    need_lab();
    let _turn = beside();
    let slowed = fault("slow", "pi-4", "delay = { add = \"1ms\", for = \"100ms\" }")
        .replace("at = \"1500ms\"", "at = \"200ms\"\nspread = \"600ms\"");
    let sweep = "[sweep]\n\"step.build.scheduler\" = [\"round-robin\", \"membership-hash\"]\n";
    let (status, summary, events, _) =
        run_with(&["--trials", "2"], "rate = \"50Hz\"\nduration = \"1s\"\n", &format!("{slowed}{sweep}"));
    assert_eq!(status, 0, "{summary:#}");
    let at = |kind: &str| {
        let own = events.iter().filter(|event| event["event"] == kind);
        own.map(|event| event["at_ns"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    let offsets_us: Vec<u64> = at("fault-start")
        .iter()
        .map(|fault| {
            at("step-start").iter().filter_map(|start| fault.checked_sub(*start)).min().unwrap() / 1000
        })
        .collect();
    let [first, second, third, fourth] = offsets_us[..] else { panic!("{offsets_us:?}") };
    assert!(offsets_us.iter().all(|us| (200_000..800_000).contains(us)), "{offsets_us:?}");
    // Configurations take turns: A B, then B A.
    assert!(first.abs_diff(second) < 10 && third.abs_diff(fourth) < 10, "{offsets_us:?}");
    assert!(first.abs_diff(third) > 1_000, "{offsets_us:?}");
}

// Spec: event-building.md#search-1
#[test]
fn a_search_finds_the_rate_that_the_links_carry() {
    need_lab();
    let _turn = turn();
    let (status, summary, ..) = run("rate = \"100Hz\"\nsearch_to = \"3kHz\"\nduration = \"1500ms\"\n", "");
    assert_eq!(status, 0, "{summary:#}");
    // Each source sends 20 kB an event over its own link, each builder gets 40 kB of every second one: 588 Hz by framing.
    let highest = metric(&summary, "event.highest_rate_hertz");
    assert!((500.0..595.0).contains(&highest), "{highest} Hz");
}
