//! One trial of one configuration: faults on time, samplers around it, and records of its steps.

use crate::run::campaign::place_of;
use crate::run::captures::Captures;
use crate::run::faults::{Due, Injector, Occurrence, Whose};
use crate::run::measure::to_trial_clock;
use crate::run::outlook;
use crate::run::progress::Progress;
use crate::run::records::{Lateness, Recorder};
use crate::run::seeds::TrialSeed;
use crate::run::services::Up;
use crate::run::turns;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use weir_agent::job::{Interrupt, Observer, StepJob, StepResult};
use weir_agent::launcher::LabLauncher;
use weir_agent::step::run_trial;
use weir_agent::{ClockMap, Fleet};
use weir_core::Instant;
use weir_core::behind::BUCKETS;
use weir_core::chunk::{Chunk, ChunkRecord};
use weir_core::fabric_page::{LATENESS_BUCKETS, LATENESS_START};
use weir_core::failure::FailureRecord;
use weir_core::fault::{Act, DiskTrouble};
use weir_core::record::{Observed, Row, SampleRecord, Series, TimelineEvent, TrialRecord};
use weir_core::scenario::Configuration;
use weir_lab::Lab;
use weir_report::{WriteError, Writer};
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};
use weir_sys::process::Signal;
use weir_telemetry::{DiskPageSampler, PortSampler, Schedule, ServiceSampler, Teller};

/// Samples of one series a trial at most; a longer trial is sampled more coarsely.
const SAMPLES_MAX: u128 = 6_000;

/// What a trial leaves behind.
pub struct TrialOutput {
    pub records: Vec<TrialRecord>,
    pub samples: Vec<SampleRecord>,
    pub failures: Vec<FailureRecord>,
    /// What was known only at its end; the rest is in the results already.
    pub timeline: Vec<TimelineEvent>,
    /// Warnings of the events that are in the results already.
    pub warnings: Vec<String>,
    /// The results could not be written while it ran, which ended it.
    pub unwritten: Option<WriteError>,
    /// Something broke that the next trial would meet again: the fabric is gone.
    pub lab_broken: Option<String>,
}

/// What of the configuration a job carries out: a whole step, or a pair's turn.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub step: usize,
    pub turn: Option<Turn>,
}

/// By index among the step's pairs and rounds.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub pair: usize,
    pub round: usize,
}

pub struct TrialInput<'a> {
    /// weir itself, which is what agents run.
    pub program: &'a Path,
    pub configuration: &'a Configuration,
    /// Those of a step stand together, those of a round too.
    pub jobs: &'a [StepJob<'a>],
    /// Of each job.
    pub parts: &'a [Part],
    pub trial: u32,
    pub seed: TrialSeed,
    pub key: &'a str,
    pub first_task: u64,
    /// For the progress line: `trial 2/5`.
    pub label: String,
}

struct Watch<'a> {
    input: &'a TrialInput<'a>,
    /// `None`: the hosts are real, and nothing between them is ours.
    lab: Option<&'a mut Lab>,
    up: &'a mut Up,
    progress: &'a mut Progress,
    /// When each group of jobs is planned to run.
    planned: Vec<Range<Duration>>,
    trial_start: Option<Instant>,
    until: Instant,
    /// When the first job of each step began.
    step_start: Vec<Option<Instant>>,
    /// When each group of jobs began.
    group_start: Vec<Option<Instant>>,
    /// Jobs of each group that have not ended.
    group_left: Vec<usize>,
    /// Lateness of the fabric, by count and by time, at the start and the end of each job.
    lateness: Vec<(Vec<u64>, Vec<u64>)>,
    /// What each job has moved.
    moved: Vec<u64>,
    injector: Injector<'a>,
    captures: Captures<'a>,
    injected: Vec<Occurrence>,
    /// Beginnings and ends (true) of those that are not on the timeline yet, by time.
    untold: BTreeSet<(Instant, bool, usize)>,
    /// Orders to hosts' processes, in the order of their times.
    orders: VecDeque<Due>,
    /// Hosts whose processes stand still.
    paused: Vec<String>,
    broken: Option<String>,
    warnings: Vec<String>,
    unwritten: Option<WriteError>,
    /// Events, fine series and captures are written as they come.
    writer: &'a mut Writer,
    /// What samplers beside the hosts have gathered.
    teller: Teller,
    /// Samples that are not written yet, and when they will be.
    gathered: Vec<SampleRecord>,
    told: Instant,
    /// Warnings of steps that are on the timeline: turns of a step may all have the same.
    warned: BTreeSet<String>,
}

