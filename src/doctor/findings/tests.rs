//! From facts to findings.

use super::*;
use crate::doctor::stillness::Stillness;
use crate::machine::Bound;
use std::path::PathBuf;
use weir_sys::probe::TunAbilities;

const PATH: Path = Path { rate_bits_per_second: 1e9, rtt_seconds: 0.1 };

/// A machine without a fault.
fn well() -> Facts {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Facts {
        root: true,
        kernel: "6.18.0".to_owned(),
        namespace: Tried::Works,
        tun: Tried::Works,
        tun_mode: Some(0o666),
        tun_abilities: Some(TunAbilities {
            vnet_header: true,
            tcp_segmentation: Some(true),
            udp_segmentation: Some(true),
        }),
        io_uring: Tried::Works,
        time_namespace: true,
        open_files: Some((Some(1024), Some(1_048_576))),
        locked_bytes: Some((Some(8 << 20), None)),
        cores: 4,
        cpu_quota: None,
        memory_bytes: Some(16e9),
        memory_limit: None,
        busy_ratio: Some(0.01),
        stolen_ratio: Some(0.0),
        stillness: Some(Stillness { gaps: 1, ratio: 0.001, longest_seconds: 0.0008 }),
        clock_source: Some("tsc".to_owned()),
        clock_sources: words("tsc hpet acpi_pm"),
        receive_bytes_max: Some(64e6),
        send_bytes_max: Some(64e6),
        grown_receive_bytes_max: Some(64e6),
        grown_send_bytes_max: Some(64e6),
        tcp_memory_bytes: Some((1e9, 1.5e9)),
        page_bytes: 4096.0,
        congestion_available: words("reno cubic bbr"),
        congestion_allowed: words("reno cubic bbr"),
        congestion_default: Some("cubic".to_owned()),
        queueing_discipline: Some("fq_codel".to_owned()),
        tcp_times: Some(true),
        thread_wait: true,
        missing_programs: Vec::new(),
        missing_systems: Vec::new(),
        overlay: true,
        install: Some("apt-get install"),
    }
}

/// The findings that are not well after a change, with their commands.
fn after(change: impl Fn(&mut Facts)) -> Vec<(&'static str, Severity, Option<String>)> {
    let mut facts = well();
    change(&mut facts);
    let all = findings(&facts, &PATH);
    all.into_iter()
        .filter(|it| it.severity != Severity::Ok)
        .map(|it| (it.name, it.severity, it.mend))
        .collect()
}

#[test]
fn a_machine_without_a_fault_has_every_finding_well_and_nothing_to_mend() {
    let all = findings(&well(), &PATH);
    assert!(all.iter().all(|it| it.severity == Severity::Ok && it.mend.is_none()), "{all:#?}");
    let mut names: Vec<&str> = all.iter().map(|it| it.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len(), "each name is said once");
}

#[test]
fn what_keeps_a_lab_from_running_is_a_problem_with_its_command() {
    let mend = |text: &str| Some(text.to_owned());
    assert_eq!(after(|it| it.root = false), [("privilege", Severity::Problem, mend("sudo weir doctor"))]);
    let gone = after(|it| (it.tun, it.tun_mode, it.tun_abilities) = (Tried::Missing, None, None));
    assert_eq!((gone[0].0, gone[0].1), ("tun", Severity::Problem));
    assert!(gone[0].2.as_ref().unwrap().starts_with("sudo modprobe tun"), "{gone:?}");
    let no_driver = after(|it| it.tun = Tried::Missing);
    assert_eq!(no_driver, [("tun", Severity::Problem, mend("sudo modprobe tun"))]);
    let container = after(|it| it.namespace = Tried::Forbidden);
    assert_eq!((container[0].0, container[0].1), ("namespaces", Severity::Problem));
    let old = after(|it| it.tun_abilities = Some(TunAbilities::default()));
    assert_eq!((old[0].0, old[0].1), ("super-packets", Severity::Problem));
}

#[test]
fn an_unprivileged_user_is_told_once_that_labs_need_root() {
    let found = after(|it| {
        it.root = false;
        (it.namespace, it.tun, it.tun_mode, it.tun_abilities) =
            (Tried::Forbidden, Tried::Forbidden, Some(0o600), None);
    });
    let problems: Vec<&str> = found.iter().filter(|it| it.1 == Severity::Problem).map(|it| it.0).collect();
    assert_eq!(problems, ["privilege"], "{found:?}");
}

