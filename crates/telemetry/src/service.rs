//! What the processes of services cost, and what they say of themselves.

use crate::cpu::{TICKS_PER_SECOND, process_ticks};
use crate::proc_file::{ProcFile, Quantity, Recorder};
use crate::reduce::{Reduce, Reduction};
use crate::transfers::Transfers;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SeriesView};
use weir_sys::socket::connect_named;

pub const CPU: &str = "service.cpu_seconds";
pub const THREAD_CPU: &str = "service.thread_cpu_seconds";
pub const SLOTS: &str = "service.slots";
pub const SLOTS_TAKEN: &str = "service.slots_taken";
pub const SLOT_WAITERS: &str = "service.slot_waiters";
pub const SLOT_WAIT: &str = "service.slot_wait_seconds";
pub const TRANSFERS: &str = "service.transfers";

/// What daemons say of their slots, by its name in recipes.
pub const COUNTERS: [(&str, &str); 4] =
    [("slots", SLOTS), ("taken", SLOTS_TAKEN), ("waiters", SLOT_WAITERS), ("wait", SLOT_WAIT)];

const QUANTITIES: [Quantity; 6] = [
    Quantity::counter(CPU, "s"),
    Quantity::counter(THREAD_CPU, "s"),
    Quantity::level(SLOTS, "requests"),
    Quantity::level(SLOTS_TAKEN, "requests"),
    Quantity::level(SLOT_WAITERS, "requests"),
    Quantity::level(SLOT_WAIT, "s"),
];

const IN_FLIGHT: Quantity = Quantity::level(TRANSFERS, "transfers");

pub static METRICS: &[Metric] = &[
    Metric::new(
        "service.cpu_cores",
        "1",
        Better::Lower,
        Scope::Host,
        "CPU time of a service's daemon and of what it started, in the steady state, against its length",
    ),
    Metric::new(
        "service.thread_cpu_ratio",
        "1",
        Better::Lower,
        Scope::Host,
        "share of the steady state that the first thread of the daemon's busiest process was on a core",
    ),
    Metric::new(
        "service.transfers",
        "transfers",
        Better::Neither,
        Scope::Host,
        "files that clients had open on a daemon, mean of what it said of itself in the steady state",
    ),
    Metric::new(
        "service.slots_taken",
        "requests",
        Better::Neither,
        Scope::Host,
        "requests that a daemon was serving, mean of what it said of itself in the steady state",
    ),
    Metric::new(
        "service.slot_waiters",
        "requests",
        Better::Lower,
        Scope::Host,
        "requests that waited for a slot of a daemon, mean of what it said of itself in the steady state",
    ),
    Metric::new(
        "service.slot_wait_seconds",
        "s",
        Better::Lower,
        Scope::Host,
        "how long requests had waited for a slot of a daemon, as it said of its last ones, mean over the steady state",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    Reduction { series: CPU, metric: "service.cpu_cores", reduce: Reduce::Rate(1.0) },
    Reduction { series: THREAD_CPU, metric: "service.thread_cpu_ratio", reduce: Reduce::Rate(1.0) },
    Reduction { series: TRANSFERS, metric: "service.transfers", reduce: Reduce::Mean },
    Reduction { series: SLOTS_TAKEN, metric: "service.slots_taken", reduce: Reduce::Mean },
    Reduction { series: SLOT_WAITERS, metric: "service.slot_waiters", reduce: Reduce::Mean },
    Reduction { series: SLOT_WAIT, metric: "service.slot_wait_seconds", reduce: Reduce::Mean },
];

/// A daemon of a service.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// What it is called in records.
    pub entity: String,
    /// It and what it started.
    pub processes: Vec<u32>,
    /// Where it says what it counts.
    pub counters: Option<Counters>,
    /// Where it says what is open on it.
    pub transfers: Option<Arc<Transfers>>,
}

/// Where a daemon says what it counts in the text format of Prometheus, and which of its samples mean what.
#[derive(Clone, Debug, PartialEq)]
pub struct Counters {
    pub at: CountersAt,
    /// Of `COUNTERS`, in their order: a sample's name, with labels that it must have; those that fit are added.
    pub samples: [Option<String>; COUNTERS.len()],
}

#[derive(Clone, Debug, PartialEq)]
pub enum CountersAt {
    /// A Unix socket that answers a request for `path`.
    Socket { socket: PathBuf, path: String },
    /// A file that is written anew.
    File(PathBuf),
}

/// CPU time of services, and what they count themselves.
pub struct ServiceSampler {
    daemons: Vec<Daemon>,
    recorder: Recorder,
}

struct Daemon {
    entity: String,
    processes: Vec<Process>,
    asked: Option<Asked>,
    transfers: Option<Arc<Transfers>>,
}

struct Process {
    stat: ProcFile,
    schedstat: ProcFile,
    /// What it had run when it was last seen: a process that ended has run all the same.
    ran_seconds: f64,
    first_thread_seconds: f64,
}

