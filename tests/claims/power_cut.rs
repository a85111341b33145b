//! What is measured outlives a power cut and a full disk: a file system of its own, shut down without flushing its log.

use crate::support::{
    Ran, beside, eventually, finish_within, load, need_lab, ran, run, scenario, start, weir,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `FS_IOC_SHUTDOWN` with the flag not to flush the log: what was not synced is gone, as when the power goes.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

fn must(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An ext4 file system in a file, mounted.
struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    fn new(folder: &Path) -> Disk {
        let (image, mount) = (folder.join("image"), folder.join("mount"));
        fs::File::create(&image).unwrap().set_len(48 << 20).unwrap();
        fs::create_dir(&mount).unwrap();
        must("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        let disk = Disk { image, mount };
        disk.mount();
        disk
    }

    /// On a loop device of its own each time: a namespace that somebody made meanwhile may still have the file system that was shut
    /// down mounted from the last one.
    fn mount(&self) {
        let shown = Command::new("losetup").args(["--find", "--show"]).arg(&self.image).output().unwrap();
        let device = String::from_utf8(shown.stdout).unwrap();
        must("mount", &[device.trim(), self.mount.to_str().unwrap()]);
        // It goes with its last mount.
        must("losetup", &["--detach", device.trim()]);
    }

    fn cut_power(&self) {
        must("python3", &["-c", SHUTDOWN, self.mount.to_str().unwrap()]);
    }

    fn cut_and_mount_again(&self) {
        self.cut_power();
        must("umount", &[self.mount.to_str().unwrap()]);
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.mount).output();
    }
}

fn text() -> String {
    let step = load("duration = \"600ms\"");
    scenario("rate = \"100Mbit/s\"\nrtt = \"4ms\"", &step).replace("trials = 1", "trials = 3")
}

fn line_count(folder: &Path, name: &str) -> usize {
    fs::read_to_string(folder.join(name)).unwrap_or_default().lines().count()
}

fn resumed(folder: &Path) -> Ran {
    run(&["run", "--resume", folder.to_str().unwrap(), "--json"])
}

// Spec: results.md#results-15 and results.md#results-16
#[test]
fn a_power_cut_takes_at_most_the_trial_that_runs_and_nothing_of_a_finished_run() {
    need_lab();
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let file = directory.path().join("scenario.toml");
    fs::write(&file, text()).unwrap();
    let out = disk.mount.join("made/by/weir");
    let child = start(weir().args(["run", file.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()]));
    let mut folder = None;
    eventually("a trial is finished and the next one runs", Duration::from_secs(20), || {
        let of_name = fs::read_dir(out.join("sibling")).ok().and_then(|mut all| all.next());
        folder = of_name.and_then(Result::ok).map(|entry| entry.path());
        let timeline = folder.as_ref().map(|folder| fs::read_to_string(folder.join("timeline.jsonl")));
        // Of the second trial this is on the timeline while it runs.
        timeline.is_some_and(|it| it.unwrap_or_default().matches("\"step-start\"").count() == 2)
    });
    let folder = folder.unwrap();
    disk.cut_power();
    // What is written next fails: the run says so and ends, in the middle of its trial.
    let ended = ran(finish_within(child, Duration::from_secs(10)));
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot ") && ended.stderr.contains("jsonl"), "{}", ended.stderr);
    must("umount", &[disk.mount.to_str().unwrap()]);
    disk.mount();

    assert_eq!(line_count(&folder, "trials.jsonl"), 1, "the first trial is finished, the second is not");
    let first = fs::read(folder.join("trials.jsonl")).unwrap();
    let samples = line_count(&folder, "samples.jsonl");
    let went_on = resumed(&folder);
    assert!([0, 3].contains(&went_on.status), "{}", went_on.stderr);
    assert!(fs::read(folder.join("trials.jsonl")).unwrap().starts_with(&first));
    assert!(samples > 0 && line_count(&folder, "samples.jsonl") > samples);

    let names = ["scenario.toml", "environment.json", "plan.json", "metrics.json", "timeline.jsonl"];
    let more = ["trials.jsonl", "samples.jsonl", "summary.json", "report.html"];
    let all =
        || names.iter().chain(&more).map(|name| fs::read(folder.join(name)).unwrap()).collect::<Vec<_>>();
    let before = all();
    disk.cut_and_mount_again();
    assert!(before == all() && before.iter().all(|bytes| !bytes.is_empty()), "the finished run is as it was");
    let summary: Value = serde_json::from_slice(&before[7]).unwrap();
    assert_eq!(summary["points"][0]["trials"], 3, "{summary:#}");

    // No room is left for a page: the old one stays.
    let fill = format!("of={}", disk.mount.join("fill").display());
    let full = Command::new("dd").args(["if=/dev/zero", "bs=64k", &fill]).output().unwrap();
    assert!(!full.status.success(), "the disk is full now");
    let drawn = run(&["report", folder.to_str().unwrap()]);
    assert_eq!(drawn.status, 2, "{}", drawn.stdout);
    assert!(drawn.stderr.contains("report.html"), "{}", drawn.stderr);
    assert_eq!(fs::read(folder.join("report.html")).unwrap(), before[8]);
}
