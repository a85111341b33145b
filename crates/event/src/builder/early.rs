//! Fragments that came before their assignment.

use super::Builder;
use super::assembly::Verdict;
use crate::wire::{HEADER_BYTES, Header};
use std::collections::VecDeque;
use std::time::Duration;
use weir_core::Instant;

/// Entries without a buffer cost little and are bounded all the same; what is beyond is asked for when its source falls silent.
const ENTRIES_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Early {
    /// Ascending by id, source and epoch.
    entries: VecDeque<Entry>,
    /// In buffers, headers included.
    kept_bytes: u64,
}

struct Entry {
    header: Header,
    /// Its payload; `None`: it was wrong or had no room, and is asked for again once it is assigned.
    buffer: Option<Vec<u8>>,
    at: Instant,
}

impl Builder {
    /// Whether there is room for a fragment that has no assignment.
    // Spec: event-building.md#delivery-2
    pub(super) fn judge_early(&mut self, slot: u16, header: &Header, now: Instant) -> Verdict {
        let bytes = HEADER_BYTES as u64 + u64::from(header.bytes);
        let lane_has = self.lanes.get(usize::from(slot)).is_some_and(|lane| lane.early_bytes > 0);
        let window = self.run.as_ref().map_or(0, |run| run.window_bytes);
        // A source's first may be as large as fragments are; what of it comes is held back by its credit.
        let fits = self.held_bytes + bytes <= self.settings.memory_bytes
            && (!lane_has || self.early.kept_bytes + bytes <= window);
        if fits {
            return Verdict::Early;
        }
        self.note_early(*header, now);
        Verdict::Skip
    }

    fn note_early(&mut self, header: Header, now: Instant) {
        if self.early.entries.len() < ENTRIES_MAX {
            self.early.put(Entry { header, buffer: None, at: now });
        }
    }

    pub(super) fn keep_early(
        &mut self,
        slot: u16,
        header: Header,
        buffer: Vec<u8>,
        right: bool,
        now: Instant,
    ) {
        // The assignment may have come while the payload did.
        if self.is_assigned(header.id, header.epoch) {
            self.with_lane(slot, |lane| lane.early_bytes -= HEADER_BYTES as u64 + u64::from(header.bytes));
            return self.join_fragment(slot, header, buffer, right, now);
        }
        if right {
            self.early.put(Entry { header, buffer: Some(buffer), at: now });
        } else {
            self.figures.corrupt += 1;
            self.free_early(&header, Some(buffer));
            self.note_early(header, now);
        }
    }

    /// Gives back what a fragment takes that is early no more.
    fn free_early(&mut self, header: &Header, buffer: Option<Vec<u8>>) {
        let Some(buffer) = buffer else { return };
        let bytes = HEADER_BYTES as u64 + u64::from(header.bytes);
        self.pool.give(buffer);
        self.held_bytes -= bytes;
        self.with_lane(header.source, |lane| lane.early_bytes -= bytes);
        self.grant(header.source);
    }

    /// An assignment has come: what is there of it already is joined.
    pub(super) fn adopt_early(&mut self, id: u64, epoch: u32, now: Instant) {
        let at = self.early.entries.partition_point(|entry| entry.header.id < id);
        let mut later = 0;
        while let Some(entry) = self.early.entries.get(at + later).filter(|entry| entry.header.id == id) {
            if entry.header.epoch > epoch {
                later += 1;
                continue;
            }
            let Some(Entry { header, buffer, .. }) = self.early.take(at + later) else { return };
            if header.epoch < epoch {
                self.figures.stale += 1;
                self.free_early(&header, buffer);
            } else if let Some(buffer) = buffer {
                self.with_lane(header.source, |lane| {
                    lane.early_bytes -= HEADER_BYTES as u64 + u64::from(header.bytes);
                });
                self.join_fragment(header.source, header, buffer, true, now);
                self.grant(header.source);
            } else {
                self.ask_again(header.source, id, epoch);
            }
        }
        // What is just coming is early no more, so that its source gets credit for the rest of it.
        for slot in 0..self.lanes.len() as u16 {
            if self.lanes[usize::from(slot)].early_bytes == 0 {
                continue;
            }
            let coming = self.with_lane(slot, |lane| lane.end_early(id, epoch));
            if coming == Some(true) {
                self.grant(slot);
            }
        }
    }

    /// Gives up what no assignment has come for: it was of one that is over.
    pub(super) fn expire_early(&mut self, limit: Duration, now: Instant) {
        let mut at = 0;
        while let Some(entry) = self.early.entries.get(at) {
            if now.since(entry.at) < limit {
                at += 1;
                continue;
            }
            let Some(Entry { header, buffer, .. }) = self.early.take(at) else { return };
            self.figures.stale += 1;
            self.free_early(&header, buffer);
        }
        for slot in 0..self.lanes.len() as u16 {
            let lane = &self.lanes[usize::from(slot)];
            let coming = lane.early_header().filter(|_| now.since(lane.moved_at) >= limit);
            if let Some(header) = coming {
                self.turn_away(slot);
                self.note_early(header, now);
                self.grant(slot);
            }
        }
    }

    /// Makes room for what is assigned: all early fragments are noted, to be asked for again.
    pub(super) fn drop_early(&mut self) {
        for slot in 0..self.lanes.len() as u16 {
            if let Some(header) = self.lanes[usize::from(slot)].early_header() {
                let now = self.lanes[usize::from(slot)].moved_at;
                self.turn_away(slot);
                self.note_early(header, now);
            }
        }
        self.early.kept_bytes = 0;
        for at in 0..self.early.entries.len() {
            let entry = &mut self.early.entries[at];
            let (header, buffer) = (entry.header, entry.buffer.take());
            self.free_early(&header, buffer);
        }
    }

    /// A source whose connection has ended sends all anew.
    pub(super) fn drop_early_of(&mut self, slot: u16) {
        let mut at = 0;
        while let Some(entry) = self.early.entries.get(at) {
            if entry.header.source != slot {
                at += 1;
                continue;
            }
            let Some(Entry { header, buffer, .. }) = self.early.take(at) else { return };
            self.free_early(&header, buffer);
        }
    }
}

impl Early {
    fn put(&mut self, entry: Entry) {
        let key = |entry: &Entry| (entry.header.id, entry.header.source, entry.header.epoch);
        let at = self.entries.partition_point(|other| key(other) < key(&entry));
        if entry.buffer.is_some() {
            self.kept_bytes += entry.bytes();
        }
        self.entries.insert(at, entry);
    }
    fn take(&mut self, at: usize) -> Option<Entry> {
        let entry = self.entries.remove(at)?;
        if entry.buffer.is_some() {
            self.kept_bytes -= entry.bytes();
        }
        Some(entry)
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.header.bytes)
    }
}
