//! How long the fabric may sleep.

use std::time::Duration;
use weir_core::Instant;

/// The page's heartbeat while nothing happens.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Going to sleep and waking costs about this much even on a CPU that is not halted: for less it is not worth it.
const MARGIN_NS_MIN: u64 = 15_000;
/// A sleep that ends later than this was cut short by other programs, which no margin cures.
const MARGIN_NS_MAX: u64 = 80_000;

/// Ends sleeps before the next event by what waking takes on this machine just now; the rest of the time the fabric looks for
/// packets instead. Waking takes 40 to 60 µs on a virtual CPU that has halted, when there is time to waste, and a few µs
/// on one that is busy, when time spent looking would be taken from the programs that load the lab.
pub struct Pace {
    oversleep_ns: u64,
}

impl Pace {
    pub fn new() -> Self {
        Pace { oversleep_ns: MARGIN_NS_MAX / 2 }
    }

    fn margin_ns(&self) -> u64 {
        (self.oversleep_ns + self.oversleep_ns / 4 + 5_000).clamp(MARGIN_NS_MIN, MARGIN_NS_MAX)
    }

    /// The longest wait from `now` when the core is to be woken at `wake_at`; zero means not to sleep.
    pub fn sleep(&self, now: Instant, wake_at: Option<Instant>) -> Duration {
        let Some(wake_at) = wake_at else { return HEARTBEAT };
        let until_ns = wake_at.as_ns().saturating_sub(now.as_ns());
        Duration::from_nanos(until_ns.saturating_sub(self.margin_ns())).min(HEARTBEAT)
    }

    /// A sleep that nothing ended early was to last until `planned` and lasted until `woken`.
    pub fn slept(&mut self, planned: Instant, woken: Instant) {
        let over_ns = woken.as_ns().saturating_sub(planned.as_ns()).min(MARGIN_NS_MAX);
        self.oversleep_ns = (self.oversleep_ns * 7 + over_ns) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_fabric_sleeps_for_a_heartbeat_and_one_with_an_event_at_hand_does_not_sleep() {
        let pace = Pace::new();
        let now = Instant::from_ns(1_000_000);
        let after = |ns| Some(Instant::from_ns(1_000_000 + ns));
        assert_eq!(pace.sleep(now, None), HEARTBEAT);
        assert_eq!(pace.sleep(now, after(0)), Duration::ZERO);
        assert_eq!(pace.sleep(now, after(MARGIN_NS_MIN)), Duration::ZERO);
        assert_eq!(pace.sleep(now, Some(Instant::ZERO)), Duration::ZERO);
        assert_eq!(pace.sleep(now, after(10_000_000_000)), HEARTBEAT);
    }

    #[test]
    fn sleeps_end_before_the_event_by_more_than_what_waking_has_taken() {
        for over_ns in [0, 3_000, 20_000, 55_000] {
            let mut pace = Pace::new();
            let at = Instant::from_ns(1_000_000);
            for _ in 0..100 {
                pace.slept(at, at + Duration::from_nanos(over_ns));
            }
            let slept = pace.sleep(at, Some(at + Duration::from_millis(1)));
            assert!(slept + Duration::from_nanos(over_ns) < Duration::from_millis(1), "{over_ns}: {slept:?}");
            assert!(slept >= Duration::from_micros(920), "{over_ns}: {slept:?}");
        }
    }
}