/// Samples are written as they come this often: a kill takes no more, and the disk has one write a second of them.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Faults are told to the fabric this long before they happen: long enough for a busy coordinator to be late, short enough
/// that a link that flaps for a whole trial is told bit by bit.
const AHEAD: Duration = Duration::from_secs(2);
/// Changes in one message to the fabric.
const CHANGES_MAX: usize = 20_000;

impl Watch<'_> {
    /// Empty without a lab.
    fn lateness_now(&self) -> Vec<u64> {
        let Some(lab) = &self.lab else { return Vec::new() };
        let page = lab.page();
        page.copy(LATENESS_START, LATENESS_BUCKETS + BUCKETS)
    }

    /// Makes the faults known that count from `origin`, and schedules the first of them.
    fn inject(&mut self, step: Option<usize>, origin: Instant) {
        self.injector.begin(step, origin, self.until, &self.input.configuration.topology);
        self.schedule_ahead(origin);
    }

    /// Schedules what falls due soon after `now`.
    fn schedule_ahead(&mut self, now: Instant) {
        let before = self.injector.exhausted();
        let batch = self.injector.advance(now + AHEAD);
        for occurrence in batch.occurrences {
            if !occurrence.by_orders {
                let index = self.injected.len();
                self.untold.extend([(occurrence.start, false, index), (occurrence.end, true, index)]);
            }
            self.injected.push(occurrence);
        }
        self.orders.extend(batch.orders);
        for changes in batch.changes.chunks(CHANGES_MAX) {
            if let Some(lab) = &mut self.lab
                && let Err(error) = lab.schedule(changes)
            {
                self.broken = Some(format!("faults could not be scheduled: {error}"));
                return;
            }
        }
        if self.injector.exhausted() && !before {
            let text = "more faults than a trial keeps the truth of: no more are injected".to_owned();
            self.event(now, "warning", None, text);
        }
    }

    /// Says what a part of a step that has ended warns of: the trial may go on for hours.
    fn warn(&mut self, job: usize, result: &StepResult) {
        let part = self.input.parts[job];
        let step = &self.input.configuration.steps[part.step];
        let of_turn = part.turn.map(|turn| step.of_pair(turn.pair));
        // All times are on the machine's clock here.
        let (trial_start, happened) = (Instant::ZERO, &self.injected[..]);
        let recorder = Recorder { input: self.input, trial_start, series: &[], happened };
        let at = self.step_start[part.step].or(result.ended).unwrap_or_else(weir_sys::clock::monotonic);
        for text in recorder.warnings(job, of_turn.as_ref().unwrap_or(step), result) {
            let text = format!("{}: {text}", step.point);
            if self.warned.insert(text.clone()) {
                self.event(at, "warning", Some(part.step), text);
            }
        }
    }

    /// Carries out what a fault does to the processes of a host, and notes when it was done.
    fn obey(&mut self, due: &Due, fleet: &mut Fleet) {
        let host = self.input.configuration.topology.hosts[due.host].name.clone();
        let (event, verb) = told(due.begins);
        let signal = match (&due.act, due.begins) {
            (Act::Stop, true) => Signal::Stop,
            (Act::Stop, false) => Signal::Continue,
            (Act::Kill, true) => Signal::Kill,
            (Act::Kill, false) => return self.bring_back(due, &host, fleet),
            (Act::Drain, out) => return self.drain(due, &host, out),
            (Act::Disk(trouble), begins) => {
                let trouble = if begins { *trouble } else { DiskTrouble::default() };
                return self.trouble(due, &host, trouble);
            }
            (Act::Link { .. }, _) => return,
        };
        let there =
            self.signal_daemons(due, signal) | (due.whose == Whose::Host && fleet.signal(&host, signal));
        let done = weir_sys::clock::monotonic();
        self.paused.retain(|paused| *paused != host);
        if there && signal == Signal::Stop && due.whose == Whose::Host {
            self.paused.push(host.clone());
        }
        let but = if there { "" } else { ", but there was no process" };
        self.fault_event(due, &host, done, event, &format!("{verb}{but}"));
    }

    /// Has something be wrong with disks, or nothing any more.
    fn trouble(&mut self, due: &Due, host: &str, trouble: DiskTrouble) {
        let Whose::Disk(service, number) = &due.whose else { return };
        let done = self.up.trouble(service, host, *number, trouble);
        let at = weir_sys::clock::monotonic();
        let (event, verb) = told(due.begins);
        let but = done.map_or_else(|error| format!(", but {error}"), |()| String::new());
        self.fault_event(due, host, at, event, &format!("{verb}{but}"));
    }

    /// The same for processes of services: those of a role, or all on the host. True if there were some.
    fn signal_daemons(&mut self, due: &Due, which: Signal) -> bool {
        let mut there = false;
        for daemon in self.up.daemons_of(due.host, due.whose.daemons()) {
            there |= match which {
                Signal::Kill => daemon.kill(),
                which => daemon.signal(which) > 0,
            };
        }
        there
    }

    /// Takes daemons out of service, or puts them back.
    fn drain(&mut self, due: &Due, host: &str, out: bool) {
        let daemons = self.up.daemons_of(due.host, due.whose.daemons());
        let answers: Vec<_> = daemons.filter_map(|daemon| daemon.drain(out)).collect();
        let (event, verb) = told(out);
        let but = match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(error) => format!(", but {error}"),
            None if answers.is_empty() => ", but nobody sends clients to it".to_owned(),
            None => String::new(),
        };
        let verb = format!("{verb}{but}");
        // What is measured then is not what was asked for.
        if !but.is_empty() {
            self.warnings.push(fault_text(due, host, &verb));
        }
        self.fault_event(due, host, weir_sys::clock::monotonic(), event, &verb);
    }

    /// Between trials services are as they were: what stood still goes on, what was killed is started again.
    fn undo_services(&mut self) {
        if let Err(error) = self.up.mend_disks() {
            self.warnings.push(error);
        }
        let Some(lab) = self.lab.as_deref() else { return };
        for running in self.up.running.iter_mut() {
            for daemon in running.daemons.iter_mut() {
                daemon.signal(Signal::Continue);
                if let (true, Some(holder)) = (daemon.is_down(), lab.holder(daemon.host))
                    && let Err(error) = daemon.start_again(holder)
                {
                    let text = format!(
                        "{} on {} could not be started again: {error}",
                        daemon.name, daemon.host_name
                    );
                    self.warnings.push(text);
                }
                if daemon.is_drained()
                    && let Some(Err(error)) = daemon.drain(false)
                {
                    self.warnings.push(error);
                }
            }
        }
    }

    /// Starts what a fault has killed.
    fn bring_back(&mut self, due: &Due, host: &str, fleet: &mut Fleet) {
        // Faults of processes are for a lab alone.
        let Some(lab) = self.lab.as_deref() else { return };
        let places = [(host.to_owned(), place_of(lab, due.host))].into();
        let launcher = LabLauncher { program: self.input.program.to_owned(), places };
        let mut failed = match due.whose {
            Whose::Daemons(_) | Whose::Disk(..) => None,
            Whose::Host => fleet.launch_again(&launcher, host).err().map(|error| error.to_string()),
        };
        if let Some(holder) = lab.holder(due.host) {
            for daemon in self.up.daemons_of(due.host, due.whose.daemons()) {
                failed = failed.or(daemon.start_again(holder).err().map(|error| error.to_string()));
            }
        }
        let done = weir_sys::clock::monotonic();
        let but = failed.map_or_else(String::new, |error| format!(", but it did not start: {error}"));
        self.fault_event(due, host, done, "fault-end", &format!("ends{but}"));
    }

    fn fault_event(&mut self, due: &Due, host: &str, at: Instant, event: &str, verb: &str) {
        let mut data = serde_json::Map::new();
        data.insert("fault".to_owned(), (*due.fault).into());
        data.insert("on".to_owned(), (*due.on).into());
        data.insert("host".to_owned(), host.into());
        self.event_with(at, event, None, fault_text(due, host, verb), data);
    }

    /// Ends what the step captures, if it still does.
    fn end_capture(&mut self, step: usize, at: Instant) {
        if let Some(lab) = self.lab.as_deref_mut()
            && let Some(said) = self.captures.end(lab, step)
        {
            self.event(at, said.event, Some(step), said.text);
        }
    }

    /// Puts on the timeline what faults of the fabric have done by `now`.
    fn tell_truths(&mut self, now: Instant) {
        while let Some((at, is_end, index)) = self.untold.pop_first() {
            if at > now {
                self.untold.insert((at, is_end, index));
                break;
            }
            let origin = self.trial_start.unwrap_or(at);
            self.write(&ground_truth(&self.injected[index], is_end, self.input, origin));
        }
    }

    /// Takes what came since it was asked last, as the steps that run have it.
    fn gather(&mut self) {
        let around = self.teller.fresh();
        for step in 0..self.step_start.len() {
            self.add_samples(step, &around);
        }
    }

    /// Series on the machine's clock, of which a step has what lies within it.
    fn add_samples(&mut self, step: usize, series: &[Series]) {
        let (Some(origin), Some(start)) = (self.trial_start, self.step_start[step]) else { return };
        if self.is_over(step) {
            return;
        }
        let of_step = &self.input.configuration.steps[step];
        let within = series.iter().filter_map(|all| {
            SeriesView::from(all).within(i64::try_from(start.as_ns()).unwrap_or(i64::MAX), i64::MAX)
        });
        let from = self.gathered.len();
        self.gathered.extend(within.map(|series| SampleRecord {
            point: of_step.point.clone(),
            trial: self.input.trial,
            step: of_step.name.clone(),
            series,
        }));
        self.gathered[from..]
            .iter_mut()
            .for_each(|it| to_trial_clock(std::slice::from_mut(&mut it.series), origin));
    }

    /// Whether all groups of a step have ended.
    fn is_over(&self, step: usize) -> bool {
        let jobs = self.input.parts.iter().zip(self.input.jobs);
        jobs.filter(|(part, _)| part.step == step).all(|(_, job)| self.group_left[job.group] == 0)
    }

    /// Writes what was sampled so far, now and then.
    fn tell_samples(&mut self, now: Instant) {
        if now.since(self.told) < TOLD_EVERY {
            return;
        }
        self.told = now;
        self.gather();
        if self.unwritten.is_none() && !self.gathered.is_empty() {
            self.unwritten = self.writer.running(&self.gathered).err();
        }
        self.gathered.clear();
    }

    fn write(&mut self, event: &TimelineEvent) {
        if self.unwritten.is_none() {
            self.unwritten = self.writer.timeline(event).err();
        }
    }

    fn event(&mut self, at: Instant, event: &str, step: Option<usize>, text: String) {
        self.event_with(at, event, step, text, serde_json::Map::new());
    }

    fn event_with(
        &mut self,
        at: Instant,
        event: &str,
        step: Option<usize>,
        text: String,
        data: serde_json::Map<String, serde_json::Value>,
    ) {
        if event == "warning" {
            self.warnings.push(text.clone());
        }
        self.write(&TimelineEvent {
            at_ns: at.as_ns(),
            utc: utc_of(at),
            event: event.to_owned(),
            configuration: Some(self.input.configuration.id.clone()),
            trial: Some(self.input.trial),
            step: step.map(|index| self.input.configuration.steps[index].name.clone()),
            trial_ns: self.trial_start.map(|start| offset_ns(at, start)),
            text,
            data,
        });
    }
}

