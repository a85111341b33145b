//! `weir lab capture`: what others read in its files.

use crate::support;
use crate::support::lab::{NamedLab, over};
use crate::support::{beside, finish_within, need_lab, ran, run, start, turn, weir};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

const LINK: &str = "rate = \"100Mbit/s\"\nrtt = \"10ms\"";

/// What tcpdump says of a file.
fn tcpdump(file: &str, more: &[&str]) -> String {
    let output = Command::new("tcpdump").args(["-nr", file]).args(more).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// Spec: lab.md#lab-22
#[test]
fn tcpdump_reads_every_packet_of_a_port_with_right_checksums_at_the_instants_of_the_model() {
    need_lab();
    let _turn = turn();
    let lab = NamedLab::up("t-capture", &over(LINK));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wan.pcapng");
    let file = file.to_str().unwrap();
    let capture = start(weir().args([
        "lab",
        "capture",
        "t-capture",
        "wan",
        "--out",
        file,
        "--count",
        "20",
        "--duration",
        "30s",
    ]));
    std::thread::sleep(Duration::from_millis(500));
    let ping = lab.exec("left-0", &["ping", "-c", "10", "-i", "0.05", "-s", "1000", "right-0"]);
    assert_eq!(ping.status, 0, "{}", ping.stderr);
    let captured = ran(finish_within(capture, Duration::from_secs(40)));
    assert_eq!(
        (captured.status, captured.stderr.lines().last()),
        (0, Some("20 packets")),
        "{}",
        captured.stderr
    );

    let text = tcpdump(file, &["-ttt", "-v"]);
    assert_eq!(text.matches("echo request").count(), 10, "{text}");
    assert_eq!(text.matches("echo reply").count(), 10, "{text}");
    assert!(!text.contains("bad cksum") && !text.contains("wrong"), "{text}");
    // A request begins to be sent on the link; 1,066 bytes at 100 Mbit/s, 5 ms, two access links there and back of 20 µs and
    // 8.5 µs, and the other kernel's answer later the reply does on the way back.
    let times: Vec<f64> = tcpdump(file, &["-tt"])
        .lines()
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let mut waits_ms: Vec<f64> = times.chunks(2).map(|pair| (pair[1] - pair[0]) * 1e3).collect();
    waits_ms.sort_by(f64::total_cmp);
    // A kernel of a busy machine answers later now and then, and never sooner.
    assert!(
        waits_ms[0] > 5.1 && waits_ms[5] < 6.5,
        "{waits_ms:?} ms between requests and replies: {times:?}"
    );
    // Experiment time: not since 1970 but since the lab began.
    assert!(times[0] < 3_600.0, "{times:?}");
}

#[test]
fn a_bulk_flow_is_captured_whole_and_its_checksums_are_right_although_the_kernel_left_them_to_the_device() {
    need_lab();
    let _turn = turn();
    let lab = NamedLab::up("t-bulk", &over(LINK));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wan.pcapng");
    let file = file.to_str().unwrap();
    let server =
        start(weir().args(["lab", "exec", "t-bulk", "right-0", "--", "timeout", "20", "iperf3", "-s", "-1"]));
    std::thread::sleep(Duration::from_millis(500));
    let capture = start(weir().args([
        "lab",
        "capture",
        "t-bulk",
        "link.wan.forward",
        "--out",
        file,
        "--duration",
        "4s",
    ]));
    std::thread::sleep(Duration::from_millis(500));
    let client = lab.exec("left-0", &["timeout", "20", "iperf3", "-c", "right-0", "-t", "2", "-C", "cubic"]);
    assert_eq!(client.status, 0, "{}", client.stderr);
    let captured = ran(finish_within(capture, Duration::from_secs(30)));
    finish_within(server, Duration::from_secs(30));
    let said = captured.stderr.lines().last().unwrap_or_default().to_owned();
    let packets: usize = said.strip_suffix(" packets").unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    let text = tcpdump(file, &["-v"]);
    let segments = text.matches("Flags [").count();
    // 100 Mbit/s for two seconds are 16,000 segments.
    assert!(segments > 10_000 && segments == packets, "{segments} of {packets}");
    assert!(!text.contains("incorrect"), "{}", text.lines().find(|line| line.contains("incorrect")).unwrap());
}

#[test]
fn a_port_that_is_not_there_a_lab_that_is_not_up_and_a_file_that_cannot_be_made_are_refused() {
    need_lab();
    let _turn = beside();
    let _lab = NamedLab::up("t-refuse", &over(LINK));
    let refused = |arguments: &[&str]| {
        let ran = run(&[&["lab", "capture"], arguments].concat());
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        ran.stderr
    };
    let port = refused(&["t-refuse", "lan"]);
    assert!(port.contains("\"lan\"") && port.contains("link.wan.forward"), "{port}");
    assert!(refused(&["t-nowhere", "wan"]).contains("there is no lab \"t-nowhere\""));
    assert!(refused(&["t-refuse", "wan", "--out", "/no/such/folder/x"]).contains("/no/such/folder/x"));
    assert!(refused(&["t-refuse", "wan", "--snap", "0"]).contains("--snap 0"));
    assert!(refused(&["t-refuse", "wan", "--duration", "soon"]).contains("--duration soon"));
}

// Spec: lab.md#lab-22
#[test]
fn tshark_reads_the_name_of_each_packets_interface_and_when_it_was_taken_up() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-tshark", &over(LINK));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wan.pcapng");
    let file = file.to_str().unwrap();
    let begun = Instant::now();
    let ports = ["link.wan.forward", "link.wan.backward", "host.left-0.access.forward"];
    let arguments = ["lab", "capture", "t-tshark", "--out", file, "--count", "15", "--duration", "30s"];
    let capture = start(weir().args(arguments).args(ports));
    std::thread::sleep(Duration::from_millis(500));
    let ping = lab.exec("left-0", &["ping", "-c", "5", "-i", "0.05", "-s", "1000", "right-0"]);
    assert_eq!(ping.status, 0, "{}", ping.stderr);
    let captured = ran(finish_within(capture, Duration::from_secs(40)));
    assert_eq!(captured.status, 0, "{}", captured.stderr);

    let fields = ["frame.interface_name", "frame.time_epoch", "icmp.seq", "icmp.checksum.status"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let read = Command::new("tshark").args(["-n", "-r", file, "-T", "fields"]).args(fields).output().unwrap();
    let text = String::from_utf8(read.stdout).unwrap();
    let mut times: BTreeMap<(u32, &str), Vec<f64>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [name, time, number, checksum] = words[..] else { panic!("{line}: {text}") };
        assert_eq!(checksum, "1", "a wrong ICMP checksum: {line}");
        times.entry((number.parse().unwrap(), name)).or_default().push(time.parse().unwrap());
    }
    assert_eq!(times.len(), 15, "{text}{}", String::from_utf8_lossy(&read.stderr));
    for echo in 1..=5 {
        // The access link takes 1,066 bytes up at once, sends them in 8.5 µs and delivers them 20 µs later to the switch, where
        // the wide link is idle: to the nanosecond the model's, whenever the capture was written.
        let at = |port| times[&(echo, port)][0];
        let [forward, backward, access] = ports.map(at);
        assert!((forward - access - 28.528e-6).abs() < 2e-9, "{} s", forward - access);
        assert!(backward - forward > 5e-3, "{} s to the other side", backward - forward);
        assert!(access > 0.0 && access < begun.elapsed().as_secs_f64() + 30.0, "{access} s");
    }
}

