//! What holds the scheduler back to its rate.

use std::time::Duration;
use weir_core::Instant;

/// The controller looks at its clock after so much of work at the least.
const CHECK_NS: i64 = 5_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// Which limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterKind {
    /// A controller of the time that an iteration takes, as the message library of the original has: long iterations are paid back
    /// by others without a pause.
    Adaptive,
    /// Iteration n of those that count ends at t0 + n / rate; waits before the first do not matter.
    Absolute,
}

/// Paces iterations. Time comes in; the time at which the next iteration may begin goes out.
#[derive(Clone, Debug)]
pub enum Limiter {
    Adaptive(Adaptive),
    Absolute { period_seconds: f64, first: Option<Instant>, done: u64 },
}

impl Limiter {
    /// `rate_hz` is above zero. The adaptive one counts from `now`, set-up waits included.
    pub fn new(kind: LimiterKind, rate_hz: f64, now: Instant) -> Limiter {
        match kind {
            LimiterKind::Adaptive => Limiter::Adaptive(Adaptive::new(rate_hz, now)),
            LimiterKind::Absolute => {
                Limiter::Absolute { period_seconds: 1.0 / rate_hz, first: None, done: 0 }
            }
        }
    }

    /// An iteration has ended; `counts` where it was one that sent a heartbeat. When the next may begin: `now` for at once.
    pub fn ended(&mut self, now: Instant, counts: bool) -> Instant {
        match self {
            Limiter::Adaptive(adaptive) => adaptive.ended(now),
            Limiter::Absolute { period_seconds, .. } if !counts => {
                now + Duration::from_secs_f64(*period_seconds)
            }
            Limiter::Absolute { period_seconds, first, done } => {
                *done += 1;
                let first = *first.get_or_insert(now);
                (first + Duration::from_secs_f64(*done as f64 * *period_seconds)).max(now)
            }
        }
    }
}

/// Every so many iterations it takes the mean time of one, smooths it (a quarter old, three quarters new), and steers by two handles:
/// the pause after a check, and the number of iterations to the next check. Within 1/64 of the period wanted it changes nothing, so
/// the rate reached is up to 1.6 % from the rate asked for.
///
/// Twelve seconds of waiting take the mean far above the period; until smoothing has brought it down again, which takes ever more
/// iterations a check, nothing is held back: at 200 Hz some 45 iterations follow each other at once.
///
/// Source: behaviour of `RateLimiter` in FairMQ 1.3.6 (`fairmq/tools/RateLimit.h`), which document 002 names.
#[derive(Clone, Debug)]
pub struct Adaptive {
    wanted_ns: i64,
    /// Smoothed time of one iteration; 0 before the first check.
    seen_ns: i64,
    pause_ns: i64,
    /// Iterations from one check to the next, and those left to it.
    stride: i64,
    left: i64,
    checked: Instant,
}

impl Adaptive {
    pub fn new(rate_hz: f64, now: Instant) -> Adaptive {
        let wanted_ns = ((SECOND_NS as f64 / rate_hz) as i64).max(1);
        let stride = (CHECK_NS / wanted_ns).max(1);
        Adaptive { wanted_ns, seen_ns: 0, pause_ns: 0, stride, left: stride, checked: now }
    }

    fn ended(&mut self, now: Instant) -> Instant {
        self.left -= 1;
        if self.left > 0 {
            return now;
        }
        let took_ns = i64::try_from(now.since(self.checked).as_nanos()).unwrap_or(i64::MAX / 4);
        self.seen_ns = match self.seen_ns {
            0 => took_ns / self.stride,
            seen_ns => (seen_ns + 3 * took_ns / self.stride) / 4,
        };
        if self.seen_ns > self.wanted_ns * 65 / 64 {
            self.hurry();
        } else if self.seen_ns < self.wanted_ns * 63 / 64 {
            self.linger();
        }
        self.checked = now;
        self.left = self.stride;
        now + Duration::from_nanos(self.pause_ns.unsigned_abs())
    }

