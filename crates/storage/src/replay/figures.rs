//! What a replay is measured by: the ten figures of document 003's client for each file, and what jobs come to.

use super::acts::{CLOSE, OPEN, TRANSFER};
use crate::script::{Cause, FileFigures, JobOutcome, ScriptPlan, Section, value};
use std::collections::BTreeMap;
use weir_core::evidence::Around;
use weir_core::metric::{Better, Metric, Modelled, Scope};
use weir_core::record::Row;
use weir_core::statistics::jain;

pub const JOB: &str = "replay.job_seconds";
pub const FAILED: &str = "replay.failed_jobs";
const FAILED_RATIO: &str = "replay.failed_ratio";
pub const LATENESS: &str = "replay.lateness_seconds";
const RUN: &str = "replay.run_seconds";
const OVERHEAD: &str = "replay.overhead_seconds";
const STRETCH: &str = "replay.stretch_ratio";
const SKEW: &str = "replay.start_skew_seconds";
const DRAWN: &str = "replay.trace_number";
const WANTED: &str = "replay.wanted_bytes";
const FETCHED: &str = "replay.fetched_ratio";
const CACHE_GAIN: &str = "replay.cache_gain_ratio";
const REQUESTS: &str = "replay.requests";
const FAIRNESS: &str = "replay.fairness_jain";

/// Files of a step of which each has its own figures; of more, each job has the mean of its files'.
const FILES_APART_MAX: u64 = 512;

const fn of_job_metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    about: &'static str,
) -> Metric {
    Metric::new(name, unit, better, Scope::Flow, about)
}

const fn of_trial(name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric::new(name, unit, Better::Lower, Scope::Trial, about)
}

/// Jobs that failed, by what failed first.
const CAUSES: [(Cause, &str); 4] = [
    (Cause::Open, "replay.jobs_failed_opening"),
    (Cause::Read, "replay.jobs_failed_reading"),
    (Cause::Late, "replay.jobs_failed_late"),
    (Cause::Gone, "replay.jobs_failed_gone"),
];

/// The first stands for the workload where there is room for one.
pub static METRICS: &[Metric] = &[
    of_job_metric(JOB, "s", Better::Lower, "From the common start until a job has closed its files, its thinking included; jobs that failed have none.").modelled(Modelled::JobTime).column(0).swept(),
    of_trial(FAILED, "1", "Jobs of which one operation failed: they read no further.").column(1).swept(),
    of_trial(RUN, "s", "From the common start until the last job has closed its files, whichever failed.").column(2).swept(),
    of_job_metric(OVERHEAD, "s", Better::Lower, "What a job took beyond its thinking.").swept(),
    Metric::new(LATENESS, "s", Better::Lower, Scope::Operation, "From the time that a read was to be issued at, which its trace or the thinking before it says, until it was."),
    of_job_metric(STRETCH, "1", Better::Lower, "Of a trace with times: what the job took from its first to its last read against what the trace says."),
    of_trial(SKEW, "s", "Between the first job that began and the last."),
    of_job_metric(DRAWN, "1", Better::Lower, "Which of the step's traces the job drew, from 0."),
    Metric::new(WANTED, "B", Better::Higher, Scope::Trial, "Bytes that all jobs wanted, whatever was asked of the target for them."),
    of_trial(REQUESTS, "1", "Reads that were asked of the target, of one place or of many, and answered."),
    of_trial(FETCHED, "1", "Bytes that were asked of the target and came, for each byte that was wanted: more than 1 is waste of reading ahead."),
    Metric::new(CACHE_GAIN, "1", Better::Higher, Scope::Trial, "Bytes that came from the service for each byte that its disks gave: what is beyond 1 came out of caches, what is short of it was read in vain."),
    Metric::new(FAIRNESS, "1", Better::Higher, Scope::Trial, "Jain's index of what jobs read a second, without their thinking: 1 where all fare alike, 1/n where one of n has everything. A job that got nothing counts."),
    of_trial(FAILED_RATIO, "1", "Share of the jobs that failed.").swept(),
    of_trial(CAUSES[0].1, "1", "Jobs that failed because a file could not be opened."),
    of_trial(CAUSES[1].1, "1", "Jobs that failed because a read did."),
    of_trial(CAUSES[2].1, "1", "Jobs that failed because no answer came within the time-out."),
    of_trial(CAUSES[3].1, "1", "Jobs that failed because their server was gone, and their file with it."),
    of_job_metric("replay.open_elapsed_seconds", "s", Better::Lower, "open_elapsed of document 003: from asking for a file until it was open.").swept(),
    of_job_metric("replay.data_xfer_elapsed_seconds", "s", Better::Lower, "data_xfer_elapsed of document 003: time in the reads of a file."),
    of_job_metric("replay.close_elapsed_seconds", "s", Better::Lower, "close_elapsed of document 003: from asking to close a file until it was closed."),
    of_job_metric("replay.total_elapsed_seconds", "s", Better::Lower, "total_elapsed of document 003: from asking for a file until it was closed."),
    of_job_metric("replay.total_bytes_read_per_file_bytes", "B", Better::Higher, "totalbytesreadperfile of document 003."),
    of_job_metric("replay.max_bytes_read_per_second_per_file", "B/s", Better::Higher, "maxbytesreadpersecperfile of document 003: of the fastest read of a file."),
    of_job_metric("replay.eff_bytes_read_per_second_per_file", "B/s", Better::Higher, "effbytesreadpersecperfile of document 003: bytes of a file over the time in its reads."),
    of_job_metric("replay.throughput_per_file_bytes_per_second", "B/s", Better::Higher, "throughputperfile of document 003: bytes of a file over all the time for which it was open.").swept(),
    of_job_metric("replay.reads_count_per_file", "1", Better::Higher, "readscountperfile of document 003."),
    of_job_metric("replay.opened_ok_files_count", "1", Better::Higher, "openedokfilescount of document 003: files of a job that could be opened."),
];
const PER_FILE: [&str; 9] = [
    "replay.open_elapsed_seconds",
    "replay.data_xfer_elapsed_seconds",
    "replay.close_elapsed_seconds",
    "replay.total_elapsed_seconds",
    "replay.total_bytes_read_per_file_bytes",
    "replay.max_bytes_read_per_second_per_file",
    "replay.eff_bytes_read_per_second_per_file",
    "replay.throughput_per_file_bytes_per_second",
    "replay.reads_count_per_file",
];
const OPENED: &str = "replay.opened_ok_files_count";

