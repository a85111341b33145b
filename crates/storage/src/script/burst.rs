//! Bursts as IOR makes them: every process writes (or reads) its block at the same moment, and the time until its file is closed counts.

use super::outcome::{mean, of_rounds, value};
use super::{Act, JobOrder, Kind, Script, ScriptFile, ScriptPlan, Section};
use crate::plan::MADE;
use std::collections::BTreeMap;
use weir_core::evidence::Around;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Row;
use weir_core::{Kind as Type, Param};
use weir_seams::target::Mode;
use weir_seams::workload::WorkloadError;

/// IOR's rule: sizes are multiples of a word.
const WORD_BYTES: u64 = 8;
/// IOR's rule: what is larger takes more than one operation.
const TRANSFER_BYTES_MAX: u64 = (2 << 30) - WORD_BYTES;

pub struct Burst;
pub static BURST: Burst = Burst;

pub const BURST_SECONDS: &str = "io.burst_seconds";
pub const BURST_RATE: &str = "io.burst_bytes_per_second";
pub const BURST_TOTAL: &str = "io.burst_total_bytes_per_second";
pub const BURST_SKEW: &str = "io.burst_skew_seconds";
pub const BURST_JAIN: &str = "io.burst_jain_index";
pub const BURST_SPREAD: &str = "io.burst_max_min_ratio";
pub const BURST_BLOCK: &str = "io.burst_block_bytes";

static METRICS: &[Metric] = &[
    Metric::new(
        BURST_TOTAL,
        "B/s",
        Better::Higher,
        Scope::Trial,
        "Payload of all jobs' bursts over the time from the first that began to the last that closed its file, mean of the repetitions.",
    )
    .column(0)
    .swept(),
    Metric::new(
        BURST_RATE,
        "B/s",
        Better::Higher,
        Scope::Flow,
        "One job's burst over its own time from opening to closing its file, mean of the repetitions.",
    )
    .column(1)
    .swept(),
    Metric::new(
        BURST_SECONDS,
        "s",
        Better::Lower,
        Scope::Flow,
        "One job's burst from opening to closing its file, mean of the repetitions.",
    )
    .column(2),
    Metric::new(
        BURST_SKEW,
        "s",
        Better::Lower,
        Scope::Trial,
        "From the first job that began a burst to the last, the largest of the repetitions; beyond it lies the way of the word that lets hosts go.",
    ),
    Metric::new(BURST_JAIN, "1", Better::Higher, Scope::Trial, "Jain's index of the jobs' rates: 1 where all are the same."),
    Metric::new(BURST_SPREAD, "1", Better::Lower, Scope::Trial, "The fastest job's rate over the slowest one's."),
    Metric::new(BURST_BLOCK, "B", Better::Higher, Scope::Trial, "Bytes of a job's burst, rounded up to words of 8 bytes."),
];

const PARAMS: &[Param] = &[
    Param::new("hosts", Type::Hosts, "Hosts that load.").required(),
    Param::new("target", Type::Target, "A folder, as a path, a URL, or service:NAME/PATH.").required(),
    Param::new("jobs", Type::Count, "Processes over all hosts that burst at once.").default("1").range(1.0, 10_000.0),
    Param::new("size", Type::Size, "Bytes that each writes in a burst, in one operation up to 2 GiB: rounded up to a multiple of 8, as IOR does.")
        .default("1MiB")
        .range(1.0, 64e9),
    Param::new("layout", Type::Choice(&["file-per-process", "shared"]), "Whether each has a file of its own or a stretch of one that all share.")
        .default("file-per-process"),
    Param::new("mix", Type::Ratio, "0: bursts are written; 1: read, from files written before.").default("0").range(0.0, 1.0),
    Param::new("repetitions", Type::Count, "Bursts, each after a barrier of all processes.").default("10").range(1.0, 100_000.0),
    Param::new("verify", Type::Flag, "Compare every byte that is read with what belongs there.").default("false"),
    Param::new("sync", Type::Choice(&["none", "end"]), "Whether a burst is on stable storage before its file is closed.").default("none"),
    Param::new("timeout", Type::Duration, "Longest that one operation is waited for; then it has failed.").default("60s").range(1e6, 86_400e9),
    Param::new("keep", Type::Flag, "Leave the files that the load made.").default("false"),
    crate::plan::CACHES,
];

fn is_shared(plan: &ScriptPlan) -> bool {
    plan.values.text("layout").as_deref() == Some("shared")
}

fn is_read(plan: &ScriptPlan) -> bool {
    plan.values.ratio("mix") == Some(1.0)
}

fn block_bytes(plan: &ScriptPlan) -> u64 {
    plan.size_bytes.div_ceil(WORD_BYTES) * WORD_BYTES
}

