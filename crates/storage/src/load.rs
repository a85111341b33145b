//! What every load on storage comes to, whatever its jobs do.

use crate::job::Done;
use crate::layout::InMemory;
use crate::metrics::{self, CLIENT_CPU};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use weir_core::evidence::{Candidate, CoreTime, GeneratorFacts, Load, THREAD_FULL, link_rate, percent};
use weir_core::failure::Failures;
use weir_core::record::{Histogram, Observed, Row};
use weir_seams::workload::{DeriveContext, Derived, Outcome};

/// Rows of the whole trial.
pub const TRIAL: &str = "trial";

/// What the coordinator needs of a host beyond its rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HostFigures {
    pub operations: u64,
    pub bytes: u64,
    pub failed: u64,
    pub mismatched: u64,
    /// Length of the time that counts.
    pub counted_ns: u64,
    pub cpu_ns: u64,
    pub due: u64,
    pub lateness_p99_ns: u64,
    pub lateness_max_ns: u64,
    /// Shares of the busiest thread's time on a core and in wait for one.
    pub ran_waited: Option<(f64, f64)>,
    /// Time of operations on names (open, stat, list, remove), and of all, where they are kept apart: seconds of jobs.
    pub names_seconds: f64,
    pub all_seconds: f64,
    /// Mean time of the quickest kind of operation, closing left out; `None` where times of kinds are not kept apart.
    #[serde(default)]
    pub operation_seconds: Option<f64>,
    pub first_failure: Option<String>,
    /// Of the load's files before and after it, where the target can tell.
    #[serde(default)]
    pub resident: [Option<InMemory>; 2],
}

impl HostFigures {
    /// One more job.
    pub fn add(&mut self, done: &Done) {
        self.operations += done.operations;
        self.bytes += done.bytes;
        self.failed += done.failed;
        self.mismatched += done.mismatched;
    }

    /// One more thread, which ran and waited so much of its time.
    pub fn busier(&mut self, ran_and_waited: Option<(f64, f64)>) {
        let all = self.ran_waited.into_iter().chain(ran_and_waited);
        self.ran_waited = all.max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
    }

    pub fn first_failed(&mut self, failures: &Failures) {
        let text = || failures.first().map(|it| format!("{} {}: {}", it.operation, it.target, it.text));
        self.first_failure = self.first_failure.take().or_else(text);
    }
}

/// What each host said. Errors: one is not understood, in words.
pub fn bodies<T: DeserializeOwned>(outcomes: &[Outcome]) -> Result<Vec<T>, String> {
    let parsed: Result<Vec<T>, _> =
        outcomes.iter().map(|outcome| serde_json::from_value(outcome.body.clone())).collect();
    parsed.map_err(|error| format!("a host's outcome is not understood: {error}"))
}

/// Runs each part of a load in a thread of its own. Errors: the first part's that has one.
pub fn at_once<P: Send, T: Send>(
    parts: Vec<P>,
    run: impl Fn(P) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let run = &run;
    std::thread::scope(|scope| {
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || run(part))).collect();
        let panicked = || io::Error::other("a thread of the load panicked: this is a bug of weir");
        // All are waited for, whichever fails.
        let ran: Vec<io::Result<T>> =
            running.into_iter().map(|part| part.join().unwrap_or_else(|_| Err(panicked()))).collect();
        ran.into_iter().collect()
    })
}

