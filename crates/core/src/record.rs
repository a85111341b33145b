//! What a run leaves behind: rows, series, the timeline, and the summary document `weir.summary/1`.
//! Workers emit these; sinks render them; nothing else prints a number.

use crate::evidence::{EMULATOR_LIMITED, Factor, GENERATOR_LIMITED};
use crate::metric::Metric;
use crate::regression::FitKind;
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SUMMARY_SCHEMA: &str = "weir.summary/1";
/// Of the results folder as a whole, in `plan.json`. Within a major number fields and files are only added.
pub const RESULTS_SCHEMA: &str = "weir.results/1";

fn first_results_schema() -> String {
    RESULTS_SCHEMA.to_owned()
}

/// One trial's value of one metric for one entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `trial`, a flow (`flow.left-0.right-0.3`), a pair that took its turn (`pair.left-0.right-0`), `host.NAME` or a directed
    /// link's name.
    pub entity: String,
    pub metric: String,
    #[serde(flatten)]
    pub value: Observed,
}

/// A single value, or a distribution where there are too many to keep one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    Value(f64),
    Histogram(Histogram),
}

/// A distribution of durations in nanoseconds as sparse counts: `value_ns[i]` (the upper edge of an HDR bucket with three
/// significant digits) was seen `count[i]` times. Mergeable by adding counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    pub value_ns: Vec<u64>,
    pub count: Vec<u64>,
    /// Exact extremes and sum, which buckets would blur.
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: f64,
}

/// A series with true timestamps: `value[i]` was read at `t_ns[i]`, nanoseconds from the trial's start.
/// Cumulative counters stay cumulative; whoever draws a rate takes differences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub entity: String,
    /// For example `stream.received_bytes`, `tcp.congestion_window_segments`, `port.queue_bytes`, `host.cpu_ratio`.
    pub name: String,
    pub unit: String,
    /// True for counters that only grow.
    pub cumulative: bool,
    pub t_ns: Vec<i64>,
    pub value: Vec<f64>,
}

impl Series {
    /// Growth of a counter within `[start_ns, end_ns]` and the seconds it was really observed over; `None` with fewer than
    /// two samples in it.
    pub fn growth(&self, start_ns: i64, end_ns: i64) -> Option<(f64, f64)> {
        let first = self.t_ns.partition_point(|t| *t < start_ns);
        let end = self.t_ns.partition_point(|t| *t <= end_ns);
        let last = end.checked_sub(1)?;
        if last <= first {
            return None;
        }
        let seconds = (self.t_ns[last] - self.t_ns[first]) as f64 / 1e9;
        Some((self.value[last] - self.value[first], seconds))
    }

    /// What a counter that began with 0 grew by from `start_ns` to `end_ns`, for rates over a length that is known: between two
    /// samples it is taken as straight, so that an edge has its share of the interval around it. Beyond the samples nothing is
    /// drawn on: before the first it is 0, since what that one has was first seen there, and after the last, or where there is
    /// none, it stands still. 0 for a stretch that ends before it begins. Not for tallies of rare events, which it would split.
    pub fn growth_between(&self, start_ns: i64, end_ns: i64) -> f64 {
        self.counted_at(end_ns.max(start_ns)) - self.counted_at(start_ns)
    }

    fn counted_at(&self, at_ns: i64) -> f64 {
        let next = self.t_ns.partition_point(|t| *t <= at_ns);
        let point = |index: usize| Some((*self.t_ns.get(index)?, *self.value.get(index)?));
        let Some((before_ns, before)) = next.checked_sub(1).and_then(point) else { return 0.0 };
        let Some((after_ns, after)) = point(next) else { return before };
        // Series come from other machines: differences of their times may not fit, and be 0 where these do not ascend.
        let share = at_ns.abs_diff(before_ns) as f64 / after_ns.abs_diff(before_ns).max(1) as f64;
        before + (after - before) * share
    }

    /// Tally of rare events over a stretch, none of which may be lost at its edges: from the last sample at or before `start_ns`
    /// to the first at or after `end_ns`, as far as there are any. That is longer than the stretch by up to two intervals, so no
    /// rate can be had of it (`growth` and `growth_between` are for those). `None` without a sample.
    pub fn growth_around(&self, start_ns: i64, end_ns: i64) -> Option<f64> {
        let first = self.t_ns.partition_point(|t| *t <= start_ns).saturating_sub(1);
        // A step that broke off before its start has a window that ends before it begins.
        let last =
            self.t_ns.partition_point(|t| *t < end_ns).min(self.t_ns.len().saturating_sub(1)).max(first);
        Some(self.value.get(last)? - self.value.get(first)?)
    }
}

