//! Event building beside ZeroMQ push/pull with the same grouping, beside plain streams over as many connections (on loopback and through a
//! lab's 10 Gbit/s link), and how many heartbeats the scheduler's process carries.

use super::Settings;
use super::groups::{ROUNDS, interleaved, limit, next_port, ratio, remember};
use super::place::{self, Place};
use super::process::{self, Line, Running};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::tools;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

const SOURCES: usize = 2;
const BUILDERS: usize = 2;
/// A load counts as carried if so much of it is built, and no event is dropped.
const CARRIED: f64 = 0.98;
/// Of a builder, all its sources together: as much as the kernel would take of plain streams; of small fragments, which cost by their
/// number, no more events than a core's cache knows of.
const WINDOW: &str = "8MiB";
const SMALL_WINDOW: &str = "4MiB";
const SMALL_BYTES_MAX: u64 = 4096;
const ENDED: Duration = Duration::from_secs(20);

/// What one run gave, all processes together.
struct Built {
    events_per_second: f64,
    goodput_bits_per_second: f64,
    cpu_seconds: f64,
    payload_bytes: f64,
    /// Every heartbeat became an event, at the rate asked for.
    carried: bool,
}

impl Built {
    fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu_seconds / (self.payload_bytes / 1e9)
    }
}

struct Shape {
    sources: usize,
    builders: usize,
    fragment_bytes: u64,
}

impl Shape {
    /// The bytes of an event.
    fn event_bytes(&self) -> f64 {
        (self.sources as u64 * self.fragment_bytes) as f64
    }
}

/// Where event building runs: the sources at the client's end, the rest at the server's.
struct Yard {
    place: Place,
    /// Of what can be reached from elsewhere than loopback.
    key: Option<tempfile::NamedTempFile>,
    /// The first rate that is tried, for this much of an event.
    start_bits_per_second: f64,
}

impl Yard {
    fn loopback() -> Yard {
        Yard { place: place::loopback(), key: None, start_bits_per_second: 10e9 }
    }

    fn lab(settings: &Settings, file: &str) -> Result<Yard, String> {
        let place = place::lab(settings, file, "right-0", "left-0")?;
        let mut key = tempfile::NamedTempFile::new().map_err(|problem| problem.to_string())?;
        let random = File::open("/dev/urandom").map_err(|problem| format!("/dev/urandom: {problem}"))?;
        io::copy(&mut random.take(32), &mut key)
            .map_err(|problem| format!("a key for the lab: {problem}"))?;
        Ok(Yard { place, key: Some(key), start_bits_per_second: 4e9 })
    }

    fn with_key(&self, mut words: Line) -> Line {
        if let Some(key) = &self.key {
            words.extend(["--key-file".to_owned(), key.path().display().to_string()]);
        }
        words
    }
}

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// One scheduler, and its sources and builders as a process each.
fn weir(
    settings: &Settings,
    outcome: &mut Outcome,
    yard: &Yard,
    shape: &Shape,
    rate_hz: u64,
) -> Result<Built, String> {
    let (port, program) = (next_port(), settings.weir.to_string_lossy().into_owned());
    let (listen, at) = (format!("{}:{port}", yard.place.listen), format!("{}:{port}", yard.place.server));
    let events = (rate_hz as f64 * settings.duration.as_secs_f64()).ceil().max(1.0) as u64;
    let scheduler = line(&[
        &program,
        "event",
        "scheduler",
        "--listen",
        &listen,
        "--rate",
        &format!("{rate_hz}Hz"),
        "--events",
        &events.to_string(),
        "--sources",
        &shape.sources.to_string(),
        "--builders",
        &shape.builders.to_string(),
        "--scheduler",
        "round-robin",
        "--grant-window",
        if shape.fragment_bytes <= SMALL_BYTES_MAX { SMALL_WINDOW } else { WINDOW },
        "--json",
    ]);
    let scheduler = yard.place.at_server(yard.with_key(scheduler));
    remember(outcome, &scheduler, port);
    let mut running = process::start(&settings.scratch, &scheduler)?;
    running.listening(port)?;
    let mut others = Vec::new();
    for number in 0..shape.sources {
        let (name, size) = (format!("s{number}"), format!("{}B", shape.fragment_bytes));
        let words =
            [&*program, "event", "source", "--scheduler", &at, "--name", &name, "--fragment-size", &size];
        let source = yard.place.at_client(yard.with_key(line(&words)));
        others.push(begin(settings, outcome, &source, port, number == 0)?);
    }
    for number in 0..shape.builders {
        let name = format!("b{number}");
        let words = [&*program, "event", "builder", "--scheduler", &at, "--name", &name];
        let builder = yard.place.at_server(yard.with_key(line(&words)));
        others.push(begin(settings, outcome, &builder, port, number == 0)?);
    }
    let scheduler = running.wait(limit(settings), true)?;
    let mut cpu_seconds = scheduler.cpu_seconds;
    for other in others {
        cpu_seconds += other.wait(ENDED, true)?.cpu_seconds;
    }
    let document: Value = serde_json::from_str(&scheduler.stdout).map_err(|problem| problem.to_string())?;
    let of = |key: &str| document["ledger"][key].as_f64().ok_or_else(|| format!("no {key} in the ledger"));
    let (generated, complete) = (of("generated")?, of("complete")?);
    let rate = tools::weir_metric(&scheduler.stdout, "event.rate_hertz", "mean")?;
    let drain = document["points"][0]["metrics"]["event.drain_seconds"]["mean"].as_f64().unwrap_or(0.0);
    let events_per_second = complete / (generated / rate + drain);
    let payload_bytes = complete * shape.event_bytes();
    Ok(Built {
        events_per_second,
        goodput_bits_per_second: events_per_second * shape.event_bytes() * 8.0,
        cpu_seconds,
        payload_bytes,
        carried: complete == generated && events_per_second >= CARRIED * rate_hz as f64,
    })
}

