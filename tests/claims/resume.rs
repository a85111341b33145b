//! A run that is killed and resumed ends as one that was not: real labs, real kills.

use crate::support;
use crate::support::{beside, eventually, need_lab, run, run_scenario, scenario, start, weir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Two variants of a link, so that labs are rebuilt between trials, and two steps in each trial.
fn text() -> String {
    let link = "rate = \"100Mbit/s\"\nrtt = \"4ms\"";
    let rest = r#"
[[step]]
name = "ping"
workload = "latency"
from = "left-0"
to = "right-0"
count = 20
[[step]]
name = "load"
workload = "stream"
from = "left-0"
to = "right-0"
duration = "600ms"
[[case]]
name = "near"
[[case]]
name = "far"
set = { "link.wan.rtt" = "8ms" }
[[criterion]]
text = "something arrives"
metric = "stream.total_goodput_bits_per_second"
at_least = "1Mbit/s"
"#;
    scenario(link, rest).replace("trials = 1", "trials = 3")
}

/// Each trial of each point that `trials.jsonl` records, with how often.
fn recorded(folder: &Path) -> BTreeMap<(String, u64), usize> {
    let mut found = BTreeMap::new();
    let text = fs::read_to_string(folder.join("trials.jsonl")).unwrap_or_default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let record: Value = serde_json::from_str(line).expect("whole lines are records");
        let key = (record["point"].as_str().unwrap().to_owned(), record["trial"].as_u64().unwrap());
        *found.entry(key).or_insert(0) += 1;
    }
    found
}

const FILES: [&str; 3] = ["timeline.jsonl", "trials.jsonl", "samples.jsonl"];

/// What is recorded of trials both of whose steps are: the bytes that no resumption may change.
fn finished(folder: &Path) -> [(&'static str, Vec<u8>); 2] {
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    };
    let parsed = |line: &String| serde_json::from_str::<Value>(line).unwrap();
    let mut steps: BTreeMap<(String, u64), Vec<String>> = BTreeMap::new();
    let mut configuration_of: BTreeMap<String, String> = BTreeMap::new();
    for record in lines("trials.jsonl").iter().map(parsed) {
        let text = |key: &str| record[key].as_str().unwrap().to_owned();
        let key = (text("configuration"), record["trial"].as_u64().unwrap());
        configuration_of.insert(text("point"), text("configuration"));
        steps.entry(key).or_default().push(text("step"));
    }
    let whole = |record: &Value| {
        let configuration =
            configuration_of.get(record["point"].as_str().unwrap()).cloned().unwrap_or_default();
        steps.get(&(configuration, record["trial"].as_u64().unwrap())).is_some_and(|steps| steps.len() == 2)
    };
    ["trials.jsonl", "samples.jsonl"].map(|name| {
        let stay: String = lines(name).iter().filter(|line| whole(&parsed(line))).cloned().collect();
        (name, stay.into_bytes())
    })
}

fn begin(file: &Path, out: &Path) -> (Child, PathBuf) {
    let child = start(weir().args(["run", file.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()]));
    let mut folder = None;
    eventually("the run has a folder", Duration::from_secs(20), || {
        let of_name = fs::read_dir(out.join("sibling")).ok().and_then(|mut all| all.next());
        folder = of_name.and_then(Result::ok).map(|entry| entry.path());
        folder.as_ref().is_some_and(|folder| folder.join("plan.json").exists())
    });
    (child, folder.unwrap())
}

fn resume(folder: &Path) -> Child {
    start(weir().args(["run", "--resume", folder.to_str().unwrap(), "--json"]))
}

fn trials(summary: &Value) -> Vec<(String, u64)> {
    let points = summary["points"].as_array().expect("points");
    let trials = |it: &Value| (it["id"].as_str().unwrap().to_owned(), it["trials"].as_u64().unwrap());
    points.iter().map(trials).collect()
}

/// A machine that does other things too may take trials out of the figures; nothing else does.
#[track_caller]
fn only_the_machine_took_trials_out(summary: &Value) {
    let count = |key: &str| -> u64 {
        summary["points"].as_array().unwrap().iter().map(|it| it[key].as_u64().unwrap()).sum()
    };
    let limited = summary["warnings"].to_string().matches("does not count: emulator-limited").count();
    assert_eq!(count("trials") - count("valid_trials"), limited as u64, "{summary:#}");
}

