//! Models that are one formula, each with its source and what it is not valid for.

use crate::units::Bytes;
use std::time::Duration;

/// Segments of a fresh connection's first window (RFC 6928, section 2).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;

/// Upper bound on one connection's payload rate by its window: a window each round trip.
///
/// - Units: bit/s. `None` for a round trip of zero.
/// - Source: RFC 7323, section 1.1.
pub fn window(window: Bytes, rtt: Duration) -> Option<f64> {
    (!rtt.is_zero()).then(|| window.0 as f64 * 8.0 / rtt.as_secs_f64())
}

/// Mean payload rate of one Reno-like connection under random loss: `mss / rtt × √(3 / 2p)`.
///
/// - Units: bit/s; `loss` is a probability. `None` unless `0 < loss ≤ 1` and `rtt > 0`.
/// - Source: Mathis, Semke, Mahdavi, Ott, CCR 27(3), 1997, with every segment acknowledged. Not valid for CUBIC or BBR, nor for
///   loss in bursts.
pub fn mathis(mss: Bytes, rtt: Duration, loss: f64) -> Option<f64> {
    let valid = loss > 0.0 && loss <= 1.0 && !rtt.is_zero();
    valid.then(|| mss.0 as f64 * 8.0 / rtt.as_secs_f64() * (1.5 / loss).sqrt())
}

/// Time in which a fresh connection delivers `bytes`, from its first segment to the arrival of the last: windows of 10, 20, 40, …
/// segments, one each round trip, until a window fills the path (or reaches `window`); from there on at the path's rate.
///
/// - Units: seconds; `rate_bits_per_second` is of payload. `None` for no bytes, no segment size, or no round trip and no rate.
/// - Source: Cardwell, Savage, Anderson, INFOCOM 2000, section III, without loss, with a window that doubles (as Linux counts
///   acknowledged segments) and an initial window of ten (RFC 6928). Connection set-up is not in it.
pub fn slow_start(
    bytes: Bytes,
    mss: Bytes,
    rtt: Duration,
    rate_bits_per_second: Option<f64>,
    window: Option<Bytes>,
) -> Option<f64> {
    let rtt = rtt.as_secs_f64();
    if bytes.0 == 0 || mss.0 == 0 || (rtt == 0.0 && rate_bits_per_second.is_none()) {
        return None;
    }
    let rate = rate_bits_per_second.unwrap_or(f64::INFINITY) / 8.0;
    let most = window.map_or(f64::INFINITY, |window| window.0 as f64);
    let cap = most.min(rate * rtt);
    let (mut left, mut in_flight, mut seconds) =
        (bytes.0 as f64, INITIAL_WINDOW_SEGMENTS * mss.0 as f64, 0.0);
    while left > in_flight && in_flight < cap {
        left -= in_flight;
        seconds += rtt;
        in_flight *= 2.0;
    }
    let steady = if rtt > 0.0 { rate.min(most / rtt) } else { rate };
    let rest = if left <= in_flight.min(most) { left / rate } else { left / steady };
    let total = seconds + rest + rtt / 2.0;
    total.is_finite().then_some(total)
}

/// Share of events that an event builder under overload has not delivered when it stops listening:
/// `max(0, (λ − μ) T − μ g) / (λ T)`.
///
/// - `rate_hz` λ and `deliverable_hz` μ are events a second, `run` T, `stop_wait` g. With μ = C / (8 m) for a capacity of C
///   bit/s and m bytes an event. `None` unless λ and T are above zero.
/// - Source: a fluid queue without limit that is filled at λ and emptied at μ (Kleinrock, Queueing Systems II, 1976, section
///   2.7), emptied for g longer. For T → ∞ it tends to (λ − μ) / λ.
pub fn overload_backlog(
    rate_hz: f64,
    deliverable_hz: f64,
    run: Duration,
    stop_wait: Duration,
) -> Option<f64> {
    let (run, wait) = (run.as_secs_f64(), stop_wait.as_secs_f64());
    let valid = rate_hz > 0.0 && deliverable_hz >= 0.0 && run > 0.0;
    let left = (rate_hz - deliverable_hz) * run - deliverable_hz * wait;
    valid.then(|| left.max(0.0) / (rate_hz * run))
}

