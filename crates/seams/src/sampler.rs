//! Sampler: reads counters at time t with a cost budget.

use weir_core::Instant;
use weir_core::record::Series;

pub trait Sampler: Send {
    /// Reads the counters once. `now` is the experiment's clock just before.
    fn sample(&mut self, now: Instant);
    /// Shows each series as far as it was gathered; nothing of it goes.
    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>));
    /// Hands over what was gathered and starts anew. Timestamps are on the experiment's clock.
    fn take(&mut self) -> Vec<Series>;
}

/// A series that somebody else keeps.
#[derive(Clone, Copy, Debug)]
pub struct SeriesView<'a> {
    pub entity: &'a str,
    pub name: &'a str,
    pub unit: &'a str,
    pub cumulative: bool,
    pub t_ns: &'a [i64],
    pub value: &'a [f64],
}

impl<'a> From<&'a Series> for SeriesView<'a> {
    fn from(series: &'a Series) -> Self {
        let Series { entity, name, unit, cumulative, t_ns, value } = series;
        SeriesView { entity, name, unit, cumulative: *cumulative, t_ns, value }
    }
}

impl SeriesView<'_> {
    /// What was read from `start_ns` to `end_ns`; `None` when it says nothing: a counter that stood still.
    pub fn within(&self, start_ns: i64, end_ns: i64) -> Option<Series> {
        let first = self.t_ns.partition_point(|t| *t < start_ns);
        self.part(first, self.t_ns.partition_point(|t| *t <= end_ns))
    }

    /// What was read after `told_ns`, from the sample before it on: a counter that moved between the two has moved. `None` when
    /// there is nothing new, or it says nothing.
    pub fn after(&self, told_ns: i64) -> Option<Series> {
        let first = self.t_ns.partition_point(|t| *t <= told_ns);
        (first < self.t_ns.len()).then(|| self.part(first.saturating_sub(1), self.t_ns.len()))?
    }

    pub fn to_owned(&self) -> Series {
        Series {
            entity: self.entity.to_owned(),
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
            cumulative: self.cumulative,
            t_ns: self.t_ns.to_vec(),
            value: self.value.to_vec(),
        }
    }

    fn part(&self, first: usize, end: usize) -> Option<Series> {
        // A step that broke off before its start has a window that ends before it begins.
        let value = self.value.get(first..end).filter(|it| !it.is_empty())?;
        let idle = value.iter().all(|it| it.to_bits() == value[0].to_bits());
        let silent = idle && (self.cumulative || self.name.starts_with("port."));
        (!silent).then(|| SeriesView { t_ns: &self.t_ns[first..end], value, ..*self }.to_owned())
    }
}

/// What a sampler is built for.
#[derive(Clone, Debug, Default)]
pub struct SamplerTarget {
    /// Process ids to watch, with the name each goes by.
    pub processes: Vec<(String, u32)>,
    /// Name of the host in records; empty for the machine itself.
    pub host: String,
}

pub type SamplerEntry = crate::Entry<fn(&SamplerTarget) -> Box<dyn Sampler>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, cumulative: bool, values: &[f64]) -> Series {
        Series {
            name: name.to_owned(),
            cumulative,
            t_ns: (0..values.len() as i64).map(|index| index * 10).collect(),
            value: values.to_vec(),
            ..Series::default()
        }
    }

    // Spec: results.md#results-19
    #[test]
    fn stretches_told_one_after_the_other_hold_each_sample_and_each_movement_and_nothing_that_stood_still() {
        let counter = series("stack.sent_segments", true, &[3.0, 3.0, 3.0, 8.0, 8.0, 9.0]);
        let view = SeriesView::from(&counter);
        // As if it had been looked at after each of these times.
        let told = |told_ns: i64, so_far: usize| {
            let view = SeriesView { t_ns: &view.t_ns[..so_far], value: &view.value[..so_far], ..view };
            view.after(told_ns).map(|part| (part.t_ns, part.value))
        };
        assert_eq!(told(-1, 2), None, "it stood still");
        assert_eq!(told(19, 2), None, "nothing is new");
        assert_eq!(told(10, 4), Some((vec![10, 20, 30], vec![3.0, 3.0, 8.0])));
        assert_eq!(told(20, 4), Some((vec![20, 30], vec![3.0, 8.0])), "it moved between two looks");
        assert_eq!(told(30, 6), Some((vec![30, 40, 50], vec![8.0, 8.0, 9.0])));
        let level = series("memory.available_bytes", false, &[5.0, 5.0]);
        assert!(SeriesView::from(&level).after(-1).is_some(), "a level is told though it stays");
        let queue = series("port.queue_bytes", false, &[0.0, 0.0]);
        assert!(SeriesView::from(&queue).after(-1).is_none());
        assert_eq!(view.within(20, 40).map(|part| part.value), Some(vec![3.0, 8.0, 8.0]));
        assert!(view.within(40, 20).is_none() && view.within(41, 49).is_none());
    }
}
