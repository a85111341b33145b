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
pub const JOBS: &str = "io.job_seconds";

/// The first stands for the workload where there is room for one.
pub static METRICS: &[Metric] = &[
    Metric::new(
        BYTES_TOTAL,
        "B/s",
        Better::Higher,
        Scope::Trial,
        "Payload of all jobs that was read or written in the time that counts, a second.",
    )
    .column(0)
    .swept(),
    Metric::new(
        OPERATIONS_TOTAL,
        "1/s",
        Better::Higher,
        Scope::Trial,
        "Reads and writes of all jobs that were done in the time that counts, a second.",
    )
    .column(1)
    .swept(),
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
    Metric::new(
        FAILED,
        "1",
        Better::Lower,
        Scope::Trial,
        "Operations that failed, those with wrong content included.",
    ),
    Metric::new(
        MISMATCHED,
        "1",
        Better::Lower,
        Scope::Trial,
        "Reads whose content was not what belongs there.",
    ),
    Metric::new(
        PAUSE,
        "s",
        Better::Lower,
        Scope::Flow,
        "Longest time in which no operation of a job completed while some were asked for.",
    ),
    Metric::new(OPEN, "s", Better::Lower, Scope::Operation, "From asking for a file until it is open."),
    Metric::new(SYNC, "s", Better::Lower, Scope::Operation, "One sync of a file after its last write."),
    Metric::new(
        CPU,
        "s",
        Better::Lower,
        Scope::Trial,
        "Time on a core, user and system, of the threads that load, for each operation; threads of a target beside them are not in it.",
    ),
    Metric::new(
        JOBS,
        "s",
        Better::Lower,
        Scope::Flow,
        "From the start to the end of a job's last operation, a sync after it included.",
    ),
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