/// One step of one trial: a line of `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    pub point: String,
    pub configuration: String,
    pub step: String,
    /// From 0.
    pub trial: u32,
    pub valid: bool,
    /// Why the trial is not averaged in, when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Start of the step, nanoseconds from the trial's start.
    pub start_ns: i64,
    pub end_ns: i64,
    pub limiting_factor: LimitingFactor,
    pub rows: Vec<Row>,
    /// Of a step whose pairs take turns: what became of each, in the order of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRecord>,
    /// What was asked for and what the kernel granted, and the like; by entity.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub granted: serde_json::Map<String, serde_json::Value>,
    /// Operations that failed: those of them that were kept are in `failures.jsonl`.
    #[serde(default, skip_serializing_if = "no_failure")]
    pub failure_count: u64,
}

fn no_failure(count: &u64) -> bool {
    *count == 0
}

/// The turn of one pair in one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRecord {
    /// `pair.FROM.TO`; `local.FROM.TO` of the control within one site. The pair's rows carry it.
    pub entity: String,
    pub from: String,
    pub to: String,
    /// From 0.
    pub round: u32,
    /// Nanoseconds from the trial's start.
    pub start_ns: i64,
    pub end_ns: i64,
    /// Why the pair's turn does not count, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub limiting_factor: LimitingFactor,
    /// What a turn that does not count measured all the same; of the others it stands among the trial's rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
}

/// One series of one step of one trial: a line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    pub point: String,
    pub trial: u32,
    pub step: String,
    #[serde(flatten)]
    pub series: Series,
}

/// A line of `timeline.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineEvent {
    /// Nanoseconds on the experiment's clock.
    pub at_ns: u64,
    /// A label in real time, RFC 3339 with microseconds.
    pub utc: String,
    /// `trial-start`, `step-start`, `step-end`, `trial-end`, `fault-start`, `fault-end`, `agent-lost`, `warning`, …
    pub event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Nanoseconds from the trial's start, where there is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_ns: Option<i64>,
    /// A sentence for people.
    pub text: String,
    /// The fault's name, the link, and the like.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// `plan.json`: what the run set out to do; lets a report draw the topology and name points not reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// `RESULTS_SCHEMA`; the first folders were written without it.
    #[serde(default = "first_results_schema")]
    pub schema: String,
    pub scenario: String,
    pub about: String,
    pub origin: Option<String>,
    pub scale: BTreeMap<String, f64>,
    pub trials: u32,
    pub trials_min: u32,
    pub seed: u64,
    pub configurations: Vec<ConfigurationRecord>,
    /// BLAKE3 of `scenario.toml`, in hexadecimal digits; older folders lack it, and so do those without a scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario_blake3: Option<String>,
    /// Criteria that the short form leaves without a point: their texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationRecord {
    pub id: String,
    pub case: Option<String>,
    pub topology: Topology,
    pub steps: Vec<StepRecord>,
    /// Figures from elsewhere to draw beside ours: `metric.statistic` to value, in the metric's base unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub name: String,
    pub workload: String,
    pub point: String,
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Names of hosts that load each other, `[from, to]`.
    pub pairs: Vec<[String; 2]>,
    /// Of a step that places roles instead of pairing hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRecord>,
    /// Pairs by index, round after round, where they take turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Vec<usize>>,
    /// The framing ceiling of the sum of the flows (of the round that has the highest), bit/s, where the workload has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bits_per_second: Option<f64>,
    /// From its start to its steady state: samples before are warm-up.
    #[serde(default)]
    pub steady_after_ns: u64,
}

/// Hosts by name that have a role in a step, by the key that places it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleRecord {
    pub role: String,
    pub hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Pass,
    Fail,
    Inconclusive,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitingFactor {
    /// Of a factor that `weir list factor` has, or of another version's.
    pub name: String,
    /// Share of the evidence that speaks for it, 0 to 1.
    pub confidence: f64,
    pub evidence: Vec<String>,
    /// What to try next; absent in records of before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Beside a full link: what the machine took away, which moved no total and may have moved everything else.
    // Spec: evidence.md#fitness-3
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
}

