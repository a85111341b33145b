//! `[[criterion]]`: expectations, checked against the points there are.

use super::errors::{Place, Problems};
use super::expand::Expansion;
use super::glob::Glob;
use super::lab::titled;
use super::on::{read_on, read_on_pairs};
use super::plan::{Bound, Condition, Configuration, Criterion, Fit, Reference, Select, WorkloadSchema};
use super::reader::{Context, Hop, Reader, read_value};
use super::schema;
use super::select;
use super::settle;
use super::tree::{Data, Node, Table, shortened};
use crate::metric::Metric;
use crate::model::Model;
use crate::nearest::{nearest, suggestion};
use crate::param::{Kind, Param, Value};
use crate::regression::FitKind;
use crate::units;
use std::collections::{BTreeMap, BTreeSet};

const STATISTICS: &[&str] = &["mean", "median", "min", "max", "cv", "spread", "p95", "p99"];
/// Domains of metrics whose workloads are not there yet.
const LATER_DOMAINS: &[&str] = &["transfer"];

pub(super) struct Criteria {
    pub list: Vec<Criterion>,
    /// Texts of those left out.
    pub not_judged: Vec<String>,
    /// Indices in the file of those that give no criterion of the plan.
    pub left_out: Vec<usize>,
}

pub(super) struct Scene<'a> {
    pub root: &'a Table,
    pub expansion: &'a Expansion,
    pub configurations: &'a [Configuration],
    pub neighbours: select::Neighbours<'a>,
    pub metrics: &'a [Metric],
    pub workloads: &'a [WorkloadSchema],
    /// True for the short form: criteria may lack points, and those with `short = false` are left out.
    pub short: bool,
    /// False when something was wrong before: then there are not all points, and what that leads to is not reported.
    pub complete: bool,
    /// True when points may be missing because the command line took them away.
    pub lenient: bool,
}

impl Scene<'_> {
    pub fn point_count(&self) -> usize {
        self.configurations.iter().map(|configuration| configuration.steps.len()).sum()
    }
}

/// Every metric a criterion may name.
pub(super) fn known_metrics(workloads: &[WorkloadSchema]) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    for metric in workloads.iter().flat_map(|schema| schema.metrics) {
        if !all.iter().any(|other| other.name == metric.name) {
            all.push(*metric);
        }
    }
    all
}

/// Splits `domain.quantity_unit.statistic`.
pub(super) fn metric_of(
    text: &str,
    at: Place,
    metrics: &[Metric],
    problems: &Problems<'_>,
) -> Option<(Metric, String)> {
    let mut words = text.splitn(3, '.');
    let (domain, quantity, statistic) = (words.next()?, words.next(), words.next().unwrap_or("mean"));
    let name = quantity.map_or_else(|| domain.to_owned(), |quantity| format!("{domain}.{quantity}"));
    let Some(metric) = metrics.iter().find(|metric| metric.name == name) else {
        if LATER_DOMAINS.contains(&domain) {
            problems.add(at, format!("metric {:?}: not yet in this version of weir", shortened(text)));
        } else {
            let message = format!("no metric is called {:?}", shortened(&name));
            problems.add_helped(at, message, metric_suggestion(domain, &name, metrics));
        }
        return None;
    };
    let percentile = statistic
        .strip_prefix('p')
        .and_then(|digits| (digits.len() <= 2).then(|| digits.parse::<u8>().ok()).flatten())
        .is_some_and(|percent| (1..=99).contains(&percent));
    if !percentile && !STATISTICS.contains(&statistic) {
        let message = format!("no statistic is called {:?}", shortened(statistic));
        problems.add_help(at, message, "mean, median, min, max, cv, spread, or a percentile like p99");
        return None;
    }
    Some((*metric, statistic.to_owned()))
}

/// The nearest metric, or those of the domain that is named or nearest.
fn metric_suggestion(domain: &str, name: &str, metrics: &[Metric]) -> Option<String> {
    let domain_of = |metric: &Metric| metric.name.split('.').next().unwrap_or(metric.name);
    let domain = nearest(domain, metrics.iter().map(domain_of)).unwrap_or(domain);
    let own: Vec<&str> =
        metrics.iter().filter(|metric| domain_of(metric) == domain).map(|metric| metric.name).collect();
    if own.is_empty() {
        return suggestion(name, metrics.iter().map(|metric| metric.name));
    }
    suggestion(name, own)
}

