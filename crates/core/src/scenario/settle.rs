//! Criteria against the points there are: `for_each` resolved, comparisons checked.

use super::criterion::{Criteria, Scene, no_parameter, param_named};
use super::errors::{Place, Problems};
use super::expand;
use super::glob::Glob;
use super::plan::{Condition, Criterion, Fit, Reference};
use super::reader::Reader;
use super::select;
use crate::param::Value;
use std::collections::BTreeSet;

/// Criteria × points: what judging may cost.
const WORK_MAX: usize = 1_000_000;
const CRITERIA_MAX: usize = 1_000;

fn too_many(criteria: usize, points: usize) -> String {
    format!("{criteria} criteria on {points} points are more than {WORK_MAX} to judge")
}

/// False (and a problem) where there are more criteria than can be judged on so many points.
pub(super) fn affordable(scene: &Scene<'_>, criteria: usize, at: Place, problems: &Problems<'_>) -> bool {
    let points = scene.point_count();
    let affordable = criteria <= CRITERIA_MAX && criteria.saturating_mul(points) <= WORK_MAX;
    if !affordable {
        problems.add_help(at, too_many(criteria, points), "drop criteria, or shorten a list of [sweep]");
    }
    affordable
}

/// Resolves `for_each`, and checks that every criterion has its points and every point what it is compared with.
pub(super) fn settle(
    scene: &Scene<'_>,
    reader: &Reader<'_>,
    criterion: Criterion,
    for_each: Option<String>,
    found: &mut Criteria,
) {
    if !scene.complete {
        return;
    }
    let problems = reader.problems();
    let at = reader.at;
    let chosen = select::points(scene.configurations, &criterion.select, &|step| criterion.emitted_by(step));
    if chosen.is_empty() {
        if !scene.lenient {
            let unmet = select::unmet(scene.configurations, &criterion.select);
            let nearly = || {
                select::nearly(scene.configurations, &criterion.select, &|step| criterion.emitted_by(step))
            };
            let help = unmet
                .or_else(nearly)
                .unwrap_or_else(|| "no step has the metric: name one of a workload that is there".to_owned());
            problems.add_help(at, format!("{} selects no point", reader.what), help);
        }
        found.not_judged.push(criterion.text);
        return;
    }
    let step_of = |(index, number): select::PointIndex| &scene.configurations[index].steps[number];
    if let Some(per) = &criterion.per {
        let known = param_named(scene, per).is_some();
        let bad = chosen.iter().find(|point| {
            let value = select::parameter(step_of(**point), per).and_then(Value::as_number);
            value.is_none_or(|number| number == 0.0)
        });
        if !known {
            no_parameter(scene, per, reader.place_of("per"), problems);
            return;
        }
        if let Some(point) = bad {
            let message =
                format!("`per`: {per:?} is no number above zero in point {}", step_of(*point).point);
            problems.add(reader.place_of("per"), message);
            return;
        }
    }
    for (key, reference) in [("minus", &criterion.minus), ("of", &criterion.of)] {
        let Some(reference) = reference else { continue };
        for point in &chosen {
            let Some(missing) = missing_reference(scene, *point, reference, &criterion) else { continue };
            if scene.lenient {
                found.not_judged.push(criterion.text);
                return;
            }
            problems.add(reader.place_of(key), format!("`{key}`: {missing}"));
            return;
        }
    }
    if let Some(fit) = &criterion.fit
        && let Some(problem) = unfit(scene, fit, &chosen)
    {
        if scene.lenient {
            found.not_judged.push(criterion.text);
        } else {
            problems.add(reader.place_of("fit"), format!("`fit`: {problem}"));
        }
        return;
    }
    let Some(name) = for_each else {
        found.list.push(criterion);
        return;
    };
    if param_named(scene, &name).is_none() {
        no_parameter(scene, &name, reader.place_of("for_each"), problems);
        return;
    }
    let mut values: Vec<Value> = Vec::new();
    let mut seen = BTreeSet::new();
    for point in &chosen {
        let step = step_of(*point);
        let value = if name == "step" {
            Some(Value::Text(step.name.clone()))
        } else {
            select::parameter(step, &name).cloned()
        };
        if let Some(value) = value
            && seen.insert(value.to_json().to_string())
        {
            values.push(value);
        }
    }
    let work = (found.list.len() + values.len()).saturating_mul(scene.point_count());
    if work > WORK_MAX {
        problems
            .add(reader.place_of("for_each"), too_many(found.list.len() + values.len(), scene.point_count()));
        return;
    }
    for value in values {
        let mut one = criterion.clone();
        let shown = expand::id_text(&value);
        one.text = format!("{} ({name} = {shown})", one.text);
        one.select.parameters.insert(name.clone(), Condition::OneOf(vec![value]));
        found.list.push(one);
    }
}

/// Why no line can be drawn through the points, if so: too few that differ in `x`.
fn unfit(scene: &Scene<'_>, fit: &Fit, chosen: &[select::PointIndex]) -> Option<String> {
    let needed = fit.value.values_min();
    for group in select::lines(scene.configurations, fit, chosen) {
        let mut xs: Vec<f64> = group.iter().map(|(x, _)| *x).collect();
        xs.dedup();
        if xs.len() < needed {
            let [from, to] = fit.over;
            return Some(format!(
                "only {} values of {:?} from {from} to {to}, and it takes {needed}",
                xs.len(),
                fit.x
            ));
        }
    }
    None
}

/// What is missing for the comparison, if anything is.
fn missing_reference(
    scene: &Scene<'_>,
    point: select::PointIndex,
    reference: &Reference,
    criterion: &Criterion,
) -> Option<String> {
    let configuration = &scene.configurations[point.0];
    let id = &configuration.steps[point.1].point;
    match reference {
        Reference::Model(model) => {
            let name = criterion.metric.as_deref()?;
            let metric = scene.metrics.iter().find(|metric| metric.name == name)?;
            let why = model.refusal(configuration, &configuration.steps[point.1], metric)?;
            Some(format!("the model {:?} says nothing of point {id}: {why}", model.name()))
        }
        Reference::Published => {
            let name = format!("{}.{}", criterion.metric.as_deref()?, criterion.statistic);
            let there = configuration.published.contains_key(&name);
            (!there).then(|| format!("nothing is published for {name} of point {id}"))
        }
        Reference::Pairs(pattern) => {
            let step = &configuration.steps[point.1];
            let there = Glob::parse(pattern).is_ok_and(|glob| {
                step.pair_entities(&configuration.topology).any(|pair| glob.matches(&pair))
            });
            (!there).then(|| format!("no pair of point {id} is called {pattern:?}"))
        }
        Reference::Point(_) | Reference::Case(_) => {
            let there = scene.neighbours.find(point, reference).is_some();
            (!there).then(|| format!("there is no such point beside {id}"))
        }
    }
}
