//! Disks that are slow where we say so: a directory behind a disk of stated rate, positioning time and cache. The model is pure, and a
//! process of file systems in user space is the shell around it. Its rules are numbered in docs/specs/disk.md.

mod due;
mod file_system;
mod inodes;
pub mod model;
pub mod process;

pub use file_system::Trouble;
pub use process::{DiskProcess, Mounted, SUBCOMMAND, WORDS, main};
