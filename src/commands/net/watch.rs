//! `weir net watch`: a path looked at for hours, its series kept as they come.

use super::flags::Flags;
use super::{Common, common, measure};
use crate::output::tell;
use anyhow::bail;
use std::path::{Path, PathBuf};
use weir_core::chunk::{Chunk, ChunkRecord};
use weir_core::param::Kind;
use weir_core::record::{
    ConfigurationRecord, PlanRecord, RESULTS_SCHEMA, SampleRecord, StepRecord, Summary, TrialRecord,
};
use weir_core::topology::Topology;
use weir_core::{Value, Values};
use weir_net::adhoc::{AdhocError, Job, Measurement};
use weir_net::watch::plan::WatchPlan;
use weir_report::{Folder, Writer};

/// A long flow looked at finely, beside short tests: what each of the two views says of the path.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net watch there --duration 1h --out watched --key-file key
  weir net watch there --duration 1h --pacing 50Mbit/s --probe-every 73s
  weir net watch there --duration 24h --probes-alone --probe-every 1h --json

With --out every sample of both ends is on disk within some seconds; `weir report DIR` draws them, also of a
watch that was killed. Ctrl-C ends the watch and gives its summary.")]
pub struct WatchArgs {
    #[command(flatten)]
    common: Common,
    /// How long to watch, warm-up included
    #[arg(long, value_name = "TIME", default_value = "10min")]
    duration: String,
    /// Resolution of the series, from 1ms
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    interval: String,
    /// Long flows
    #[arg(long, value_name = "N", default_value = "1")]
    streams: String,
    /// Cap on the rate at which one connection sends payload
    #[arg(long, value_name = "RATE")]
    pacing: Option<String>,
    /// Cap on what one connection has in flight
    #[arg(long, value_name = "SIZE")]
    window: Option<String>,
    /// From the start of one short test to that of the next [default: none are made]
    #[arg(long, value_name = "TIME")]
    probe_every: Option<String>,
    /// How long each short test sends
    #[arg(long, value_name = "TIME", default_value = "10s")]
    probe_duration: String,
    /// No long flow: the short tests alone, as a schedule would make them
    #[arg(long, requires = "probe_every")]
    probes_alone: bool,
    /// What the path gives when nothing is wrong [default: the best that was measured]
    #[arg(long, value_name = "RATE")]
    unimpaired: Option<String>,
    /// A new folder for the series, the summary and a report
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const STEP: &str = "watch";

pub fn run(args: &WatchArgs) -> anyhow::Result<i32> {
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    if args.common.congestion.len() > 1 {
        bail!("--congestion takes one name here: a watch is one point");
    }
    flags.add("duration", Kind::Duration, [&args.duration])?;
    flags.add("interval", Kind::Duration, [&args.interval])?;
    flags.add("streams", Kind::Count, [&args.streams])?;
    flags.tcp("pacing", Kind::Rate, &args.pacing)?;
    flags.tcp("window", Kind::Size, &args.window)?;
    flags.add("probe_every", Kind::Duration, &args.probe_every)?;
    flags.add("probe_duration", Kind::Duration, [&args.probe_duration])?;
    flags.add("unimpaired", Kind::Rate, &args.unimpaired)?;
    let Some((mut values, _)) = flags.points()?.pop() else { bail!("there is nothing to watch") };
    if args.probes_alone {
        values.set("long_flow", Value::Flag(false));
    }
    let mut plan = WatchPlan::from_values(&values)?;
    plan.record = args.out.is_some();
    let mut measuring = measure::Measuring::begin(&args.common, STEP)?;
    let Some(directory) = &args.out else {
        measuring.point(&values, Vec::new(), &Job::Watch(plan))?;
        return measuring.finish(None);
    };
    let is_new = !directory.exists();
    let mut kept = Kept::create(directory, &args.common.host, &values)?;
    let measured = measuring.point_keeping(&values, &Job::Watch(plan), &mut |chunk| kept.chunk(chunk));
    let measurement = match measured {
        Ok(point) => point.measurement.clone(),
        Err(error) => {
            // A folder that has nothing in it would only be in the way of the next try.
            if is_new && !kept.has_chunks {
                let _ = std::fs::remove_dir_all(directory);
            }
            return Err(error);
        }
    };
    kept.finish(&measurement, measuring.summary(Some(directory)))?;
    if !args.common.json {
        tell(format_args!("weir: report: {}", directory.join("report.html").display()));
    }
    measuring.finish_in(Some(directory))
}

/// The folder of a watch.
struct Kept {
    writer: Writer,
    has_chunks: bool,
}

impl Kept {
    fn create(directory: &Path, far: &str, values: &Values) -> anyhow::Result<Kept> {
        let writer = Writer::create(directory)?;
        writer
            .scenario_toml(&format!("# Measured ad hoc, by weir net watch {far}: there is no scenario.\n"))?;
        writer.plan(&plan(far, values))?;
        writer.metrics(measure::definitions(STEP))?;
        writer.shown(&crate::registry::shown())?;
        writer.environment(&serde_json::Value::Object(crate::run::environment::read(
            crate::run::environment::WATCHED,
        )))?;
        Ok(Kept { writer, has_chunks: false })
    }

