//! The long view: what fine series say of the rate of each flow, reduced while they are read. Room does not grow with hours.

use crate::curve::{Column, Curve};
use std::collections::BTreeMap;
use weir_core::chunk::{ChunkRecord, Damaged, RECEIVED};

/// The finest cells; they are joined in twos as a view gets longer.
const CELL_NS: i64 = 125_000_000;
const CELLS_MAX: usize = 2_048;
/// Extremes are those of whole seconds; of shorter stretches they would be the waves of any flow.
const EXTREMES_OVER_NS: i64 = 1_000_000_000;
const TIMES_NS_MAX: i64 = 1 << 55;
/// Flows that are looked at, of all points together.
const FLOWS_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Cell {
    bytes: f64,
    /// Least and most bytes of any second in it.
    low: f64,
    high: f64,
}

const EMPTY: Cell = Cell { bytes: 0.0, low: f64::INFINITY, high: 0.0 };

impl Cell {
    fn and(self, other: Cell) -> Cell {
        Cell {
            bytes: self.bytes + other.bytes,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

/// One flow of one trial. Time goes by in steps, of a second at most, and cells are whole steps.
#[derive(Debug)]
struct View {
    step_ns: i64,
    steps_per_cell: i64,
    /// Number of the step that is not full yet, counted from the trial's start, and what was gained in it.
    step: i64,
    step_bytes: f64,
    /// Number of the first cell, counted likewise.
    first: i64,
    cells: Vec<Cell>,
    /// The cell that is not full yet, and the steps in it.
    open: Cell,
    open_steps: i64,
    last: (i64, u64),
    sample_count: usize,
}

impl View {
    fn new(at_ns: i64, bytes: u64) -> View {
        let first = at_ns.div_euclid(CELL_NS);
        View {
            step_ns: CELL_NS,
            steps_per_cell: 1,
            step: first,
            step_bytes: 0.0,
            first,
            cells: Vec::new(),
            open: EMPTY,
            open_steps: 0,
            last: (at_ns, bytes),
            sample_count: 1,
        }
    }

    fn width_ns(&self) -> i64 {
        self.step_ns.saturating_mul(self.steps_per_cell)
    }

    fn push(&mut self, at_ns: i64, bytes: u64) {
        let (mut from_ns, before) = self.last;
        // Beyond a year times are not ours, and steps are taken one by one.
        if at_ns <= from_ns || from_ns < -TIMES_NS_MAX || at_ns > TIMES_NS_MAX {
            return;
        }
        self.sample_count += 1;
        self.last = (at_ns, bytes);
        let mut left = bytes.saturating_sub(before) as f64;
        while let end_ns = (self.step + 1).saturating_mul(self.step_ns)
            && at_ns >= end_ns
        {
            let share = (end_ns - from_ns) as f64 / (at_ns - from_ns).max(1) as f64;
            let here = left * share.clamp(0.0, 1.0);
            (left, from_ns) = (left - here, end_ns);
            self.end_step(self.step_bytes + here);
        }
        self.step_bytes += left;
    }

    fn end_step(&mut self, bytes: f64) {
        (self.step, self.step_bytes) = (self.step + 1, 0.0);
        self.open = self.open.and(Cell { bytes, low: bytes, high: bytes });
        self.open_steps += 1;
        if self.open_steps == self.steps_per_cell {
            self.cells.push(std::mem::replace(&mut self.open, EMPTY));
            self.open_steps = 0;
            if self.cells.len() >= CELLS_MAX {
                self.join();
            }
        }
    }

    /// Cells of twice the width. One that stands alone at the beginning is left out, one at the end is open again.
    fn join(&mut self) {
        let skip = self.first.rem_euclid(2) as usize;
        let rest = self.cells.get(skip..).unwrap_or_default();
        let (pairs, alone) = (rest.chunks_exact(2), rest.chunks_exact(2).remainder().first().copied());
        if self.step_ns < EXTREMES_OVER_NS {
            let whole = |bytes: f64| Cell { bytes, low: bytes, high: bytes };
            self.cells = pairs.map(|two| whole(two[0].bytes + two[1].bytes)).collect();
            self.step_ns *= 2;
            self.step = self.step.div_euclid(2);
            self.step_bytes = alone.map_or(0.0, |cell| cell.bytes);
        } else {
            self.cells = pairs.map(|two| two[0].and(two[1])).collect();
            if let Some(alone) = alone {
                (self.open, self.open_steps) = (alone, self.steps_per_cell);
            }
            self.steps_per_cell *= 2;
        }
        self.first = (self.first + skip as i64).div_euclid(2);
    }

    fn curve(&self, entity: &str, trial: u32) -> Curve {
        let (seconds, over) = (self.width_ns() as f64 / 1e9, self.step_ns as f64 / 1e9);
        let column = |(index, cell): (usize, &Cell)| {
            let start_ns = (self.first + index as i64) as f64 * self.width_ns() as f64;
            Column {
                start_ns,
                end_ns: start_ns + self.width_ns() as f64,
                mean: cell.bytes * 8.0 / seconds,
                low: cell.low * 8.0 / over,
                high: cell.high * 8.0 / over,
            }
        };
        // The first cell began before the flow did.
        let columns = self.cells.iter().enumerate().skip(1).map(column).collect();
        Curve {
            entity: entity.to_owned(),
            trial,
            unit: "bit/s".to_owned(),
            bin_seconds: Some(seconds),
            sample_count: self.sample_count,
            columns,
        }
    }
}

/// The long views of a folder, of one trial of each point.
#[derive(Debug, Default)]
pub(crate) struct LongViews {
    /// By point: the trial looked at, and its flows by entity.
    points: BTreeMap<String, (u32, BTreeMap<String, View>)>,
    flow_count: usize,
    unknown: usize,
}

impl LongViews {
    /// Takes a line of `chunks.jsonl`; `trial` is the one to look at, where one stands out. Errors: its samples are damaged.
    pub fn add(
        &mut self,
        record: &ChunkRecord,
        field_count: usize,
        trial: Option<u32>,
    ) -> Result<(), Damaged> {
        let chunk = &record.chunk;
        if chunk.fields != RECEIVED.name {
            return chunk.unpack(field_count, |_, _| {});
        }
        let (looked_at, flows) = self
            .points
            .entry(record.point.clone())
            .or_insert((trial.unwrap_or(record.trial), BTreeMap::new()));
        if record.trial != *looked_at || self.flow_count >= FLOWS_MAX && !flows.contains_key(&chunk.entity) {
            return chunk.unpack(field_count, |_, _| {});
        }
        let mut view = flows.remove(&chunk.entity);
        self.flow_count += usize::from(view.is_none());
        let unpacked = chunk.unpack(field_count, |at_ns, values| {
            let Some(Some(bytes)) = values.first() else { return };
            match &mut view {
                Some(view) => view.push(at_ns, *bytes),
                None => view = Some(View::new(at_ns, *bytes)),
            }
        });
        flows.extend(view.map(|view| (chunk.entity.clone(), view)));
        unpacked
    }

    /// A line is of fields that nobody knows.
    pub fn pass_over(&mut self) {
        self.unknown += 1;
    }

    /// The flows of a point, with the trial they are of.
    pub fn of(&self, point: &str) -> Vec<Curve> {
        let Some((trial, flows)) = self.points.get(point) else { return Vec::new() };
        let curves = flows.iter().map(|(entity, view)| view.curve(entity, *trial));
        curves.filter(|curve| !curve.columns.is_empty()).collect()
    }

    pub fn note(&self) -> Option<String> {
        let unknown = self.unknown;
        (unknown > 0)
            .then(|| format!("chunks.jsonl: {unknown} lines are of fields that this weir does not know"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `seconds` of 1 Gbit/s sampled every 10 ms, with a dip to a tenth for two seconds every 61.
    fn hours(seconds: i64) -> View {
        let mut view = View::new(3_000_000_000, 0);
        let mut bytes = 0;
        for tick in 1..=seconds * 100 {
            bytes += if tick / 100 % 61 < 2 { 125_000 } else { 1_250_000 };
            view.push(3_000_000_000 + tick * 10_000_000 + tick % 5 * 90_000, bytes);
        }
        view
    }

    // Spec: results.md#chunk-4
    #[test]
    fn dips_of_two_seconds_stay_in_sight_over_a_day_and_room_does_not_grow() {
        for seconds in [61, 3_600, 86_400] {
            let curve = hours(seconds).curve("flow.a.b.0", 0);
            assert!(curve.columns.len() <= CELLS_MAX);
            let drawn = curve.thinned(900);
            let (low, high) = (drawn.low(), drawn.high());
            assert!(
                (0.09e9..0.2e9).contains(&low) && (0.97e9..1.05e9).contains(&high),
                "{seconds} s: {low} {high}"
            );
            // Each minute of an hour has its own dip.
            if seconds == 3_600 {
                let dips = drawn.columns.windows(2).filter(|two| two[0].low > 0.5e9 && two[1].low < 0.5e9);
                assert!((56..=60).contains(&dips.count()));
            }
            let carried: f64 = curve.columns.iter().map(|it| it.mean * (it.end_ns - it.start_ns) / 8e9).sum();
            let all = seconds as f64 * (59.0 * 125e6 + 2.0 * 12.5e6) / 61.0;
            assert!((carried - all).abs() < all * 0.02, "{seconds} s: {carried} of {all}");
        }
    }

    #[test]
    fn times_that_run_back_or_leap_are_no_panic_and_take_no_room() {
        let mut view = View::new(i64::MIN, 5);
        for at in [0, -5, 7, i64::MAX, 3] {
            view.push(at, u64::MAX);
        }
        assert!(view.cells.len() <= CELLS_MAX);
        assert_eq!(view.last.0, i64::MIN);
    }
}
