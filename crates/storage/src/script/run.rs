//! One thread of a scripted load: its session, and what each of its jobs does next.

use super::barrier::{self, Barrier};
use super::job::{Begun, File, FileFigures, Job, JobOutcome, LATE, Waits, cause_of};
use super::{Act, Manner, Piece, Script, ScriptPlan, Section};
use crate::content::{Content, DIFFERS};
use crate::flight::Flights;
use crate::job::Done;
use crate::metrics;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Duration;
use weir_core::chunk::{FieldSet, gauge};
use weir_core::failure::{Failure, Failures};
use weir_core::times::Times;
use weir_seams::chunks::Tape;
use weir_seams::target::{
    self, Answer, Buffer, Completion, Mode, Operation, Request, Session, SessionSettings, TargetError,
};
use weir_seams::workload::Control;
use weir_sys::clock::{self, ThreadMark};

/// The longest that a thread waits before it looks at its orders again.
const LOOK: Duration = Duration::from_millis(20);
/// Requests that are handed on at once, so that the first of many does not wait for the last to be made, and what becomes due
/// meanwhile not for all of them.
const BATCH: usize = 16;
/// How long a thread is awake before a time that a trace says.
const AWAKE_NS: u64 = 150_000;
/// A thread that keeps a core busy looks at its orders this often.
const BURN_LOOK: Duration = Duration::from_millis(2);
/// Looked for operations that take too long.
const OVERDUE_EVERY_NS: u64 = 250_000_000;

/// Key of the flag that has each operation recorded.
pub const RECORDED: &str = "operations";

/// Operations of which times are kept apart, as records name them, and their metrics.
pub const KINDS: [(&str, &str); 8] = [
    ("open", metrics::OPEN),
    ("read", metrics::READ),
    ("write", metrics::WRITE),
    ("sync", metrics::SYNC),
    ("close", metrics::CLOSE),
    ("stat", metrics::STAT),
    ("list", metrics::LIST),
    ("remove", metrics::REMOVE),
];

/// One operation, at the time at which it was issued.
pub static OPERATIONS: FieldSet = FieldSet {
    name: "io-operation/1",
    about: "one operation of a job: how long after its time it was issued, and from then until its first byte and until it was done",
    shown: Some("done_after_ns"),
    fields: &[
        gauge("job_number"),
        gauge("file_number"),
        gauge("operation_number"),
        gauge("offset_bytes"),
        gauge("length_bytes"),
        gauge("late_ns"),
        gauge("first_byte_after_ns"),
        gauge("done_after_ns"),
        gauge("failed_flag"),
    ],
};

/// Why a job does not go on.
enum Halt {
    /// It waits for a completion, or is through.
    Completion,
    Until(u64),
    Barrier,
}

/// A buffer, and what it holds.
struct Held {
    buffer: Buffer,
    holds: Option<(Content, u64, u64)>,
}

#[derive(Clone, Copy)]
struct Flight {
    job: usize,
    act: Act,
    /// That a read or write is to move, in one place or several.
    asked_bytes: u64,
    issued_ns: u64,
    /// After its time, where it has one.
    late_ns: u64,
}

/// What one thread came to.
pub struct ScriptOutcome {
    pub jobs: Vec<JobOutcome>,
    pub lateness: Option<Times>,
    /// By `KINDS`.
    pub times: Vec<Times>,
    pub failures: Failures,
    pub ended_ns: u64,
    pub cpu: Duration,
    pub ran_and_waited: Option<(f64, f64)>,
}

pub struct ScriptLane {
    plan: ScriptPlan,
    manner: Manner,
    session: Box<dyn Session>,
    jobs: Vec<Job>,
    /// Jobs that may have something to do.
    ready: VecDeque<usize>,
    /// Jobs that wait for their time.
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    /// Of buffers that are made.
    buffer_bytes: usize,
    pieces: Vec<target::Piece>,
    /// Of one place of several.
    piece_bytes_max: u64,
    flights: Flights<Flight>,
    held: Vec<Held>,
    batch: Vec<Request>,
    done: Vec<Completion>,
    times: Vec<Times>,
    lateness: Option<Times>,
    /// Where each operation is recorded, as it is done.
    tape: Option<Tape>,
    failures: Failures,
    keeps_content: bool,
}

