//! Goes on with the folder of a run that did not finish: what is finished stays byte for byte, what a trial left behind that did
//! not come to its end is cut away.

use crate::folder::Folder;
use crate::read::{FolderError, document, lines, lines_with_ends, text};
use crate::records::{RunRecords, TrialSet};
use crate::writer::{CHUNKS, FAILURES, Lines, RUNNING, WriteError, Writer, failed};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::record::{PlanRecord, TimelineEvent, TrialRecord};
use weir_sys::directory::Directory;

/// Event of the timeline that takes a trial back: the user cut it short, and a resumed run carries it out again.
pub const INTERRUPTED: &str = "interrupted";

/// What a finished run is rendered to, in every form that a command gives; stale as soon as the run goes on.
const RENDERINGS: &[&str] = &[
    "summary.json",
    "report.html",
    "trials.parquet",
    "samples.parquet",
    "points.csv",
    "trials.csv",
    "samples.csv",
    "chunks.csv",
    "failures.csv",
];
/// Trials that a warning names; more are counted.
const TRIALS_NAMED_MAX: usize = 8;

/// Why a run cannot go on from its folder.
#[derive(Debug, Error)]
pub enum ResumeError {
    #[error("{damaged}; nothing was changed. {}", what_to_do(damaged))]
    Folder {
        #[from]
        damaged: FolderError,
    },
    #[error("{}: {problem}", path.display())]
    Refused { path: PathBuf, problem: String },
}

/// What mends a damaged file of the folder, so that the run can go on.
fn what_to_do(error: &FolderError) -> &'static str {
    match error.path.file_name().and_then(|name| name.to_str()) {
        Some("metrics.json" | "environment.json" | "summary.json") => {
            "Remove the file: it is written again when the run goes on"
        }
        Some("trials.jsonl") => {
            "Remove that line and all after it: the trials they are of are carried out again"
        }
        Some("samples.jsonl" | "timeline.jsonl" | CHUNKS | FAILURES) => {
            "Remove that line: the rest goes without it"
        }
        _ => "Put the file back from a copy, or start the run anew",
    }
}