impl LimitingFactor {
    pub fn new(factor: &Factor, confidence: f64, evidence: Vec<String>) -> LimitingFactor {
        let (name, next) = (factor.name.to_owned(), factor.advice());
        LimitingFactor { name, confidence, evidence, next, disturbed: None }
    }
    /// Whether it is this one.
    pub fn is(&self, factor: &Factor) -> bool {
        self.name == factor.name
    }
    /// Why a trial that this bounded is not averaged in: the machine or the generator bounded it, and its figures tell of these.
    pub fn unfit(&self) -> Option<String> {
        if !self.is(&EMULATOR_LIMITED) && !self.is(&GENERATOR_LIMITED) {
            return None;
        }
        let evidence = self.evidence.first().map_or(String::new(), |line| format!(": {line}"));
        Some(format!("{}{evidence}", self.name))
    }
}

impl PairRecord {
    /// Whether the turn is averaged in.
    pub fn counts(&self) -> bool {
        self.failure.is_none() && self.limiting_factor.unfit().is_none()
    }
}

impl TrialRecord {
    /// Whether it is averaged in.
    pub fn counts(&self) -> bool {
        self.valid && self.limiting_factor.unfit().is_none()
    }
    /// Whether it was measured as planned, whatever bounded it: what a criterion is judged on that asks for just that.
    pub fn measured(&self) -> bool {
        self.valid || (self.reason.is_some() && self.reason == self.limiting_factor.unfit())
    }
    /// Why `metric` is not judged on it although it counts for others.
    // Spec: evidence.md#fitness-3
    pub fn disturbed(&self, metric: Option<&Metric>) -> Option<&str> {
        let moved = metric.is_some_and(|metric| !metric.is_whole_rate());
        self.limiting_factor.disturbed.as_deref().filter(|_| moved)
    }
    /// Why it is not averaged in.
    pub fn against(&self) -> Option<String> {
        if self.counts() { None } else { self.reason.clone().or_else(|| self.limiting_factor.unfit()) }
    }
}

/// `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub schema: String,
    pub scenario: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scale: BTreeMap<String, f64>,
    pub verdict: Verdict,
    pub criteria: Vec<CriterionResult>,
    pub points: Vec<PointSummary>,
    pub warnings: Vec<String>,
    /// Folder of the results; absent for a measurement that keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriterionResult {
    pub text: String,
    /// Absent for a criterion on the limiting factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `{"at_most": 0.1}`, `{"between": [1, 2]}`, `{"limiting_factor": "loss"}`; in the metric's base unit.
    pub bound: serde_json::Map<String, serde_json::Value>,
    /// What was judged; for a limiting factor its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// 95 % interval over trials; from five trials on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Range over trials, where there are fewer than five.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    pub verdict: Verdict,
    /// The scenario's word for a value beyond the bound, where there is one: the verdict is inconclusive then, and not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    pub why: String,
    /// Points it was judged on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<String>,
    /// The lines that a criterion with a fit drew, one for each line of points (and entity).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<FitResult>,
}

