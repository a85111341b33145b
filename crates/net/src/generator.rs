//! The clock of a load's generator. Tick n is due at t0 + n / rate, whatever became of those before it: a late tick shifts none
//! after it and is not repaid by a burst (measuring rule 3). How late ticks were is kept, so that a generator that was the
//! limit itself can be called so (measuring rule 9).

use serde::{Deserialize, Serialize};
use weir_core::evidence::GeneratorFacts;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::{Histogram, Observed, Row};
use weir_seams::workload::Outcome;

pub const LATENESS: Metric = Metric::new(
    "generator.lateness_seconds",
    "s",
    Better::Lower,
    Scope::Operation,
    "How late the load's generator met its ticks, which are at the step's start + n / rate: when the tick was \
        issued (or given up, where the next one was due already) minus when it was intended. Ticks of the warm-up are not in \
        it. Upper edges of buckets at most 1/16 wide.",
);
pub const MISSED: Metric = Metric::new(
    "generator.missed_ratio",
    "1",
    Better::Lower,
    Scope::Flow,
    "Share of the ticks that were due for which the generator issued nothing because it woke up a period or more \
        late. They are not repaid by a burst, and are no loss of the network's.",
);

/// Sub-buckets of each power of two: a value is known to 1/16.
const SUBBUCKETS: usize = 16;
/// Up to 2^40 ns, eighteen minutes.
const BUCKETS: usize = 37 * SUBBUCKETS;
/// Missed ticks of one wake-up that are counted one by one; beyond, in so many equal groups.
const MISSED_GROUPS: u64 = 256;

/// Ticks at t0 + n / rate.
#[derive(Clone, Debug)]
pub struct Ticks {
    start_ns: u64,
    period_ns: f64,
    next: u64,
    /// Ticks in all.
    limit: u64,
}

/// A tick to issue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub number: u64,
    /// Those just before it that were slept through.
    pub missed: u64,
}

impl Due {
    /// What of it is from tick `first` on: those slept through before are of the warm-up.
    pub fn counted_from(self, first: u64) -> Option<Due> {
        (self.number >= first).then(|| Due { missed: self.missed.min(self.number - first), ..self })
    }
}

impl Ticks {
    /// `rate_hertz` above zero.
    pub fn new(start_ns: u64, rate_hertz: f64) -> Ticks {
        Ticks { start_ns, period_ns: 1e9 / rate_hertz, next: 0, limit: u64::MAX }
    }
    /// Only the first `count`.
    pub fn until(mut self, count: u64) -> Ticks {
        self.limit = count;
        self
    }
    /// There are no more.
    pub fn stop(&mut self) {
        self.limit = self.next;
    }
    pub fn over(&self) -> bool {
        self.next >= self.limit
    }

    /// When tick `number` is intended. Computed from the number, so that no error adds up.
    pub fn at_ns(&self, number: u64) -> u64 {
        self.start_ns.saturating_add((number as f64 * self.period_ns) as u64)
    }
    pub fn period_ns(&self) -> f64 {
        self.period_ns
    }
    /// The number of the first tick intended at `at_ns` or later.
    pub fn first_from(&self, at_ns: u64) -> u64 {
        let number = (at_ns.saturating_sub(self.start_ns) as f64 / self.period_ns) as u64;
        // Rounding may be off by one either way.
        (number.saturating_sub(1)..).find(|number| self.at_ns(*number) >= at_ns).unwrap_or(u64::MAX)
    }
    /// When; `u64::MAX` when there is none.
    pub fn next_ns(&self) -> u64 {
        if self.over() { u64::MAX } else { self.at_ns(self.next) }
    }

    /// The newest tick that is due at `now_ns`, each at most once; `None` before the next is due.
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        if now_ns < self.next_ns() {
            return None;
        }
        let mut number = ((now_ns - self.start_ns) as f64 / self.period_ns) as u64;
        // Rounding may be off by one either way.
        while number > self.next && self.at_ns(number) > now_ns {
            number -= 1;
        }
        while self.at_ns(number + 1) <= now_ns {
            number += 1;
        }
        let number = number.max(self.next).min(self.limit - 1);
        let missed = number - self.next;
        self.next = number + 1;
        Some(Due { number, missed })
    }
}

