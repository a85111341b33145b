//! What a udp step asks for: its parameters, checked.

use crate::latency::pingpong::Until;
use crate::stream::plan::Direction;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::units::human;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;
use weir_transport::datagram::HEADER_BYTES;
use weir_transport::udp::DATAGRAM_BYTES_MAX;

/// A header and the time of sending.
pub const SIZE_BYTES_MIN: u64 = HEADER_BYTES as u64 + 8;
/// Datagrams that the kernel takes with one call.
pub const BATCH_MAX: u64 = 64;
/// Shortest time between two calls where the batch is chosen for the user.
const TICK_MIN: Duration = Duration::from_micros(100);
const PACKETS_PER_SECOND: std::ops::RangeInclusive<f64> = 0.01..=1e8;
/// Flows of one end: each has a thread of its own.
pub const FLOWS_MAX: u64 = 1_024;

pub static PARAMS: &[Param] = &[
    Param::new("size", Kind::Size, "Bytes of a datagram, above the UDP header; 24 of them say which it is and when it was sent.")
        .default("1400B")
        .range(SIZE_BYTES_MIN as f64, DATAGRAM_BYTES_MAX as f64),
    Param::new("rate", Kind::Rate, "What each flow sends, bytes of datagrams above their UDP headers. [10Mbit/s, unless packet_rate is given]")
        .range(1.0, 1e12),
    Param::new("packet_rate", Kind::Frequency, "What each flow sends in datagrams a second, instead of `rate`.")
        .range(*PACKETS_PER_SECOND.start(), *PACKETS_PER_SECOND.end()),
    Param::new(
        "batch",
        Kind::Count,
        "Datagrams handed to the kernel together, at one tick of the clock; 0 takes as many as keep ticks 100 us apart.",
    )
    .default("0")
    .range(0.0, BATCH_MAX as f64),
    Param::new(
        "direction",
        Kind::Choice(&["up", "down", "both"]),
        "Which end sends: up is from `from` to `to`, down the other way; both is a flow for each way.",
    )
    .default("up"),
    Param::new("receive_buffer", Kind::Size, "Asked of the kernel for receiving sockets; what comes while it is full is lost there.")
        .default("4MiB")
        .range(4096.0, 1e9),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UdpPlan {
    pub until: Until,
    pub warm_up: Duration,
    /// Of each pair and direction.
    pub streams: u64,
    pub direction: Direction,
    pub size_bytes: u64,
    /// Datagrams a second of each flow.
    pub packets_per_second: f64,
    pub batch: u64,
    pub receive_buffer_bytes: u64,
}

impl UdpPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<UdpPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        let until =
            Until::from_values(values, "a udp step needs `duration`, or the `count` of datagrams of a flow")?;
        if values.size("bytes").is_some() {
            return stop("`bytes` does not bound a udp step; give `duration` or `count`");
        }
        let size_bytes = values.size("size").map_or(1400, |size| size.0);
        let packets_per_second = match (values.rate("rate"), values.frequency("packet_rate")) {
            (Some(_), Some(_)) => return stop("`rate` and `packet_rate` say the same; give one of them"),
            (Some(rate), None) => rate.0 as f64 / (8.0 * size_bytes.max(1) as f64),
            (None, Some(rate)) => rate.0,
            (None, None) => 10e6 / (8.0 * size_bytes.max(1) as f64),
        };
        let plan = UdpPlan {
            until,
            warm_up: values.duration("warm_up").unwrap_or_default(),
            streams: values.count("streams").unwrap_or(1),
            direction: match values.text("direction").as_deref() {
                Some("down") => Direction::Down,
                Some("both") => Direction::Both,
                _ => Direction::Up,
            },
            size_bytes,
            packets_per_second,
            batch: values.count("batch").unwrap_or(0),
            receive_buffer_bytes: values.size("receive_buffer").map_or(4 << 20, |size| size.0),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        let most = DATAGRAM_BYTES_MAX as u64;
        if !(SIZE_BYTES_MIN..=most).contains(&self.size_bytes) {
            return stop(format!(
                "`size` is {} bytes; it must be from {SIZE_BYTES_MIN} to {most}",
                self.size_bytes
            ));
        }
        if !PACKETS_PER_SECOND.contains(&self.packets_per_second) {
            return stop(format!(
                "`rate` comes to {:.3} datagrams a second; from {} to {} are possible",
                self.packets_per_second,
                PACKETS_PER_SECOND.start(),
                PACKETS_PER_SECOND.end()
            ));
        }
        if self.batch > BATCH_MAX || self.batch * self.size_bytes > most {
            return stop(format!("`batch` is at most {BATCH_MAX}, and {most} bytes with `size`"));
        }
        match self.until {
            _ if self.streams == 0 => stop("`streams` is at least 1".to_owned()),
            Until::Count(0) => stop("`count` is zero".to_owned()),
            _ if self.planned() <= self.warm_up => {
                stop("`warm_up` leaves nothing to measure of the step".to_owned())
            }
            _ if self.counted_from() >= self.ticks() => stop(format!(
                "a flow sends every {}, the last time within the `warm_up` of {:?}: take less of it, a higher rate or a longer step",
                human(1.0 / self.ticks_per_second(), "s"),
                self.warm_up
            )),
            _ => Ok(()),
        }
    }

    pub fn flows_per_pair(&self) -> u64 {
        self.streams.saturating_mul(self.direction.connector_sends().len() as u64)
    }

    /// Datagrams of one tick.
    pub fn batch(&self) -> u64 {
        if self.batch > 0 {
            return self.batch;
        }
        let wanted = (TICK_MIN.as_secs_f64() * self.packets_per_second).ceil() as u64;
        let most = (DATAGRAM_BYTES_MAX as u64 / self.size_bytes).min(BATCH_MAX);
        wanted.clamp(1, most.max(1))
    }

    pub fn ticks_per_second(&self) -> f64 {
        self.packets_per_second / self.batch() as f64
    }

    /// Ticks in all.
    pub fn ticks(&self) -> u64 {
        match self.until {
            Until::Count(count) => count.div_ceil(self.batch()),
            // One at the start, none at the end.
            Until::Duration(duration) => (duration.as_secs_f64() * self.ticks_per_second()).ceil() as u64,
        }
    }

    /// The first tick that counts.
    pub fn counted_from(&self) -> u64 {
        (self.warm_up.as_secs_f64() * self.ticks_per_second()).ceil() as u64
    }

    /// From the start to the end of sending.
    pub fn planned(&self) -> Duration {
        match self.until {
            Until::Duration(duration) => duration,
            Until::Count(count) => {
                Duration::try_from_secs_f64(count as f64 / self.packets_per_second).unwrap_or(Duration::MAX)
            }
        }
    }
}
