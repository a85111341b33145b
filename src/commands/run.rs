//! `weir run`: a scenario in, a verdict and a report out.

#[cfg(feature = "parquet")]
use crate::commands::export;
use crate::commands::scenario_file::{self, Changes};
use crate::output::{self, print, say, say_json};
use crate::registry;
use crate::run::campaign::{Campaign, planned_time};
use crate::run::needs;
use crate::run::progress::Progress;
use crate::run::resume;
use crate::run::services;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_core::judge;
use weir_core::metric::Metric;
use weir_core::record::{PointSummary, SUMMARY_SCHEMA, Summary, Verdict};
use weir_core::scenario::{self, Overrides, Plan, RealHost};
use weir_core::text;
use weir_report::{Folder, Interrupted, RunRecords, Style, TrialSet, Writer};
use weir_seams::entry::Need;
#[cfg(feature = "parquet")]
use weir_sys::directory::Directory;

const LAB_NEEDS: &[Need] = &[Need::Root, Need::Tun];
const HOSTS_NEEDS: &[Need] = &[Need::SshClient];

/// Run a scenario: load the path, judge the criteria, write a report.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir run scenarios/quickstart.toml
  weir run scenarios/quickstart.toml --short --json | jq .verdict
  weir run scenarios/quickstart.toml --set link.wan.rtt=50ms --trials 3
  weir run --resume results/quickstart/2026-01-01T12-00-00Z-4f2a

Ctrl-C once drains and keeps what was measured; twice stops at once.")]
pub struct Args {
    /// Scenario file (TOML); with --resume it may be left out
    #[arg(required_unless_present = "resume")]
    file: Option<PathBuf>,
    /// Folder for results: DIR/NAME/UTC-TIME-ID
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    #[command(flatten)]
    changes: Changes,
    /// Print the summary document on standard output and nothing else
    #[arg(long)]
    json: bool,
    /// Go on with a run that was cut short, at its first missing trial: its results folder
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Configuration of the ssh client for [hosts], instead of ~/.ssh/config
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let overrides = args.changes.overrides();
    let Some(file) = &args.file else {
        let directory = args.resume.as_deref().context("give a scenario file, or --resume DIR")?;
        if args.changes.short {
            bail!("--short belongs to a scenario file; {} holds the form that was run", directory.display());
        }
        return resume(args, directory, &directory.join("scenario.toml"), &overrides);
    };
    if let Some(directory) = &args.resume {
        return resume(args, directory, file, &overrides);
    }
    let Ok(plan) = scenario_file::load(file, &overrides)? else { return Ok(2) };
    let total = planned_time(registry::workloads(), &plan, &TrialSet::default())?;
    needs::probe(needed(&plan))?;
    let (program, key) = (program()?, random_hex(32)?);
    let run_id = run_id()?;
    if !args.json {
        announce(&plan, total)?;
    }
    let library = registry::library(file);
    services::check_installed(&library, &plan.configurations)?;
    let writer = Writer::create_below(&args.out, &[&plan.name, &run_id])?;
    let folder = writer.directory().to_owned();
    let campaign = Campaign::new(&plan, registry::workloads(), program, key, &library, writer)?;
    carry_out(args, &plan, campaign, total, &folder)
}

/// Goes on with the run in `directory`, as long as `file` with `overrides` is that run.
fn resume(args: &Args, directory: &Path, file: &Path, overrides: &Overrides) -> anyhow::Result<i32> {
    if !args.changes.sets.is_empty() {
        bail!(
            "--set makes another run; a run is resumed as it was begun: leave --set out, or start a run of its own"
        );
    }
    let interrupted = Interrupted::read(directory)?;
    let Ok(plan) = scenario_file::load(file, overrides)? else { return Ok(2) };
    let library = registry::library(file);
    let again = scenario::load(
        &interrupted.scenario_toml,
        &directory.join("scenario.toml").display().to_string(),
        &Overrides::default(),
        registry::language(&library),
    );
    let settled = again.map(|plan| plan.resolved).unwrap_or_default();
    if let Some(difference) = resume::difference(&interrupted, &plan, &settled) {
        bail!("the run in {} cannot be resumed with this: {difference}", directory.display());
    }
    let total = planned_time(registry::workloads(), &plan, &interrupted.finished)?;
    if !interrupted.is_complete() {
        needs::probe(needed(&plan))?;
    }
    let (program, key) = (program()?, random_hex(32)?);
    if !args.json {
        let all = plan.configurations.len() * plan.trials as usize;
        say(format_args!("{}: {}", plan.name, text::shown(&plan.about, text::SHOWN_BYTES_MAX)))?;
        say(format_args!(
            "resumed: {} of {all} trials are there, about {:.0} s of running to go; seed {}",
            interrupted.finished.len(),
            total.as_secs_f64().ceil(),
            plan.seed
        ))?;
    }
    let campaign = Campaign::resume(&plan, registry::workloads(), program, key, &library, interrupted)?;
    carry_out(args, &plan, campaign, total, directory)
}

