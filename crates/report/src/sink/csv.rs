//! Comma-separated values as RFC 4180 has them, for spreadsheets and scripts.

use crate::Folder;
use crate::table::{self, Cell, Cells, Column, Rows};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use weir_core::record::Summary;
use weir_seams::sink::{Sink, Tables};

/// Lines end in CR LF, the first names the columns, an absent value is an empty field.
struct Csv<W: Write> {
    out: W,
}

impl<W: Write> Rows for Csv<W> {
    fn begin(&mut self, columns: &[Column]) -> io::Result<()> {
        for (index, column) in columns.iter().enumerate() {
            self.separate(index)?;
            self.text(&column.name)?;
        }
        self.out.write_all(b"\r\n")
    }

    fn rows(&mut self, count: usize, cells: &[Cells<'_>]) -> io::Result<()> {
        for row in 0..count {
            for (index, cells) in cells.iter().enumerate() {
                self.separate(index)?;
                match cells {
                    Cells::Same(cell) => self.cell(*cell)?,
                    Cells::Integers(integers) => self.cell(Cell::Integer(integers[row]))?,
                    Cells::Numbers(numbers) => self.cell(Cell::Number(numbers[row]))?,
                }
            }
            self.out.write_all(b"\r\n")?;
        }
        Ok(())
    }
}

impl<W: Write> Csv<W> {
    fn separate(&mut self, index: usize) -> io::Result<()> {
        if index > 0 { self.out.write_all(b",") } else { Ok(()) }
    }

    fn cell(&mut self, cell: Cell<'_>) -> io::Result<()> {
        match cell {
            Cell::Absent => Ok(()),
            Cell::Text(text) => self.text(text),
            Cell::Integer(integer) => write!(self.out, "{integer}"),
            Cell::Flag(flag) => write!(self.out, "{flag}"),
            // Shortest form that reads back as the same number; beyond these sizes in powers of ten.
            Cell::Number(number) if number == 0.0 || (1e-5..1e16).contains(&number.abs()) => {
                write!(self.out, "{number}")
            }
            Cell::Number(number) => write!(self.out, "{number:e}"),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        // A spreadsheet takes a field that begins like this for a formula, and error texts come from other hosts. The
        // apostrophe makes it text, as spreadsheets write it themselves.
        let guard = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
        let quoted = text.contains([',', '"', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ');
        let guard = if guard { "'" } else { "" };
        if quoted {
            write!(self.out, "\"{guard}{}\"", text.replace('"', "\"\""))
        } else {
            write!(self.out, "{guard}{text}")
        }
    }
}

pub(crate) struct CsvTables;

impl Sink for CsvTables {
    fn write(
        &self,
        summary: &Summary,
        _folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()> {
        let mut csv = Csv { out: BufWriter::new(out) };
        table::points(summary, &mut csv)?;
        csv.out.flush()
    }

    fn tables(&self) -> Option<&dyn Tables> {
        Some(self)
    }
}

const POINTS: &str = "points.csv";
const TRIALS: &str = "trials.csv";
const SAMPLES: &str = "samples.csv";
const FINE: &str = "chunks.csv";
const FAILURES: &str = "failures.csv";

impl Tables for CsvTables {
    fn files(&self) -> &'static [&'static str] {
        &[POINTS, TRIALS, SAMPLES, FINE, FAILURES]
    }

    fn write_file(
        &self,
        file: &str,
        folder: &Path,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Option<Vec<String>>> {
        let mut csv = Csv { out: BufWriter::with_capacity(1 << 18, out) };
        let notes = match file {
            POINTS => match Folder::summary_of(folder).map_err(io::Error::other)? {
                None => return Ok(None),
                Some(summary) => table::points(&summary, &mut csv).map(|()| Vec::new()),
            },
            TRIALS => table::trials(folder, &mut csv),
            SAMPLES => table::samples(folder, &mut csv),
            FINE | FAILURES => {
                let some = if file == FINE { table::chunks } else { table::failures };
                match some(folder, &mut csv)? {
                    None => return Ok(None),
                    Some(notes) => Ok(notes),
                }
            }
            _ => Err(io::Error::other(format!("csv has no {file}"))),
        }?;
        csv.out.flush()?;
        Ok(Some(notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;
    use proptest::prelude::*;

    fn written(rows: &[Vec<Cell<'_>>]) -> String {
        let mut csv = Csv { out: Vec::new() };
        let columns: Vec<Column> = rows[0]
            .iter()
            .enumerate()
            .map(|(index, _)| Column::optional(format!("c{index}"), Kind::Text))
            .collect();
        csv.begin(&columns).unwrap();
        for row in rows {
            csv.row(row).unwrap();
        }
        String::from_utf8(csv.out).unwrap()
    }

    /// A reader of RFC 4180 of its own, a letter at a time.
    fn read(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
        let mut letters = text.chars().peekable();
        let mut quoted = false;
        while let Some(letter) = letters.next() {
            match letter {
                '"' if quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    field.push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(std::mem::take(&mut field)),
                '\r' if !quoted && letters.peek() == Some(&'\n') => {
                    letters.next();
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                other => field.push(other),
            }
        }
        assert!(field.is_empty() && row.is_empty() && !quoted, "{text:?}");
        rows
    }

    // Spec: results.md#results-12
    #[test]
    fn what_a_spreadsheet_would_run_is_made_text_and_numbers_stay_numbers() {
        let row = ["=1+1", "@SUM(A1)", "+x", "-2.5", "- a", "plain"].map(Cell::Text).to_vec();
        assert_eq!(written(&[row]).lines().nth(1).unwrap(), "'=1+1,'@SUM(A1),'+x,-2.5,'- a,plain");
        let numbers = [0.1, 941_480_000.0, -3.0, 1e-9, 2.5e20, 0.0].map(Cell::Number).to_vec();
        assert_eq!(written(&[numbers]).lines().nth(1).unwrap(), "0.1,941480000,-3,1e-9,2.5e20,0");
        let others = vec![Cell::Absent, Cell::Flag(true), Cell::Integer(-5)];
        assert_eq!(written(&[others]).lines().nth(1).unwrap(), ",true,-5");
    }

    proptest! {
        // Spec: results.md#results-12
        #[test]
        fn any_text_reads_back_by_the_rules_of_rfc_4180(fields in proptest::collection::vec("[a-z,\"\r\n =]{0,12}", 1..5)) {
            let row: Vec<Cell<'_>> = fields.iter().map(|field| Cell::Text(field)).collect();
            let back = read(&written(&[row]));
            let back = &back[1];
            prop_assert_eq!(back.len(), fields.len());
            for (back, field) in back.iter().zip(&fields) {
                prop_assert_eq!(back.strip_prefix('\'').unwrap_or(back), field);
            }
        }
    }
}
