//! What the shell is to do next.

use crate::packet::Packet;
use serde::{Deserialize, Serialize};
use weir_core::Instant;

/// One thing for the shell to do. The counts of a buffer's actions add up to its segments, after which the shell may
/// reuse the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The run reached `host` at `planned`, in the model's time.
    Deliver { host: usize, packet: Packet, planned: Instant },
    /// The run was dropped at directed link `link`.
    Drop { packet: Packet, link: usize, reason: DropReason, at: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The link's queue was full.
    Queue,
    /// Lost at random on the wire, after it was sent.
    Loss,
    /// The link was cut when the segment arrived or would have left.
    Outage,
    /// Larger than the link's MTU.
    Mtu,
    /// No such host, no path to it, or addressed to its own sender; `link` is the sender's own access link, whose
    /// counters it does not enter.
    Unroutable,
}
