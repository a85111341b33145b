//! Writes a results folder as the run goes: whole lines, so that a killed run leaves a folder that can be read.

use crate::records::Place;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::chunk::{ChunkRecord, FieldSetRecord};
use weir_core::failure::FailureRecord;
use weir_core::metric::Metric;
use weir_core::record::{Observed, PlanRecord, SampleRecord, Summary, TimelineEvent, TrialRecord};
use weir_core::shown::Shown;
use weir_sys::directory::{Directory, begin_sync};

/// Fine series as they came; only of runs that have some.
pub(crate) const CHUNKS: &str = "chunks.jsonl";
/// What the fields of those are; folders of before lack it.
pub(crate) const RECORDS: &str = "records.json";
pub(crate) const SHOWN: &str = "shown.json";
/// What failed; only of runs in which something did.
pub(crate) const FAILURES: &str = "failures.jsonl";
/// Samples of the trial that runs, stretch by stretch.
pub(crate) const RUNNING: &str = "running.jsonl";
/// The folder of captures in a results folder.
pub const CAPTURES: &str = "captures";

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

/// One results folder being written. Every file of it is made by `Directory`, which follows no links.
#[derive(Debug)]
pub struct Writer {
    directory: Directory,
    timeline: Lines,
    trials: Lines,
    samples: Lines,
    /// From the first fine series on.
    chunks: Option<Lines>,
    /// From the first failure on.
    failures: Option<Lines>,
    /// From a trial's first stretch of samples to its end.
    running: Option<Lines>,
    /// Files that others fill, until a trial's end syncs them.
    captures: Vec<Lines>,
}

impl Writer {
    /// Creates `directory` (and its parents) with its three line files. Errors: it holds a run already, or cannot be
    /// written.
    pub fn create(directory: &Path) -> Result<Writer, WriteError> {
        Writer::create_below(directory, &[])
    }

    /// As `create`, the folder being that of these names below `out`. Links in `out` are the user's own and followed; below
    /// it none is.
    pub fn create_below(out: &Path, names: &[&str]) -> Result<Writer, WriteError> {
        let mut directory = Directory::create(out).map_err(failed("create", out))?;
        for name in names {
            let path = directory.path().join(name);
            directory = directory.folder(name).map_err(failed("create", &path))?;
        }
        let open = |name: &str| -> Result<Lines, WriteError> {
            let path = directory.path().join(name);
            let file = directory.create_new(name).map_err(failed("create", &path))?;
            Ok(Lines::new(path, file))
        };
        let timeline = open("timeline.jsonl")?;
        // Held until this process is gone, so that no other goes on with a run that is still under way. A file system
        // without locks has a run all the same.
        let _ = timeline.file.try_lock();
        let (trials, samples) = (open("trials.jsonl")?, open("samples.jsonl")?);
        Ok(Writer::on(directory, timeline, trials, samples))
    }

