//! A program that is slower than its connection: a source that has a block to send, or a reader that wants one, only at the
//! ticks of its own clock.

use crate::generator::{Lateness, Ticks};

/// One flow's program at one of its ends. Block n may move from t0 + n × block / rate on. Ticks that pass while a block is
/// still moving are the connection's doing: they are skipped and count neither as late nor as missed.
pub struct Pace {
    ticks: Ticks,
    block_bytes: u64,
    /// What is left to move of the block that was due last.
    left_bytes: u64,
    /// Since when the program has waited for its next tick.
    waiting_since_ns: Option<u64>,
    waited_ns: u64,
    /// Ticks before this one are the warm-up's.
    counted_from: u64,
    lateness: Lateness,
}

impl Pace {
    pub fn new(start_ns: u64, counted_from_ns: u64, bits_per_second: u64, block_bytes: u64) -> Pace {
        let ticks = Ticks::new(start_ns, bits_per_second as f64 / 8.0 / block_bytes as f64);
        Pace {
            counted_from: ticks.first_from(counted_from_ns),
            ticks,
            block_bytes,
            left_bytes: 0,
            waiting_since_ns: None,
            waited_ns: 0,
            lateness: Lateness::default(),
        }
    }

    /// Bytes that may move now; 0 until the next tick.
    pub fn allowance(&mut self, now_ns: u64) -> u64 {
        if self.left_bytes > 0 {
            return self.left_bytes;
        }
        let intended_ns = self.ticks.next_ns();
        let Some(due) = self.ticks.take(now_ns) else {
            self.waiting_since_ns.get_or_insert(now_ns);
            return 0;
        };
        if let Some(since_ns) = self.waiting_since_ns.take() {
            self.waited_ns += intended_ns.saturating_sub(since_ns);
            if let Some(due) = due.counted_from(self.counted_from) {
                self.lateness.note(&self.ticks, due, now_ns);
            }
        }
        self.left_bytes = self.block_bytes;
        self.left_bytes
    }

    /// `bytes` of the allowance have moved.
    pub fn moved(&mut self, bytes: u64, now_ns: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        if self.left_bytes == 0 && now_ns < self.ticks.next_ns() {
            self.waiting_since_ns = Some(now_ns);
        }
    }

    pub fn waiting(&self) -> bool {
        self.waiting_since_ns.is_some()
    }
    /// When it may move more.
    pub fn due_ns(&self) -> u64 {
        self.ticks.next_ns()
    }
    /// Time it has waited for its ticks so far, the wait under way included.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        let until = now_ns.min(self.ticks.next_ns());
        self.waited_ns + self.waiting_since_ns.map_or(0, |since| until.saturating_sub(since))
    }
    pub fn lateness(&self) -> (&Lateness, &Ticks) {
        (&self.lateness, &self.ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: net-protocol.md#stream-7
    #[test]
    fn a_block_moves_at_its_tick_and_the_waiting_between_is_counted() {
        // 1000 bytes a microsecond, in blocks of 1000.
        let mut pace = Pace::new(0, 0, 8_000_000_000, 1000);
        assert_eq!(pace.allowance(0), 1000);
        pace.moved(400, 100);
        assert_eq!(pace.allowance(100), 600);
        pace.moved(600, 200);
        assert!(pace.waiting());
        assert_eq!((pace.allowance(900), pace.due_ns()), (0, 1000));
        assert_eq!(pace.waited_ns(700), 500);
        // 150 ns late: the tick was intended at 1000.
        assert_eq!(pace.allowance(1150), 1000);
        assert_eq!(pace.waited_ns(1150), 800);
        let (lateness, ticks) = pace.lateness();
        assert_eq!(lateness.account(ticks).unwrap().due, 1);
    }

    #[test]
    fn ticks_that_pass_while_the_connection_holds_a_block_up_are_not_the_programs() {
        let mut pace = Pace::new(0, 0, 8_000_000_000, 1000);
        assert_eq!(pace.allowance(0), 1000);
        pace.moved(10, 100);
        // The rest goes out five ticks later; the program never waited.
        pace.moved(990, 5_100);
        assert!(!pace.waiting());
        assert_eq!(pace.allowance(5_100), 1000);
        let (lateness, ticks) = pace.lateness();
        assert_eq!(lateness.account(ticks), None);
        assert_eq!(pace.waited_ns(5_100), 0);
    }
}
