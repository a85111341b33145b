//! Which points a criterion speaks of, and which point another is compared with.

use super::plan::{Condition, Configuration, Criterion, Fit, Plan, Reference, Select, Step};
use crate::metric::Metric;
use crate::nearest::nearest;
use crate::param::{Member, Value};
use std::collections::BTreeMap;

/// A point: index of the configuration, index of its step.
pub type PointIndex = (usize, usize);

/// A point's parameter: what is swept or set by the case, else what the step itself says.
pub fn parameter<'a>(step: &'a Step, name: &str) -> Option<&'a Value> {
    step.parameters.get(name).or_else(|| step.values.get(name))
}

/// Values of a parameter that a help names.
const VALUES_SHOWN: usize = 24;

fn holds(condition: &Condition, value: &Value) -> bool {
    match condition {
        Condition::OneOf(values) => values.contains(value) || is_named(values, value),
        Condition::Range { from, to } => match (value.as_number(), from.as_number(), to.as_number()) {
            (Some(value), Some(from), Some(to)) => (from..=to).contains(&value),
            _ => false,
        },
    }
}

/// A member with parameters is selected by its name alone, too.
fn is_named(values: &[Value], value: &Value) -> bool {
    matches!(value, Value::Table(_))
        && Member::of(value).is_some_and(|member| values.contains(&Value::Text(member.name)))
}

fn selects(select: &Select, configuration: &Configuration, step: &Step) -> bool {
    let case = select.cases.is_empty()
        || configuration.case.as_ref().is_some_and(|case| select.cases.contains(case));
    case && select.parameters.iter().all(|(name, condition)| {
        if name == "step" {
            return holds(condition, &Value::Text(step.name.clone()));
        }
        parameter(step, name).is_some_and(|value| holds(condition, value))
    })
}

/// The first condition that no point at all meets, in words: the parameter, and the values that it takes.
pub fn unmet(configurations: &[Configuration], select: &Select) -> Option<String> {
    select.parameters.iter().filter(|(name, _)| *name != "step").find_map(|(name, condition)| {
        let steps = configurations.iter().flat_map(|configuration| &configuration.steps);
        let mut taken: Vec<&Value> = Vec::new();
        for value in steps.filter_map(|step| parameter(step, name)) {
            if holds(condition, value) {
                return None;
            }
            if !taken.contains(&value) {
                taken.push(value);
            }
        }
        let near = nearest_value(condition, &taken).map(|near| format!(": nearest is {}", near.to_json()));
        let more = taken.len().saturating_sub(VALUES_SHOWN);
        let shown = taken.iter().take(VALUES_SHOWN).map(|value| value.to_json().to_string());
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(", … ({more} more)") } else { String::new() };
        (!taken.is_empty()).then(|| {
            format!(
                "`{name}` is never what `where` asks{}; its values are {shown}{more}",
                near.unwrap_or_default()
            )
        })
    })
}

/// Of the values that there are the one nearest to what is asked: of numbers by their distance, of texts by their letters.
fn nearest_value<'a>(condition: &Condition, taken: &[&'a Value]) -> Option<&'a Value> {
    let asked: Vec<&Value> = match condition {
        Condition::OneOf(values) => values.iter().collect(),
        Condition::Range { from, to } => vec![from, to],
    };
    let distance = |value: &Value| {
        let value = value.as_number()?;
        asked
            .iter()
            .filter_map(|asked| asked.as_number())
            .map(|asked| (asked - value).abs())
            .min_by(f64::total_cmp)
    };
    let by_number = taken.iter().filter_map(|value| Some((distance(value)?, *value)));
    if let Some((_, value)) = by_number.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
        return Some(value);
    }
    let text = |value: &'a Value| if let Value::Text(text) = value { Some(text.as_str()) } else { None };
    let near = asked.iter().find_map(|asked| match asked {
        Value::Text(asked) => nearest(asked, taken.iter().filter_map(|value| text(value))),
        _ => None,
    })?;
    taken.iter().copied().find(|value| text(value) == Some(near))
}

/// The point that meets most of the conditions of a selection that none meets whole, and the first that it does not: in words.
pub fn nearly(
    configurations: &[Configuration],
    select: &Select,
    emits: &dyn Fn(&Step) -> bool,
) -> Option<String> {
    let steps = configurations
        .iter()
        .flat_map(|configuration| configuration.steps.iter().map(move |step| (configuration, step)));
    let unmet = |configuration: &Configuration, step: &Step| -> Vec<String> {
        let case = configuration.case.as_ref();
        let other = !select.cases.is_empty() && !case.is_some_and(|case| select.cases.contains(case));
        let mut unmet: Vec<String> =
            other.then(|| format!("case is {:?}", case.map_or("none", String::as_str))).into_iter().collect();
        for (name, condition) in &select.parameters {
            let own = Value::Text(step.name.clone());
            let value = if name == "step" { Some(&own) } else { parameter(step, name) };
            if !value.is_some_and(|value| holds(condition, value)) {
                let value = value.map_or("not given".to_owned(), |value| value.to_json().to_string());
                unmet.push(format!("`{name}` is {value}"));
            }
        }
        unmet
    };
    let near = steps
        .filter(|(_, step)| emits(step))
        .map(|(configuration, step)| (unmet(configuration, step), step))
        .min_by_key(|(unmet, _)| unmet.len())?;
    Some(format!("the nearest point is {}, where {}", near.1.point, near.0.join(" and ")))
}