impl ServiceSampler {
    pub fn new(watched: Vec<Watched>) -> Self {
        let process = |id: &u32| Process {
            stat: ProcFile::open(&format!("/proc/{id}/stat")),
            schedstat: ProcFile::open(&format!("/proc/{id}/schedstat")),
            ran_seconds: 0.0,
            first_thread_seconds: 0.0,
        };
        let daemon = |watched: Watched| Daemon {
            processes: watched.processes.iter().map(process).collect(),
            asked: watched.counters.map(Asked::new),
            transfers: watched.transfers,
            entity: watched.entity,
        };
        ServiceSampler { daemons: watched.into_iter().map(daemon).collect(), recorder: Recorder::default() }
    }
}

/// Nanoseconds that the first thread ran, of `/proc/PID/schedstat`.
fn first_thread_ns(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl Sampler for ServiceSampler {
    fn sample(&mut self, now: Instant) {
        for daemon in &mut self.daemons {
            let (mut ran, mut busiest) = (0.0, 0.0_f64);
            for process in &mut daemon.processes {
                if let Some(ticks) = process.stat.read().and_then(process_ticks) {
                    process.ran_seconds = ticks as f64 / TICKS_PER_SECOND;
                }
                if let Some(ns) = process.schedstat.read().and_then(first_thread_ns) {
                    process.first_thread_seconds = ns as f64 / 1e9;
                }
                ran += process.ran_seconds;
                busiest = busiest.max(process.first_thread_seconds);
            }
            if !daemon.processes.is_empty() {
                self.recorder.put(now, &daemon.entity, &QUANTITIES[0], ran);
                self.recorder.put(now, &daemon.entity, &QUANTITIES[1], busiest);
            }
            if let Some(transfers) = &daemon.transfers {
                self.recorder.put(now, &daemon.entity, &IN_FLIGHT, transfers.look() as f64);
            }
            let answer = daemon.asked.as_mut().and_then(|asked| asked.look(now));
            let Some((asked_at, values)) = answer else { continue };
            for (quantity, value) in QUANTITIES[2..].iter().zip(values) {
                if let Some(value) = value {
                    self.recorder.put(asked_at, &daemon.entity, quantity, value);
                }
            }
        }
    }
    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        self.recorder.show(to);
    }
    fn take(&mut self) -> Vec<Series> {
        self.recorder.take()
    }
}

/// An answer that is longer is given up.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Asks a daemon for its counters without ever waiting for it: what it answers to one question is read when the next is due. A daemon
/// that stands still holds up nobody.
struct Asked {
    counters: Counters,
    /// The question that is under way, and when it was asked.
    under_way: Option<(UnixStream, Instant)>,
    /// When the file was written that was read last: what stays as it is says nothing new.
    written: Option<SystemTime>,
    answer: Vec<u8>,
}

type Values = [Option<f64>; COUNTERS.len()];

impl Asked {
    fn new(counters: Counters) -> Asked {
        Asked { counters, under_way: None, written: None, answer: Vec::new() }
    }

    /// What the last question was answered, and when it was asked; asks the next.
    fn look(&mut self, now: Instant) -> Option<(Instant, Values)> {
        if let CountersAt::File(path) = &self.counters.at {
            let (written, text) = read_newer(path, self.written)?;
            self.written = Some(written);
            return Some((now, self.counters.read(&text)));
        }
        let answered = match &mut self.under_way {
            None => None,
            Some((stream, asked_at)) => match read_some(stream, &mut self.answer) {
                Some(false) => return None,
                Some(true) => Some((*asked_at, self.counters.read(&String::from_utf8_lossy(&self.answer)))),
                None => None,
            },
        };
        self.answer.clear();
        self.under_way = self.ask().map(|stream| (stream, now));
        answered
    }

    fn ask(&self) -> Option<UnixStream> {
        // Connecting to a socket with a name never waits for who listens, unless too many do already: it is the only one here.
        let CountersAt::Socket { socket, path } = &self.counters.at else { return None };
        let mut stream = connect_named(socket).ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        Some(stream)
    }
}

/// A plain file of a daemon and when it was written, unless that is when `known` was. Where it has put something else, that leads nowhere and holds up nobody.
fn read_newer(path: &Path, known: Option<SystemTime>) -> Option<(SystemTime, String)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let about = file.metadata().ok().filter(Metadata::is_file)?;
    let written = about.modified().ok().filter(|written| Some(*written) != known)?;
    let mut text = String::new();
    file.take(ANSWER_BYTES_MAX as u64).read_to_string(&mut text).ok()?;
    Some((written, text))
}

