//! Metrics of what is around the workloads: links, fabric, starts, and what the machine spent.

use crate::reduce::{Reduce, Reduction};
use weir_core::metric::{Better, Metric, Scope};

pub static METRICS: &[Metric] = &[
    Metric {
        name: "port.load_ratio",
        unit: "1",
        better: Better::Neither,
        scope: Scope::Port,
        definition: "bytes a link's serialiser sent in the steady state, framing included, against what its rate allows",
    },
    Metric {
        name: "port.dropped_packets",
        unit: "packets",
        better: Better::Lower,
        scope: Scope::Port,
        definition: "packets that a link dropped during the step, for whatever reason: queue or buffer full, early, lost on the wire, in \
                     an outage, too large, at the end of their hop limit",
    },
    Metric {
        name: "port.queue_bytes",
        unit: "B",
        better: Better::Lower,
        scope: Scope::Port,
        definition: "IP bytes waiting at a link, mean of the samples in the steady state",
    },
    Metric {
        name: "port.queue_bytes_max",
        unit: "B",
        better: Better::Lower,
        scope: Scope::Port,
        definition: "IP bytes waiting at a link, largest sample during the step",
    },
    Metric {
        name: "fabric.lateness_seconds",
        unit: "s",
        better: Better::Lower,
        scope: Scope::Operation,
        definition: "written to the receiver minus planned departure, by the fabric's own clock, every delivery of the step; \
                     upper edges of buckets a factor 2^(1/4) wide",
    },
    Metric {
        name: "fabric.busy_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "CPU time of the fabric's process against the steady state's length",
    },
    Metric {
        name: "fabric.looking_ratio",
        unit: "1",
        better: Better::Neither,
        scope: Scope::Trial,
        definition: "time in which the fabric looked for packets, found none and had none to deliver, against the steady state's length; \
                     what of `fabric.busy_ratio` it could have spared",
    },
    Metric {
        name: "fabric.behind_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "time in which the oldest thing that the fabric should have done was older than the larger of 500 us and 5 % of the \
                     step's shortest one-way delay, against the step's length",
    },
    Metric {
        name: "hosts.waited_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "of the thread on a host that waited longest for a core: the time in its waits beyond that allowance of each, \
                     against the step's length",
    },
    Metric {
        name: "machine.foreign_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "share of all cores' time in the steady state that programs outside the run had, interrupts apart",
    },
    Metric {
        name: "machine.busy_ratio",
        unit: "1",
        better: Better::Neither,
        scope: Scope::Trial,
        definition: "share of all cores' time that was not idle in the steady state, all processes of the machine",
    },
    Metric {
        name: "machine.stolen_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "share of all cores' time in the steady state that the hypervisor gave to others while the machine had work (steal)",
    },
    Metric {
        name: "control.start_spread_seconds",
        unit: "s",
        better: Better::Lower,
        scope: Scope::Trial,
        definition: "latest minus earliest start of the step over its hosts, on the coordinator's clock",
    },
    Metric {
        name: "control.clock_uncertainty_seconds",
        unit: "s",
        better: Better::Lower,
        scope: Scope::Host,
        definition: "how far the times of a host with a clock of its own can be from the coordinator's, over the trial",
    },
    Metric {
        name: "control.clock_drift_ratio",
        unit: "1",
        better: Better::Neither,
        scope: Scope::Host,
        definition: "what a host's own clock gained on the coordinator's over the trial, against the trial's length",
    },
    Metric {
        name: "telemetry.cost_ratio",
        unit: "1",
        better: Better::Lower,
        scope: Scope::Host,
        definition: "CPU time that reading all these counters took, against the steady state's length: a share of one core. The \
                     schedule stretches its intervals so that it stays at 0.01 at most",
    },
];

pub(crate) static REDUCTIONS: &[Reduction] = &[Reduction {
    series: crate::schedule::COST.name,
    metric: "telemetry.cost_ratio",
    reduce: Reduce::Rate(1.0),
}];
