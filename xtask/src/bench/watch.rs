//! What a watch costs beyond the flow that it watches.

use super::groups::{interleaved, limit, next_port, remember};
use super::place::{self, Place};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::{Settings, process, tools};
use std::time::Duration;

const ROUNDS: usize = 6;
/// Of one run, at least: the difference sought is a part in a thousand of a core.
const SECONDS_MIN: u64 = 20;
/// No sample falls into a run with this interval.
const INTERVALS: [&str; 2] = ["24h", "10ms"];
const HOUR_SECONDS: f64 = 3_600.0;
const MIB: f64 = 1_048_576.0;

/// What one run took.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Both ends, user and system.
    cpu_seconds: f64,
    bytes: f64,
}

pub fn cost(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let place = place::loopback();
    let seconds = settings.duration.as_secs().max(SECONDS_MIN);
    let mut arms: [Vec<Run>; 2] = Default::default();
    for round in 0..settings.rounds(ROUNDS) {
        let mut sums = [Run::default(); 2];
        for arm in [interleaved(round, 2), interleaved(round + 1, 2)].concat() {
            let run = one(settings, &place, seconds, INTERVALS[arm], &mut outcome)
                .map_err(|problem| format!("round {round}: {problem}"))?;
            sums[arm].cpu_seconds += run.cpu_seconds / 2.0;
            sums[arm].bytes += run.bytes / 2.0;
        }
        (0..2).for_each(|arm| arms[arm].push(sums[arm]));
    }
    let pairs = || arms[0].iter().zip(&arms[1]);
    let row =
        |name: &str, unit, bound, values| Row { name: name.to_owned(), unit, bound, values, arms: vec![] };
    outcome.rows.push(row(
        "disk for an hour of one flow at 10 ms, both ends",
        "MiB",
        Bound::AtMost(40.0),
        pairs().map(|(_, fine)| fine.bytes / seconds as f64 * HOUR_SECONDS / MIB).collect(),
    ));
    outcome.rows.push(row(
        "CPU of watching, both ends, share of a core",
        "ratio",
        Bound::AtMost(0.01),
        pairs().map(|(none, fine)| (fine.cpu_seconds - none.cpu_seconds) / seconds as f64).collect(),
    ));
    outcome.notes.push(format!("A round is four runs of {seconds} s (A B B A) of one flow of 50 Mbit/s: with samples every 10 ms and with none. CPU is the difference of both ends' user and system time, what writes the series included; disk is `chunks.jsonl`, scaled to an hour."));
    Ok(outcome)
}

fn one(
    settings: &Settings,
    place: &Place,
    seconds: u64,
    interval: &str,
    outcome: &mut Outcome,
) -> Result<Run, String> {
    let port = next_port();
    let out = settings.scratch.join("watched");
    let _ = std::fs::remove_dir_all(&out);
    let serve = place.at_server(tools::weir_serve(settings, &place.listen, port));
    let load = place.at_client(tools::weir_watch(settings, &place.server, port, seconds, interval, &out));
    remember(outcome, &serve, port);
    remember(outcome, &load, port);
    let mut server = process::start(&settings.scratch, &serve)?;
    server.listening(port)?;
    let most = limit(settings) + Duration::from_secs(seconds);
    let client = process::finish(&settings.scratch, &load, most)?;
    let server = server.stop(Duration::from_secs(10))?;
    let bytes = std::fs::metadata(out.join("chunks.jsonl")).map_or(0, |about| about.len());
    let _ = std::fs::remove_dir_all(&out);
    Ok(Run { cpu_seconds: client.cpu_seconds + server.cpu_seconds, bytes: bytes as f64 })
}
