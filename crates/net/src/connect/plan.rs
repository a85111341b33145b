//! What a connect step asks for: its parameters, checked.

use crate::latency::pingpong::Until;
use crate::rendezvous;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;
use weir_transport::tcp_options::TcpOptions;

/// Largest request or response: each end holds one.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Flows of one end: each has a thread of its own.
pub const FLOWS_MAX: u64 = 1_024;

pub static PARAMS: &[Param] = &[
    Param::new("request", Kind::Size, "Bytes sent on each connection when it is made.")
        .default("1B")
        .range(1.0, MESSAGE_BYTES_MAX as f64),
    Param::new("response", Kind::Size, "Bytes that come back.")
        .default("1B")
        .range(1.0, MESSAGE_BYTES_MAX as f64),
    Param::new(
        "close",
        Kind::Choice(&["server", "client", "reset"]),
        "Who closes first. That end keeps the connection in TIME-WAIT for a minute, and a client has some 28,000 ports for one server port; reset keeps it nowhere.",
    )
    .default("server"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Close {
    #[default]
    Server,
    Client,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectPlan {
    pub until: Until,
    pub warm_up: Duration,
    /// Of each pair; each makes one connection after the other.
    pub streams: u64,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub close: Close,
    pub tcp: TcpOptions,
}

impl ConnectPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<ConnectPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        let until = Until::from_values(
            values,
            "a connect step needs `duration`, or the `count` of connections of a flow",
        )?;
        if values.size("bytes").is_some() {
            return stop("`bytes` does not bound a connect step; give `duration` or `count`");
        }
        // Request and response are one segment each; nothing follows that they could wait for.
        let tcp = TcpOptions::from_values_at_once(values);
        let plan = ConnectPlan {
            until,
            warm_up: values.duration("warm_up").unwrap_or_default(),
            streams: values.count("streams").unwrap_or(1),
            request_bytes: values.size("request").map_or(1, |size| size.0),
            response_bytes: values.size("response").map_or(1, |size| size.0),
            close: match values.text("close").as_deref() {
                Some("client") => Close::Client,
                Some("reset") => Close::Reset,
                _ => Close::Server,
            },
            tcp,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from.
    pub fn check(&self) -> Result<(), WorkloadError> {
        rendezvous::one_congestion(&self.tcp)?;
        let stop = |text: String| Err(WorkloadError::new(text));
        for (name, bytes) in [("request", self.request_bytes), ("response", self.response_bytes)] {
            if bytes == 0 || bytes > MESSAGE_BYTES_MAX {
                return stop(format!("`{name}` is {bytes} bytes; it must be from 1 to {MESSAGE_BYTES_MAX}"));
            }
        }
        match self.until {
            _ if self.streams == 0 => stop("`streams` is at least 1".to_owned()),
            Until::Count(0) => stop("`count` is zero".to_owned()),
            Until::Count(_) if !self.warm_up.is_zero() => {
                stop("`warm_up` is part of a `duration`; with `count` all connections count".to_owned())
            }
            Until::Duration(duration) if duration <= self.warm_up => {
                stop("`warm_up` leaves nothing to measure of `duration`".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// From the start to the last connection, where that is known before.
    pub fn planned(&self) -> Option<Duration> {
        if let Until::Duration(duration) = self.until { Some(duration) } else { None }
    }
}
