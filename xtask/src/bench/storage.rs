//! Storage load beside fio, xrdcp and IOR, and many ranged reads of an object store.

use super::Settings;
use super::groups::{ROUNDS, interleaved, next_port, ratio};
use super::process::{self, Line, Running};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What one run gave: operations or bytes a second, and CPU seconds for each million of them.
struct Run {
    figure: f64,
    cpu_seconds_per_million: f64,
}

fn remember(outcome: &mut Outcome, line: &Line) {
    let text = line.join(" ");
    if !outcome.commands.contains(&text) {
        outcome.commands.push(text);
    }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(&text[text.find('{').unwrap_or(0)..])
        .map_err(|problem| format!("no JSON: {problem}"))
}

fn limit(settings: &Settings) -> Duration {
    settings.duration + Duration::from_secs(120)
}

/// Rounds of two arms: rows of figures and of CPU.
fn beside(
    settings: &Settings,
    outcome: &mut Outcome,
    what: &str,
    peer: &str,
    cpu_most: Bound,
    least: f64,
    mut run: impl FnMut(bool, &mut Outcome) -> Result<Run, String>,
) -> Result<(), String> {
    let mut arms: [Vec<Run>; 2] = Default::default();
    for round in 0..settings.rounds(ROUNDS) {
        for arm in interleaved(round, 2) {
            let ran =
                run(arm == 1, outcome).map_err(|problem| format!("{what}, round {round}: {problem}"))?;
            arms[arm].push(ran);
        }
    }
    let of = |arm: usize, figure: fn(&Run) -> f64| arms[arm].iter().map(figure).collect::<Vec<f64>>();
    let (theirs, ours) = (of(0, |run| run.figure), of(1, |run| run.figure));
    outcome.rows.push(ratio(
        format!("{what}, weir / {peer}"),
        Bound::AtLeast(least),
        ("weir", &ours),
        (peer, &theirs),
    ));
    let (theirs, ours) = (of(0, |run| run.cpu_seconds_per_million), of(1, |run| run.cpu_seconds_per_million));
    let name = format!("CPU for the same, {what}, weir / {peer}");
    outcome.rows.push(ratio(name, cpu_most, ("weir", &ours), (peer, &theirs)));
    Ok(())
}

/// Files of this machine beside fio, with the same engine, depth and flag.
pub fn files(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let file = settings.scratch.join("bench-file");
    let made = process::finish(
        &settings.scratch,
        &line(&[
            "dd",
            "if=/dev/urandom",
            &format!("of={}", file.display()),
            "bs=1M",
            &format!("count={}", FILE_BYTES / MIB),
        ]),
        limit(settings),
    );
    made?;
    let seconds = settings.duration.as_secs().max(1);
    for (what, kind, block, depth, engine, fio_engine) in [
        ("4 KiB random reads a second, direct, depth 1, pread", "random", "4KiB", 1, "threads", "psync"),
        (
            "4 KiB random reads a second, direct, depth 32, io_uring",
            "random",
            "4KiB",
            32,
            "io_uring",
            "io_uring",
        ),
        ("1 MiB sequential reads a second, direct, depth 1, pread", "seq", "1MiB", 1, "threads", "psync"),
        (
            "1 MiB sequential reads a second, direct, depth 8, io_uring",
            "seq",
            "1MiB",
            8,
            "io_uring",
            "io_uring",
        ),
    ] {
        beside(settings, &mut outcome, what, "fio", Bound::AtMost(1.10), 0.97, |ours, outcome| {
            let load = if ours {
                let target = format!("{}?direct=true&engine={engine}", file.display());
                line(&[
                    &settings.weir.display().to_string(),
                    "io",
                    kind,
                    &target,
                    "--size",
                    block,
                    "--depth",
                    &depth.to_string(),
                    "--duration",
                    &format!("{seconds}s"),
                    "--json",
                ])
            } else {
                line(&[
                    "fio",
                    "--name=a",
                    &format!("--filename={}", file.display()),
                    "--readonly",
                    "--direct=1",
                    "--time_based",
                    &format!("--runtime={seconds}"),
                    &format!("--size={FILE_BYTES}"),
                    &format!("--ioengine={fio_engine}"),
                    &format!("--rw={}", if kind == "seq" { "read" } else { "randread" }),
                    &format!("--bs={}", if block == "4KiB" { "4k" } else { "1m" }),
                    &format!("--iodepth={depth}"),
                    "--thread",
                    "--randrepeat=0",
                    "--norandommap",
                    "--output-format=json",
                ])
            };
            remember(outcome, &load);
            let ran = process::finish(&settings.scratch, &load, limit(settings))?;
            let said = json(&ran.stdout)?;
            let figure = match ours {
                true => said["points"][0]["metrics"]["io.operations_total_per_second"]["mean"].as_f64(),
                false => said["jobs"][0]["read"]["iops"].as_f64(),
            };
            let figure = figure.filter(|figure| *figure > 0.0).ok_or("no figure")?;
            Ok(Run { figure, cpu_seconds_per_million: ran.cpu_seconds / (figure * seconds as f64) * 1e6 })
        })?;
    }
    let _ = std::fs::remove_file(&file);
    outcome.notes.push("CPU is user and system time of the whole program, start-up included.".to_owned());
    Ok(outcome)
}

