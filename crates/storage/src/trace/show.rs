//! What a trace is like, in figures.

use super::{Record, Totals, Trace};
use serde::Serialize;

/// Columns and rows of the picture in text.
const COLUMNS: usize = 72;
const ROWS: usize = 16;

/// Figures of a trace. Shares are of its operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub operations: u64,
    pub writes: u64,
    pub files: u64,
    pub bytes: u64,
    /// Behind the last byte of any file.
    pub end_bytes: u64,
    /// Of a trace with times, until its last operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Of a trace that is kept in memory.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

/// Sizes and order of the operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shape {
    pub length_bytes_min: u32,
    pub length_bytes_median: u32,
    pub length_bytes_mean: f64,
    pub length_bytes_max: u32,
    /// Begins where the one before on its file ended.
    pub sequential_ratio: f64,
    /// Begins behind that.
    pub forward_ratio: f64,
    /// Bytes asked for, for each byte of a file that is asked for at all.
    pub reuse_ratio: f64,
    /// Of the bytes from the beginning of each file to the last that is asked for.
    pub touched_ratio: f64,
}

impl Figures {
    pub fn of(trace: &Trace) -> Figures {
        let Totals { records, writes, bytes, end, last_ns, .. } = trace.totals;
        Figures {
            operations: records,
            writes,
            files: trace.files.len().max(1) as u64,
            bytes,
            end_bytes: end,
            seconds: trace.is_timed.then_some(last_ns as f64 / 1e9),
            shape: trace.records().filter(|records| !records.is_empty()).map(shape),
        }
    }
}

fn shape(records: &[Record]) -> Shape {
    let count = records.len() as f64;
    let mut lengths: Vec<u32> = records.iter().map(|record| record.length_bytes).collect();
    lengths.sort_unstable();
    let bytes: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    let files = records.iter().map(|record| record.file as usize + 1).max().unwrap_or(1);
    let mut ends: Vec<Option<u64>> = vec![None; files];
    let (mut sequential, mut forward) = (0_u64, 0_u64);
    for record in records {
        let end = &mut ends[record.file as usize];
        sequential += u64::from(*end == Some(record.offset));
        forward += u64::from(end.is_some_and(|end| record.offset > end));
        *end = Some(record.offset + u64::from(record.length_bytes));
    }
    let mut places: Vec<(u32, u64, u64)> = records
        .iter()
        .map(|record| (record.file, record.offset, record.offset + u64::from(record.length_bytes)))
        .collect();
    places.sort_unstable();
    // Bytes of files that are asked for at all, and up to the last of them.
    let (mut touched, mut reach) = (0_u64, 0_u64);
    for of_file in places.chunk_by(|a, b| a.0 == b.0) {
        let mut upto = 0;
        for (_, begin, end) in of_file {
            touched += end.saturating_sub(upto.max(*begin));
            upto = upto.max(*end);
        }
        reach += upto;
    }
    Shape {
        length_bytes_min: lengths[0],
        length_bytes_median: lengths[lengths.len() / 2],
        length_bytes_mean: bytes as f64 / count,
        length_bytes_max: lengths[lengths.len() - 1],
        sequential_ratio: sequential as f64 / count,
        forward_ratio: forward as f64 / count,
        reuse_ratio: bytes as f64 / touched.max(1) as f64,
        touched_ratio: touched as f64 / reach.max(1) as f64,
    }
}

/// Offset against order: a dot where an operation of these begins in this part of the file. Empty of a trace that is not kept.
pub fn picture(trace: &Trace) -> Vec<String> {
    let Some(records) = trace.records().filter(|records| !records.is_empty()) else { return Vec::new() };
    let mut dots = [[0_u32; COLUMNS]; ROWS];
    let place =
        |at: u64, all: u64, cells: usize| (at as u128 * cells as u128 / u128::from(all.max(1))) as usize;
    for (index, record) in records.iter().enumerate() {
        let column = place(index as u64, records.len() as u64, COLUMNS).min(COLUMNS - 1);
        let row = place(record.offset, trace.totals.end, ROWS).min(ROWS - 1);
        dots[ROWS - 1 - row][column] += 1;
    }
    let most = dots.iter().flatten().copied().max().unwrap_or(1);
    let dot = |count: &u32| match (*count, *count * 3 / most.max(1)) {
        (0, _) => ' ',
        (_, 0) => '·',
        (_, 1) => '•',
        _ => '●',
    };
    dots.iter().map(|row| row.iter().map(dot).collect::<String>().trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: replay.md#trace-6
    #[test]
    fn figures_of_a_small_trace_are_those_counted_by_hand() {
        let read = |file, offset, length_bytes| Record { file, offset, length_bytes, ..Record::default() };
        let records =
            vec![read(0, 0, 10), read(0, 10, 10), read(1, 100, 50), read(0, 40, 10), read(0, 5, 10)];
        let trace = Trace::kept(vec!["a".to_owned(), "b".to_owned()], false, records);
        let shape = Figures::of(&trace).shape.unwrap();
        assert_eq!((shape.length_bytes_min, shape.length_bytes_median, shape.length_bytes_max), (10, 10, 50));
        assert_eq!((shape.sequential_ratio, shape.forward_ratio), (0.2, 0.2));
        // 30 of 50 bytes of a, 50 of 150 of b.
        assert_eq!((shape.reuse_ratio, shape.touched_ratio), (90.0 / 80.0, 80.0 / 200.0));
        let picture = picture(&trace);
        assert_eq!(picture.len(), ROWS);
        assert!(picture[ROWS - 1].starts_with('·') || picture[ROWS - 1].starts_with('●'), "{picture:?}");
    }
}
