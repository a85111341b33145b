//! How long the fabric may sleep.

use std::time::Duration;
use weir_core::Instant;

/// Up to this long before the next event the fabric looks for packets instead of sleeping: waking a thread on a virtual CPU
/// that has halted takes 40 to 60 µs, which would make the event late.
const POLL_NS: u64 = 50_000;
/// The page's heartbeat while nothing happens.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// The longest wait from `now` when the core is to be woken at `wake_at`; zero means not to sleep.
pub fn sleep(now: Instant, wake_at: Option<Instant>) -> Duration {
    let Some(wake_at) = wake_at else { return HEARTBEAT };
    let until_ns = wake_at.as_ns().saturating_sub(now.as_ns());
    Duration::from_nanos(until_ns.saturating_sub(POLL_NS)).min(HEARTBEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_fabric_sleeps_for_a_heartbeat_and_one_with_an_event_at_hand_does_not_sleep() {
        let now = Instant::from_ns(1_000_000);
        let after = |ns| Some(Instant::from_ns(1_000_000 + ns));
        assert_eq!(sleep(now, None), HEARTBEAT);
        assert_eq!(sleep(now, after(0)), Duration::ZERO);
        assert_eq!(sleep(now, after(POLL_NS)), Duration::ZERO);
        assert_eq!(sleep(now, Some(Instant::ZERO)), Duration::ZERO);
        assert_eq!(sleep(now, after(10_000_000_000)), HEARTBEAT);
        for ns in [51_000, 89_000, 5_000_000] {
            assert!(sleep(now, after(ns)).as_nanos() < u128::from(ns), "{ns}");
        }
    }
}
