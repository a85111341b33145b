//! Series reduced for drawing while they are read: at most a few hundred columns a curve, each with its mean and extremes.

use std::collections::BTreeMap;
use weir_core::record::{SampleRecord, Series, TrialRecord};

/// Columns a kept curve of levels has at most: about one for each pixel and a half of a plot.
const COLUMNS_MAX: usize = 440;
/// Bins that the span of a counter is drawn over at most; a bin is never narrower than four samples, so that a hole repaired
/// at once is spread over the time in which it was missing and a little more, instead of standing up as a rate no link has.
const BINS: f64 = 120.0;
const SAMPLES_IN_A_BIN: f64 = 4.0;
/// Parts of a bin that are looked at for its lowest rate.
const PARTS_MAX: f64 = 12.0;
/// Bins of one trial's sum at most. Flows of one trial that lie further apart are not one step.
const SUM_BINS_MAX: usize = 2_000;
/// Columns kept of a whole folder: 40 bytes each. A run with more series than that keeps those it listed first.
const FOLDER_COLUMNS_MAX: usize = 1_500_000;

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
    /// Of the values drawn: `bit/s` for a counter of bytes, `core` for one of CPU seconds.
    pub unit: String,
    /// Width of the bins that a rate was taken over, in seconds; `None` where the values are no rates.
    pub bin_seconds: Option<f64>,
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
    pub fn constant(&self) -> bool {
        // Rates of a steady counter differ in their last digits.
        self.high() - self.low() <= self.high().abs() * 1e-9
    }
}

/// What the flows of one trial counted, added up bin by bin.
#[derive(Debug)]
struct Sum {
    unit: String,
    flow_count: usize,
    sample_count: usize,
    grid: Grid,
    /// Index on the grid of the first bin.
    first: i64,
    /// Counted in each bin, and in the poorest of its parts.
    bins: Vec<Bin>,
    /// First and last sample of any flow.
    span_ns: (f64, f64),
}

/// Edges at `origin_ns + index × bin_ns`.
#[derive(Clone, Copy, Debug)]
struct Grid {
    origin_ns: f64,
    bin_ns: f64,
    parts: usize,
}

/// What was counted in a bin, part by part.
type Bin = Vec<f64>;

/// All curves of a folder.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    /// `point` to the trial whose single series are kept: the first valid one.
    emphasis: BTreeMap<String, u32>,
    /// When each point's step began in each trial, in nanoseconds from the trial's start.
    starts: BTreeMap<(String, u32), f64>,
    /// By point, then by series name: of the emphasised trial.
    detail: BTreeMap<String, BTreeMap<String, Vec<Curve>>>,
    /// By point, series name and trial.
    sums: BTreeMap<(String, String, u32), Sum>,
    column_count: usize,
    left_out: usize,
    /// There are more trials than have room: series of those that are not known are passed over.
    known_alone: bool,
}

