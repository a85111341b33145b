//! The ledger of events as a flow: what was generated, how it ended, and at which builder what is complete was built.

use super::steps::Point;
use crate::escape::{Html, T, put};
use crate::words::plural;
use std::collections::BTreeMap;
use weir_core::record::Observed;

/// Builders with a band each; more are one.
const BUILDERS_MAX: usize = 16;
const WIDTH: f64 = 940.0;
const BAR: f64 = 14.0;
const LEFT: f64 = 4.0;
const MIDDLE: f64 = 330.0;
const RIGHT: f64 = 690.0;
/// Height of all events together, and between two bands.
const WHOLE: f64 = 170.0;
const GAP: f64 = 20.0;
const TOP: f64 = 12.0;
/// What is there is seen, however little of the whole it is.
const LEAST: f64 = 1.5;

/// An end of events, or a builder.
struct Band {
    name: String,
    count: f64,
    class: &'static str,
}

/// Sums over the valid trials of a point.
struct Ledger {
    trials: usize,
    generated: f64,
    ends: Vec<Band>,
    builders: Vec<Band>,
}

impl Ledger {
    fn of(point: &Point<'_>) -> Option<Ledger> {
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        let valid: Vec<_> = point.trials.iter().filter(|trial| trial.valid).collect();
        for row in valid.iter().flat_map(|trial| &trial.rows) {
            if let Observed::Value(value) = row.value {
                *sums.entry((row.metric.as_str(), row.entity.as_str())).or_default() += value;
            }
        }
        let of = |metric: &str| sums.get(&(metric, "trial")).copied().unwrap_or(0.0);
        let generated = of("event.generated");
        if generated <= 0.0 {
            return None;
        }
        let band = |name: &str, count: f64, class| Band { name: name.to_owned(), count, class };
        let mut ends = vec![
            band("complete", of("event.complete"), "g-complete"),
            band("partial", of("event.partial"), "g-partial"),
        ];
        let reasons = sums.iter().filter(|((metric, _), _)| *metric == "event.dropped_for");
        ends.extend(reasons.map(|((_, reason), count)| Band {
            name: format!("dropped: {}", reason.strip_prefix("reason.").unwrap_or(reason)),
            count: *count,
            class: "g-dropped",
        }));
        let named: f64 = ends.iter().skip(2).map(|end| end.count).sum();
        ends.push(band("dropped", of("event.dropped") - named, "g-dropped"));
        ends.push(band("held", of("event.held"), "g-held"));
        ends.retain(|end| end.count > 0.0);
        let built = sums.iter().filter(|((metric, _), _)| *metric == "event.built");
        let mut builders: Vec<Band> = built
            .map(|((_, host), count)| {
                band(host.trim_start_matches("host.").trim_start_matches("builder."), *count, "g-complete")
            })
            .collect();
        if builders.len() > BUILDERS_MAX {
            let count = builders.iter().map(|builder| builder.count).sum();
            builders = vec![band(&plural(builders.len(), "builder", "builders"), count, "g-complete")];
        }
        builders.retain(|builder| builder.count > 0.0);
        Some(Ledger { trials: valid.len(), generated, ends, builders })
    }

    fn height(&self, count: f64) -> f64 {
        (count / self.generated * WHOLE).max(LEAST)
    }
}

