//! The entry point: text in, plan or problems out.

use super::criterion::{self, Scene};
use super::errors::{Place, Problems, ScenarioErrors};
use super::expand::{self, CONFIGURATIONS_MAX, Case, Expansion};
use super::overrides::{self, Short};
use super::path::{self, Speaker};
use super::plan::{Configuration, Language, Overrides, Plan};
use super::reader::{Context, Hop, Reader};
use super::resolved::{self, Defaults};
use super::select::Neighbours;
use super::tree::{self, Data, Node, Table};
use super::{fault, hosts, lab, schema, service, step};
use crate::param::Value;
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// Larger files are refused unread.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// Values of the tree × configurations, and hosts, links and pairs over all configurations: what a scenario may cost
/// before it runs. Both keep `weir check` of any file within seconds and within a gigabyte.
const NODES_MAX: usize = 4_000_000;
const PARTS_MAX: usize = 1_000_000;
/// Configurations with problems that are looked at.
const REFUSED_MAX: usize = 32;

/// Reads a scenario.
///
/// - `file` is its name for messages; `language` is the registry's.
/// - Errors: everything wrong with the text or the overrides; nothing has been started.
pub fn load(
    text: &str,
    file: &str,
    overrides: &Overrides,
    language: Language<'_>,
) -> Result<Plan, ScenarioErrors> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes; a scenario has at most {FILE_BYTES_MAX}", text.len());
        return Err(ScenarioErrors::of_file(file, message, None));
    }
    let problems = Problems::new(file, text, language);
    match read(text, overrides, &problems) {
        Some(plan) if !problems.any() => Ok(plan),
        _ => Err(problems.into_errors()),
    }
}

/// What `[scenario]` says.
struct Head {
    name: String,
    about: String,
    origin: Option<String>,
    scale: BTreeMap<String, f64>,
    trials: u32,
    trials_min: u32,
    seed: u64,
}

fn read(text: &str, overrides: &Overrides, problems: &Problems<'_>) -> Option<Plan> {
    let mut root = tree::parse_file(text, problems)?;
    let context = Context::new(problems);
    let whole = Place::new(0, 0..0);
    Reader::new(&context, &root, whole, "a scenario".to_owned(), "", schema::ROOT, &[], Vec::new());
    let short = overrides::short(&mut root, overrides.short, problems);
    overrides::command_line(&mut root, overrides, problems);
    let mut warnings = Vec::new();
    let head = read_head(&context, &root, &mut warnings);
    let metrics = criterion::known_metrics(problems.language.workloads);
    let chosen = if overrides.short { short.cases.as_deref() } else { None };
    check_short_cases(&short, &root, problems);
    let expansion = expand::expand(&root, chosen, &metrics, problems);
    match (root.get("lab"), root.entry("hosts")) {
        (None, None) if !problems.any() => problems.add_help(
            whole,
            "the scenario has no [lab] and no [hosts]",
            "describe the network, [[lab.site]] and [[lab.link]], or name real machines, [hosts.SITE-NUMBER]",
        ),
        (Some(_), Some(hosts)) => problems.add_help(
            hosts.key_at,
            "the scenario has both [lab] and [hosts]",
            "it runs in an emulated network or on real machines: give one of them",
        ),
        _ => {}
    }
    let mut defaults = Defaults::default();
    let configurations = configurations(&root, &expansion, problems, &mut defaults)?;
    // Criteria speak of points; where there are none for another reason, that reason is enough.
    let scene = Scene {
        root: &root,
        expansion: &expansion,
        configurations: &configurations,
        neighbours: Neighbours::new(
            &configurations,
            expansion.dimensions.iter().map(|it| it.name.as_str()).collect(),
        ),
        metrics: &metrics,
        workloads: problems.language.workloads,
        short: overrides.short,
        complete: !problems.any(),
        lenient: overrides.short || overrides.sets.iter().any(|set| set.trim_start().starts_with("sweep.")),
    };
    let criteria = criterion::criteria(&scene, &context);
    let head = head?;
    if problems.any() {
        return None;
    }
    defaults.spell_out(&mut root);
    let mut own = Defaults::default();
    own.add(context.defaults.into_inner());
    own.spell_out(&mut root);
    if overrides.short {
        keep_short(&mut root, &expansion);
    }
    drop_items(&mut root, "criterion", &criteria.left_out);
    Some(Plan {
        name: head.name,
        about: head.about,
        origin: head.origin,
        scale: head.scale,
        trials: head.trials,
        trials_min: head.trials_min,
        seed: head.seed,
        dimensions: expansion.dimensions.iter().map(|dimension| dimension.name.clone()).collect(),
        configurations,
        criteria: criteria.list,
        not_judged: criteria.not_judged,
        resolved: resolved::write(&root),
        warnings,
    })
}

/// Cases of `[short]` must exist even when the short form is not asked for.
fn check_short_cases(short: &Short, root: &Table, problems: &Problems<'_>) {
    for (name, at) in short.cases.iter().flatten() {
        let cases = root.tables("case");
        if !cases.iter().any(|case| case.text("name") == Some(name)) {
            let names = cases.iter().filter_map(|case| case.text("name"));
            problems.add_helped(
                *at,
                format!("no case is called {name:?}"),
                crate::nearest::suggestion(name, names),
            );
        }
    }
}

