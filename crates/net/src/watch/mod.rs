//! Workload `watch`: long TCP flows looked at finely for hours, beside short tests as a schedule would make them.

pub mod metrics;
pub mod outcome;
pub mod plan;
pub mod probe;
pub mod seconds;
mod shown;
pub mod tape;
#[cfg(test)]
mod tests;

use crate::door::{self, Link};
use crate::evidence;
use crate::rendezvous::{self, Body, Flow, Side};
use crate::stream::clock::{Ending, Patience};
use crate::stream::engine;
use outcome::WatchBody;
use plan::{FLOWS_MAX, WatchPlan};
use probe::{Probe, Probing};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::Values;
use weir_core::chunk::{FieldSet, SETS};
use weir_core::evidence::Factor;
use weir_core::failure::Failure;
use weir_core::metric::Metric;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_core::shown::Shown;
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};
use weir_sys::{clock, errno};

pub struct Watch;

impl Workload for Watch {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        &metrics::METRICS
    }

    fn shown(&self) -> &'static Shown {
        &shown::SHOWN
    }

    fn factors(&self) -> &'static [&'static Factor] {
        evidence::FACTORS
    }

    fn records(&self) -> &'static [&'static FieldSet] {
        SETS
    }

    fn fills_path(&self) -> bool {
        true
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let plan = WatchPlan::from_values(values)?;
        rendezvous::flow_count(plan.flows_per_pair(), shape.pairs, FLOWS_MAX)?;
        Ok(Estimate::bounded(plan.duration))
    }

    fn opening(&self, _values: &Values) -> Opening {
        rendezvous::TCP_OPENING
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The values were checked by `estimate`; what is refused there gets no assignments.
        WatchPlan::from_values(request.values).map_or_else(
            |_| Vec::new(),
            |plan| rendezvous::assignments("watch", request, plan.flows_per_pair(), &[true]),
        )
    }

    fn derive(&self, context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        outcome::derive(context, outcomes)
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let mut plan = WatchPlan::from_values(&assignment.values)?;
        let (side, links) = if plan.probe_every.is_some() {
            // Connections made later are as the flow's own: where weir has no privileges the record has what was granted.
            plan.stream.tcp.or_as_allowed = true;
            door::prepare(assignment, &plan.stream.tcp)?
        } else {
            (Side::prepare(assignment, &plan.stream.tcp)?, BTreeMap::new())
        };
        let load = Load {
            plan,
            host: assignment.host.clone(),
            role: assignment.role.clone(),
            flow_total: Body::of(assignment)?.flow_total,
        };
        Ok(rendezvous::task(side, move |flows, control| run(&load, flows, links, control)))
    }
}

pub struct Load {
    pub plan: WatchPlan,
    pub host: String,
    pub role: String,
    pub flow_total: u64,
}

/// Runs one end from the agreed start until flows and probes are through. `links` are by the index of the flow; of each pair the
/// first flow's is the probes'.
pub fn run(
    load: &Load,
    flows: Vec<Flow>,
    mut links: BTreeMap<u32, Link>,
    control: &Control,
) -> Result<Outcome, WorkloadError> {
    let plan = &load.plan;
    let probed: Vec<(String, Link)> = flows
        .iter()
        .filter(|flow| flow.spec.entity.ends_with(".0"))
        .filter_map(|flow| Some((flow.spec.entity.clone(), links.remove(&flow.spec.index)?)))
        .collect();
    drop(links);
    let probing = Probing { plan, control };
    let (ran, probes) = std::thread::scope(|scope| {
        let running: Vec<_> = probed
            .iter()
            .map(|(entity, link)| {
                let probing = &probing;
                (entity, link, scope.spawn(move || probe_end(probing, link)))
            })
            .collect();
        let ran = if plan.long_flow {
            let streams = engine::Load {
                plan: plan.stream.clone(),
                host: load.host.clone(),
                role: load.role.clone(),
                flow_total: load.flow_total,
                patience: Patience::default(),
                ending: Ending::Drained,
            };
            engine::run_with(&streams, flows, control, true)
        } else {
            Ok(carried(load, flows, control))
        };
        if ran.is_err() {
            control.abort();
        }
        let probes: Vec<_> =
            running.into_iter().map(|(entity, link, thread)| (entity, link, thread.join())).collect();
        (ran, probes)
    });
    let mut outcome = ran?;
    let mut body = WatchBody::default();
    for (entity, link, result) in probes {
        let result = result.map_err(|_| WorkloadError::new("a probe panicked: this is a bug of weir"))?;
        match (result, link) {
            (Ok(probes), Link::Way(_)) => drop(body.probes_sent.insert(entity.clone(), probes)),
            (Ok(probes), Link::Door(_)) => drop(body.probes_received.insert(entity.clone(), probes)),
            (Err(error), _) => {
                let text = format!("its probes' port broke: {error}");
                let (job, code) = (entity.clone(), errno::name(&error).map(str::to_owned));
                let at_ns = i64::try_from(clock::monotonic().as_ns()).unwrap_or(i64::MAX);
                let operation = "probe".to_owned();
                outcome.failures.push(Failure { at_ns, job, operation, code, text, ..Failure::default() });
            }
        }
    }
    if control.aborted() {
        return Err(WorkloadError::new("the load was aborted"));
    }
    body.lost_samples = control.chunks().map_or(0, |queue| queue.lost_samples());
    body.stopped = control.stopping();
    put_beside(&mut outcome, &body);
    outcome.ended_ns = weir_sys::clock::monotonic().as_ns();
    Ok(outcome)
}

fn probe_end(probing: &Probing<'_>, link: &Link) -> std::io::Result<Vec<Probe>> {
    match link {
        Link::Way(way) => Ok(probing.send_all(way)),
        Link::Door(door) => probing.receive_all(door),
    }
}

/// Without long flows their connections carry nothing: they brought the word about the probes' way, and end with the step.
fn carried(load: &Load, flows: Vec<Flow>, control: &Control) -> Outcome {
    let mut outcome = Outcome {
        granted: rendezvous::granted(&flows, &load.plan.stream.tcp),
        ..rendezvous::outcome(&load.host, &load.role, control)
    };
    let start = control.start_at();
    if engine::wait_for_start(control, start) {
        let end = start + load.plan.duration;
        while weir_sys::clock::monotonic() < end && !control.stopping() {
            let soon = weir_sys::clock::monotonic() + Duration::from_millis(50);
            weir_sys::clock::sleep_until(soon.min(end));
        }
    }
    outcome.body = serde_json::json!({});
    outcome
}

/// Adds what is the watch's own to what the streams have left.
fn put_beside(outcome: &mut Outcome, body: &WatchBody) {
    let own = serde_json::to_value(body).expect("names and numbers are JSON");
    let (Some(all), Some(own)) = (outcome.body.as_object_mut(), own.as_object()) else { return };
    for (name, value) in own.iter().filter(|(name, _)| *name != "received") {
        all.insert(name.clone(), value.clone());
    }
}
