//! The threads that move bytes. A thread with one flow blocks in send or receive; one with several (or with a flow whose
//! program has a clock of its own) waits for all of them at once and gives each a bounded turn. Samples are taken by the
//! thread that moves the bytes, between two blocks: no other thread disturbs it, and nothing is allocated once the load has
//! begun.

use super::clock::{Ending, Patience, Schedule};
use super::cpu::ThreadCpu;
use super::outcome;
use super::pace::Pace;
use super::plan::{StreamPlan, Until};
use super::receive::{Receiver, Turn};
use super::send::Sender;
use crate::rendezvous::{self, Flow};
use crate::watch::tape::{self, ReceiverTape, SenderTape};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_core::Instant;
use weir_core::scenario::plan::ramp_length;
use weir_core::time::nanoseconds;
use weir_seams::workload::{Control, Outcome, WorkloadError};
use weir_sys::clock::{self, WaitWatch};
use weir_sys::epoll::Epoll;
use weir_sys::poll::{self, Interest};
use weir_sys::socket;
use weir_transport::tcp_options::TcpOptions;

/// Longest a thread waits before it looks at its orders.
const LOOK: Duration = Duration::from_millis(50);
/// Shortest time-out of a blocking call: below, the kernel's own tick is coarser.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// A blocking receive may come back so much late; closer to an edge than this a thread waits with a finer clock.
const EDGE_NEAR_NS: u64 = 70_000_000;
/// How long before the start a thread is awake: a timer of a busy machine may be so late.
const EARLY: Duration = Duration::from_micros(500);
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
    pub ending: Ending,
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
    /// Ends it as it is.
    fn cut(&mut self, schedule: &Schedule, now_ns: u64) {
        match self {
            Half::Send(sender) => sender.cut(now_ns),
            Half::Receive(receiver) => receiver.cut(schedule, now_ns),
        }
    }
    fn done(&self) -> bool {
        match self {
            Half::Send(sender) => sender.done(),
            Half::Receive(receiver) => receiver.done,
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
        let own = match self {
            Half::Send(sender) if !sender.draining() => sender.sample_at_latest_ns(),
            _ => u64::MAX,
        };
        edge.min(own).min(self.waits_until_ns().unwrap_or(u64::MAX))
    }
    /// When its program moves bytes again, if it waits for its own clock.
    fn waits_until_ns(&self) -> Option<u64> {
        match self {
            Half::Send(sender) => sender.waits_until_ns(),
            Half::Receive(receiver) => receiver.waits_until_ns(),
        }
    }
    /// The last time at which the clock was read for it.
    fn seen_ns(&self) -> u64 {
        match self {
            Half::Send(sender) => sender.seen_ns(),
            Half::Receive(receiver) => receiver.looked_ns.max(receiver.last_ns),
        }
    }
    /// What its thread waits for on its connection.
    fn watched(&self) -> Watched {
        match self {
            _ if self.done() => Watched::Left,
            _ if self.waits_until_ns().is_some() => Watched::Nothing,
            Half::Send(sender) if !sender.draining() => Watched::Writable,
            _ => Watched::Readable,
        }
    }
    /// Whether it moves or is looked at by a clock finer than a blocking call's.
    fn timed(&self) -> bool {
        match self {
            Half::Send(sender) => {
                sender.source.is_some() || sender.waits_until_ns().is_some() || sender.tape.is_some()
            }
            Half::Receive(receiver) => receiver.reader.is_some(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// Its program waits for its own clock.
    Nothing,
    Readable,
    Writable,
    /// It is done and gets no more turns.
    Left,
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
    run_with(load, flows, control, false)
}

/// Likewise; `watched` flows hand every sample on as they go and keep a coarse series beside.
pub fn run_with(
    load: &Load,
    flows: Vec<Flow>,
    control: &Control,
    watched: bool,
) -> Result<Outcome, WorkloadError> {
    let plan = &load.plan;
    if plan.tcp.is_mixed() {
        for Flow { spec, stream } in &flows {
            // Where a name is for the privileged alone, an ad-hoc end has said so when the flow was made; elsewhere `granted` does.
            let own = TcpOptions { or_as_allowed: true, ..plan.tcp.of_stream(plan.stream_of(spec)) };
            own.apply_congestion(stream.as_fd())
                .map_err(|error| WorkloadError::new(format!("{}: {error}", spec.entity)))?;
        }
    }
    let granted = rendezvous::granted_each(&flows, |spec| plan.tcp.of_stream(plan.stream_of(spec)));
    let interval = plan.series_interval(load.flow_total.max(flows.len() as u64));
    let (duration, bytes) = match plan.until {
        Until::Duration(duration) => (Some(duration), None),
        Until::Bytes(bytes) => (None, Some(bytes)),
    };
    let start_ns = control.start_at().as_ns();
    let schedule = Schedule {
        ending: load.ending,
        ..Schedule::new(start_ns, plan.steady_after(), duration, load.patience)
    };
    let most = if watched { tape::COARSE_SAMPLES_MAX } else { usize::MAX };
    let capacity = capacity(duration, interval, flows.len() as u64).min(most);
    let interval_ns = nanoseconds(interval);
    let pace = |rate: Option<u64>, begin_ns: u64| {
        rate.map(|rate| Pace::new(begin_ns, schedule.warm_ns, rate, plan.block_bytes))
    };
    let halves: Vec<Half> = flows
        .into_iter()
        .map(|Flow { spec, stream }| {
            let later = nanoseconds(ramp_length(plan.ramp, plan.stream_of(&spec) + 1));
            let begin_ns = schedule.start_ns.saturating_add(later);
            if spec.sends {
                let source = pace(plan.source_bits_per_second, begin_ns);
                let mut sender = Sender::new(spec, stream, &schedule, bytes, source, capacity, interval_ns);
                sender.begin_at(begin_ns);
                if watched {
                    let tape = SenderTape::new(&sender.spec.entity, control);
                    sender.watch(capacity, schedule.start_ns, interval_ns, tape);
                }
                Half::Send(Box::new(sender))
            } else {
                let reader = pace(plan.read_bits_per_second, begin_ns);
                let mut receiver = Receiver::new(spec, stream, &schedule, reader, capacity, interval_ns);
                receiver.begin_at(begin_ns);
                receiver.hold_window(plan.tcp.window);
                receiver.discard_payload(plan.discard);
                if watched {
                    let tape = ReceiverTape::new(&receiver.spec.entity, control, &schedule);
                    receiver.watch(capacity, schedule.start_ns, interval_ns, tape);
                }
                Half::Receive(Box::new(receiver))
            }
        })
        .collect();
    let shared = Shared { schedule, control, block_bytes: plan.block_bytes as usize, interval };
    let threads = thread_count(plan.threads, halves.len());
    let (halves, cpu) = on_threads(&shared, halves, threads)?;
    if control.aborted() {
        for half in &halves {
            // The peer must not wait for what will not come.
            let _ = socket::reset_on_close(half.socket());
        }
        return Err(WorkloadError::new("the load was aborted"));
    }
    // What was stopped has measured until then: it has no planned end any more.
    let end_ns = if watched && control.stopping() { u64::MAX } else { schedule.end_ns };
    let schedule = Schedule { end_ns, ..schedule };
    Ok(outcome::assemble(load, &schedule, interval, granted, halves, &cpu))
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
) -> Result<(Vec<Half>, Vec<ThreadCpu>), WorkloadError> {
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
                    return Err(WorkloadError::new(format!("a data thread could not be started: {error}")));
                }
            }
        }
        let (mut halves, mut cpus) = (Vec::new(), Vec::with_capacity(threads));
        let mut broken = None;
        for thread in running {
            match thread.join() {
                Ok(Ok((hand, cpu))) => {
                    halves.extend(hand);
                    cpus.push(cpu);
                }
                Ok(Err(error)) => broken = Some(format!("a data thread failed: {error}")),
                Err(_) => broken = Some("a data thread panicked: this is a bug of weir".to_owned()),
            }
        }
        broken.map_or(Ok((halves, cpus)), |text| Err(WorkloadError::new(text)))
    })
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

