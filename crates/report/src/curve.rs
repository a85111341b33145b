//! Series reduced for drawing while they are read: at most a few hundred columns a curve, each with its mean and extremes.

use std::collections::BTreeMap;
use weir_core::record::{SampleRecord, Series, TrialRecord};

/// Columns a kept curve has at most: about one for each pixel and a half of a plot.
const COLUMNS_MAX: usize = 440;
/// Columns of a curve that stands in the background.
const BACKGROUND_COLUMNS_MAX: usize = 300;
/// Columns kept of a whole folder: 40 bytes each. A run with more series than that keeps those it listed first.
const FOLDER_COLUMNS_MAX: usize = 1_500_000;
/// Timestamps on which the flows of a trial are added up: ten seconds at 1 ms and some; fewer once half of what may be kept
/// is.
const SUM_TIMES_MAX: usize = 12_000;
const SUM_TIMES_LATER_MAX: usize = 1_500;

/// A stretch of a series: mean, and the extremes of the single values in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    /// Nanoseconds from the trial's start.
    pub start_ns: f64,
    pub end_ns: f64,
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub entity: String,
    pub trial: u32,
    /// Of the values drawn: `bit/s` for a counter of bytes.
    pub unit: String,
    /// Number of samples the series had.
    pub sample_count: usize,
    pub columns: Vec<Column>,
}

impl Curve {
    pub fn high(&self) -> f64 {
        self.columns.iter().fold(f64::NEG_INFINITY, |most, column| most.max(column.high))
    }
    pub fn low(&self) -> f64 {
        self.columns.iter().fold(f64::INFINITY, |least, column| least.min(column.low))
    }
    /// At most `most` columns, neighbours joined; means stay weighted by the time they cover.
    pub fn thinned(&self, most: usize) -> Curve {
        let stride = self.columns.len().div_ceil(most.max(1)).max(1);
        let joined = self.columns.chunks(stride).map(|columns| {
            let covers = |column: &Column| (column.end_ns - column.start_ns).max(1.0);
            let weight: f64 = columns.iter().map(covers).sum();
            Column {
                start_ns: columns[0].start_ns,
                end_ns: columns[columns.len() - 1].end_ns,
                mean: columns.iter().map(|column| column.mean * covers(column) / weight).sum(),
                low: columns.iter().map(|column| column.low).fold(f64::INFINITY, f64::min),
                high: columns.iter().map(|column| column.high).fold(f64::NEG_INFINITY, f64::max),
            }
        });
        Curve { columns: joined.collect(), entity: self.entity.clone(), unit: self.unit.clone(), ..*self }
    }
    pub fn flat_zero(&self) -> bool {
        self.columns.iter().all(|column| column.low == 0.0 && column.high == 0.0)
    }
}

/// The flows' counters of one trial, added up on common timestamps.
#[derive(Debug)]
struct Sum {
    unit: String,
    flow_count: usize,
    t_ns: Vec<f64>,
    value: Vec<f64>,
}

/// All curves of a folder.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    /// `point` to the trial whose single series are kept: the first valid one.
    emphasis: BTreeMap<String, u32>,
    /// By point, then by series name: of the emphasised trial.
    detail: BTreeMap<String, BTreeMap<String, Vec<Curve>>>,
    /// By point, series name and trial.
    sums: BTreeMap<(String, String, u32), Sum>,
    column_count: usize,
    left_out: usize,
}

impl Curves {
    pub fn emphasise(&mut self, trials: &[TrialRecord]) {
        for valid in [true, false] {
            for trial in trials.iter().filter(|trial| trial.valid == valid) {
                self.emphasis.entry(trial.point.clone()).or_insert(trial.trial);
            }
        }
    }

    /// Takes one line of `samples.jsonl`. Errors: timestamps and values differ in number.
    pub fn add(&mut self, samples: SampleRecord) -> Result<(), String> {
        let series = &samples.series;
        if series.t_ns.len() != series.value.len() {
            return Err(format!(
                "series {:?} of {:?} has {} timestamps and {} values",
                series.name,
                series.entity,
                series.t_ns.len(),
                series.value.len()
            ));
        }
        if series.cumulative && series.unit == "B" && series.entity.starts_with("flow.") {
            self.add_to_sum(&samples);
        }
        let emphasised = *self.emphasis.entry(samples.point.clone()).or_insert(samples.trial);
        if emphasised == samples.trial {
            let curve = reduce(series, samples.trial, COLUMNS_MAX);
            if self.column_count + curve.columns.len() > FOLDER_COLUMNS_MAX {
                self.left_out += 1;
                return Ok(());
            }
            self.column_count += curve.columns.len();
            let of_point = self.detail.entry(samples.point).or_default();
            of_point.entry(samples.series.name).or_default().push(curve);
        }
        Ok(())
    }

