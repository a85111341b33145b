//! What is compared, in which order, and against which bound.

use super::Settings;
use super::place::{self, Place};
use super::process::{self, Line};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::tools::{BLOCK, LARGE_BLOCK};
use super::{events, fabric, rattan, spread, storage, tools, watch, workloads};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub struct Group {
    /// Part of the file's name.
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Settings) -> Result<Outcome, String>,
}

pub static GROUPS: &[Group] = &[
    Group {
        name: "stream-loopback",
        about: "`weir net stream` against iperf3 on loopback, 128 KiB blocks, cubic",
        run: |settings| streams(settings, || Ok(place::loopback())),
    },
    Group {
        name: "stream-veth",
        about: "`weir net stream` against iperf3 over a veth pair between two namespaces, 128 KiB blocks, cubic",
        run: |settings| streams(settings, place::veth),
    },
    Group {
        name: "latency",
        about: "`weir net latency` against sockperf ping-pong, TCP, 64 B, both ends on one CPU",
        run: latency,
    },
    Group {
        name: "streams",
        about: "`weir net stream` against neper on loopback, 1 to 1,000 flows, and with the payload discarded",
        run: workloads::streams,
    },
    Group {
        name: "connect",
        about: "`weir net connect` against neper's tcp_crr, both ends on one CPU",
        run: workloads::connect,
    },
    Group {
        name: "udp",
        about: "Datagrams received a second: `weir net udp` against iperf3 and sockperf",
        run: workloads::udp,
    },
    Group {
        name: "burst",
        about: "A burst of 1 B against a bare loop of send and receive, both ends on one CPU",
        run: workloads::burst,
    },
    Group {
        name: "events-zeromq",
        about: "Event building against the same over ZeroMQ push/pull, 2 sources and 2 builders, 256 B to 64 KiB",
        run: events::beside_zeromq,
    },
    Group {
        name: "events-streams",
        about: "Event building against as many plain streams, and heartbeats a second through the scheduler's process",
        run: events::beside_streams,
    },
    Group {
        name: "fabric",
        about: "TCP goodput through a lab's 10 Gbit/s link of 0.54 ms, 1 MiB blocks, cubic",
        run: goodput,
    },
    Group {
        name: "series",
        about: "Goodput and CPU of 16 flows with a series of 1 ms against one of 100 ms",
        run: series,
    },
    Group {
        name: "watch",
        about: "`weir net watch` of one paced flow at 10 ms against the same flow without samples: disk and CPU",
        run: watch::cost,
    },
    Group {
        name: "split",
        about: "Single segments through one link: one flow, and 32 hosts on one trunk",
        run: fabric::split,
    },
    Group {
        name: "lateness",
        about: "How late the fabric delivers single packets at 10,000, 50,000 and 100,000 packets/s",
        run: fabric::lateness,
    },
    Group {
        name: "rattan",
        about: "TCP goodput through weir's lab against the rattan emulator, the same link, one stream of iperf3",
        run: rattan::beside,
    },
    Group {
        name: "start-spread",
        about: "First to last start of the agents of a step, from the run's record",
        run: spread::starts,
    },
    Group {
        name: "storage-files",
        about: "`weir io` against fio on a file of this machine, by pread and by io_uring",
        run: storage::files,
    },
    Group {
        name: "storage-xrootd",
        about: "`weir io seq root://` against xrdcp, a file of 1 GiB on loopback",
        run: storage::xrootd_reads,
    },
    Group {
        name: "storage-xrootd-random",
        about: "`weir io random root://` against XRootD's C++ client, 1,000 reads of 8 KiB under way on loopback",
        run: storage::xrootd_random,
    },
    Group {
        name: "storage-objects",
        about: "Ranged reads of an S3 server on loopback, 2,000 under way from one thread",
        run: storage::objects,
    },
    Group {
        name: "storage-bursts",
        about: "`weir io burst` against IOR on this machine",
        run: storage::bursts,
    },
    Group { name: "ready", about: "`weir lab up` of services until they serve", run: ready },
    Group { name: "small", about: "Start-up time, size, lab of 33 hosts, idle fabric", run: small },
];

const PORT_FIRST: u16 = 21000;
const PORT_COUNT: u16 = 4000;
const STREAM_ROUNDS: usize = 20;
pub const ROUNDS: usize = 10;

