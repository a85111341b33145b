//! What each operation of a load took, as a picture against time, in room that does not grow with their number.

use crate::curve::{Column, Curve};
use std::collections::BTreeMap;
use weir_core::chunk::{ChunkRecord, Damaged, FieldSetRecord};

/// The finest cells; they are joined in twos as a view gets longer.
const CELL_NS: i64 = 1_000_000;
const CELLS_MAX: usize = 512;
/// Beyond a year times are not ours.
const TIMES_NS_MAX: i64 = 1 << 55;
/// Lines that are kept, of all points together.
const VIEWS_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Cell {
    count: u64,
    sum: f64,
    low: f64,
    high: f64,
}

impl Cell {
    fn and(self, other: Cell) -> Cell {
        Cell {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

/// One entity of one trial.
#[derive(Debug)]
struct View {
    width_ns: i64,
    cells: BTreeMap<i64, Cell>,
    sample_count: usize,
}

impl View {
    fn push(&mut self, at_ns: i64, value: f64) {
        if at_ns.abs() > TIMES_NS_MAX {
            return;
        }
        self.sample_count += 1;
        let one = Cell { count: 1, sum: value, low: value, high: value };
        self.cells
            .entry(at_ns.div_euclid(self.width_ns))
            .and_modify(|cell| *cell = cell.and(one))
            .or_insert(one);
        while self.cells.len() > CELLS_MAX {
            self.width_ns *= 2;
            let mut joined: BTreeMap<i64, Cell> = BTreeMap::new();
            for (at, cell) in std::mem::take(&mut self.cells) {
                joined.entry(at.div_euclid(2)).and_modify(|known| *known = known.and(cell)).or_insert(cell);
            }
            self.cells = joined;
        }
    }

    fn curve(&self, entity: &str, trial: u32, unit: &str) -> Curve {
        let column = |(at, cell): (&i64, &Cell)| Column {
            start_ns: *at as f64 * self.width_ns as f64,
            end_ns: (*at + 1) as f64 * self.width_ns as f64,
            mean: cell.sum / cell.count as f64,
            low: cell.low,
            high: cell.high,
        };
        Curve {
            entity: entity.to_owned(),
            trial,
            unit: unit.to_owned(),
            bin_seconds: None,
            sample_count: self.sample_count,
            columns: self.cells.iter().map(column).collect(),
        }
    }
}

/// What is drawn of one kind of record in one point.
#[derive(Debug)]
pub(crate) struct Operations {
    pub about: String,
    /// The field that is drawn.
    pub field: String,
    pub trial: u32,
    views: BTreeMap<String, View>,
}

impl Operations {
    /// In base units: a field in nanoseconds is drawn in seconds.
    pub fn curves(&self) -> Vec<Curve> {
        let (unit, _) = unit(&self.field);
        self.views.iter().map(|(entity, view)| view.curve(entity, self.trial, unit)).collect()
    }
}

/// The unit in which a field is drawn, and what of it its numbers are.
fn unit(field: &str) -> (&'static str, f64) {
    match field.rsplit('_').next() {
        Some("ns") => ("s", 1e-9),
        Some("us") => ("s", 1e-6),
        Some("bytes") => ("B", 1.0),
        _ => ("1", 1.0),
    }
}

/// The pictures of a folder's operations, of one trial of each point.
#[derive(Debug, Default)]
pub(crate) struct OperationViews {
    points: BTreeMap<(String, String), Operations>,
    view_count: usize,
}

impl OperationViews {
    /// Takes a line of `chunks.jsonl` of a set that shows a field; `trial` is the one to look at, where one stands out.
    pub fn add(
        &mut self,
        record: &ChunkRecord,
        set: &FieldSetRecord,
        trial: Option<u32>,
    ) -> Result<(), Damaged> {
        let place =
            set.shown.as_ref().and_then(|shown| set.fields.iter().position(|field| field.name == *shown));
        let Some(place) = place else { return record.chunk.unpack(set.fields.len(), |_, _| {}) };
        let key = (record.point.clone(), set.name.clone());
        let operations = self.points.entry(key).or_insert_with(|| Operations {
            about: set.about.clone(),
            field: set.fields[place].name.clone(),
            trial: trial.unwrap_or(record.trial),
            views: BTreeMap::new(),
        });
        let is_new = !operations.views.contains_key(&record.chunk.entity);
        if record.trial != operations.trial || is_new && self.view_count >= VIEWS_MAX {
            return record.chunk.unpack(set.fields.len(), |_, _| {});
        }
        self.view_count += usize::from(is_new);
        let (_, factor) = unit(&operations.field);
        let view = operations.views.entry(record.chunk.entity.clone()).or_insert_with(|| View {
            width_ns: CELL_NS,
            cells: BTreeMap::new(),
            sample_count: 0,
        });
        record.chunk.unpack(set.fields.len(), |at_ns, values| {
            if let Some(Some(value)) = values.get(place) {
                view.push(at_ns, *value as f64 * factor);
            }
        })
    }

    /// Of one point, by the name of what was recorded.
    pub fn of(&self, point: &str) -> impl Iterator<Item = &Operations> {
        self.points.iter().filter(move |((of, _), _)| of == point).map(|(_, operations)| operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: results.md#record-2
    #[test]
    fn a_picture_of_many_operations_takes_the_room_of_few_and_keeps_the_longest_of_all() {
        let mut view = View { width_ns: CELL_NS, cells: BTreeMap::new(), sample_count: 0 };
        for turn in 0..1_000_000_i64 {
            view.push(turn * 100_000, if turn == 777_777 { 2.5 } else { 0.001 });
        }
        let curve = view.curve("host.a", 0, "s");
        assert!(curve.columns.len() <= CELLS_MAX && curve.columns.len() > CELLS_MAX / 4);
        assert_eq!((curve.high(), curve.sample_count), (2.5, 1_000_000));
        let at = curve.columns.iter().find(|column| column.high > 2.0).unwrap();
        assert!(at.start_ns <= 77_777_700_000.0 && at.end_ns >= 77_777_700_000.0, "{at:?}");
        view.push(i64::MAX, 1.0);
        assert_eq!(view.curve("host.a", 0, "s").sample_count, 1_000_000, "a time beyond a year is not ours");
    }
}