/// The verdict is one of a whole run. A machine that does other things too may make it inconclusive, the emulator being late.
fn judged(status: i32, summary: &Value) {
    let expected = match summary["verdict"].as_str() {
        Some("pass") => 0,
        Some("inconclusive") => 3,
        other => panic!("{other:?}: {summary:#}"),
    };
    assert_eq!(status, expected, "{summary:#}");
    assert!(!summary["warnings"].to_string().contains("cut short"), "{summary:#}");
}

// Spec: results.md#results-9 and results.md#results-10 and results.md#results-17
#[test]
fn a_run_killed_at_any_moment_and_resumed_ends_as_one_that_was_not() {
    need_lab();
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    fs::write(&file, text()).unwrap();
    let (mut child, folder) = begin(&file, directory.path());

    // While it runs nobody else may go on with it.
    let beside = run(&["run", "--resume", folder.to_str().unwrap()]);
    assert_eq!(beside.status, 2);
    assert!(beside.stderr.contains("a run is writing here right now"), "{}", beside.stderr);

    let mut kept: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut pause = 0x2545_f491_u64;
    for round in 0..5 {
        // Somewhere in the next two seconds: before the lab is up, within a step, while records are written.
        pause = pause.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis(400 + (pause >> 33) % 1_800));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.join("summary.json").exists(), "a run that was killed has no summary");
        let report = run(&["report", folder.to_str().unwrap()]);
        assert_eq!(report.status, 0, "{}", report.stderr);
        kept.extend(finished(&folder));
        // Lines cut short, as a kill in the middle of a write leaves them.
        for name in FILES {
            let mut file = fs::OpenOptions::new().append(true).open(folder.join(name)).unwrap();
            file.write_all(b"{\"point\":\"load\",\"tri").unwrap();
        }
        child = resume(&folder);
        eventually("the run is resumed", Duration::from_secs(20), || {
            let text = fs::read_to_string(folder.join("timeline.jsonl")).unwrap();
            text.matches("\"event\":\"resumed\"").count() > round
        });
    }
    let ended = support::ran(support::finish_within(child, Duration::from_secs(120)));
    let summary: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    for (name, bytes) in &kept {
        assert!(
            fs::read(folder.join(name)).unwrap().starts_with(bytes),
            "{name}: what was finished has changed"
        );
    }
    let all = recorded(&folder);
    assert_eq!(all.len(), 2 * 2 * 3, "{all:?}");
    assert!(all.values().all(|times| *times == 1), "{all:?}");
    for name in FILES {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{name}");
    }

    let (_, whole, _) = run_scenario(&text(), &[]);
    assert_eq!(trials(&summary), trials(&whole));
    for summary in [&summary, &whole] {
        only_the_machine_took_trials_out(summary);
    }
    let criteria = |summary: &Value| -> Vec<Value> {
        summary["criteria"].as_array().unwrap().iter().map(|it| it["text"].clone()).collect()
    };
    assert_eq!(criteria(&summary), criteria(&whole));
    judged(ended.status, &summary);

    // Once more, and what a kill right after its plan leaves unwritten is written: nothing is run, the verdict is the same.
    for name in ["environment.json", "metrics.json"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let started = Instant::now();
    let again = support::ran(support::finish_within(resume(&folder), Duration::from_secs(60)));
    let again_summary: Value =
        serde_json::from_str(&again.stdout).unwrap_or_else(|_| panic!("{}", again.stderr));
    assert_eq!(again_summary["points"], summary["points"], "after {:?}", started.elapsed());
    assert_eq!(recorded(&folder), all);
    let warnings = again_summary["warnings"].to_string();
    assert!(
        warnings.contains("environment.json was missing") && !warnings.contains("changed since"),
        "{warnings}"
    );
    let document = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    };
    assert!(document("environment.json")["kernel"].is_string());
    assert!(document("metrics.json").as_array().unwrap().iter().all(|metric| metric["unit"].is_string()));

    // A scenario that lost its criterion is another run.
    let scenario = fs::read_to_string(folder.join("scenario.toml")).unwrap();
    fs::write(folder.join("scenario.toml"), scenario.split("[[criterion]]").next().unwrap()).unwrap();
    for arguments in [["run", "--resume"].as_slice(), &["report"]] {
        let refused = run(&[arguments, &[folder.to_str().unwrap()]].concat());
        assert_eq!(refused.status, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("scenario.toml: is not the one that was run"), "{}", refused.stderr);
    }
}

