//! Distributions of durations: value against percentile, so that the tail has as much room as the middle.

use super::chart::{Axis, Frame, path};
use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, Prose, T, put};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::evidence::lateness_allowed_seconds;
use weir_core::record::{Histogram, Observed};
use weir_core::scenario::turns;
use weir_core::units::human;

/// Where the axis has a tick; it ends at the last of them that enough was observed for.
const TICKS: [f64; 9] = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];
const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// A histogram with running sums.
struct Distribution {
    /// Ascending values in nanoseconds with the number of observations up to and with them.
    up_to: Vec<(u64, u64)>,
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: f64,
}

impl Distribution {
    /// Adds histograms; `None` when nothing was observed.
    fn of<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Option<Distribution> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut min_ns, mut max_ns, mut sum_ns) = (u64::MAX, 0, 0.0);
        for histogram in histograms {
            for (value, count) in
                histogram.value_ns.iter().zip(&histogram.count).filter(|(_, count)| **count > 0)
            {
                let total = counts.entry(*value).or_default();
                *total = total.saturating_add(*count);
            }
            min_ns = min_ns.min(histogram.min_ns);
            max_ns = max_ns.max(histogram.max_ns);
            sum_ns += histogram.sum_ns;
        }
        let mut count = 0_u64;
        let up_to = counts.into_iter().map(|(value, here)| {
            count = count.saturating_add(here);
            (value, count)
        });
        let up_to: Vec<(u64, u64)> = up_to.collect();
        (count > 0).then_some(Distribution { up_to, count, min_ns, max_ns, sum_ns })
    }

    /// Seconds below or at which `percent` of the observations lie.
    fn at(&self, percent: f64) -> f64 {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).max(1);
        let index = self.up_to.partition_point(|(_, up_to)| *up_to < rank);
        // A bucket's upper edge may lie above the largest value seen.
        let value = self.up_to.get(index).map_or(self.max_ns, |(value, _)| (*value).min(self.max_ns));
        value as f64 / 1e9
    }

    /// Whether at least one observation lies beyond the percentile.
    fn resolves(&self, percent: f64) -> bool {
        (100.0 - percent) / 100.0 * self.count as f64 >= 0.999_999
    }

    /// `(position on the axis, seconds)`, as far as the observations reach and not beyond `end`.
    fn steps(&self, end: f64) -> Vec<(f64, f64)> {
        let end = position_of(1.0 - 1.0 / self.count as f64).min(end);
        let mut steps: Vec<(f64, f64)> = Vec::new();
        const STEPS: usize = 160;
        for index in 0..=STEPS {
            let position = end * index as f64 / STEPS as f64;
            steps.push((position, self.at((1.0 - 10_f64.powf(-position)) * 100.0)));
        }
        steps
    }
}

/// Nines: 0 for nothing, 1 for 90 %, 2 for 99 %.
fn position_of(share: f64) -> f64 {
    -(1.0 - share).log10()
}

pub(crate) fn figures(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let mut metrics: BTreeSet<&str> = BTreeSet::new();
    for row in point.trials.iter().flat_map(|trial| &trial.rows) {
        // The emulator's own lateness is a line beside the limiting factor, not a picture.
        if matches!(row.value, Observed::Histogram(_)) && !row.metric.starts_with("fabric.") {
            metrics.insert(&row.metric);
        }
    }
    for metric in metrics.into_iter().take(6) {
        put!(&mut out, figure(folder, point, metric));
    }
    out
}

