//! `weir net watch`: a path looked at for hours, its series kept as they come.

use super::super::flags::Flags;
use super::{Measure, measure};
use crate::output::tell;
use anyhow::bail;
use std::path::Path;
use weir_core::Values;
use weir_core::chunk::{Chunk, ChunkRecord};
use weir_core::record::{
    ConfigurationRecord, PlanRecord, RESULTS_SCHEMA, SampleRecord, StepRecord, Summary, TrialRecord,
};
use weir_core::topology::Topology;
use weir_net::adhoc::{AdhocError, Job, Measurement};
use weir_net::watch::plan::WatchPlan;
use weir_report::{Folder, Writer};

const STEP: &str = "watch";

pub fn run(args: &Measure, flags: &Flags) -> anyhow::Result<i32> {
    let mut points = flags.points()?;
    let (Some((values, _)), true) = (points.pop(), points.is_empty()) else {
        bail!("a watch is one point: none of its flags takes a list");
    };
    if values.flag("long_flow") == Some(false) && !args.has("probe_every") {
        bail!("--probes-alone needs --probe-every: there would be nothing to watch");
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
                steady_after_ns: weir_core::time::nanoseconds(measure::steady_after(values)),
            }],
            published: Default::default(),
        }],
        scenario_blake3: None,
        not_judged: Vec::new(),
    }
}
