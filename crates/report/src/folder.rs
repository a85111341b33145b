//! Reads a results folder, whole or left behind by a killed run.

use crate::curve::Curves;
use crate::failures::FailureKinds;
use crate::long::LongViews;
use crate::operations::OperationViews;
use crate::read::{FolderError, document, lines, text};
use crate::running::Running;
use crate::sets::Sets;
use crate::weight;
use crate::writer::{CHUNKS, FAILURES, SHOWN};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use weir_core::chunk::ChunkRecord;
use weir_core::failure::FailureRecord;
use weir_core::record::{Observed, PlanRecord, SampleRecord, Summary, TimelineEvent, TrialRecord};
use weir_core::scenario::{CONFIGURATIONS_MAX, TRIALS_MAX};
use weir_core::shown::Shown;

/// Events of the timeline that are kept; a run with more is not read by people.
const EVENTS_MAX: usize = 200_000;
/// Folders of services that are looked at.
const SERVICES_MAX: usize = 1_000;
/// Room for the events that are kept, and for the records of trials, as `weight` has it. With the curves (`curve.rs`) a folder of
/// any size is read within 256 MiB.
const ROOM: Room = Room { timeline_bytes: 80 << 20, trials_bytes: 80 << 20 };

#[derive(Clone, Copy, Debug)]
struct Room {
    timeline_bytes: usize,
    trials_bytes: usize,
}

/// A metric's definition as it travels with the results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Definition {
    pub name: String,
    pub unit: String,
    /// `higher`, `lower` or `neither`.
    pub better: String,
    pub scope: String,
    pub definition: String,
    /// Its place among the columns beside every point.
    #[serde(default)]
    pub column: Option<u8>,
    /// Drawn against a swept parameter whether it is judged or not.
    #[serde(default)]
    pub swept: bool,
}

/// A service as `services/NAME/service.json` has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct ServiceRecord {
    /// Of its folder.
    #[serde(default)]
    pub name: String,
    pub system: String,
    #[serde(default)]
    pub version: String,
    /// What clients name it by.
    #[serde(default)]
    pub at: String,
    /// Hosts by role.
    #[serde(default)]
    pub place: BTreeMap<String, Vec<String>>,
    /// Options that are not as its recipe has them by itself.
    #[serde(default)]
    pub tuning: BTreeMap<String, String>,
}

