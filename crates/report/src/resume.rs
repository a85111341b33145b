//! Goes on with the folder of a run that did not finish: what is finished stays byte for byte, what a trial left behind that did
//! not come to its end is cut away.

use crate::read::{FolderError, document, lines_with_ends, text};
use crate::writer::{CHUNKS, Lines, WriteError, Writer, failed};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::record::{PlanRecord, TimelineEvent, TrialRecord};
use weir_sys::directory::Directory;

/// Event of the timeline that takes a trial back: the user cut it short, and a resumed run carries it out again.
pub const INTERRUPTED: &str = "interrupted";

/// What a finished run is rendered to; stale as soon as the run goes on.
const RENDERINGS: &[&str] = &["summary.json", "report.html", "trials.parquet", "samples.parquet"];

/// Why a run cannot go on from its folder.
#[derive(Debug, Error)]
pub enum ResumeError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{}: {problem}", path.display())]
    Refused { path: PathBuf, problem: String },
}

/// A folder whose run may go on. Nothing is changed before `go_on`; as long as this lives no other process can go on with it.
#[derive(Debug)]
pub struct Interrupted {
    directory: PathBuf,
    pub plan: PlanRecord,
    /// The resolved scenario.
    pub scenario_toml: String,
    pub environment: Option<serde_json::Value>,
    /// Of finished trials.
    pub records: Vec<TrialRecord>,
    /// Configuration and number of the trials of which every step is recorded.
    pub finished: BTreeSet<(String, u32)>,
    /// What the timeline says of agents that were lost.
    pub lost: Vec<String>,
    timeline: File,
    /// Bytes of each line file that stay.
    kept_bytes: [(&'static str, u64); 3],
    /// Of the fine series, which only some runs have.
    kept_chunks: Option<u64>,
}

/// Which trial a line belongs to; the rest of it is not looked at.
#[derive(Deserialize)]
struct OfTrial {
    point: String,
    trial: u32,
}

impl Interrupted {
    /// Reads what the run in `directory` has finished.
    ///
    /// Errors: it is no folder of a run, a file in it is damaged, it was killed before its plan was written, or a run is
    /// writing it now.
    pub fn read(directory: &Path) -> Result<Interrupted, ResumeError> {
        let refused =
            |problem: &str| ResumeError::Refused { path: directory.to_owned(), problem: problem.to_owned() };
        if !directory.is_dir() {
            return Err(refused("is not a folder; give the folder of a run, results/NAME/TIME"));
        }
        let mut notes = Vec::new();
        let plan: Option<PlanRecord> = document(directory, "plan.json", &mut notes)?;
        let scenario_toml = text(directory, "scenario.toml", &mut notes)?;
        let (Some(plan), Some(scenario_toml)) = (plan, scenario_toml) else {
            return Err(refused(
                "holds no whole plan.json and scenario.toml, so there is nothing to go on from; start the run anew",
            ));
        };
        let timeline = open_locked(directory, "timeline.jsonl")?;
        let environment = document(directory, "environment.json", &mut notes)?;

        let mut interrupted = BTreeSet::new();
        let mut events: Vec<(TimelineEvent, u64)> = Vec::new();
        lines_with_ends(directory, "timeline.jsonl", &mut notes, |event: TimelineEvent, end| {
            if let (INTERRUPTED, Some(configuration), Some(trial)) =
                (event.event.as_str(), &event.configuration, event.trial)
            {
                interrupted.insert((configuration.clone(), trial));
            }
            if end.whole {
                events.push((event, end.bytes));
            }
            Ok(())
        })?;
        let mut trials: Vec<(TrialRecord, u64)> = Vec::new();
        lines_with_ends(directory, "trials.jsonl", &mut notes, |trial: TrialRecord, end| {
            if end.whole {
                trials.push((trial, end.bytes));
            }
            Ok(())
        })?;
        let finished = finished(&plan, trials.iter().map(|(trial, _)| trial), &interrupted);

        let trials_bytes =
            prefix(&trials, |trial| finished.contains(&(trial.configuration.clone(), trial.trial)));
        // A line of a trial between lines of finished ones was not written by a run: each writes its trials one by one.
        let records: Vec<TrialRecord> =
            trials.into_iter().filter(|(_, end)| *end <= trials_bytes).map(|(trial, _)| trial).collect();
        if records.len() != finished.iter().map(|(id, _)| steps_of(&plan, id)).sum::<usize>() {
            return Err(ResumeError::Refused {
                path: directory.join("trials.jsonl"),
                problem: "its trials are not in the order in which a run writes them; start the run anew"
                    .to_owned(),
            });
        }
        let timeline_bytes = prefix(&events, |event| match (&event.configuration, event.trial) {
            (Some(configuration), Some(trial)) => finished.contains(&(configuration.clone(), trial)),
            _ => true,
        });
        let lost = events.iter().filter(|(event, end)| *end <= timeline_bytes && event.event == "agent-lost");
        let lost = lost.map(|(event, _)| event.text.clone()).collect();

        let configuration_of: BTreeMap<&str, &str> = plan
            .configurations
            .iter()
            .flat_map(|it| it.steps.iter().map(|step| (step.point.as_str(), it.id.as_str())))
            .collect();
        let (mut samples_bytes, mut over) = (0, false);
        lines_with_ends(directory, "samples.jsonl", &mut notes, |samples: OfTrial, end| {
            let configuration = configuration_of.get(samples.point.as_str()).copied().unwrap_or_default();
            let stays = finished.contains(&(configuration.to_owned(), samples.trial)) && end.whole;
            if stays && over {
                return Err("its series are not in the order in which a run writes them".to_owned());
            }
            over |= !stays;
            if stays {
                samples_bytes = end.bytes;
            }
            Ok(())
        })?;
        let (mut chunk_bytes, mut over) = (0, false);
        let has_chunks = directory.join(CHUNKS).exists();
        if has_chunks {
            lines_with_ends(directory, CHUNKS, &mut notes, |chunk: OfTrial, end| {
                let configuration = configuration_of.get(chunk.point.as_str()).copied().unwrap_or_default();
                over |= !(finished.contains(&(configuration.to_owned(), chunk.trial)) && end.whole);
                if !over {
                    chunk_bytes = end.bytes;
                }
                Ok(())
            })?;
        }
        drop(configuration_of);
        Ok(Interrupted {
            kept_chunks: has_chunks.then_some(chunk_bytes),
            directory: directory.to_owned(),
            plan,
            scenario_toml,
            environment,
            records,
            finished,
            lost,
            timeline,
            kept_bytes: [
                ("timeline.jsonl", timeline_bytes),
                ("trials.jsonl", trials_bytes),
                ("samples.jsonl", samples_bytes),
            ],
        })
    }

    /// True when every trial of the plan is recorded.
    pub fn is_complete(&self) -> bool {
        self.finished.len() == self.plan.configurations.len() * self.plan.trials as usize
    }

    /// Cuts away what unfinished trials left behind and what the folder was rendered to, and goes on writing after the rest.
    pub fn go_on(self) -> Result<Writer, WriteError> {
        let directory = Directory::open(&self.directory).map_err(failed("open", &self.directory))?;
        for name in RENDERINGS {
            directory.remove(name).map_err(failed("remove", &self.directory.join(name)))?;
        }
        // The lock is held, so no other writes here.
        directory.remove_partials().map_err(failed("clear", &self.directory))?;
        let cut = |name: &str, bytes: u64, opened: io::Result<File>| {
            let path = self.directory.join(name);
            let cut = opened.and_then(|file| {
                file.set_len(bytes)?;
                file.sync_all()?;
                Ok(file)
            });
            cut.map_err(failed("go on with", &path)).map(|file| Lines::new(path, file))
        };
        if let Some(bytes) = self.kept_chunks {
            cut(CHUNKS, bytes, directory.append(CHUNKS))?;
        }
        let [timeline, trials, samples] = self.kept_bytes.map(|(name, bytes)| {
            let opened = match name {
                "timeline.jsonl" => self.timeline.try_clone(),
                _ => directory.append_or_create(name),
            };
            cut(name, bytes, opened)
        });
        Ok(Writer::on(directory, timeline?, trials?, samples?))
    }
}

fn steps_of(plan: &PlanRecord, configuration: &str) -> usize {
    plan.configurations.iter().find(|it| it.id == configuration).map_or(0, |it| it.steps.len())
}

/// Trials of which every planned step has its record, those aside that the user cut short.
fn finished<'a>(
    plan: &PlanRecord,
    trials: impl Iterator<Item = &'a TrialRecord>,
    interrupted: &BTreeSet<(String, u32)>,
) -> BTreeSet<(String, u32)> {
    let mut steps: BTreeMap<(String, u32), BTreeSet<&str>> = BTreeMap::new();
    for trial in trials {
        steps.entry((trial.configuration.clone(), trial.trial)).or_default().insert(&trial.point);
    }
    let planned = plan.configurations.iter().flat_map(|it| (0..plan.trials).map(move |trial| (it, trial)));
    planned
        .filter(|(configuration, trial)| {
            let key = (configuration.id.clone(), *trial);
            let found = steps.get(&key);
            !interrupted.contains(&key)
                && configuration
                    .steps
                    .iter()
                    .all(|step| found.is_some_and(|found| found.contains(step.point.as_str())))
        })
        .map(|(configuration, trial)| (configuration.id.clone(), trial))
        .collect()
}

/// Where the last line ends before the first that does not stay.
fn prefix<L>(lines: &[(L, u64)], stays: impl Fn(&L) -> bool) -> u64 {
    lines.iter().take_while(|(line, _)| stays(line)).last().map_or(0, |(_, end)| *end)
}

/// The lock is held as long as the file is open, and by nobody once its process is gone, however it went.
pub(crate) fn open_locked(directory: &Path, name: &str) -> Result<File, ResumeError> {
    let refused = |problem: String| ResumeError::Refused { path: directory.join(name), problem };
    let file = Directory::open(directory)
        .and_then(|directory| directory.append(name))
        .map_err(|error| refused(format!("cannot be opened to go on: {error}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refused("a run is writing here right now; let it finish, or stop it first".to_owned()))
        }
        Err(TryLockError::Error(error)) => Err(refused(format!("cannot be locked: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Folder, sample};
    use proptest::prelude::*;
    use std::fs;
    use std::sync::OnceLock;

    const FILES: [&str; 3] = ["timeline.jsonl", "trials.jsonl", "samples.jsonl"];

    fn sample_bytes() -> &'static [Vec<u8>; 3] {
        static BYTES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
        BYTES.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            sample::write(directory.path(), &sample::summary(), 100);
            FILES.map(|name| fs::read(directory.path().join(name)).unwrap())
        })
    }

    /// The sample run, of which only these shares of the three files were written.
    fn killed(shares: [f64; 3]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        sample::write(directory.path(), &sample::summary(), 2_000);
        for ((name, bytes), share) in FILES.iter().zip(sample_bytes()).zip(shares) {
            let length = (bytes.len() as f64 * share) as usize;
            fs::write(directory.path().join(name), &bytes[..length]).unwrap();
        }
        directory
    }

    // Spec: results.md#results-11
    #[test]
    fn a_run_that_is_being_written_is_not_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let writer = Writer::create(directory.path()).unwrap();
        writer.scenario_toml("").unwrap();
        writer.plan(&sample::plan()).unwrap();
        let refused = Interrupted::read(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("a run is writing here right now"), "{refused}");
        drop(writer);
        let first = Interrupted::read(directory.path()).unwrap();
        assert!(Interrupted::read(directory.path()).is_err(), "one process at a time");
        drop(first);
        assert!(Interrupted::read(directory.path()).is_ok());
    }

    // Spec: results.md#results-10
    #[test]
    fn a_finished_run_has_nothing_missing_and_an_interrupted_trial_is_missing() {
        let directory = killed([1.0; 3]);
        let all = Interrupted::read(directory.path()).unwrap();
        assert!(all.is_complete() && all.records.len() == 20, "{:?}", all.finished);
        drop(all);
        let event = "{\"at_ns\":1,\"utc\":\"\",\"event\":\"interrupted\",\"configuration\":\"\",\"trial\":4,\"text\":\"\"}\n";
        let path = directory.path().join("timeline.jsonl");
        fs::write(&path, [sample_bytes()[0].as_slice(), event.as_bytes()].concat()).unwrap();
        let chunk = |trial| {
            let (point, step) = ("one".to_owned(), "one".to_owned());
            weir_core::chunk::ChunkRecord { point, trial, step, chunk: Default::default() }
        };
        sample::write_chunks(directory.path(), [3, 4].map(chunk));
        let cut = Interrupted::read(directory.path()).unwrap();
        assert_eq!((cut.finished.len(), cut.records.len()), (4, 16));
        drop(cut.go_on().unwrap());
        let kept = fs::read_to_string(directory.path().join(CHUNKS)).unwrap();
        assert!(kept.lines().count() == 1 && kept.contains("\"trial\":3"), "{kept}");
        assert!(!directory.path().join("summary.json").exists());
        let folder = Folder::read(directory.path()).unwrap();
        assert!(folder.timeline.iter().all(|event| event.trial != Some(4) && event.event != INTERRUPTED));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        // Spec: results.md#results-10
        #[test]
        fn wherever_a_run_was_cut_its_finished_trials_stay_byte_for_byte(share in 0.0..1.0_f64, ahead in 0.0..0.1_f64) {
            // A trial's events and samples are written before its records.
            let before = (share + ahead).min(1.0);
            let directory = killed([before, share, before]);
            let cut = Interrupted::read(directory.path()).unwrap();
            let finished = cut.finished.clone();
            let mut writer = cut.go_on().unwrap();
            for (name, bytes) in FILES.iter().zip(sample_bytes()) {
                let now = fs::read(directory.path().join(name)).unwrap();
                prop_assert!(bytes.starts_with(&now), "{}: what stays was written so", name);
                prop_assert!(now.is_empty() || now.ends_with(b"\n"), "{}: whole lines", name);
            }
            let event: TimelineEvent = serde_json::from_slice(sample_bytes()[0].split(|byte| *byte == b'\n').next().unwrap()).unwrap();
            writer.timeline(&event).unwrap();
            drop(writer);
            let folder = Folder::read(directory.path()).unwrap();
            prop_assert!(folder.notes.iter().all(|note| !note.contains("cut short")), "{:?}", folder.notes);
            prop_assert_eq!(folder.trials.len(), finished.len() * 4);
            for trial in 0..5 {
                let steps = folder.trials.iter().filter(|it| it.trial == trial).count();
                prop_assert_eq!(steps, if finished.contains(&(String::new(), trial)) { 4 } else { 0 });
            }
        }
    }
}
