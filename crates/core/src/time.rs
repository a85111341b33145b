//! The experiment's clock.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds on the experiment's clock: `CLOCK_MONOTONIC` of the host in a real run, virtual time in tests.
///
/// Only differences have a meaning; a label in real time is kept beside it where people need one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Instant = Instant(0);
    /// Later than any instant a run can reach (584 years).
    pub const NEVER: Instant = Instant(u64::MAX);

    pub const fn from_ns(ns: u64) -> Self {
        Instant(ns)
    }
    pub const fn as_ns(self) -> u64 {
        self.0
    }
    /// Time since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// Signed difference in seconds, `self − other`.
    pub fn seconds_from(self, other: Instant) -> f64 {
        (i128::from(self.0) - i128::from(other.0)) as f64 / 1e9
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, by: Duration) -> Instant {
        Instant(self.0.saturating_add(nanoseconds(by)))
    }
}
impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, by: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanoseconds(by)))
    }
}
/// A time in nanoseconds; one of more than 584 years is `u64::MAX`.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
