//! When a packet has left a serialiser: exact to a fraction of a nanosecond, so that no rounding adds up.

use weir_core::BitsPerSecond;

/// The serialiser's clock. The last departure is `ns + part / rate`; it is carried exactly through a busy period and
/// shown rounded up, because a packet has not left before its last bit has.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Bits a second, at least 1; `None` takes no time.
    rate: Option<u64>,
    ns: u64,
    /// In units of `1 / rate` nanoseconds, less than `rate`.
    part: u64,
    /// Most packets of a link are of one size, so the last division is kept.
    known: Duration,
}

/// Time on the wire of `bytes` bytes: `ns + part / rate`.
#[derive(Clone, Copy, Debug, Default)]
struct Duration {
    bytes: u64,
    ns: u64,
    part: u64,
}

impl Wire {
    pub(crate) fn new(rate: Option<BitsPerSecond>) -> Self {
        Wire { rate: bits(rate), ns: 0, part: 0, known: Duration::default() }
    }

    pub(crate) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Applies from the next packet on.
    pub(crate) fn set_rate(&mut self, rate: Option<BitsPerSecond>) {
        let rate = bits(rate);
        if rate == self.rate {
            return;
        }
        match (self.rate, rate) {
            (Some(old), Some(new)) => {
                // Rounded down, so less than `new`, and off by less than a part of the new rate.
                self.part = (u128::from(self.part) * u128::from(new) / u128::from(old)) as u64;
            }
            _ => {
                self.ns = self.shown_ns();
                self.part = 0;
            }
        }
        self.rate = rate;
        self.known = Duration::default();
    }

    /// Takes a packet into service that arrived at an idle serialiser.
    #[inline]
    pub(crate) fn serve_idle(&mut self, arrival_ns: u64, wire_bytes: u64) -> u64 {
        // The packet before has left, so its departure is not later than this arrival.
        self.ns = arrival_ns;
        self.part = 0;
        self.serve_next(wire_bytes)
    }

    /// Takes a packet into service that waited for the one before to leave. Returns when it leaves.
    #[inline]
    pub(crate) fn serve_next(&mut self, wire_bytes: u64) -> u64 {
        let Some(rate) = self.rate else { return self.shown_ns() };
        if self.known.bytes != wire_bytes {
            self.known = time_of(wire_bytes, rate);
        }
        self.ns = self.ns.saturating_add(self.known.ns);
        // Both parts are less than the rate, which may be as large as a u64.
        let (sum, overflowed) = self.part.overflowing_add(self.known.part);
        if overflowed || sum >= rate {
            self.part = sum.wrapping_sub(rate);
            self.ns = self.ns.saturating_add(1);
        } else {
            self.part = sum;
        }
        self.shown_ns()
    }

    #[inline]
    fn shown_ns(&self) -> u64 {
        self.ns.saturating_add(u64::from(self.part > 0))
    }
}

fn bits(rate: Option<BitsPerSecond>) -> Option<u64> {
    // No scenario can say a rate of 0; should one arrive all the same, it must not divide by zero.
    rate.map(|rate| rate.0.max(1))
}

/// Nanoseconds that `bytes` take at a rate, rounded down.
pub(crate) fn time_ns(bytes: u64, rate: BitsPerSecond) -> u64 {
    time_of(bytes, rate.0.max(1)).ns
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    let scaled = u128::from(bytes) * 8_000_000_000;
    let (ns, part) = match u64::try_from(scaled) {
        Ok(scaled) => (scaled / rate, scaled % rate),
        Err(_) => {
            let rate = u128::from(rate);
            (u64::try_from(scaled / rate).unwrap_or(u64::MAX), (scaled % rate) as u64)
        }
    };
    Duration { bytes, ns, part }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Spec: fabric.md#fabric-5
        #[test]
        fn departures_of_a_busy_period_are_the_exact_ones_rounded_up(
            rate in prop_oneof![1_000_u64..1_000_000, 1_000_000_u64..400_000_000_000, 1 << 63..u64::MAX],
            start in 0_u64..1_000_000_000_000,
            sizes in proptest::collection::vec(prop_oneof![4 => Just(1538_u64), 4 => 1_u64..70_000, 1 => 1_u64..8_000_000_000], 1..3_000),
        ) {
            let mut wire = Wire::new(Some(BitsPerSecond(rate)));
            let mut bits = 0_u128;
            for (index, bytes) in sizes.iter().enumerate() {
                let left = if index == 0 { wire.serve_idle(start, *bytes) } else { wire.serve_next(*bytes) };
                bits += u128::from(*bytes) * 8;
                let exact = u128::from(start) + (bits * 1_000_000_000).div_ceil(u128::from(rate));
                prop_assert_eq!(u128::from(left), exact);
            }
        }

        #[test]
        fn a_rate_change_loses_less_than_a_nanosecond(old in 1_u64..1 << 40, new in 1_u64..1 << 40) {
            let mut wire = Wire::new(Some(BitsPerSecond(old)));
            wire.serve_idle(0, 1538);
            wire.set_rate(Some(BitsPerSecond(new)));
            let left = wire.serve_next(1538);
            let bits = 1538.0 * 8.0 * 1e9;
            let exact = bits / old as f64 + bits / new as f64;
            prop_assert!((left as f64 - exact).abs() <= 1.0 + exact * 1e-12, "{left} {exact}");
        }
    }
}