fn read_head(context: &Context<'_>, root: &Table, warnings: &mut Vec<String>) -> Option<Head> {
    static EMPTY: Table = Table { entries: Vec::new() };
    let problems = context.problems;
    let whole = Place::new(0, 0..0);
    let (table, at) = match root.get("scenario") {
        Some(Node { data: Data::Table(table), at }) => (table, *at),
        Some(node) => {
            problems.add(node.at, format!("`scenario`: expected a table [scenario], found {}", node.what()));
            return None;
        }
        None => (&EMPTY, whole),
    };
    // A file with a lab alone does for `lab up`.
    let lab_alone = root.get("step").is_none() && table.get("name").is_none();
    let path = vec![Hop::Key("scenario".to_owned())];
    let reader =
        Reader::new(context, table, at, "[scenario]".to_owned(), "scenario", schema::SCENARIO, &[], path);
    let name = if lab_alone {
        reader.note_default("name", Data::Text("lab".to_owned()), false);
        Some("lab".to_owned())
    } else {
        reader.name("name")
    };
    let mut scale = BTreeMap::new();
    if let Some(node) = table.get("scale") {
        match &node.data {
            Data::Table(factors) => {
                for entry in &factors.entries {
                    let factor = match entry.node.data {
                        Data::Integer(number) if number > 0 => number as f64,
                        Data::Float(number) if number > 0.0 && number.is_finite() => number,
                        _ => {
                            let message =
                                format!("`scale`: expected a number above zero, found {}", entry.node.what());
                            problems.add(entry.node.at, message);
                            continue;
                        }
                    };
                    scale.insert(entry.key.clone(), factor);
                }
            }
            _ => problems.add(node.at, format!("`scale`: expected {{ rate = 10 }}, found {}", node.what())),
        }
    }
    let about = reader.text("about").unwrap_or_default();
    let origin = reader.text("origin");
    let trials = reader.count("trials").and_then(|count| u32::try_from(count).ok());
    let seed = reader.count("seed");
    let trials_min = reader.count("trials_min").and_then(|count| u32::try_from(count).ok());
    let trials = trials?;
    let trials_min = match trials_min {
        Some(least) if least > trials => {
            warnings
                .push(format!("trials_min is {least} and there are only {trials} trials: all must be valid"));
            trials
        }
        Some(least) => least,
        None => trials.div_ceil(2),
    };
    Some(Head { name: name?, about, origin, scale, trials, trials_min, seed: seed? })
}

/// Decodes every configuration; `None` when there are too many to try.
fn configurations(
    root: &Table,
    expansion: &Expansion,
    problems: &Problems<'_>,
    defaults: &mut Defaults,
) -> Option<Vec<Configuration>> {
    // What configurations may change; the rest is not copied.
    let mut base = Table::default();
    for key in ["lab", "hosts", "service", "step", "fault"] {
        if let Some(entry) = root.entry(key) {
            base.entries.push(entry.clone());
        }
    }
    let count = expansion.count().unwrap_or(usize::MAX);
    let nodes = base.entries.iter().map(|entry| entry.node.count()).sum::<usize>().max(1);
    let at = expansion.dimensions.first().map_or(Place::default(), |dimension| dimension.at);
    if count > CONFIGURATIONS_MAX {
        let message =
            format!("cases and sweep make {count} configurations; at most {CONFIGURATIONS_MAX} are run");
        problems.add_help(at, message, "shorten a list of [sweep], or split the scenario");
        return None;
    }
    if nodes.saturating_mul(count) > NODES_MAX {
        let message =
            format!("{count} configurations of {nodes} values each are more than {NODES_MAX} values");
        problems.add_help(at, message, "shorten a list of [sweep], or the lab");
        return None;
    }
    let mut all: Vec<Configuration> = Vec::with_capacity(count);
    let mut ids = BTreeSet::new();
    let (mut parts, mut refused) = (0usize, 0usize);
    let cases: Vec<Option<&Case>> = match expansion.cases.as_slice() {
        [] => vec![None],
        cases => cases.iter().map(Some).collect(),
    };
    for case in cases {
        for number in 0..expansion.count_of(case).unwrap_or(0) {
            let chosen = combination(expansion, case, number);
            let configuration = one(&base, expansion, case, &chosen, problems, &mut ids, defaults);
            let Some(configuration) = configuration else {
                refused += 1;
                // What is wrong with so many is most likely wrong with all.
                if problems.full() || refused >= REFUSED_MAX {
                    return Some(all);
                }
                continue;
            };
            parts += configuration.topology.sites.len();
            parts += configuration.topology.hosts.len() + configuration.topology.links.len();
            parts += configuration.faults.len();
            parts += configuration.steps.iter().map(|step| 1 + step.pairs.len()).sum::<usize>();
            if parts > PARTS_MAX {
                let message =
                    format!("the configurations have more than {PARTS_MAX} hosts, links and pairs together");
                problems.add_help(at, message, "shorten a list of [sweep], or the lab");
                return None;
            }
            all.push(configuration);
        }
    }
    Some(all)
}