fn data_thread(shared: &Shared<'_>, mut halves: Vec<Half>) -> io::Result<(Vec<Half>, ThreadCpu)> {
    let mut block = payload(shared.block_bytes);
    let has = |of: fn(&Half) -> bool| halves.iter().any(of);
    let mut cpu = ThreadCpu::of(
        has(|half| matches!(half, Half::Send(_))),
        has(|half| matches!(half, Half::Receive(_))),
    );
    clock::set_timer_slack_least();
    // Everything that can be done before the start is, so that the first byte leaves at it.
    let start = Instant::from_ns(shared.schedule.start_ns);
    let (before, watch);
    if matches!(halves.as_slice(), [one] if !one.timed()) {
        prepare_one(shared, &halves[0])?;
        if !wait_for_start(shared.control, start) {
            return Ok((halves, cpu));
        }
        watch = WaitWatch::begin();
        before = clock::thread_cpu_time();
        run_one(shared, &mut halves[0], &mut block, &mut cpu)?;
    } else {
        let mut many = Many::new(shared, &mut halves)?;
        if !wait_for_start(shared.control, start) {
            return Ok((halves, cpu));
        }
        watch = WaitWatch::begin();
        before = clock::thread_cpu_time();
        many.run(&mut block, &mut cpu)?;
    }
    let now = now_ns();
    // Only what was cut is not done.
    halves.iter_mut().filter(|half| !half.done()).for_each(|half| half.cut(&shared.schedule, now));
    for half in &mut halves {
        if let Half::Receive(receiver) = half {
            shared.control.advance(receiver.take_unreported());
        }
    }
    cpu.end(&shared.schedule, before, now);
    shared.control.waited(watch.end());
    Ok((halves, cpu))
}