/// The points that `select` selects among those that can have `metric`: a metric of a workload belongs to its steps, one
/// of links, hosts or the run to every step.
pub fn points(
    configurations: &[Configuration],
    select: &Select,
    emits: &dyn Fn(&Step) -> bool,
) -> Vec<PointIndex> {
    let mut all = Vec::new();
    for (index, configuration) in configurations.iter().enumerate() {
        for (number, step) in configuration.steps.iter().enumerate() {
            if emits(step) && selects(select, configuration, step) {
                all.push((index, number));
            }
        }
    }
    all
}

/// A point of a line, at the value of the fit's parameter.
type PlacedPoint = (f64, PointIndex);
/// What points of one line have in common: case, step and the other parameters.
type LineKey<'a> = (Option<&'a str>, &'a str, Vec<String>);

/// Groups of points that differ in a fit's parameter alone, each with its values of it in order; points beyond `over` are left
/// out.
pub fn lines(configurations: &[Configuration], fit: &Fit, chosen: &[PointIndex]) -> Vec<Vec<PlacedPoint>> {
    let mut groups: BTreeMap<LineKey<'_>, Vec<PlacedPoint>> = BTreeMap::new();
    for point in chosen {
        let configuration = &configurations[point.0];
        let step = &configuration.steps[point.1];
        let Some(x) = parameter(step, &fit.x).and_then(Value::as_number) else { continue };
        let others = configuration.parameters.iter().filter(|(name, _)| **name != fit.x);
        let others = others.map(|(name, value)| format!("{name}={}", value.to_json())).collect();
        let group = groups.entry((configuration.case.as_deref(), step.name.as_str(), others)).or_default();
        if (fit.over[0]..=fit.over[1]).contains(&x) {
            group.push((x, *point));
        }
    }
    let mut lines: Vec<Vec<PlacedPoint>> = groups.into_values().collect();
    for line in &mut lines {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Finds the points that others are compared with.
#[derive(Debug)]
pub struct Neighbours<'a> {
    configurations: &'a [Configuration],
    dimensions: Vec<&'a str>,
    by_case_and_values: BTreeMap<(Option<&'a str>, Vec<String>), usize>,
}

impl<'a> Neighbours<'a> {
    pub fn new(configurations: &'a [Configuration], dimensions: Vec<&'a str>) -> Self {
        let mut by_case_and_values = BTreeMap::new();
        for (index, configuration) in configurations.iter().enumerate() {
            let value = |name: &&str| value_key(configuration.parameters.get(*name));
            let values = dimensions.iter().map(value).collect();
            by_case_and_values.entry((configuration.case.as_deref(), values)).or_insert(index);
        }
        Neighbours { configurations, dimensions, by_case_and_values }
    }

    /// The point that a reference to another point or case means, seen from `point`. `None` when there is no such point.
    pub fn find(&self, (index, number): PointIndex, reference: &Reference) -> Option<PointIndex> {
        let here = &self.configurations[index];
        let none = BTreeMap::new();
        let (case, given) = match reference {
            Reference::Point(given) => (here.case.as_deref(), given),
            Reference::Case(case) => (Some(case.as_str()), &none),
            Reference::Model(_) | Reference::Published | Reference::Pairs(_) => return None,
        };
        let value = |name: &&str| value_key(given.get(*name).or_else(|| here.parameters.get(*name)));
        let values: Vec<String> = self.dimensions.iter().map(value).collect();
        let other = *self.by_case_and_values.get(&(case, values))?;
        let step = match given.get("step") {
            Some(Value::Text(name)) => name,
            _ => &here.steps[number].name,
        };
        let number = self.configurations[other].steps.iter().position(|other| other.name == *step)?;
        Some((other, number))
    }
}

fn value_key(value: Option<&Value>) -> String {
    value.map_or(String::new(), |value| value.to_json().to_string())
}

impl Criterion {
    /// Whether the step can have what the criterion is about.
    pub(super) fn emitted_by(&self, step: &Step) -> bool {
        let measured = self.workloads.is_empty() || self.workloads.contains(&step.workload);
        measured && !(self.of_pairs && step.rounds.is_empty())
    }
}

impl Plan {
    /// The points a criterion of this plan is judged on.
    pub fn points_of(&self, criterion: &Criterion) -> Vec<PointIndex> {
        points(&self.configurations, &criterion.select, &|step| criterion.emitted_by(step))
    }
}

/// Metrics of links, hosts and parts of a load are told apart by `on`; the others are of the whole point.
pub fn has_entities(metric: &Metric) -> bool {
    metric.scope.has_entities()
}
