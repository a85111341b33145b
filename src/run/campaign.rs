//! All trials of a plan, interleaved, each in its configuration's lab.

use crate::run::environment;
use crate::run::hosts::{self, HostsLauncher};
use crate::run::progress::Progress;
use crate::run::trial::{self, TrialInput, utc_of};
use anyhow::{Context, anyhow, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weir_agent::Fleet;
use weir_agent::launcher::LabLauncher;
use weir_agent::step::StepJob;
use weir_core::hosts::PortRange;
use weir_core::model;
use weir_core::record::{ConfigurationRecord, PlanRecord, StepRecord, TimelineEvent, TrialRecord};
use weir_core::scenario::{Configuration, Plan, RealHost, Step};
use weir_core::topology::Topology;
use weir_lab::Lab;
use weir_report::Writer;
use weir_seams::launcher::Launcher;
use weir_seams::workload::{Estimate, Peer, WorkloadEntry};

/// An agent says hello within this time of being started, also on a busy machine.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// A lab that is up, or real hosts, with agents.
struct Stage {
    topology: Topology,
    hosts: Option<Vec<RealHost>>,
    /// `None`: the hosts are real.
    lab: Option<Lab>,
    fleet: Fleet,
}

pub struct Campaign<'a> {
    plan: &'a Plan,
    workloads: &'static [WorkloadEntry],
    program: PathBuf,
    key: String,
    writer: Writer,
    stage: Option<Stage>,
    next_task: u64,
    /// Configuration of the ssh client instead of the user's own.
    pub ssh_configuration: Option<PathBuf>,
    pub records: Vec<TrialRecord>,
    pub warnings: Vec<String>,
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
    let entry = entry_of(workloads, step)?;
    let rtts = step.pairs.iter().filter_map(|(from, to)| configuration.topology.rtt(*from, *to));
    let rtt = rtts.max().unwrap_or_default();
    let estimate = entry.build.estimate(&step.values, step.pairs.len(), rtt);
    estimate.map_err(|error| anyhow!("step {}: {error}", step.name))
}