    fn add_to_sum(&mut self, samples: &SampleRecord) {
        let series = &samples.series;
        let key = (samples.point.clone(), series.name.clone(), samples.trial);
        if !self.sums.contains_key(&key) {
            let early = self.column_count < FOLDER_COLUMNS_MAX / 2;
            let most = if early { SUM_TIMES_MAX } else { SUM_TIMES_LATER_MAX };
            let stride = series.t_ns.len().div_ceil(most).max(1);
            let t_ns: Vec<f64> = series.t_ns.iter().step_by(stride).map(|t| *t as f64).collect();
            // A timestamp and a value, where a column has five numbers.
            let columns = t_ns.len() / 2;
            if self.column_count + columns > FOLDER_COLUMNS_MAX {
                self.left_out += 1;
                return;
            }
            self.column_count += columns;
            let value = vec![0.0; t_ns.len()];
            self.sums.insert(key.clone(), Sum { unit: series.unit.clone(), flow_count: 0, t_ns, value });
        }
        let Some(sum) = self.sums.get_mut(&key) else { return };
        sum.flow_count += 1;
        let mut next = 0;
        for (t, value) in sum.t_ns.iter().zip(&mut sum.value) {
            while next < series.t_ns.len() && (series.t_ns[next] as f64) < *t {
                next += 1;
            }
            *value += match (next.checked_sub(1), series.value.get(next)) {
                (None, Some(first)) => *first,
                (Some(before), None) => series.value[before],
                (None, None) => 0.0,
                (Some(before), Some(after)) => {
                    let (t0, t1) = (series.t_ns[before] as f64, series.t_ns[next] as f64);
                    let share = if t1 > t0 { (t - t0) / (t1 - t0) } else { 1.0 };
                    series.value[before] + (after - series.value[before]) * share
                }
            };
        }
    }

    pub fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!("samples.jsonl: {} series beyond what a report can draw were left out", self.left_out)
        })
    }

    /// Names of the series kept of a point.
    pub fn names(&self, point: &str) -> Vec<&str> {
        self.detail.get(point).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// The single series of a point's emphasised trial.
    pub fn of(&self, point: &str, name: &str) -> &[Curve] {
        self.detail.get(point).and_then(|of_point| of_point.get(name)).map_or(&[], Vec::as_slice)
    }

    /// Sums over the flows: one curve a trial with the number of flows in it, the emphasised trial first.
    pub fn sums(&self, point: &str, name: &str) -> Vec<(Curve, usize)> {
        let emphasised = self.emphasis.get(point).copied();
        let mut sums: Vec<(Curve, usize)> = self
            .sums
            .iter()
            .filter(|((of_point, of_name, _), _)| of_point == point && of_name == name)
            .map(|((_, _, trial), sum)| {
                let columns_max =
                    if Some(*trial) == emphasised { COLUMNS_MAX } else { BACKGROUND_COLUMNS_MAX };
                let curve = Curve {
                    entity: "all flows".to_owned(),
                    trial: *trial,
                    unit: rate_unit(&sum.unit),
                    sample_count: sum.t_ns.len(),
                    columns: rates(&sum.t_ns, &sum.value, rate_factor(&sum.unit), columns_max),
                };
                (curve, sum.flow_count)
            })
            .collect();
        sums.sort_by_key(|(curve, _)| (Some(curve.trial) != emphasised, curve.trial));
        sums
    }
}

/// What a counter of `unit` becomes per second: bytes are drawn as bits, seconds of CPU as a share of a core.
fn rate_unit(unit: &str) -> String {
    match unit {
        "B" => "bit/s".to_owned(),
        "s" => "1".to_owned(),
        other => format!("{other}/s"),
    }
}

fn rate_factor(unit: &str) -> f64 {
    if unit == "B" { 8.0 } else { 1.0 }
}

