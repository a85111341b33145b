//! Reads one table by its declared keys: refuses what is unknown, checks kinds and ranges, fills in defaults and
//! remembers which, so that the resolved scenario can spell them out.

use super::errors::{Place, Problems};
use super::explain;
use super::schema::{self, is_later_value};
use super::tree::{Data, Entry, Node, Table, shortened};
use crate::nearest::suggestion;
use crate::param::{Kind, MEMBER_NAME, Member, Param, Raw, Seam, Value, takes_no};
use crate::time::nanoseconds;
use crate::units::{BitsPerSecond, Bytes, duration_text};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A place in the tree by key and index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hop {
    Key(String),
    Index(usize),
}
pub(super) type TreePath = Vec<Hop>;

/// Shared by all readers of one configuration.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub problems: &'a Problems<'a>,
    /// Defaults that were used, by where they would be written.
    pub defaults: RefCell<BTreeMap<TreePath, Default>>,
}

#[derive(Clone, Debug)]
pub(super) struct Default {
    pub node: Node,
    /// Computed from other keys: right only where it comes out the same in every configuration.
    pub computed: bool,
}

impl<'a> Context<'a> {
    pub fn new(problems: &'a Problems<'a>) -> Self {
        Context { problems, defaults: RefCell::default() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub table: &'a Table,
    /// Where to point when something is missing.
    pub at: Place,
    /// For messages: `[[step]] "one"`.
    pub what: String,
    /// The table's name, for messages to us.
    pub schema: &'static str,
    keys: Vec<&'static Param>,
    path: TreePath,
    pub context: &'a Context<'a>,
}

impl<'a> Reader<'a> {
    /// Reads `table`; unknown keys are refused at once. `extra` are a workload's own parameters, which go before `keys`
    /// where both declare one.
    #[expect(
        clippy::too_many_arguments,
        reason = "a table's place has three parts and its declaration three"
    )]
    pub fn new(
        context: &'a Context<'a>,
        table: &'a Table,
        at: Place,
        what: String,
        schema: &'static str,
        keys: &'static [Param],
        extra: &'static [Param],
        path: TreePath,
    ) -> Reader<'a> {
        let mut all: Vec<&'static Param> = extra.iter().collect();
        all.extend(keys.iter().filter(|key| !extra.iter().any(|other| other.name == key.name)));
        let reader = Reader { table, at, what, schema, keys: all, path, context };
        reader.refuse_unknown();
        reader
    }

    fn refuse_unknown(&self) {
        for entry in &self.table.entries {
            let key = entry.key.as_str();
            if self.keys.iter().any(|param| param.name == key) {
                continue;
            }
            let names = self.keys.iter().map(|param| param.name);
            unknown_key(entry, (self.schema, &self.what), names, self.context.problems);
        }
    }

    pub fn problems(&self) -> &'a Problems<'a> {
        self.context.problems
    }
    fn param(&self, key: &str) -> &'static Param {
        match self.keys.iter().find(|param| param.name == key) {
            Some(param) => param,
            None => panic!("{} declares no key {key:?}", self.schema),
        }
    }
    pub fn params(&self) -> &[&'static Param] {
        &self.keys
    }
    pub fn is_table(&self, key: &str) -> bool {
        matches!(self.param(key).kind, Kind::Table(_))
    }
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }
    pub fn path_of(&self, key: &str) -> TreePath {
        let mut path = self.path.clone();
        path.push(Hop::Key(key.to_owned()));
        path
    }
    pub fn place_of(&self, key: &str) -> Place {
        self.table.get(key).map_or(self.at, |node| node.at)
    }

    /// The raw node, for keys whose shape the caller reads itself. A required key that is missing is a problem.
    pub fn node(&self, key: &str) -> Option<&'a Node> {
        let param = self.param(key);
        let node = self.table.get(key);
        if node.is_none() && param.required {
            self.missing(key);
        }
        node
    }
    fn missing(&self, key: &str) {
        self.context.problems.add(self.at, format!("{} lacks `{key}`", self.what));
    }

    /// Remembers that `key` was not written and what it came to.
    pub fn note_default(&self, key: &str, text: Data, computed: bool) {
        let node = Node { data: text, at: Place::default() };
        self.context.defaults.borrow_mut().insert(self.path_of(key), Default { node, computed });
    }

    /// The checked value of a declared key, its default where it is not written.
    pub fn value(&self, key: &str) -> Option<Value> {
        let param = self.param(key);
        let Some(node) = self.table.get(key) else {
            if let Kind::Table(inner) = param.kind {
                if param.required {
                    self.missing(key);
                    return None;
                }
                if inner.iter().any(|key| key.required) {
                    return None; // one of those that are there whole or not at all
                }
                // A table that is not written still has its keys' defaults.
                static EMPTY: Table = Table { entries: Vec::new() };
                let reader = self.child(key, inner, &EMPTY, self.at);
                return reader.all_values();
            }
            if param.required {
                self.missing(key);
            }
            let text = param.default?;
            let value = crate::param::parse_default(param.kind, text)
                .unwrap_or_else(|error| panic!("default of {}.{key}: {}", self.schema, error.problem));
            self.note_default(key, data_of(&value), false);
            return Some(value);
        };
        self.read(param, node)
    }

    fn child(&self, key: &str, keys: &'static [Param], table: &'a Table, at: Place) -> Reader<'a> {
        Reader::new(
            self.context,
            table,
            at,
            format!("`{key}` of {}", self.what),
            self.schema,
            keys,
            &[],
            self.path_of(key),
        )
    }

    fn all_values(&self) -> Option<Value> {
        let values: BTreeMap<String, Value> = self
            .params()
            .iter()
            .filter_map(|param| self.value(param.name).map(|value| (param.name.to_owned(), value)))
            .collect();
        (!values.is_empty()).then_some(Value::Table(values))
    }

    fn read(&self, param: &'static Param, node: &'a Node) -> Option<Value> {
        if let (Kind::Table(inner), Data::Table(table)) = (param.kind, &node.data) {
            return Some(
                self.child(param.name, inner, table, node.at)
                    .all_values()
                    .unwrap_or(Value::Table(BTreeMap::new())),
            );
        }
        read_value(param, node, self.context.problems)
    }

    /// A nested table's reader; `None` where it is not written or no table.
    pub fn table(&self, key: &str) -> Option<Reader<'a>> {
        let Kind::Table(inner) = self.param(key).kind else { panic!("{key} is declared as no table") };
        let node = self.node(key)?;
        match &node.data {
            Data::Table(table) => Some(self.child(key, inner, table, node.at)),
            _ => {
                self.context.problems.add(
                    node.at,
                    format!("`{key}`: expected a table like {{ key = value }}, found {}", node.what()),
                );
                None
            }
        }
    }

    pub fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
    pub fn count(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(Value::Count(count)) => Some(count),
            _ => None,
        }
    }
    pub fn ratio(&self, key: &str) -> Option<f64> {
        match self.value(key) {
            Some(Value::Ratio(ratio)) => Some(ratio),
            _ => None,
        }
    }
    pub fn rate(&self, key: &str) -> Option<BitsPerSecond> {
        match self.value(key) {
            Some(Value::Rate(rate)) => Some(rate),
            _ => None,
        }
    }
    pub fn size(&self, key: &str) -> Option<Bytes> {
        match self.value(key) {
            Some(Value::Size(size)) => Some(size),
            _ => None,
        }
    }
    pub fn duration(&self, key: &str) -> Option<Duration> {
        match self.value(key) {
            Some(Value::Duration(duration)) => Some(duration),
            _ => None,
        }
    }
    pub fn duration_ns(&self, key: &str) -> Option<u64> {
        self.duration(key).map(nanoseconds)
    }
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key) {
            Some(Value::Flag(flag)) => Some(flag),
            _ => None,
        }
    }

    /// A name by the rule for names; `None` (and a problem) otherwise.
    pub fn name(&self, key: &str) -> Option<String> {
        let name = self.text(key)?;
        check_name(&name, self.place_of(key), key, self.context.problems).then_some(name)
    }

    /// A text or a list of texts, each with its place.
    pub fn texts(&self, key: &str) -> Vec<(String, Place)> {
        self.node(key).map(|node| texts(node, key, self.context.problems)).unwrap_or_default()
    }
}