impl ScriptLane {
    /// Connects. Errors: no session.
    pub fn prepare(
        plan: &ScriptPlan,
        manner: Manner,
        scripts: Vec<(u32, Script)>,
    ) -> Result<ScriptLane, TargetError> {
        let depth = plan.depth as usize * scripts.len().max(1);
        let settings = SessionSettings { depth, timeout: plan.timeout.max(manner.open_timeout) };
        let session = plan.target.build.session(&plan.url, &plan.options, settings)?;
        let job = |(number, script): (u32, Script)| {
            let file = |file: super::ScriptFile| {
                let content = Content::of(&plan.url.below(&file.path));
                File { path: file.path, content, id: None, figures: FileFigures::default() }
            };
            Job {
                number,
                files: script.files.into_iter().map(file).collect(),
                acts: script.acts.peekable(),
                under_way: 0,
                waits: Waits::Nothing,
                go_ns: 0,
                zero_ns: 0,
                free_ns: 0,
                wakes_ns: 0,
                intended_ns: None,
                begun: None,
                rounds: Vec::new(),
                done: Done::default(),
                sections: Vec::new(),
                drawn: script.drawn,
                own: script.own,
            }
        };
        let in_words = |error: io::Error| TargetError::new(error.to_string());
        let times: io::Result<Vec<Times>> = KINDS.iter().map(|_| Times::new()).collect();
        let lateness = manner.lateness.map(|_| Times::new()).transpose().map_err(in_words)?;
        let buffer_bytes = scripts.iter().map(|(_, script)| script.largest_bytes as usize).max().unwrap_or(0);
        let reads_pieces = plan.target.build.offers().reads_pieces;
        // What a target does not read at once is asked for piece by piece.
        let vector = reads_pieces.map_or(1, |most| manner.vector.min(most.count));
        let jobs: Vec<Job> = scripts.into_iter().map(job).collect();
        Ok(ScriptLane {
            ready: (0..jobs.len()).collect(),
            wakes: BinaryHeap::with_capacity(jobs.len()),
            jobs,
            manner: Manner { vector, ..manner },
            buffer_bytes,
            pieces: Vec::with_capacity(vector as usize),
            piece_bytes_max: reads_pieces.map_or(0, |most| u64::from(most.bytes)),
            session,
            flights: Flights::default(),
            held: Vec::new(),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            times: times.map_err(in_words)?,
            lateness,
            tape: None,
            failures: Failures::default(),
            keeps_content: plan.target.build.offers().keeps_content,
            plan: plan.clone(),
        })
    }

    /// Carries out the acts of its jobs, from the start that `control` says.
    pub fn run(mut self, control: &Control, barrier: &Barrier) -> io::Result<ScriptOutcome> {
        let start = control.start_at();
        clock::set_timer_slack_least();
        clock::sleep_until(start);
        let began = clock::monotonic();
        control.begin(began);
        if self.plan.values.flag(RECORDED) == Some(true) {
            let entity = format!("jobs-{}", self.jobs.first().map_or(0, |job| job.number));
            self.tape = control.chunks().map(|queue| Tape::new(&entity, &OPERATIONS, queue));
        }
        self.jobs.iter_mut().for_each(|job| (job.go_ns, job.free_ns) = (began.as_ns(), began.as_ns()));
        let (mark, cpu_before) = (ThreadMark::at(began.as_ns()), clock::thread_cpu_time());
        let mut overdue_at_ns = began.as_ns();
        loop {
            if control.is_cut() || control.stopping() {
                break;
            }
            let now_ns = clock::monotonic().as_ns();
            let wait = self.issue(now_ns, barrier, control);
            self.session.submit(&mut self.batch);
            if self.flights.count() == 0 && self.jobs.iter_mut().all(Job::is_through) {
                break;
            }
            self.session.reap(&mut self.done, wait)?;
            let mut done = std::mem::take(&mut self.done);
            for completion in done.drain(..) {
                self.complete(completion, control);
            }
            self.done = done;
            let now_ns = clock::monotonic().as_ns();
            if now_ns >= overdue_at_ns + OVERDUE_EVERY_NS {
                overdue_at_ns = now_ns;
                self.give_up_overdue(now_ns);
            }
        }
        let now = clock::monotonic();
        if let Some(tape) = self.tape {
            tape.finish();
        }
        Ok(ScriptOutcome {
            jobs: self.jobs.into_iter().map(Job::outcome).collect(),
            lateness: self.lateness,
            times: self.times,
            failures: self.failures,
            ended_ns: now.as_ns(),
            cpu: clock::thread_cpu_time().saturating_sub(cpu_before),
            ran_and_waited: ThreadMark::at(now.as_ns()).shares_since(&mark),
        })
    }

