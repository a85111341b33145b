//! An application that computes, writes its state, and reads it back when it starts again.

use super::outcome::{mean, of_rounds, value};
use super::{Act, JobOrder, Kind, Script, ScriptFile, ScriptPlan, Section};
use crate::metrics::{OF_READ_TOTAL, OF_WRITE_TOTAL, READ_TOTAL, WRITE_TOTAL};
use std::time::Duration;
use weir_core::evidence::Around;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Row;
use weir_core::{Kind as Type, Param};
use weir_seams::target::Mode;
use weir_seams::workload::WorkloadError;

pub struct Restart;
pub static RESTART: Restart = Restart;

pub const LOST: &str = "io.restart_lost_ratio";

static METRICS: &[Metric] = &[
    OF_WRITE_TOTAL.column(0).swept(),
    OF_READ_TOTAL.column(1).swept(),
    Metric::new(
        LOST,
        "1",
        Better::Lower,
        Scope::Trial,
        "Share of the application's time that went into writing and reading its state, and not into computing.",
    )
    .column(2),
];

const PARAMS: &[Param] = &[
    Param::new("hosts", Type::Hosts, "Hosts that load.").required(),
    Param::new("target", Type::Target, "A folder, as a path, a URL, or service:NAME/PATH.").required(),
    Param::new(
        "jobs",
        Type::Count,
        "Processes of the application over all hosts, each with a file of its own.",
    )
    .default("1")
    .range(1.0, 10_000.0),
    Param::new("file_size", Type::Size, "State of each process.").default("256MiB").range(1.0, 1e13),
    Param::new("size", Type::Size, "Bytes of one operation.").default("1MiB").range(1.0, 2e9),
    Param::new("depth", Type::Count, "Operations that each process has under way at once.")
        .default("1")
        .range(1.0, 1024.0),
    Param::new("think", Type::Duration, "How long it computes before it writes, and before it reads.")
        .default("1s")
        .range(0.0, 1e14),
    Param::new("repetitions", Type::Count, "How often it computes, writes and reads.")
        .default("1")
        .range(1.0, 10_000.0),
    Param::new("verify", Type::Flag, "Compare every byte that is read with what belongs there.")
        .default("false"),
    Param::new(
        "sync",
        Type::Choice(&["none", "end"]),
        "Whether the state is on stable storage before its file is closed.",
    )
    .default("end"),
    Param::new("timeout", Type::Duration, "Longest that one operation is waited for; then it has failed.")
        .default("60s")
        .range(1e6, 86_400e9),
    Param::new("keep", Type::Flag, "Leave the files that the load made.").default("false"),
    crate::plan::CACHES,
];

fn think(plan: &ScriptPlan) -> Duration {
    plan.values.duration("think").unwrap_or_default()
}

impl Kind for Restart {
    fn name(&self) -> &'static str {
        "io-restart"
    }
    fn about(&self) -> &'static str {
        "Computes, writes a large state, computes, and reads it back, as an application that is started again."
    }
    fn params(&self) -> &'static [Param] {
        PARAMS
    }
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn settle(&self, plan: &mut ScriptPlan) -> Result<(), WorkloadError> {
        let held = u64::from(plan.jobs).saturating_mul(u64::from(plan.depth)).saturating_mul(plan.size_bytes);
        if held > crate::plan::MEMORY_BYTES_MAX {
            return Err(WorkloadError::new(format!(
                "`jobs`, `depth` and `size` come to {held} bytes of buffers; at most {} are possible",
                crate::plan::MEMORY_BYTES_MAX
            )));
        }
        Ok(())
    }

    fn script(&self, plan: &ScriptPlan, job: JobOrder<'_>) -> Result<Script, WorkloadError> {
        let job = job.number;
        let file = 0;
        let pieces = || plan.pieces(file, 0, plan.file_bytes, plan.size_bytes);
        let mut acts = Vec::new();
        for _ in 0..plan.repetitions {
            acts.extend([Act::Wait(think(plan)), Act::Barrier, Act::Begin("write")]);
            acts.push(Act::Open { file, mode: Mode::Create });
            acts.extend(pieces().map(Act::Write));
            acts.extend(plan.sync.then_some(Act::Sync { file }));
            acts.extend([Act::Close { file }, Act::End, Act::Barrier]);
            acts.extend([Act::Wait(think(plan)), Act::Barrier, Act::Begin("read")]);
            acts.push(Act::Open { file, mode: Mode::Read });
            acts.extend(pieces().map(Act::Read));
            acts.extend([Act::Close { file }, Act::End, Act::Barrier]);
        }
        acts.extend((!plan.keep).then_some(Act::Remove { file }));
        let file = ScriptFile { path: format!("weir-restart-{job}"), size_bytes: plan.file_bytes };
        Ok(Script::new(vec![file], acts))
    }

    fn derive(&self, plan: &ScriptPlan, sections: &[Section], _around: &Around) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut spent_seconds = 0.0;
        for (kind, metric) in [("write", WRITE_TOTAL), ("read", READ_TOTAL)] {
            let rounds = of_rounds(sections, kind);
            let mut rates = Vec::new();
            for round in rounds.values() {
                let begin = round.iter().map(|section| section.begin_ns).min().unwrap_or(0);
                let end = round.iter().map(|section| section.end_ns).max().unwrap_or(0);
                let seconds = end.saturating_sub(begin) as f64 / 1e9;
                spent_seconds += seconds;
                let bytes: u64 = round.iter().map(|section| section.bytes).sum();
                if seconds > 0.0 && round.iter().all(|section| section.failed == 0) {
                    rates.push(bytes as f64 / seconds);
                }
            }
            rows.extend(mean(rates.into_iter()).map(|rate| value("trial", metric, rate)));
        }
        let computed = think(plan).as_secs_f64() * 2.0 * f64::from(plan.repetitions);
        if spent_seconds + computed > 0.0 {
            rows.push(value("trial", LOST, spent_seconds / (spent_seconds + computed)));
        }
        rows
    }

    fn pause(&self, plan: &ScriptPlan) -> Duration {
        think(plan)
    }
}