impl Curves {
    pub fn emphasise(&mut self, trials: &[TrialRecord], known_alone: bool) {
        self.known_alone = known_alone;
        for trial in trials {
            self.starts.insert((trial.point.clone(), trial.trial), trial.start_ns as f64);
        }
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
        if self.known_alone && !self.starts.contains_key(&(samples.point.clone(), samples.trial)) {
            self.left_out += 1;
            return Ok(());
        }
        if series.cumulative && series.unit == "B" && sums_up(&series.entity) {
            self.add_to_sum(&samples);
        }
        let emphasised = *self.emphasis.entry(samples.point.clone()).or_insert(samples.trial);
        if emphasised == samples.trial {
            // A flow is drawn on the grid of the flows' sum, so that the two can be laid side by side.
            let of_sum = self.sums.get(&(samples.point.clone(), series.name.clone(), samples.trial));
            let curve = reduce(series, samples.trial, self.start_of(&samples), of_sum.map(|sum| sum.grid));
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

    /// Where the grid of this trial's bins begins: its step's start, or the first sample of a trial left without a record.
    fn start_of(&self, samples: &SampleRecord) -> f64 {
        let known = self.starts.get(&(samples.point.clone(), samples.trial)).copied();
        known.or(samples.series.t_ns.first().map(|t| *t as f64)).unwrap_or(0.0)
    }

    fn add_to_sum(&mut self, samples: &SampleRecord) {
        let series = &samples.series;
        let t_ns: Vec<f64> = series.t_ns.iter().map(|t| *t as f64).collect();
        let key = (samples.point.clone(), series.name.clone(), samples.trial);
        let Some(grid) =
            self.sums.get(&key).map(|sum| sum.grid).or_else(|| Grid::of(&t_ns, self.start_of(samples)))
        else {
            return;
        };
        let Some((first, bins)) = grid.counted(&t_ns, &series.value) else {
            self.left_out += 1;
            return;
        };
        let sum = self.sums.entry(key).or_insert_with(|| Sum {
            unit: series.unit.clone(),
            flow_count: 0,
            sample_count: 0,
            grid,
            first,
            bins: Vec::new(),
            span_ns: (f64::INFINITY, f64::NEG_INFINITY),
        });
        let (from, to) =
            (first.min(sum.first), (first + bins.len() as i64).max(sum.first + sum.bins.len() as i64));
        let length = (to - from) as usize;
        // A part of a bin takes eight bytes, a column forty.
        let more = (length - sum.bins.len()) * (grid.parts + 4) / 5;
        if length > SUM_BINS_MAX || self.column_count + more > FOLDER_COLUMNS_MAX {
            self.left_out += 1;
            return;
        }
        self.column_count += more;
        let missing = (sum.first - from) as usize;
        sum.bins.splice(0..0, std::iter::repeat_n(vec![0.0; grid.parts], missing));
        sum.bins.resize(length, vec![0.0; grid.parts]);
        sum.first = from;
        for (into, bin) in sum.bins[(first - from) as usize..].iter_mut().zip(bins) {
            into.iter_mut().zip(bin).for_each(|(into, part)| *into += part);
        }
        sum.flow_count += 1;
        sum.sample_count += t_ns.len();
        sum.span_ns = (sum.span_ns.0.min(t_ns[0]), sum.span_ns.1.max(t_ns[t_ns.len() - 1]));
    }

    pub fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!("samples.jsonl: {} series beyond what a report can draw were left out", self.left_out)
        })
    }

    /// The trial whose single series are shown.
    pub fn emphasised(&self, point: &str) -> Option<u32> {
        self.emphasis.get(point).copied()
    }

    /// Names of the series kept of a point.
    pub fn names(&self, point: &str) -> Vec<&str> {
        self.detail.get(point).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// When the last of the series kept of a point ends.
    pub fn end_ns(&self, point: &str) -> Option<f64> {
        let all = self.detail.get(point)?.values().flatten();
        all.filter_map(|curve| curve.columns.last()).map(|column| column.end_ns).reduce(f64::max)
    }

    /// The single series of a point's emphasised trial.
    pub fn of(&self, point: &str, name: &str) -> &[Curve] {
        self.detail.get(point).and_then(|of_point| of_point.get(name)).map_or(&[], Vec::as_slice)
    }

    /// Sums over the flows, or over the builders: one curve a trial with the number of flows in it, the emphasised trial first.
    pub fn sums(&self, point: &str, name: &str) -> Vec<(Curve, usize)> {
        let emphasised = self.emphasis.get(point).copied();
        let mut sums: Vec<(Curve, usize)> = self
            .sums
            .iter()
            .filter(|((of_point, of_name, _), _)| of_point == point && of_name == name)
            .map(|((_, _, trial), sum)| {
                let curve = Curve {
                    entity: "all flows".to_owned(),
                    trial: *trial,
                    unit: rate_unit(&sum.unit),
                    bin_seconds: Some(sum.grid.bin_ns / 1e9),
                    sample_count: sum.sample_count,
                    columns: sum.grid.rates(sum.first, &sum.bins, sum.span_ns, rate_factor(&sum.unit)),
                };
                (curve, sum.flow_count)
            })
            .collect();
        sums.sort_by_key(|(curve, _)| (Some(curve.trial) != emphasised, curve.trial));
        sums
    }
}

