//! `weir lab`: foreign programs in topologies written on the spot find what was configured.

use crate::support;
use crate::support::lab::NamedLab;
use crate::support::{alone, beside, eventually, finish_within, namespaces_go, need_lab, run, start, weir};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

const CHAIN: &str = r#"
[lab]
[[lab.site]]
name = "cern"
hosts = 2
access = { rate = "1Gbit/s", delay = "50us", mtu = 1500 }
[[lab.site]]
name = "middle"
hosts = 0
[[lab.site]]
name = "fnal"
hosts = 1
access = { rate = "1Gbit/s", delay = "50us", mtu = 1500 }
[[lab.link]]
name = "east"
between = ["cern", "middle"]
rate = "500Mbit/s"
rtt = "7ms"
[[lab.link]]
name = "west"
between = ["fnal", "middle"]
rate = "300Mbit/s"
delay = "4ms"
"#;

/// `rtt min/avg/max/mdev = 15.1/15.2/…`
fn ping_average_ms(text: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.contains("min/avg/max"))
        .unwrap_or_else(|| panic!("no summary in {text}"));
    line.split('=').nth(1).unwrap().trim().split('/').nth(1).unwrap().parse().unwrap()
}

#[test]
fn ping_finds_the_configured_round_trip_over_two_links() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-ping", CHAIN);
    let ping = lab.exec("cern-1", &["ping", "-c", "20", "-i", "0.05", "fnal-0"]);
    assert_eq!(ping.status, 0, "{}{}", ping.stdout, ping.stderr);
    // 7 + 2 × 4 ms of links and four passes of 50 µs.
    let average = ping_average_ms(&ping.stdout);
    assert!((15.2..15.7).contains(&average), "{average} ms in {}", ping.stdout);
    let near = ping_average_ms(&lab.exec("cern-0", &["ping", "-c", "10", "-i", "0.05", "cern-1"]).stdout);
    assert!((0.2..0.7).contains(&near), "{near} ms between neighbours");
}