    /// Lets every job go on as far as it can; says for how long there is nothing to do but to wait for completions.
    fn issue(&mut self, now_ns: u64, barrier: &Barrier, control: &Control) -> Duration {
        let mut wait = LOOK;
        while let Some(Reverse((_, job))) =
            self.wakes.peek().copied().filter(|Reverse((ns, _))| *ns <= now_ns)
        {
            self.wakes.pop();
            self.ready.push_back(job);
        }
        for _ in 0..self.ready.len() {
            let Some(job) = self.ready.pop_front() else { break };
            match self.go_on(job, barrier, control) {
                // A completion makes it ready again.
                Halt::Completion => {}
                // A completion may have been looked at meanwhile: one wake of a kind is enough.
                Halt::Until(ns) if self.jobs[job].wakes_ns == ns => {}
                Halt::Until(ns) => {
                    self.jobs[job].wakes_ns = ns;
                    self.wakes.push(Reverse((ns, job)));
                }
                Halt::Barrier => {
                    wait = wait.min(barrier::LOOK);
                    self.ready.push_back(job);
                }
            }
            if self.batch.len() >= BATCH {
                return Duration::ZERO;
            }
        }
        if let Some(Reverse((ns, _))) = self.wakes.peek() {
            let now_ns = clock::monotonic().as_ns();
            // Of a load with times of its own the last stretch is waited awake: waking a processor takes as long.
            let awake_ns = if self.manner.period.is_some() { AWAKE_NS } else { 0 };
            wait = wait.min(Duration::from_nanos(ns.saturating_sub(now_ns + awake_ns)));
        }
        wait
    }

    fn go_on(&mut self, number: usize, barrier: &Barrier, control: &Control) -> Halt {
        let mut now_ns = clock::monotonic().as_ns();
        loop {
            let job = &mut self.jobs[number];
            match job.waits {
                Waits::Nothing => {}
                Waits::Until(until_ns) if now_ns < until_ns => return Halt::Until(until_ns),
                Waits::Until(until_ns) => {
                    (job.waits, job.free_ns) = (Waits::Nothing, until_ns);
                    job.intended_ns = Some(until_ns);
                }
                Waits::Barrier(at) => match barrier.gone_ns(at) {
                    None => return Halt::Barrier,
                    Some(go_ns) => {
                        job.go_ns = go_ns;
                        job.waits = Waits::Until(go_ns);
                        continue;
                    }
                },
            }
            let Some(act) = job.acts.peek().copied() else { return Halt::Completion };
            let moves = matches!(act, Act::Read(_) | Act::Write(_));
            let has_room = moves && job.under_way < self.plan.depth;
            if job.under_way > 0 && !has_room && !matches!(act, Act::At(_)) {
                return Halt::Completion;
            }
            job.acts.next();
            match act {
                Act::Wait(time) => {
                    job.thinks(time);
                    job.waits = Waits::Until(job.free_ns.saturating_add(time.as_nanos() as u64));
                }
                Act::Zero => job.zero_ns = now_ns,
                Act::At(time) => {
                    job.waits = Waits::Until(job.zero_ns.saturating_add(time.as_nanos() as u64));
                }
                Act::Burn(time) => {
                    job.thinks(time);
                    burn(time, control);
                    now_ns = clock::monotonic().as_ns();
                    self.jobs[number].free_ns = now_ns;
                }
                Act::Wants(bytes) => {
                    if let Some(begun) = &mut job.begun {
                        begun.wanted_bytes = Some(begun.wanted_bytes.unwrap_or(0) + u64::from(bytes));
                    }
                }
                Act::Barrier => job.waits = Waits::Barrier(barrier.arrive()),
                Act::Begin(kind) => {
                    now_ns = clock::monotonic().as_ns();
                    job.begun = Some(Begun {
                        kind,
                        begin_ns: now_ns,
                        bytes: 0,
                        wanted_bytes: None,
                        reads: 0,
                        thought_ns: 0,
                        failed: 0,
                        cause: None,
                    });
                }
                Act::End => self.end_section(number, now_ns),
                Act::Fill(piece) => {
                    let held = self.filled(number, piece);
                    self.held.push(held);
                    self.jobs[number].free_ns = clock::monotonic().as_ns();
                }
                act => {
                    self.ask(number, act);
                    if !moves && self.jobs[number].under_way > 0 {
                        return Halt::Completion;
                    }
                }
            }
        }
    }

