//! `cargo xtask bench`: weir beside its peers, interleaved, with intervals. `bench/README.md` says how to read it.

mod bare;
mod events;
mod fabric;
mod groups;
mod joiner;
mod place;
mod process;
mod rattan;
pub mod record;
mod spread;
pub mod statistics;
mod storage;
mod tools;
mod watch;
mod workloads;

pub use bare::run as bare_loop;
pub use joiner::run as bare_joiner;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the command line asks for, and where things are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// At least this many rounds; a group may ask for more.
    pub rounds: Option<usize>,
    /// Of one stream run.
    pub duration: Duration,
    pub workspace: PathBuf,
    pub out: PathBuf,
    pub weir: PathBuf,
    pub iperf3: PathBuf,
    /// The emulator to compare with.
    pub rattan: PathBuf,
    /// The folder of neper's programs, which no distribution packages; `None` where it is absent.
    pub neper: Option<PathBuf>,
    /// The event builder over ZeroMQ to compare with.
    pub zeromq: PathBuf,
    /// For what the programs print.
    pub scratch: PathBuf,
}

impl Settings {
    /// The usual places: the release binary, the peers that `scripts/install-bench-peers` fetched.
    pub fn new(workspace: &Path) -> Settings {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        Settings {
            rounds: None,
            duration: Duration::from_secs(3),
            workspace: workspace.to_owned(),
            out: workspace.join("bench/runs"),
            weir: target.join("release/weir"),
            iperf3: workspace.join("target/peers/iperf3"),
            rattan: workspace.join("target/peers/bin/rattan"),
            zeromq: workspace.join("target/peers/zeromq-events"),
            neper: Some(
                std::env::var_os("WEIR_NEPER")
                    .map_or_else(|| workspace.join("target/peers/neper"), PathBuf::from),
            )
            .filter(|folder| folder.join("tcp_crr").is_file()),
            scratch: target.join("bench"),
        }
    }

    pub fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual)
    }

    /// Shown instead of absolute paths in what is recorded.
    pub fn shown(&self, text: &str) -> String {
        let own = std::env::current_exe().unwrap_or_default();
        let neper = self.neper.as_ref().map(|folder| format!("{}/", folder.display())).unwrap_or_default();
        let text = if neper.is_empty() { text.to_owned() } else { text.replace(&neper, "") };
        text.replace(&*own.to_string_lossy(), "xtask")
            .replace(&*self.scratch.to_string_lossy(), "SCRATCH")
            .replace(&*self.weir.to_string_lossy(), "weir")
            .replace(&*self.iperf3.to_string_lossy(), "iperf3")
            .replace(&*self.rattan.to_string_lossy(), "rattan")
            .replace(&*self.zeromq.to_string_lossy(), "zeromq-events")
            .replace(&*format!("{}/", self.workspace.display()), "")
    }
}

/// Runs the groups named, all if none. `Ok(false)` when one of them fails its bound.
pub fn run(workspace: &Path, arguments: &[String]) -> Result<bool, String> {
    let mut settings = Settings::new(workspace);
    let mut wanted = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--list" => {
                groups::GROUPS.iter().for_each(|group| println!("{:16} {}", group.name, group.about));
                return Ok(true);
            }
            "--rounds" => settings.rounds = Some(number(argument, value()?)?.max(1.0) as usize),
            "--duration" => {
                settings.duration = Duration::from_secs_f64(number(argument, value()?)?.clamp(1.0, 600.0))
            }
            "--out" => settings.out = PathBuf::from(value()?),
            name => match groups::GROUPS.iter().find(|group| group.name == name) {
                Some(group) => wanted.push(group),
                None => return Err(format!("no group {name:?}; `cargo xtask bench --list` names them")),
            },
        }
    }
    if wanted.is_empty() {
        wanted = groups::GROUPS.iter().collect();
    }
    if !settings.weir.is_file() {
        return Err(format!("{} is missing: cargo build --release", settings.weir.display()));
    }
    for folder in [&settings.out, &settings.scratch] {
        std::fs::create_dir_all(folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    }
    let mut all_kept = true;
    let mut broken = Vec::new();
    for group in wanted {
        println!("== {}: {}", group.name, group.about);
        let before = record::environment(&settings);
        // One group that cannot run is told at the end; the others still give their figures.
        match (group.run)(&settings) {
            Ok(outcome) => {
                let written = record::write(&settings, group, &before, &outcome)?;
                println!("{}{}", record::table(&outcome), settings.shown(&written.display().to_string()));
                all_kept &= outcome.rows.iter().all(|row| row.verdict() != statistics::Verdict::Fail);
            }
            Err(problem) => broken.push(format!("{}: {problem}", group.name)),
        }
    }
    if broken.is_empty() { Ok(all_kept) } else { Err(broken.join("\nxtask: ")) }
}

fn number(flag: &str, text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .ok_or_else(|| format!("{flag}: {text:?} is not a positive number"))
}
