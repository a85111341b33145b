//! How long something was behind, and by how much: time by lateness. What should have acted at t0 and did at t1 was behind by 0 at t0, by
//! t1 − t0 at t1, and by everything between in between, so that the time in which it was behind by more than any allowance can be told
//! afterwards, by whoever knows the allowance.

use crate::fabric_page::{lateness_bucket, lateness_bucket_ns};
use serde::{Deserialize, Serialize};

/// Quarters of octaves from 215 µs on, the last open: no allowance is smaller than 500 µs, and lateness below is not kept.
pub const BUCKETS: usize = 80;
const FIRST: usize = 71;
/// Where the first begins: `edge_ns(0)`, for whoever adds something a million times a second.
const KEPT_FROM_NS: u64 = 220_435;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Sparse", from = "Sparse")]
pub struct Behind {
    time_ns: [u64; BUCKETS],
    longest_ns: u64,
}

/// As it travels: only buckets with time in them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sparse {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    time_ns: Vec<(usize, u64)>,
    longest_ns: u64,
}

impl From<Behind> for Sparse {
    fn from(behind: Behind) -> Sparse {
        let filled = behind.time_ns.iter().copied().enumerate().filter(|(_, time)| *time > 0);
        Sparse { time_ns: filled.collect(), longest_ns: behind.longest_ns }
    }
}

impl From<Sparse> for Behind {
    fn from(sparse: Sparse) -> Behind {
        let mut behind = Behind { longest_ns: sparse.longest_ns, ..Behind::default() };
        for (bucket, time) in sparse.time_ns {
            if let Some(own) = behind.time_ns.get_mut(bucket) {
                *own = time;
            }
        }
        behind
    }
}

impl Default for Behind {
    fn default() -> Behind {
        Behind { time_ns: [0; BUCKETS], longest_ns: 0 }
    }
}

/// From where on a bucket counts, ns.
fn edge_ns(bucket: usize) -> u64 {
    lateness_bucket_ns(FIRST + bucket - 1) as u64
}

impl Behind {
    /// `times` stretches in which the lateness grew from `from_ns` to `to_ns` as time passed.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, times: u64) {
        self.longest_ns = self.longest_ns.max(to_ns);
        if to_ns <= KEPT_FROM_NS {
            return;
        }
        let first = lateness_bucket(from_ns).saturating_sub(FIRST);
        for bucket in first..BUCKETS {
            let low = edge_ns(bucket);
            if to_ns <= low {
                return;
            }
            let high = if bucket + 1 < BUCKETS { edge_ns(bucket + 1) } else { u64::MAX };
            let inside = to_ns.min(high).saturating_sub(from_ns.max(low));
            self.time_ns[bucket] += inside.saturating_mul(times);
        }
    }

    /// Time behind by more than this; of a stall that is just above it, up to a fifth of the allowance may be missing.
    pub fn beyond_ns(&self, allowed_ns: u64) -> u64 {
        (0..BUCKETS).filter(|bucket| edge_ns(*bucket) >= allowed_ns).map(|bucket| self.time_ns[bucket]).sum()
    }

    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// How far it was behind summed over that time, ns²: divided by a stretch of time, how far it was behind in the mean of it. What is
    /// not kept counts as nothing, what is kept with the upper edge of its bucket.
    pub fn area_ns2(&self) -> f64 {
        let upper = |bucket: usize| if bucket + 1 < BUCKETS { edge_ns(bucket + 1) } else { self.longest_ns };
        (0..BUCKETS).map(|bucket| self.time_ns[bucket] as f64 * upper(bucket) as f64).sum()
    }

    /// As words of the fabric's page: they only grow.
    pub fn words(&self) -> &[u64; BUCKETS] {
        &self.time_ns
    }

    /// What was added between two readings of the words. The longest stall was at least as long as it says.
    pub fn between(before: &[u64], after: &[u64]) -> Behind {
        let mut behind = Behind::default();
        for (bucket, (after, before)) in after.iter().zip(before).enumerate().take(BUCKETS) {
            behind.time_ns[bucket] = after.saturating_sub(*before);
            if behind.time_ns[bucket] > 0 {
                behind.longest_ns = edge_ns(bucket);
            }
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Spec: evidence.md#fitness-3
    #[test]
    fn a_stall_counts_for_as_long_as_it_was_beyond_what_is_allowed_and_slices_below_that_count_nothing() {
        let mut stalls = Behind::default();
        (0..4).for_each(|_| stalls.add(0, 113 * MS, 1));
        let beyond = stalls.beyond_ns(800_000);
        assert!((4 * 112 * MS..=4 * 113 * MS - 4 * 800_000).contains(&beyond), "{beyond}");
        assert_eq!(stalls.longest_ns(), 113 * MS);
        // Triangles.
        let area = 4.0 * (113.0 * MS as f64).powi(2) / 2.0;
        assert!((area..1.2 * area).contains(&stalls.area_ns2()), "{} is not {area}", stalls.area_ns2());
        let mut slices = Behind::default();
        slices.add(0, 450_000, 5_000);
        assert_eq!(slices.beyond_ns(500_000), 0);
    }

    #[test]
    fn what_is_not_kept_ends_where_the_first_bucket_begins() {
        assert_eq!(KEPT_FROM_NS, edge_ns(0));
        let mut behind = Behind::default();
        behind.add(0, KEPT_FROM_NS, 1);
        assert_eq!((behind.beyond_ns(0), behind.longest_ns()), (0, KEPT_FROM_NS));
        behind.add(0, KEPT_FROM_NS + 7, 1);
        assert_eq!(behind.beyond_ns(0), 7);
    }

    // Spec: evidence.md#fitness-3
    #[test]
    fn who_is_late_by_the_same_all_the_time_is_behind_all_the_time_and_not_for_each_thing_he_does() {
        let mut late = Behind::default();
        // Acts every 0.1 ms, 2 ms late each time, for a second.
        (0..10_000).for_each(|_| late.add(1_900_000, 2_000_000, 1));
        assert_eq!(late.beyond_ns(500_000), 1_000 * MS);
        assert_eq!(late.beyond_ns(3 * MS), 0);
    }

    #[test]
    fn the_words_of_the_page_and_the_text_of_an_outcome_say_the_same_as_what_was_counted() {
        let mut behind = Behind::default();
        behind.add(0, 40 * MS, 2);
        let between = Behind::between(Behind::default().words(), behind.words());
        assert_eq!(between.words(), behind.words());
        assert!((33 * MS..=40 * MS).contains(&between.longest_ns()), "{}", between.longest_ns());
        let text = serde_json::to_string(&behind).unwrap();
        assert_eq!(serde_json::from_str::<Behind>(&text).unwrap(), behind);
        let strange = "{\"time_ns\":[[99999,7]],\"longest_ns\":7}";
        assert_eq!(serde_json::from_str::<Behind>(strange).unwrap().beyond_ns(0), 0);
    }
}
