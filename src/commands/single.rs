//! A measurement from the command line as a run of one step, on this machine: the same agent, records, evidence and checks as a
//! scenario has.

use crate::commands::run::{conclude, program, random_hex, run_id};
use crate::output::tell_as_it_is;
use crate::registry;
use crate::run::campaign::{Campaign, planned_time};
use crate::run::progress::Progress;
use anyhow::Context;
use std::fmt::Write;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use weir_core::judge;
use weir_core::metric::{Metric, Scope};
use weir_core::param::{Kind, Param};
use weir_core::record::{MetricSummary, Summary};
use weir_core::scenario::{self, Overrides};
use weir_core::units::human;
use weir_report::{TrialSet, Writer};
use weir_seams::workload::WorkloadEntry;

/// The host that loads.
const HERE: &str = "here-0";
/// What no run has is told by its place on the command line.
const PLACE: &str = "the command line";

/// One key of the step with its values as they were written; more than one are a sweep.
pub struct Given {
    pub param: &'static Param,
    pub texts: Vec<String>,
}

pub struct Single<'a> {
    pub workload: &'static WorkloadEntry,
    pub given: &'a [Given],
    pub trials: u32,
    /// Where the results stay; absent: nowhere.
    pub out: Option<&'a Path>,
    /// Nothing but the document is written.
    pub quiet: bool,
}

impl Single<'_> {
    /// What a scenario of it would say.
    pub fn scenario(&self) -> String {
        let name = self.workload.name;
        let mut text = format!(
            "[scenario]\nname = {name:?}\nabout = {:?}\ntrials = {}\n\n[hosts.{HERE}]\naddress = \"127.0.0.1\"\nlauncher = \
             \"local\"\n\n[[step]]\nname = {name:?}\nworkload = {name:?}\nhosts = {HERE:?}\n",
            self.workload.about, self.trials
        );
        let mut sweep = String::new();
        for Given { param, texts } in self.given {
            match texts.as_slice() {
                all if param.kind == Kind::Texts => {
                    let all: Vec<String> = all.iter().map(|text| written(param.kind, text)).collect();
                    _ = writeln!(text, "{} = [{}]", param.name, all.join(", "));
                }
                [one] => _ = writeln!(text, "{} = {}", param.name, written(param.kind, one)),
                all => {
                    let all: Vec<String> = all.iter().map(|text| written(param.kind, text)).collect();
                    _ = writeln!(sweep, "\"step.{name}.{}\" = [{}]", param.name, all.join(", "));
                }
            }
        }
        if !sweep.is_empty() {
            _ = write!(text, "\n[sweep]\n{sweep}");
        }
        text
    }

    /// Runs it. `None`: what was given is refused, and it was said why.
    pub fn run(&self) -> anyhow::Result<Option<Summary>> {
        let library = registry::library(Path::new(PLACE));
        let loaded =
            scenario::load(&self.scenario(), PLACE, &Overrides::default(), registry::language(&library));
        let plan = match loaded {
            Ok(plan) => plan,
            Err(errors) => {
                tell_as_it_is(errors.render(std::io::stderr().is_terminal()));
                return Ok(None);
            }
        };
        let total = planned_time(registry::workloads(), &plan, &TrialSet::default())?;
        let scratch = self.out.is_none().then(Scratch::new).transpose()?;
        let run_id = run_id()?;
        let writer = match (self.out, &scratch) {
            (Some(out), _) => Writer::create_below(out, &[&plan.name, &run_id])?,
            (None, Some(scratch)) => Writer::create_below(&scratch.0, &[&plan.name, &run_id])?,
            (None, None) => unreachable!("without a folder of the user's there is one of our own"),
        };
        let folder = writer.directory().to_owned();
        let (program, key) = (program()?, random_hex(32)?);
        let mut campaign = Campaign::new(&plan, registry::workloads(), program, key, &library, writer)?;
        weir_sys::signal::count_interrupts();
        let mut progress = Progress::new(total, self.quiet);
        let ran = campaign.run(&mut progress);
        progress.finish();
        ran?;
        let mut summary = conclude(
            &plan,
            campaign,
            &folder,
            judge::summarise_ad_hoc,
            "its figures are of the time it had",
        )?;
        if scratch.is_some() {
            summary.results = None;
        }
        Ok(Some(summary))
    }
}