/// How late ticks were: a distribution of fixed size.
#[derive(Clone)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    missed: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: f64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
            missed: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0.0,
        }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUBBUCKETS as u64 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() as usize;
    let sub = (value >> (octave - 4)) as usize & (SUBBUCKETS - 1);
    ((octave - 3) * SUBBUCKETS + sub).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn upper_edge(bucket: usize) -> u64 {
    if bucket < SUBBUCKETS {
        return bucket as u64;
    }
    let (octave, sub) = (bucket / SUBBUCKETS + 3, bucket % SUBBUCKETS);
    (((SUBBUCKETS + sub + 1) as u64) << (octave - 4)) - 1
}

impl Lateness {
    fn record(&mut self, late_ns: u64, count: u64) {
        self.buckets[bucket_of(late_ns)] += count;
        self.count += count;
        self.min_ns = self.min_ns.min(late_ns);
        self.max_ns = self.max_ns.max(late_ns);
        self.sum_ns += late_ns as f64 * count as f64;
    }

    /// Notes a tick taken at `now_ns` with those given up for it.
    pub fn note(&mut self, ticks: &Ticks, due: Due, now_ns: u64) {
        self.record(now_ns.saturating_sub(ticks.at_ns(due.number)), 1);
        self.missed += due.missed;
        let group = due.missed.div_ceil(MISSED_GROUPS).max(1);
        let mut left = due.missed;
        while left > 0 {
            let count = left.min(group);
            let number = due.number - due.missed + (due.missed - left);
            self.record(now_ns.saturating_sub(ticks.at_ns(number)), count);
            left -= count;
        }
    }

    /// Notes a tick met so late. For generators that give none up.
    pub fn meet(&mut self, late_ns: u64) {
        self.record(late_ns, 1);
    }

    /// `None` when no tick was due.
    pub fn account(&self, ticks: &Ticks) -> Option<Account> {
        (self.count > 0).then(|| Account {
            due: self.count,
            missed: self.missed,
            period_ns: ticks.period_ns() as u64,
        })
    }

    fn histogram(&self) -> Histogram {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let (value_ns, count) =
            filled.map(|(bucket, count)| (upper_edge(bucket).min(self.max_ns), *count)).unzip();
        Histogram { value_ns, count, min_ns: self.min_ns, max_ns: self.max_ns, sum_ns: self.sum_ns }
    }

    /// Rows for the record; none when no tick was due.
    pub fn rows(&self, entity: &str) -> Vec<Row> {
        if self.count == 0 {
            return Vec::new();
        }
        let row =
            |metric: &Metric, value| Row { entity: entity.to_owned(), metric: metric.name.to_owned(), value };
        vec![
            row(&LATENESS, Observed::Histogram(self.histogram())),
            row(&MISSED, Observed::Value(self.missed as f64 / self.count as f64)),
        ]
    }
}

/// What a generator says of its ticks to whoever derives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub due: u64,
    pub missed: u64,
    pub period_ns: u64,
}

