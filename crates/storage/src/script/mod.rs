//! Loads that are a sequence of acts for each job: bursts that all begin at once, many small files, an application's restart files.

mod barrier;
mod burst;
mod outcome;
mod restart;
mod run;
mod small;
#[cfg(test)]
mod tests;
mod workload;

use crate::plan::lacks;
use std::time::Duration;
use weir_core::metric::Metric;
use weir_core::record::Row;
use weir_core::{Param, Values};
use weir_seams::target::{Mode, TargetEntry, TargetUrl};
use weir_seams::workload::{WorkloadEntry, WorkloadError};

pub use burst::BURST;
pub use restart::RESTART;
pub use small::SMALL;

/// A stretch of a job's file, by the file's number in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: usize,
    pub offset: u64,
    pub length_bytes: u64,
}

/// What a job does next. Reads and writes go on beside each other as far as `depth` allows; everything else waits until they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Puts the content of a piece into memory, so that writing it costs no time for that.
    Fill(Piece),
    Open {
        file: usize,
        mode: Mode,
    },
    Write(Piece),
    Read(Piece),
    Sync {
        file: usize,
    },
    Close {
        file: usize,
    },
    Stat {
        file: usize,
    },
    List,
    Remove {
        file: usize,
    },
    Wait(Duration),
    /// Until all jobs on all hosts are here.
    Barrier,
    /// What is measured together begins, and ends.
    Begin(&'static str),
    End,
}

/// A file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFile {
    /// Below the target; empty: the target itself.
    pub path: String,
    pub size_bytes: u64,
}

/// What one job does.
#[derive(Debug, Default)]
pub struct Script {
    pub files: Vec<ScriptFile>,
    pub acts: Vec<Act>,
}

/// What a kind of scripted load is.
pub trait Kind: Sync {
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;
    fn params(&self) -> &'static [Param];
    fn metrics(&self) -> &'static [Metric];
    /// Errors: keys that contradict each other, named.
    fn check(&self, plan: &ScriptPlan) -> Result<(), WorkloadError>;
    fn script(&self, plan: &ScriptPlan, job: u32) -> Script;
    /// What all sections of all jobs come to, beside what every such load measures.
    fn derive(&self, plan: &ScriptPlan, sections: &[Section]) -> Vec<Row>;
    /// What a reader should know of how the values were taken.
    fn remarks(&self, _plan: &ScriptPlan) -> Vec<String> {
        Vec::new()
    }
    /// In which nothing moves although all is well.
    fn pause(&self, _plan: &ScriptPlan) -> Duration {
        Duration::ZERO
    }
}

/// A stretch of a job's time that is measured as one. Times count from when all were let go at the barrier before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Section {
    pub job: u32,
    pub kind: String,
    /// Which of its kind, from 0.
    pub round: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    /// Operations in it that failed: it does not count.
    pub failed: u32,
}

/// What every scripted load asks for, read once.
#[derive(Clone)]
pub struct ScriptPlan {
    pub url: TargetUrl,
    pub target: &'static TargetEntry,
    pub options: Values,
    pub jobs: u32,
    pub depth: u32,
    pub size_bytes: u64,
    pub file_bytes: u64,
    pub repetitions: u32,
    pub verify: bool,
    /// Files are synced before they are closed.
    pub sync: bool,
    pub timeout: Duration,
    pub keep: bool,
    pub values: Values,
}

impl ScriptPlan {
    /// Errors: what lacks or names no target, in words that name the key.
    pub fn of(values: &Values, targets: &'static [TargetEntry]) -> Result<ScriptPlan, WorkloadError> {
        let (url, target, options) = crate::plan::target_of(values, targets)?;
        let count = |key: &str| values.count(key).and_then(|it| u32::try_from(it).ok());
        let size_bytes = values.size("size").map(|size| size.0);
        let plan = ScriptPlan {
            url,
            target,
            options,
            jobs: count("jobs").unwrap_or(1),
            depth: count("depth").unwrap_or(1),
            size_bytes: size_bytes.ok_or_else(|| lacks("size"))?,
            file_bytes: values.size("file_size").map_or(0, |size| size.0),
            repetitions: count("repetitions").unwrap_or(1),
            verify: values.flag("verify").unwrap_or(false),
            sync: values.text("sync").as_deref() == Some("end"),
            timeout: values.duration("timeout").unwrap_or(Duration::from_secs(60)),
            keep: values.flag("keep").unwrap_or(false),
            values: values.clone(),
        };
        let offers = plan.target.build.offers();
        if plan.verify && !offers.keeps_content {
            return Err(WorkloadError::new(format!(
                "`verify`: {} keeps no content that could be verified",
                plan.url
            )));
        }
        if values.0.contains_key("duration") {
            return Err(WorkloadError::new(
                "`duration` does not bound this load; `repetitions` does".to_owned(),
            ));
        }
        Ok(plan)
    }

    /// Pieces of `size_bytes` that make up `bytes` of a file from `from` on.
    pub fn pieces(
        &self,
        file: usize,
        from: u64,
        bytes: u64,
        size_bytes: u64,
    ) -> impl Iterator<Item = Piece> + use<> {
        let size_bytes = size_bytes.max(1);
        (0..bytes.div_ceil(size_bytes)).map(move |index| {
            let begin = index * size_bytes;
            Piece { file, offset: from + begin, length_bytes: size_bytes.min(bytes - begin) }
        })
    }
}

/// The loads of this kind, on whatever targets there are.
pub fn workloads(targets: &'static [TargetEntry]) -> Vec<WorkloadEntry> {
    let kinds: [&'static dyn Kind; 3] = [&BURST, &SMALL, &RESTART];
    kinds.into_iter().map(|kind| workload::entry(kind, targets)).collect()
}
