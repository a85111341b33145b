//! The sentence that says why a criterion was judged as it was.

use super::Outcome;
use crate::model::Model;
use crate::record::Verdict;
use crate::scenario::plan::{Bound, Criterion, Reference};
use crate::scenario::select::PointIndex;
use crate::statistics::{INTERVAL_TRIALS_MIN, Uncertainty};
use crate::units::human;

pub(super) struct Sentence<'a> {
    pub criterion: &'a Criterion,
    pub entity: Option<&'a str>,
    /// Of `value`.
    pub unit: &'static str,
    /// Of `own` and `base`.
    pub own_unit: &'static str,
    pub own: f64,
    pub base: Option<f64>,
    pub value: f64,
    pub uncertainty: Uncertainty,
    pub trials: usize,
}

impl Sentence<'_> {
    /// Value, bound, and whether the interval crosses the bound.
    pub fn text(&self, holds: bool) -> String {
        let keeps = if holds { "keeps to" } else { "breaks" };
        format!(
            "{} {keeps} {}; {}",
            self.value_text(),
            bound_text(&self.criterion.bound, self.unit),
            trust(self.uncertainty, &self.criterion.bound, self.unit, self.trials)
        )
    }

    fn value_text(&self) -> String {
        let value = told_apart(self.value, &self.criterion.bound, self.unit);
        let own = human(self.own, self.own_unit);
        let whose = self.entity.map_or(String::new(), |entity| format!(" on {entity}"));
        let per = self.criterion.per.as_ref().map_or(String::new(), |per| format!(", per {per}"));
        match (self.base, self.criterion.of.is_some()) {
            (Some(base), true) => {
                let base = human(base, self.own_unit);
                format!("{value}{whose} ({own} of {}{base}{per})", self.base_name(self.criterion.of.as_ref()))
            }
            (Some(base), false) => {
                let base = human(base, self.own_unit);
                format!(
                    "{value}{whose} ({own} minus {}{base}{per})",
                    self.base_name(self.criterion.minus.as_ref())
                )
            }
            (None, _) if self.criterion.per.is_some() => format!("{value}{whose} ({own}{per})"),
            (None, _) => format!("{} {value}{whose}", statistic_name(&self.criterion.statistic)),
        }
    }

    fn base_name(&self, reference: Option<&Reference>) -> String {
        match reference {
            Some(Reference::Model(Model::Ceiling)) => "the ceiling ".to_owned(),
            Some(Reference::Model(model)) => format!("the model {}'s ", model.name()),
            Some(Reference::Published) => "the published ".to_owned(),
            Some(Reference::Case(case)) => format!("case {case}'s "),
            Some(Reference::Pairs(pairs)) => format!("{pairs}'s "),
            _ => "the other point's ".to_owned(),
        }
    }
}

/// How many of a criterion's points (or lines, or values of hosts and links) came to what.
pub(super) struct Tally {
    count: usize,
    missed: usize,
    open: usize,
    noun: &'static str,
}

impl Tally {
    pub fn of(outcomes: &[(PointIndex, Outcome)], points: usize, lines: bool) -> Tally {
        let of = |verdict| outcomes.iter().filter(|(_, outcome)| outcome.verdict == verdict).count();
        let noun = match () {
            () if lines => "lines",
            () if outcomes.len() > points => "values",
            () => "points",
        };
        Tally { count: outcomes.len(), missed: of(Verdict::Fail), open: of(Verdict::Inconclusive), noun }
    }

    /// The sentence of the worst, with how many of all are like it: the worst alone would hide the others.
    pub fn said(&self, worst: &str, why: &str) -> String {
        let Tally { count, missed, open, noun } = self;
        match (missed, open) {
            _ if *count < 2 => why.to_owned(),
            (0, 0) => format!("all {count} {noun} hold; nearest at {worst}: {why}"),
            (0, open) => format!("{open} of {count} {noun} cannot be judged; first at {worst}: {why}"),
            (missed, 0) => format!("{missed} of {count} {noun} miss; worst at {worst}: {why}"),
            (missed, open) => format!(
                "{missed} of {count} {noun} miss and {open} cannot be judged; worst at {worst}: {why}"
            ),
        }
    }
}

