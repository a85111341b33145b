//! What io steps measure, and how it is shown.

use std::borrow::Cow::Borrowed;
use weir_core::evidence::{Around, Candidate, Factor, percent};
use weir_core::metric::{Better, Metric, Scope};
use weir_core::shown::{Place, SeriesShown, Shown};
use weir_core::units::human;

pub const MOVED: &str = "io.moved_bytes";
pub const OPERATIONS: &str = "io.operations_per_second";
pub const BYTES: &str = "io.bytes_per_second";
pub const LATENCY: &str = "io.latency_seconds";
pub const OPERATIONS_TOTAL: &str = "io.operations_total_per_second";
pub const BYTES_TOTAL: &str = "io.bytes_total_per_second";
pub const FAILED: &str = "io.failed_operations";
pub const MISMATCHED: &str = "io.mismatched_operations";
pub const PAUSE: &str = "io.pause_seconds";
pub const OPEN: &str = "io.open_seconds";
pub const SYNC: &str = "io.sync_seconds";
pub const CPU: &str = "io.cpu_seconds_per_operation";
pub const READ: &str = "io.read_seconds";
pub const WRITE: &str = "io.write_seconds";
pub const CLOSE: &str = "io.close_seconds";
pub const STAT: &str = "io.stat_seconds";
pub const LIST: &str = "io.list_seconds";
pub const REMOVE: &str = "io.remove_seconds";
pub const READ_TOTAL: &str = "io.read_bytes_per_second";
pub const WRITE_TOTAL: &str = "io.write_bytes_per_second";
pub const JOBS: &str = "io.job_seconds";

const OF_BYTES_TOTAL: Metric = Metric::new(
    BYTES_TOTAL,
    "B/s",
    Better::Higher,
    Scope::Trial,
    "Payload of all jobs that was read or written in the time that counts, a second.",
);
const OF_OPERATIONS_TOTAL: Metric = Metric::new(
    OPERATIONS_TOTAL,
    "1/s",
    Better::Higher,
    Scope::Trial,
    "Reads and writes of all jobs that were done in the time that counts, a second.",
);
const OF_FAILED: Metric = Metric::new(
    FAILED,
    "1",
    Better::Lower,
    Scope::Trial,
    "Operations that failed, those with wrong content included.",
);
const OF_MISMATCHED: Metric = Metric::new(
    MISMATCHED,
    "1",
    Better::Lower,
    Scope::Trial,
    "Reads whose content was not what belongs there.",
);
const OF_OPEN: Metric =
    Metric::new(OPEN, "s", Better::Lower, Scope::Operation, "From asking for a file until it is open.");
const OF_SYNC: Metric =
    Metric::new(SYNC, "s", Better::Lower, Scope::Operation, "One sync of a file after its last write.");
const OF_CPU: Metric = Metric::new(
    CPU,
    "s",
    Better::Lower,
    Scope::Trial,
    "Time on a core, user and system, of the threads that load, for each operation; threads of a target beside them are not in it.",
);

pub const OF_READ_TOTAL: Metric = Metric::new(
    READ_TOTAL,
    "B/s",
    Better::Higher,
    Scope::Trial,
    "Payload that all jobs read over the time in which they read alone.",
);
pub const OF_WRITE_TOTAL: Metric = Metric::new(
    WRITE_TOTAL,
    "B/s",
    Better::Higher,
    Scope::Trial,
    "Payload that all jobs wrote over the time in which they wrote alone, until it was on stable storage where that was asked for.",
);

