//! What the rules alone say of the share that is not acknowledged.

use super::line::message_bytes;
use super::rules::Rules;
use std::time::Duration;
use weir_core::model::overload_backlog;

/// A run as the formula sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub rate_hz: f64,
    /// Payload of one fragment.
    pub fragment_bytes: u64,
    /// Sources whose fragments pass the bottleneck: one where each source's own link is it, all where a builder's link is.
    pub sources_at_bottleneck: u64,
    /// Share of heartbeats whose fragments pass it: 1 for a source's link, 1 / builders for the link of one of several builders.
    pub heartbeat_share: f64,
    /// What the bottleneck carries of TCP payload; `weir_core::model::ceiling` gives it.
    pub capacity_bits_per_second: f64,
    /// From the first heartbeat to the last.
    pub run: Duration,
    /// From the last heartbeat until acknowledgements stop counting: `stop_wait` and one period.
    pub stop_wait: Duration,
}

impl Load {
    /// Heartbeats a second that the bottleneck lets through: `C / (8 m)`, with the bytes before each part in m. With the ceiling of all
    /// flows together (every source with every builder), all sources and a share of 1 it holds wherever the bottlenecks are alike.
    pub fn deliverable_hz(&self, rules: &Rules) -> f64 {
        let event_bytes = message_bytes(self.fragment_bytes, rules.id_part) * self.sources_at_bottleneck;
        self.capacity_bits_per_second / (8.0 * event_bytes as f64 * self.heartbeat_share)
    }

    /// `max(0, (λ − μ) T − μ g) / (λ T)`; `None` unless rate and run are above zero. It knows nothing of the burst at the start, of
    /// mismatches and of broadcasts that nobody heard.
    ///
    /// Source: `weir_core::model::overload_backlog`; fitted to document 002's tables it gives 7.36 and 9.63 % for configuration 7 of
    /// the round-robin experiment in 30 and 180 s (measured 7.37 and 9.63) with C = 93.5 Mbit/s and g = 0.91 s.
    pub fn unacknowledged_ratio(&self, rules: &Rules) -> Option<f64> {
        overload_backlog(self.rate_hz, self.deliverable_hz(rules), self.run, self.stop_wait)
    }

    /// Likewise with `burst` heartbeats at once before the first: what a link just below its ceiling does not work off. A queue
    /// that is empty before the last heartbeat stays empty.
    pub fn unacknowledged_ratio_after(&self, rules: &Rules, burst: f64) -> Option<f64> {
        let (run, wait) = (self.run.as_secs_f64(), self.stop_wait.as_secs_f64());
        let (rate, mu) = (self.rate_hz, self.deliverable_hz(rules));
        let left = burst + (rate - mu) * run - mu * wait;
        (rate > 0.0 && run > 0.0).then(|| left.max(0.0) / (rate * run + burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: event-original.md#stop-2
    #[test]
    fn the_formula_gives_the_published_share_of_configuration_7_short_and_long() {
        let rules = Rules { id_part: false, ..Rules::round_robin() };
        let percent = |seconds| {
            let load = Load {
                rate_hz: 200.0,
                fragment_bytes: 65_000 - 9,
                sources_at_bottleneck: 1,
                heartbeat_share: 1.0,
                capacity_bits_per_second: 93.5e6,
                run: Duration::from_secs(seconds),
                stop_wait: Duration::from_millis(910),
            };
            (load.unacknowledged_ratio(&rules).unwrap() * 1e4).round() / 1e2
        };
        assert_eq!((percent(30), percent(180)), (7.37, 9.64));
    }

    #[test]
    fn a_burst_below_the_ceiling_is_left_only_as_far_as_the_run_does_not_work_it_off() {
        let load = |capacity: f64| Load {
            rate_hz: 200.0,
            fragment_bytes: 58_741,
            sources_at_bottleneck: 1,
            heartbeat_share: 1.0,
            capacity_bits_per_second: capacity,
            run: Duration::from_secs(30),
            stop_wait: Duration::from_millis(25),
        };
        let rules = Rules::baseline();
        let left = |capacity| load(capacity).unacknowledged_ratio_after(&rules, 45.0).unwrap();
        assert_eq!(load(94.1e6).unacknowledged_ratio(&rules), Some(0.0));
        assert!((left(94.0e6) - 40.0 / 6_045.0).abs() < 1e-9, "{}", left(94.0e6));
        assert_eq!(left(96.0e6), 0.0);
    }
}
