//! What a watch asks for: its parameters, checked.

use crate::stream::plan::{Direction, StreamPlan};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;

/// Most flows of one step: up to so many keep the interval asked for.
pub const FLOWS_MAX: u64 = 16;
/// Most probes of a pair: each has a row of its own.
pub const PROBES_MAX: u64 = 10_000;
const PROBE_DURATION_MIN: Duration = Duration::from_millis(100);

pub static PARAMS: &[Param] = &[
    Param::new("block", Kind::Size, "Bytes of one send or receive call.").default("128KiB").range(1.0, 16e6),
    Param::new(
        "long_flow",
        Kind::Flag,
        "Whether flows are watched for the whole duration; without them probes are alone, as scheduled tests are.",
    )
    .default("true"),
    Param::new(
        "probe_every",
        Kind::Duration,
        "From the start of one short test to that of the next, each over a connection of its own, as fast as it can; no tests unless given.",
    )
    .range(1e8, 30.0 * 86_400e9),
    Param::new("probe_duration", Kind::Duration, "How long each short test sends.")
        .default("10s")
        .range(1e8, 86_400e9),
    Param::new(
        "unimpaired",
        Kind::Rate,
        "The rate that shares are of: what the path gives when nothing is wrong. [the best that was measured]",
    )
    .range(1.0, 1e14),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchPlan {
    /// Of the long flows: how long, how many, how fast, and how finely they are looked at.
    pub stream: StreamPlan,
    pub long_flow: bool,
    pub probe_every: Option<Duration>,
    pub probe_duration: Duration,
    pub unimpaired_bits_per_second: Option<u64>,
    /// Ad hoc: whether the samples are wanted.
    #[serde(default)]
    pub record: bool,
    pub duration: Duration,
}

impl WatchPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<WatchPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        let Some(duration) = values.duration("duration") else {
            return stop("a watch needs `duration`");
        };
        if values.text("direction").is_some() {
            return stop("a watch has no `direction`; payload goes from `from` to `to`");
        }
        let plan = WatchPlan {
            stream: StreamPlan::from_values(values)?,
            long_flow: values.flag("long_flow").unwrap_or(true),
            probe_every: values.duration("probe_every"),
            probe_duration: values.duration("probe_duration").unwrap_or(Duration::from_secs(10)),
            unimpaired_bits_per_second: values.rate("unimpaired").map(|rate| rate.0),
            record: false,
            duration,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        self.stream.check()?;
        if self.stream.direction != Direction::Up {
            return stop("a watch sends one way".to_owned());
        }
        if self.stream.until != crate::stream::plan::Until::Duration(self.duration) {
            return stop("a watch is bounded by `duration`".to_owned());
        }
        if self.stream.streams > FLOWS_MAX {
            return stop(format!(
                "`streams` is {}; at most {FLOWS_MAX} flows can be watched",
                self.stream.streams
            ));
        }
        let Some(every) = self.probe_every else {
            if !self.long_flow {
                return stop("`long_flow = false` without `probe_every` leaves nothing to do".to_owned());
            }
            return Ok(());
        };
        if self.probe_duration < PROBE_DURATION_MIN {
            return stop(format!(
                "`probe_duration` is {:?}; at least {PROBE_DURATION_MIN:?}",
                self.probe_duration
            ));
        }
        if every <= self.probe_duration {
            return stop(format!(
                "`probe_every` is {every:?} and each probe lasts {:?}; they would overlap",
                self.probe_duration
            ));
        }
        let count = self.probe_count();
        if count == 0 {
            return stop(format!(
                "`duration` of {:?} has no room for a probe of {:?}",
                self.duration, self.probe_duration
            ));
        }
        if count > PROBES_MAX {
            return stop(format!(
                "`probe_every` of {every:?} makes {count} probes in {:?}; at most {PROBES_MAX}",
                self.duration
            ));
        }
        Ok(())
    }

    /// Probes of each pair: the first at the start, the last ends before the duration does.
    pub fn probe_count(&self) -> u64 {
        let Some(every) = self.probe_every.filter(|every| !every.is_zero()) else { return 0 };
        let Some(room) = self.duration.checked_sub(self.probe_duration) else { return 0 };
        u64::try_from(room.as_nanos() / every.as_nanos() + 1).unwrap_or(u64::MAX)
    }

    /// Connections of one pair.
    pub fn flows_per_pair(&self) -> u64 {
        if self.long_flow { self.stream.streams } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Value;

    fn plan(pairs: &[(&str, Value)]) -> Result<WatchPlan, String> {
        let mut values = Values::defaults(PARAMS);
        values.set("duration", Value::Duration(Duration::from_secs(60)));
        for (key, value) in pairs {
            values.set(key, value.clone());
        }
        WatchPlan::from_values(&values).map_err(|error| error.text)
    }

    // Spec: net-protocol.md#watch-4
    #[test]
    fn probes_that_would_overlap_or_never_come_are_refused_by_name() {
        let seconds = |count| Value::Duration(Duration::from_secs(count));
        assert!(plan(&[("probe_every", seconds(10))]).unwrap_err().contains("overlap"));
        assert!(plan(&[("long_flow", Value::Flag(false))]).unwrap_err().contains("nothing to do"));
        let none = plan(&[("probe_every", seconds(90)), ("probe_duration", seconds(61))]);
        assert!(none.unwrap_err().contains("no room"));
        let many = plan(&[
            ("probe_every", Value::Duration(Duration::from_millis(1))),
            ("probe_duration", seconds(0)),
        ]);
        assert!(many.unwrap_err().contains("`probe_duration`"));
        assert!(plan(&[("streams", Value::Count(17))]).unwrap_err().contains("17"));
        assert_eq!(plan(&[("probe_every", seconds(25))]).unwrap().probe_count(), 3);
        assert_eq!(plan(&[]).unwrap().probe_count(), 0);
    }
}