/// Rows, verdict on the load itself, and what may have bounded it. `generator` is of a load with times of its own.
pub fn judged(
    context: &DeriveContext<'_>,
    hosts: &[&HostFigures],
    is_remote: bool,
    generator: Option<GeneratorFacts>,
) -> Derived {
    let mut derived = Derived::default();
    if hosts.is_empty() {
        return Derived { invalid: Some("no host said what it measured".to_owned()), ..derived };
    }
    let sum = |of: fn(&HostFigures) -> u64| hosts.iter().map(|it| of(it)).sum::<u64>();
    let seconds = hosts.iter().map(|host| host.counted_ns).max().unwrap_or(0) as f64 / 1e9;
    let (operations, bytes) = (sum(|it| it.operations), sum(|it| it.bytes));
    let mut put = |metric: &str, value: f64| {
        derived.rows.push(Row {
            entity: TRIAL.to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        });
    };
    if seconds > 0.0 && operations > 0 {
        put(metrics::OPERATIONS_TOTAL, operations as f64 / seconds);
        put(metrics::BYTES_TOTAL, bytes as f64 / seconds);
        put(metrics::CPU, sum(|it| it.cpu_ns) as f64 / 1e9 / operations as f64);
    }
    put(metrics::FAILED, sum(|it| it.failed) as f64);
    put(metrics::MISMATCHED, sum(|it| it.mismatched) as f64);
    let is_timed = generator.is_some();
    derived.load = Load { wants_machine: !is_timed, is_off_links: !is_remote, generator, ..Load::default() };
    let quickest = hosts.iter().filter_map(|it| it.operation_seconds).reduce(f64::min);
    derived.load.operation_seconds = quickest.filter(|_| !is_timed);
    let busiest =
        hosts.iter().filter_map(|it| it.ran_waited).max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
    if let Some((ran, waited)) = busiest.filter(|(ran, waited)| ran + waited >= THREAD_FULL) {
        let evidence = vec![format!(
            "the busiest thread that loads ran {} of the time and waited for a core {}",
            percent(ran),
            percent(waited)
        )];
        let candidate = Candidate::new(&CLIENT_CPU, ran + waited, evidence);
        derived.candidates.push(candidate.of_thread(CoreTime { ran, waited }));
    }
    if !is_timed {
        derived.candidates.extend(metrics::busy_disk(context.around));
        derived.candidates.extend(metrics::taken_slots(context.around));
        derived.candidates.extend(metrics::busy_server(context.around));
        let seconds = |of: fn(&HostFigures) -> f64| hosts.iter().map(|it| of(it)).sum::<f64>();
        derived
            .candidates
            .extend(metrics::mostly_names(seconds(|it| it.names_seconds), seconds(|it| it.all_seconds)));
        derived.candidates.extend(link_rate(context.around));
    }
    let first = hosts.iter().find_map(|host| host.first_failure.clone());
    let failed = sum(|it| it.failed);
    if let Some(first) = first {
        let verb = if failed == 1 { "operation" } else { "operations" };
        let all = if operations == 0 { "every one: " } else { "" };
        let text = format!("{all}{failed} {verb} failed, the first: {first}");
        if operations == 0 {
            derived.candidates.push(Candidate::new(&metrics::FAILURES, 1.0, vec![text.clone()]));
        }
        derived.warnings.push(text);
    }
    // That all of it failed is a finding; that nothing was asked is none (decision 0031).
    if operations == 0 && failed == 0 {
        derived.invalid = Some("no operation was done within the time that counts".to_owned());
    }
    derived
}

/// How the generators of all hosts kept their clocks. `period_seconds`: between two ticks of a job.
pub fn generator(hosts: &[&HostFigures], period_seconds: f64) -> GeneratorFacts {
    let most =
        |of: fn(&HostFigures) -> u64| hosts.iter().map(|host| of(host)).max().unwrap_or(0) as f64 / 1e9;
    GeneratorFacts {
        due_count: hosts.iter().map(|host| host.due).sum(),
        missed_count: 0,
        lateness_seconds: most(|it| it.lateness_p99_ns),
        lateness_seconds_max: most(|it| it.lateness_max_ns),
        period_seconds,
    }
}

/// The value that a share of all does not exceed.
pub fn percentile_ns(histogram: &Histogram, share: f64) -> u64 {
    let wanted = (histogram.count.iter().sum::<u64>() as f64 * share).ceil() as u64;
    let mut seen = 0;
    let found = histogram.value_ns.iter().zip(&histogram.count).find(|(_, count)| {
        seen += **count;
        seen >= wanted
    });
    found.map_or(histogram.max_ns, |(value, _)| (*value).min(histogram.max_ns))
}
