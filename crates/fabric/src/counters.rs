//! What each directed link counts.

use serde::{Deserialize, Serialize};
use weir_core::fabric_page::{LINK_WORDS, link};

/// Counters of a directed link: the words of `weir_core::fabric_page::link`, in segments and IP bytes.
///
/// `packets_in` = `packets_sent` + `dropped_queue` + `dropped_outage` + `dropped_mtu` + `queue_packets` + what is in the
/// serialiser. `packets_sent` includes `dropped_loss`, because a lost segment has used the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    pub packets_in: u64,
    pub bytes_in: u64,
    /// Left the serialiser onto the wire, those lost there included.
    pub packets_sent: u64,
    pub bytes_sent: u64,
    /// Bytes sent, framing included.
    pub wire_bytes_sent: u64,
    pub dropped_queue: u64,
    pub dropped_loss: u64,
    pub dropped_outage: u64,
    pub dropped_mtu: u64,
    /// IP bytes waiting now.
    pub queue_bytes: u64,
    pub queue_packets: u64,
    /// The most IP bytes that ever waited.
    pub queue_bytes_max: u64,
    /// Time the serialiser was busy with packets that have left it, in the model's time.
    pub busy_ns: u64,
}

impl LinkCounters {
    /// The link's block of the shared page.
    pub fn words(&self) -> [u64; LINK_WORDS] {
        let mut words = [0; LINK_WORDS];
        words[link::PACKETS_IN] = self.packets_in;
        words[link::BYTES_IN] = self.bytes_in;
        words[link::PACKETS_SENT] = self.packets_sent;
        words[link::BYTES_SENT] = self.bytes_sent;
        words[link::WIRE_BYTES_SENT] = self.wire_bytes_sent;
        words[link::DROPPED_QUEUE] = self.dropped_queue;
        words[link::DROPPED_LOSS] = self.dropped_loss;
        words[link::DROPPED_OUTAGE] = self.dropped_outage;
        words[link::DROPPED_MTU] = self.dropped_mtu;
        words[link::QUEUE_BYTES] = self.queue_bytes;
        words[link::QUEUE_PACKETS] = self.queue_packets;
        words[link::QUEUE_BYTES_MAX] = self.queue_bytes_max;
        words[link::BUSY_NS] = self.busy_ns;
        words
    }
}

/// The fabric's own counts, in segments. `entered` = `delivered` + `dropped` + `unroutable` + what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub entered: u64,
    pub delivered: u64,
    /// Dropped at a link, all of its reasons.
    pub dropped: u64,
    /// Refused at once: `DropReason::Unroutable`.
    pub unroutable: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_word_of_its_own_in_the_page() {
        let counters = LinkCounters {
            packets_in: 1,
            bytes_in: 2,
            packets_sent: 3,
            bytes_sent: 4,
            wire_bytes_sent: 5,
            dropped_queue: 6,
            dropped_loss: 7,
            dropped_outage: 8,
            dropped_mtu: 9,
            queue_bytes: 10,
            queue_packets: 11,
            queue_bytes_max: 12,
            busy_ns: 13,
        };
        assert_eq!(counters.words(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0, 0]);
    }
}
