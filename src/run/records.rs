//! From what the agents gave back to the records of a trial's steps.

use crate::machine::core_count;
use crate::run::faults::Occurrence;
use crate::run::measure::{Measured, Window, to_trial_clock};
use crate::run::trial::{TrialInput, TrialOutput, offset_ns};
use std::collections::BTreeSet;
use std::time::Duration;
use weir_agent::job::StepResult;
use weir_core::Instant;
use weir_core::evidence::{Around, limiting_factor};
use weir_core::failure::{Failure, FailureRecord};
use weir_core::model::total_ceiling;
use weir_core::record::{LimitingFactor, Row, SampleRecord, Series, TrialRecord};
use weir_core::scenario::{Configuration, Step};
use weir_seams::sampler::SeriesView;
use weir_seams::workload::{DeriveContext, Estimate, FaultWindow};

/// Lateness of the fabric, by count and then by time, at the beginning and at the end of something; `None` without a fabric.
pub type Lateness = Option<(Vec<u64>, Vec<u64>)>;

/// What is known around the steps of a trial that is over.
pub struct Recorder<'a> {
    pub input: &'a TrialInput<'a>,
    pub trial_start: Instant,
    /// Of the machine and the links, on the trial's clock.
    pub series: &'a [Series],
    pub happened: &'a [Occurrence],
}

/// What came of one job: a step, or the turn of one of its pairs.
pub struct Taken {
    pub whole: Window,
    pub factor: LimitingFactor,
    /// The workload's, as its flows and the trial have them.
    pub rows: Vec<Row>,
    /// Of the links, the fabric and the machine around the job.
    pub around: Vec<Row>,
    /// Why it does not count, if so.
    pub reason: Option<String>,
    pub granted: serde_json::Map<String, serde_json::Value>,
    /// What failed, on the trial's clock, and how much did, what was not kept included.
    pub failures: Vec<Failure>,
    pub failure_count: u64,
    /// The workload's.
    pub own: Vec<Series>,
    /// Of samplers on the hosts.
    pub of_hosts: Vec<Series>,
    /// When each host's part began, ns.
    pub began_ns: Vec<u64>,
}