/// The event of a fault that begins or ends, and how it is said.
fn told(begins: bool) -> (&'static str, &'static str) {
    if begins { ("fault-start", "begins") } else { ("fault-end", "ends") }
}

fn fault_text(due: &Due, host: &str, verb: &str) -> String {
    format!("fault {} on {host}: {} {verb}", due.fault, due.what)
}

impl Observer for Watch<'_> {
    fn trial_starts(&mut self, at: Instant) {
        self.trial_start = Some(at);
        // Faults that repeat are scheduled for as long as the trial could take, and forgotten when it ends.
        let planned = outlook::length(&self.planned);
        self.until = at + planned * 2 + Duration::from_secs(60);
        self.inject(None, at);
        self.event(at, "trial-start", None, format!("trial {} starts", self.input.trial));
    }

    fn step_starts(&mut self, job: usize, at: Instant) {
        let (part, group) = (self.input.parts[job], self.input.jobs[job].group);
        let (step, name) = (part.step, self.input.jobs[job].name);
        self.lateness[job].0 = self.lateness_now();
        if self.step_start[step].is_none() {
            self.step_start[step] = Some(at);
            self.inject(Some(step), at);
            self.event(at, "step-start", Some(step), format!("step {name} starts"));
            let trial_start = self.trial_start.unwrap_or(at);
            if let Some(lab) = self.lab.as_deref_mut()
                && let Some(said) = self.captures.begin(lab, self.writer, step, trial_start)
            {
                self.event(at, said.event, Some(step), said.text);
            }
        }
        if self.group_start[group].is_none() {
            self.group_start[group] = Some(at);
            let mut label = format!("{}  {name}", self.input.label);
            if let Some(turn) = part.turn {
                let own = &self.input.configuration.steps[step];
                let text = turns::round_text(&self.input.configuration.topology, own, turn.round);
                self.event(at, "round-start", Some(step), text);
                label += &format!("  round {}/{}", turn.round + 1, own.rounds.len());
            }
            self.progress.begin(label);
        }
    }

    fn step_ended(&mut self, job: usize, result: &StepResult) {
        let (part, group) = (self.input.parts[job], self.input.jobs[job].group);
        let (step, name) = (part.step, self.input.jobs[job].name);
        self.lateness[job].1 = self.lateness_now();
        let at = result.ended.unwrap_or_else(weir_sys::clock::monotonic);
        match (part.turn, &result.failure) {
            (None, Some(reason)) => {
                self.event(at, "step-failed", Some(step), format!("step {name} failed: {reason}"));
            }
            (Some(turn), Some(reason)) => {
                let (topology, own) =
                    (&self.input.configuration.topology, &self.input.configuration.steps[step]);
                let pair = own.pair_entity(topology, turn.pair);
                let text = format!("step {name}: {pair} failed: {reason}");
                let data = [("pair".to_owned(), pair.into())].into_iter().collect();
                self.event_with(at, "pair-failed", Some(step), text, data);
            }
            (_, None) => {}
        }
        self.warn(job, result);
        if self.group_left[group] == 1 {
            // What the step still has of them.
            self.gather();
        }
        self.group_left[group] -= 1;
        if self.group_left[group] > 0 {
            return;
        }
        self.progress.end(&self.planned[group]);
        if self.is_over(step) {
            if part.turn.is_some() || result.failure.is_none() {
                self.event(at, "step-end", Some(step), format!("step {name} ended"));
            }
            self.end_capture(step, at);
        }
    }

    fn progress(&mut self, job: usize, done: u64, now: Instant) {
        self.moved[job] = done;
        let group = self.input.jobs[job].group;
        let of_group = self.input.jobs.iter().zip(&self.moved).filter(|(other, _)| other.group == group);
        let sum = of_group.map(|(_, done)| *done).sum();
        let elapsed = self.group_start[group].map_or(Duration::ZERO, |start| now.since(start));
        self.progress.moved(group, sum, now, elapsed, &self.planned[group]);
    }

    fn chunk(&mut self, job: usize, mut chunk: Chunk) {
        let start_ns = self.trial_start.map_or(0, |start| start.as_ns());
        chunk.start_ns = chunk.start_ns.saturating_sub(i64::try_from(start_ns).unwrap_or(i64::MAX));
        let step = &self.input.configuration.steps[self.input.parts[job].step];
        let (point, name) = (step.point.clone(), step.name.clone());
        let record = ChunkRecord { point, trial: self.input.trial, step: name, chunk };
        if self.unwritten.is_none() {
            self.unwritten = self.writer.chunk(&record).err();
        }
    }

    fn series(&mut self, job: usize, series: Vec<Series>) {
        self.add_samples(self.input.parts[job].step, &series);
    }

    fn interrupt(&mut self) -> Interrupt {
        match weir_sys::signal::interrupts() {
            0 => Interrupt::None,
            1 => Interrupt::Drain,
            _ => Interrupt::Now,
        }
    }

    fn act(&mut self, fleet: &mut Fleet) -> Option<Instant> {
        let now = weir_sys::clock::monotonic();
        if self.trial_start.is_some() {
            self.schedule_ahead(now);
            self.tell_truths(now);
            self.tell_samples(now);
        }
        while self.orders.front().is_some_and(|due| due.at <= now) {
            let Some(due) = self.orders.pop_front() else { break };
            self.obey(&due, fleet);
        }
        self.orders.front().map(|due| due.at)
    }

    fn broken(&mut self) -> Option<String> {
        if let Some(error) = &self.unwritten {
            return Some(error.to_string());
        }
        if self.broken.is_none()
            && let Some(lab) = &mut self.lab
        {
            self.broken = lab.failed();
        }
        self.broken.clone()
    }
}

