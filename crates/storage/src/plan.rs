//! What an io step asks for, read once.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::{Kind, Param, Values};
use weir_seams::target::{TargetEntry, TargetUrl};
use weir_seams::workload::WorkloadError;

const NS: f64 = 1e9;

/// Order of the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    Sequential,
    Random,
}

/// When written data is asked to be on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncWhen {
    None,
    /// Once a file, after its last write; the time counts.
    End,
    /// After each write, whose time is then that of both.
    Each,
}

/// Of a service that weir has started: what others run keeps what it keeps.
pub const CACHES: Param = Param::new(
    CACHES_KEY,
    Kind::Choice(&["reset", "kept"]),
    "Whether a service begins each trial with empty caches: it is mounted anew, and its disks are cold.",
)
.default("reset");
pub const CACHES_KEY: &str = "caches";

macro_rules! params {
    ($size:literal $(, $own:expr)*) => {
        &[
            $($own,)*
            Param::new("hosts", Kind::Hosts, "Hosts that load.").required(),
            Param::new("target", Kind::Target, "What is loaded: a path or a URL, whose kinds and options `weir list target` has, or service:NAME/PATH; {n} in it is the number of a file.").required(),
            Param::new("jobs", Kind::Count, "Jobs over all hosts, each with its own files and its own place in them.").default("1").range(1.0, 100_000.0),
            Param::new("files_per_job", Kind::Count, "Files of a job, one after the other.").default("1").range(1.0, 10_000.0),
            Param::new("layout", Kind::Choice(&["file-per-process", "shared"]), "Whether each job has its own files or all read and write the same.").default("file-per-process"),
            Param::new("size", Kind::Size, "Bytes of one operation.").default($size).range(1.0, 2e9),
            Param::new("file_size", Kind::Size, "Size of a file; of one that exists its own unless given.").range(1.0, 1e16),
            Param::new("count", Kind::Count, "Operations of each job; unless given as many as its files have room for, once, or as the duration allows.").range(1.0, 1e12),
            Param::new("depth", Kind::Count, "Operations that each job has under way at once.").default("1").range(1.0, 65_536.0),
            Param::new("mix", Kind::Ratio, "Share of the operations that read; the others write.").default("1").range(0.0, 1.0),
            Param::new("rate", Kind::Frequency, "Operations a second over all jobs, each at its own time whatever became of those before; absent: the next when one is done.").range(1e-3, 1e8),
            Param::new("verify", Kind::Flag, "Compare every byte that is read with what belongs there.").default("false"),
            Param::new("sync", Kind::Choice(&["none", "end", "each"]), "When written data must be on stable storage.").default("end"),
            Param::new("timeout", Kind::Duration, "Longest that one operation is waited for; then it has failed, and its job ends.").default("60s").range(1e6, 86_400.0 * NS),
            Param::new("keep", Kind::Flag, "Leave the files that the load made.").default("false"),
            CACHES,
        ]
    };
}

pub const SEQUENTIAL: &[Param] = params!("1MiB");
pub const RANDOM: &[Param] = params!("4KiB", PIECES);
const PIECES: Param = Param::new(
    PIECES_KEY,
    Kind::Count,
    "Pieces of a file that one operation reads, `size` bytes each: asked for together where a target can (a vector read), one after the other elsewhere.",
)
.default("1")
.range(1.0, 4_096.0);
const PIECES_KEY: &str = "pieces";

/// What one operation may hold in memory over all jobs of a host.
pub const MEMORY_BYTES_MAX: u64 = 8 << 30;
/// Name and number of a job's files that the load makes.
pub const MADE: &str = "weir-io";
/// In a target's path, the number of a file: 0 and on.
pub const NUMBER: &str = "{n}";
/// A target that says nothing of a file for so long is not there; a little less than a load may prepare (`Bounds`), so that the target's
/// own reason is told and not that time is up.
const FOUND_WITHIN: Duration = Duration::from_secs(18);

