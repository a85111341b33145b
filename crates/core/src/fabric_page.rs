//! Layout of the shared-memory page through which the fabric's counters reach the samplers.
//!
//! The page is an array of little-endian `u64` words, written by the fabric alone and read by anyone; each word is
//! read and written atomically. Word 0 is a magic number, word 1 the number of directed links, then the fabric's own
//! words, its lateness by count and by time, then one block a directed link in the order of `topology::DirectedLink`.

use crate::behind::BUCKETS;
use serde::{Deserialize, Serialize};

/// `weirfab4` in ASCII.
pub const MAGIC: u64 = 0x3462_6166_7269_6577;
pub const HEADER_WORDS: usize = 16;
/// Lateness histogram: bucket `b` counts deliveries with lateness in `[2^(b/4), 2^((b+1)/4))` ns, b from 0.
pub const LATENESS_BUCKETS: usize = 160;
pub const LINK_WORDS: usize = 24;

/// Words of the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const LINK_COUNT: usize = 1;
    /// `CLOCK_MONOTONIC` of the last turn of the fabric's loop.
    pub const HEARTBEAT_NS: usize = 2;
    pub const PACKETS_IN: usize = 3;
    pub const PACKETS_OUT: usize = 4;
    /// Segments dropped by any link, all reasons.
    pub const PACKETS_DROPPED: usize = 5;
    /// Segments the kernel refused when the fabric wrote them to a host.
    pub const WRITE_FAILED: usize = 6;
    /// Packets with no such destination, not IP, or malformed.
    pub const UNROUTABLE: usize = 7;
    /// Time the fabric's thread spent on a CPU, ns.
    pub const CPU_NS: usize = 8;
    /// Turns of the loop.
    pub const TURNS: usize = 9;
    /// Answers that routers sent: each is one more packet inside for one that was dropped, or had reached the router.
    pub const ANSWERED: usize = 10;
    /// Time the fabric's thread looked for packets and found none, with nothing to deliver: on a CPU, and free, ns.
    pub const LOOKED_NS: usize = 11;
}

