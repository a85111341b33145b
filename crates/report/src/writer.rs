//! Writes a results folder as the run goes: whole lines, so that a killed run leaves a folder that can be read.

use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::chunk::ChunkRecord;
use weir_core::metric::Metric;
use weir_core::record::{Observed, PlanRecord, SampleRecord, Summary, TimelineEvent, TrialRecord};

/// Fine series as they came; only of runs that have some.
pub(crate) const CHUNKS: &str = "chunks.jsonl";

/// Writing failed; what was written before is whole and stays readable.
#[derive(Debug, Error)]
#[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
pub struct WriteError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (what was measured so far is kept; make room or choose another folder with --out)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (choose a folder you may write to with --out)"
        }
        _ => "",
    }
}

/// One results folder being written.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    timeline: Lines,
    trials: Lines,
    samples: Lines,
}

impl Writer {
    /// Creates `directory` (and its parents) with its three line files. Errors: it holds a run already, or cannot be
    /// written.
    pub fn create(directory: &Path) -> Result<Writer, WriteError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| WriteError { action, path, source }
        };
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let open = |name: &str| -> Result<Lines, WriteError> {
            let path = directory.join(name);
            let file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(&path)
                .map_err(failed("create", &path))?;
            Ok(Lines::new(path, file))
        };
        let timeline = open("timeline.jsonl")?;
        // Held until this process is gone, so that no other goes on with a run that is still under way. A file system
        // without locks has a run all the same.
        let _ = timeline.file.try_lock();
        Ok(Writer::on(directory.to_owned(), timeline, open("trials.jsonl")?, open("samples.jsonl")?))
    }

    pub(crate) fn on(directory: PathBuf, timeline: Lines, trials: Lines, samples: Lines) -> Writer {
        Writer { directory, timeline, trials, samples }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The resolved scenario, every default spelled out.
    pub fn scenario_toml(&self, text: &str) -> Result<(), WriteError> {
        self.whole_file("scenario.toml", text.as_bytes())
    }

    /// Kernel, CPU, sysctls, versions, clock source, load before start; any shape.
    pub fn environment(&self, environment: &serde_json::Value) -> Result<(), WriteError> {
        self.document("environment.json", environment)
    }

    pub fn plan(&self, plan: &PlanRecord) -> Result<(), WriteError> {
        self.document("plan.json", plan)
    }

    /// Definitions of every metric used.
    pub fn metrics(&self, metrics: &[Metric]) -> Result<(), WriteError> {
        self.document("metrics.json", metrics)
    }

    pub fn summary(&self, summary: &Summary) -> Result<(), WriteError> {
        self.document("summary.json", summary)
    }

    /// `report.html`, or another rendering of the finished run, by name.
    pub fn rendering(&self, name: &'static str, text: &str) -> Result<PathBuf, WriteError> {
        self.whole_file(name, text.as_bytes())?;
        Ok(self.directory.join(name))
    }

    pub fn timeline(&mut self, event: &TimelineEvent) -> Result<(), WriteError> {
        self.timeline.append(event)
    }

    /// Refuses values that are no numbers: what was not measured is left out and explained, never written as null.
    pub fn trial(&mut self, trial: &TrialRecord) -> Result<(), WriteError> {
        for row in &trial.rows {
            let finite = match &row.value {
                Observed::Value(value) => value.is_finite(),
                Observed::Histogram(histogram) => histogram.sum_ns.is_finite(),
            };
            if !finite {
                return Err(self.trials.refuse(format!("{} of {} is not a number", row.metric, row.entity)));
            }
        }
        self.trials.append(trial)
    }

    /// Refuses values that are no numbers, as `trial` does.
    pub fn samples(&mut self, samples: &SampleRecord) -> Result<(), WriteError> {
        let series = &samples.series;
        if series.t_ns.len() != series.value.len() || !series.value.iter().all(|value| value.is_finite()) {
            let problem = format!(
                "series {} of {} holds a value that is not a number, or lacks one",
                series.name, series.entity
            );
            return Err(self.samples.refuse(problem));
        }
        self.samples.append(samples)
    }

    /// Where fine series go while a trial is under way; the file is there from the first of them on.
    pub fn chunks(&self) -> ChunkWriter {
        ChunkWriter::within(&self.directory)
    }

    fn document<D: Serialize + ?Sized>(&self, name: &str, document: &D) -> Result<(), WriteError> {
        let mut bytes = serde_json::to_vec_pretty(document).map_err(|error| WriteError {
            action: "write",
            path: self.directory.join(name),
            source: error.into(),
        })?;
        bytes.push(b'\n');
        self.whole_file(name, &bytes)
    }

    /// Written beside and renamed, so that the file is there whole or not at all.
    fn whole_file(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        let partial = self.directory.join(format!("{name}.partial"));
        let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, &path));
        written.map_err(|source| {
            // Best effort: the error that matters is the one reported.
            let _ = fs::remove_file(&partial);
            WriteError { action: "write", path, source }
        })
    }
}

