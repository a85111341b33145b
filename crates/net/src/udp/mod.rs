//! Workload `udp`: paced datagrams one way; what of them is lost, comes twice, late or out of order.

pub mod account;
pub mod ends;
pub mod outcome;
pub mod plan;
#[cfg(test)]
mod tests;

use crate::latency::pingpong::Until;
use crate::rendezvous::{self, Flow, Side};
use crate::threads;
use ends::End;
use plan::{FLOWS_MAX, UdpPlan};
use weir_core::Values;
use weir_core::metric::Metric;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_seams::workload::{
    Assignment, Bounds, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};
use weir_sys::clock;
use weir_transport::udp::Association;

pub struct Udp;

impl Workload for Udp {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        outcome::METRICS
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let plan = UdpPlan::from_values(values)?;
        let flows = rendezvous::flow_count(plan.flows_per_pair(), shape.pairs, FLOWS_MAX)?;
        let datagrams = plan.planned().as_secs_f64() * plan.packets_per_second * flows as f64;
        Ok(Estimate {
            bounds: Bounds::default(),
            duration: plan.planned(),
            duration_bounded: matches!(plan.until, Until::Duration(_)),
            bytes: Some((datagrams * plan.size_bytes as f64) as u64),
        })
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::UDP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The values were checked by `estimate`; what is refused there gets no assignments.
        UdpPlan::from_values(request.values).map_or_else(
            |_| Vec::new(),
            |plan| rendezvous::assignments("udp", request, plan.streams, plan.direction.connector_sends()),
        )
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        outcome::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = UdpPlan::from_values(&assignment.values)?;
        let load = Load { plan, host: assignment.host.clone(), role: assignment.role.clone() };
        let side = Side::prepare_datagrams(assignment)?;
        Ok(rendezvous::task(side, move |flows, control| run(&load, flows, control)))
    }
}

pub struct Load {
    pub plan: UdpPlan,
    pub host: String,
    pub role: String,
}

/// Runs one end from the agreed start until every flow is done. Errors: aborted, or the machine refused a thread.
pub fn run(load: &Load, flows: Vec<Flow<Association>>, control: &Control) -> Result<Outcome, WorkloadError> {
    let mut outcome = rendezvous::outcome(&load.host, &load.role, control);
    let end = End { plan: &load.plan, control };
    let reports = threads::each_alone("weir-udp", flows, control, |flow| end.run(flow))?;
    outcome::assemble(&mut outcome, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}
