//! Random early detection (Floyd and Jacobson, IEEE/ACM Transactions on Networking 1(4), 1993; RFC 2309).

use crate::chance::{Chance, Generator};

/// Weight of one arrival in the mean of the queue, the paper's `w_q`.
const WEIGHT: f64 = 0.002;

#[derive(Debug)]
pub(crate) struct Red {
    min_bytes: f64,
    max_bytes: f64,
    /// Of a drop where the mean reaches `max_bytes`.
    probability: f64,
    /// What a typical packet takes on the wire: so many could have been sent while the queue was empty.
    packet_ns: u64,
    mean_bytes: f64,
    empty_since_ns: u64,
    /// Arrivals since the last drop; `None` below `min_bytes`.
    since_drop: Option<u64>,
    generator: Generator,
}

impl Red {
    pub(crate) fn new(min: u64, max: u64, probability: f64, packet_ns: u64, generator: Generator) -> Self {
        Red {
            min_bytes: min as f64,
            max_bytes: max as f64,
            probability,
            packet_ns,
            mean_bytes: 0.0,
            empty_since_ns: 0,
            since_drop: None,
            generator,
        }
    }

    /// The last packet that waited is gone.
    pub(crate) fn emptied(&mut self, now_ns: u64) {
        self.empty_since_ns = now_ns;
    }

    /// Whether a packet that finds `queue_bytes` waiting is dropped.
    pub(crate) fn drops(&mut self, now_ns: u64, queue_bytes: u64) -> bool {
        self.learn(now_ns, queue_bytes);
        if self.mean_bytes < self.min_bytes {
            self.since_drop = None;
            return false;
        }
        if self.mean_bytes >= self.max_bytes {
            self.since_drop = Some(0);
            return true;
        }
        let since = self.since_drop.unwrap_or(0);
        let share = (self.mean_bytes - self.min_bytes) / (self.max_bytes - self.min_bytes);
        let base = self.probability * share;
        // Spreads the drops evenly: the gaps between them are uniform, not geometric (section 8 of the paper).
        let left = 1.0 - since as f64 * base;
        let drops = left <= base || Chance::of(base / left).hits(&mut self.generator);
        self.since_drop = Some(if drops { 0 } else { since + 1 });
        drops
    }

    fn learn(&mut self, now_ns: u64, queue_bytes: u64) {
        if queue_bytes > 0 {
            self.mean_bytes += WEIGHT * (queue_bytes as f64 - self.mean_bytes);
            return;
        }
        let idle_ns = now_ns.saturating_sub(self.empty_since_ns);
        self.empty_since_ns = now_ns;
        // Without a rate nothing ever waits.
        let sent = if self.packet_ns == 0 { f64::INFINITY } else { idle_ns as f64 / self.packet_ns as f64 };
        self.mean_bytes *= (1.0 - WEIGHT).powf(sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;

    fn red(probability: f64) -> Red {
        Red::new(10_000, 30_000, probability, 1_000, generator(7, "red"))
    }

    // Spec: fabric.md#fabric-26
    #[test]
    fn the_mean_follows_a_step_of_the_queue_as_the_paper_says_and_decays_while_it_is_empty() {
        let mut red = red(0.0);
        for arrival in 1..=2_000 {
            red.drops(0, 20_000);
            let exact = 20_000.0 * (1.0 - 0.998_f64.powi(arrival));
            assert!((red.mean_bytes - exact).abs() < 1e-6 * exact, "{} {exact}", red.mean_bytes);
        }
        let before = red.mean_bytes;
        red.emptied(5_000);
        red.drops(5_000 + 300_000, 0);
        assert!((red.mean_bytes / before - 0.998_f64.powi(300)).abs() < 1e-9);
    }

    // Spec: fabric.md#fabric-26
    #[test]
    fn gaps_between_drops_are_uniform_up_to_the_inverse_of_the_probability() {
        // A mean halfway between the thresholds, so a base probability of 0.01: gaps are uniform over 1 to 100.
        let mut red = red(0.02);
        red.mean_bytes = 20_000.0;
        let (mut gaps, mut gap) = (vec![0_u64; 101], 0_usize);
        for _ in 0..1_000_000 {
            gap += 1;
            if red.drops(0, 20_000) {
                gaps[gap] += 1;
                gap = 0;
            }
        }
        let drops: u64 = gaps.iter().sum();
        // The mean gap is (1 + 100) / 2; the standard deviation of one is 28.9.
        let expected: f64 = 1_000_000.0 / 50.5;
        let sigma = 28.9 / 50.5 * expected.sqrt();
        assert!((drops as f64 - expected).abs() < 4.0 * sigma, "{drops} drops, {expected} expected");
        let each = drops as f64 / 100.0;
        for (gap, count) in gaps.iter().enumerate().skip(1) {
            assert!(
                (*count as f64 - each).abs() < 5.0 * each.sqrt(),
                "{count} gaps of {gap}, {each} expected"
            );
        }
    }

    // Spec: fabric.md#fabric-26
    #[test]
    fn nothing_is_dropped_below_the_lower_threshold_and_everything_from_the_upper_one_on() {
        let mut red = red(1.0);
        red.mean_bytes = 9_990.0;
        assert!((0..1_000).all(|_| !red.drops(0, 9_990)));
        red.mean_bytes = 30_000.0;
        assert!((0..1_000).all(|_| red.drops(0, 30_001)));
    }
}
