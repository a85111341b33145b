//! What a process said on its standard error, and how it ended: fit to be shown.

use std::io::Read;
use std::process::{ChildStderr, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use weir_core::text::shown;

/// The last of what a process said on standard error.
const WORDS_BYTES_MAX: usize = 8 * 1024;
/// Lines that are shown, and bytes of each.
const LINES_MAX: usize = 6;
const LINE_BYTES_MAX: usize = 300;

/// What is still on its way from a process that has ended comes within this time, unless another one holds the pipe too.
const ON_ITS_WAY_MAX: Duration = Duration::from_millis(500);

/// Collects the last words of a process for as long as it lives.
#[derive(Clone, Default)]
pub struct Words(Arc<Heard>);

#[derive(Default)]
struct Heard {
    said: Mutex<Said>,
    closed: Condvar,
}

#[derive(Default)]
struct Said {
    last: Vec<u8>,
    closed: bool,
}

impl Words {
    pub fn collect(mut errors: ChildStderr) -> Words {
        let all = Words::default();
        let words = all.clone();
        thread::spawn(move || {
            let mut some = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut some) {
                let mut said = words.0.said();
                said.last.extend_from_slice(&some[..count]);
                let surplus = said.last.len().saturating_sub(WORDS_BYTES_MAX);
                said.last.drain(..surplus);
            }
            words.0.said().closed = true;
            words.0.closed.notify_all();
        });
        all
    }

    /// Of a process that has ended.
    pub fn said(&self) -> String {
        let open = |said: &mut Said| !said.closed;
        let waited = self.0.closed.wait_timeout_while(self.0.said(), ON_ITS_WAY_MAX, open);
        let (said, _) = waited.unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said.last).into_owned()
    }
}

impl Heard {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
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
