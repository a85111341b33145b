//! Targets that need no client: one file each.

pub mod memory;
pub mod null;
pub mod posix;
#[cfg(test)]
mod tests;

use weir_seams::Entry;
use weir_seams::target::TargetEntry;

pub static TARGETS: &[TargetEntry] = &[
    Entry {
        name: "posix",
        about: "files of this machine, whatever is mounted there: /PATH or posix:PATH",
        params: posix::PARAMS,
        needs: &[],
        build: &posix::Posix,
    },
    Entry {
        name: "mem",
        about: "files in this process's memory, which go away with it: measures weir itself",
        params: &[],
        needs: &[],
        build: &memory::Memory,
    },
    Entry {
        name: "null",
        about: "completes everything at once and keeps nothing: measures the load's own cost",
        params: &[],
        needs: &[],
        build: &null::Null,
    },
];