/// Tells of a key that the table `what` does not have, with what it is most likely a slip of: a name of the table, or a key that
/// has been written in the wrong place.
// Spec: scenario.md#file-2
fn unknown_key<'n>(
    entry: &Entry,
    (schema, what): (&str, &str),
    names: impl Iterator<Item = &'n str> + Clone,
    problems: &Problems<'_>,
) {
    let key = entry.key.as_str();
    let message = format!("unknown key `{}` in {what}", shortened(key));
    if problems.full() {
        problems.add(entry.key_at, message);
        return;
    }
    // A name that stands elsewhere as it is written is a better guess than one here with a letter or two changed.
    let belongs = |homes: String| {
        let key = shortened(key);
        match schema {
            "criterion" => format!(
                "`where = {{ {key} = … }}` keeps a criterion to some points; `{key}` belongs in {homes}"
            ),
            _ => format!("`{key}` belongs in {homes}"),
        }
    };
    let help =
        explain::homes(key, schema, &problems.language).map(belongs).or_else(|| suggestion(key, names));
    problems.add_helped(entry.key_at, message, help);
}

/// Reads one value as a parameter's kind and checks its range.
pub(super) fn read_value(param: &Param, node: &Node, problems: &Problems<'_>) -> Option<Value> {
    if let (Kind::Hosts | Kind::Texts, Data::List(_)) = (param.kind, &node.data) {
        let names = texts(node, param.name, problems);
        return Some(Value::List(names.into_iter().map(|(name, _)| Value::Text(name)).collect()));
    }
    if let (Kind::Table(inner), Data::Table(table)) = (param.kind, &node.data) {
        let mut values = BTreeMap::new();
        for entry in &table.entries {
            match inner.iter().find(|param| param.name == entry.key) {
                Some(param) => {
                    let value = read_value(param, &entry.node, problems)?;
                    values.insert(entry.key.clone(), value);
                }
                None => {
                    let names = inner.iter().map(|param| param.name);
                    unknown_key(entry, ("", &format!("`{}`", param.name)), names, problems);
                }
            }
        }
        return Some(Value::Table(values));
    }
    if let (Kind::Map(inner), Data::Table(table)) = (param.kind, &node.data) {
        let mut values = BTreeMap::new();
        for entry in &table.entries {
            values.insert(entry.key.clone(), read_value(inner, &entry.node, problems)?);
        }
        return Some(Value::Table(values));
    }
    if let (Kind::Member(seam), Data::Table(table)) = (param.kind, &node.data) {
        return read_member(param, seam, table, node.at, problems);
    }
    if let Kind::Table(inner) = param.kind {
        if param.name == "auxiliary"
            && let Data::Flag(flag) = &node.data
        {
            return Some(Value::Flag(*flag));
        }
        let short =
            schema::shorthand(param.name).and_then(|key| inner.iter().find(|param| param.name == key));
        if let (Some(short), Data::Text(_)) = (short, &node.data) {
            return read_value(short, node, problems);
        }
    }
    let raw = match &node.data {
        Data::Text(text) => Raw::Text(text),
        Data::Integer(number) => Raw::Integer(*number),
        Data::Float(number) => Raw::Float(*number),
        Data::Flag(flag) => Raw::Flag(*flag),
        Data::Date(_) | Data::List(_) | Data::Table(_) => {
            let message =
                format!("`{}`: expected {}, found {}", param.name, kind_text(param.kind), node.what());
            let list = matches!(node.data, Data::List(_));
            let help = list.then(|| {
                let name = param.name;
                format!(
                    "for a point each value write them in [sweep]: \"step.NAME.{name}\" = [value, value, …]"
                )
            });
            problems.add_helped(node.at, message, help);
            return None;
        }
    };
    if let (Kind::Choice(_), Raw::Text(text)) = (param.kind, &raw)
        && is_later_value(param.name, text)
    {
        problems.add(node.at, format!("`{}` {text:?}: not yet in this version of weir", param.name));
        return None;
    }
    match Value::from_raw(param.kind, &raw) {
        Ok(value) => in_range(param, &value, node.at, problems).then_some(value),
        Err(error) => {
            let help = match (param.kind, &raw) {
                (Kind::Choice(choices), Raw::Text(text)) => suggestion(text, choices.iter().copied()),
                _ => None,
            };
            problems.add_helped(node.at, format!("`{}`: {}", param.name, error.problem), help);
            None
        }
    }
}

