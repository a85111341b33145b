//! One thread of a load: its session, its jobs, and the operations that are under way.

use crate::content::DIFFERS;
use crate::flight::Flights;
use crate::job::{AFTER_FAILURE_NS, Job, JobFile, Next, syncs_each};
use crate::plan::{Plan, SyncWhen};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Duration;
use weir_core::Instant;
use weir_core::failure::{Failure, Failures};
use weir_core::record::Series;
use weir_core::times::Times;
use weir_seams::target::{
    Answer, Buffer, Completion, Mode, Operation, Piece, Request, Session, SessionSettings, TargetError,
};
use weir_seams::workload::Control;
use weir_sys::clock::{self, ThreadMark};

/// The longest that a thread waits before it looks at its orders again.
const LOOK: Duration = Duration::from_millis(20);
/// Samples of a series at most; a longer load is sampled more coarsely.
const SAMPLES_MAX: usize = 6_000;
/// Looked for operations that take too long.
const OVERDUE_EVERY_NS: u64 = 250_000_000;
/// Opening a lost file again is tried this far apart.
const REOPEN_EVERY_NS: u64 = 200_000_000;

/// What an operation that is under way is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Move {
        next: Next,
        /// Which of its pieces is asked for, where they are one after the other, and where that lies.
        piece: u32,
        place: Piece,
    },
    /// The sync that belongs to a write.
    SyncOf {
        next: Next,
    },
    /// The sync of a file at the end.
    SyncAtEnd {
        file: usize,
    },
    Reopen {
        file: usize,
    },
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    job: usize,
    purpose: Purpose,
    issued_ns: u64,
}

/// Bytes moved so far, by time.
struct Curve {
    entity: String,
    moved: u64,
    t_ns: Vec<i64>,
    value: Vec<f64>,
}

/// What one thread came to.
pub struct LaneOutcome {
    pub jobs: Vec<Job>,
    /// Latency with whose it is.
    pub times: Vec<(String, Times)>,
    pub sync_times: Option<Times>,
    pub open_times: Times,
    pub lateness: Option<Times>,
    pub series: Vec<Series>,
    pub failures: Failures,
    pub ended_ns: u64,
    pub cpu: Duration,
    pub ran_and_waited: Option<(f64, f64)>,
}

/// How the figures of a lane's jobs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// A distribution for each job.
    pub times: bool,
    /// A curve for each job.
    pub curves: bool,
}

/// One thread, ready to run.
pub struct Lane {
    name: String,
    plan: Plan,
    session: Box<dyn Session>,
    jobs: Vec<Job>,
    apart: Apart,
    /// Pieces of an operation are one request.
    reads_pieces: bool,
    flights: Flights<Flight>,
    buffers: Vec<Buffer>,
    batch: Vec<Request>,
    done: Vec<Completion>,
    ready: VecDeque<usize>,
    /// When jobs that wait are looked at again.
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    times: Vec<Times>,
    sync_times: Option<Times>,
    open_times: Times,
    lateness: Option<Times>,
    curves: Vec<Curve>,
    interval_ns: u64,
    sample_ns: u64,
    failures: Failures,
    /// Since when a job's files are lost.
    lost_since_ns: Vec<Option<u64>>,
    counts_from_ns: u64,
    /// What completes later does not count.
    counts_to_ns: u64,
}

/// A job's number, and its files: path, size and content.
pub type JobPlan = (u32, Vec<crate::layout::LaidFile>);