#[derive(Clone)]
pub struct Plan {
    pub pattern: Pattern,
    pub url: TargetUrl,
    pub target: &'static TargetEntry,
    pub options: Values,
    /// Files by number, below the target's path: `{n}` in it stands for the number.
    pub numbered: Option<String>,
    /// Files by name, below the target: dealt in turn, from the first again. Empty: those that are there, or that are made.
    pub listed: Vec<String>,
    pub jobs: u32,
    pub files_per_job: u32,
    pub is_shared: bool,
    pub size_bytes: u64,
    pub file_bytes: Option<u64>,
    /// That one operation reads, of `size_bytes` each.
    pub pieces: u32,
    pub depth: u32,
    /// Share of reads.
    pub mix: f64,
    /// Of one job.
    pub period: Option<Duration>,
    pub verify: bool,
    pub sync: SyncWhen,
    pub timeout: Duration,
    pub keep: bool,
    pub duration: Option<Duration>,
    /// Operations of each job; absent without a duration: once through its files.
    pub count: Option<u64>,
    pub warm_up: Duration,
    pub interval: Duration,
}

pub fn lacks(key: &str) -> WorkloadError {
    WorkloadError::new(format!("`{key}` is missing"))
}

/// The target that `values` name, its kind and its options. Errors: none, in words that name the key.
pub fn target_of(
    values: &Values,
    targets: &'static [TargetEntry],
) -> Result<(TargetUrl, &'static TargetEntry, Values), WorkloadError> {
    let text = values.text("target").ok_or_else(|| lacks("target"))?;
    let in_target = |text: String| WorkloadError::new(format!("`target`: {text}"));
    let url = TargetUrl::parse(&text).map_err(in_target)?;
    let (target, options) = url.resolve(targets).map_err(in_target)?;
    Ok((url, target, options))
}

/// Of `FOLDER/f-{n}` leaves the folder, and gives the rest.
pub fn numbered(path: &mut String) -> Option<String> {
    let slash = path[..path.find(NUMBER)?].rfind('/');
    let rest = path.split_off(slash.map_or(0, |slash| slash + 1));
    if path.len() > 1 {
        path.pop();
    }
    Some(rest)
}

impl Plan {
    /// How long is waited for what the target says of a file while the load is prepared.
    pub fn found_within(&self) -> Duration {
        self.timeout.min(FOUND_WITHIN)
    }