/// What one run of one tool gave.
#[derive(Clone, Copy)]
struct Stream {
    goodput_bits_per_second: f64,
    /// Both ends, user and system, per 10⁹ bytes of payload.
    cpu_seconds_per_gigabyte: f64,
}

pub fn limit(settings: &Settings) -> Duration {
    settings.duration + Duration::from_secs(30)
}

/// Another port for each server: sockperf cannot take one on which connections of the server before linger.
pub fn next_port() -> u16 {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    PORT_FIRST + NUMBER.fetch_add(1, Ordering::Relaxed) % PORT_COUNT
}

/// Keeps a command line once, whatever its port and wherever its key.
pub fn remember(outcome: &mut Outcome, line: &Line, port: u16) {
    let data_port = (port + tools::NEPER_DATA_PORTS).to_string();
    let mut line = line.clone();
    for at in 1..line.len() {
        if line[at - 1] == "--key-file" {
            line[at] = "KEY".to_owned();
        }
    }
    let text = line.join(" ").replace(&port.to_string(), "PORT").replace(&data_port, "DATA-PORT");
    if !outcome.commands.contains(&text) {
        outcome.commands.push(text);
    }
}

/// The order of the arms in round `round`: A B C, then C B A, so that a drift of the machine favours none.
pub fn interleaved(round: usize, arms: usize) -> Vec<usize> {
    let forward = 0..arms;
    if round.is_multiple_of(2) { forward.collect() } else { forward.rev().collect() }
}

fn streams(settings: &Settings, open: impl Fn() -> Result<Place, String>) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    outcome.notes.push("Each round starts and stops both servers. CPU is user and system time of both ends, start-up included.".to_owned());
    outcome.notes.push("The arm `iperf3 again` is iperf3 against itself: what its interval leaves open nobody can tell apart here.".to_owned());
    let place = open()?;
    for flows in [1, 4, 16] {
        // iperf3, weir, iperf3 again.
        let mut arms: [Vec<Stream>; 3] = Default::default();
        for round in 0..settings.rounds(STREAM_ROUNDS) {
            for arm in interleaved(round, 3) {
                let result = if arm == 1 {
                    weir_stream(settings, &place, flows, None, &mut outcome)
                } else {
                    iperf3_stream(settings, &place, flows, &mut outcome)
                };
                arms[arm].push(result.map_err(|problem| format!("round {round}, {flows} flows: {problem}"))?);
            }
        }
        let plural = tools::flows(flows);
        type Figure = fn(&Stream) -> f64;
        let figures: [(&str, Figure, Bound); 2] = [
            ("goodput", |stream| stream.goodput_bits_per_second, Bound::AtLeast(0.97)),
            ("CPU per gigabyte", |stream| stream.cpu_seconds_per_gigabyte, Bound::AtMost(1.05)),
        ];
        for (name, figure, bound) in figures {
            let [peer, ours, again] =
                [0, 1, 2].map(|arm: usize| arms[arm].iter().map(figure).collect::<Vec<f64>>());
            outcome.rows.push(ratio(
                format!("{name}, {plural}, weir / iperf3"),
                bound,
                ("weir", &ours),
                ("iperf3", &peer),
            ));
            outcome.rows.push(ratio(
                format!("{name}, {plural}, iperf3 again / iperf3"),
                Bound::None,
                ("iperf3 again", &again),
                ("iperf3", &peer),
            ));
        }
    }
    Ok(outcome)
}

pub fn ratio(name: String, bound: Bound, over: (&str, &[f64]), under: (&str, &[f64])) -> Row {
    let values = over.1.iter().zip(under.1).map(|(over, under)| over / under).collect();
    let arms = vec![(over.0.to_owned(), over.1.to_vec()), (under.0.to_owned(), under.1.to_vec())];
    Row { name, unit: "ratio", bound, values, arms }
}

fn stream(settings: &Settings, goodput_bits_per_second: f64, cpu_seconds: f64) -> Stream {
    // The same whole seconds are asked of both tools.
    let gigabytes = goodput_bits_per_second / 8.0 * settings.duration.as_secs().max(1) as f64 / 1e9;
    Stream { goodput_bits_per_second, cpu_seconds_per_gigabyte: cpu_seconds / gigabytes }
}