impl Lane {
    /// Connects and opens the files of all its jobs.
    ///
    /// Errors: no session, or a file that cannot be opened.
    pub fn prepare(
        plan: &Plan,
        name: String,
        jobs: Vec<JobPlan>,
        seed: u64,
        apart: Apart,
    ) -> Result<Lane, TargetError> {
        let depth = plan.depth as usize * jobs.len();
        let settings = SessionSettings { depth, timeout: plan.timeout };
        let mut session = plan.target.build.session(&plan.url, &plan.options, settings)?;
        let in_words = |error: io::Error| TargetError::new(error.to_string());
        let mut open_times = Times::new().map_err(in_words)?;
        let mode = if plan.reads_only() { Mode::Read } else { Mode::Update };
        let mut opened_jobs = Vec::with_capacity(jobs.len());
        for (number, files) in jobs {
            let mut opened = Vec::with_capacity(files.len());
            for file in files {
                let asked = clock::monotonic();
                let operation = Operation::Open { path: file.path.clone(), mode };
                let answer = weir_seams::target::ask(&mut *session, operation, plan.found_within())?;
                open_times.record(clock::monotonic().since(asked).as_nanos() as u64);
                let Answer::Opened { file: id, .. } = answer else { continue };
                opened.push(JobFile {
                    id,
                    path: file.path,
                    size_bytes: file.size_bytes,
                    content: file.content,
                    is_dirty: false,
                    is_lost: false,
                });
            }
            opened_jobs.push(Job::new(plan, number, opened, seed));
        }
        let jobs = opened_jobs;
        let of_times = if apart.times { jobs.len() } else { 1 };
        let times: io::Result<Vec<Times>> = (0..of_times).map(|_| Times::new()).collect();
        let curve = |entity: String| Curve {
            entity,
            moved: 0,
            t_ns: Vec::with_capacity(SAMPLES_MAX + 1),
            value: Vec::with_capacity(SAMPLES_MAX + 1),
        };
        let curves = match apart.curves {
            true => jobs.iter().map(|job| curve(job.entity.clone())).collect(),
            false => vec![curve(name.clone())],
        };
        let lost_since_ns = vec![None; jobs.len()];
        let writes = !plan.reads_only() && plan.sync == SyncWhen::End;
        Ok(Lane {
            name,
            plan: plan.clone(),
            session,
            apart,
            flights: Flights::default(),
            reads_pieces: plan.pieces > 1 && plan.target.build.offers().reads_pieces.is_some(),
            buffers: (0..depth).map(|_| Buffer::new(plan.operation_bytes() as usize)).collect(),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            ready: VecDeque::with_capacity(jobs.len()),
            wakes: BinaryHeap::with_capacity(jobs.len() * 2),
            times: times.map_err(in_words)?,
            sync_times: writes.then(Times::new).transpose().map_err(in_words)?,
            open_times,
            lateness: plan.period.map(|_| Times::new()).transpose().map_err(in_words)?,
            curves,
            interval_ns: plan.interval.as_nanos() as u64,
            sample_ns: 0,
            failures: Failures::default(),
            lost_since_ns,
            counts_from_ns: 0,
            counts_to_ns: u64::MAX,
            jobs,
        })
    }

    /// Loads from the start that `control` says until its jobs are through, `duration` is over or it is told to stop.
    pub fn run(mut self, control: &Control) -> io::Result<LaneOutcome> {
        let start = control.start_at();
        self.jobs.iter_mut().for_each(|job| job.starts(start.as_ns()));
        self.counts_from_ns = (start + self.plan.warm_up).as_ns();
        self.counts_to_ns = self.plan.duration.map_or(u64::MAX, |duration| (start + duration).as_ns());
        clock::set_timer_slack_least();
        clock::sleep_until(start);
        let began = clock::monotonic();
        control.begin(began);
        let (mark, cpu_before) = (ThreadMark::at(began.as_ns()), clock::thread_cpu_time());
        self.sample_ns = start.as_ns();
        self.sample(start.as_ns());
        self.ready.extend(0..self.jobs.len());
        let mut overdue_at_ns = began.as_ns();
        let mut is_over = false;
        loop {
            let now_ns = clock::monotonic().as_ns();
            if control.is_cut() || control.aborted() {
                break;
            }
            if !is_over && (control.stopping() || now_ns >= self.counts_to_ns) {
                is_over = true;
                self.counts_to_ns = self.counts_to_ns.min(now_ns);
            }
            if is_over {
                self.sync_idle(now_ns);
            } else {
                self.issue(now_ns);
            }
            self.session.submit(&mut self.batch);
            if self.flights.count() == 0 && (is_over || self.jobs.iter().all(Job::is_through)) {
                break;
            }
            let wake_ns = self.wakes.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
            let until_ns = wake_ns.min(self.sample_ns);
            // Who has something to issue does not wait.
            let wait = Duration::from_nanos(until_ns.saturating_sub(now_ns)).min(LOOK);
            self.session.reap(&mut self.done, wait)?;
            let now_ns = clock::monotonic().as_ns();
            let mut done = std::mem::take(&mut self.done);
            for completion in done.drain(..) {
                self.complete(completion, control);
            }
            self.done = done;
            if now_ns >= self.sample_ns {
                self.sample(now_ns);
            }
            if now_ns >= overdue_at_ns + OVERDUE_EVERY_NS {
                overdue_at_ns = now_ns;
                self.give_up_overdue(now_ns);
            }
        }
        let now = clock::monotonic();
        self.sample(now.as_ns());
        Ok(self.outcome(now, &mark, cpu_before))
    }

