//! Which points a criterion speaks of, and which point another is compared with.

use super::plan::{Condition, Configuration, Criterion, Plan, Reference, Select, Step};
use crate::metric::{Metric, Scope};
use crate::param::Value;
use std::collections::BTreeMap;

/// A point: index of the configuration, index of its step.
pub type PointIndex = (usize, usize);

/// A point's parameter: what is swept or set by the case, else what the step itself says.
pub fn parameter<'a>(step: &'a Step, name: &str) -> Option<&'a Value> {
    step.parameters.get(name).or_else(|| step.values.get(name))
}

fn holds(condition: &Condition, value: &Value) -> bool {
    match condition {
        Condition::OneOf(values) => values.contains(value),
        Condition::Range { from, to } => match (value.as_number(), from.as_number(), to.as_number()) {
            (Some(value), Some(from), Some(to)) => (from..=to).contains(&value),
            _ => false,
        },
    }
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

/// The point that a reference to another point or case means, seen from `point`. `None` when there is no such point.
pub fn reference_point(
    configurations: &[Configuration],
    dimensions: &[String],
    (index, number): PointIndex,
    reference: &Reference,
) -> Option<PointIndex> {
    let here = &configurations[index];
    let step = &here.steps[number];
    let none = BTreeMap::new();
    let (case, given) = match reference {
        Reference::Point(given) => (here.case.as_ref(), given),
        Reference::Case(case) => (Some(case), &none),
        Reference::Ceiling | Reference::Published => return None,
    };
    let step_name = match given.get("step") {
        Some(Value::Text(name)) => name,
        _ => &step.name,
    };
    for (other_index, other) in configurations.iter().enumerate() {
        if other.case.as_ref() != case {
            continue;
        }
        let same = dimensions
            .iter()
            .all(|name| other.parameters.get(name) == given.get(name).or_else(|| here.parameters.get(name)));
        if same && let Some(number) = other.steps.iter().position(|step| step.name == *step_name) {
            return Some((other_index, number));
        }
    }
    None
}

impl Plan {
    /// The points a criterion of this plan is judged on.
    pub fn points_of(&self, criterion: &Criterion) -> Vec<PointIndex> {
        points(&self.configurations, &criterion.select, &|step| {
            criterion.workloads.is_empty() || criterion.workloads.contains(&step.workload)
        })
    }
}

/// Metrics of links and hosts are told apart by `on`; the others are of the whole point.
pub fn has_entities(metric: &Metric) -> bool {
    matches!(metric.scope, Scope::Port | Scope::Host)
}
