//! The sentence that says why a criterion was judged as it was.

use crate::model::Model;
use crate::scenario::plan::{Bound, Criterion, Reference};
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

/// What the uncertainty says of the bound.
pub(super) fn trust(uncertainty: Uncertainty, bound: &Bound, unit: &str, trials: usize) -> String {
    match uncertainty {
        Uncertainty { ci95: Some([low, high]), .. } => {
            let crosses = edges(bound).iter().any(|edge| (low..=high).contains(edge));
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