    /// Errors: what contradicts itself or names no target, in words that name the key.
    pub fn of(
        pattern: Pattern,
        values: &Values,
        targets: &'static [TargetEntry],
    ) -> Result<Plan, WorkloadError> {
        let (mut url, target, options) = target_of(values, targets)?;
        let numbered = numbered(&mut url.path);
        let count = |key: &str| values.count(key).and_then(|it| u32::try_from(it).ok()).unwrap_or(1);
        let jobs = count("jobs");
        let rate = values.frequency("rate").map(|rate| rate.0 / f64::from(jobs));
        let plan = Plan {
            pattern,
            url,
            target,
            options,
            numbered,
            listed: Vec::new(),
            jobs,
            files_per_job: count("files_per_job"),
            is_shared: values.text("layout").as_deref() == Some("shared"),
            size_bytes: values.size("size").ok_or_else(|| lacks("size"))?.0,
            file_bytes: values.size("file_size").map(|size| size.0),
            pieces: count(PIECES_KEY),
            depth: count("depth"),
            mix: values.ratio("mix").unwrap_or(1.0),
            period: rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            verify: values.flag("verify").unwrap_or(false),
            sync: match values.text("sync").as_deref() {
                Some("none") => SyncWhen::None,
                Some("each") => SyncWhen::Each,
                _ => SyncWhen::End,
            },
            timeout: values.duration("timeout").unwrap_or(Duration::from_secs(60)),
            keep: values.flag("keep").unwrap_or(false),
            duration: values.duration("duration"),
            count: values.count("count"),
            warm_up: values.duration("warm_up").unwrap_or_default(),
            interval: values.duration("interval").unwrap_or(Duration::from_millis(10)),
        };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        if self.duration.is_some() && self.count.is_some() {
            return stop("`duration` and `count` bound the same step; give one".to_owned());
        }
        if self.duration.is_some_and(|duration| duration <= self.warm_up) {
            return stop("`warm_up` is not shorter than `duration`".to_owned());
        }
        if self.duration.is_none() && !self.warm_up.is_zero() {
            return stop("`warm_up` is a part of a `duration`, and there is none".to_owned());
        }
        let offers = self.target.build.offers();
        let is_elsewhere = self.pattern == Pattern::Random || self.is_shared || self.mix > 0.0;
        if offers.writes_in_order && self.mix < 1.0 && (is_elsewhere || self.sync == SyncWhen::Each) {
            return stop(format!(
                "{}: a file there is written whole, from its beginning to its end: `io-seq` with `mix` 0, a file for each job, `sync` none or end",
                self.url
            ));
        }
        if self.pieces > 1 && self.mix < 1.0 {
            return stop("`pieces`: they are read, and `mix` has writes".to_owned());
        }
        if let Some(most) = offers.reads_pieces.filter(|_| self.pieces > 1)
            && (self.pieces > most.count || self.size_bytes > u64::from(most.bytes))
        {
            return stop(format!(
                "`pieces`: one request of {} reads at most {} pieces of {} bytes",
                self.url, most.count, most.bytes
            ));
        }
        if self.verify && !offers.keeps_content {
            return stop(format!("`verify`: {} keeps no content that could be verified", self.url));
        }
        if !offers.keeps_content && self.file_bytes.is_none() && self.is_unbounded() {
            return stop(format!(
                "{}: say `file_size`, `count` or `duration`: it has no size of its own",
                self.url
            ));
        }
        if let Some(file_bytes) = self.file_bytes.filter(|file_bytes| *file_bytes < self.size_bytes) {
            return stop(format!(
                "`size` is {} bytes and `file_size` {file_bytes}; no operation fits",
                self.size_bytes
            ));
        }
        let under_way = u64::from(self.jobs).saturating_mul(u64::from(self.depth));
        let held = under_way.saturating_mul(self.operation_bytes());
        if held > MEMORY_BYTES_MAX {
            return stop(format!(
                "`jobs`, `depth`, `size` and `pieces` come to {held} bytes of buffers; at most {MEMORY_BYTES_MAX} are possible"
            ));
        }
        Ok(())
    }

    /// Of one operation with all its pieces.
    pub fn operation_bytes(&self) -> u64 {
        self.size_bytes * u64::from(self.pieces)
    }

    fn is_unbounded(&self) -> bool {
        self.duration.is_none() && self.count.is_none()
    }

    pub fn reads_only(&self) -> bool {
        self.mix >= 1.0
    }

    /// Files that jobs have between them.
    pub fn file_count(&self) -> u64 {
        let of_jobs = if self.is_shared { 1 } else { u64::from(self.jobs) };
        of_jobs * u64::from(self.files_per_job)
    }

    /// Index of a job's file among all.
    pub fn file_of(&self, job: u32, file: u32) -> u64 {
        let first = if self.is_shared { 0 } else { u64::from(job) * u64::from(self.files_per_job) };
        first + u64::from(file)
    }

    /// Payload that a whole pass moves; `None` where a file's size is not known.
    pub fn bytes(&self) -> Option<u64> {
        let of_job = match self.count {
            Some(count) => count.saturating_mul(self.operation_bytes()),
            None => self.file_bytes?.saturating_mul(u64::from(self.files_per_job)),
        };
        let jobs = if self.is_shared && self.count.is_none() { 1 } else { u64::from(self.jobs) };
        Some(of_job.saturating_mul(jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: storage.md#io-2
    #[test]
    fn a_number_in_a_path_splits_it_into_a_folder_and_its_files() {
        let split = |path: &str| {
            let mut path = path.to_owned();
            let rest = numbered(&mut path);
            (path, rest)
        };
        assert_eq!(split("/store/f-{n}"), ("/store".to_owned(), Some("f-{n}".to_owned())));
        assert_eq!(split("/store/d{n}/f"), ("/store".to_owned(), Some("d{n}/f".to_owned())));
        assert_eq!(split("/{n}"), ("/".to_owned(), Some("{n}".to_owned())));
        assert_eq!(split("f-{n}"), (String::new(), Some("f-{n}".to_owned())));
        assert_eq!(split("/store/f"), ("/store/f".to_owned(), None));
    }
}
