//! What disks of services have done, read from the page that their process writes.

use crate::ports::ReadWord;
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SeriesView};

/// Words of a disk: the series' name and unit, and the factor from what the word counts.
const KEPT: &[(usize, &str, &str, f64)] = &[
    (0, "disk.read_bytes", "B", 1.0),
    (1, "disk.written_bytes", "B", 1.0),
    (4, "disk.busy_seconds", "s", 1e-9),
];

pub struct DiskPageSampler {
    read: ReadWord,
    /// Of each disk its name and its first word.
    disks: Vec<(String, usize)>,
    t_ns: Vec<i64>,
    /// `[disk][kept word][sample]`
    values: Vec<Vec<Vec<f64>>>,
}

impl DiskPageSampler {
    pub fn new(read: ReadWord, disks: Vec<(String, usize)>) -> Self {
        let values = vec![vec![Vec::new(); KEPT.len()]; disks.len()];
        DiskPageSampler { read, disks, t_ns: Vec::new(), values }
    }
}

impl Sampler for DiskPageSampler {
    fn sample(&mut self, now: Instant) {
        self.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
        for ((_, start), of_disk) in self.disks.iter().zip(&mut self.values) {
            for ((word, _, _, factor), values) in KEPT.iter().zip(of_disk) {
                values.push((self.read)(start + word) as f64 * factor);
            }
        }
    }

    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        let t_ns = &self.t_ns[..];
        for ((entity, _), of_disk) in self.disks.iter().zip(&self.values) {
            for ((_, name, unit, _), value) in KEPT.iter().zip(of_disk) {
                to(SeriesView { entity, name, unit, cumulative: true, t_ns, value });
            }
        }
    }

    fn take(&mut self) -> Vec<Series> {
        let mut all = Vec::with_capacity(self.disks.len() * KEPT.len());
        self.show(&mut |series| all.push(series.to_owned()));
        self.t_ns.clear();
        self.values.iter_mut().flatten().for_each(Vec::clear);
        all
    }
}
