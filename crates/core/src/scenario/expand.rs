//! Cases × sweep: which settings each configuration is made of.

use super::errors::{Place, Problems};
use super::overrides::dimension_name;
use super::path::{self, Speaker};
use super::reader::{Context, Hop, Reader, check_name, data_of, read_value};
use super::schema;
use super::tree::{Data, Node, Table};
use crate::metric::Metric;
use crate::nearest::suggestion;
use crate::param::{Member, Param, Value};
use crate::range;
use crate::units;
use std::collections::{BTreeMap, BTreeSet};

/// A run of more than this is a mistake in a list.
pub const CONFIGURATIONS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Dimension {
    pub path: String,
    pub at: Place,
    /// Last word of the path, or the alias.
    pub name: String,
    pub param: &'static Param,
    pub values: Vec<(Value, Node)>,
}

#[derive(Debug)]
pub(super) struct Case {
    pub name: String,
    pub enabled: bool,
    pub sets: Vec<(String, Place, Node)>,
    pub published: BTreeMap<String, f64>,
    /// What the case sets, by the name it has among the parameters.
    pub parameters: BTreeMap<String, Value>,
    /// Lists of its own, by dimension.
    pub lists: BTreeMap<String, Vec<(Value, Node)>>,
}

#[derive(Debug, Default)]
pub(super) struct Expansion {
    pub dimensions: Vec<Dimension>,
    /// Those that run.
    pub cases: Vec<Case>,
    /// Names of all cases of the file, those that do not run included.
    pub all_cases: Vec<String>,
    /// Declarations of the parameters by name, swept ones and those that cases set.
    pub params: BTreeMap<String, &'static Param>,
}

impl Expansion {
    /// Number of configurations; `None` when it does not fit a machine word.
    pub fn count(&self) -> Option<usize> {
        match self.cases.as_slice() {
            [] => self.count_of(None),
            cases => cases.iter().try_fold(0_usize, |sum, case| sum.checked_add(self.count_of(Some(case))?)),
        }
    }

    /// Of one case.
    pub fn count_of(&self, case: Option<&Case>) -> Option<usize> {
        self.dimensions
            .iter()
            .try_fold(1_usize, |product, dimension| product.checked_mul(dimension.values_of(case).len()))
    }
}

impl Dimension {
    /// Its values, those of the case where that has a list of its own.
    pub fn values_of<'a>(&'a self, case: Option<&'a Case>) -> &'a [(Value, Node)] {
        case.and_then(|case| case.lists.get(&self.name)).unwrap_or(&self.values)
    }
}

/// Reads `[sweep]` and `[[case]]`; `chosen` are the cases of the short form.
pub(super) fn expand(
    root: &Table,
    chosen: Option<&[(String, Place)]>,
    metrics: &[Metric],
    problems: &Problems<'_>,
) -> Expansion {
    let mut expansion = Expansion { dimensions: dimensions(root, problems), ..Expansion::default() };
    for dimension in &expansion.dimensions {
        expansion.params.insert(dimension.name.clone(), dimension.param);
    }
    let mut cases = cases(root, metrics, problems);
    name_case_parameters(root, &mut cases, &mut expansion, problems);
    expansion.all_cases = cases.iter().map(|case| case.name.clone()).collect();
    if let Some(chosen) = chosen {
        for (name, at) in chosen {
            if !expansion.all_cases.contains(name) {
                let all = expansion.all_cases.iter().map(String::as_str);
                problems.add_helped(*at, format!("no case is called {name:?}"), suggestion(name, all));
            }
        }
        cases.retain(|case| chosen.iter().any(|(name, _)| *name == case.name));
    }
    if let Some((table, at)) = super::array_of_tables(root, "case", problems).first()
        && !cases.is_empty()
        && cases.iter().all(|case| !case.enabled)
    {
        let at = table.get("enabled").map_or(*at, |node| node.at);
        problems.add_help(at, "no [[case]] is left to run", "leave `enabled` out of those that are to run");
    }
    cases.retain(|case| case.enabled);
    expansion.cases = cases;
    expansion
}

