//! What a trial is made of: its steps as jobs, what comes of them, and who watches.

use crate::fleet::Fleet;
use std::collections::BTreeMap;
use weir_core::chunk::Chunk;
use weir_core::hosts::PortRange;
use weir_core::record::Series;
use weir_core::scenario::StepStart;
use weir_core::{Instant, Values};
use weir_seams::workload::{Estimate, Outcome, Peer, Workload};

/// A step, or a part of one that fails by itself, ready to be carried out.
pub struct StepJob<'a> {
    pub name: &'a str,
    pub workload_name: &'a str,
    pub workload: &'static dyn Workload,
    pub values: &'a Values,
    /// As of `StepRequest`.
    pub seed: u64,
    pub pairs: Vec<(Peer, Peer)>,
    /// Hosts of each role.
    pub roles: Vec<(&'static str, Vec<Peer>)>,
    /// Jobs of one group, numbered from 0 in the order of the jobs, start together once each of them is ready or has failed.
    pub group: usize,
    /// After which group, if after one.
    pub start: StepStart,
    pub estimate: Estimate,
    /// Where the tasks of a host may listen, by host name; any free port where nothing is said.
    pub data_ports: &'a BTreeMap<String, PortRange>,
    /// Samplers that each agent runs while its part of the step does.
    pub samplers: Vec<String>,
}

/// What came of a step.
#[derive(Clone, Debug, Default)]
pub struct StepResult {
    pub started: Option<Instant>,
    pub ended: Option<Instant>,
    pub outcomes: Vec<Outcome>,
    /// Why the step's trial does not count, if so.
    pub failure: Option<String>,
}

/// How far an interruption by the user has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interrupt {
    None,
    /// End the load, drain and keep what was measured.
    Drain,
    /// Stop at once.
    Now,
}

/// Whoever watches a trial and owns what surrounds it.
pub trait Observer {
    /// The trial's clock starts here; faults that count from it may be scheduled.
    fn trial_starts(&mut self, at: Instant);
    /// A step will start at `at`, a little in the future.
    fn step_starts(&mut self, step: usize, at: Instant);
    /// Times of `result` are on our clock, as well as the hosts' are known by now.
    fn step_ended(&mut self, step: usize, result: &StepResult);
    /// Bytes or operations of the step so far.
    fn progress(&mut self, step: usize, done: u64, now: Instant);
    /// A stretch of a fine series of the step, its beginning on our clock.
    fn chunk(&mut self, _step: usize, _chunk: Chunk) {}
    /// What samplers on a host have gathered meanwhile beside the step, on our clock. It comes again with the step's result.
    fn series(&mut self, _step: usize, _series: Vec<Series>) {}
    fn interrupt(&mut self) -> Interrupt;
    /// Does to the agents what is due by now; when it has more to do, if it knows.
    fn act(&mut self, _fleet: &mut Fleet) -> Option<Instant> {
        None
    }
    /// Something around the trial broke (the fabric, the disk under the results): the reason to give up the trial.
    fn broken(&mut self) -> Option<String>;
}
