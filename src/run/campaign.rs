//! All trials of a plan, interleaved, each in its configuration's lab.

use crate::run::environment;
use crate::run::hosts::{self, HostsLauncher};
use crate::run::outlook;
use crate::run::progress::Progress;
use crate::run::resume;
use crate::run::seeds::TrialSeed;
use crate::run::services::{self, Up};
use crate::run::trial::{self, Part, TrialInput, Turn, utc_of};
use anyhow::{Context, anyhow, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weir_agent::Fleet;
use weir_agent::job::StepJob;
use weir_agent::launcher::{LabLauncher, Place};
use weir_core::hosts::PortRange;
use weir_core::record::{
    ConfigurationRecord, PlanRecord, RESULTS_SCHEMA, RoleRecord, StepRecord, TimelineEvent, TrialRecord,
};
use weir_core::scenario::order;
use weir_core::scenario::{Configuration, Plan, RealHost, Service, Step, StepStart};
use weir_core::topology::Topology;
use weir_core::{model, seed};
use weir_lab::Lab;
use weir_lab::data::RunFolder;
use weir_report::{INTERRUPTED, Interrupted, RunRecords, TrialSet, Writer};
use weir_seams::launcher::Launcher;
use weir_seams::workload::{Estimate, Peer, WorkloadEntry};
use weir_service::{Library, Running};

/// An agent says hello within this time of being started, also on a busy machine.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// Pairs that a warning names; more are counted.
const PAIRS_NAMED_MAX: usize = 4;

/// Trials that do not count of which the summary says why; more are counted.
const NOT_COUNTING_MAX: usize = 1_000;

/// A lab that is up, or real hosts, with agents.
struct Stage {
    topology: Topology,
    hosts: Option<Vec<RealHost>>,
    fleet: Fleet,
    /// What is up, and what was asked for.
    up: Up,
    services: Vec<Service>,
    /// `None`: the hosts are real.
    lab: Option<Lab>,
    /// Where hosts with services keep what they have.
    folder: Option<RunFolder>,
}

impl Stage {
    fn new(
        topology: Topology,
        hosts: Option<Vec<RealHost>>,
        lab: Option<Lab>,
        folder: Option<RunFolder>,
    ) -> Stage {
        let (fleet, up, services) = (Fleet::default(), Up::default(), Vec::new());
        Stage { topology, hosts, fleet, up, services, lab, folder }
    }
}

/// Where an agent of a host begins.
pub fn place_of(lab: &Lab, host: usize) -> Place<'_> {
    match lab.holder(host) {
        Some(holder) => Place::Host(holder),
        None => Place::Network(lab.namespace(host), lab.groups(host)),
    }
}

pub struct Campaign<'a> {
    plan: &'a Plan,
    workloads: &'static [WorkloadEntry],
    program: PathBuf,
    key: String,
    library: &'a Library,
    writer: Writer,
    /// As it was before anything began.
    environment: serde_json::Map<String, serde_json::Value>,
    stage: Option<Stage>,
    next_task: u64,
    /// Configuration of the ssh client instead of the user's own.
    pub ssh_configuration: Option<PathBuf>,
    /// Configuration and number of the trials that the folder holds already.
    finished: TrialSet,
    /// The folder has the environment of the run's begin; a resumed run says what changed instead of writing over it.
    environment_kept: bool,
    pub records: RunRecords,
    warnings: Vec<String>,
    /// Warnings that trials or pairs do not count, those included that there are too many of to be read.
    not_counting: usize,
}

/// The workload of a step; the plan was checked against the same registry.
fn entry_of<'a>(workloads: &'a [WorkloadEntry], step: &Step) -> anyhow::Result<&'a WorkloadEntry> {
    workloads
        .iter()
        .find(|entry| entry.name == step.workload)
        .with_context(|| format!("no workload {:?}", step.workload))
}

