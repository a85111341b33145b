//! One thread a flow, looked after from outside. A time-out on a socket itself would arm and disarm a kernel timer with every
//! message, which is a few percent of a round trip; here a connection whose peer is silent is shut down by the thread that waits
//! for all of them.

use crate::rendezvous::Flow;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock::{self, WaitWatch};
use weir_sys::poll::{self, Interest};

/// How often the connections and the orders are looked at from outside.
const LOOK: Duration = Duration::from_millis(20);
/// How long what is under way may still take after the order to stop, where an end has to ask something afterwards.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// Copies of connections. `None`: there is none, or no descriptor was left to watch through; then the connection ends with its
/// peer alone.
struct Held {
    flow: Option<TcpStream>,
    /// A connection made while the load runs, or the listener for such; only to be shut down.
    also: Option<TcpStream>,
}

/// Ends a connection whose peer is silent, from outside.
pub struct Guard {
    held: Mutex<Held>,
    limit: Duration,
    /// Grows with everything that moves.
    progress: AtomicU64,
    silent: AtomicBool,
    /// Nothing is said on the flow any more: if it can be read it has ended, and so does what is attended.
    follows: AtomicBool,
    /// What is sent on its connections ends soon after the order to stop; and when that was, 0 before.
    ends_sending: AtomicBool,
    ended_sending_ns: AtomicU64,
}

