//! Renders records: terminal table, JSON, HTML. Sees records only, so that a report can be redrawn from a results folder on
//! any machine. What every file of the folder holds is in `docs/specs/results.md`.

mod curve;
mod escape;
mod failures;
mod folder;
mod html;
mod long;
mod matrix;
mod operations;
mod read;
mod records;
mod resume;
mod running;
mod sets;
mod sink;
mod table;
mod weight;
mod words;
mod writer;

pub use folder::{Definition, Folder, scenario_digest};
pub use html::html;
pub use read::FolderError;
pub use records::{Place, RunRecords, TrialSet};
pub use resume::{INTERRUPTED, Interrupted, ResumeError};
pub use sink::SINKS;
pub use sink::json::json;
pub use sink::terminal::{Style, terminal, wrapped};
pub use writer::{CAPTURES, WriteError, Writer};

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
