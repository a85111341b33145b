//! What the command line and `[short]` change before anything else is read.

use super::errors::{Place, Problems};
use super::path::{self, Speaker};
use super::plan::{Overrides, WorkloadSchema};
use super::reader::{Context, Reader};
use super::schema;
use super::tree::{self, Data, Node, Table, shortened};
use crate::nearest::suggestion;
use crate::param::Param;

/// `[short]` as read, applied or not.
#[derive(Debug, Default)]
pub(super) struct Short {
    /// Names with their places.
    pub cases: Option<Vec<(String, Place)>>,
}

/// Reads `[short]`; changes `root` by it when `apply` says so, and otherwise a copy, so that it is checked all the same.
pub(super) fn short(root: &mut Table, apply: bool, problems: &Problems<'_>) -> Short {
    let Some(node) = root.get("short").cloned() else {
        if apply {
            problems.add_help(
                Place::default(),
                "--short: the scenario has no short form",
                "write what it changes as [short] trials, cases, set, or run without --short",
            );
        }
        return Short::default();
    };
    let Data::Table(table) = &node.data else {
        problems.add(node.at, format!("`short`: expected a table [short], found {}", node.what()));
        return Short::default();
    };
    let context = Context::new(problems);
    let reader =
        Reader::new(&context, table, node.at, "[short]".to_owned(), "short", schema::SHORT, &[], Vec::new());
    let mut copy;
    let target = if apply {
        root
    } else {
        copy = root.clone();
        &mut copy
    };
    if let Some(set) = table.get("set") {
        match &set.data {
            Data::Table(inner) => {
                for (path, at, node) in path::settings(inner, None) {
                    change(target, &path, at, node, false, problems);
                }
            }
            _ => problems
                .add(set.at, format!("`set`: expected a table {{ PATH = value }}, found {}", set.what())),
        }
    }
    let trials = reader.count("trials").and_then(|_| table.get("trials").cloned());
    if let Some(trials) = &trials
        && let Some(scenario) = target.get_mut("scenario").and_then(Node::as_table_mut)
    {
        scenario.set("trials", trials.at, trials.clone());
    }
    Short { cases: reader.has("cases").then(|| reader.texts("cases")) }
}

/// Applies every `--set`, then `--trials` and `--seed`.
pub(super) fn command_line(root: &mut Table, overrides: &Overrides, problems: &Problems<'_>) {
    for set in &overrides.sets {
        let text: &str = set;
        let source = problems.add_source(format!("--set {}", shortened(text)), text);
        let Some((path, value)) = text.split_once('=') else {
            problems.add_help(
                Place::new(source, 0..text.len()),
                "--set needs PATH=VALUE",
                "for example --set step.one.duration=5s",
            );
            continue;
        };
        let at = Place::new(source, 0..path.len());
        let Some(node) = value_node(value, source, path.len() + 1, problems) else { continue };
        change(root, path.trim(), at, &node, true, problems);
    }
    let mut scenario = |key: &str, number: u64| {
        let text = format!("--{key}={number}");
        let source = problems.add_source(text.clone(), &text);
        let at = Place::new(source, 0..text.len());
        let Ok(number) = i64::try_from(number) else {
            problems.add(at, format!("--{key} is too large: it may be up to {}", i64::MAX));
            return;
        };
        if root.get("scenario").is_none() {
            root.set("scenario", at, Node { data: Data::Table(Table::default()), at });
        }
        if let Some(scenario) = root.get_mut("scenario").and_then(Node::as_table_mut) {
            scenario.set(key, at, Node { data: Data::Integer(number), at });
        }
    };
    if let Some(trials) = overrides.trials {
        scenario("trials", u64::from(trials));
    }
    if let Some(seed) = overrides.seed {
        scenario("seed", seed);
    }
}

/// The value of a `--set`: any TOML value, and text without quotes where it is no TOML.
fn value_node(value: &str, source: usize, offset: usize, problems: &Problems<'_>) -> Option<Node> {
    let at = Place::new(source, offset..offset + value.len());
    let trimmed = value.trim();
    if trimmed.is_empty() {
        problems.add(at, "--set gives no value; for an empty text write \"\"");
        return None;
    }
    let lead = offset + value.len() - value.trim_start().len();
    match tree::parse_value(trimmed, source, lead, problems) {
        Ok(node) => Some(node),
        Err(error) if trimmed.starts_with(['[', '{', '"', '\'']) => {
            problems.add(at, tree::toml_message(&error));
            None
        }
        Err(_) => Some(Node { data: Data::Text(trimmed.to_owned()), at }),
    }
}