/// Real time of an instant of the monotonic clock: a label only.
pub fn utc_of(at: Instant) -> String {
    let now = jiff::Timestamp::now();
    let ago = weir_sys::clock::monotonic().seconds_from(at);
    let then = now.checked_sub(jiff::SignedDuration::from_secs_f64(ago)).unwrap_or(now);
    format!("{then:.6}")
}

/// Nanoseconds from `start`, which may lie after it.
pub fn offset_ns(at: Instant, start: Instant) -> i64 {
    (i128::from(at.as_ns()) - i128::from(start.as_ns())).clamp(i128::from(i64::MIN), i128::from(i64::MAX))
        as i64
}

/// Samplers of everything around the workload, at intervals that keep a long trial's series bounded.
fn samplers(
    lab: Option<&Lab>,
    fleet: &Fleet,
    up: &Up,
    input: &TrialInput<'_>,
) -> Vec<(Duration, Box<dyn Sampler>)> {
    // What this machine does says nothing of hosts elsewhere.
    let Some(lab) = lab else { return Vec::new() };
    let planned = outlook::length(&turns::planned(input.jobs));
    let links = input.configuration.topology.directed_links();
    let spread = |least: Duration, series: usize| {
        let share = SAMPLES_MAX * 12 / (series.max(12) as u128);
        let stretched =
            Duration::from_nanos(u64::try_from(planned.as_nanos() / share.max(1)).unwrap_or(u64::MAX));
        least.max(stretched)
    };
    let mut processes = fleet.processes();
    processes.push(("fabric".to_owned(), lab.fabric_pid()));
    processes.push(("coordinator".to_owned(), std::process::id()));
    processes.extend(up.disks.iter().map(|disks| ("disks".to_owned(), disks.id())));
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    let count = processes.len();
    let target = SamplerTarget { processes, host: String::new() };
    // Interfaces and TCP counters are each host's own: its agent reads them.
    let of_machine = ["cpu", "process", "softirq", "memory", "disk"].map(str::to_owned);
    let every = spread(weir_telemetry::HOST_INTERVAL, count);
    let mut all = weir_telemetry::build(&of_machine, &target, every);
    // Without descriptors left the links' series are missing, and what is not measured is left out of the records.
    if let Ok(page) = lab.page().try_clone() {
        let ports = PortSampler::new(Box::new(move |word| page.get(word)), names);
        all.push((spread(Duration::from_millis(10), links.len()), Box::new(ports)));
    }
    let watched = up.watched();
    if !watched.is_empty() {
        let every = spread(weir_telemetry::HOST_INTERVAL, watched.len());
        all.push((every, Box::new(ServiceSampler::new(watched))));
    }
    let page = up.disks.as_ref().and_then(|disks| disks.page().try_clone().ok());
    if let Some(page) = page {
        let names = up.disk_names.iter().enumerate();
        let names: Vec<(String, usize)> =
            names.map(|(index, name)| (name.entity.clone(), index * weir_disk::WORDS)).collect();
        let every = spread(weir_telemetry::HOST_INTERVAL, names.len());
        all.push((every, Box::new(DiskPageSampler::new(Box::new(move |word| page.get(word)), names))));
    }
    all
}