/// The first stands for the workload where there is room for one.
pub static METRICS: &[Metric] = &[
    OF_BYTES_TOTAL.column(0).swept(),
    OF_OPERATIONS_TOTAL.column(1).swept(),
    Metric::new(
        LATENCY,
        "s",
        Better::Lower,
        Scope::Operation,
        "One read or write from its issue, in an open loop from its intended time, until all of it is done.",
    )
    .column(2),
    Metric::new(OPERATIONS, "1/s", Better::Higher, Scope::Flow, "Reads and writes of one job a second."),
    Metric::new(BYTES, "B/s", Better::Higher, Scope::Flow, "Payload of one job a second."),
    OF_READ_TOTAL,
    OF_WRITE_TOTAL,
    OF_FAILED,
    OF_MISMATCHED,
    Metric::new(
        PAUSE,
        "s",
        Better::Lower,
        Scope::Flow,
        "Longest time in which no operation of a job completed while some were asked for.",
    ),
    OF_OPEN,
    OF_SYNC,
    OF_CPU,
    Metric::new(
        JOBS,
        "s",
        Better::Lower,
        Scope::Flow,
        "From the start to the end of a job's last operation, a sync after it included.",
    ),
];

const fn operation(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "s", Better::Lower, Scope::Operation, about)
}

/// What scripted loads measure beside their own.
pub static SCRIPTED: &[Metric] = &[
    OF_OPERATIONS_TOTAL.column(3).swept(),
    OF_BYTES_TOTAL.column(4).swept(),
    OF_FAILED,
    OF_MISMATCHED,
    OF_OPEN,
    operation(READ, "One read, from its issue until all of it is there."),
    operation(WRITE, "One write, from its issue until all of it is taken."),
    OF_SYNC,
    operation(CLOSE, "From asking to close a file until it is closed."),
    operation(STAT, "From asking for a file's size until it is known."),
    operation(LIST, "From asking for the names in a folder until all are there."),
    operation(REMOVE, "From asking to remove a file until it is gone."),
    OF_CPU,
];

pub static SHOWN: Shown = Shown { series: Borrowed(SERIES), ledgers: Borrowed(&[]), views: Borrowed(&[]) };

const SERIES: &[SeriesShown] = &[SeriesShown {
    name: Borrowed(MOVED),
    spoken: Borrowed("payload moved"),
    place: Place::Lead(0),
    of: (Borrowed("job"), Borrowed("jobs")),
    is_queue: false,
    sum: Borrowed(""),
}];

/// Asked after what is seen of links, before nothing is known.
pub static CLIENT_CPU: Factor = Factor {
    name: "client-cpu",
    rank: 85,
    about: "The busiest thread that loads storage had no CPU left, or waited for one.",
    next: "load with more jobs or hosts, or with larger operations; see what this host can do",
    command: "weir doctor",
};
/// A disk that was asked for as much as it can do, and mostly read.
pub static DISK_READ: Factor = Factor {
    name: "disk-read",
    rank: 61,
    about: "A disk under the service read as much as it can.",
    next: "spread the files over more disks, read larger pieces, or give the disk a cache; set another disk and run again",
    command: "weir explain service.disk",
};
/// As `DISK_READ`, and mostly wrote.
pub static DISK_WRITE: Factor = Factor {
    name: "disk-write",
    rank: 62,
    about: "A disk under the service wrote as much as it can.",
    next: "spread the files over more disks, or write larger pieces; set another disk and run again",
    command: "weir explain service.disk",
};
pub static FACTORS: &[&Factor] = &[&DISK_READ, &DISK_WRITE, &CLIENT_CPU];
/// From here on a disk has nothing left to give: closed loops leave it idle for a moment between two requests.
const DISK_FULL: f64 = 0.93;

/// The busiest disk, where it is the reason.
pub fn busy_disk(around: &Around) -> Option<Candidate> {
    let busiest = around.disks.iter().max_by(|a, b| a.busy_ratio.total_cmp(&b.busy_ratio))?;
    if busiest.busy_ratio < DISK_FULL {
        return None;
    }
    let (read, written) = (busiest.read_bytes_per_second, busiest.written_bytes_per_second);
    let evidence = vec![format!(
        "{} was asked for {} of what it can do: it read {} and wrote {}",
        busiest.name,
        percent(busiest.busy_ratio),
        human(read, "B/s"),
        human(written, "B/s")
    )];
    let factor = if written > read { &DISK_WRITE } else { &DISK_READ };
    Some(Candidate::new(factor, busiest.busy_ratio.min(1.0), evidence))
}
