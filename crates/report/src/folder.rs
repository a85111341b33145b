//! Reads a results folder, whole or left behind by a killed run.

use crate::curve::Curves;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::record::{Observed, PlanRecord, SampleRecord, Summary, TimelineEvent, TrialRecord};

/// Largest single document (`summary.json`, …) and largest line; beyond it a file is not one of ours.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Events of the timeline that are kept; a run with more is not read by people.
const EVENTS_MAX: usize = 200_000;

/// Why a folder cannot be read: which file, which line, what is wrong with it.
#[derive(Debug, Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(" line {line}")).unwrap_or_default())]
pub struct FolderError {
    pub path: PathBuf,
    pub line: Option<usize>,
    pub problem: String,
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
        if let Some(summary) = &folder.summary
            && summary.schema != weir_core::record::SUMMARY_SCHEMA
        {
            return Err(FolderError {
                path: path.join("summary.json"),
                line: None,
                problem: format!(
                    "has the schema {:?}; this weir reads {:?}",
                    summary.schema,
                    weir_core::record::SUMMARY_SCHEMA
                ),
            });
        }
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
        lines(path, "trials.jsonl", notes, |trial: TrialRecord| {
            check_trial(&trial)?;
            trials.push(trial);
            Ok(())
        })?;
        folder.curves.emphasise(&folder.trials);
        let curves = &mut folder.curves;
        lines(path, "samples.jsonl", notes, |samples: SampleRecord| curves.add(samples))?;
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

fn open(directory: &Path, name: &str, notes: &mut Vec<String>) -> Result<Option<File>, FolderError> {
    let path = directory.join(name);
    // Looked at before it is opened: opening a named pipe would wait for a writer that never comes.
    let opened = std::fs::metadata(&path)
        .and_then(|about| if about.is_file() { File::open(&path).map(Some) } else { Ok(None) });
    match opened {
        Ok(Some(file)) => Ok(Some(file)),
        Ok(None) => Err(FolderError { path, line: None, problem: "is not a regular file".to_owned() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            notes.push(format!("{name} is missing"));
            Ok(None)
        }
        Err(error) => Err(FolderError { path, line: None, problem: format!("cannot be read: {error}") }),
    }
}

fn text(directory: &Path, name: &str, notes: &mut Vec<String>) -> Result<Option<String>, FolderError> {
    let Some(file) = open(directory, name, notes)? else { return Ok(None) };
    let failed = |problem: String| FolderError { path: directory.join(name), line: None, problem };
    let mut bytes = Vec::new();
    file.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(failed(format!("is larger than {} MiB", DOCUMENT_BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| FolderError {
        line: Some(
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
        ),
        path: directory.join(name),
        problem: "is not UTF-8 text".to_owned(),
    })
}

fn document<D: DeserializeOwned>(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Option<D>, FolderError> {
    let Some(text) = text(directory, name, notes)? else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.is_eof() => {
            notes.push(format!("{name} was cut short and is left out"));
            Ok(None)
        }
        Err(error) => Err(FolderError {
            path: directory.join(name),
            line: Some(error.line()),
            problem: bounded(&error.to_string()),
        }),
    }
}

/// Hands each line's record to `keep`. Only the last line may be cut short: it has no newline and does not parse.
fn lines<D: DeserializeOwned>(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
    mut keep: impl FnMut(D) -> Result<(), String>,
) -> Result<(), FolderError> {
    let Some(file) = open(directory, name, notes)? else { return Ok(()) };
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut line = Vec::new();
    for number in 1.. {
        let failed = |problem: String| FolderError {
            path: directory.join(name),
            line: Some(number),
            problem: bounded(&problem),
        };
        line.clear();
        let length = reader
            .by_ref()
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)
            .map_err(|error| failed(format!("cannot be read: {error}")))?;
        if length == 0 {
            break;
        }
        if length as u64 > LINE_BYTES_MAX {
            return Err(failed(format!("is longer than {} MiB", LINE_BYTES_MAX >> 20)));
        }
        let whole = line.last() == Some(&b'\n');
        let record = line.trim_ascii();
        if record.is_empty() {
            continue;
        }
        match serde_json::from_slice(record) {
            Ok(record) => keep(record).map_err(failed)?,
            Err(error) if !whole && error.is_eof() => {
                notes.push(format!("{name}: line {number}, the last, was cut short and is left out"));
            }
            Err(error) => return Err(failed(format!("{error} (a record is one JSON object a line)"))),
        }
    }
    Ok(())
}

/// An error message quotes the offending text; a hostile one must not flood the terminal.
fn bounded(problem: &str) -> String {
    let clean: String =
        problem.chars().map(|letter| crate::escape::visible(letter).unwrap_or(letter)).take(300).collect();
    if clean.chars().count() < problem.chars().count() { clean + "…" } else { clean }
}
