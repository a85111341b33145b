//! Who may send how much: a window shared by all sources, so that their bytes do not meet in a switch that cannot hold them.

use super::{Action, Builder};
use crate::message::Message;

/// Below it a share is not worth a message.
const SHARE_BYTES_MIN: u64 = 128;

/// One half of the window belongs to the sources, an equal part to each: nobody who is silent can keep another from sending. The other
/// half goes to those that have something to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// Each source's own.
    base_bytes: u64,
    pool_bytes: u64,
    /// Of the pool.
    lent_bytes: u64,
    /// Sources with a channel and fragments to come.
    active: u64,
}

impl Builder {
    /// Anew after a change of the sources or the window.
    // Spec: event-building.md#credits-3
    pub(super) fn share_window(&mut self) {
        let count = self.lanes.iter().filter(|lane| lane.listed).count() as u64;
        let window = self.run.as_ref().map_or(0, |run| run.window_bytes).max(2 * SHARE_BYTES_MIN * count);
        let base = if count == 0 { 0 } else { window / 2 / count };
        self.pool_share = Shares {
            base_bytes: base,
            pool_bytes: window - base * count,
            lent_bytes: self.lanes.iter().map(|lane| lane.out_bytes().saturating_sub(base)).sum(),
            active: self.lanes.iter().filter(|lane| lane.is_active()).count() as u64,
        };
        for slot in 0..self.lanes.len() {
            self.grant(slot as u16);
        }
    }

    /// Does something to a lane that changes what it may send or has to, and keeps the shares in step.
    pub(super) fn with_lane<T>(
        &mut self,
        slot: u16,
        change: impl FnOnce(&mut super::Lane) -> T,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(usize::from(slot))?;
        let shares = &mut self.pool_share;
        let (was_active, was_lent) = (lane.is_active(), lane.out_bytes().saturating_sub(shares.base_bytes));
        let result = change(lane);
        let (active, lent) = (lane.is_active(), lane.out_bytes().saturating_sub(shares.base_bytes));
        shares.lent_bytes = shares.lent_bytes + lent - was_lent;
        shares.active = shares.active + u64::from(active) - u64::from(was_active);
        Some(result)
    }

    /// Lets a source send more, where it has used up half of what it may have.
    pub(super) fn grant(&mut self, slot: u16) {
        let Some(lane) = self.lanes.get(usize::from(slot)) else { return };
        let Some(link) = lane.link else { return };
        let shares = self.pool_share;
        let out = lane.out_bytes();
        let own_lent = out.saturating_sub(shares.base_bytes);
        // Other sources' loans stand; after the window was made smaller they may be more than the pool.
        let free = shares.pool_bytes.saturating_sub(shares.lent_bytes) + own_lent;
        let lent = if lane.is_active() { free.min(shares.pool_bytes / shares.active.max(1)) } else { 0 };
        let target = shares.base_bytes + lent;
        if !lane.listed || out > target / 2 || target == out {
            return;
        }
        let total = self.with_lane(slot, |lane| {
            lane.granted_bytes += target - out;
            lane.granted_bytes
        });
        if let Some(total_bytes) = total {
            self.actions.push_back(Action::SendTo { link, message: Message::Grant { total_bytes } });
        }
    }
}