/// As TOML has it: numbers and flags plain, everything else as a text.
fn written(kind: Kind, text: &str) -> String {
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    match kind {
        Kind::Count | Kind::Ratio if is_number => text.to_owned(),
        Kind::Flag if matches!(text, "true" | "false") => text.to_owned(),
        _ => serde_json::Value::from(text).to_string(),
    }
}

/// A folder of our own for as long as it lasts.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> anyhow::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("weir-{}-{}", std::process::id(), random_hex(4)?));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make a folder for the run's records: {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WIDTH: usize = 80;
const NAME: usize = 20;
const CELL: usize = 14;

/// The table for people, 80 columns, one line a point: of the metrics that are shown in columns.
pub fn table(summary: &Summary, metrics: &[Metric]) -> String {
    type Read = fn(&MetricSummary) -> f64;
    let mut shown: Vec<&Metric> = metrics.iter().filter(|metric| metric.column.is_some()).collect();
    shown.sort_by_key(|metric| metric.column);
    let columns: Vec<(&Metric, String, Read)> = shown
        .into_iter()
        .flat_map(|metric| -> Vec<(&Metric, String, Read)> {
            let name = spoken(metric);
            match metric.scope {
                Scope::Operation => vec![
                    (metric, format!("{name} 50 %"), |it| it.median),
                    (metric, format!("{name} 99 %"), |it| it.p99),
                ],
                _ => vec![(metric, name, |it| it.mean)],
            }
        })
        .take((WIDTH - NAME) / (CELL + 1))
        .collect();
    let mut out = format!("{:NAME$}", "");
    for (_, name, _) in &columns {
        _ = write!(out, " {name:>CELL$}");
    }
    out.push('\n');
    for point in &summary.points {
        // The name of the step says nothing where there is one.
        let name = point.id.split_once('/').map_or(point.id.as_str(), |(_, rest)| rest);
        let fits = name.chars().count() <= NAME;
        _ = write!(out, "{}", if fits { format!("{name:NAME$}") } else { format!("{name}\n{:NAME$}", "") });
        for (metric, _, read) in &columns {
            let cell = point.metrics.get(metric.name).map(|found| human(read(found), &found.unit));
            _ = write!(out, " {:>CELL$}", cell.unwrap_or_else(|| "–".to_owned()));
        }
        out.push('\n');
        let factor = &point.limiting_factor;
        let evidence = factor.evidence.first().map(|said| format!(" ({said})")).unwrap_or_default();
        if point.valid_trials > 0 {
            out.push_str(&weir_report::wrapped(
                "  limited by ",
                &format!("{}{evidence}", factor.name),
                WIDTH,
            ));
        }
    }
    for warning in &summary.warnings {
        out.push_str(&weir_report::wrapped("warning: ", warning, WIDTH));
    }
    if let Some(results) = &summary.results {
        out.push_str(&weir_report::wrapped("report   ", &format!("{results}/report.html"), WIDTH));
    }
    out
}

/// `io.bytes_total_per_second` as `bytes/s`.
fn spoken(metric: &Metric) -> String {
    let name = metric.name.split_once('.').map_or(metric.name, |(_, name)| name);
    let (name, per) = match name.strip_suffix("_per_second") {
        Some(name) => (name, "/s"),
        None => (name.strip_suffix("_seconds").unwrap_or(name), ""),
    };
    format!("{}{per}", name.trim_end_matches("_total").replace('_', " "))
}
