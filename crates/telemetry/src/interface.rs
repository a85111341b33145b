//! What each network interface carried, dropped and found broken, in the namespace that the sampler was built in.

use crate::proc_file::{ProcFile, Quantity, Recorder, entity};
use crate::reduce::{Reduce, Reduction};
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

/// Columns of `/proc/net/dev`, after the interface's name, that are kept.
const KEPT: [(usize, Quantity); 8] = [
    (0, Quantity::counter("interface.received_bytes", "B")),
    (1, Quantity::counter("interface.received_packets", "packets")),
    (2, Quantity::counter("interface.receive_error_count", "errors")),
    (3, Quantity::counter("interface.receive_dropped_packets", "packets")),
    (8, Quantity::counter("interface.sent_bytes", "B")),
    (9, Quantity::counter("interface.sent_packets", "packets")),
    (10, Quantity::counter("interface.send_error_count", "errors")),
    (11, Quantity::counter("interface.send_dropped_packets", "packets")),
];

pub static METRICS: &[Metric] = &[
    Metric::new(
        "interface.received_bits_per_second",
        "bit/s",
        Better::Neither,
        Scope::Host,
        "bytes that came in by a host's interface in the steady state, as the kernel counts them (a TUN device: IP \
                     bytes; Ethernet: headers too), times eight, a second; all programs of the host",
    ),
    Metric::new(
        "interface.sent_bits_per_second",
        "bit/s",
        Better::Neither,
        Scope::Host,
        "bytes that left by a host's interface in the steady state, counted as interface.received_bits_per_second",
    ),
    Metric::new(
        "interface.receive_dropped_packets",
        "packets",
        Better::Lower,
        Scope::Host,
        "packets that came in by a host's interface during the step and were thrown away by its driver or for want of memory",
    ),
    Metric::new(
        "interface.send_dropped_packets",
        "packets",
        Better::Lower,
        Scope::Host,
        "packets that a host's interface threw away during the step instead of sending: its queue was full",
    ),
    Metric::new(
        "interface.error_count",
        "errors",
        Better::Lower,
        Scope::Host,
        "packets that a host's interface counted as broken during the step, both directions",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    Reduction {
        series: "interface.received_bytes",
        metric: "interface.received_bits_per_second",
        reduce: Reduce::Rate(8.0),
    },
    Reduction {
        series: "interface.sent_bytes",
        metric: "interface.sent_bits_per_second",
        reduce: Reduce::Rate(8.0),
    },
    Reduction {
        series: "interface.receive_dropped_packets",
        metric: "interface.receive_dropped_packets",
        reduce: Reduce::Growth,
    },
    Reduction {
        series: "interface.send_dropped_packets",
        metric: "interface.send_dropped_packets",
        reduce: Reduce::Growth,
    },
    Reduction {
        series: "interface.receive_error_count",
        metric: "interface.error_count",
        reduce: Reduce::Growth,
    },
    Reduction {
        series: "interface.send_error_count",
        metric: "interface.error_count",
        reduce: Reduce::Growth,
    },
];

/// Most interfaces that are kept: a machine with thousands of containers has a pair for each.
const INTERFACES_MAX: usize = 16;

/// Counters of the interfaces, the loopback and those that never carried anything left out.
pub struct InterfaceSampler {
    host: String,
    dev: ProcFile,
    /// In the order in which they were first seen to carry something.
    names: Vec<String>,
    recorder: Recorder,
}

impl InterfaceSampler {
    pub fn new(target: &SamplerTarget) -> Self {
        InterfaceSampler {
            host: target.host.clone(),
            // Of the thread, not of the process: its first thread may be in another namespace.
            dev: ProcFile::open("/proc/thread-self/net/dev"),
            names: Vec::new(),
            recorder: Recorder::default(),
        }
    }
}

/// Name and counters of a line of `/proc/net/dev`; `None` for the headings.
fn counters(line: &str) -> Option<(&str, [u64; 16])> {
    // The name may touch the first number: `eth0:123`.
    let (name, rest) = line.split_once(':')?;
    let mut values = [0; 16];
    let mut words = rest.split_ascii_whitespace();
    for value in &mut values {
        *value = words.next()?.parse().ok()?;
    }
    Some((name.trim(), values))
}

impl Sampler for InterfaceSampler {
    fn sample(&mut self, now: Instant) {
        let Some(text) = self.dev.read() else { return };
        for (name, values) in text.lines().filter_map(counters) {
            let known = self.names.iter().any(|other| other == name);
            if !known {
                let silent = values[1] == 0 && values[9] == 0;
                if name == "lo" || silent || self.names.len() >= INTERFACES_MAX {
                    continue;
                }
                self.names.push(name.to_owned());
            }
            let of_it = entity(&self.host, Some(name));
            for (column, quantity) in &KEPT {
                self.recorder.put(now, &of_it, quantity, values[*column] as f64);
            }
        }
    }
    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        self.recorder.show(to);
    }
    fn take(&mut self) -> Vec<Series> {
        self.recorder.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_touches_its_first_number_is_told_apart_and_headings_are_none() {
        let line = "  eth0:53230920    2084    1    2    0     0          0         0   125396    1324    3    4    0     0       0          0";
        let (name, values) = counters(line).unwrap();
        assert_eq!(name, "eth0");
        let kept: Vec<u64> = KEPT.iter().map(|(column, _)| values[*column]).collect();
        assert_eq!(kept, [53_230_920, 2084, 1, 2, 125_396, 1324, 3, 4]);
        let heading = " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed";
        assert_eq!(counters(heading), None);
        assert_eq!(counters("eth0: 1 2 three"), None);
    }
}
