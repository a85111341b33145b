//! Quantiles, and intervals of shares.

/// The smallest value that `share` of the values do not exceed. Panics without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Two-sided quantiles of the normal distribution.
pub const Z_95: f64 = 1.959_964;
/// Of 99.9 %: what a share must be within to count as kept. Some dozen shares are judged on a page, and of that many 95 %
/// intervals of a perfect lab one or two would miss.
pub const Z_999: f64 = 3.290_527;

/// Wilson's score interval of a binomial share (Wilson 1927), `hits` of `count`.
pub fn share_interval(hits: u64, count: u64, z: f64) -> (f64, f64) {
    let (hits, count) = (hits as f64, count as f64);
    let share = hits / count;
    let scale = 1.0 + z * z / count;
    let centre = (share + z * z / (2.0 * count)) / scale;
    let half = z / scale * (share * (1.0 - share) / count + z * z / (4.0 * count * count)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// A Gilbert-Elliott chain, as `topology::BurstLoss` has it.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// Long-run share of packets in the bad state.
    pub bad: f64,
    /// Mean length of a stay in it, in packets.
    pub length_packets: f64,
    /// Probability of loss there.
    pub loss: f64,
}

impl Bursts {
    pub fn share(&self) -> f64 {
        self.bad * self.loss
    }
    /// Standard deviation of the lost share of `count` packets. States `k` packets apart are correlated by λᵏ with λ = 1 − (rate
    /// of entering the bad state) − (rate of leaving it), so losses come in clumps and the share varies more than a binomial one.
    pub fn share_deviation(&self, count: u64) -> f64 {
        let leave = 1.0 / self.length_packets;
        let enter = leave * self.bad / (1.0 - self.bad);
        let lambda = 1.0 - enter - leave;
        let share = self.share();
        let own = share * (1.0 - share);
        let shared = self.loss * self.loss * self.bad * (1.0 - self.bad) * lambda / (1.0 - lambda);
        ((own + 2.0 * shared) / count as f64).sqrt()
    }
    /// Mean length of a run of lost packets: it goes on while the chain stays bad and the next packet is lost too.
    pub fn run_length(&self) -> f64 {
        1.0 / (1.0 - (1.0 - 1.0 / self.length_packets) * self.loss)
    }
    /// Standard deviation of the mean of `runs` such lengths, which are geometric.
    pub fn run_deviation(&self, runs: u64) -> f64 {
        let length = self.run_length();
        ((length * length - length) / runs as f64).sqrt()
    }
}

/// Lengths of the runs of packets that did not come.
pub fn runs_of_losses(received_ns: &[u64]) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut length = 0;
    for received in received_ns {
        match (*received, length) {
            (0, _) => length += 1,
            (_, 0) => {}
            _ => runs.push(std::mem::take(&mut length)),
        }
    }
    if length > 0 {
        runs.push(length);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_share_is_wilsons() {
        // Newcombe 1998, table I: 15 of 148 gives 0.0624 to 0.1605; 0 of 20 gives 0 to 0.1611.
        let (low, high) = share_interval(15, 148, Z_95);
        assert!((low - 0.0624).abs() < 5e-5 && (high - 0.1605).abs() < 5e-5, "{low} {high}");
        let (low, high) = share_interval(0, 20, Z_95);
        assert!(low.abs() < 1e-12 && (high - 0.1611).abs() < 5e-5, "{low} {high}");
    }

    #[test]
    fn runs_are_counted_at_both_ends_too() {
        assert_eq!(runs_of_losses(&[0, 0, 7, 8, 0, 9, 0, 0, 0]), [2, 1, 3]);
        assert_eq!(runs_of_losses(&[1, 2]), [0_u64; 0]);
    }

    #[test]
    fn a_simulated_chain_stays_within_three_deviations_of_the_formulas() {
        let chain = Bursts { bad: 0.02, length_packets: 10.0, loss: 0.7 };
        let (leave, enter) = (0.1, 0.1 * 0.02 / 0.98);
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut bad = false;
        let received: Vec<u64> = (0..1_000_000)
            .map(|_| {
                bad = if bad { draw() >= leave } else { draw() < enter };
                u64::from(!(bad && draw() < chain.loss))
            })
            .collect();
        let lost = received.iter().filter(|received| **received == 0).count() as f64 / 1e6;
        assert!((lost - chain.share()).abs() < 3.0 * chain.share_deviation(1_000_000), "{lost}");
        let runs: Vec<f64> = runs_of_losses(&received).into_iter().map(|length| length as f64).collect();
        let found = mean(&runs);
        assert!((found - chain.run_length()).abs() < 3.0 * chain.run_deviation(runs.len() as u64), "{found}");
    }
}