impl Guard {
    pub fn new(stream: &TcpStream, limit: Duration) -> Guard {
        let held = Mutex::new(Held { flow: stream.try_clone().ok(), also: None });
        Guard {
            held,
            limit,
            progress: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            ends_sending: AtomicBool::new(false),
            ended_sending_ns: AtomicU64::new(0),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after this socket too, a connection or a listener, instead of the one named before.
    pub fn attend(&self, socket: BorrowedFd<'_>) {
        self.held().also = socket.try_clone_to_owned().ok().map(TcpStream::from);
    }

    /// Likewise, until the flow ends, on which nothing is said meanwhile.
    pub fn attend_with_flow(&self, socket: BorrowedFd<'_>) {
        self.attend(socket);
        self.follows.store(true, Ordering::Relaxed);
    }

    fn flow_has_ended(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
            && self.held().flow.as_ref().is_some_and(|flow| {
                poll::wait(flow.as_fd(), Interest::Readable, Duration::ZERO).unwrap_or(true)
            })
    }

    /// The connection named last is closed: its peer must not wait for a copy of it.
    pub fn leave(&self) {
        self.held().also = None;
    }

    /// The flow is over, and so are its connections.
    fn release(&self) {
        *self.held() = Held { flow: None, also: None };
    }

    /// So many messages, or bytes, by now.
    pub fn moved(&self, count: u64) {
        self.progress.store(count, Ordering::Relaxed);
    }

    fn end(&self) {
        self.shut(Shutdown::Both);
    }

    fn shut(&self, how: Shutdown) {
        let held = self.held();
        for stream in held.flow.iter().chain(&held.also) {
            let _ = stream.shutdown(how);
        }
    }

    /// Ends what is sent on its connections soon after the order to stop, whoever is still busy with it, so that the other end
    /// hears of it and can still say something.
    pub fn end_sending_when_stopped(&self) {
        self.ends_sending.store(true, Ordering::Relaxed);
    }

    fn end_sending(&self) {
        if self.ends_sending.swap(false, Ordering::Relaxed) {
            self.ended_sending_ns.store(clock::monotonic().as_ns(), Ordering::Release);
            self.shut(Shutdown::Write);
        }
    }

    /// When sending was ended from outside, ns; `None` where it was not, and will not be.
    pub fn ended_sending_ns(&self) -> Option<u64> {
        if self.ends_sending.swap(false, Ordering::Relaxed) {
            return None;
        }
        // Whoever has taken the order says when before it acts on it.
        let mut ended_ns = 0;
        while ended_ns == 0 {
            ended_ns = self.ended_sending_ns.load(Ordering::Acquire);
            std::hint::spin_loop();
        }
        Some(ended_ns)
    }

    /// Whether the peer was silent for too long: then the connection looks like one that its peer ended.
    pub fn silenced(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// What an error or an early end really was.
    pub fn explain(&self, error: io::Error) -> io::Error {
        if self.silenced() {
            let text = format!("the peer was silent for {:?}", self.limit);
            return io::Error::new(ErrorKind::TimedOut, text);
        }
        error
    }
}

/// Runs `one` for each flow, on a thread of its own called `name`, and returns what they come to in the order of the flows.
/// A flow that does not move for its `limit`, counted from the start at the earliest, is ended. Errors: the machine refused a
/// thread, one panicked, the load was aborted.
pub fn each<R: Send>(
    name: &str,
    flows: Vec<Flow>,
    control: &Control,
    limit: impl Fn(&Flow) -> Duration,
    one: impl Fn(Flow, &Guard) -> R + Sync,
) -> Result<Vec<R>, WorkloadError> {
    let guards: Vec<Guard> = flows.iter().map(|flow| Guard::new(&flow.stream, limit(flow))).collect();
    let carry_out = &|flow: Flow, guard: &Guard| {
        let report = one(flow, guard);
        guard.release();
        report
    };
    let watched = |running: &dyn Fn() -> bool| watch(&guards, control, running);
    let end = || guards.iter().for_each(Guard::end);
    spawn_all(name, flows.into_iter().zip(&guards), control, carry_out, watched, end)
}

/// Runs `one` for each flow that needs nobody to look after it, on a thread of its own. Errors as those of `each`.
pub fn each_alone<C: Send, R: Send>(
    name: &str,
    flows: Vec<Flow<C>>,
    control: &Control,
    one: impl Fn(Flow<C>) -> R + Sync,
) -> Result<Vec<R>, WorkloadError> {
    let carry_out = |flow, ()| one(flow);
    spawn_all(name, flows.into_iter().map(|flow| (flow, ())), control, &carry_out, |_| (), || ())
}

/// `watched` is called when all threads run, with a question whether all have finished; `end` when one could not be started.
fn spawn_all<C: Send, G: Send, R: Send>(
    name: &str,
    flows: impl Iterator<Item = (Flow<C>, G)>,
    control: &Control,
    one: &(impl Fn(Flow<C>, G) -> R + Sync),
    watched: impl Fn(&dyn Fn() -> bool),
    end: impl Fn(),
) -> Result<Vec<R>, WorkloadError> {
    let reports = std::thread::scope(|scope| {
        let mut running: Vec<ScopedJoinHandle<'_, R>> = Vec::new();
        for (flow, guard) in flows {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
                let watch = WaitWatch::begin();
                let report = one(flow, guard);
                control.waited(watch.end());
                report
            });
            match thread {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    control.abort();
                    end();
                    return Err(WorkloadError::new(format!("a thread could not be started: {error}")));
                }
            }
        }
        watched(&|| running.iter().all(ScopedJoinHandle::is_finished));
        let reports: Result<Vec<R>, _> = running.into_iter().map(ScopedJoinHandle::join).collect();
        reports.map_err(|_| WorkloadError::new("a load's thread panicked: this is a bug of weir"))
    })?;
    if control.aborted() {
        return Err(WorkloadError::new("the load was aborted"));
    }
    Ok(reports)
}

/// Looks after the connections until all are done.
fn watch(guards: &[Guard], control: &Control, finished: &dyn Fn() -> bool) {
    let mut seen = vec![(0, clock::monotonic()); guards.len()];
    let mut stopped = None;
    while !finished() {
        let now = clock::monotonic();
        if control.stopping() && now.since(*stopped.get_or_insert(now)) >= UNDER_WAY {
            guards.iter().for_each(Guard::end_sending);
        }
        for (guard, (count, since)) in guards.iter().zip(&mut seen) {
            let progress = guard.progress.load(Ordering::Relaxed);
            if progress != *count || now < control.start_at() {
                (*count, *since) = (progress, now);
            } else if now.since(*since) > guard.limit {
                guard.silent.store(true, Ordering::Relaxed);
                guard.end();
            }
            if control.is_cut() || guard.flow_has_ended() {
                guard.end();
            }
        }
        clock::sleep_until(now + LOOK);
    }
}

/// Blocking, without time-outs of the socket's own.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}