fn dimensions(root: &Table, problems: &Problems<'_>) -> Vec<Dimension> {
    let Some(node) = root.get("sweep") else { return Vec::new() };
    let Data::Table(sweep) = &node.data else {
        problems.add(node.at, format!("`sweep`: expected a table [sweep], found {}", node.what()));
        return Vec::new();
    };
    let context = Context::new(problems);
    let mut all: Vec<Dimension> = Vec::new();
    for (path, at, node) in path::settings(sweep, Some("values")) {
        let list = match &node.data {
            Data::Table(table) => {
                let what = format!("`{path}` of [sweep]");
                let reader = Reader::new(
                    &context,
                    table,
                    node.at,
                    what,
                    "sweep",
                    schema::SWEEP_VALUES,
                    &[],
                    Vec::new(),
                );
                if let Some(alias) = reader.text("alias") {
                    let alias = alias.replace('_', "-");
                    check_name(&alias, reader.place_of("alias"), "alias", problems);
                }
                reader.node("values")
            }
            _ => Some(node),
        };
        let Some(list_node) = list else { continue };
        let Data::List(list) = &list_node.data else {
            problems.add_help(
                list_node.at,
                format!("`{path}`: expected a list of values, found {}", list_node.what()),
                "a sweep is PATH = [value, value, …]",
            );
            continue;
        };
        if list.is_empty() || list.len() > CONFIGURATIONS_MAX {
            problems.add(
                list_node.at,
                format!("`{path}`: a list of 1 to {CONFIGURATIONS_MAX} values, not of {}", list.len()),
            );
            continue;
        }
        let Some(target) = path::find(root, &path, at, Speaker::Configuration, problems) else {
            continue;
        };
        path::check_replaced(root, &target, problems);
        let name = dimension_name(&path, node);
        if name == "step" || name == "case" {
            problems.add_help(at, format!("a dimension cannot be called `{name}`"), alias_help(&path));
            continue;
        }
        if all.iter().any(|other| other.name == name) {
            problems.add_help(at, format!("two dimensions are called `{name}`"), alias_help(&path));
            continue;
        }
        if let Some(values) = distinct(&path, target.param, list, problems) {
            all.push(Dimension { path, at, name, param: target.param, values });
        }
    }
    all
}

/// All values of a list; `None` where one cannot be read or is there twice, once that is told.
fn distinct(path: &str, param: &Param, list: &[Node], problems: &Problems<'_>) -> Option<Vec<(Value, Node)>> {
    let mut values: Vec<(Value, Node)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut good = true;
    for (value, node) in list.iter().flat_map(|item| items(param, item, problems)) {
        let Some(value) = value else {
            good = false;
            continue;
        };
        if !seen.insert(value.to_json().to_string()) {
            problems.add(node.at, format!("`{path}` has this value twice: {}", value.to_json()));
            good = false;
            continue;
        }
        values.push((value, node));
    }
    good.then_some(values)
}

/// What a case lists of a dimension: one value or several.
fn list_of_case(
    dimension: &str,
    dimensions: &[Dimension],
    (at, node): (Place, &Node),
    problems: &Problems<'_>,
) -> Option<Vec<(Value, Node)>> {
    let Some(known) = dimensions.iter().find(|known| known.name == dimension) else {
        let names = dimensions.iter().map(|known| known.name.as_str());
        let message = format!("`sweep.{dimension}`: no dimension of [sweep] is called so");
        problems.add_helped(at, message, suggestion(dimension, names));
        return None;
    };
    let one = std::slice::from_ref(node);
    let list = node.as_list().unwrap_or(one);
    if list.is_empty() || list.len() > CONFIGURATIONS_MAX {
        let message = format!("`sweep.{dimension}`: a list of 1 to {CONFIGURATIONS_MAX} values");
        problems.add(node.at, message);
        return None;
    }
    distinct(&format!("sweep.{dimension}"), known.param, list, problems)
}

/// What an item of a sweep's list stands for: itself, or what a range has; `None` for what cannot be read, once that is told.
fn items(param: &Param, item: &Node, problems: &Problems<'_>) -> Vec<(Option<Value>, Node)> {
    let text = match &item.data {
        Data::Text(text) if range::is_range(param.kind, text) => text,
        _ => return vec![(read_value(param, item, problems), item.clone())],
    };
    match range::values(param.kind, text) {
        Ok(values) => {
            // Each is read as if it stood there, so that the parameter's own bounds hold.
            let nodes = values.iter().map(|value| Node { data: data_of(value), at: item.at });
            nodes.map(|node| (read_value(param, &node, problems), node)).collect()
        }
        Err(error) => {
            problems.add(item.at, format!("`{}`: {}", param.name, error.problem));
            vec![(None, item.clone())]
        }
    }
}

fn alias_help(path: &str) -> String {
    format!("give it another name: \"{path}\" = {{ values = [...], alias = \"name\" }}")
}

