//! What the TCP of a whole host counted: all programs of the network namespace that the sampler was built in.

use crate::proc_file::{ProcFile, Quantity, Recorder, entity};
use crate::reduce::{Reduce, Reduction};
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

/// A series and the kernel's counters that it is the sum of: `Tcp` ones of `/proc/net/snmp`, `TcpExt` ones of
/// `/proc/net/netstat`. A counter that this kernel does not have counts as none; a series without any is left out.
struct Kept {
    quantity: Quantity,
    counters: &'static [&'static str],
}

const fn kept(name: &'static str, unit: &'static str, counters: &'static [&'static str]) -> Kept {
    Kept { quantity: Quantity::counter(name, unit), counters }
}

static KEPT: [Kept; 11] = [
    kept("stack.sent_segments", "segments", &["OutSegs"]),
    kept("stack.retransmitted_segments", "segments", &["RetransSegs"]),
    // Order found broken: by selective acknowledgements, timestamps, or plain duplicate acknowledgements.
    kept("stack.reordering_count", "times", &["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"]),
    kept("stack.duplicate_segments", "segments", &["TCPDSACKRecv", "TCPDSACKOfoRecv"]),
    kept("stack.timeout_count", "times", &["TCPTimeouts"]),
    kept("stack.spurious_timeout_count", "times", &["TCPSpuriousRTOs"]),
    kept("stack.out_of_order_segments", "segments", &["TCPOFOQueue"]),
    kept("stack.checksum_error_count", "errors", &["InCsumErrors"]),
    // The receiving program is behind: its buffer was pruned, arrivals were refused, or the window closed to nothing.
    kept("stack.pruned_count", "times", &["PruneCalled", "RcvPruned", "OfoPruned"]),
    kept(
        "stack.receive_dropped_segments",
        "segments",
        &["TCPRcvQDrop", "TCPBacklogDrop", "TCPZeroWindowDrop"],
    ),
    kept("stack.zero_window_count", "times", &["TCPToZeroWindowAdv"]),
];

pub static METRICS: &[Metric] = &[
    Metric::new(
        "stack.retransmitted_segments",
        "segments",
        Better::Lower,
        Scope::Host,
        "segments that a host's TCP sent again during the step, all its connections (RetransSegs)",
    ),
    Metric::new(
        "stack.reordering_count",
        "times",
        Better::Lower,
        Scope::Host,
        "times that a host's TCP found the path to have changed the order of its segments during the step \
                     (TCPSACKReorder + TCPTSReorder + TCPRenoReorder)",
    ),
    Metric::new(
        "stack.duplicate_segments",
        "segments",
        Better::Lower,
        Scope::Host,
        "segments that a host had sent during the step and its peers said they had twice (TCPDSACKRecv + TCPDSACKOfoRecv)",
    ),
    Metric::new(
        "stack.timeout_count",
        "times",
        Better::Lower,
        Scope::Host,
        "retransmission time-outs of a host's TCP during the step (TCPTimeouts)",
    ),
    Metric::new(
        "stack.out_of_order_segments",
        "segments",
        Better::Lower,
        Scope::Host,
        "segments that reached a host during the step before an earlier one of their connection (TCPOFOQueue)",
    ),
    Metric::new(
        "stack.checksum_error_count",
        "errors",
        Better::Lower,
        Scope::Host,
        "segments that reached a host during the step with a wrong TCP checksum and were thrown away (InCsumErrors)",
    ),
    Metric::new(
        "stack.receive_dropped_segments",
        "segments",
        Better::Lower,
        Scope::Host,
        "segments that reached a host during the step and found no room in a socket (TCPRcvQDrop + TCPBacklogDrop + \
                     TCPZeroWindowDrop)",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    growth("stack.retransmitted_segments"),
    growth("stack.reordering_count"),
    growth("stack.duplicate_segments"),
    growth("stack.timeout_count"),
    growth("stack.out_of_order_segments"),
    growth("stack.checksum_error_count"),
    growth("stack.receive_dropped_segments"),
];

const fn growth(name: &'static str) -> Reduction {
    Reduction { series: name, metric: name, reduce: Reduce::Growth }
}

/// One of the two files with the columns that are wanted of it.
struct Table {
    file: ProcFile,
    /// How its lines begin: `Tcp:` or `TcpExt:`.
    lead: &'static str,
    /// Column and index into `KEPT`; found at the first sample, since a kernel's columns stay where they are.
    columns: Option<Vec<(usize, usize)>>,
}

impl Table {
    fn new(path: &str, lead: &'static str) -> Self {
        Table { file: ProcFile::open(path), lead, columns: None }
    }

    /// Adds this table's part of each series to `sums`.
    fn add(&mut self, sums: &mut [Option<u64>; KEPT.len()]) {
        let Some(text) = self.file.read() else { return };
        let lead = self.lead;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(lead));
        let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return };
        let columns = self.columns.get_or_insert_with(|| columns_of(names));
        let mut wanted = columns.iter().peekable();
        for (column, value) in values.split_ascii_whitespace().enumerate() {
            while let Some((_, index)) = wanted.next_if(|(wanted, _)| *wanted == column) {
                if let Ok(value) = value.parse::<u64>() {
                    sums[*index] = Some(sums[*index].unwrap_or(0) + value);
                }
            }
            if wanted.peek().is_none() {
                return;
            }
        }
    }
}