/// The unit of a metric's statistic: `cv` and `spread` are ratios.
pub(crate) fn unit_of(metric: Metric, statistic: &str) -> &'static str {
    if matches!(statistic, "cv" | "spread") { "1" } else { metric.unit }
}

/// Reads a value in `unit`; plain numbers only where the unit has no symbol.
pub(super) fn quantity(node: &Node, unit: &str, key: &str, problems: &Problems<'_>) -> Option<f64> {
    let example = match unit {
        "s" => "\"16ms\"",
        "bit/s" => "\"1Gbit/s\"",
        "B" => "\"64KiB\"",
        "Hz" => "\"200Hz\"",
        _ => "",
    };
    let number = match &node.data {
        Data::Integer(number) => Some(*number as f64),
        Data::Float(number) if number.is_finite() => Some(*number),
        Data::Text(text) => match units::parse_any(text) {
            Ok((number, base)) if base == unit => return Some(number),
            Ok((_, base)) => {
                let base = if base == "1" { "a ratio" } else { base };
                let wanted = if unit == "1" { "a ratio, like 0.95 or \"95%\"" } else { unit };
                problems.add(
                    node.at,
                    format!("`{key}` {text:?} is in {base}, but what is judged is in {wanted}"),
                );
                return None;
            }
            Err(error) => {
                problems.add(node.at, format!("`{key}`: {}", error.problem));
                return None;
            }
        },
        _ => None,
    };
    match number {
        None => {
            problems.add(node.at, format!("`{key}`: expected a value, found {}", node.what()));
            None
        }
        // Nought is nought in every unit.
        Some(number) if example.is_empty() || number == 0.0 => Some(number),
        Some(_) => {
            problems.add_help(
                node.at,
                format!("`{key}` has no unit, and what is judged is in {unit}"),
                format!("write it like {example}"),
            );
            None
        }
    }
}

pub(super) fn criteria(scene: &Scene<'_>, context: &Context<'_>) -> Criteria {
    let mut found = Criteria { list: Vec::new(), not_judged: Vec::new(), left_out: Vec::new() };
    let tables = super::array_of_tables(scene.root, "criterion", context.problems);
    if let Some((_, at)) = tables.first()
        && !settle::affordable(scene, tables.len(), *at, context.problems)
    {
        return found;
    }
    for (index, (table, at)) in tables.into_iter().enumerate() {
        let path = vec![Hop::Key("criterion".to_owned()), Hop::Index(index)];
        let what = titled("[[criterion]]", table.text("text"));
        let reader = Reader::new(context, table, at, what, "criterion", schema::CRITERION, &[], path);
        let Some((criterion, for_each)) = read(scene, &reader) else { continue };
        let in_short = reader.flag("short").unwrap_or(true);
        if scene.short && !in_short {
            found.not_judged.push(criterion.text);
            found.left_out.push(index);
            continue;
        }
        let before = found.list.len();
        settle::settle(scene, &reader, criterion, for_each, &mut found);
        if found.list.len() == before {
            found.left_out.push(index);
        }
    }
    found
}

