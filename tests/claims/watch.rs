//! `weir net watch` and `workload = "watch"`: series on disk as they come, and the same figures either way.

use crate::support::{
    beside, eventually, finish_within, free_port, light, need_lab, ran, run, run_file, scenario, settled,
    start, weir,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use weir_core::chunk::ChunkRecord;

struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn begin() -> Server {
        let port = free_port();
        let at = format!("127.0.0.1:{port}");
        let child = start(weir().args(["net", "serve", "--listen", &at]));
        eventually("the server listens", Duration::from_secs(5), || TcpStream::connect(&at).is_ok());
        Server { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Times of the samples of each set in a folder, in the order they were written.
fn samples(folder: &Path) -> BTreeMap<String, Vec<i64>> {
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let text = fs::read_to_string(folder.join("chunks.jsonl")).unwrap_or_default();
    for line in text.lines() {
        // The last line of a killed run may be cut short.
        let Ok(record) = serde_json::from_str::<ChunkRecord>(line) else { continue };
        let of_set = all.entry(record.chunk.fields.clone()).or_default();
        let set = weir_core::chunk::SETS.iter().find(|set| set.name == record.chunk.fields).unwrap();
        record.chunk.unpack(set.fields.len(), |at, _| of_set.push(at)).unwrap();
    }
    all
}

fn mean(summary: &Value, metric: &str) -> f64 {
    let value = &summary["points"][0]["metrics"][metric]["mean"];
    value.as_f64().unwrap_or_else(|| panic!("{metric} of {summary:#}"))
}

// Spec: net-protocol.md#watch-7
#[test]
fn a_watch_that_is_interrupted_gives_its_summary_and_its_series() {
    let _turn = beside();
    let server = Server::begin();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("watched");
    let mut watch = weir();
    watch.args([
        "net",
        "watch",
        &server.at,
        "--duration",
        "10min",
        "--pacing",
        "20Mbit/s",
        "--json",
        "--out",
    ]);
    let child = start(watch.arg(&out));
    eventually("two seconds are on disk", Duration::from_secs(20), || {
        samples(&out).values().flatten().any(|at| *at > 2_000_000_000)
    });
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let ran = ran(finish_within(child, Duration::from_secs(30)));
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(summary["results"], out.to_str().unwrap());
    assert!(mean(&summary, "stream.total_goodput_bits_per_second") > 1e6);
    assert!(summary["warnings"].to_string().contains("ended by the user"), "{summary:#}");
    let kept = samples(&out);
    assert_eq!(mean(&summary, "watch.samples"), kept["tcp-info/1"].len() as f64);
    for times in kept.values() {
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]) && times[0] >= 0);
    }
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("Two views of the path"));
    // Every sample is a row of the table.
    let ran = run(&["export", out.to_str().unwrap(), "--csv"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let rows = fs::read_to_string(out.join("chunks.csv")).unwrap().lines().count() - 1;
    assert_eq!(rows, kept.values().map(Vec::len).sum::<usize>());
    // Nobody there: nothing is left in the way.
    let nowhere = folder.path().join("nowhere");
    let gone = run(&["net", "watch", "127.0.0.1:9", "--duration", "1s", "--out", nowhere.to_str().unwrap()]);
    assert_eq!(gone.status, 2, "{}", gone.stdout);
    assert!(gone.stderr.contains("127.0.0.1:9") && !nowhere.exists(), "{}", gone.stderr);
    // A folder is never written over.
    let again = run(&["net", "watch", &server.at, "--duration", "1s", "--out", out.to_str().unwrap()]);
    assert_eq!(again.status, 2, "{}", again.stdout);
}

// Spec: results.md#chunk-1
#[test]
fn a_watch_that_is_killed_leaves_what_it_had() {
    let _turn = beside();
    let server = Server::begin();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("watched");
    let mut watch = weir();
    watch.args(["net", "watch", &server.at, "--duration", "10min", "--pacing", "20Mbit/s", "--out"]);
    let mut child = start(watch.arg(&out));
    eventually("seconds of both ends are on disk", Duration::from_secs(20), || {
        let kept = samples(&out);
        kept.len() == 2 && kept.values().all(|times| times.last().is_some_and(|at| *at > 3_000_000_000))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = run(&["report", out.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("Two views of the path"));
    let ran = run(&["export", out.to_str().unwrap(), "--csv"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(fs::read_to_string(out.join("chunks.csv")).unwrap().lines().count() > 300);
}

// Spec: net-protocol.md#watch-1
// Spec: agent-protocol.md#chunks-1
#[test]
fn a_scenario_has_the_series_of_its_watch_and_the_figures_of_one_ad_hoc() {
    let _turn = light();
    need_lab();
    let folder = tempfile::tempdir().unwrap();
    let step = r#"
[[step]]
name = "watched"
workload = "watch"
from = "left-0"
to = "right-0"
duration = "5s"
warm_up = "1s"
tcp = { pacing = "20Mbit/s" }
probe_every = "3s"
probe_duration = "500ms"
"#;
    let file = folder.path().join("scenario.toml");
    fs::write(&file, scenario("rate = \"100Mbit/s\"\nrtt = \"10ms\"", step)).unwrap();
    let (_, summary, ran) = settled(|| run_file(&file, folder.path(), &[]), |(_, summary, _)| summary);
    let results = summary["results"].as_str().unwrap_or_else(|| panic!("{}", ran.stderr));
    let kept = samples(Path::new(results));
    let valid = summary["points"][0]["valid_trials"].as_u64().unwrap();
    assert_eq!(mean(&summary, "watch.samples") * valid as f64, kept["tcp-info/1"].len() as f64);
    let probes = &summary["points"][0]["metrics"]["watch.probe_goodput_bits_per_second"];
    assert_eq!(probes["n"], 2 * valid);
    let server = Server::begin();
    let ran = run(&[
        "net",
        "watch",
        &server.at,
        "--duration",
        "5s",
        "--warm-up",
        "1s",
        "--pacing",
        "20Mbit/s",
        "--json",
    ]);
    let ad_hoc: Value = serde_json::from_str(&ran.stdout).unwrap();
    // Pacing holds both; a machine that is elsewhere takes a little from either.
    for summary in [&summary, &ad_hoc] {
        let rate = mean(summary, "stream.total_goodput_bits_per_second");
        assert!((15e6..21e6).contains(&rate), "{rate}");
    }
}