    pub(crate) fn on(directory: Directory, timeline: Lines, trials: Lines, samples: Lines) -> Writer {
        Writer {
            directory,
            timeline,
            trials,
            samples,
            chunks: None,
            failures: None,
            running: None,
            captures: Vec::new(),
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
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

    /// Fields of every kind of record that `chunks.jsonl` may have.
    pub fn records(&self, sets: &[FieldSetRecord]) -> Result<(), WriteError> {
        self.document(RECORDS, sets)
    }

    /// How series and counts are drawn.
    pub fn shown(&self, shown: &Shown) -> Result<(), WriteError> {
        self.document(SHOWN, shown)
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
        Ok(self.directory().join(name))
    }

    pub fn timeline(&mut self, event: &TimelineEvent) -> Result<(), WriteError> {
        self.timeline.append(event).map(drop)
    }

    /// The records of all steps of a trial that is over. They are what makes it a finished one, so whatever else was said and
    /// measured of it is on the disk before them, and they are there before this returns: a power cut takes the trial that
    /// runs, and nothing of those before it.
    ///
    /// Refuses values that are no numbers: what was not measured is left out and explained, never written as null. Gives where
    /// each record is.
    pub fn trial(&mut self, steps: &[TrialRecord]) -> Result<Vec<Place>, WriteError> {
        for row in steps.iter().flat_map(|step| &step.rows) {
            let finite = match &row.value {
                Observed::Value(value) => value.is_finite(),
                Observed::Histogram(histogram) => histogram.sum_ns.is_finite(),
            };
            if !finite {
                return Err(self.trials.refuse(format!("{} of {} is not a number", row.metric, row.entity)));
            }
        }
        let captures = std::mem::take(&mut self.captures);
        let some = || self.chunks.iter().chain(&self.failures);
        let measured = || [&self.timeline, &self.samples].into_iter().chain(some()).chain(&captures);
        measured().for_each(|lines| begin_sync(&lines.file));
        measured().try_for_each(Lines::sync)?;
        if let Some(running) = self.running.take() {
            // A name of its own for the next trial's: who reads this one now has it whole to its end.
            self.directory.remove(RUNNING).map_err(failed("remove", &running.path))?;
        }
        let places = steps.iter().map(|step| self.trials.append(step)).collect::<Result<_, _>>()?;
        self.trials.sync()?;
        Ok(places)
    }

    /// What was sampled of the trial that runs since the last of these, so that it can be read meanwhile and outlives a kill. One
    /// write, and nothing is synced: at the trial's end `samples` has all of it, and this is taken away.
    pub fn running(&mut self, stretches: &[SampleRecord]) -> Result<(), WriteError> {
        let lines = match self.running.take() {
            Some(lines) => lines,
            None => {
                let path = self.directory().join(RUNNING);
                let removed = self.directory.remove(RUNNING);
                let made = removed.and_then(|()| self.directory.create_new_unsynced(RUNNING));
                Lines::new(path.clone(), made.map_err(failed("create", &path))?)
            }
        };
        self.running.insert(lines).append_all(stretches).map(drop)
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
        self.samples.append(samples).map(drop)
    }

    /// A stretch of a fine series, as it comes; its file is there from the first of them on.
    pub fn chunk(&mut self, chunk: &ChunkRecord) -> Result<(), WriteError> {
        let lines = self.chunks.take().map_or_else(|| self.lines(CHUNKS), Ok)?;
        self.chunks.insert(lines).append(chunk).map(drop)
    }

    /// What failed in a trial that is over; its file is there from the first failure on.
    pub fn failures(&mut self, failures: &[FailureRecord]) -> Result<(), WriteError> {
        if failures.is_empty() {
            return Ok(());
        }
        let lines = self.failures.take().map_or_else(|| self.lines(FAILURES), Ok)?;
        self.failures.insert(lines).append_all(failures).map(drop)
    }

    fn lines(&self, name: &str) -> Result<Lines, WriteError> {
        let path = self.directory().join(name);
        let file = self.directory.append_or_create(name).map_err(failed("create", &path))?;
        Ok(Lines::new(path, file))
    }

    /// A file of the folder `captures` for another process to fill, in the place of one that is there already. It is synced
    /// at the trial's end.
    pub fn capture(&mut self, name: &str) -> Result<File, WriteError> {
        let path = self.directory().join(CAPTURES).join(name);
        let made = self.directory.folder(CAPTURES).and_then(|folder| {
            folder.remove(name)?;
            folder.create_new(name)
        });
        let both = made.and_then(|file| Ok((file.try_clone()?, file)));
        let (file, own) = both.map_err(failed("create", &path))?;
        self.captures.push(Lines::new(path, own));
        Ok(file)
    }

    fn document<D: Serialize + ?Sized>(&self, name: &str, document: &D) -> Result<(), WriteError> {
        let mut bytes = serde_json::to_vec_pretty(document)
            .map_err(io::Error::from)
            .map_err(failed("write", &self.directory().join(name)))?;
        bytes.push(b'\n');
        self.whole_file(name, &bytes)
    }

    fn whole_file(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.directory.replace(name, |file| file.write_all(bytes).map(Some));
        written.map(drop).map_err(failed("write", &self.directory().join(name)))
    }
}

/// Makes an error of writing of one of the system's.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError { action, path, source }
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
        failed("append to", &self.path)(io::Error::new(io::ErrorKind::InvalidData, problem))
    }

