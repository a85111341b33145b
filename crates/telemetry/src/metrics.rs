//! Metrics of what is around the workloads: links, fabric, starts, and what the machine spent.

use crate::reduce::{Reduce, Reduction};
use weir_core::metric::{Better, Metric, Scope};

pub static METRICS: &[Metric] = &[
    Metric::new(
        "port.load_ratio",
        "1",
        Better::Neither,
        Scope::Port,
        "bytes a link's serialiser sent in the steady state, framing included, against what its rate allows",
    ),
    Metric::new(
        "port.dropped_packets",
        "packets",
        Better::Lower,
        Scope::Port,
        "packets that a link dropped during the step, for whatever reason: queue or buffer full, early, lost on the wire, in \
                     an outage, too large, at the end of their hop limit",
    ),
    Metric::new(
        "port.queue_bytes",
        "B",
        Better::Lower,
        Scope::Port,
        "IP bytes waiting at a link, mean of the samples in the steady state",
    ),
    Metric::new(
        "port.queue_bytes_max",
        "B",
        Better::Lower,
        Scope::Port,
        "IP bytes waiting at a link, largest sample during the step",
    ),
    Metric::new(
        "fabric.lateness_seconds",
        "s",
        Better::Lower,
        Scope::Operation,
        "written to the receiver minus planned departure, by the fabric's own clock, every delivery of the step; \
                     upper edges of buckets a factor 2^(1/4) wide",
    ),
    Metric::new(
        "fabric.busy_ratio",
        "1",
        Better::Lower,
        Scope::Trial,
        "CPU time of the fabric's process against the steady state's length",
    ),
    Metric::new(
        "fabric.looking_ratio",
        "1",
        Better::Neither,
        Scope::Trial,
        "time in which the fabric looked for packets, found none and had none to deliver, against the steady state's length; \
                     what of `fabric.busy_ratio` it could have spared",
    ),
    Metric::new(
        "fabric.behind_ratio",
        "1",
        Better::Lower,
        Scope::Trial,
        "time in which the oldest thing that the fabric should have done was older than the larger of 500 us and 5 % of the \
                     step's shortest one-way delay, against the step's length",
    ),
    Metric::new(
        "hosts.waited_ratio",
        "1",
        Better::Lower,
        Scope::Trial,
        "of the thread on a host that waited longest for a core: the time in its waits beyond that allowance of each, \
                     against the step's length",
    ),
    Metric::new(
        "machine.foreign_ratio",
        "1",
        Better::Lower,
        Scope::Trial,
        "share of all cores' time in the steady state that programs outside the run had, interrupts apart",
    ),
    Metric::new(
        "machine.busy_ratio",
        "1",
        Better::Neither,
        Scope::Trial,
        "share of all cores' time that was not idle in the steady state, all processes of the machine",
    ),
    Metric::new(
        "machine.stolen_ratio",
        "1",
        Better::Lower,
        Scope::Trial,
        "share of all cores' time in the steady state that the hypervisor gave to others while the machine had work (steal)",
    ),
    Metric::new(
        "control.start_spread_seconds",
        "s",
        Better::Lower,
        Scope::Trial,
        "latest minus earliest start of the step over its hosts, on the coordinator's clock",
    ),
    Metric::new(
        "control.clock_uncertainty_seconds",
        "s",
        Better::Lower,
        Scope::Host,
        "how far the times of a host with a clock of its own can be from the coordinator's, over the trial",
    ),
    Metric::new(
        "control.clock_drift_ratio",
        "1",
        Better::Neither,
        Scope::Host,
        "what a host's own clock gained on the coordinator's over the trial, against the trial's length",
    ),
    Metric::new(
        "telemetry.cost_ratio",
        "1",
        Better::Lower,
        Scope::Host,
        "CPU time that reading all these counters took, against the steady state's length: a share of one core. The \
                     schedule stretches its intervals so that it stays at 0.01 at most",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[Reduction {
    series: crate::schedule::COST.name,
    metric: "telemetry.cost_ratio",
    reduce: Reduce::Rate(1.0),
}];
