//! `weir io`: load on anything that stores. The flags are the parameters of the workloads.

mod trace;

use super::flags::{flag, texts};
use super::single::{Given, Single, table};
use crate::output::{say, say_json};
use crate::registry;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use std::path::PathBuf;
use weir_core::param::Param;
use weir_core::record::PointSummary;
use weir_core::scenario;
use weir_seams::workload::WorkloadEntry;
use weir_storage::is_all_failed;

/// What the names of the workloads begin with.
const PREFIX: &str = "io-";
/// A load that is called so here too.
const REPLAY: &str = "replay";
/// What is no load.
const TRACE: &str = "trace";
/// Keys of every step that are flags here too.
const OF_STEPS: [&str; 3] = ["duration", "warm_up", "interval"];
/// Given by its place, and by this machine.
const TARGET: &str = "target";
const HOSTS: &str = "hosts";

/// Load storage: files of this machine, or of a server
pub enum Args {
    Load(LoadArgs),
    Trace(trace::TraceArgs),
}

pub struct LoadArgs {
    workload: &'static WorkloadEntry,
    given: Vec<Given>,
    out: Option<PathBuf>,
    trials: u32,
    json: bool,
}

fn entries() -> impl Iterator<Item = (&'static str, &'static WorkloadEntry)> {
    let name = |name: &'static str| name.strip_prefix(PREFIX).or((name == REPLAY).then_some(REPLAY));
    registry::workloads().iter().filter_map(move |entry| Some((name(entry.name)?, entry)))
}

/// The workload's keys and those of every step, each once.
fn params(entry: &'static WorkloadEntry) -> impl Iterator<Item = &'static Param> {
    let own =
        entry.params.iter().filter(|param| !matches!(param.name, TARGET | HOSTS | weir_storage::CACHES_KEY));
    // A load that is a number of repetitions, or a trace, has no time of its own.
    let is_counted = entry.params.iter().any(|param| matches!(param.name, "repetitions" | "trace"));
    let of_steps: &[&str] = if is_counted { &[] } else { &OF_STEPS };
    own.chain(of_steps.iter().filter_map(|name| scenario::step_key(name)))
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let of = |(name, entry): (&'static str, &'static WorkloadEntry)| {
            let target = Arg::new(TARGET)
                .required(true)
                .value_name("TARGET")
                .help("A path or a URL; `weir list target` has the kinds and their options");
            let out =
                Arg::new("out").long("out").value_name("DIR").value_parser(clap::value_parser!(PathBuf));
            let trials = Arg::new("trials").long("trials").value_name("N").default_value("1");
            let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
            Command::new(name)
                .about(entry.about.trim_end_matches('.'))
                .arg(target)
                .args(params(entry).map(flag))
                .arg(
                    trials
                        .value_parser(clap::value_parser!(u32).range(1..))
                        .help("How often each point is measured"),
                )
                .arg(out.help("Keep the results and the report in DIR/NAME/UTC-TIME-ID"))
                .arg(json.help("Print the summary document on standard output and nothing else"))
        };
        command
            .about("Load storage: files of this machine, or of a server")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands(entries().map(of))
            .subcommand(trace::TraceArgs::augment_args(Command::new(TRACE)))
            .after_help(
                "\
Examples:
  weir io seq /data/big --size 1MiB,4MiB --verify
  weir io random /data --file-size 1GiB --depth 1,8,32 --duration 10s --json
  weir io random '/data/f?direct=true' --mix 0.7 --rate 2kHz --duration 1min
  weir io seq mem: --file-size 1GiB --jobs 4
  weir io burst /data --jobs 1,4,16 --size 40MB
  weir io small dav://store:8080/set --jobs 20 --files 200 --verify
  weir io replay root://store//data --trace random-1 random-2 --jobs 100 --think 20ms

Files that a load makes go away with it; one that exists is only read unless --mix says otherwise.
A flag with a list measures one point a value.",
            )
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        if name == TRACE {
            return trace::TraceArgs::from_arg_matches(matches).map(Args::Trace);
        }
        let (_, workload) = entries().find(|(known, _)| *known == name).ok_or_else(missing)?;
        let target = workload.params.iter().filter(|param| param.name == TARGET);
        let given = target.chain(params(workload)).filter_map(|param| {
            let texts = texts(matches, param);
            (!texts.is_empty()).then_some(Given { param, texts })
        });
        Ok(Args::Load(LoadArgs {
            workload,
            given: given.collect(),
            out: matches.get_one::<PathBuf>("out").cloned(),
            trials: matches.get_one::<u32>("trials").copied().unwrap_or(1),
            json: matches.get_flag("json"),
        }))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Exit status 2: nothing could be measured; 3: what was measured does not count, or not all of it was, or every operation failed.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    let args = match args {
        Args::Load(args) => args,
        Args::Trace(args) => return trace::run(args),
    };
    let single = Single {
        workload: args.workload,
        given: &args.given,
        trials: args.trials,
        out: args.out.as_deref(),
        quiet: args.json,
    };
    let Some(summary) = single.run()? else { return Ok(2) };
    if args.json {
        say_json(weir_report::json(&summary))?;
    } else {
        say(table(&summary, args.workload.build.metrics()).trim_end())?;
    }
    if summary.points.iter().all(|point| point.valid_trials == 0 && point.metrics.is_empty()) {
        return Ok(2);
    }
    let is_measured = |point: &PointSummary| point.valid_trials > 0 && !is_all_failed(&point.metrics);
    let complete = summary.points.iter().all(is_measured);
    Ok(if complete && weir_sys::signal::interrupts() == 0 { 0 } else { 3 })
}
