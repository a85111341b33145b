//! Whether a link kept its rate while packets waited for it.

use weir_core::record::Series;

const NEVER_EMPTY_BYTES: f64 = 65_536.0;
/// Shorter stretches say nothing.
const STRETCH_NS: i64 = 500_000_000;
/// Counters are published every millisecond and read by a thread that may itself be late.
const SAMPLING_SECONDS: f64 = 0.003;

/// How far a link of `rate` bit/s stayed below it over the longest stretch of samples that are all `inside`, found its queue never
/// nearly empty, and between which it never was: `ran_empty`, `None` where it never moved, stood still. `None` without a stretch that is
/// long enough to tell. `queue`, `ran_empty` and `sent` (bytes, cumulative) are sampled together.
// Spec: evidence.md#fitness-1
pub fn missed_rate(
    rate: f64,
    queue: &Series,
    ran_empty: Option<&Series>,
    sent: &Series,
    inside: impl Fn(i64) -> bool,
) -> Option<f64> {
    let times_empty =
        |index: usize| ran_empty.and_then(|series| series.value.get(index)).copied().unwrap_or(0.0);
    let mut longest: Option<(usize, usize)> = None;
    let mut begin: Option<usize> = None;
    for index in 0..queue.t_ns.len().min(sent.t_ns.len()) {
        if !inside(queue.t_ns[index]) || queue.value[index] < NEVER_EMPTY_BYTES {
            begin = None;
            continue;
        }
        let from = begin.filter(|from| times_empty(*from) == times_empty(index)).unwrap_or(index);
        begin = Some(from);
        let span = |(from, to): (usize, usize)| queue.t_ns[to] - queue.t_ns[from];
        if longest.is_none_or(|known| span((from, index)) > span(known)) {
            longest = Some((from, index));
        }
    }
    let (from, to) = longest?;
    let elapsed_ns = sent.t_ns[to] - sent.t_ns[from];
    if elapsed_ns < STRETCH_NS {
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

    /// A link that carries `load` of its rate for `seconds` and runs empty every `empty_every_ms`, looked at every `interval_ms`.
    fn missed(
        load: f64,
        seconds: i64,
        interval_ms: i64,
        empty_every_ms: Option<i64>,
        waiting_bytes: impl Fn(i64) -> f64,
    ) -> Option<f64> {
        let t_ms: Vec<i64> = (0..=seconds * 1000 / interval_ms).map(|n| n * interval_ms).collect();
        let series = |of: &dyn Fn(i64) -> f64| Series {
            t_ns: t_ms.iter().map(|t| t * 1_000_000).collect(),
            value: t_ms.iter().map(|t| of(*t)).collect(),
            ..Series::default()
        };
        let queue = series(&|t| waiting_bytes(t * 1_000_000));
        let sent = series(&|t| load * RATE / 8.0 * t as f64 / 1e3);
        let empty = empty_every_ms.map(|every| series(&|t| (t / every) as f64));
        missed_rate(RATE, &queue, empty.as_ref(), &sent, |_| true)
    }

    #[test]
    fn a_link_that_stands_still_with_packets_waiting_has_missed_its_rate() {
        let half = missed(0.5, 1, 10, None, |_| 1e6).unwrap();
        assert!((0.45..0.5).contains(&half), "{half}");
        assert_eq!(missed(1.0, 1, 10, None, |_| 1e6), Some(0.0));
        assert_eq!(
            missed(0.5, 1, 10, None, |t| if t % 200_000_000 == 0 { 0.0 } else { 1e6 }),
            None,
            "often empty"
        );
        let seldom = missed(0.5, 10, 350, Some(3000), |_| 1e6).unwrap();
        assert!((0.45..0.5).contains(&seldom), "{seldom}");
    }

    // Spec: evidence.md#fitness-1
    #[test]
    fn a_queue_that_every_look_finds_filled_may_have_been_empty_between_them() {
        // A window below what the path holds fills the queue in bursts.
        assert_eq!(missed(0.95, 60, 350, Some(300), |_| 1e6), None);
        assert_eq!(missed(0.95, 2, 48, Some(300), |_| 1e6), None);
    }
}
