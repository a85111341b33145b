//! `weir check`: validates a scenario, prints the plan, and starts nothing.

use super::scenario_file::{self, Changes};
use super::text::hanging;
use crate::output::{print, say_json};
use crate::registry;
use crate::run::outlook;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use weir_core::model;
use weir_core::scenario::{Bound, Configuration, Plan, ScenarioErrors, Step};
use weir_core::units::human;
use weir_core::{Bytes, Value as Parameter};
use weir_seams::workload::Estimate;

/// Check a scenario and print its plan; start nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir check scenarios/quickstart.toml
  weir check scenarios/quickstart.toml --set link.wan.rtt=50ms --json | jq .estimated_seconds

Exit status: 0 the scenario is good, 2 it is not.")]
pub struct Args {
    /// Scenario file (TOML)
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    /// Print the plan (or the problems) as one JSON document
    #[arg(long)]
    json: bool,
}

/// Points listed on a terminal; `--json` has all.
const POINTS_SHOWN: usize = 16;
/// Cycles of a periodic event that a series must hold before the period can be told (DESIGN, measuring rule 8).
const CYCLES_MIN: f64 = 4.0;
/// A rate measured over less says little of a path's long run.
const RATE_SECONDS_MIN: f64 = 10.0;

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let plan = match scenario_file::load(&args.file, &args.changes.overrides())? {
        Ok(plan) => plan,
        Err(errors) => {
            if args.json {
                say_json(serde_json::to_string_pretty(&problems_json(&errors))?)?;
            }
            return Ok(2);
        }
    };
    let outlook = Outlook::of(&plan)?;
    if args.json {
        say_json(serde_json::to_string_pretty(&json(&plan, &outlook))?)?;
    } else {
        print(&text_of(&plan, &outlook))?;
    }
    Ok(0)
}

/// What one point will take and show.
struct Prospect<'a> {
    configuration: &'a Configuration,
    step: &'a Step,
    estimate: Estimate,
    /// Exact where the step says how many bytes it moves, else what the ceiling would allow.
    bytes_at_most: Option<u64>,
    ceiling: Option<f64>,
    detects: Vec<String>,
    losses: Option<f64>,
}

struct Outlook<'a> {
    prospects: Vec<Prospect<'a>>,
    /// What trials are too short for, each once.
    warnings: Vec<String>,
    /// Of all trials; starts, drains and the building of labs come on top.
    duration: Duration,
    bytes_at_most: Option<u64>,
}

