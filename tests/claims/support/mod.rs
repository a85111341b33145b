//! What the whole-program tests share: the program, its labs one at a time, scenarios written on the spot.

pub mod chromium;
pub mod event_run;
pub mod far;
pub mod lab;
mod lanes;
/// The real server that the adapter's own tests start.
#[path = "../../../adapters/zookeeper/tests/claims/support/server.rs"]
pub mod zookeeper;

pub use lanes::{alone, beside, light, take_all, turn};

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{Hash, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub fn weir() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(repository()).env("WEIR_STATE_DIR", state_folder());
    command
}

/// Where the calling test's labs are: it sees, and takes down, no lab of whoever runs it or of another test.
pub fn state_folder() -> PathBuf {
    let mut name = std::hash::DefaultHasher::new();
    std::thread::current().name().hash(&mut name);
    // Short, since a socket's address holds 108 bytes.
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("state/{:08x}", name.finish() as u32))
}

/// How many seeds a claim about random moments tries: `few`, or what the environment asks for (`scripts/scenarios`).
pub fn seeds(few: u64) -> u64 {
    std::env::var("WEIR_TEST_SEEDS").map_or(few, |text| text.parse().expect("WEIR_TEST_SEEDS is a number"))
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs to its end, or fails the test after `limit`.
pub fn finish_within(mut child: Child, limit: Duration) -> Output {
    let started = Instant::now();
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |stream: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let out = read(out.take().map(|it| Box::new(it) as Box<dyn std::io::Read + Send>));
    let err = read(err.take().map(|it| Box::new(it) as Box<dyn std::io::Read + Send>));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            panic!("did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

pub fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

pub fn ran(output: Output) -> Ran {
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `weir` with these arguments.
pub fn run(arguments: &[&str]) -> Ran {
    ran(finish_within(start(weir().args(arguments)), Duration::from_secs(180)))
}

/// `weir run … --json` of a scenario's text; its exit status and its summary.
pub fn run_scenario(text: &str, more: &[&str]) -> (i32, Value, Ran) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, text).unwrap();
    run_file(&file, folder.path(), more)
}

/// As `run_scenario`, for claims about what the lab does when the machine lets it: a run that says of itself that it is
/// emulator-limited or generator-limited (a core that stood still for 40 ms costs a clock of 21 ms two ticks), or that a trial
/// does not count, proves nothing either way and is made again, aloud, `ROUNDS` times at most. Where the machine was still too busy
/// then, the test says so and fails; else what is returned last stands.
pub fn run_settled(text: &str, more: &[&str]) -> (i32, Value, Ran) {
    settled(|| run_scenario(text, more), |(_, summary, _)| summary)
}

/// Factors that take a trial out of the figures.
const LIMITED: [&str; 2] = ["emulator-limited", "generator-limited"];

/// As `run_settled`, for any way to get a summary; `summary` finds it in what `run` gives.
pub fn settled<T>(run: impl FnMut() -> T, summary: impl Fn(&T) -> &Value) -> T {
    settled_unless(&LIMITED, run, summary)
}

/// As `settled`, where only these factors mean that a run proves nothing.
pub fn settled_unless<T>(unfit: &[&str], run: impl FnMut() -> T, summary: impl Fn(&T) -> &Value) -> T {
    let by_the_machine = |result: &T| -> Vec<String> {
        let points = listed(summary(result), "points");
        let cells = points.iter().filter_map(|point| point["matrix"]["cells"].as_array()).flatten();
        points
            .iter()
            .chain(cells)
            .filter(|point| unfit.iter().any(|factor| point["limiting_factor"]["name"] == *factor))
            .map(|point| point["limiting_factor"]["evidence"].to_string())
            .collect()
    };
    let in_the_way = |result: &T| {
        let mut reasons = by_the_machine(result);
        // What bounds a point although a claim asks for just that leaves its trials out of the figures too.
        let asked_for = |point: &Value| {
            let factor = &point["limiting_factor"]["name"];
            LIMITED.iter().any(|name| factor == name) && !unfit.iter().any(|name| factor == name)
        };
        let mut points = listed(summary(result), "points").iter();
        if points.any(|point| point["valid_trials"] != point["trials"] && !asked_for(point)) {
            reasons.push(summary(result)["warnings"].to_string());
        }
        // A trial may count whose emulator disturbed a metric: what is asked of that metric is left open.
        let criteria = listed(summary(result), "criteria");
        let left_open = criteria.iter().filter_map(|criterion| criterion["why"].as_str());
        reasons.extend(left_open.filter(|why| why.contains("trials are valid and")).map(str::to_owned));
        (!reasons.is_empty()).then(|| reasons.join("; "))
    };
    match again_alone(run, in_the_way) {
        (result, Some(reasons)) if !by_the_machine(&result).is_empty() => {
            panic!("the machine was too busy for this claim, {ROUNDS} times: {reasons}")
        }
        // A claim may be about trials that do not count.
        (result, _) => result,
    }
}

fn listed<'a>(summary: &'a Value, what: &str) -> &'a [Value] {
    summary[what].as_array().map_or(&[], Vec::as_slice)
}