/// Declares the counters of a directed link, once for all who know them: the fields that the fabric counts in, their words in the page,
/// and the series that samplers keep of them.
macro_rules! link_counters {
    ($($(#[$doc:meta])* $field:ident at $word:ident $(kept as $series:expr)?;)*) => {
        /// Counters of a directed link, in segments (packets on the wire) and IP bytes; they only grow, but for what waits now.
        ///
        /// `packets_in` = `packets_sent` + `queue_packets` + what is in the serialiser + what was dropped, except that `packets_sent`
        /// includes what the wire lost after it was sent: `dropped_loss`, `dropped_burst_loss` and `dropped_rule`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl LinkCounters {
            /// The link's block of the page.
            pub fn words(&self) -> [u64; LINK_WORDS] {
                let mut words = [0; LINK_WORDS];
                $(words[link::$word] = self.$field;)*
                words
            }
        }

        /// Words of a link's block.
        pub mod link {
            #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "they are named as the words are")]
            enum Place {
                $($word,)*
                Count,
            }
            $($(#[$doc])* pub const $word: usize = Place::$word as usize;)*
            const _: () = assert!(Place::Count as usize <= super::LINK_WORDS, "a link's block is too small");
        }

        /// The words of a link that are kept as series.
        pub const LINK_SERIES: &[LinkSeries] = &[$($(LinkSeries { word: link::$word, ..$series },)?)*];
    };
}

/// A word of a link that is kept as a series.
#[derive(Clone, Copy, Debug)]
pub struct LinkSeries {
    pub word: usize,
    pub name: &'static str,
    pub unit: &'static str,
    /// It only grows.
    pub is_cumulative: bool,
    /// Kept only once it is more than 0: most links have none of it, and most of the memory would hold zeros.
    pub is_rare: bool,
}

impl LinkSeries {
    const fn new(name: &'static str, unit: &'static str) -> LinkSeries {
        LinkSeries { word: 0, name, unit, is_cumulative: true, is_rare: false }
    }
    const fn rare(name: &'static str, unit: &'static str) -> LinkSeries {
        LinkSeries { is_rare: true, ..LinkSeries::new(name, unit) }
    }
}

link_counters! {
    packets_in at PACKETS_IN;
    bytes_in at BYTES_IN;
    /// Left the serialiser onto the wire, those lost there included.
    packets_sent at PACKETS_SENT kept as LinkSeries::new("port.sent_packets", "packets");
    bytes_sent at BYTES_SENT;
    /// Bytes sent, framing included.
    wire_bytes_sent at WIRE_BYTES_SENT kept as LinkSeries::new("port.wire_bytes", "B");
    dropped_queue at DROPPED_QUEUE kept as LinkSeries::new("port.dropped_queue_packets", "packets");
    dropped_loss at DROPPED_LOSS kept as LinkSeries::new("port.dropped_loss_packets", "packets");
    dropped_outage at DROPPED_OUTAGE kept as LinkSeries::new("port.dropped_outage_packets", "packets");
    /// Larger than the link's MTU.
    dropped_mtu at DROPPED_MTU kept as LinkSeries::rare("port.dropped_mtu_packets", "packets");
    /// IP bytes waiting now.
    queue_bytes at QUEUE_BYTES kept as LinkSeries { is_cumulative: false, ..LinkSeries::new("port.queue_bytes", "B") };
    queue_packets at QUEUE_PACKETS;
    /// The most IP bytes that ever waited.
    queue_bytes_max at QUEUE_BYTES_MAX;
    /// Time the serialiser was busy with packets that have left it, ns, in the model's time.
    busy_ns at BUSY_NS;
    /// The hop limit ended at the router that the link leaves.
    dropped_hop_limit at DROPPED_HOP_LIMIT kept as LinkSeries::rare("port.dropped_hop_limit_packets", "packets");
    /// The buffer shared by the stage's ports was full.
    dropped_buffer at DROPPED_BUFFER kept as LinkSeries::rare("port.dropped_buffer_packets", "packets");
    /// By RED or CoDel.
    dropped_early at DROPPED_EARLY kept as LinkSeries::rare("port.dropped_early_packets", "packets");
    /// Lost on the wire in a burst.
    dropped_burst_loss at DROPPED_BURST_LOSS kept as LinkSeries::rare("port.dropped_burst_loss_packets", "packets");
    /// Lost on the wire to a rule of a fault.
    dropped_rule at DROPPED_RULE kept as LinkSeries::rare("port.dropped_rule_packets", "packets");
    /// Had a bit inverted on the wire.
    corrupted at CORRUPTED kept as LinkSeries::rare("port.corrupted_packets", "packets");
    /// Arrived after a segment that was sent later (RFC 4737, section 3).
    reordered at REORDERED kept as LinkSeries::rare("port.reordered_packets", "packets");
    /// How often a packet left the serialiser and none waited to be next. While it stands still, packets wait all the time.
    ran_empty at RAN_EMPTY kept as LinkSeries::rare("port.ran_empty", "times");
}

/// First word of the lateness histogram.
pub const LATENESS_START: usize = HEADER_WORDS;
/// First word of the time behind, by lateness: `crate::behind::Behind::words`.
pub const BEHIND_START: usize = LATENESS_START + LATENESS_BUCKETS;
/// First word of link `index`'s block.
pub const fn link_start(index: usize) -> usize {
    BEHIND_START + BUCKETS + index * LINK_WORDS
}
/// Words in a page for `links` directed links.
pub const fn words(links: usize) -> usize {
    link_start(links)
}

/// The bucket a lateness falls into.
pub fn lateness_bucket(lateness_ns: u64) -> usize {
    if lateness_ns < 2 {
        return 0;
    }
    let log2 = (lateness_ns as f64).log2();
    ((log2 * 4.0) as usize).min(LATENESS_BUCKETS - 1)
}
/// Upper edge of a bucket in nanoseconds.
pub fn lateness_bucket_ns(bucket: usize) -> f64 {
    2f64.powf((bucket + 1) as f64 / 4.0)
}
/// The lateness below which `share` of the deliveries between two readings of the histogram fell, in nanoseconds.
/// `None` when there were none.
pub fn lateness_quantile_ns(before: &[u64], after: &[u64], share: f64) -> Option<f64> {
    let counts = deliveries(before, after);
    let total: u64 = counts.iter().sum();
    at_rank(&counts, (total as f64 * share).ceil().max(1.0) as u64)
}

fn deliveries(before: &[u64], after: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect()
}

fn at_rank(counts: &[u64], rank: u64) -> Option<f64> {
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        if seen + count >= rank {
            // Straight between the bucket's edges; its upper edge alone would overstate by up to a fifth.
            let low = if bucket == 0 { 0.0 } else { lateness_bucket_ns(bucket - 1) };
            let share_inside = (rank - seen) as f64 / *count as f64;
            return Some(low + (lateness_bucket_ns(bucket) - low) * share_inside);
        }
        seen += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_percentile_of_lateness_is_within_a_twentieth_of_the_truth() {
        let before = vec![0; LATENESS_BUCKETS];
        let mut after = before.clone();
        for lateness in 1..=1000u64 {
            after[lateness_bucket(lateness * 1_000)] += 1;
        }
        let p99 = lateness_quantile_ns(&before, &after, 0.99).unwrap();
        assert!((p99 / 990_000.0 - 1.0).abs() < 0.05, "{p99}");
        assert_eq!(lateness_quantile_ns(&after, &after, 0.99), None);
    }
}
