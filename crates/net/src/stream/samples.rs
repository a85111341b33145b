//! Room for a flow's samples, taken before the load begins, and never more than that.

/// A sample and when it was taken, ns on the host's monotonic clock.
pub struct Samples<T> {
    items: Vec<(u64, T)>,
    capacity: usize,
    interval_ns: u64,
    next_due_ns: u64,
    /// Where ticks stay as they are when the room is used up: only every so many-th sample is kept.
    stride: Option<u64>,
    taken: u64,
    last_ns: Option<u64>,
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
            stride: None,
            taken: 0,
            last_ns: None,
        }
    }

    /// Likewise, of samples that all go elsewhere too: the room keeps a coarser series of them, and ticks stay as they are.
    pub fn beside(capacity: usize, start_ns: u64, interval_ns: u64) -> Self {
        Samples { stride: Some(1), ..Samples::new(capacity, start_ns, interval_ns) }
    }

    /// Samples taken so far, kept or not.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn next_due_ns(&self) -> u64 {
        self.next_due_ns
    }
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
    pub fn last_ns(&self) -> Option<u64> {
        self.last_ns
    }

    /// Keeps a sample; the next is due an interval after this one was, or after now if that is past. When the room is used
    /// up every second sample goes and the interval doubles: a run that lasts longer than planned loses resolution, not
    /// its end.
    pub fn push(&mut self, at_ns: u64, sample: T) {
        if self.stride.is_none_or(|stride| self.taken.is_multiple_of(stride)) {
            if self.items.len() == self.capacity {
                self.thin_out();
            }
            self.items.push((at_ns, sample));
        }
        self.taken += 1;
        self.last_ns = Some(at_ns);
        if at_ns >= self.next_due_ns {
            let behind = at_ns - self.next_due_ns;
            self.next_due_ns = at_ns - behind % self.interval_ns + self.interval_ns;
        }
    }

    fn thin_out(&mut self) {
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            index % 2 == 1
        });
        match &mut self.stride {
            Some(stride) => *stride = stride.saturating_mul(2),
            None => self.interval_ns = self.interval_ns.saturating_mul(2),
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

    // Spec: net-protocol.md#watch-2
    #[test]
    fn samples_kept_beside_others_get_coarser_and_keep_their_ticks() {
        let mut samples = Samples::beside(16, 0, 10);
        for at in 1..=10_000_u64 {
            if at >= samples.next_due_ns() {
                samples.push(at, at);
            }
        }
        assert_eq!((samples.taken(), samples.interval_ns(), samples.next_due_ns()), (1_000, 10, 10_010));
        let items = samples.into_items();
        assert!((8..=16).contains(&items.len()), "{}", items.len());
        let steps: Vec<u64> = items.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
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
