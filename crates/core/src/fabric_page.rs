//! Layout of the shared-memory page through which the fabric's counters reach the samplers.
//!
//! The page is an array of little-endian `u64` words, written by the fabric alone and read by anyone; each word is
//! read and written atomically. Word 0 is a magic number, word 1 the number of directed links, then the fabric's own
//! words, its lateness by count and by time, then one block a directed link in the order of `topology::DirectedLink`.

use crate::behind::BUCKETS;

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

/// Words of a link's block. Counts are cumulative, in segments (packets on the wire) and IP bytes.
pub mod link {
    pub const PACKETS_IN: usize = 0;
    pub const BYTES_IN: usize = 1;
    /// Left the serialiser onto the wire.
    pub const PACKETS_SENT: usize = 2;
    pub const BYTES_SENT: usize = 3;
    /// Bytes sent, framing included.
    pub const WIRE_BYTES_SENT: usize = 4;
    pub const DROPPED_QUEUE: usize = 5;
    pub const DROPPED_LOSS: usize = 6;
    pub const DROPPED_OUTAGE: usize = 7;
    /// Larger than the link's MTU.
    pub const DROPPED_MTU: usize = 8;
    /// IP bytes waiting now, and the most that waited since the reader last looked is not kept: samples are.
    pub const QUEUE_BYTES: usize = 9;
    pub const QUEUE_PACKETS: usize = 10;
    /// The most bytes that ever waited.
    pub const QUEUE_BYTES_MAX: usize = 11;
    /// Time the serialiser was busy, ns, in the model's time.
    pub const BUSY_NS: usize = 12;
    /// Hop limit ended at the router that the link leaves.
    pub const DROPPED_HOP_LIMIT: usize = 13;
    /// The buffer shared by the stage's ports was full.
    pub const DROPPED_BUFFER: usize = 14;
    /// By RED or CoDel.
    pub const DROPPED_EARLY: usize = 15;
    /// Lost on the wire in a burst.
    pub const DROPPED_BURST_LOSS: usize = 16;
    /// Lost on the wire to a rule of a fault.
    pub const DROPPED_RULE: usize = 17;
    /// Had a bit inverted on the wire.
    pub const CORRUPTED: usize = 18;
    /// Arrived after a segment that was sent later.
    pub const REORDERED: usize = 19;
    /// How often a packet left the serialiser and none waited to be next. While it stands still, packets wait all the time.
    pub const RAN_EMPTY: usize = 20;
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
