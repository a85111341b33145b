//! What the network costs the cores that nobody asked: soft interrupts and the backlog they work off.

use crate::proc_file::{ProcFile, Quantity, Recorder, entity};
use crate::reduce::{Reduce, Reduction};
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

const SECONDS: Quantity = Quantity::counter("softirq.busy_seconds", "s");
const RECEIVE: Quantity = Quantity::counter("softirq.receive_count", "interrupts");
const SEND: Quantity = Quantity::counter("softirq.send_count", "interrupts");
const DROPPED: Quantity = Quantity::counter("softnet.dropped_packets", "packets");
const SQUEEZED: Quantity = Quantity::counter("softnet.squeezed_count", "rounds");

pub static METRICS: &[Metric] = &[
    Metric::new(
        "softirq.busy_ratio",
        "1",
        Better::Lower,
        Scope::Host,
        "share of a core's time (machine: of all cores') in soft interrupts in the steady state, where packets are \
                     received and acknowledgements handled; /proc/stat, whose tick is 10 ms",
    ),
    Metric::new(
        "softirq.receive_per_second",
        "1/s",
        Better::Neither,
        Scope::Host,
        "NET_RX soft interrupts a second in the steady state, all cores, from /proc/softirqs",
    ),
    Metric::new(
        "softirq.send_per_second",
        "1/s",
        Better::Neither,
        Scope::Host,
        "NET_TX soft interrupts a second in the steady state, all cores, from /proc/softirqs",
    ),
    Metric::new(
        "softnet.dropped_packets",
        "packets",
        Better::Lower,
        Scope::Host,
        "packets that the kernel threw away during the step because a core's backlog was full (net.core.netdev_max_backlog)",
    ),
    Metric::new(
        "softnet.squeezed_count",
        "rounds",
        Better::Lower,
        Scope::Host,
        "rounds of network soft interrupts that ended during the step with packets left, because their time or budget \
                     was used up (net.core.netdev_budget)",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    Reduction { series: "softirq.busy_seconds", metric: "softirq.busy_ratio", reduce: Reduce::PerCore },
    Reduction {
        series: "softirq.receive_count",
        metric: "softirq.receive_per_second",
        reduce: Reduce::Rate(1.0),
    },
    Reduction { series: "softirq.send_count", metric: "softirq.send_per_second", reduce: Reduce::Rate(1.0) },
    Reduction {
        series: "softnet.dropped_packets",
        metric: "softnet.dropped_packets",
        reduce: Reduce::Growth,
    },
    Reduction { series: "softnet.squeezed_count", metric: "softnet.squeezed_count", reduce: Reduce::Growth },
];

/// Soft-interrupt time of each core and of all, counts of network soft interrupts, and what their backlog dropped or put off.
pub struct SoftirqSampler {
    host: String,
    stat: ProcFile,
    counts: ProcFile,
    backlog: ProcFile,
    recorder: Recorder,
}

impl SoftirqSampler {
    pub fn new(target: &SamplerTarget) -> Self {
        SoftirqSampler {
            host: target.host.clone(),
            stat: ProcFile::open("/proc/stat"),
            counts: ProcFile::open("/proc/softirqs"),
            backlog: ProcFile::open("/proc/net/softnet_stat"),
            recorder: Recorder::default(),
        }
    }
}

/// Core (`cpu`, `cpu0`, …) and soft-interrupt ticks of a line of `/proc/stat`.
fn softirq_ticks(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().filter(|name| name.starts_with("cpu"))?;
    // user nice system idle iowait irq softirq
    Some((name, words.nth(6)?.parse().ok()?))
}

/// The sum over all cores of a row of `/proc/softirqs`.
fn count_of(text: &str, row: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(row)?.strip_prefix(':'))?;
    Some(line.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum())
}

/// Dropped and squeezed over all cores of `/proc/net/softnet_stat`: hexadecimal, one core a line, columns 2 and 3.
fn backlog_of(text: &str) -> Option<(u64, u64)> {
    let (mut dropped, mut squeezed) = (0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        dropped += u64::from_str_radix(words.next()?, 16).ok()?;
        squeezed += u64::from_str_radix(words.next()?, 16).ok()?;
    }
    Some((dropped, squeezed))
}

impl Sampler for SoftirqSampler {
    fn sample(&mut self, now: Instant) {
        let whole = entity(&self.host, None);
        let put = &mut self.recorder;
        for (name, ticks) in self.stat.read().unwrap_or("").lines().map_while(softirq_ticks) {
            let of_core = (name != "cpu").then(|| entity(&self.host, Some(name)));
            put.put(
                now,
                of_core.as_deref().unwrap_or(&whole),
                &SECONDS,
                ticks as f64 / crate::cpu::TICKS_PER_SECOND,
            );
        }
        if let Some(text) = self.counts.read() {
            for (row, quantity) in [("NET_RX", &RECEIVE), ("NET_TX", &SEND)] {
                if let Some(count) = count_of(text, row) {
                    put.put(now, &whole, quantity, count as f64);
                }
            }
        }
        if let Some((dropped, squeezed)) = self.backlog.read().and_then(backlog_of) {
            put.put(now, &whole, &DROPPED, dropped as f64);
            put.put(now, &whole, &SQUEEZED, squeezed as f64);
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
    fn the_columns_are_those_of_the_kernel() {
        assert_eq!(softirq_ticks("cpu1 10 1 20 1000 50 2 3 4 0 0"), Some(("cpu1", 3)));
        assert_eq!(softirq_ticks("intr 1 2 3 4 5 6 7 8"), None);
        let text = "                    CPU0       CPU1\n      NET_TX:        406        338\n      NET_RX:     113867     150845\n";
        assert_eq!((count_of(text, "NET_RX"), count_of(text, "NET_TX")), (Some(264_712), Some(744)));
        let lines = "00676c78 00000002 0000000a 0 0\n0085d328 00000001 00000001 0 0\n";
        assert_eq!(backlog_of(lines), Some((3, 11)));
        assert_eq!(backlog_of("00676c78\n"), None, "a kernel with fewer columns is not measured");
    }
}
