//! Many small files at once: made, listed, read back and removed by many processes.

use super::{Act, JobOrder, Kind, Script, ScriptFile, ScriptPlan, Section};
use weir_core::evidence::Around;
use weir_core::metric::Metric;
use weir_core::record::Row;
use weir_core::{Kind as Type, Param, seed};
use weir_seams::target::Mode;
use weir_seams::workload::WorkloadError;

pub struct Small;
pub static SMALL: Small = Small;

const PARAMS: &[Param] = &[
    Param::new("hosts", Type::Hosts, "Hosts that load.").required(),
    Param::new("target", Type::Target, "A folder, as a path, a URL, or service:NAME/PATH.").required(),
    Param::new("jobs", Type::Count, "Processes over all hosts, each with files of its own.")
        .default("1")
        .range(1.0, 10_000.0),
    Param::new("files", Type::Count, "Files of each job.").default("100").range(1.0, 1_000_000.0),
    Param::new("file_size", Type::Size, "Size of the largest file.").default("64KiB").range(1.0, 1e9),
    Param::new(
        "file_size_least",
        Type::Size,
        "Size of the smallest; those of the others lie evenly between them.",
    )
    .default("4KiB")
    .range(1.0, 1e9),
    Param::new("size", Type::Size, "Bytes of one operation.").default("1MiB").range(1.0, 2e9),
    Param::new("repetitions", Type::Count, "How often all of it is done.").default("1").range(1.0, 100_000.0),
    Param::new("verify", Type::Flag, "Compare every byte that is read with what belongs there.")
        .default("false"),
    Param::new(
        "sync",
        Type::Choice(&["none", "end"]),
        "Whether each file is on stable storage before it is closed.",
    )
    .default("none"),
    Param::new("timeout", Type::Duration, "Longest that one operation is waited for; then it has failed.")
        .default("60s")
        .range(1e6, 86_400e9),
    crate::plan::CACHES,
];

impl Kind for Small {
    fn name(&self) -> &'static str {
        "io-small"
    }
    fn about(&self) -> &'static str {
        "Makes, lists, reads and removes many small files."
    }
    fn params(&self) -> &'static [Param] {
        PARAMS
    }
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn settle(&self, plan: &mut ScriptPlan) -> Result<(), WorkloadError> {
        if least_bytes(plan) > plan.file_bytes {
            let text = "`file_size_least` is larger than `file_size`".to_owned();
            return Err(WorkloadError::new(text));
        }
        Ok(())
    }

    fn script(&self, plan: &ScriptPlan, job: JobOrder<'_>) -> Result<Script, WorkloadError> {
        let job = job.number;
        let count = plan.values.count("files").unwrap_or(1);
        let (least, most) = (least_bytes(plan), plan.file_bytes);
        let file = |number: u64| {
            let path = format!("weir-small-{job}-{number}");
            let draw = seed::split(0, &path);
            let size_bytes = least + ((u128::from(draw) * u128::from(most - least + 1)) >> 64) as u64;
            ScriptFile { path, size_bytes }
        };
        let files: Vec<ScriptFile> = (0..count).map(file).collect();
        let lists = plan.target.build.offers().lists;
        let pieces = |file: usize| plan.pieces(file, 0, files[file].size_bytes, plan.size_bytes);
        let mut acts = Vec::new();
        for _ in 0..plan.repetitions {
            acts.push(Act::Barrier);
            for file in 0..files.len() {
                acts.push(Act::Open { file, mode: Mode::Create });
                acts.extend(pieces(file).map(Act::Write));
                acts.extend(plan.sync.then_some(Act::Sync { file }));
                acts.push(Act::Close { file });
            }
            acts.extend(lists.then_some(Act::List));
            for file in 0..files.len() {
                acts.extend([Act::Stat { file }, Act::Open { file, mode: Mode::Read }]);
                acts.extend(pieces(file).map(Act::Read));
                acts.push(Act::Close { file });
            }
            acts.extend((0..files.len()).map(|file| Act::Remove { file }));
        }
        Ok(Script::new(files, acts))
    }

    fn derive(&self, _plan: &ScriptPlan, _sections: &[Section], _around: &Around) -> Vec<Row> {
        Vec::new()
    }
}

fn least_bytes(plan: &ScriptPlan) -> u64 {
    plan.values.size("file_size_least").map_or(1, |size| size.0)
}
