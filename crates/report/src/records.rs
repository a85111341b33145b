//! The records of a run's trials: in memory while there is room for them, and where they are in `trials.jsonl` beyond that.

use crate::read::FolderError;
use crate::weight;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_core::judge::{Records, Trials};
use weir_core::record::TrialRecord;

/// Room for the records of a run, as `weight` has it; of one that has more, those of a point are read when they are asked for.
const ROOM_BYTES: usize = 48 << 20;
/// Points that are kept as they were read: one, and those that it is compared with.
const RECENT_MAX: usize = 3;

/// Trials that something is true of, by what they are of: a bit each, for there may be millions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialSet {
    words: BTreeMap<String, Vec<u64>>,
    count: usize,
}

impl TrialSet {
    /// `trial` is one that a plan may have: each takes the room of those before it.
    pub fn insert(&mut self, of: &str, trial: u32) {
        if !self.words.contains_key(of) {
            self.words.insert(of.to_owned(), Vec::new());
        }
        let Some(words) = self.words.get_mut(of) else { return };
        let (index, bit) = (trial as usize / 64, 1 << (trial % 64));
        if words.len() <= index {
            words.resize(index + 1, 0);
        }
        self.count += usize::from(words[index] & bit == 0);
        words[index] |= bit;
    }
    pub fn contains(&self, of: &str, trial: u32) -> bool {
        let word = self.words.get(of).and_then(|words| words.get(trial as usize / 64));
        word.is_some_and(|word| word >> (trial % 64) & 1 == 1)
    }
    pub fn len(&self) -> usize {
        self.count
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Where the line of a record is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub start: u64,
    pub bytes: u32,
}

#[derive(Debug)]
pub struct RunRecords {
    file: PathBuf,
    /// By point, with the number of each trial.
    places: BTreeMap<String, Vec<(u32, Place)>>,
    /// As long as there is room for all.
    kept: Option<BTreeMap<String, Trials>>,
    room_bytes: usize,
    recent: RefCell<VecDeque<(String, Trials)>>,
    failed: RefCell<Option<FolderError>>,
}

impl RunRecords {
    /// None so far, of the run in `directory`.
    pub fn new(directory: &Path) -> RunRecords {
        RunRecords::within(directory, ROOM_BYTES)
    }

    fn within(directory: &Path, room_bytes: usize) -> RunRecords {
        RunRecords {
            file: directory.join("trials.jsonl"),
            places: BTreeMap::new(),
            kept: Some(BTreeMap::new()),
            room_bytes,
            recent: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// Adds a record and where it can be read again.
    pub fn add(&mut self, record: TrialRecord, place: Place) {
        match self.places.get_mut(&record.point) {
            Some(places) => places.push((record.trial, place)),
            None => {
                self.places.insert(record.point.clone(), vec![(record.trial, place)]);
            }
        }
        let Some(kept) = &mut self.kept else { return };
        match self.room_bytes.checked_sub(weight::of_trial(&record)) {
            Some(left) => {
                self.room_bytes = left;
                kept.entry(record.point.clone()).or_default().push(record);
            }
            None => self.kept = None,
        }
    }

    /// Why records could not be read that were asked for, if so: what was judged then was judged without them.
    pub fn failed(&self) -> Option<FolderError> {
        self.failed.take()
    }

    pub fn len(&self) -> usize {
        self.places.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn read(&self, point: &str) -> Result<Trials, String> {
        let file = File::open(&self.file).map_err(|error| format!("cannot be read: {error}"))?;
        let (mut all, mut line) = (Vec::new(), Vec::new());
        for (trial, place) in self.places.get(point).into_iter().flatten() {
            line.resize(place.bytes as usize, 0);
            file.read_exact_at(&mut line, place.start).map_err(|error| format!("cannot be read: {error}"))?;
            let record: TrialRecord = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
            if (record.point.as_str(), record.trial) != (point, *trial) {
                return Err("was changed while the run went on".to_owned());
            }
            all.push(record);
        }
        Ok(Trials::new(all))
    }
}

impl Records for RunRecords {
    fn of(&self, point: &str) -> Trials {
        if let Some(kept) = &self.kept {
            return kept.get(point).cloned().unwrap_or_default();
        }
        let mut recent = self.recent.borrow_mut();
        if let Some((_, known)) = recent.iter().find(|(of, _)| of == point) {
            return known.clone();
        }
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        let trials = self.read(point).unwrap_or_else(|problem| {
            self.failed.replace(Some(FolderError { path: self.file.clone(), line: None, problem }));
            Trials::default()
        });
        recent.push_back((point.to_owned(), trials.clone()));
        trials
    }

    fn points(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::lines_with_ends;
    use crate::sample;

    fn records(directory: &Path, room_bytes: usize) -> RunRecords {
        let mut records = RunRecords::within(directory, room_bytes);
        lines_with_ends(directory, "trials.jsonl", &mut Vec::new(), |record: TrialRecord, end| {
            records.add(record, end.place());
            Ok(())
        })
        .unwrap();
        records
    }

    // Spec: results.md#results-6
    #[test]
    fn records_that_have_no_room_are_read_again_and_are_the_same() {
        let directory = tempfile::tempdir().unwrap();
        sample::write(directory.path(), &sample::summary(), 2_000);
        let (kept, read) = (records(directory.path(), usize::MAX), records(directory.path(), 10_000));
        assert!(kept.kept.is_some() && read.kept.is_none());
        assert_eq!((kept.points(), kept.len()), (read.points(), 20));
        assert_eq!(read.points().len(), 4);
        for point in read.points().iter().chain(&read.points()) {
            let both = [kept.of(point), read.of(point)];
            let [kept, read] = both.each_ref().map(Trials::all);
            assert!(kept.len() == 5 && kept == read, "{point}");
        }
        assert_eq!(read.recent.borrow().len(), RECENT_MAX, "no more of them are in memory");
        assert!(read.failed().is_none());
        let path = directory.path().join("trials.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
        let last = read.points().into_iter().find(|point| read.of(point).all().is_empty());
        let failed = read.failed().map(|error| error.to_string());
        assert!(last.is_some() && failed.is_some_and(|text| text.contains("trials.jsonl")), "it is told");
    }

    #[test]
    fn a_set_of_trials_knows_which_are_in_it_and_how_many() {
        let mut set = TrialSet::default();
        for (of, trial) in [("a", 0), ("a", 63), ("a", 64), ("b", 9_999), ("a", 63)] {
            set.insert(of, trial);
        }
        assert!(set.contains("a", 0) && set.contains("a", 64) && set.contains("b", 9_999));
        assert!(!set.contains("a", 1) && !set.contains("a", 9_999) && !set.contains("c", 0));
        assert_eq!(set.len(), 4);
    }
}
