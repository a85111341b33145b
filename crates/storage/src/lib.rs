//! Storage load: what is asked of a target, by jobs that read and write files, and what came of it. Targets that need no client
//! are here, those that do are adapters; the rule is `docs/specs/storage.md`.

pub mod content;
mod flight;
mod job;
mod lane;
mod layout;
mod load;
mod metrics;
mod plan;
mod replay;
mod script;
pub mod target;
#[cfg(test)]
mod tests;
pub mod trace;
mod workload;

pub use metrics::is_all_failed;
pub use plan::CACHES_KEY;
use plan::Pattern;
use weir_seams::Entry;
use weir_seams::target::TargetEntry;
use weir_seams::workload::WorkloadEntry;

/// The workloads, on whatever targets there are. They live as long as the program does.
pub fn workloads(targets: &'static [TargetEntry]) -> Vec<WorkloadEntry> {
    let io = |name, pattern| -> &'static workload::Io {
        Box::leak(Box::new(workload::Io { name, pattern, targets }))
    };
    let mut all: Vec<WorkloadEntry> = vec![
        Entry {
            name: "io-seq",
            about: "Reads or writes files from their beginning to their end.",
            params: plan::SEQUENTIAL,
            needs: &[],
            build: io("io-seq", Pattern::Sequential),
        },
        Entry {
            name: "io-random",
            about: "Reads or writes at random places of files.",
            params: plan::RANDOM,
            needs: &[],
            build: io("io-random", Pattern::Random),
        },
    ];
    all.extend(script::workloads(targets));
    all
}