/// Carries out one trial and makes its records.
pub fn run(
    input: &TrialInput<'_>,
    mut lab: Option<&mut Lab>,
    fleet: &mut Fleet,
    up: &mut Up,
    writer: &mut Writer,
    progress: &mut Progress,
) -> TrialOutput {
    let schedule = Schedule::start("machine", samplers(lab.as_deref(), fleet, up, input));
    let count = input.jobs.len();
    let groups = input.jobs.iter().map(|job| job.group + 1).max().unwrap_or(0);
    let mut group_left = vec![0; groups];
    for job in input.jobs {
        group_left[job.group] += 1;
    }
    let mut watch = Watch {
        input,
        lab: lab.as_deref_mut(),
        up,
        progress,
        planned: turns::planned(input.jobs),
        trial_start: None,
        until: Instant::NEVER,
        step_start: vec![None; input.configuration.steps.len()],
        group_start: vec![None; groups],
        group_left,
        moved: vec![0; count],
        lateness: vec![(Vec::new(), Vec::new()); count],
        injector: Injector::new(&input.configuration.faults, input.seed.faults()),
        captures: Captures::new(input.configuration, input.trial),
        injected: Vec::new(),
        untold: BTreeSet::new(),
        orders: VecDeque::new(),
        paused: Vec::new(),
        broken: None,
        warnings: Vec::new(),
        unwritten: None,
        writer,
        teller: schedule.teller(),
        gathered: Vec::new(),
        told: weir_sys::clock::monotonic(),
        warned: BTreeSet::new(),
    };
    let results = run_trial(fleet, input.jobs, input.key, input.first_task, &mut watch);
    for host in std::mem::take(&mut watch.paused) {
        fleet.signal(&host, Signal::Continue);
    }
    watch.undo_services();
    watch.progress.end_trial(outlook::length(&watch.planned));
    let ended = weir_sys::clock::monotonic();
    // A trial that broke off has steps that never ended.
    for step in 0..input.configuration.steps.len() {
        watch.end_capture(step, ended);
    }
    let origin = watch.trial_start.unwrap_or(ended);
    let began = |index: &usize| watch.injected[*index].start < ended;
    let mut timeline: Vec<TimelineEvent> = std::mem::take(&mut watch.untold)
        .into_iter()
        .filter(|(_, _, index)| began(index))
        .map(|(_, is_end, index)| ground_truth(&watch.injected[index], is_end, input, origin))
        .collect();
    watch.event(ended, "trial-end", None, format!("trial {} ends", input.trial));
    let (lateness, injected) = (watch.lateness, watch.injected);
    let (warnings, unwritten) = (watch.warnings, watch.unwritten);
    let (trial_start, mut lab_broken) = (watch.trial_start.unwrap_or(ended), watch.broken);
    // What is still scheduled belongs to this trial alone.
    if lab_broken.is_none()
        && let Some(lab) = lab
        && let Err(error) = lab.reset()
    {
        lab_broken = Some(format!("the fabric does not take orders: {error}"));
    }
    let mut series = schedule.finish();
    to_trial_clock(&mut series, trial_start);
    let happened: Vec<Occurrence> = injected.into_iter().filter(|it| it.start < ended).collect();
    let clocks = own_clocks(input, fleet, trial_start, ended);
    timeline.extend(clocks.iter().map(|(host, clock)| clock_event(host, clock, input, trial_start, ended)));
    let (records, samples, failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut output = TrialOutput { records, samples, failures, timeline, warnings, unwritten, lab_broken };
    let recorder = Recorder { input, trial_start, series: &series, happened: &happened };
    let lateness = |job: usize| -> Lateness {
        let (before, after) = lateness[job].clone();
        (!before.is_empty() && !after.is_empty()).then_some((before, after))
    };
    // The user or the fabric ended it: what is missing then says nothing of the pairs.
    let broken_off = output.lab_broken.is_some() || weir_sys::signal::interrupts() > 0;
    let mut results: VecDeque<(usize, StepResult)> = results.into_iter().enumerate().collect();
    while let Some((job, result)) = results.pop_front() {
        let part = input.parts[job];
        if part.turn.is_none() {
            recorder.step(job, result, lateness(job), &mut output);
            continue;
        }
        let mut turns = vec![(job, result)];
        while let Some(next) = results.pop_front_if(|(other, _)| input.parts[*other].step == part.step) {
            turns.push(next);
        }
        turns::record(&recorder, turns, &lateness, broken_off, &mut output);
    }
    for record in &mut output.records {
        record.rows.extend(clocks.iter().flat_map(|(host, clock)| clock_rows(host, clock)));
    }
    output
}

/// Clocks over the trial of those of its hosts that have one of their own.
fn own_clocks(input: &TrialInput<'_>, fleet: &Fleet, from: Instant, to: Instant) -> Vec<(String, ClockMap)> {
    let pairs = input.jobs.iter().flat_map(|job| &job.pairs).flat_map(|(from, to)| [from, to]);
    let of_roles = input.jobs.iter().flat_map(|job| &job.roles).flat_map(|(_, peers)| peers);
    let hosts: BTreeSet<&String> = pairs.chain(of_roles).map(|peer| &peer.host).collect();
    let clocks = hosts.into_iter().filter_map(|host| Some((host.clone(), fleet.clock_over(host, from, to)?)));
    clocks.filter(|(_, clock)| *clock != ClockMap::SHARED).collect()
}

fn clock_rows(host: &str, clock: &ClockMap) -> [Row; 2] {
    let row = |metric: &str, value: f64| Row {
        entity: format!("host.{host}"),
        metric: metric.to_owned(),
        value: Observed::Value(value),
    };
    [
        row("control.clock_uncertainty_seconds", clock.uncertainty_ns() as f64 / 1e9),
        row("control.clock_drift_ratio", clock.drift_ratio()),
    ]
}

fn clock_event(
    host: &str,
    clock: &ClockMap,
    input: &TrialInput<'_>,
    trial_start: Instant,
    ended: Instant,
) -> TimelineEvent {
    let offset_ns = clock.offset_ns(trial_start);
    let (uncertainty_ns, drift_ppm) = (clock.uncertainty_ns(), clock.drift_ratio() * 1e6);
    let mut data = serde_json::Map::new();
    data.insert("host".to_owned(), host.into());
    // A text: the clocks of machines started years apart differ by more than a number in JSON keeps exactly.
    data.insert("offset_ns".to_owned(), offset_ns.to_string().into());
    data.insert("uncertainty_ns".to_owned(), uncertainty_ns.into());
    data.insert("drift_ppm".to_owned(), drift_ppm.into());
    data.insert("exchanges".to_owned(), clock.exchange_count().into());
    TimelineEvent {
        at_ns: ended.as_ns(),
        utc: utc_of(ended),
        event: "clock".to_owned(),
        configuration: Some(input.configuration.id.clone()),
        trial: Some(input.trial),
        step: None,
        trial_ns: Some(self::offset_ns(ended, trial_start)),
        text: format!(
            "clock of {host}: {:.6} s ahead at the trial's start, known to ±{:.1} µs, drifting by {drift_ppm:.2} ppm",
            offset_ns as f64 / 1e9,
            uncertainty_ns as f64 / 1e3,
        ),
        data,
    }
}

fn ground_truth(
    it: &Occurrence,
    is_end: bool,
    input: &TrialInput<'_>,
    trial_start: Instant,
) -> TimelineEvent {
    let (event, at, verb) =
        if is_end { ("fault-end", it.end, "ends") } else { ("fault-start", it.start, "begins") };
    let mut data = serde_json::Map::new();
    data.insert("fault".to_owned(), (*it.fault).into());
    data.insert("on".to_owned(), (*it.on).into());
    // Parts of one fault differ in this alone, and its beginning and its end are a pair by it.
    data.insert("what".to_owned(), (*it.what).into());
    TimelineEvent {
        at_ns: at.as_ns(),
        utc: utc_of(at),
        event: event.to_owned(),
        configuration: Some(input.configuration.id.clone()),
        trial: Some(input.trial),
        step: None,
        trial_ns: Some(offset_ns(at, trial_start)),
        text: format!("fault {} on {}: {} {verb}", it.fault, it.on, it.what),
        data,
    }
}