    fn outcome(self, now: Instant, mark: &ThreadMark, cpu_before: Duration) -> LaneOutcome {
        let of_times: Vec<String> = match self.apart.times {
            true => self.jobs.iter().map(|job| job.entity.clone()).collect(),
            false => vec![self.name.clone()],
        };
        let series = self.curves.into_iter().map(|curve| Series {
            entity: curve.entity,
            name: crate::metrics::MOVED.to_owned(),
            unit: "B".to_owned(),
            cumulative: true,
            t_ns: curve.t_ns,
            value: curve.value,
        });
        LaneOutcome {
            times: of_times.into_iter().zip(self.times).collect(),
            sync_times: self.sync_times,
            open_times: self.open_times,
            lateness: self.lateness,
            series: series.collect(),
            failures: self.failures,
            ended_ns: self.counts_to_ns.min(now.as_ns()),
            cpu: clock::thread_cpu_time().saturating_sub(cpu_before),
            ran_and_waited: ThreadMark::at(now.as_ns()).shares_since(mark),
            jobs: self.jobs,
        }
    }

    /// Issues whatever is due and has room.
    fn issue(&mut self, now_ns: u64) {
        while let Some(Reverse((_, job))) =
            self.wakes.peek().copied().filter(|Reverse((ns, _))| *ns <= now_ns)
        {
            self.wakes.pop();
            self.ready.push_back(job);
        }
        while let Some(job) = self.ready.pop_front() {
            if self.reopens(job, now_ns) {
                continue;
            }
            while let Some(next) = self.jobs[job].next(now_ns) {
                if let Some(lateness) = &mut self.lateness {
                    lateness.record(now_ns.saturating_sub(next.possible_ns));
                }
                self.move_data(job, next, now_ns);
            }
            let waits = &self.jobs[job];
            match waits.due_ns() {
                Some(due) if waits.has_room() && due > now_ns => self.wakes.push(Reverse((due, job))),
                None if waits.under_way == 0 => self.sync_job(job, now_ns),
                _ => {}
            }
        }
    }

    fn move_data(&mut self, job: usize, next: Next, now_ns: u64) {
        // As many as can be under way; one that was given up with its buffer is replaced.
        let mut buffer =
            self.buffers.pop().unwrap_or_else(|| Buffer::new(self.plan.operation_bytes() as usize));
        buffer.resize(next.length_bytes as usize);
        let JobFile { id: file, content, .. } = self.jobs[job].files[next.file];
        let operation = if !next.is_read {
            content.fill(next.first.offset, &mut buffer);
            Operation::Write { file, offset: next.first.offset, buffer }
        } else if self.reads_pieces {
            buffer.scatter(self.jobs[job].pieces(next));
            Operation::ReadPieces { file, buffer }
        } else {
            return self.read_piece(job, next, 0, buffer, now_ns);
        };
        self.submit(job, Purpose::Move { next, piece: 0, place: next.first }, operation, now_ns);
    }

    /// Reads one piece of an operation to where it belongs.
    fn read_piece(&mut self, job: usize, next: Next, piece: u32, mut buffer: Buffer, issued_ns: u64) {
        let size = self.plan.size_bytes as usize;
        let place = self.jobs[job].piece(next, piece);
        buffer.narrow(piece as usize * size, place.length_bytes as usize);
        let file = self.jobs[job].files[next.file].id;
        let operation = Operation::Read { file, offset: place.offset, buffer };
        self.submit(job, Purpose::Move { next, piece, place }, operation, issued_ns);
    }

    fn submit(&mut self, job: usize, purpose: Purpose, operation: Operation, now_ns: u64) {
        let tag = self.flights.add(Flight { job, purpose, issued_ns: now_ns });
        self.batch.push(Request { tag, operation });
    }