fn iperf3_stream(
    settings: &Settings,
    place: &Place,
    flows: usize,
    outcome: &mut Outcome,
) -> Result<Stream, String> {
    let port = next_port();
    let serve = place.at_server(tools::iperf3_serve(settings, port, true));
    let load = place.at_client(tools::iperf3_stream(settings, &place.server, port, flows, BLOCK));
    remember(outcome, &serve, port);
    remember(outcome, &load, port);
    let mut server = process::start(&settings.scratch, &serve)?;
    server.listening(port)?;
    let client = process::finish(&settings.scratch, &load, limit(settings))?;
    let goodput = tools::iperf3_goodput(&client.stdout)?;
    let server = server.wait(Duration::from_secs(10), true)?;
    Ok(stream(settings, goodput, client.cpu_seconds + server.cpu_seconds))
}

fn weir_stream(
    settings: &Settings,
    place: &Place,
    flows: usize,
    interval: Option<&str>,
    outcome: &mut Outcome,
) -> Result<Stream, String> {
    let port = next_port();
    let serve = place.at_server(tools::weir_serve(settings, &place.listen, port));
    let load = place.at_client(tools::weir_stream(settings, &place.server, port, flows, BLOCK, interval));
    remember(outcome, &serve, port);
    remember(outcome, &load, port);
    let mut server = process::start(&settings.scratch, &serve)?;
    server.listening(port)?;
    let client = process::finish(&settings.scratch, &load, limit(settings))?;
    let goodput = tools::weir_goodput(&client.stdout)?;
    let server = server.stop(Duration::from_secs(10))?;
    Ok(stream(settings, goodput, client.cpu_seconds + server.cpu_seconds))
}

fn latency(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    // About as long as sockperf's run on a machine of 15 µs; the first run of weir says how many that really is.
    let mut count = 50_000;
    let mut arms: [Vec<(f64, f64)>; 3] = Default::default();
    for round in 0..settings.rounds(STREAM_ROUNDS) {
        for arm in interleaved(round, 3) {
            let port = next_port();
            let (serve, load) = if arm == 1 {
                (tools::weir_serve(settings, "127.0.0.1", port), tools::weir_latency(settings, port, count))
            } else {
                (tools::sockperf_serve(port), tools::sockperf_latency(settings, port))
            };
            let (serve, load) = (tools::pinned(serve), tools::pinned(load));
            let mut server = process::start(&settings.scratch, &serve)?;
            server.listening(port)?;
            let client = process::finish(&settings.scratch, &load, limit(settings))?;
            server.stop(Duration::from_secs(10))?;
            let found = if arm == 1 {
                tools::weir_round_trip(&client.stdout)
            } else {
                tools::sockperf_round_trip(&client.stdout)
            };
            let (median, p99) = found.map_err(|problem| format!("round {round}: {problem}"))?;
            if arms[arm].is_empty() && arm != 1 && arms[1].is_empty() {
                count = ((settings.duration.as_secs_f64() / median) as u64).clamp(1_000, 5_000_000);
            }
            remember(&mut outcome, &serve, port);
            remember(&mut outcome, &load, port);
            arms[arm].push((median, p99));
        }
    }
    type Figure = fn(&(f64, f64)) -> f64;
    let figures: [(&str, Figure); 2] = [("median", |both| both.0), ("99 %", |both| both.1)];
    for (name, figure) in figures {
        let [peer, ours, again] =
            [0, 1, 2].map(|arm: usize| arms[arm].iter().map(figure).collect::<Vec<f64>>());
        let bound = Bound::AtMost(1.05);
        outcome.rows.push(ratio(
            format!("round trip, {name}, weir / sockperf"),
            bound,
            ("weir", &ours),
            ("sockperf", &peer),
        ));
        let name = format!("round trip, {name}, sockperf again / sockperf");
        outcome.rows.push(ratio(name, Bound::None, ("sockperf again", &again), ("sockperf", &peer)));
    }
    Ok(outcome)
}