impl Kind for Burst {
    fn name(&self) -> &'static str {
        "io-burst"
    }
    fn about(&self) -> &'static str {
        "Processes that write or read their block at the same moment, as IOR does."
    }
    fn params(&self) -> &'static [Param] {
        PARAMS
    }
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn settle(&self, plan: &mut ScriptPlan) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        if plan.values.ratio("mix").is_some_and(|mix| mix > 0.0 && mix < 1.0) {
            return stop("`mix`: a burst is either written (0) or read (1)".to_owned());
        }
        if is_shared(plan) && plan.target.build.offers().writes_in_order {
            return stop(format!(
                "{}: a file there is written by one alone; `layout` \"file-per-process\"",
                plan.url
            ));
        }
        Ok(())
    }

    fn script(&self, plan: &ScriptPlan, job: JobOrder<'_>) -> Result<Script, WorkloadError> {
        let job = job.number;
        let (shared, read, block) = (is_shared(plan), is_read(plan), block_bytes(plan));
        let number = if shared { 0 } else { job };
        let from = if shared { u64::from(job) * block } else { 0 };
        let path = format!("{MADE}-{number}");
        let size_bytes = if shared { block * u64::from(plan.jobs) } else { block };
        let file = 0;
        let makes = !shared || job == 0;
        let pieces = || plan.pieces(file, from, block, TRANSFER_BYTES_MAX);
        let mut acts = Vec::new();
        let write_once = |acts: &mut Vec<Act>| {
            if makes {
                acts.extend([Act::Open { file, mode: Mode::Create }]);
                if !shared {
                    acts.extend(pieces().map(Act::Write));
                }
                acts.push(Act::Close { file });
            }
            if shared {
                acts.extend([Act::Barrier, Act::Open { file, mode: Mode::Update }]);
                acts.extend(pieces().map(Act::Write));
                acts.extend([Act::Sync { file }, Act::Close { file }]);
            }
        };
        if read {
            write_once(&mut acts);
        }
        for _ in 0..plan.repetitions {
            if !read {
                if shared && makes {
                    acts.extend([Act::Open { file, mode: Mode::Create }, Act::Close { file }]);
                }
                acts.extend(pieces().map(Act::Fill));
            }
            let mode = match (read, shared) {
                (true, _) => Mode::Read,
                (false, true) => Mode::Update,
                (false, false) => Mode::Create,
            };
            acts.extend([Act::Barrier, Act::Begin("burst"), Act::Open { file, mode }]);
            acts.extend(pieces().map(if read { Act::Read } else { Act::Write }));
            if plan.sync && !read {
                acts.push(Act::Sync { file });
            }
            acts.extend([Act::Close { file }, Act::End]);
            if !read && !plan.keep {
                // Nobody removes what another still writes.
                acts.extend(shared.then_some(Act::Barrier));
                acts.extend(makes.then_some(Act::Remove { file }));
            }
        }
        if read && !plan.keep {
            acts.extend(shared.then_some(Act::Barrier));
            acts.extend(makes.then_some(Act::Remove { file }));
        }
        Ok(Script::new(vec![ScriptFile { path, size_bytes }], acts))
    }

    fn derive(&self, plan: &ScriptPlan, sections: &[Section], _around: &Around) -> Vec<Row> {
        let mut rows = vec![value("trial", BURST_BLOCK, block_bytes(plan) as f64)];
        let rounds = of_rounds(sections, "burst");
        let whole: Vec<&Vec<&Section>> =
            rounds.values().filter(|round| round.iter().all(|section| section.failed == 0)).collect();
        let totals = whole.iter().filter_map(|round| {
            let begin = round.iter().map(|section| section.begin_ns).min()?;
            let end = round.iter().map(|section| section.end_ns).max()?;
            let bytes: u64 = round.iter().map(|section| section.bytes).sum();
            (end > begin).then(|| bytes as f64 * 1e9 / (end - begin) as f64)
        });
        rows.extend(mean(totals).map(|total| value("trial", BURST_TOTAL, total)));
        let skews = whole.iter().filter_map(|round| {
            let first = round.iter().map(|section| section.begin_ns).min()?;
            Some((round.iter().map(|section| section.begin_ns).max()? - first) as f64 / 1e9)
        });
        rows.extend(skews.reduce(f64::max).map(|skew| value("trial", BURST_SKEW, skew)));
        let mut of_jobs: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for section in whole.into_iter().flatten() {
            let seconds = section.end_ns.saturating_sub(section.begin_ns) as f64 / 1e9;
            if seconds > 0.0 {
                let of_job = of_jobs.entry(section.job).or_default();
                of_job.0.push(seconds);
                of_job.1.push(section.bytes as f64 / seconds);
            }
        }
        let mut rates = Vec::new();
        for (job, (seconds, own)) in of_jobs {
            let entity = format!("job-{job}");
            rows.extend(mean(seconds.into_iter()).map(|it| value(&entity, BURST_SECONDS, it)));
            if let Some(rate) = mean(own.into_iter()) {
                rates.push(rate);
                rows.push(value(&entity, BURST_RATE, rate));
            }
        }
        let (sum, squares) =
            rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        if squares > 0.0 && least > 0.0 {
            rows.push(value("trial", BURST_JAIN, sum * sum / (rates.len() as f64 * squares)));
            rows.push(value("trial", BURST_SPREAD, rates.iter().copied().fold(0.0, f64::max) / least));
        }
        rows
    }

    fn remarks(&self, plan: &ScriptPlan) -> Vec<String> {
        let block = block_bytes(plan);
        let mut remarks = Vec::new();
        if block != plan.size_bytes {
            remarks
                .push(format!("bursts of {} B were rounded up to {block} B, as IOR does", plan.size_bytes));
        }
        if block > TRANSFER_BYTES_MAX {
            let count = block.div_ceil(TRANSFER_BYTES_MAX);
            remarks.push(format!(
                "each burst of {block} B took {count} operations: none is larger than {TRANSFER_BYTES_MAX} B"
            ));
        }
        remarks
    }
}
