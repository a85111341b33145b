//! Connections, datagrams and bursts beside the tools that are used for each today, and many streams beside neper.

use super::Settings;
use super::groups::{ROUNDS, interleaved, limit, next_port, ratio, remember};
use super::place;
use super::process::{self, Line};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::tools;
use std::time::Duration;

/// Programs that are not in Debian are compared where they are present, and named where they are not.
fn absent(outcome: &mut Outcome) {
    outcome.notes.push(
        "neper is absent (neither in target/peers/neper nor where WEIR_NEPER says): weir's own figures only."
            .to_owned(),
    );
}

/// What one program of a pair gave: a figure, and the CPU time of both ends.
struct Run {
    figure: f64,
    cpu_seconds: f64,
}

/// Starts `serve`, runs `load` against it and reads its figure.
fn run_pair(
    settings: &Settings,
    outcome: &mut Outcome,
    port: u16,
    (serve, load): (&Line, &Line),
    stops_itself: bool,
    figure: impl Fn(&str) -> Result<f64, String>,
) -> Result<Run, String> {
    remember(outcome, serve, port);
    remember(outcome, load, port);
    let mut server = process::start(&settings.scratch, serve)?;
    server.listening(port)?;
    let client = process::finish(&settings.scratch, load, limit(settings))?;
    let found = figure(&client.stdout)?;
    let ended = Duration::from_secs(10);
    let server = if stops_itself { server.wait(ended, true)? } else { server.stop(ended)? };
    Ok(Run { figure: found, cpu_seconds: client.cpu_seconds + server.cpu_seconds })
}

/// Arms with a figure a round each.
struct Arms {
    names: Vec<&'static str>,
    figures: Vec<Vec<f64>>,
    cpu_seconds: Vec<Vec<f64>>,
}