/// A straight or once bent line through measured points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitResult {
    pub kind: FitKind,
    /// The metric as points list it, `metric` or `metric@entity`.
    pub metric: String,
    /// What of the metric the line goes through: `mean`, `median`, `p99`, …
    pub statistic: String,
    /// The parameter along the line.
    pub x: String,
    /// Base units of the parameter and of what the line goes through.
    pub x_unit: String,
    pub y_unit: String,
    /// What it was drawn through, in order of `x`.
    pub points: Vec<FitPoint>,
    /// Where the line begins, bends and ends, each `[x, y]`: two corners, three where it has a knee.
    pub corners: Vec<[f64; 2]>,
    /// The slope in `y_unit` for each `x_unit`, the `x` of the knee, or the intercept in `y_unit`.
    pub value: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitPoint {
    pub point: String,
    pub x: f64,
    pub y: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointSummary {
    pub id: String,
    pub step: String,
    pub case: Option<String>,
    pub parameters: serde_json::Map<String, serde_json::Value>,
    pub trials: u32,
    pub valid_trials: u32,
    pub metrics: BTreeMap<String, MetricSummary>,
    pub limiting_factor: LimitingFactor,
    /// Of a step whose pairs take turns: what stands for it, pair by pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
}

/// One metric of every pair of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    pub metric: String,
    pub unit: String,
    /// What of the metric a cell gives: `mean` or, of distributions, `median`.
    pub statistic: String,
    /// In the order of the plan's pairs.
    pub cells: Vec<MatrixCell>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixCell {
    pub from: String,
    pub to: String,
    /// Within one site: the control of the pairs between sites.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Over the trials in which the pair counts; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Valid trials, and those of them in which the pair counts.
    pub trials: u32,
    pub valid_trials: u32,
    /// Why it does not count in the first of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub limiting_factor: LimitingFactor,
}

/// Statistics of one metric over all valid trials of a point. For metrics of a port the name carries the entity:
/// `port.load_ratio@link.wan.forward`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    pub unit: String,
    pub n: u64,
    pub min: f64,
    pub mean: f64,
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    /// 95 % interval of the mean, resampling trials; from five trials on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Range of the trials' means, below five trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(value_per_second: f64) -> Series {
        let t_ns: Vec<i64> = (0..=100).map(|step| step * 10_000_000).collect();
        let value = t_ns.iter().map(|t| *t as f64 / 1e9 * value_per_second).collect();
        Series { t_ns, value, cumulative: true, ..Series::default() }
    }

    #[test]
    fn growth_is_taken_over_the_time_really_observed() {
        let (grown, seconds) = counter(1000.0).growth(105_000_000, 899_000_000).unwrap();
        assert!((seconds - 0.78).abs() < 1e-9, "{seconds}");
        assert!((grown / seconds - 1000.0).abs() < 1e-6);
        assert_eq!(counter(1.0).growth(1, 2), None);
    }

    #[test]
    fn a_constant_rate_is_found_exactly_wherever_the_edges_lie_between_samples() {
        // 9,000,000 B/s, counted from 0.1 s on at times that fit neither each other nor the edges.
        let t_ns: Vec<i64> =
            (0..=300).map(|step| 100_000_000 + step * 10_000_000 + step * 7_919 % 9_001 * 1000).collect();
        assert!(t_ns.is_sorted());
        let value = t_ns.iter().map(|t| (t - t_ns[0]) as f64 * 0.009).collect();
        let flow = Series { t_ns, value, cumulative: true, ..Series::default() };
        for (start_ns, end_ns) in
            [(1_600_000_000, 3_000_000_000), (1_604_999_999, 3_005_000_001), (777_777_777, 777_777_778)]
        {
            let (grown, expected) =
                (flow.growth_between(start_ns, end_ns), (end_ns - start_ns) as f64 * 0.009);
            assert!((grown - expected).abs() < 1e-6, "{grown} B of {expected} B from {start_ns} to {end_ns}");
        }
        // Stretches that share an edge share no byte, and together they have all.
        let parts = [0, 500_000_001, 1_234_567_890, i64::MAX].windows(2).map(|edges| (edges[0], edges[1]));
        let sum: f64 = parts.map(|(start_ns, end_ns)| flow.growth_between(start_ns, end_ns)).sum();
        assert!((sum - flow.value[300]).abs() < 1e-6, "{sum} of {}", flow.value[300]);
    }

    #[test]
    fn beyond_its_samples_a_counter_neither_grows_nor_shrinks() {
        let series =
            Series { t_ns: vec![100, 200, 200, 400], value: vec![10.0, 20.0, 30.0, 60.0], ..counter(0.0) };
        let up_to = [0, 99, 100, 150, 200, 300, 400, 900].map(|end_ns| series.growth_between(0, end_ns));
        assert_eq!(up_to, [0.0, 0.0, 10.0, 15.0, 30.0, 45.0, 60.0, 60.0]);
        assert_eq!(series.growth_between(400, i64::MAX), 0.0);
        assert_eq!(series.growth_between(300, 150), 0.0);
        assert_eq!(Series::default().growth_between(0, 5), 0.0);
        let far = Series { t_ns: vec![i64::MIN, i64::MAX], value: vec![0.0, 8.0], ..Series::default() };
        assert_eq!(far.growth_between(i64::MIN, 0), 4.0);
    }

    #[test]
    fn a_count_between_two_samples_is_not_lost_at_the_edges() {
        let mut drops = counter(0.0);
        for value in drops.value.iter_mut().skip(50) {
            *value = 7.0;
        }
        // The seven fell between the samples at 490 and 500 ms.
        assert_eq!(drops.growth_around(495_000_000, 496_000_000), Some(7.0));
        assert_eq!(drops.growth_around(510_000_000, 600_000_000), Some(0.0));
        assert_eq!(Series::default().growth_around(0, 1), None);
    }
}
