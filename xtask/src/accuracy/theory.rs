//! What a path does to packets according to the model alone: written from the rules of docs/specs/fabric.md, not from the
//! fabric's code, so that the two can disagree.

use std::collections::VecDeque;
use weir_core::topology::DirectedLink;

/// One directed link.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    pub bits_per_second: Option<f64>,
    pub delay_ns: f64,
    pub queue_bytes: Option<u64>,
    pub queue_packets: Option<u64>,
    pub framing_bytes: u64,
}

impl Hop {
    pub fn of(link: &DirectedLink) -> Hop {
        Hop {
            bits_per_second: link.rate.map(|rate| rate.as_f64()),
            delay_ns: link.delay_ns as f64,
            queue_bytes: link.queue.and_then(|queue| Some(queue.bytes?.0)),
            queue_packets: link.queue.and_then(|queue| queue.packets),
            framing_bytes: u64::from(link.framing_bytes),
        }
    }

    /// How long a packet holds the wire, in ns.
    pub fn service_ns(&self, ip_bytes: u64) -> f64 {
        self.bits_per_second.map_or(0.0, |rate| ((ip_bytes + self.framing_bytes) * 8) as f64 * 1e9 / rate)
    }
}

/// When each packet reaches the end of the path, in ns on the clock of `sent_ns`; `None` for one that found a queue full.
pub fn arrivals(sent_ns: &[u64], ip_bytes: u64, hops: &[Hop]) -> Vec<Option<f64>> {
    let mut at: Vec<Option<f64>> = sent_ns.iter().map(|sent| Some(*sent as f64)).collect();
    for hop in hops {
        let service_ns = hop.service_ns(ip_bytes);
        let mut free_ns = f64::NEG_INFINITY;
        // When those that wait are taken up.
        let mut waiting: VecDeque<f64> = VecDeque::new();
        for time in &mut at {
            let Some(arrival_ns) = *time else { continue };
            while waiting.front().is_some_and(|taken_up| *taken_up <= arrival_ns) {
                waiting.pop_front();
            }
            let start_ns = free_ns.max(arrival_ns);
            if start_ns > arrival_ns {
                let count = waiting.len() as u64 + 1;
                let full = hop.queue_packets.is_some_and(|most| count > most)
                    || hop.queue_bytes.is_some_and(|most| count * ip_bytes > most);
                if full {
                    *time = None;
                    continue;
                }
                waiting.push_back(start_ns);
            }
            free_ns = start_ns + service_ns;
            *time = Some(free_ns + hop.delay_ns);
        }
    }
    at
}

/// Which packets of a burst are kept by ports that are all as `hop` and share a buffer of so many bytes, beside what they send; packet
/// n is for port n modulo `ports`, and comes at `at_ns[n]`.
pub fn kept_by_shared_buffer(
    at_ns: &[f64],
    ip_bytes: u64,
    hop: Hop,
    ports: usize,
    buffer_bytes: u64,
) -> Vec<bool> {
    let service_ns = hop.service_ns(ip_bytes);
    let mut free_ns = vec![f64::NEG_INFINITY; ports];
    // When those that wait at any port are taken up.
    let mut waiting: Vec<f64> = Vec::new();
    let keep = |(number, arrival_ns): (usize, &f64)| {
        waiting.retain(|taken_up| taken_up > arrival_ns);
        let free_ns = &mut free_ns[number % ports];
        let start_ns = free_ns.max(*arrival_ns);
        if start_ns > *arrival_ns {
            if (waiting.len() as u64 + 1) * ip_bytes > buffer_bytes {
                return false;
            }
            waiting.push(start_ns);
        }
        *free_ns = start_ns + service_ns;
        true
    };
    at_ns.iter().enumerate().map(keep).collect()
}

/// The share of packets that RED drops while the mean of its queue is `mean_bytes`: after Floyd and Jacobson (section 7) the gaps
/// between drops are even from 1 to 1/p, so that one of (1/p + 1)/2 is dropped, p being `probability` where the mean reaches
/// `max_bytes` and falling to 0 at `min_bytes`.
pub fn red_share(mean_bytes: f64, min_bytes: f64, max_bytes: f64, probability: f64) -> f64 {
    let p = probability * ((mean_bytes - min_bytes) / (max_bytes - min_bytes)).clamp(0.0, 1.0);
    2.0 * p / (1.0 + p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: Hop = Hop {
        bits_per_second: Some(8e6),
        delay_ns: 5_000.0,
        queue_bytes: None,
        queue_packets: None,
        framing_bytes: 38,
    };

    #[test]
    fn packets_of_a_burst_leave_one_service_time_after_another() {
        // 1,000 bytes on the wire at 1 byte a microsecond.
        let at = arrivals(&[0, 10, 20, 9_000_000], 962, &[HOP]);
        assert_eq!(at, [Some(1_005_000.0), Some(2_005_000.0), Some(3_005_000.0), Some(10_005_000.0)]);
    }

    #[test]
    fn a_queue_keeps_what_fits_beside_the_packet_in_service() {
        let packets = Hop { queue_packets: Some(2), ..HOP };
        let kept = |hop| {
            arrivals(&[0, 1, 2, 3, 4, 1_000_004], 962, &[hop]).iter().map(Option::is_some).collect::<Vec<_>>()
        };
        assert_eq!(kept(packets), [true, true, true, false, false, true]);
        assert_eq!(kept(Hop { queue_bytes: Some(1_924), ..HOP }), [true, true, true, false, false, true]);
        assert_eq!(kept(Hop { queue_bytes: Some(1_923), ..HOP }), [true, true, false, false, false, true]);
    }

    #[test]
    fn ports_that_share_a_buffer_keep_one_each_in_service_and_fill_it_together() {
        // 1 ms a packet; two wait at most, wherever.
        let at = [0.0, 1.0, 2.0, 3.0, 4.0, 1_000_005.0, 1_000_006.0];
        let kept = kept_by_shared_buffer(&at, 962, HOP, 2, 2 * 962);
        // One in service at each port, two wait, one is refused; a millisecond later both ports have taken up theirs.
        assert_eq!(kept, [true, true, true, true, false, true, true]);
    }

    #[test]
    fn red_drops_nothing_below_its_least_queue_and_twice_a_small_probability() {
        assert_eq!(red_share(20_000.0, 20_000.0, 100_000.0, 0.4), 0.0);
        assert!((red_share(60_000.0, 20_000.0, 100_000.0, 0.4) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_second_slower_link_queues_again_and_one_without_a_rate_does_not() {
        let none = Hop { bits_per_second: None, delay_ns: 1_000.0, ..HOP };
        let slow = Hop { bits_per_second: Some(4e6), delay_ns: 0.0, ..HOP };
        assert_eq!(arrivals(&[0, 0], 962, &[none, HOP, slow]), [Some(3_006_000.0), Some(5_006_000.0)]);
    }
}