/// A folder whose run may go on. Nothing is changed before `go_on`; as long as this lives no other process can go on with it.
#[derive(Debug)]
pub struct Interrupted {
    directory: PathBuf,
    pub plan: PlanRecord,
    /// The resolved scenario.
    pub scenario_toml: String,
    /// Of when the run began; `None` where it was killed before it was written.
    pub environment: Option<serde_json::Value>,
    /// False where `metrics.json` is missing.
    pub has_definitions: bool,
    /// Of finished trials.
    pub records: RunRecords,
    /// Configuration and number of the trials of which every step is recorded.
    pub finished: TrialSet,
    /// What the timeline says of agents that were lost.
    pub lost: Vec<String>,
    /// What the folder lacks of finished trials, in a sentence.
    pub missing: Option<String>,
    timeline: File,
    /// Bytes of each line file that stay.
    kept_bytes: [(&'static str, u64); 3],
    /// Of the files that only some runs have: fine series, failures.
    kept_of_some: Vec<(&'static str, u64)>,
}

/// Which trial a line belongs to; the rest of it is not looked at.
#[derive(Deserialize)]
struct OfTrial {
    point: String,
    trial: u32,
    /// Records say it; series do not.
    configuration: Option<String>,
}

impl Interrupted {
    /// Reads what the run in `directory` has finished, and everything else that its end will be drawn from, so that no damage
    /// is found only after hours of running.
    ///
    /// Errors: it is no folder of a run, a file in it is damaged, it was killed before its plan was written, or a run is
    /// writing it now. Nothing in the folder was changed.
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
        // The report at the end reads all of it, and refuses what is damaged: it does so now.
        let folder = Folder::read(directory)?;
        let (environment, has_definitions) = (folder.environment, !folder.definitions.is_empty());

        let configuration_of: BTreeMap<&str, &str> = plan
            .configurations
            .iter()
            .flat_map(|it| it.steps.iter().map(|step| (step.point.as_str(), it.id.as_str())))
            .collect();
        // Only of trials that the plan has: what else a line may say takes no memory.
        let planned =
            |point: &str, trial: u32| configuration_of.get(point).copied().filter(|_| trial < plan.trials);
        let mut interrupted = TrialSet::default();
        lines(directory, "timeline.jsonl", &mut notes, |event: TimelineEvent| {
            if event.event == INTERRUPTED
                && let Some((id, trial)) = event.configuration.zip(event.trial)
                && trial < plan.trials
                && plan.configurations.iter().any(|it| it.id == id)
            {
                interrupted.insert(&id, trial);
            }
            Ok(())
        })?;
        let mut recorded = TrialSet::default();
        lines_with_ends(directory, "trials.jsonl", &mut notes, |step: OfTrial, end| {
            if end.whole
                && planned(&step.point, step.trial)
                    .is_some_and(|id| step.configuration.as_deref() == Some(id))
            {
                recorded.insert(&step.point, step.trial);
            }
            Ok(())
        })?;
        let finished = finished(&plan, &recorded, &interrupted);
        // Read once more: which records stay is known only now, and memory holds as many as there is room for.
        let mut records = RunRecords::new(directory);
        let (mut counting, mut trials_bytes, mut over) = (TrialSet::default(), 0, false);
        lines_with_ends(directory, "trials.jsonl", &mut notes, |trial: TrialRecord, end| {
            // A line of a trial between lines of finished ones was not written by a run: each writes its trials one by one.
            over |= !end.whole || !finished.contains(&trial.configuration, trial.trial);
            if !over {
                trials_bytes = end.bytes;
                if trial.valid && planned(&trial.point, trial.trial).is_some() {
                    counting.insert(&trial.point, trial.trial);
                }
                records.add(trial, end.place());
            }
            Ok(())
        })?;
        let steps_of = plan.configurations.iter().map(|it| {
            let trials = (0..plan.trials).filter(|trial| finished.contains(&it.id, *trial));
            trials.count() * it.steps.len()
        });
        if records.len() != steps_of.sum::<usize>() {
            return Err(ResumeError::Refused {
                path: directory.join("trials.jsonl"),
                problem: "its trials are not in the order in which a run writes them; start the run anew"
                    .to_owned(),
            });
        }
        // Read once more, since which events stay is known only now, and there may be more of them than memory should hold.
        let (mut timeline_bytes, mut over, mut lost) = (0, false, Vec::new());
        lines_with_ends(directory, "timeline.jsonl", &mut notes, |event: TimelineEvent, end| {
            let of_trial = event.configuration.zip(event.trial);
            over |= !end.whole || of_trial.is_some_and(|(id, trial)| !finished.contains(&id, trial));
            if !over {
                timeline_bytes = end.bytes;
                lost.extend((event.event == "agent-lost").then_some(event.text));
            }
            Ok(())
        })?;

        let mut sampled = TrialSet::default();
        let (mut samples_bytes, mut over) = (0, false);
        lines_with_ends(directory, "samples.jsonl", &mut notes, |samples: OfTrial, end| {
            let id = planned(&samples.point, samples.trial);
            let stays = end.whole && id.is_some_and(|id| finished.contains(id, samples.trial));
            if stays && over {
                return Err("its series are not in the order in which a run writes them".to_owned());
            }
            over |= !stays;
            if stays {
                samples_bytes = end.bytes;
                sampled.insert(&samples.point, samples.trial);
            }
            Ok(())
        })?;
        let mut kept_of_some = Vec::new();
        for name in [CHUNKS, FAILURES].into_iter().filter(|name| directory.join(name).exists()) {
            let (mut bytes, mut over) = (0, false);
            lines_with_ends(directory, name, &mut notes, |line: OfTrial, end| {
                let id = planned(&line.point, line.trial);
                over |= !(end.whole && id.is_some_and(|id| finished.contains(id, line.trial)));
                if !over {
                    bytes = end.bytes;
                }
                Ok(())
            })?;
            kept_of_some.push((name, bytes));
        }
        drop(configuration_of);
        Ok(Interrupted {
            missing: without_samples(&plan, &counting, &sampled),
            has_definitions,
            kept_of_some,
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

    /// Hands over every record in the order in which it was written.
    pub fn each_record(&self, mut to: impl FnMut(TrialRecord)) -> Result<(), ResumeError> {
        let [_, (name, kept_bytes), _] = self.kept_bytes;
        lines_with_ends(&self.directory, name, &mut Vec::new(), |record: TrialRecord, end| {
            if end.bytes <= kept_bytes {
                to(record);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// True when every trial of the plan is recorded.
    pub fn is_complete(&self) -> bool {
        self.finished.len() == self.plan.configurations.len() * self.plan.trials as usize
    }

    /// Cuts away what unfinished trials left behind and what the folder was rendered to, and goes on writing after the rest.
    /// The records are those of finished trials.
    pub fn go_on(self) -> Result<(Writer, RunRecords), WriteError> {
        let directory = Directory::open(&self.directory).map_err(failed("open", &self.directory))?;
        for name in RENDERINGS.iter().chain(&[RUNNING]) {
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
        for (name, bytes) in &self.kept_of_some {
            cut(name, *bytes, directory.append(name))?;
        }
        let [timeline, trials, samples] = self.kept_bytes.map(|(name, bytes)| {
            let opened = match name {
                "timeline.jsonl" => self.timeline.try_clone(),
                _ => directory.append_or_create(name),
            };
            cut(name, bytes, opened)
        });
        Ok((Writer::on(directory, timeline?, trials?, samples?), self.records))
    }
}

/// Trials of which every planned step has its record, those aside that the user cut short.
fn finished(plan: &PlanRecord, recorded: &TrialSet, interrupted: &TrialSet) -> TrialSet {
    let mut finished = TrialSet::default();
    for configuration in plan.configurations.iter().filter(|it| !it.steps.is_empty()) {
        let whole = |trial: &u32| {
            configuration.steps.iter().all(|step| recorded.contains(&step.point, *trial))
                && !interrupted.contains(&configuration.id, *trial)
        };
        (0..plan.trials).filter(whole).for_each(|trial| finished.insert(&configuration.id, trial));
    }
    finished
}

/// Which trials lack their series: valid ones of a step whose other trials have some, or whose whole trial has none.
fn without_samples(plan: &PlanRecord, counting: &TrialSet, sampled: &TrialSet) -> Option<String> {
    let mut lacking = Vec::new();
    let mut count = 0_usize;
    for configuration in &plan.configurations {
        let has = |point: &str, trial: u32| sampled.contains(point, trial);
        let ever: Vec<bool> = configuration
            .steps
            .iter()
            .map(|step| (0..plan.trials).any(|trial| has(&step.point, trial)))
            .collect();
        for trial in 0..plan.trials {
            let any = configuration.steps.iter().any(|step| has(&step.point, trial));
            for (step, ever) in configuration.steps.iter().zip(&ever) {
                let lacks = counting.contains(&step.point, trial) && !has(&step.point, trial);
                if lacks && (*ever || !any) {
                    count += 1;
                    lacking.extend(
                        (lacking.len() < TRIALS_NAMED_MAX)
                            .then(|| format!("trial {trial} of {}", step.point)),
                    );
                }
            }
        }
    }
    let named = lacking.join(", ");
    let more = match count - lacking.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!lacking.is_empty()).then(|| {
        format!("samples.jsonl holds no series of {named}{more}: they are judged, and their course cannot be drawn")
    })
}

/// The lock is held as long as the file is open, and by nobody once its process is gone, however it went.
pub(crate) fn open_locked(directory: &Path, name: &str) -> Result<File, ResumeError> {
    let refused = |problem: String| ResumeError::Refused { path: directory.join(name), problem };
    let file = Directory::open(directory)
        .and_then(|directory| directory.append_or_create(name))
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

    fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
        let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        all.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
    }

    // Spec: results.md#results-18
    #[test]
    fn damage_in_any_file_that_the_end_is_drawn_from_is_told_before_anything_is_changed() {
        let directory = killed([0.9; 3]);
        let chunk = "{\"point\":\"one\",\"trial\":0,\"step\":\"one\",\"entity\":\"a\",\"fields\":\"tcp-info/1\",\
                     \"start_ns\":0,\"count\":9,\"data\":\"AA\"}\n";
        fs::write(directory.path().join("trials.csv"), "of before").unwrap();
        let damage = |name: &str, from: &[u8], to: &[u8]| {
            let path = directory.path().join(name);
            let kept = fs::read(&path).ok();
            let text = kept.clone().unwrap_or_default();
            let at = text.windows(from.len().max(1)).position(|part| part == from).unwrap_or(0);
            let damaged = [&text[..at], to, &text[(at + from.len()).min(text.len())..]].concat();
            fs::write(&path, damaged).unwrap();
            let before = contents(directory.path());
            let refused = Interrupted::read(directory.path()).expect_err(name).to_string();
            assert_eq!(contents(directory.path()), before, "{name}");
            match kept {
                Some(kept) => fs::write(&path, kept).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert!(refused.contains(name) && refused.contains("nothing was changed"), "{refused}");
            refused
        };
        let said = damage("metrics.json", b"\"unit\"", b"\"unti\"");
        assert!(said.contains("line ") && said.contains("Remove the file"), "{said}");
        let said = damage("samples.jsonl", b"\"unit\":\"", b"\"unit\":\"\xff");
        assert!(said.contains("samples.jsonl line 1: ") && said.contains("Remove that line"), "{said}");
        let said = damage("samples.jsonl", b"\"value\":[", b"\"value\":[1,");
        assert!(said.contains("line 1: "), "{said}");
        let said = damage("trials.jsonl", b"\"valid\":true", b"\"valid\":maybe");
        assert!(said.contains("line 1: ") && said.contains("and all after it"), "{said}");
        let said = damage("trials.jsonl", b"\"count\":[", b"\"count\":[1,");
        assert!(said.contains("has not one count for each value"), "{said}");
        damage("timeline.jsonl", b"{", b"");
        damage("environment.json", b":", b";");
        damage(CHUNKS, b"", chunk.as_bytes());
        assert!(Interrupted::read(directory.path()).is_ok(), "and nothing else was wrong with it");
    }

    // Spec: results.md#results-10
    #[test]
    fn no_table_of_the_run_as_it_was_survives_when_it_goes_on() {
        for tables in crate::SINKS.iter().filter_map(|entry| entry.build.tables()) {
            for name in tables.files() {
                assert!(RENDERINGS.contains(name), "{name}");
            }
        }
        let directory = killed([0.5; 3]);
        for name in RENDERINGS {
            fs::write(directory.path().join(name), if *name == "summary.json" { "" } else { "of before" })
                .unwrap();
        }
        drop(Interrupted::read(directory.path()).unwrap().go_on().unwrap());
        assert!(RENDERINGS.iter().all(|name| !directory.path().join(name).exists()));
    }

    // Spec: results.md#results-18
    #[test]
    fn what_a_folder_lacks_of_finished_trials_is_told() {
        let directory = killed([1.0; 3]);
        let whole = Interrupted::read(directory.path()).unwrap();
        assert!(whole.missing.is_none() && whole.has_definitions && whole.environment.is_some());
        drop(whole);
        let without = |lost: &dyn Fn(&serde_json::Value) -> bool| {
            let text = String::from_utf8(sample_bytes()[2].clone()).unwrap();
            let kept = text.lines().filter(|line| !lost(&serde_json::from_str(line).unwrap()));
            let kept: String = kept.map(|line| format!("{line}\n")).collect();
            fs::write(directory.path().join("samples.jsonl"), kept).unwrap();
            Interrupted::read(directory.path()).unwrap().missing.unwrap_or_default()
        };
        let one = without(&|line| line["trial"] == 2 && line["point"] == "one");
        assert!(one.contains("no series of trial 2 of one: "), "{one}");
        let tail = without(&|line| line["trial"].as_u64().unwrap() > 2);
        assert!(tail.contains("of trial 3 of idle, ") && tail.contains("trial 4 of outage: "), "{tail}");
        let all = without(&|_| true);
        assert!(all.contains(" and 11 more: "), "one of the twenty does not count: {all}");
        for name in ["samples.jsonl", "environment.json", "metrics.json", "timeline.jsonl"] {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
        let bare = Interrupted::read(directory.path()).unwrap();
        assert_eq!(bare.missing.as_deref(), Some(all.as_str()));
        assert!(bare.is_complete() && !bare.has_definitions && bare.environment.is_none());
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
            let (mut writer, _) = cut.go_on().unwrap();
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
                prop_assert_eq!(steps, if finished.contains("", trial) { 4 } else { 0 });
            }
        }
    }
}