/// `{ name = NAME, … }`: the name may be left out where the parameter has a default.
fn read_member(
    param: &Param,
    seam: &Seam,
    table: &Table,
    at: Place,
    problems: &Problems<'_>,
) -> Option<Value> {
    let named = match (table.get(MEMBER_NAME), param.default) {
        (Some(node), _) => read_value(param, node, problems)?,
        (None, Some(default)) => Value::Text(default.to_owned()),
        (None, None) => {
            problems.add(at, format!("`{}` lacks `{MEMBER_NAME}`", param.name));
            return None;
        }
    };
    let mut member = Member::of(&named)?;
    let params = seam.member(&member.name).map_or(&[][..], |schema| schema.params);
    for entry in table.entries.iter().filter(|entry| entry.key != MEMBER_NAME) {
        match params.iter().find(|param| param.name == entry.key) {
            Some(param) => member.given.set(param.name, read_value(param, &entry.node, problems)?),
            None => {
                let text = takes_no(&member.name, &entry.key, params);
                problems.add(entry.key_at, format!("`{}`: {text}", param.name));
                return None;
            }
        }
    }
    Some(member.into_value())
}

fn in_range(param: &Param, value: &Value, at: Place, problems: &Problems<'_>) -> bool {
    if param.name == "ip" && value.as_number() == Some(5.0) {
        problems.add(at, "`ip` is 4 or 6");
        return false;
    }
    if param.allows(value) {
        return true;
    }
    let (least, most) = param.range;
    let bound = |bound: f64| match value {
        Value::Duration(_) => crate::units::human(bound / 1e9, "s"),
        Value::Rate(_) => crate::units::human(bound, "bit/s"),
        Value::Size(_) => crate::units::human(bound, "B"),
        _ => bound.to_string(),
    };
    let range = match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("{} to {}", bound(least), bound(most)),
        (true, false) => format!("{} or more", bound(least)),
        _ => format!("{} or less", bound(most)),
    };
    problems.add(at, format!("`{}` is out of range: it may be {range}", param.name));
    false
}