#[test]
fn a_quota_below_the_cores_names_the_file_that_sets_it() {
    let quota = |value: f64, file: &str| Some(Bound { value, file: PathBuf::from(file) });
    let found = after(|it| it.cpu_quota = quota(1.5, "/sys/fs/cgroup/a/cpu.max"));
    assert_eq!(
        found,
        [("cpu-quota", Severity::Note, Some("echo max | sudo tee /sys/fs/cgroup/a/cpu.max".to_owned()))]
    );
    let older = after(|it| it.cpu_quota = quota(1.5, "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us"));
    assert_eq!(older[0].2.as_deref(), Some("echo -1 | sudo tee /sys/fs/cgroup/cpu/a/cpu.cfs_quota_us"));
    assert!(after(|it| it.cpu_quota = quota(4.0, "/x/cpu.max")).is_empty());
}

#[test]
fn buffers_are_held_against_the_path_that_is_asked_about() {
    // 1 Gbit/s × 100 ms is 12.5 MB in flight, 25 MB of buffer.
    let small = after(|it| (it.receive_bytes_max, it.grown_send_bytes_max) = (Some(212_992.0), Some(4e6)));
    let command = "sudo sysctl -w net.core.rmem_max=\"25000000\" net.ipv4.tcp_wmem=\"4096 16384 25000000\"";
    assert_eq!(small, [("buffers", Severity::Note, Some(command.to_owned()))]);
    let mut facts = well();
    facts.receive_bytes_max = Some(212_992.0);
    let near = Path { rate_bits_per_second: 1e9, rtt_seconds: 0.000_5 };
    assert!(findings(&facts, &near).iter().all(|it| it.severity == Severity::Ok));
    let pressed = after(|it| it.tcp_memory_bytes = Some((10e6, 15e6)));
    let command = "sudo sysctl -w net.ipv4.tcp_mem=\"9156 12208 18311\"";
    assert_eq!(pressed, [("socket-memory", Severity::Note, Some(command.to_owned()))]);
}

#[test]
fn a_congestion_control_that_is_missing_or_reserved_has_the_command_that_gives_it() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let missing = after(|it| it.congestion_available = words("reno cubic"));
    assert_eq!(
        missing,
        [("congestion-control", Severity::Note, Some("sudo modprobe -a tcp_bbr".to_owned()))]
    );
    let reserved = after(|it| it.congestion_allowed = words("reno bbr"));
    let command = "sudo sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno bbr cubic\"";
    assert_eq!(reserved, [("congestion-control", Severity::Note, Some(command.to_owned()))]);
}

#[test]
fn each_other_fault_is_a_note_of_its_own() {
    type Change = fn(&mut Facts);
    let faults: [(&str, Change); 15] = [
        ("super-packets", |it| {
            it.tun_abilities = Some(TunAbilities {
                vnet_header: true,
                tcp_segmentation: Some(true),
                udp_segmentation: Some(false),
            });
        }),
        ("limits", |it| it.open_files = Some((Some(256), Some(512)))),
        ("cores", |it| it.cores = 1),
        ("memory", |it| it.memory_limit = Some(Bound { value: 5e8, file: PathBuf::from("/x/memory.max") })),
        ("load", |it| it.busy_ratio = Some(0.6)),
        ("load", |it| it.stolen_ratio = Some(0.1)),
        ("stillness", |it| it.stillness = Some(Stillness { gaps: 20, ratio: 0.02, longest_seconds: 0.03 })),
        ("clock", |it| it.clock_source = Some("hpet".to_owned())),
        ("queueing-discipline", |it| it.queueing_discipline = Some("noqueue".to_owned())),
        ("tcp-counters", |it| it.thread_wait = false),
        ("io_uring", |it| it.io_uring = Tried::Forbidden),
        ("time-namespace", |it| it.time_namespace = false),
        ("programs", |it| it.missing_programs = vec!["ssh", "iperf3"]),
        ("systems", |it| it.overlay = false),
        ("systems", |it| it.missing_systems = vec![("xrootd".to_owned(), vec!["xrootd-server".to_owned()])]),
    ];
    for (name, fault) in faults {
        let found = after(fault);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (name, Severity::Note));
    }
    let programs = after(|it| it.missing_programs = vec!["ssh", "iperf3"]);
    assert_eq!(programs[0].2.as_deref(), Some("sudo apt-get install openssh-client iperf3"));
    assert_eq!(
        after(|it| it.clock_source = Some("hpet".to_owned()))[0].2.as_deref(),
        Some("echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource")
    );
}
