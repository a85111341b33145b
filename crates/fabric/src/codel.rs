//! Controlled delay (RFC 8289, section 5): drops at the head of the queue while packets have waited too long for too long.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// A queue of no more than this is never too long.
    mtu: u64,
    /// When each run that waits came.
    entered_ns: VecDeque<u64>,
    /// When the packets will have waited too long for one interval.
    first_above_ns: Option<u64>,
    dropping: bool,
    drop_next_ns: u64,
    count: u64,
    last_count: u64,
    just: Just,
}

/// What the present search for a packet to send has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Just {
    Nothing,
    /// Dropped the first packet of a dropping state: the next is sent.
    Begun,
    /// Dropped another.
    Dropped,
}

impl Codel {
    pub(crate) fn new(target_ns: u64, interval_ns: u64, mtu: u32) -> Self {
        Codel {
            target_ns,
            interval_ns,
            mtu: u64::from(mtu),
            entered_ns: VecDeque::new(),
            first_above_ns: None,
            dropping: false,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
            just: Just::Nothing,
        }
    }

    /// A run came into the queue.
    pub(crate) fn entered(&mut self, now_ns: u64) {
        self.entered_ns.push_back(now_ns);
    }

    /// The queue had nothing to send.
    pub(crate) fn found_empty(&mut self) {
        self.first_above_ns = None;
        self.dropping &= self.just == Just::Begun;
        self.just = Just::Nothing;
    }

    /// Whether the packet at the head is dropped. `ends_run`: nothing of its run is left; `left_bytes` wait behind it.
    pub(crate) fn drops(&mut self, now_ns: u64, ends_run: bool, left_bytes: u64) -> bool {
        let may_drop = self.waited_too_long(now_ns, ends_run, left_bytes);
        match std::mem::replace(&mut self.just, Just::Nothing) {
            Just::Begun => return false,
            Just::Nothing if !self.dropping => {
                if may_drop {
                    self.begin(now_ns);
                }
                return may_drop;
            }
            _ if !may_drop => {
                self.dropping = false;
                return false;
            }
            Just::Dropped => self.drop_next_ns = self.next_drop(self.drop_next_ns),
            Just::Nothing => {}
        }
        if now_ns < self.drop_next_ns {
            return false;
        }
        self.count += 1;
        self.just = Just::Dropped;
        true
    }

    fn begin(&mut self, now_ns: u64) {
        // Shortly after the last time, the rate of drops that was enough then is a good one to begin with.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now_ns.saturating_sub(self.drop_next_ns) < self.interval_ns.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next_ns = self.next_drop(now_ns);
        self.last_count = self.count;
        self.dropping = true;
        self.just = Just::Begun;
    }

    fn waited_too_long(&mut self, now_ns: u64, ends_run: bool, left_bytes: u64) -> bool {
        let entered_ns =
            if ends_run { self.entered_ns.pop_front() } else { self.entered_ns.front().copied() };
        let waited_ns = now_ns.saturating_sub(entered_ns.unwrap_or(now_ns));
        if waited_ns < self.target_ns || left_bytes <= self.mtu {
            self.first_above_ns = None;
            return false;
        }
        let above_ns = *self.first_above_ns.get_or_insert_with(|| now_ns.saturating_add(self.interval_ns));
        now_ns >= above_ns
    }

    fn next_drop(&self, from_ns: u64) -> u64 {
        from_ns.saturating_add((self.interval_ns as f64 / (self.count as f64).sqrt()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 5_000_000;
    const INTERVAL: u64 = 100_000_000;

    /// A queue that is offered 1,500 bytes every millisecond from 0 on and sends as many every 1.25 ms; the times of its drops.
    fn drops_of_an_overload(until_ns: u64) -> Vec<u64> {
        let (mut codel, mut waiting, mut drops) = (Codel::new(TARGET, INTERVAL, 1500), 0_u64, Vec::new());
        let (mut arrived_ns, mut now_ns) = (0, 0);
        while now_ns < until_ns {
            while arrived_ns <= now_ns {
                codel.entered(arrived_ns);
                waiting += 1;
                arrived_ns += 1_000_000;
            }
            loop {
                if waiting == 0 {
                    codel.found_empty();
                    break;
                }
                waiting -= 1;
                if !codel.drops(now_ns, true, waiting * 1500) {
                    break;
                }
                drops.push(now_ns);
            }
            now_ns += 1_250_000;
        }
        drops
    }

    // Spec: fabric.md#fabric-27
    #[test]
    fn under_overload_drops_begin_an_interval_after_the_target_and_come_faster_by_the_square_root_law() {
        let drops = drops_of_an_overload(1_200_000_000);
        // The n-th packet is sent at 1.25 n ms and has waited n/4 ms: 5 ms are reached by the one sent at 25 ms.
        let mut expected = (25_000_000 + INTERVAL) as f64;
        for (index, at_ns) in drops.iter().enumerate() {
            let late = *at_ns as f64 - expected;
            assert!((0.0..1_250_000.0).contains(&late), "drop {index} at {at_ns}, {expected} expected");
            // The first drop sets the clock by its own time, the others by the time at which they were due.
            let from = if index == 0 { *at_ns as f64 } else { expected };
            expected = from + INTERVAL as f64 / ((index + 1) as f64).sqrt();
        }
        assert!(drops.len() > 20, "{drops:?}");
    }

    // Spec: fabric.md#fabric-27
    #[test]
    fn a_burst_shorter_than_the_interval_and_a_queue_of_one_packet_are_left_alone() {
        let mut codel = Codel::new(TARGET, INTERVAL, 1500);
        for now_ms in 0..90 {
            codel.entered(0);
            assert!(!codel.drops(now_ms * 1_000_000, true, 100_000));
        }
        codel.found_empty();
        for now_ms in 1_000..3_000 {
            codel.entered(0);
            assert!(!codel.drops(now_ms * 1_000_000, true, 1_500));
        }
    }

    // Spec: fabric.md#fabric-27
    #[test]
    fn dropping_ends_when_a_packet_has_waited_less_than_the_target_and_resumes_at_the_rate_it_had() {
        let mut codel = Codel::new(TARGET, INTERVAL, 1500);
        let mut now_ns = 0;
        let mut step = |codel: &mut Codel, waited_ns: u64| {
            now_ns += 1_000_000;
            codel.entered(now_ns - waited_ns.min(now_ns));
            codel.drops(now_ns, true, 100_000)
        };
        let drops = (0..1_000).filter(|_| step(&mut codel, 6_000_000)).count();
        assert!(drops > 10 && codel.dropping);
        let count = codel.count;
        assert!(!step(&mut codel, 1_000_000));
        assert!(!codel.dropping);
        while !step(&mut codel, 6_000_000) {}
        assert_eq!(codel.count, count - 1, "the drops of the last time less the one it began with");
    }
}
