//! `[[step]]`: who loads whom, when, with what.

use super::errors::Place;
use super::glob::Glob;
use super::lab::titled;
use super::plan::{FROM_TO, RoleHosts, RoleKey, Service, Shape, Step, StepStart, WorkloadSchema, is_paired};
use super::reach::Reach;
use super::reader::{Context, Hop, Reader, data_of};
use super::schema;
use super::service;
use super::tree::{Data, Table};
use super::turns::{self, TURNS_PAIRS_MAX, Turns};
use crate::nearest::{nearest, suggestion};
use crate::param::{Param, Value, Values};
use crate::topology::Topology;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// More pairs than a step can start at one instant.
const PAIRS_MAX: usize = 16_384;
/// Links on the paths of all pairs together: what a model of them costs.
const PATH_LINKS_MAX: u64 = 500_000;
pub(super) const STEPS_MAX: usize = 256;

/// Decodes all steps of one configuration. `point` makes a point's name from a step's.
pub(super) fn steps(
    context: &Context<'_>,
    root: &Table,
    topology: Option<&Topology>,
    services: &[Service],
    parameters: &BTreeMap<String, Value>,
    point: &dyn Fn(&str) -> String,
) -> Vec<Step> {
    let problems = context.problems;
    let tables = super::array_of_tables(root, "step", problems);
    if tables.len() > STEPS_MAX {
        problems.add(tables[0].1, format!("a scenario has at most {STEPS_MAX} steps, not {}", tables.len()));
        return Vec::new();
    }
    let names: Vec<&str> = tables.iter().filter_map(|(table, _)| table.text("name")).collect();
    let mut steps: Vec<Step> = Vec::new();
    let link_counts = LinkCounts::new();
    let reach = topology.map(|topology| Reach::new(root, topology));
    let real = root.get("hosts").is_some();
    for (index, (table, at)) in tables.iter().enumerate() {
        let workload = workload_of(table, context);
        let extra = workload.map_or(&[][..], |schema| schema.params);
        let what = titled("[[step]]", table.text("name"));
        let path = vec![Hop::Key("step".to_owned()), Hop::Index(index)];
        let role_keys = workload.map_or(FROM_TO, |schema| schema.roles);
        let is_paired = is_paired(role_keys);
        let keys =
            if workload.is_some() || table.get("workload").is_none() { schema::STEP } else { continue };
        let reader = Reader::new(context, table, *at, what, "step", keys, extra, path);
        let met = problems.count();
        let Some(name) = reader.name("name") else { continue };
        if steps.iter().any(|step| step.name == name) {
            problems.add(reader.place_of("name"), format!("two steps are called {name:?}"));
            continue;
        }
        refuse_pairing(&reader, role_keys, extra);
        let start = read_start(&reader, &names, index);
        let placed = topology.and_then(|topology| {
            let (roles, pairs) = if is_paired {
                let pairs = read_pairs(&reader, topology)?;
                (paired_roles(&pairs), pairs)
            } else {
                let roles = read_roles(&reader, role_keys, topology)?;
                let pairs = pairs_of_roles(&roles);
                (roles, pairs)
            };
            Some((roles, reachable(&reader, topology, pairs, &link_counts, real)?))
        });
        let rounds = match (topology, &placed) {
            (Some(topology), Some((_, pairs))) if is_paired => read_rounds(&reader, topology, pairs, real),
            _ => Some(Vec::new()),
        };
        let capture = topology.map_or(Some(Vec::new()), |topology| read_capture(&reader, topology, real));
        let pair_count = placed.as_ref().filter(|_| is_paired).map_or(0, |(_, pairs)| pairs.len());
        let mut values = read_values(&reader, role_keys, pair_count);
        let (Some(workload), Some(start), Some((roles, pairs)), Some(rounds), Some(capture)) =
            (workload, start, placed, rounds, capture)
        else {
            continue;
        };
        let hosts: Vec<usize> = roles.iter().flat_map(|(_, hosts)| hosts.iter().copied()).collect();
        let placed = service::place_targets(
            &reader,
            extra,
            &mut values,
            services,
            (&hosts, topology.filter(|_| !real)),
        );
        let Some(services) = placed else { continue };
        let reach = reach.as_ref().filter(|_| !real);
        if let Some(reach) = reach {
            let opening = (workload.opening)(workload.name, &values);
            let spoken = |param: &Param| values.text(param.name).as_deref() == param.auxiliary;
            let apart = extra.iter().filter(|param| param.auxiliary.is_some()).any(spoken);
            reach.check(&name, &pairs, (role_keys, roles.as_slice()), apart, opening, problems);
        }
        let rtt = reach.map_or(Duration::ZERO, |reach| reach.longest(&pairs));
        // What is wrong with a single key has been said; this is about keys that do not go together.
        if problems.count() == met
            && let Some(text) = {
                let at_once = if is_paired { at_once(&pairs, &rounds) } else { 0 };
                (workload.refusal)(workload.name, &values, &shape(&roles, at_once, rtt))
            }
        {
            problems.add(refused_key(&reader, table, &text), format!("step {name:?}: {text}"));
            continue;
        }
        steps.push(Step {
            point: point(&name),
            name,
            workload: workload.name.to_owned(),
            parameters: with_roles(parameters, role_keys, &roles, topology, (extra, &values)),
            in_points: extra.iter().filter(|param| param.is_in_points).map(|param| param.name).collect(),
            roles,
            pairs,
            is_paired,
            fills_path: workload.fills_path,
            rounds,
            main_metric: workload.metrics.first().map_or("", |metric| metric.name),
            start,
            services,
            capture,
            values,
        });
    }
    steps
}

