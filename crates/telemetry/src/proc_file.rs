//! Files of the kernel that are read again and again, and the series that grow from them.

use std::fs::File;
use std::io::{Read, Seek};
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::SeriesView;

/// A file under `/proc` kept open and read again from its start, into a buffer that is reused.
pub(crate) struct ProcFile {
    file: Option<File>,
    text: String,
}

impl ProcFile {
    /// A file that cannot be opened reads as `None` for ever: what is not measured is left out.
    pub(crate) fn open(path: &str) -> Self {
        ProcFile { file: File::open(path).ok(), text: String::new() }
    }
    /// `None` once what is behind it (a process) is gone.
    pub(crate) fn read(&mut self) -> Option<&str> {
        let file = self.file.as_mut()?;
        self.text.clear();
        file.rewind().ok()?;
        file.read_to_string(&mut self.text).ok()?;
        Some(&self.text)
    }
}

/// What a sampler calls one of its series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    pub name: &'static str,
    pub unit: &'static str,
    /// True for counters that only grow.
    pub cumulative: bool,
}

impl Quantity {
    pub(crate) const fn counter(name: &'static str, unit: &'static str) -> Self {
        Quantity { name, unit, cumulative: true }
    }
    pub(crate) const fn level(name: &'static str, unit: &'static str) -> Self {
        Quantity { name, unit, cumulative: false }
    }
}

/// Samples of one series at most: ten minutes at the usual interval, 100 KB. A watch of hours has them further apart.
const SAMPLES_MAX: usize = 6_000;

/// Series that are filled in the same order at every sample.
#[derive(Default)]
pub(crate) struct Recorder {
    series: Vec<Series>,
    /// Of each series: how many values have come, and that every so many-th is kept.
    kept: Vec<(u64, u64)>,
    /// Where the next value most likely belongs: samples come in one order, so that looking it up is one comparison.
    next: usize,
}

impl Recorder {
    /// Adds a value of `quantity` to the series of `entity`, which begins here if it is new.
    pub(crate) fn put(&mut self, now: Instant, entity: &str, quantity: &Quantity, value: f64) {
        let is = |series: &Series| series.name == quantity.name && series.entity == entity;
        let index = match self.series.get(self.next) {
            Some(series) if is(series) => self.next,
            _ => self.series.iter().position(is).unwrap_or_else(|| {
                self.series.push(Series {
                    entity: entity.to_owned(),
                    name: quantity.name.to_owned(),
                    unit: quantity.unit.to_owned(),
                    cumulative: quantity.cumulative,
                    t_ns: Vec::new(),
                    value: Vec::new(),
                });
                self.kept.push((0, 1));
                self.series.len() - 1
            }),
        };
        let (series, (taken, stride)) = (&mut self.series[index], &mut self.kept[index]);
        if taken.is_multiple_of(*stride) {
            if series.t_ns.len() == SAMPLES_MAX {
                halve(&mut series.t_ns);
                halve(&mut series.value);
                *stride *= 2;
            }
            if taken.is_multiple_of(*stride) {
                series.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
                series.value.push(value);
            }
        }
        *taken += 1;
        self.next = if index + 1 == self.series.len() { 0 } else { index + 1 };
    }

    pub(crate) fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        self.series.iter().for_each(|series| to(series.into()));
    }

    pub(crate) fn take(&mut self) -> Vec<Series> {
        self.next = 0;
        self.kept.clear();
        std::mem::take(&mut self.series)
    }
}

/// Keeps the first of each two.
fn halve<T: Copy>(all: &mut Vec<T>) {
    let half = all.len().div_ceil(2);
    for index in 1..half {
        all[index] = all[2 * index];
    }
    all.truncate(half);
}

/// `machine` for the machine itself, `host.NAME` for a host of a scenario; `part` (a core, an interface, a disk) follows.
pub(crate) fn entity(host: &str, part: Option<&str>) -> String {
    let whole = if host.is_empty() { "machine".to_owned() } else { format!("host.{host}") };
    match part {
        Some(part) => format!("{whole}.{part}"),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_that_comes_and_goes_does_not_shift_the_others_values() {
        let bytes = Quantity::counter("x.bytes", "B");
        let mut recorder = Recorder::default();
        for (now, present) in
            [(1, ["a", "c"].as_slice()), (2, &["a", "b", "c"]), (3, &["b", "c"]), (4, &["a"])]
        {
            for entity in present {
                recorder.put(Instant::from_ns(now), entity, &bytes, now as f64);
            }
        }
        let times = |entity: &str| -> Vec<i64> {
            recorder.series.iter().find(|it| it.entity == entity).unwrap().t_ns.clone()
        };
        assert_eq!((times("a"), times("b"), times("c")), (vec![1, 2, 4], vec![2, 3], vec![1, 2, 3]));
        assert!(recorder.series.iter().all(|it| it.value.iter().zip(&it.t_ns).all(|(v, t)| *v == *t as f64)));
        assert_eq!(recorder.take().len(), 3);
        assert!(recorder.take().is_empty(), "what was taken does not come again");
    }

    // Spec: results.md#chunk-5
    #[test]
    fn hours_of_samples_keep_to_their_room_evenly_spaced() {
        let bytes = Quantity::counter("x.bytes", "B");
        let mut recorder = Recorder::default();
        for now in 0..SAMPLES_MAX as u64 * 37 {
            recorder.put(Instant::from_ns(now), "a", &bytes, now as f64);
        }
        let series = &recorder.take()[0];
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&series.t_ns.len()), "{}", series.t_ns.len());
        assert!(series.t_ns.windows(2).all(|pair| pair[1] - pair[0] == 64));
        assert!(series.value.iter().zip(&series.t_ns).all(|(value, t)| *value == *t as f64));
    }

    #[test]
    fn a_file_that_is_not_there_is_not_measured() {
        assert_eq!(ProcFile::open("/proc/nothing/here").read(), None);
    }
}
