//! Reads the files of a results folder: documents whole, line files record by record, and says what is wrong with file and line.

use crate::records::Place;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;
use weir_core::record::{RESULTS_SCHEMA, SUMMARY_SCHEMA};
use weir_core::text::shown;

/// Largest single document (`summary.json`, …) and largest line; beyond it a file is not one of ours.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Longest quotation of a file in an error.
const PROBLEM_BYTES_MAX: usize = 300;

/// Why a folder cannot be read: which file, which line, what is wrong with it.
#[derive(Debug, Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(" line {line}")).unwrap_or_default())]
pub struct FolderError {
    pub path: PathBuf,
    pub line: Option<usize>,
    pub problem: String,
}

fn open(directory: &Path, name: &str, notes: &mut Vec<String>) -> Result<Option<File>, FolderError> {
    let path = directory.join(name);
    // Looked at before it is opened: opening a named pipe would wait for a writer that never comes.
    let opened = std::fs::metadata(&path)
        .and_then(|about| if about.is_file() { File::open(&path).map(Some) } else { Ok(None) });
    match opened {
        Ok(Some(file)) => Ok(Some(file)),
        Ok(None) => Err(FolderError { path, line: None, problem: "is not a regular file".to_owned() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            notes.push(format!("{name} is missing"));
            Ok(None)
        }
        Err(error) => Err(FolderError { path, line: None, problem: format!("cannot be read: {error}") }),
    }
}

pub(crate) fn text(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Option<String>, FolderError> {
    let Some(file) = open(directory, name, notes)? else { return Ok(None) };
    let failed = |problem: String| FolderError { path: directory.join(name), line: None, problem };
    let mut bytes = Vec::new();
    file.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(failed(format!("is larger than {} MiB", DOCUMENT_BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| FolderError {
        line: Some(
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
        ),
        path: directory.join(name),
        problem: "is not UTF-8 text".to_owned(),
    })
}

pub(crate) fn document<D: DeserializeOwned>(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Option<D>, FolderError> {
    let Some(text) = text(directory, name, notes)? else { return Ok(None) };
    // Before anything else is read: a later format may differ in all but this field.
    if let Ok(Versioned { schema: Some(schema) }) = serde_json::from_str(&text)
        && let Some(problem) = newer(&schema)
    {
        return Err(FolderError {
            path: directory.join(name),
            line: None,
            problem: shown(&problem, PROBLEM_BYTES_MAX),
        });
    }
    match serde_json::from_str(&text) {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.is_eof() => {
            notes.push(format!("{name} was cut short and is left out"));
            Ok(None)
        }
        Err(error) => Err(FolderError {
            path: directory.join(name),
            line: Some(error.line()),
            problem: shown(&error.to_string(), PROBLEM_BYTES_MAX),
        }),
    }
}

#[derive(Deserialize)]
struct Versioned {
    schema: Option<String>,
}

/// Why a document of this schema is not read here; `None` when it is. `weir.summary/1` and any `weir.summary/1.7` are: only
/// fields are added within a major number, and fields that are not known are passed over.
fn newer(schema: &str) -> Option<String> {
    let known = [SUMMARY_SCHEMA, RESULTS_SCHEMA];
    let major = |text: &str| text.split('.').next()?.parse::<u32>().ok();
    let (name, version) = schema.rsplit_once('/').unwrap_or((schema, ""));
    let ours = known.iter().find_map(|known| known.rsplit_once('/').filter(|(ours, _)| *ours == name));
    match (ours.and_then(|(_, ours)| major(ours)), major(version)) {
        (Some(ours), Some(found)) if found == ours => None,
        (Some(ours), Some(found)) if found > ours => Some(format!(
            "was written by a newer weir: its schema is {schema:?}, and this one ({}) reads {name}/{ours}; read it with the weir \
             that wrote it, or a later one",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Some(format!("has the schema {schema:?}; this weir reads {}", known.join(" and "))),
    }
}

/// Where in its file a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub start: u64,
    /// Bytes of the file up to and with the line's newline.
    pub bytes: u64,
    /// False for a last line without its newline: it may go on.
    pub whole: bool,
}

impl Ended {
    pub fn place(&self) -> Place {
        Place { start: self.start, bytes: u32::try_from(self.bytes - self.start).unwrap_or(u32::MAX) }
    }
}

/// Hands each line's record to `keep`. Only the last line may be cut short: it has no newline and does not parse.
pub(crate) fn lines<D: DeserializeOwned>(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
    mut keep: impl FnMut(D) -> Result<(), String>,
) -> Result<(), FolderError> {
    lines_with_ends(directory, name, notes, |record, _| keep(record))
}

/// As `lines`, and says where each ended.
pub(crate) fn lines_with_ends<D: DeserializeOwned>(
    directory: &Path,
    name: &str,
    notes: &mut Vec<String>,
    mut keep: impl FnMut(D, Ended) -> Result<(), String>,
) -> Result<(), FolderError> {
    let Some(file) = open(directory, name, notes)? else { return Ok(()) };
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut line = Vec::new();
    let mut bytes = 0;
    for number in 1.. {
        let failed = |problem: String| FolderError {
            path: directory.join(name),
            line: Some(number),
            problem: shown(&problem, PROBLEM_BYTES_MAX),
        };
        line.clear();
        let length = reader
            .by_ref()
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)
            .map_err(|error| failed(format!("cannot be read: {error}")))?;
        if length == 0 {
            break;
        }
        if length as u64 > LINE_BYTES_MAX {
            return Err(failed(format!("is longer than {} MiB", LINE_BYTES_MAX >> 20)));
        }
        let whole = line.last() == Some(&b'\n');
        bytes += length as u64;
        let record = line.trim_ascii();
        if record.is_empty() {
            continue;
        }
        match serde_json::from_slice(record) {
            Ok(record) => {
                keep(record, Ended { start: bytes - length as u64, bytes, whole }).map_err(failed)?
            }
            // Not only where the parser missed more: cut behind a minus or a point, a number is wrong and not short.
            Err(_) if !whole => {
                notes.push(format!("{name}: line {number}, the last, was cut short and is left out"));
            }
            Err(error) => return Err(failed(format!("{error} (a record is one JSON object a line)"))),
        }
    }
    Ok(())
}
