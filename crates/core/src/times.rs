//! A distribution of times, kept as it grows.

use crate::record;
use hdrhistogram::Histogram;
use std::io::{self, ErrorKind};

/// Longest time that is told apart from longer ones; extremes and sum are exact beyond.
const NS_MAX: u64 = 1 << 40;

/// Memory is taken when it is made, and none later.
pub struct Times {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    count: u64,
}

impl Times {
    pub fn new() -> io::Result<Times> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, NS_MAX, 3)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        // Touches every bucket's page before the load, so that no first count pays for it.
        histogram.reset();
        Ok(Times { histogram, min_ns: u64::MAX, max_ns: 0, sum_ns: 0, count: 0 })
    }

    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` where there is none yet.
    pub fn distribution(&self) -> Option<record::Histogram> {
        let (value_ns, count) = self
            .histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
            .unzip();
        let (min_ns, max_ns, sum_ns) = (self.min_ns, self.max_ns, self.sum_ns as f64);
        (self.count > 0).then_some(record::Histogram { value_ns, count, min_ns, max_ns, sum_ns })
    }
}
