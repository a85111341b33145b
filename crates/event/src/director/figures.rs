//! Figures beside the ledger: failures, and each builder's own line.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weir_core::Instant;

/// Failures that are kept; older ones are forgotten.
const FAILURES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Its connection ended.
    Closed,
    /// It did not answer probes.
    Silent,
    /// Bytes did not move to it, or a channel to it stayed broken.
    Stuck,
    /// The membership service took it off its list.
    Unlisted,
    /// It left, said what it must not, or made way for another of its name.
    Expelled,
}

/// The end of a peer's part, as the scheduler saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Counts from 1.
    pub number: u32,
    pub name: String,
    pub is_builder: bool,
    pub kind: FailureKind,
    pub detected_at: Instant,
    /// From the last that was heard of it, or moved to it, to the detection.
    pub detect_ns: u64,
    /// Events that were in flight at it.
    pub events_affected: u64,
    /// Of these, without an outcome yet.
    pub events_open: u64,
    /// From the detection to the last outcome of the events affected; `None` while some are open.
    pub recover_ns: Option<u64>,
}

/// What became of the events that a builder got; counts of this scheduler's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuilderLine {
    pub name: String,
    pub assigned: u64,
    pub assigned_bytes: u64,
    pub complete: u64,
    pub partial: u64,
    pub dropped: u64,
    /// Taken from it because it was gone.
    pub taken: u64,
    pub held: u64,
}

#[derive(Debug, Default)]
pub(super) struct Figures {
    pub failures: VecDeque<Failure>,
    count: u32,
}

impl Figures {
    /// Gives its number.
    pub fn failed(
        &mut self,
        name: &str,
        is_builder: bool,
        kind: FailureKind,
        now: Instant,
        heard: Instant,
        events: u64,
    ) -> u32 {
        self.count = self.count.saturating_add(1);
        if self.failures.len() >= FAILURES_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back(Failure {
            number: self.count,
            name: name.to_owned(),
            is_builder,
            kind,
            detected_at: now,
            detect_ns: weir_core::time::nanoseconds(now.since(heard)),
            events_affected: events,
            events_open: events,
            recover_ns: (events == 0).then_some(0),
        });
        self.count
    }

    /// An event that was in flight at the `number`th failure has its outcome, or has lost its builder again.
    pub fn settled(&mut self, number: u32, now: Instant) {
        let Some(first) = self.failures.front().map(|failure| failure.number) else { return };
        let Some(at) = number.checked_sub(first) else { return };
        let Some(failure) = self.failures.get_mut(at as usize) else { return };
        failure.events_open = failure.events_open.saturating_sub(1);
        if failure.events_open == 0 {
            let took = now.since(failure.detected_at).as_nanos();
            failure.recover_ns = Some(u64::try_from(took).unwrap_or(u64::MAX));
        }
    }
}
