//! What may happen to a network measurement: each case ends with a reason in time, or goes on as if nothing had been.

use crate::support;
use crate::support::lab::{NamedLab, over};
use crate::support::{
    Ran, beside, eventually, finish_within, light, need_lab, ran, settled, start, turn, weir,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Each workload, and each way it goes that has code of its own, for longer than any case lasts.
const WORKLOADS: &[&[&str]] = &[
    &["stream", "--duration", "60s"],
    &["stream", "--duration", "60s", "--direction", "down", "--streams", "3"],
    &["latency", "--duration", "60s"],
    &["latency", "--duration", "60s", "--rate", "1kHz"],
    &["latency", "--duration", "60s", "--transport", "udp"],
    &["burst", "--sizes", "1MB", "--repetitions", "500000"],
    &["burst", "--sizes", "10MB", "--repetitions", "50000", "--reply", "echo"],
    &["burst", "--sizes", "1MB", "--repetitions", "50000", "--connection", "per-burst"],
    &["connect", "--duration", "60s"],
    &["udp", "--duration", "60s"],
    &["udp", "--duration", "60s", "--direction", "down"],
    &["path", "--train", "100000"],
];

struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn begin() -> Server {
        let at = format!("127.0.0.1:{}", support::free_port());
        let child = start(weir().args(["net", "serve", "--listen", &at]));
        eventually("the server listens", Duration::from_secs(10), || TcpStream::connect(&at).is_ok());
        Server { child, at }
    }
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn measure(workload: &[&str], at: &str) -> Child {
    start(weir().args(["net", workload[0], at, "--json"]).args(&workload[1..]))
}

#[test]
fn a_server_that_is_killed_in_mid_measurement_ends_every_workload_with_a_reason() {
    let _turn = beside();
    let mut running: Vec<(Server, Child)> = WORKLOADS
        .iter()
        .map(|workload| {
            let server = Server::begin();
            let client = measure(workload, &server.at);
            (server, client)
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    for (server, client) in &mut running {
        assert!(client.try_wait().unwrap().is_none(), "it ended by itself");
        server.kill();
    }
    for ((server, client), workload) in running.into_iter().zip(WORKLOADS) {
        let ran = ran(finish_within(client, Duration::from_secs(20)));
        // With figures of what this end measured until then, or without any.
        let expected = if ran.stdout.is_empty() { 2 } else { 3 };
        assert_eq!(ran.status, expected, "{workload:?}: {}", ran.stderr);
        let said = ran.stderr + &ran.stdout;
        assert!(said.contains(&server.at) && !said.contains("panicked"), "{workload:?}: {said}");
    }
}

/// Listens as another program does, until the test ends.
fn another_tool(behave: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || behave(stream));
        }
    });
    at
}

