//! Workload `path`: what the path between two hosts is like. Its hops with their round trips, the largest packet it takes, what it
//! does to the order of packets, and what TCP makes of it, each way.

mod answer;
mod ask;
mod found;
pub mod meeting;
pub mod metrics;
mod mtu;
mod outcome;
pub mod plan;
mod probe;
pub mod table;
#[cfg(test)]
mod tests;
mod transfer;

use crate::rendezvous::{self, ACCEPT, Flow};
use crate::stream::engine::wait_for_start;
use crate::threads::{self, Guard};
use answer::{Answerer, Turns};
use found::{Found, Received};
use meeting::Meeting;
use outcome::Report;
use plan::{FLOWS_MAX, PathPlan};
use probe::Prober;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;
use weir_core::Values;
use weir_core::metric::Metric;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};
use weir_sys::clock;

/// How long a flow may be without a word of the other end.
const SILENCE: Duration = Duration::from_secs(30);
/// A flow for each way: the first from who connects to who accepts.
pub const SENDS: &[bool] = &[true, false];

pub struct Path;

impl Workload for Path {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let (pair_count, rtt) = (shape.pairs, shape.rtt);
        let plan = PathPlan::from_values(values)?;
        rendezvous::flow_count(SENDS.len() as u64, pair_count, FLOWS_MAX)?;
        // Each way: some hops with their probes, twenty round trips, a few sizes, the train, and the transfer's slow start.
        let round_trips = 60 + 8 * u32::try_from(plan.probes).unwrap_or(u32::MAX);
        let duration = Duration::from_millis(1_500) + rtt.saturating_mul(round_trips);
        let bytes = Some(2 * plan.transfer_bytes * pair_count as u64);
        Ok(Estimate::about(duration, bytes))
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::TCP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        rendezvous::assignments("path", request, 1, SENDS)
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        outcome::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = PathPlan::from_values(&assignment.values)?;
        let (side, meetings) = meeting::prepare(assignment, &plan.tcp)?;
        let load = Load { plan, host: assignment.host.clone(), role: assignment.role.clone() };
        Ok(rendezvous::task(side, move |flows, control| run(&load, flows, meetings, control)))
    }
}

pub struct Load {
    pub plan: PathPlan,
    pub host: String,
    pub role: String,
}

/// Runs one end until every flow is described. `meetings` are by the index of the flow. Errors: aborted, or the machine refused
/// a thread.
pub fn run(
    load: &Load,
    flows: Vec<Flow>,
    meetings: BTreeMap<u32, Meeting>,
    control: &Control,
) -> Result<Outcome, WorkloadError> {
    let mut outcome = Outcome {
        granted: rendezvous::granted(&flows, &load.plan.tcp),
        ..rendezvous::outcome(&load.host, &load.role, control)
    };
    // The ways there are those that this end answers when it accepts; the ways back wait for them.
    let first = if load.role == ACCEPT { flows.iter().filter(|flow| !flow.spec.sends).count() } else { 0 };
    let end = End { plan: &load.plan, control, turns: &Turns::new(first), meetings: Mutex::new(meetings) };
    let reports =
        threads::each("weir-path", flows, control, |_| SILENCE, |flow, guard| end.run(flow, guard))?;
    outcome::assemble(&mut outcome, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}

struct End<'a> {
    plan: &'a PathPlan,
    control: &'a Control,
    turns: &'a Turns,
    meetings: Mutex<BTreeMap<u32, Meeting>>,
}

impl End<'_> {
    fn run(&self, flow: Flow, guard: &Guard) -> Report {
        let entity = flow.spec.entity.clone();
        let mut report = Report::default();
        let result = if flow.spec.sends {
            let mut found = Found { entity, ..Found::default() };
            let result = self.probe(&flow, guard, &mut found);
            report.found = Some(found);
            result
        } else {
            let mut received = Received { entity, ..Received::default() };
            let result = self.answer(&flow, guard, &mut received);
            self.turns.done();
            report.received = Some(received);
            result
        };
        if let Err(error) = result {
            let error = match self.control.stopping() {
                true => io::Error::other("ended before the path was described"),
                false => guard.explain(error),
            };
            let operation = if flow.spec.sends { "probe" } else { "answer" };
            report.failure = Some(flow.spec.failure(operation, &error));
            probe::give_up(&flow.stream);
        }
        report
    }

    fn meet(&self, flow: &Flow) -> io::Result<weir_transport::udp::Association> {
        threads::prepare(&flow.stream)?;
        let meeting = self.meetings.lock().ok().and_then(|mut all| all.remove(&flow.spec.index));
        let Some(meeting) = meeting else {
            return Err(io::Error::other("the flow was told of no place to meet: this is a bug of weir"));
        };
        meeting.meet(self.control)
    }

    fn probe(&self, flow: &Flow, guard: &Guard, found: &mut Found) -> io::Result<()> {
        let association = self.meet(flow)?;
        if !wait_for_start(self.control, self.control.start_at()) {
            return Ok(());
        }
        let prober = Prober { plan: self.plan, control: self.control, guard, turns: self.turns };
        prober.run(flow, &association, found)
    }

    fn answer(&self, flow: &Flow, guard: &Guard, received: &mut Received) -> io::Result<()> {
        let association = self.meet(flow)?;
        if !wait_for_start(self.control, self.control.start_at()) {
            return Ok(());
        }
        Answerer { plan: self.plan, control: self.control, guard }.run(flow, &association, received)
    }
}