/// Nothing for a point that builds no events.
pub(crate) fn figure(point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let Some(ledger) = Ledger::of(point) else { return out };
    let rows = ledger.ends.len().max(ledger.builders.len()).max(1) as f64;
    let height = TOP + WHOLE + rows * (GAP + LEAST) + TOP;
    put!(&mut out, "<figure><div class=wide><svg role=img viewBox=\"0 0 ", WIDTH, " ", height);
    put!(&mut out, "\" aria-label=\"ledger of ", T(point.id), "\">");
    put!(&mut out, bar(LEFT, TOP, WHOLE, "g-all"), label(LEFT, TOP, "generated", ledger.generated));
    let (mut from, mut to) = (TOP, TOP);
    let mut complete = TOP;
    for end in &ledger.ends {
        let high = ledger.height(end.count);
        put!(&mut out, flow((LEFT + BAR, from), (MIDDLE, to), high, end.class));
        put!(&mut out, bar(MIDDLE, to, high, end.class), label(MIDDLE, to, &end.name, end.count));
        if end.name == "complete" {
            complete = to;
        }
        from += high;
        to += high.max(GAP) + GAP / 2.0;
    }
    let (mut from, mut to) = (complete, TOP);
    for builder in &ledger.builders {
        let high = ledger.height(builder.count);
        put!(&mut out, flow((MIDDLE + BAR, from), (RIGHT, to), high, builder.class));
        put!(&mut out, bar(RIGHT, to, high, builder.class), label(RIGHT, to, &builder.name, builder.count));
        from += high;
        to += high.max(GAP) + GAP / 4.0;
    }
    put!(&mut out, "</svg></div><figcaption>The ledger");
    if ledger.trials > 1 {
        put!(&mut out, " of ", ledger.trials, " trials together");
    }
    put!(
        &mut out,
        ": how every event ended, and where the complete ones were built.</figcaption></figure>\n"
    );
    out
}

fn bar(x: f64, y: f64, high: f64, class: &'static str) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<rect class=", class, " x=", x, " y=", y, " width=", BAR, " height=", high, " />");
    out
}

fn label(x: f64, y: f64, name: &str, count: f64) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<text x=", x + BAR + 7.0, " y=", y + 12.0, ">", T(format!("{name}  {count}")), "</text>");
    out
}

fn flow(from: (f64, f64), to: (f64, f64), high: f64, class: &'static str) -> Html {
    let mut out = Html::new();
    let middle = (from.0 + to.0) / 2.0;
    put!(&mut out, "<path class=\"flow ", class, "\" d=\"M", from.0, " ", from.1);
    put!(&mut out, "C", middle, " ", from.1, " ", middle, " ", to.1, " ", to.0, " ", to.1, "v", high);
    put!(&mut out, "C", middle, " ", to.1 + high, " ", middle, " ", from.1 + high);
    put!(&mut out, " ", from.0, " ", from.1 + high, "Z\"/>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::evidence::UNKNOWN;
    use weir_core::record::{LimitingFactor, Row, TrialRecord};

    // Spec: event-building.md#ledger-1
    #[test]
    fn every_end_that_events_had_is_drawn_and_no_other() {
        let row = |entity: &str, metric: &str, value: f64| Row {
            entity: entity.to_owned(),
            metric: metric.to_owned(),
            value: Observed::Value(value),
        };
        let trial = |rows: Vec<Row>| TrialRecord {
            point: "build".to_owned(),
            configuration: "build".to_owned(),
            step: "build".to_owned(),
            trial: 0,
            valid: true,
            reason: None,
            start_ns: 0,
            end_ns: 1,
            limiting_factor: LimitingFactor::new(&UNKNOWN, 0.0, Vec::new()),
            rows,
            pairs: Vec::new(),
            granted: serde_json::Map::new(),
            failure_count: 0,
        };
        let built = trial(vec![
            row("trial", "event.generated", 100.0),
            row("trial", "event.complete", 90.0),
            row("trial", "event.partial", 0.0),
            row("trial", "event.dropped", 9.0),
            row("reason.no-credit", "event.dropped_for", 9.0),
            row("trial", "event.held", 1.0),
            row("host.b-0", "event.built", 50.0),
            row("host.b-1", "event.built", 40.0),
        ]);
        let drawn = figure(&Point { id: "build", plan: None, trials: vec![&built] }).into_string();
        for wanted in
            ["generated  100", "complete  90", "dropped: no-credit  9", "held  1", "b-0  50", "b-1  40"]
        {
            assert!(drawn.contains(wanted), "{wanted}: {drawn}");
        }
        assert!(!drawn.contains("partial") && !drawn.contains("dropped  "), "{drawn}");
        let other = trial(Vec::new());
        assert!(figure(&Point { id: "build", plan: None, trials: vec![&other] }).is_empty());
    }
}
