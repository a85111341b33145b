//! Fine series in wide form: one row a sample, a column for each field there is.

use super::{Cell, Column, Kind, Rows};
use crate::read::lines;
use crate::sets::Sets;
use crate::writer::CHUNKS;
use std::io;
use std::path::Path;
use weir_core::chunk::{ChunkRecord, FieldSetRecord};

/// Every sample of every chunk, in the order in which they were recorded; `None` where the folder has none. Memory holds one chunk
/// at a time. Gives what was missing, cut short or not known, in sentences.
pub(crate) fn chunks(folder: &Path, rows: &mut dyn Rows) -> io::Result<Option<Vec<String>>> {
    if !folder.join(CHUNKS).exists() {
        return Ok(None);
    }
    let mut columns = vec![
        Column::new("point", Kind::Text),
        Column::new("step", Kind::Text),
        Column::new("trial", Kind::Integer),
        Column::new("entity", Kind::Text),
        Column::new("t_ns", Kind::Integer),
    ];
    let mut notes = Vec::new();
    let sets = Sets::read(folder, &mut notes).map_err(io::Error::other)?;
    let fields = sets.all().iter().flat_map(|set| &set.fields);
    columns.extend(fields.map(|field| Column::optional(field.name.clone(), Kind::Integer)));
    rows.begin(&columns)?;
    let (mut failed, mut unknown) = (None, 0_u64);
    let read = lines(folder, CHUNKS, &mut notes, |record: ChunkRecord| {
        let Some(set) = sets.named(&record.chunk.fields) else {
            unknown += 1;
            return Ok(());
        };
        let first = 5 + place(&sets, set);
        let mut cells = vec![Cell::Absent; columns.len()];
        cells[0] = Cell::Text(&record.point);
        cells[1] = Cell::Text(&record.step);
        cells[2] = Cell::Integer(i64::from(record.trial));
        cells[3] = Cell::Text(&record.chunk.entity);
        let unpacked = record.chunk.unpack(set.fields.len(), |at_ns, values| {
            cells[4] = Cell::Integer(at_ns);
            for (cell, value) in cells[first..].iter_mut().zip(values) {
                // A pacing rate beyond all numbers is the kernel's word for none.
                let value = value.and_then(|value| i64::try_from(value).ok());
                *cell = value.map_or(Cell::Absent, Cell::Integer);
            }
            if failed.is_none() {
                failed = rows.row(&cells).err();
            }
        });
        unpacked.map_err(|error| error.to_string())?;
        if failed.is_some() { Err("could not be written on".to_owned()) } else { Ok(()) }
    });
    if unknown > 0 {
        notes.push(format!("{CHUNKS}: {unknown} lines are of fields that this weir does not know"));
    }
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(io::Error::other(error)),
        (None, Ok(())) => Ok(Some(notes)),
    }
}

/// Fields of the sets before `set`.
fn place(sets: &Sets, set: &FieldSetRecord) -> usize {
    sets.all().iter().take_while(|other| other.name != set.name).map(|other| other.fields.len()).sum()
}