/// Reads one criterion; what needs the points comes after.
fn read(scene: &Scene<'_>, reader: &Reader<'_>) -> Option<(Criterion, Option<String>)> {
    let problems = reader.problems();
    let before = problems.count();
    let text = reader.text("text");
    let select = read_select(scene, reader);
    let confident = reader.flag("confident").unwrap_or(false);
    let trials_min = reader.count("trials_min").and_then(|count| u32::try_from(count).ok());
    let for_each = reader.text("for_each");
    let bounds: Vec<&str> = ["at_least", "at_most", "between", "limiting_factor"]
        .into_iter()
        .filter(|key| reader.has(key))
        .collect();
    let [bound] = bounds.as_slice() else {
        let (at, found) = match bounds.get(1) {
            Some(second) => (reader.place_of(second), bounds.join(" and ")),
            None => (reader.at, "none".to_owned()),
        };
        problems.add_help(
            at,
            format!("{} needs one bound and has {found}", reader.what),
            "give one of at_least, at_most, between = [lo, hi] or limiting_factor",
        );
        return None;
    };
    let mut criterion = Criterion {
        text: text?,
        metric: None,
        statistic: "mean".to_owned(),
        on: None,
        of_pairs: false,
        select,
        workloads: Vec::new(),
        minus: None,
        of: None,
        per: None,
        fit: None,
        share: None,
        bound: Bound::AtLeast(0.0),
        confident,
        otherwise: reader.text("otherwise"),
        trials_min,
        line: problems.line(reader.at),
    };
    if reader.has("share") {
        criterion.share = Some(reader.ratio("share")?);
    }
    if *bound == "limiting_factor" {
        for key in ["metric", "on", "of", "minus", "per", "fit"].into_iter().filter(|key| reader.has(key)) {
            problems
                .add(reader.place_of(key), format!("a criterion on the limiting factor takes no `{key}`"));
        }
        let name = reader.text("limiting_factor")?;
        let all = || scene.workloads.iter().flat_map(|schema| schema.factors).map(|factor| factor.name);
        if !all().any(|known| known == name) {
            let message = format!("no limiting factor is called {:?}", shortened(&name));
            problems.add_helped(reader.place_of("limiting_factor"), message, suggestion(&name, all()));
        }
        criterion.bound = Bound::LimitingFactor(name);
    } else {
        let Some(metric_text) = reader.text("metric") else {
            if !reader.has("metric") {
                problems.add(reader.at, format!("{} lacks `metric`", reader.what));
            }
            return None;
        };
        let (metric, statistic) =
            metric_of(&metric_text, reader.place_of("metric"), scene.metrics, problems)?;
        criterion.metric = Some(metric.name.to_owned());
        criterion.workloads = workloads_with(scene, metric.name);
        criterion.of_pairs = !select::has_entities(&metric) && reader.has("on");
        criterion.on = if criterion.of_pairs {
            read_on_pairs(scene, reader, &metric, &criterion.workloads)
        } else {
            read_on(scene, reader, &metric)
        };
        criterion.minus = read_reference(scene, reader, "minus");
        criterion.of = read_reference(scene, reader, "of");
        criterion.per = reader.text("per");
        if reader.has("minus") && reader.has("of") {
            problems.add(reader.place_of("of"), "a value is reduced by `minus` or divided by `of`, not both");
        }
        if reader.has("fit") {
            criterion.fit = Some(read_fit(scene, reader)?);
        }
        let unit = match &criterion.fit {
            Some(Fit { value, x_unit, .. }) if value.is_along() => x_unit,
            _ if reader.has("of") => "1",
            _ => unit_of(metric, &statistic),
        };
        criterion.statistic = statistic;
        criterion.bound = read_bound(reader, bound, unit)?;
    }
    (problems.count() == before).then_some((criterion, for_each))
}

fn read_fit(scene: &Scene<'_>, reader: &Reader<'_>) -> Option<Fit> {
    let problems = reader.problems();
    if let Some(key) = ["of", "minus", "per", "share", "for_each"].into_iter().find(|key| reader.has(key)) {
        let message = format!("a criterion on a `fit` takes no `{key}`");
        problems.add_help(reader.place_of(key), message, "a fit is judged by itself, of the metric as it is");
        return None;
    }
    let body = reader.table("fit")?;
    let (x, value) = (body.text("x"), body.text("value"));
    let (x, over) = (x?, body.node("over")?);
    let Some(param) = param_named(scene, &x) else {
        no_parameter(scene, &x, body.place_of("x"), problems);
        return None;
    };
    let x_unit = match param.kind {
        Kind::Count | Kind::Ratio => "1",
        Kind::Rate => "bit/s",
        Kind::Size => "B",
        Kind::Duration => "s",
        Kind::Frequency => "Hz",
        _ => {
            problems.add(body.place_of("x"), format!("`x`: {x:?} is no number"));
            return None;
        }
    };
    let Some([from, to]) = over.as_list() else {
        problems.add(over.at, format!("`over`: expected [least, largest], found {}", over.what()));
        return None;
    };
    let number = |node| read_value(param, node, problems).and_then(|value| value.as_number());
    let (from, to) = (number(from)?, number(to)?);
    if from >= to {
        problems.add(over.at, "`over`: the first value is not below the second");
        return None;
    }
    Some(Fit { x, over: [from, to], value: FitKind::parse(&value?)?, x_unit })
}

