//! The threads that move bytes. A thread with one flow blocks in send or receive; one with several waits for all of
//! them at once and gives each a bounded turn. Samples are taken by the thread that moves the bytes, between two blocks:
//! no other thread disturbs it, and nothing is allocated once the load has begun.

use super::clock::{Patience, Schedule, nanoseconds};
use super::outcome;
use super::plan::{StreamPlan, Until};
use super::receive::{Receiver, Turn};
use super::send::Sender;
use crate::rendezvous::{self, Flow};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::{Control, Outcome, WorkloadError};
use weir_sys::clock;
use weir_sys::epoll::Epoll;
use weir_sys::poll::{self, Interest};
use weir_sys::socket;

/// Longest a thread waits before it looks at its orders.
const LOOK: Duration = Duration::from_millis(50);
/// Shortest time-out of a blocking call: below, the kernel's own tick is coarser.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// A blocking receive may come back so much late; closer to an edge than this a thread waits with a finer clock.
const EDGE_NEAR_NS: u64 = 70_000_000;
/// Bytes a flow may move in one turn beside others.
const TURN_BYTES: usize = 512 * 1024;
/// Bytes after which a receiver adds to the live progress.
const REPORT_BYTES: u64 = 1 << 20;
/// Most samples all flows of one end keep.
const SAMPLES_MAX: u64 = 2_000_000;
/// Samples a flow of unknown duration has room for before it thins them out.
const SAMPLES_UNKNOWN: u64 = 20_000;

/// What one end of a step is to do.
pub struct Load {
    pub plan: StreamPlan,
    pub host: String,
    pub role: String,
    /// Flows of the whole step; stretches the interval of the series.
    pub flow_total: u64,
    pub patience: Patience,
}

pub enum Half {
    Send(Box<Sender>),
    Receive(Box<Receiver>),
}

impl Half {
    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Half::Send(sender) => sender.stream.as_fd(),
            Half::Receive(receiver) => receiver.stream.as_fd(),
        }
    }
    fn done(&self) -> bool {
        match self {
            Half::Send(sender) => sender.done(),
            Half::Receive(receiver) => receiver.done,
        }
    }
    fn draining(&self) -> bool {
        match self {
            Half::Send(sender) => sender.draining(),
            Half::Receive(_) => false,
        }
    }
    fn on_idle(&mut self, schedule: &Schedule, now_ns: u64, end_ns: u64) {
        match self {
            Half::Send(sender) => sender.on_idle(schedule, now_ns, end_ns),
            Half::Receive(receiver) => receiver.on_idle(schedule, now_ns, end_ns),
        }
    }
    /// When it wants to be looked at although nothing happens on its connection.
    fn due_ns(&self, schedule: &Schedule, now_ns: u64) -> u64 {
        let edge = schedule.next_edge_ns(now_ns);
        match self {
            Half::Send(sender) if !sender.draining() => edge.min(sender.samples.next_due_ns()),
            _ => edge,
        }
    }
}

/// What every data thread knows.
struct Shared<'a> {
    schedule: Schedule,
    control: &'a Control,
    block_bytes: usize,
    interval: Duration,
}

/// Runs one end of a step from the agreed start until every flow is drained or given up.
/// Errors: the load was aborted, or the machine refused a thread.
pub fn run(load: &Load, flows: Vec<Flow>, control: &Control) -> Result<Outcome, WorkloadError> {
    let plan = &load.plan;
    let granted = rendezvous::granted(&flows, &plan.tcp);
    let interval = plan.series_interval(load.flow_total.max(flows.len() as u64));
    let (duration, bytes) = match plan.until {
        Until::Duration(duration) => (Some(duration), None),
        Until::Bytes(bytes) => (None, Some(bytes)),
    };
    let start_ns = control.start_at().as_ns();
    let schedule = Schedule::new(start_ns, plan.warm_up, duration, load.patience);
    let capacity = capacity(duration, interval, flows.len() as u64);
    let interval_ns = nanoseconds(interval);
    let halves: Vec<Half> = flows
        .into_iter()
        .map(|Flow { spec, stream }| {
            if spec.sends {
                Half::Send(Box::new(Sender::new(
                    spec.entity,
                    stream,
                    &schedule,
                    bytes,
                    capacity,
                    interval_ns,
                )))
            } else {
                let mut receiver = Receiver::new(spec.entity, stream, &schedule, capacity, interval_ns);
                receiver.hold_window(plan.tcp.window);
                Half::Receive(Box::new(receiver))
            }
        })
        .collect();
    let shared = Shared { schedule, control, block_bytes: plan.block_bytes as usize, interval };
    let threads = thread_count(plan.threads, halves.len());
    let (halves, cpu_ns) = on_threads(&shared, halves, threads)?;
    if control.aborted() {
        for half in &halves {
            // The peer must not wait for what will not come.
            let _ = socket::reset_on_close(half.socket());
        }
        return Err(WorkloadError::stop("the load was aborted"));
    }
    Ok(outcome::assemble(load, &schedule, interval, granted, halves, cpu_ns))
}