/// Whose counters are parts of one whole: flows, and the builders of events.
fn sums_up(entity: &str) -> bool {
    entity.starts_with("flow.") || entity.starts_with("builder.")
}

/// What a counter of `unit` becomes per second: bytes are drawn as bits, seconds of CPU as a share of a core.
fn rate_unit(unit: &str) -> String {
    match unit {
        "B" => "bit/s".to_owned(),
        "s" => "core".to_owned(),
        other => format!("{other}/s"),
    }
}

fn rate_factor(unit: &str) -> f64 {
    if unit == "B" { 8.0 } else { 1.0 }
}

/// Counters of rare events are read as how many so far; as a rate they would be needles.
fn counted_so_far(name: &str) -> bool {
    name.contains("dropped") || name.contains("retransmitted")
}

fn reduce(series: &Series, trial: u32, start_ns: f64, grid: Option<Grid>) -> Curve {
    let t_ns: Vec<f64> = series.t_ns.iter().map(|t| *t as f64).collect();
    let mut curve = Curve {
        entity: series.entity.clone(),
        trial,
        unit: series.unit.clone(),
        bin_seconds: None,
        sample_count: t_ns.len(),
        columns: Vec::new(),
    };
    if !series.cumulative {
        curve.columns = levels(&t_ns, &series.value, COLUMNS_MAX);
    } else if counted_so_far(&series.name) {
        let before = series.value.first().copied().unwrap_or(0.0);
        let so_far: Vec<f64> = series.value.iter().map(|value| value - before).collect();
        curve.columns = levels(&t_ns, &so_far, COLUMNS_MAX);
    } else {
        curve.unit = rate_unit(&series.unit);
        let grid = grid.or_else(|| Grid::of(&t_ns, start_ns));
        let counted = grid.and_then(|grid| Some((grid, grid.counted(&t_ns, &series.value)?)));
        if let Some((grid, (first, bins))) = counted {
            curve.bin_seconds = Some(grid.bin_ns / 1e9);
            let span_ns = (t_ns[0], t_ns[t_ns.len() - 1]);
            curve.columns = grid.rates(first, &bins, span_ns, rate_factor(&series.unit));
        }
    }
    curve
}

impl Grid {
    /// The grid for a counter read at these times; `None` where it was not read twice or time does not run forward.
    fn of(t_ns: &[f64], origin_ns: f64) -> Option<Grid> {
        let mut spacing: Vec<f64> =
            t_ns.windows(2).map(|pair| pair[1] - pair[0]).filter(|it| *it > 0.0).collect();
        if spacing.is_empty() || spacing.len() + 1 < t_ns.len() && !t_ns.is_sorted() {
            return None;
        }
        let span = t_ns[t_ns.len() - 1] - t_ns[0];
        let middle = spacing.len() / 2;
        let median = *spacing.select_nth_unstable_by(middle, f64::total_cmp).1;
        let fine = SAMPLES_IN_A_BIN * median;
        let rough = fine.max(span / BINS);
        // Two digits are enough for a width that people read.
        let unit = 10_f64.powf(rough.log10().floor() - 1.0);
        let bin_ns = (rough / unit).round() * unit;
        let parts = (bin_ns / fine).floor().clamp(1.0, PARTS_MAX) as usize;
        Some(Grid { origin_ns, bin_ns, parts })
    }

