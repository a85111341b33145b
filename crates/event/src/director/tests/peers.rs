//! Ideal sources and builders: they keep to the rules, know only what they were told, and do nothing else.

use crate::interval::Intervals;
use crate::ledger::Settled;
use crate::message::{BuilderAt, Known, Message, Outcome, Release};
use std::collections::{BTreeMap, BTreeSet};

/// What a peer keeps of a run between connections.
#[derive(Default)]
pub struct Memory {
    pub known: Known,
}

impl Memory {
    pub fn welcome(&mut self, run: &str, slot: u32, epoch: u32) {
        if self.known.run != run {
            self.known = Known::default();
        }
        self.known.run = run.to_owned();
        self.known.slot = slot;
        self.known.epoch = self.known.epoch.max(epoch);
    }
    pub fn finish(&mut self, first: u64, end: u64, outcome: Outcome) {
        self.known.held.remove_range(first, end);
        match outcome {
            Outcome::Complete => self.known.complete.insert_range(first, end),
            Outcome::Partial => self.known.partial.insert_range(first, end),
            Outcome::Dropped(reason) => {
                let at = self.known.dropped.iter().position(|(known, _)| *known == reason);
                let at = at.unwrap_or_else(|| {
                    self.known.dropped.push((reason, Intervals::default()));
                    self.known.dropped.len() - 1
                });
                self.known.dropped[at].1.insert_range(first, end)
            }
        };
    }
    pub fn settle(&mut self, settled: &Settled) {
        let mut gone = Intervals::of(0, settled.below);
        gone.difference(&settled.open);
        let known = &mut self.known;
        known.held.difference(&gone);
        known.complete.difference(&gone);
        known.partial.difference(&gone);
        known.dropped.iter_mut().for_each(|(_, set)| set.difference(&gone));
        known.settled = settled.clone();
    }
    pub fn heard(&mut self, last: u64, due_ns: u64) {
        if self.known.last.is_none_or(|(known, _)| known < last) {
            // The age stands for the time when it was due, until the peer joins again.
            self.known.last = Some((last, due_ns));
        }
    }
}

/// A source's channel to a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    pub generation: u32,
    pub incarnation: u64,
    pub works: bool,
    pub tries: u32,
}

#[derive(Default)]
pub struct Source {
    pub memory: Memory,
    pub assigned: BTreeMap<u64, (u32, u32)>,
    pub channels: BTreeMap<u32, Channel>,
    /// Heartbeat and epoch of what went out on each channel as it is now.
    pub sent: BTreeSet<(u64, u32)>,
    /// Bytes wait for a builder since then.
    pub stuck_since: BTreeMap<u32, u64>,
}

impl Source {
    /// What a list of builders asks for: channels to be made.
    pub fn on_builders(&mut self, list: &[BuilderAt]) -> Vec<u32> {
        let mut open = Vec::new();
        for builder in list {
            let wish = builder.channel.map(|generation| (generation, builder.incarnation));
            let has =
                self.channels.get(&builder.slot).map(|channel| (channel.generation, channel.incarnation));
            if wish == has {
                continue;
            }
            self.close(builder.slot);
            if let Some((generation, incarnation)) = wish {
                let channel = Channel { generation, incarnation, works: false, tries: 0 };
                self.channels.insert(builder.slot, channel);
                open.push(builder.slot);
            }
        }
        open
    }
    pub fn close(&mut self, builder: u32) {
        self.channels.remove(&builder);
        self.forget_sent(builder);
    }
    /// A channel made anew brings everything again.
    pub fn forget_sent(&mut self, builder: u32) {
        let assigned = &self.assigned;
        self.sent.retain(|(id, _)| assigned.get(id).is_none_or(|(at, _)| *at != builder));
        self.stuck_since.remove(&builder);
    }
    pub fn release(&mut self, release: &Release) {
        let end = release.first + u64::from(release.count);
        let outcome = release.outcome.expect("an order to a builder came to a source");
        self.memory.finish(release.first, end, outcome);
        self.forget_beyond();
    }
    pub fn forget_beyond(&mut self) {
        let held = &self.memory.known.held;
        self.assigned.retain(|id, _| held.contains(*id));
    }
}

#[derive(Default)]
pub struct Builder {
    pub memory: Memory,
    pub sources: Vec<u32>,
    pub assigned: BTreeMap<u64, u32>,
    /// Sources whose fragments have come, by heartbeat and epoch, also before the assignment.
    pub fragments: BTreeMap<(u64, u32), BTreeSet<u32>>,
}

impl Builder {
    pub fn on_assign(&mut self, id: u64, epoch: u32) -> Option<Message> {
        self.assigned.insert(id, epoch);
        self.memory.known.held.insert(id);
        self.join(id, epoch)
    }
    pub fn on_fragment(&mut self, id: u64, epoch: u32, source: u32) -> Option<Message> {
        self.fragments.entry((id, epoch)).or_default().insert(source);
        self.join(id, epoch)
    }
    fn join(&mut self, id: u64, epoch: u32) -> Option<Message> {
        if self.assigned.get(&id) != Some(&epoch) || self.memory.known.complete.contains(id) {
            return None;
        }
        let have = self.fragments.get(&(id, epoch))?;
        if self.sources.is_empty() || !self.sources.iter().all(|source| have.contains(source)) {
            return None;
        }
        self.memory.finish(id, id + 1, Outcome::Complete);
        Some(Message::Done(vec![crate::message::Done { id, epoch, outcome: Outcome::Complete }]))
    }
    pub fn release(&mut self, release: &Release) {
        for id in release.first..release.first + u64::from(release.count) {
            self.assigned.remove(&id);
            self.memory.known.held.remove(id);
            self.fragments.retain(|(at, _), _| *at != id);
            match release.outcome {
                Some(outcome) => self.memory.finish(id, id + 1, outcome),
                None => {
                    self.memory.known.complete.remove(id);
                }
            }
        }
    }
    pub fn settle(&mut self, settled: &Settled) {
        self.memory.settle(settled);
        self.assigned.retain(|id, _| !settled.covers(*id));
        self.fragments.retain(|(id, _), _| !settled.covers(*id));
    }
}