fn figure(folder: &Folder, point: &Point<'_>, metric: &str) -> Html {
    let mut out = Html::new();
    let of_trial = |index: usize| {
        let rows = point.trials[index].rows.iter();
        // Pairs within one site are the control of the others, and not part of them.
        let rows = rows.filter(|row| row.metric == metric && !turns::is_local(&row.entity));
        rows.filter_map(|row| match &row.value {
            Observed::Histogram(histogram) => Some(histogram),
            Observed::Value(_) => None,
        })
    };
    let valid: Vec<usize> = (0..point.trials.len()).filter(|index| point.trials[*index].valid).collect();
    let Some(all) = Distribution::of(valid.iter().flat_map(|index| of_trial(*index))) else { return out };
    let single: Vec<Distribution> =
        valid.iter().filter_map(|index| Distribution::of(of_trial(*index))).collect();
    let last = TICKS.iter().rev().find(|percent| all.resolves(**percent)).copied().unwrap_or(0.0);
    if last < 75.0 {
        put!(
            &mut out,
            "<figure><figcaption>",
            caption(folder, &all, metric, 1),
            "</figcaption>",
            table(&all),
            "</figure>\n"
        );
        return out;
    }
    let ends = position_of(last / 100.0);
    let steps = all.steps(ends);
    let background: Vec<Vec<(f64, f64)>> =
        if single.len() > 1 { single.iter().take(30).map(|it| it.steps(ends)).collect() } else { Vec::new() };
    // The pooled line decides the range: one outlier of one trial is in the table, and would flatten all others.
    let (low, high) = (steps[0].1, steps[steps.len() - 1].1);
    let Some(y) = Axis::linear(low, high, "s", 5, false) else { return out };
    let ticks = TICKS.iter().map(|percent| (position_of(percent / 100.0), format!("{percent} %")));
    let x = Axis {
        low: 0.0,
        high: ends,
        // 95 % and 90 % would touch 75 % and 99 % on a long axis.
        ticks: ticks.filter(|(at, text)| *at <= ends + 1e-9 && !(ends > 4.0 && text == "95 %")).collect(),
        unit: String::new(),
    };
    let frame = Frame::new(940.0, 250.0, x, y);
    let mut svg = frame.begin(
        &format!("Distribution of {metric}, {}", point.id),
        "share of observations at or below",
        metric,
    );
    for steps in &background {
        put!(
            &mut svg,
            "<path class=thin d=\"",
            path(
                steps
                    .iter()
                    .filter(|it| it.1 <= frame.y.high)
                    .map(|(at, value)| (frame.px(*at), frame.py(*value)))
            ),
            "\"/>"
        );
    }
    put!(
        &mut svg,
        "<path class=\"curve c0\" d=\"",
        path(steps.iter().map(|(at, value)| (frame.px(*at), frame.py(*value)))),
        "\"/>"
    );
    put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><figcaption>");
    put!(
        &mut out,
        "Value against percentile, stretched towards the tail; ",
        caption(folder, &all, metric, single.len())
    );
    if background.iter().flatten().any(|it| it.1 > frame.y.high) {
        put!(&mut out, " Single trials leave the plot above.");
    }
    put!(&mut out, "</figcaption>", table(&all), "</figure>\n");
    out
}

fn caption(folder: &Folder, all: &Distribution, metric: &str, trials: usize) -> Html {
    let mut out = Html::new();
    put!(&mut out, T(all.count.to_string()), " observations");
    if trials > 1 {
        put!(&mut out, " of ", trials, " trials; thin: each trial by itself");
    }
    put!(&mut out, ". ");
    if let Some(definition) = folder.definition(metric) {
        put!(
            &mut out,
            "<code>",
            T(metric),
            "</code>: ",
            Prose(definition.definition.trim_end_matches('.')),
            "."
        );
    }
    out
}

/// How late the emulator delivered in the valid trials of a point.
fn late(point: &Point<'_>) -> Option<Distribution> {
    let rows = point.trials.iter().filter(|trial| trial.valid).flat_map(|trial| &trial.rows);
    Distribution::of(rows.filter(|row| row.metric == "fabric.lateness_seconds").filter_map(|row| {
        match &row.value {
            Observed::Histogram(histogram) => Some(histogram),
            Observed::Value(_) => None,
        }
    }))
}

