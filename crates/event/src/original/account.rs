//! What the three roles have to tell of a run. Times are nanoseconds on the host's monotonic clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::Instant;
use weir_core::record::Series;

/// Points of a series, and events that are listed with their times: what is more is thinned out, or only counted.
const POINTS_MAX: usize = 16_384;

/// A series as it grows: at most one point each `interval`, and twice that each time it is full.
#[derive(Clone, Debug)]
pub struct Track {
    interval: Duration,
    next: Instant,
    t_ns: Vec<i64>,
    value: Vec<f64>,
    /// What was not taken as a point; the last one is, at the end.
    last: Option<(Instant, f64)>,
}

impl Track {
    pub fn new(interval: Duration) -> Track {
        // Invariant: memory is taken once; a sample takes none.
        Track {
            interval,
            next: Instant::ZERO,
            t_ns: Vec::with_capacity(POINTS_MAX + 1),
            value: Vec::with_capacity(POINTS_MAX + 1),
            last: None,
        }
    }

    pub fn sample(&mut self, now: Instant, value: f64) {
        if now < self.next {
            self.last = Some((now, value));
            return;
        }
        if self.t_ns.len() == POINTS_MAX {
            for kept in 0..POINTS_MAX / 2 {
                self.t_ns[kept] = self.t_ns[2 * kept];
                self.value[kept] = self.value[2 * kept];
            }
            self.t_ns.truncate(POINTS_MAX / 2);
            self.value.truncate(POINTS_MAX / 2);
            self.interval *= 2;
        }
        self.push(now, value);
        self.last = None;
        self.next = now + self.interval;
    }

    fn push(&mut self, now: Instant, value: f64) {
        self.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
        self.value.push(value);
    }

