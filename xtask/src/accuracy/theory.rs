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
    fn a_second_slower_link_queues_again_and_one_without_a_rate_does_not() {
        let none = Hop { bits_per_second: None, delay_ns: 1_000.0, ..HOP };
        let slow = Hop { bits_per_second: Some(4e6), delay_ns: 0.0, ..HOP };
        assert_eq!(arrivals(&[0, 0], 962, &[none, HOP, slow]), [Some(3_006_000.0), Some(5_006_000.0)]);
    }
}