#[test]
fn a_server_of_another_tool_is_named_by_every_workload_within_its_time_out() {
    fn echo(mut stream: TcpStream) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..count]);
        }
    }
    fn greet(mut stream: TcpStream) {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    fn silent(mut stream: TcpStream) {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    type Tool = (&'static str, fn(TcpStream));
    let tools: [Tool; 4] = [("echo", echo), ("greet", greet), ("silent", silent), ("close", drop)];
    let mut running = Vec::new();
    for (tool, behave) in tools {
        for workload in WORKLOADS {
            let at = another_tool(behave);
            running.push((tool, workload, measure(workload, &at), at));
        }
    }
    for (tool, workload, client, at) in running {
        let ran = ran(finish_within(client, Duration::from_secs(40)));
        assert_eq!(ran.status, 2, "{tool} {workload:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(&at), "{tool} {workload:?}: {}", ran.stderr);
    }
}

/// What is judged of a measurement whose rate is given.
fn mean(summary: &Value, metric: &str) -> f64 {
    let value = &summary["points"][0]["metrics"][metric]["mean"];
    value.as_f64().unwrap_or_else(|| panic!("no {metric} in {summary:#}"))
}

fn summary_of(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Connections that their client resets as soon as they are there, as fast as it can, until told to end.
fn reset_storm(at: &str, over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(at) {
            if count % 2 == 0 {
                let _ = stream.write_all(b"weirnet\n");
            }
            let _ = weir_sys::socket::reset_on_close(stream.as_fd());
            count += 1;
        }
        // A storm, but not one that takes the whole core that the measurement runs on.
        if count % 50 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    count
}

// Spec: net-protocol.md#sessions-4
#[test]
fn a_thousand_abusive_connections_and_a_storm_of_resets_move_a_paced_measurement_by_less_than_two_percent() {
    let _turn = turn();
    let server = Server::begin();
    let stream =
        ["stream", "--duration", "4s", "--warm-up", "1s", "--source-rate", "20Mbit/s", "--block", "10kB"];
    let datagrams = ["udp", "--duration", "4s", "--warm-up", "1s", "--rate", "5Mbit/s"];
    let figure = |workload: &[&str]| {
        let ran = ran(finish_within(measure(workload, &server.at), Duration::from_secs(40)));
        mean(&summary_of(&ran), &format!("{}.total_goodput_bits_per_second", workload[0]))
    };
    let mut moved = Vec::new();
    // A machine that stands still by itself moves the figures too, and so do other tests: three tries, the later ones alone.
    for round in 0..3 {
        if round > 0 {
            support::take_all();
        }
        let calm = [figure(&stream), figure(&datagrams)];
        let garbage: [&[u8]; 4] = [b"", b"GET / HTTP/1.0\r\n\r\n", b"weirnet\n", &[0xff; 300]];
        let held: Vec<TcpStream> = (0..1_000)
            .filter_map(|number| {
                let mut stream = TcpStream::connect(&server.at).ok()?;
                let _ = stream.write_all(garbage[number % garbage.len()]);
                Some(stream)
            })
            .collect();
        assert_eq!(held.len(), 1_000);
        let over = AtomicBool::new(false);
        let (abused, resets) = std::thread::scope(|scope| {
            let storm = scope.spawn(|| reset_storm(&server.at, &over));
            let abused = [figure(&stream), figure(&datagrams)];
            over.store(true, Ordering::Relaxed);
            (abused, storm.join().unwrap())
        });
        assert!(resets > 1_000, "{resets} resets");
        moved = calm.iter().zip(abused).map(|(calm, abused)| (abused / calm - 1.0).abs()).collect();
        if moved.iter().all(|moved| *moved < 0.02) {
            return;
        }
        eprintln!("moved by {moved:?}");
    }
    panic!("moved by {moved:?}");
}

/// A server on right-0 of a lab, whatever its addresses.
fn serve(lab: &NamedLab) -> Child {
    let program = weir().get_program().to_str().unwrap().to_owned();
    let exec = ["lab", "exec", lab.0, "right-0", "--", &program, "net", "serve", "--listen", "[::]:5301"];
    let server = start(weir().args(exec));
    eventually("the server listens", Duration::from_secs(10), || {
        lab.exec("right-0", &["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5301"]).status == 0
    });
    server
}

/// `weir net` on left-0.
fn net(lab: &NamedLab, arguments: &[&str]) -> Child {
    let program = weir().get_program().to_str().unwrap().to_owned();
    start(weir().args(["lab", "exec", lab.0, "left-0", "--", &program, "net"]).args(arguments))
}

fn as_root(lab: &NamedLab, script: &str) -> Ran {
    support::run(&["lab", "exec", "--root", lab.0, "left-0", "--", "bash", "-c", script])
}

#[test]
fn an_interface_that_goes_down_and_comes_up_is_a_stall_and_not_the_end() {
    need_lab();
    let _turn = light();
    let lab = NamedLab::up("t-updown", &over("rate = \"100Mbit/s\"\nrtt = \"2ms\""));
    let mut server = serve(&lab);
    for direction in ["up", "down"] {
        let disturbed = || {
            let measure = ["stream", "right-0", "--duration", "5s", "--direction", direction, "--json"];
            let client = net(&lab, &measure);
            std::thread::sleep(Duration::from_secs(2));
            // What has been sent to an address by this route goes again by the next one.
            let script =
                "ip link set eth0 down; sleep 1.2; ip link set eth0 up; ip route replace default dev eth0";
            let down = as_root(&lab, script);
            assert_eq!(down.status, 0, "{}", down.stderr);
            let ran = ran(finish_within(client, Duration::from_secs(90)));
            (
                serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr)),
                ran,
            )
        };
        let (summary, ran): (Value, Ran) = settled(disturbed, |(summary, _)| summary);
        assert_eq!(ran.status, 0, "{summary:#}");
        let metrics = &summary["points"][0]["metrics"];
        let stalled = metrics["stream.stalled_seconds"]["max"].as_f64().unwrap();
        assert!((1.1..4.5).contains(&stalled), "{stalled}: {summary:#}");
        assert!(mean(&summary, "stream.total_goodput_bits_per_second") > 10e6, "{summary:#}");
    }
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn a_host_without_ports_left_says_so_and_in_time_in_every_workload_that_needs_many() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-ports", &over("rate = \"1Gbit/s\"\nrtt = \"1ms\""));
    let mut server = serve(&lab);
    for (range, (workload, status)) in [
        (&["stream", "--streams", "100", "--duration", "1s"][..], 2),
        (&["udp", "--streams", "100", "--duration", "1s"], 2),
        (&["connect", "--count", "500", "--close", "client"], 3),
        (&["burst", "--sizes", "1kB", "--repetitions", "500", "--connection", "per-burst"], 3),
    ]
    .into_iter()
    .enumerate()
    {
        // Ports of its own for each: those of the workload before may be in TIME-WAIT still.
        let (first, last) = (40_000 + 100 * range, 40_039 + 100 * range);
        let narrow = as_root(&lab, &format!("sysctl -qw net.ipv4.ip_local_port_range='{first} {last}'"));
        assert_eq!(narrow.status, 0, "{}", narrow.stderr);
        let words = ["no local port is left", &format!("net.ipv4.ip_local_port_range is {first} to {last}")];
        let began = Instant::now();
        let client = net(&lab, &[&workload[..1], &["right-0", "--json"], &workload[1..]].concat());
        let ran = ran(finish_within(client, Duration::from_secs(60)));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.status, status, "{workload:?}: {said}");
        for words in words {
            assert!(said.contains(words), "{workload:?}: {said}");
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{workload:?} took {:?}", began.elapsed());
    }
    let _ = server.kill();
    let _ = server.wait();
}

