//! Workload `stream`: bulk TCP from one end to the other.

pub mod audit;
pub mod clock;
mod cpu;
pub mod derive;
pub mod engine;
pub mod metrics;
pub mod outcome;
pub mod pace;
pub mod parts;
pub mod plan;
pub mod receive;
pub mod samples;
pub mod send;
mod shown;
#[cfg(test)]
pub(crate) mod tests;

use crate::evidence;
use crate::rendezvous::{self, Body, Side};
use clock::{Ending, Patience};
use engine::Load;
use plan::{FLOWS_MAX, StreamPlan, Until};
use std::time::Duration;
use weir_core::Values;
use weir_core::evidence::Factor;
use weir_core::metric::Metric;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_core::shown::Shown;
use weir_core::units::human;
use weir_seams::workload::{
    Assignment, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload, WorkloadError,
};

pub struct Stream;

impl Workload for Stream {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn shown(&self) -> &'static Shown {
        &shown::SHOWN
    }

    fn factors(&self) -> &'static [&'static Factor] {
        evidence::FACTORS
    }

    fn fills_path(&self) -> bool {
        true
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let (pair_count, rtt) = (shape.pairs, shape.rtt);
        let plan = StreamPlan::from_values(values)?;
        let flows = rendezvous::flow_count(plan.flows_per_pair(), pair_count, FLOWS_MAX)?;
        Ok(match plan.until {
            Until::Duration(duration) if duration <= rtt / 2 => {
                return Err(WorkloadError::new(format!(
                    "`duration` {duration:?} ends before the first byte arrives, half a round trip of {} after the start",
                    human(rtt.as_secs_f64(), "s")
                )));
            }
            Until::Duration(duration) => Estimate::bounded(duration),
            // How fast they will go is what the step is to find out; a 1 Gbit/s path is as good a guess as any.
            Until::Bytes(bytes) => {
                let total = bytes.saturating_mul(flows);
                let duration = Duration::from_secs_f64(total as f64 * 8.0 / 1e9) + rtt;
                Estimate::about(duration, Some(total))
            }
        })
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::TCP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The values were checked by `estimate`; what is refused there gets no assignments.
        StreamPlan::from_values(request.values).map_or_else(
            |_| Vec::new(),
            |plan| rendezvous::assignments("stream", request, plan.streams, plan.direction.connector_sends()),
        )
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        derive::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = StreamPlan::from_values(&assignment.values)?;
        let side = Side::prepare(assignment, &plan.tcp)?;
        let load = Load {
            plan,
            host: assignment.host.clone(),
            role: assignment.role.clone(),
            flow_total: Body::of(assignment)?.flow_total,
            patience: Patience::default(),
            ending: Ending::Drained,
        };
        Ok(rendezvous::task(side, move |flows, control| engine::run(&load, flows, control)))
    }
}
