use super::help::{possible, start, two_sites};
use std::fs;
use std::process::Command;
use std::time::Duration;
use weir_core::topology::{TcpProfile, Topology};
use weir_lab::Lab;
use weir_sys::netns::run_in;
use weir_sys::sysctl::Sysctls;

fn lab_of(profile: TcpProfile) -> Lab {
    let mut topology = two_sites(Some(1_000_000_000), Duration::from_millis(25), 1500);
    for site in &mut topology.sites {
        site.tcp_profile = profile;
    }
    start(&topology)
}

fn setting(lab: &Lab, name: &str) -> String {
    let name = format!("net.ipv4.{name}");
    run_in(lab.namespace(0), || Sysctls::of_this_thread().unwrap().read(&name).unwrap()).unwrap()
}

// Spec: lab.md#lab-2
#[test]
fn legacy_switches_off_what_came_after_2005_and_caps_the_sender() {
    if !possible() {
        return;
    }
    let lab = lab_of(TcpProfile::Legacy);
    assert_eq!(lab.notes(), Vec::<String>::new());
    for name in ["tcp_sack", "tcp_dsack", "tcp_timestamps", "tcp_recovery", "tcp_frto", "tcp_early_retrans"] {
        assert_eq!(setting(&lab, name), "0", "{name}");
    }
    assert_eq!(
        (setting(&lab, "tcp_reordering"), setting(&lab, "tcp_max_reordering")),
        ("3".into(), "3".into())
    );
    assert_eq!(setting(&lab, "tcp_no_metrics_save"), "1");
    assert_eq!(setting(&lab, "tcp_congestion_control"), "reno");
    // 3,125,000 B of bandwidth times delay and half of a queue of 4 MiB.
    let memory = setting(&lab, "tcp_wmem");
    assert_eq!(memory.split_ascii_whitespace().last(), Some("5222152"), "{memory}");
}

// Spec: lab.md#lab-2
#[test]
fn modern_raises_memory_and_stock_leaves_everything_but_metrics_as_the_kernel_has_it() {
    if !possible() {
        return;
    }
    let modern = lab_of(TcpProfile::Modern);
    let most = |lab: &Lab, name: &str| -> u64 {
        setting(lab, name).split_ascii_whitespace().last().unwrap().parse().unwrap()
    };
    assert!(most(&modern, "tcp_rmem") >= 4 * 3_125_000 && most(&modern, "tcp_wmem") >= 4 * 3_125_000);
    let stock = lab_of(TcpProfile::Stock);
    let fresh = weir_sys::netns::create().unwrap();
    for name in
        ["tcp_sack", "tcp_rmem", "tcp_wmem", "tcp_timestamps", "tcp_congestion_control", "tcp_reordering"]
    {
        use std::os::fd::AsFd;
        let name = format!("net.ipv4.{name}");
        let read = || Sysctls::of_this_thread().unwrap().read(&name).unwrap();
        assert_eq!(run_in(stock.namespace(0), read).unwrap(), run_in(fresh.as_fd(), read).unwrap(), "{name}");
    }
}

// Spec: lab.md#lab-3
#[test]
fn a_lab_changes_nothing_in_the_machines_own_settings() {
    if !possible() {
        return;
    }
    let settings = || -> Vec<(String, String)> {
        ["ipv4", "ipv6/conf/all", "ipv6/conf/default", "core"]
            .iter()
            .flat_map(|group| fs::read_dir(format!("/proc/sys/net/{group}")).into_iter().flatten())
            .filter_map(|entry| Some((entry.ok()?.path(), ())))
            // What the kernel itself moves while a machine runs.
            .filter(|(path, ())| !path.to_string_lossy().contains("random"))
            .filter_map(|(path, ())| Some((path.display().to_string(), fs::read_to_string(&path).ok()?)))
            .collect()
    };
    let before = settings();
    assert!(before.len() > 50, "{} settings could be read", before.len());
    let lab = lab_of(TcpProfile::Legacy);
    let ping = run_in(lab.namespace(0), || {
        Command::new("ping").args(["-c", "1", &Topology::ipv4(1).to_string()]).output().unwrap()
    });
    assert!(ping.unwrap().status.success());
    for (before, now) in before.iter().zip(settings()) {
        assert_eq!(*before, now);
    }
}
