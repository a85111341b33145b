//! Our own format: a header that names the columns, and a line for each operation.

use super::{FILES_MAX, LENGTH_BYTES_MAX, OFFSET_MAX, Record, TraceError};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use weir_core::text::shown;
use weir_seams::target::inside;

pub const HEADER: &str = "# weir-trace/1";
/// Of a line, its end included: a vector read of XRootD's recorder has 1,024 places.
const LINE_BYTES_MAX: u64 = 65_536;
const SHOWN_BYTES: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    At,
    Operation,
    File,
    Offset,
    Length,
}

const COLUMNS: [(&str, Column); 5] = [
    ("at_ns", Column::At),
    ("operation", Column::Operation),
    ("file", Column::File),
    ("offset", Column::Offset),
    ("length", Column::Length),
];

/// Lines of a text whose line ends may be of any kind, with their numbers. One that is too long, or no text, is an error.
pub struct Lines<R> {
    source: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(source: R) -> Lines<R> {
        Lines { source, number: 0, line: Vec::new() }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not empty, without its end and what is blank around it.
    pub fn next_line(&mut self) -> Result<Option<&str>, TraceError> {
        loop {
            self.line.clear();
            let read = io::Read::take(&mut self.source, LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| TraceError::line(self.number + 1, error.to_string()))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if read as u64 == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
                let text = format!("longer than {LINE_BYTES_MAX} bytes");
                return Err(TraceError::line(self.number, text));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(&self.line);
        text.map(|text| Some(text.trim())).map_err(|_| TraceError::line(self.number, "not a text"))
    }
}

/// Reads a trace operation by operation.
pub struct Reader<R> {
    lines: Lines<R>,
    columns: Vec<Column>,
    files: Names,
    last_ns: u64,
}

impl<R: BufRead> Reader<R> {
    /// Errors: the header lacks or names what is no column.
    pub fn new(source: R) -> Result<Reader<R>, TraceError> {
        let mut lines = Lines::new(source);
        let first = lines.next_line()?.unwrap_or_default().to_owned();
        let number = lines.number().max(1);
        let Some(rest) = first.strip_prefix(HEADER).filter(|rest| rest.starts_with([' ', '\t'])) else {
            let problem = format!(
                "no header `{HEADER} offset length`: traces of other programs are imported, `weir io trace import --help`"
            );
            return Err(TraceError::line(number, problem));
        };
        let mut columns = Vec::new();
        for name in rest.split_whitespace() {
            let Some((_, column)) = COLUMNS.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
                let problem =
                    format!("no column {}; there are {}", shown(name, SHOWN_BYTES), known.join(", "));
                return Err(TraceError::line(number, problem));
            };
            if columns.contains(column) {
                return Err(TraceError::line(number, format!("the column {name} is named twice")));
            }
            columns.push(*column);
        }
        for (name, column) in [("offset", Column::Offset), ("length", Column::Length)] {
            if !columns.contains(&column) {
                return Err(TraceError::line(number, format!("the header names no column {name}")));
            }
        }
        Ok(Reader { lines, columns, files: Names::default(), last_ns: 0 })
    }

    pub fn is_timed(&self) -> bool {
        self.columns.contains(&Column::At)
    }

    /// Names of the files that were met.
    pub fn into_files(self) -> Vec<String> {
        self.files.names
    }

    /// Errors: a line that is not what the header says, by its number.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            if line.starts_with('#') {
                continue;
            }
            let mut record = Record::default();
            let mut fields = line.split_whitespace();
            let read = self.columns.iter().try_for_each(|column| {
                let field = fields.next().ok_or_else(|| {
                    format!(
                        "{} fields, and the header names {}",
                        line.split_whitespace().count(),
                        self.columns.len()
                    )
                })?;
                put(&mut record, *column, field, &mut self.files)
            });
            let read = read.and_then(|()| match fields.next() {
                None => Ok(()),
                Some(_) => {
                    let count = line.split_whitespace().count();
                    Err(format!("{count} fields, and the header names {}", self.columns.len()))
                }
            });
            let read = read.and_then(|()| match record.at_ns < self.last_ns {
                true => {
                    Err("its time is before that of the line above; sort the trace by its times".to_owned())
                }
                false => Ok(()),
            });
            if let Err(problem) = read {
                return Err(TraceError::line(self.lines.number(), problem));
            }
            self.last_ns = record.at_ns;
            return Ok(Some(record));
        }
    }
}

fn put(record: &mut Record, column: Column, field: &str, files: &mut Names) -> Result<(), String> {
    match column {
        Column::At => record.at_ns = number("at_ns", field, u64::MAX / 4)?,
        Column::Offset => record.offset = number("offset", field, OFFSET_MAX)?,
        Column::Length => record.length_bytes = number("length", field, LENGTH_BYTES_MAX)? as u32,
        Column::Operation => {
            record.is_write = match field {
                "read" => false,
                "write" => true,
                _ => return Err(format!("{} is neither read nor write", shown(field, SHOWN_BYTES))),
            };
        }
        Column::File => record.file = files.number(&decoded(field)?)?,
    }
    Ok(())
}

/// A number of a trace. Errors: none, a negative one, or one that is too large, in words.
pub fn number(what: &str, field: &str, most: u64) -> Result<u64, String> {
    match field.parse::<u64>() {
        Ok(number) if number <= most => Ok(number),
        Ok(number) => Err(format!("{what} {number} is more than {most}")),
        Err(_)
            if field.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) =>
        {
            Err(format!("{what} {} is negative", shown(field, SHOWN_BYTES)))
        }
        Err(_) if !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("{what} {} is more than {most}", shown(field, SHOWN_BYTES)))
        }
        Err(_) => Err(format!("{what} {} is no whole number", shown(field, SHOWN_BYTES))),
    }
}

