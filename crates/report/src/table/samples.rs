//! Series in long form: one row a sample, with its true timestamp.

use super::{Cell, Cells, Column, Kind, Rows};
use crate::read::lines;
use crate::running::Running;
use std::io;
use std::path::Path;
use weir_core::record::SampleRecord;

/// Every sample of every series, in the order in which they were recorded, those of a trial that has not ended last. Memory holds
/// one series at a time, and what is there of that trial. Gives what was missing or cut short, in sentences.
pub(crate) fn samples(folder: &Path, rows: &mut dyn Rows) -> io::Result<Vec<String>> {
    rows.begin(&[
        Column::new("point", Kind::Text),
        Column::new("step", Kind::Text),
        Column::new("trial", Kind::Integer),
        Column::new("entity", Kind::Text),
        Column::new("name", Kind::Text),
        Column::new("unit", Kind::Text),
        Column::new("cumulative", Kind::Flag),
        Column::new("t_ns", Kind::Integer),
        Column::new("value", Kind::Number),
    ])?;
    let mut notes = Vec::new();
    // Before the whole ones: a trial that ends meanwhile is then among these.
    let mut running = Running::read(folder, &mut notes);
    let mut failed = None;
    let read = lines(folder, "samples.jsonl", &mut notes, |record: SampleRecord| {
        let series = &record.series;
        if series.t_ns.len() != series.value.len() {
            return Err(format!("{} of {} has not one value for each time", series.name, series.entity));
        }
        running.note_whole(&record);
        write(&record, rows).map_err(|error| {
            failed = Some(error);
            "could not be written on".to_owned()
        })
    });
    match (failed, read) {
        (Some(error), _) => return Err(error),
        (None, Err(error)) => return Err(io::Error::other(error)),
        (None, Ok(())) => {}
    }
    let (not_ended, said) = running.finish();
    notes.extend(said);
    not_ended.iter().try_for_each(|record| write(record, rows))?;
    Ok(notes)
}

fn write(record: &SampleRecord, rows: &mut dyn Rows) -> io::Result<()> {
    let series = &record.series;
    let cells = [
        Cells::Same(Cell::Text(&record.point)),
        Cells::Same(Cell::Text(&record.step)),
        Cells::Same(Cell::Integer(i64::from(record.trial))),
        Cells::Same(Cell::Text(&series.entity)),
        Cells::Same(Cell::Text(&series.name)),
        Cells::Same(Cell::Text(&series.unit)),
        Cells::Same(Cell::Flag(series.cumulative)),
        Cells::Integers(&series.t_ns),
        Cells::Numbers(&series.value),
    ];
    rows.rows(series.t_ns.len(), &cells)
}