    /// Opens a lost file of the job again, when it is time; `true` as long as one is lost.
    fn reopens(&mut self, job: usize, now_ns: u64) -> bool {
        let Some(since_ns) = self.lost_since_ns[job] else { return false };
        if self.jobs[job].under_way > 0 {
            return true;
        }
        let Some(file) = self.jobs[job].files.iter().position(|file| file.is_lost) else {
            self.lost_since_ns[job] = None;
            return false;
        };
        if now_ns.saturating_sub(since_ns) > self.plan.timeout.as_nanos() as u64 {
            self.jobs[job].give_up();
            return true;
        }
        let mode = if self.plan.reads_only() { Mode::Read } else { Mode::Update };
        let path = self.jobs[job].files[file].path.clone();
        self.jobs[job].under_way += 1;
        self.submit(job, Purpose::Reopen { file }, Operation::Open { path, mode }, now_ns);
        true
    }

    /// Syncs what a job that is through has written.
    fn sync_job(&mut self, job: usize, now_ns: u64) {
        if self.plan.sync != SyncWhen::End {
            return;
        }
        let Some(file) = self.jobs[job].files.iter().position(|file| file.is_dirty && !file.is_lost) else {
            return;
        };
        self.jobs[job].files[file].is_dirty = false;
        self.jobs[job].under_way += 1;
        let id = self.jobs[job].files[file].id;
        self.submit(job, Purpose::SyncAtEnd { file }, Operation::Sync { file: id }, now_ns);
    }

    /// After the end of issuing: jobs whose operations are all done are synced.
    fn sync_idle(&mut self, now_ns: u64) {
        for job in 0..self.jobs.len() {
            if self.jobs[job].under_way == 0 {
                self.sync_job(job, now_ns);
            }
        }
    }

    fn complete(&mut self, completion: Completion, control: &Control) {
        // One that was given up is over already; its buffer is of use again.
        let Some(flight) = self.flights.take(completion.tag) else {
            self.buffers.extend(completion.buffer);
            return;
        };
        let (job, done_ns) = (flight.job, completion.done_ns);
        let answer = match completion.result {
            Ok(answer) => answer,
            Err(error) => {
                self.buffers.extend(completion.buffer);
                return self.fail(flight, done_ns, error);
            }
        };
        match flight.purpose {
            Purpose::Move { next, piece, place } => {
                let moved = if let Answer::Moved { bytes } = answer { bytes } else { 0 };
                if let Some(error) = self.wrong(job, next, place, moved, completion.buffer.as_ref()) {
                    self.buffers.extend(completion.buffer);
                    return self.fail(flight, done_ns, error);
                }
                if let Some(buffer) = completion.buffer {
                    if next.is_read && !self.reads_pieces && piece + 1 < self.plan.pieces {
                        return self.read_piece(job, next, piece + 1, buffer, flight.issued_ns);
                    }
                    self.buffers.push(buffer);
                }
                if !next.is_read && syncs_each(&self.plan) {
                    let file = self.jobs[job].files[next.file].id;
                    return self.submit(
                        job,
                        Purpose::SyncOf { next },
                        Operation::Sync { file },
                        flight.issued_ns,
                    );
                }
                self.count(flight, next, done_ns, control);
            }
            Purpose::SyncOf { next } => {
                self.jobs[job].files[next.file].is_dirty = false;
                self.count(flight, next, done_ns, control);
            }
            Purpose::SyncAtEnd { .. } => {
                if let Some(times) = &mut self.sync_times {
                    times.record(done_ns.saturating_sub(flight.issued_ns));
                }
                self.jobs[job].under_way -= 1;
                self.jobs[job].done.last_ns = done_ns;
            }
            Purpose::Reopen { file } => {
                self.jobs[job].under_way -= 1;
                if let Answer::Opened { file: id, .. } = answer {
                    self.open_times.record(done_ns.saturating_sub(flight.issued_ns));
                    let file = &mut self.jobs[job].files[file];
                    (file.id, file.is_lost) = (id, false);
                }
            }
        }
        self.ready.push_back(job);
    }

    /// Why what was read or written is not what was asked for: of a piece by itself from `place`, else of all that were.
    fn wrong(
        &mut self,
        job: usize,
        next: Next,
        place: Piece,
        moved: u64,
        buffer: Option<&Buffer>,
    ) -> Option<TargetError> {
        let content = self.jobs[job].files[next.file].content;
        let read = buffer.map(|buffer| &buffer[..]).filter(|_| next.is_read && self.plan.verify);
        let offset_and_length = |piece: Piece| (piece.offset, u64::from(piece.length_bytes));
        let wrong = match self.reads_pieces {
            true => {
                let places = self.jobs[job].pieces(next).map(offset_and_length);
                content.wrong(moved, next.length_bytes, places, read)
            }
            false => {
                let (offset, asked) = offset_and_length(place);
                content.wrong(moved, asked, std::iter::once((offset, asked)), read)
            }
        };
        let differs = wrong.as_ref().is_some_and(|error| error.code.as_deref() == Some(DIFFERS));
        self.jobs[job].done.mismatched += u64::from(differs);
        wrong
    }

