//! What the shell is to do next.

use crate::packet::Packet;
use serde::{Deserialize, Serialize};
use weir_core::Instant;

/// One thing for the shell to do, in the order of their times. The counts of a buffer's deliveries and drops add up to its
/// segments, after which the shell may reuse the buffer; `Seen` never is the last that is said of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The run reached `host` at `planned`, in the model's time, by the interface on `packet.network()`. With `packet.answer()` it
    /// is not the segments that the buffer holds but what a router sent about one of them, of `packet.ip_bytes()` bytes.
    Deliver { host: usize, packet: Packet, planned: Instant },
    /// The run was dropped at directed link `link`.
    Drop { packet: Packet, link: usize, reason: DropReason, at: Instant },
    /// On a captured link the run was taken up by the serialiser, or dropped if there is a reason (after it was sent, where
    /// the wire lost it).
    Seen { packet: Packet, link: usize, at: Instant, dropped: Option<DropReason> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The link's queue was full.
    Queue,
    /// Lost at random on the wire, after it was sent; or an echo request of no use to the router that the link leads to, because
    /// a bit was inverted or there is no way back.
    Loss,
    /// The link was cut when the segment arrived or would have left.
    Outage,
    /// Larger than the link's MTU.
    Mtu,
    /// No such host, no path to it, or addressed to its own sender; `link` is the sender's own access link, whose
    /// counters it does not enter.
    Unroutable,
    /// Its hop limit ended at the router that the link leaves.
    HopLimit,
    /// The buffer that the stage's ports share was full.
    Buffer,
    /// By RED or CoDel, before the queue was full.
    Early,
    /// Lost on the wire in a burst, after it was sent.
    BurstLoss,
    /// Lost on the wire to a rule that it matched, after it was sent.
    Rule,
}
