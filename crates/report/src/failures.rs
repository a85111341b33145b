//! What failed, by point and kind, in memory that does not grow with how often it did.

use std::collections::{BTreeMap, BTreeSet};
use weir_core::failure::{Failure, FailureRecord};

/// Kinds of failures that a point keeps, and jobs and trials that are told apart within one; what is beyond is counted with the last.
const KINDS_MAX: usize = 64;
const TOLD_APART_MAX: usize = 10_000;
/// Points that keep kinds.
const POINTS_MAX: usize = 2_000;

/// Failures of one operation that ended alike.
#[derive(Debug)]
pub(crate) struct Kind {
    pub operation: String,
    /// Empty where none is known.
    pub code: String,
    pub count: u64,
    pub retry_count: u64,
    pub trials: BTreeSet<u32>,
    /// With their hosts.
    pub jobs: BTreeSet<(String, String)>,
    /// From the trial's start.
    pub first_ns: i64,
    pub last_ns: i64,
    /// The first in the file.
    pub example: Failure,
}

#[derive(Debug, Default)]
pub(crate) struct FailureKinds {
    points: BTreeMap<String, Vec<Kind>>,
    left_out: u64,
}

impl FailureKinds {
    pub fn add(&mut self, record: FailureRecord) {
        let FailureRecord { point, trial, failure, .. } = record;
        if !self.points.contains_key(&point) && self.points.len() >= POINTS_MAX {
            self.left_out += 1;
            return;
        }
        let kinds = self.points.entry(point).or_default();
        let code = failure.code.clone().unwrap_or_default();
        let at = kinds.iter().position(|kind| kind.operation == failure.operation && kind.code == code);
        let at = match at {
            Some(at) => at,
            None if kinds.len() >= KINDS_MAX => {
                self.left_out += 1;
                return;
            }
            None => {
                kinds.push(Kind {
                    operation: failure.operation.clone(),
                    code,
                    count: 0,
                    retry_count: 0,
                    trials: BTreeSet::new(),
                    jobs: BTreeSet::new(),
                    first_ns: failure.at_ns,
                    last_ns: failure.at_ns,
                    example: failure.clone(),
                });
                kinds.len() - 1
            }
        };
        let kind = &mut kinds[at];
        kind.count += 1;
        kind.retry_count += u64::from(failure.retries);
        kind.first_ns = kind.first_ns.min(failure.at_ns);
        kind.last_ns = kind.last_ns.max(failure.at_ns);
        kind.trials.insert(trial);
        if kind.jobs.len() < TOLD_APART_MAX {
            kind.jobs.insert((failure.host, failure.job));
        }
    }

    /// Of one point, the most frequent first.
    pub fn of(&self, point: &str) -> Vec<&Kind> {
        let mut kinds: Vec<&Kind> = self.points.get(point).into_iter().flatten().collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        kinds
    }

    pub fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "failures.jsonl: {} failures of further points or kinds are not in its tables",
                self.left_out
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: results.md#failure-2
    #[test]
    fn failures_that_ended_alike_are_one_kind_and_the_most_frequent_comes_first() {
        let mut all = FailureKinds::default();
        for (trial, at_ns, job, code) in
            [(0, 5, "a", None), (0, 9, "a", Some("EIO")), (0, 3, "b", Some("EIO")), (1, 7, "a", Some("EIO"))]
        {
            let failure = Failure {
                at_ns,
                job: job.to_owned(),
                operation: "read".to_owned(),
                code: code.map(str::to_owned),
                retries: 2,
                ..Failure::default()
            };
            let (point, step) = ("one".to_owned(), "one".to_owned());
            all.add(FailureRecord { point, trial, step, failure });
        }
        let kinds = all.of("one");
        assert_eq!(kinds.iter().map(|kind| kind.count).collect::<Vec<_>>(), [3, 1]);
        let most = kinds[0];
        assert_eq!((most.code.as_str(), most.first_ns, most.last_ns, most.retry_count), ("EIO", 3, 9, 6));
        assert_eq!((most.trials.len(), most.jobs.len()), (2, 2));
        assert!(all.of("other").is_empty());
    }
}
