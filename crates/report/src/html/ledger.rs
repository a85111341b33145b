//! A ledger as a flow: the whole, how each part of it ended, and who has what ended well.

use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::plural;
use std::collections::BTreeMap;
use weir_core::record::Observed;
use weir_core::shown::{End, Ledger};

/// Holders with a band each; more are one.
const HOLDERS_MAX: usize = 16;
const WIDTH: f64 = 940.0;
const BAR: f64 = 14.0;
const LEFT: f64 = 4.0;
const MIDDLE: f64 = 330.0;
const RIGHT: f64 = 690.0;
/// Height of the whole, and between two bands.
const WHOLE: f64 = 170.0;
const GAP: f64 = 20.0;
const TOP: f64 = 12.0;
/// What is there is seen, however little of the whole it is.
const LEAST: f64 = 1.5;

/// An end, or a holder.
struct Band {
    name: String,
    count: f64,
    class: &'static str,
}

/// Sums over the valid trials of a point.
struct Sums<'a> {
    declared: &'a Ledger,
    trials: usize,
    whole: f64,
    ends: Vec<Band>,
    holders: Vec<Band>,
}

fn class(end: End) -> &'static str {
    match end {
        End::Good => "g-complete",
        End::Part => "g-partial",
        End::Bad => "g-dropped",
        End::Open => "g-held",
    }
}

impl<'a> Sums<'a> {
    /// `None` for a point that measured nothing of the ledger's whole.
    fn of(declared: &'a Ledger, point: &Point<'_>) -> Option<Sums<'a>> {
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        let valid: Vec<_> = point.trials.iter().filter(|trial| trial.valid).collect();
        for row in valid.iter().flat_map(|trial| &trial.rows) {
            if let Observed::Value(value) = row.value {
                *sums.entry((row.metric.as_str(), row.entity.as_str())).or_default() += value;
            }
        }
        let of = |metric: &str| sums.get(&(metric, "trial")).copied().unwrap_or(0.0);
        let by_entity = |metric: &str| -> Vec<(&str, f64)> {
            sums.iter().filter(|((name, _), _)| *name == metric).map(|((_, it), sum)| (*it, *sum)).collect()
        };
        let whole = of(&declared.whole.0);
        if whole <= 0.0 {
            return None;
        }
        let mut ends = Vec::new();
        for (metric, name, end) in declared.ends.iter() {
            let mut rest = of(metric);
            if let Some((_, reasons, prefix)) = declared.reasons.as_ref().filter(|(of, ..)| of == metric) {
                for (entity, count) in by_entity(reasons) {
                    rest -= count;
                    let reason = entity.strip_prefix(prefix.as_ref()).unwrap_or(entity);
                    ends.push(Band { name: format!("{name}: {reason}"), count, class: class(*end) });
                }
            }
            ends.push(Band { name: name.to_string(), count: rest, class: class(*end) });
        }
        ends.retain(|end| end.count > 0.0);
        let (metric, one, many) = &declared.holders;
        let first = declared.ends.first().map_or("", |(_, _, end)| class(*end));
        let mut holders: Vec<Band> = by_entity(metric)
            .into_iter()
            .map(|(entity, count)| {
                let name = entity.split_once('.').map_or(entity, |(_, name)| name);
                Band { name: name.to_owned(), count, class: first }
            })
            .collect();
        if holders.len() > HOLDERS_MAX {
            let count = holders.iter().map(|holder| holder.count).sum();
            holders = vec![Band { name: plural(holders.len(), one, many), count, class: first }];
        }
        holders.retain(|holder| holder.count > 0.0);
        Some(Sums { declared, trials: valid.len(), whole, ends, holders })
    }

    fn height(&self, count: f64) -> f64 {
        (count / self.whole * WHOLE).max(LEAST)
    }
}

/// One for each ledger that the point has counts of.
pub(crate) fn figures(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    for sums in folder.shown.ledgers.iter().filter_map(|declared| Sums::of(declared, point)) {
        put!(&mut out, figure(&sums, point));
    }
    out
}

fn figure(ledger: &Sums<'_>, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let rows = ledger.ends.len().max(ledger.holders.len()).max(1) as f64;
    let height = TOP + WHOLE + rows * (GAP + LEAST) + TOP;
    put!(&mut out, "<figure><div class=wide><svg role=img viewBox=\"0 0 ", WIDTH, " ", height);
    put!(&mut out, "\" aria-label=\"ledger of ", T(point.id), "\">");
    put!(&mut out, bar(LEFT, TOP, WHOLE, "g-all"), label(LEFT, TOP, &ledger.declared.whole.1, ledger.whole));
    let (mut from, mut to) = (TOP, TOP);
    let mut first = TOP;
    let onward = ledger.declared.ends.first().map_or("", |(_, name, _)| name.as_ref());
    for end in &ledger.ends {
        let high = ledger.height(end.count);
        put!(&mut out, flow((LEFT + BAR, from), (MIDDLE, to), high, end.class));
        put!(&mut out, bar(MIDDLE, to, high, end.class), label(MIDDLE, to, &end.name, end.count));
        if end.name == onward {
            first = to;
        }
        from += high;
        to += high.max(GAP) + GAP / 2.0;
    }
    let (mut from, mut to) = (first, TOP);
    for holder in &ledger.holders {
        let high = ledger.height(holder.count);
        put!(&mut out, flow((MIDDLE + BAR, from), (RIGHT, to), high, holder.class));
        put!(&mut out, bar(RIGHT, to, high, holder.class), label(RIGHT, to, &holder.name, holder.count));
        from += high;
        to += high.max(GAP) + GAP / 4.0;
    }
    put!(&mut out, "</svg></div><figcaption>The ledger");
    if ledger.trials > 1 {
        put!(&mut out, " of ", ledger.trials, " trials together");
    }
    put!(&mut out, ": ", T(&ledger.declared.caption), "</figcaption></figure>\n");
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
        let other = trial(Vec::new());
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
        let declared = Ledger {
            whole: ("event.generated".into(), "generated".into()),
            ends: vec![
                ("event.complete".into(), "complete".into(), End::Good),
                ("event.partial".into(), "partial".into(), End::Part),
                ("event.dropped".into(), "dropped".into(), End::Bad),
                ("event.held".into(), "held".into(), End::Open),
            ]
            .into(),
            reasons: Some(("event.dropped".into(), "event.dropped_for".into(), "reason.".into())),
            holders: ("event.built".into(), "builder".into(), "builders".into()),
            caption: "how every event ended.".into(),
        };
        let mut folder = Folder::default();
        folder.shown.ledgers = vec![declared].into();
        let drawn =
            |trial| figures(&folder, &Point { id: "build", plan: None, trials: vec![trial] }).into_string();
        let (of_other, drawn) = (drawn(&other), drawn(&built));
        for wanted in
            ["generated  100", "complete  90", "dropped: no-credit  9", "held  1", "b-0  50", "b-1  40"]
        {
            assert!(drawn.contains(wanted), "{wanted}: {drawn}");
        }
        assert!(!drawn.contains("partial") && !drawn.contains("dropped  "), "{drawn}");
        assert!(of_other.is_empty());
    }
}