/// Hosts of each role, `pairs` of them at once.
pub(super) fn shape(roles: &[(&'static str, Vec<usize>)], pairs: usize, rtt: Duration) -> Shape {
    Shape { hosts: roles.iter().map(|(key, hosts)| (*key, hosts.len())).collect(), pairs, rtt }
}

/// The hosts on each side of some pairs, each once.
pub(super) fn paired_roles(pairs: &[(usize, usize)]) -> Vec<(&'static str, Vec<usize>)> {
    let side = |of: fn(&(usize, usize)) -> usize| {
        let mut known = BTreeSet::new();
        pairs.iter().map(of).filter(|host| known.insert(*host)).collect()
    };
    vec![("from", side(|pair| pair.0)), ("to", side(|pair| pair.1))]
}

/// The point's parameters with what people compare roles by: their number, or the one host's name.
fn with_roles(
    parameters: &BTreeMap<String, Value>,
    role_keys: &[RoleKey],
    roles: &[(&'static str, Vec<usize>)],
    topology: Option<&Topology>,
    (own, values): (&[Param], &Values),
) -> BTreeMap<String, Value> {
    let mut all = parameters.clone();
    if is_paired(role_keys) {
        return all;
    }
    for (key, hosts) in roles {
        let value = match (hosts.as_slice(), topology) {
            ([one], Some(topology))
                if role_keys.iter().any(|role| role.key == *key && role.hosts == RoleHosts::One) =>
            {
                Value::Text(topology.hosts[*one].name.clone())
            }
            _ => Value::Count(hosts.len() as u64),
        };
        all.insert((*key).to_owned(), value);
    }
    for param in own.iter().filter(|param| param.is_in_points) {
        if let Some(value) = values.get(param.name) {
            all.entry(param.name.to_owned()).or_insert_with(|| value.clone());
        }
    }
    all
}

/// A workload that places roles has no pairs.
fn refuse_pairing(reader: &Reader<'_>, roles: &[RoleKey], own: &[Param]) {
    let Some(first) = roles.first().filter(|_| !is_paired(roles)) else { return };
    let pairing = schema::STEP_PAIRING.iter().filter(|key| !own.iter().any(|param| param.name == **key));
    for entry in pairing.filter_map(|key| reader.table.entry(key)) {
        let keys: Vec<String> = roles.iter().map(|role| format!("`{}`", role.key)).collect();
        reader.problems().add_help(
            entry.key_at,
            format!("{} has `{}`, and its workload pairs no hosts", reader.what, entry.key),
            format!("it places roles instead, from `{}` on: {}", first.key, keys.join(", ")),
        );
    }
}

/// The place of the first key in backticks that the step has; else the step's own.
fn refused_key(reader: &Reader<'_>, table: &Table, text: &str) -> Place {
    let mut named = text.split('`').skip(1).step_by(2);
    named.find_map(|key| table.get(key)).map_or(reader.at, |node| node.at)
}

fn workload_of<'w>(table: &Table, context: &Context<'w>) -> Option<&'w WorkloadSchema> {
    let node = table.get("workload")?;
    let Some(name) = node.as_text() else {
        context
            .problems
            .add(node.at, format!("`workload`: expected a text in quotes, found {}", node.what()));
        return None;
    };
    let real = context.problems.language.workloads.iter().filter(|schema| schema.is_workload());
    let found = real.clone().find(|schema| schema.name == name);
    if found.is_none() {
        let all = real.map(|schema| schema.name);
        if schema::is_later_value("workload", name) {
            let there: Vec<&str> = all.collect();
            context.problems.add_help(
                node.at,
                format!("workload {name:?}: not yet in this version of weir"),
                format!("there are: {}", there.join(", ")),
            );
        } else {
            let message = format!("no workload is called {:?}", super::tree::shortened(name));
            context.problems.add_helped(node.at, message, suggestion(name, all));
        }
    }
    found
}

fn read_start(reader: &Reader<'_>, names: &[&str], index: usize) -> Option<StepStart> {
    let problems = reader.problems();
    match (reader.has("after"), reader.has("at")) {
        (true, true) => {
            problems.add_help(
                reader.table.entry("at").expect("just seen").key_at,
                format!("{} has both `after` and `at`", reader.what),
                "`after` waits for a step, `at` counts from the trial's start: give one of them",
            );
            None
        }
        (false, true) => reader.duration("at").map(StepStart::At),
        (true, false) => {
            let after = reader.text("after")?;
            match names.iter().position(|name| *name == after) {
                Some(before) if before < index => Some(StepStart::After(Some(before))),
                Some(_) => {
                    problems.add_help(
                        reader.place_of("after"),
                        format!("`after` {after:?} is not before {} in the file", reader.what),
                        "a step waits for a step above it",
                    );
                    None
                }
                None => {
                    let message = format!("`after`: no step is called {after:?}");
                    problems.add_helped(
                        reader.place_of("after"),
                        message,
                        suggestion(&after, names.iter().copied()),
                    );
                    None
                }
            }
        }
        (false, false) => {
            if let Some(before) = index.checked_sub(1).and_then(|before| names.get(before)) {
                reader.note_default("after", Data::Text((*before).to_owned()), true);
            }
            Some(StepStart::After(index.checked_sub(1)))
        }
    }
}

/// Everything that is not about where and when.
fn read_values(reader: &Reader<'_>, roles: &[RoleKey], pair_count: usize) -> Values {
    let mut values = BTreeMap::new();
    let names: Vec<&'static str> = reader.params().iter().map(|param| param.name).collect();
    for name in names {
        let of_roles = roles.iter().any(|role| role.key == name)
            || !is_paired(roles) && schema::STEP_PAIRING.contains(&name) && !reader.has(name);
        if schema::STEP_PLACING.contains(&name) || of_roles {
            continue;
        }
        if let Some(value) = reader.value(name) {
            values.insert(name.to_owned(), value);
        }
    }
    if pair_count > 0 {
        let pairs = Value::Count(pair_count as u64);
        if !reader.has("pairs") {
            reader.note_default("pairs", data_of(&pairs), true);
        }
        values.insert("pairs".to_owned(), pairs);
    }
    let duration = |key: &str| match values.get(key) {
        Some(Value::Duration(duration)) => Some(*duration),
        _ => None,
    };
    if let (Some(warm_up), Some(whole)) = (duration("warm_up"), duration("duration"))
        && warm_up >= whole
        && warm_up > Duration::ZERO
    {
        reader.problems().add_help(
            reader.place_of("warm_up"),
            format!("`warm_up` {warm_up:?} leaves nothing of the `duration` {whole:?} to measure"),
            "the warm-up is part of the duration: a step of 20s with 5s of warm-up measures 15s",
        );
    }
    Values(values)
}

/// Links on the way from each stage to each other, computed at most once for a configuration.
type LinkCounts = OnceCell<Vec<Vec<Option<u64>>>>;

fn read_pairs(reader: &Reader<'_>, topology: &Topology) -> Option<Vec<(usize, usize)>> {
    let problems = reader.problems();
    let from = read_hosts(reader, "from", topology);
    let to = read_hosts(reader, "to", topology);
    let all = reader.text("pairing").as_deref() == Some("all");
    let (from, to) = (from?, to?);
    let mut pairs = Vec::new();
    if all {
        if from.len() * to.len() > PAIRS_MAX {
            problems.add(
                reader.at,
                format!("{} has {} pairs; at most {PAIRS_MAX} fit", reader.what, from.len() * to.len()),
            );
            return None;
        }
        // A matrix of a group with itself leaves its diagonal out.
        pairs.extend(from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b));
    } else {
        if from.len() != to.len() {
            problems.add_help(
                reader.place_of("to"),
                format!("`from` names {} hosts and `to` {}", from.len(), to.len()),
                "they are paired one with one; for each with all write pairing = \"all\"",
            );
            return None;
        }
        pairs.extend(from.into_iter().zip(to));
    }
    if let Some((host, _)) = pairs.iter().find(|(a, b)| a == b) {
        let host = &topology.hosts[*host].name;
        problems.add(reader.place_of("to"), format!("{host} is paired with itself"));
        return None;
    }
    if pairs.is_empty() {
        problems.add(reader.place_of("to"), format!("{} has no pair of hosts", reader.what));
        return None;
    }
    if reader.has("pairs") {
        let active = usize::try_from(reader.count("pairs")?).unwrap_or(usize::MAX);
        if active > pairs.len() {
            let message = format!("`pairs` is {active}, but `from` and `to` make only {}", pairs.len());
            problems.add(reader.place_of("pairs"), message);
            return None;
        }
        pairs.truncate(active);
    }
    Some(pairs)
}

/// Hosts of each role, in the order of the keys.
fn read_roles(
    reader: &Reader<'_>,
    keys: &[RoleKey],
    topology: &Topology,
) -> Option<Vec<(&'static str, Vec<usize>)>> {
    let problems = reader.problems();
    let mut roles = Vec::new();
    let mut good = true;
    for role in keys {
        let Some(hosts) = read_hosts(reader, role.key, topology) else {
            good = false;
            continue;
        };
        let mut known = BTreeSet::new();
        if let Some(twice) = hosts.iter().find(|host| !known.insert(**host)) {
            let name = &topology.hosts[*twice].name;
            problems.add(reader.place_of(role.key), format!("`{}` names {name} twice", role.key));
            good = false;
        } else if role.hosts == RoleHosts::One && hosts.len() > 1 {
            let message = format!("`{}` is one host, and this names {}", role.key, hosts.len());
            problems.add(reader.place_of(role.key), message);
            good = false;
        }
        roles.push((role.key, hosts));
    }
    if let [(from, first), (to, second), ..] = roles.as_slice()
        && first.len().saturating_mul(second.len()) > PAIRS_MAX
    {
        let count = first.len() * second.len();
        let message = format!("`{from}` and `{to}` make {count} pairs; at most {PAIRS_MAX} fit");
        problems.add(reader.place_of(from), message);
        good = false;
    }
    good.then_some(roles)
}

/// Who loads whom: what a host sends to itself passes no link.
fn pairs_of_roles(roles: &[(&'static str, Vec<usize>)]) -> Vec<(usize, usize)> {
    let [(_, from), (_, to), ..] = roles else { return Vec::new() };
    from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b).collect()
}

/// The pairs, if there is a path between the hosts of each.
fn reachable(
    reader: &Reader<'_>,
    topology: &Topology,
    pairs: Vec<(usize, usize)>,
    link_counts: &LinkCounts,
    real: bool,
) -> Option<Vec<(usize, usize)>> {
    let problems = reader.problems();
    if real {
        return Some(pairs); // how they reach each other is theirs to know
    }
    let counts = link_counts.get_or_init(|| topology.link_counts());
    let mut links = 0u64;
    for (a, b) in &pairs {
        let (from, to) = (topology.hosts[*a].site, topology.hosts[*b].site);
        let Some(count) = counts[to][from] else {
            let (a, b) = (&topology.sites[from].name, &topology.sites[to].name);
            problems.add_help(
                refused_at(reader),
                format!("there is no path from site {a:?} to site {b:?}"),
                "connect them by a [[lab.link]], or by links over other sites",
            );
            return None;
        };
        links += count;
    }
    if links > PATH_LINKS_MAX {
        let message =
            format!("the pairs of {} pass {links} links; at most {PATH_LINKS_MAX} fit", reader.what);
        problems.add(reader.at, message);
        return None;
    }
    Some(pairs)
}

/// The key that names the hosts which are loaded.
fn refused_at(reader: &Reader<'_>) -> Place {
    let named = ["to", "builders"].into_iter().find(|key| reader.table.get(key).is_some());
    named.map_or(reader.at, |key| reader.place_of(key))
}

/// Pairs that the workload is asked to load together: a pair that takes its turn is loaded by itself.
fn at_once(pairs: &[(usize, usize)], rounds: &[Vec<usize>]) -> usize {
    if rounds.is_empty() { pairs.len() } else { 1 }
}

/// Rounds of the pairs, none where all load at once.
fn read_rounds(
    reader: &Reader<'_>,
    topology: &Topology,
    pairs: &[(usize, usize)],
    real: bool,
) -> Option<Vec<Vec<usize>>> {
    let problems = reader.problems();
    if !reader.has("turns") {
        return Some(Vec::new());
    }
    let turns = Turns::parse(&reader.text("turns")?)?;
    let at = reader.place_of("turns");
    if pairs.len() > TURNS_PAIRS_MAX {
        let message =
            format!("{} has {} pairs; at most {TURNS_PAIRS_MAX} can take turns", reader.what, pairs.len());
        problems.add_help(at, message, "name fewer hosts in `from` and `to`, or one of each site");
        return None;
    }
    let mut known = BTreeSet::new();
    if let Some((from, to)) = pairs.iter().find(|pair| !known.insert(**pair)) {
        let (from, to) = (&topology.hosts[*from].name, &topology.hosts[*to].name);
        problems.add(
            at,
            format!("{} has the pair {from} and {to} twice, and each pair takes one turn", reader.what),
        );
        return None;
    }
    Some(turns::rounds(topology, pairs, turns, real))
}

/// Directed links by index whose packets are kept.
fn read_capture(reader: &Reader<'_>, topology: &Topology, real: bool) -> Option<Vec<usize>> {
    let problems = reader.problems();
    if !reader.has("capture") {
        return Some(Vec::new());
    }
    if real {
        let help = "on real hosts use tcpdump beside the run";
        problems.add_help(reader.place_of("capture"), "`capture` keeps the packets of a lab's ports", help);
        return None;
    }
    let names: Vec<String> = topology.directed_links().into_iter().map(|link| link.name).collect();
    let mut ports = Vec::new();
    for (port, at) in reader.texts("capture") {
        let directed = port.ends_with(".forward") || port.ends_with(".backward") || port.ends_with('*');
        let pattern = if directed { port.clone() } else { format!("{port}.*") };
        let glob = match Glob::parse(&pattern) {
            Ok(glob) => glob,
            Err(problem) => {
                problems.add(at, problem);
                return None;
            }
        };
        let before = ports.len();
        ports.extend((0..names.len()).filter(|index| glob.matches(&names[*index])));
        if ports.len() == before {
            let message = format!("`capture`: no port is called {:?}", super::tree::shortened(&port));
            problems.add_helped(at, message, suggestion(&port, names.iter().map(String::as_str)));
            return None;
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}

/// Hosts by index, in the order of the list and within a pattern in the order of the lab.
pub(super) fn read_hosts(reader: &Reader<'_>, key: &str, topology: &Topology) -> Option<Vec<usize>> {
    let problems = reader.problems();
    let mut hosts = Vec::new();
    let patterns = reader.texts(key);
    if patterns.is_empty() {
        if reader.table.get(key).is_some_and(|node| matches!(&node.data, Data::List(list) if list.is_empty()))
        {
            problems.add(reader.place_of(key), format!("`{key}` names no host"));
        }
        return None;
    }
    for (pattern, at) in patterns {
        let glob = match Glob::parse(&pattern) {
            Ok(glob) => glob,
            Err(problem) => {
                problems.add(at, problem);
                return None;
            }
        };
        let before = hosts.len();
        hosts.extend((0..topology.hosts.len()).filter(|index| glob.matches(&topology.hosts[*index].name)));
        if hosts.len() == before {
            let names = topology.hosts.iter().map(|host| host.name.as_str());
            let help = match nearest(&pattern, names.clone()) {
                Some(near) => Some(format!("did you mean `{near}`?")),
                None => suggestion(&pattern, names),
            };
            problems.add_helped(
                at,
                format!("`{key}`: no host is called {:?}", super::tree::shortened(&pattern)),
                help,
            );
            return None;
        }
        if hosts.len() > PAIRS_MAX {
            problems.add(at, format!("`{key}` names more than {PAIRS_MAX} hosts"));
            return None;
        }
    }
    Some(hosts)
}