    fn count(&mut self, flight: Flight, next: Next, done_ns: u64, control: &Control) {
        let job = flight.job;
        control.advance(next.length_bytes);
        let curve = if self.apart.curves { job } else { 0 };
        self.curves[curve].moved += next.length_bytes;
        self.jobs[job].completed(done_ns);
        if !(self.counts_from_ns..=self.counts_to_ns).contains(&done_ns) {
            return;
        }
        let from_ns = if self.plan.period.is_some() { next.intended_ns } else { flight.issued_ns };
        let times = if self.apart.times { job } else { 0 };
        self.times[times].record(done_ns.saturating_sub(from_ns));
        let done = &mut self.jobs[job].done;
        done.operations += 1;
        done.bytes += next.length_bytes;
        done.last_ns = done_ns;
    }

    /// One operation failed: it is told, and its job goes on, after a pause and with a file that is open.
    fn fail(&mut self, flight: Flight, now_ns: u64, error: TargetError) {
        let job = flight.job;
        let (file, operation) = match flight.purpose {
            Purpose::Move { next, .. } if next.is_read => (next.file, "read"),
            Purpose::Move { next, .. } => (next.file, "write"),
            Purpose::SyncOf { next } => (next.file, "sync"),
            Purpose::SyncAtEnd { file } => (file, "sync"),
            Purpose::Reopen { file } => (file, "open"),
        };
        let target = self.plan.url.below(&self.jobs[job].files[file].path);
        match flight.purpose {
            Purpose::Move { .. } | Purpose::SyncOf { .. } => {
                self.jobs[job].completed(now_ns);
                self.jobs[job].failed(now_ns);
            }
            Purpose::SyncAtEnd { .. } | Purpose::Reopen { .. } => {
                self.jobs[job].under_way -= 1;
                self.jobs[job].done.failed += u64::from(operation == "sync");
            }
        }
        if error.is_lost {
            self.jobs[job].files[file].is_lost = true;
            self.lost_since_ns[job].get_or_insert(now_ns);
        }
        self.failures.push(Failure {
            at_ns: i64::try_from(now_ns).unwrap_or(i64::MAX),
            job: self.jobs[job].entity.clone(),
            operation: operation.to_owned(),
            target,
            code: error.code,
            retries: error.retries,
            text: error.text,
            ..Failure::default()
        });
        let again_ns = if self.lost_since_ns[job].is_some() { REOPEN_EVERY_NS } else { AFTER_FAILURE_NS };
        self.wakes.push(Reverse((now_ns + again_ns, job)));
    }

    /// Whoever waits longer than was said has failed, and its job with it: what it holds may never come back.
    fn give_up_overdue(&mut self, now_ns: u64) {
        let before_ns = now_ns.saturating_sub(self.plan.timeout.as_nanos() as u64);
        for tag in self.flights.where_is(|flight| flight.issued_ns < before_ns) {
            let Some(flight) = self.flights.take(tag) else { continue };
            self.jobs[flight.job].give_up();
            let text = format!("no answer within {:?}", self.plan.timeout);
            self.fail(flight, now_ns, TargetError::coded("ETIMEDOUT", text));
        }
    }

    fn sample(&mut self, now_ns: u64) {
        if self.curves.first().is_some_and(|curve| curve.t_ns.len() >= SAMPLES_MAX) {
            for curve in &mut self.curves {
                halve(&mut curve.t_ns);
                halve(&mut curve.value);
            }
            self.interval_ns *= 2;
        }
        for curve in &mut self.curves {
            curve.t_ns.push(i64::try_from(now_ns).unwrap_or(i64::MAX));
            curve.value.push(curve.moved as f64);
        }
        while self.sample_ns <= now_ns {
            self.sample_ns += self.interval_ns;
        }
    }
}

/// Every second one stays.
fn halve<T: Copy>(all: &mut Vec<T>) {
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}
