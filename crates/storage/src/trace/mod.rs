//! Traces of what a program read and wrote: our own format, what others write, and traces that are made.

pub mod import;
pub mod make;
pub mod show;
pub mod text;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Bytes of one operation at most.
pub const LENGTH_BYTES_MAX: u64 = 2_000_000_000;
/// Offsets beyond belong to no file.
pub const OFFSET_MAX: u64 = 1 << 62;
/// Files that a trace names at most.
pub const FILES_MAX: usize = 10_000;
/// Operations of a trace that is kept in memory; a longer one is read again by each job, as it goes.
pub const KEPT_MAX: u64 = 2_000_000;

/// One operation of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// From the trace's beginning; 0 in a trace without times.
    pub at_ns: u64,
    /// Of the files that the trace names; 0 where it names none.
    pub file: u32,
    pub is_write: bool,
    pub offset: u64,
    pub length_bytes: u32,
}

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    #[error("line {line}: {problem}")]
    Line { line: u64, problem: String },
    #[error("{0}")]
    Whole(String),
}

impl TraceError {
    pub fn line(line: u64, problem: impl Into<String>) -> TraceError {
        TraceError::Line { line, problem: problem.into() }
    }
}

/// What a look through a whole trace gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub records: u64,
    pub writes: u64,
    pub bytes: u64,
    pub length_bytes_max: u32,
    /// Behind the last byte that is asked for.
    pub end: u64,
    /// When the last operation is issued; 0 without times.
    pub last_ns: u64,
}

impl Totals {
    fn add(&mut self, record: &Record) {
        self.records += 1;
        self.writes += u64::from(record.is_write);
        self.bytes += u64::from(record.length_bytes);
        self.length_bytes_max = self.length_bytes_max.max(record.length_bytes);
        self.end = self.end.max(record.offset + u64::from(record.length_bytes));
        self.last_ns = self.last_ns.max(record.at_ns);
    }

    pub fn of(records: &[Record]) -> Totals {
        let mut totals = Totals::default();
        records.iter().for_each(|record| totals.add(record));
        totals
    }
}

enum Source {
    Kept(Arc<[Record]>),
    /// Read again by whoever goes through it.
    File(PathBuf),
}

/// A trace that was looked through once and is sound.
pub struct Trace {
    /// Files that it names, below a target; none: each operation is of every file of a job.
    pub files: Vec<String>,
    /// It says when each operation was issued.
    pub is_timed: bool,
    pub totals: Totals,
    source: Source,
}

impl Trace {
    pub fn kept(files: Vec<String>, is_timed: bool, records: Vec<Record>) -> Trace {
        Trace { files, is_timed, totals: Totals::of(&records), source: Source::Kept(records.into()) }
    }

    /// Reads a file of ours. Errors: it cannot be read, or a line of it is not what the header says.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let in_file = |error: TraceError| TraceError::Whole(format!("{}: {error}", path.display()));
        let mut reader = reader(path).map_err(in_file)?;
        let (mut totals, mut kept) = (Totals::default(), Vec::new());
        while let Some(record) = reader.next_record().map_err(in_file)? {
            totals.add(&record);
            if totals.records <= KEPT_MAX {
                kept.push(record);
            }
        }
        if totals.records == 0 {
            return Err(in_file(TraceError::Whole("no operation is in it".to_owned())));
        }
        let source = match totals.records <= KEPT_MAX {
            true => Source::Kept(kept.into()),
            false => Source::File(path.to_owned()),
        };
        Ok(Trace { is_timed: reader.is_timed(), files: reader.into_files(), totals, source })
    }

    /// All its operations, where it is kept in memory.
    pub fn records(&self) -> Option<&[Record]> {
        match &self.source {
            Source::Kept(records) => Some(records),
            Source::File(_) => None,
        }
    }

    /// In an order of its own; `None` of one that is not kept.
    pub fn shuffled(&self, seed: u64) -> Option<Cursor> {
        match &self.source {
            Source::Kept(records) => {
                let shuffle = Shuffle::new(records.len() as u64, seed);
                Some(Cursor::Shuffled(Arc::clone(records), 0, shuffle))
            }
            Source::File(_) => None,
        }
    }

    /// From its beginning. Errors: its file cannot be read any more.
    pub fn cursor(&self) -> Result<Cursor, TraceError> {
        Ok(match &self.source {
            Source::Kept(records) => Cursor::Kept(Arc::clone(records), 0),
            Source::File(path) => Cursor::File(Box::new(reader(path)?)),
        })
    }
}

fn reader(path: &Path) -> Result<text::Reader<BufReader<File>>, TraceError> {
    let file = File::open(path).map_err(|error| TraceError::Whole(error.to_string()))?;
    let is_file = file.metadata().is_ok_and(|it| it.is_file());
    if !is_file {
        return Err(TraceError::Whole("not a file".to_owned()));
    }
    text::Reader::new(BufReader::with_capacity(1 << 15, file))
}

/// The numbers below a count, each once, in an order that follows from a seed: a Feistel network of four rounds over the next
/// power of four, and again where that leads beyond the count (Black and Rogaway, CT-RSA 2002).
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffle {
    pub fn new(count: u64, seed: u64) -> Shuffle {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Shuffle { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Which number comes at this place.
    pub fn at(self, place: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let mut number = place;
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..4 {
                let mut mixed =
                    (right ^ self.seed.rotate_left(round * 16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
                (left, right) = (right, left ^ ((mixed ^ (mixed >> 32)) & mask));
            }
            number = (left << self.half_bits) | right;
            if number < self.count {
                return number;
            }
        }
    }
}

/// One way through a trace.
pub enum Cursor {
    Kept(Arc<[Record]>, usize),
    Shuffled(Arc<[Record]>, usize, Shuffle),
    File(Box<text::Reader<BufReader<File>>>),
}

impl Iterator for Cursor {
    type Item = Record;
    /// A file that was sound and is not any more ends here.
    fn next(&mut self) -> Option<Record> {
        match self {
            Cursor::Kept(records, at) => {
                let record = records.get(*at).copied();
                *at += 1;
                record
            }
            Cursor::Shuffled(records, at, shuffle) => {
                let record = (*at < records.len()).then(|| records[shuffle.at(*at as u64) as usize]);
                *at += 1;
                record
            }
            Cursor::File(reader) => reader.next_record().ok().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: replay.md#replay-3
    #[test]
    fn a_shuffle_has_each_number_once_and_another_order_for_another_seed() {
        for count in [1, 2, 3, 5, 64, 200, 5_000] {
            let of = |seed| (0..count).map(|place| Shuffle::new(count, seed).at(place)).collect::<Vec<u64>>();
            let mut all = of(7);
            if count >= 64 {
                assert_ne!(all, of(8));
                let kept = all.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
                assert!(kept < count as usize / 10, "{count}: {kept}");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count), "{count}");
        }
    }
}