    fn append<L: Serialize>(&mut self, line: &L) -> Result<Place, WriteError> {
        self.append_all(std::slice::from_ref(line))
    }

    fn append_all<L: Serialize>(&mut self, lines: &[L]) -> Result<Place, WriteError> {
        self.buffer.clear();
        let written = lines.iter().try_for_each(|line| {
            serde_json::to_writer(&mut self.buffer, line)?;
            self.buffer.push(b'\n');
            Ok(())
        });
        let result = written.and_then(|()| {
            let whole_bytes = self.file.metadata()?.len();
            self.file.write_all(&self.buffer).inspect_err(|_| {
                // A full disk takes part of a line; taking it back leaves whole lines for the reader. If even that
                // fails, the reader knows how to leave out a last line that was cut short.
                let _ = self.file.set_len(whole_bytes);
            })?;
            Ok(Place { start: whole_bytes, bytes: u32::try_from(self.buffer.len()).unwrap_or(u32::MAX) })
        });
        result.map_err(failed("append to", &self.path))
    }

    fn sync(&self) -> Result<(), WriteError> {
        self.file.sync_data().map_err(failed("keep", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::symlink;

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
    fn documents_leave_nothing_beside_them_and_the_second_is_in_the_place_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path()).unwrap();
        writer.scenario_toml("first").unwrap();
        writer.scenario_toml("second").unwrap();
        let found =
            fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let expected = ["samples.jsonl", "scenario.toml", "timeline.jsonl", "trials.jsonl"];
        assert_eq!(found.collect::<std::collections::BTreeSet<_>>(), expected.map(str::to_owned).into());
        assert_eq!(fs::read_to_string(folder.path().join("scenario.toml")).unwrap(), "second");
    }

    // Spec: results.md#results-14
    #[test]
    fn links_below_the_folder_that_the_user_named_lead_no_writer_out_of_it() {
        let all = tempfile::tempdir().unwrap();
        let (out, elsewhere) = (all.path().join("out"), all.path().join("elsewhere"));
        fs::create_dir_all(&elsewhere).unwrap();
        fs::create_dir_all(&out).unwrap();
        symlink(&elsewhere, out.join("name")).unwrap();
        let refused = Writer::create_below(&out, &["name", "run"]).unwrap_err().to_string();
        assert!(refused.contains("out/name: is a symbolic link"), "{refused}");

        let run = all.path().join("out/other/run");
        let mut writer = Writer::create_below(&out, &["other", "run"]).unwrap();
        let victim = elsewhere.join("victim");
        fs::write(&victim, "kept").unwrap();
        for name in ["report.html", CHUNKS] {
            symlink(&victim, run.join(name)).unwrap();
        }
        symlink(&elsewhere, run.join(CAPTURES)).unwrap();
        writer.rendering("report.html", "new").unwrap();
        let chunk = ChunkRecord {
            point: String::new(),
            trial: 0,
            step: String::new(),
            chunk: weir_core::chunk::Chunk::default(),
        };
        assert!(writer.chunk(&chunk).unwrap_err().to_string().contains("chunks.jsonl: is a symbolic link"));
        assert!(writer.capture("a.pcapng").unwrap_err().to_string().contains("a symbolic link"));
        fs::remove_file(run.join(CAPTURES)).unwrap();
        fs::create_dir(run.join(CAPTURES)).unwrap();
        symlink(&victim, run.join(CAPTURES).join("a.pcapng")).unwrap();
        writer.capture("a.pcapng").unwrap().write_all(b"packets").unwrap();
        assert_eq!(fs::read_to_string(run.join(CAPTURES).join("a.pcapng")).unwrap(), "packets");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    }

    // Spec: results.md#results-2
    #[test]
    fn a_full_disk_is_reported_with_the_file_and_what_to_do() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().append(true).open(&path).expect("Linux has this device");
        let error = Lines::new(path, file).append(&"a line").unwrap_err().to_string();
        assert!(error.starts_with("cannot append to /dev/full: ") && error.contains("--out"), "{error}");
    }
}
