//! Whether a link kept its rate while packets waited for it.

use weir_core::record::Series;

const NEVER_EMPTY_BYTES: f64 = 65_536.0;
/// Shorter stretches say nothing, and neither do fewer samples: a queue that bursts fill and empty is found full by a few looks in
/// a row often enough, while the link stands still between them.
const STRETCH_NS: i64 = 500_000_000;
const SAMPLES_LEAST: usize = 50;
/// Counters are published every millisecond and read by a thread that may itself be late.
const SAMPLING_SECONDS: f64 = 0.003;

/// How far a link of `rate` bit/s stayed below it over the longest stretch of samples that are all `inside` and found its queue never
/// nearly empty; `None` without a stretch that is long enough to tell. `queue` and `sent` (bytes, cumulative) are sampled together.
// Spec: evidence.md#fitness-1
pub fn missed_rate(rate: f64, queue: &Series, sent: &Series, inside: impl Fn(i64) -> bool) -> Option<f64> {
    let mut longest: Option<(usize, usize)> = None;
    let mut begin: Option<usize> = None;
    for index in 0..queue.t_ns.len().min(sent.t_ns.len()) {
        if inside(queue.t_ns[index]) && queue.value[index] >= NEVER_EMPTY_BYTES {
            let from = *begin.get_or_insert(index);
            let span = |(from, to): (usize, usize)| queue.t_ns[to] - queue.t_ns[from];
            if longest.is_none_or(|known| span((from, index)) > span(known)) {
                longest = Some((from, index));
            }
        } else {
            begin = None;
        }
    }
    let (from, to) = longest?;
    let elapsed_ns = sent.t_ns[to] - sent.t_ns[from];
    if elapsed_ns < STRETCH_NS || to - from < SAMPLES_LEAST {
        return None;
    }
    let bits = (sent.value[to] - sent.value[from]) * 8.0;
    // A packet more or less in the serialiser at the edges is not a miss.
    let slack = 2.0 * 65_536.0 * 8.0 + SAMPLING_SECONDS * rate;
    Some((1.0 - (bits + slack) / (rate * elapsed_ns as f64 / 1e9)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 1e9;

    /// A link that carries `load` of its rate for `seconds`, looked at every `interval_ms`.
    fn missed(load: f64, seconds: i64, interval_ms: i64, waiting_bytes: impl Fn(i64) -> f64) -> Option<f64> {
        let t_ns: Vec<i64> =
            (0..=seconds * 1000 / interval_ms).map(|n| n * interval_ms * 1_000_000).collect();
        let series = |value: Vec<f64>| Series { t_ns: t_ns.clone(), value, ..Series::default() };
        let queue = series(t_ns.iter().map(|t| waiting_bytes(*t)).collect());
        let sent = series(t_ns.iter().map(|t| load * RATE / 8.0 * *t as f64 / 1e9).collect());
        missed_rate(RATE, &queue, &sent, |_| true)
    }

    #[test]
    fn a_link_that_stands_still_with_packets_waiting_has_missed_its_rate() {
        let half = missed(0.5, 1, 10, |_| 1e6).unwrap();
        assert!((0.45..0.5).contains(&half), "{half}");
        assert_eq!(missed(1.0, 1, 10, |_| 1e6), Some(0.0));
        assert_eq!(missed(0.5, 1, 10, |t| if t % 200_000_000 == 0 { 0.0 } else { 1e6 }), None, "often empty");
    }

    // Spec: evidence.md#fitness-1
    #[test]
    fn a_few_looks_in_a_row_that_find_packets_prove_nothing_however_far_apart_they_are() {
        // A window below what the path holds fills the queue in bursts: a look every 350 ms finds it full for ten seconds.
        assert_eq!(missed(0.95, 10, 350, |_| 1e6), None);
        assert_eq!(missed(0.95, 2, 48, |_| 1e6), None);
        let long = missed(0.95, 60, 350, |_| 1e6).unwrap();
        assert!((0.04..0.05).contains(&long), "{long}");
    }
}