/// Reads what is there: whether it is all, or nothing where it came to no good.
fn read_some(stream: &mut UnixStream, into: &mut Vec<u8>) -> Option<bool> {
    let mut block = [0; 16 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Some(true),
            Ok(bytes) if into.len() + bytes <= ANSWER_BYTES_MAX => into.extend_from_slice(&block[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

impl Counters {
    fn read(&self, text: &str) -> Values {
        self.samples.each_ref().map(|sample| sum_of(text, sample.as_deref()?))
    }
}

/// The sum of the samples in a text of Prometheus' format that have this name and these labels; `None` where there is none.
fn sum_of(text: &str, wanted: &str) -> Option<f64> {
    let (name, labels) = parts_of(wanted);
    let value = |line: &str| -> Option<f64> {
        let (sample, value) = line.rsplit_once(' ')?;
        let (own, has) = parts_of(sample);
        let fits = own == name && labels.iter().all(|label| has.contains(label));
        fits.then(|| value.parse().ok()).flatten().filter(|value: &f64| value.is_finite())
    };
    text.lines().filter_map(value).reduce(|sum, value| sum + value)
}

/// A sample's name and its labels, each `NAME="VALUE"`.
fn parts_of(sample: &str) -> (&str, Vec<&str>) {
    let (name, labels) = sample.trim().split_once('{').unwrap_or((sample.trim(), ""));
    let labels = labels.trim_end_matches('}').split(',').map(str::trim).filter(|label| !label.is_empty());
    (name, labels.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const SAID: &str = "HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n# TYPE queue gauge\n\
        queue{proxy=\"pool\",server=\"a\"} 3\nqueue{proxy=\"pool\",server=\"b\"} 4\nqueue{proxy=\"door\"} 9\n\
        limit{proxy=\"pool\",server=\"a\"} NaN\nlimit{proxy=\"pool\",server=\"b\"} 8\nplain 2.5\n";

    #[test]
    fn samples_that_fit_are_added_and_others_are_not() {
        assert_eq!(sum_of(SAID, "queue{proxy=\"pool\"}"), Some(7.0));
        assert_eq!(sum_of(SAID, "queue"), Some(16.0));
        assert_eq!(sum_of(SAID, "limit"), Some(8.0));
        assert_eq!(sum_of(SAID, "plain"), Some(2.5));
        assert_eq!(sum_of(SAID, "queue{proxy=\"other\"}"), None);
    }

    // Spec: services.md#service-18
    #[test]
    fn counters_are_of_when_they_were_asked_for_and_a_daemon_that_is_silent_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("counters");
        let listener = UnixListener::bind(&socket).unwrap();
        let counters = Counters {
            at: CountersAt::Socket { socket, path: "/".to_owned() },
            samples: [None, Some("plain".to_owned()), None, None],
        };
        let watched =
            Watched { entity: "service.x".to_owned(), counters: Some(counters), ..Watched::default() };
        let mut sampler = ServiceSampler::new(vec![watched]);
        sampler.sample(Instant::from_ns(10));
        sampler.sample(Instant::from_ns(20));
        let (mut asking, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        let length = asking.read(&mut request).unwrap();
        assert!(request[..length].starts_with(b"GET / HTTP/1.0\r\n"));
        asking.write_all(SAID.as_bytes()).unwrap();
        sampler.sample(Instant::from_ns(30));
        drop(asking);
        sampler.sample(Instant::from_ns(40));
        let all = sampler.take();
        assert_eq!(all.len(), 1);
        assert_eq!(
            (&all[0].name[..], &all[0].t_ns[..], &all[0].value[..]),
            (SLOTS_TAKEN, &[10][..], &[2.5][..])
        );
    }

    #[test]
    fn counters_in_a_file_count_once_for_each_time_it_is_written_and_a_fifo_in_its_place_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let counters = Counters {
            at: CountersAt::File(file.clone()),
            samples: [None, Some("plain".to_owned()), None, None],
        };
        let watched =
            Watched { entity: "service.x".to_owned(), counters: Some(counters), ..Watched::default() };
        let mut sampler = ServiceSampler::new(vec![watched]);
        sampler.sample(Instant::from_ns(10));
        std::fs::write(&file, SAID).unwrap();
        sampler.sample(Instant::from_ns(20));
        sampler.sample(Instant::from_ns(30));
        std::fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        sampler.sample(Instant::from_ns(40));
        let all = sampler.take();
        assert_eq!((&all[0].name[..], &all[0].t_ns[..]), (SLOTS_TAKEN, &[20][..]));
    }

    #[test]
    fn a_daemon_costs_what_its_processes_do_together() {
        let this = std::process::id();
        let watched =
            Watched { entity: "service.x".to_owned(), processes: vec![this, this], ..Watched::default() };
        let mut sampler = ServiceSampler::new(vec![watched]);
        sampler.sample(Instant::from_ns(10));
        // Of a core, not of the clock: other tests have their share of it.
        let until = weir_sys::clock::thread_cpu_time() + std::time::Duration::from_millis(60);
        while weir_sys::clock::thread_cpu_time() < until {}
        sampler.sample(Instant::from_ns(20));
        let all = sampler.take();
        let grown = |name: &str| {
            let series = all.iter().find(|series| series.name == name).unwrap();
            series.value[1] - series.value[0]
        };
        assert!(grown(CPU) >= 0.08, "{}", grown(CPU));
    }
}