/// Changes one path. `bare`: `step.NAME` may be left out.
fn change(root: &mut Table, path: &str, at: Place, node: &Node, bare: bool, problems: &Problems<'_>) {
    let first = path.split('.').next().unwrap_or(path);
    if first == "sweep" {
        return change_sweep(root, path, at, node, problems);
    }
    let mut path = path.to_owned();
    if bare && !path::is_root(first) {
        match steps_with(root, first, problems.language.workloads).as_slice() {
            [] => {
                if let Some(near) = near_step_key(root, first, problems.language.workloads) {
                    let message = format!("no such path: `{}`", shortened(&path));
                    let rest = &path[first.len()..];
                    problems.add_help(at, message, format!("did you mean `{near}{rest}`, a key of a step?"));
                    return;
                }
            }
            [one] => path = format!("step.{one}.{path}"),
            several => {
                let all: Vec<String> = several.iter().map(|step| format!("step.{step}.{path}")).collect();
                problems.add_help(
                    at,
                    format!("`{}` is a key of {} steps", shortened(&path), several.len()),
                    format!("say which: {}", all.join(", ")),
                );
                return;
            }
        }
    }
    if let Some(swept) = swept_by(root, &path) {
        problems.add_help(
            at,
            format!("`{path}` is swept, so every point sets it anew"),
            format!("change the sweep's list: sweep.{swept}"),
        );
        return;
    }
    if let Some(target) = path::find(root, &path, at, Speaker::Whole, problems) {
        path::apply(root, &target, at, node, problems);
    }
}

/// Steps that have `key`: by their workload's own declaration, or for a common key by having it written.
fn steps_with(root: &Table, key: &str, workloads: &[WorkloadSchema]) -> Vec<String> {
    let steps = root.tables("step");
    let names = |has: &dyn Fn(&Table) -> bool| -> Vec<String> {
        steps
            .iter()
            .filter(|step| has(step))
            .filter_map(|step| step.text("name").map(str::to_owned))
            .collect()
    };
    let declares = |step: &Table| {
        let own = step.text("workload").and_then(|name| workloads.iter().find(|schema| schema.name == name));
        own.is_some_and(|schema| schema.params.iter().any(|param| param.name == key))
    };
    let common = schema::STEP.iter().any(|param: &Param| param.name == key && key != "name");
    let declaring = names(&|step| declares(step));
    if !common {
        return declaring;
    }
    let writing = names(&|step| step.get(key).is_some());
    if writing.is_empty() { names(&|_| true) } else { writing }
}

/// A key of some step that `word`, which begins no path, is a slip of.
fn near_step_key(root: &Table, word: &str, workloads: &[WorkloadSchema]) -> Option<&'static str> {
    if path::is_root(word) {
        return None;
    }
    let keys = root.tables("step").into_iter().flat_map(|step| path::step_keys(step, workloads));
    let names: Vec<&'static str> = keys.map(|param| param.name).filter(|name| *name != "name").collect();
    crate::nearest::nearest(word, names)
}

/// The dimension that sweeps exactly this path, if one does.
fn swept_by(root: &Table, path: &str) -> Option<String> {
    let sweep = root.get("sweep")?.as_table()?;
    path::settings(sweep, Some("values"))
        .into_iter()
        .find(|(swept, ..)| swept == path)
        .map(|(swept, _, node)| dimension_name(&swept, node))
}

/// What a dimension is called: its alias, or the last word of its path.
pub(super) fn dimension_name(path: &str, node: &Node) -> String {
    let alias = node.as_table().and_then(|table| table.text("alias"));
    alias.unwrap_or_else(|| path.rsplit('.').next().unwrap_or(path)).to_owned()
}

fn change_sweep(root: &mut Table, path: &str, at: Place, node: &Node, problems: &Problems<'_>) {
    let dimension = path.strip_prefix("sweep.").unwrap_or_default();
    let list = match &node.data {
        Data::List(_) => node.clone(),
        _ => Node { data: Data::List(vec![node.clone()]), at: node.at },
    };
    let mut names = Vec::new();
    if let Some(sweep) = root.get_mut("sweep").and_then(Node::as_table_mut)
        && replace_dimension(sweep, "", dimension, &list, &mut names)
    {
        return;
    }
    let help = suggestion(dimension, names.iter().map(String::as_str));
    problems.add_helped(
        at,
        format!("no such path: `{}`: no dimension of [sweep] is called so", shortened(path)),
        help.or_else(|| Some("the scenario sweeps nothing".to_owned())),
    );
}

fn replace_dimension(
    table: &mut Table,
    prefix: &str,
    dimension: &str,
    list: &Node,
    names: &mut Vec<String>,
) -> bool {
    for entry in &mut table.entries {
        let path = if prefix.is_empty() { entry.key.clone() } else { format!("{prefix}.{}", entry.key) };
        let plain_table = entry.node.as_table().is_some_and(|inner| inner.get("values").is_none());
        if plain_table {
            if let Some(inner) = entry.node.as_table_mut()
                && replace_dimension(inner, &path, dimension, list, names)
            {
                return true;
            }
            continue;
        }
        let name = dimension_name(&path, &entry.node);
        if name == dimension {
            match entry.node.as_table_mut() {
                Some(inner) => inner.set("values", list.at, list.clone()),
                None => entry.node = list.clone(),
            }
            return true;
        }
        names.push(name);
    }
    false
}
