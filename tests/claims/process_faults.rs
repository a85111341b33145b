//! Faults that meet hosts' processes, and links that flap, end to end in real labs.

use crate::support::{beside, light, need_lab, run_file, scenario, settled, stream_step};
use serde_json::Value;
use std::fs;
use std::path::Path;

const LINK: &str = "rate = \"200Mbit/s\"\nrtt = \"4ms\"";

fn run(text: &str) -> (i32, Value, Vec<Value>) {
    settled(|| run_once(text), |(_, summary, _)| summary)
}

fn run_once(text: &str) -> (i32, Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, text).unwrap();
    let (status, summary, _) = run_file(&file, folder.path(), &[]);
    let results = summary["results"].as_str().unwrap();
    let timeline = fs::read_to_string(Path::new(results).join("timeline.jsonl")).unwrap();
    let events = timeline.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (status, summary, events)
}

fn of_fault<'a>(events: &'a [Value], fault: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["data"]["fault"] == fault).collect()
}

// Spec: scenario.md#fault-6
#[test]
fn a_paused_host_stalls_for_as_long_and_goes_on_longer_than_silence_is_borne() {
    need_lab();
    let _turn = beside();
    let step = stream_step("").replace("2500ms", "7s");
    let fault = "[[fault]]\nname = \"nap\"\nstep = \"load\"\nat = \"2s\"\non = \"host.left-0\"\ndo = { pause = { for = \"3500ms\" } }\n";
    let criterion = "[[criterion]]\ntext = \"it stalls as long\"\nmetric = \"stream.stalled_seconds.max\"\nbetween = [\"3300ms\", \"4500ms\"]\n";
    let (status, summary, events) = run(&scenario(LINK, &format!("{step}{fault}{criterion}")));
    assert_eq!(status, 0, "{summary:#}");
    let truth = of_fault(&events, "nap");
    let kinds: Vec<&str> = truth.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["fault-start", "fault-end"], "{truth:#?}");
    let at = |index: usize| truth[index]["trial_ns"].as_i64().unwrap();
    let paused_ms = (at(1) - at(0)) / 1_000_000;
    assert!((3_400..3_800).contains(&paused_ms), "{paused_ms} ms");
    assert_eq!(truth[0]["data"]["host"], "left-0");
}

// Spec: scenario.md#fault-6
#[test]
fn a_killed_host_fails_its_trial_by_name_and_the_next_trial_has_it_again() {
    need_lab();
    let _turn = light();
    let fault = "[[fault]]\nname = \"death\"\nat = \"1s\"\non = \"host.right-0\"\ndo = { kill = {} }\n";
    let text = scenario(LINK, &format!("{}{fault}", stream_step(""))).replace("trials = 1", "trials = 2");
    let (_, summary, events) = run_once(&text);
    assert_eq!(
        (&summary["points"][0]["trials"], &summary["points"][0]["valid_trials"]),
        (&2.into(), &0.into())
    );
    assert!(summary["warnings"].to_string().contains("right-0"), "{}", summary["warnings"]);
    let truth = of_fault(&events, "death");
    assert_eq!(truth.len(), 2, "once in each trial: {truth:#?}");
    assert!(
        truth.iter().all(|event| event["text"].as_str().unwrap().contains("processes killed on right-0"))
    );
}

#[test]
fn a_link_that_flaps_a_thousand_times_a_second_is_survived_and_every_time_is_known() {
    need_lab();
    let _turn = light();
    let fault = "[[fault]]\nname = \"flap\"\nevery = \"1ms\"\nstep = \"load\"\non = \"link.wan\"\ndo = { outage = { for = \"10us\" } }\n";
    let (status, summary, events) = run(&scenario(LINK, &format!("{}{fault}", stream_step(""))));
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!(summary["points"][0]["valid_trials"], 1, "{summary:#}");
    let starts: Vec<u64> = of_fault(&events, "flap")
        .iter()
        .filter(|event| event["event"] == "fault-start")
        .map(|event| event["at_ns"].as_u64().unwrap())
        .collect();
    assert!(starts.len() >= 2_500, "{}", starts.len());
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    assert!(
        summary["points"][0]["metrics"]["port.dropped_packets@link.wan.forward"]["max"].as_f64().unwrap()
            > 0.0
    );
}
