//! `running.jsonl`: the series of a trial that has not ended, told stretch by stretch while it runs, and joined for who reads it.

use crate::read::{FolderError, lines};
use crate::writer::RUNNING;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_core::record::{SampleRecord, Series};

/// Samples that are kept at most, 16 bytes each; where there are more, every second goes.
const SAMPLES_MAX: usize = 1 << 20;
/// Series that are kept at most.
const SERIES_MAX: usize = 40_000;

/// A series of a step: point, entity and name.
type Of = (String, String, String);

/// What is there of a trial that runs, or that was killed.
#[derive(Debug)]
pub(crate) struct Running {
    all: Vec<SampleRecord>,
    /// Of each series: the time of its last sample, and how many it had; one in `stride` is kept.
    seen: Vec<(i64, u64)>,
    index_of: BTreeMap<Of, usize>,
    sample_count: usize,
    stride: u64,
    left_out: usize,
    /// One trial at a time; and the points of its steps.
    trial: Option<u32>,
    points: BTreeSet<String>,
}

impl Running {
    fn new() -> Running {
        Running {
            all: Vec::new(),
            seen: Vec::new(),
            index_of: BTreeMap::new(),
            sample_count: 0,
            stride: 1,
            left_out: 0,
            trial: None,
            points: BTreeSet::new(),
        }
    }

    /// Reads what is there, if anything. What cannot be read is a note: no record of a trial hangs on it, and of a run that is
    /// under way it may be gone the next moment.
    pub(crate) fn read(directory: &Path, notes: &mut Vec<String>) -> Running {
        let mut running = Running::new();
        if let Err(error) = each(directory, notes, |samples| running.add(samples, SAMPLES_MAX)) {
            notes.push(format!("{error}; what follows it is left out"));
        }
        running
    }

    fn add(&mut self, samples: SampleRecord, samples_max: usize) {
        let series = &samples.series;
        if *self.trial.get_or_insert(samples.trial) != samples.trial {
            self.left_out += 1;
            return;
        }
        let of = (samples.point.clone(), series.entity.clone(), series.name.clone());
        let index = match self.index_of.get(&of) {
            Some(index) => *index,
            None if self.all.len() == SERIES_MAX => {
                self.left_out += 1;
                return;
            }
            None => {
                self.points.insert(samples.point.clone());
                self.index_of.insert(of, self.all.len());
                let empty = Series { t_ns: Vec::new(), value: Vec::new(), ..series.clone() };
                self.all.push(SampleRecord { series: empty, ..samples.clone() });
                self.seen.push((i64::MIN, 0));
                self.all.len() - 1
            }
        };
        let (known, (last_ns, taken)) = (&mut self.all[index].series, &mut self.seen[index]);
        for (t_ns, value) in series.t_ns.iter().zip(&series.value) {
            // A stretch begins with the last sample of the one before.
            if t_ns <= last_ns {
                continue;
            }
            if taken.is_multiple_of(self.stride) {
                known.t_ns.push(*t_ns);
                known.value.push(*value);
                self.sample_count += 1;
            }
            (*last_ns, *taken) = (*t_ns, *taken + 1);
        }
        while self.sample_count > samples_max.max(self.all.len()) {
            self.sample_count = 0;
            self.stride *= 2;
            for known in &mut self.all {
                every_second(&mut known.series.t_ns);
                every_second(&mut known.series.value);
                self.sample_count += known.series.t_ns.len();
            }
        }
    }

    /// Must be told of each line of `samples.jsonl`: a run that was killed, or is read, just as its trial ended has that trial's
    /// series there.
    pub(crate) fn note_whole(&mut self, samples: &SampleRecord) {
        if self.trial == Some(samples.trial) {
            self.points.remove(&samples.point);
        }
    }

    /// The series, each in one piece, and what is to be said of them.
    pub(crate) fn finish(mut self) -> (Vec<SampleRecord>, Vec<String>) {
        self.all.retain(|it| self.points.contains(&it.point));
        let of_trial = self.points.iter().zip(self.trial.into_iter().cycle());
        let mut notes: Vec<String> = of_trial
            .map(|(point, trial)| {
                format!(
                    "trial {trial} of {point} had not ended: {RUNNING} has what was sampled of it until then"
                )
            })
            .collect();
        if self.stride > 1 {
            notes.push(format!("{RUNNING}: of its samples one in {} was kept", self.stride));
        }
        if self.left_out > 0 {
            notes.push(format!(
                "{RUNNING}: {} stretches beyond what a run writes were left out",
                self.left_out
            ));
        }
        (self.all, notes)
    }
}

