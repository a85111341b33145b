//! One trial of one configuration: faults on time, samplers around it, and records of its steps.

use crate::machine::core_count;
use crate::run::captures::Captures;
use crate::run::faults::{Due, Injector, Occurrence, Order};
use crate::run::measure::{Measured, Window, to_trial_clock};
use crate::run::progress::Progress;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;
use weir_agent::step::{Interrupt, Observer, StepJob, StepResult, run_trial};
use weir_agent::{ClockMap, Fleet};
use weir_core::Instant;
use weir_core::evidence::limiting_factor;
use weir_core::fabric_page::{LATENESS_BUCKETS, LATENESS_START};
use weir_core::model::total_ceiling;
use weir_core::record::{Observed, Row, SampleRecord, Series, TimelineEvent, TrialRecord};
use weir_core::scenario::Configuration;
use weir_lab::Lab;
use weir_seams::sampler::{Sampler, SamplerTarget};
use weir_seams::workload::{DeriveContext, Estimate, FaultWindow};
use weir_sys::process::Signal;
use weir_telemetry::{PortSampler, Schedule};

/// Samples of one series a trial at most; a longer trial is sampled more coarsely.
const SAMPLES_MAX: u128 = 6_000;

/// What a trial leaves behind.
pub struct TrialOutput {
    pub records: Vec<TrialRecord>,
    pub samples: Vec<SampleRecord>,
    pub timeline: Vec<TimelineEvent>,
    /// Something broke that the next trial would meet again: the fabric is gone.
    pub lab_broken: Option<String>,
}

pub struct TrialInput<'a> {
    /// The results folder.
    pub directory: &'a Path,
    pub configuration: &'a Configuration,
    pub jobs: &'a [StepJob<'a>],
    pub trial: u32,
    pub key: &'a str,
    pub first_task: u64,
    /// For the progress line: `trial 2/5`.
    pub label: String,
}

struct Watch<'a> {
    input: &'a TrialInput<'a>,
    /// `None`: the hosts are real, and nothing between them is ours.
    lab: Option<&'a mut Lab>,
    progress: &'a mut Progress,
    trial_start: Option<Instant>,
    until: Instant,
    step_start: Vec<Option<Instant>>,
    /// Lateness histograms at the start and the end of each step.
    lateness: Vec<(Vec<u64>, Vec<u64>)>,
    injector: Injector<'a>,
    captures: Captures<'a>,
    injected: Vec<Occurrence>,
    /// Orders to hosts' processes, in the order of their times.
    orders: VecDeque<Due>,
    /// Hosts whose processes stand still.
    paused: Vec<String>,
    broken: Option<String>,
    timeline: Vec<TimelineEvent>,
}

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
        (0..LATENESS_BUCKETS).map(|bucket| page.get(LATENESS_START + bucket)).collect()
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
        self.injected.extend(batch.occurrences);
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

    /// Carries out what a fault does to the processes of a host, and notes when it was done.
    fn obey(&mut self, due: &Due, fleet: &mut Fleet) {
        let host = self.input.configuration.topology.hosts[due.host].name.clone();
        let (signal, event, verb) = match due.order {
            Order::Pause(_) => (Signal::Stop, "fault-start", "begins"),
            Order::Resume => (Signal::Continue, "fault-end", "ends"),
            Order::Kill => (Signal::Kill, "fault-start", "begins"),
        };
        let there = fleet.signal(&host, signal);
        let done = weir_sys::clock::monotonic();
        self.paused.retain(|paused| *paused != host);
        if there && signal == Signal::Stop {
            self.paused.push(host.clone());
        }
        let but = if there { "" } else { ", but there was no process" };
        let text = format!("fault {} on {}: {} {verb}{but}", due.fault, host, due.what);
        self.event(done, event, None, text);
        if let Some(event) = self.timeline.last_mut() {
            event.data.insert("fault".to_owned(), (*due.fault).into());
            event.data.insert("on".to_owned(), (*due.on).into());
            event.data.insert("host".to_owned(), host.into());
        }
    }

    /// Ends what the step captures, if it still does.
    fn end_capture(&mut self, step: usize, at: Instant) {
        if let Some(lab) = self.lab.as_deref_mut()
            && let Some(said) = self.captures.end(lab, step)
        {
            self.event(at, said.event, Some(step), said.text);
        }
    }

    fn event(&mut self, at: Instant, event: &str, step: Option<usize>, text: String) {
        self.timeline.push(TimelineEvent {
            at_ns: at.as_ns(),
            utc: utc_of(at),
            event: event.to_owned(),
            configuration: Some(self.input.configuration.id.clone()),
            trial: Some(self.input.trial),
            step: step.map(|index| self.input.configuration.steps[index].name.clone()),
            trial_ns: self.trial_start.map(|start| offset_ns(at, start)),
            text,
            data: serde_json::Map::new(),
        });
    }
}

