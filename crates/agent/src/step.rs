//! The run state machine: carries out the steps of one trial on a fleet of agents.
//!
//! waiting → preparing, stage by stage → ready → running → done. Steps follow each other or start at their own time;
//! a step whose agent is lost fails with the reason and the others go on. A step is one job, or several where its parts
//! fail by themselves: those that load together are a group.

use crate::clock::ClockMap;
use crate::fleet::{Event, Fleet};
use crate::job::{Interrupt, Observer, StepJob, StepResult};
use crate::message::{FromAgent, ToAgent};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use weir_core::Instant;
use weir_core::record::Series;
use weir_core::scenario::StepStart;
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_seams::workload::{Assignment, StepRequest};
use weir_sys::clock::monotonic;

/// From the order to the agreed instant: long enough for the order to reach every agent on a busy machine.
const START_LEAD: Duration = Duration::from_millis(40);
/// What a slow path to an agent may add to that.
const START_LEAD_MAX: Duration = Duration::from_secs(2);
const NO_CLOCK: &str = "its clock was never read: the agent answered no question about it";

enum Phase {
    Waiting,
    Preparing {
        stage: u8,
        pending: BTreeSet<u64>,
        deadline: Instant,
    },
    /// Prepared ahead of its time.
    Ready,
    Running {
        pending: BTreeSet<u64>,
        planned_end: Instant,
        moved: Instant,
        done: u64,
    },
    Done,
}

struct Running<'a> {
    job: &'a StepJob<'a>,
    phase: Phase,
    assignments: Vec<(u64, Assignment)>,
    addresses: BTreeMap<String, String>,
    /// Received and sent of each task.
    progress: BTreeMap<u64, [u64; 2]>,
    /// Of tasks whose host was lost since.
    progress_before: [u64; 2],
    /// Tasks whose host a fault has killed, and of these those that are prepared anew on a host that is back.
    away: BTreeSet<u64>,
    returning: BTreeSet<u64>,
    /// Why its hosts cannot have what they are to read.
    not_carried: Option<String>,
    result: StepResult,
    stopped: bool,
}

impl Running<'_> {
    /// Gives hosts elsewhere what they are to read.
    fn carry_inputs(&mut self, fleet: &mut Fleet, observer: &mut dyn Observer) {
        let inputs = self.job.workload.inputs(self.job.values);
        for (_, assignment) in &mut self.assignments {
            let elsewhere = !fleet.is_here(&assignment.host);
            for path in inputs.iter().filter(|_| elsewhere) {
                let mut stopped = || observer.interrupt() != Interrupt::None;
                match fleet.carry(&assignment.host, Path::new(path), &mut stopped) {
                    Ok(digest) => drop(assignment.inputs.insert(path.clone(), digest)),
                    Err(text) => {
                        let what =
                            format!("host {}: {path} could not be carried there: {text}", assignment.host);
                        return self.not_carried = Some(what);
                    }
                }
            }
        }
    }

    /// Takes what a host had to do out of a step that is under way, if the step outlives its hosts.
    fn goes_on_without(&mut self, host: &str) -> bool {
        let Phase::Running { pending, .. } = &mut self.phase else { return false };
        if !self.job.workload.outlives_hosts(self.job.values) {
            return false;
        }
        for (task, _) in self.assignments.iter().filter(|(_, assignment)| assignment.host == host) {
            // One that has ended already is not taken up again.
            if pending.remove(task) {
                self.away.insert(*task);
                let lost = self.progress.remove(task).unwrap_or_default();
                self.progress_before = added(self.progress_before, lost);
            }
            self.returning.remove(task);
        }
        true
    }
}

