//! What a process said on its standard error, and how it ended: fit to be shown.

use std::io::Read;
use std::process::{ChildStderr, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use weir_core::text::shown;

/// The last of what a process said on standard error.
const WORDS_BYTES_MAX: usize = 8 * 1024;
/// Lines that are shown, and bytes of each.
const LINES_MAX: usize = 6;
const LINE_BYTES_MAX: usize = 300;

/// Collects the last words of a process for as long as it lives.
#[derive(Clone, Default)]
pub struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    pub fn collect(mut errors: ChildStderr) -> Words {
        let all = Words::default();
        let words = all.clone();
        thread::spawn(move || {
            let mut some = [0; 1024];
            while let Ok(count) = errors.read(&mut some) {
                if count == 0 {
                    return;
                }
                let mut words = words.0.lock().unwrap_or_else(PoisonError::into_inner);
                words.extend_from_slice(&some[..count]);
                let surplus = words.len().saturating_sub(WORDS_BYTES_MAX);
                words.drain(..surplus);
            }
        });
        all
    }

    pub fn said(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).into_owned()
    }
}

/// What was said, fit to be shown: the last lines, on one line, without frames and without anything that steers a terminal.
/// `None` when nothing was said.
pub fn quoted(said: &str) -> Option<String> {
    let lines: Vec<String> = said
        .lines()
        .map(|line| line.trim_matches(|c: char| c == '@' || c.is_whitespace()))
        .filter(|line| !line.is_empty())
        .map(|line| shown(line, LINE_BYTES_MAX))
        .collect();
    let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
    (!shown.is_empty()).then(|| shown.join(" / "))
}

/// How a process ended and what it said last, as far as either is known.
pub fn last_words(status: Option<ExitStatus>, said: &str) -> Option<String> {
    let ended = status.map(|status| format!("it {}", weir_sys::process::describe(status)));
    let quote = quoted(said).map(|quote| format!("it said: {quote}"));
    match (ended, quote) {
        (Some(ended), Some(quote)) => Some(format!("{ended}; {quote}")),
        (one, other) => one.or(other),
    }
}