fn begin(
    settings: &Settings,
    outcome: &mut Outcome,
    line: &Line,
    port: u16,
    shown: bool,
) -> Result<Running, String> {
    if shown {
        remember(outcome, line, port);
    }
    process::start(&settings.scratch, line)
}

/// The highest rate of a run that is carried: doubled until one is not, then halved towards it, to a 20th or `finely` to a 100th.
fn highest(
    settings: &Settings,
    outcome: &mut Outcome,
    yard: &Yard,
    shape: &Shape,
    finely: bool,
) -> Result<u64, String> {
    let (mut carried, mut refused) = (0, None);
    let parts = if finely { 100 } else { 20 };
    let mut rate_hz = (yard.start_bits_per_second / (8.0 * shape.event_bytes().max(1.0))) as u64;
    rate_hz = rate_hz.clamp(1, 20_000);
    while refused.is_none_or(|refused: u64| refused - carried > carried / parts) && rate_hz <= 9_000_000 {
        // A run may fail by chance; a rate is refused when two do.
        let fits = weir(settings, outcome, yard, shape, rate_hz)?.carried
            || weir(settings, outcome, yard, shape, rate_hz)?.carried;
        if fits {
            carried = rate_hz;
        } else {
            refused = Some(rate_hz);
        }
        rate_hz = refused.map_or(2 * rate_hz, |refused| (carried + refused) / 2).max(1);
        if refused == Some(1) {
            return Err("not one heartbeat a second is carried".to_owned());
        }
    }
    Ok(carried)
}

/// As many events as weir built in the same time, so that both run about as long.
fn zeromq(settings: &Settings, outcome: &mut Outcome, shape: &Shape, events: u64) -> Result<Built, String> {
    let program = settings.zeromq.to_string_lossy().into_owned();
    let of_each = (events / shape.builders as u64).max(1).to_string();
    let mut builders = Vec::new();
    let mut addresses = Vec::new();
    for number in 0..shape.builders {
        let port = next_port();
        let words = [&*program, "builder", &port.to_string(), &shape.sources.to_string(), &of_each];
        let mut builder = begin(settings, outcome, &line(&words), port, number == 0)?;
        builder.listening(port)?;
        addresses.push(format!("127.0.0.1:{port}"));
        builders.push(builder);
    }
    let mut sources = Vec::new();
    for number in 0..shape.sources {
        let (index, bytes) = (number.to_string(), shape.fragment_bytes.to_string());
        let mut words = line(&[&program, "source", &index, &of_each, &bytes]);
        words.extend(addresses.iter().cloned());
        sources.push(process::start(&settings.scratch, &words)?);
    }
    let (mut complete, mut seconds, mut payload_bytes, mut cpu_seconds) = (0.0, 0f64, 0.0, 0.0);
    for builder in builders {
        let ended = builder.wait(limit(settings), true)?;
        let figures: Vec<f64> =
            ended.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [events, own_seconds, bytes, _mismatched] = figures[..] else {
            return Err(format!("the ZeroMQ builder said {:?}", ended.stdout));
        };
        complete += events;
        seconds = seconds.max(own_seconds);
        payload_bytes += bytes;
        cpu_seconds += ended.cpu_seconds;
    }
    for source in sources {
        cpu_seconds += source.wait(ENDED, true)?.cpu_seconds;
    }
    Ok(Built {
        events_per_second: complete / seconds,
        goodput_bits_per_second: payload_bytes * 8.0 / seconds,
        cpu_seconds,
        payload_bytes,
        carried: true,
    })
}