/// Carries out one trial. `key` is the run's secret (hexadecimal); task numbers start at `first_task` and must not be used
/// again with the same agents.
pub fn run_trial(
    fleet: &mut Fleet,
    jobs: &[StepJob<'_>],
    key: &str,
    first_task: u64,
    observer: &mut dyn Observer,
) -> Vec<StepResult> {
    let mut task = first_task;
    let mut steps: Vec<Running<'_>> = jobs
        .iter()
        .map(|job| {
            let (pairs, roles) = (job.pairs.clone(), job.roles.clone());
            let request =
                StepRequest { step: job.name, values: job.values, seed: job.seed, pairs, roles, key };
            let assignments = job
                .workload
                .assignments(&request)
                .into_iter()
                .map(|mut assignment| {
                    task += 1;
                    assignment.data_ports = job.data_ports.get(&assignment.host).copied();
                    (task, assignment)
                })
                .collect();
            Running {
                job,
                phase: Phase::Waiting,
                assignments,
                addresses: BTreeMap::new(),
                progress: BTreeMap::new(),
                progress_before: [0; 2],
                away: BTreeSet::new(),
                returning: BTreeSet::new(),
                not_carried: None,
                result: StepResult::default(),
                stopped: false,
            }
        })
        .collect();
    for step in &mut steps {
        step.carry_inputs(fleet, observer);
    }
    let begun = monotonic();
    fleet.begin_clocks(begun);
    fleet.read_clocks();
    let mut trial = Trial { fleet, observer, trial_start: None };
    trial.run(&mut steps);
    let (from, to) = (trial.trial_start.unwrap_or(begun), monotonic());
    fleet.read_clocks();
    let mut results: Vec<StepResult> = steps.into_iter().map(|step| step.result).collect();
    for result in &mut results {
        to_our_clock(fleet, result, from, to);
    }
    results
}

/// Moves what hosts timed by their own clocks to ours. What `derive` keeps to itself stays as it is: it holds only
/// differences within one host.
fn to_our_clock(fleet: &Fleet, result: &mut StepResult, from: Instant, to: Instant) {
    for outcome in &mut result.outcomes {
        let Some(clock) = fleet.clock_over(&outcome.host, from, to) else {
            result.failure.get_or_insert_with(|| format!("host {}: {NO_CLOCK}", outcome.host));
            continue;
        };
        if clock == ClockMap::SHARED {
            continue;
        }
        let ours = |ns: u64| u64::try_from(clock.to_ours_ns(i128::from(ns))).unwrap_or(0);
        outcome.started_ns = ours(outcome.started_ns);
        outcome.ended_ns = ours(outcome.ended_ns);
        for failure in outcome.failures.iter_mut() {
            failure.at_ns = clock.to_ours_ns(i128::from(failure.at_ns));
        }
        series_to_our_clock(clock, &mut outcome.series);
    }
}

fn series_to_our_clock(clock: ClockMap, series: &mut [Series]) {
    for t in series.iter_mut().flat_map(|series| &mut series.t_ns) {
        *t = clock.to_ours_ns(i128::from(*t));
    }
}

/// By group, whether all of its jobs are so.
fn groups(steps: &[Running<'_>], so: impl Fn(&Running<'_>) -> bool) -> Vec<bool> {
    let count = steps.iter().map(|step| step.job.group + 1).max().unwrap_or(0);
    let mut all = vec![true; count];
    for step in steps {
        all[step.job.group] &= so(step);
    }
    all
}

struct Trial<'a> {
    fleet: &'a mut Fleet,
    observer: &'a mut dyn Observer,
    trial_start: Option<Instant>,
}

