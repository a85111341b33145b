//! What can go wrong with a service.

use std::path::Path;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ServiceError {
    /// A recipe that cannot be used, with the file and what is wrong with it.
    #[error("{file}: {text}")]
    Recipe { file: String, text: String },
    /// A program that the machine lacks.
    #[error(
        "service {service}: {program} is not installed\n  install it with `{install}`; `weir doctor` tells what else is missing"
    )]
    Missing { service: String, program: String, install: String },
    #[error("service {service}: {what}{}", shown_log(log))]
    Start { service: String, what: String, log: Vec<String> },
}

fn shown_log(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  | {line}")).collect()
}

/// Lines of a log that an error shows.
const LINES_MAX: usize = 8;
const LINE_CHARS_MAX: usize = 200;
const TAIL_BYTES: u64 = 16 * 1024;

/// The last lines of a log: why something ended is mostly there.
pub fn last_lines(log: &Path) -> Vec<String> {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
    last.iter().map(|line| weir_core::text::shown(line, LINE_CHARS_MAX)).collect()
}