fn needed(plan: &Plan) -> &'static [Need] {
    let of_hosts = |of: fn(&RealHost) -> bool| {
        let mut hosts = plan.configurations.iter().map(|configuration| configuration.hosts.as_deref());
        hosts.all(|hosts| hosts.is_some_and(|hosts| hosts.iter().all(of)))
    };
    match () {
        () if of_hosts(|host| host.launcher == "local") => &[],
        () if of_hosts(|_| true) => HOSTS_NEEDS,
        () => LAB_NEEDS,
    }
}

pub(super) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

fn announce(plan: &Plan, total: Duration) -> anyhow::Result<()> {
    let steps = plan.configurations.first().map_or(0, |configuration| configuration.steps.len());
    let count = plan.configurations.len();
    let configurations = if count == 1 { String::new() } else { format!("{count} configurations × ") };
    say(format_args!("{}: {}", plan.name, text::shown(&plan.about, text::SHOWN_BYTES_MAX)))?;
    say(format_args!(
        "plan: {configurations}{steps} step{} × {} trial{}, about {:.0} s of running; seed {}",
        if steps == 1 { "" } else { "s" },
        plan.trials,
        if plan.trials == 1 { "" } else { "s" },
        total.as_secs_f64().ceil(),
        plan.seed
    ))?;
    Ok(())
}

fn carry_out(
    args: &Args,
    plan: &Plan,
    mut campaign: Campaign<'_>,
    total: Duration,
    folder: &Path,
) -> anyhow::Result<i32> {
    weir_sys::signal::count_interrupts();
    let mut progress = Progress::new(total, args.json);
    campaign.ssh_configuration = args.ssh_config.clone();
    let ran = campaign.run(&mut progress);
    progress.finish();
    ran.with_context(|| {
        let folder = folder.display();
        format!("the run ended early; what was measured is in {folder}, and `weir run --resume {folder}` goes on with it")
    })?;
    finish(args, plan, campaign, folder)
}

fn finish(args: &Args, plan: &Plan, campaign: Campaign<'_>, folder: &Path) -> anyhow::Result<i32> {
    let again = format!("`weir run --resume {}` goes on with it", folder.display());
    let summary = conclude(plan, campaign, folder, judge::summarise_run, &again)?;
    if args.json {
        say_json(weir_report::json(&summary))?;
    } else {
        print(&weir_report::terminal(&summary, shown()))?;
    }
    Ok(match summary.verdict {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
        Verdict::Inconclusive => 3,
    })
}

type Summarise = fn(&Plan, &dyn judge::Records, &[Metric]) -> Vec<PointSummary>;

/// Judges a run that is over, and writes tables, summary and report. `again` says what to do about one that was cut short.
pub(super) fn conclude(
    plan: &Plan,
    mut campaign: Campaign<'_>,
    folder: &Path,
    summarise: Summarise,
    again: &str,
) -> anyhow::Result<Summary> {
    let metrics = registry::metrics();
    // Gone before the page is drawn, which takes its own room.
    let records = std::mem::replace(&mut campaign.records, RunRecords::new(folder));
    let (criteria, mut verdict) = judge::judge(plan, &records, &metrics);
    let points = summarise(plan, &records, &metrics);
    if let Some(error) = records.failed() {
        return Err(error).context("the run cannot be judged");
    }
    drop(records);
    let mut warnings = campaign.warnings();
    if weir_sys::signal::interrupts() > 0 {
        warnings.push(format!("the run was cut short by the user; {again}"));
        if verdict == Verdict::Pass {
            verdict = Verdict::Inconclusive;
        }
    }
    #[cfg_attr(not(feature = "parquet"), allow(unused_mut))]
    let mut summary = Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        scenario: plan.name.clone(),
        origin: plan.origin.clone(),
        scale: plan.scale.clone(),
        verdict,
        criteria,
        points,
        warnings,
        results: Some(folder.display().to_string()),
    };
    // The records are read back from their lines: a disk that has no room for tables of them has not lost any.
    #[cfg(feature = "parquet")]
    if let Some(tables) = registry::tables("parquet")
        && let Err(error) = Directory::open(folder)
            .context("cannot open the results folder")
            .and_then(|out| export::write(tables, folder, &out, &mut Vec::new()))
    {
        summary
            .warnings
            .push(format!("{error:#}; `weir export {} --parquet` makes the tables", folder.display()));
    }
    campaign.writer().summary(&summary)?;
    let read = Folder::read(folder)?;
    campaign.writer().rendering("report.html", &weir_report::html(&read))?;
    Ok(summary)
}

/// `2026-11-21T08-15-30Z-1f3a`: sorts by time, and two runs of one second differ.
pub(super) fn run_id() -> anyhow::Result<String> {
    let now = jiff::Timestamp::now();
    Ok(format!("{}-{}", now.strftime("%Y-%m-%dT%H-%M-%SZ"), random_hex(2)?))
}

pub(super) fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Tables are made for 80 columns.
fn shown() -> Style {
    Style { color: output::is_colored(), width: 80 }
}