/// Workloads whose steps have the metric; none for a metric that every step has.
fn workloads_with(scene: &Scene<'_>, metric: &str) -> Vec<String> {
    let mut with = Vec::new();
    for schema in
        scene.workloads.iter().filter(|schema| schema.metrics.iter().any(|other| other.name == metric))
    {
        if schema.name == WorkloadSchema::BESIDE {
            return Vec::new();
        }
        with.push(schema.name.to_owned());
    }
    with
}

fn read_bound(reader: &Reader<'_>, key: &str, unit: &str) -> Option<Bound> {
    let problems = reader.problems();
    let node = reader.node(key)?;
    if key != "between" {
        let value = quantity(node, unit, key, problems)?;
        return Some(if key == "at_least" { Bound::AtLeast(value) } else { Bound::AtMost(value) });
    }
    let Some([least, most]) = node.as_list() else {
        problems.add(node.at, format!("`between`: expected [least, most], found {}", node.what()));
        return None;
    };
    let (low, high) = (quantity(least, unit, key, problems)?, quantity(most, unit, key, problems)?);
    if low > high {
        problems.add(node.at, "`between`: the first bound is above the second");
        return None;
    }
    Some(Bound::Between(low, high))
}

/// The declaration by which a `where` (or `point`) of `name` is read.
pub(super) fn param_named(scene: &Scene<'_>, name: &str) -> Option<&'static Param> {
    static STEP_NAME: Param = Param::new("step", crate::param::Kind::Text, "");
    // What a point's parameters say of a role that several hosts have.
    static ROLE_COUNT: Param = Param::new("hosts of a role", crate::param::Kind::Count, "");
    if name == "step" {
        return Some(&STEP_NAME);
    }
    if scene.workloads.iter().any(|schema| {
        schema.roles.iter().any(|role| role.key == name && role.hosts == super::plan::RoleHosts::Many)
    }) {
        return Some(&ROLE_COUNT);
    }
    if let Some(param) = scene.expansion.params.get(name) {
        return Some(param);
    }
    // A key of the steps themselves, where at least one step has it.
    let has = |step: &&super::plan::Step| step.values.get(name).is_some();
    let step = scene.configurations.iter().flat_map(|configuration| &configuration.steps).find(has)?;
    let schema = scene.workloads.iter().find(|schema| schema.name == step.workload)?;
    let own = schema.params.iter().find(|param| param.name == name);
    own.or_else(|| schema::STEP.iter().find(|param| param.name == name))
}

fn param_names(scene: &Scene<'_>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = scene.expansion.params.keys().cloned().collect();
    names.insert("step".to_owned());
    if let Some(configuration) = scene.configurations.first() {
        names.extend(configuration.steps.iter().flat_map(|step| step.values.0.keys().cloned()));
    }
    names
}

pub(super) fn no_parameter(scene: &Scene<'_>, name: &str, at: Place, problems: &Problems<'_>) {
    if !scene.complete {
        return;
    }
    let names = param_names(scene);
    let message = format!("points have no parameter {:?}", shortened(name));
    problems.add_helped(at, message, suggestion(name, names.iter().map(String::as_str)));
}

fn read_select(scene: &Scene<'_>, reader: &Reader<'_>) -> Select {
    let problems = reader.problems();
    let mut select = Select::default();
    if reader.has("case") {
        for (case, at) in reader.texts("case") {
            known_case(scene, &case, at, problems);
            select.cases.push(case);
        }
    }
    let Some(node) = reader.node("where") else { return select };
    let Data::Table(conditions) = &node.data else {
        problems.add(node.at, format!("`where`: expected {{ parameter = value }}, found {}", node.what()));
        return select;
    };
    for entry in &conditions.entries {
        let Some(param) = param_named(scene, &entry.key) else {
            no_parameter(scene, &entry.key, entry.key_at, problems);
            continue;
        };
        if let Some(condition) = read_condition(param, &entry.node, problems) {
            if entry.key == "step" {
                known_steps(scene, &condition, entry.node.at, problems);
            }
            select.parameters.insert(entry.key.clone(), condition);
        }
    }
    select
}

fn known_case(scene: &Scene<'_>, case: &str, at: Place, problems: &Problems<'_>) {
    if !scene.expansion.all_cases.iter().any(|other| other == case) {
        let all = scene.expansion.all_cases.iter().map(String::as_str);
        problems.add_helped(at, format!("no case is called {:?}", shortened(case)), suggestion(case, all));
    }
}

fn known_steps(scene: &Scene<'_>, condition: &Condition, at: Place, problems: &Problems<'_>) {
    let Some(configuration) = scene.configurations.first().filter(|_| scene.complete) else { return };
    let Condition::OneOf(names) = condition else { return };
    for name in names {
        if let Value::Text(name) = name
            && !configuration.steps.iter().any(|step| step.name == *name)
        {
            let all = configuration.steps.iter().map(|step| step.name.as_str());
            problems.add_helped(
                at,
                format!("no step is called {:?}", shortened(name)),
                suggestion(name, all),
            );
        }
    }
}

/// A value, a list of values, or `{ from, to }`.
fn read_condition(param: &Param, node: &Node, problems: &Problems<'_>) -> Option<Condition> {
    match &node.data {
        Data::Table(range) if !matches!(param.kind, Kind::Member(_)) => {
            let (Some(from), Some(to), 2) = (range.get("from"), range.get("to"), range.entries.len()) else {
                problems.add(node.at, format!("`{}`: a range is {{ from = …, to = … }}", param.name));
                return None;
            };
            let (from, to) = (read_value(param, from, problems)?, read_value(param, to, problems)?);
            if from.as_number().is_none() {
                problems.add(node.at, format!("`{}` is no number and has no ranges", param.name));
                return None;
            }
            Some(Condition::Range { from, to })
        }
        Data::List(list) => {
            let values: Option<Vec<Value>> =
                list.iter().map(|item| read_value(param, item, problems)).collect();
            Some(Condition::OneOf(values?))
        }
        _ => Some(Condition::OneOf(vec![read_value(param, node, problems)?])),
    }
}

fn read_reference(scene: &Scene<'_>, reader: &Reader<'_>, key: &str) -> Option<Reference> {
    let problems = reader.problems();
    let body = reader.table(key)?;
    let written: Vec<&str> = body.table.entries.iter().map(|entry| entry.key.as_str()).collect();
    let [one] = written.as_slice() else {
        let message = format!("`{key}` takes one of model, point, case, published or on");
        problems.add(body.at, message);
        return None;
    };
    match *one {
        "model" => body.text("model").and_then(|name| Model::parse(&name)).map(Reference::Model),
        "published" => {
            if body.flag("published")? {
                return Some(Reference::Published);
            }
            problems.add(body.place_of("published"), "`published` is true or left out");
            None
        }
        "on" => {
            let on = body.text("on")?;
            let parsed = Glob::parse(&on);
            parsed.map_err(|problem| problems.add(body.place_of("on"), problem)).ok()?;
            Some(Reference::Pairs(on))
        }
        "case" => {
            let case = body.text("case")?;
            known_case(scene, &case, body.place_of("case"), problems);
            Some(Reference::Case(case))
        }
        "point" => {
            let node = body.node("point")?;
            let Data::Table(table) = &node.data else {
                problems.add(
                    node.at,
                    format!("`point`: expected {{ parameter = value }}, found {}", node.what()),
                );
                return None;
            };
            let mut given = BTreeMap::new();
            for entry in &table.entries {
                let swept = scene.expansion.dimensions.iter().find(|dimension| dimension.name == entry.key);
                let param = match swept {
                    Some(dimension) => dimension.param,
                    None if entry.key == "step" => param_named(scene, "step")?,
                    None if !scene.complete => continue,
                    None => {
                        let mut names: Vec<&str> = scene
                            .expansion
                            .dimensions
                            .iter()
                            .map(|dimension| dimension.name.as_str())
                            .collect();
                        names.push("step");
                        let message =
                            format!("`point` names no dimension of [sweep]: `{}`", shortened(&entry.key));
                        problems.add_helped(entry.key_at, message, suggestion(&entry.key, names));
                        continue;
                    }
                };
                given.insert(entry.key.clone(), read_value(param, &entry.node, problems)?);
            }
            Some(Reference::Point(given))
        }
        _ => None,
    }
}