/// A text or a list of texts.
pub(super) fn texts(node: &Node, key: &str, problems: &Problems<'_>) -> Vec<(String, Place)> {
    let wrong = |node: &Node| {
        let message = format!("`{key}`: expected a text in quotes or a list of them, found {}", node.what());
        problems.add(node.at, message);
    };
    match &node.data {
        Data::Text(text) => vec![(text.clone(), node.at)],
        Data::List(list) => list
            .iter()
            .filter_map(|item| {
                let text = item.as_text();
                if text.is_none() {
                    wrong(item);
                }
                text.map(|text| (text.to_owned(), item.at))
            })
            .collect(),
        _ => {
            wrong(node);
            Vec::new()
        }
    }
}

/// `[a-z0-9][a-z0-9-]{0,62}`
pub(super) fn check_name(name: &str, at: Place, key: &str, problems: &Problems<'_>) -> bool {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let good = !name.is_empty() && name.len() <= 63 && !name.starts_with('-') && name.chars().all(letters);
    if !good {
        problems.add_help(
            at,
            format!("`{key}` {:?} is no name", shortened(name)),
            "names have 1 to 63 letters a-z, digits and -, and do not begin with -",
        );
    }
    good
}

pub(super) fn kind_text(kind: Kind) -> String {
    match kind {
        Kind::Text => "a text in quotes".to_owned(),
        Kind::Texts => "a text in quotes, or a list of them".to_owned(),
        Kind::Choice(choices) => {
            let all: Vec<String> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
            format!("one of {}", all.join(", "))
        }
        Kind::Count => "a whole number".to_owned(),
        Kind::Ratio => "a ratio like \"2%\" or 0.02".to_owned(),
        Kind::Rate => "a rate like \"1Gbit/s\"".to_owned(),
        Kind::Size => "a size like \"64KiB\"".to_owned(),
        Kind::Duration => "a time like \"16ms\"".to_owned(),
        Kind::Frequency => "a frequency like \"200Hz\"".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Hosts => "a host's name, a pattern, or a list of them".to_owned(),
        Kind::Table(_) => "a table like { key = value }".to_owned(),
        Kind::Target => "a path or a URL".to_owned(),
        Kind::Account => "a user's name in quotes, or a number".to_owned(),
        Kind::Options => "a table like { engine = { option = value } }".to_owned(),
        Kind::Map(_) => "a table like { name = value }".to_owned(),
        Kind::Member(seam) => {
            format!("a name of `weir list {}`, or {{ name = \"NAME\", … }} with its parameters", seam.name)
        }
    }
}

/// A value as a scenario writes it.
pub(super) fn data_of(value: &Value) -> Data {
    match value {
        Value::Text(text) => Data::Text(text.clone()),
        Value::Count(count) => Data::Integer(i64::try_from(*count).unwrap_or(i64::MAX)),
        Value::Ratio(ratio) => Data::Float(*ratio),
        Value::Rate(rate) => Data::Text(rate.to_string()),
        Value::Size(size) => Data::Text(size.to_string()),
        Value::Duration(duration) => Data::Text(duration_text(*duration)),
        Value::Frequency(frequency) => Data::Text(frequency.to_string()),
        Value::Flag(flag) => Data::Flag(*flag),
        Value::List(list) => {
            Data::List(list.iter().map(|value| Node { data: data_of(value), at: Place::default() }).collect())
        }
        Value::Table(table) => {
            let mut out = Table::default();
            for (key, value) in table {
                out.set(key, Place::default(), Node { data: data_of(value), at: Place::default() });
            }
            Data::Table(out)
        }
    }
}