/// `fabric lateness: median 9.7 µs, 99 % within 0.88 ms, allowed 0.5 ms`: records hold upper edges of buckets, hence `within`.
pub(super) fn lateness_line(folder: &Folder, point: &Point<'_>) -> Option<String> {
    let all = late(point)?;
    let mut line = format!(
        "fabric lateness: median {}, 99 % within {}",
        human(all.at(50.0), "s"),
        human(all.at(99.0), "s")
    );
    if let Some(one_way_seconds) = one_way_seconds(folder, point) {
        line += &format!(", allowed {}", human(lateness_allowed_seconds(one_way_seconds), "s"));
    }
    Some(line)
}

/// The shortest way of any pair, which is the one that lateness is judged against.
fn one_way_seconds(folder: &Folder, point: &Point<'_>) -> Option<f64> {
    let plan = folder.plan.as_ref()?;
    let of_point =
        plan.configurations.iter().find(|it| it.steps.iter().any(|step| step.point == point.id))?;
    let topology = &of_point.topology;
    let links = topology.directed_links();
    let pairs = point.plan?.pairs.iter().take(1_000).flat_map(|[from, to]| [(from, to), (to, from)]);
    let delays = pairs.filter_map(|(from, to)| {
        let path = topology.path(topology.host_index(from)?, topology.host_index(to)?)?;
        Some(path.iter().map(|index| links[*index].delay_ns as f64 / 1e9).sum())
    });
    let shortest = delays.fold(f64::INFINITY, f64::min);
    shortest.is_finite().then_some(shortest)
}

/// The emulator's lateness as a row of percentiles.
pub(super) fn lateness(point: &Point<'_>) -> Html {
    let mut out = Html::new();
    if let Some(all) = late(point) {
        put!(
            &mut out,
            "<figure><figcaption>Fabric lateness: how long after its due time a packet was delivered.</figcaption>"
        );
        put!(&mut out, table(&all), "</figure>\n");
    }
    out
}

fn table(all: &Distribution) -> Html {
    let mut out = Html::new();
    put!(
        &mut out,
        "<div class=wide><table class=tight><thead><tr><th class=n>n<th class=n>min<th class=n>mean"
    );
    for percent in PERCENTILES {
        put!(&mut out, "<th class=n>", T(format!("{percent} %")));
    }
    put!(&mut out, "<th class=n>max</thead><tbody><tr><td class=n>", T(all.count.to_string()));
    put!(
        &mut out,
        "<td class=n>",
        T(human(all.min_ns as f64 / 1e9, "s")),
        "<td class=n>",
        T(human(all.sum_ns / all.count as f64 / 1e9, "s"))
    );
    for percent in PERCENTILES {
        // A percentile that no observation lies beyond would be the maximum under another name.
        let text = if all.resolves(percent) { human(all.at(percent), "s") } else { "–".to_owned() };
        put!(&mut out, "<td class=n>", T(text));
    }
    put!(&mut out, "<td class=n>", T(human(all.max_ns as f64 / 1e9, "s")), "</tbody></table></div>");
    if !all.resolves(99.99) {
        put!(&mut out, "<p class=quiet>A dash: fewer observations than the percentile needs.</p>");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_merged_histograms_are_those_of_all_observations() {
        let low =
            Histogram { value_ns: vec![10, 20], count: vec![50, 40], min_ns: 9, max_ns: 20, sum_ns: 1300.0 };
        let high = Histogram {
            value_ns: vec![20, 1_000],
            count: vec![9, 1],
            min_ns: 20,
            max_ns: 990,
            sum_ns: 1170.0,
        };
        let all = Distribution::of([&low, &high].into_iter()).unwrap();
        assert_eq!((all.count, all.min_ns, all.max_ns), (100, 9, 990));
        assert_eq!(
            [50.0, 90.0, 99.0, 100.0].map(|percent| (all.at(percent) * 1e9).round()),
            [10.0, 20.0, 20.0, 990.0]
        );
        assert!(all.resolves(99.0) && !all.resolves(99.9));
        assert!(Distribution::of([&Histogram::default()].into_iter()).is_none());
    }
}