// Spec: results.md#results-9
#[test]
fn only_the_same_run_is_resumed_and_what_differs_is_said() {
    need_lab();
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    fs::write(&file, text()).unwrap();
    let (mut child, folder) = begin(&file, directory.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let folder = folder.to_str().unwrap();
    let file = file.to_str().unwrap();
    let other = directory.path().join("other.toml");
    fs::write(&other, text().replace("600ms", "700ms")).unwrap();
    let other = other.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["--resume", folder, "--set", "link.wan.rtt=5ms"], "--set makes another run"),
        (vec!["--resume", folder, "--seed", "8"], "its seed is 7, and here it is 8"),
        (vec!["--resume", folder, "--trials", "9"], "its number of trials is 3, and here it is 9"),
        (vec!["--resume", folder, "--short"], "--short belongs to a scenario file"),
        (vec![other, "--resume", folder], "the resolved scenario is another: line"),
        (vec![file, "--resume", directory.path().to_str().unwrap()], "holds no whole plan.json"),
        (vec!["--resume", "/nowhere"], "is not a folder"),
    ] {
        let mut all = vec!["run"];
        all.extend(&arguments);
        let ran = run(&all);
        assert_eq!(ran.status, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
    let text = fs::read_to_string(Path::new(folder).join("timeline.jsonl")).unwrap();
    assert!(!text.contains("resumed"), "a refusal changes nothing: {text}");
}

// Spec: results.md#results-10
#[test]
fn a_trial_that_the_user_cut_short_is_carried_out_again() {
    need_lab();
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    fs::write(&file, text().replace("600ms", "2500ms").replace("trials = 3", "trials = 1")).unwrap();
    let (child, folder) = begin(&file, directory.path());
    // In the middle of the second trial: its lab is up when the first is recorded.
    eventually("the first trial is there", Duration::from_secs(60), || recorded(&folder).len() == 2);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let cut = support::ran(support::finish_within(child, Duration::from_secs(60)));
    assert_eq!(cut.status, 3, "{}", cut.stderr);
    assert!(cut.stdout.contains("cut short by the user"), "{}", cut.stdout);
    let first = fs::read_to_string(folder.join("trials.jsonl")).unwrap();
    let first: String = first.split_inclusive('\n').take(2).collect();

    let resumed = support::ran(support::finish_within(resume(&folder), Duration::from_secs(120)));
    let summary: Value =
        serde_json::from_str(&resumed.stdout).unwrap_or_else(|_| panic!("{}", resumed.stderr));
    judged(resumed.status, &summary);
    assert!(trials(&summary).iter().all(|(_, trials)| *trials == 1), "{summary:#}");
    only_the_machine_took_trials_out(&summary);
    assert_eq!(recorded(&folder).len(), 4);
    let now = fs::read_to_string(folder.join("trials.jsonl")).unwrap();
    assert!(now.starts_with(&first), "the first trial has changed");
}

/// Events of the timeline so far.
fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("timeline.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What `running.jsonl` has of a series so far: times from the trial's start, and values.
fn running(folder: &Path, entity: &str, name: &str) -> Vec<(i64, f64)> {
    let text = fs::read_to_string(folder.join("running.jsonl")).unwrap_or_default();
    let mut all: Vec<(i64, f64)> = Vec::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["entity"] == entity && line["name"] == name && line["step"] == "load" {
            let last = all.last().map_or(i64::MIN, |(t_ns, _)| *t_ns);
            let t_ns = line["t_ns"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap());
            let value = line["value"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
            all.extend(t_ns.zip(value).filter(|(t_ns, _)| *t_ns > last));
        }
    }
    all
}

// Spec: results.md#results-19 and agent-protocol.md#chunks-2
#[test]
fn what_a_trial_did_before_it_was_killed_can_be_read_then_and_afterwards() {
    need_lab();
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    let rest = r#"
[[step]]
name = "one"
workload = "udp"
from = "left-0"
to = "right-0"
count = 1
[[step]]
name = "load"
workload = "stream"
from = "left-0"
to = "right-0"
duration = "5s"
[[fault]]
name = "cut"
step = "load"
at = "500ms"
on = "link.wan"
do = { outage = { for = "600ms" } }
"#;
    fs::write(&file, scenario("rate = \"100Mbit/s\"\nrtt = \"4ms\"", rest)).unwrap();
    let (mut child, folder) = begin(&file, directory.path());
    let at_ns = |event: &str| {
        let all = events(&folder);
        let found =
            all.iter().find(|it| it["event"] == event && it["step"].as_str().unwrap_or("load") == "load");
        found.map(|it| it["trial_ns"].as_i64().unwrap())
    };
    let on_the_link = || running(&folder, "link.wan.forward", "port.wire_bytes");
    let of_host = || running(&folder, "host.left-0.eth0", "interface.sent_bytes");
    eventually("samples of after the fault are there", Duration::from_secs(20), || {
        let all = [on_the_link(), of_host()];
        let until = |end: i64| all.iter().all(|it| it.last().is_some_and(|(t_ns, _)| *t_ns > end));
        at_ns("fault-end").is_some_and(until)
    });
    let folder_text = folder.to_str().unwrap();
    let not_ended = "trial 0 of load had not ended: running.jsonl has what was sampled of it until then";
    for killed in [false, true] {
        if killed {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let report = run(&["report", folder_text]);
        assert_eq!(report.status, 0, "{}", report.stderr);
        assert!(report.stderr.contains(not_ended), "{}", report.stderr);
        assert!(fs::read_to_string(folder.join("report.html")).unwrap().contains("link.wan.forward"));
    }
    assert!(at_ns("step-end").is_none() && at_ns("trial-end").is_none(), "killed in the middle of the step");
    let start = at_ns("step-start").unwrap();
    let outage = [start + 500_000_000, start + 1_100_000_000];
    assert_eq!([at_ns("fault-start"), at_ns("fault-end")], outage.map(Some));
    let warned = events(&folder).into_iter().find(|it| it["event"] == "warning").unwrap();
    assert!(warned["text"].as_str().unwrap().starts_with("one: ") && warned["step"] == "one", "{warned}");

    let sent = on_the_link();
    assert!(sent.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{sent:?}");
    assert!(sent[0].0 >= start && sent.last().unwrap().0 > outage[1], "{sent:?}");
    let within = |from: i64, to: i64| {
        let inside: Vec<&(i64, f64)> = sent.iter().filter(|(t_ns, _)| (from..=to).contains(t_ns)).collect();
        inside.last().unwrap().1 - inside[0].1
    };
    // The page that the fabric keeps of its counters is at most a millisecond old.
    assert_eq!(
        within(outage[0] + 20_000_000, outage[1] - 20_000_000),
        0.0,
        "nothing passes a link that is cut"
    );
    assert!(within(start, outage[0]) > 0.0);
    // A packet that is being sent counts as sent.
    let [first, last] = [sent[0], sent[sent.len() - 1]];
    let most = 100e6 / 8.0 * ((last.0 - first.0 - 600_000_000) as f64 / 1e9 + 0.001) + 1_600.0;
    assert!(last.1 - first.1 <= most, "{} of {most} bytes", last.1 - first.1);
    let of_host = of_host();
    assert!(of_host.windows(2).all(|pair| pair[0].1 <= pair[1].1) && of_host[0].0 >= start, "{of_host:?}");

    let tables = directory.path().join("tables");
    let export = run(&["export", folder_text, "--csv", "--out", tables.to_str().unwrap()]);
    assert_eq!(export.status, 0, "{}", export.stderr);
    let rows = fs::read_to_string(tables.join("samples.csv")).unwrap();
    let on_the_link = rows
        .lines()
        .filter(|row| row.starts_with("load,") && row.contains("link.wan.forward,port.wire_bytes,"));
    assert_eq!(on_the_link.count(), sent.len());
}