/// A server under way, in a folder of its own.
struct Server {
    _running: Running,
    port: u16,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder(settings: &Settings, name: &str) -> Result<PathBuf, String> {
    let path = settings.scratch.join(name);
    std::fs::create_dir_all(&path).map_err(|problem| format!("{}: {problem}", path.display()))?;
    Ok(path)
}

fn content(path: &Path, bytes: u64) -> Result<(), String> {
    let block = vec![7_u8; MIB as usize];
    let mut file = std::fs::File::create(path).map_err(|problem| problem.to_string())?;
    for _ in 0..bytes / MIB {
        std::io::Write::write_all(&mut file, &block).map_err(|problem| problem.to_string())?;
    }
    Ok(())
}

fn xrootd(settings: &Settings) -> Result<Server, String> {
    let (at, port) = (folder(settings, "bench-xrootd")?, next_port());
    std::fs::create_dir_all(at.join("store")).map_err(|problem| problem.to_string())?;
    content(&at.join("store/f"), FILE_BYTES)?;
    let shown = at.display();
    let text = format!(
        "all.export /store\noss.localroot {shown}\nxrd.port {port}\nxrd.network nodnr norpipa\nall.adminpath {shown}\nall.pidpath {shown}\n\
         xrd.maxfd strict 16k\nxrd.sched mint 8 avlt 8 maxt 512\n"
    );
    let file = at.join("configuration");
    std::fs::write(&file, text).map_err(|problem| problem.to_string())?;
    process::finish(
        &settings.scratch,
        &line(&["chown", "-R", "xrootd:", &shown.to_string()]),
        limit(settings),
    )?;
    let log = at.join("log");
    let serve = line(&[
        "setpriv",
        "--reuid",
        "xrootd",
        "--regid",
        "xrootd",
        "--clear-groups",
        "xrootd",
        "-c",
        &file.display().to_string(),
        "-n",
        "b",
        "-l",
        &log.display().to_string(),
    ]);
    let mut running = process::start(&settings.scratch, &serve)?;
    running.listening(port)?;
    Ok(Server { _running: running, port, folder: at })
}

/// A file of an XRootD server on loopback, read by each client as whole as it can.
pub fn xrootd_reads(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let server = xrootd(settings)?;
    let url = format!("root://127.0.0.1:{}//store/f", server.port);
    let what = "sequential read of 1 GiB from XRootD on loopback, bytes a second";
    beside(settings, &mut outcome, what, "xrdcp", Bound::AtMost(1.0), 1.0, |ours, outcome| {
        let load = match ours {
            true => line(&[
                &settings.weir.display().to_string(),
                "io",
                "seq",
                &url,
                "--size",
                "8MiB",
                "--depth",
                "4",
                "--json",
            ]),
            false => line(&["xrdcp", "-s", "-f", &url, "/dev/null"]),
        };
        remember(outcome, &line(&[&load.join(" ").replace(&server.port.to_string(), "PORT")]));
        let began = Instant::now();
        let ran = process::finish(&settings.scratch, &load, limit(settings))?;
        let figure = FILE_BYTES as f64 / began.elapsed().as_secs_f64();
        Ok(Run { figure, cpu_seconds_per_million: ran.cpu_seconds })
    })?;
    outcome.notes.push("The time is of the whole program, start and end included; xrdcp has 8 MiB chunks, four at once, as it comes.".to_owned());
    Ok(outcome)
}

/// Many small random reads of an XRootD server on loopback at once.
pub fn xrootd_random(settings: &Settings) -> Result<Outcome, String> {
    const DEPTH: &str = "1000";
    let mut outcome = Outcome::default();
    let server = xrootd(settings)?;
    let url = format!("root://127.0.0.1:{}//store/f", server.port);
    let seconds = settings.duration.as_secs().max(1) + 1;
    let peer = settings.workspace.join("target/peers/xrdcl-random").display().to_string();
    let what = "1,000 random reads of 8 KiB under way, reads a second";
    beside(settings, &mut outcome, what, "XrdCl", Bound::AtMost(1.0), 1.0, |ours, outcome| {
        let load = match ours {
            true => line(&[
                &settings.weir.display().to_string(),
                "io",
                "random",
                &url,
                "--size",
                "8KiB",
                "--depth",
                DEPTH,
                "--duration",
                &format!("{}s", seconds + 1),
                "--warm-up",
                "1s",
                "--json",
            ]),
            false => line(&[&peer, &url, "8192", DEPTH, &seconds.to_string()]),
        };
        remember(outcome, &line(&[&load.join(" ").replace(&server.port.to_string(), "PORT")]));
        let ran = process::finish(&settings.scratch, &load, limit(settings))?;
        let said = json(&ran.stdout)?;
        let metrics = &said["points"][0]["metrics"];
        let figures = match ours {
            true => [
                &metrics["io.operations_total_per_second"]["mean"],
                &metrics["io.cpu_seconds_per_operation"]["mean"],
            ],
            false => [&said["reads_per_second"], &said["cpu_seconds_per_read"]],
        };
        match figures.map(serde_json::Value::as_f64) {
            [Some(figure), Some(cpu_seconds)] => {
                Ok(Run { figure, cpu_seconds_per_million: cpu_seconds * 1e6 })
            }
            _ => Err(format!("no figure: {}", said["warnings"])),
        }
    })?;
    Ok(outcome)
}

/// Ranged reads of an object store on loopback, from one thread.
pub fn objects(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let (at, port) = (folder(settings, "bench-objects")?, next_port());
    std::fs::create_dir_all(at.join("buckets/store")).map_err(|problem| problem.to_string())?;
    content(&at.join("buckets/store/f"), FILE_BYTES)?;
    let buckets = at.join("buckets");
    let serve = line(&[
        "versitygw",
        "--port",
        &format!("127.0.0.1:{port}"),
        "--access",
        "weir",
        "--secret",
        "weir-in-a-lab",
        "--keep-alive",
        "--quiet",
        "posix",
        &buckets.display().to_string(),
    ]);
    let mut running = process::start(&settings.scratch, &serve)?;
    running.listening(port)?;
    let server = Server { _running: running, port, folder: at };
    let target = format!(
        "s3://store/f?endpoint=http://127.0.0.1:{}&access_key=weir&secret_key=weir-in-a-lab",
        server.port
    );
    let seconds = settings.duration.as_secs().max(1) + 2;
    let load = line(&[
        &settings.weir.display().to_string(),
        "io",
        "random",
        &target,
        "--size",
        "64KiB",
        "--depth",
        "2000",
        "--duration",
        &format!("{seconds}s"),
        "--warm-up",
        "2s",
        "--json",
    ]);
    remember(&mut outcome, &line(&[&load.join(" ").replace(&port.to_string(), "PORT")]));
    let mut values = Vec::new();
    for round in 0..settings.rounds(ROUNDS) {
        let ran = process::finish(&settings.scratch, &load, limit(settings))?;
        let said = json(&ran.stdout)?;
        let metrics = &said["points"][0]["metrics"];
        if metrics["io.failed_operations"]["mean"].as_f64() != Some(0.0) {
            return Err(format!("round {round}: operations failed: {}", said["warnings"]));
        }
        values.extend(metrics["io.operations_total_per_second"]["mean"].as_f64());
    }
    outcome.rows.push(Row {
        name: "ranged reads of 64 KiB from versitygw on loopback, 2,000 under way from one thread".to_owned(),
        unit: "1/s",
        bound: Bound::AtLeast(2_500.0),
        values,
        arms: vec![],
    });
    Ok(outcome)
}

/// Bursts beside IOR, where it is there.
pub fn bursts(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let ior = settings.workspace.join("target/peers/ior");
    let at = folder(settings, "bench-bursts")?;
    let measured = || -> Result<(), String> {
        for (jobs, size) in [(1, "64MiB"), (4, "16MiB")] {
            let what = format!("bursts of {size} by {jobs}, bytes a second");
            let weir = |outcome: &mut Outcome| {
                let load = line(&[
                    &settings.weir.display().to_string(),
                    "io",
                    "burst",
                    &at.display().to_string(),
                    "--jobs",
                    &jobs.to_string(),
                    "--size",
                    size,
                    "--repetitions",
                    "10",
                    "--json",
                ]);
                remember(outcome, &load);
                let ran = process::finish(&settings.scratch, &load, limit(settings))?;
                let said = json(&ran.stdout)?;
                let figure = said["points"][0]["metrics"]["io.burst_total_bytes_per_second"]["mean"].as_f64();
                Ok(Run { figure: figure.ok_or("no figure")?, cpu_seconds_per_million: ran.cpu_seconds })
            };
            if !ior.is_file() {
                let values: Result<Vec<Run>, String> =
                    (0..settings.rounds(ROUNDS)).map(|_| weir(&mut outcome)).collect();
                let values = values?.iter().map(|run| run.figure).collect();
                outcome.rows.push(Row {
                    name: format!("{what}, weir"),
                    unit: "B/s",
                    bound: Bound::None,
                    values,
                    arms: vec![],
                });
                continue;
            }
            beside(settings, &mut outcome, &what, "IOR", Bound::None, 0.97, |ours, outcome| {
                if ours {
                    return weir(outcome);
                }
                let bytes = size.replace("MiB", "m");
                let file = at.join("ior").display().to_string();
                let load = line(&[
                    "mpirun",
                    "--allow-run-as-root",
                    "--oversubscribe",
                    "-np",
                    &jobs.to_string(),
                    &ior.display().to_string(),
                    "-a",
                    "POSIX",
                    "-w",
                    "-F",
                    "-b",
                    &bytes,
                    "-t",
                    &bytes,
                    "-i",
                    "10",
                    "-o",
                    &file,
                    "-O",
                    "summaryFormat=JSON",
                ]);
                remember(outcome, &load);
                let ran = process::finish(&settings.scratch, &load, limit(settings))?;
                let said = json(&ran.stdout)?;
                let figure = said["summary"][0]["bwMeanMIB"].as_f64().map(|mean| mean * MIB as f64);
                Ok(Run {
                    figure: figure.ok_or("no figure of IOR's")?,
                    cpu_seconds_per_million: ran.cpu_seconds,
                })
            })?;
        }
        Ok(())
    };
    let mut measured = measured;
    let result = measured();
    let _ = std::fs::remove_dir_all(&at);
    result?;
    if !ior.is_file() {
        outcome.notes.push("IOR is absent (not in target/peers/ior): weir's own figures only.".to_owned());
    }
    Ok(outcome)
}
