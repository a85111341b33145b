//! Replay of access traces: jobs that open their files, read what a trace says, think in between, and close them (document 003).

mod acts;
mod choice;
mod figures;
#[cfg(test)]
mod tests;

use crate::plan::{CACHES, NUMBER, Pattern, Plan, SyncWhen, lacks, numbered};
use crate::script::{Expected, JobOrder, JobOutcome, Kind, Manner, Script, ScriptFile, ScriptPlan, Section};
use crate::trace::Trace;
use acts::{Replaying, Think};
use choice::{Choice, Order, chosen};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_core::evidence::Around;
use weir_core::metric::Metric;
use weir_core::record::Row;
use weir_core::{Kind as Type, Param, Values, seed};
use weir_seams::workload::WorkloadError;

pub struct Replay;
pub static REPLAY: Replay = Replay;

/// Threads that keep a core busy each.
const BURNING_MAX: u32 = 256;
/// Operations of a timed trace that a job has under way at most, unless said.
const TIMED_DEPTH: u32 = 64;
/// Bytes of a list of files.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// A file of which nothing is known yet, for an estimate.
const FILE_BYTES_GUESSED: u64 = 40_000_000;

const PARAMS: &[Param] = &[
    Param::new("hosts", Type::Hosts, "Hosts that load.").required(),
    Param::new("target", Type::Target, "Where the files are: a path or a URL, or service:NAME/PATH; {n} in it is the number of a file.").required(),
    Param::new("trace", Type::Texts, "Traces, one drawn for each job: files of `weir io trace`, or names of those that it makes (random-1 to -5, analysis-1 to -5).").required(),
    Param::new("jobs", Type::Count, "Jobs over all hosts, which begin together.").default("1").range(1.0, 100_000.0),
    Param::new("files_per_job", Type::Count, "Files of a job, all opened before the first read; each operation of a trace that names no files is of every one of them.").default("5").range(1.0, 10_000.0),
    Param::new("files", Type::Text, "A list of files below the target, one a line, dealt to jobs in turn, from the first again; unless given those of a folder in order of name."),
    Param::new("file_size", Type::Size, "Size of the files that are made where there are none; of those that exist at least so much is there.").range(1.0, 1e16),
    Param::new("file_count", Type::Count, "How many files {n} in the target counts, from 0 on; dealt from the first again.").range(1.0, 1e9),
    Param::new("reads", Type::Count, "Reads of a job at most, over all its files; unless given all of its trace.").range(1.0, 1e12),
    Param::new("order", Type::Choice(&["recorded", "sorted", "random", "sequential"]), "Order of the reads: as recorded, by offset, shuffled for each job anew, or of the same lengths one behind the other.").default("recorded"),
    Param::new("think", Type::Duration, "How long a job computes after each read.").default("0s").range(0.0, 86_400e9),
    Param::new("think_mode", Type::Choice(&["wait", "burn"]), "Whether it only waits so long or has a core for it.").default("wait"),
    Param::new("speed", Type::Ratio, "Of a trace with times: how much faster than recorded; 0: as fast as it goes.").default("1").range(0.0, 1e6),
    Param::new("depth", Type::Count, "Operations that each job has under way at once; unless given 1, of a trace with times 64.").range(1.0, 65_536.0),
    Param::new("vector", Type::Count, "Reads of one file that are one request, of targets that have vector reads.").default("1").range(1.0, 1_024.0),
    Param::new("read_ahead", Type::Size, "What is not there is read with what follows, so much at least; what is there already costs no request.").default("0B").range(0.0, 1e9),
    Param::new("verify", Type::Flag, "Compare every byte that is read with what belongs there.").default("false"),
    Param::new("timeout", Type::Duration, "Longest that one read is waited for; then it has failed, and its job with it.").default("1200s").range(1e6, 86_400e9),
    Param::new("open_timeout", Type::Duration, "As `timeout`, of opening a file; unless given the same.").range(1e6, 86_400e9),
    Param::new("bottleneck", Type::Duration, "What a read needs of whatever bounds all jobs together, as a disk's positioning and transfer: for the model closed-replay.").range(0.0, 86_400e9),
    Param::new("operations", Type::Flag, "Record each operation: when it was to be issued, when it was, its first byte and its end.").default("false"),
    Param::new("keep", Type::Flag, "Leave the files that the load made.").default("false"),
    CACHES,
];

/// What the keys say beyond those of every scripted load.
struct Own {
    choices: Vec<Choice>,
    order: Order,
    /// `None`: as fast as it goes.
    speed: Option<f64>,
    think: Think,
    reads: Option<u64>,
    files_per_job: u32,
    vector: u32,
    read_ahead: u64,
}