    fn end_section(&mut self, number: usize, now_ns: u64) {
        let job = &mut self.jobs[number];
        let Some(begun) = job.begun.take() else { return };
        let round = match job.rounds.iter_mut().find(|(kind, _)| *kind == begun.kind) {
            Some((_, round)) => {
                *round += 1;
                *round
            }
            None => {
                job.rounds.push((begun.kind, 0));
                0
            }
        };
        // Its last operation ended it, not the look at what came of it.
        let end_ns = if job.done.last_ns >= begun.begin_ns { job.done.last_ns } else { now_ns };
        let (number, go_ns) = (job.number, job.go_ns);
        job.sections.push(Section {
            job: number,
            kind: begun.kind.to_owned(),
            round,
            begin_ns: begun.begin_ns.saturating_sub(go_ns),
            end_ns: end_ns.saturating_sub(go_ns),
            bytes: begun.bytes,
            wanted_bytes: begun.wanted_bytes.unwrap_or(begun.bytes),
            reads: begun.reads,
            thought_ns: begun.thought_ns,
            failed: begun.failed,
            cause: begun.cause,
        });
    }

    /// A buffer with what belongs into a piece; the one that holds it already, where there is one.
    fn filled(&mut self, number: usize, piece: Piece) -> Held {
        let content = self.jobs[number].files[piece.file].content;
        let wanted = Some((content, piece.offset, piece.length_bytes));
        if let Some(at) = self.held.iter().position(|held| held.holds == wanted) {
            return self.held.swap_remove(at);
        }
        let mut held = self.empty(piece.length_bytes);
        if self.keeps_content {
            content.fill(piece.offset, &mut held.buffer);
        }
        Held { holds: wanted, ..held }
    }

    fn empty(&mut self, length_bytes: u64) -> Held {
        let length = length_bytes as usize;
        // As many buffers as there were operations at once; the one that fits best stays the one.
        let fits = |held: &Held| held.buffer.capacity() >= length;
        let at = self.held.iter().rposition(|held| fits(held) && held.holds.is_none()).or_else(|| {
            let may_take = self.held.len() > self.held_most();
            may_take.then(|| self.held.iter().position(fits)).flatten()
        });
        let mut held = match at {
            Some(at) => self.held.swap_remove(at),
            None => Held { buffer: Buffer::new(length.max(self.buffer_bytes)), holds: None },
        };
        held.buffer.resize(length);
        Held { holds: None, ..held }
    }

    /// Buffers that are kept with what they hold.
    fn held_most(&self) -> usize {
        self.jobs.len() * self.plan.depth as usize
    }

    fn ask(&mut self, number: usize, act: Act) {
        let id = |job: &Job, file: usize| job.files[file].id;
        let mut asked_bytes = 0;
        let operation = match act {
            Act::Open { file, mode } => {
                Operation::Open { path: self.jobs[number].files[file].path.clone(), mode }
            }
            Act::Stat { file } => Operation::Stat { path: self.jobs[number].files[file].path.clone() },
            Act::Remove { file } => Operation::Remove { path: self.jobs[number].files[file].path.clone() },
            Act::List => Operation::List { path: String::new() },
            Act::Write(piece) => {
                // What could not be opened is not written either: that failure is told.
                let Some(file) = id(&self.jobs[number], piece.file) else { return };
                let buffer = self.filled(number, piece).buffer;
                asked_bytes = piece.length_bytes;
                Operation::Write { file, offset: piece.offset, buffer }
            }
            Act::Read(piece) => {
                let Some(file) = id(&self.jobs[number], piece.file) else { return };
                asked_bytes = self.gather(number, piece);
                let mut buffer = self.empty(asked_bytes).buffer;
                if self.pieces.len() > 1 {
                    buffer.scatter(self.pieces.drain(..));
                    Operation::ReadPieces { file, buffer }
                } else {
                    buffer.scatter(std::iter::empty());
                    buffer.resize(asked_bytes as usize);
                    Operation::Read { file, offset: piece.offset, buffer }
                }
            }
            Act::Sync { file } => match id(&self.jobs[number], file) {
                Some(file) => Operation::Sync { file },
                None => return,
            },
            Act::Close { file } => match self.jobs[number].files[file].id.take() {
                Some(file) => Operation::Close { file },
                None => return,
            },
            _ => return,
        };
        let issued_ns = clock::monotonic().as_ns();
        let job = &mut self.jobs[number];
        let late_ns = job.intended_ns.take().map(|intended_ns| issued_ns.saturating_sub(intended_ns));
        if let (Some(lateness), Some(late_ns)) = (&mut self.lateness, late_ns) {
            lateness.record(late_ns);
        }
        if let Act::Open { file, .. } = act {
            job.files[file].figures.begin_ns = issued_ns;
        }
        job.under_way += 1;
        let tag = self.flights.add(Flight {
            job: number,
            act,
            asked_bytes,
            issued_ns,
            late_ns: late_ns.unwrap_or(0),
        });
        self.batch.push(Request { tag, operation });
    }

