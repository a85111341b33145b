//! Workload `connect`: connections made, used once and closed, as many a second as the path and both ends take.

pub mod ends;
pub mod outcome;
pub mod plan;
#[cfg(test)]
mod tests;

use crate::door::{self, Link};
use crate::latency::pingpong::Until;
use crate::rendezvous::{self, Flow};
use crate::threads;
use ends::End;
use plan::{ConnectPlan, FLOWS_MAX};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use weir_core::Values;
use weir_core::metric::Metric;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_core::units::human;
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};
use weir_sys::clock;

/// How long a flow may be without a connection.
const SILENCE: Duration = Duration::from_secs(30);

pub struct Connect;

impl Workload for Connect {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        outcome::METRICS
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let (pair_count, rtt) = (shape.pairs, shape.rtt);
        let plan = ConnectPlan::from_values(values)?;
        rendezvous::flow_count(plan.streams, pair_count, FLOWS_MAX)?;
        Ok(match plan.until {
            // Its handshake and its exchange take a round trip each.
            Until::Duration(duration) if duration < rtt.saturating_mul(2) => {
                return Err(WorkloadError::new(format!(
                    "`duration` {duration:?} ends before one connection does: it takes two round trips of {}",
                    human(rtt.as_secs_f64(), "s")
                )));
            }
            Until::Duration(duration) => Estimate::bounded(duration),
            Until::Count(count) => {
                // A round trip for the handshake, one for the exchange, one for the end; hosts add about 100 us.
                let one = 3.0 * rtt.as_secs_f64() + 1e-4;
                let duration = Duration::try_from_secs_f64(count as f64 * one).unwrap_or(Duration::MAX);
                Estimate::about(duration, None)
            }
        })
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::TCP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The values were checked by `estimate`; what is refused there gets no assignments.
        ConnectPlan::from_values(request.values).map_or_else(
            |_| Vec::new(),
            |plan| rendezvous::assignments("connect", request, plan.streams, &[true]),
        )
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        outcome::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let mut plan = ConnectPlan::from_values(&assignment.values)?;
        // Connections made later are as the flow's own: where weir has no privileges the record has what was granted.
        plan.tcp.or_as_allowed = true;
        let (side, links) = door::prepare(assignment, &plan.tcp)?;
        let load = Load { plan, host: assignment.host.clone(), role: assignment.role.clone() };
        Ok(rendezvous::task(side, move |flows, control| run(&load, flows, links, control)))
    }
}

pub struct Load {
    pub plan: ConnectPlan,
    pub host: String,
    pub role: String,
}

/// Runs one end from the agreed start until every flow is done. `links` are by the index of the flow.
pub fn run(
    load: &Load,
    flows: Vec<Flow>,
    links: BTreeMap<u32, Link>,
    control: &Control,
) -> Result<Outcome, WorkloadError> {
    let plan = &load.plan;
    let mut outcome = Outcome {
        granted: rendezvous::granted(&flows, &plan.tcp),
        ..rendezvous::outcome(&load.host, &load.role, control)
    };
    let links = Mutex::new(links);
    // The server waits longer: the client knows better what went wrong.
    let limit = |flow: &Flow| if flow.spec.sends { SILENCE } else { 2 * SILENCE };
    let reports = threads::each("weir-connect", flows, control, limit, |flow, guard| {
        let link = links.lock().ok().and_then(|mut links| links.remove(&flow.spec.index));
        End { plan, control, guard }.run(flow, link)
    })?;
    outcome::assemble(&mut outcome, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}