impl Own {
    fn of(values: &Values) -> Result<Own, WorkloadError> {
        let stop = |text: String| WorkloadError::new(text);
        let names = values.texts("trace");
        if names.is_empty() {
            return Err(lacks("trace"));
        }
        let in_key = |text: String| stop(format!("`trace`: {text}"));
        let choices = names.iter().map(|name| Choice::of(name).map_err(in_key));
        let choices = choices.collect::<Result<Vec<_>, _>>()?;
        let order = Order::of(values.text("order").as_deref());
        let think = values.duration("think").unwrap_or_default();
        let burns = values.text("think_mode").as_deref() == Some("burn");
        let is_timed = choices.iter().any(Choice::is_timed);
        let speed = values.ratio("speed").unwrap_or(1.0);
        let own = Own {
            order,
            speed: (is_timed && speed > 0.0).then_some(speed),
            think: if burns { Think::Burn(think) } else { Think::Wait(think) },
            reads: values.count("reads"),
            files_per_job: values.count("files_per_job").unwrap_or(1) as u32,
            vector: values.count("vector").unwrap_or(1) as u32,
            read_ahead: values.size("read_ahead").map_or(0, |size| size.0),
            choices,
        };
        let timed = own.speed.is_some();
        if timed && own.choices.iter().any(|choice| !choice.is_timed()) {
            return Err(stop(
                "`trace`: some have times and some have none; give `speed` 0, or other traces".to_owned(),
            ));
        }
        for (key, is_given) in [
            ("order", order != Order::Recorded),
            ("think", !think.is_zero()),
            ("vector", own.vector > 1),
            ("read_ahead", own.read_ahead > 0),
        ] {
            if timed && is_given {
                return Err(stop(format!(
                    "`{key}`: a trace with times says itself when each read is; `speed` 0 leaves its times out"
                )));
            }
        }
        if order.moves_records() && own.choices.iter().any(|choice| !choice.is_kept()) {
            return Err(stop(
                "`order`: a trace that is too long to be kept in memory is only replayed as recorded"
                    .to_owned(),
            ));
        }
        Ok(own)
    }

    /// The trace that a job follows, and its number.
    fn drawn(&self, order: JobOrder<'_>) -> (u32, &Choice) {
        let draw = seed::split(order.seed, &format!("trace of job-{}", order.number));
        let number = ((u128::from(draw) * self.choices.len() as u128) >> 64) as usize;
        (number as u32, &self.choices[number])
    }

    /// Operations of a trace that are enough, of a trace that names files or none.
    fn records(&self, names_files: bool) -> Option<u64> {
        let each = if names_files { 1 } else { u64::from(self.files_per_job) };
        self.reads.map(|reads| reads.div_ceil(each))
    }

    /// How long a trace takes by itself, at its speed.
    fn own_time(&self, trace: &Trace) -> Duration {
        let Some(speed) = self.speed else { return Duration::ZERO };
        let last_ns = match (self.records(!trace.files.is_empty()), trace.records()) {
            (Some(count), Some(records)) => {
                let first = records.iter().filter(|record| !record.is_write).take(count as usize);
                first.last().map_or(0, |record| record.at_ns)
            }
            // How long a part of a trace takes that is not kept is not known.
            (Some(_), None) => 0,
            (None, _) => trace.totals.last_ns,
        };
        seconds(last_ns as f64 / 1e9 / speed)
    }
}

/// A speed near nothing makes a trace longer than any time.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Files that a list names. Errors: it cannot be read, or names none; in words.
fn listed(path: &Path) -> Result<Vec<String>, String> {
    let in_file = |error: String| format!("{}: {error}", path.display());
    let bytes = fs::metadata(path).map_err(|error| in_file(error.to_string()))?;
    if !bytes.is_file() || bytes.len() > LIST_BYTES_MAX {
        return Err(in_file(format!("no file of at most {LIST_BYTES_MAX} bytes")));
    }
    let text = fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names: Vec<String> = names.map(str::to_owned).collect();
    for name in &names {
        weir_seams::target::inside(name).map_err(|error| in_file(error.text))?;
    }
    if names.is_empty() {
        return Err(in_file("it names no file".to_owned()));
    }
    Ok(names)
}