/// Services of a run, in the order of their names.
fn services(path: &Path, notes: &mut Vec<String>) -> Result<Vec<ServiceRecord>, FolderError> {
    let mut found: Vec<ServiceRecord> = Vec::new();
    let entries = fs::read_dir(path.join("services")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names.into_iter().take(SERVICES_MAX) {
        let Some(record) = document::<ServiceRecord>(path, &format!("services/{name}/service.json"), notes)?
        else {
            continue;
        };
        // One that was up several times has several folders.
        let name = name.split('~').next().unwrap_or_default().to_owned();
        let record = ServiceRecord { name, ..record };
        if !found.contains(&record) {
            found.push(record);
        }
    }
    Ok(found)
}

/// What a results folder holds. What is missing is `None` or empty and said in `notes`.
#[derive(Debug, Default)]
pub struct Folder {
    pub path: PathBuf,
    pub scenario_toml: Option<String>,
    pub environment: Option<serde_json::Value>,
    /// Services that were up, each as often as it was another.
    pub(crate) services: Vec<ServiceRecord>,
    pub plan: Option<PlanRecord>,
    pub definitions: Vec<Definition>,
    pub timeline: Vec<TimelineEvent>,
    /// In the order of the file, as many as there is room for.
    pub trials: Vec<TrialRecord>,
    /// Records of `trials.jsonl`, and the valid ones of them, those that there was no room for included.
    pub(crate) trial_count: usize,
    pub(crate) valid_count: usize,
    pub summary: Option<Summary>,
    /// What is missing or was cut short, in sentences.
    pub notes: Vec<String>,
    pub(crate) curves: Curves,
    pub(crate) long: LongViews,
    pub(crate) failures: FailureKinds,
    pub(crate) operations: OperationViews,
    /// How whoever measured wants it shown.
    pub(crate) shown: Shown,
}

impl Folder {
    /// Reads the folder at `path`. A missing file or a last line cut short is a note; anything else that is wrong is an
    /// error with file and line. Series are reduced while they are read, so memory does not grow with their length.
    pub fn read(path: &Path) -> Result<Folder, FolderError> {
        Folder::read_within(path, ROOM)
    }

    fn read_within(path: &Path, room: Room) -> Result<Folder, FolderError> {
        let whole = |problem: String| FolderError { path: path.to_owned(), line: None, problem };
        if !path.is_dir() {
            return Err(whole("is not a folder; give the folder of a run, results/NAME/TIME".to_owned()));
        }
        let mut folder = Folder { path: path.to_owned(), ..Folder::default() };
        let notes = &mut Vec::new();
        folder.summary = document(path, "summary.json", notes)?;
        folder.plan = document(path, "plan.json", notes)?;
        if let Some(plan) = &folder.plan {
            check_plan(plan).map_err(|problem| FolderError {
                path: path.join("plan.json"),
                line: None,
                problem,
            })?;
        }
        folder.definitions = document(path, "metrics.json", notes)?.unwrap_or_default();
        folder.shown =
            if path.join(SHOWN).exists() { document(path, SHOWN, notes)? } else { None }.unwrap_or_default();
        folder.environment = document(path, "environment.json", notes)?;
        folder.services = services(path, notes)?;
        folder.scenario_toml = text(path, "scenario.toml", notes)?;
        if let (Some(plan), Some(scenario_toml)) = (&folder.plan, &folder.scenario_toml) {
            check_scenario(plan, scenario_toml).map_err(|problem| FolderError {
                path: path.join("scenario.toml"),
                line: None,
                problem,
            })?;
        }

        let mut timeline = Kept::within(room.timeline_bytes, EVENTS_MAX);
        lines(path, "timeline.jsonl", notes, |event: TimelineEvent| {
            let weight = weight::of_event(&event);
            timeline.add(event, weight);
            Ok(())
        })?;
        // What is known late of a trial is written late.
        for of_trial in
            timeline.all.chunk_by_mut(|a, b| (&a.configuration, a.trial) == (&b.configuration, b.trial))
        {
            of_trial.sort_by_key(|event| event.at_ns);
        }
        let mut trials = Kept::within(room.trials_bytes, usize::MAX);
        lines(path, "trials.jsonl", notes, |mut trial: TrialRecord| {
            check_trial(&trial)?;
            folder.trial_count += 1;
            folder.valid_count += usize::from(trial.valid);
            trial.rows.shrink_to_fit();
            let weight = weight::of_trial(&trial);
            trials.add(trial, weight);
            Ok(())
        })?;
        folder.curves.emphasise(&trials.all, trials.left_out > 0);
        let curves = &mut folder.curves;
        // Before the whole ones: a trial that ends meanwhile is then among these.
        let mut running = Running::read(path, notes);
        lines(path, "samples.jsonl", notes, |samples: SampleRecord| {
            running.note_whole(&samples);
            curves.add(samples)
        })?;
        let (not_ended, said) = running.finish();
        notes.extend(said);
        not_ended.into_iter().try_for_each(|samples| curves.add(samples)).map_err(whole)?;
        if path.join(CHUNKS).exists() {
            let sets = Sets::read(path, notes)?;
            let (curves, long, operations) = (&folder.curves, &mut folder.long, &mut folder.operations);
            lines(path, CHUNKS, notes, |record: ChunkRecord| {
                let trial = curves.emphasised(&record.point);
                let Some(set) = sets.named(&record.chunk.fields) else {
                    long.pass_over();
                    return Ok(());
                };
                let added = if set.shown.is_some() {
                    operations.add(&record, set, trial)
                } else {
                    long.add(&record, set.fields.len(), trial)
                };
                // Damage is told wherever it is: a table has every field of every trial.
                added.map_err(|error| format!("the fine series of {:?}: {error}", record.chunk.entity))
            })?;
        }
        notes.extend(folder.long.note());
        if path.join(FAILURES).exists() {
            lines(path, FAILURES, notes, |record: FailureRecord| {
                folder.failures.add(record);
                Ok(())
            })?;
        }
        notes.extend(folder.failures.note());
        if let Some(note) = folder.curves.note() {
            notes.push(note);
        }
        for (name, what, kept, left_out) in [
            ("timeline.jsonl", "events", timeline.all.len(), timeline.left_out),
            ("trials.jsonl", "trials of steps", trials.all.len(), trials.left_out),
        ] {
            if left_out > 0 {
                notes.push(format!("{name}: {left_out} {what} beyond the first {kept} were left out"));
            }
        }
        (folder.timeline, folder.trials) = (timeline.all, trials.all);
        folder.notes.append(notes);
        let nothing = folder.summary.is_none() && folder.plan.is_none() && folder.trials.is_empty();
        if nothing && folder.timeline.is_empty() && folder.scenario_toml.is_none() {
            return Err(whole(
                "holds none of scenario.toml, plan.json, timeline.jsonl, trials.jsonl, summary.json; it is not the \
                 folder of a run"
                    .to_owned(),
            ));
        }
        Ok(folder)
    }

    /// The summary alone of the folder at `path`; `None` when its run did not finish.
    pub(crate) fn summary_of(path: &Path) -> Result<Option<Summary>, FolderError> {
        document(path, "summary.json", &mut Vec::new())
    }

    /// A folder in memory, for a measurement that keeps none: the summary alone.
    pub fn of_summary(summary: Summary) -> Folder {
        Folder { summary: Some(summary), ..Folder::default() }
    }

    pub(crate) fn definition(&self, metric: &str) -> Option<&Definition> {
        let name = metric.split('@').next().unwrap_or(metric);
        self.definitions.iter().find(|definition| definition.name == name)
    }

    /// Names of metrics of which the folder has a figure.
    pub(crate) fn used(&self) -> BTreeSet<&str> {
        let of_points = self.summary.iter().flat_map(|it| &it.points).flat_map(|point| point.metrics.keys());
        let of_trials = self.trials.iter().flat_map(|trial| &trial.rows).map(|row| &row.metric);
        of_points.chain(of_trials).map(|name| name.split('@').next().unwrap_or(name)).collect()
    }

    /// Says how the folder of a program that did not say so itself is drawn.
    pub fn or_shown(mut self, shown: impl FnOnce() -> Shown) -> Folder {
        if self.shown == Shown::default() {
            self.shown = shown();
        }
        self
    }

    /// Whether a metric's values are those of many operations, told by their middle.
    pub(crate) fn is_distribution(&self, metric: &str) -> bool {
        self.definition(metric).is_some_and(|it| it.scope == "operation")
    }

    /// Whether a metric is the rate of a whole step, which the path's ceiling bounds.
    pub(crate) fn is_whole_rate(&self, metric: &str) -> bool {
        self.definition(metric).is_some_and(|it| it.scope == "trial" && it.unit == "bit/s")
    }
}

/// The first of many things, as many as there is room for.
struct Kept<K> {
    all: Vec<K>,
    room_bytes: usize,
    count_max: usize,
    left_out: usize,
}

impl<K> Kept<K> {
    fn within(room_bytes: usize, count_max: usize) -> Kept<K> {
        Kept { all: Vec::new(), room_bytes, count_max, left_out: 0 }
    }

    /// After the first that has no room none is kept, so that those kept are a stretch of the run.
    fn add(&mut self, one: K, weight_bytes: usize) {
        let fits = self.left_out == 0 && self.all.len() < self.count_max;
        match self.room_bytes.checked_sub(weight_bytes).filter(|_| fits) {
            Some(left) => {
                self.room_bytes = left;
                self.all.push(one);
            }
            None => self.left_out += 1,
        }
    }
}

/// What `plan.json` keeps of the resolved scenario, so that it is told when that is no longer the one that was run.
pub fn scenario_digest(scenario_toml: &str) -> String {
    blake3::hash(scenario_toml.as_bytes()).to_hex().to_string()
}

/// A scenario that lost criteria on the way would pass where the run failed.
// Spec: results.md#results-17
fn check_scenario(plan: &PlanRecord, scenario_toml: &str) -> Result<(), String> {
    match &plan.scenario_blake3 {
        Some(digest) if *digest != scenario_digest(scenario_toml) => Err(format!(
            "is not the one that was run: its {} bytes have another BLAKE3 than plan.json says; put it back from a copy, or \
             take it away to draw the report without it",
            scenario_toml.len()
        )),
        _ => Ok(()),
    }
}

/// Indices that the drawing follows must exist, and counts be such as a scenario may have.
fn check_plan(plan: &PlanRecord) -> Result<(), String> {
    let counts = [
        ("trials", plan.trials as usize, TRIALS_MAX as usize),
        ("configurations", plan.configurations.len(), CONFIGURATIONS_MAX),
    ];
    for (what, count, most) in counts {
        if !(1..=most).contains(&count) {
            return Err(format!("says {count} {what}; a run has 1 to {most}"));
        }
    }
    for configuration in &plan.configurations {
        let topology = &configuration.topology;
        let sites = topology.sites.len();
        let id = &configuration.id;
        for host in &topology.hosts {
            if host.site >= sites {
                return Err(format!(
                    "configuration {id:?}: host {:?} is at site {} of {sites}",
                    host.name, host.site
                ));
            }
        }
        for link in &topology.links {
            if link.between.iter().any(|site| *site >= sites) {
                return Err(format!(
                    "configuration {id:?}: link {:?} is between sites {:?} of {sites}",
                    link.name, link.between
                ));
            }
        }
    }
    Ok(())
}

fn check_trial(trial: &TrialRecord) -> Result<(), String> {
    for row in &trial.rows {
        if let Observed::Histogram(histogram) = &row.value {
            let name = &row.metric;
            if histogram.value_ns.len() != histogram.count.len() {
                return Err(format!("the histogram of {name:?} has not one count for each value"));
            }
            if !histogram.value_ns.is_sorted() {
                return Err(format!("the values of the histogram of {name:?} do not ascend"));
            }
            let total = histogram.count.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
            if total.is_none_or(|total| total > 1 << 53) {
                return Err(format!("the histogram of {name:?} counts more than can be"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::fs::{self, File};
    use std::io::Write;

    #[test]
    fn events_written_late_are_read_in_the_order_of_their_trial_and_trials_in_that_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let line = |trial: u32, at_ns: u64| {
            format!(
                "{{\"at_ns\":{at_ns},\"utc\":\"\",\"event\":\"e\",\"configuration\":\"\",\"trial\":{trial},\"text\":\"\"}}\n"
            )
        };
        // After a restart of the machine its clock counts from 0 again.
        let lines = [line(0, 50), line(0, 70), line(0, 60), line(1, 9), line(1, 7)];
        fs::write(directory.path().join("timeline.jsonl"), lines.concat()).unwrap();
        let folder = Folder::read(directory.path()).unwrap();
        let read: Vec<u64> = folder.timeline.iter().map(|event| event.at_ns).collect();
        assert_eq!(read, [50, 60, 70, 7, 9]);
    }

    // Spec: results.md#results-6
    #[test]
    fn a_folder_beyond_what_weir_writes_is_refused_or_read_in_part_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        sample::write(&run, &sample::summary(), 400);
        let first = fs::read_to_string(run.join("timeline.jsonl")).unwrap();
        let line = first.lines().next().unwrap();
        let mut timeline = std::io::BufWriter::new(File::create(run.join("timeline.jsonl")).unwrap());
        for _ in 0..EVENTS_MAX + 2 {
            writeln!(timeline, "{line}").unwrap();
        }
        timeline.flush().unwrap();
        let folder = Folder::read(&run).unwrap();
        assert_eq!(folder.timeline.len(), EVENTS_MAX);
        assert!(
            folder.notes.iter().any(|note| note.contains("2 events beyond the first 200000")),
            "{:?}",
            folder.notes
        );
        // Holes in the files, so that nothing of that size is written.
        let refused = |name: &str, mebibytes: u64| {
            let path = run.join(name);
            let kept = fs::read(&path).unwrap();
            File::create(&path).unwrap().set_len((mebibytes << 20) + 1).unwrap();
            let refused = Folder::read(&run).unwrap_err().to_string();
            fs::write(&path, kept).unwrap();
            refused
        };
        assert!(refused("plan.json", 64).contains("plan.json: is larger than 64 MiB"));
        let line = refused("trials.jsonl", 256);
        assert!(line.contains("trials.jsonl line 1") && line.contains("256 MiB"), "{line}");
    }

    // Spec: results.md#results-6
    #[test]
    fn trials_beyond_the_room_for_them_are_counted_and_left_out_and_those_before_them_are_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        sample::write(&run, &sample::summary(), 400);
        let whole = Folder::read(&run).unwrap();
        assert_eq!((whole.trial_count, whole.valid_count, whole.trials.len()), (20, 19, 20));
        let weight: usize = whole.trials.iter().map(weight::of_trial).sum();
        // Texts, numbers and their structures: what is kept of a line is of the size of the line, and not of a multiple.
        let lines = fs::metadata(run.join("trials.jsonl")).unwrap().len() as usize;
        assert!((lines / 2..lines * 4).contains(&weight), "{weight} bytes for {lines} of text");
        let half = Folder::read_within(&run, Room { trials_bytes: weight / 2, ..ROOM }).unwrap();
        let kept = half.trials.len();
        assert!((5..15).contains(&kept) && half.trials[..] == whole.trials[..kept], "{kept} of 20");
        assert_eq!((half.trial_count, half.valid_count), (20, 19));
        let said =
            format!("trials.jsonl: {} trials of steps beyond the first {kept} were left out", 20 - kept);
        assert!(half.notes.contains(&said), "{:?}", half.notes);
        let page = crate::html(&half);
        assert!(page.contains(&said));
        let timeline: usize = whole.timeline.iter().map(weight::of_event).sum();
        let half = Folder::read_within(&run, Room { timeline_bytes: timeline / 2, ..ROOM }).unwrap();
        assert!(half.timeline.len() < whole.timeline.len() && half.trials.len() == 20);
    }

    // Spec: results.md#results-17
    #[test]
    fn a_scenario_with_any_byte_lost_or_changed_is_refused_and_one_from_before_the_digest_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        sample::write(run, &sample::summary(), 2_000);
        let text = fs::read_to_string(run.join("scenario.toml")).unwrap();
        Folder::read(run).unwrap();
        let mut plan = sample::plan();
        plan.scenario_blake3 = Some(scenario_digest(&text));
        fs::write(run.join("plan.json"), serde_json::to_string(&plan).unwrap()).unwrap();
        Folder::read(run).unwrap();
        let bytes = text.as_bytes();
        let cuts = (0..bytes.len()).map(|length| bytes[..length].to_vec());
        let flips = (0..bytes.len() * 8).map(|bit| {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        });
        for damaged in cuts.chain(flips) {
            fs::write(run.join("scenario.toml"), &damaged).unwrap();
            let refused = Folder::read(run).unwrap_err().to_string();
            assert!(refused.contains("scenario.toml"), "{refused}");
            assert!(crate::Interrupted::read(run).is_err());
        }
        // A run that goes on has nothing to go by; a report has the rest.
        fs::remove_file(run.join("scenario.toml")).unwrap();
        assert!(crate::Interrupted::read(run).is_err() && Folder::read(run).is_ok());
    }

    // Spec: results.md#results-6
    #[test]
    fn counts_that_no_scenario_can_have_are_refused_before_anything_goes_by_them() {
        let directory = tempfile::tempdir().unwrap();
        sample::write(directory.path(), &sample::summary(), 2_000);
        for trials in [0, TRIALS_MAX + 1, u32::MAX] {
            let plan = PlanRecord { trials, ..sample::plan() };
            fs::write(directory.path().join("plan.json"), serde_json::to_string(&plan).unwrap()).unwrap();
            let said = format!("plan.json: says {trials} trials; a run has 1 to 10000");
            let refused = Folder::read(directory.path()).unwrap_err().to_string();
            assert!(refused.ends_with(&said), "{refused}");
            let refused = crate::Interrupted::read(directory.path()).unwrap_err().to_string();
            assert!(refused.contains(&said), "{refused}");
        }
    }
}
