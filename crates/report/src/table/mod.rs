//! A results folder as tables of plain columns, for programs that know rows and no more: what csv and parquet have in common.

mod chunks;
mod failures;
mod points;
mod samples;
mod trials;

pub(crate) use chunks::chunks;
pub(crate) use failures::failures;
pub(crate) use points::points;
pub(crate) use samples::samples;
pub(crate) use trials::trials;

use std::io;

/// What a column holds; all but `Text` are written as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Number,
    Flag,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: String,
    pub kind: Kind,
    /// A row may have nothing here: not measured, or it does not apply.
    pub optional: bool,
}

impl Column {
    pub fn new(name: impl Into<String>, kind: Kind) -> Column {
        Column { name: name.into(), kind, optional: false }
    }

    pub fn optional(name: impl Into<String>, kind: Kind) -> Column {
        Column { name: name.into(), kind, optional: true }
    }
}

/// One value, of its column's kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Absent,
    Text(&'a str),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

impl<'a> Cell<'a> {
    pub fn text(text: Option<&'a str>) -> Cell<'a> {
        text.map_or(Cell::Absent, Cell::Text)
    }

    pub fn number(number: Option<f64>) -> Cell<'a> {
        number.map_or(Cell::Absent, Cell::Number)
    }
}

/// One column of several rows. A series repeats what it is of in every row, which is said once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cells<'a> {
    Same(Cell<'a>),
    /// One a row.
    Integers(&'a [i64]),
    /// One a row.
    Numbers(&'a [f64]),
}

/// Takes the rows of one table.
pub(crate) trait Rows {
    /// The columns, in order; once, before any row.
    fn begin(&mut self, columns: &[Column]) -> io::Result<()>;
    /// `count` rows, with one entry of `cells` for each column.
    fn rows(&mut self, count: usize, cells: &[Cells<'_>]) -> io::Result<()>;

    /// One row.
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let cells: Vec<Cells<'_>> = cells.iter().map(|cell| Cells::Same(*cell)).collect();
        self.rows(1, &cells)
    }
}
