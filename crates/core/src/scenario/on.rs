//! `on` of a criterion: the links, hosts or pairs whose values are judged.

use super::criterion::Scene;
use super::glob::Glob;
use super::plan::Service;
use super::reader::Reader;
use super::select;
use super::tree::shortened;
use crate::metric::{Metric, Scope};
use crate::nearest::suggestion;

/// Names of pairs that a misspelt one is compared with.
const NAMES_SUGGESTED: usize = 4_096;

/// A glob over links or hosts; none for a metric that is of the whole point.
pub(super) fn read_on(scene: &Scene<'_>, reader: &Reader<'_>, metric: &Metric) -> Option<String> {
    let problems = reader.problems();
    if !select::has_entities(metric) {
        return None;
    }
    let first = scene.configurations.first()?;
    if first.hosts.is_some() && metric.scope == Scope::Port {
        let message =
            format!("{} is counted at a lab's ports, and this scenario is of real hosts", metric.name);
        problems.add(reader.place_of("metric"), message);
        return None;
    }
    let topology = &first.topology;
    let links = || topology.directed_links().into_iter().map(|link| link.name);
    let hosts = || topology.hosts.iter().map(|host| format!("host.{}", host.name));
    let names: Vec<String> = if metric.scope == Scope::Port { links().collect() } else { hosts().collect() };
    let Some(on) = reader.text("on") else {
        if metric.scope == Scope::Port && !reader.has("on") {
            problems.add_help(
                reader.at,
                format!("{} needs `on`: whose {}", reader.what, metric.name),
                format!("for example on = {:?}", names.last().map_or("", String::as_str)),
            );
        }
        return None;
    };
    let pattern = on_pattern(&on, metric.scope);
    match Glob::parse(&pattern) {
        Err(problem) => problems.add(reader.place_of("on"), problem),
        // What a load's parts are called is its workload's to know.
        Ok(_) if metric.scope == Scope::Part => return Some(pattern),
        // Nor what a service's daemons are called: that is its recipe's.
        Ok(_) if metric.scope == Scope::Host && is_of_service(&on, &first.services) => return Some(pattern),
        Ok(glob) if !names.iter().any(|name| glob.matches(name)) => {
            let message = format!("`on` {:?} is nothing of this lab", shortened(&on));
            problems.add_helped(
                reader.place_of("on"),
                message,
                suggestion(&on, names.iter().map(String::as_str)),
            );
        }
        Ok(_) => return Some(pattern),
    }
    None
}

/// `service.NAME.…` of a service that there is.
fn is_of_service(on: &str, services: &[Service]) -> bool {
    let name = on.strip_prefix("service.").and_then(|rest| rest.split('.').next());
    name.is_some_and(|name| services.iter().any(|service| service.name == name))
}

/// A glob over pairs of the steps that have the metric; refused where none of them has pairs that take turns.
pub(super) fn read_on_pairs(
    scene: &Scene<'_>,
    reader: &Reader<'_>,
    metric: &Metric,
    workloads: &[String],
) -> Option<String> {
    let problems = reader.problems();
    let on = reader.text("on")?;
    let at = reader.place_of("on");
    let glob = Glob::parse(&on).map_err(|problem| problems.add(at, problem)).ok()?;
    let mut nearest: Vec<String> = Vec::new();
    for configuration in scene.configurations {
        for step in configuration.steps.iter().filter(|step| workloads.contains(&step.workload)) {
            for entity in step.pair_entities(&configuration.topology) {
                if glob.matches(&entity) {
                    return Some(on);
                }
                nearest.push(entity);
            }
        }
        // Cases seldom differ in their hosts; a name that is in none of the first is looked for in the others all the same.
        nearest.truncate(NAMES_SUGGESTED);
    }
    if !scene.complete {
        return None;
    }
    if nearest.is_empty() {
        let message = format!("`on`: {} is not counted for each link, host or part of a load", metric.name);
        problems.add_help(at, message, "it is for each pair of a step whose pairs take `turns`");
    } else {
        let message = format!("`on` {:?} is no pair of a step that has {}", shortened(&on), metric.name);
        problems.add_helped(at, message, suggestion(&on, nearest.iter().map(String::as_str)));
    }
    None
}

/// A link without a direction means both.
fn on_pattern(on: &str, scope: Scope) -> String {
    let directed = on.ends_with(".forward") || on.ends_with(".backward") || on.ends_with('*');
    if scope == Scope::Port && !directed { format!("{on}.*") } else { on.to_owned() }
}
