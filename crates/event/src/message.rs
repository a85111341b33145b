//! What roles say to each other; the bytes are in `wire`. Rules: `docs/specs/event-building.md#connections-2`.

use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Of the protocol of this crate; both ends must have the same.
pub const VERSION: u16 = 2;

/// Random, of one run: sources, builders and a scheduler that is started again know the run by it. Hexadecimal in JSON.
pub type RunId = String;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "role")]
pub enum Role {
    Source {
        /// What it can hold, headers included.
        buffer_bytes: u64,
        /// Largest fragment, header included.
        fragment_bytes_max: u64,
        /// All fragments are of `fragment_bytes_max`: none is announced.
        fixed: bool,
    },
    Builder {
        memory_bytes: u64,
        /// Where sources reach it.
        data: SocketAddr,
    },
}

/// A peer's first word, and what it knows of a run it was part of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    pub version: u16,
    pub name: String,
    pub host: String,
    /// Nanoseconds of real time when it was started: of two with one name the later stays.
    pub incarnation: u64,
    #[serde(flatten)]
    pub role: Role,
    pub known: Option<Known>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    pub run: RunId,
    pub slot: u32,
    /// Highest epoch it has seen.
    pub epoch: u32,
    /// The last heartbeat it has heard of, and how long ago, ns.
    pub last: Option<(u64, u64)>,
    /// Source: fragments it holds, by id, with their bytes where they are not all alike. Builder: events it has begun.
    pub held: Intervals,
    /// Source: released as complete or partial. Builder: finished, confirmed or not.
    pub complete: Intervals,
    pub partial: Intervals,
    pub dropped: Vec<(Reason, Intervals)>,
    /// The last that the scheduler said; the sets above are of what it said after that.
    #[serde(default)]
    pub settled: Settled,
}

impl Known {
    /// The id behind all that this knows of.
    pub fn behind(&self) -> u64 {
        let sets = self.outcomes().map(|(_, set)| set).chain([&self.held]);
        let last = sets.filter_map(Intervals::last).chain(self.last.map(|(id, _)| id)).max();
        last.map_or(0, |last| last.saturating_add(1)).max(self.settled.below)
    }

    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, &Intervals)> {
        let dropped = self.dropped.iter().map(|(reason, set)| (Outcome::Dropped(*reason), set));
        [(Outcome::Complete, &self.complete), (Outcome::Partial, &self.partial)].into_iter().chain(dropped)
    }
}

/// Settings that hold for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub run: RunId,
    pub slot: u32,
    pub epoch: u32,
    pub rate_hz: f64,
    pub probe_ns: u64,
    pub detect_ns: u64,
    pub grant_window_bytes: u64,
    pub deadline_ns: Option<u64>,
    pub partial: bool,
    /// Sources make fragments by their own clock.
    pub trigger_at_source: bool,
    /// Name of a send order.
    pub send_order: String,
    /// Seed of payloads and sizes.
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    pub why: String,
    pub again: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderAt {
    pub slot: u32,
    pub name: String,
    pub address: SocketAddr,
    pub incarnation: u64,
    /// May get events.
    pub listed: bool,
    /// Counts up each time the channel to it is to be taken down and made anew; `None`: there shall be none.
    pub channel: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuilderList {
    pub epoch: u32,
    pub builders: Vec<BuilderAt>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceList {
    /// Counts up with every change.
    pub version: u32,
    /// Slot and name of each source of which an event is made.
    pub sources: Vec<(u32, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub id: u64,
    pub builder: u32,
    pub epoch: u32,
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Complete,
    Partial,
    Dropped(Reason),
}

impl Outcome {
    /// In the order of the wire format.
    pub fn all() -> impl Iterator<Item = Outcome> {
        [Outcome::Complete, Outcome::Partial].into_iter().chain(Reason::ALL.into_iter().map(Outcome::Dropped))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub first: u64,
    pub count: u32,
    /// `None`: taken from this builder (an order to one builder only).
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub id: u64,
    pub epoch: u32,
    pub outcome: Outcome,
}

/// A peer's answer to a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub number: u64,
    pub held_bytes: u64,
    /// Sent, or received, since it began.
    pub moved_bytes: u64,
    pub held_events: u32,
    /// Source: builder slot, and for how many microseconds bytes that may go there have not moved.
    pub stuck: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Join(Box<Join>),
    Welcome(Box<Welcome>),
    Refused(Refused),
    Builders(BuilderList),
    Sources(SourceList),
    Leave(String),
    /// What is below and not open has its outcome: a source and a builder forget what they have of it.
    Settled(Settled),
    Beats {
        first: u64,
        count: u32,
        age_ns: u64,
    },
    /// Bytes of the source's fragments, headers included.
    Announce {
        first: u64,
        bytes: Vec<u32>,
    },
    Assign(Vec<Assignment>),
    Release(Vec<Release>),
    Done(Vec<Done>),
    /// First id and count.
    Lost(Vec<(u64, u32)>),
    Probe(u64),
    Answer(Answer),
    /// Builder slot, and whether the channel works.
    Channel(Vec<(u32, bool)>),
    /// With `trigger_at_source`: heartbeat `first` is due in so many nanoseconds.
    Start {
        first: u64,
        in_ns: u64,
    },
    Grant {
        total_bytes: u64,
    },
    /// Heartbeat and epoch.
    Again(Vec<(u64, u32)>),
}
