//! What io steps measure, and how it is shown.

use std::borrow::Cow::Borrowed;
use std::collections::BTreeMap;
use weir_core::evidence::{Around, Candidate, Factor, percent};
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::MetricSummary;
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
pub const RESIDENT_BEFORE: &str = "io.resident_before_ratio";
pub const RESIDENT_AFTER: &str = "io.resident_after_ratio";

/// Whether all operations of a step failed.
// Spec: storage.md#failure-4
pub fn is_all_failed(metrics: &BTreeMap<String, MetricSummary>) -> bool {
    metrics.get(FAILED).is_some_and(|failed| failed.mean > 0.0) && !metrics.contains_key(OPERATIONS_TOTAL)
}

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
    resident(
        RESIDENT_BEFORE,
        "Share of the load's files that was in the memory of the machine that loads them, when the load began.",
    ),
    resident(RESIDENT_AFTER, "As before the load, when it had ended: what it has left in memory."),
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

const fn resident(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "1", Better::Neither, Scope::Trial, about)
}

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
/// Asked after disks: slots are taken as long as what is behind them takes.
pub static SERVER_SLOTS: Factor = Factor {
    name: "server-slots",
    rank: 63,
    about: "All slots of a server were taken, and requests waited for one.",
    next: "give the server more slots, or spread the load over more servers; set them and run again",
    command: "weir explain service.set",
};
/// A server that had no CPU left.
pub static SERVER_CPU: Factor = Factor {
    name: "server-cpu",
    rank: 64,
    about: "A daemon of the service had no CPU left.",
    next: "spread the load over more servers or give the daemon more threads, or ask in larger operations",
    command: "weir explain service.place",
};
/// Asked after all that may be full: what is left of a load that mostly asks for names.
pub static METADATA: Factor = Factor {
    name: "metadata",
    rank: 95,
    about: "Jobs spent most of their time on the names of files and not on their content.",
    next: "put more into each file, keep files open, or run more jobs; what each operation took is in the report",
    command: "weir explain step.io-small",
};
/// Asked last: what a full disk or server fails is that disk's or server's.
pub static FAILURES: Factor = Factor {
    name: "failures",
    rank: 96,
    about: "Every operation failed: what the target can do was not seen.",
    next: "read what failed, by code and place, and mend that first",
    command: "weir report DIR",
};
pub static FACTORS: &[&Factor] =
    &[&DISK_READ, &DISK_WRITE, &SERVER_SLOTS, &SERVER_CPU, &CLIENT_CPU, &METADATA, &FAILURES];
/// What is asked of names. Closing is not among them: what was written is often sent then.
pub const OF_NAMES: [&str; 4] = [OPEN, STAT, LIST, REMOVE];
/// Share of the time of all operations.
const NAMES_MOST: f64 = 0.6;
/// From here on slots are taken all the time: between two requests one is free for a moment.
const SLOTS_FULL: f64 = 0.85;
/// Requests that wait for a slot against those that have one, from where on waiting is most of what bounds the load.
const WAITERS_MANY: f64 = 0.5;
/// Share of the time that a thread was on a core, from where on it has nothing left to give.
const THREAD_BUSY: f64 = 0.93;
/// Of the machine, where daemons share it with everything else: what is idle at most, and the daemons' share of it at least.
const MACHINE_IDLE_MOST: f64 = 0.04;
const MACHINE_SHARE_LEAST: f64 = 0.4;
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

/// The daemon whose slots most requests waited for, where they are the reason.
pub fn taken_slots(around: &Around) -> Option<Candidate> {
    let all = around.daemons.iter().filter_map(|daemon| Some((&daemon.name, daemon.slots?)));
    let full = all.filter(|(_, it)| {
        it.slots > 0.0 && it.taken >= SLOTS_FULL * it.slots && it.waiters >= WAITERS_MANY * it.taken
    });
    let (name, it) = full.max_by(|(_, a), (_, b)| a.waiters.total_cmp(&b.waiters))?;
    let evidence = vec![format!(
        "{name} had {:.1} of its {} slots taken, and {:.1} requests waited for one, each {}",
        it.taken,
        it.slots,
        it.waiters,
        human(it.wait_seconds, "s")
    )];
    Some(Candidate::new(&SERVER_SLOTS, (it.taken / it.slots).min(1.0), evidence))
}

