//! `weir io replay` and `weir io trace`: what other programs recorded, on files of this machine and on real servers.

use super::io::document;
use super::services::{CLUSTER, LAB, Scenario, Up, WEB_AND_OBJECTS, figure};
use super::support::{beside, light, need_lab, run, settled, turn};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

// Spec: replay.md#trace-3, replay.md#trace-7, replay.md#replay-7 and replay.md#replay-8
#[test]
fn what_fio_and_strace_recorded_is_replayed_at_its_own_times() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (file, log, trace) = (path("f"), path("fio.log"), path("fio.trace"));
    let recorded = Command::new("fio")
        .args(["--name=a", "--size=2m", "--rw=randread", "--bs=4k", "--number_ios=60", "--thinktime=5000"])
        .args([format!("--filename={}", text(&file)), format!("--write_iolog={}", text(&log))])
        .arg("--output=/dev/null")
        .status()
        .unwrap();
    assert!(recorded.success());
    let imported =
        run(&["io", "trace", "import", text(&log), "--format", "fio-iolog", "--out", text(&trace)]);
    assert_eq!(imported.status, 0, "{}", imported.stderr);
    let shown = document(&run(&["io", "trace", "show", text(&trace), "--json"]));
    assert_eq!((shown["operations"].as_u64(), shown["bytes"].as_u64()), (Some(60), Some(60 * 4096)));
    let own = shown["seconds"].as_f64().unwrap();
    assert!(own > 0.29, "60 reads, 5 ms and more apart: {own}");
    let out = path("results");
    let replay = || {
        let done = run(&[
            "io",
            "replay",
            text(folder.path()),
            "--trace",
            text(&trace),
            "--operations",
            "--json",
            "--out",
            text(&out),
        ]);
        document(&done)
    };
    let summary = settled(replay, |summary| summary);
    assert_eq!(figure(&summary, "replay.failed_jobs", "mean"), 0.0);
    assert_eq!(figure(&summary, "replay.reads_count_per_file", "mean"), 60.0);
    // Each read has its own time: none is later because the one before was.
    let stretch = figure(&summary, "replay.stretch_ratio", "mean");
    assert!((0.98..1.1).contains(&stretch), "{stretch}");
    // A row for each operation, the open and the close among them.
    let results = Path::new(summary["results"].as_str().unwrap());
    let kept = fs::read_to_string(results.join("chunks.jsonl")).unwrap();
    let counts =
        kept.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 62);

    let seen = path("dd.trace");
    let input = format!("if={}", text(&file));
    let record = ["io", "trace", "record", "--below", text(folder.path()), "--out", text(&seen), "--"];
    let done = run(&[&record[..], &["dd", &input, "of=/dev/null", "bs=100k", "skip=2", "count=3"]].concat());
    assert_eq!(done.status, 0, "{}", done.stderr);
    let lines = fs::read_to_string(&seen).unwrap();
    let offsets: Vec<&str> = lines.lines().skip(2).map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(offsets, ["204800", "307200", "409600"]);
    let failed =
        run(&[&record[..], &["sh", "-c", &format!("cat {} > /dev/null; exit 7", text(&file))]].concat());
    assert_eq!(failed.status, 7, "{}", failed.stderr);
}