/// In the order of `PER_FILE`; `None` where there is nothing of it.
fn per_file(file: &FileFigures) -> [Option<f64>; 9] {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let rate = |ns: u64| (ns > 0 && file.bytes > 0).then(|| file.bytes as f64 / seconds(ns));
    let total_ns = file.end_ns.saturating_sub(file.begin_ns);
    let is_closed = file.close_ns > 0;
    [
        Some(seconds(file.open_ns)),
        Some(seconds(file.read_ns)),
        is_closed.then(|| seconds(file.close_ns)),
        is_closed.then(|| seconds(total_ns)),
        Some(file.bytes as f64),
        (file.reads > 0).then_some(file.best_bytes_per_second),
        rate(file.read_ns),
        rate(total_ns),
        Some(file.reads as f64),
    ]
}

/// What a host says of one of its jobs.
pub fn of_job(plan: &ScriptPlan, job: &JobOutcome) -> Vec<Row> {
    let entity = format!("job-{}", job.number);
    let mut rows = vec![value(&entity, DRAWN, f64::from(job.drawn))];
    let section = |kind: &str| job.sections.iter().find(|section| section.kind == kind);
    let has_failed = job.sections.iter().any(|section| section.failed > 0);
    if let (false, Some(close)) = (has_failed, section(CLOSE)) {
        let seconds = close.end_ns as f64 / 1e9;
        let thought: u64 = job.sections.iter().map(|section| section.thought_ns).sum();
        rows.push(value(&entity, JOB, seconds));
        rows.push(value(&entity, OVERHEAD, (seconds - thought as f64 / 1e9).max(0.0)));
        let transfer = section(TRANSFER).filter(|_| !job.own.is_zero());
        if let Some(transfer) = transfer {
            let took = transfer.end_ns.saturating_sub(transfer.begin_ns) as f64 / 1e9;
            rows.push(value(&entity, STRETCH, took / job.own.as_secs_f64()));
        }
    }
    let opened: Vec<&FileFigures> = job.files.iter().filter(|file| file.is_opened).collect();
    rows.push(value(&entity, OPENED, opened.len() as f64));
    let is_apart = u64::from(plan.jobs) * job.files.len() as u64 <= FILES_APART_MAX;
    if is_apart {
        for (number, file) in job.files.iter().enumerate().filter(|(_, file)| file.is_opened) {
            let entity = format!("{entity}.file-{number}");
            let all = PER_FILE.iter().zip(per_file(file));
            rows.extend(all.filter_map(|(metric, it)| Some(value(&entity, metric, it?))));
        }
        return rows;
    }
    for (index, metric) in PER_FILE.iter().enumerate() {
        let all: Vec<f64> = opened.iter().filter_map(|file| per_file(file)[index]).collect();
        if !all.is_empty() {
            rows.push(value(&entity, metric, all.iter().sum::<f64>() / all.len() as f64));
        }
    }
    rows
}