/// The site right is a switch, which cannot say that the link before it takes less than its hosts' own: what they send vanishes.
const BLACK_HOLE: &str = "rate = \"1Gbit/s\"\nrtt = \"1ms\"\nmtu = 1400";

#[test]
fn a_black_holed_path_ends_workloads_with_a_reason_that_comes_through() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-hole-net", &over(BLACK_HOLE));
    let mut server = serve(&lab);
    let running: Vec<(&str, Child)> = [
        (&["stream", "--duration", "2s"][..], "nothing was received"),
        (&["stream", "--duration", "2s", "--direction", "down"], "nothing was received"),
        (&["latency", "--size", "10kB", "--count", "10"], "silent for 30s"),
    ]
    .into_iter()
    .map(|(workload, reason)| {
        let arguments = [&workload[..1], &["right-0", "--json"], &workload[1..]].concat();
        (reason, net(&lab, &arguments))
    })
    .collect();
    // Small packets pass meanwhile.
    let small = net(&lab, &["latency", "right-0", "--count", "10", "--json"]);
    assert_eq!(ran(finish_within(small, Duration::from_secs(20))).status, 0);
    for (reason, client) in running {
        let ran = ran(finish_within(client, Duration::from_secs(60)));
        assert_eq!(ran.status, 3, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(reason), "{reason}: {}", ran.stdout);
    }
    let _ = server.kill();
    let _ = server.wait();
}
