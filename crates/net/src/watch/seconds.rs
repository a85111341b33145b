//! The long view of a flow: what it carried in each second, in room that does not grow with hours.

use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;
/// Rates are told apart to 1 %.
const STEP_RATIO: f64 = 1.01;
/// Rates below share the lowest class, 1 kbit/s; the highest is beyond 400 Gbit/s.
const LEAST_BITS_PER_SECOND: f64 = 1_000.0;
const CLASSES: usize = 2_048;

/// How many whole seconds of the steady state carried how much.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Rates, ascending, each the lower edge of a class 1 % wide (the lowest is 0), and seconds in it.
    pub classes: Vec<(f64, u64)>,
    pub count: u64,
    pub least_bits_per_second: f64,
}

impl Seconds {
    /// Share of the seconds that carried less than `rate`; `None` without a second. A class that `rate` falls into counts by its
    /// lower edge.
    pub fn below(&self, rate: f64) -> Option<f64> {
        let below: u64 = self.classes.iter().filter(|(edge, _)| *edge < rate).map(|(_, count)| count).sum();
        (self.count > 0).then(|| below as f64 / self.count as f64)
    }

    /// The rate that `share` of the seconds stay below, to 1 %.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.classes.iter().find_map(|(edge, count)| {
            seen += count;
            (seen >= wanted).then_some(*edge)
        })
    }
}

/// Takes a counter's samples and classes what each whole second from `start_ns` on gained.
pub struct Accumulator {
    second_end_ns: u64,
    end_ns: u64,
    /// The counter at the second's begin; `None` before the first.
    at_begin: Option<f64>,
    last: (u64, u64),
    classes: Box<[u64; CLASSES]>,
    count: u64,
    least: f64,
}

impl Accumulator {
    pub fn new(start_ns: u64, end_ns: u64) -> Accumulator {
        Accumulator {
            second_end_ns: start_ns,
            end_ns,
            at_begin: None,
            last: (0, 0),
            classes: Box::new([0; CLASSES]),
            count: 0,
            least: f64::INFINITY,
        }
    }

    /// The counter is taken as straight between samples: of a pause the sample at its begin comes before the one at its end.
    pub fn push(&mut self, at_ns: u64, bytes: u64) {
        let (before_ns, before) = self.last;
        while self.second_end_ns <= at_ns && self.second_end_ns <= self.end_ns {
            let length = at_ns.saturating_sub(before_ns);
            let share = if length == 0 {
                1.0
            } else {
                self.second_end_ns.saturating_sub(before_ns) as f64 / length as f64
            };
            let edge = before as f64 + bytes.saturating_sub(before) as f64 * share;
            if let Some(begin) = self.at_begin.replace(edge) {
                self.note((edge - begin) * 8.0);
            }
            self.second_end_ns += SECOND_NS;
        }
        self.last = (at_ns, bytes);
    }

    fn note(&mut self, bits_per_second: f64) {
        let class = if bits_per_second < LEAST_BITS_PER_SECOND {
            0
        } else {
            1 + ((bits_per_second / LEAST_BITS_PER_SECOND).ln() / STEP_RATIO.ln()) as usize
        };
        self.classes[class.min(CLASSES - 1)] += 1;
        self.count += 1;
        self.least = self.least.min(bits_per_second);
    }

    pub fn finish(self) -> Seconds {
        let edge = |class: usize| match class {
            0 => 0.0,
            _ => LEAST_BITS_PER_SECOND * STEP_RATIO.powi(class as i32 - 1),
        };
        let filled = self.classes.iter().enumerate().filter(|(_, count)| **count > 0);
        Seconds {
            classes: filled.map(|(class, count)| (edge(class), *count)).collect(),
            count: self.count,
            least_bits_per_second: if self.count > 0 { self.least } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: net-protocol.md#watch-3
    #[test]
    fn a_dip_of_two_seconds_in_an_hour_is_two_seconds_and_none_is_lost() {
        let mut seconds = Accumulator::new(5 * SECOND_NS, 3_605 * SECOND_NS);
        let mut bytes = 0;
        for tick in 0..=360_500_u64 {
            let at = tick * SECOND_NS / 100;
            if tick > 0 {
                let dip = (100_000..100_200).contains(&tick);
                bytes += if dip { 12_500 } else { 1_250_000 };
            }
            // Late by up to half a tick, as samples are.
            seconds.push(at + tick % 7 * 700_000, bytes);
        }
        let seconds = seconds.finish();
        assert_eq!(seconds.count, 3_600);
        assert!((0.9e7..1.3e7).contains(&seconds.least_bits_per_second), "{seconds:?}");
        let below = seconds.below(0.9e9).unwrap() * 3_600.0;
        assert!((2.0..=3.0).contains(&below), "{below}");
        let median = seconds.quantile(0.5).unwrap();
        assert!((0.98e9..=1.001e9).contains(&median), "{median}");
    }

    #[test]
    fn a_pause_of_seconds_is_seconds_of_nothing() {
        let mut seconds = Accumulator::new(0, 5 * SECOND_NS);
        for (at, bytes) in [(0, 0), (1, 1_000_000), (4, 1_000_000), (5, 2_000_000)] {
            seconds.push(at * SECOND_NS, bytes);
        }
        let seconds = seconds.finish();
        assert_eq!((seconds.count, seconds.below(1.0)), (5, Some(0.6)));
        assert_eq!(Accumulator::new(0, 1).finish().below(1.0), None);
    }
}