    /// What a counter gained in each part of each bin, with the index of the first bin. The counter is taken as straight between
    /// samples and as still outside them, so the bins add up to all that was counted. `None` for a counter that is not one.
    fn counted(&self, t_ns: &[f64], counter: &[f64]) -> Option<(i64, Vec<Bin>)> {
        let index = |t: f64| (t - self.origin_ns) / self.bin_ns;
        let (first, last) = (index(*t_ns.first()?).floor(), index(*t_ns.last()?).ceil());
        if !t_ns.is_sorted() || first.abs() > 1e9 || !(0.0..=SUM_BINS_MAX as f64).contains(&(last - first)) {
            return None;
        }
        let part_ns = self.bin_ns / self.parts as f64;
        let edge = |part: usize| self.origin_ns + first * self.bin_ns + part as f64 * part_ns;
        let mut bins = Vec::with_capacity((last - first) as usize);
        let (mut next, mut before) = (0, counter[0]);
        for bin in 0..(last - first) as usize {
            let mut parts = Vec::with_capacity(self.parts);
            for part in 0..self.parts {
                let until = edge(bin * self.parts + part + 1);
                while next < t_ns.len() && t_ns[next] <= until {
                    next += 1;
                }
                let at = match (next.checked_sub(1), counter.get(next)) {
                    (None, _) => counter[0],
                    (Some(last), None) => counter[last],
                    (Some(last), Some(after)) => {
                        let share = (until - t_ns[last]) / (t_ns[next] - t_ns[last]);
                        counter[last] + (after - counter[last]) * share
                    }
                };
                parts.push(at - before);
                before = at;
            }
            bins.push(parts);
        }
        Some((first as i64, bins))
    }

    /// Columns of rates per second. The outermost bins are cut to the span in which the counter was read; what is left of one
    /// that is less than half a bin is joined to its neighbour, since a rate over a moment is a rate nobody saw.
    fn rates(&self, first: i64, bins: &[Bin], span_ns: (f64, f64), factor: f64) -> Vec<Column> {
        let part_seconds = self.bin_ns / self.parts as f64 / 1e9;
        let mut columns: Vec<Column> = Vec::with_capacity(bins.len());
        for (index, bin) in bins.iter().enumerate() {
            let start = self.origin_ns + (first + index as i64) as f64 * self.bin_ns;
            let (start_ns, end_ns) = (start.max(span_ns.0), (start + self.bin_ns).min(span_ns.1));
            let covered = (end_ns - start_ns) / 1e9;
            let mean = bin.iter().sum::<f64>() * factor / covered;
            let whole = covered >= self.bin_ns / 1e9 * 0.999;
            let low = bin.iter().map(|part| part * factor / part_seconds).fold(mean, f64::min);
            let column = Column { start_ns, end_ns, mean, low: if whole { low } else { mean }, high: mean };
            if covered > 0.0 && mean.is_finite() && column.low.is_finite() {
                columns.push(column);
            }
        }
        let stub = |column: &Column| column.end_ns - column.start_ns < self.bin_ns / 2.0;
        if columns.len() > 1 && columns.last().is_some_and(stub) {
            join_last(&mut columns);
        }
        if columns.len() > 1 && columns.first().is_some_and(stub) {
            columns.reverse();
            join_last(&mut columns);
            columns.reverse();
        }
        columns
    }
}

