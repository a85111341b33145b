//! How much of the time the cores stand still under a thread that always has something to do. A hypervisor that takes them away
//! need not say so in `/proc/stat`.

use std::time::Duration;
use weir_core::Instant;
use weir_sys::clock::monotonic;

/// A loop that reads the clock takes well under a microsecond, an interrupt some tens. What is longer was somebody else's.
const GAP_NS_MIN: u64 = 300_000;

/// What threads that only read the clock, one a core, saw of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stillness {
    pub gaps: u64,
    /// Of all gaps together against the time watched, all cores.
    pub ratio: f64,
    pub longest_seconds: f64,
}

impl Stillness {
    /// Keeps all cores busy for `time`. With the right to (root) before other programs, so that what it sees is the hypervisor's
    /// doing.
    pub fn watch(cores: usize, time: Duration) -> Stillness {
        let end = monotonic() + time;
        let spins: Vec<_> = (0..cores.max(1)).map(|_| std::thread::spawn(move || spin(end))).collect();
        let mut seen = Stillness::default();
        let mut still_ns = 0;
        for spin in spins {
            let Ok((gaps, sum_ns, longest_ns)) = spin.join() else { continue };
            seen.gaps += gaps;
            still_ns += sum_ns;
            seen.longest_seconds = seen.longest_seconds.max(longest_ns as f64 / 1e9);
        }
        seen.ratio = still_ns as f64 / 1e9 / (time.as_secs_f64() * cores.max(1) as f64);
        seen
    }
}

/// Gaps, their sum and the longest, ns.
fn spin(end: Instant) -> (u64, u64, u64) {
    // Without the right it sees other programs too.
    let _ = weir_sys::process::raise_thread_priority(20);
    let (mut gaps, mut sum_ns, mut longest_ns) = (0, 0, 0);
    let mut before = monotonic();
    while before < end {
        let now = monotonic();
        let gap_ns = now.as_ns() - before.as_ns();
        if gap_ns >= GAP_NS_MIN {
            gaps += 1;
            sum_ns += gap_ns;
            longest_ns = longest_ns.max(gap_ns);
        }
        before = now;
    }
    (gaps, sum_ns, longest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_counted_in_shares_of_the_time_watched() {
        let seen = Stillness::watch(1, Duration::from_millis(20));
        assert!((0.0..=1.0).contains(&seen.ratio) && seen.longest_seconds < 5.0, "{seen:?}");
        assert_eq!(seen.gaps == 0, seen.ratio == 0.0, "{seen:?}");
    }
}