/// Files by number, in the order in which they were met.
#[derive(Default)]
pub struct Names {
    pub names: Vec<String>,
    index: BTreeMap<String, u32>,
}

impl Names {
    /// Errors: it leads outside a target, or there are too many.
    pub fn number(&mut self, name: &str) -> Result<u32, String> {
        if let Some(number) = self.index.get(name) {
            return Ok(*number);
        }
        inside(name).map_err(|error| error.text)?;
        if self.names.len() >= FILES_MAX {
            return Err(format!("more than {FILES_MAX} files"));
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), number);
        Ok(number)
    }
}

/// A file's name as it stands in a line: blanks and `%` as `%20`.
fn encoded(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character == '%' || character.is_whitespace() || character.is_control() {
            let mut bytes = [0; 4];
            character.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("%{byte:02x}")));
        } else {
            text.push(character);
        }
    }
    text
}

fn decoded(field: &str) -> Result<String, String> {
    let wrong = || format!("{}: `%` is followed by two hexadecimal digits", shown(field, SHOWN_BYTES));
    let mut bytes = Vec::new();
    let mut rest = field.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        let text = std::str::from_utf8(&digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(text, 16).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| format!("{} is no text", shown(field, SHOWN_BYTES)))
}

/// Writes a trace with the columns that it needs. Errors: the output's.
pub fn write(
    out: &mut dyn Write,
    remark: &str,
    files: &[String],
    is_timed: bool,
    records: &[Record],
) -> io::Result<()> {
    let has_writes = records.iter().any(|record| record.is_write);
    let has = [is_timed, has_writes, !files.is_empty(), true, true];
    let names = COLUMNS.iter().zip(has).filter(|(_, has)| *has).map(|((name, _), _)| *name);
    writeln!(out, "{HEADER} {}", names.collect::<Vec<_>>().join(" "))?;
    for line in remark.lines() {
        writeln!(out, "# {line}")?;
    }
    let files: Vec<String> = files.iter().map(|name| encoded(name)).collect();
    for record in records {
        if is_timed {
            write!(out, "{} ", record.at_ns)?;
        }
        if has_writes {
            write!(out, "{} ", if record.is_write { "write" } else { "read" })?;
        }
        if let Some(name) = files.get(record.file as usize) {
            write!(out, "{name} ")?;
        }
        writeln!(out, "{} {}", record.offset, record.length_bytes)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<(Vec<Record>, Vec<String>), TraceError> {
        let mut reader = Reader::new(text.as_bytes())?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok((records, reader.into_files()))
    }

    // Spec: replay.md#trace-1
    #[test]
    fn what_is_written_is_read_again_whatever_its_columns() {
        let record = |at_ns, file, is_write| Record { at_ns, file, is_write, offset: 7, length_bytes: 9 };
        let files = ["a b/ü%".to_owned(), "c".to_owned()];
        for (files, is_timed, is_write) in
            [(&files[..], true, true), (&files[..], false, false), (&[], true, false), (&[], false, false)]
        {
            let own = |file| if files.is_empty() { 0 } else { file };
            let at = |ns| if is_timed { ns } else { 0 };
            let records = [record(at(0), own(0), is_write), record(at(5), own(1), false)];
            let mut text = Vec::new();
            write(&mut text, "how it came about\nin two lines", files, is_timed, &records).unwrap();
            let text = String::from_utf8(text).unwrap();
            let (read, names) = all(&text).unwrap();
            assert_eq!((&read[..], &names[..]), (&records[..], files), "{text}");
            // Line ends of another system, and the same with blank lines, are no difference.
            assert_eq!(all(&text.replace('\n', "\r\n\r\n")).unwrap().0, records);
        }
    }

    // Spec: replay.md#trace-4
    #[test]
    fn what_contradicts_the_header_is_named_by_its_line() {
        for (text, wanted) in [
            ("1 2\n", "line 1: no header"),
            ("# weir-trace/1 offset\n", "line 1: the header names no column length"),
            ("# weir-trace/1 offset length size\n", "line 1: no column size; there are at_ns, "),
            ("# weir-trace/1 offset length offset\n", "line 1: the column offset is named twice"),
            ("# weir-trace/1 offset length\n1 2\n\n3 4 5\n", "line 4: 3 fields, and the header names 2"),
            ("# weir-trace/1 offset length\n1 x\n", "line 2: length x is no whole number"),
            ("# weir-trace/1 offset length\n-4 1\n", "line 2: offset -4 is negative"),
            (
                "# weir-trace/1 offset length\n4 9223372036854775808\n",
                "line 2: length 9223372036854775808 is more",
            ),
            ("# weir-trace/1 at_ns offset length\n5 0 1\n4 0 1\n", "line 3: its time is before"),
            ("# weir-trace/1 file offset length\n../f 0 1\n", "line 2: \"../f\" leads outside the target"),
            (
                "# weir-trace/1 file offset length\n/etc/f 0 1\n",
                "line 2: \"/etc/f\" leads outside the target",
            ),
            ("# weir-trace/1 operation offset length\njump 0 1\n", "line 2: jump is neither read nor write"),
        ] {
            let error = all(text).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{text:?}: {error}");
        }
        let long = format!("# weir-trace/1 offset length\n{}", "1".repeat(100_000));
        assert_eq!(all(&long).unwrap_err().to_string(), "line 2: longer than 65536 bytes");
    }
}
