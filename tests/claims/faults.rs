//! Every process of a run dies at bad moments: the trial says why, the run goes on, nothing is left behind.

use crate::support;
use crate::support::{
    alone, beside, children_of, eventually, finish_within, namespaces_go, namespaces_of, need_lab,
    processes_with, ran, scenario, start, weir,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// Three trials of a second and a half each.
fn three_trials() -> String {
    let link = "rate = \"200Mbit/s\"\nrtt = \"4ms\"";
    let step = support::stream_step("").replace("2500ms", "1500ms").replace("\"1s\"", "\"500ms\"");
    scenario(link, &step).replace("trials = 1", "trials = 3")
}

/// Trials of half a second.
fn short_trials(count: u64) -> String {
    let link = "rate = \"200Mbit/s\"\nrtt = \"4ms\"";
    let step = support::stream_step("").replace("2500ms", "500ms").replace("\"1s\"", "\"100ms\"");
    scenario(link, &step).replace("trials = 1", &format!("trials = {count}"))
}

struct Run {
    child: Child,
    folder: tempfile::TempDir,
}

impl Run {
    fn begin(text: &str) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scenario.toml");
        fs::write(&file, text).unwrap();
        let mut command = weir();
        command.args(["run", file.to_str().unwrap(), "--json", "--out", folder.path().to_str().unwrap()]);
        Run { child: start(&mut command), folder }
    }

    /// Process ids of the agents or of the fabric, once they are there.
    fn wait_for(&self, what: &str, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        eventually(what, Duration::from_secs(10), || {
            found = children_of(self.child.id())
                .into_iter()
                .filter(|(_, line)| line.contains(what))
                .map(|(id, _)| id)
                .collect();
            found.len() >= count
        });
        found
    }

    fn results(&self) -> std::path::PathBuf {
        let runs = self.folder.path().join("sibling");
        fs::read_dir(runs).unwrap().next().unwrap().unwrap().path()
    }

    fn finish(self) -> (i32, Value, tempfile::TempDir) {
        let ran = ran(finish_within(self.child, Duration::from_secs(60)));
        let summary = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("{error}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr));
        (ran.status, summary, self.folder)
    }
}

/// How a run of three trials ended that `broken` began and broke once: a machine that others were on may have cost it a second trial,
/// and then it is made again.
fn one_trial_lost(broken: impl Fn() -> Run) -> (i32, Value) {
    let made = || {
        let (status, summary, _folder) = broken().finish();
        (status, summary)
    };
    let second = |(_, summary): &(i32, Value)| {
        let lost = summary["points"][0]["valid_trials"].as_u64().is_some_and(|valid| valid < 2);
        lost.then(|| summary["warnings"].to_string())
    };
    support::again_alone(made, second).0
}

fn kill(process: u32, signal: &str) {
    assert!(
        std::process::Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success()
    );
}

/// Numbers that differ from run to run of the suite would not be repeatable; these do not.
fn draws(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    })
}

#[test]
fn a_killed_coordinator_leaves_no_process_no_namespace_and_a_folder_that_can_be_read() {
    need_lab();
    let _turn = beside();
    let mut seen = BTreeSet::new();
    for moment in draws(3).take(12).map(|draw| Duration::from_millis(draw % 1_800)) {
        let mut run = Run::begin(&three_trials());
        run.wait_for("fabric-process", 1);
        std::thread::sleep(moment);
        let children: Vec<u32> = children_of(run.child.id()).into_iter().map(|(id, _)| id).collect();
        seen.extend(namespaces_of(run.child.id()));
        run.child.kill().unwrap();
        run.child.wait().unwrap();
        eventually("its children end", Duration::from_secs(5), || {
            children.iter().all(|id| !std::path::Path::new(&format!("/proc/{id}/exe")).exists())
        });
        namespaces_go(&seen);
        let again = support::run(&["report", run.results().to_str().unwrap()]);
        assert_eq!(again.status, 0, "after {moment:?}: {}", again.stderr);
    }
    assert!(!seen.is_empty());
}

#[test]
fn a_killed_agent_fails_its_trial_with_the_host_and_the_next_trial_counts() {
    need_lab();
    let _turn = alone();
    let (status, summary) = one_trial_lost(|| {
        let run = Run::begin(&three_trials());
        let agents = run.wait_for("weir agent", 2);
        std::thread::sleep(Duration::from_millis(700));
        kill(agents[0], "-9");
        run
    });
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!(summary["points"][0]["trials"], 3);
    assert_eq!(summary["points"][0]["valid_trials"], 2, "{summary:#}");
    let warnings = summary["warnings"].to_string();
    assert!(warnings.contains("left-0") || warnings.contains("right-0"), "{warnings}");
}

#[test]
fn a_hung_agent_fails_its_trial_within_five_seconds_and_the_run_goes_on() {
    need_lab();
    let _turn = alone();
    let (status, summary) = one_trial_lost(|| {
        let run = Run::begin(&three_trials());
        let agents = run.wait_for("weir agent", 2);
        std::thread::sleep(Duration::from_millis(700));
        kill(agents[1], "-STOP");
        eventually("the hung agent is killed", Duration::from_secs(5), || {
            !std::path::Path::new(&format!("/proc/{}/exe", agents[1])).exists()
        });
        run
    });
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!(summary["points"][0]["valid_trials"], 2, "{summary:#}");
    assert!(summary["warnings"].to_string().contains("silent"), "{}", summary["warnings"]);
}