    /// Takes the reads of the same file that come next into `pieces` too, as many as one request may have; says how many bytes that is.
    fn gather(&mut self, number: usize, first: Piece) -> u64 {
        let place =
            |piece: Piece| target::Piece { offset: piece.offset, length_bytes: piece.length_bytes as u32 };
        self.pieces.clear();
        self.pieces.push(place(first));
        let mut asked_bytes = first.length_bytes;
        let acts = &mut self.jobs[number].acts;
        let most = self.piece_bytes_max;
        let fits = |piece: &Piece| piece.file == first.file && piece.length_bytes <= most;
        while self.pieces.len() < self.manner.vector as usize
            && fits(&first)
            && let Some(Act::Read(piece)) = acts.next_if(|act| matches!(act, Act::Read(piece) if fits(piece)))
        {
            self.pieces.push(place(piece));
            asked_bytes += piece.length_bytes;
        }
        asked_bytes
    }

    fn keep(&mut self, buffer: Option<Buffer>, holds: Option<(Content, u64, u64)>) {
        if self.held.len() <= 2 * self.held_most() {
            self.held.extend(buffer.map(|buffer| Held { buffer, holds }));
        }
    }

    fn complete(&mut self, completion: Completion, control: &Control) {
        let Some(flight) = self.flights.take(completion.tag) else { return };
        let done_ns = completion.done_ns;
        self.record(flight, completion.first_byte_ns, done_ns, completion.result.is_err());
        self.jobs[flight.job].under_way -= 1;
        self.ready.push_back(flight.job);
        let answer = match completion.result {
            Ok(answer) => answer,
            Err(error) => {
                self.keep(completion.buffer, None);
                return self.fail(flight, done_ns, error);
            }
        };
        let mut bytes = 0;
        match (flight.act, answer) {
            (Act::Open { file, .. }, Answer::Opened { file: id, .. }) => {
                self.jobs[flight.job].files[file].id = Some(id);
            }
            (Act::Write(piece) | Act::Read(piece), Answer::Moved { bytes: moved }) => {
                let content = self.jobs[flight.job].files[piece.file].content;
                let is_read = matches!(flight.act, Act::Read(_));
                let asked = flight.asked_bytes;
                let read = completion.buffer.as_ref().filter(|_| is_read && self.plan.verify);
                let pieces = completion.buffer.as_ref().map_or(&[][..], Buffer::pieces);
                let whole = pieces.is_empty().then_some((piece.offset, piece.length_bytes));
                let places = pieces.iter().map(|piece| (piece.offset, u64::from(piece.length_bytes)));
                let wrong =
                    content.wrong(moved, asked, whole.into_iter().chain(places), read.map(|it| &**it));
                let holds = (!is_read).then_some((content, piece.offset, piece.length_bytes));
                self.keep(completion.buffer, holds);
                if let Some(error) = wrong {
                    if error.code.as_deref() == Some(DIFFERS) {
                        self.jobs[flight.job].done.mismatched += 1;
                    }
                    return self.fail(flight, done_ns, error);
                }
                bytes = moved;
            }
            _ => {}
        }
        control.advance(bytes.max(1));
        let took_ns = done_ns.saturating_sub(flight.issued_ns);
        if let Some(kind) = kind_of(flight.act) {
            self.times[kind].record(took_ns);
        }
        let job = &mut self.jobs[flight.job];
        job.done.operations += 1;
        job.done.bytes += bytes;
        job.done.last_ns = job.done.last_ns.max(done_ns);
        job.free_ns = job.free_ns.max(done_ns);
        if let Some(begun) = &mut job.begun {
            begun.bytes += bytes;
            begun.reads += u64::from(matches!(flight.act, Act::Read(_)));
        }
        job.of_file(flight.act, bytes, took_ns, done_ns);
    }