/// One thread a flow, up to one a core.
fn thread_count(asked: u64, flows: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if asked == 0 { cores } else { asked as usize };
    wanted.min(flows).max(1)
}

fn capacity(duration: Option<Duration>, interval: Duration, flows: u64) -> usize {
    let planned = duration.map_or(SAMPLES_UNKNOWN, |duration| {
        // A pause gives two samples, the edges one each, and the drain a few.
        (duration.as_secs_f64() / interval.as_secs_f64() * 1.1) as u64 + 64
    });
    planned.min(SAMPLES_MAX / flows.max(1)) as usize
}

/// Deals the flows out in turn, so that of a step with both directions each thread has some of each.
fn on_threads(
    shared: &Shared<'_>,
    halves: Vec<Half>,
    threads: usize,
) -> Result<(Vec<Half>, u64), WorkloadError> {
    let mut hands: Vec<Vec<Half>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, half) in halves.into_iter().enumerate() {
        hands[index % threads].push(half);
    }
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        for (index, hand) in hands.into_iter().enumerate() {
            let thread = std::thread::Builder::new()
                .name(format!("weir-data-{index}"))
                .spawn_scoped(scope, move || data_thread(shared, hand));
            match thread {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    shared.control.abort();
                    return Err(WorkloadError::retry(format!("a data thread could not be started: {error}")));
                }
            }
        }
        let (mut halves, mut cpu_ns) = (Vec::new(), 0);
        let mut broken = None;
        for thread in running {
            match thread.join() {
                Ok(Ok((hand, cpu))) => {
                    halves.extend(hand);
                    cpu_ns += cpu;
                }
                Ok(Err(error)) => broken = Some(format!("a data thread failed: {error}")),
                Err(_) => broken = Some("a data thread panicked: this is a bug of weir".to_owned()),
            }
        }
        broken.map_or(Ok((halves, cpu_ns)), |text| Err(WorkloadError::retry(text)))
    })
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

fn data_thread(shared: &Shared<'_>, mut halves: Vec<Half>) -> io::Result<(Vec<Half>, u64)> {
    let mut block = payload(shared.block_bytes);
    let start = Instant::from_ns(shared.schedule.start_ns);
    let cpu_before = clock::thread_cpu_time();
    if !wait_for_start(shared.control, start) {
        return Ok((halves, 0));
    }
    let now = now_ns();
    for half in &mut halves {
        if let Half::Send(sender) = half {
            sender.on_start(&shared.schedule, now);
        }
    }
    match halves.as_mut_slice() {
        [one] => run_one(shared, one, &mut block)?,
        many => run_many(shared, many, &mut block)?,
    }
    let cpu = clock::thread_cpu_time().saturating_sub(cpu_before);
    Ok((halves, nanoseconds(cpu)))
}

/// Sleeps until the start; false when the load was called off before.
pub(crate) fn wait_for_start(control: &Control, start: Instant) -> bool {
    loop {
        if control.aborted() {
            return false;
        }
        let now = clock::monotonic();
        if now >= start || control.stopping() {
            control.begin(now);
            return true;
        }
        clock::sleep_until(start.min(now + LOOK));
    }
}

/// Bytes that do not compress, the same in every run (xorshift64*, Vigna 2016).
fn payload(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; bytes];
    for chunk in block.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        chunk.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()[..chunk.len()]);
    }
    block
}

