//! Workload `latency`: requests and their replies over TCP or UDP. In a closed loop one request is under way at a time on
//! each connection, the next leaves when the reply has come, and the clock is read once a round trip. In an open loop (`rate`)
//! requests leave at the ticks of a clock, and a round trip counts from its tick.

pub mod datagrams;
pub mod open;
pub mod pingpong;
#[cfg(test)]
mod tests;
pub mod trips;

use crate::generator;
use crate::rendezvous::{self, Side};
use pingpong::{Limits, Load, Until};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use trips::{LatencyBody, METRICS};
use weir_core::evidence;
use weir_core::metric::Metric;
use weir_core::param::Kind;
use weir_core::scenario::{FROM_TO, Opening, RoleKey, Shape};
use weir_core::units::human;
use weir_core::{Param, Values};
use weir_seams::workload::{
    Assignment, Bounds, DeriveContext, Derived, Estimate, Outcome, StepRequest, Task, Workload, WorkloadError,
};
use weir_transport::tcp_options::TcpOptions;
use weir_transport::udp::DATAGRAM_BYTES_MAX;

/// Largest message over TCP.
pub const SIZE_BYTES_MAX: u64 = 16 << 20;
/// Smallest message over UDP: its header.
pub const UDP_SIZE_BYTES_MIN: u64 = 16;
/// Bounds of `rate`, requests a second on one connection.
pub const RATE_HERTZ: std::ops::RangeInclusive<f64> = 0.01..=1e6;
/// Bounds of `timeout`.
pub const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

pub static PARAMS: &[Param] = &[
    Param::new("size", Kind::Size, "Bytes of the request and of the reply.")
        .default("64B")
        .range(1.0, SIZE_BYTES_MAX as f64),
    Param::new(
        "transport",
        Kind::Choice(&["tcp", "udp"]),
        "How the messages travel; over UDP each is one datagram of `size` bytes, 16 of them its header.",
    )
    .default("tcp"),
    Param::new(
        "rate",
        Kind::Frequency,
        "Requests a second on each connection, at the ticks of a clock whatever became of those before (open loop); without it the next request leaves when the reply has come.",
    )
    .range(0.01, 1e6),
    Param::new(
        "timeout",
        Kind::Duration,
        "How long a reply over UDP is waited for; then the request counts as lost, and not as a latency.",
    )
    .default("1s")
    .range(1e6, 60e9),
    Param::new(
        "warm_up_count",
        Kind::Count,
        "Round trips at the beginning that are not counted: the first pays for cold caches and a fresh connection.",
    )
    .default("10")
    .range(0.0, 1e9),
];

/// What carries the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Travel {
    #[default]
    Tcp,
    Udp,
}

impl Travel {
    /// Whether a request may never be answered.
    pub fn loses(self) -> bool {
        self == Travel::Udp
    }
}

/// What a latency step asks for, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPlan {
    pub until: Until,
    pub size_bytes: u64,
    pub warm_up: Duration,
    pub warm_up_count: u64,
    #[serde(default)]
    pub transport: Travel,
    /// Requests a second of each connection; `None` is a closed loop.
    #[serde(default)]
    pub rate_hertz: Option<f64>,
    /// After which a request over UDP is lost.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
    pub tcp: TcpOptions,
}

fn timeout_default() -> Duration {
    Duration::from_secs(1)
}

