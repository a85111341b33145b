//! What a path step asks for: its parameters, checked.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;
use weir_transport::tcp_options::TcpOptions;

/// Flows of one end: each has a thread of its own.
pub const FLOWS_MAX: u64 = 1_024;
const PROBES_MAX: u64 = 100;
const HOPS_MAX: u64 = 255;
const TRAIN_MAX: u64 = 100_000;
const TRANSFER_BYTES_MAX: u64 = 1 << 30;
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);

pub static PARAMS: &[Param] = &[
    Param::new(
        "probes",
        Kind::Count,
        "Small packets sent to each hop, and as many as large as the path takes.",
    )
    .default("3")
    .range(1.0, PROBES_MAX as f64),
    Param::new("hops_max", Kind::Count, "Hops looked at before the list is given up.")
        .default("30")
        .range(1.0, HOPS_MAX as f64),
    Param::new("timeout", Kind::Duration, "The longest a single probe is waited for.")
        .default("1s")
        .range(1e7, 10e9),
    Param::new(
        "train",
        Kind::Count,
        "Datagrams sent one after the other to see what is lost, doubled or overtaken.",
    )
    .default("200")
    .range(1.0, TRAIN_MAX as f64),
    Param::new("transfer", Kind::Size, "Sent over TCP, to see its segments and what it counts.")
        .default("1MB")
        .range(1.0, TRANSFER_BYTES_MAX as f64),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathPlan {
    pub probes: u64,
    pub hops_max: u64,
    pub timeout: Duration,
    pub train: u64,
    pub transfer_bytes: u64,
    pub tcp: TcpOptions,
}

impl PathPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<PathPlan, WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        let given = [
            ("duration", values.duration("duration").is_some()),
            ("bytes", values.size("bytes").is_some()),
            ("count", values.count("count").is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            return stop(format!(
                "`{name}` does not bound a path step, which ends when the path is described; `probes`, `train` and \
                 `transfer` say how much it does"
            ));
        }
        if values.duration("warm_up").is_some_and(|warm_up| !warm_up.is_zero()) {
            return stop("a path step has no `warm_up`".to_owned());
        }
        if values.count("streams").is_some_and(|streams| streams != 1) {
            return stop("a path step has one flow for each way; `streams` is 1".to_owned());
        }
        let plan = PathPlan {
            probes: values.count("probes").unwrap_or(3),
            hops_max: values.count("hops_max").unwrap_or(30),
            timeout: values.duration("timeout").unwrap_or(Duration::from_secs(1)),
            train: values.count("train").unwrap_or(200),
            transfer_bytes: values.size("transfer").map_or(1_000_000, |size| size.0),
            // Single bytes on the connection are words that somebody waits for.
            tcp: TcpOptions::from_values_at_once(values),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        for (name, value, most) in [
            ("probes", self.probes, PROBES_MAX),
            ("hops_max", self.hops_max, HOPS_MAX),
            ("train", self.train, TRAIN_MAX),
            ("transfer", self.transfer_bytes, TRANSFER_BYTES_MAX),
        ] {
            if value == 0 || value > most {
                return Err(WorkloadError::new(format!("`{name}` is {value}; it must be from 1 to {most}")));
            }
        }
        if !TIMEOUT.contains(&self.timeout) {
            return Err(WorkloadError::new(format!(
                "`timeout` is {:?}; it must be from {:?} to {:?}",
                self.timeout,
                TIMEOUT.start(),
                TIMEOUT.end()
            )));
        }
        Ok(())
    }
}
