//! Whole runs in the lab: each cause gives its verdict or limiting factor, and without the cause it flips.

use crate::support;
use crate::support::{
    alone, need_lab, run_file, run_scenario, run_settled, scenario, settled, stream_step, turn,
};
use serde_json::Value;
use std::path::Path;

const FAST: &str = "rate = \"200Mbit/s\"\nrtt = \"10ms\"\nqueue = { bytes = \"1MiB\" }";

fn factor(summary: &Value) -> String {
    summary["points"][0]["limiting_factor"]["name"].as_str().unwrap_or("none").to_owned()
}

fn goodput(summary: &Value) -> f64 {
    summary["points"][0]["metrics"]["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap_or(0.0)
}

fn bound(text: &str) -> String {
    format!(
        "[[criterion]]\ntext = \"the bound\"\nmetric = \"stream.total_goodput_bits_per_second\"\n{text}\n"
    )
}

/// The summary of a scenario of the repository, which passes in its short form with its results under `out`.
fn passes_in_its_short_form(name: &str, out: &Path) -> Value {
    need_lab();
    let _turn = turn();
    let file = support::repository().join("scenarios").join(name);
    let (status, summary, ran) = settled(|| run_file(&file, out, &["--short"]), |(_, summary, _)| summary);
    assert_eq!((status, summary["verdict"].as_str()), (0, Some("pass")), "{summary:#}\n{}", ran.stderr);
    summary
}

#[test]
fn the_quickstart_passes_in_its_short_form() {
    let out = tempfile::tempdir().unwrap();
    let summary = passes_in_its_short_form("quickstart.toml", out.path());
    assert!(summary["criteria"].as_array().unwrap().len() >= 6);
    let schema: Value = serde_json::from_str(include_str!("../../docs/specs/summary.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let problems: Vec<String> = validator.iter_errors(&summary).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}");
    let folder = support::repository().join(summary["results"].as_str().unwrap());
    for name in [
        "scenario.toml",
        "environment.json",
        "timeline.jsonl",
        "trials.jsonl",
        "samples.jsonl",
        "metrics.json",
        "plan.json",
        "summary.json",
        "report.html",
    ] {
        assert!(folder.join(name).exists(), "{name} is missing");
    }
    // What was injected is on the timeline.
    let timeline = std::fs::read_to_string(folder.join("timeline.jsonl")).unwrap();
    assert!(timeline.contains("fault-start") && timeline.contains("fault-end"), "{timeline}");
    // The resolved scenario is a scenario.
    let again = support::run(&["check", folder.join("scenario.toml").to_str().unwrap()]);
    assert_eq!(again.status, 0, "{}", again.stderr);
}

#[test]
fn a_bound_out_of_reach_fails_with_status_1() {
    need_lab();
    let _turn = turn();
    let text = scenario(FAST, &(stream_step("") + &bound("at_least = \"10Gbit/s\"")));
    let (status, summary, _) = run_settled(&text, &[]);
    assert_eq!((status, summary["verdict"].as_str()), (1, Some("fail")), "{summary:#}");
    let (status, summary, _) = run_settled(&text.replace("10Gbit/s\"\n", "100Mbit/s\"\n"), &[]);
    assert_eq!((status, summary["verdict"].as_str()), (0, Some("pass")), "{summary:#}");
}

#[test]
fn loss_is_named_where_there_is_loss_and_the_link_where_there_is_none() {
    need_lab();
    let _turn = turn();
    let lossy = format!("{FAST}\nforward = {{ loss = \"1%\" }}");
    let step = stream_step("tcp = { congestion = \"reno\" }");
    let with = run_settled(&scenario(&lossy, &step), &[]).1;
    let without = run_settled(&scenario(FAST, &step), &[]).1;
    assert_eq!(
        (factor(&with), factor(&without)),
        ("loss".to_owned(), "link-rate".to_owned()),
        "{with:#}\n{without:#}"
    );
    assert!(goodput(&with) < 0.8 * goodput(&without));
}

#[test]
fn a_small_window_is_named_and_bounds_the_rate_by_the_round_trip() {
    need_lab();
    let _turn = turn();
    let (_, with, _) = run_settled(&scenario(FAST, &stream_step("tcp = { window = \"64KiB\" }")), &[]);
    let (_, without, _) = run_settled(&scenario(FAST, &stream_step("")), &[]);
    assert_eq!(factor(&with), "receive-window", "{with:#}");
    assert_eq!(factor(&without), "link-rate", "{without:#}");
    let bound = 65_536.0 * 8.0 / 0.010;
    assert!(goodput(&with) <= bound * 1.02, "{} exceeds the window's {bound}", goodput(&with));
    assert!(goodput(&with) >= bound * 0.6, "{} is far below the window's {bound}", goodput(&with));
}

#[test]
fn a_fabric_that_is_the_bottleneck_makes_the_run_inconclusive() {
    need_lab();
    let _turn = alone();
    // So small a loss hits nothing here, but it asks for single segments, which cost the fabric most and the hosts least.
    let link = "rate = \"400Gbit/s\"\nrtt = \"100us\"\nforward = { loss = \"0.0000001%\" }";
    let rest = stream_step("streams = 4\ntcp = { congestion = \"cubic\" }")
        + &bound("of = { model = \"ceiling\" }\nat_least = 0.9");
    let text = scenario(link, &rest).replace("10Gbit/s", "400Gbit/s");
    let (status, summary, _) = run_scenario(&text, &[]);
    assert_eq!(factor(&summary), "emulator-limited", "{summary:#}");
    assert_eq!((status, summary["verdict"].as_str()), (3, Some("inconclusive")), "{summary:#}");
}

#[test]
fn an_outage_is_seen_at_its_length_and_gone_without_it() {
    need_lab();
    let _turn = turn();
    let rest = stream_step("")
        + "[[fault]]\nname = \"cut\"\nat = \"1500ms\"\nstep = \"load\"\non = \"link.wan\"\ndo = { outage = { for = \"250ms\" } }\n";
    let text = scenario(FAST, &rest);
    let stalled = |summary: &Value| {
        summary["points"][0]["metrics"]["stream.stalled_seconds"]["max"].as_f64().unwrap_or(-1.0)
    };
    let (_, with, _) = run_settled(&text, &[]);
    let (_, without, _) = run_settled(&text, &["--set", "fault.cut.enabled=false"]);
    assert!((0.25..1.0).contains(&stalled(&with)), "{}", stalled(&with));
    assert!((0.0..0.2).contains(&stalled(&without)), "{}", stalled(&without));
}

#[test]
fn the_same_seed_loses_the_same_and_the_latency_is_the_configured_one() {
    need_lab();
    let _turn = turn();
    let rest = "[[step]]\nname = \"ping\"\nworkload = \"latency\"\nfrom = \"left-0\"\nto = \"right-0\"\ncount = 100\n";
    let (status, summary, ran) = run_settled(&scenario(FAST, rest), &[]);
    assert_eq!(status, 0, "{}", ran.stderr);
    let median = summary["points"][0]["metrics"]["latency.round_trip_seconds"]["median"].as_f64().unwrap();
    // 10 ms, four access passes of 20 µs, and what two kernels and the fabric add.
    assert!((0.01008..0.0106).contains(&median), "{median}");
}