/// Small fragments by events a second, large ones by goodput and CPU.
pub fn beside_zeromq(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if !settings.zeromq.is_file() {
        return Err("the ZeroMQ event builder is missing: scripts/install-bench-peers".to_owned());
    }
    let yard = Yard::loopback();
    for fragment_bytes in [256, 1_024, 4_096, 65_536] {
        let shape = Shape { sources: SOURCES, builders: BUILDERS, fragment_bytes };
        // ZeroMQ takes what it can get: a rate too low by some percent would count against weir.
        let rate_hz = highest(settings, &mut outcome, &yard, &shape, true)?;
        let events = (rate_hz as f64 * settings.duration.as_secs_f64()) as u64;
        let mut arms: [Vec<Built>; 3] = Default::default();
        for round in 0..settings.rounds(ROUNDS) {
            for arm in interleaved(round, 3) {
                arms[arm].push(if arm == 1 {
                    weir(settings, &mut outcome, &yard, &shape, rate_hz)?
                } else {
                    zeromq(settings, &mut outcome, &shape, events)?
                });
            }
        }
        type Figure = fn(&Built) -> f64;
        let figures: Vec<(&str, Figure, Bound)> = if fragment_bytes <= 4_096 {
            vec![("events a second", |built| built.events_per_second, Bound::AtLeast(1.5))]
        } else {
            vec![
                ("goodput", |built| built.goodput_bits_per_second, Bound::AtLeast(1.0)),
                ("CPU per gigabyte", Built::cpu_seconds_per_gigabyte, Bound::AtMost(1.0)),
            ]
        };
        for (what, figure, bound) in figures {
            let [peer, ours, again] =
                [0, 1, 2].map(|arm: usize| arms[arm].iter().map(figure).collect::<Vec<f64>>());
            let name = format!("{what}, fragments of {fragment_bytes} B, weir / ZeroMQ");
            outcome.rows.push(ratio(name, bound, ("weir", &ours), ("ZeroMQ", &peer)));
            let name = format!("{what}, fragments of {fragment_bytes} B, ZeroMQ again / ZeroMQ");
            outcome.rows.push(ratio(name, Bound::None, ("ZeroMQ again", &again), ("ZeroMQ", &peer)));
        }
    }
    outcome.notes.push(format!(
        "Loopback, {SOURCES} sources and {BUILDERS} builders, a process each. weir runs at the highest rate of which it loses nothing, found before the \
         rounds, with a scheduler, credits, acknowledgements and checksums; ZeroMQ as fast as it goes, with none of them."
    ));
    Ok(outcome)
}

/// Large fragments beside as many plain connections, and empty ones for the scheduler alone.
pub fn beside_streams(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    goodput_beside_streams(settings, &mut outcome, &Yard::loopback(), "loopback", true)?;
    let file = "fabric-9000.toml";
    outcome.commands.push(format!("weir lab up bench/labs/{file} --name NAME"));
    goodput_beside_streams(settings, &mut outcome, &Yard::lab(settings, file)?, "10 Gbit/s lab", false)?;
    let many = Shape { sources: 8, builders: 8, fragment_bytes: 0 };
    let rate_hz = highest(settings, &mut outcome, &Yard::loopback(), &many, false)?;
    outcome.rows.push(Row {
        name: "heartbeats a second, 8 sources, 8 builders, empty fragments".to_owned(),
        unit: "1/s",
        bound: Bound::AtLeast(50_000.0),
        values: vec![rate_hz as f64],
        arms: vec![],
    });
    outcome.notes.push(
        "A process for each role. Event building runs at the highest rate of which it loses nothing, found before the rounds; streams as fast as \
         they go. In the lab two sources are on one host and two builders and the scheduler on the other. The bare joiner has no scheduler, heartbeats, \
         credits, headers or acknowledgements: fragments in memory of their own until their event is whole, and a checksum."
            .to_owned(),
    );
    Ok(outcome)
}