/// Which value of each dimension the combination `number` takes; the last dimension changes fastest.
fn combination(expansion: &Expansion, case: Option<&Case>, mut number: usize) -> Vec<usize> {
    let mut chosen = vec![0; expansion.dimensions.len()];
    for (index, dimension) in expansion.dimensions.iter().enumerate().rev() {
        let count = dimension.values_of(case).len();
        chosen[index] = number % count;
        number /= count;
    }
    chosen
}

fn one(
    base: &Table,
    expansion: &Expansion,
    case: Option<&Case>,
    chosen: &[usize],
    problems: &Problems<'_>,
    ids: &mut BTreeSet<String>,
    defaults: &mut Defaults,
) -> Option<Configuration> {
    let mut tree = base.clone();
    let mut parameters = case.map(|case| case.parameters.clone()).unwrap_or_default();
    let mut swept: Vec<(&str, &Value)> = Vec::new();
    for (path, at, node) in case.iter().flat_map(|case| &case.sets) {
        set(&mut tree, path, *at, node, problems);
    }
    for (dimension, index) in expansion.dimensions.iter().zip(chosen) {
        let (value, node) = &dimension.values_of(case)[*index];
        set(&mut tree, &dimension.path, dimension.at, node, problems);
        parameters.insert(dimension.name.clone(), value.clone());
        swept.push((&dimension.name, value));
    }
    swept.sort_by_key(|(name, _)| *name);
    let values: Vec<String> =
        swept.iter().map(|(name, value)| format!("{name}={}", expand::id_text(value))).collect();
    let case_name = case.map(|case| case.name.as_str());
    let mut joined: Vec<&str> = case_name.into_iter().collect();
    joined.extend(values.iter().map(String::as_str));
    let mut suffix = joined.join(",");
    // Values that differ only in letters that ids do not carry.
    let mut copy = 2;
    while !ids.insert(suffix.clone()) {
        suffix = format!("{}~{copy}", joined.join(","));
        copy += 1;
    }
    let id = match (case_name, suffix.strip_prefix(case_name.unwrap_or("\n"))) {
        (Some(case), Some(rest)) if rest.starts_with(',') => format!("{case}/{}", &rest[1..]),
        _ => suffix.clone(),
    };
    let context = Context::new(problems);
    let before = problems.count();
    let (topology, hosts) = match (tree.get("lab"), tree.get("hosts")) {
        (Some(node), _) => (lab::topology(&context, node), None),
        (None, Some(node)) => hosts::hosts(&context, node).unzip(),
        (None, None) => (Some(Topology::default()), None),
    };
    let point = |step: &str| if suffix.is_empty() { step.to_owned() } else { format!("{step}/{suffix}") };
    // What is wrong with the steps is reported even where the lab cannot be built, but for what needs it.
    let services = service::services(&context, &tree, topology.as_ref());
    let steps = step::steps(&context, &tree, topology.as_ref(), &services, &parameters, &point);
    let services = service::used(services, &steps, &tree);
    let faults = fault::faults(&context, &tree, topology.as_ref(), &steps, &services);
    let topology = topology?;
    if problems.count() > before {
        return None;
    }
    defaults.add(context.defaults.into_inner());
    let published = case.map(|case| case.published.clone()).unwrap_or_default();
    Some(Configuration {
        id,
        case: case_name.map(str::to_owned),
        parameters,
        topology,
        hosts,
        services,
        steps,
        faults,
        published,
    })
}

fn set(tree: &mut Table, path: &str, at: Place, node: &Node, problems: &Problems<'_>) {
    if let Some(target) = path::find(tree, path, at, Speaker::Configuration, problems) {
        path::apply(tree, &target, at, node, problems);
    }
}

/// The short form has been applied: what remains is the scenario that ran. Cases that it leaves out stay declared, since criteria
/// name them beside others, and since what cases set is named over all of them.
fn keep_short(root: &mut Table, expansion: &Expansion) {
    root.remove("short");
    if let Some(Data::List(cases)) = root.get_mut("case").map(|node| &mut node.data) {
        for case in cases {
            let at = case.at;
            let Some(table) = case.as_table_mut() else { continue };
            let name = table.text("name");
            if !expansion.cases.iter().any(|case| Some(case.name.as_str()) == name) {
                table.set("enabled", at, Node { data: Data::Flag(false), at });
            }
        }
    }
}

fn drop_items(root: &mut Table, key: &str, indices: &[usize]) {
    if let Some(Data::List(items)) = root.get_mut(key).map(|node| &mut node.data) {
        let mut index = 0;
        items.retain(|_| {
            index += 1;
            !indices.contains(&(index - 1))
        });
    }
    if root.get(key).and_then(Node::as_list).is_some_and(<[Node]>::is_empty) {
        root.remove(key);
    }
}
