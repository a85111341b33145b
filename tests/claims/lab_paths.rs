//! `weir lab`: paths over routers as foreign programs see them.

use crate::support::lab::{NamedLab, two_sites};
use crate::support::{beside, finish_within, need_lab, ran, start, weir};
use std::time::Duration;

/// left - one - two - right, 2 ms one way each link; what the link between the routers has is a parameter.
fn through_two_routers(middle: &str, replies: bool) -> String {
    let rest = format!(
        r#"
[[lab.router]]
name = "one"
replies = {replies}
[[lab.router]]
name = "two"
replies = {replies}
[[lab.link]]
name = "west"
between = ["left", "one"]
rate = "1Gbit/s"
delay = "2ms"
[[lab.link]]
name = "middle"
between = ["one", "two"]
rate = "1Gbit/s"
delay = "2ms"
{middle}
[[lab.link]]
name = "east"
between = ["two", "right"]
rate = "1Gbit/s"
delay = "2ms"
"#
    );
    two_sites(["", ""], &rest)
}

/// The words of the line that begins with this hop's number.
fn hop(text: &str, number: u32) -> Vec<&str> {
    let number = number.to_string();
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&number));
    line.unwrap_or_else(|| panic!("no hop {number} in {text}")).split_whitespace().collect()
}

// Spec: lab.md#lab-18, lab.md#lab-19
#[test]
fn traceroute_shows_both_routers_and_the_host_at_their_distances_over_both_versions() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-trace", &through_two_routers("", true));
    for (family, target, routers, host) in [
        ("-4", "right-0", ["10.127.0.3", "10.127.0.4"], "10.64.0.2"),
        ("-6", "right-0.v6", ["fd77:6569:7200::1:3", "fd77:6569:7200::1:4"], "fd77:6569:7200::2"),
    ] {
        let trace = lab.exec("left-0", &["traceroute", family, "-n", "-q", "5", "-w", "3", target]);
        assert_eq!(trace.status, 0, "{}{}", trace.stdout, trace.stderr);
        for (number, (address, least_ms)) in
            [(routers[0], 4.04), (routers[1], 8.04), (host, 12.08)].into_iter().enumerate()
        {
            let words = hop(&trace.stdout, number as u32 + 1);
            assert_eq!(words[1], address, "{}", trace.stdout);
            // Of five; probes that waited for a core took longer.
            let times = words[2..].iter().filter_map(|word| word.parse().ok());
            let ms = times.fold(f64::INFINITY, f64::min);
            assert!(
                (least_ms..least_ms + 1.5).contains(&ms),
                "{ms} ms to hop {}: {}",
                number + 1,
                trace.stdout
            );
        }
        assert_eq!(trace.stdout.lines().count(), 4, "three hops: {}", trace.stdout);
    }
    let named = lab.exec("left-0", &["traceroute", "-q", "1", "-w", "3", "right-0"]).stdout;
    assert_eq!((hop(&named, 1)[1], hop(&named, 2)[1]), ("one", "two"), "routers have names: {named}");
    let far = lab.exec("left-0", &["ping", "-c", "1", "-t", "3", "right-0"]);
    assert!(far.stdout.contains("ttl=62"), "{}", far.stdout);
}

/// One line of ping's for each echo that came back: `64 bytes from 10.127.0.3: icmp_seq=1 ttl=64 time=4.21 ms`.
fn echoes(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("icmp_seq=") && line.contains("time=")).collect()
}

// Spec: lab.md#lab-25
#[test]
fn the_routers_that_traceroute_shows_answer_pings_from_either_side_and_silent_ones_do_not() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-echo", &through_two_routers("", true));
    for (family, target, names) in
        [("-4", "right-0", ["one", "two"]), ("-6", "right-0.v6", ["one.v6", "two.v6"])]
    {
        let trace = lab.exec("left-0", &["traceroute", family, "-n", "-q", "1", "-w", "3", target]);
        for (number, (name, least_ms)) in names.into_iter().zip([4.04, 8.04]).enumerate() {
            let address = hop(&trace.stdout, number as u32 + 1)[1];
            // The pattern is compared by ping: data that came back otherwise is said.
            let ping = ["ping", family, "-c", "10", "-i", "0.05", "-s", "1000", "-p", "c0ffee"];
            let by_address = lab.exec("left-0", &[&ping[..], &["-n", address]].concat());
            assert_eq!(by_address.status, 0, "{}{}", by_address.stdout, by_address.stderr);
            let echoes = echoes(&by_address.stdout);
            let ttl = format!("ttl={}", 64 - number);
            assert_eq!(echoes.len(), 10, "{}", by_address.stdout);
            for echo in &echoes {
                assert!(
                    echo.contains(address) && echo.contains(&ttl) && echo.contains("1008 bytes"),
                    "{echo}"
                );
            }
            assert!(!by_address.stdout.contains("wrong"), "{}", by_address.stdout);
            let ms = |echo: &&str| echo.split("time=").nth(1)?.split(' ').next()?.parse().ok();
            let least = echoes.iter().filter_map(ms).fold(f64::INFINITY, f64::min);
            assert!((least_ms..least_ms + 0.5).contains(&least), "{least} ms to {name}: {echoes:?}");
            let by_name = lab.exec("left-0", &["ping", "-c", "1", "-W", "3", name]);
            assert_eq!(by_name.status, 0, "{name}: {}{}", by_name.stdout, by_name.stderr);
        }
    }
    let far_side = lab.exec("right-0", &["ping", "-c", "1", "one"]);
    assert!(far_side.stdout.contains("ttl=63"), "one more router is on the way: {}", far_side.stdout);
    let short = lab.exec("left-0", &["ping", "-c", "1", "-W", "3", "-t", "1", "two"]);
    assert!(short.stdout.contains("Time to live exceeded"), "{}", short.stdout);
    drop(lab);
    let silent = NamedLab::up("t-echoless", &through_two_routers("", false));
    for name in ["one", "two", "one.v6"] {
        let ping = silent.exec("left-0", &["ping", "-c", "2", "-i", "0.1", "-W", "1", name]);
        assert!(ping.stdout.contains("100% packet loss"), "{name}: {}", ping.stdout);
    }
    assert_eq!(silent.exec("left-0", &["ping", "-c", "1", "right-0"]).status, 0, "they forward all the same");
}