    fn chunk(&mut self, chunk: Chunk) -> Result<(), AdhocError> {
        let record = ChunkRecord { point: STEP.to_owned(), trial: 0, step: STEP.to_owned(), chunk };
        self.has_chunks = true;
        self.writer.chunk(&record).map_err(|error| AdhocError::new(error.to_string()))
    }

    fn finish(&mut self, measurement: &Measurement, summary: Summary) -> anyhow::Result<()> {
        for series in &measurement.series {
            let (point, step) = (STEP.to_owned(), STEP.to_owned());
            self.writer.samples(&SampleRecord { point, trial: 0, step, series: series.clone() })?;
        }
        let Some(factor) = summary.points.first().map(|point| point.limiting_factor.clone()) else {
            return Ok(());
        };
        self.writer.trial(&[TrialRecord {
            point: STEP.to_owned(),
            configuration: String::new(),
            step: STEP.to_owned(),
            trial: 0,
            valid: measurement.invalid.is_none(),
            reason: measurement.invalid.clone(),
            start_ns: 0,
            end_ns: i64::try_from(measurement.length_ns).unwrap_or(i64::MAX),
            limiting_factor: factor,
            rows: measurement.rows.clone(),
            pairs: Vec::new(),
            granted: measurement.granted.clone(),
            failure_count: measurement.failures.len() as u64,
        }])?;
        self.writer.summary(&summary)?;
        let folder = Folder::read(self.writer.directory())?;
        self.writer.rendering("report.html", &weir_report::html(&folder))?;
        Ok(())
    }
}

/// The plan of a watch as a run's would be; of the path between the two nothing is known.
fn plan(far: &str, values: &Values) -> PlanRecord {
    PlanRecord {
        schema: RESULTS_SCHEMA.to_owned(),
        scenario: "net-watch".to_owned(),
        about: format!("A watch of the path to {far}"),
        origin: None,
        scale: Default::default(),
        trials: 1,
        trials_min: 1,
        seed: 0,
        configurations: vec![ConfigurationRecord {
            id: String::new(),
            case: None,
            topology: Topology { sites: Vec::new(), hosts: Vec::new(), links: Vec::new(), auxiliary: None },
            steps: vec![StepRecord {
                roles: Vec::new(),
                rounds: Vec::new(),
                name: STEP.to_owned(),
                workload: STEP.to_owned(),
                point: STEP.to_owned(),
                parameters: values.0.iter().map(|(key, value)| (key.clone(), value.to_json())).collect(),
                pairs: vec![["client".to_owned(), "server".to_owned()]],
                ceiling_bits_per_second: None,
                steady_after_ns: u64::try_from(measure::steady_after(values).as_nanos()).unwrap_or(u64::MAX),
            }],
            published: Default::default(),
        }],
        scenario_blake3: None,
        not_judged: Vec::new(),
    }
}
