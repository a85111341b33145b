//! Which trace a job follows, and in which order.

use crate::trace::{KEPT_MAX, Record, Trace, make};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use weir_core::nearest::nearest;

/// Traces that are remembered at most, so that 1,100 jobs have ten of them and a second trial none to read again.
const REMEMBERED_MAX: usize = 64;

/// In which order the records of a trace are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Recorded,
    Sorted,
    Random,
    Sequential,
}

impl Order {
    pub fn of(name: Option<&str>) -> Order {
        match name {
            Some("sorted") => Order::Sorted,
            Some("random") => Order::Random,
            Some("sequential") => Order::Sequential,
            _ => Order::Recorded,
        }
    }

    /// Not as they stand in the file, one after the other.
    pub fn moves_records(self) -> bool {
        self != Order::Recorded
    }
}

/// One of the traces that jobs draw from.
pub enum Choice {
    /// One that is made, for files of whatever size.
    Made(&'static make::Made),
    File(PathBuf, Arc<Trace>),
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Made(made) => write!(out, "{}", made.name),
            Choice::File(path, _) => write!(out, "{}", path.display()),
        }
    }
}

impl Choice {
    /// Errors: no such trace, or one that is not sound; in words.
    pub fn of(name: &str) -> Result<Choice, String> {
        if let Some(made) = make::named(name) {
            return Ok(Choice::Made(made));
        }
        let path = Path::new(name);
        match opened(path) {
            Ok(trace) => Ok(Choice::File(path.to_owned(), trace)),
            Err(error) => {
                let last = name.rsplit('/').next().unwrap_or(name);
                let near = nearest(last, make::ALL.iter().map(|made| made.name));
                let help = near
                    .filter(|_| !path.exists())
                    .map_or(String::new(), |it| format!("; did you mean {it:?}?"));
                Err(format!("{error}{help}"))
            }
        }
    }

    pub fn trace(&self) -> Option<Arc<Trace>> {
        match self {
            Choice::Made(_) => None,
            Choice::File(_, trace) => Some(Arc::clone(trace)),
        }
    }

    pub fn is_timed(&self) -> bool {
        matches!(self, Choice::File(_, trace) if trace.is_timed)
    }

    pub fn is_kept(&self) -> bool {
        !matches!(self, Choice::File(_, trace) if trace.records().is_none())
    }

    /// Files that it names; none of one that is made.
    pub fn files(&self) -> &[String] {
        match self {
            Choice::Made(_) => &[],
            Choice::File(_, trace) => &trace.files,
        }
    }

    pub fn length_bytes_max(&self) -> u64 {
        match self {
            Choice::Made(_) => 32_768,
            Choice::File(_, trace) => u64::from(trace.totals.length_bytes_max),
        }
    }
}

type Remembered<K> = Mutex<BTreeMap<K, Arc<Trace>>>;

fn remembered<K: Ord>(
    store: &Remembered<K>,
    key: K,
    make: impl FnOnce() -> Result<Trace, String>,
) -> Result<Arc<Trace>, String> {
    if let Some(trace) = store.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(Arc::clone(trace));
    }
    let trace = Arc::new(make()?);
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    if store.len() >= REMEMBERED_MAX {
        store.clear();
    }
    store.insert(key, Arc::clone(&trace));
    Ok(trace)
}

static OPENED: Remembered<(PathBuf, Option<SystemTime>, u64)> = Mutex::new(BTreeMap::new());

fn opened(path: &Path) -> Result<Arc<Trace>, String> {
    let about = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let key = (path.to_owned(), about.modified().ok(), about.len());
    remembered(&OPENED, key, || Trace::open(path).map_err(|error| error.to_string()))
}

static SHAPED: Remembered<String> = Mutex::new(BTreeMap::new());

/// The records that jobs with files of this size go through, so many at most. Errors: in words.
pub fn chosen(
    choice: &Choice,
    file_bytes: u64,
    order: Order,
    records: Option<u64>,
) -> Result<Arc<Trace>, String> {
    let most = records.unwrap_or(u64::MAX);
    match choice {
        Choice::File(_, trace) if order == Order::Recorded => Ok(Arc::clone(trace)),
        Choice::File(path, trace) => {
            let key = format!("{} {file_bytes} {order:?} {most} {:p}", path.display(), Arc::as_ptr(trace));
            remembered(&SHAPED, key, || {
                let kept = trace.records().unwrap_or(&[]);
                let first = &kept[..kept.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
                Ok(Trace::kept(trace.files.clone(), false, in_order(first.to_vec(), order, file_bytes)))
            })
        }
        Choice::Made(made) => {
            if file_bytes < make::FILE_BYTES_LEAST {
                return Err(format!(
                    "{} wants files of {} bytes at least; the smallest here has {file_bytes}",
                    made.name,
                    make::FILE_BYTES_LEAST
                ));
            }
            let count = records.unwrap_or(u64::from(make::RECORDS)).min(KEPT_MAX) as u32;
            let key = format!("{} {file_bytes} {order:?} {count}", made.name);
            remembered(&SHAPED, key, || {
                let records = made.records(file_bytes, count, 0);
                Ok(Trace::kept(Vec::new(), false, in_order(records, order, file_bytes)))
            })
        }
    }
}

fn in_order(mut records: Vec<Record>, order: Order, file_bytes: u64) -> Vec<Record> {
    match order {
        // Each job shuffles for itself.
        Order::Recorded | Order::Random => {}
        Order::Sorted => records.sort_by_key(|record| (record.file, record.offset)),
        Order::Sequential => {
            let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
            for record in &mut records {
                let end = ends.entry(record.file).or_insert(0);
                // At the end of a file from its beginning again.
                if *end + u64::from(record.length_bytes) > file_bytes {
                    *end = 0;
                }
                record.offset = *end;
                *end += u64::from(record.length_bytes);
            }
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: replay.md#replay-3
    #[test]
    fn every_order_has_the_same_reads_and_sequential_ones_lie_one_behind_the_other() {
        let made = Choice::of("random-2").unwrap();
        let of = |order| chosen(&made, 10_000_000, order, Some(700)).unwrap();
        let sorted_lengths = |trace: &Trace| {
            let mut all: Vec<u32> = trace.records().unwrap().iter().map(|it| it.length_bytes).collect();
            all.sort_unstable();
            all
        };
        let recorded = of(Order::Recorded);
        assert_eq!(recorded.totals.records, 700);
        for order in [Order::Sorted, Order::Sequential] {
            let trace = of(order);
            assert_eq!(sorted_lengths(&trace), sorted_lengths(&recorded), "{order:?}");
            assert_ne!(trace.records(), recorded.records(), "{order:?}");
            assert!(trace.totals.end <= 10_000_000);
        }
        assert!(of(Order::Sorted).records().unwrap().is_sorted_by_key(|record| record.offset));
        let sequential = of(Order::Sequential);
        let is_next = |pair: &[Record]| {
            pair[1].offset == pair[0].offset + u64::from(pair[0].length_bytes) || pair[1].offset == 0
        };
        assert!(sequential.records().unwrap().windows(2).all(is_next));
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_the_nearest() {
        let error = Choice::of("random-7").err().unwrap();
        assert!(
            error.contains("random-7: No such file") && error.contains("did you mean \"random-"),
            "{error}"
        );
    }
}