// Spec: lab.md#lab-22
#[test]
fn a_step_keeps_the_packets_of_the_ports_it_names_in_the_results() {
    need_lab();
    let _turn = turn();
    let step = r#"
[[step]]
name = "ask"
workload = "latency"
from = "left-0"
to = "right-0"
count = 50
capture = ["link.wan.forward"]
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, support::scenario("rate = \"100Mbit/s\"\nrtt = \"4ms\"", step)).unwrap();
    let (_, summary, ran) = support::run_file(&file, folder.path(), &[]);
    let results = std::path::PathBuf::from(summary["results"].as_str().unwrap());
    let captures: Vec<_> = std::fs::read_dir(results.join("captures"))
        .unwrap_or_else(|error| panic!("{error}\n{}", ran.stderr))
        .map(|entry| entry.unwrap().path())
        .collect();
    let [capture] = captures.as_slice() else { panic!("{captures:?}") };
    let asked = tcpdump(capture.to_str().unwrap(), &["tcp[tcpflags] & tcp-push != 0"]);
    assert!(asked.lines().count() >= 50, "{asked}");
    assert!(
        asked.lines().all(|line| line.contains("10.64.0.1.") && line.contains("> 10.64.0.2.")),
        "{asked}"
    );
    let timeline = std::fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    assert!(timeline.contains("packets of step ask"), "{timeline}");
}