/// Returns at the start; false when the load was called off before. The last moments are spent awake, but any thread that
/// has something to do is let before: with more hosts than cores all of them are at the line when the instant comes.
pub(crate) fn wait_for_start(control: &Control, start: Instant) -> bool {
    loop {
        if control.is_cut() {
            return false;
        }
        let now = clock::monotonic();
        if now >= start || control.stopping() {
            control.begin(now);
            return true;
        }
        if start.since(now) <= EARLY {
            std::thread::yield_now();
        } else {
            clock::sleep_until(Instant::from_ns(start.as_ns() - nanoseconds(EARLY)).min(now + LOOK));
        }
    }
}

/// Bytes that do not compress, the same in every run (xorshift64*, Vigna 2016).
pub(crate) fn payload(bytes: usize) -> Vec<u8> {
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
        if !matches!(turn, Turn::Moved | Turn::Waiting) || receiver.unreported() >= REPORT_BYTES {
            self.control.advance(receiver.take_unreported());
        }
    }

    fn turn(&self, half: &mut Half, block: &mut [u8], end_ns: u64) -> Turn {
        match half {
            Half::Send(sender) => sender.turn(&self.schedule, block, now_ns, end_ns),
            Half::Receive(receiver) => {
                let turn = receiver.turn(&self.schedule, block, now_ns);
                if self.schedule.ending == Ending::Cut && receiver.last_ns >= end_ns && !receiver.done {
                    receiver.on_idle(&self.schedule, receiver.last_ns, end_ns);
                }
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

/// One flow on its own thread blocks in its calls, which costs one system call a block.
fn prepare_one(shared: &Shared<'_>, half: &Half) -> io::Result<()> {
    let limit = shared.interval.clamp(LOOK_MIN, LOOK);
    let stream = match half {
        Half::Send(sender) => &sender.stream,
        Half::Receive(receiver) => &receiver.stream,
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))
}

fn run_one(shared: &Shared<'_>, half: &mut Half, block: &mut [u8], cpu: &mut ThreadCpu) -> io::Result<()> {
    let schedule = &shared.schedule;
    if let Half::Send(sender) = half {
        sender.on_start(schedule, now_ns());
    }
    let mut end_ns = schedule.end_ns;
    let mut edge_ns = 0;
    let mut first = true;
    while !half.done() && !shared.control.is_cut() {
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
        let mut seen_ns = half.seen_ns();
        if shared.turn(half, block, end_ns) == Turn::Blocked {
            seen_ns = now_ns();
            half.on_idle(schedule, seen_ns, end_ns);
        }
        if seen_ns >= edge_ns {
            cpu.look(schedule, seen_ns);
            edge_ns = schedule.next_edge_ns(seen_ns);
        }
        if std::mem::take(&mut first) {
            // Hosts that share this core begin too before anyone goes on.
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Several flows on one thread.
struct Many<'a, 'b> {
    shared: &'a Shared<'b>,
    halves: &'a mut [Half],
    epoll: Epoll,
    watched: Vec<Watched>,
    /// When all must be looked at: an edge of the steady state, a sample, a program's tick, or the orders.
    due_ns: u64,
    end_ns: u64,
    open: usize,
    /// Turns a flow gets in a row.
    turns: usize,
}

impl<'a, 'b> Many<'a, 'b> {
    fn new(shared: &'a Shared<'b>, halves: &'a mut [Half]) -> io::Result<Self> {
        let epoll = Epoll::new(halves.len())?;
        for half in halves.iter() {
            socket::set_nonblocking(half.socket(), true)?;
        }
        let watched = vec![Watched::Nothing; halves.len()];
        let turns = (TURN_BYTES / shared.block_bytes.max(1)).max(1);
        let (end_ns, open) = (shared.schedule.end_ns, halves.len());
        let mut many = Many { shared, halves, epoll, watched, due_ns: 0, end_ns, open, turns };
        for index in 0..many.open {
            many.watch(index)?;
        }
        Ok(many)
    }

    fn run(&mut self, block: &mut [u8], cpu: &mut ThreadCpu) -> io::Result<()> {
        let now = now_ns();
        for half in self.halves.iter_mut() {
            if let Half::Send(sender) = half {
                sender.on_start(&self.shared.schedule, now);
            }
        }
        let mut ready = Vec::with_capacity(self.halves.len());
        let mut first = true;
        while self.open > 0 && !self.shared.control.is_cut() {
            let before = self.end_ns;
            self.end_ns = self.shared.end_ns(before);
            let now = now_ns();
            if now >= self.due_ns || self.end_ns != before {
                self.sweep(now, block, cpu)?;
            }
            let wait = Duration::from_nanos(self.due_ns.saturating_sub(now));
            ready.clear();
            ready.extend_from_slice(self.epoll.wait(Some(wait))?);
            for token in &ready {
                let seen_ns = self.serve(*token as usize, block)?;
                // An edge does not wait for the rest of a round, which takes long with a thousand flows: all flows of a
                // thread pass it together, within one turn of it.
                if seen_ns >= self.due_ns {
                    self.sweep(seen_ns, block, cpu)?;
                }
            }
            if std::mem::take(&mut first) {
                // Hosts that share this core begin too before anyone goes on.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Looks at every flow: edges, samples, programs whose tick has come, peers that are dead.
    fn sweep(&mut self, now: u64, block: &mut [u8], cpu: &mut ThreadCpu) -> io::Result<()> {
        let schedule = &self.shared.schedule;
        cpu.look(schedule, now);
        // Receivers first: theirs are the figures of record, and their look costs no system call.
        for half in self.halves.iter_mut() {
            if let Half::Receive(receiver) = half
                && !receiver.done
            {
                receiver.look(schedule, now);
            }
        }
        self.due_ns = now + nanoseconds(LOOK);
        for index in 0..self.halves.len() {
            if self.watched[index] == Watched::Left {
                continue;
            }
            self.halves[index].on_idle(schedule, now, self.end_ns);
            if self.halves[index].waits_until_ns().is_some_and(|due| due <= now) {
                self.serve(index, block)?;
            } else {
                self.watch(index)?;
            }
            if !self.halves[index].done() {
                self.due_ns = self.due_ns.min(self.halves[index].due_ns(schedule, now).max(now + 1));
            }
        }
        Ok(())
    }

    /// Gives one flow its turns. Returns when the clock was read last.
    fn serve(&mut self, index: usize, block: &mut [u8]) -> io::Result<u64> {
        for _ in 0..self.turns {
            // It may have left in a look at all flows since it was ready.
            if self.halves[index].done()
                || self.shared.turn(&mut self.halves[index], block, self.end_ns) != Turn::Moved
            {
                break;
            }
        }
        self.watch(index)?;
        if let Some(due_ns) = self.halves[index].waits_until_ns() {
            self.due_ns = self.due_ns.min(due_ns);
        }
        Ok(self.halves[index].seen_ns())
    }

    /// Keeps what is waited for in step with the flow's phase. A flow that waits for its own clock is taken out: its connection
    /// is ready all the time.
    fn watch(&mut self, index: usize) -> io::Result<()> {
        let half = &self.halves[index];
        let (before, wanted) = (self.watched[index], half.watched());
        if before == wanted {
            return Ok(());
        }
        let token = index as u64;
        match (before, wanted) {
            // No flow goes on after it has left, and none sends again after its drain has begun.
            (Watched::Left, _) | (Watched::Readable, Watched::Writable) => return Ok(()),
            (Watched::Nothing, Watched::Readable) => self.epoll.add(half.socket(), token)?,
            (Watched::Nothing, Watched::Writable) => self.epoll.add_writable(half.socket(), token)?,
            (Watched::Writable, Watched::Readable) => self.epoll.watch_readable(half.socket(), token)?,
            (Watched::Readable | Watched::Writable, _) => self.epoll.remove(half.socket())?,
            (Watched::Nothing, _) => {}
        }
        if wanted == Watched::Left {
            self.open -= 1;
        }
        self.watched[index] = wanted;
        Ok(())
    }
}
