//! Room for a flow's samples, taken before the load begins, and never more than that.

/// A sample and when it was taken, ns on the host's monotonic clock.
pub struct Samples<T> {
    items: Vec<(u64, T)>,
    capacity: usize,
    interval_ns: u64,
    next_due_ns: u64,
}

impl<T: Copy> Samples<T> {
    /// Room for `capacity` samples (at least 16), the first due `interval_ns` after `start_ns`.
    pub fn new(capacity: usize, start_ns: u64, interval_ns: u64) -> Self {
        let capacity = capacity.max(16);
        Samples {
            items: Vec::with_capacity(capacity),
            capacity,
            interval_ns,
            next_due_ns: start_ns.saturating_add(interval_ns),
        }
    }

    pub fn next_due_ns(&self) -> u64 {
        self.next_due_ns
    }
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
    pub fn last_ns(&self) -> Option<u64> {
        self.items.last().map(|(at, _)| *at)
    }

    /// Keeps a sample; the next is due an interval after this one was, or after now if that is past. When the room is used
    /// up every second sample goes and the interval doubles: a run that lasts longer than planned loses resolution, not
    /// its end.
    pub fn push(&mut self, at_ns: u64, sample: T) {
        if self.items.len() == self.capacity {
            let mut index = 0;
            self.items.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        self.items.push((at_ns, sample));
        if at_ns >= self.next_due_ns {
            let behind = at_ns - self.next_due_ns;
            self.next_due_ns = at_ns - behind % self.interval_ns + self.interval_ns;
        }
    }

    pub fn into_items(self) -> Vec<(u64, T)> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: net-protocol.md#series-3
    #[test]
    fn a_run_longer_than_planned_keeps_its_first_and_last_samples_in_the_room_it_had() {
        let mut samples = Samples::new(16, 0, 10);
        let before = samples.items.capacity();
        for at in 1..=1000u64 {
            if at >= samples.next_due_ns() {
                samples.push(at, at);
            }
        }
        samples.push(1001, 1001);
        assert_eq!(samples.items.capacity(), before);
        assert!(samples.interval_ns() > 10);
        let items = samples.into_items();
        assert!(items.len() <= 16);
        assert_eq!(items[0].0, 10);
        assert_eq!(items.last().unwrap().0, 1001);
        assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_late_sample_does_not_shift_the_ticks_after_it() {
        let mut samples = Samples::new(16, 100, 10);
        samples.push(113, 0);
        assert_eq!(samples.next_due_ns(), 120);
        samples.push(155, 0);
        assert_eq!(samples.next_due_ns(), 160);
    }
}
