//! Labs and loads at the sizes they are made for, end to end.

use crate::support::{alone, need_lab, run, run_file, run_settled, scenario, stream_step};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

fn only_point(summary: &Value) -> &Value {
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 1, "{summary:#}");
    &points[0]
}

#[test]
fn a_thousand_flows_share_a_long_link_to_its_ceiling_and_none_is_left_out() {
    need_lab();
    let _turn = alone();
    // Windows of all flows together are 16 MB, which the link (2.5 MB) and its queue hold, so that shares are not a matter of
    // which flows lost a packet.
    let link = "rate = \"400Mbit/s\"\nrtt = \"50ms\"\nqueue = { bytes = \"16MB\" }";
    let step = stream_step("streams = 1000\nblock = \"16KiB\"\ntcp = { window = \"16kB\" }");
    let step = step.replace("2500ms", "6s").replace("warm_up = \"1s\"", "warm_up = \"2s\"");
    let (status, summary, ran) = run_settled(&scenario(link, &step), &[]);
    assert_eq!(status, 0, "{}", ran.stderr);
    let point = only_point(&summary);
    assert_eq!(point["valid_trials"], 1, "{summary:#}");
    let flows = &point["metrics"]["stream.flow_goodput_bits_per_second"];
    assert_eq!(flows["n"], 1000);
    let ceiling = 400e6 * 1448.0 / 1538.0;
    let least = flows["min"].as_f64().unwrap();
    assert!(least > 0.5 * ceiling / 1000.0, "a flow had only {least} bit/s: {flows}");
    let total = point["metrics"]["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap();
    assert!((total / ceiling - 1.0).abs() < 0.02, "{total} against {ceiling}");
}

#[test]
fn five_hundred_hosts_take_part_in_one_step_and_each_pair_gets_its_answers() {
    need_lab();
    let _turn = alone();
    let step =
        "[[step]]\nname = \"ask\"\nworkload = \"latency\"\nfrom = \"left-*\"\nto = \"right-*\"\ncount = 20\n";
    let text = scenario("rate = \"200Mbit/s\"\nrtt = \"20ms\"", step).replace("hosts = 1", "hosts = 250");
    // Five hundred programs on a few cores make the fabric late, and then the trial does not count; who takes part is the claim.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, text).unwrap();
    let (_, summary, ran) = run_file(&file, folder.path(), &[]);
    assert_eq!(only_point(&summary)["trials"], 1, "{}", ran.stderr);
    let record = fs::read_to_string(Path::new(summary["results"].as_str().unwrap()).join("trials.jsonl"));
    let record: Value = serde_json::from_str(record.unwrap().trim()).unwrap();
    let rows = record["rows"].as_array().unwrap();
    let answered = rows.iter().filter(|row| row["metric"] == "latency.round_trip_seconds");
    let counts: Vec<u64> = answered.map(count).collect();
    assert_eq!(counts, [20; 250], "{}", ran.stderr);
}

/// How many operations a row holds.
fn count(row: &Value) -> u64 {
    row["histogram"]["count"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum()
}

#[test]
fn a_hundred_thousand_faults_are_checked_driven_and_told() {
    need_lab();
    let _turn = alone();
    const FAULTS: usize = 100_000;
    let link = "rate = \"200Mbit/s\"\nrtt = \"4ms\"";
    let mut text = scenario(link, &stream_step("").replace("2500ms", "4s"));
    for number in 0..FAULTS {
        let at_us = 500_000 + 30 * number;
        writeln!(
            text,
            "[[fault]]\nname = \"f{number}\"\nstep = \"load\"\nat = \"{at_us}us\"\non = \"link.wan\"\n\
             do = {{ outage = {{ for = \"1us\" }} }}"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("faults.toml");
    fs::write(&file, text).unwrap();
    let checked = run(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status, 0, "{}", checked.stderr);
    // Whether the trial counts is another matter: what is claimed is that each fault came, and when.
    let (_, summary, ran) = run_file(&file, folder.path(), &[]);
    assert_eq!(only_point(&summary)["trials"], 1, "{}", ran.stderr);
    let results = Path::new(summary["results"].as_str().unwrap());
    let timeline = fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    let mut starts: Vec<u64> = timeline
        .lines()
        .filter(|line| line.contains("\"event\":\"fault-start\""))
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["trial_ns"].as_u64().unwrap())
        .collect();
    starts.sort_unstable();
    assert_eq!(starts.len(), FAULTS);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 30_000), "each at its own instant");
    // One microsecond in thirty the link is cut: of some 60,000 packets it drops those that arrive or leave just then.
    let samples = fs::read_to_string(results.join("samples.jsonl")).unwrap();
    let mut series = samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let dropped = series
        .find(|it| it["entity"] == "link.wan.forward" && it["name"] == "port.dropped_outage_packets")
        .expect("the link says what its outages dropped");
    let last = dropped["value"].as_array().unwrap().last().unwrap();
    assert!(last.as_f64().unwrap() > 0.0, "{dropped}");
}