impl Shared<'_> {
    /// When sending ends: as planned, or now if a stop was ordered.
    fn end_ns(&self, before: u64) -> u64 {
        if before == self.schedule.end_ns && self.control.stopping() {
            return now_ns().min(before);
        }
        before
    }

    fn report(&self, receiver: &mut Receiver, turn: Turn) {
        if turn != Turn::Moved || receiver.unreported() >= REPORT_BYTES {
            self.control.advance(receiver.take_unreported());
        }
    }

    fn turn(&self, half: &mut Half, block: &mut [u8], end_ns: u64) -> Turn {
        match half {
            Half::Send(sender) => sender.turn(&self.schedule, block, now_ns, end_ns),
            Half::Receive(receiver) => {
                let turn = receiver.turn(&self.schedule, block, now_ns);
                self.report(receiver, turn);
                let limit = end_ns.saturating_add(nanoseconds(self.schedule.patience.drain));
                if receiver.last_ns > limit && !receiver.done {
                    receiver.on_overdue(&self.schedule, receiver.last_ns);
                }
                turn
            }
        }
    }
}

/// One flow on its own thread: the calls block, which costs one system call a block.
fn run_one(shared: &Shared<'_>, half: &mut Half, block: &mut [u8]) -> io::Result<()> {
    let limit = shared.interval.clamp(LOOK_MIN, LOOK);
    let stream = match half {
        Half::Send(sender) => &sender.stream,
        Half::Receive(receiver) => &receiver.stream,
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let schedule = &shared.schedule;
    let mut end_ns = schedule.end_ns;
    while !half.done() && !shared.control.aborted() {
        end_ns = shared.end_ns(end_ns);
        if let Half::Receive(receiver) = half {
            let edge = schedule.next_edge_ns(receiver.looked_ns);
            // Looking at the clock again is needed only where a blocking call could sleep through an edge.
            if edge.saturating_sub(receiver.looked_ns) < EDGE_NEAR_NS {
                let now = now_ns();
                let wait = Duration::from_nanos(edge.saturating_sub(now));
                if now < edge && !poll::wait(receiver.stream.as_fd(), Interest::Readable, wait)? {
                    receiver.on_idle(schedule, now_ns(), end_ns);
                    continue;
                }
            }
        }
        if shared.turn(half, block, end_ns) == Turn::Blocked {
            half.on_idle(schedule, now_ns(), end_ns);
        }
    }
    Ok(())
}

/// Several flows on one thread.
fn run_many(shared: &Shared<'_>, halves: &mut [Half], block: &mut [u8]) -> io::Result<()> {
    let schedule = &shared.schedule;
    let mut epoll = Epoll::new(halves.len())?;
    let mut ready = Vec::with_capacity(halves.len());
    for (index, half) in halves.iter().enumerate() {
        socket::set_nonblocking(half.socket(), true)?;
        match half {
            Half::Send(_) => epoll.add_writable(half.socket(), index as u64)?,
            Half::Receive(_) => epoll.add(half.socket(), index as u64)?,
        }
    }
    let turns = (TURN_BYTES / block.len()).max(1);
    let mut end_ns = schedule.end_ns;
    let mut open = halves.len();
    let mut due_ns = 0;
    while open > 0 && !shared.control.aborted() {
        end_ns = shared.end_ns(end_ns);
        let now = now_ns();
        if now >= due_ns || now >= end_ns {
            due_ns = now + nanoseconds(LOOK);
            for (index, half) in halves.iter_mut().enumerate() {
                if half.done() {
                    continue;
                }
                let was_draining = half.draining();
                half.on_idle(schedule, now, end_ns);
                due_ns = due_ns.min(half.due_ns(schedule, now).max(now + 1));
                open -= settle(&epoll, half, index, was_draining)?;
            }
        }
        let wait = Duration::from_nanos(due_ns.saturating_sub(now));
        ready.clear();
        ready.extend_from_slice(epoll.wait(Some(wait))?);
        for token in &ready {
            let index = *token as usize;
            let half = &mut halves[index];
            let was_draining = half.draining();
            for _ in 0..turns {
                if shared.turn(half, block, end_ns) != Turn::Moved {
                    break;
                }
            }
            open -= settle(&epoll, half, index, was_draining)?;
        }
    }
    Ok(())
}

/// Keeps what is waited for in step with the flow's phase; returns 1 when the flow has just left.
fn settle(epoll: &Epoll, half: &Half, index: usize, was_draining: bool) -> io::Result<usize> {
    if half.done() {
        // A flow that is done is taken out once: it gets no more turns.
        epoll.remove(half.socket())?;
        return Ok(1);
    }
    if half.draining() && !was_draining {
        epoll.watch_readable(half.socket(), index as u64)?;
    }
    Ok(0)
}