impl Kind for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }
    fn about(&self) -> &'static str {
        "Replays what programs read: many jobs, several files each, with the time that they think."
    }
    fn params(&self) -> &'static [Param] {
        PARAMS
    }
    fn metrics(&self) -> &'static [Metric] {
        figures::METRICS
    }

    fn settle(&self, plan: &mut ScriptPlan) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        let own = Own::of(&plan.values)?;
        plan.depth = match plan.values.count("depth") {
            Some(depth) => depth as u32,
            None if own.speed.is_some() => TIMED_DEPTH,
            None => 1,
        };
        if own.think.burns() && plan.jobs > BURNING_MAX {
            return stop(format!(
                "`think_mode` \"burn\": each job has a thread of its own; at most {BURNING_MAX} jobs"
            ));
        }
        let longest = own.choices.iter().map(|choice| choice.length_bytes_max()).max().unwrap_or(0);
        let largest = longest.max(own.read_ahead);
        let reads = own.records(false).unwrap_or(u64::MAX).max(1);
        let offers_vectors = plan.target.build.offers().reads_pieces.is_some();
        let places = if offers_vectors { u64::from(own.vector).min(reads) } else { 1 };
        let under_way = u64::from(plan.jobs) * u64::from(plan.depth);
        let held = under_way.saturating_mul(largest).saturating_mul(places);
        if held > crate::plan::MEMORY_BYTES_MAX {
            return stop(format!(
                "`jobs`, `depth`, `vector` and the longest read come to {held} bytes of buffers; at most {} are possible",
                crate::plan::MEMORY_BYTES_MAX
            ));
        }
        if let Some(path) = plan.values.text("files") {
            listed(Path::new(&path)).map_err(|text| WorkloadError::new(format!("`files`: {text}")))?;
        }
        plan.numbered = numbered(&mut plan.url.path);
        if plan.values.count("file_count").is_some() && plan.numbered.is_none() {
            return stop("`file_count`: the target has no {n} that it would count".to_owned());
        }
        if !plan.target.build.offers().keeps_content && plan.values.size("file_size").is_none() {
            return stop(format!("{}: say `file_size`: it has no size of its own", plan.url));
        }
        Ok(())
    }

    fn inputs(&self, values: &Values) -> Vec<String> {
        let traces =
            values.texts("trace").into_iter().filter(|name| crate::trace::make::named(name).is_none());
        traces.chain(values.text("files")).collect()
    }

    fn lays(&self, plan: &ScriptPlan) -> Result<Option<Plan>, WorkloadError> {
        let own = Own::of(&plan.values)?;
        let numbered = plan.numbered.clone();
        let list = plan.values.text("files").map(|path| listed(Path::new(&path))).transpose();
        let count = plan.values.count("file_count");
        let mut listed =
            list.map_err(|text| WorkloadError::new(format!("`files`: {text}")))?.unwrap_or_default();
        if let (Some(pattern), Some(count), true) = (&numbered, count, listed.is_empty()) {
            let used = count.min(u64::from(plan.jobs) * u64::from(own.files_per_job));
            listed = (0..used).map(|number| pattern.replace(NUMBER, &number.to_string())).collect();
        }
        // A trace that names its files is of these.
        let named = own.choices.iter().map(Choice::files).find(|files| !files.is_empty());
        let files_per_job = named.map_or(own.files_per_job, |files| files.len() as u32);
        if let Some(files) = named {
            if own.choices.len() > 1 {
                return Err(WorkloadError::new(
                    "`trace`: one that names files is replayed alone; give the others steps of their own"
                        .to_owned(),
                ));
            }
            listed = files.to_vec();
        }
        Ok(Some(Plan {
            pattern: Pattern::Random,
            url: plan.url.clone(),
            target: plan.target,
            options: plan.options.clone(),
            numbered,
            listed,
            jobs: plan.jobs,
            files_per_job,
            is_shared: false,
            size_bytes: 1,
            file_bytes: plan.values.size("file_size").map(|size| size.0),
            pieces: 1,
            depth: 1,
            mix: 1.0,
            period: None,
            verify: plan.verify,
            sync: SyncWhen::None,
            timeout: plan.timeout,
            keep: plan.keep,
            duration: None,
            count: None,
            warm_up: Duration::ZERO,
            interval: Duration::from_millis(10),
        }))
    }

    fn script(&self, plan: &ScriptPlan, order: JobOrder<'_>) -> Result<Script, WorkloadError> {
        let own = Own::of(&plan.values)?;
        let (drawn, choice) = own.drawn(order);
        let files: Vec<ScriptFile> = order
            .files
            .iter()
            .map(|file| ScriptFile { path: file.path.clone(), size_bytes: file.size_bytes })
            .collect();
        let file_bytes = files.iter().map(|file| file.size_bytes).min().unwrap_or(FILE_BYTES_GUESSED);
        let names_files = !choice.files().is_empty();
        let in_words = |text: String| WorkloadError::new(format!("`trace`: {text}"));
        let trace = chosen(choice, file_bytes, own.order, own.records(names_files)).map_err(in_words)?;
        let sizes = files.iter().map(|file| file.size_bytes).collect();
        let acts = Replaying::new(
            &trace,
            sizes,
            &own,
            seed::split(order.seed, &format!("order of job-{}", order.number)),
        )
        .map_err(in_words)?;
        let records = own.records(names_files).unwrap_or(trace.totals.records);
        let vector =
            if plan.target.build.offers().reads_pieces.is_some() { u64::from(own.vector) } else { 1 };
        let longest = u64::from(trace.totals.length_bytes_max).max(own.read_ahead);
        Ok(Script {
            files,
            acts: Box::new(acts),
            largest_bytes: longest * vector.min(records.max(1)),
            drawn,
            own: own.own_time(&trace),
        })
    }

    fn expected(&self, plan: &ScriptPlan) -> Result<Expected, WorkloadError> {
        let own = Own::of(&plan.values)?;
        let mut all = Expected::default();
        for choice in &own.choices {
            let file_bytes = plan.values.size("file_size").map_or(FILE_BYTES_GUESSED, |size| size.0);
            let names_files = !choice.files().is_empty();
            let in_words = |text: String| WorkloadError::new(format!("`trace`: {text}"));
            let trace: Arc<Trace> =
                chosen(choice, file_bytes, own.order, own.records(names_files)).map_err(in_words)?;
            let each = if names_files { 1 } else { u64::from(own.files_per_job) };
            let possible = trace.totals.records * each;
            if let Some(reads) = own.reads.filter(|reads| *reads > possible) {
                return Err(WorkloadError::new(format!(
                    "`reads` is {reads}, and {choice} has {possible} for a job's files"
                )));
            }
            let reads = own.reads.unwrap_or(possible);
            let mean = trace.totals.bytes / trace.totals.records.max(1);
            all.acts = all.acts.max(reads);
            all.looked_through += choice.trace().map_or(0, |trace| trace.totals.records);
            all.bytes = all.bytes.max(reads.saturating_mul(mean));
            let thinking = own.think.time().as_secs_f64() * reads as f64;
            let time = own.own_time(&trace).as_secs_f64() + thinking;
            all.time = all.time.max(Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX));
        }
        let most = Duration::from_secs(366 * 86_400);
        if all.time > most {
            return Err(WorkloadError::new(
                "`think` and the number of reads come to more than a year".to_owned(),
            ));
        }
        Ok(all)
    }

    fn manner(&self, plan: &ScriptPlan) -> Manner {
        let Ok(own) = Own::of(&plan.values) else { return Manner::plain(plan) };
        let period = own.speed.and_then(|speed| {
            let trace = own.choices.iter().find_map(Choice::trace)?;
            Some(seconds(trace.totals.last_ns as f64 / 1e9 / speed / trace.totals.records as f64))
        });
        Manner {
            one_failure_ends_job: true,
            thread_for_each: own.think.burns(),
            vector: own.vector,
            open_timeout: plan.values.duration("open_timeout").unwrap_or(plan.timeout),
            lateness: Some(figures::LATENESS),
            period,
        }
    }

    fn job_rows(&self, plan: &ScriptPlan, job: &JobOutcome) -> Vec<Row> {
        figures::of_job(plan, job)
    }

    fn derive(&self, _plan: &ScriptPlan, sections: &[Section], around: &Around) -> Vec<Row> {
        figures::of_all(sections, around)
    }

    fn remarks(&self, plan: &ScriptPlan) -> Vec<String> {
        let Ok(own) = Own::of(&plan.values) else { return Vec::new() };
        let writes: u64 = own.choices.iter().filter_map(Choice::trace).map(|trace| trace.totals.writes).sum();
        let mut remarks = Vec::new();
        if writes > 0 {
            remarks.push(format!("{writes} writes of the trace are not replayed: files are only read"));
        }
        remarks
    }

    fn pause(&self, plan: &ScriptPlan) -> Duration {
        let Ok(own) = Own::of(&plan.values) else { return Duration::ZERO };
        let longest = own.choices.iter().filter_map(Choice::trace).map(|trace| own.own_time(&trace)).max();
        own.think.time().saturating_mul(own.vector).max(longest.unwrap_or_default())
    }
}