impl Observer for Watch<'_> {
    fn trial_starts(&mut self, at: Instant) {
        self.trial_start = Some(at);
        // Faults that repeat are scheduled for as long as the trial could take, and forgotten when it ends.
        let planned: Duration = self.input.jobs.iter().map(|job| job.estimate.duration).sum();
        self.until = at + planned * 2 + Duration::from_secs(60);
        self.inject(None, at);
        self.event(at, "trial-start", None, format!("trial {} starts", self.input.trial));
    }

    fn step_starts(&mut self, step: usize, at: Instant) {
        self.step_start[step] = Some(at);
        self.lateness[step].0 = self.lateness_now();
        self.inject(Some(step), at);
        let name = self.input.jobs[step].name;
        self.event(at, "step-start", Some(step), format!("step {name} starts"));
        let trial_start = self.trial_start.unwrap_or(at);
        if let Some(lab) = self.lab.as_deref_mut()
            && let Some(said) = self.captures.begin(lab, step, trial_start)
        {
            self.event(at, said.event, Some(step), said.text);
        }
        self.progress.begin(format!("{}  {name}", self.input.label));
    }

    fn step_ended(&mut self, step: usize, result: &StepResult) {
        self.lateness[step].1 = self.lateness_now();
        let at = result.ended.unwrap_or_else(weir_sys::clock::monotonic);
        let text = match &result.failure {
            Some(reason) => format!("step {} failed: {reason}", self.input.jobs[step].name),
            None => format!("step {} ended", self.input.jobs[step].name),
        };
        self.event(at, if result.failure.is_some() { "step-failed" } else { "step-end" }, Some(step), text);
        self.end_capture(step, at);
        self.progress.end(self.input.jobs[step].estimate.duration);
    }

    fn progress(&mut self, step: usize, done: u64, now: Instant) {
        let elapsed = self.step_start[step].map_or(Duration::ZERO, |start| now.since(start));
        self.progress.moved(step, done, now, elapsed, self.input.jobs[step].estimate.duration);
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
        }
        while self.orders.front().is_some_and(|due| due.at <= now) {
            let Some(due) = self.orders.pop_front() else { break };
            self.obey(&due, fleet);
        }
        self.orders.front().map(|due| due.at)
    }

    fn broken(&mut self) -> Option<String> {
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

fn offset_ns(at: Instant, start: Instant) -> i64 {
    (i128::from(at.as_ns()) - i128::from(start.as_ns())).clamp(i128::from(i64::MIN), i128::from(i64::MAX))
        as i64
}

/// Samplers of everything around the workload, at intervals that keep a long trial's series bounded.
fn samplers(lab: Option<&Lab>, fleet: &Fleet, input: &TrialInput<'_>) -> Vec<(Duration, Box<dyn Sampler>)> {
    // What this machine does says nothing of hosts elsewhere.
    let Some(lab) = lab else { return Vec::new() };
    let planned: Duration = input.jobs.iter().map(|job| job.estimate.duration).sum();
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
    all
}

/// Carries out one trial and makes its records.
pub fn run(
    input: &TrialInput<'_>,
    mut lab: Option<&mut Lab>,
    fleet: &mut Fleet,
    progress: &mut Progress,
) -> TrialOutput {
    let schedule = Schedule::start("machine", samplers(lab.as_deref(), fleet, input));
    let count = input.jobs.len();
    let mut watch = Watch {
        input,
        lab: lab.as_deref_mut(),
        progress,
        trial_start: None,
        until: Instant::NEVER,
        step_start: vec![None; count],
        lateness: vec![(Vec::new(), Vec::new()); count],
        injector: Injector::new(&input.configuration.faults),
        captures: Captures::new(input.directory, input.configuration, input.trial),
        injected: Vec::new(),
        orders: VecDeque::new(),
        paused: Vec::new(),
        broken: None,
        timeline: Vec::new(),
    };
    let results = run_trial(fleet, input.jobs, input.key, input.first_task, &mut watch);
    for host in std::mem::take(&mut watch.paused) {
        fleet.signal(&host, Signal::Continue);
    }
    let ended = weir_sys::clock::monotonic();
    // A trial that broke off has steps that never ended.
    for step in 0..input.jobs.len() {
        watch.end_capture(step, ended);
    }
    watch.event(ended, "trial-end", None, format!("trial {} ends", input.trial));
    let (lateness, injected, mut timeline) = (watch.lateness, watch.injected, watch.timeline);
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
    for occurrence in happened.iter().filter(|it| !it.by_orders) {
        timeline.extend(ground_truth(occurrence, input, trial_start));
    }
    let clocks = own_clocks(input, fleet, trial_start, ended);
    timeline.extend(clocks.iter().map(|(host, clock)| clock_event(host, clock, input, trial_start, ended)));
    timeline.sort_by_key(|event| event.at_ns);
    let mut output = TrialOutput { records: Vec::new(), samples: Vec::new(), timeline, lab_broken };
    for (index, result) in results.into_iter().enumerate() {
        let (before, after) = lateness[index].clone();
        let edges = (!before.is_empty() && !after.is_empty()).then_some((before, after));
        record_step(input, index, result, trial_start, &series, &happened, edges, &mut output);
    }
    for record in &mut output.records {
        record.rows.extend(clocks.iter().flat_map(|(host, clock)| clock_rows(host, clock)));
    }
    output
}

/// Clocks over the trial of those of its hosts that have one of their own.
fn own_clocks(input: &TrialInput<'_>, fleet: &Fleet, from: Instant, to: Instant) -> Vec<(String, ClockMap)> {
    let pairs = input.jobs.iter().flat_map(|job| &job.pairs);
    let hosts: BTreeSet<&String> = pairs.flat_map(|(from, to)| [&from.host, &to.host]).collect();
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

fn ground_truth(it: &Occurrence, input: &TrialInput<'_>, trial_start: Instant) -> [TimelineEvent; 2] {
    [("fault-start", it.start, "begins"), ("fault-end", it.end, "ends")].map(|(event, at, verb)| {
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
    })
}

/// The steady state of a step: from `after` its start on and, where its duration is bounded, before its planned end.
fn steady_window(after: Duration, estimate: Estimate, whole: Window) -> Window {
    let start_ns = whole.start_ns + i64::try_from(after.as_nanos()).unwrap_or(0);
    let planned_end = whole.start_ns + i64::try_from(estimate.duration.as_nanos()).unwrap_or(i64::MAX / 2);
    let end_ns = if estimate.duration_bounded { planned_end.min(whole.end_ns) } else { whole.end_ns };
    Window { start_ns: start_ns.min(end_ns), end_ns }
}

#[allow(clippy::too_many_arguments)] // one caller; a struct would only move the list
fn record_step(
    input: &TrialInput<'_>,
    index: usize,
    mut result: StepResult,
    trial_start: Instant,
    series: &[Series],
    happened: &[Occurrence],
    lateness: Option<(Vec<u64>, Vec<u64>)>,
    output: &mut TrialOutput,
) {
    let (step, job) = (&input.configuration.steps[index], &input.jobs[index]);
    let start = result.started.unwrap_or(trial_start);
    let whole = Window {
        start_ns: offset_ns(start, trial_start),
        end_ns: offset_ns(result.ended.unwrap_or(start), trial_start),
    };
    for outcome in &mut result.outcomes {
        to_trial_clock(&mut outcome.series, trial_start);
    }
    let of_hosts = take_host_series(&mut result);
    let of_step: Vec<FaultWindow> = happened
        .iter()
        .filter(|it| {
            let (fault, part) = it.part;
            input.configuration.faults[fault].parts[part].affected.concerns(&step.pairs)
        })
        .map(|it| FaultWindow {
            name: it.fault.to_string(),
            start_ns: offset_ns(it.start, trial_start),
            end_ns: offset_ns(it.end, trial_start),
        })
        .filter(|fault| fault.start_ns < whole.end_ns && fault.end_ns > whole.start_ns)
        .collect();
    let context = DeriveContext { values: &step.values, start_ns: whole.start_ns, faults: &of_step };
    let derived = job.workload.derive(&context, &result.outcomes);
    let measured = Measured {
        topology: &input.configuration.topology,
        pairs: &step.pairs,
        // Many flows take a while to share out; only those that try to fill the path need it.
        ceiling_bits_per_second: derived.transport.and_then(|_| total_ceiling(input.configuration, step)),
        whole,
        steady: steady_window(step.steady_after(), job.estimate, whole),
        series,
        of_hosts: &of_hosts,
        faults: &of_step,
        outcomes: &result.outcomes,
        lateness,
        core_count: core_count(),
    };
    let factor = limiting_factor(&measured.facts(&derived, input.configuration.hosts.is_none()));
    let not_granted =
        result.outcomes.iter().flat_map(|outcome| other_congestion(&outcome.host, &outcome.granted));
    let not_granted: BTreeSet<String> = not_granted.collect();
    output.timeline.extend(derived.warnings.into_iter().chain(not_granted).map(|text| TimelineEvent {
        at_ns: start.as_ns(),
        utc: utc_of(start),
        event: "warning".to_owned(),
        configuration: Some(input.configuration.id.clone()),
        trial: Some(input.trial),
        step: Some(step.name.clone()),
        trial_ns: Some(whole.start_ns),
        text: format!("{}: {text}", step.point),
        data: serde_json::Map::new(),
    }));
    let mut rows: Vec<Row> = result.outcomes.iter().flat_map(|outcome| outcome.rows.clone()).collect();
    rows.extend(derived.rows);
    rows.extend(measured.rows());
    let failures = result
        .outcomes
        .iter()
        .flat_map(|it| it.failures.iter().map(|text| format!("host {}: {text}", it.host)));
    let reason = result.failure.clone().or(derived.invalid).or_else(|| failures.clone().next());
    let mut granted = serde_json::Map::new();
    for outcome in &mut result.outcomes {
        granted.append(&mut outcome.granted);
    }
    let sample = |series: Series| SampleRecord {
        point: step.point.clone(),
        trial: input.trial,
        step: step.name.clone(),
        series,
    };
    let own = result.outcomes.iter_mut().flat_map(|outcome| std::mem::take(&mut outcome.series));
    output.samples.extend(own.chain(derived.series).map(sample));
    let around = series.iter().chain(&of_hosts);
    output.samples.extend(around.filter_map(|all| cut(all, whole)).map(sample));
    output.records.push(TrialRecord {
        point: step.point.clone(),
        configuration: input.configuration.id.clone(),
        step: step.name.clone(),
        trial: input.trial,
        valid: reason.is_none(),
        reason,
        start_ns: whole.start_ns,
        end_ns: whole.end_ns,
        limiting_factor: factor,
        rows,
        granted,
    });
}

/// What a host's flows use instead of the congestion control that they were to use, in words.
fn other_congestion<'a>(
    host: &'a str,
    granted: &'a serde_json::Map<String, serde_json::Value>,
) -> impl Iterator<Item = String> + 'a {
    granted.values().filter_map(move |of_flow| {
        let (asked, has) = (of_flow.get("asked_congestion")?.as_str()?, of_flow.get("congestion")?.as_str()?);
        Some(format!(
            "host {host}: congestion control {asked} is for the privileged there and {has} was used; add it to \
             net.ipv4.tcp_allowed_congestion_control, or ask for {has} (tcp.congestion)"
        ))
    })
}

