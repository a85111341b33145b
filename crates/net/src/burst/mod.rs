//! Workload `burst`: transfers of a given size, each timed by itself, on many flows at the same moments.

pub mod ends;
pub mod metrics;
pub mod outcome;
pub mod plan;
#[cfg(test)]
mod tests;

use crate::door::{self, Link};
use crate::rendezvous::{self, Flow, Side};
use crate::threads;
use ends::End;
use plan::{BURSTS_MAX, BurstPlan, FLOWS_MAX};
use std::collections::BTreeMap;
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

pub struct Burst;

impl Workload for Burst {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let (pair_count, rtt) = (shape.pairs, shape.rtt);
        let plan = BurstPlan::from_values(values)?;
        let flows = rendezvous::flow_count(plan.streams, pair_count, FLOWS_MAX)?;
        let bursts = plan.bursts().saturating_mul(flows);
        if bursts > BURSTS_MAX {
            return Err(WorkloadError::new(format!(
                "{bursts} bursts on {flows} flows; at most {BURSTS_MAX} are possible"
            )));
        }
        let total = plan.size_bytes.saturating_mul(bursts);
        // How fast they will go is what the step is to find out; a 1 Gbit/s path is as good a guess as any.
        let one = plan.size_bytes.saturating_mul(flows) as f64 * 8.0 / 1e9 + rtt.as_secs_f64();
        let seconds = match plan.planned() {
            Some(planned) => planned.as_secs_f64() + one,
            None => one * plan.bursts() as f64,
        };
        Ok(Estimate::about(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX), Some(total)))
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::TCP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The values were checked by `estimate`; what is refused there gets no assignments.
        BurstPlan::from_values(request.values).map_or_else(
            |_| Vec::new(),
            |plan| rendezvous::assignments("burst", request, plan.streams, &[true]),
        )
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        outcome::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let mut plan = BurstPlan::from_values(&assignment.values)?;
        // Connections made later are as the flow's own: where weir has no privileges the record has what was granted.
        plan.tcp.or_as_allowed = true;
        let (side, links) = if plan.connection.made_within() {
            door::prepare(assignment, &plan.tcp)?
        } else {
            (Side::prepare(assignment, &plan.tcp)?, BTreeMap::new())
        };
        let load =
            Load { plan, host: assignment.host.clone(), role: assignment.role.clone(), silence: SILENCE };
        Ok(rendezvous::task(side, move |flows, control| run(&load, flows, links, control)))
    }
}

/// How long nothing may move on a flow, the pauses between bursts apart: TCP mends an outage of some seconds by itself.
pub const SILENCE: Duration = Duration::from_secs(60);

pub struct Load {
    pub plan: BurstPlan,
    pub host: String,
    pub role: String,
    pub silence: Duration,
}

/// Runs one end from the agreed start until every flow is done. `links` are by the index of the flow; one without goes on the
/// flow's own connection.
pub fn run(
    load: &Load,
    flows: Vec<Flow>,
    links: BTreeMap<u32, Link>,
    control: &Control,
) -> Result<Outcome, WorkloadError> {
    let mut outcome = Outcome {
        granted: rendezvous::granted(&flows, &load.plan.tcp),
        ..rendezvous::outcome(&load.host, &load.role, control)
    };
    let links = Mutex::new(links);
    let limit = |_: &Flow| load.silence + load.plan.every.unwrap_or_default();
    let reports = threads::each("weir-burst", flows, control, limit, |flow, guard| {
        let link = links.lock().ok().and_then(|mut links| links.remove(&flow.spec.index));
        let end = End { plan: &load.plan, control, guard };
        end.run(flow, link.as_ref())
    })?;
    outcome::assemble(&mut outcome, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}
