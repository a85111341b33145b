//! Loads that are a sequence of acts for each job: bursts that all begin at once, many small files, an application's restart files.

mod barrier;
mod burst;
mod job;
mod outcome;
mod restart;
mod run;
mod small;
#[cfg(test)]
pub mod tests;
mod workload;

use crate::layout::LaidFile;
use crate::plan::Plan;
use std::time::Duration;
use weir_core::evidence::Around;
use weir_core::metric::Metric;
use weir_core::record::Row;
use weir_core::{Param, Values};
use weir_seams::target::{Mode, TargetEntry, TargetUrl};
use weir_seams::workload::{WorkloadEntry, WorkloadError};

pub use crate::replay::REPLAY;
pub use burst::BURST;
pub use job::{FileFigures, JobOutcome};
pub use outcome::value;
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
    /// For so long after what was before it was done.
    Wait(Duration),
    /// Keeps a core busy for so much of its time.
    Burn(Duration),
    /// The times of `At` count from here.
    Zero,
    /// Until so long after that. What is under way goes on.
    At(Duration),
    /// The job wants so many bytes, from here or from what it has read already.
    Wants(u32),
    /// Until all jobs on all hosts are here.
    Barrier,
    /// What is measured together begins, and ends.
    Begin(&'static str),
    End,
}

impl Act {
    /// The file of the job that it is of, where it is of one.
    pub fn file(self) -> Option<usize> {
        match self {
            Act::Read(piece) | Act::Write(piece) => Some(piece.file),
            Act::Open { file, .. }
            | Act::Sync { file }
            | Act::Close { file }
            | Act::Stat { file }
            | Act::Remove { file } => Some(file),
            _ => None,
        }
    }
}

/// A file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFile {
    /// Below the target; empty: the target itself.
    pub path: String,
    pub size_bytes: u64,
}

/// What a job does, one after the other.
pub type Acts = Box<dyn Iterator<Item = Act> + Send>;

/// What one job does.
pub struct Script {
    pub files: Vec<ScriptFile>,
    pub acts: Acts,
    /// Of its largest read or write, where buffers are made for that; 0: each as it comes.
    pub largest_bytes: u64,
    /// Which of several it follows, and the time that it takes by itself.
    pub drawn: u32,
    pub own: Duration,
}

impl Script {
    pub fn new(files: Vec<ScriptFile>, acts: Vec<Act>) -> Script {
        Script { files, acts: Box::new(acts.into_iter()), largest_bytes: 0, drawn: 0, own: Duration::ZERO }
    }
}

/// Which job a script is for.
#[derive(Clone, Copy, Debug)]
pub struct JobOrder<'a> {
    pub number: u32,
    pub seed: u64,
    /// Its files, where the kind has some laid before; none while a load is only estimated.
    pub files: &'a [LaidFile],
}

impl JobOrder<'static> {
    pub const FIRST: JobOrder<'static> = JobOrder { number: 0, seed: 0, files: &[] };
}

/// How scripts of a kind are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Whatever fails, the job closes its files and does nothing more.
    pub one_failure_ends_job: bool,
    /// Each job has a thread of its own, since it keeps cores busy.
    pub thread_for_each: bool,
    /// Reads of one file that follow each other go into one request of so many places, of targets that can.
    pub vector: u32,
    /// Longest that opening a file is waited for.
    pub open_timeout: Duration,
    /// Metric of issued - intended, of kinds that have times of their own.
    pub lateness: Option<&'static str>,
    /// Between two intended times of a job, of an open loop.
    pub period: Option<Duration>,
}

impl Manner {
    pub fn plain(plan: &ScriptPlan) -> Manner {
        Manner {
            one_failure_ends_job: false,
            thread_for_each: false,
            vector: 1,
            open_timeout: plan.timeout,
            lateness: None,
            period: None,
        }
    }
}

/// What a load is taken to come to before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Of one job.
    pub bytes: u64,
    pub acts: u64,
    pub time: Duration,
    /// Operations of traces that are looked through before anything starts.
    pub looked_through: u64,
}

impl Expected {
    pub fn of(script: Script) -> Expected {
        let mut all = Expected::default();
        for act in script.acts {
            all.acts += 1;
            match act {
                Act::Read(piece) | Act::Write(piece) => {
                    all.bytes = all.bytes.saturating_add(piece.length_bytes)
                }
                Act::Wait(time) | Act::Burn(time) => all.time = all.time.saturating_add(time),
                Act::At(time) => all.time = all.time.max(time),
                _ => {}
            }
        }
        all
    }
}

/// What a kind of scripted load is.
pub trait Kind: Sync {
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;
    fn params(&self) -> &'static [Param];
    fn metrics(&self) -> &'static [Metric];
    /// Sets what follows from other keys. Errors: keys that contradict each other, named.
    fn settle(&self, plan: &mut ScriptPlan) -> Result<(), WorkloadError>;
    /// Files that are found or made before the load.
    fn lays(&self, _plan: &ScriptPlan) -> Result<Option<Plan>, WorkloadError> {
        Ok(None)
    }
    /// Errors: what it needs beyond its keys cannot be had, in words.
    fn script(&self, plan: &ScriptPlan, job: JobOrder<'_>) -> Result<Script, WorkloadError>;
    fn expected(&self, plan: &ScriptPlan) -> Result<Expected, WorkloadError> {
        self.script(plan, JobOrder::FIRST).map(Expected::of)
    }
    fn manner(&self, plan: &ScriptPlan) -> Manner {
        Manner::plain(plan)
    }
    /// What one job came to, beside its sections.
    fn job_rows(&self, _plan: &ScriptPlan, _job: &JobOutcome) -> Vec<Row> {
        Vec::new()
    }
    /// What all sections of all jobs come to, beside what every such load measures.
    fn derive(&self, plan: &ScriptPlan, sections: &[Section], around: &Around) -> Vec<Row>;
    /// As of a workload.
    fn inputs(&self, _values: &Values) -> Vec<String> {
        Vec::new()
    }
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
    /// What the job wanted, read ahead or not.
    pub wanted_bytes: u64,
    /// Reads that were asked of the target, one or many places each.
    pub reads: u64,
    /// That it waited or computed by itself.
    pub thought_ns: u64,
    /// Operations in it that failed: it does not count.
    pub failed: u32,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// What kind of failure ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    Open,
    Read,
    /// No answer in time.
    Late,
    /// Its server is gone, and the file with it.
    Gone,
}

/// What every scripted load asks for, read once.
#[derive(Clone)]
pub struct ScriptPlan {
    pub url: TargetUrl,
    /// Files by number, below the target, of a kind that takes them so.
    pub numbered: Option<String>,
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
            numbered: None,
            target,
            options,
            jobs: count("jobs").unwrap_or(1),
            depth: count("depth").unwrap_or(1),
            size_bytes: size_bytes.unwrap_or(0),
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
    let kinds: [&'static dyn Kind; 4] = [&BURST, &SMALL, &RESTART, &REPLAY];
    kinds.into_iter().map(|kind| workload::entry(kind, targets)).collect()
}