/// Joins the last column of rates to the one before it.
fn join_last(columns: &mut Vec<Column>) {
    let (Some(last), Some(before)) = (columns.pop(), columns.last_mut()) else { return };
    let length = |column: &Column| column.end_ns - column.start_ns;
    let total = last.mean * length(&last) + before.mean * length(before);
    before.start_ns = before.start_ns.min(last.start_ns);
    before.end_ns = before.end_ns.max(last.end_ns);
    before.mean = total / length(before);
    (before.low, before.high) = (before.low.min(before.mean), before.mean);
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

    fn reduced(samples: SampleRecord) -> Curve {
        let mut curves = Curves::default();
        curves.add(samples).unwrap();
        curves.of("one", "stream.received_bytes")[0].clone()
    }

    fn bits(curve: &Curve) -> f64 {
        curve.columns.iter().map(|it| it.mean * (it.end_ns - it.start_ns) / 1e9).sum()
    }

    #[test]
    fn a_bin_is_four_samples_or_a_hundred_and_twentieth_of_the_span() {
        for (samples, bin_seconds) in [(301, 0.004), (10_001, 0.083)] {
            let curve = reduced(counter("flow.a.b.0", samples, |_| 125_000.0));
            assert_eq!(curve.bin_seconds, Some(bin_seconds));
            assert!(curve.columns.iter().all(|column| (column.mean - 1e9).abs() < 1.0), "{curve:?}");
        }
    }

    #[test]
    fn a_hole_repaired_at_once_is_not_drawn_above_what_its_bin_carried() {
        // 1 Gbit/s, nothing for 30 ms, and all of it delivered within the next millisecond: 31 Gbit/s between two samples.
        let repaired = |index: usize| match index {
            500..530 => 0.0,
            530 => 31.0 * 125_000.0,
            _ => 125_000.0,
        };
        let curve = reduced(counter("flow.a.b.0", 1_001, repaired));
        // A bin of 8.3 ms that holds the repair and is else filled at the rate of the link.
        let most = (31e6 + 7.3e6) / 0.0083;
        assert!(curve.high() <= most * 1.001 && curve.low() == 0.0, "{} above {most}", curve.high());
        assert!((bits(&curve) - 1e9).abs() < 1.0, "{}", bits(&curve));
    }

    #[test]
    fn what_is_left_of_a_bin_at_either_end_is_no_rate_of_its_own() {
        // 12 KB read one microsecond after the last edge: 100 Gbit/s, if it were a bin.
        let mut samples = counter("flow.a.b.0", 101, |_| 125_000.0);
        samples.series.t_ns.push(100_001_000);
        samples.series.value.push(100.0 * 125_000.0 + 12_500.0);
        let curve = reduced(samples);
        assert!(curve.high() < 1.1e9, "{curve:?}");
        assert!((bits(&curve) - 100.1e6).abs() < 1.0, "{}", bits(&curve));
    }

    #[test]
    fn an_outage_of_300_ms_in_a_minute_reaches_zero() {
        let gap = |index| if (20_000..20_300).contains(&index) { 0.0 } else { 125_000.0 };
        let curve = reduced(counter("flow.a.b.0", 60_001, gap));
        assert!(curve.columns.len() <= 122, "{} columns", curve.columns.len());
        assert_eq!(curve.low(), 0.0);
    }

    #[test]
    fn retransmissions_are_counted_from_the_first_sample_on() {
        let mut samples = counter("flow.a.b.0", 11, |_| 3.0);
        samples.series.value.iter_mut().for_each(|value| *value += 40.0);
        samples.series.name = "tcp.retransmitted_segments".to_owned();
        samples.series.unit = "segments".to_owned();
        let curve = reduce(&samples.series, 0, 0.0, None);
        assert_eq!((curve.low(), curve.high(), curve.unit.as_str()), (0.0, 30.0, "segments"));
    }

    proptest::proptest! {
        #[test]
        fn the_bins_of_any_flows_add_up_to_the_bytes_they_counted(
            flows in proptest::collection::vec(proptest::collection::vec((0_u32..40_000_000, 0_u32..1_000_000), 2..60), 1..5),
            start in -50_000_000_i64..50_000_000,
        ) {
            let mut curves = Curves::default();
            let mut counted = 0.0;
            for (flow, steps) in flows.iter().enumerate() {
                let mut samples = counter(&format!("flow.a.b.{flow}"), 0, |_| 0.0);
                let (mut t, mut total) = (start, 1e6);
                for (pause, bytes) in steps {
                    t += i64::from(*pause) + 1_000_000;
                    samples.series.t_ns.push(t);
                    samples.series.value.push(total);
                    total += f64::from(*bytes);
                }
                counted += samples.series.value.last().unwrap() - 1e6;
                curves.add(samples).unwrap();
            }
            let (sum, flow_count) = &curves.sums("one", "stream.received_bytes")[0];
            proptest::prop_assert_eq!(*flow_count, flows.len());
            proptest::prop_assert!((bits(sum) - counted * 8.0).abs() <= counted * 1e-6 + 1e-3, "{} of {}", bits(sum), counted * 8.0);
        }
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
        for t_ns in [vec![], vec![5], vec![5, 5, 5], vec![0, 0, 5, 3], vec![i64::MIN, i64::MAX]] {
            let mut samples = counter("flow.a.b.0", t_ns.len(), |_| 1.0);
            samples.series.t_ns = t_ns;
            let curve = reduced(samples);
            assert!(
                curve.columns.iter().all(|it| it.mean.is_finite() && it.end_ns > it.start_ns),
                "{curve:?}"
            );
        }
        assert!(levels(&[], &[], 10).is_empty());
    }
}