/// Appends fine series to the `chunks.jsonl` of a folder.
#[derive(Debug)]
pub struct ChunkWriter {
    path: PathBuf,
    lines: Option<Lines>,
}

impl ChunkWriter {
    pub fn within(directory: &Path) -> ChunkWriter {
        ChunkWriter { path: directory.join(CHUNKS), lines: None }
    }

    pub fn append(&mut self, chunk: &ChunkRecord) -> Result<(), WriteError> {
        if self.lines.is_none() {
            let opened = OpenOptions::new().append(true).create(true).open(&self.path);
            let file =
                opened.map_err(|source| WriteError { action: "create", path: self.path.clone(), source })?;
            self.lines = Some(Lines::new(self.path.clone(), file));
        }
        self.lines.as_mut().map_or(Ok(()), |lines| lines.append(chunk))
    }
}

/// A file of JSON lines.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: File,
    /// Kept between lines: a line of samples may have megabytes.
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(path: PathBuf, file: File) -> Lines {
        Lines { path, file, buffer: Vec::new() }
    }

    fn refuse(&self, problem: String) -> WriteError {
        let source = io::Error::new(io::ErrorKind::InvalidData, problem);
        WriteError { action: "append to", path: self.path.clone(), source }
    }

    fn append<L: Serialize>(&mut self, line: &L) -> Result<(), WriteError> {
        self.buffer.clear();
        let result = serde_json::to_writer(&mut self.buffer, line).map_err(io::Error::from).and_then(|()| {
            self.buffer.push(b'\n');
            let whole_bytes = self.file.metadata()?.len();
            self.file.write_all(&self.buffer).inspect_err(|_| {
                // A full disk takes part of a line; taking it back leaves whole lines for the reader. If even that
                // fails, the reader knows how to leave out a last line that was cut short.
                let _ = self.file.set_len(whole_bytes);
            })
        });
        result.map_err(|source| WriteError { action: "append to", path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: results.md#results-5
    #[test]
    fn a_folder_that_holds_a_run_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        drop(Writer::create(folder.path()).unwrap());
        let refused = Writer::create(folder.path()).unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::AlreadyExists, "{refused}");
    }

    // Spec: results.md#results-1
    #[test]
    fn a_document_is_there_whole_or_as_it_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path()).unwrap();
        writer.scenario_toml("first").unwrap();
        let names = |folder: &Path| {
            let found =
                fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
            found.collect::<std::collections::BTreeSet<String>>()
        };
        let expected = ["samples.jsonl", "scenario.toml", "timeline.jsonl", "trials.jsonl"];
        assert_eq!(names(folder.path()), expected.map(str::to_owned).into());
        // What it is written to beside cannot be written.
        fs::create_dir(folder.path().join("scenario.toml.partial")).unwrap();
        assert!(writer.scenario_toml("second").unwrap_err().to_string().contains("scenario.toml"));
        assert_eq!(fs::read_to_string(folder.path().join("scenario.toml")).unwrap(), "first");
    }

    // Spec: results.md#results-2
    #[test]
    fn a_full_disk_is_reported_with_the_file_and_what_to_do() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().append(true).open(&path).expect("Linux has this device");
        let error = Lines { path, file, buffer: Vec::new() }.append(&"a line").unwrap_err().to_string();
        assert!(error.starts_with("cannot append to /dev/full: ") && error.contains("--out"), "{error}");
    }
}