/// Takes what samplers gathered on the hosts out of the outcomes. A host that has two parts in a step was watched twice, and
/// the first is kept.
fn take_host_series(result: &mut StepResult) -> Vec<Series> {
    let mut known = BTreeSet::new();
    let mut taken = Vec::new();
    for outcome in &mut result.outcomes {
        let (of_host, own) =
            std::mem::take(&mut outcome.series).into_iter().partition(|it| it.entity.starts_with("host."));
        outcome.series = own;
        let fresh: Vec<Series> = of_host;
        let new = |series: &Series| known.insert((series.entity.clone(), series.name.clone()));
        taken.extend(fresh.into_iter().filter(new));
    }
    taken
}

/// The part of a series that belongs to a step; `None` when it says nothing: a counter that stood still.
fn cut(series: &Series, window: Window) -> Option<Series> {
    let first = series.t_ns.partition_point(|t| *t < window.start_ns);
    // A step that broke off before its start has a window that ends before it begins.
    let end = series.t_ns.partition_point(|t| *t <= window.end_ns).max(first);
    let value = &series.value[first..end];
    let idle = value.iter().all(|it| it.to_bits() == value[0].to_bits());
    let silent = idle && (series.cumulative || series.name.starts_with("port."));
    (end > first && !silent).then(|| Series {
        t_ns: series.t_ns[first..end].to_vec(),
        value: value.to_vec(),
        ..Series { t_ns: Vec::new(), value: Vec::new(), ..series.clone() }
    })
}