impl LatencyPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<LatencyPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        let until = Until::from_values(values, "a latency step needs `count` or `duration`")?;
        if values.size("bytes").is_some() {
            return stop(
                "`bytes` does not bound a latency step; give `count` or `duration`, and `size` for the message",
            );
        }
        if values.count("streams").unwrap_or(1) != 1 {
            return stop("a latency step has one connection a pair; leave `streams` out");
        }
        // A request is smaller than a segment and the next waits for its reply; Nagle must not hold it. Only a scenario
        // that says so measures with Nagle.
        let tcp = TcpOptions::from_values_at_once(values);
        let plan = LatencyPlan {
            until,
            size_bytes: values.size("size").map_or(64, |size| size.0),
            warm_up: values.duration("warm_up").unwrap_or_default(),
            warm_up_count: values.count("warm_up_count").unwrap_or(10),
            transport: match values.text("transport").as_deref() {
                Some("udp") => Travel::Udp,
                _ => Travel::Tcp,
            },
            rate_hertz: values.frequency("rate").map(|rate| rate.0),
            timeout: values.duration("timeout").unwrap_or_else(timeout_default),
            tcp,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        rendezvous::one_congestion(&self.tcp)?;
        let stop = |text: String| Err(WorkloadError::new(text));
        if self.size_bytes == 0 || self.size_bytes > SIZE_BYTES_MAX {
            return stop(format!(
                "`size` is {} bytes; it must be from 1 to {SIZE_BYTES_MAX}",
                self.size_bytes
            ));
        }
        if self.transport == Travel::Udp {
            let most = DATAGRAM_BYTES_MAX as u64;
            if !(UDP_SIZE_BYTES_MIN..=most).contains(&self.size_bytes) {
                return stop(format!(
                    "`size` is {} bytes; over UDP it must be from {UDP_SIZE_BYTES_MIN} to {most}",
                    self.size_bytes
                ));
            }
            if !TIMEOUT.contains(&self.timeout) {
                return stop(format!(
                    "`timeout` is {:?}; it must be from {:?} to {:?}",
                    self.timeout,
                    TIMEOUT.start(),
                    TIMEOUT.end()
                ));
            }
        }
        if let Some(rate) = self.rate_hertz {
            if !RATE_HERTZ.contains(&rate) {
                let (least, most) = (RATE_HERTZ.start(), RATE_HERTZ.end());
                return stop(format!("`rate` is {rate} Hz; it must be from {least} Hz to {most} Hz"));
            }
            if self.transport == Travel::Udp && rate * self.timeout.as_secs_f64() > open::FLIGHT_MAX as f64 {
                return stop(format!(
                    "`rate` times `timeout` are more requests without reply than the {} there is room for",
                    open::FLIGHT_MAX
                ));
            }
        }
        match self.until {
            Until::Count(0) => stop("`count` is zero".to_owned()),
            Until::Duration(duration) if duration <= self.warm_up => {
                stop("`warm_up` leaves nothing to measure of `duration`".to_owned())
            }
            _ => self.leaves_some(),
        }
    }

    /// Refuses requests at the ticks of a clock of which none would count.
    // Spec: net-protocol.md#latency-7
    fn leaves_some(&self) -> Result<(), WorkloadError> {
        let Some(rate) = self.rate_hertz else { return Ok(()) };
        let requests = open::tick_count(self, rate);
        let last = requests.saturating_sub(1);
        if last >= self.warm_up_count && last as f64 / rate >= self.warm_up.as_secs_f64() {
            return Ok(());
        }
        let first = (self.warm_up_count as f64).max((self.warm_up.as_secs_f64() * rate).ceil());
        let (bound, longer) = match self.until {
            Until::Duration(duration) => {
                let least = human((first / rate).ceil() + 1.0 / rate, "s");
                (format!("`duration` {duration:?}"), format!("take a `duration` of {least}"))
            }
            Until::Count(count) => {
                let least = first as u64 - self.warm_up_count.min(first as u64) + 1;
                (format!("`count` {count}"), format!("take a `count` of {least}"))
            }
        };
        Err(WorkloadError::new(format!(
            "`rate` {rate} Hz and {bound} make {requests} requests, and none counts: the first {} (`warm_up_count`) do not, nor \
             those of the first {:?} (`warm_up`); {longer}, a higher `rate` or less warm-up",
            self.warm_up_count, self.warm_up
        )))
    }

    /// What is said where only the path could tell that nothing would be left.
    fn nothing_counted(&self, made: u64) -> io::Error {
        let text = format!(
            "none of {made} requests counts: the first {} do not (warm-up count), nor those of the first {:?} (warm-up); measure for \
             longer or with less warm-up",
            self.warm_up_count, self.warm_up
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// Refuses what a path of this round trip leaves nothing of.
    fn fits(&self, rtt: Duration) -> Result<(), WorkloadError> {
        let trip = human(rtt.as_secs_f64(), "s");
        if self.transport == Travel::Udp && rtt > self.timeout {
            return Err(WorkloadError::new(format!(
                "`timeout` {:?} is shorter than the round trip of {trip}: every reply would count as lost",
                self.timeout
            )));
        }
        let warm = u32::try_from(self.warm_up_count).map_or(Duration::MAX, |count| rtt.saturating_mul(count));
        match (self.until, self.rate_hertz) {
            (Until::Duration(duration), None) if !rtt.is_zero() && warm >= duration => {
                Err(WorkloadError::new(format!(
                    "`duration` {duration:?} ends before a request counts: the first {} (`warm_up_count`) take a round trip of \
                     {trip} each; take a longer `duration` or a lower `warm_up_count`",
                    self.warm_up_count
                )))
            }
            _ => Ok(()),
        }
    }
}

impl LatencyPlan {
    /// From the start to the last request, where that is known before.
    pub fn planned(&self) -> Option<Duration> {
        match (self.until, self.rate_hertz) {
            (Until::Duration(duration), _) => Some(duration),
            (Until::Count(count), Some(rate)) => {
                let ticks = count.saturating_add(self.warm_up_count);
                Some(Duration::try_from_secs_f64(ticks as f64 / rate).unwrap_or(Duration::MAX / 4))
            }
            (Until::Count(_), None) => None,
        }
    }
}

pub struct Latency;

impl Workload for Latency {
    fn roles(&self) -> &'static [RoleKey] {
        FROM_TO
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn estimate(&self, values: &Values, shape: &Shape) -> Result<Estimate, WorkloadError> {
        let rtt = shape.rtt;
        let plan = LatencyPlan::from_values(values)?;
        plan.fits(rtt)?;
        // Hosts add about 50 µs to the path, and slow start lets ten segments through at once.
        let one = rtt + Duration::from_micros(50);
        let one_seconds =
            one.as_secs_f64() * (1.0 + (plan.size_bytes as f64 / 14_600.0 + 1.0).log2().floor());
        let seconds = match (plan.planned(), plan.until) {
            (None, Until::Count(count)) => count.saturating_add(plan.warm_up_count) as f64 * one_seconds,
            (planned, _) => planned.unwrap_or_default().as_secs_f64(),
        };
        Ok(Estimate {
            bounds: Bounds::default(),
            duration: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            duration_bounded: matches!(plan.until, Until::Duration(_)),
            bytes: match plan.until {
                Until::Count(count) => Some(count.saturating_mul(2 * plan.size_bytes)),
                Until::Duration(_) => None,
            },
        })
    }

    fn opening(&self, values: &Values) -> Opening {
        match values.text("transport").as_deref() {
            Some("udp") => rendezvous::UDP_OPENING,
            _ => rendezvous::TCP_OPENING,
        }
    }

    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        // The connecting end asks; it is the source of the flow.
        rendezvous::assignments("latency", request, 1, &[true])
    }

    fn derive(&self, _context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
        let asked = outcomes
            .iter()
            .filter_map(|outcome| serde_json::from_value::<LatencyBody>(outcome.body.clone()).ok())
            .flat_map(|body| body.asked);
        let clocks: Vec<_> = asked.filter_map(|asked| asked.clock).collect();
        Derived {
            invalid: rendezvous::first_failure(outcomes),
            load: evidence::Load {
                generator: generator::facts(&clocks, outcomes),
                ..evidence::Load::default()
            },
            warnings: rendezvous::clamped(outcomes),
            ..Derived::default()
        }
    }

    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        let plan = LatencyPlan::from_values(&assignment.values)?;
        let load = Load {
            plan,
            host: assignment.host.clone(),
            role: assignment.role.clone(),
            limits: Limits::default(),
        };
        Ok(match load.plan.transport {
            Travel::Tcp => {
                let side = Side::prepare(assignment, &load.plan.tcp)?;
                rendezvous::task(side, move |flows, control| pingpong::run(&load, flows, control))
            }
            Travel::Udp => {
                let side = Side::prepare_datagrams(assignment)?;
                rendezvous::task(side, move |flows, control| datagrams::run(&load, flows, control))
            }
        })
    }
}