    fn record(&mut self, flight: Flight, first_byte_ns: u64, done_ns: u64, has_failed: bool) {
        let (Some(tape), Some(kind)) = (&mut self.tape, kind_of(flight.act)) else { return };
        let offset = match flight.act {
            Act::Read(piece) | Act::Write(piece) => piece.offset,
            _ => 0,
        };
        let since = |ns: u64| Some(ns.saturating_sub(flight.issued_ns));
        tape.push(
            flight.issued_ns,
            &[
                Some(u64::from(self.jobs[flight.job].number)),
                Some(flight.act.file().unwrap_or(0) as u64),
                Some(kind as u64),
                Some(offset),
                Some(flight.asked_bytes),
                Some(flight.late_ns),
                since(first_byte_ns),
                since(done_ns),
                Some(u64::from(has_failed)),
            ],
        );
    }

    /// One operation failed: it is told, and the job goes on unless that ends it.
    fn fail(&mut self, flight: Flight, now_ns: u64, error: TargetError) {
        let job = &mut self.jobs[flight.job];
        job.done.failed += 1;
        job.done.last_ns = job.done.last_ns.max(now_ns);
        job.free_ns = job.free_ns.max(now_ns);
        if let Some(begun) = &mut job.begun {
            begun.failed += 1;
            begun.cause.get_or_insert(cause_of(flight.act, &error));
        }
        let file = flight.act.file();
        if let Some(file) = file.filter(|_| error.is_lost) {
            job.files[file].id = None;
        }
        if self.manner.one_failure_ends_job && !matches!(flight.act, Act::Close { .. }) {
            job.closes();
        }
        let path = file.map_or("", |file| job.files[file].path.as_str());
        self.failures.push(Failure {
            at_ns: i64::try_from(now_ns).unwrap_or(i64::MAX),
            job: format!("job-{}", job.number),
            operation: kind_of(flight.act).map_or("", |kind| KINDS[kind].0).to_owned(),
            target: self.plan.url.below(path),
            code: error.code,
            retries: error.retries,
            text: error.text,
            ..Failure::default()
        });
    }

    /// Whoever waits longer than was said has failed; its file is not used any more.
    fn give_up_overdue(&mut self, now_ns: u64) {
        let (of_opening, of_others) = (self.manner.open_timeout, self.plan.timeout);
        let longest = |act: Act| if matches!(act, Act::Open { .. }) { of_opening } else { of_others };
        let is_overdue =
            |flight: &Flight| now_ns.saturating_sub(flight.issued_ns) > longest(flight.act).as_nanos() as u64;
        for tag in self.flights.where_is(is_overdue) {
            let Some(flight) = self.flights.take(tag) else { continue };
            self.jobs[flight.job].under_way -= 1;
            self.ready.push_back(flight.job);
            self.record(flight, now_ns, now_ns, true);
            let text = format!("no answer within {:?}", longest(flight.act));
            self.fail(flight, now_ns, TargetError::coded(LATE, text).lost());
        }
    }
}

/// Keeps this thread's core busy until the thread has had so much of it.
fn burn(time: Duration, control: &Control) {
    let begin = clock::thread_cpu_time();
    let mut look = BURN_LOOK;
    loop {
        let spent = clock::thread_cpu_time().saturating_sub(begin);
        if spent >= time {
            return;
        }
        if spent >= look {
            look = spent + BURN_LOOK;
            if control.is_cut() || control.stopping() {
                return;
            }
        }
        std::hint::black_box((0..200_u64).fold(spent.as_nanos() as u64, u64::wrapping_mul));
    }
}

/// By its place in `KINDS`.
fn kind_of(act: Act) -> Option<usize> {
    let name = match act {
        Act::Open { mode: Mode::Create | Mode::Read | Mode::Update, .. } => "open",
        Act::Read(_) => "read",
        Act::Write(_) => "write",
        Act::Sync { .. } => "sync",
        Act::Close { .. } => "close",
        Act::Stat { .. } => "stat",
        Act::List => "list",
        Act::Remove { .. } => "remove",
        _ => return None,
    };
    KINDS.iter().position(|(kind, _)| *kind == name)
}