fn cases(root: &Table, metrics: &[Metric], problems: &Problems<'_>) -> Vec<Case> {
    let context = Context::new(problems);
    let mut all: Vec<Case> = Vec::new();
    for (index, (table, at)) in super::array_of_tables(root, "case", problems).into_iter().enumerate() {
        let what = match table.text("name") {
            Some(name) => format!("[[case]] {name:?}"),
            None => "[[case]]".to_owned(),
        };
        let path = vec![Hop::Key("case".to_owned()), Hop::Index(index)];
        let reader = Reader::new(&context, table, at, what, "case", schema::CASE, &[], path);
        let Some(name) = reader.name("name") else { continue };
        let enabled = reader.flag("enabled").unwrap_or(true);
        if all.iter().any(|case| case.name == name) {
            problems.add(reader.place_of("name"), format!("two cases are called {name:?}"));
            continue;
        }
        let table_of = |key: &str| match reader.node(key).map(|node| (node, &node.data)) {
            Some((_, Data::Table(inner))) => Some(inner),
            Some((node, _)) => {
                problems.add(
                    node.at,
                    format!("`{key}`: expected a table like {{ PATH = value }}, found {}", node.what()),
                );
                None
            }
            None => None,
        };
        let mut sets: Vec<(String, Place, Node)> = Vec::new();
        for (path, at, node) in table_of("set").map(|set| path::settings(set, None)).unwrap_or_default() {
            sets.push((path, at, node.clone()));
        }
        let mut published = BTreeMap::new();
        for (metric, at, node) in
            table_of("published").map(|set| path::settings(set, None)).unwrap_or_default()
        {
            if let Some((name, value)) = published_value(&metric, at, node, metrics, problems) {
                published.insert(name, value);
            }
        }
        let (parameters, lists) = (BTreeMap::new(), BTreeMap::new());
        all.push(Case { name, enabled, sets, published, parameters, lists });
    }
    all
}

/// Reads `"metric.statistic" = value`; the statistic is `mean` unless named.
fn published_value(
    text: &str,
    at: Place,
    node: &Node,
    metrics: &[Metric],
    problems: &Problems<'_>,
) -> Option<(String, f64)> {
    let (metric, statistic) = super::criterion::metric_of(text, at, metrics, problems)?;
    let value = super::criterion::quantity(
        node,
        super::criterion::unit_of(metric, &statistic),
        "published",
        problems,
    )?;
    Some((format!("{}.{statistic}", metric.name), value))
}

/// What the path of a dimension's list begins with.
const LIST: &str = "sweep.";

/// Names what cases set: the last word of the path where it is the only one so called, else the whole path. A name must
/// mean the same in every case, so it is chosen over all of them.
fn name_case_parameters(
    root: &Table,
    cases: &mut [Case],
    expansion: &mut Expansion,
    problems: &Problems<'_>,
) {
    let mut paths_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let is_list = |path: &str| path.starts_with(LIST);
    for (path, ..) in cases.iter().flat_map(|case| &case.sets).filter(|(path, ..)| !is_list(path)) {
        let last = path.rsplit('.').next().unwrap_or(path).to_owned();
        paths_of.entry(last).or_default().insert(path.clone());
    }
    for case in cases {
        let (lists, sets) = std::mem::take(&mut case.sets).into_iter().partition(|(path, ..)| is_list(path));
        case.sets = sets;
        let lists: Vec<(String, Place, Node)> = lists;
        for (path, at, node) in &lists {
            let dimension = path.trim_start_matches(LIST);
            let list = list_of_case(dimension, &expansion.dimensions, (*at, node), problems);
            case.lists.extend(list.map(|list| (dimension.to_owned(), list)));
        }
        for (path, at, node) in &case.sets {
            let Some(target) = path::find(root, path, *at, Speaker::Configuration, problems) else {
                continue;
            };
            if let Some(dimension) = expansion.dimensions.iter().find(|dimension| dimension.path == *path) {
                problems.add_help(
                    *at,
                    format!("case {:?} sets `{path}`, which [sweep] varies", case.name),
                    format!("give the case a list of its own: `sweep.{}`", dimension.name),
                );
                continue;
            }
            let Some(value) = read_value(target.param, node, problems) else { continue };
            let last = path.rsplit('.').next().unwrap_or(path);
            let taken = expansion.dimensions.iter().any(|dimension| dimension.name == last)
                || paths_of.get(last).is_some_and(|paths| paths.len() > 1)
                || last == "step"
                || last == "case";
            let name = if taken { path.clone() } else { last.to_owned() };
            expansion.params.insert(name.clone(), target.param);
            case.parameters.insert(name, value);
        }
    }
}

/// `as-built` and the swept values as they appear in ids; letters that ids cannot carry become `_`.
pub(super) fn id_text(value: &Value) -> String {
    let text = match value {
        Value::Text(text) => text.clone(),
        Value::Ratio(ratio) => ratio.to_string(),
        Value::Duration(duration) => units::duration_text(*duration),
        Value::Table(_) => match Member::of(value) {
            Some(Member { name, given }) => {
                given.0.iter().fold(name, |text, (key, value)| format!("{text}+{key}*{}", id_text(value)))
            }
            None => value.to_json().to_string(),
        },
        other => match other.to_json() {
            serde_json::Value::String(text) => text,
            json => json.to_string(),
        },
    };
    let safe = |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '%' | '+' | '*' | '/')
    };
    text.chars().map(|letter| if safe(letter) { letter } else { '_' }).collect()
}
