//! Disks that are slow where we say so: a directory behind a disk of stated rate, positioning time and cache. The model is pure, and a
//! process of file systems in user space is the shell around it. Its rules are numbered in docs/specs/disk.md.

mod due;
mod faults;
mod file_system;
mod inodes;
pub mod model;
pub mod process;

pub use faults::FAULTS;
pub use process::{DiskProcess, Mounted, WORDS};

/// Not a command for people: the process of a lab's disks, started by weir itself. Returns the exit status where `subcommand` is it.
pub fn hidden(subcommand: &std::ffi::OsStr) -> Option<i32> {
    (subcommand == process::SUBCOMMAND).then(process::main)
}