impl<'a> Outlook<'a> {
    fn of(plan: &'a Plan) -> anyhow::Result<Outlook<'a>> {
        let mut outlook = Outlook {
            prospects: Vec::new(),
            warnings: Vec::new(),
            duration: Duration::ZERO,
            bytes_at_most: Some(0),
        };
        for configuration in &plan.configurations {
            let first = outlook.prospects.len();
            for step in &configuration.steps {
                outlook.prospects.push(prospect(configuration, step)?);
            }
            for warning in blind_spots(configuration, &outlook.prospects[first..]) {
                if !outlook.warnings.contains(&warning) {
                    outlook.warnings.push(warning);
                }
            }
            let own = &outlook.prospects[first..];
            outlook.duration = outlook.duration.saturating_add(trial_length(own).saturating_mul(plan.trials));
            for prospect in own {
                let bytes = prospect.bytes_at_most.map(|bytes| bytes.saturating_mul(u64::from(plan.trials)));
                outlook.bytes_at_most = outlook.bytes_at_most.zip(bytes).map(|(a, b)| a.saturating_add(b));
            }
        }
        Ok(outlook)
    }
}

fn prospect<'a>(configuration: &'a Configuration, step: &'a Step) -> anyhow::Result<Prospect<'a>> {
    let rtt = longest_rtt(configuration, step);
    let estimate = crate::run::campaign::estimate(registry::workloads(), configuration, step)
        .with_context(|| format!("point {}", step.point))?;
    let ceiling = crate::run::campaign::ceiling(configuration, step);
    let loaded = step.values.duration("duration").unwrap_or(estimate.duration).as_secs_f64();
    let rounds = step.rounds.len().max(1) as f64;
    let by_ceiling = ceiling.map(|ceiling| (ceiling * loaded * rounds / 8.0) as u64);
    let bytes_at_most = estimate.bytes.or(by_ceiling).or(latency_bytes(step));
    let detects = detects(step, &estimate, rtt);
    let measured = measured(step);
    let losses = measured.and_then(|measured| losses(configuration, step, measured, rtt, ceiling));
    Ok(Prospect { configuration, step, estimate, bytes_at_most, ceiling, detects, losses })
}

/// Requests and replies of a step that counts operations of one size.
fn latency_bytes(step: &Step) -> Option<u64> {
    let size = match step.values.get("size") {
        Some(Parameter::Size(size)) => size.0,
        _ => return None,
    };
    let count = step.values.count("count")?;
    size.checked_mul(2)?.checked_mul(count)?.checked_mul(step.pairs.len() as u64)
}

fn longest_rtt(configuration: &Configuration, step: &Step) -> Duration {
    // Pairs of the same two sites have routes of the same length but for their access links; a few thousand pairs are
    // looked at one by one, more are too many to matter.
    let pairs = step.pairs.iter().take(256);
    pairs.filter_map(|(from, to)| configuration.topology.rtt(*from, *to)).max().unwrap_or_default()
}

/// When the last step of a trial ends.
fn trial_length(steps: &[Prospect<'_>]) -> Duration {
    let parts = steps.iter().map(|prospect| (&prospect.step.start, prospect.estimate.duration));
    outlook::length(&outlook::windows(parts))
}

/// Seconds between warm-up and planned end, of a step that has one.
fn measured(step: &Step) -> Option<f64> {
    Some(step.values.duration("duration")?.saturating_sub(step.steady_after()).as_secs_f64())
}

/// What trials of a configuration are too short for: fewer than four cycles of a fault that repeats (measuring rule 8), and
/// rates that rest on less than ten seconds.
fn blind_spots(configuration: &Configuration, steps: &[Prospect<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let seconds = |value: f64| human(value, "s");
    let whole = trial_length(steps).as_secs_f64();
    for fault in &configuration.faults {
        let Some(every) = fault.every.map(|every| every.as_secs_f64()) else { continue };
        let seen = match fault.step {
            Some(step) => steps.get(step).map_or(0.0, |prospect| prospect.estimate.duration.as_secs_f64()),
            None => whole,
        };
        if seen < CYCLES_MIN * every {
            warnings.push(format!(
                "fault {} comes every {} and a trial lasts {}: {:.1} cycles, and telling a period takes {CYCLES_MIN}",
                fault.name,
                seconds(every),
                seconds(seen),
                seen / every
            ));
        }
    }
    for prospect in steps {
        let Some(measured) = measured(prospect.step).filter(|measured| *measured < RATE_SECONDS_MIN) else {
            continue;
        };
        warnings.push(format!(
            "step {}: rates rest on {} of each trial; below {} the start of connections and single losses weigh in",
            prospect.step.name,
            seconds(measured),
            seconds(RATE_SECONDS_MIN)
        ));
    }
    warnings
}

/// What a trial of this step can and cannot show.
fn detects(step: &Step, estimate: &Estimate, rtt: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    let seconds = |value: f64| human(value, "s");
    if let Some(count) = step.values.count("count") {
        let least = 100.0 * (1.0 - 10.0 / count as f64);
        lines.push(if count < 20 {
            format!("{count} operations a trial: a median at best, no percentiles")
        } else {
            format!(
                "{count} operations a trial: percentiles up to about p{} rest on ten or more",
                round_down(least)
            )
        });
    }
    let probed = step.values.duration("probe_every").and(step.values.duration("probe_duration"));
    if let Some(length) = probed.map(|length| length.as_secs_f64()) {
        lines.push(format!(
            "each probe of {} is too short for periods > {}",
            seconds(length),
            seconds(length / CYCLES_MIN)
        ));
    }
    // Where probes are alone nothing is looked at finely.
    let fine = step.values.flag("long_flow") != Some(false);
    if let Some(measured) = measured(step).filter(|_| fine) {
        let interval = step.values.duration("interval").unwrap_or(Duration::from_millis(10)).as_secs_f64();
        lines.push(format!(
            "measures {}, a sample every {}: stalls shorter than {} are not seen",
            seconds(measured),
            seconds(interval),
            seconds(interval)
        ));
        lines.push(format!(
            "periods from {} to {} can be told; a longer one needs {} cycles",
            seconds(2.0 * interval),
            seconds(measured / CYCLES_MIN),
            CYCLES_MIN as u32
        ));
        if estimate.duration_bounded && measured < 20.0 * rtt.as_secs_f64() {
            lines.push(format!(
                "only {:.0} round trips of {}: the start of the connections weighs in",
                measured / rtt.as_secs_f64(),
                seconds(rtt.as_secs_f64())
            ));
        }
    }
    lines
}

/// How many losses a flow will meet in a trial, as Reno would: `None` without loss. Few losses make rates that vary much
/// from trial to trial (DESIGN, measuring rule 14).
fn losses(
    configuration: &Configuration,
    step: &Step,
    measured: f64,
    rtt: Duration,
    ceiling: Option<f64>,
) -> Option<f64> {
    let (from, to) = *step.pairs.first()?;
    let links = configuration.topology.directed_links();
    let path = configuration.topology.path(from, to)?;
    let kept: f64 = path.iter().map(|index| 1.0 - links[*index].loss).product();
    let loss = 1.0 - kept;
    if loss <= 0.0 {
        return None;
    }
    let mtu = path.iter().map(|index| links[*index].mtu).min()?;
    let segment = Bytes(u64::from(model::Segments::of(step).payload_bytes(mtu)));
    let at_once = if step.rounds.is_empty() { step.pairs.len() } else { 1 };
    let flows = (at_once as u64 * step.values.count("streams").unwrap_or(1)) as f64;
    let ceiling = if step.rounds.is_empty() {
        ceiling
    } else {
        crate::run::campaign::ceiling(configuration, &step.of_pair(0))
    };
    let share = ceiling.map_or(f64::INFINITY, |ceiling| ceiling / flows);
    let rate = model::mathis(segment, rtt, loss).unwrap_or(f64::INFINITY).min(share);
    let count = rate / 8.0 / segment.0 as f64 * measured * loss;
    count.is_finite().then_some(count)
}

/// Two decimals, never above the truth.
fn round_down(percent: f64) -> f64 {
    (percent * 100.0).floor() / 100.0
}

fn json(plan: &Plan, outlook: &Outlook<'_>) -> Value {
    let points: Vec<Value> = outlook
        .prospects
        .iter()
        .map(|prospect| {
            let parameters: serde_json::Map<String, Value> = prospect
                .step
                .parameters
                .iter()
                .map(|(name, value)| (name.clone(), value.to_json()))
                .collect();
            json!({
                "id": prospect.step.point,
                "step": prospect.step.name,
                "workload": prospect.step.workload,
                "case": prospect.configuration.case,
                "parameters": parameters,
                "pairs": prospect.step.pairs.len(),
                "local_pairs": local_pairs(prospect),
                "rounds": rounds(prospect),
                "estimated_seconds": prospect.estimate.duration.as_secs_f64(),
                "bytes_at_most": prospect.bytes_at_most,
                "ceiling_bits_per_second": prospect.ceiling,
                "detects": prospect.detects,
                "losses_per_flow": prospect.losses,
            })
        })
        .collect();
    let criteria: Vec<Value> = plan
        .criteria
        .iter()
        .map(|criterion| {
            let points = plan.points_of(criterion);
            let id = |(configuration, step): &(usize, usize)| {
                plan.configurations[*configuration].steps[*step].point.clone()
            };
            json!({
                "text": criterion.text,
                "metric": criterion.metric,
                "statistic": criterion.statistic,
                "bound": bound_text(&criterion.bound),
                "points": points.iter().map(id).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "valid": true,
        "scenario": plan.name,
        "about": plan.about,
        "origin": plan.origin,
        "scale": plan.scale,
        "trials": plan.trials,
        "trials_min": plan.trials_min,
        "seed": plan.seed,
        "configurations": plan.configurations.len(),
        "estimated_seconds": outlook.duration.as_secs_f64(),
        "bytes_at_most": outlook.bytes_at_most,
        "points": points,
        "criteria": criteria,
        "not_judged": plan.not_judged,
        "warnings": plan.warnings.iter().chain(&outlook.warnings).collect::<Vec<_>>(),
    })
}

/// How many take part: pairs, or hosts where none are paired.
fn who(step: &Step) -> String {
    let (count, what) = match step.pairs.len() {
        0 => (step.hosts().collect::<BTreeSet<_>>().len(), "host"),
        pairs => (pairs, "pair"),
    };
    format!("{count} {what}{}", plural(count))
}

/// Pairs within one site, where others are between sites and all take turns.
fn local_pairs(prospect: &Prospect<'_>) -> usize {
    let (step, topology) = (prospect.step, &prospect.configuration.topology);
    if step.rounds.is_empty() {
        return 0;
    }
    (0..step.pairs.len()).filter(|pair| step.is_local(topology, *pair)).count()
}

/// Pairs of each round by the names of their hosts; empty where all load at once.
fn rounds<'a>(prospect: &Prospect<'a>) -> Vec<Vec<[&'a str; 2]>> {
    let (step, hosts) = (prospect.step, &prospect.configuration.topology.hosts);
    let names = |pair: &usize| {
        let (from, to) = step.pairs[*pair];
        [hosts[from].name.as_str(), hosts[to].name.as_str()]
    };
    step.rounds.iter().map(|round| round.iter().map(names).collect()).collect()
}

/// ` (8 of them local) in 14 rounds`
fn turns_text(prospect: &Prospect<'_>) -> String {
    let rounds = prospect.step.rounds.len();
    let local = match local_pairs(prospect) {
        0 => String::new(),
        local => format!(" ({local} of them local)"),
    };
    if rounds == 0 { String::new() } else { format!("{local} in {rounds} round{}", plural(rounds)) }
}

fn problems_json(errors: &ScenarioErrors) -> Value {
    let problems: Vec<Value> = errors
        .problems
        .iter()
        .map(|problem| {
            json!({
                "origin": problem.origin,
                "line": problem.line,
                "column": problem.column,
                "message": problem.message,
                "help": problem.help,
            })
        })
        .collect();
    json!({"valid": false, "problems": problems, "further": errors.further})
}

fn bound_text(bound: &Bound) -> String {
    match bound {
        Bound::AtLeast(value) => format!("at least {value}"),
        Bound::AtMost(value) => format!("at most {value}"),
        Bound::Between(least, most) => format!("{least} to {most}"),
        Bound::LimitingFactor(name) => format!("limiting factor {name}"),
    }
}

fn text_of(plan: &Plan, outlook: &Outlook<'_>) -> String {
    let mut out = String::new();
    line(&mut out, "", &format!("{}: {}", plan.name, plan.about));
    let steps = plan.configurations.first().map_or(0, |configuration| configuration.steps.len());
    let configurations = plan.configurations.len();
    line(
        &mut out,
        "",
        &format!(
            "plan: {configurations} configuration{} × {} trial{} × {steps} step{}; seed {}",
            plural(configurations),
            plan.trials,
            plural(plan.trials as usize),
            plural(steps),
            plan.seed
        ),
    );
    let bytes = outlook
        .bytes_at_most
        .map_or(String::new(), |bytes| format!(", up to {} of payload", human(bytes as f64, "B")));
    let seconds = outlook.duration.as_secs_f64().ceil();
    line(&mut out, "", &format!("time: about {} of running{bytes}", clock(seconds)));
    if !plan.scale.is_empty() {
        let factors: Vec<String> =
            plan.scale.iter().map(|(what, factor)| format!("{what} {factor}")).collect();
        line(&mut out, "", &format!("scale: {}; results are not rescaled", factors.join(", ")));
    }
    if plan.trials < 5 {
        line(&mut out, "", "note: below five trials results have a range and no 95 % interval");
    }
    if steps == 0 {
        line(&mut out, "", "note: no steps; this file is for `weir lab up`");
    }
    if !outlook.prospects.is_empty() {
        out.push_str("\npoints\n");
    }
    for prospect in outlook.prospects.iter().take(POINTS_SHOWN) {
        let ceiling =
            prospect.ceiling.map_or(String::new(), |rate| format!(", ceiling {}", human(rate, "bit/s")));
        let length = human(prospect.estimate.duration.as_secs_f64(), "s");
        let text = format!(
            "{}  {}, {}{}, {length}{ceiling}",
            prospect.step.point,
            prospect.step.workload,
            who(prospect.step),
            turns_text(prospect)
        );
        line(&mut out, "  ", &text);
    }
    let more = outlook.prospects.len().saturating_sub(POINTS_SHOWN);
    if more > 0 {
        line(&mut out, "  ", &format!("… and {more} more; --json lists all"));
    }
    detections(&mut out, outlook);
    criteria(&mut out, plan);
    for warning in plan.warnings.iter().chain(&outlook.warnings) {
        line(&mut out, "", &format!("warning: {warning}"));
    }
    out
}

/// What trials of one step can show, at all of its points.
struct Shows<'a> {
    name: &'a str,
    lines: Vec<String>,
    /// Least and most a flow and trial.
    losses: Option<[f64; 2]>,
}

/// What trials can show, each line once for all the points of a step it holds for.
fn detections(out: &mut String, outlook: &Outlook<'_>) {
    let mut steps: Vec<Shows<'_>> = Vec::new();
    for prospect in &outlook.prospects {
        let name = prospect.step.name.as_str();
        let index = steps.iter().position(|step| step.name == name).unwrap_or_else(|| {
            steps.push(Shows { name, lines: Vec::new(), losses: None });
            steps.len() - 1
        });
        let Shows { lines, losses, .. } = &mut steps[index];
        for text in &prospect.detects {
            if !lines.contains(text) && lines.len() < 8 {
                lines.push(text.clone());
            }
        }
        if let Some(count) = prospect.losses {
            let [least, most] = losses.unwrap_or([count, count]);
            *losses = Some([least.min(count), most.max(count)]);
        }
    }
    steps.retain(|step| !step.lines.is_empty() || step.losses.is_some());
    if steps.is_empty() {
        return;
    }
    out.push_str("\nwhat a trial can and cannot show\n");
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or(0).min(20);
    for Shows { name, mut lines, losses } in steps {
        if let Some([least, most]) = losses {
            let (least, most) = (least.round(), most.round());
            let count = if least == most { format!("{most}") } else { format!("{least} to {most}") };
            let warning = if least < 100.0 { ": rates will vary much between trials" } else { "" };
            lines.push(format!("about {count} losses a flow and trial, as Reno would{warning}"));
        }
        for (index, text) in lines.iter().enumerate() {
            let head = if index == 0 { name } else { "" };
            hanging(out, &format!("  {head:<width$}  "), width + 4, text);
        }
    }
}

fn criteria(out: &mut String, plan: &Plan) {
    if !plan.criteria.is_empty() {
        out.push_str("\ncriteria\n");
    }
    for criterion in &plan.criteria {
        let points = plan.points_of(criterion).len();
        let points = if points == 1 { String::new() } else { format!(" [{points} points]") };
        line(out, "  ", &format!("- {}{points}", criterion.text));
    }
    for text in &plan.not_judged {
        line(out, "  ", &format!("- not judged here: {text}"));
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn clock(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", (seconds / 60.0).ceil()),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// One line, broken at 80 columns.
fn line(out: &mut String, indent: &str, text: &str) {
    hanging(out, indent, indent.len() + 4, text);
}
