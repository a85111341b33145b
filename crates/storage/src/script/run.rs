//! One thread of a scripted load: its session, and what each of its jobs does next.

use super::barrier::{self, Barrier};
use super::{Act, Piece, Script, ScriptPlan, Section};
use crate::content::{Content, DIFFERS};
use crate::flight::Flights;
use crate::job::Done;
use crate::metrics;
use std::collections::VecDeque;
use std::time::Duration;
use std::{io, iter};
use weir_core::failure::{Failure, Failures};
use weir_core::times::Times;
use weir_seams::target::{
    Answer, Buffer, Completion, FileId, Mode, Operation, Request, Session, SessionSettings, TargetError,
};
use weir_seams::workload::Control;
use weir_sys::clock::{self, ThreadMark};

/// The longest that a thread waits before it looks at its orders again.
const LOOK: Duration = Duration::from_millis(20);
/// Looked for operations that take too long.
const OVERDUE_EVERY_NS: u64 = 250_000_000;

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

struct File {
    path: String,
    content: Content,
    id: Option<FileId>,
}

#[derive(Clone, Copy)]
enum Waits {
    Nothing,
    Until(u64),
    /// At the barrier of that number.
    Barrier(u64),
}

/// What one job has done in a section, so far.
struct Begun {
    kind: &'static str,
    begin_ns: u64,
    bytes: u64,
    failed: u32,
}

