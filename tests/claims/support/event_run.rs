//! The daemons of event building, for whole-program tests.
#![allow(dead_code)] // each test file uses its own part

use crate::support::{again_alone, finish_within, free_port, ran, start, summary_in, weir};
use serde_json::Value;
use std::process::{Child, Command};
use std::time::Duration;

/// The daemons of one run; what is left of them is killed at the end.
pub struct Run {
    pub at: String,
    /// Given to every role.
    pub flags: Vec<String>,
    scheduler_flags: Vec<String>,
    pub scheduler: Option<Child>,
    others: Vec<(String, Child)>,
}

impl Run {
    pub fn new(flags: &[&str]) -> Run {
        Run {
            at: format!("127.0.0.1:{}", free_port()),
            flags: Vec::new(),
            scheduler_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            scheduler: None,
            others: Vec::new(),
        }
    }

    pub fn scheduler(&mut self) {
        let mut command = weir();
        command.args(["event", "scheduler", "--listen", &self.at, "--json"]);
        command.args(&self.scheduler_flags).args(&self.flags);
        self.scheduler = Some(start(&mut command));
    }

    pub fn source(&mut self, name: &str) {
        self.source_of(name, &["--fragment-size", "5kB"]);
    }

    /// `sizes` are its flags about fragments.
    pub fn source_of(&mut self, name: &str, sizes: &[&str]) {
        let at = self.at.clone();
        self.role(name, weir().args(["event", "source", "--scheduler", &at, "--name", name]).args(sizes));
    }

    pub fn builder(&mut self, name: &str) {
        let at = self.at.clone();
        self.role(name, weir().args(["event", "builder", "--scheduler", &at, "--name", name]));
    }

    /// Where sources reach it.
    pub fn builder_at_a_known_place(&mut self, name: &str) -> std::net::SocketAddr {
        let (at, place) = (self.at.clone(), format!("127.0.0.1:{}", free_port()));
        let mut command = weir();
        command.args(["event", "builder", "--scheduler", &at, "--name", name, "--listen", &place]);
        self.role(name, &mut command);
        place.parse().unwrap()
    }

    pub fn role(&mut self, name: &str, command: &mut Command) {
        let child = command
            .args(&self.flags)
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        self.others.push((name.to_owned(), child));
    }

    pub fn kill(&mut self, name: &str) {
        let place = self.others.iter().position(|(other, _)| other == name).unwrap();
        let (_, mut child) = self.others.remove(place);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn signal(&self, name: &str, signal: &str) {
        let (_, child) = self.others.iter().find(|(other, _)| other == name).unwrap();
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Of each role that runs: what the kernel says of it under `key`.
    fn statuses(&self, key: &str) -> Vec<(String, String)> {
        let others = self.others.iter().map(|(name, child)| (name.as_str(), child));
        let all = others.chain(self.scheduler.iter().map(|child| ("scheduler", child)));
        let read = |child: &Child| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a running process");
            line.trim().to_owned()
        };
        all.map(|(name, child)| (name.to_owned(), read(child))).collect()
    }

    /// Names of the roles that run, and the most memory that was ever resident in each.
    pub fn resident_peaks(&self) -> Vec<(String, u64)> {
        let bytes = |text: String| text.trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
        self.statuses("VmHWM:").into_iter().map(|(name, text)| (name, bytes(text))).collect()
    }

    /// Likewise, and the mask of the signals that each ignores.
    pub fn signals_ignored(&self) -> Vec<(String, u64)> {
        let mask = |text: String| u64::from_str_radix(&text, 16).unwrap();
        self.statuses("SigIgn:").into_iter().map(|(name, text)| (name, mask(text))).collect()
    }

    /// The summary, once the scheduler has ended.
    pub fn finish(&mut self) -> Value {
        let ran = ran(finish_within(self.scheduler.take().unwrap(), Duration::from_secs(60)));
        assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
        let summary = summary_in(&ran.stdout);
        closed(&summary);
        summary
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let all = self.others.iter_mut().map(|(_, child)| child).chain(self.scheduler.as_mut());
        for child in all {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The summary of a run whose scheduler, to which nothing is done, told of every heartbeat in time: one without a core for 100 ms drops
/// those it missed, by that name, and then the run says nothing of what a failure costs. It is made again, as `again_alone` does.
// Spec: event-building.md#beats-1
pub fn in_time(make: impl FnMut() -> Value) -> Value {
    let missed = |summary: &Value| {
        let count = summary["ledger"]["dropped"]["no-scheduler"].as_u64().unwrap_or(0);
        (count > 0).then(|| format!("{count} heartbeats were not told of in time"))
    };
    match again_alone(make, missed) {
        (summary, None) => summary,
        (summary, Some(_)) => panic!("the machine was too busy for this claim, each time: {summary:#}"),
    }
}

pub fn of(summary: &Value, key: &str) -> u64 {
    summary["ledger"][key].as_u64().unwrap_or_else(|| panic!("{key}: {summary:#}"))
}

pub fn dropped(summary: &Value) -> u64 {
    summary["ledger"]["dropped"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

// Spec: event-building.md#ledger-1
pub fn closed(summary: &Value) {
    let sum = of(summary, "complete") + of(summary, "partial") + dropped(summary) + of(summary, "held");
    assert_eq!(of(summary, "generated"), sum, "{:#}", summary["ledger"]);
}

pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
