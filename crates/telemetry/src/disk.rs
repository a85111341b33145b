//! What each disk moved, and how long it was busy with it.

use crate::proc_file::{ProcFile, Quantity, Recorder, entity};
use crate::reduce::{Reduce, Reduction};
use weir_core::Instant;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

/// `/proc/diskstats` counts in sectors of 512 bytes, whatever the disk's own are.
const SECTOR_BYTES: f64 = 512.0;

/// Column after the disk's name, factor to the series' unit.
const KEPT: [(usize, f64, Quantity); 5] = [
    (0, 1.0, Quantity::counter("disk.read_operations", "operations")),
    (2, SECTOR_BYTES, Quantity::counter("disk.read_bytes", "B")),
    (4, 1.0, Quantity::counter("disk.write_operations", "operations")),
    (6, SECTOR_BYTES, Quantity::counter("disk.written_bytes", "B")),
    (9, 1e-3, Quantity::counter("disk.busy_seconds", "s")),
];

pub static METRICS: &[Metric] = &[
    Metric::new(
        "disk.read_bytes_per_second",
        "B/s",
        Better::Neither,
        Scope::Host,
        "bytes read from a disk in the steady state, all programs of the machine, a second; reads from the cache are none; of a service's disk those of the service",
    ),
    Metric::new(
        "disk.written_bytes_per_second",
        "B/s",
        Better::Neither,
        Scope::Host,
        "bytes written to a disk in the steady state, when they reached it, all programs of the machine, a second",
    ),
    Metric::new(
        "disk.read_operations_per_second",
        "1/s",
        Better::Neither,
        Scope::Host,
        "reads that a disk completed in the steady state, merged ones counting as one, a second",
    ),
    Metric::new(
        "disk.write_operations_per_second",
        "1/s",
        Better::Neither,
        Scope::Host,
        "writes that a disk completed in the steady state, merged ones counting as one, a second",
    ),
    Metric::new(
        "disk.busy_ratio",
        "1",
        Better::Neither,
        Scope::Host,
        "share of the steady state in which a disk had at least one operation under way; a disk that serves several at \
                     once may be far from its limit at 1; of a service's disk, what was asked against what it can do",
    ),
];

pub(crate) static REDUCTIONS: &[Reduction] = &[
    Reduction { series: "disk.read_bytes", metric: "disk.read_bytes_per_second", reduce: Reduce::Rate(1.0) },
    Reduction {
        series: "disk.written_bytes",
        metric: "disk.written_bytes_per_second",
        reduce: Reduce::Rate(1.0),
    },
    Reduction {
        series: "disk.read_operations",
        metric: "disk.read_operations_per_second",
        reduce: Reduce::Rate(1.0),
    },
    Reduction {
        series: "disk.write_operations",
        metric: "disk.write_operations_per_second",
        reduce: Reduce::Rate(1.0),
    },
    Reduction { series: "disk.busy_seconds", metric: "disk.busy_ratio", reduce: Reduce::Rate(1.0) },
];

/// Whole disks that were ever used; partitions are parts of them, loop and memory disks are none.
pub struct DiskSampler {
    host: String,
    stats: ProcFile,
    /// Names to keep, known from the first sample: `/sys/block` has whole disks only.
    disks: Vec<String>,
    recorder: Recorder,
}

/// Most disks that are kept.
const DISKS_MAX: usize = 32;

impl DiskSampler {
    pub fn new(target: &SamplerTarget) -> Self {
        let mut disks: Vec<String> = std::fs::read_dir("/sys/block")
            .map(|entries| entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        disks.retain(|name| !["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind)));
        disks.sort();
        disks.truncate(DISKS_MAX);
        DiskSampler {
            host: target.host.clone(),
            stats: ProcFile::open("/proc/diskstats"),
            disks,
            recorder: Recorder::default(),
        }
    }
}

/// Name and counters of a line of `/proc/diskstats`, as far as there are some.
fn counters(line: &str) -> Option<(&str, Vec<u64>)> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?;
    Some((name, words.map_while(|word| word.parse().ok()).collect()))
}

impl Sampler for DiskSampler {
    fn sample(&mut self, now: Instant) {
        let Some(text) = self.stats.read() else { return };
        for (name, values) in text.lines().filter_map(counters) {
            // Names of partitions begin with their disk's and are not in the list.
            let idle = values.iter().all(|value| *value == 0);
            if idle || !self.disks.iter().any(|disk| disk == name) {
                continue;
            }
            let of_it = entity(&self.host, Some(name));
            for (column, factor, quantity) in &KEPT {
                if let Some(value) = values.get(*column) {
                    self.recorder.put(now, &of_it, quantity, *value as f64 * factor);
                }
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
    fn the_columns_are_operations_sectors_and_milliseconds() {
        let line = " 254       0 vda 64638 17111 3751866 24716 9198 16718 1184144 4584 0 8688 29706 4091 18 196080 383";
        let (name, values) = counters(line).unwrap();
        let kept: Vec<f64> = KEPT.iter().map(|(column, factor, _)| values[*column] as f64 * factor).collect();
        assert_eq!(name, "vda");
        assert_eq!(kept, [64_638.0, 3_751_866.0 * 512.0, 9_198.0, 1_184_144.0 * 512.0, 8.688]);
        assert_eq!(counters("254 0"), None);
    }
}
