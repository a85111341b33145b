//! Samplers and the schedule that runs them.

pub mod cpu;
pub mod metrics;
pub mod ports;
pub mod schedule;

pub use metrics::METRICS;
pub use ports::PortSampler;
pub use schedule::Schedule;

use weir_seams::Entry;
use weir_seams::sampler::SamplerEntry;

/// Samplers that can be built from a target alone; the fabric's ports need its page and are built by the run.
pub static SAMPLERS: &[SamplerEntry] = &[
    Entry {
        name: "cpu",
        about: "busy share of every core and of the whole machine, from /proc/stat",
        params: &[],
        needs: &[],
        build: |_target| Box::new(cpu::CoreSampler::default()),
    },
    Entry {
        name: "process",
        about: "CPU time of weir's own processes, from /proc/PID/stat",
        params: &[],
        needs: &[],
        build: |target| Box::new(cpu::ProcessSampler::new(&target.processes)),
    },
];