/// What a step will take, refused where its parameters contradict each other.
pub fn estimate(
    workloads: &[WorkloadEntry],
    configuration: &Configuration,
    step: &Step,
) -> anyhow::Result<Estimate> {
    if step.rounds.is_empty() {
        return estimate_of(workloads, configuration, step, &step.pairs);
    }
    // The rounds one after the other, each as long as its longest turn.
    let mut all: Option<Estimate> = None;
    for round in &step.rounds {
        let mut longest = Duration::ZERO;
        for pair in round {
            let own = estimate_of(workloads, configuration, step, &[step.pairs[*pair]])?;
            longest = longest.max(own.duration);
            let so_far = all.get_or_insert(Estimate { duration: Duration::ZERO, bytes: Some(0), ..own });
            so_far.bytes = so_far.bytes.zip(own.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        if let Some(so_far) = &mut all {
            so_far.duration = so_far.duration.saturating_add(longest);
        }
    }
    all.with_context(|| format!("step {}: no pair takes a turn", step.name))
}

/// What pairs of a step take that load together.
fn estimate_of(
    workloads: &[WorkloadEntry],
    configuration: &Configuration,
    step: &Step,
    pairs: &[(usize, usize)],
) -> anyhow::Result<Estimate> {
    let entry = entry_of(workloads, step)?;
    let rtts = pairs.iter().filter_map(|(from, to)| configuration.topology.rtt(*from, *to));
    let rtt = rtts.max().unwrap_or_default();
    let estimate = entry.build.estimate(&step.values, &step.shape(pairs, rtt));
    estimate.map_err(|error| anyhow!("step {}: {error}", step.name))
}

/// Planned time of all steps of all trials, but those that are `finished` already.
pub fn planned_time(
    workloads: &[WorkloadEntry],
    plan: &Plan,
    finished: &TrialSet,
) -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for configuration in &plan.configurations {
        let missing = (0..plan.trials).filter(|trial| !finished.contains(&configuration.id, *trial));
        let missing = missing.count() as u32;
        let parts: Vec<(&StepStart, Duration)> = configuration
            .steps
            .iter()
            .map(|step| anyhow::Ok((&step.start, estimate(workloads, configuration, step)?.duration)))
            .collect::<Result<_, _>>()?;
        total += outlook::length(&outlook::windows(parts)) * missing;
    }
    Ok(total)
}

impl<'a> Campaign<'a> {
    /// Checks every step's estimate and opens the results folder. Nothing is started yet.
    pub fn new(
        plan: &'a Plan,
        workloads: &'static [WorkloadEntry],
        program: PathBuf,
        key: String,
        library: &'a Library,
        writer: Writer,
    ) -> anyhow::Result<Self> {
        writer.scenario_toml(&plan.resolved)?;
        writer.plan(&plan_record(plan))?;
        writer.metrics(&crate::registry::metrics())?;
        writer.records(&crate::registry::records())?;
        writer.shown(&crate::registry::shown())?;
        let environment = environment::read(environment::WATCHED);
        writer.environment(&environment::with_lab(&environment, &[]))?;
        let warnings = planned_warnings(plan, &plan.not_judged);
        Ok(Campaign {
            warnings,
            ..Campaign::before(plan, workloads, program, key, library, writer, environment)
        })
    }

    /// Goes on with a run that was cut short, whose plan is this one (`resume::difference`). What its folder holds of trials
    /// that did not come to their end is cut away; the others stay as they are.
    pub fn resume(
        plan: &'a Plan,
        workloads: &'static [WorkloadEntry],
        program: PathBuf,
        key: String,
        library: &'a Library,
        mut interrupted: Interrupted,
    ) -> anyhow::Result<Self> {
        let finished = std::mem::take(&mut interrupted.finished);
        let mut warnings = planned_warnings(plan, &interrupted.plan.not_judged);
        warnings.append(&mut interrupted.lost);
        let mut not_counting = 0;
        interrupted.each_record(|record| {
            for warning in does_not_count(&record) {
                not_counting += 1;
                warnings.extend((not_counting <= NOT_COUNTING_MAX).then_some(warning));
            }
        })?;
        warnings.extend(interrupted.missing.take());
        let (before, has_definitions) = (interrupted.environment.take(), interrupted.has_definitions);
        let environment = environment::read(environment::WATCHED);
        let whole = environment::with_lab(&environment, &[]);
        let changes = before.as_ref().map(|before| resume::environment_changes(before, &whole));
        let changes = changes.unwrap_or_default();
        if !changes.is_empty() {
            warnings.push(format!(
                "the run was resumed on a machine that has changed since: {}",
                changes.join("; ")
            ));
        }
        let (mut writer, records) = interrupted.go_on()?;
        if !has_definitions {
            writer.metrics(&crate::registry::metrics())?;
        }
        if before.is_none() {
            warnings.push(
                "environment.json was missing: it says what the machine was like when the run was resumed"
                    .to_owned(),
            );
            writer.environment(&whole)?;
        }
        let now = weir_sys::clock::monotonic();
        let all = plan.configurations.len() * plan.trials as usize;
        let mut data = serde_json::Map::new();
        data.insert("kept".to_owned(), finished.len().into());
        data.insert("changed".to_owned(), changes.into());
        writer.timeline(&TimelineEvent {
            at_ns: now.as_ns(),
            utc: utc_of(now),
            event: "resumed".to_owned(),
            configuration: None,
            trial: None,
            step: None,
            trial_ns: None,
            text: format!("the run is resumed; {} of its {all} trials are there already", finished.len()),
            data,
        })?;
        let begun = Campaign::before(plan, workloads, program, key, library, writer, environment);
        let environment_kept = before.is_some();
        Ok(Campaign { finished, environment_kept, records, warnings, not_counting, ..begun })
    }

    /// Before its first trial, with nothing up.
    fn before(
        plan: &'a Plan,
        workloads: &'static [WorkloadEntry],
        program: PathBuf,
        key: String,
        library: &'a Library,
        writer: Writer,
        environment: serde_json::Map<String, serde_json::Value>,
    ) -> Self {
        Campaign {
            plan,
            workloads,
            program,
            key,
            library,
            records: RunRecords::new(writer.directory()),
            writer,
            environment,
            stage: None,
            next_task: 1,
            ssh_configuration: None,
            finished: TrialSet::default(),
            environment_kept: false,
            warnings: Vec::new(),
            not_counting: 0,
        }
    }

    /// What the summary should warn of.
    pub fn warnings(&mut self) -> Vec<String> {
        let more = self.not_counting.saturating_sub(NOT_COUNTING_MAX);
        let more =
            (more > 0).then(|| format!("{more} more trials or pairs do not count; trials.jsonl says why"));
        self.warnings.drain(..).chain(more).collect()
    }

    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Carries out every trial. Returns early, with what was measured kept, when the user asks for it.
    ///
    /// Errors: the lab cannot be built, or results cannot be written. A trial that fails is a record, not an error.
    pub fn run(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        for (index, trial) in order(self.plan) {
            if self.finished.contains(&self.plan.configurations[index].id, trial) {
                continue;
            }
            if weir_sys::signal::interrupts() > 0 {
                break;
            }
            self.one_trial(index, trial, progress)?;
        }
        self.close();
        Ok(())
    }

    fn close(&mut self) {
        self.stop_services();
        if let Some(mut stage) = self.stage.take() {
            stage.fleet.disband();
        }
    }

    /// Takes down what is up, and keeps what it logged.
    fn stop_services(&mut self) {
        let Some(stage) = &mut self.stage else { return };
        stage.services.clear();
        let Up { running, disks, .. } = std::mem::take(&mut stage.up);
        for mut running in running {
            running.take_down();
            let kept = services::keep(&running, self.writer.directory());
            self.warnings.extend(kept.err().map(|error| format!("{error:#}")));
            running.remove_folders();
        }
        drop(disks);
        if let Some(folder) = &stage.folder {
            services::remove_disks(folder.path());
        }
    }

    /// Has the services up that a configuration needs, and no others.
    fn prepare_services(&mut self, configuration: &Configuration) -> anyhow::Result<()> {
        let Some(stage) = &mut self.stage else { return Ok(()) };
        let lost = stage.up.running.iter_mut().find_map(Running::failed);
        if lost.is_some() || stage.services != configuration.services {
            self.warnings.extend(lost.map(|lost| format!("{lost}\n  it is started again")));
            self.stop_services();
            let Some(Stage { topology, lab: Some(lab), folder: Some(folder), services, up, .. }) =
                &mut self.stage
            else {
                return Ok(()); // what is given is there
            };
            *up = services::start(lab, topology, &configuration.services, self.library, folder.path())?;
            services.clone_from(&configuration.services);
        }
        // After a start too: content that clients have written is in their caches.
        let cold = services::cold(configuration);
        if let (Some(Stage { lab: Some(lab), up, .. }), false) = (&mut self.stage, cold.is_empty()) {
            // What does not come back fails its steps too; they say so.
            self.warnings.extend(up.reset_caches(lab, &cold).err());
        }
        Ok(())
    }

    fn one_trial(&mut self, index: usize, trial: u32, progress: &mut Progress) -> anyhow::Result<()> {
        let configuration = &self.plan.configurations[index];
        self.prepare_stage(configuration, trial)?;
        let Some(stage) = &mut self.stage else { bail!("the lab is not up") };
        let seed = TrialSeed::new(self.plan.seed, trial);
        let data_ports = hosts::data_ports(configuration.hosts.as_deref().unwrap_or_default());
        let (jobs, parts) = jobs(self.workloads, configuration, seed, &stage.fleet, &data_ports)?;
        let among = if self.plan.configurations.len() > 1 {
            format!("  {}", configuration.id)
        } else {
            String::new()
        };
        let input = TrialInput {
            program: &self.program,
            configuration,
            jobs: &jobs,
            parts: &parts,
            trial,
            seed,
            key: &self.key,
            first_task: self.next_task,
            label: format!("trial {}/{}{among}", trial + 1, self.plan.trials),
        };
        // Enough numbers for every host of every step; they are never used again with these agents.
        self.next_task += 1 + (jobs.len() * configuration.topology.hosts.len().max(1) * 2) as u64;
        let mut output = trial::run(
            &input,
            stage.lab.as_mut(),
            &mut stage.fleet,
            &mut stage.up,
            &mut self.writer,
            progress,
        );
        if let Some(error) = output.unwritten {
            return Err(error.into());
        }
        // Written before the trial itself: whatever becomes of this process, the trial is not taken for a whole one.
        if weir_sys::signal::interrupts() > 0 && output.records.iter().any(|record| !record.valid) {
            output.timeline.push(interrupted_event(configuration, trial));
        }
        for event in &output.timeline {
            self.writer.timeline(event)?;
            output.warnings.extend((event.event == "warning").then(|| event.text.clone()));
        }
        for warning in output.warnings {
            // The same in every trial is said once.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self.writer.failures(&output.failures)?;
        for samples in &output.samples {
            self.writer.samples(samples)?;
        }
        let places = self.writer.trial(&output.records)?;
        for warning in output.records.iter().flat_map(does_not_count) {
            progress.say(&format!("  {warning}"));
            self.not_counting += 1;
            self.warnings.extend((self.not_counting <= NOT_COUNTING_MAX).then_some(warning));
        }
        for (record, place) in output.records.into_iter().zip(places) {
            self.records.add(record, place);
        }
        if let Some(reason) = output.lab_broken {
            progress.say(&format!("  the lab is built anew: {reason}"));
            self.stage = None;
        }
        Ok(())
    }

    /// Has the configuration's lab up and every agent it needs alive.
    fn prepare_stage(&mut self, configuration: &Configuration, trial: u32) -> anyhow::Result<()> {
        if self.stage.as_ref().is_some_and(|stage| {
            stage.topology != configuration.topology || stage.hosts != configuration.hosts
        }) {
            self.close();
        }
        let begins = self.stage.is_none();
        if begins && configuration.hosts.is_some() {
            let (topology, hosts) = (configuration.topology.clone(), configuration.hosts.clone());
            self.stage = Some(Stage::new(topology, hosts, None, None));
        }
        if self.stage.is_none() {
            // A lab built anew draws other losses than the one before it: with one seed for all, a trial after every
            // rebuild, or after a resumption, would repeat the first and not be another observation.
            let seed =
                seed::split(self.plan.seed, &format!("lab of {} from trial {trial} on", configuration.id));
            let options = weir_lab::Options { seed, exe: self.program.clone() };
            let mut lab =
                Lab::start(&configuration.topology, &options).context("the lab could not be built")?;
            // Agents begin where services will be, so the hosts of all that may come are made now.
            let same = |other: &&Configuration| other.topology == configuration.topology;
            let places = services::places(self.plan.configurations.iter().filter(same));
            let folder = if places.is_empty() { None } else { Some(RunFolder::make()?) };
            if let Some(folder) = &folder {
                for host in places {
                    lab.hold(host, folder.path())?;
                }
            }
            if !self.environment_kept {
                self.writer.environment(&environment::with_lab(&self.environment, lab.notes()))?;
            }
            let topology = configuration.topology.clone();
            self.stage = Some(Stage::new(topology, None, Some(lab), folder));
        }
        self.prepare_services(configuration)?;
        let Some(stage) = &mut self.stage else { return Ok(()) };
        let mut wanted: Vec<usize> = configuration.steps.iter().flat_map(Step::hosts).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let names: Vec<String> = wanted.iter().map(|host| stage.topology.hosts[*host].name.clone()).collect();
        let launcher: Box<dyn Launcher + '_> = match &stage.lab {
            Some(lab) => {
                let place = |(host, name): (&usize, &String)| (name.clone(), place_of(lab, *host));
                let places = wanted.iter().zip(&names).map(place).collect();
                Box::new(LabLauncher { program: self.program.clone(), places })
            }
            None => {
                let configuration = self.ssh_configuration.clone();
                let real = stage.hosts.as_deref().unwrap_or_default();
                Box::new(HostsLauncher::new(real, self.program.clone(), configuration))
            }
        };
        let failed = stage.fleet.launch(&*launcher, &names, HELLO_MAX);
        if begins && let Some(real) = &stage.hosts {
            // Nothing was measured yet: a wrong address or an unknown key is mended before the run, not after it.
            if !failed.is_empty() {
                bail!(failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nweir: "));
            }
            stage.fleet.read_clocks();
            if !self.environment_kept {
                self.writer.environment(&hosts::environment(&self.environment, real, &stage.fleet))?;
            }
        }
        for error in failed {
            let now = weir_sys::clock::monotonic();
            self.writer.timeline(&TimelineEvent {
                at_ns: now.as_ns(),
                utc: utc_of(now),
                event: "agent-lost".to_owned(),
                configuration: Some(configuration.id.clone()),
                trial: None,
                step: None,
                trial_ns: None,
                text: error.to_string(),
                data: serde_json::Map::new(),
            })?;
            // The steps on this host will fail with the reason; the others go on.
            self.warnings.push(error.to_string());
        }
        Ok(())
    }
}

/// What the agents watch: on real hosts everything, in a lab what a namespace has of its own.
fn samplers(configuration: &Configuration) -> Vec<String> {
    let all: Vec<&str> = match configuration.hosts {
        Some(_) => weir_telemetry::SAMPLERS.iter().map(|entry| entry.name).collect(),
        None => weir_telemetry::OF_NAMESPACE.to_vec(),
    };
    all.into_iter().map(str::to_owned).collect()
}

/// The jobs of a configuration's steps, and what each of them is. A step whose pairs take turns is a job for each pair, a group
/// of them for each round.
fn jobs<'a>(
    workloads: &'static [WorkloadEntry],
    configuration: &'a Configuration,
    seed: TrialSeed,
    fleet: &Fleet,
    data_ports: &'a BTreeMap<String, PortRange>,
) -> anyhow::Result<(Vec<StepJob<'a>>, Vec<Part>)> {
    let (mut jobs, mut parts) = (Vec::new(), Vec::new());
    // Of each step, its last group.
    let mut last_groups: Vec<usize> = Vec::new();
    let mut group = 0;
    for (index, step) in configuration.steps.iter().enumerate() {
        let mut start = match step.start {
            StepStart::After(before) => StepStart::After(before.map(|before| last_groups[before])),
            StepStart::At(at) => StepStart::At(at),
        };
        let rounds: Vec<&[usize]> = match step.rounds.len() {
            0 => vec![&[]],
            _ => step.rounds.iter().map(Vec::as_slice).collect(),
        };
        for (round, pairs) in rounds.into_iter().enumerate() {
            let load = |pairs: &[(usize, usize)]| {
                let estimate = estimate_of(workloads, configuration, step, pairs)?;
                let peer = |host: usize| peer(configuration, step, host, fleet);
                let peers = pairs.iter().map(|(from, to)| Ok((peer(*from)?, peer(*to)?)));
                let roles = step.roles_of(pairs).into_iter().map(|(key, hosts)| {
                    Ok((key, hosts.iter().map(|host| peer(*host)).collect::<anyhow::Result<_>>()?))
                });
                anyhow::Ok(StepJob {
                    name: &step.name,
                    workload_name: &step.workload,
                    workload: entry_of(workloads, step)?.build,
                    values: &step.values,
                    seed: seed.step(&step.name),
                    pairs: peers.collect::<anyhow::Result<_>>()?,
                    roles: roles.collect::<anyhow::Result<_>>()?,
                    group,
                    start: start.clone(),
                    estimate,
                    data_ports,
                    samplers: samplers(configuration),
                })
            };
            if step.rounds.is_empty() {
                jobs.push(load(&step.pairs)?);
                parts.push(Part { step: index, turn: None });
            }
            for pair in pairs {
                jobs.push(load(&[step.pairs[*pair]])?);
                parts.push(Part { step: index, turn: Some(Turn { pair: *pair, round }) });
            }
            start = StepStart::After(Some(group));
            group += 1;
        }
        last_groups.push(group - 1);
    }
    Ok((jobs, parts))
}

/// A host by name and address.
fn peer(configuration: &Configuration, step: &Step, host: usize, fleet: &Fleet) -> anyhow::Result<Peer> {
    let v6 = step.values.count("ip") == Some(6);
    let real = configuration.hosts.as_deref().unwrap_or_default();
    let address = match real.get(host) {
        Some(real) => {
            hosts::data_address(real, fleet, if v6 { 6 } else { 4 }).map_err(|text| anyhow!(text))?
        }
        None if v6 => Topology::ipv6(host).into(),
        None => Topology::ipv4(host).into(),
    };
    let auxiliary = configuration.topology.auxiliary.map(|_| match v6 {
        true => Topology::auxiliary_ipv6(host).into(),
        false => Topology::auxiliary_ipv4(host).into(),
    });
    Ok(Peer { host: configuration.topology.hosts[host].name.clone(), address, auxiliary })
}

/// Trials in the order in which they are carried out, as indices of configurations and numbers of trials.
fn order(plan: &Plan) -> Vec<(usize, u32)> {
    let grouped = order::grouped(&plan.configurations);
    let of_trial = |trial| order::of_trial(&grouped, trial).into_iter().map(move |index| (index, trial));
    (0..plan.trials).flat_map(of_trial).collect()
}

/// What is known before anything is run. The resolved scenario of a short form lacks the criteria that it leaves out, so
/// those come from the plan that began the run.
fn planned_warnings(plan: &Plan, not_judged: &[String]) -> Vec<String> {
    let left_out = not_judged.iter().map(|text| format!("not judged in the short form: {text}"));
    plan.warnings.iter().cloned().chain(hosts::warning(plan)).chain(left_out).collect()
}

/// Said of a trial, or of turns of its pairs, that are kept and not averaged in: once for each reason.
fn does_not_count(record: &TrialRecord) -> Vec<String> {
    let head = format!("trial {} of {}", record.trial, record.point);
    if let Some(reason) = &record.reason {
        return vec![format!("{head} does not count: {reason}")];
    }
    let mut pairs_by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pair in &record.pairs {
        if let Some(reason) = &pair.failure {
            pairs_by_reason.entry(reason).or_default().push(&pair.entity);
        }
    }
    let said = |(reason, pairs): (&str, Vec<&str>)| {
        let named = pairs.iter().take(PAIRS_NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = match pairs.len().saturating_sub(PAIRS_NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let verb = if pairs.len() == 1 { "does" } else { "do" };
        format!("{head}: {named}{more} {verb} not count: {reason}")
    };
    pairs_by_reason.into_iter().map(said).collect()
}

fn interrupted_event(configuration: &Configuration, trial: u32) -> TimelineEvent {
    let now = weir_sys::clock::monotonic();
    TimelineEvent {
        at_ns: now.as_ns(),
        utc: utc_of(now),
        event: INTERRUPTED.to_owned(),
        configuration: Some(configuration.id.clone()),
        trial: Some(trial),
        step: None,
        trial_ns: None,
        text: format!("trial {trial} was cut short by the user; `weir run --resume` carries it out again"),
        data: serde_json::Map::new(),
    }
}

/// Hosts of each role by name; none of a step that pairs them.
fn placed_roles(configuration: &Configuration, step: &Step) -> Vec<RoleRecord> {
    let name = |host: &usize| configuration.topology.hosts[*host].name.clone();
    let placed = step.roles.iter().filter(|_| !step.is_paired);
    placed
        .map(|(role, hosts)| RoleRecord { role: (*role).to_owned(), hosts: hosts.iter().map(name).collect() })
        .collect()
}

pub fn plan_record(plan: &Plan) -> PlanRecord {
    let step_record = |configuration: &Configuration, step: &Step| {
        let name = |host: usize| configuration.topology.hosts[host].name.clone();
        StepRecord {
            name: step.name.clone(),
            workload: step.workload.clone(),
            point: step.point.clone(),
            parameters: step.parameters_json().into_iter().collect(),
            pairs: step.pairs.iter().map(|(from, to)| [name(*from), name(*to)]).collect(),
            roles: placed_roles(configuration, step),
            rounds: step.rounds.clone(),
            ceiling_bits_per_second: ceiling(configuration, step),
            steady_after_ns: weir_core::time::nanoseconds(step.steady_after()),
        }
    };
    PlanRecord {
        schema: RESULTS_SCHEMA.to_owned(),
        scenario: plan.name.clone(),
        about: plan.about.clone(),
        origin: plan.origin.clone(),
        scale: plan.scale.clone(),
        trials: plan.trials,
        trials_min: plan.trials_min,
        seed: plan.seed,
        configurations: plan
            .configurations
            .iter()
            .map(|configuration| ConfigurationRecord {
                id: configuration.id.clone(),
                case: configuration.case.clone(),
                topology: configuration.topology.clone(),
                steps: configuration.steps.iter().map(|step| step_record(configuration, step)).collect(),
                published: configuration.published.clone(),
            })
            .collect(),
        scenario_blake3: Some(weir_report::scenario_digest(&plan.resolved)),
        not_judged: plan.not_judged.clone(),
    }
}

/// The framing ceiling of the sum of a step's flows, for workloads that fill a path; of pairs that take turns in the round that
/// has the highest.
pub fn ceiling(configuration: &Configuration, step: &Step) -> Option<f64> {
    step.fills_path.then_some(())?;
    if step.rounds.is_empty() {
        return model::total_ceiling(configuration, step);
    }
    let mut highest: Option<f64> = None;
    for round in &step.rounds {
        let of_pair = |pair: &usize| model::total_ceiling(configuration, &step.of_pair(*pair));
        let sum = round.iter().map(of_pair).sum::<Option<f64>>()?;
        highest = Some(highest.map_or(sum, |highest| highest.max(sum)));
    }
    highest
}