/// Hands over each stretch. Errors: a line that is none.
fn each(
    directory: &Path,
    notes: &mut Vec<String>,
    mut keep: impl FnMut(SampleRecord),
) -> Result<(), FolderError> {
    if !directory.join(RUNNING).exists() {
        return Ok(());
    }
    lines(directory, RUNNING, notes, |samples: SampleRecord| {
        let series = &samples.series;
        if series.t_ns.len() != series.value.len() {
            return Err(format!("{} of {} has not one value for each time", series.name, series.entity));
        }
        keep(samples);
        Ok(())
    })
}

fn every_second<T>(all: &mut Vec<T>) {
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Folder, Writer, sample};
    use std::fs;
    use weir_core::record::TrialRecord;

    fn stretch(point: &str, trial: u32, entity: &str, t_ns: &[i64]) -> SampleRecord {
        SampleRecord {
            point: point.to_owned(),
            trial,
            step: point.to_owned(),
            series: Series {
                entity: entity.to_owned(),
                name: "port.wire_bytes".to_owned(),
                unit: "B".to_owned(),
                cumulative: true,
                t_ns: t_ns.to_vec(),
                value: t_ns.iter().map(|t| *t as f64).collect(),
            },
        }
    }

    // Spec: results.md#results-19
    #[test]
    fn stretches_are_joined_without_what_they_share_and_gone_when_their_trial_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut writer = Writer::create(path).unwrap();
        writer.scenario_toml("").unwrap();
        writer.running(&[stretch("load", 0, "a", &[1, 2, 3]), stretch("load", 0, "b", &[1, 2])]).unwrap();
        writer.running(&[stretch("load", 0, "a", &[3, 4]), stretch("load", 0, "b", &[2, 5])]).unwrap();
        let joined = |notes: &mut Vec<String>| {
            let (all, said) = Running::read(path, notes).finish();
            notes.extend(said);
            all.into_iter().map(|it| (it.series.entity, it.series.t_ns)).collect::<Vec<_>>()
        };
        let mut notes = Vec::new();
        let both = [("a".to_owned(), vec![1, 2, 3, 4]), ("b".to_owned(), vec![1, 2, 5])];
        assert_eq!(joined(&mut notes), both);
        let said = "trial 0 of load had not ended: running.jsonl has what was sampled of it until then";
        assert_eq!(notes, [said]);
        // A live folder is drawn, a line that is half there and one that is none included.
        let whole = fs::read(path.join(RUNNING)).unwrap();
        for more in ["{\"point\":\"lo", "{\"point\":7}\n"] {
            fs::write(path.join(RUNNING), [&whole[..], more.as_bytes()].concat()).unwrap();
            assert_eq!(joined(&mut Vec::new()), both);
            let folder = Folder::read(path).unwrap();
            assert!(folder.notes.iter().any(|note| note == said), "{:?}", folder.notes);
            assert_eq!(folder.curves.of("load", "port.wire_bytes").len(), 2);
        }
        // The trial's end: whole series first, then its record.
        writer.samples(&stretch("load", 0, "a", &[1, 2, 3, 4])).unwrap();
        let folder = Folder::read(path).unwrap();
        assert_eq!(folder.curves.of("load", "port.wire_bytes").len(), 1, "no series twice");
        let none: &[TrialRecord] = &[];
        writer.trial(none).unwrap();
        assert!(!path.join(RUNNING).exists());
        writer.running(&[stretch("load", 1, "a", &[1])]).unwrap();
        assert!(fs::read_to_string(path.join(RUNNING)).unwrap().contains("\"trial\":1"));
    }

    // Spec: results.md#results-19
    #[test]
    fn a_run_that_goes_on_takes_away_what_its_killed_trial_had_sampled() {
        let directory = tempfile::tempdir().unwrap();
        sample::write(directory.path(), &sample::summary(), 2_000);
        fs::write(directory.path().join(RUNNING), "damaged\n").unwrap();
        drop(crate::Interrupted::read(directory.path()).unwrap().go_on().unwrap());
        assert!(!directory.path().join(RUNNING).exists());
    }

    // Spec: results.md#results-6
    #[test]
    fn a_trial_of_any_length_keeps_to_its_room_with_its_first_sample_and_its_course() {
        let mut running = Running::new();
        for from in 0..1_000 {
            running.add(stretch("load", 0, "a", &[from, from + 1]), 100);
        }
        running.add(stretch("load", 3, "a", &[5_000]), 100);
        let (all, notes) = running.finish();
        let t_ns = &all[0].series.t_ns;
        assert!((50..=100).contains(&t_ns.len()) && t_ns[0] == 0 && t_ns.is_sorted(), "{t_ns:?}");
        assert!(all[0].series.value.iter().zip(t_ns).all(|(value, t)| *value == *t as f64));
        let gap = t_ns.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(gap <= Some(16), "{gap:?}");
        assert!(notes.iter().any(|note| note.contains("one in 16 was kept")), "{notes:?}");
        assert!(notes.iter().any(|note| note.contains("1 stretches")), "{notes:?}");
    }
}
