//! `--search`: the smallest number of streams, or window of one, that fills the path; the highest rate of datagrams that it carries.

use super::super::flags::{self, Flags};
use super::Measure;
use super::measure::Measuring;
use anyhow::bail;
use serde_json::json;
use weir_core::evidence::GENERATOR_LIMITED;
use weir_core::record::{CriterionResult, Observed, Verdict};
use weir_core::units::human;
use weir_core::{BitsPerSecond, Bytes, Value, Values};
use weir_net::adhoc::Job;
use weir_net::adhoc::search::{self, Bounds, Found, Highest, Probe};
use weir_net::adhoc::summary::{Point, point_id};

const GOODPUT: &str = "stream.total_goodput_bits_per_second";
const LOSS: &str = "udp.loss_ratio";

/// What is looked for over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    Streams,
    Window,
}

impl Sought {
    fn name(self) -> &'static str {
        match self {
            Sought::Streams => "streams",
            Sought::Window => "window",
        }
    }

    fn bounds(self) -> Bounds {
        match self {
            Sought::Streams => search::STREAMS,
            Sought::Window => search::WINDOW_BYTES,
        }
    }

    fn value(self, value: u64) -> Value {
        match self {
            Sought::Streams => Value::Count(value),
            Sought::Window => Value::Size(Bytes(value)),
        }
    }

    /// `values` with this one in its place.
    fn put(self, values: &Values, value: u64) -> Values {
        let mut values = values.clone();
        flags::put(&mut values, self.name(), self == Sought::Window, self.value(value));
        values
    }

    /// For people: `4 streams`, `a window of 1.57 MB`.
    fn in_words(self, value: u64) -> String {
        match self {
            Sought::Streams if value == 1 => "1 stream".to_owned(),
            Sought::Streams => format!("{value} streams"),
            Sought::Window => format!("a window of {}", human(value as f64, "B")),
        }
    }
}

/// Why a search ended without an answer.
enum Ended {
    /// A point that does not count, which the document names.
    Point,
    Error(anyhow::Error),
}

pub fn streams(args: &Measure, sought: Sought, target: f64, flags: &Flags) -> anyhow::Result<i32> {
    if !(0.0..=1.0).contains(&target) || target == 0.0 {
        bail!("--target: a share of the most that is carried, above 0 and up to 100%");
    }
    if args.has(sought.name()) {
        bail!("--search {0} chooses --{0} by itself; leave one of the two out", sought.name());
    }
    let values = the_rest(flags, sought.name())?;
    let bounds = sought.bounds();
    // Everything is checked before the first byte is sent.
    for edge in [bounds.least, bounds.most] {
        args.job(&sought.put(&values, edge))?;
    }
    let mut measuring = Measuring::begin(&args.common, "stream")?;
    let found = search::smallest(bounds, target, |value| {
        let values = sought.put(&values, value);
        let point =
            counted(&mut measuring, &values, (sought.name(), sought.value(value)), args.job(&values))?;
        highest_of(point, GOODPUT).ok_or(Ended::Point)
    });
    finish(measuring, found.map(|found| judged(sought, target, &found)))
}

/// The values that stay as they are.
fn the_rest(flags: &Flags, sought: &str) -> anyhow::Result<Values> {
    let mut combinations = flags.points()?;
    match (combinations.pop(), combinations.is_empty()) {
        (Some((values, _)), true) => Ok(values),
        _ => bail!("--search varies the {sought} alone; a list elsewhere makes no single answer"),
    }
}

fn finish(measuring: Measuring, judged: Result<CriterionResult, Ended>) -> anyhow::Result<i32> {
    match judged {
        Ok(judged) => measuring.finish(Some(judged)),
        Err(Ended::Point) => measuring.finish(None),
        Err(Ended::Error(error)) => Err(error),
    }
}

/// Measures one point, which must count.
fn counted<'a>(
    measuring: &'a mut Measuring,
    values: &Values,
    (name, value): (&str, Value),
    job: anyhow::Result<Job>,
) -> Result<&'a Point, Ended> {
    let job = job.map_err(Ended::Error)?;
    let point = measuring.point(values, vec![(name.to_owned(), value)], &job).map_err(Ended::Error)?;
    if point.measurement.invalid.is_some() { Err(Ended::Point) } else { Ok(point) }
}

/// The highest value of a metric among the flows.
fn highest_of(point: &Point, metric: &str) -> Option<f64> {
    let rows = point.measurement.rows.iter().filter(|row| row.metric == metric);
    let values = rows.filter_map(|row| match row.value {
        Observed::Value(value) => Some(value),
        Observed::Histogram(_) => None,
    });
    values.max_by(f64::total_cmp)
}