/// What all jobs come to.
pub fn of_all(sections: &[Section], around: &Around) -> Vec<Row> {
    const ALL: &str = "trial";
    let seconds = |ns: u64| ns as f64 / 1e9;
    let opens = || sections.iter().filter(|section| section.kind == OPEN).map(|section| section.begin_ns);
    let mut failed: BTreeMap<u32, Cause> = BTreeMap::new();
    for section in sections {
        if let Some(cause) = section.cause {
            failed.entry(section.job).or_insert(cause);
        }
    }
    let mut rows = vec![value(ALL, FAILED, failed.len() as f64)];
    let begun = opens().count();
    if begun > 0 {
        rows.push(value(ALL, FAILED_RATIO, failed.len() as f64 / begun as f64));
    }
    for (cause, metric) in CAUSES {
        rows.push(value(ALL, metric, failed.values().filter(|it| **it == cause).count() as f64));
    }
    let last = sections.iter().map(|section| section.end_ns).max();
    rows.extend(last.map(|last| value(ALL, RUN, seconds(last))));
    if let (Some(first), Some(last)) = (opens().min(), opens().max()) {
        rows.push(value(ALL, SKEW, seconds(last - first)));
    }
    let sum = |of: fn(&Section) -> u64| sections.iter().map(of).sum::<u64>() as f64;
    rows.push(value(ALL, REQUESTS, sum(|it| it.reads)));
    let (wanted, fetched) = (sum(|it| it.wanted_bytes), sum(|it| it.bytes));
    rows.push(value(ALL, WANTED, wanted));
    if wanted > 0.0 {
        rows.push(value(ALL, FETCHED, fetched / wanted));
    }
    let reading = sections.iter().filter(|section| section.kind == TRANSFER);
    let rates: Vec<f64> = reading.map(rate_of).collect();
    rows.extend(jain(&rates).map(|index| value(ALL, FAIRNESS, index)));
    let of_disks: f64 = around.disks.iter().map(|disk| disk.read_bytes).sum();
    if of_disks > 0.0 {
        rows.push(value(ALL, CACHE_GAIN, fetched / of_disks));
    }
    rows
}

/// What a job read a second of the time in which it did not think.
fn rate_of(section: &Section) -> f64 {
    let took_ns = section.end_ns.saturating_sub(section.begin_ns).saturating_sub(section.thought_ns);
    if took_ns == 0 { 0.0 } else { section.wanted_bytes as f64 * 1e9 / took_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::evidence::DiskFacts;
    use weir_core::record::Observed;

    // Spec: replay.md#replay-6
    #[test]
    fn the_ten_figures_of_a_file_are_those_of_its_opening_its_reads_and_its_closing() {
        let file = FileFigures {
            is_opened: true,
            begin_ns: 1_000_000_000,
            end_ns: 5_000_000_000,
            open_ns: 500_000_000,
            read_ns: 2_000_000_000,
            close_ns: 100_000_000,
            reads: 4,
            bytes: 8_000,
            best_bytes_per_second: 9_000.0,
        };
        let figures = per_file(&file).map(Option::unwrap);
        assert_eq!(figures, [0.5, 2.0, 0.1, 4.0, 8_000.0, 9_000.0, 4_000.0, 2_000.0, 4.0]);
        // One that was never closed has no total.
        assert_eq!(per_file(&FileFigures { close_ns: 0, ..file })[3], None);
    }

    // Spec: replay.md#replay-5
    #[test]
    fn a_job_fails_once_whatever_fails_of_it_and_by_what_failed_first() {
        let section = |job, kind: &str, cause: Option<Cause>| Section {
            job,
            kind: kind.to_owned(),
            round: 0,
            begin_ns: u64::from(job) * 10,
            end_ns: 2_000_000_000,
            bytes: 300,
            wanted_bytes: 100,
            reads: 1,
            thought_ns: 0,
            failed: u32::from(cause.is_some()),
            cause,
        };
        let sections = [
            section(0, OPEN, None),
            section(0, TRANSFER, Some(Cause::Late)),
            section(0, CLOSE, Some(Cause::Gone)),
            section(1, OPEN, Some(Cause::Open)),
            section(2, OPEN, None),
        ];
        let disk = |read_bytes| DiskFacts { read_bytes, ..DiskFacts::default() };
        let around = Around { disks: vec![disk(400.0), disk(800.0)], ..Around::default() };
        let rows = of_all(&sections, &around);
        let of = |metric: &str| match rows.iter().find(|row| row.metric == metric).unwrap().value {
            Observed::Value(value) => value,
            _ => panic!(),
        };
        assert_eq!((of(FAILED), of(RUN), of(FETCHED), of(REQUESTS)), (2.0, 2.0, 3.0, 5.0));
        assert_eq!(of(CACHE_GAIN), 1.25);
        assert_eq!(((of(SKEW) * 1e9).round(), of(FAILED_RATIO)), (20.0, 2.0 / 3.0));
        assert_eq!(CAUSES.map(|(_, metric)| of(metric)), [1.0, 0.0, 1.0, 0.0]);
    }
}
