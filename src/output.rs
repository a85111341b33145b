//! The one way in which commands write standard output and standard error, and in which the program ends.
//!
//! Standard output is the result: a write that fails is remembered, whoever met it, and then decides how the program ends.
//! Standard error is for people: it never stops anything. Rules: `docs/specs/commands.md`.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use weir_core::text::{shown_json, shown_lines, shown_page};
use weir_sys::poll::{self, Interest};

/// What was wrong with standard output first; nothing is written after it. It has no lock: a program that is told to end must
/// not wait for a thread that writes to a reader who does not read.
static FAILED: OnceLock<io::Error> = OnceLock::new();
/// A descriptor of its own: the standard library's stream takes "bad file descriptor" for success, and keeps back what follows
/// the last line until the program has ended and no longer listens to errors.
static FILE: Mutex<Option<File>> = Mutex::new(None);
/// Between two looks at a standard output that someone else made non-blocking.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Standard output, for what writes bytes.
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }
    /// All of it or an error, and nothing of other threads between.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(error) = FAILED.get() {
            return Err(error.kind().into());
        }
        let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        write_to(&mut file, bytes).map_err(|error| {
            let kind = error.kind();
            // Only the first failure is told: those after it follow from it.
            let _ = FAILED.set(error);
            kind.into()
        })
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is kept back
    }
}

fn write_to(file: &mut Option<File>, mut bytes: &[u8]) -> io::Result<()> {
    if file.is_none() {
        *file = Some(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    }
    let Some(file) = file else { return Ok(()) };
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll::wait(file.as_fd(), Interest::Writable, FULL_PAUSE)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes `text` as it is to standard output: nothing of others in it steers. An error only ends the command early: `exit_status` tells it.
pub fn print(text: &str) -> io::Result<()> {
    Output.write_all(text.as_bytes())
}

/// Lines to standard output. Whoever worded a part of one, it steers no terminal and is bounded.
pub fn say(text: impl Display) -> io::Result<()> {
    print(&format!("{}\n", shown_page(&text.to_string())))
}

/// A JSON document to standard output.
pub fn say_json(document: impl Display) -> io::Result<()> {
    print(&format!("{}\n", shown_json(document.to_string().trim_end())))
}

/// A line to standard error, for people. Whoever worded a part of it, it steers no terminal and begins no line of its own.
pub fn tell(text: impl Display) {
    tell_as_it_is(shown_lines(&text.to_string()));
}

/// As `tell`, of a text that is laid out already, with nothing of others in it that steers. One that cannot be written is not
/// missed.
pub fn tell_as_it_is(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Whether standard output failed: to what serves until it is told to end, that is being told.
pub fn has_failed() -> bool {
    FAILED.get().is_some()
}

/// Whether a person looks at standard output.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Colour only where a person looks.
pub fn is_colored() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// What the parser has to say instead of a command: help and versions are results, all else is a usage error.
pub fn help(said: &clap::Error) -> anyhow::Result<i32> {
    if said.use_stderr() {
        let _ = said.print();
        return Ok(said.exit_code());
    }
    let text = said.render();
    #[cfg(feature = "terminal")]
    if is_colored() {
        return print(&text.ansi().to_string()).map(|()| 0).map_err(Into::into);
    }
    print(&text.to_string())?;
    Ok(0)
}

/// The exit status of a command that ended so, after what is wrong was told in one line. A reader who closed standard output
/// wanted no more of it: then the program ends as any filter does, by SIGPIPE and without a word.
pub fn exit_status(ended: anyhow::Result<i32>) -> i32 {
    match (FAILED.get(), ended) {
        (Some(error), _) if error.kind() == ErrorKind::BrokenPipe => weir_sys::signal::end_by_broken_pipe(),
        (Some(error), _) => {
            tell(format_args!("weir: cannot write standard output: {error}"));
            2
        }
        (None, Ok(status)) => status,
        (None, Err(error)) => {
            tell(format_args!("weir: {}", sentence(&error)));
            2
        }
    }
}

/// The error and what caused it, each said once: many causes are already part of the sentence above them.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in error.chain().map(ToString::to_string) {
        if !text.contains(&part) {
            let joint = if text.is_empty() { "" } else { ": " };
            text.push_str(joint);
            text.push_str(&part);
        }
    }
    text
}
