//! From a sampler's series to the figures of a step.

use std::collections::BTreeMap;
use weir_core::record::{Observed, Row, Series};

/// How a series becomes one value of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reduce {
    /// Growth a second over the steady state, times a factor.
    Rate(f64),
    /// As `Rate`; where the entity is a machine or host and not a part of it, divided by the number of its cores.
    PerCore,
    /// Growth over the whole step, drain included: events are rare, and one at an edge must not be lost.
    Growth,
    /// Least and most of the samples during the step.
    Min,
    Max,
    /// Mean of the samples in the steady state.
    Mean,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub series: &'static str,
    pub metric: &'static str,
    pub reduce: Reduce,
}

/// The step's rows of all series that samplers gathered. Times in nanoseconds, on the clock of the series; `whole` is the
/// step and `steady` its steady state, `[start, end]`. Values for one entity and metric from several series are added.
pub fn rows(series: &[Series], whole: [i64; 2], steady: [i64; 2]) -> Vec<Row> {
    let mut found: BTreeMap<(&str, &'static str), f64> = BTreeMap::new();
    for series in series {
        for reduction in crate::reductions().filter(|reduction| reduction.series == series.name) {
            let Some(value) = reduced(series, reduction.reduce, whole, steady) else { continue };
            *found.entry((&series.entity, reduction.metric)).or_default() += value;
        }
    }
    // Cores of a machine are those that have a series of their own.
    let cores = |entity: &str| {
        let part = |name: &str| name.strip_prefix(entity).is_some_and(|rest| rest.starts_with(".cpu"));
        series.iter().filter(|it| it.name == "softirq.busy_seconds" && part(&it.entity)).count().max(1)
    };
    found
        .into_iter()
        .map(|((entity, metric), value)| {
            let shared = crate::reductions().any(|it| it.metric == metric && it.reduce == Reduce::PerCore);
            let value = if shared { value / cores(entity) as f64 } else { value };
            Row { entity: entity.to_owned(), metric: metric.to_owned(), value: Observed::Value(value) }
        })
        .collect()
}

/// Mean of a series' samples within `[start, end]`; `None` where there is none.
pub fn mean(series: &Series, [start, end]: [i64; 2]) -> Option<f64> {
    let inside = series.t_ns.iter().zip(&series.value).filter(|(t, _)| (start..=end).contains(*t));
    let (count, sum) = inside.fold((0_u64, 0.0), |(count, sum), (_, value)| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

fn reduced(series: &Series, reduce: Reduce, whole: [i64; 2], steady: [i64; 2]) -> Option<f64> {
    let extreme = |pick: fn(f64, f64) -> f64| {
        let inside =
            series.t_ns.iter().zip(&series.value).filter(|(t, _)| (whole[0]..=whole[1]).contains(*t));
        inside.map(|(_, value)| *value).reduce(pick)
    };
    match reduce {
        Reduce::Rate(factor) => {
            series.growth(steady[0], steady[1]).map(|(grown, seconds)| grown / seconds * factor)
        }
        Reduce::PerCore => series.growth(steady[0], steady[1]).map(|(grown, seconds)| grown / seconds),
        Reduce::Growth => series.growth_around(whole[0], whole[1]),
        Reduce::Min => extreme(f64::min),
        Reduce::Max => extreme(f64::max),
        Reduce::Mean => mean(series, steady),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(entity: &str, name: &str, cumulative: bool, value: &[f64]) -> Series {
        Series {
            entity: entity.to_owned(),
            name: name.to_owned(),
            cumulative,
            t_ns: (0..value.len() as i64).map(|step| step * 1_000_000_000).collect(),
            value: value.to_vec(),
            ..Series::default()
        }
    }

    fn value(rows: &[Row], entity: &str, metric: &str) -> Option<f64> {
        let row = rows.iter().find(|row| row.entity == entity && row.metric == metric)?;
        if let Observed::Value(value) = row.value { Some(value) } else { None }
    }

    #[test]
    fn rates_are_of_the_steady_state_and_counts_of_the_whole_step() {
        let second = 1_000_000_000;
        let all = [
            series("host.a.eth0", "interface.sent_bytes", true, &[0.0, 1000.0, 1100.0, 1200.0, 9000.0]),
            series("host.a.eth0", "interface.receive_error_count", true, &[5.0, 6.0, 6.0, 6.0, 8.0]),
            series("host.a.eth0", "interface.send_error_count", true, &[0.0, 0.0, 0.0, 0.0, 1.0]),
            series("machine", "memory.available_bytes", false, &[9.0, 4.0, 3.0, 5.0, 1.0]),
        ];
        let rows = rows(&all, [0, 3 * second + 1], [second, 3 * second]);
        assert_eq!(value(&rows, "host.a.eth0", "interface.sent_bits_per_second"), Some(800.0));
        // The two that fell between the samples before and after the step's end may be the step's.
        assert_eq!(value(&rows, "host.a.eth0", "interface.error_count"), Some(4.0));
        assert_eq!(value(&rows, "machine", "memory.available_bytes"), Some(3.0));
    }

    #[test]
    fn a_machines_share_is_of_all_its_cores_and_a_cores_of_itself() {
        let all = [
            series("machine", "softirq.busy_seconds", true, &[0.0, 1.0]),
            series("machine.cpu0", "softirq.busy_seconds", true, &[0.0, 0.9]),
            series("machine.cpu1", "softirq.busy_seconds", true, &[0.0, 0.1]),
        ];
        let rows = rows(&all, [0, 1_000_000_000], [0, 1_000_000_000]);
        assert_eq!(value(&rows, "machine", "softirq.busy_ratio"), Some(0.5));
        assert_eq!(value(&rows, "machine.cpu0", "softirq.busy_ratio"), Some(0.9));
    }
}