fn goodput(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (file, mtu, least) in [("fabric-9000.toml", 9000, 9.5e9), ("fabric-1500.toml", 1500, 5e9)] {
        let place = place::lab(settings, file, "right-0", "left-0")?;
        outcome.commands.push(format!("weir lab up bench/labs/{file} --name NAME"));
        let ports = [next_port(), next_port()];
        let serve = [
            place.at_server(tools::weir_serve(settings, &place.listen, ports[0])),
            place.at_server(tools::iperf3_serve(settings, ports[1], false)),
        ];
        let mut servers = Vec::new();
        for (line, port) in serve.iter().zip(ports) {
            let mut server = process::start(&settings.scratch, line)?;
            server.listening(port)?;
            servers.push(server);
            remember(&mut outcome, line, port);
        }
        let load = [
            place.at_client(tools::weir_stream(settings, &place.server, ports[0], 1, LARGE_BLOCK, None)),
            place.at_client(tools::iperf3_stream(settings, &place.server, ports[1], 1, LARGE_BLOCK)),
        ];
        load.iter().zip(ports).for_each(|(line, port)| remember(&mut outcome, line, port));
        let mut arms: [Vec<f64>; 2] = Default::default();
        for round in 0..settings.rounds(ROUNDS) {
            for arm in interleaved(round, 2) {
                let client = process::finish(&settings.scratch, &load[arm], limit(settings))?;
                let found = if arm == 0 {
                    tools::weir_goodput(&client.stdout)
                } else {
                    tools::iperf3_goodput(&client.stdout)
                };
                arms[arm].push(found.map_err(|problem| format!("{file}, round {round}: {problem}"))?);
            }
        }
        for (name, values) in ["weir", "iperf3"].into_iter().zip(&arms) {
            let name = format!("goodput at MTU {mtu}, one stream of {name}");
            outcome.rows.push(Row {
                name,
                unit: "bit/s",
                bound: Bound::AtLeast(least),
                values: values.clone(),
                arms: vec![],
            });
        }
        drop(servers);
        drop(place);
    }
    outcome.notes.push("Start-up included: neither tool leaves the first second out.".to_owned());
    Ok(outcome)
}

/// Each round is 1 ms, 100 ms, 100 ms, 1 ms or the other way round, and gives one ratio of sums: what drifts evenly over a round
/// cancels, and how the machine happened to place two times two threads is averaged before it is divided.
fn series(settings: &Settings) -> Result<Outcome, String> {
    const INTERVALS: [&str; 2] = ["100ms", "1ms"];
    let mut outcome = Outcome::default();
    let place = place::loopback();
    let mut arms: [Vec<Stream>; 2] = Default::default();
    for round in 0..settings.rounds(STREAM_ROUNDS) {
        let mut sums = [Stream { goodput_bits_per_second: 0.0, cpu_seconds_per_gigabyte: 0.0 }; 2];
        for arm in [interleaved(round, 2), interleaved(round + 1, 2)].concat() {
            let found = weir_stream(settings, &place, 16, Some(INTERVALS[arm]), &mut outcome)
                .map_err(|problem| format!("round {round}: {problem}"))?;
            sums[arm].goodput_bits_per_second += found.goodput_bits_per_second / 2.0;
            sums[arm].cpu_seconds_per_gigabyte += found.cpu_seconds_per_gigabyte / 2.0;
        }
        (0..2).for_each(|arm| arms[arm].push(sums[arm]));
    }
    type Figure = fn(&Stream) -> f64;
    let figures: [(&str, Figure, Bound); 2] = [
        ("goodput", |stream| stream.goodput_bits_per_second, Bound::AtLeast(0.99)),
        ("CPU per gigabyte", |stream| stream.cpu_seconds_per_gigabyte, Bound::AtMost(1.01)),
    ];
    for (name, figure, bound) in figures {
        let [coarse, fine] = [0, 1].map(|arm: usize| arms[arm].iter().map(figure).collect::<Vec<f64>>());
        let name = format!("{name}, 16 flows, series of 1 ms / 100 ms");
        outcome.rows.push(ratio(name, bound, ("1 ms", &fine), ("100 ms", &coarse)));
    }
    outcome.notes.push("A round is four runs (A B B A) and one ratio: the mean of both runs of 1 ms over that of both of 100 ms.".to_owned());
    Ok(outcome)
}

/// Labs with services, and the seconds after which they serve at the latest.
const READY: &[(&str, &str, f64)] = &[
    ("ready-xrootd-7", "a manager and six XRootD servers with disks", 20.0),
    ("ready-xrootd-1", "one XRootD server", 3.0),
    ("ready-webdav", "nginx", 3.0),
    ("ready-s3", "versitygw", 3.0),
    ("ready-glusterfs", "GlusterFS of three servers with disks, mounted", 15.0),
];