// Spec: replay.md#trace-4 and replay.md#trace-5
#[test]
fn a_trace_that_is_damaged_or_names_what_is_not_there_is_refused_by_its_place_and_made_ones_are_taken_by_name()
 {
    let _lane = light();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (source, trace) = (path("list"), path("t"));
    fs::write(&source, "0 10\n20 x\n").unwrap();
    let import = ["io", "trace", "import", text(&source), "--format", "offset-length", "--out", text(&trace)];
    let refused = run(&import);
    assert_eq!(refused.status, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("line 2: length x is no whole number"), "{}", refused.stderr);
    assert!(!trace.exists());
    fs::write(&trace, "# weir-trace/1 file offset length\ngone 0 10\n").unwrap();
    let data = path("data");
    fs::create_dir(&data).unwrap();
    let gone = run(&["io", "replay", text(&data), "--trace", text(&trace), "--json"]);
    assert!(gone.status != 0 && gone.stderr.contains("gone"), "{} {}", gone.status, gone.stderr);
    fs::write(&trace, "# weir-trace/1 offset length\n0 10\n-1 10\n").unwrap();
    let damaged = run(&["io", "replay", text(&data), "--trace", text(&trace), "--file-size", "1MB"]);
    assert_eq!(damaged.status, 2, "{}", damaged.stdout);
    assert!(damaged.stderr.contains("line 3: offset -1 is negative"), "{}", damaged.stderr);

    let made = run(&[
        "io",
        "trace",
        "make",
        "random-3",
        "--file-size",
        "1MB",
        "--records",
        "50",
        "--out",
        text(&path("traces/of-here")),
    ]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let of_file = text(&path("traces/of-here/random-3.trace")).to_owned();
    let replay = |trace: &str| {
        let keys = ["--file-size", "1MB", "--files-per-job", "1", "--reads", "50", "--json"];
        document(&run(&[&["io", "replay", text(&data), "--trace", trace][..], &keys].concat()))
    };
    let (by_name, by_file) = (replay("random-3"), replay(&of_file));
    let bytes = |summary: &Value| figure(summary, "replay.wanted_bytes", "mean");
    assert_eq!(bytes(&by_name), bytes(&by_file), "a name is the trace of seed 0");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "what was made is gone");
}

// Spec: replay.md#replay-1 and replay.md#replay-2
#[test]
fn the_same_trace_is_replayed_on_xrootd_webdav_http_and_s3() {
    need_lab();
    let _turn = beside();
    let up = Up::new("t-replay", &format!("{LAB}{CLUSTER}{WEB_AND_OBJECTS}"));
    let options = "endpoint=http://store-1:7070&access_key=weir&secret_key=weir-in-a-lab";
    let mut bytes = Vec::new();
    for (target, vector) in [
        ("root://store-0:1094//store", "1"),
        ("root://store-0:1094//store", "64"),
        ("dav://store-0:8080/store", "1"),
        ("http://store-0:8080/store/f-{n}", "1"),
        (&format!("s3://weir/store?{options}"), "64"),
    ] {
        let count: &[&str] = if target.contains("{n}") { &["--file-count", "2"] } else { &[] };
        let replay = [
            "replay",
            target,
            "--trace",
            "random-1",
            "--file-size",
            "4MB",
            "--jobs",
            "6",
            "--files-per-job",
            "2",
            "--reads",
            "128",
            "--vector",
            vector,
            "--verify",
            "--json",
        ];
        let summary = up.io_done(&[&replay[..], count].concat());
        assert_eq!(figure(&summary, "replay.failed_jobs", "mean"), 0.0, "{target}: {summary:#}");
        assert_eq!(figure(&summary, "replay.fetched_ratio", "mean"), 1.0, "{target}");
        let requests = summary["points"][0]["metrics"]["io.read_seconds"]["n"].as_u64().unwrap();
        let vectors = vector == "64" && target.starts_with("root");
        assert_eq!(requests, if vectors { 6 * 2 } else { 6 * 128 }, "{target}");
        bytes.push(figure(&summary, "replay.wanted_bytes", "mean"));
    }
    assert!(bytes.iter().all(|it| *it == bytes[0]), "{bytes:?}");
}

const REPLAY: &str = r#"
[scenario]
name = "replay-a-service"
trials = 1
[[step]]
name = "analysis"
workload = "replay"
hosts = "user-0"
target = "service:files/store/f-{n}"
file_count = 2
jobs = 12
files_per_job = 2
trace = "random-1"
reads = 120
think = "20ms"
verify = true
[[service]]
name = "files"
system = "xrootd"
place = { server = "store-1" }
content = { path = "store/f-{n}", files = 2, size = "16MiB" }
[[fault]]
name = "server-dies"
step = "analysis"
at = "1s"
on = "service.files.server.store-1"
do = { kill = { for = "1500ms" } }
[[case]]
name = "patient"
set = { "step.analysis.timeout" = "20s" }
[[case]]
name = "impatient"
set = { "step.analysis.timeout" = "500ms" }
[[criterion]]
text = "who waits loses nothing"
metric = "replay.failed_jobs"
case = "patient"
at_most = 0
[[criterion]]
text = "who does not loses every job, and the run goes on"
metric = "replay.failed_jobs"
case = "impatient"
at_least = 12
"#;