/// Planned time of all steps of all trials.
pub fn planned_time(workloads: &[WorkloadEntry], plan: &Plan) -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for configuration in &plan.configurations {
        for step in &configuration.steps {
            total += estimate(workloads, configuration, step)?.duration * plan.trials;
        }
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
        writer: Writer,
    ) -> anyhow::Result<Self> {
        writer.scenario_toml(&plan.resolved)?;
        writer.plan(&plan_record(plan))?;
        writer.metrics(&crate::registry::metrics())?;
        writer.environment(&environment::read(&[]))?;
        Ok(Campaign {
            plan,
            workloads,
            program,
            key,
            writer,
            stage: None,
            next_task: 1,
            ssh_configuration: None,
            records: Vec::new(),
            warnings: plan.warnings.clone(),
        })
    }

    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Carries out every trial. Returns early, with what was measured kept, when the user asks for it.
    ///
    /// Errors: the lab cannot be built, or results cannot be written. A trial that fails is a record, not an error.
    pub fn run(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        let count = self.plan.configurations.len();
        for trial in 0..self.plan.trials {
            // A B B A: what drifts over the run weighs on every variant alike.
            let order: Vec<usize> =
                if trial % 2 == 0 { (0..count).collect() } else { (0..count).rev().collect() };
            for index in order {
                if weir_sys::signal::interrupts() > 0 {
                    self.close();
                    return Ok(());
                }
                self.one_trial(index, trial, progress)?;
            }
        }
        self.close();
        Ok(())
    }

    fn close(&mut self) {
        if let Some(mut stage) = self.stage.take() {
            stage.fleet.disband();
        }
    }

    fn one_trial(&mut self, index: usize, trial: u32, progress: &mut Progress) -> anyhow::Result<()> {
        let configuration = &self.plan.configurations[index];
        self.prepare_stage(configuration)?;
        let Some(stage) = &mut self.stage else { bail!("the lab is not up") };
        let data_ports = hosts::data_ports(configuration.hosts.as_deref().unwrap_or_default());
        let jobs: Vec<StepJob<'_>> = configuration
            .steps
            .iter()
            .map(|step| job(self.workloads, configuration, step, &stage.fleet, &data_ports))
            .collect::<Result<_, _>>()?;
        let among = if self.plan.configurations.len() > 1 {
            format!("  {}", configuration.id)
        } else {
            String::new()
        };
        let input = TrialInput {
            configuration,
            jobs: &jobs,
            trial,
            key: &self.key,
            first_task: self.next_task,
            label: format!("trial {}/{}{among}", trial + 1, self.plan.trials),
        };
        // Enough numbers for every host of every step; they are never used again with these agents.
        self.next_task += 1 + (jobs.len() * configuration.topology.hosts.len().max(1) * 2) as u64;
        let output = trial::run(&input, stage.lab.as_mut(), &mut stage.fleet, progress);
        for event in &output.timeline {
            self.writer.timeline(event)?;
            // The same in every trial is said once.
            if event.event == "warning" && !self.warnings.contains(&event.text) {
                self.warnings.push(event.text.clone());
            }
        }
        for samples in &output.samples {
            self.writer.samples(samples)?;
        }
        for record in &output.records {
            if let Some(reason) = &record.reason {
                progress.say(&format!("  trial {} of {} does not count: {reason}", trial + 1, record.point));
                self.warnings.push(format!("trial {trial} of {} does not count: {reason}", record.point));
            }
            self.writer.trial(record)?;
        }
        self.records.extend(output.records);
        if let Some(reason) = output.lab_broken {
            progress.say(&format!("  the lab is built anew: {reason}"));
            self.stage = None;
        }
        Ok(())
    }

    /// Has the configuration's lab up and every agent it needs alive.
    fn prepare_stage(&mut self, configuration: &Configuration) -> anyhow::Result<()> {
        if self.stage.as_ref().is_some_and(|stage| {
            stage.topology != configuration.topology || stage.hosts != configuration.hosts
        }) {
            self.close();
        }
        let begins = self.stage.is_none();
        if begins && configuration.hosts.is_some() {
            let (topology, hosts) = (configuration.topology.clone(), configuration.hosts.clone());
            self.stage = Some(Stage { topology, hosts, lab: None, fleet: Fleet::default() });
        }
        if self.stage.is_none() {
            let options = weir_lab::Options { seed: self.plan.seed, exe: self.program.clone() };
            let lab = Lab::start(&configuration.topology, &options).context("the lab could not be built")?;
            self.writer.environment(&environment::read(lab.notes()))?;
            let topology = configuration.topology.clone();
            self.stage = Some(Stage { topology, hosts: None, lab: Some(lab), fleet: Fleet::default() });
        }
        let Some(stage) = &mut self.stage else { return Ok(()) };
        let mut wanted: Vec<usize> = configuration
            .steps
            .iter()
            .flat_map(|step| step.pairs.iter().flat_map(|(from, to)| [*from, *to]))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let names: Vec<String> = wanted.iter().map(|host| stage.topology.hosts[*host].name.clone()).collect();
        let launcher: Box<dyn Launcher + '_> = match &stage.lab {
            Some(lab) => {
                let namespace = |(host, name): (&usize, &String)| (name.clone(), lab.namespace(*host));
                let namespaces = wanted.iter().zip(&names).map(namespace).collect();
                Box::new(LabLauncher { program: self.program.clone(), namespaces })
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
            self.writer.environment(&hosts::environment(real, &stage.fleet))?;
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

fn job<'a>(
    workloads: &'static [WorkloadEntry],
    configuration: &Configuration,
    step: &'a Step,
    fleet: &Fleet,
    data_ports: &'a BTreeMap<String, PortRange>,
) -> anyhow::Result<StepJob<'a>> {
    let family = step.values.count("ip").unwrap_or(4);
    let real = configuration.hosts.as_deref().unwrap_or_default();
    let address = |host: usize| match real.get(host) {
        Some(real) => hosts::data_address(real, fleet, family).map_err(|text| anyhow!(text)),
        None => Ok(Topology::ipv4(host).into()),
    };
    let peer = |host: usize| -> anyhow::Result<Peer> {
        Ok(Peer { host: configuration.topology.hosts[host].name.clone(), address: address(host)? })
    };
    let pairs = step.pairs.iter().map(|(from, to)| Ok((peer(*from)?, peer(*to)?)));
    Ok(StepJob {
        name: &step.name,
        workload_name: &step.workload,
        workload: entry_of(workloads, step)?.build,
        values: &step.values,
        pairs: pairs.collect::<anyhow::Result<_>>()?,
        start: step.start.clone(),
        estimate: estimate(workloads, configuration, step)?,
        data_ports,
    })
}

fn plan_record(plan: &Plan) -> PlanRecord {
    let step_record = |configuration: &Configuration, step: &Step| {
        let name = |host: usize| configuration.topology.hosts[host].name.clone();
        StepRecord {
            name: step.name.clone(),
            workload: step.workload.clone(),
            point: step.point.clone(),
            parameters: step.parameters.iter().map(|(key, value)| (key.clone(), value.to_json())).collect(),
            pairs: step.pairs.iter().map(|(from, to)| [name(*from), name(*to)]).collect(),
            ceiling_bits_per_second: ceiling(configuration, step),
        }
    };
    PlanRecord {
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
            })
            .collect(),
    }
}

/// The framing ceiling of the sum of a step's flows, for workloads that fill a path.
pub fn ceiling(configuration: &Configuration, step: &Step) -> Option<f64> {
    (step.workload == "stream").then_some(())?;
    model::total_ceiling(configuration, step)
}