struct Job {
    number: u32,
    files: Vec<File>,
    acts: VecDeque<Act>,
    under_way: u32,
    waits: Waits,
    /// When all were let go at the last barrier.
    go_ns: u64,
    begun: Option<Begun>,
    rounds: Vec<(&'static str, u32)>,
    done: Done,
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
    issued_ns: u64,
}

/// What one thread came to.
pub struct ScriptOutcome {
    pub jobs: Vec<(u32, Done)>,
    pub sections: Vec<Section>,
    /// By `KINDS`.
    pub times: Vec<Times>,
    pub failures: Failures,
    pub ended_ns: u64,
    pub cpu: Duration,
    pub ran_and_waited: Option<(f64, f64)>,
}

pub struct ScriptLane {
    plan: ScriptPlan,
    session: Box<dyn Session>,
    jobs: Vec<Job>,
    /// Jobs that may have something to do.
    ready: VecDeque<usize>,
    flights: Flights<Flight>,
    held: Vec<Held>,
    batch: Vec<Request>,
    done: Vec<Completion>,
    times: Vec<Times>,
    sections: Vec<Section>,
    failures: Failures,
    keeps_content: bool,
}

impl ScriptLane {
    /// Connects. Errors: no session.
    pub fn prepare(plan: &ScriptPlan, scripts: Vec<(u32, Script)>) -> Result<ScriptLane, TargetError> {
        let depth = plan.depth as usize * scripts.len().max(1);
        let settings = SessionSettings { depth, timeout: plan.timeout };
        let session = plan.target.build.session(&plan.url, &plan.options, settings)?;
        let job = |(number, script): (u32, Script)| {
            let file = |file: super::ScriptFile| {
                let content = Content::of(&plan.url.below(&file.path));
                File { path: file.path, content, id: None }
            };
            Job {
                number,
                files: script.files.into_iter().map(file).collect(),
                acts: script.acts.into(),
                under_way: 0,
                waits: Waits::Nothing,
                go_ns: 0,
                begun: None,
                rounds: Vec::new(),
                done: Done::default(),
            }
        };
        let times: io::Result<Vec<Times>> = KINDS.iter().map(|_| Times::new()).collect();
        let jobs: Vec<Job> = scripts.into_iter().map(job).collect();
        Ok(ScriptLane {
            ready: (0..jobs.len()).collect(),
            jobs,
            session,
            flights: Flights::default(),
            held: Vec::new(),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            times: times.map_err(|error| TargetError::new(error.to_string()))?,
            sections: Vec::new(),
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
        self.jobs.iter_mut().for_each(|job| job.go_ns = began.as_ns());
        let (mark, cpu_before) = (ThreadMark::at(began.as_ns()), clock::thread_cpu_time());
        let mut overdue_at_ns = began.as_ns();
        loop {
            if control.is_cut() || control.stopping() {
                break;
            }
            let now_ns = clock::monotonic().as_ns();
            let wait = self.issue(now_ns, barrier);
            self.session.submit(&mut self.batch);
            if self.flights.count() == 0 && self.jobs.iter().all(|job| job.acts.is_empty()) {
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
        Ok(ScriptOutcome {
            jobs: self.jobs.iter().map(|job| (job.number, job.done)).collect(),
            sections: self.sections,
            times: self.times,
            failures: self.failures,
            ended_ns: now.as_ns(),
            cpu: clock::thread_cpu_time().saturating_sub(cpu_before),
            ran_and_waited: ThreadMark::at(now.as_ns()).shares_since(&mark),
        })
    }

    /// Lets every job go on as far as it can; says for how long there is nothing to do but to wait for completions.
    fn issue(&mut self, now_ns: u64, barrier: &Barrier) -> Duration {
        let mut wait = LOOK;
        for _ in 0..self.ready.len() {
            let Some(job) = self.ready.pop_front() else { break };
            match self.go_on(job, now_ns, barrier) {
                // A completion makes it ready again.
                None => {}
                Some(again) => {
                    wait = wait.min(again);
                    self.ready.push_back(job);
                }
            }
        }
        wait
    }

    /// `None`: it waits for a completion, or is through; else after which time to look at it again.
    fn go_on(&mut self, number: usize, now_ns: u64, barrier: &Barrier) -> Option<Duration> {
        let mut now_ns = now_ns;
        loop {
            let job = &mut self.jobs[number];
            match job.waits {
                Waits::Nothing => {}
                Waits::Until(until_ns) if now_ns < until_ns => {
                    return Some(Duration::from_nanos(until_ns - now_ns).min(LOOK));
                }
                Waits::Until(_) => job.waits = Waits::Nothing,
                Waits::Barrier(at) => match barrier.gone_ns(at) {
                    None => return Some(barrier::LOOK),
                    Some(go_ns) => {
                        job.go_ns = go_ns;
                        job.waits = Waits::Until(go_ns);
                        continue;
                    }
                },
            }
            let act = *job.acts.front()?;
            let moves = matches!(act, Act::Read(_) | Act::Write(_));
            if job.under_way > 0 && !(moves && job.under_way < self.plan.depth) {
                return None;
            }
            job.acts.pop_front();
            match act {
                Act::Wait(time) => job.waits = Waits::Until(now_ns + time.as_nanos() as u64),
                Act::Barrier => job.waits = Waits::Barrier(barrier.arrive()),
                Act::Begin(kind) => {
                    now_ns = clock::monotonic().as_ns();
                    job.begun = Some(Begun { kind, begin_ns: now_ns, bytes: 0, failed: 0 });
                }
                Act::End => self.end_section(number, now_ns),
                Act::Fill(piece) => {
                    let held = self.filled(number, piece);
                    self.held.push(held);
                }
                act => {
                    self.ask(number, act, now_ns);
                    if !matches!(act, Act::Read(_) | Act::Write(_)) && self.jobs[number].under_way > 0 {
                        return None;
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
        self.sections.push(Section {
            job: job.number,
            kind: begun.kind.to_owned(),
            round,
            begin_ns: begun.begin_ns.saturating_sub(job.go_ns),
            end_ns: end_ns.saturating_sub(job.go_ns),
            bytes: begun.bytes,
            failed: begun.failed,
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
        let fits = self.held.iter().position(|held| held.buffer.capacity() >= length && held.holds.is_none());
        let mut held = match fits {
            Some(at) => self.held.swap_remove(at),
            None => match self
                .held
                .iter()
                .position(|held| held.buffer.capacity() >= length)
                .filter(|_| self.held.len() > self.held_most())
            {
                Some(at) => self.held.swap_remove(at),
                None => Held { buffer: Buffer::new(length), holds: None },
            },
        };
        held.buffer.resize(length);
        Held { holds: None, ..held }
    }

    /// Buffers that are kept with what they hold.
    fn held_most(&self) -> usize {
        self.jobs.len() * self.plan.depth as usize
    }

    fn ask(&mut self, number: usize, act: Act, now_ns: u64) {
        let id = |job: &Job, file: usize| job.files[file].id;
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
                Operation::Write { file, offset: piece.offset, buffer }
            }
            Act::Read(piece) => {
                let Some(file) = id(&self.jobs[number], piece.file) else { return };
                let buffer = self.empty(piece.length_bytes).buffer;
                Operation::Read { file, offset: piece.offset, buffer }
            }
            Act::Sync { file } => match id(&self.jobs[number], file) {
                Some(file) => Operation::Sync { file },
                None => return,
            },
            Act::Close { file } => match self.jobs[number].files[file].id.take() {
                Some(file) => Operation::Close { file },
                None => return,
            },
            Act::Fill(_) | Act::Wait(_) | Act::Barrier | Act::Begin(_) | Act::End => return,
        };
        self.jobs[number].under_way += 1;
        let tag = self.flights.add(Flight { job: number, act, issued_ns: now_ns });
        self.batch.push(Request { tag, operation });
    }

    fn keep(&mut self, buffer: Option<Buffer>, holds: Option<(Content, u64, u64)>) {
        if self.held.len() <= 2 * self.held_most() {
            self.held.extend(buffer.map(|buffer| Held { buffer, holds }));
        }
    }

    fn complete(&mut self, completion: Completion, control: &Control) {
        let Some(flight) = self.flights.take(completion.tag) else { return };
        let done_ns = completion.done_ns;
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
                let asked = piece.length_bytes;
                let read = completion.buffer.as_deref().filter(|_| is_read && self.plan.verify);
                let wrong = content.wrong(moved, asked, iter::once((piece.offset, asked)), read);
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
        if let Some(kind) = kind_of(flight.act) {
            self.times[kind].record(done_ns.saturating_sub(flight.issued_ns));
        }
        let job = &mut self.jobs[flight.job];
        job.done.operations += 1;
        job.done.bytes += bytes;
        job.done.last_ns = job.done.last_ns.max(done_ns);
        if let Some(begun) = &mut job.begun {
            begun.bytes += bytes;
        }
    }

    /// One operation failed: it is told, and the job goes on.
    fn fail(&mut self, flight: Flight, now_ns: u64, error: TargetError) {
        let job = &mut self.jobs[flight.job];
        job.done.failed += 1;
        job.done.last_ns = job.done.last_ns.max(now_ns);
        if let Some(begun) = &mut job.begun {
            begun.failed += 1;
        }
        let file = match flight.act {
            Act::Open { file, .. }
            | Act::Sync { file }
            | Act::Close { file }
            | Act::Stat { file }
            | Act::Remove { file } => Some(file),
            Act::Read(piece) | Act::Write(piece) => Some(piece.file),
            _ => None,
        };
        if let Some(file) = file.filter(|_| error.is_lost) {
            job.files[file].id = None;
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
        let before_ns = now_ns.saturating_sub(self.plan.timeout.as_nanos() as u64);
        for tag in self.flights.where_is(|flight| flight.issued_ns < before_ns) {
            let Some(flight) = self.flights.take(tag) else { continue };
            self.jobs[flight.job].under_way -= 1;
            self.ready.push_back(flight.job);
            let text = format!("no answer within {:?}", self.plan.timeout);
            self.fail(flight, now_ns, TargetError::coded("ETIMEDOUT", text).lost());
        }
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