// Spec: replay.md#replay-5
#[test]
fn a_server_that_dies_under_a_replay_fails_the_jobs_that_do_not_wait_for_it_and_no_other() {
    need_lab();
    let _turn = beside();
    let scenario = Scenario::new(&format!("{REPLAY}{LAB}"));
    let summary = scenario.passed();
    let of = |case: &str, metric: &str| {
        let points = summary["points"].as_array().unwrap();
        let point = points.iter().find(|point| point["case"] == case).unwrap();
        point["metrics"][metric]["mean"].as_f64().unwrap()
    };
    let named = ["late", "gone", "reading", "opening"]
        .map(|why| of("impatient", &format!("replay.jobs_failed_{why}")));
    assert_eq!(named.iter().sum::<f64>(), 12.0);
    assert!(named[0] + named[1] >= 10.0, "late or gone: {named:?}");
    let seconds = of("patient", "replay.job_seconds");
    assert!(seconds > 3.5, "2.4 s of thinking, and 1.5 s without a server: {seconds}");
    let results = Path::new(summary["results"].as_str().unwrap());
    let failures = fs::read_to_string(results.join("failures.jsonl")).unwrap();
    assert!(failures.lines().count() >= 12, "{failures}");
}

// A manager evens out: who had more before has fewer after, so that those after are many more.
const DOWNTIME: &str = r#"
[scenario]
name = "downtime"
trials = 1
[[step]]
name = "before"
workload = "replay"
hosts = "user-0"
target = "service:files/store/f-{n}"
file_count = 4
jobs = 4
files_per_job = 1
trace = "random-1"
reads = 100
think = "20ms"
[[step]]
name = "during"
workload = "replay"
hosts = "user-0"
target = "root://store-0//store/f-{n}"
file_count = 4
jobs = 16
files_per_job = 1
trace = "random-1"
reads = 100
think = "20ms"
timeout = "3s"
[[service]]
name = "files"
system = "xrootd"
place = { manager = "store-0", server = "store-[1-2]" }
content = { path = "store/f-{n}", files = 4, size = "4MiB" }
replicas = { data = 2 }
disk = { size = "100MB", rate = "100MB/s" }
[[fault]]
name = "emptied"
step = "before"
at = "500ms"
on = "service.files.server.store-1"
do = { drain = { for = "1min" } }
[[fault]]
name = "gone"
step = "during"
at = "500ms"
on = "service.files.server.store-1"
do = { kill = {} }
[[case]]
name = "drained"
[[case]]
name = "not-drained"
set = { "fault.emptied.enabled" = false }
[[criterion]]
text = "who reads there when it is emptied reads on"
metric = "replay.failed_jobs"
at_most = 0
[[criterion]]
text = "who comes after is sent elsewhere"
metric = "disk.read_bytes_per_second.mean"
on = "service.files.disk.store-1"
case = "drained"
where = { step = "during" }
at_most = "1kB/s"
[[criterion]]
text = "and else there are some"
metric = "disk.read_bytes_per_second.mean"
on = "service.files.disk.store-1"
case = "not-drained"
where = { step = "during" }
at_least = "100kB/s"
"#;

// Spec: services.md#service-3 and services.md#service-21
#[test]
fn a_server_that_was_emptied_under_load_goes_without_a_failed_job() {
    need_lab();
    let _turn = beside();
    let scenario = Scenario::new(&format!("{DOWNTIME}{LAB}"));
    let results = passed(&scenario);
    let timeline = fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    let told = timeline.lines().filter(|line| line.contains("fault emptied on store-1: nobody new for 60s"));
    assert_eq!(told.filter(|line| !line.contains(", but")).count(), 1, "{timeline}");
    for (on, says) in [
        ("host.store-1", "cannot have `drain`, servers of a service can"),
        ("service.files.manager", "no manager of xrootd can have `drain`"),
    ] {
        let wrong = format!("{DOWNTIME}{LAB}").replacen("service.files.server.store-1", on, 1);
        let refused = Scenario::new(&wrong).run(&[]);
        assert!(refused.status == 2 && refused.stderr.contains(says), "{}", refused.stderr);
    }
}

/// Where the results of a scenario are that passes.
pub fn passed(scenario: &Scenario) -> PathBuf {
    PathBuf::from(scenario.passed()["results"].as_str().unwrap())
}