impl Trial<'_> {
    fn run(&mut self, steps: &mut [Running<'_>]) {
        loop {
            self.begin_what_is_due(steps);
            if steps.iter().all(|step| matches!(step.phase, Phase::Done)) {
                return;
            }
            match self.observer.interrupt() {
                Interrupt::None => {}
                Interrupt::Drain => self.drain(steps),
                Interrupt::Now => {
                    for index in 0..steps.len() {
                        self.fail(steps, index, "stopped at once by the user".to_owned());
                    }
                    continue;
                }
            }
            if let Some(reason) = self.observer.broken() {
                for index in 0..steps.len() {
                    self.fail(steps, index, reason.clone());
                }
                continue;
            }
            self.check_deadlines(steps);
            let soon = monotonic() + Duration::from_millis(50);
            let next = self.observer.act(self.fleet).map_or(soon, |at| at.min(soon));
            if let Some((host, event)) = self.fleet.next(next) {
                match event {
                    Event::Said(FromAgent::Hello { .. }) => self.take_back(steps, &host),
                    Event::Said(message) => self.hear(steps, message),
                    Event::Lost(lost) => {
                        for index in 0..steps.len() {
                            if !steps[index].assignments.iter().any(|(_, it)| it.host == host) {
                                continue;
                            }
                            if lost.ordered && steps[index].goes_on_without(&host) {
                                self.end_if_done(steps, index);
                            } else {
                                self.fail(steps, index, format!("host {host}: {}", lost.reason));
                            }
                        }
                    }
                }
            }
        }
    }

    fn begin_what_is_due(&mut self, steps: &mut [Running<'_>]) {
        let done = groups(steps, |step| matches!(step.phase, Phase::Done));
        for index in 0..steps.len() {
            let due = match steps[index].job.start {
                StepStart::After(None) => true,
                StepStart::After(Some(before)) => done[before],
                // Connections are made before the trial's clock starts, so that the start itself is exact.
                StepStart::At(_) => true,
            };
            if due && matches!(steps[index].phase, Phase::Waiting) {
                self.prepare(steps, index, 0);
            }
        }
        // The trial's clock starts once everything that starts with it or at a fixed time is ready.
        let waits_for_clock = |step: &Running<'_>| !matches!(step.job.start, StepStart::After(Some(_)));
        if self.trial_start.is_none()
            && steps
                .iter()
                .filter(|step| waits_for_clock(step))
                .all(|step| matches!(step.phase, Phase::Ready | Phase::Done))
        {
            let at = monotonic() + self.start_lead(steps);
            self.trial_start = Some(at);
            self.observer.trial_starts(at);
        }
        let Some(trial_start) = self.trial_start else { return };
        let ready = groups(steps, |step| matches!(step.phase, Phase::Ready | Phase::Done));
        let mut starts: BTreeMap<usize, Instant> = BTreeMap::new();
        for index in 0..steps.len() {
            let job = steps[index].job;
            if !matches!(steps[index].phase, Phase::Ready) || !ready[job.group] {
                continue;
            }
            let at = match starts.get(&job.group) {
                Some(at) => *at,
                None => {
                    let soonest = monotonic() + self.start_lead(steps);
                    match job.start {
                        StepStart::At(offset) => (trial_start + offset).max(soonest),
                        StepStart::After(None) => trial_start,
                        StepStart::After(Some(_)) => soonest,
                    }
                }
            };
            starts.insert(job.group, at);
            self.start(steps, index, at);
        }
    }

    /// From the order to the agreed instant: longer where an order is longer on its way.
    fn start_lead(&self, steps: &[Running<'_>]) -> Duration {
        let hosts: BTreeSet<&String> =
            steps.iter().flat_map(|step| &step.assignments).map(|(_, assignment)| &assignment.host).collect();
        let clocks = hosts.into_iter().filter_map(|host| self.fleet.clock_now(host));
        // The uncertainty is half of a round trip.
        let longest_ns = clocks.map(|clock| clock.uncertainty_ns()).max().unwrap_or(0);
        START_LEAD + Duration::from_nanos(longest_ns.saturating_mul(4)).min(START_LEAD_MAX)
    }

    fn prepare(&mut self, steps: &mut [Running<'_>], index: usize, from_stage: u8) {
        if let Some(text) = steps[index].not_carried.take() {
            return self.fail(steps, index, text);
        }
        let step = &mut steps[index];
        let Some(stage) = step
            .assignments
            .iter()
            .map(|(_, assignment)| assignment.stage)
            .filter(|stage| *stage >= from_stage)
            .min()
        else {
            if from_stage == 0 {
                let text = "no host takes part in this step".to_owned();
                self.fail(steps, index, text);
            } else {
                step.phase = Phase::Ready;
            }
            return;
        };
        let mut pending = BTreeSet::new();
        let mut missing = None;
        for (task, assignment) in
            step.assignments.iter_mut().filter(|(_, assignment)| assignment.stage == stage)
        {
            assignment.peers = step.addresses.clone();
            if !self.fleet.is_up(&assignment.host) {
                missing = Some(assignment.host.clone());
            }
            pending.insert(*task);
            let order = ToAgent::Prepare { task: *task, assignment: Box::new(assignment.clone()) };
            self.fleet.tell(&assignment.host, &order);
        }
        step.phase =
            Phase::Preparing { stage, pending, deadline: monotonic() + step.job.estimate.bounds.prepare };
        if let Some(host) = missing {
            let why = self.fleet.why_gone(&host).unwrap_or("it has no agent").to_owned();
            self.fail(steps, index, format!("host {host}: {why}"));
        }
    }

    /// A host that a fault had killed is there again: what takes its part up again is prepared anew.
    fn take_back(&mut self, steps: &mut [Running<'_>], host: &str) {
        for step in steps {
            if !step.goes_on_without(host) {
                continue;
            }
            let Phase::Running { pending, .. } = &mut step.phase else { continue };
            for (task, assignment) in step.assignments.iter_mut().filter(|(_, it)| it.host == host) {
                if !step.away.remove(task) {
                    continue;
                }
                assignment.peers = step.addresses.clone();
                pending.insert(*task);
                step.returning.insert(*task);
                let order = ToAgent::Prepare { task: *task, assignment: Box::new(assignment.clone()) };
                self.fleet.tell(host, &order);
            }
        }
    }

    fn start(&mut self, steps: &mut [Running<'_>], index: usize, at: Instant) {
        let step = &mut steps[index];
        self.observer.step_starts(index, at);
        let mut unknown = None;
        for (task, assignment) in &step.assignments {
            let Some(clock) = self.fleet.clock_now(&assignment.host) else {
                unknown = Some(assignment.host.clone());
                continue;
            };
            let at_ns = clock.to_host(at).as_ns();
            let samplers = step.job.samplers.clone();
            self.fleet.tell(&assignment.host, &ToAgent::Start { task: *task, at_ns, samplers });
        }
        step.result.started = Some(at);
        step.phase = Phase::Running {
            pending: step.assignments.iter().map(|(task, _)| *task).collect(),
            planned_end: at + step.job.estimate.duration,
            moved: at,
            done: 0,
        };
        if let Some(host) = unknown {
            self.fail(steps, index, format!("host {host}: {NO_CLOCK}"));
        }
    }

    fn hear(&mut self, steps: &mut [Running<'_>], message: FromAgent) {
        let owner = |steps: &[Running<'_>], task: u64| {
            steps.iter().position(|step| {
                !matches!(step.phase, Phase::Done)
                    && step.assignments.iter().any(|(number, _)| *number == task)
            })
        };
        match message {
            FromAgent::Prepared { task, address } => {
                let Some(index) = owner(steps, task) else { return };
                let step = &mut steps[index];
                if let Some(address) = address {
                    let host =
                        step.assignments.iter().find(|(number, _)| *number == task).map(|(_, it)| &it.host);
                    step.addresses.insert(host.cloned().unwrap_or_default(), address);
                }
                if step.returning.remove(&task)
                    && let Some((_, assignment)) = step.assignments.iter().find(|(number, _)| *number == task)
                    && let (Some(started), Some(clock)) =
                        (step.result.started, self.fleet.clock_now(&assignment.host))
                {
                    let at_ns = clock.to_host(started).as_ns();
                    let samplers = step.job.samplers.clone();
                    self.fleet.tell(&assignment.host, &ToAgent::Start { task, at_ns, samplers });
                }
                if let Phase::Preparing { stage, pending, .. } = &mut step.phase {
                    pending.remove(&task);
                    if pending.is_empty() {
                        let next = *stage + 1;
                        self.prepare(steps, index, next);
                    }
                }
            }
            FromAgent::Heartbeat { progress, .. } => {
                for (task, received, sent) in progress {
                    let Some(index) = owner(steps, task) else { continue };
                    let step = &mut steps[index];
                    step.progress.insert(task, [received, sent]);
                    let [received, sent] = step.progress.values().copied().fold(step.progress_before, added);
                    // What is lost on the way is sent all the same: the step does not stand still.
                    let sum = received.saturating_add(sent);
                    let now = monotonic();
                    if let Phase::Running { moved, done, .. } = &mut step.phase
                        && sum > *done
                    {
                        (*moved, *done) = (now, sum);
                    }
                    self.observer.progress(index, received, now);
                }
            }
            FromAgent::Chunk { task, mut chunk } => {
                let Some(index) = owner(steps, task) else { return };
                let step = &steps[index];
                let host =
                    step.assignments.iter().find(|(number, _)| *number == task).map(|(_, it)| &it.host);
                // As the clock is known now: the trial's end, when it will be known better, may be hours away.
                if let Some(clock) = host.and_then(|host| self.fleet.clock_now(host)) {
                    chunk.start_ns = clock.to_ours_ns(i128::from(chunk.start_ns));
                    self.observer.chunk(index, *chunk);
                }
            }
            FromAgent::Series { task, mut series } => {
                let Some(index) = owner(steps, task) else { return };
                let of_task = steps[index].assignments.iter().find(|(number, _)| *number == task);
                if let Some(clock) = of_task.and_then(|(_, it)| self.fleet.clock_now(&it.host)) {
                    series_to_our_clock(clock, &mut series);
                    self.observer.series(index, series);
                }
            }
            FromAgent::Finished { task, outcome } => {
                let Some(index) = owner(steps, task) else { return };
                steps[index].result.outcomes.push(*outcome);
                if let Phase::Running { pending, .. } = &mut steps[index].phase {
                    pending.remove(&task);
                }
                self.end_if_done(steps, index);
            }
            FromAgent::Failed { task, error } => {
                let Some(index) = owner(steps, task) else { return };
                let host = steps[index]
                    .assignments
                    .iter()
                    .find(|(number, _)| *number == task)
                    .map(|(_, it)| &it.host);
                let text = format!("host {}: {error}", host.cloned().unwrap_or_default());
                self.fail(steps, index, text);
            }
            FromAgent::Refused { text } => {
                let text = shown(&text, SHOWN_BYTES_MAX);
                for index in 0..steps.len() {
                    self.fail(steps, index, format!("an agent refused an order: {text}"));
                }
            }
            // Heard before, or kept by the fleet.
            FromAgent::Hello { .. } | FromAgent::Clock { .. } | FromAgent::Input { .. } => {}
        }
    }

    fn drain(&mut self, steps: &mut [Running<'_>]) {
        for index in 0..steps.len() {
            match steps[index].phase {
                Phase::Running { .. } if !steps[index].stopped => {
                    steps[index].stopped = true;
                    for (task, assignment) in &steps[index].assignments {
                        self.fleet.tell(&assignment.host, &ToAgent::Stop { task: *task });
                    }
                    let now = monotonic();
                    if let Phase::Running { planned_end, moved, .. } = &mut steps[index].phase {
                        *planned_end = (*planned_end).min(now);
                        *moved = now;
                    }
                }
                Phase::Running { .. } | Phase::Done => {}
                Phase::Waiting | Phase::Preparing { .. } | Phase::Ready => {
                    self.fail(steps, index, "cut short by the user before it began".to_owned());
                }
            }
        }
    }

    fn check_deadlines(&mut self, steps: &mut [Running<'_>]) {
        let now = monotonic();
        for index in 0..steps.len() {
            let step = &steps[index];
            let late = match &step.phase {
                Phase::Preparing { pending, deadline, .. } if now > *deadline => Some((
                    pending,
                    format!("was not ready within {} s", step.job.estimate.bounds.prepare.as_secs()),
                )),
                Phase::Running { pending, planned_end, .. }
                    if (step.job.estimate.duration_bounded || step.stopped)
                        && now > *planned_end + step.job.estimate.bounds.drain =>
                {
                    Some((
                        pending,
                        format!(
                            "did not end within {} s of the planned end",
                            step.job.estimate.bounds.drain.as_secs()
                        ),
                    ))
                }
                Phase::Running { pending, moved, .. }
                    if !step.job.estimate.duration_bounded
                        && now > *moved + step.job.estimate.bounds.still =>
                {
                    let seconds = step.job.estimate.bounds.still.as_secs();
                    Some((pending, format!("moved nothing for {seconds} s")))
                }
                _ => None,
            };
            let Some((pending, what)) = late else { continue };
            let hosts: BTreeSet<String> = step
                .assignments
                .iter()
                .filter(|(task, _)| pending.contains(task))
                .map(|(_, assignment)| assignment.host.clone())
                .collect();
            let names = hosts.iter().cloned().collect::<Vec<_>>().join(", ");
            let text = format!("host {names}: step {} {what}", step.job.name);
            // Its threads may be stuck in the kernel; only a fresh agent is known to be clean.
            for host in &hosts {
                self.fleet.give_up(host, &text);
            }
            self.fail(steps, index, text);
        }
    }

    fn end_if_done(&mut self, steps: &mut [Running<'_>], index: usize) {
        if matches!(&steps[index].phase, Phase::Running { pending, .. } if pending.is_empty()) {
            self.end(steps, index);
        }
    }

    fn end(&mut self, steps: &mut [Running<'_>], index: usize) {
        let step = &mut steps[index];
        if step.stopped && step.result.failure.is_none() {
            step.result.failure = Some("cut short by the user".to_owned());
        }
        self.over(step, index);
    }

    fn fail(&mut self, steps: &mut [Running<'_>], index: usize, reason: String) {
        let step = &mut steps[index];
        if matches!(step.phase, Phase::Done) {
            return;
        }
        for (task, assignment) in &step.assignments {
            self.fleet.tell(&assignment.host, &ToAgent::Abort { task: *task });
        }
        step.result.failure = Some(reason);
        self.over(step, index);
    }

    fn over(&mut self, step: &mut Running<'_>, index: usize) {
        let now = monotonic();
        step.result.ended = Some(now);
        step.phase = Phase::Done;
        let own_clocks = step.result.outcomes.iter().any(|outcome| {
            self.fleet.clock_now(&outcome.host).is_some_and(|clock| clock != ClockMap::SHARED)
        });
        if !own_clocks {
            return self.observer.step_ended(index, &step.result);
        }
        // The result itself is moved to our clock when the trial is over and the clocks are known best.
        let mut result = step.result.clone();
        to_our_clock(self.fleet, &mut result, self.trial_start.unwrap_or(now), now);
        self.observer.step_ended(index, &result);
    }
}

fn added(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0].saturating_add(other[0]), one[1].saturating_add(other[1])]
}
