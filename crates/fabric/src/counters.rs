//! What each directed link counts.

use crate::action::DropReason;
use serde::{Deserialize, Serialize};
pub use weir_core::fabric_page::LinkCounters;

/// The counter of segments dropped for a reason; `None` for one that links do not count.
pub(crate) fn dropped_mut(counters: &mut LinkCounters, reason: DropReason) -> Option<&mut u64> {
    Some(match reason {
        DropReason::Queue => &mut counters.dropped_queue,
        DropReason::Loss => &mut counters.dropped_loss,
        DropReason::Outage => &mut counters.dropped_outage,
        DropReason::Mtu => &mut counters.dropped_mtu,
        DropReason::HopLimit => &mut counters.dropped_hop_limit,
        DropReason::Buffer => &mut counters.dropped_buffer,
        DropReason::Early => &mut counters.dropped_early,
        DropReason::BurstLoss => &mut counters.dropped_burst_loss,
        DropReason::Rule => &mut counters.dropped_rule,
        DropReason::Unroutable => return None,
    })
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