/// Megabits per second that iperf3 carried from left-0 to right-0 in three seconds; `None` if it did not get through.
fn iperf(lab: &NamedLab, to: &str, name: &str) -> Option<f64> {
    let server =
        start(weir().args(["lab", "exec", name, "right-0", "--", "timeout", "20", "iperf3", "-s", "-1"]));
    std::thread::sleep(Duration::from_millis(500));
    let command = ["timeout", "8", "iperf3", "-c", to, "-t", "3", "-C", "cubic", "-J"];
    let client = lab.exec("left-0", &command);
    // A server whom nobody reached waits on. One that is through has ended.
    let _ = std::process::Command::new("kill").arg(server.id().to_string()).output();
    finish_within(server, Duration::from_secs(25));
    let report: serde_json::Value = serde_json::from_str(&client.stdout).ok()?;
    Some(report["end"]["sum_received"]["bits_per_second"].as_f64()? / 1e6)
}

// Spec: lab.md#lab-19
#[test]
fn a_path_mtu_is_found_where_routers_answer_and_a_black_hole_where_they_do_not() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-mtu", &through_two_routers("mtu = 1300", true));
    for target in ["right-0", "right-0.v6"] {
        let path = lab.exec("left-0", &["tracepath", "-n", target]);
        assert!(
            path.stdout.contains("pmtu 1300") && path.stdout.contains("hops 3"),
            "{target}: {}",
            path.stdout
        );
        let carried = iperf(&lab, target, "t-mtu").unwrap();
        assert!(carried > 300.0, "{carried} Mbit/s to {target}");
    }
    drop(lab);
    let hole = NamedLab::up("t-hole", &through_two_routers("mtu = 1300", false));
    assert_eq!(
        hole.exec("left-0", &["ping", "-c", "2", "-i", "0.1", "right-0"]).status,
        0,
        "small packets pass"
    );
    assert_ne!(
        hole.exec("left-0", &["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1400", "right-0"]).status,
        0
    );
    let carried = iperf(&hole, "right-0", "t-hole").unwrap_or(0.0);
    assert!(carried < 1.0, "{carried} Mbit/s through a black hole");
    // The network engineer's repair: segments that fit.
    let mended = hole.exec("left-0", &["ping", "-c", "1", "-M", "do", "-s", "1272", "right-0"]);
    assert_eq!(mended.status, 0, "{}", mended.stdout);
}

// Spec: fabric.md#fabric-4
#[test]
fn fixed_routes_make_there_and_back_take_different_ways() {
    need_lab();
    let _turn = beside();
    let links = r#"
[[lab.link]]
name = "north"
between = ["left", "right"]
rate = "1Gbit/s"
delay = "20ms"
[[lab.link]]
name = "south"
between = ["left", "right"]
rate = "1Gbit/s"
delay = "5ms"
"#;
    let routes = ["routes = { right = \"north\" }", "routes = { left = \"south\" }"];
    let lab = NamedLab::up("t-asymmetric", &two_sites(routes, links));
    let capture = start(weir().args([
        "lab",
        "capture",
        "t-asymmetric",
        "link.north.forward",
        "link.south.backward",
        "--count",
        "6",
        "--duration",
        "20s",
    ]));
    std::thread::sleep(Duration::from_millis(500));
    let ping = lab.exec("left-0", &["ping", "-c", "3", "-i", "0.1", "right-0"]);
    let least: f64 =
        ping.stdout.split("min/avg/max/mdev = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    assert!((25.0..26.5).contains(&least), "20 ms there and 5 ms back: {}", ping.stdout);
    let captured = ran(finish_within(capture, Duration::from_secs(25)));
    assert_eq!(
        (captured.status, captured.stderr.lines().last()),
        (0, Some("6 packets")),
        "{}",
        captured.stderr
    );
}
