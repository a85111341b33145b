//! Sink: renders a finished record.

use std::io;
use std::path::Path;
use weir_core::record::Summary;

/// Where a summary goes and what else may be read for it.
pub trait Sink {
    /// Renders `summary`; `folder` holds the run's other files where there are any.
    fn write(
        &self,
        summary: &Summary,
        folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()>;

    /// For a sink that turns a whole results folder into files of rows.
    fn tables(&self) -> Option<&dyn Tables> {
        None
    }
}

/// What a sink adds that makes tables of a results folder, also of one whose run did not finish.
pub trait Tables {
    /// Names of the files that it makes.
    fn files(&self) -> &'static [&'static str];

    /// Writes one of `files` from the records in `folder`. Gives what was missing or cut short, in sentences; `None` where the
    /// folder has nothing to make this file of, such as the summary of a run that did not finish.
    ///
    /// Errors: a record cannot be read (the error names file and line), or `out` cannot be written.
    fn write_file(
        &self,
        file: &str,
        folder: &Path,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Option<Vec<String>>>;
}

pub type SinkEntry = crate::Entry<&'static (dyn Sink + Sync)>;
