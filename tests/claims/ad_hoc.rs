//! `weir net`: between any two processes, with a key where anyone could come.

use crate::support;
use crate::support::lab::{self, NamedLab};
use crate::support::{alone, beside, finish_within, light, need_lab, ran, run, settled, start, turn, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::time::Duration;
use weir_core::{BitsPerSecond, Bytes};

struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn begin(more: &[&str]) -> Server {
        let at = format!("127.0.0.1:{}", support::free_port());
        let child = start(weir().args(["net", "serve", "--listen", &at]).args(more));
        support::eventually("the server listens", Duration::from_secs(5), || TcpStream::connect(&at).is_ok());
        Server { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measured(arguments: &[&str]) -> Value {
    let measure = || {
        let ran = run(arguments);
        assert!(!ran.stdout.is_empty(), "{}", ran.stderr);
        (support::summary_in(&ran.stdout), ran)
    };
    let (summary, ran) = settled(measure, |(summary, _)| summary);
    assert_eq!(ran.status, 0, "{}{summary:#}", ran.stderr);
    summary
}

#[test]
fn stream_and_latency_give_the_summary_document_and_lists_are_sweeps() {
    let _turn = turn();
    let server = Server::begin(&[]);
    let summary = measured(&["net", "stream", &server.at, "--streams", "1,4", "--duration", "1s", "--json"]);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        let goodput = &point["metrics"]["stream.total_goodput_bits_per_second"]["mean"];
        assert!(goodput.as_f64().unwrap() > 1e8, "{point:#}");
    }
    for direction in ["down", "both"] {
        let at = &server.at;
        let summary =
            measured(&["net", "stream", at, "--direction", direction, "--duration", "1s", "--json"]);
        assert!(
            summary["points"][0]["metrics"]["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap()
                > 1e8
        );
    }
    let summary = measured(&["net", "latency", &server.at, "--size", "64B", "--count", "500", "--json"]);
    let latency = &summary["points"][0]["metrics"]["latency.round_trip_seconds"];
    assert_eq!(latency["n"], 500);
    assert!((1e-6..0.01).contains(&latency["median"].as_f64().unwrap()), "{latency}");
}

/// What `weir net` says on left-0 of a server on right-0.
fn between_hosts(lab: &NamedLab, arguments: &[&str]) -> Value {
    let (status, summary) = settled(|| asked_between_hosts(lab, arguments), |(_, summary)| summary);
    assert_eq!(status, 0, "{summary:#}");
    summary
}

/// Likewise, with the exit status.
fn asked_between_hosts(lab: &NamedLab, arguments: &[&str]) -> (i32, Value) {
    let program = weir().get_program().to_str().unwrap().to_owned();
    let mut server = start(weir().args([
        "lab",
        "exec",
        lab.0,
        "right-0",
        "--",
        &program,
        "net",
        "serve",
        "--listen",
        "0.0.0.0:5301",
    ]));
    support::eventually("the server listens", Duration::from_secs(5), || {
        lab.exec("right-0", &["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5301"]).status == 0
    });
    let mut command = vec![program.as_str(), "net"];
    command.extend(arguments);
    command.extend(["right-0", "--json"]);
    let client = lab.exec("left-0", &command);
    let _ = server.kill();
    let _ = server.wait();
    let summary = serde_json::from_str(&client.stdout);
    (client.status, summary.unwrap_or_else(|_| panic!("{}{}", client.stdout, client.stderr)))
}

// Spec: net-protocol.md#keys-3
#[test]
fn no_server_on_a_host_of_a_lab_asks_for_a_key_and_clients_measure() {
    need_lab();
    let _turn = turn();
    let lab = NamedLab::up("t-keyless", &lab::over("rate = \"100Mbit/s\"\nrtt = \"1ms\""));
    let program = weir().get_program().to_str().unwrap().to_owned();
    let latency = between_hosts(&lab, &["latency", "--count", "20"]);
    assert_eq!(latency["points"][0]["metrics"]["latency.round_trip_seconds"]["n"], 20);
    let servers: [&[&str]; 3] = [
        &["net", "serve", "--listen", "[::]:5303"],
        &["net", "serve", "--protocol", "iperf3", "--listen", "10.64.0.2:5303"],
        &["event", "scheduler", "--listen", "0.0.0.0:5303"],
    ];
    for arguments in servers {
        let exec = ["lab", "exec", lab.0, "right-0", "--", &program];
        let mut server = start(weir().args(exec).args(arguments));
        support::eventually("it listens or has ended", Duration::from_secs(5), || {
            let listed = lab.exec("right-0", &["ss", "-Hltn", "sport = :5303"]).stdout;
            !listed.trim().is_empty() || server.try_wait().unwrap().is_some()
        });
        let early = server.try_wait().unwrap();
        let _ = server.kill();
        let said = ran(server.wait_with_output().unwrap()).stderr;
        assert_eq!(early, None, "{arguments:?}: {said}");
    }
}

// Spec: net-protocol.md#search-1
// Spec: net-protocol.md#search-3
#[test]
fn the_fewest_streams_and_the_smallest_window_that_fill_a_line_are_found() {
    need_lab();
    let _turn = light();
    let lab = NamedLab::up("t-search", &lab::over("rate = \"100Mbit/s\"\nrtt = \"20ms\""));
    let brief = ["stream", "--duration", "1500ms", "--warm-up", "500ms"];
    // Five times 21 Mbit/s are more than the line carries, also when a loss has cut one of them by 30 %; four are 89 % of it.
    let streams =
        between_hosts(&lab, &[&brief[..], &["--search", "streams", "--pacing", "21Mbit/s"]].concat());
    assert_eq!(answer(&streams)["streams"], 5, "{streams:#}");
    // 95 % of 94.15 Mbit/s over 20 ms are 224 kB.
    let window = between_hosts(&lab, &[&brief[..], &["--search", "window"]].concat());
    let text = answer(&window)["window"].as_str().unwrap();
    let bytes = Bytes::parse(text).unwrap().0;
    assert!((200_000..320_000).contains(&bytes), "{text}: {window:#}");
}

/// The parameters of the point that a search found to be enough.
fn answer(summary: &Value) -> &Value {
    let criterion = &summary["criteria"][0];
    assert_eq!(criterion["verdict"], "pass", "{summary:#}");
    let points = summary["points"].as_array().unwrap();
    &points.iter().find(|point| point["id"] == criterion["points"][0]).unwrap()["parameters"]
}

// Spec: net-protocol.md#search-5
#[test]
fn the_highest_rate_of_datagrams_that_a_line_carries_is_found() {
    need_lab();
    let _turn = light();
    // Few and large: a program that the machine takes off its core for some milliseconds misses no tick of these.
    let line = "rate = \"10Mbit/s\"\nrtt = \"2ms\"\nqueue = { bytes = \"20kB\" }";
    let lab = NamedLab::up("t-rate", &lab::over(line).replace("mtu = 1500", "mtu = 9000"));
    let asked = ["udp", "--size", "8900B", "--search", "rate", "--loss", "0.1%", "--duration", "1s"];
    let could_not_send = |summary: &Value| {
        summary["criteria"][0]["why"].as_str().is_some_and(|why| why.contains("could not send"))
    };
    // A machine that has too little time to send says so instead of an answer; whether it has is not what is tested.
    let rate = (0..5).map(|_| asked_between_hosts(&lab, &asked).1).find(|summary| !could_not_send(summary));
    let rate = rate.expect("this machine is too busy to send 10 Mbit/s for a second");
    let text = answer(&rate)["rate"].as_str().unwrap();
    let found = BitsPerSecond::parse(text).unwrap().as_f64();
    // 8900 of 8966 bytes are payload: 9.93 Mbit/s, the queue another 0.16 Mbit/s for a second.
    assert!((9.7e6..10.15e6).contains(&found), "{text}: {rate:#}");
}

// Spec: net-protocol.md#burst-8
#[test]
fn bursts_of_any_size_are_timed_one_by_one_in_bounded_memory() {
    let _turn = beside();
    let server = Server::begin(&[]);
    for reply in ["none", "ack", "echo"] {
        let summary = measured(&[
            "net",
            "burst",
            &server.at,
            "--sizes",
            "1B..10MB*1000",
            "--repetitions",
            "5",
            "--reply",
            reply,
            "--streams",
            "2",
            "--json",
        ]);
        let points = summary["points"].as_array().unwrap();
        let ids: Vec<&str> = points.iter().map(|point| point["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["burst/size=1B", "burst/size=1kB", "burst/size=1MB", "burst/size=10MB"]);
        let completions: Vec<&Value> =
            points.iter().map(|point| &point["metrics"]["burst.completion_seconds"]).collect();
        assert!(completions.iter().all(|completion| completion["n"] == 10), "{summary:#}");
        // Of ten; one that waited for a core says nothing of its size.
        let least = |at: usize| completions[at]["min"].as_f64().unwrap();
        assert!(0.0 < least(0) && least(0) < least(3), "{completions:?}");
    }
    let size = 1u64 << 30;
    let summary = measured(&[
        "net",
        "burst",
        &server.at,
        "--sizes",
        "1GiB",
        "--repetitions",
        "1",
        "--reply",
        "ack",
        "--json",
    ]);
    let completion = &summary["points"][0]["metrics"]["burst.completion_seconds"];
    assert!(completion["mean"].as_f64().unwrap() > size as f64 / 100e9, "{completion}");
    // Of the most it ever held: the burst itself would be a GiB.
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most_kib: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most_kib < 100 * 1024, "{most_kib} KiB");
    let refused = run(&["net", "burst", &server.at, "--sizes", "2kB..1kB"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("2kB..1kB"), "{}", refused.stderr);
}

#[test]
fn connections_are_made_and_closed_on_ports_of_their_own() {
    let _turn = beside();
    let server = Server::begin(&[]);
    for close in ["server", "client", "reset"] {
        let summary = measured(&[
            "net",
            "connect",
            &server.at,
            "--streams",
            "2",
            "--count",
            "200",
            "--close",
            close,
            "--json",
        ]);
        let metrics = &summary["points"][0]["metrics"];
        assert_eq!(metrics["connect.total_seconds"]["n"], 400, "{close}: {summary:#}");
        assert!(metrics["connect.per_second"]["mean"].as_f64().unwrap() > 100.0, "{close}: {summary:#}");
    }
    let summary = measured(&[
        "net",
        "burst",
        &server.at,
        "--sizes",
        "1kB",
        "--repetitions",
        "20",
        "--connection",
        "per-burst",
        "--json",
    ]);
    assert_eq!(summary["points"][0]["metrics"]["burst.connect_seconds"]["n"], 20, "{summary:#}");
}

#[test]
fn datagrams_are_paced_and_accounted_for() {
    let _turn = turn();
    let server = Server::begin(&[]);
    let summary = measured(&[
        "net",
        "udp",
        &server.at,
        "--rate",
        "5Mbit/s,20Mbit/s",
        "--duration",
        "1s",
        "--direction",
        "both",
        "--json",
    ]);
    for (point, rate) in summary["points"].as_array().unwrap().iter().zip([5e6, 20e6]) {
        let of = |metric: &str| point["metrics"][metric]["mean"].as_f64().unwrap();
        assert_eq!(point["metrics"]["udp.loss_ratio"]["n"], 2, "{point:#}");
        assert_eq!(of("udp.loss_ratio"), 0.0, "{point:#}");
        let kept = 1.0 - of("generator.missed_ratio");
        let goodput = of("udp.flow_goodput_bits_per_second");
        assert!((goodput / rate - kept).abs() < 0.05, "{goodput} {rate} {kept}");
    }
    let refused = run(&["net", "udp", &server.at, "--rate", "1Mbit/s", "--size", "10B"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("`size`"), "{}", refused.stderr);
}

#[test]
fn anyone_may_come_only_where_the_user_said_so() {
    let refused = run(&["net", "serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("--key-file") && refused.stderr.contains("--open"), "{}", refused.stderr);
    let folder = tempfile::tempdir().unwrap();
    let (key, other, short) =
        (folder.path().join("key"), folder.path().join("other"), folder.path().join("short"));
    fs::write(&key, [7u8; 32]).unwrap();
    fs::write(&other, [8u8; 32]).unwrap();
    fs::write(&short, [7u8; 15]).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    assert_eq!(run(&["net", "serve", "--listen", "127.0.0.1:0", "--key-file", &path(&short)]).status, 2);
    let server = Server::begin(&["--key-file", &path(&key)]);
    let measure = |more: &[&str]| {
        let mut arguments = vec!["net", "latency", server.at.as_str(), "--count", "10", "--json"];
        arguments.extend(more);
        run(&arguments)
    };
    assert_eq!(measure(&[]).status, 2, "without a key");
    assert_eq!(measure(&["--key-file", &path(&other)]).status, 2, "with another key");
    assert_eq!(measure(&["--key-file", &path(&key)]).status, 0, "with the key");
}

#[test]
fn a_port_in_use_and_a_host_that_is_not_there_are_errors_in_words() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let ran = run(&["net", "serve", "--listen", &at]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains(&at) && ran.stderr.contains("in use"), "{}", ran.stderr);
    drop(taken);
    let ran = run(&["net", "latency", &at, "--count", "10"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains(&at), "{}", ran.stderr);
}

#[test]
fn garbage_scanners_and_silent_peers_do_not_disturb_a_measurement() {
    let _turn = beside();
    let server = Server::begin(&[]);
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(&server.at).unwrap());
    }
    let garbage: [&[u8]; 5] =
        [b"GET / HTTP/1.0\r\n\r\n", &[0xff; 512], &[0; 512], b"WEIR", &[0, 0, 0, 0, 0, 0, 0, 0x80]];
    let disturbed = || {
        let child = start(weir().args(["net", "stream", &server.at, "--duration", "2s", "--json"]));
        for round in 0..200 {
            if let Ok(mut stream) = TcpStream::connect(&server.at) {
                let _ = stream.write_all(garbage[round % garbage.len()]);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let ran = ran(finish_within(child, Duration::from_secs(20)));
        assert!(!ran.stdout.is_empty(), "{}", ran.stderr);
        (support::summary_in(&ran.stdout), ran)
    };
    let (summary, ran) = settled(disturbed, |(summary, _)| summary);
    assert_eq!(ran.status, 0, "{}{summary:#}", ran.stderr);
    drop(silent);
    // And the next one is served as well.
    measured(&["net", "latency", &server.at, "--count", "10", "--json"]);
}

#[test]
fn a_server_that_is_told_to_end_ends() {
    let server = Server::begin(&[]);
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &server.child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let mut server = server;
    support::eventually("it ends", Duration::from_secs(5), || server.child.try_wait().unwrap().is_some());
}

#[test]
fn the_table_for_people_fits_eighty_columns() {
    let _turn = beside();
    let server = Server::begin(&[]);
    let child = start(weir().args(["net", "stream", &server.at, "--streams", "2", "--duration", "1s"]));
    let output = finish_within(child, Duration::from_secs(20));
    for line in BufReader::new(&output.stdout[..]).lines() {
        let line = line.unwrap();
        assert!(line.chars().count() <= 80, "{line}");
    }
}

// The rules are in docs/specs/net-protocol.md, Latency and Datagrams.
#[test]
fn latency_over_udp_and_in_an_open_loop_says_what_was_lost_and_how_late_the_generator_was() {
    let _turn = turn();
    let server = Server::begin(&[]);
    let at = &server.at;
    let more = ["--transport", "tcp,udp", "--rate", "500Hz", "--count", "400", "--json"];
    let summary = measured(&[&["net", "latency", at][..], &more[..]].concat());
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for (point, lossy) in points.iter().zip([false, true]) {
        let metrics = &point["metrics"];
        let answered = metrics["latency.round_trip_seconds"]["n"].as_u64().unwrap();
        assert!((1..=400).contains(&answered), "{point:#}");
        let lateness = metrics["generator.lateness_seconds"]["n"].as_u64().unwrap();
        assert!((answered..=400).contains(&lateness), "{point:#}");
        assert_eq!(metrics.get("latency.lost_ratio").is_some(), lossy, "{point:#}");
    }
}

#[test]
fn a_thousand_streams_from_the_command_line_are_one_measurement() {
    let _turn = alone();
    let server = Server::begin(&[]);
    let more = ["--streams", "1000", "--duration", "3s", "--warm-up", "1s", "--block", "32KiB", "--json"];
    let summary = measured(&[&["net", "stream", &server.at][..], &more[..]].concat());
    let metrics = &summary["points"][0]["metrics"];
    assert_eq!(metrics["stream.flow_goodput_bits_per_second"]["n"], 1000);
    assert!(metrics["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap() > 1e8, "{metrics:#}");
}

#[test]
fn a_slow_reader_is_as_slow_as_it_says_and_contradictions_are_errors_in_words() {
    let _turn = beside();
    let server = Server::begin(&[]);
    let at = server.at.as_str();
    let summary = measured(&[
        "net",
        "stream",
        at,
        "--duration",
        "2s",
        "--warm-up",
        "1s",
        "--read-rate",
        "40Mbit/s",
        "--block",
        "10kB",
        "--json",
    ]);
    let goodput = &summary["points"][0]["metrics"]["stream.total_goodput_bits_per_second"]["mean"];
    assert!((10e6..42e6).contains(&goodput.as_f64().unwrap()), "{summary:#}");
    for (arguments, word) in [
        (&["net", "latency", at, "--transport", "udp", "--size", "8B"][..], "`size`"),
        (&["net", "latency", at, "--transport", "udp", "--size", "70kB"], "`size`"),
        (&["net", "latency", at, "--transport", "udp", "--timeout", "5min"], "`timeout`"),
        (&["net", "latency", at, "--rate", "5MHz"], "`rate`"),
        (&["net", "latency", at, "--rate", "1"], "--rate"),
        (&["net", "stream", at, "--source-rate", "1kbit/s"], "`source_rate`"),
    ] {
        let ran = run(arguments);
        assert_eq!(ran.status, 2, "{arguments:?}");
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

// Spec: evidence.md#window-1
// Spec: net-protocol.md#ramp-2
#[test]
fn a_stream_over_an_unknown_path_says_what_was_in_flight_and_which_limit_it_met() {
    need_lab();
    let _turn = alone();
    let lab = NamedLab::up("t-audit", &lab::over("rate = \"100Mbit/s\"\nrtt = \"20ms\""));
    let brief = ["stream", "--duration", "1500ms", "--warm-up", "500ms"];
    let held = between_hosts(&lab, &[&brief[..], &["--window", "64KiB"]].concat());
    let factor = &held["points"][0]["limiting_factor"];
    assert_eq!(factor["name"], "receive-window", "{held:#}");
    let said = factor["evidence"].to_string();
    for words in [
        " was in flight, over a shortest round trip of 20",
        "(tcp.window)",
        "what held the flows was the receiver's window",
        "tcp.window = 65.54 kB is too small: leave it out, or ask for more",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let more = ["--streams", "2", "--ramp", "500ms", "--congestion", "reno+cubic", "--pacing", "10Mbit/s"];
    let ramped = between_hosts(&lab, &[&brief[..], &more].concat());
    let metrics = &ramped["points"][0]["metrics"];
    for part in ["ramp_goodput_bits_per_second@streams.2", "congestion_goodput_bits_per_second@reno"] {
        assert!(metrics[format!("stream.{part}")]["mean"].as_f64().unwrap() > 5e6, "{metrics:#}");
    }
    for (more, word) in [
        (&["--streams", "4", "--ramp", "500ms"][..], "the last of 4 streams starts after 1.5s"),
        (&["--congestion", "reno+cubic"], "2 `streams` or more"),
        (&["--streams", "2", "--congestion", "reno+"], "empty name"),
    ] {
        let refused = run(&[&["net"][..], &brief, more, &["127.0.0.1:1"]].concat());
        assert_eq!(refused.status, 2, "{more:?}");
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    let refused = run(&["net", "latency", "127.0.0.1:1", "--congestion", "reno+cubic"]);
    assert!(refused.status == 2 && refused.stderr.contains("is a mix"), "{}", refused.stderr);
}