/// What a builder can not do without, and nothing else: payload bits a second of all builders.
fn bare_joiner(settings: &Settings, outcome: &mut Outcome, shape: &Shape) -> Result<f64, String> {
    let (sources, bytes) = (shape.sources.to_string(), shape.fragment_bytes.to_string());
    let seconds = settings.duration.as_secs().max(1).to_string();
    let (mut builders, mut addresses) = (Vec::new(), Vec::new());
    for number in 0..shape.builders {
        let port = next_port();
        let words = tools::own("bare-joiner", &["builder", &port.to_string(), &sources, &bytes, &seconds])?;
        let mut builder = begin(settings, outcome, &words, port, number == 0)?;
        builder.listening(port)?;
        addresses.push(format!("127.0.0.1:{port}"));
        builders.push(builder);
    }
    let mut words = vec!["source", &bytes];
    words.extend(addresses.iter().map(String::as_str));
    let source = tools::own("bare-joiner", &words)?;
    let sources: Result<Vec<Running>, String> =
        (0..shape.sources).map(|_| process::start(&settings.scratch, &source)).collect();
    let mut total = 0.0;
    for builder in builders {
        let said = builder.wait(limit(settings), true)?.stdout;
        total += said.trim().parse::<f64>().map_err(|_| format!("the bare joiner said {said:?}"))?;
    }
    for source in sources? {
        source.wait(ENDED, true)?;
    }
    Ok(total)
}

/// The same flows once with fragments and once without anything in them; and once, where `bare` says so, without a protocol.
fn goodput_beside_streams(
    settings: &Settings,
    outcome: &mut Outcome,
    yard: &Yard,
    what: &str,
    bare: bool,
) -> Result<(), String> {
    let shape = Shape { sources: SOURCES, builders: BUILDERS, fragment_bytes: 1 << 20 };
    let rate_hz = highest(settings, outcome, yard, &shape, true)?;
    let (mut ours, mut plain, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..settings.rounds(ROUNDS) {
        for arm in interleaved(round, if bare { 3 } else { 2 }) {
            if arm == 0 {
                ours.push(weir(settings, outcome, yard, &shape, rate_hz)?.goodput_bits_per_second);
                continue;
            }
            if arm == 2 {
                joined.push(bare_joiner(settings, outcome, &shape)?);
                continue;
            }
            let (place, port) = (&yard.place, next_port());
            let serve = place.at_server(tools::weir_serve(settings, &place.listen, port));
            let flows = SOURCES * BUILDERS;
            let load = tools::weir_stream(settings, &place.server, port, flows, tools::LARGE_BLOCK, None);
            let load = place.at_client(load);
            remember(outcome, &serve, port);
            remember(outcome, &load, port);
            let mut server = process::start(&settings.scratch, &serve)?;
            server.listening(port)?;
            let client = process::finish(&settings.scratch, &load, limit(settings))?;
            server.stop(ENDED)?;
            plain.push(tools::weir_goodput(&client.stdout)?);
        }
    }
    let name = format!("goodput, {what}, fragments of 1 MiB, event building / plain streams");
    outcome.rows.push(ratio(name, Bound::AtLeast(0.95), ("events", &ours), ("streams", &plain)));
    if bare {
        let name = format!("goodput, {what}, fragments of 1 MiB, event building / bare joiner");
        outcome.rows.push(ratio(name, Bound::AtLeast(0.95), ("events", &ours), ("bare joiner", &joined)));
        let name = format!("goodput, {what}, fragments of 1 MiB, bare joiner / plain streams");
        outcome.rows.push(ratio(name, Bound::None, ("bare joiner", &joined), ("streams", &plain)));
    }
    Ok(())
}