/// The busiest daemon, where its CPU is the reason: a thread of it that was always on a core, daemons that had all that their host
/// has, or all daemons together with the better part of a machine that had nothing left.
pub fn busy_server(around: &Around) -> Option<Candidate> {
    let by_thread = around.daemons.iter().max_by(|a, b| a.thread_ratio.total_cmp(&b.thread_ratio))?;
    if by_thread.thread_ratio >= THREAD_BUSY {
        let share = percent(by_thread.thread_ratio);
        let evidence =
            vec![format!("the busiest thread of {} was on a core {share} of the time", by_thread.name)];
        return Some(Candidate::new(&SERVER_CPU, by_thread.thread_ratio.min(1.0), evidence));
    }
    let mut by_host: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for daemon in &around.daemons {
        if let Some(limit) = daemon.host_cores {
            by_host.entry(&daemon.host).or_insert((0.0, limit)).0 += daemon.cpu_cores;
        }
    }
    let fullest = by_host.iter().max_by(|(_, a), (_, b)| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    if let Some((host, (cores, limit))) = fullest.filter(|(_, (cores, limit))| *cores >= THREAD_BUSY * limit)
    {
        let evidence = vec![format!("daemons on {host} had {cores:.2} of the {limit} cores that it has")];
        return Some(Candidate::new(&SERVER_CPU, (cores / limit).min(1.0), evidence));
    }
    let emulator = around.emulator.filter(|it| it.machine_idle_ratio <= MACHINE_IDLE_MOST)?;
    let cores: f64 = around.daemons.iter().map(|daemon| daemon.cpu_cores).sum();
    if cores < MACHINE_SHARE_LEAST * emulator.core_count {
        return None;
    }
    let by_cores = around.daemons.iter().max_by(|a, b| a.cpu_cores.total_cmp(&b.cpu_cores))?;
    let evidence = vec![
        format!(
            "daemons had {cores:.2} of the machine's {} cores, and nothing of it was idle",
            emulator.core_count
        ),
        format!("{} alone had {:.2}", by_cores.name, by_cores.cpu_cores),
    ];
    Some(Candidate::new(&SERVER_CPU, (cores / emulator.core_count).min(1.0), evidence))
}

/// Where most of the operations' time went into names.
pub fn mostly_names(names_seconds: f64, all_seconds: f64) -> Option<Candidate> {
    let share = names_seconds / all_seconds;
    // Nothing at all is no share.
    (share >= NAMES_MOST).then(|| {
        let evidence = vec![format!(
            "opening, asking for, listing and removing files took {} of the operations' time",
            percent(share)
        )];
        Candidate::new(&METADATA, share.min(1.0), evidence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::evidence::{DaemonFacts, EmulatorFacts, SlotFacts};

    fn around(daemons: Vec<DaemonFacts>, machine_idle_ratio: f64) -> Around {
        let emulator = EmulatorFacts { machine_idle_ratio, core_count: 2.0, ..EmulatorFacts::default() };
        Around { daemons, emulator: Some(emulator), ..Around::default() }
    }

    fn slots(slots: f64, taken: f64, waiters: f64) -> DaemonFacts {
        let slots = Some(SlotFacts { slots, taken, waiters, wait_seconds: 0.25 });
        DaemonFacts { name: format!("of-{waiters}"), slots, ..DaemonFacts::default() }
    }

    // Spec: services.md#service-19
    #[test]
    fn slots_bound_a_load_where_all_are_taken_and_requests_wait() {
        let free = [slots(8.0, 4.0, 0.0), slots(8.0, 7.9, 0.1), DaemonFacts::default()];
        assert!(taken_slots(&around(free.to_vec(), 0.5)).is_none());
        let found = taken_slots(&around(vec![slots(8.0, 7.9, 20.0), slots(8.0, 8.0, 42.0)], 0.5)).unwrap();
        assert_eq!(found.factor.name, "server-slots");
        assert_eq!(
            found.evidence,
            ["of-42 had 8.0 of its 8 slots taken, and 42.0 requests waited for one, each 250 ms"]
        );
    }

    // Spec: storage.md#script-5
    #[test]
    fn a_load_that_mostly_asks_for_names_says_so() {
        assert!(mostly_names(0.0, 0.0).is_none() && mostly_names(1.0, 2.0).is_none());
        assert_eq!(mostly_names(1.5, 2.0).unwrap().factor.name, "metadata");
    }

    // Spec: services.md#service-20
    #[test]
    fn a_daemon_bounds_a_load_by_one_thread_or_by_the_better_part_of_a_busy_machine() {
        let daemon =
            |cpu_cores, thread_ratio| DaemonFacts { cpu_cores, thread_ratio, ..DaemonFacts::default() };
        assert!(busy_server(&around(vec![daemon(1.2, 0.6)], 0.2)).is_none());
        assert!(busy_server(&around(vec![daemon(0.5, 0.5)], 0.0)).is_none());
        assert!(busy_server(&around(vec![daemon(1.0, 0.97)], 0.4)).is_some());
        let limited = |cpu_cores| DaemonFacts {
            host_cores: Some(0.2),
            host: "s-0".to_owned(),
            ..daemon(cpu_cores, 0.1)
        };
        assert!(busy_server(&around(vec![limited(0.15)], 0.5)).is_none());
        let found = busy_server(&around(vec![limited(0.15), limited(0.045)], 0.5)).unwrap();
        assert_eq!(found.evidence, ["daemons on s-0 had 0.20 of the 0.2 cores that it has"]);
        let found = busy_server(&around(vec![daemon(0.9, 0.2), daemon(0.5, 0.1)], 0.01)).unwrap();
        assert!(
            found.evidence[0].starts_with("daemons had 1.40 of the machine's 2 cores"),
            "{:?}",
            found.evidence
        );
    }
}