/// Whether some of the interval keeps to the bound and some breaks it. An interval that only touches keeps to it whole.
fn crosses(bound: &Bound, low: f64, high: f64) -> bool {
    let under = |least: f64| low < least && least <= high;
    let over = |most: f64| low <= most && most < high;
    match bound {
        Bound::AtLeast(least) => under(*least),
        Bound::AtMost(most) => over(*most),
        Bound::Between(least, most) => under(*least) || over(*most),
        Bound::LimitingFactor(_) => false,
    }
}

/// What the uncertainty says of the bound.
pub(super) fn trust(uncertainty: Uncertainty, bound: &Bound, unit: &str, trials: usize) -> String {
    match uncertainty {
        Uncertainty { ci95: Some([low, high]), .. } => {
            let crosses = crosses(bound, low, high);
            let crosses = if crosses { "crosses the bound" } else { "does not cross the bound" };
            format!(
                "the 95 % interval over {trials} trials, {} to {}, {crosses}",
                human(low, unit),
                human(high, unit)
            )
        }
        Uncertainty { range: Some(_), .. } if trials == 1 => {
            format!("one trial, and an interval takes {INTERVAL_TRIALS_MIN}")
        }
        Uncertainty { range: Some([low, high]), .. } => format!(
            "{trials} trials range from {} to {}, and an interval takes {INTERVAL_TRIALS_MIN}",
            human(low, unit),
            human(high, unit)
        ),
        _ => "no interval could be computed".to_owned(),
    }
}

/// The value with as many digits as show on which side of the bound it is.
pub(super) fn told_apart(value: f64, bound: &Bound, unit: &str) -> String {
    let text = human(value, unit);
    let alike = edges(bound).iter().any(|edge| *edge != value && human(*edge, unit) == text);
    if alike { format!("{value} {unit}").trim_end_matches(" 1").to_owned() } else { text }
}

fn statistic_name(statistic: &str) -> String {
    match statistic {
        "min" => "least".to_owned(),
        "max" => "largest".to_owned(),
        "cv" => "coefficient of variation".to_owned(),
        other => match other.strip_prefix('p') {
            Some(percent) if percent.chars().all(|letter| letter.is_ascii_digit()) => {
                format!("{percent} % below")
            }
            _ => other.to_owned(),
        },
    }
}

fn edges(bound: &Bound) -> Vec<f64> {
    match bound {
        Bound::AtLeast(value) | Bound::AtMost(value) => vec![*value],
        Bound::Between(least, most) => vec![*least, *most],
        Bound::LimitingFactor(_) => Vec::new(),
    }
}

pub(super) fn bound_text(bound: &Bound, unit: &str) -> String {
    match bound {
        Bound::AtLeast(value) => format!("at least {}", human(*value, unit)),
        Bound::AtMost(value) => format!("at most {}", human(*value, unit)),
        Bound::Between(least, most) => format!("{} to {}", human(*least, unit), human(*most, unit)),
        Bound::LimitingFactor(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_touches_its_bound_does_not_cross_it() {
        assert!(!crosses(&Bound::AtMost(0.0), 0.0, 0.0));
        assert!(!crosses(&Bound::AtMost(2.0), 1.0, 2.0) && crosses(&Bound::AtMost(2.0), 2.0, 3.0));
        assert!(!crosses(&Bound::AtLeast(1.0), 1.0, 2.0) && crosses(&Bound::AtLeast(2.0), 1.0, 2.0));
        assert!(!crosses(&Bound::Between(1.0, 2.0), 1.0, 2.0));
        assert!(crosses(&Bound::Between(1.0, 2.0), 0.5, 1.5) && crosses(&Bound::Between(1.0, 2.0), 1.5, 2.5));
        let interval = Uncertainty { ci95: Some([0.0, 0.0]), range: None };
        let said = trust(interval, &Bound::AtMost(0.0), "1", 5);
        assert!(said.ends_with("does not cross the bound"), "{said}");
    }

    #[test]
    fn the_sentence_says_how_many_of_how_many_points_miss() {
        let tally = |missed, open| Tally { count: 3, missed, open, noun: "points" }.said("x", "why");
        assert_eq!(tally(2, 0), "2 of 3 points miss; worst at x: why");
        assert_eq!(tally(1, 1), "1 of 3 points miss and 1 cannot be judged; worst at x: why");
        assert_eq!(tally(0, 2), "2 of 3 points cannot be judged; first at x: why");
        assert_eq!(tally(0, 0), "all 3 points hold; nearest at x: why");
        assert_eq!(Tally { count: 1, missed: 1, open: 0, noun: "points" }.said("x", "why"), "why");
    }
}
