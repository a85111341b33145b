//! What became of the datagrams of a flow, as its receiver sees them come. Pure, of fixed size.
//!
//! Reordering and its extent are those of RFC 4737 (sections 3.3 and 4.2): a datagram is reordered when one with a larger number
//! came before it; its extent is how many came since the first of those. Jitter is that of RFC 3550, section 6.4.1.

use crate::latency::trips::Trips;
use std::io;

/// Numbers below the largest that are told apart as seen or not; of older ones a repetition is not known.
const WINDOW: u64 = 1 << 16;
/// Arrivals that extents reach back over.
const HISTORY: usize = 1 << 14;
const WORD: u64 = u64::BITS as u64;

/// Datagrams of one flow.
pub struct Account {
    /// Those before belong to the warm-up.
    counted_from: u64,
    /// Which of the last `WINDOW` numbers came, a bit each.
    seen: Vec<u64>,
    /// The largest number of all that came before each of the last arrivals, itself included, and how many there were.
    largest: Vec<u64>,
    arrivals: u64,
    /// One more than the largest number.
    next: u64,
    transit_ns: Option<i64>,
    least_ns: i64,
    pub distinct: u64,
    pub duplicate: u64,
    pub reordered: u64,
    /// Of the datagram that came latest in this sense.
    pub extent_max: u64,
    pub jitter_ns: f64,
    /// One-way delays above the smallest so far.
    pub variation: Trips,
    /// Of those that count: when the first and the last came.
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Account {
    pub fn new(counted_from: u64) -> io::Result<Account> {
        Ok(Account {
            counted_from,
            seen: vec![0; (WINDOW / WORD) as usize],
            largest: vec![0; HISTORY],
            arrivals: 0,
            next: 0,
            transit_ns: None,
            least_ns: i64::MAX,
            distinct: 0,
            duplicate: 0,
            reordered: 0,
            extent_max: 0,
            jitter_ns: 0.0,
            variation: Trips::new()?,
            first_ns: 0,
            last_ns: 0,
        })
    }

    /// What has come so far belongs to the warm-up. Returns the first number that counts.
    pub fn begin_counting(&mut self) -> u64 {
        self.counted_from = self.next;
        self.next
    }

    /// One more than the largest number that came.
    pub fn next(&self) -> u64 {
        self.next
    }

    fn bit(&mut self, number: u64) -> (&mut u64, u64) {
        let at = number % WINDOW;
        (&mut self.seen[(at / WORD) as usize], 1 << (at % WORD))
    }

    /// Marks `number`; true when it was marked before. Of numbers that have left the window nothing is known.
    fn mark(&mut self, number: u64) -> bool {
        if number >= self.next {
            // What lies between has not come yet.
            if number - self.next >= WINDOW {
                self.seen.fill(0);
            } else {
                for between in self.next..=number {
                    let (word, bit) = self.bit(between);
                    *word &= !bit;
                }
            }
            self.next = number + 1;
        } else if number + WINDOW < self.next {
            return false;
        }
        let (word, bit) = self.bit(number);
        let before = *word & bit != 0;
        *word |= bit;
        before
    }

    /// How many arrivals ago the first one came whose number is larger.
    fn extent(&self, number: u64) -> u64 {
        let kept = self.arrivals.min(HISTORY as u64);
        let oldest = self.arrivals - kept;
        let at = |arrival: u64| self.largest[(arrival % HISTORY as u64) as usize];
        // The largest so far never falls.
        let (mut low, mut high) = (oldest, self.arrivals);
        while low < high {
            let middle = low + (high - low) / 2;
            if at(middle) > number { high = middle } else { low = middle + 1 }
        }
        self.arrivals - low
    }

    /// A datagram came. Times are each by its own end's clock.
    pub fn on_datagram(&mut self, number: u64, sent_ns: u64, received_ns: u64) {
        let late = number < self.next;
        let repeated = self.mark(number);
        let counts = number >= self.counted_from;
        if repeated {
            self.duplicate += u64::from(counts);
            return;
        }
        if late && counts {
            self.reordered += 1;
            self.extent_max = self.extent_max.max(self.extent(number));
        }
        self.largest[(self.arrivals % HISTORY as u64) as usize] = self.next - 1;
        self.arrivals += 1;
        let transit_ns = received_ns.wrapping_sub(sent_ns) as i64;
        self.least_ns = self.least_ns.min(transit_ns);
        let before = self.transit_ns.replace(transit_ns);
        if !counts {
            return;
        }
        if let Some(before) = before {
            self.jitter_ns += (transit_ns.abs_diff(before) as f64 - self.jitter_ns) / 16.0;
        }
        self.variation.record(transit_ns.abs_diff(self.least_ns));
        if self.distinct == 0 {
            self.first_ns = received_ns;
        }
        self.distinct += 1;
        self.last_ns = received_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn account(numbers: &[u64]) -> Account {
        let mut account = Account::new(0).unwrap();
        for (at, number) in numbers.iter().enumerate() {
            account.on_datagram(*number, number.wrapping_mul(1_000), 1_000 * at as u64 + 500);
        }
        account
    }

    // Spec: net-protocol.md#udp-3
    #[test]
    fn reordering_and_its_extent_are_those_of_rfc_4737() {
        // 4 comes three arrivals after 5, the first one that it should have come before.
        let one = account(&[1, 2, 3, 5, 6, 7, 4, 8]);
        assert_eq!((one.reordered, one.extent_max, one.distinct, one.duplicate), (1, 3, 8, 0));
        let two = account(&[1, 2, 4, 3, 6, 5]);
        assert_eq!((two.reordered, two.extent_max), (2, 1));
        // A loss is no reordering, a repetition neither.
        let three = account(&[0, 2, 2, 3, 3, 9]);
        assert_eq!((three.reordered, three.distinct, three.duplicate), (0, 4, 2));
    }

    // Spec: net-protocol.md#udp-3
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut account = Account::new(0).unwrap();
        // Transit times of 100, 116, 100 us: differences of 16 us both times.
        for (number, transit_ns) in [(0, 100_000), (1, 116_000), (2, 100_000)] {
            account.on_datagram(number, number * 1_000_000, number * 1_000_000 + transit_ns);
        }
        assert_eq!(account.jitter_ns, 1_000.0 + 15_000.0 / 16.0);
        // The receiver's clock may be far behind.
        let mut behind = Account::new(0).unwrap();
        behind.on_datagram(0, 1 << 60, 5_000);
        behind.on_datagram(1, (1 << 60) + 1_000, 6_160);
        assert_eq!(behind.jitter_ns, 10.0);
    }

    #[test]
    fn the_warm_up_counts_nowhere() {
        let mut account = Account::new(3).unwrap();
        for number in [0, 2, 1, 1, 4, 3, 5] {
            account.on_datagram(number, 0, 10 + number);
        }
        assert_eq!((account.distinct, account.reordered, account.duplicate), (3, 1, 0));
        assert_eq!((account.first_ns, account.last_ns), (14, 15));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_plain_reading_of_the_rules(
            numbers in prop::collection::vec(0u64..2_000, 0..400),
        ) {
            let (mut seen, mut arrived): (BTreeSet<u64>, Vec<u64>) = (BTreeSet::new(), Vec::new());
            let (mut duplicate, mut reordered, mut extent) = (0, 0, 0);
            for number in &numbers {
                if !seen.insert(*number) {
                    duplicate += 1;
                    continue;
                }
                if let Some(first) = arrived.iter().position(|other| other > number) {
                    reordered += 1;
                    extent = extent.max(arrived.len() - first);
                }
                arrived.push(*number);
            }
            let found = account(&numbers);
            prop_assert_eq!(found.distinct, seen.len() as u64);
            prop_assert_eq!(
                (found.duplicate, found.reordered, found.extent_max),
                (duplicate, reordered, extent as u64)
            );
        }

        #[test]
        fn numbers_far_apart_and_far_behind_neither_panic_nor_count_twice(
            numbers in prop::collection::vec(0u64..1 << 56, 0..200),
        ) {
            let found = account(&numbers);
            prop_assert_eq!(found.distinct + found.duplicate, numbers.len() as u64);
        }
    }
}
