//! When the fabric sleeps, and when it delivers.

use std::time::Duration;
use weir_core::Instant;

/// The page's heartbeat while nothing happens.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// What happens inside the network without being a delivery is carried out this late at most: the page's counters follow from
/// it, and whether a host may send on.
const INSIDE_LATE: Duration = Duration::from_millis(1);
/// Deliveries that follow each other faster than this are made together, which joins segments to fewer and larger packets.
/// Half of it is what they are late on average (docs/decisions/0001-fabric-pacing.md).
const PAUSE: Duration = Duration::from_micros(25);
/// Going to sleep and waking costs more than this even on a CPU that is not halted: for less it is not worth it.
const SLEEP_NS_MIN: u64 = 8_000;
/// A sleep that ends later than this was cut short by other programs, which no margin cures.
const OVERSLEEP_NS_MAX: u64 = 80_000;

/// Ends sleeps before the next delivery by what waking takes on this machine just now, and looks for packets the rest of the
/// time. Waking takes 40 to 60 µs on a virtual CPU that has halted, when there is time to waste, and 15 µs on one that is
/// busy, when time spent looking would be taken from the programs that load the lab.
pub struct Pace {
    oversleep_ns: u64,
    /// No delivery before this instant.
    pause_until: Instant,
}

impl Pace {
    pub fn new() -> Self {
        Pace { oversleep_ns: OVERSLEEP_NS_MAX / 2, pause_until: Instant::ZERO }
    }

    /// Whether deliveries that are due now are to wait for those that follow.
    pub fn pauses(&self, now: Instant) -> bool {
        now < self.pause_until
    }

    /// Something was delivered by the turn that began at `turn`; nothing else is due before `deliver_at`.
    pub fn delivered(&mut self, turn: Instant, deliver_at: Option<Instant>) {
        let until = turn + PAUSE;
        if deliver_at.is_some_and(|at| at <= until) {
            self.pause_until = until;
        }
    }

    /// The longest wait from `now` when nothing is delivered before `deliver_at` and nothing happens inside before `wake_at`; zero
    /// means to look for packets without sleeping.
    pub fn sleep(&self, now: Instant, deliver_at: Option<Instant>, wake_at: Option<Instant>) -> Duration {
        let until = |at: Instant| Duration::from_nanos(at.as_ns().saturating_sub(now.as_ns()));
        let limit = wake_at.map_or(HEARTBEAT, |at| until(at).max(INSIDE_LATE)).min(HEARTBEAT);
        let Some(deliver_at) = deliver_at else { return limit };
        let sleep = until(deliver_at).saturating_sub(Duration::from_nanos(self.oversleep_ns));
        if sleep < Duration::from_nanos(SLEEP_NS_MIN) { Duration::ZERO } else { sleep.min(limit) }
    }

    /// A sleep that nothing ended early was to last until `planned` and lasted until `woken`.
    pub fn slept(&mut self, planned: Instant, woken: Instant) {
        let over_ns = woken.as_ns().saturating_sub(planned.as_ns()).min(OVERSLEEP_NS_MAX);
        self.oversleep_ns = (self.oversleep_ns * 7 + over_ns) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(1_000_000_000);
    fn after(us: u64) -> Option<Instant> {
        Some(NOW + Duration::from_micros(us))
    }
    /// One that has learned that waking takes `over_us`.
    fn pace(over_us: u64) -> Pace {
        let mut pace = Pace::new();
        for _ in 0..100 {
            pace.slept(NOW, NOW + Duration::from_micros(over_us));
        }
        pace
    }

    // Spec: lab.md#lab-10
    #[test]
    fn an_idle_fabric_sleeps_for_a_heartbeat_and_one_with_a_delivery_at_hand_does_not_sleep() {
        let pace = Pace::new();
        assert_eq!(pace.sleep(NOW, None, None), HEARTBEAT);
        for at in [Some(Instant::ZERO), after(0), after(10), after(40)] {
            assert_eq!(pace.sleep(NOW, at, at), Duration::ZERO, "{at:?}");
        }
        assert_eq!(pace.sleep(NOW, after(10_000_000), after(10_000_000)), HEARTBEAT);
    }

    // Spec: lab.md#lab-10
    #[test]
    fn sleeps_end_before_a_delivery_by_what_waking_has_taken_and_what_happens_before_it_inside_wakes_nobody()
    {
        for over_us in [0, 3, 20, 55] {
            let slept = pace(over_us).sleep(NOW, after(900), after(1));
            assert!(
                slept + Duration::from_micros(over_us) <= Duration::from_micros(901),
                "{over_us}: {slept:?}"
            );
            assert!(slept >= Duration::from_micros(890 - over_us), "{over_us}: {slept:?}");
        }
    }

    // Spec: lab.md#lab-9
    #[test]
    fn what_happens_inside_is_carried_out_a_millisecond_late_at_most() {
        let pace = pace(0);
        assert_eq!(pace.sleep(NOW, after(50_000), after(1)), INSIDE_LATE);
        assert_eq!(pace.sleep(NOW, after(50_000), after(30_000)), Duration::from_millis(30));
        assert_eq!(pace.sleep(NOW, None, after(30_000)), Duration::from_millis(30));
    }

    // Spec: lab.md#lab-10
    #[test]
    fn a_delivery_that_follows_at_once_waits_for_the_end_of_the_pause_and_a_lone_one_does_not() {
        let mut pace = Pace::new();
        let beyond = NOW + PAUSE + Duration::from_nanos(1);
        for alone in [None, Some(beyond)] {
            pace.delivered(NOW, alone);
            assert!(!pace.pauses(NOW));
        }
        pace.delivered(NOW, after(12));
        assert!(pace.pauses(NOW) && pace.pauses(NOW + PAUSE / 2));
        assert!(!pace.pauses(NOW + PAUSE));
    }
}