    pub fn finish(mut self, name: &str, unit: &str, cumulative: bool) -> Series {
        if let Some((now, value)) = self.last {
            self.push(now, value);
        }
        Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            cumulative,
            t_ns: self.t_ns,
            value: self.value,
            ..Series::default()
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchedulerAccount {
    pub started_ns: u64,
    /// When the channels were sent.
    pub configured_ns: Option<u64>,
    pub heartbeats: u64,
    pub first_beat_ns: Option<u64>,
    pub last_beat_ns: Option<u64>,
    /// The iteration after the last heartbeat, with which `stop_wait` begins.
    pub last_iteration_ns: Option<u64>,
    /// When acknowledgements stopped counting.
    pub stopped_ns: Option<u64>,
    pub ended_ns: u64,
    /// Acknowledgements that the original would have counted.
    pub acknowledged_at_stop: u64,
    /// Acknowledgements in all, those after the stop too.
    pub acknowledgements: u64,
    /// Heartbeats that had at least one acknowledgement: at the stop, and at the end.
    pub distinct_at_stop: u64,
    pub distinct: u64,
    /// Of a heartbeat that had one already, or that was never sent.
    pub repeated: u64,
    pub unknown: u64,
    /// By how many heartbeats they ran ahead of first + n / rate at the most: the burst.
    pub ahead_max: f64,
    pub broadcasts_dropped: u64,
    /// Builders that registered when the channels had been sent.
    pub registered_late: u64,
    /// Connections of builders that ended during the run.
    pub builders_gone: u64,
    pub failure: Option<String>,
    /// `event.heartbeats`, `event.acknowledged`.
    pub series: Vec<Series>,
}

impl SchedulerAccount {
    pub(super) fn on_beat(&mut self, now: Instant, count: u64, rate_hz: f64) {
        let first_ns = *self.first_beat_ns.get_or_insert(now.as_ns());
        self.last_beat_ns = Some(now.as_ns());
        self.heartbeats = count;
        let due = now.seconds_from(Instant::from_ns(first_ns)) * rate_hz;
        self.ahead_max = self.ahead_max.max((count - 1) as f64 - due);
    }

    /// What document 002 called loss: heartbeats without an acknowledgement when the scheduler stopped listening, as a share.
    /// `None` without a heartbeat.
    pub fn unacknowledged_ratio(&self) -> Option<f64> {
        self.share(self.heartbeats.saturating_sub(self.acknowledged_at_stop))
    }

    /// The share of heartbeats that had no acknowledgement when all was over.
    pub fn undelivered_ratio(&self) -> Option<f64> {
        self.share(self.heartbeats.saturating_sub(self.distinct))
    }

    fn share(&self, count: u64) -> Option<f64> {
        (self.heartbeats > 0).then(|| count as f64 / self.heartbeats as f64)
    }

    /// From the first heartbeat to the last.
    pub fn run(&self) -> Duration {
        let (first, last) = (self.first_beat_ns.unwrap_or(0), self.last_beat_ns.unwrap_or(0));
        Duration::from_nanos(last.saturating_sub(first))
    }

    /// From the last heartbeat until acknowledgements stopped counting: `stop_wait` and a period of the limiter.
    pub fn listened(&self) -> Duration {
        let (last, stopped) = (self.last_beat_ns.unwrap_or(0), self.stopped_ns.unwrap_or(0));
        Duration::from_nanos(stopped.saturating_sub(last))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceAccount {
    /// Times that it was told of channels.
    pub told: u64,
    /// Heartbeats heard, and those missing between them.
    pub heard: u64,
    pub missed: u64,
    pub first_heard_ns: Option<u64>,
    pub last_heard_ns: Option<u64>,
    /// Given to TCP whole.
    pub fragments_sent: u64,
    /// With what goes before parts.
    pub bytes_sent: u64,
    /// Found their queue full.
    pub dropped: u64,
    /// For a builder that the source does not know.
    pub no_channel: u64,
    /// On their way when a connection ended.
    pub cut: u64,
    /// In queues at the end.
    pub left_fragments: u64,
    pub left_bytes: u64,
    /// Most that waited at once, all queues together.
    pub queue_bytes_max: u64,
    /// The longest that handling one heartbeat took, sends included, ns.
    pub handling_ns_max: u64,
    /// Connections made again after they had ended.
    pub reconnects: u64,
    pub rebuilds: u64,
    /// `event.queue_bytes`: what waits for all builders.
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuilderAccount {
    pub fragments: u64,
    /// With what goes before parts; payload alone.
    pub bytes_received: u64,
    pub payload_bytes: u64,
    pub acknowledged: u64,
    /// Groups that were acknowledged although their heartbeats differ: nobody noticed.
    pub mixed: u64,
    /// Groups that were not acknowledged since an arrival differed: what document 002 called out of order.
    pub mismatched: u64,
    /// When those ended, and the heartbeat of their first fragment; no more than 16,384 of them.
    pub mismatched_at: Vec<(u64, u64)>,
    /// Fragments of groups that were not acknowledged.
    pub discarded: u64,
    pub duplicates: u64,
    /// Fragments that waited for others at the end.
    pub left_fragments: u64,
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    /// Acknowledgements that found their queue full.
    pub acknowledgements_dropped: u64,
    /// Data connections that ended, and those that did not speak the protocol.
    pub sources_gone: u64,
    pub garbage: u64,
    /// `event.received_bytes`.
    pub series: Vec<Series>,
}

impl BuilderAccount {
    pub(super) fn on_mismatch(&mut self, now: Instant, id: u64) {
        self.mismatched += 1;
        if self.mismatched_at.len() < POINTS_MAX {
            self.mismatched_at.push((now.as_ns(), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_is_thinned_out_and_keeps_its_ends() {
        let mut track = Track::new(Duration::from_nanos(1));
        let count = 100_000;
        for n in 0..count {
            track.sample(Instant::from_ns(n * 10), n as f64);
        }
        let series = track.finish("event.queue_bytes", "B", false);
        assert!(series.t_ns.len() <= POINTS_MAX + 1, "{}", series.t_ns.len());
        assert_eq!((series.t_ns[0], series.value[0]), (0, 0.0));
        let last = series.t_ns.len() - 1;
        assert_eq!((series.t_ns[last], series.value[last]), ((count as i64 - 1) * 10, count as f64 - 1.0));
        assert!(series.t_ns.is_sorted());
    }
}