/// The answer as a criterion: its point is the one that is enough.
fn judged(sought: Sought, target: f64, found: &Found) -> CriterionResult {
    let share = if found.most_carried > 0.0 { found.carried / found.most_carried } else { 0.0 };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let most = format!("{} with {}", human(found.most_carried, "bit/s"), sought.in_words(found.most_at));
    let why = if found.grows {
        format!("not full yet: the most was {most}, the last that was tried, and more may carry more")
    } else {
        format!(
            "{} will do: {}, {} of the most, which was {most}",
            sought.in_words(found.smallest),
            human(found.carried, "bit/s"),
            percent(share)
        )
    };
    CriterionResult {
        text: format!("the smallest {} that carries {} of the most", sought.name(), percent(target)),
        metric: Some(GOODPUT.to_owned()),
        unit: Some("1".to_owned()),
        bound: [("at_least".to_owned(), json!(target))].into_iter().collect(),
        value: Some(json!(share)),
        ci95: None,
        range: None,
        verdict: if found.grows { Verdict::Inconclusive } else { Verdict::Pass },
        otherwise: None,
        why,
        points: vec![point_id("stream", &[(sought.name().to_owned(), sought.value(found.smallest))])],
        fits: Vec::new(),
    }
}

/// The highest rate of which no flow loses more than `allowed`.
pub fn datagrams(args: &Measure, allowed: f64, flags: &Flags) -> anyhow::Result<i32> {
    if !(0.0..1.0).contains(&allowed) {
        bail!("--loss: a share of the datagrams, from 0% up to less than all");
    }
    if args.has("rate") || args.has("packet_rate") {
        bail!("--search rate chooses the rate by itself; leave --rate and --packet-rate out");
    }
    let values = the_rest(flags, "rate")?;
    let at = |rate: u64| {
        let mut values = values.clone();
        values.set("rate", Value::Rate(BitsPerSecond(rate)));
        values
    };
    let bounds = search::RATE_BITS_PER_SECOND;
    args.job(&at(bounds.least))?;
    let mut measuring = Measuring::begin(&args.common, "udp")?;
    let found = search::highest(bounds, |rate| {
        search::confirmed(|before| {
            if let Some(before) = before {
                measuring.once_more(before.in_words());
            }
            let values = at(rate);
            let swept = ("rate", Value::Rate(BitsPerSecond(rate)));
            let point = counted(&mut measuring, &values, swept, args.job(&values))?;
            probe(point, allowed).ok_or(Ended::Point)
        })
    });
    finish(measuring, found.map(|found| judged_rate(allowed, found)))
}

/// `None` for a point without a loss to tell.
fn probe(point: &Point, allowed: f64) -> Option<Probe> {
    let unsent = highest_of(point, "udp.unsent_ratio").unwrap_or_default();
    if point.limiting_factor().is(&GENERATOR_LIMITED) || unsent > allowed {
        return Some(Probe::NotOffered);
    }
    Some(if highest_of(point, LOSS)? <= allowed { Probe::Carried } else { Probe::Lost })
}

/// The answer as a criterion: its point is the highest rate that was carried.
fn judged_rate(allowed: f64, found: Highest) -> CriterionResult {
    let in_words = |rate: u64| human(rate as f64, "bit/s");
    let limit = format!("{} % lost", allowed * 100.0);
    let (verdict, why) = match (found.value, found.above) {
        (Some(rate), Probe::Lost) => (
            Verdict::Pass,
            format!("{} a flow with at most {limit}; a fiftieth more loses more", in_words(rate)),
        ),
        (Some(rate), Probe::NotOffered) => (
            Verdict::Inconclusive,
            format!(
                "{} a flow are carried with at most {limit}; this end could not send more, so the path was not asked",
                in_words(rate)
            ),
        ),
        (Some(rate), Probe::Carried) => (
            Verdict::Inconclusive,
            format!("{} a flow, the most that is tried, are carried with at most {limit}", in_words(rate)),
        ),
        (None, Probe::NotOffered) => {
            (Verdict::Inconclusive, "this end could not even send the least".to_owned())
        }
        (None, _) => {
            let least = in_words(search::RATE_BITS_PER_SECOND.least);
            (Verdict::Inconclusive, format!("even {least} a flow, the least that is tried, loses more"))
        }
    };
    let point = |rate: u64| point_id("udp", &[("rate".to_owned(), Value::Rate(BitsPerSecond(rate)))]);
    CriterionResult {
        text: format!("the highest rate with at most {limit}"),
        metric: Some(LOSS.to_owned()),
        unit: Some("1".to_owned()),
        bound: [("at_most".to_owned(), json!(allowed))].into_iter().collect(),
        value: None,
        ci95: None,
        range: None,
        verdict,
        otherwise: None,
        why,
        points: found.value.map(point).into_iter().collect(),
        fits: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(grows: bool) -> Found {
        Found { smallest: 4, carried: 9.1e8, most_carried: 9.4e8, most_at: 8, grows }
    }

    // Spec: net-protocol.md#search-3
    #[test]
    fn the_answer_is_a_criterion_whose_point_is_enough() {
        let judged = judged(Sought::Streams, 0.95, &found(false));
        assert_eq!(judged.points, ["stream/streams=4"]);
        assert_eq!(judged.verdict, Verdict::Pass);
        assert_eq!(
            judged.why,
            "4 streams will do: 910 Mbit/s, 96.8 % of the most, which was 940 Mbit/s with 8 streams"
        );
    }

    // Spec: net-protocol.md#search-3
    #[test]
    fn a_rate_that_still_grows_is_no_answer() {
        let judged = judged(Sought::Window, 0.95, &found(true));
        assert_eq!(judged.verdict, Verdict::Inconclusive);
        assert!(judged.why.starts_with("not full yet"), "{}", judged.why);
    }
}
