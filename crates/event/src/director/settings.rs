//! What holds for a run.

use super::search::SearchPlan;
use crate::message::{RunId, Welcome};
use std::time::Duration;
use weir_core::Instant;
use weir_core::time::nanoseconds;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Heartbeats a second; 0.001 to 10 million.
    pub rate_hz: f64,
    /// Heartbeats in all; `None`: until it is stopped.
    pub events: Option<u64>,
    /// Sources of which an event is made, 1 to 8,192. Others are refused.
    pub sources: u32,
    /// Builders that must be there before the first heartbeat.
    pub builders: u32,
    /// Slots for builders: names, over the whole run; at most 4,096, so that a list of them fits a frame.
    pub builders_max: u32,
    pub trigger_at_source: bool,
    /// No heartbeat comes before.
    pub not_before: Instant,
    /// Between the moment when all are ready and the first heartbeat, so that sources with their own clock hear of it in time.
    pub start_pause: Duration,
    pub deadline: Option<Duration>,
    pub partial: bool,
    pub grant_window_bytes: u64,
    pub probe: Duration,
    pub detect: Duration,
    pub drain: Duration,
    pub source_deadline: Duration,
    /// A heartbeat that is later than this is dropped.
    pub late_max: Duration,
    /// How long peers are heard out after the first that knows of a run; longer than they wait between tries.
    pub learn: Duration,
    /// Time for a join after the connection.
    pub join_within: Duration,
    /// Events held at once. Bounds memory here, and the messages that name them.
    pub held_max: u64,
    /// Intervals of outcomes that are kept before they are settled.
    pub unsettled_max: usize,
    /// Between two settlings: every peer reads each.
    pub settle_pause: Duration,
    pub send_order: String,
    /// Instead of one rate: the highest that is carried.
    pub search: Option<SearchPlan>,
    /// Of payloads and sizes.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rate_hz: 50.0,
            events: None,
            sources: 1,
            builders: 1,
            builders_max: 4096,
            trigger_at_source: false,
            not_before: Instant::ZERO,
            start_pause: Duration::from_millis(50),
            deadline: None,
            partial: false,
            grant_window_bytes: 4 << 20,
            probe: Duration::from_millis(50),
            detect: Duration::from_millis(400),
            drain: Duration::from_secs(10),
            source_deadline: Duration::from_secs(10),
            late_max: Duration::from_millis(100),
            learn: Duration::from_millis(300),
            join_within: Duration::from_secs(5),
            held_max: 131_072,
            unsettled_max: 4096,
            settle_pause: Duration::from_millis(20),
            send_order: "in-order".to_owned(),
            search: None,
            seed: 0,
        }
    }
}

impl Settings {
    /// Every member, as many again that come back before their old connection has ended, and some strangers.
    pub fn connections_max(&self) -> usize {
        2 * (self.sources as usize + self.builders_max as usize) + 64
    }

    pub(super) fn welcome(&self, run: &RunId, slot: u32, epoch: u32) -> Welcome {
        Welcome {
            run: run.clone(),
            slot,
            epoch,
            rate_hz: self.rate_hz,
            probe_ns: nanoseconds(self.probe),
            detect_ns: nanoseconds(self.detect),
            grant_window_bytes: self.grant_window_bytes,
            deadline_ns: self.deadline.map(nanoseconds),
            partial: self.partial,
            trigger_at_source: self.trigger_at_source,
            send_order: self.send_order.clone(),
            seed: self.seed,
        }
    }
}