/// A machine of which the host takes some percent for minutes is in the way of every other run.
const ROUNDS: u32 = 8;

/// What `make` gives, made again alone while `in_the_way` says how the machine was in its way, `ROUNDS` times at most; and what it says of
/// the last.
pub fn again_alone<T>(
    mut make: impl FnMut() -> T,
    in_the_way: impl Fn(&T) -> Option<String>,
) -> (T, Option<String>) {
    for round in 0.. {
        let result = make();
        match in_the_way(&result) {
            Some(reasons) if round + 1 < ROUNDS => {
                eprintln!("made again alone, because the machine was in the way: {reasons}");
                take_all();
            }
            last => return (result, last),
        }
    }
    unreachable!("the last round returns")
}

pub fn run_file(file: &Path, out: &Path, more: &[&str]) -> (i32, Value, Ran) {
    let mut arguments = vec!["run", file.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()];
    arguments.extend(more);
    let ran = run(&arguments);
    let summary = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| {
        panic!("not one JSON document ({error})\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr)
    });
    (ran.status, summary, ran)
}

/// The whole-lab tests need root and TUN; without them the suite must not look complete.
pub fn need_lab() {
    assert!(Path::new("/dev/net/tun").exists(), "these tests need /dev/net/tun (modprobe tun)");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert!(effective.split_whitespace().nth(1) == Some("0"), "these tests need root: run `sudo make test`");
}

/// The summary document in `text`, valid by its schema.
#[track_caller]
pub fn summary_in(text: &str) -> serde_json::Value {
    let summary = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    let schema = serde_json::from_str(include_str!("../../../docs/specs/summary.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let problems: Vec<String> = validator.iter_errors(&summary).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}");
    summary
}

/// Two sites and one link; `link` and `steps` are TOML fragments.
pub fn scenario(link: &str, rest: &str) -> String {
    format!(
        r#"
[scenario]
name = "sibling"
about = "written by a test"
trials = 1
seed = 7

[lab]
[[lab.site]]
name = "left"
hosts = 1
access = {{ rate = "10Gbit/s", delay = "20us", mtu = 1500 }}
[[lab.site]]
name = "right"
hosts = 1
access = {{ rate = "10Gbit/s", delay = "20us", mtu = 1500 }}
[[lab.link]]
name = "wan"
between = ["left", "right"]
{link}

{rest}
"#
    )
}

/// One stream step of two seconds with further keys.
pub fn stream_step(keys: &str) -> String {
    load(&format!("duration = \"2500ms\"\nwarm_up = \"1s\"\n{keys}"))
}

/// A stream step with these keys.
pub fn load(keys: &str) -> String {
    format!(
        r#"
[[step]]
name = "load"
workload = "stream"
from = "left-0"
to = "right-0"
{keys}
"#
    )
}

/// Process ids whose command line contains `mark`.
pub fn processes_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(mark) {
            found.push(id);
        }
    }
    found
}

/// Agents and fabrics of this program that run now, with their parents.
pub fn children_of(parent: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some(after) = stat.rfind(')').map(|end| &stat[end + 1..]) else { continue };
        if after.split_ascii_whitespace().nth(1) == Some(&parent.to_string()) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((id, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Network namespaces of a process and of all that descend from it, apart from the test's own.
pub fn namespaces_of(process: u32) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![process];
    while let Some(id) = left.pop() {
        found.extend(fs::read_link(format!("/proc/{id}/ns/net")));
        left.extend(children_of(id).into_iter().map(|(child, _)| child));
    }
    found.retain(|namespace| *namespace != own_namespace());
    found
}

fn own_namespace() -> PathBuf {
    fs::read_link("/proc/self/ns/net").unwrap()
}

/// Fails where a process still lives in one of these.
#[track_caller]
/// A port of loopback that nobody has: another one at each call, and below those that the kernel gives to whoever connects.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(21_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 32_000, "no port is left");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub fn namespaces_go(namespaces: &BTreeSet<PathBuf>) {
    eventually("its namespaces go", Duration::from_secs(20), || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        !all.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok())
            .any(|namespace| namespaces.contains(&namespace))
    });
}

/// Waits until `condition` holds; fails after `limit` with `what`.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
