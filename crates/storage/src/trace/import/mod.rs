//! Traces that other programs wrote.

mod darshan;
mod fio;
mod plain;
mod recorder;
mod strace;
#[cfg(test)]
mod tests;

use super::text::{Lines, Names, number};
use super::{LENGTH_BYTES_MAX, OFFSET_MAX, Record, TraceError};
use std::collections::BTreeMap;
use std::io::BufRead;

/// A format that is read.
pub struct Format {
    pub name: &'static str,
    pub about: &'static str,
    read: fn(&mut dyn NextLine, &mut Gathered) -> Result<(), TraceError>,
}

pub static FORMATS: [Format; 6] = [
    Format {
        name: "offset-length",
        about: "Lines of two numbers, offset first, as the trace files of document 003 have them.",
        read: plain::offset_first,
    },
    Format {
        name: "length-offset",
        about: "Lines of two numbers, length first, as the client in XRootD's sources takes them.",
        read: plain::length_first,
    },
    Format {
        name: "fio-iolog",
        about: "What fio writes with --write_iolog, versions 2 and 3 of it.",
        read: fio::read,
    },
    Format {
        name: "xrdcl-recorder",
        about: "The CSV of the recorder plug-in of XRootD's client.",
        read: recorder::read,
    },
    Format {
        name: "darshan-dxt",
        about: "What darshan-dxt-parser prints of a log with extended tracing; the POSIX part of it.",
        read: darshan::read,
    },
    Format {
        name: "strace",
        about: "What strace writes with -f -ttt -y -e trace=openat,read,pread64,write,pwrite64,lseek,close.",
        read: strace::read,
    },
];

pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Where a format's lines come from.
trait NextLine {
    fn next_line(&mut self) -> Result<Option<(u64, String)>, TraceError>;
}

impl<R: BufRead> NextLine for Lines<R> {
    fn next_line(&mut self) -> Result<Option<(u64, String)>, TraceError> {
        let line = Lines::next_line(self)?.map(str::to_owned);
        Ok(line.map(|line| (self.number(), line)))
    }
}

/// Operations of any files, as they are met.
#[derive(Default)]
struct Gathered {
    /// By the whole path, as the program had it.
    paths: Vec<String>,
    numbers: BTreeMap<String, u32>,
    records: Vec<Record>,
    is_timed: bool,
    /// What was done and is neither read nor write, and operations that moved nothing.
    left_out: u64,
}

impl Gathered {
    fn file(&mut self, path: &str) -> u32 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.paths.len() as u32;
        self.paths.push(path.to_owned());
        self.numbers.insert(path.to_owned(), number);
        number
    }

    /// Errors: offset or length are no such numbers, or beyond what is possible; in words.
    fn add(
        &mut self,
        at_ns: u64,
        path: &str,
        is_write: bool,
        (offset, length): (&str, &str),
    ) -> Result<(), String> {
        let offset = number("offset", offset, OFFSET_MAX)?;
        let length = number("length", length, LENGTH_BYTES_MAX)?;
        if length == 0 {
            self.left_out += 1;
            return Ok(());
        }
        let file = self.file(path);
        self.records.push(Record { at_ns, file, is_write, offset, length_bytes: length as u32 });
        Ok(())
    }
}

/// A trace in our terms.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Empty where the format names none.
    pub files: Vec<String>,
    pub is_timed: bool,
    pub records: Vec<Record>,
    /// Entries of the source that are no read or write, or moved nothing.
    pub left_out: u64,
    /// Reads and writes of files that are not below the folder.
    pub elsewhere: u64,
    /// Which folder the files are named from; empty where the format names none.
    pub folder: String,
}

/// Reads all of a trace. `below`: only its files count, and are named from there; unless given, the folder that all have in common.
///
/// Errors: a line that is not of the format, by its number; nothing in it.
pub fn import(format: &Format, source: impl BufRead, below: Option<&str>) -> Result<Imported, TraceError> {
    let mut gathered = Gathered::default();
    (format.read)(&mut Lines::new(source), &mut gathered)?;
    let Gathered { paths, mut records, is_timed, left_out, .. } = gathered;
    let read_count = records.len() as u64;
    let mut imported = Imported { is_timed, left_out, ..Imported::default() };
    if !paths.is_empty() {
        let used: Vec<&str> = paths.iter().map(String::as_str).collect();
        imported.folder =
            below.map_or_else(|| common_folder(&used), |it| it.trim_end_matches('/').to_owned());
        let mut names = Names::default();
        let mut places = Vec::with_capacity(paths.len());
        for path in &paths {
            let rest = path.strip_prefix(imported.folder.as_str()).and_then(|rest| rest.strip_prefix('/'));
            let number = rest.filter(|rest| !rest.is_empty()).map(|rest| names.number(rest)).transpose();
            places.push(number.map_err(TraceError::Whole)?);
        }
        records.retain_mut(|record| match places[record.file as usize] {
            Some(place) => {
                record.file = place;
                true
            }
            None => false,
        });
        imported.files = names.names;
    }
    imported.elsewhere = read_count - records.len() as u64;
    if records.is_empty() {
        let place = if imported.elsewhere > 0 {
            format!(" of a file below {:?}; {} are of files elsewhere", imported.folder, imported.elsewhere)
        } else {
            String::new()
        };
        return Err(TraceError::Whole(format!("no read or write{place}")));
    }
    if is_timed {
        // Parts of several processes stand one behind the other in some formats.
        records.sort_by_key(|record| record.at_ns);
        let first_ns = records[0].at_ns;
        records.iter_mut().for_each(|record| record.at_ns -= first_ns);
    }
    imported.records = records;
    Ok(imported)
}

/// The deepest folder that all files are in.
fn common_folder(paths: &[&str]) -> String {
    let folder = |path: &str| path.rfind('/').map_or(String::new(), |slash| path[..slash].to_owned());
    let mut common = paths.first().map_or(String::new(), |path| folder(path));
    for path in paths {
        while !path.strip_prefix(common.as_str()).is_some_and(|rest| rest.starts_with('/')) {
            if common.is_empty() {
                return common;
            }
            common = folder(&common);
        }
    }
    common
}

/// Seconds with decimals, in ns. Errors: none, in words.
fn seconds(field: &str) -> Result<u64, String> {
    let wrong = || format!("{field:?} is no time in seconds");
    let (whole, rest) = field.split_once('.').unwrap_or((field, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(rest) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let digits = format!("{:0<9}", rest.get(..9).unwrap_or(rest));
    let rest: u64 = digits.parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1_000_000_000)
        .and_then(|ns| ns.checked_add(rest))
        .filter(|ns| *ns < u64::MAX / 4)
        .ok_or_else(wrong)
}

/// The path of a URL, or the path itself.
fn path_of(name: &str) -> &str {
    let Some((_, rest)) = name.split_once("://") else { return name };
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    let path = path.split(['?']).next().unwrap_or(path);
    // Two slashes begin an absolute path of root://.
    path.strip_prefix('/').filter(|rest| rest.starts_with('/')).unwrap_or(path)
}