fn ready(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let name = format!("bench-{}", std::process::id());
    let mut seconds = vec![Vec::new(); READY.len()];
    for _ in 0..settings.rounds(ROUNDS) {
        for ((file, ..), seconds) in READY.iter().zip(&mut seconds) {
            seconds.push(place::lab_up(settings, &format!("{file}.toml"), &name)?);
            place::lab_down(settings, &name)?;
        }
    }
    for ((file, what, most), values) in READY.iter().zip(seconds) {
        outcome.commands.push(format!("weir lab up bench/labs/{file}.toml --name NAME"));
        let (name, bound) = (format!("`weir lab up` of {what}"), Bound::AtMost(*most));
        outcome.rows.push(Row { name, unit: "s", bound, values, arms: vec![] });
    }
    Ok(outcome)
}

fn small(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let rounds = settings.rounds(ROUNDS);
    let row =
        |name: &str, unit, bound, values| Row { name: name.to_owned(), unit, bound, values, arms: vec![] };

    let scenario = settings.workspace.join("scenarios/quickstart.toml");
    let check = [&*settings.weir.to_string_lossy(), "check", &scenario.to_string_lossy()].map(str::to_owned);
    outcome.commands.push(check.join(" "));
    let mut check_seconds = Vec::new();
    // The first three warm the page cache.
    for round in 0..rounds.max(20) + 3 {
        let started = Instant::now();
        let output = std::process::Command::new(&check[0])
            .args(&check[1..])
            .output()
            .map_err(|problem| format!("weir check: {problem}"))?;
        let elapsed = started.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(format!(
                "weir check: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        check_seconds.extend((round >= 3).then_some(elapsed));
    }
    outcome.rows.push(row("`weir check` of the quickstart", "s", Bound::AtMost(0.05), check_seconds));

    let size = std::fs::metadata(&settings.weir).map_err(|problem| problem.to_string())?.len();
    outcome.rows.push(row("release binary, stripped", "B", Bound::AtMost(25e6), vec![size as f64]));

    let name = format!("bench-{}", std::process::id());
    outcome.commands.push("weir lab up bench/labs/hosts-33.toml --name NAME".to_owned());
    let mut up_seconds = Vec::new();
    for _ in 0..rounds {
        up_seconds.push(place::lab_up(settings, "hosts-33.toml", &name)?);
        place::lab_down(settings, &name)?;
    }
    outcome.rows.push(row("`weir lab up` of 33 hosts", "s", Bound::AtMost(1.0), up_seconds));

    outcome.rows.push(row(
        "idle fabric of two hosts, share of a core",
        "ratio",
        Bound::AtMost(0.02),
        idle_shares(settings, "fabric-1500.toml", &name, rounds)?,
    ));
    outcome.rows.push(row(
        "idle fabric of 33 hosts, share of a core",
        "ratio",
        Bound::AtMost(0.02),
        idle_shares(settings, "hosts-33.toml", &name, rounds)?,
    ));
    Ok(outcome)
}

/// CPU share of everything that a lab leaves running, second by second while nothing uses it.
fn idle_shares(settings: &Settings, file: &str, name: &str, rounds: usize) -> Result<Vec<f64>, String> {
    let program = std::fs::canonicalize(&settings.weir).map_err(|problem| problem.to_string())?;
    let before = process::running(&program);
    place::lab_up(settings, file, name)?;
    let measured = || -> Result<Vec<f64>, String> {
        let of_lab: Vec<u32> =
            process::running(&program).into_iter().filter(|pid| !before.contains(pid)).collect();
        if of_lab.is_empty() {
            return Err(format!("lab {name} is up, but no process of it was found"));
        }
        let used = || of_lab.iter().filter_map(|pid| process::cpu_seconds_of(*pid)).sum::<f64>();
        // Neighbour discovery and the like settle first.
        std::thread::sleep(Duration::from_secs(2));
        let mut shares = Vec::new();
        for _ in 0..rounds.max(5) {
            let (started, start) = (Instant::now(), used());
            std::thread::sleep(Duration::from_secs(2));
            shares.push((used() - start) / started.elapsed().as_secs_f64());
        }
        Ok(shares)
    };
    let shares = measured();
    place::lab_down(settings, name)?;
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_run_there_and_back_so_that_drift_favours_none() {
        let order: Vec<usize> = (0..2).flat_map(|round| interleaved(round, 2)).collect();
        assert_eq!(order, [0, 1, 1, 0]);
        assert_eq!(interleaved(1, 3), [2, 1, 0]);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let row = ratio("x".into(), Bound::None, ("weir", &[2.0, 6.0]), ("peer", &[1.0, 2.0]));
        assert_eq!(row.values, [2.0, 3.0]);
    }
}
