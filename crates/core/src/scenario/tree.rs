//! A scenario as written: values that know where they stand, which paths can change.

use super::errors::{Place, Problems};
use toml::de::{DeTable, DeValue};

/// Far deeper than any key of the language; keeps recursion over a tree from overflowing the stack.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub data: Data,
    pub at: Place,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    /// TOML has dates; no key of ours takes one.
    Date(String),
    List(Vec<Node>),
    Table(Table),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_at: Place,
    pub node: Node,
}

/// Entries in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
}

impl Table {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }
    /// Replaces or appends.
    pub fn set(&mut self, key: &str, key_at: Place, node: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => (entry.node, entry.key_at) = (node, key_at),
            None => self.entries.push(Entry { key: key.to_owned(), key_at, node }),
        }
    }
    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|entry| entry.key != key);
    }
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Node::as_text)
    }
    /// The tables of an array of tables; empty when there is none.
    pub fn tables(&self, key: &str) -> Vec<&Table> {
        match self.get(key).map(|node| &node.data) {
            Some(Data::List(list)) => list.iter().filter_map(Node::as_table).collect(),
            _ => Vec::new(),
        }
    }
}

impl Node {
    pub fn as_text(&self) -> Option<&str> {
        if let Data::Text(text) = &self.data { Some(text) } else { None }
    }
    pub fn as_table(&self) -> Option<&Table> {
        if let Data::Table(table) = &self.data { Some(table) } else { None }
    }
    pub fn as_table_mut(&mut self) -> Option<&mut Table> {
        if let Data::Table(table) = &mut self.data { Some(table) } else { None }
    }
    pub fn as_list(&self) -> Option<&[Node]> {
        if let Data::List(list) = &self.data { Some(list) } else { None }
    }
    /// What it is, for messages.
    pub fn what(&self) -> String {
        match &self.data {
            Data::Text(text) => format!("the text {:?}", shortened(text)),
            Data::Integer(number) => format!("the plain number {number}"),
            Data::Float(number) => format!("the plain number {number}"),
            Data::Flag(flag) => flag.to_string(),
            Data::Date(date) => format!("the date {date}"),
            Data::List(_) => "a list".to_owned(),
            Data::Table(_) => "a table".to_owned(),
        }
    }
    /// Values in it, itself included.
    pub fn count(&self) -> usize {
        match &self.data {
            Data::List(list) => 1 + list.iter().map(Node::count).sum::<usize>(),
            Data::Table(table) => 1 + table.entries.iter().map(|entry| entry.node.count()).sum::<usize>(),
            _ => 1,
        }
    }
    /// Equal in value, wherever written.
    pub fn same(&self, other: &Node) -> bool {
        match (&self.data, &other.data) {
            (Data::Text(a), Data::Text(b)) | (Data::Date(a), Data::Date(b)) => a == b,
            (Data::Integer(a), Data::Integer(b)) => a == b,
            (Data::Float(a), Data::Float(b)) => a == b,
            (Data::Flag(a), Data::Flag(b)) => a == b,
            (Data::List(a), Data::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (Data::Table(a), Data::Table(b)) => {
                a.entries.len() == b.entries.len()
                    && a.entries
                        .iter()
                        .all(|entry| b.get(&entry.key).is_some_and(|node| entry.node.same(node)))
            }
            _ => false,
        }
    }
}

/// Long texts of an unknown file do not flood a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((index, _)) => format!("{}…", &text[..index]),
        None => text.to_owned(),
    }
}

/// Parses a whole file; what is no TOML is one problem and no tree.
pub(super) fn parse_file(text: &str, problems: &Problems<'_>) -> Option<Table> {
    match DeTable::parse(text) {
        Ok(table) => Some(convert_table(table.get_ref(), 0, 0, 0, problems)),
        Err(error) => {
            problems.add(Place::new(0, error.span().unwrap_or(0..0)), toml_message(&error));
            None
        }
    }
}

pub(super) fn toml_message(error: &toml::de::Error) -> String {
    let first = error.message().lines().next().unwrap_or("this is no TOML");
    format!("not TOML: {first}")
}

/// Parses one value that begins at byte `offset` of `source`.
pub(super) fn parse_value(
    text: &str,
    source: usize,
    offset: usize,
    problems: &Problems<'_>,
) -> Result<Node, toml::de::Error> {
    let value = DeValue::parse(text)?;
    Ok(convert(value.get_ref(), value.span(), source, offset, 0, problems))
}

fn convert_table(
    table: &DeTable<'_>,
    source: usize,
    offset: usize,
    depth: usize,
    problems: &Problems<'_>,
) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| {
            let span = key.span();
            Entry {
                key: key.get_ref().to_string(),
                key_at: Place::new(source, span.start + offset..span.end + offset),
                node: convert(value.get_ref(), value.span(), source, offset, depth + 1, problems),
            }
        })
        .collect();
    // The parser sorts by name; people read in the order they wrote.
    entries.sort_by_key(|entry| entry.key_at);
    Table { entries }
}

fn convert(
    value: &DeValue<'_>,
    span: std::ops::Range<usize>,
    source: usize,
    offset: usize,
    depth: usize,
    problems: &Problems<'_>,
) -> Node {
    let at = Place::new(source, span.start + offset..span.end + offset);
    if depth > DEPTH_MAX {
        problems.add(at, format!("nested deeper than {DEPTH_MAX} levels, which no key of a scenario needs"));
        return Node { data: Data::Flag(false), at };
    }
    let data = match value {
        DeValue::String(text) => Data::Text(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Data::Integer(number),
            Err(_) => {
                problems.add(at, "this number is too large");
                Data::Integer(0)
            }
        },
        DeValue::Float(float) => Data::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Data::Flag(*flag),
        DeValue::Datetime(date) => Data::Date(date.to_string()),
        DeValue::Array(list) => Data::List(
            list.iter()
                .map(|item| convert(item.get_ref(), item.span(), source, offset, depth + 1, problems))
                .collect(),
        ),
        DeValue::Table(table) => Data::Table(convert_table(table, source, offset, depth, problems)),
    };
    Node { data, at }
}
