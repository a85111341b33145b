//! What each directed link counts.

use crate::action::DropReason;
use serde::{Deserialize, Serialize};
use weir_core::fabric_page::{LINK_WORDS, link};

/// Counters of a directed link: the words of `weir_core::fabric_page::link`, in segments and IP bytes.
///
/// `packets_in` = `packets_sent` + `queue_packets` + what is in the serialiser + what was dropped, except that `packets_sent`
/// includes what the wire lost after it was sent: `dropped_loss`, `dropped_burst_loss` and `dropped_rule`.
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
    /// The hop limit ended at the router that the link leaves.
    pub dropped_hop_limit: u64,
    /// The buffer shared by the stage's ports was full.
    pub dropped_buffer: u64,
    /// By RED or CoDel.
    pub dropped_early: u64,
    pub dropped_burst_loss: u64,
    pub dropped_rule: u64,
    /// Had a bit inverted on the wire.
    pub corrupted: u64,
    /// Arrived after a segment that was sent later (RFC 4737, section 3).
    pub reordered: u64,
    /// IP bytes waiting now.
    pub queue_bytes: u64,
    pub queue_packets: u64,
    /// The most IP bytes that ever waited.
    pub queue_bytes_max: u64,
    /// Time the serialiser was busy with packets that have left it, in the model's time.
    pub busy_ns: u64,
    /// How often a packet left the serialiser and none waited to be next.
    pub ran_empty: u64,
}

impl LinkCounters {
    /// The counter of segments dropped for a reason; `None` for one that links do not count.
    pub(crate) fn dropped_mut(&mut self, reason: DropReason) -> Option<&mut u64> {
        Some(match reason {
            DropReason::Queue => &mut self.dropped_queue,
            DropReason::Loss => &mut self.dropped_loss,
            DropReason::Outage => &mut self.dropped_outage,
            DropReason::Mtu => &mut self.dropped_mtu,
            DropReason::HopLimit => &mut self.dropped_hop_limit,
            DropReason::Buffer => &mut self.dropped_buffer,
            DropReason::Early => &mut self.dropped_early,
            DropReason::BurstLoss => &mut self.dropped_burst_loss,
            DropReason::Rule => &mut self.dropped_rule,
            DropReason::Unroutable => return None,
        })
    }

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
        words[link::DROPPED_HOP_LIMIT] = self.dropped_hop_limit;
        words[link::DROPPED_BUFFER] = self.dropped_buffer;
        words[link::DROPPED_EARLY] = self.dropped_early;
        words[link::DROPPED_BURST_LOSS] = self.dropped_burst_loss;
        words[link::DROPPED_RULE] = self.dropped_rule;
        words[link::CORRUPTED] = self.corrupted;
        words[link::REORDERED] = self.reordered;
        words[link::QUEUE_BYTES] = self.queue_bytes;
        words[link::QUEUE_PACKETS] = self.queue_packets;
        words[link::QUEUE_BYTES_MAX] = self.queue_bytes_max;
        words[link::BUSY_NS] = self.busy_ns;
        words[link::RAN_EMPTY] = self.ran_empty;
        words
    }
}

/// The fabric's own counts, in segments. `entered` + `answered` = `delivered` + `dropped` + `unroutable` + what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub entered: u64,
    /// Answers that routers sent to segments that they dropped, and to echo requests.
    pub answered: u64,
    /// To hosts, answers among them, and echo requests to routers.
    pub delivered: u64,
    /// Dropped at a link, all of its reasons, answered or not.
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
            dropped_hop_limit: 14,
            dropped_buffer: 15,
            dropped_early: 16,
            dropped_burst_loss: 17,
            dropped_rule: 18,
            corrupted: 19,
            reordered: 20,
            ran_empty: 21,
        };
        let words = counters.words();
        assert_eq!(words[..21].to_vec(), (1..=21).collect::<Vec<u64>>());
        assert_eq!(words[21..], [0; LINK_WORDS - 21]);
    }
}
