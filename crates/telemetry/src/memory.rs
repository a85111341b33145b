//! Memory that is left, and what TCP's sockets hold of it.

use crate::proc_file::{ProcFile, Quantity, Recorder, entity};
use crate::reduce::{Reduce, Reduction};
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

const AVAILABLE: Quantity = Quantity::level("memory.available_bytes", "B");
const TCP: Quantity = Quantity::level("memory.tcp_bytes", "B");
const TCP_RATIO: Quantity = Quantity::level("memory.tcp_ratio", "1");

pub static METRICS: &[Metric] = &[
    Metric::new(
        "memory.available_bytes",
        "B",
        Better::Higher,
        Scope::Host,
        "least memory that programs could still have had without swapping, of the samples during the step (MemAvailable)",
    ),
    Metric::new(
        "memory.tcp_bytes",
        "B",
        Better::Neither,
        Scope::Host,
        "most memory that the buffers of all TCP sockets held, of the samples during the step, all namespaces of the machine",
    ),
    Metric::new(
        "memory.tcp_ratio",
        "1",
        Better::Lower,
        Scope::Host,
        "memory.tcp_bytes against the third value of net.ipv4.tcp_mem, at which the kernel refuses more; from the second \
                     value on it shrinks windows",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    Reduction { series: "memory.available_bytes", metric: "memory.available_bytes", reduce: Reduce::Min },
    Reduction { series: "memory.tcp_bytes", metric: "memory.tcp_bytes", reduce: Reduce::Max },
    Reduction { series: "memory.tcp_ratio", metric: "memory.tcp_ratio", reduce: Reduce::Max },
];

pub struct MemorySampler {
    host: String,
    memory: ProcFile,
    sockets: ProcFile,
    /// Pages at which the kernel refuses more to TCP; read once: nobody changes it within a trial.
    tcp_pages_max: Option<f64>,
    page_bytes: f64,
    recorder: Recorder,
}

impl MemorySampler {
    pub fn new(target: &SamplerTarget) -> Self {
        let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok();
        MemorySampler {
            host: target.host.clone(),
            memory: ProcFile::open("/proc/meminfo"),
            sockets: ProcFile::open("/proc/net/sockstat"),
            tcp_pages_max: limits.and_then(|text| text.split_ascii_whitespace().nth(2)?.parse().ok()),
            page_bytes: weir_sys::limits::page_bytes() as f64,
            recorder: Recorder::default(),
        }
    }
}

fn available_bytes(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// Pages that TCP's sockets hold, from `/proc/net/sockstat`.
fn tcp_pages(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

impl Sampler for MemorySampler {
    fn sample(&mut self, now: Instant) {
        let whole = entity(&self.host, None);
        if let Some(bytes) = self.memory.read().and_then(available_bytes) {
            self.recorder.put(now, &whole, &AVAILABLE, bytes);
        }
        if let Some(pages) = self.sockets.read().and_then(tcp_pages) {
            self.recorder.put(now, &whole, &TCP, pages * self.page_bytes);
            if let Some(most) = self.tcp_pages_max.filter(|most| *most > 0.0) {
                self.recorder.put(now, &whole, &TCP_RATIO, pages / most);
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
    fn memory_is_read_in_bytes_and_pages() {
        let text = "MemTotal:       8000000 kB\nMemFree:         100 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_bytes(text), Some(2_097_152.0));
        let sockets = "sockets: used 16\nTCP: inuse 1 orphan 0 tw 0 alloc 3 mem 1109\nUDP: inuse 0 mem 7\n";
        assert_eq!(tcp_pages(sockets), Some(1109.0));
        assert_eq!(tcp_pages("TCP: inuse 1\n"), None);
    }
}
