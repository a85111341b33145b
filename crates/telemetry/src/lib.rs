//! Samplers and the schedule that runs them.

pub mod cpu;
pub mod disk;
mod disk_page;
pub mod interface;
pub mod memory;
pub mod metrics;
pub mod ports;
mod proc_file;
pub mod reduce;
pub mod schedule;
pub mod service;
mod shown;
pub mod softirq;
pub mod stack;
pub mod transfers;

pub use disk_page::DiskPageSampler;
pub use ports::PortSampler;
pub use reduce::{mean, rows};
pub use schedule::{Schedule, Teller};
pub use service::ServiceSampler;
pub use shown::SHOWN;

use reduce::Reduction;
use std::time::Duration;
use weir_core::metric::Metric;
use weir_seams::Entry;
use weir_seams::sampler::{Sampler, SamplerEntry, SamplerTarget};

/// Metrics of everything around the workloads, those of each sampler in its own file.
pub static METRICS: &[&[Metric]] = &[
    metrics::METRICS,
    softirq::METRICS,
    interface::METRICS,
    memory::METRICS,
    disk::METRICS,
    stack::METRICS,
    service::METRICS,
];

/// How the samplers' series become values of those metrics.
pub(crate) fn reductions() -> impl Iterator<Item = &'static Reduction> {
    let all: [&'static [Reduction]; 7] = [
        metrics::REDUCTIONS,
        softirq::REDUCTIONS,
        interface::REDUCTIONS,
        memory::REDUCTIONS,
        disk::REDUCTIONS,
        stack::REDUCTIONS,
        service::REDUCTIONS,
    ];
    all.into_iter().flatten()
}

/// Samplers that can be built from a target alone; the fabric's ports need its page and are built by the run.
pub static SAMPLERS: &[SamplerEntry] = &[
    Entry {
        name: "cpu",
        about: "busy share of every core and of the whole machine, from /proc/stat",
        params: &[],
        needs: &[],
        build: |target| Box::new(cpu::CoreSampler::new(target)),
    },
    Entry {
        name: "process",
        about: "CPU time of weir's own processes, from /proc/PID/stat",
        params: &[],
        needs: &[],
        build: |target| Box::new(cpu::ProcessSampler::new(&target.processes)),
    },
    Entry {
        name: "softirq",
        about: "soft interrupts of the network: time, count, and packets dropped or put off by a full backlog",
        params: &[],
        needs: &[],
        build: |target| Box::new(softirq::SoftirqSampler::new(target)),
    },
    Entry {
        name: "interface",
        about: "bytes, packets, drops and errors of each interface of a host, from /proc/net/dev",
        params: &[],
        needs: &[],
        build: |target| Box::new(interface::InterfaceSampler::new(target)),
    },
    Entry {
        name: "stack",
        about: "TCP counters of a whole host: retransmissions, reordering, time-outs, checksum errors (as nstat shows them)",
        params: &[],
        needs: &[],
        build: |target| Box::new(stack::StackSampler::new(target)),
    },
    Entry {
        name: "memory",
        about: "memory left, and held by TCP's sockets",
        params: &[],
        needs: &[],
        build: |target| Box::new(memory::MemorySampler::new(target)),
    },
    Entry {
        name: "disk",
        about: "bytes, operations and busy time of each disk, from /proc/diskstats",
        params: &[],
        needs: &[],
        build: |target| Box::new(disk::DiskSampler::new(target)),
    },
];

/// Samplers of what a network namespace has of its own: what a lab's host runs; a real host runs all of them.
pub const OF_NAMESPACE: &[&str] = &["interface", "stack"];

/// How often what a host counts is read; a schedule whose samplers would cost more than it may stretches this.
pub const HOST_INTERVAL: Duration = Duration::from_millis(100);

/// The samplers of these names, each with the interval at which it is to be read. Names that this build does not have are
/// left out: what is not measured is absent.
pub fn build(names: &[String], target: &SamplerTarget, every: Duration) -> Vec<(Duration, Box<dyn Sampler>)> {
    let known = SAMPLERS.iter().filter(|entry| names.iter().any(|name| name == entry.name));
    known.map(|entry| (every, (entry.build)(target))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_core::Instant;

    #[test]
    fn every_reduction_ends_in_a_metric_that_is_declared_once() {
        let mut names = BTreeSet::new();
        for metric in METRICS.iter().copied().flatten() {
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
            assert!(!metric.definition.is_empty() && metric.name.contains('.'), "{}", metric.name);
        }
        for reduction in reductions() {
            assert!(names.contains(reduction.metric), "{} is not declared", reduction.metric);
        }
    }

    /// What every sampler must keep, whatever it reads.
    #[test]
    fn samplers_keep_true_times_only_grow_what_they_call_counters_and_name_known_series() {
        let target = SamplerTarget {
            processes: vec![("own".to_owned(), std::process::id())],
            ..SamplerTarget::default()
        };
        for entry in SAMPLERS {
            let mut sampler = (entry.build)(&target);
            for now in [10, 20, 30] {
                sampler.sample(Instant::from_ns(now));
            }
            for series in sampler.take() {
                let name = format!("{}: {} of {}", entry.name, series.name, series.entity);
                assert_eq!(series.t_ns.len(), series.value.len(), "{name}");
                assert!(
                    series.t_ns.is_sorted() && series.t_ns.iter().all(|t| [10, 20, 30].contains(t)),
                    "{name}"
                );
                assert!(!series.cumulative || series.value.is_sorted(), "{name}: {:?}", series.value);
                assert!(
                    series.entity.starts_with("machine") || series.entity.starts_with("process."),
                    "{name}"
                );
            }
            assert!(
                sampler.take().iter().all(|series| series.t_ns.is_empty()),
                "{}: taken twice",
                entry.name
            );
        }
    }

    #[test]
    fn a_samplers_series_are_the_hosts_whose_name_it_was_given() {
        let target = SamplerTarget { host: "left-0".to_owned(), ..SamplerTarget::default() };
        let names: Vec<String> = SAMPLERS.iter().map(|entry| entry.name.to_owned()).collect();
        for (every, mut sampler) in build(&names, &target, HOST_INTERVAL) {
            assert_eq!(every, HOST_INTERVAL);
            sampler.sample(Instant::from_ns(1));
            assert!(sampler.take().iter().all(|series| series.entity.starts_with("host.left-0")));
        }
        assert!(build(&["nothing".to_owned()], &target, HOST_INTERVAL).is_empty());
    }
}
