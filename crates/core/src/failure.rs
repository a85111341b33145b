//! What was asked for and did not come about, as data (DESIGN, measuring rule 11): a failure fails its operation or its job, and
//! never by itself the trial.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Failures that one host's part of a step keeps; what is beyond them is counted.
pub const FAILURES_MAX: usize = 10_000;

/// One operation that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// When it was known, in ns: on the host's monotonic clock while it travels, from the trial's start in the records.
    pub at_ns: i64,
    pub host: String,
    /// What it was done for: a flow, a job, a probe, as rows call their entity.
    pub job: String,
    /// `send`, `receive`, `connect`, `open`, `read`, …
    pub operation: String,
    /// What it was done to: the host at the other end, a file, a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The name of an errno (`ECONNRESET`), or a server's own code; absent where neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How often it was tried again before it was given up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// For people.
    pub text: String,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.job, self.text)
    }
}

/// The failures of one host's part of a step, as many as there is room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// In the order in which they were known.
    kept: Vec<Failure>,
    /// How many there were beyond these.
    #[serde(default)]
    more: u64,
}

impl Failures {
    pub fn push(&mut self, failure: Failure) {
        if self.kept.len() < FAILURES_MAX {
            self.kept.push(failure);
        } else {
            self.more += 1;
        }
    }
    /// Those of another part of the same host, after its own.
    pub fn absorb(&mut self, other: Failures) {
        self.more += other.more;
        other.kept.into_iter().for_each(|failure| self.push(failure));
    }
    pub fn iter(&self) -> std::slice::Iter<'_, Failure> {
        self.kept.iter()
    }
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Failure> {
        self.kept.iter_mut()
    }
    pub fn first(&self) -> Option<&Failure> {
        self.kept.first()
    }
    /// How many there were, those that were not kept included.
    pub fn count(&self) -> u64 {
        self.kept.len() as u64 + self.more
    }
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
    pub fn into_kept(self) -> Vec<Failure> {
        self.kept
    }
}

/// A line of `failures.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureRecord {
    pub point: String,
    /// From 0.
    pub trial: u32,
    pub step: String,
    #[serde(flatten)]
    pub failure: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: results.md#failure-1
    #[test]
    fn beyond_its_room_a_part_counts_its_failures() {
        let mut failures = Failures::default();
        for at_ns in 0..FAILURES_MAX as i64 + 5 {
            failures.push(Failure { at_ns, ..Failure::default() });
        }
        assert_eq!(failures.count(), FAILURES_MAX as u64 + 5);
        let last = failures.iter().last().map(|failure| failure.at_ns);
        assert_eq!(last, Some(FAILURES_MAX as i64 - 1), "the first are kept");
    }
}
