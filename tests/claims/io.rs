//! `weir io`, and io steps of scenarios, on files of this machine.

use super::support::{
    Ran, beside, finish_within, free_port, need_lab, ran, run, run_file, settled, start, summary_in, turn,
    weir,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ran.stdout, ran.stderr))
}

/// Of the only point.
fn mean(summary: &Value, metric: &str) -> f64 {
    summary["points"][0]["metrics"][metric]["mean"]
        .as_f64()
        .unwrap_or_else(|| panic!("{metric}: {summary:#}"))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// Spec: storage.md#io-2
#[test]
fn a_sweep_on_a_folder_measures_each_point_and_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let out = tempfile::tempdir().unwrap();
    let kept = out.path().to_str().unwrap();
    let ran = run(&[
        "io",
        "random",
        at,
        "--file-size",
        "8MiB",
        "--size",
        "4KiB,64KiB",
        "--depth",
        "2",
        "--verify",
        "--duration",
        "300ms",
        "--json",
        "--out",
        kept,
    ]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let summary = document(&ran);
    let ids: Vec<&str> =
        summary["points"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["io-random/size=4KiB", "io-random/size=64KiB"]);
    for point in summary["points"].as_array().unwrap() {
        assert_eq!(point["metrics"]["io.mismatched_operations"]["mean"], 0.0, "{point:#}");
        assert!(point["metrics"]["io.operations_total_per_second"]["mean"].as_f64().unwrap() > 100.0);
    }
    assert_eq!(names(folder.path()), [""; 0]);
    let page =
        fs::read_to_string(Path::new(summary["results"].as_str().unwrap()).join("report.html")).unwrap();
    assert!(page.contains("payload moved over time"), "the report has the curve openly");
}

// Spec: storage.md#verify-2
#[test]
fn a_byte_that_is_wrong_is_in_the_failures_with_its_place_and_the_rest_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let at = file.to_str().unwrap();
    let made = run(&["io", "seq", at, "--file-size", "1MiB", "--mix", "0", "--keep", "--json"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let mut bytes = fs::read(&file).unwrap();
    bytes[777_777] ^= 1;
    fs::write(&file, bytes).unwrap();
    let out = tempfile::tempdir().unwrap();
    let ran = run(&[
        "io",
        "seq",
        at,
        "--size",
        "64KiB",
        "--verify",
        "--json",
        "--out",
        out.path().to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let summary = document(&ran);
    assert_eq!(mean(&summary, "io.mismatched_operations"), 1.0);
    assert!(summary["warnings"].to_string().contains("from offset 777777 on"), "{summary:#}");
    let failures = Path::new(summary["results"].as_str().unwrap()).join("failures.jsonl");
    let failures = fs::read_to_string(failures).unwrap();
    assert!(failures.contains("EBADMSG") && failures.lines().count() == 1, "{failures}");
}

// Spec: storage.md#io-7
#[test]
fn how_much_of_a_file_is_in_memory_is_told_before_and_after() {
    // A file system in memory has all of a file there always.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("f");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    let resident = |arguments: &[&str]| {
        let ran = run(&[&["io", "random", "--json"], arguments].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let summary = document(&ran);
        ["io.resident_before_ratio", "io.resident_after_ratio"].map(|metric| mean(&summary, metric))
    };
    let at = file.to_str().unwrap();
    assert_eq!(resident(&[at, "--count", "10", "--size", "4KiB"]), [1.0, 1.0]);
    let forget = ["if=/dev/null", &format!("of={at}"), "oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
    assert!(Command::new("dd").args(forget).output().unwrap().status.success());
    let direct = format!("posix:{at}?direct=true");
    assert_eq!(resident(&[&direct, "--count", "10", "--size", "4KiB"]), [0.0, 0.0]);
    let [before, after] = resident(&[at, "--count", "10", "--size", "4KiB"]);
    assert!(before == 0.0 && (0.001..1.0).contains(&after), "{before} {after}");
    let ran = run(&["io", "random", "mem:", "--file-size", "1MiB", "--count", "10", "--json"]);
    assert!(!ran.stdout.contains("io.resident"), "{}", ran.stdout);
}

// Spec: storage.md#failure-4
#[test]
fn a_load_whose_every_operation_fails_counts_and_is_no_success() {
    need_lab();
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let at = file.to_str().unwrap();
    let made = run(&["io", "seq", at, "--file-size", "1MiB", "--mix", "0", "--keep", "--json"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let mut bytes = fs::read(&file).unwrap();
    bytes.iter_mut().step_by(64 << 10).for_each(|byte| *byte ^= 1);
    fs::write(&file, bytes).unwrap();
    let ran = run(&["io", "seq", at, "--size", "64KiB", "--verify", "--json"]);
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    let summary = document(&ran);
    assert_eq!(summary["points"][0]["valid_trials"], 1, "{summary:#}");
    assert_eq!(mean(&summary, "io.failed_operations"), 16.0);
    assert_eq!(summary["points"][0]["limiting_factor"]["name"], "failures", "{summary:#}");
    assert!(summary["points"][0]["metrics"].get("io.operations_total_per_second").is_none(), "{summary:#}");
    assert!(summary["warnings"].to_string().contains("every one: 16 operations failed"), "{summary:#}");
    // A scenario can judge it.
    let scenario = folder.path().join("fails.toml");
    let text = format!(
        "[scenario]\nname = \"fails\"\nabout = \"nothing is as it was\"\ntrials = 1\n[[lab.site]]\nname = \"a\"\n\
         [[step]]\nname = \"load\"\nworkload = \"io-seq\"\nhosts = \"a-0\"\ntarget = {at:?}\nsize = \"64KiB\"\nverify = true\n\
         [[criterion]]\ntext = \"all of it fails\"\nmetric = \"io.failed_operations\"\nat_least = 16\n"
    );
    fs::write(&scenario, text).unwrap();
    let out = folder.path().join("out");
    let arguments = ["run", scenario.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()];
    let summary = settled(|| document(&run(&arguments)), |summary| summary);
    assert_eq!(summary["verdict"], "pass", "{summary:#}");
}

#[test]
fn what_cannot_be_loaded_is_an_error_in_words_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let lacks = folder.path().join("none");
    for (arguments, status, said) in [
        (vec![lacks.to_str().unwrap()], 2, "`file_size` says how large"),
        (vec!["warp:x"], 2, "no target is called \"warp\""),
        (vec!["null:", "--verify", "--count", "1"], 2, "keeps no content"),
        (vec!["/", "--file-size", "1MiB", "--depth", "0"], 2, "depth"),
    ] {
        let ran = run(&[&["io", "random"], &arguments[..]].concat());
        assert_eq!(ran.status, status, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(
            format!("{}{}", ran.stdout, ran.stderr).replace('\n', " ").contains(said),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

// Spec: storage.md#io-8
#[test]
fn a_server_that_is_not_there_is_named_with_its_reason_although_operations_may_take_longer() {
    let nobody = format!("127.0.0.1:{}", free_port());
    for scheme in ["root", "dav"] {
        let ran = run(&["io", "seq", &format!("{scheme}://{nobody}//f"), "--timeout", "10min", "--json"]);
        let warnings = summary_in(&ran.stdout)["warnings"].to_string();
        assert!(warnings.contains(&nobody) && warnings.contains("Connection refused"), "{warnings}");
    }
}

// Spec: storage.md#io-2
#[test]
fn an_interrupt_keeps_what_was_measured_and_removes_what_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir();
    let at = folder.path().to_str().unwrap();
    let child =
        start(command.args(["io", "random", at, "--file-size", "4MiB", "--duration", "10min", "--json"]));
    super::support::eventually("the file is there", Duration::from_secs(20), || {
        !names(folder.path()).is_empty()
    });
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = ran(finish_within(child, Duration::from_secs(30)));
    assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("cut short by the user"), "{}", ran.stdout);
    assert_eq!(names(folder.path()), [""; 0]);
}

// Spec: storage.md#io-3
#[test]
fn hosts_of_a_lab_share_a_file_and_a_fault_on_one_of_them_is_a_pause() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("shared.toml");
    fs::create_dir(folder.path().join("store")).unwrap();
    let target = folder.path().join("store/f");
    // So few operations that a late wake-up or two is not held against their clock.
    let text = format!(
        r#"
[scenario]
name = "shared"
about = "Two hosts and one file"
trials = 1
[[lab.site]]
name = "a"
hosts = 2
[[step]]
name = "load"
workload = "io-random"
hosts = "a-*"
target = "{}"
jobs = 2
layout = "shared"
file_size = "4MiB"
rate = "150Hz"
duration = "3s"
verify = true
[[fault]]
name = "stop"
step = "load"
at = "1s"
on = "host.a-1"
do = {{ pause = {{ for = "700ms" }} }}
[[criterion]]
text = "no wrong byte"
metric = "io.mismatched_operations"
at_most = 0
[[criterion]]
text = "the stopped host's operations waited for it"
metric = "io.latency_seconds.max"
between = ["400ms", "1.5s"]
"#,
        target.display()
    );
    fs::write(&scenario, text).unwrap();
    let out = folder.path().join("results");
    let (status, summary, ran) = settled(|| run_file(&scenario, &out, &[]), |(_, summary, _)| summary);
    assert_eq!(status, 0, "{summary:#}\n{}", ran.stderr);
    assert_eq!(names(&folder.path().join("store")), [""; 0]);
}

// Spec: scenario.md#step-10
#[test]
fn a_step_loads_as_its_user_and_may_do_no_more_than_that() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let make = |name: &str, owner: Option<u32>| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, owner, owner).unwrap();
        path
    };
    let (own, others) = (make("own", Some(4242)), make("others", None));
    let scenario = folder.path().join("as.toml");
    let write_as = |user: &str, target: &Path| {
        let text = format!(
            "[scenario]\nname = \"as\"\ntrials = 1\n[[lab.site]]\nname = \"a\"\nhosts = 1\n[[step]]\nname = \"load\"\n\
             workload = \"io-seq\"\nhosts = \"a-0\"\nuser = {user}\ntarget = \"{}/f\"\nfile_size = \"1MiB\"\nmix = 0\n\
             keep = true\n",
            target.display()
        );
        fs::write(&scenario, text).unwrap();
    };
    let run_as = |user: &str, target: &Path| {
        write_as(user, target);
        let (_, summary, ran) = run_file(&scenario, &folder.path().join("results"), &[]);
        format!("{}{}", summary["warnings"], ran.stderr)
    };
    run_as("4242", &own);
    let made = fs::metadata(own.join("f")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.len()), (4242, 4242, 1 << 20));
    let said = run_as("\"nobody\"", &others);
    assert!(said.contains("EACCES") || said.to_lowercase().contains("permission denied"), "{said}");
    assert_eq!(names(&others), [""; 0]);
    let said = run_as("\"no-such-user\"", &others);
    assert!(said.contains("no account") && said.contains("no-such-user"), "{said}");
    write_as("1.5", &others);
    let text = run(&["check", scenario.to_str().unwrap()]).stderr;
    assert!(text.contains("a user's name in quotes or a number"), "{text}");
}
