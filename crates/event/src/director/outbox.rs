//! What the shell is to do, and the batches that become messages.

use crate::message::{Assignment, Message, Outcome, Release, Role};
use std::collections::VecDeque;
use std::mem;

/// To whom a message goes. Groups are those admitted by the actions before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A connection.
    One(u64),
    Sources,
    Builders,
    Peers,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// From here on the connection is in its role's group.
    Admit { connection: u64, role: GroupRole },
    /// A message to a group is encoded once.
    Send { to: To, message: Message },
    /// After what was sent before it has gone, or cannot go; out of its group at once. `on_closed` need not be called.
    Close { connection: u64, why: &'static str },
    /// The ledger is closed; what was sent is still to go.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupRole {
    Source,
    Builder,
}

impl From<&Role> for GroupRole {
    fn from(role: &Role) -> Self {
        match role {
            Role::Source { .. } => GroupRole::Source,
            Role::Builder { .. } => GroupRole::Builder,
        }
    }
}

/// What waits for one builder. One of the two lists is empty, so that their order is kept.
#[derive(Debug, Default)]
struct Pending {
    /// What is for a builder that is not connected is for nobody: it hears what it needs when it joins.
    connection: Option<u64>,
    assign: Vec<Assignment>,
    release: Vec<Release>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    actions: VecDeque<Action>,
    /// To all sources: first id, count, age of the first, ns.
    beats: Vec<(u64, u32, u64)>,
    release: Vec<Release>,
    assign: Vec<Assignment>,
    /// By builder slot.
    builders: Vec<Pending>,
    /// Builders for which something waits.
    marked: Vec<u32>,
    spare_assign: Vec<Vec<Assignment>>,
    spare_release: Vec<Vec<Release>>,
}

/// Vectors that are kept for the next messages, and the room that each may have.
const SPARE_MAX: usize = 4096;
const SPARE_ENTRIES_MAX: usize = 4096;

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
    pub fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
    pub fn admit(&mut self, connection: u64, role: GroupRole) {
        self.actions.push_back(Action::Admit { connection, role });
    }
    pub fn send(&mut self, to: To, message: Message) {
        self.actions.push_back(Action::Send { to, message });
    }
    pub fn close(&mut self, connection: u64, why: &'static str) {
        self.actions.push_back(Action::Close { connection, why });
    }
    pub fn finished(&mut self) {
        self.actions.push_back(Action::Finished);
    }

    /// From now on a builder is reached so; what waited for it before is forgotten.
    pub fn set_builder(&mut self, builder: u32, connection: Option<u64>) {
        let at = builder as usize;
        if self.builders.len() <= at {
            self.builders.resize_with(at + 1, Pending::default);
        }
        let pending = &mut self.builders[at];
        pending.connection = connection;
        pending.assign.clear();
        pending.release.clear();
    }

    pub fn beats(&mut self, first: u64, count: u32, age_ns: u64) {
        self.beats.push((first, count, age_ns));
    }

    /// To every source, and to its builder.
    pub fn assign(&mut self, assignment: Assignment) {
        self.assign.push(assignment);
        if let Some(pending) = self.pending(assignment.builder, |pending| !pending.release.is_empty()) {
            pending.assign.push(assignment);
        }
    }

    /// Releases go before heartbeats, so that sources have the room that those count on; but one of a heartbeat that is yet to be said goes
    /// after it.
    pub fn release_at_sources(&mut self, first: u64, count: u32, outcome: Outcome) {
        if self.beats.first().is_some_and(|(beat, _, _)| *beat <= first) {
            self.flush_sources();
        }
        add(&mut self.release, Release { first, count, outcome: Some(outcome) });
    }

    pub fn release_at_builder(&mut self, builder: u32, release: Release) {
        if let Some(pending) = self.pending(builder, |pending| !pending.assign.is_empty()) {
            add(&mut pending.release, release);
        }
    }

    /// What waits for a connected builder; sent before if `other`, so that the two kinds keep their order.
    fn pending(&mut self, builder: u32, other: impl Fn(&Pending) -> bool) -> Option<&mut Pending> {
        let at = builder as usize;
        if other(self.builders.get(at)?) {
            self.flush_builder(at);
        }
        let pending = self.builders.get_mut(at)?;
        pending.connection?;
        if pending.assign.is_empty() && pending.release.is_empty() {
            self.marked.push(builder);
        }
        Some(pending)
    }

    fn flush_builder(&mut self, at: usize) {
        let Some(pending) = self.builders.get_mut(at) else { return };
        let Some(connection) = pending.connection else { return };
        let to = To::One(connection);
        if !pending.assign.is_empty() {
            let list = mem::replace(&mut pending.assign, self.spare_assign.pop().unwrap_or_default());
            self.actions.push_back(Action::Send { to, message: Message::Assign(list) });
        }
        if !pending.release.is_empty() {
            let list = mem::replace(&mut pending.release, self.spare_release.pop().unwrap_or_default());
            self.actions.push_back(Action::Send { to, message: Message::Release(list) });
        }
    }

    /// Makes messages of all batches.
    pub fn flush(&mut self) {
        // Builders before sources: an assignment should be there before the fragments.
        while let Some(builder) = self.marked.pop() {
            self.flush_builder(builder as usize);
        }
        self.flush_sources();
    }

    fn flush_sources(&mut self) {
        let to = To::Sources;
        if !self.release.is_empty() {
            let list = mem::replace(&mut self.release, self.spare_release.pop().unwrap_or_default());
            self.actions.push_back(Action::Send { to, message: Message::Release(list) });
        }
        for (first, count, age_ns) in self.beats.drain(..) {
            self.actions.push_back(Action::Send { to, message: Message::Beats { first, count, age_ns } });
        }
        if !self.assign.is_empty() {
            let list = mem::replace(&mut self.assign, self.spare_assign.pop().unwrap_or_default());
            self.actions.push_back(Action::Send { to, message: Message::Assign(list) });
        }
    }

    pub fn recycle(&mut self, message: Message) {
        match message {
            Message::Assign(list) => keep(&mut self.spare_assign, list),
            Message::Release(list) => keep(&mut self.spare_release, list),
            _ => {}
        }
    }
}

fn keep<T>(spare: &mut Vec<Vec<T>>, mut list: Vec<T>) {
    if spare.len() < SPARE_MAX && list.capacity() <= SPARE_ENTRIES_MAX {
        list.clear();
        spare.push(list);
    }
}

/// Ids in order with one outcome are one entry.
fn add(list: &mut Vec<Release>, release: Release) {
    if let Some(last) = list.last_mut()
        && last.outcome == release.outcome
        && last.first + u64::from(last.count) == release.first
        && let Some(count) = last.count.checked_add(release.count)
    {
        last.count = count;
    } else {
        list.push(release);
    }
}