#[test]
fn a_killed_fabric_fails_its_trial_and_the_lab_is_built_anew() {
    need_lab();
    let _turn = alone();
    let (status, summary) = one_trial_lost(|| {
        let run = Run::begin(&three_trials());
        let fabric = run.wait_for("fabric-process", 1);
        run.wait_for("weir agent", 2);
        std::thread::sleep(Duration::from_millis(700));
        kill(fabric[0], "-9");
        run
    });
    assert_eq!(status, 0, "{summary:#}");
    assert_eq!(summary["points"][0]["valid_trials"], 2, "{summary:#}");
    assert!(summary["warnings"].to_string().contains("fabric"), "{}", summary["warnings"]);
}

#[test]
fn whichever_process_dies_at_whatever_moment_the_run_ends_with_an_account_of_every_trial() {
    need_lab();
    let _turn = beside();
    const TRIALS: u64 = 10;
    const KILLS: u64 = 5;
    let mut seen = BTreeSet::new();
    for seed in 0..support::seeds(2) {
        let mut draws = draws(seed);
        let mut run = Run::begin(&short_trials(TRIALS));
        run.wait_for("fabric-process", 1);
        let mut killed = Vec::new();
        while killed.len() < KILLS as usize && run.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(draws.next().unwrap() % 1_500));
            seen.extend(namespaces_of(run.child.id()));
            let children = children_of(run.child.id());
            let Some(chosen) = children.get(draws.next().unwrap() as usize % children.len().max(1)) else {
                continue;
            };
            killed.push(chosen.1.clone());
            // It may have ended by itself since it was looked up.
            let _ = std::process::Command::new("kill").args(["-9", &chosen.0.to_string()]).output();
        }
        let (status, summary, folder) = run.finish();
        let at = format!("seed {seed}, killed {killed:?}: {summary:#}");
        assert!(status == 0 || status == 3, "status {status}, {at}");
        let point = &summary["points"][0];
        assert_eq!(point["trials"], TRIALS, "{at}");
        // Every trial that does not count says why, and no more of them than there were kills blame a dead process.
        let warnings = summary["warnings"].as_array().unwrap();
        let reasons =
            warnings.iter().filter_map(Value::as_str).filter(|text| text.contains("does not count"));
        let by_time = ["measured over", "emulator-limited", "generator-limited"];
        let blamed = reasons.clone().filter(|text| !by_time.iter().any(|why| text.contains(why))).count();
        assert_eq!(reasons.count() as u64, TRIALS - point["valid_trials"].as_u64().unwrap(), "{at}");
        assert!(blamed <= killed.len(), "{at}");
        drop(folder);
        namespaces_go(&seen);
    }
    assert!(!seen.is_empty());
}

#[test]
fn one_interrupt_keeps_what_was_measured_and_two_stop_at_once() {
    need_lab();
    let _turn = beside();
    let run = Run::begin(&three_trials());
    run.wait_for("weir agent", 2);
    std::thread::sleep(Duration::from_millis(2_500));
    kill(run.child.id(), "-INT");
    let (status, summary, _folder) = run.finish();
    assert_eq!(status, 3, "{summary:#}");
    assert_eq!(summary["verdict"], "inconclusive");
    assert!(summary["points"][0]["trials"].as_u64().unwrap() >= 1, "{summary:#}");
    assert!(summary["warnings"].to_string().contains("cut short"), "{}", summary["warnings"]);

    let run = Run::begin(&three_trials());
    run.wait_for("weir agent", 2);
    std::thread::sleep(Duration::from_millis(300));
    let namespaces = namespaces_of(run.child.id());
    kill(run.child.id(), "-INT");
    kill(run.child.id(), "-INT");
    let asked = Instant::now();
    let (status, ..) = run.finish();
    assert_eq!(status, 3);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(!namespaces.is_empty());
    namespaces_go(&namespaces);
}

#[test]
fn a_full_disk_ends_the_run_in_words_and_what_was_written_can_be_read() {
    need_lab();
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        assert!(std::process::Command::new("mount").args(arguments).status().unwrap().success())
    };
    mount(&["-t", "tmpfs", "-o", "size=150k", "tmpfs", small.to_str().unwrap()]);
    let file = folder.path().join("scenario.toml");
    fs::write(&file, three_trials().replace("trials = 3", "trials = 4")).unwrap();
    let mut command = weir();
    command.args([
        "run",
        file.to_str().unwrap(),
        "--set",
        "step.load.interval=1ms",
        "--out",
        small.to_str().unwrap(),
    ]);
    let ran = ran(finish_within(start(&mut command), Duration::from_secs(60)));
    let written = fs::read_dir(small.join("sibling")).unwrap().next().unwrap().unwrap().path();
    let kept = folder.path().join("kept");
    assert!(
        std::process::Command::new("cp")
            .args(["-r", written.to_str().unwrap(), kept.to_str().unwrap()])
            .status()
            .unwrap()
            .success()
    );
    assert!(std::process::Command::new("umount").arg(&small).status().unwrap().success());
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    // Which of the files was the one too many is for the machine's speed to say.
    let name = written.file_name().unwrap().to_str().unwrap();
    assert!(ran.stderr.contains(&format!("{name}/")) && ran.stderr.contains(".json"), "{}", ran.stderr);
    let again = support::run(&["report", kept.to_str().unwrap()]);
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert!(processes_with(file.to_str().unwrap()).is_empty());
}