impl Arms {
    fn measure(
        names: &[&'static str],
        rounds: usize,
        mut run: impl FnMut(&str) -> Result<Run, String>,
    ) -> Result<Arms, String> {
        let empty = || vec![Vec::new(); names.len()];
        let mut arms = Arms { names: names.to_vec(), figures: empty(), cpu_seconds: empty() };
        for round in 0..rounds {
            for arm in interleaved(round, names.len()) {
                let ran =
                    run(names[arm]).map_err(|problem| format!("round {round}, {}: {problem}", names[arm]))?;
                arms.figures[arm].push(ran.figure);
                arms.cpu_seconds[arm].push(ran.cpu_seconds);
            }
        }
        Ok(arms)
    }

    fn of<'a>(&'a self, all: &'a [Vec<f64>], name: &str) -> Option<&'a [f64]> {
        Some(&all[self.names.iter().position(|known| *known == name)?])
    }

    /// Weir's figure over each peer's; without a peer the figure itself.
    fn rows(&self, what: &str, unit: &'static str, bound: Bound) -> Vec<Row> {
        let ours = self.of(&self.figures, WEIR).unwrap_or_default();
        let peers = self.names.iter().filter(|name| **name != WEIR);
        let mut rows: Vec<Row> = peers
            .map(|peer| {
                let theirs = self.of(&self.figures, peer).unwrap_or_default();
                ratio(format!("{what}, weir / {peer}"), bound, (WEIR, ours), (peer, theirs))
            })
            .collect();
        if rows.is_empty() {
            rows.push(Row {
                name: format!("{what}, weir"),
                unit,
                bound: Bound::None,
                values: ours.to_vec(),
                arms: vec![],
            });
        }
        rows
    }
}

const WEIR: &str = "weir";
const NEPER: &str = "neper";
/// Neper against itself: what its interval leaves open nobody can tell apart here.
const NEPER_AGAIN: &str = "neper again";
const IPERF3: &str = "iperf3";
const SOCKPERF: &str = "sockperf";

/// Connections a second, closed by reset at both tools, so that neither runs out of ports.
pub fn connect(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let names: &[&str] = if settings.neper.is_some() { &[NEPER, WEIR] } else { &[WEIR] };
    if settings.neper.is_none() {
        absent(&mut outcome);
    }
    for flows in [1, 16] {
        let arms = Arms::measure(names, settings.rounds(2 * ROUNDS), |name| {
            let port = next_port();
            if name == WEIR {
                let serve = tools::pinned(tools::weir_serve(settings, "127.0.0.1", port));
                let load = tools::pinned(tools::weir_connect(settings, port, flows));
                let figure = |out: &str| tools::weir_metric(out, "connect.per_second", "mean");
                run_pair(settings, &mut outcome, port, (&serve, &load), false, figure)
            } else {
                let line = |host| tools::pinned(tools::neper(settings, "tcp_crr", host, port, flows, 1, &[]));
                let figure = |out: &str| tools::neper_number(out, "throughput");
                run_pair(settings, &mut outcome, port, (&line(None), &line(Some("127.0.0.1"))), true, figure)
            }
        })?;
        let what = format!("connections a second, {}", tools::flows(flows));
        outcome.rows.extend(arms.rows(&what, "1/s", Bound::AtLeast(0.97)));
    }
    outcome
        .notes
        .push("One byte each way on each connection; both ends on one CPU, one thread each.".to_owned());
    Ok(outcome)
}

/// Datagrams that arrive, a second, where the sender sends as fast as it can.
pub fn udp(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (size, rate) in [(64, "4MHz"), (1400, "1500kHz")] {
        let arms = Arms::measure(&[IPERF3, WEIR, SOCKPERF], settings.rounds(2 * ROUNDS), |name| {
            let port = next_port();
            match name {
                WEIR => {
                    let serve = tools::weir_serve(settings, "127.0.0.1", port);
                    let load = tools::weir_udp(settings, port, size, rate);
                    run_pair(settings, &mut outcome, port, (&serve, &load), false, |out| {
                        let goodput = tools::weir_metric(out, "udp.flow_goodput_bits_per_second", "mean")?;
                        Ok(goodput / 8.0 / f64::from(size))
                    })
                }
                IPERF3 => {
                    let serve = tools::iperf3_serve(settings, port, true);
                    let load = tools::iperf3_udp(settings, port, size);
                    run_pair(settings, &mut outcome, port, (&serve, &load), true, tools::iperf3_datagrams)
                }
                _ => {
                    let (serve, load) =
                        (tools::sockperf_serve_udp(port), tools::sockperf_udp(settings, port, size));
                    sockperf_datagrams(settings, &mut outcome, port, &serve, &load)
                }
            }
        })?;
        let what = format!("datagrams of {size} B received a second");
        outcome.rows.extend(arms.rows(&what, "1/s", Bound::AtLeast(1.0)));
    }
    outcome.notes.push("Loopback. weir is asked for more than it can send; what it could not send is `generator.missed_ratio`, never loss.".to_owned());
    Ok(outcome)
}

/// sockperf's client tells what it sent; what came is told by its server when it ends.
fn sockperf_datagrams(
    settings: &Settings,
    outcome: &mut Outcome,
    port: u16,
    serve: &Line,
    load: &Line,
) -> Result<Run, String> {
    remember(outcome, serve, port);
    remember(outcome, load, port);
    let server = process::start(&settings.scratch, serve)?;
    // It listens on no TCP port that could be waited for.
    std::thread::sleep(Duration::from_millis(300));
    let client = process::finish(&settings.scratch, load, limit(settings))?;
    let server = server.interrupt(Duration::from_secs(10))?;
    let received = tools::sockperf_received(&server.stdout)?;
    let seconds = settings.duration.as_secs().max(1) as f64;
    Ok(Run { figure: received / seconds, cpu_seconds: client.cpu_seconds + server.cpu_seconds })
}

/// How much longer one byte and its answer take than in a loop that does nothing else.
pub fn burst(settings: &Settings) -> Result<Outcome, String> {
    const COUNT: u32 = 50_000;
    let mut outcome = Outcome::default();
    let bare =
        |words: &[&str]| -> Result<Line, String> { Ok(tools::pinned(tools::own("bare-loop", words)?)) };
    let arms = Arms::measure(&["bare loop", WEIR], settings.rounds(2 * ROUNDS), |name| {
        let port = next_port();
        let (number, count) = (port.to_string(), COUNT.to_string());
        if name == WEIR {
            let serve = tools::pinned(tools::weir_serve(settings, "127.0.0.1", port));
            let load = tools::pinned(tools::weir_burst(settings, port, COUNT));
            let figure = |out: &str| tools::weir_metric(out, "burst.completion_seconds", "mean");
            run_pair(settings, &mut outcome, port, (&serve, &load), false, figure)
        } else {
            let (serve, load) = (bare(&["serve", &number])?, bare(&["measure", &number, &count])?);
            run_pair(settings, &mut outcome, port, (&serve, &load), true, |out| {
                let mean_ns: f64 = out.trim().parse().map_err(|_| format!("the bare loop said {out:?}"))?;
                Ok(mean_ns / 1e9)
            })
        }
    })?;
    let [bare, ours] = [&arms.figures[0], &arms.figures[1]];
    outcome.rows.push(Row {
        name: "a burst of 1 B and its answer, weir − bare loop".to_owned(),
        unit: "s",
        bound: Bound::AtMost(2e-6),
        values: ours.iter().zip(bare).map(|(ours, bare)| ours - bare).collect(),
        arms: vec![("weir".to_owned(), ours.clone()), ("bare loop".to_owned(), bare.clone())],
    });
    outcome.notes.push("Both ends on one CPU: the mean of 50,000 bursts.".to_owned());
    Ok(outcome)
}

/// Few and many streams beside neper, and without the receiver's copy.
pub fn streams(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let place = place::loopback();
    let names: &[&str] =
        if settings.neper.is_some() { &[NEPER, WEIR, DISCARD, NEPER_AGAIN] } else { &[WEIR, DISCARD] };
    if settings.neper.is_none() {
        absent(&mut outcome);
    }
    for flows in [1, 16, 1000] {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(flows);
        let arms = Arms::measure(names, settings.rounds(2 * ROUNDS), |name| {
            let port = next_port();
            if name == NEPER || name == NEPER_AGAIN {
                let block = ["-B", "131072"];
                let line = |host| tools::neper(settings, "tcp_stream", host, port, flows, threads, &block);
                // What its server received, bit/s.
                let figure = |out: &str| tools::neper_number(out, "remote_throughput");
                run_pair(settings, &mut outcome, port, (&line(None), &line(Some("127.0.0.1"))), true, figure)
            } else {
                let serve = tools::weir_serve(settings, &place.listen, port);
                let mut load = tools::weir_stream(settings, &place.server, port, flows, tools::BLOCK, None);
                load.extend((name == DISCARD).then(|| "--receive=discard".to_owned()));
                run_pair(settings, &mut outcome, port, (&serve, &load), false, tools::weir_goodput)
            }
        })?;
        let per_gigabyte = |name: &str| -> Vec<f64> {
            let seconds = settings.duration.as_secs().max(1) as f64;
            let of = |all| arms.of(all, name).unwrap_or_default();
            of(&arms.cpu_seconds)
                .iter()
                .zip(of(&arms.figures))
                .map(|(cpu, goodput)| cpu / (goodput / 8.0 * seconds / 1e9))
                .collect()
        };
        let plural = tools::flows(flows);
        let (ours, discarding) = (per_gigabyte(WEIR), per_gigabyte(DISCARD));
        if let Some(theirs) = arms.of(&arms.figures, NEPER) {
            let figures = arms.of(&arms.figures, WEIR).unwrap_or_default();
            let name = format!("goodput, {plural}, weir / neper");
            outcome.rows.push(ratio(name, Bound::AtLeast(0.97), (WEIR, figures), (NEPER, theirs)));
            let name = format!("CPU per gigabyte, {plural}, weir / neper");
            let (cpu, cpu_again) = (per_gigabyte(NEPER), per_gigabyte(NEPER_AGAIN));
            outcome.rows.push(ratio(name, Bound::AtMost(1.03), (WEIR, &ours), (NEPER, &cpu)));
            let again = arms.of(&arms.figures, NEPER_AGAIN).unwrap_or_default();
            let name = format!("goodput, {plural}, neper again / neper");
            outcome.rows.push(ratio(name, Bound::None, (NEPER_AGAIN, again), (NEPER, theirs)));
            let name = format!("CPU per gigabyte, {plural}, neper again / neper");
            outcome.rows.push(ratio(name, Bound::None, (NEPER_AGAIN, &cpu_again), (NEPER, &cpu)));
        }
        let name = format!("CPU per gigabyte, {plural}, discard / copy");
        outcome.rows.push(ratio(name, Bound::AtMost(0.7), (DISCARD, &discarding), (WEIR, &ours)));
    }
    outcome.notes.push(
        "Loopback, 128 KiB blocks, cubic, as many threads an end as cores or flows. CPU of both ends."
            .to_owned(),
    );
    Ok(outcome)
}

const DISCARD: &str = "weir, receiver discards";
