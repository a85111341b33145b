//! Who may send how much: a window shared by all sources, so that their bytes do not meet in a switch that cannot hold them.

use super::{Action, Builder, Lane};
use crate::message::Message;
use crate::wire::HEADER_BYTES;
use std::time::Duration;

/// Of memory so small a part may be kept for others without a thought: who waits has to catch up later, which costs time where a window is small.
const KEPT_PART_MIN: u64 = 1024;
/// Below it a share is not worth a message.
const SHARE_BYTES_MIN: u64 = 128;

/// One half of the window belongs to the sources, an equal part to each: nobody who is silent can keep another from sending. The other
/// half goes to those that have something to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    window_bytes: u64,
    /// Each source's own.
    base_bytes: u64,
    pool_bytes: u64,
    /// What sources may send now, or have sent too early.
    out_bytes: u64,
    /// Of it, what is above their own share: from the pool.
    lent_bytes: u64,
    /// Sources with a channel and fragments to come.
    active: u64,
    /// How long a source that is far ahead waits for others.
    wait: Duration,
    /// Somebody has less than its share: after the sources or the window have changed old loans can leave too little, or one waits for
    /// another.
    short: bool,
}

impl Builder {
    /// Anew after a change of the sources or the window.
    // Spec: event-building.md#credits-3
    pub(super) fn share_window(&mut self) {
        let count = self.lanes.iter().filter(|lane| lane.listed).count() as u64;
        let window_bytes =
            self.run.as_ref().map_or(0, |run| run.window_bytes).max(2 * SHARE_BYTES_MIN * count);
        let base_bytes = (window_bytes / 2).checked_div(count).unwrap_or(0);
        self.shares = Shares {
            window_bytes,
            base_bytes,
            pool_bytes: window_bytes - base_bytes * count,
            out_bytes: self.lanes.iter().map(|lane| lane.out_bytes()).sum(),
            lent_bytes: self.lanes.iter().map(|lane| lane.out_bytes().saturating_sub(base_bytes)).sum(),
            active: self.lanes.iter().filter(|lane| lane.is_active()).count() as u64,
            wait: self.run.as_ref().map_or(Duration::ZERO, super::Run::wait),
            short: false,
        };
        self.grant_all();
    }

    /// Does something to a lane that changes what it may send or has to, and keeps the shares in step.
    pub(super) fn with_lane<T>(
        &mut self,
        slot: u16,
        change: impl FnOnce(&mut super::Lane) -> T,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(usize::from(slot))?;
        let shares = &mut self.shares;
        let (was_active, was_out) = (lane.is_active(), lane.out_bytes());
        let result = change(lane);
        let (active, out) = (lane.is_active(), lane.out_bytes());
        let lent = |out: u64| out.saturating_sub(shares.base_bytes);
        shares.lent_bytes = shares.lent_bytes + lent(out) - lent(was_out);
        shares.out_bytes = shares.out_bytes + out - was_out;
        shares.active = shares.active + u64::from(active) - u64::from(was_active);
        Some(result)
    }

    pub(super) fn grant_all(&mut self) {
        self.shares.short = false;
        let behind = self.behind();
        for slot in 0..self.lanes.len() {
            self.grant_beside(slot as u16, behind);
        }
    }

    /// Where a source waits for others, it is looked whether it still has to.
    pub(super) fn grant_waiting(&mut self) {
        if self.shares.short {
            self.grant_all();
        }
    }

    /// After bytes of a source have come.
    pub(super) fn grant_on(&mut self, slot: u16) {
        if self.shares.short {
            self.grant_all();
        } else {
            self.grant(slot);
        }
    }

    pub(super) fn grant(&mut self, slot: u16) {
        let Some(lane) = self.lanes.get(usize::from(slot)) else { return };
        // Nobody can lack more than all events: the usual case costs no look at every source.
        let all = self.events.len() as u32;
        let behind = if self.is_far_ahead(lane, all) { self.behind() } else { all };
        self.grant_beside(slot, behind);
    }

    /// How many fragments the source lacks that is furthest behind of those that move.
    fn behind(&self) -> u32 {
        let moves = |lane: &&Lane| lane.link.is_some() && self.now.since(lane.moved_at) < self.shares.wait;
        self.lanes.iter().filter(moves).map(|lane| lane.missing).max().unwrap_or(0)
    }

    /// Whether a source has sent so much more than another, which lacks `behind` fragments, that it has to wait: all of that is kept until
    /// the other's is there.
    // Spec: event-building.md#credits-6
    fn is_far_ahead(&self, lane: &Lane, behind: u32) -> bool {
        let fragment_bytes = HEADER_BYTES as u64 + u64::from(lane.last_bytes);
        let ahead_bytes = u64::from(behind.saturating_sub(lane.missing)) * fragment_bytes;
        let free_bytes = self.settings.memory_bytes / KEPT_PART_MIN;
        ahead_bytes > (self.shares.window_bytes / 2).max(2 * fragment_bytes).max(free_bytes)
            && self.now.since(lane.granted_at) < self.shares.wait
    }

    /// Lets a source send more, where it has used up half of what it may have. `behind`: what the last one lacks.
    fn grant_beside(&mut self, slot: u16, behind: u32) {
        let Some(lane) = self.lanes.get(usize::from(slot)) else { return };
        let Some(link) = lane.link.filter(|_| lane.listed) else { return };
        let shares = self.shares;
        let out = lane.out_bytes();
        let own_lent = out.saturating_sub(shares.base_bytes);
        // Old loans may be more than the pool after a change.
        let free = shares.pool_bytes.saturating_sub(shares.lent_bytes) + own_lent;
        let lent = if lane.is_active() { free.min(shares.pool_bytes / shares.active.max(1)) } else { 0 };
        let target = shares.base_bytes + lent;
        if out > target / 2 || target == out {
            return;
        }
        if self.is_far_ahead(lane, behind) {
            self.shares.short = true;
            return;
        }
        let now = self.now;
        let more = (target - out).min(shares.window_bytes.saturating_sub(shares.out_bytes));
        self.shares.short |= out + more < target;
        if more == 0 {
            return;
        }
        let total = self.with_lane(slot, |lane| {
            lane.granted_bytes += more;
            lane.granted_at = now;
            lane.granted_bytes
        });
        if let Some(total_bytes) = total {
            self.actions.push_back(Action::SendTo { link, message: Message::Grant { total_bytes } });
        }
    }
}