fn reduce(series: &Series, trial: u32, columns_max: usize) -> Curve {
    let t_ns: Vec<f64> = series.t_ns.iter().map(|t| *t as f64).collect();
    let (unit, columns) = if series.cumulative {
        (rate_unit(&series.unit), rates(&t_ns, &series.value, rate_factor(&series.unit), columns_max))
    } else {
        (series.unit.clone(), levels(&t_ns, &series.value, columns_max))
    };
    Curve { entity: series.entity.clone(), trial, unit, sample_count: t_ns.len(), columns }
}

/// Rates per second of a counter. The mean of a column is exact: what was counted over the time it took.
fn rates(t_ns: &[f64], counter: &[f64], factor: f64, columns_max: usize) -> Vec<Column> {
    let intervals = t_ns.len().saturating_sub(1);
    let stride = intervals.div_ceil(columns_max).max(1);
    let mut columns = Vec::with_capacity(intervals.div_ceil(stride));
    for first in (0..intervals).step_by(stride) {
        let last = (first + stride).min(intervals);
        let rate = |from: usize, to: usize| {
            let seconds = (t_ns[to] - t_ns[from]) / 1e9;
            (seconds > 0.0)
                .then(|| (counter[to] - counter[from]) * factor / seconds)
                .filter(|rate| rate.is_finite())
        };
        let single = (first..last).filter_map(|index| rate(index, index + 1));
        let (low, high) = single
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), rate| (low.min(rate), high.max(rate)));
        if let Some(mean) = rate(first, last)
            && low.is_finite()
        {
            columns.push(Column { start_ns: t_ns[first], end_ns: t_ns[last], mean, low, high });
        }
    }
    columns
}

/// Levels of a gauge; a column's mean is over its samples.
fn levels(t_ns: &[f64], value: &[f64], columns_max: usize) -> Vec<Column> {
    let stride = value.len().div_ceil(columns_max).max(1);
    let mut columns = Vec::with_capacity(value.len().div_ceil(stride));
    for (times, values) in t_ns.chunks(stride).zip(value.chunks(stride)) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if mean.is_finite() {
            columns.push(Column { start_ns: times[0], end_ns: times[times.len() - 1], mean, low, high });
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(entity: &str, samples: usize, per_ms: impl Fn(usize) -> f64) -> SampleRecord {
        let mut total = 0.0;
        let mut series = Series {
            entity: entity.to_owned(),
            name: "stream.received_bytes".to_owned(),
            unit: "B".to_owned(),
            cumulative: true,
            ..Series::default()
        };
        for index in 0..samples {
            series.t_ns.push(index as i64 * 1_000_000);
            series.value.push(total);
            total += per_ms(index);
        }
        SampleRecord { point: "one".to_owned(), trial: 0, step: "one".to_owned(), series }
    }

    #[test]
    fn a_gap_of_three_milliseconds_in_ten_seconds_survives_the_reduction() {
        let mut curves = Curves::default();
        let gap = |index| if (5_000..5_003).contains(&index) { 0.0 } else { 125_000.0 };
        curves.add(counter("flow.a.b.0", 10_001, gap)).unwrap();
        let curve = &curves.of("one", "stream.received_bytes")[0];
        assert!(curve.columns.len() <= COLUMNS_MAX, "{} columns", curve.columns.len());
        assert_eq!((curve.low(), curve.high()), (0.0, 1e9));
    }

    #[test]
    fn the_sum_of_the_flows_carries_the_bytes_of_all_of_them() {
        let mut curves = Curves::default();
        for flow in 0..3 {
            let mut samples = counter(&format!("flow.a.b.{flow}"), 1_001, |_| 1_000.0);
            samples.series.t_ns.iter_mut().for_each(|t| *t += flow * 300_000);
            curves.add(samples).unwrap();
        }
        let sums = curves.sums("one", "stream.received_bytes");
        let (sum, flow_count) = &sums[0];
        assert_eq!(*flow_count, 3);
        let middle = sum.columns[sum.columns.len() / 2].mean;
        assert!((middle - 3.0 * 8e6).abs() < 1.0, "{middle}");
    }

    #[test]
    fn timestamps_that_stand_still_or_run_back_give_no_rate() {
        let columns = rates(&[0.0, 0.0, 5.0, 3.0], &[0.0, 1.0, 2.0, 3.0], 1.0, 10);
        assert_eq!(columns.len(), 1, "{columns:?}");
        assert!(rates(&[], &[], 1.0, 10).is_empty() && levels(&[], &[], 10).is_empty());
    }
}