impl Recorder<'_> {
    /// The step as the job loaded it: with all of its pairs, or with one.
    pub fn take(&self, job: usize, step: &Step, mut result: StepResult, lateness: Lateness) -> Taken {
        let (input, turn) = (self.input, self.input.parts[job].turn);
        let job = &input.jobs[job];
        let whole = self.whole(&result, turn.is_some());
        for outcome in &mut result.outcomes {
            to_trial_clock(&mut outcome.series, self.trial_start);
        }
        let of_hosts = take_host_series(&mut result);
        let faults = self.faults_of(step, whole);
        let measured = Measured {
            topology: &input.configuration.topology,
            pairs: &speaking(input.configuration, step),
            // Many flows take a while to share out; only those that try to fill the path need it.
            ceiling_bits_per_second: step
                .fills_path
                .then(|| total_ceiling(input.configuration, step))
                .flatten(),
            whole,
            steady: steady_window(step.steady_after(), job.estimate, whole),
            series: self.series,
            of_hosts: &of_hosts,
            faults: &faults,
            outcomes: &result.outcomes,
            lateness,
            core_count: core_count(),
        };
        let around = measured.around(input.configuration.hosts.is_none());
        let context = DeriveContext {
            values: &step.values,
            start_ns: whole.start_ns,
            faults: &faults,
            around: &around,
        };
        let derived = job.workload.derive(&context, &result.outcomes);
        let factor = limiting_factor(&around, &derived.load, &derived.candidates);
        // Of a turn the step has them, once for all.
        let around = if turn.is_none() { measured.rows() } else { Vec::new() };
        let mut rows: Vec<Row> = result.outcomes.iter().flat_map(|outcome| outcome.rows.clone()).collect();
        rows.extend(derived.rows);
        let reason = result.failure.clone().or(derived.invalid);
        let mut granted = serde_json::Map::new();
        let (mut own, mut failures, mut failure_count) = (Vec::new(), Vec::new(), 0);
        let origin_ns = i64::try_from(self.trial_start.as_ns()).unwrap_or(i64::MAX);
        for outcome in &mut result.outcomes {
            failure_count += outcome.failures.count();
            let of_host = std::mem::take(&mut outcome.failures).into_kept().into_iter();
            failures.extend(of_host.map(|failure| Failure {
                host: outcome.host.clone(),
                at_ns: failure.at_ns.saturating_sub(origin_ns),
                ..failure
            }));
            granted.append(&mut outcome.granted);
            own.append(&mut outcome.series);
        }
        own.extend(derived.series);
        let began_ns = result.outcomes.iter().map(|outcome| outcome.started_ns).collect();
        failures.sort_by_key(|failure| failure.at_ns);
        Taken {
            whole,
            factor,
            rows,
            around,
            reason,
            granted,
            failures,
            failure_count,
            own,
            of_hosts,
            began_ns,
        }
    }

    /// What a reader should know of a part of a step that has ended, in sentences.
    pub fn warnings(&self, job: usize, step: &Step, result: &StepResult) -> BTreeSet<String> {
        let whole = self.whole(result, self.input.parts[job].turn.is_some());
        let faults = self.faults_of(step, whole);
        let (values, start_ns) = (&step.values, whole.start_ns);
        let context = DeriveContext { values, start_ns, faults: &faults, around: &Around::default() };
        let derived = self.input.jobs[job].workload.derive(&context, &result.outcomes);
        let not_granted =
            result.outcomes.iter().flat_map(|outcome| other_congestion(&outcome.host, &outcome.granted));
        derived.warnings.into_iter().chain(not_granted).collect()
    }

    fn whole(&self, result: &StepResult, is_turn: bool) -> Window {
        let ended = result.ended.unwrap_or(self.trial_start);
        // A turn that never began has no length; a step that did not is told from the trial's start.
        let unbegun = if is_turn { ended } else { ended.min(self.trial_start) };
        self.window(result.started.unwrap_or(unbegun), ended)
    }

    pub fn window(&self, start: Instant, end: Instant) -> Window {
        Window { start_ns: offset_ns(start, self.trial_start), end_ns: offset_ns(end, self.trial_start) }
    }

    /// Faults that could touch the step's hosts within a stretch of time.
    pub fn faults_of(&self, step: &Step, whole: Window) -> Vec<FaultWindow> {
        let hosts: Vec<usize> = step.hosts().collect();
        self.happened
            .iter()
            .filter(|it| {
                let (fault, part) = it.part;
                self.input.configuration.faults[fault].parts[part].affected.concerns(&step.pairs, &hosts)
            })
            .map(|it| FaultWindow {
                name: it.fault.to_string(),
                start_ns: offset_ns(it.start, self.trial_start),
                end_ns: offset_ns(it.end, self.trial_start),
            })
            .filter(|fault| fault.start_ns < whole.end_ns && fault.end_ns > whole.start_ns)
            .collect()
    }

    /// The record of a step that was one job.
    pub fn step(&self, job: usize, result: StepResult, lateness: Lateness, output: &mut TrialOutput) {
        let step = &self.input.configuration.steps[self.input.parts[job].step];
        let taken = self.take(job, step, result, lateness);
        let mut rows = taken.rows;
        rows.extend(taken.around);
        let reason = taken.reason.or_else(|| taken.factor.unfit());
        self.samples(step, taken.whole, taken.own, &taken.of_hosts, output);
        self.failures(step, taken.failures, output);
        output.records.push(TrialRecord {
            point: step.point.clone(),
            configuration: self.input.configuration.id.clone(),
            step: step.name.clone(),
            trial: self.input.trial,
            valid: reason.is_none(),
            reason,
            start_ns: taken.whole.start_ns,
            end_ns: taken.whole.end_ns,
            limiting_factor: taken.factor,
            rows,
            pairs: Vec::new(),
            granted: taken.granted,
            failure_count: taken.failure_count,
        });
    }

    /// What failed in a step.
    pub fn failures(&self, step: &Step, failures: Vec<Failure>, output: &mut TrialOutput) {
        output.failures.extend(failures.into_iter().map(|failure| FailureRecord {
            point: step.point.clone(),
            trial: self.input.trial,
            step: step.name.clone(),
            failure,
        }));
    }

    /// The series of a step: its own, and of what is around it the part that belongs to it.
    pub fn samples(
        &self,
        step: &Step,
        whole: Window,
        own: Vec<Series>,
        of_hosts: &[Series],
        output: &mut TrialOutput,
    ) {
        let sample = |series: Series| SampleRecord {
            point: step.point.clone(),
            trial: self.input.trial,
            step: step.name.clone(),
            series,
        };
        output.samples.extend(own.into_iter().map(sample));
        let around = self.series.iter().chain(of_hosts);
        let within = |all: &Series| SeriesView::from(all).within(whole.start_ns, whole.end_ns);
        output.samples.extend(around.filter_map(within).map(sample));
    }
}

/// The steady state of a step: from `after` its start on and, where its duration is bounded, before its planned end.
fn steady_window(after: Duration, estimate: Estimate, whole: Window) -> Window {
    let start_ns = whole.start_ns + i64::try_from(after.as_nanos()).unwrap_or(0);
    let planned_end = whole.start_ns + i64::try_from(estimate.duration.as_nanos()).unwrap_or(i64::MAX / 2);
    let end_ns = if estimate.duration_bounded { planned_end.min(whole.end_ns) } else { whole.end_ns };
    Window { start_ns: start_ns.min(end_ns), end_ns }
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

/// Which hosts speak with each other: those that a step pairs, or each of its hosts with each of the services that it uses.
fn speaking(configuration: &Configuration, step: &Step) -> Vec<(usize, usize)> {
    if !step.pairs.is_empty() {
        return step.pairs.clone();
    }
    let used = configuration.services.iter().filter(|service| step.services.contains(&service.name));
    let of_services: BTreeSet<usize> = used.flat_map(|service| service.hosts()).collect();
    let hosts: BTreeSet<usize> = step.hosts().collect();
    let each = |host: usize| {
        of_services.iter().filter(move |other| **other != host).map(move |other| (host, *other))
    };
    hosts.into_iter().flat_map(each).collect()
}
