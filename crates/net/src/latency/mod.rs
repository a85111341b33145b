//! Workload `latency`: TCP ping-pong in a closed loop. One request is under way at a time on each connection, the next
//! leaves when the reply has come, and the clock is read once a round trip.

pub mod pingpong;
#[cfg(test)]
mod tests;

use crate::rendezvous::{self, Side};
use pingpong::{Limits, Load, Until};
use std::time::Duration;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::param::Kind;
use weir_core::{Param, Values};
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload,
    WorkloadError,
};
use weir_transport::tcp_options::TcpOptions;

/// Largest message.
pub const SIZE_BYTES_MAX: u64 = 16 << 20;

pub static PARAMS: &[Param] = &[
    Param::new("size", Kind::Size, "Bytes of the request and of the reply.")
        .default("64B")
        .range(1.0, SIZE_BYTES_MAX as f64),
    Param::new("transport", Kind::Choice(&["tcp"]), "How the messages travel.").default("tcp"),
    Param::new(
        "warm_up_count",
        Kind::Count,
        "Round trips at the beginning that are not counted: the first pays for cold caches and a fresh connection.",
    )
    .default("10")
    .range(0.0, 1e9),
];

static METRICS: &[Metric] = &[Metric {
    name: "latency.round_trip_seconds",
    unit: "s",
    better: Better::Lower,
    scope: Scope::Operation,
    definition: "From one reply's arrival in the requesting program, when the next request is sent, to that request's reply \
        (closed loop, one request under way a connection). The first warm_up_count round trips of each connection, and those \
        within warm_up of the step's start, are not counted.",
}];

/// What a latency step asks for, checked.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LatencyPlan {
    pub until: Until,
    pub size_bytes: u64,
    pub warm_up: Duration,
    pub warm_up_count: u64,
    pub tcp: TcpOptions,
}

impl LatencyPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<LatencyPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::stop(text));
        let until = match (values.count("count"), values.duration("duration")) {
            (Some(count), None) => Until::Count(count),
            (None, Some(duration)) => Until::Duration(duration),
            (None, None) => return stop("a latency step needs `count` or `duration`"),
            (Some(_), Some(_)) => {
                return stop("`count` and `duration` both say when the step ends; give one of them");
            }
        };
        if values.size("bytes").is_some() {
            return stop(
                "`bytes` does not bound a latency step; give `count` or `duration`, and `size` for the message",
            );
        }
        if values.count("streams").unwrap_or(1) != 1 {
            return stop("a latency step has one connection a pair; leave `streams` out");
        }
        let mut tcp = TcpOptions::from_values(values);
        // A request is smaller than a segment and the next waits for its reply; Nagle must not hold it. Only a scenario
        // that says so measures with Nagle.
        tcp.nodelay = values.table("tcp").and_then(|tcp| tcp.flag("nodelay")).unwrap_or(true);
        let plan = LatencyPlan {
            until,
            size_bytes: values.size("size").map_or(64, |size| size.0),
            warm_up: values.duration("warm_up").unwrap_or_default(),
            warm_up_count: values.count("warm_up_count").unwrap_or(10),
            tcp,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::stop(text));
        if self.size_bytes == 0 || self.size_bytes > SIZE_BYTES_MAX {
            return stop(format!(
                "`size` is {} bytes; it must be from 1 to {SIZE_BYTES_MAX}",
                self.size_bytes
            ));
        }
        match self.until {
            Until::Count(0) => stop("`count` is zero".to_owned()),
            Until::Duration(duration) if duration <= self.warm_up => {
                stop("`warm_up` leaves nothing to measure of `duration`".to_owned())
            }
            _ => Ok(()),
        }
    }
}

pub struct Latency;

impl Workload for Latency {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn estimate(
        &self,
        values: &Values,
        _pair_count: usize,
        rtt: Duration,
    ) -> Result<Estimate, WorkloadError> {
        let plan = LatencyPlan::from_values(values)?;
        // Hosts add about 50 µs to the path, and slow start lets ten segments through at once.
        let one = rtt + Duration::from_micros(50);
        let one_seconds =
            one.as_secs_f64() * (1.0 + (plan.size_bytes as f64 / 14_600.0 + 1.0).log2().floor());
        let seconds = match plan.until {
            Until::Count(count) => (count + plan.warm_up_count) as f64 * one_seconds,
            Until::Duration(duration) => duration.as_secs_f64(),
        };
        Ok(Estimate {
            duration: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            duration_bounded: matches!(plan.until, Until::Duration(_)),
            bytes: match plan.until {
                Until::Count(count) => Some(count.saturating_mul(2 * plan.size_bytes)),
                Until::Duration(_) => None,
            },
        })
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The connecting end asks; it is the source of the flow.
        rendezvous::assignments("latency", request, 1, &[true])
    }

    fn derive(&self, _context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        let broken = outcomes.iter().flat_map(|outcome| &outcome.failures).next();
        Derived { invalid: broken.cloned(), ..Derived::default() }
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = LatencyPlan::from_values(&assignment.values)?;
        let side = Side::prepare(assignment, &plan.tcp)?;
        let load = Load {
            plan,
            host: assignment.host.clone(),
            role: assignment.role.clone(),
            limits: Limits::default(),
        };
        Ok(Box::new(LatencyTask { load, side }))
    }
}

struct LatencyTask {
    load: Load,
    side: Side,
}

impl Task for LatencyTask {
    fn address(&self) -> Option<String> {
        self.side.address()
    }

    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        pingpong::run(&self.load, self.side.flows(control)?, control)
    }
}