/// A figure of one trial.
pub fn of_trial(trials: &str, point: &str, number: u64, metric: &str, entity: &str) -> f64 {
    let mut all = trials.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let trial = all.find(|it| it["point"] == point && it["trial"] == number).unwrap();
    let rows = trial["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == metric && row["entity"] == entity);
    row.unwrap_or_else(|| panic!("{metric} of {entity}: {trials}"))["value"].as_f64().unwrap()
}

const STAGED: &str = r#"
[scenario]
name = "staged"
about = "Files come from another service before they are opened"
trials = 2
[[service]]
name = "archive"
system = "xrootd"
place = { server = "store-2" }
content = { path = "store/f-{n}", files = 4, size = "1MiB" }
[[service]]
name = "pool"
system = "xrootd"
place = { server = "store-0" }
disk = { size = "100MB", rate = "100MB/s" }
origin = "archive"
[[step]]
name = "analysis"
workload = "replay"
hosts = "user-0"
target = "service:pool/store/f-{n}"
file_count = 4
jobs = 2
files_per_job = 2
trace = "random-1"
reads = 20
verify = true
timeout = "30s"
[[case]]
name = "copied"
[[case]]
name = "kept"
set = { "step.analysis.caches" = "kept" }
[[fault]]
name = "gone"
enabled = false
step = "analysis"
at = "0s"
on = "service.archive.server"
do = { kill = {} }
[[criterion]]
text = "each file comes as it is"
metric = "io.mismatched_operations"
at_most = 0
[[criterion]]
text = "and every job gets its own"
metric = "replay.failed_jobs"
at_most = 0
"#;

// Spec: services.md#service-17, services.md#service-22 and services.md#service-23
#[test]
fn files_are_copied_from_the_origin_before_each_trial_unless_caches_are_kept() {
    need_lab();
    let _turn = beside();
    let scenario = Scenario::new(&format!("{STAGED}{LAB}"));
    let results = passed(&scenario);
    let trials = fs::read_to_string(results.join("trials.jsonl")).unwrap();
    let written = |point: &str, number: u64| {
        of_trial(&trials, point, number, "disk.written_bytes_per_second", "service.pool.disk.store-0")
    };
    for number in [0, 1] {
        assert!(written("analysis/copied", number) > 100e3, "{trials}");
        assert!(written("analysis/kept", number) < 10e3, "{trials}");
    }
    let gone = scenario.run(&["--set", "fault.gone.enabled=true"]);
    let summary: Value = serde_json::from_str(&gone.stdout).unwrap();
    let results = Path::new(summary["results"].as_str().unwrap());
    let failures = fs::read_to_string(results.join("failures.jsonl")).unwrap();
    assert!(gone.status == 1 && failures.contains("fetch failed"), "{failures}{summary:#}");
    for (from, to, says) in [
        ("origin = \"archive\"", "origin = \"archve\"", "did you mean `archive`?"),
        ("origin = \"archive\"", "origin = \"pool\"", "no service above it is called \"pool\""),
        ("system = \"xrootd\"", "system = \"webdav\"", "xrootd gets files from root://, not from dav://"),
    ] {
        let refused = Scenario::new(&format!("{STAGED}{LAB}").replacen(from, to, 1)).run(&[]);
        assert!(refused.status == 2 && refused.stderr.contains(says), "{}", refused.stderr);
    }
}

const CACHED: &str = r#"
[scenario]
name = "cached"
about = "A proxy keeps what was read, and forgets it before the next trial"
trials = 2
[[service]]
name = "files"
system = "xrootd"
place = { server = "store-0", proxy = "store-2" }
disk = { size = "100MB", rate = "10MB/s" }
content = { path = "store/f-{n}", files = 1, size = "20MB" }
set.xrootd.cache = "1GB"
[[step]]
name = "read"
workload = "io-seq"
hosts = "user-0"
target = "service:files/store/f-0"
verify = true
[[case]]
name = "cold"
[[case]]
name = "kept"
set = { "step.read.caches" = "kept" }
[[criterion]]
text = "what comes is what was put there"
metric = "io.mismatched_operations"
at_most = 0
"#;

// Spec: services.md#service-17 and services.md#service-23
#[test]
fn a_proxy_forgets_what_it_kept_before_each_trial_unless_caches_are_kept() {
    need_lab();
    let _turn = beside();
    // Slow and far, so that a busy machine is not what is measured.
    let far = LAB.replace("500Mbit/s", "100Mbit/s").replace("4ms", "100ms");
    let scenario = Scenario::new(&format!("{CACHED}{far}"));
    let results = passed(&scenario);
    let trials = fs::read_to_string(results.join("trials.jsonl")).unwrap();
    let read = |point: &str, number: u64| {
        of_trial(&trials, point, number, "disk.read_bytes_per_second", "service.files.disk.store-0")
    };
    for number in [0, 1] {
        assert!(read("read/cold", number) > 1e6, "{trials}");
        assert!(read("read/kept", number) < 100e3, "{trials}");
    }
}

const LISTED: &str = r#"
[scenario]
name = "listed"
about = "Servers say what is open on them"
trials = 1
[[service]]
name = "files"
system = "xrootd"
place = { server = "store-0" }
content = { path = "store/f-{n}", files = 8, size = "1MiB" }
set.xrootd.transfers = true
[[step]]
name = "analysis"
workload = "replay"
hosts = "user-0"
target = "service:files/store/f-{n}"
file_count = 8
jobs = 4
files_per_job = 2
trace = "random-1"
reads = 200
think = "20ms"
[[criterion]]
text = "eight files are open nearly all the time"
metric = "service.transfers.mean"
on = "service.files.xrootd.store-0"
between = [4.5, 8]
"#;

// Spec: services.md#service-24
#[test]
fn what_is_in_flight_on_a_server_is_listed_with_what_has_moved() {
    need_lab();
    let _turn = beside();
    let scenario = Scenario::new(&format!("{LISTED}{LAB}"));
    let results = passed(&scenario);
    let listed = fs::read_to_string(results.join("services/files/transfers.jsonl")).unwrap();
    let mut read = std::collections::BTreeMap::new();
    for line in listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert!(line["client"].as_str().unwrap().contains('@'), "{line}");
        let (opened, closed) = (&line["opened_unix_ns"], &line["closed_unix_ns"]);
        assert!(closed.is_null() || closed.as_u64() >= opened.as_u64(), "{line}");
        *read.entry(line["path"].as_str().unwrap().to_owned()).or_insert(0) +=
            line["read_bytes"].as_u64().unwrap();
    }
    // Each job reads a hundred times of each of its two files.
    assert_eq!(read.len(), 8, "{listed}");
    assert!(read.values().all(|bytes| *bytes > 100 * 100), "{read:?}");
    let fewer = scenario.run(&["--set", "step.analysis.jobs=1"]);
    assert_eq!(fewer.status, 1, "{}", fewer.stdout);
}