/// Columns that some series wants, ascending.
fn columns_of(names: &str) -> Vec<(usize, usize)> {
    let mut columns = Vec::new();
    for (column, name) in names.split_ascii_whitespace().enumerate() {
        for (index, kept) in KEPT.iter().enumerate() {
            if kept.counters.contains(&name) {
                columns.push((column, index));
            }
        }
    }
    columns
}

/// Counters of a host's TCP.
pub struct StackSampler {
    entity: String,
    tables: [Table; 2],
    recorder: Recorder,
}

impl StackSampler {
    pub fn new(target: &SamplerTarget) -> Self {
        StackSampler {
            entity: entity(&target.host, None),
            tables: [
                Table::new("/proc/thread-self/net/snmp", "Tcp:"),
                Table::new("/proc/thread-self/net/netstat", "TcpExt:"),
            ],
            recorder: Recorder::default(),
        }
    }
}

impl Sampler for StackSampler {
    fn sample(&mut self, now: Instant) {
        let mut sums = [None; KEPT.len()];
        for table in &mut self.tables {
            table.add(&mut sums);
        }
        for (kept, sum) in KEPT.iter().zip(sums) {
            if let Some(sum) = sum {
                self.recorder.put(now, &self.entity, &kept.quantity, sum as f64);
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
    use std::io::Write;

    #[test]
    fn counters_are_found_by_their_names_wherever_this_kernel_has_them() {
        assert_eq!(columns_of(" A RetransSegs B TCPTSReorder TCPSACKReorder"), [(1, 1), (3, 2), (4, 2)]);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "IpExt: RetransSegs\nIpExt: 9\nTcp: MaxConn RetransSegs OutSegs\nTcp: -1 5 70\n")
            .unwrap();
        let mut table = Table::new(file.path().to_str().unwrap(), "Tcp:");
        let mut sums = [None; KEPT.len()];
        table.add(&mut sums);
        assert_eq!((sums[0], sums[1], sums[2]), (Some(70), Some(5), None), "what a kernel lacks is not 0");
    }

    #[test]
    fn segments_over_the_loopback_are_counted_by_this_hosts_tcp() {
        let mut sampler = StackSampler::new(&SamplerTarget::default());
        sampler.sample(Instant::from_ns(1));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.write_all(&[1; 1000]).unwrap();
        sampler.sample(Instant::from_ns(2));
        let series = sampler.take();
        let sent = series.iter().find(|it| it.name == "stack.sent_segments").unwrap();
        assert_eq!((sent.entity.as_str(), sent.t_ns.as_slice()), ("machine", [1, 2].as_slice()));
        assert!(sent.value[1] >= sent.value[0] + 3.0, "{:?}", sent.value);
    }
}