    /// Too slow: a shorter pause, and without one more iterations to a check, at most a second's worth.
    fn hurry(&mut self) {
        if self.pause_ns > 0 {
            let over_ns = (self.seen_ns - self.wanted_ns).saturating_mul(self.stride) / 2;
            self.pause_ns = (self.pause_ns - over_ns).max(0);
        } else {
            self.stride = ((self.stride * 5 + 3) / 4).min(SECOND_NS / self.wanted_ns).max(1);
        }
    }

    /// Too fast: fewer iterations to a check, and from the fewest on a longer pause.
    fn linger(&mut self) {
        let least = (CHECK_NS / self.wanted_ns).max(1);
        if self.stride > least {
            self.stride = (self.stride * 3 / 4).max(least);
        } else {
            self.pause_ns += (self.wanted_ns - self.seen_ns) * (self.stride * 7) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// When each of `count` iterations ends that take no time themselves, after one that took `wait`.
    fn ends(kind: LimiterKind, rate_hz: f64, wait: Duration, count: usize) -> Vec<f64> {
        let mut limiter = Limiter::new(kind, rate_hz, Instant::ZERO);
        let start = Instant::ZERO + wait;
        let mut now = limiter.ended(start, false);
        let mut ends = Vec::new();
        for _ in 0..count {
            ends.push(now.seconds_from(start));
            now = limiter.ended(now, true);
        }
        ends
    }

    fn at_once(ends: &[f64]) -> usize {
        ends.iter().take_while(|end| **end == ends[0]).count()
    }

    const WAITS: Duration = Duration::from_secs(12);

    // Spec: event-original.md#limiter-1
    #[test]
    fn after_twelve_seconds_of_waiting_some_45_heartbeats_follow_each_other_at_once() {
        assert_eq!(at_once(&ends(LimiterKind::Adaptive, 200.0, WAITS, 100)), 46);
        assert_eq!(at_once(&ends(LimiterKind::Adaptive, 50.0, WAITS, 100)), 32);
        // Without the waits there is nothing to catch up with.
        assert!(at_once(&ends(LimiterKind::Adaptive, 200.0, Duration::from_micros(1), 100)) <= 2);
    }

    // Spec: event-original.md#limiter-1
    #[test]
    fn once_the_burst_is_over_the_rate_is_within_a_64th_of_what_was_asked_for() {
        for rate_hz in [20.0, 50.0, 200.0, 1_000.0] {
            let ends = ends(LimiterKind::Adaptive, rate_hz, WAITS, 20_000);
            let reached_hz = 10_000.0 / (ends[19_999] - ends[9_999]);
            assert!((reached_hz / rate_hz - 1.0).abs() < 0.017, "{rate_hz}: {reached_hz}");
        }
    }

    // Spec: event-original.md#limiter-2
    #[test]
    fn the_absolute_limiter_does_not_know_of_the_waits() {
        let ends = ends(LimiterKind::Absolute, 200.0, WAITS, 1_000);
        let from_first = |n: usize| ends[n] - ends[0];
        assert!((from_first(999) - 999.0 / 200.0).abs() < 1e-6, "{}", from_first(999));
        assert!((from_first(1) - 0.005).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn whatever_iterations_take_the_limiter_neither_panics_nor_goes_back(
            rate_hz in 0.01f64..1e7,
            took_ns in prop::collection::vec(0u64..100_000_000_000, 1..200),
        ) {
            for kind in [LimiterKind::Adaptive, LimiterKind::Absolute] {
                let mut limiter = Limiter::new(kind, rate_hz, Instant::ZERO);
                let mut now = Instant::ZERO;
                for ns in &took_ns {
                    now = now + Duration::from_nanos(*ns);
                    let next = limiter.ended(now, true);
                    prop_assert!(next >= now);
                    now = next;
                }
            }
        }
    }
}