const UNFAIR: &str = r#"
[scenario]
name = "one-slow"
about = "Half of the jobs read from a server whose disk is slow"
trials = 2
[[service]]
name = "files"
system = "xrootd"
place = { manager = "store-0", server = ["store-1", "store-2"] }
disk = { size = "100MB", rate = "100MB/s", position = "1ms" }
content = { path = "store/f-{n}", files = 10, size = "4MiB" }
[[step]]
name = "analysis"
workload = "replay"
hosts = "user-0"
target = "service:files/store/f-{n}"
file_count = 10
jobs = 10
files_per_job = 1
trace = "random-1"
reads = 40
[[fault]]
name = "slow"
on = "service.files.disk.store-1"
do = { slow = { factor = 25, for = "60s" } }
[[case]]
name = "one-slow"
[[case]]
name = "alike"
set = { "fault.slow.enabled" = false }
[[criterion]]
text = "who reads from the slow server has a small part of what the others have"
case = "one-slow"
metric = "replay.fairness_jain"
at_most = 0.75
[[criterion]]
text = "and where servers are alike all have the same"
case = "alike"
metric = "replay.fairness_jain"
at_least = 0.9
[[criterion]]
text = "no job fails for it"
metric = "replay.failed_jobs"
at_most = 0
"#;

// Spec: replay.md#replay-9
#[test]
fn how_evenly_jobs_fare_is_a_figure_that_one_slow_server_lowers() {
    need_lab();
    let _turn = beside();
    let lab = LAB.replace("mtu = 1500", "mtu = 9000").replace("4ms", "20ms");
    let scenario = Scenario::new(&format!("{UNFAIR}{lab}"));
    passed(&scenario);
}