#[test]
fn iperf3_finds_the_ceiling_of_the_narrowest_link() {
    need_lab();
    let _turn = alone();
    let lab = NamedLab::up("t-iperf", CHAIN);
    let server = start(weir().args(["lab", "exec", "t-iperf", "fnal-0", "--", "iperf3", "-s", "-1"]));
    std::thread::sleep(Duration::from_millis(500));
    let client = lab.exec("cern-0", &["iperf3", "-c", "fnal-0", "-t", "6", "-O", "2", "-C", "cubic", "-J"]);
    let report: serde_json::Value =
        serde_json::from_str(&client.stdout).unwrap_or_else(|_| panic!("{}", client.stdout));
    let received =
        report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{report:#}"));
    let ceiling = 300e6 * 1448.0 / 1538.0;
    assert!((received / ceiling - 1.0).abs() < 0.015, "{received} against {ceiling}");
    finish_within(server, Duration::from_secs(10));
}

#[test]
fn ping_loses_what_the_link_loses_within_its_binomial_interval() {
    need_lab();
    let _turn = beside();
    let lossy = CHAIN.replace("delay = \"4ms\"", "delay = \"1ms\"\nforward = { loss = \"5%\" }");
    let lab = NamedLab::up("t-loss", &lossy);
    // Echoes from fnal lose on the way out only; 2,000 packets, sd = √(2000·0.05·0.95) ≈ 9.7.
    let ping = lab.exec("fnal-0", &["ping", "-q", "-c", "2000", "-i", "0.002", "-W", "1", "cern-0"]);
    let line = ping
        .stdout
        .lines()
        .find(|line| line.contains("received"))
        .unwrap_or_else(|| panic!("{}", ping.stdout));
    let received: f64 = line.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((2000.0 - received - 100.0).abs() < 4.0 * 9.75, "{line}");
}

#[test]
fn two_labs_with_the_same_addresses_do_not_meet_and_a_name_is_taken_once() {
    need_lab();
    let _turn = beside();
    let one = NamedLab::up("t-one", CHAIN);
    let far = CHAIN.replace("7ms", "47ms");
    let two = NamedLab::up("t-two", &far);
    let near_ms = ping_average_ms(&one.exec("cern-0", &["ping", "-c", "5", "-i", "0.1", "fnal-0"]).stdout);
    let far_ms = ping_average_ms(&two.exec("cern-0", &["ping", "-c", "5", "-i", "0.1", "fnal-0"]).stdout);
    assert!(near_ms < 16.5 && far_ms > 55.0, "{near_ms} and {far_ms}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    fs::write(&file, CHAIN).unwrap();
    let again = run(&["lab", "up", file.to_str().unwrap(), "--name", "t-one"]);
    assert_eq!(again.status, 2);
    assert!(again.stderr.contains("t-one"), "{}", again.stderr);
    for name in ["../../x", "-oX", "A", ""] {
        assert_eq!(run(&["lab", "up", file.to_str().unwrap(), "--name", name]).status, 2, "{name}");
    }
    let list: serde_json::Value = serde_json::from_str(&run(&["lab", "list", "--json"]).stdout).unwrap();
    let names = list.to_string();
    assert!(names.contains("t-one") && names.contains("t-two"), "{names}");
}

const DAEMON: &str = "
import os
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir('/')
os.closerange(0, 256)
os.execlp('sleep', 'sleep', '4321.5')
";

#[test]
fn exec_gives_the_commands_own_status_and_down_ends_what_it_left_running() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-exec", CHAIN);
    let namespace = lab.exec("cern-0", &["readlink", "/proc/self/ns/net"]).stdout;
    assert_eq!(lab.exec("cern-0", &["sh", "-c", "exit 7"]).status, 7);
    assert_eq!(lab.exec("cern-0", &["no-such-program"]).status, 127);
    // Spec: commands.md#signals-1
    let signals = lab.exec("cern-0", &["grep", "SigIgn", "/proc/self/status"]).stdout;
    let ignored = u64::from_str_radix(signals.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & (1 << 12 | 1 << 24), 0, "SIGPIPE or SIGXFSZ is ignored: {signals}");
    assert_eq!(lab.exec("nowhere-0", &["true"]).status, 2);
    assert_eq!(lab.exec("cern-0", &["sh", "-c", "setsid sleep 1234.5 >/dev/null 2>&1 & exit 0"]).status, 0);
    eventually("the detached sleep runs", Duration::from_secs(5), || {
        !support::processes_with("sleep 1234.5").is_empty()
    });
    // As daemons do: two forks, a session of its own, no descriptor of ours, and a parent that is init.
    assert_eq!(lab.exec("cern-0", &["python3", "-c", DAEMON]).status, 0);
    eventually("the daemon runs", Duration::from_secs(5), || {
        !support::processes_with("sleep 4321.5").is_empty()
    });
    assert_eq!(run(&["lab", "down", "t-exec"]).status, 0);
    for left in ["sleep 1234.5", "sleep 4321.5"] {
        assert!(support::processes_with(left).is_empty(), "{left}: a detached program outlived its lab");
    }
    namespaces_go(&BTreeSet::from([namespace.trim().into()]));
    assert_eq!(run(&["lab", "down", "--all"]).status, 0, "nothing to take down is done");
}

#[test]
fn what_a_killed_lab_left_is_removed_by_down_dead() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-dead", CHAIN);
    let list: serde_json::Value = serde_json::from_str(&run(&["lab", "list", "--json"]).stdout).unwrap();
    let mine = list.as_array().unwrap().iter().find(|lab| lab["name"] == "t-dead").unwrap().clone();
    let pid = mine["fabric_pid"].as_u64().unwrap_or_else(|| panic!("{mine:#}"));
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    eventually("the fabric is gone", Duration::from_secs(5), || {
        !std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
    });
    assert_eq!(run(&["lab", "down", "--dead"]).status, 0);
    let list = run(&["lab", "list", "--json"]).stdout;
    assert!(!list.contains("t-dead"), "{list}");
    assert!(!support::state_folder().join("labs/t-dead").exists());
    drop(lab);
    // A second lab of the name may come up again.
    drop(NamedLab::up("t-dead", CHAIN));
}

const LIMITED: &str = r#"
[lab]
[[lab.site]]
name = "a"
hosts = 2
cpu = 0.2
memory = "100MB"
[[lab.host]]
name = "a-1"
cpu = 0.4
[[service]]
name = "nothing"
system = "null"
place = { server = "a-0" }
"#;

// Spec: lab.md#lab-31
#[test]
fn all_that_runs_on_a_host_with_limits_has_no_more_than_those_and_the_limits_go_with_the_lab() {
    need_lab();
    let _turn = beside();
    let groups = |name: &str| -> Vec<String> {
        let trees = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"];
        let entries = trees.into_iter().filter_map(|tree| fs::read_dir(tree).ok()).flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|own| own.contains(name)).collect()
    };
    {
        let lab = NamedLab::up("t-limits", LIMITED);
        assert!(!groups("weir.lab.t-limits.a-0").is_empty());
        // One host has processes and files of its own, the other a network alone.
        for (host, cores) in [("a-0", 0.2), ("a-1", 0.4)] {
            let spin = "import time\nbegan, ran = time.monotonic(), time.process_time()\nwhile time.monotonic() - began < 1.5: pass\nprint((time.process_time() - ran) / 1.5)";
            let ran = run(&["lab", "exec", "t-limits", host, "--", "python3", "-c", spin]);
            let had: f64 = ran.stdout.trim().parse().unwrap_or_else(|_| panic!("{ran:?}"));
            assert!(had < 1.3 * cores, "{host}: {had} cores of {cores}");
            let ran = run(&["lab", "exec", "t-limits", host, "--", "python3", "-c", "bytearray(300 << 20)"]);
            assert_ne!(ran.status, 0, "{host} has 100 MB: {ran:?}");
        }
        drop(lab);
    }
    assert_eq!(groups("weir.lab.t-limits"), [""; 0]);
}
