//! Reads a results folder, whole or left behind by a killed run.

use crate::curve::Curves;
use crate::long::LongViews;
use crate::read::{FolderError, document, lines, text};
use crate::writer::CHUNKS;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_core::chunk::ChunkRecord;
use weir_core::record::{Observed, PlanRecord, SampleRecord, Summary, TimelineEvent, TrialRecord};

/// Events of the timeline that are kept; a run with more is not read by people.
const EVENTS_MAX: usize = 200_000;

/// A metric's definition as it travels with the results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Definition {
    pub name: String,
    pub unit: String,
    /// `higher`, `lower` or `neither`.
    pub better: String,
    pub scope: String,
    pub definition: String,
}

/// What a results folder holds. What is missing is `None` or empty and said in `notes`.
#[derive(Debug, Default)]
pub struct Folder {
    pub path: PathBuf,
    pub scenario_toml: Option<String>,
    pub environment: Option<serde_json::Value>,
    pub plan: Option<PlanRecord>,
    pub definitions: Vec<Definition>,
    pub timeline: Vec<TimelineEvent>,
    pub trials: Vec<TrialRecord>,
    pub summary: Option<Summary>,
    /// What is missing or was cut short, in sentences.
    pub notes: Vec<String>,
    pub(crate) curves: Curves,
    pub(crate) long: LongViews,
}

impl Folder {
    /// Reads the folder at `path`. A missing file or a last line cut short is a note; anything else that is wrong is an
    /// error with file and line. Series are reduced while they are read, so memory does not grow with their length.
    pub fn read(path: &Path) -> Result<Folder, FolderError> {
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
        folder.environment = document(path, "environment.json", notes)?;
        folder.scenario_toml = text(path, "scenario.toml", notes)?;

        let (timeline, trials) = (&mut folder.timeline, &mut folder.trials);
        let mut left_out = 0_usize;
        lines(path, "timeline.jsonl", notes, |event: TimelineEvent| {
            if timeline.len() < EVENTS_MAX {
                timeline.push(event)
            } else {
                left_out += 1
            }
            Ok(())
        })?;
        // What is known late of a trial is written late.
        for of_trial in
            timeline.chunk_by_mut(|a, b| (&a.configuration, a.trial) == (&b.configuration, b.trial))
        {
            of_trial.sort_by_key(|event| event.at_ns);
        }
        lines(path, "trials.jsonl", notes, |trial: TrialRecord| {
            check_trial(&trial)?;
            trials.push(trial);
            Ok(())
        })?;
        folder.curves.emphasise(&folder.trials);
        let curves = &mut folder.curves;
        lines(path, "samples.jsonl", notes, |samples: SampleRecord| curves.add(samples))?;
        if path.join(CHUNKS).exists() {
            let (curves, long) = (&folder.curves, &mut folder.long);
            lines(path, CHUNKS, notes, |record: ChunkRecord| {
                long.add(&record, curves.emphasised(&record.point))
            })?;
        }
        notes.extend(folder.long.note());
        if let Some(note) = folder.curves.note() {
            notes.push(note);
        }
        if left_out > 0 {
            notes.push(format!(
                "timeline.jsonl: {left_out} events beyond the first {EVENTS_MAX} were left out"
            ));
        }
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
}

/// Indices that the drawing follows must exist.
fn check_plan(plan: &PlanRecord) -> Result<(), String> {
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
}
