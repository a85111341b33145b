//! What failed, one row a failure.

use super::{Cell, Column, Kind, Rows};
use crate::read::lines;
use crate::writer::FAILURES;
use std::io;
use std::path::Path;
use weir_core::failure::FailureRecord;

/// Every failure in the order of the file; `None` where nothing failed. Memory holds one at a time. Gives what was cut short, in
/// sentences.
pub(crate) fn failures(folder: &Path, rows: &mut dyn Rows) -> io::Result<Option<Vec<String>>> {
    if !folder.join(FAILURES).exists() {
        return Ok(None);
    }
    rows.begin(&[
        Column::new("point", Kind::Text),
        Column::new("step", Kind::Text),
        Column::new("trial", Kind::Integer),
        Column::new("at_ns", Kind::Integer),
        Column::new("host", Kind::Text),
        Column::new("job", Kind::Text),
        Column::new("operation", Kind::Text),
        Column::optional("target", Kind::Text),
        Column::optional("code", Kind::Text),
        Column::new("retries", Kind::Integer),
        Column::new("text", Kind::Text),
    ])?;
    let (mut notes, mut failed) = (Vec::new(), None);
    let read = lines(folder, FAILURES, &mut notes, |record: FailureRecord| {
        let failure = &record.failure;
        let written = rows.row(&[
            Cell::Text(&record.point),
            Cell::Text(&record.step),
            Cell::Integer(i64::from(record.trial)),
            Cell::Integer(failure.at_ns),
            Cell::Text(&failure.host),
            Cell::Text(&failure.job),
            Cell::Text(&failure.operation),
            Cell::text(Some(failure.target.as_str()).filter(|target| !target.is_empty())),
            Cell::text(failure.code.as_deref()),
            Cell::Integer(i64::from(failure.retries)),
            Cell::Text(&failure.text),
        ]);
        written.map_err(|error| {
            failed = Some(error);
            "could not be written on".to_owned()
        })
    });
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(io::Error::other(error)),
        (None, Ok(())) => Ok(Some(notes)),
    }
}