/// Time in which `jobs` jobs finish that each read `reads` times, think for `think` after a read and need the bottleneck for
/// `service` a read: `max(n (Z + D), N n D)`.
///
/// - Units: seconds. A lower bound, met where either the jobs or the bottleneck never wait.
/// - Source: the asymptotic bounds of a closed network (Denning, Buzen, Computing Surveys 10(3), 1978, section on bottleneck
///   analysis).
pub fn closed_replay(jobs: u64, reads: u64, think: Duration, service: Duration) -> f64 {
    let (think, service) = (think.as_secs_f64(), service.as_secs_f64());
    (reads as f64 * (think + service)).max(jobs as f64 * reads as f64 * service)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(16);

    #[test]
    fn a_window_of_64_kib_over_16_ms_is_32_8_mbit() {
        assert_eq!(window(Bytes(65_536), RTT), Some(32_768_000.0));
        assert_eq!(window(Bytes(65_536), Duration::ZERO), None);
    }

    #[test]
    fn mathis_at_25_ms_and_820_ppm_is_19_8_mbit() {
        let rate = mathis(Bytes(1448), Duration::from_millis(25), 820e-6).unwrap();
        assert_eq!((rate / 1e5).round(), 198.0);
        assert_eq!(mathis(Bytes(1448), Duration::ZERO, 0.1), None);
        assert_eq!(mathis(Bytes(1448), RTT, 0.0), None);
    }

    #[test]
    fn a_fresh_connection_doubles_its_window_each_round_trip_until_the_path_is_full() {
        let mss = Bytes(1000);
        let seconds = |bytes, rate: Option<f64>, window| {
            let time = slow_start(Bytes(bytes), mss, Duration::from_millis(100), rate, window);
            (time.unwrap() * 1e6).round() / 1e6
        };
        // 10 segments go at once; the 11th a round trip later; 31 segments take the third window.
        assert_eq!(seconds(10_000, None, None), 0.05);
        assert_eq!(seconds(10_001, None, None), 0.15);
        assert_eq!(seconds(30_001, None, None), 0.25);
        // 8 Mbit/s × 100 ms = 100 kB: windows of 10, 20, 40, 80 kB, then the other 850 kB at 1 MB/s.
        assert_eq!(seconds(1_000_000, Some(8e6), None), 1.3);
        // A window of 20 kB: 10 kB, then 20 kB each round trip.
        assert_eq!(seconds(210_000, None, Some(Bytes(20_000))), 1.15);
        assert_eq!(slow_start(Bytes(0), mss, RTT, None, None), None);
    }

    #[test]
    fn overload_leaves_what_was_offered_beyond_capacity_less_what_the_wait_lets_through() {
        let (run, wait) = (Duration::from_secs(30), Duration::from_secs(1));
        let lost = overload_backlog(200.0, 180.0, run, wait).unwrap();
        assert!((lost - (600.0 - 180.0) / 6000.0).abs() < 1e-12);
        assert_eq!(overload_backlog(200.0, 210.0, run, wait), Some(0.0));
        let long = overload_backlog(200.0, 180.0, Duration::from_secs(1 << 30), wait).unwrap();
        assert!((long - 0.1).abs() < 1e-6);
        assert_eq!(overload_backlog(0.0, 1.0, run, wait), None);
    }

    #[test]
    fn closed_jobs_wait_for_themselves_or_for_the_bottleneck() {
        let (think, service) = (Duration::from_millis(20), Duration::from_millis(1));
        assert!((closed_replay(1, 1_000, think, service) - 21.0).abs() < 1e-9);
        assert!((closed_replay(100, 1_000, think, service) - 100.0).abs() < 1e-9);
    }
}