/// The facts of all generators of a step, from their accounts and the rows of their outcomes. `None` without a generator.
pub fn facts(accounts: &[Account], outcomes: &[Outcome]) -> Option<GeneratorFacts> {
    let due_count: u64 = accounts.iter().map(|account| account.due).sum();
    if due_count == 0 {
        return None;
    }
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    let mut max_ns = 0;
    for row in outcomes.iter().flat_map(|outcome| &outcome.rows).filter(|row| row.metric == LATENESS.name) {
        if let Observed::Histogram(histogram) = &row.value {
            buckets.extend(histogram.value_ns.iter().copied().zip(histogram.count.iter().copied()));
            max_ns = max_ns.max(histogram.max_ns);
        }
    }
    buckets.sort_unstable();
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * 0.99).ceil() as u64;
    let mut below = 0;
    let quantile = buckets.iter().find(|(_, count)| {
        below += count;
        below >= wanted
    });
    let period_ns = accounts.iter().map(|account| account.period_ns).min().unwrap_or(0);
    Some(GeneratorFacts {
        due_count,
        missed_count: accounts.iter().map(|account| account.missed).sum(),
        lateness_seconds: quantile.map_or(0, |(value, _)| *value) as f64 / 1e9,
        lateness_seconds_max: max_ns as f64 / 1e9,
        period_seconds: period_ns as f64 / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Spec: net-protocol.md#clock-1
    #[test]
    fn a_late_tick_shifts_none_after_it_and_those_slept_through_are_not_repaid() {
        let mut ticks = Ticks::new(1000, 1e8);
        assert_eq!(ticks.take(999), None);
        assert_eq!(ticks.take(1000), Some(Due { number: 0, missed: 0 }));
        assert_eq!(ticks.take(1009), None);
        assert_eq!(ticks.take(1013), Some(Due { number: 1, missed: 0 }));
        assert_eq!(ticks.next_ns(), 1020);
        assert_eq!(ticks.take(1055), Some(Due { number: 5, missed: 3 }));
        assert_eq!(ticks.take(1055), None);
        assert_eq!(ticks.next_ns(), 1060);
        // Of eight ticks the last is number 7, however late it is.
        let mut ticks = ticks.until(8);
        assert_eq!(ticks.take(5000), Some(Due { number: 7, missed: 1 }));
        assert_eq!((ticks.take(9000), ticks.next_ns(), ticks.over()), (None, u64::MAX, true));
    }

    // Spec: net-protocol.md#clock-2
    #[test]
    fn lateness_counts_every_tick_that_was_due_those_given_up_too() {
        let mut ticks = Ticks::new(0, 1e6);
        let mut lateness = Lateness::default();
        for now in [100, 1_000, 5_500] {
            let due = ticks.take(now).unwrap();
            lateness.note(&ticks, due, now);
        }
        let account = lateness.account(&ticks).unwrap();
        assert_eq!(account, Account { due: 6, missed: 3, period_ns: 1000 });
        let histogram = lateness.histogram();
        assert_eq!((histogram.min_ns, histogram.max_ns, histogram.sum_ns), (0, 3_500, 8_100.0));
        let rows = lateness.rows("flow.a.b.0");
        let outcome = Outcome { rows, ..Outcome::default() };
        let facts = facts(&[account], &[outcome]).unwrap();
        assert_eq!((facts.due_count, facts.missed_count, facts.lateness_seconds_max), (6, 3, 3.5e-6));
        assert_eq!(facts.lateness_seconds, 3.5e-6);
    }

    // Spec: net-protocol.md#clock-2
    #[test]
    fn ticks_slept_through_in_the_warm_up_count_no_more_than_those_taken_there() {
        let mut ticks = Ticks::new(0, 1e6);
        assert_eq!((ticks.first_from(0), ticks.first_from(4_000), ticks.first_from(4_001)), (0, 4, 5));
        ticks.take(0);
        let due = ticks.take(9_200).unwrap();
        assert_eq!(due, Due { number: 9, missed: 8 });
        assert_eq!(due.counted_from(4), Some(Due { number: 9, missed: 5 }));
        assert_eq!(due.counted_from(9), Some(Due { number: 9, missed: 0 }));
        assert_eq!(due.counted_from(10), None);
    }

    proptest! {
        #[test]
        fn ticks_are_taken_once_in_order_and_never_before_they_are_due(
            start in 0u64..1 << 50,
            rate in 0.01f64..2e6,
            steps in prop::collection::vec(0u64..5_000_000, 1..100),
        ) {
            let mut ticks = Ticks::new(start, rate);
            let (mut now, mut expected) = (start, 0);
            for step in steps {
                now += step;
                if let Some(due) = ticks.take(now) {
                    prop_assert_eq!(due.number - due.missed, expected);
                    prop_assert!(ticks.at_ns(due.number) <= now && now < ticks.at_ns(due.number + 1));
                    prop_assert_eq!(ticks.first_from(ticks.at_ns(due.number)), due.number);
                    expected = due.number + 1;
                }
            }
        }

        #[test]
        fn a_value_lies_in_its_bucket_and_no_further_than_a_sixteenth_below_its_edge(value in 0u64..1 << 40) {
            let edge = upper_edge(bucket_of(value));
            prop_assert!(value <= edge && (edge - value) as f64 <= value as f64 / 16.0, "{} {}", value, edge);
        }

        #[test]
        fn many_missed_ticks_are_all_counted_in_a_bounded_number_of_steps(missed in 0u64..10_000_000) {
            let ticks = Ticks::new(0, 1e6);
            let mut lateness = Lateness::default();
            lateness.note(&ticks, Due { number: missed, missed }, missed * 1000);
            prop_assert_eq!((lateness.count, lateness.missed), (missed + 1, missed));
        }
    }
}
