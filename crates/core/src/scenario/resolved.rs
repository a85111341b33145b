//! The resolved scenario as TOML: what was read, with overrides applied and every default spelled out.

use super::reader::{Default, Hop, TreePath};
use super::tree::{Data, Node, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Defaults as seen over all configurations.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    seen: BTreeMap<TreePath, Agreed>,
    configurations: usize,
}

#[derive(Debug)]
struct Agreed {
    node: Node,
    computed: bool,
    count: usize,
    same: bool,
}

impl Defaults {
    pub fn add(&mut self, of_configuration: BTreeMap<TreePath, Default>) {
        self.configurations += 1;
        for (path, default) in of_configuration {
            match self.seen.get_mut(&path) {
                Some(agreed) => {
                    agreed.count += 1;
                    agreed.same &= agreed.node.same(&default.node);
                }
                None => {
                    let agreed =
                        Agreed { node: default.node, computed: default.computed, count: 1, same: true };
                    self.seen.insert(path, agreed);
                }
            }
        }
    }

    /// Writes them into the scenario. A computed one is written only where it came out the same in every configuration:
    /// written otherwise, it would no longer follow what it was computed from.
    pub fn spell_out(self, root: &mut Table) {
        for (path, agreed) in self.seen {
            if agreed.same && (!agreed.computed || agreed.count == self.configurations) {
                insert(root, &path, agreed.node);
            }
        }
    }
}

/// Inserts where nothing is written; leaves alone what is not there to be written into.
fn insert(table: &mut Table, path: &[Hop], node: Node) {
    match path {
        [Hop::Key(key)] if table.get(key).is_none() => table.set(key, node.at, node),
        [Hop::Key(_)] => {}
        [Hop::Key(key), Hop::Index(index), rest @ ..] => {
            let list = table.get_mut(key).map(|node| &mut node.data);
            if let Some(Data::List(list)) = list
                && let Some(inner) = list.get_mut(*index).and_then(Node::as_table_mut)
            {
                insert(inner, rest, node);
            }
        }
        [Hop::Key(key), rest @ ..] => {
            if table.get(key).is_none() {
                let at = node.at;
                table.set(key, at, Node { data: Data::Table(Table::default()), at });
            }
            if let Some(inner) = table.get_mut(key).and_then(Node::as_table_mut) {
                insert(inner, rest, node);
            }
        }
        _ => {}
    }
}

/// The whole file: tables and arrays of tables with headers, what is inside them inline.
pub(super) fn write(root: &Table) -> String {
    let mut out = String::new();
    section(&mut out, "", root, 0);
    out
}

fn is_array_of_tables(node: &Node) -> bool {
    node.as_list().is_some_and(|list| !list.is_empty() && list.iter().all(|item| item.as_table().is_some()))
}

fn section(out: &mut String, prefix: &str, table: &Table, depth: usize) {
    // Keys of the table itself come before any further header.
    let headed =
        |node: &Node| depth == 0 && node.as_table().is_some() || depth < 2 && is_array_of_tables(node);
    for entry in table.entries.iter().filter(|entry| !headed(&entry.node)) {
        let _ = writeln!(out, "{} = {}", key_text(&entry.key), value_text(&entry.node));
    }
    for entry in table.entries.iter().filter(|entry| headed(&entry.node)) {
        let name = format!("{prefix}{}", key_text(&entry.key));
        match &entry.node.data {
            Data::Table(inner) => {
                let _ = writeln!(out, "\n[{name}]");
                section(out, &format!("{name}."), inner, depth + 1);
            }
            Data::List(list) => {
                for inner in list.iter().filter_map(Node::as_table) {
                    let _ = writeln!(out, "\n[[{name}]]");
                    section(out, &format!("{name}."), inner, 2);
                }
            }
            _ => {}
        }
    }
}

fn key_text(key: &str) -> String {
    let bare = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { text_text(key) }
}

fn text_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn value_text(node: &Node) -> String {
    match &node.data {
        Data::Text(text) => text_text(text),
        Data::Integer(number) => number.to_string(),
        Data::Float(number) => toml::Value::Float(*number).to_string(),
        Data::Flag(flag) => flag.to_string(),
        Data::Date(date) => date.clone(),
        Data::List(list) => {
            let items: Vec<String> = list.iter().map(value_text).collect();
            format!("[{}]", items.join(", "))
        }
        Data::Table(table) if table.entries.is_empty() => "{}".to_owned(),
        Data::Table(table) => {
            let items: Vec<String> = table
                .entries
                .iter()
                .map(|entry| format!("{} = {}", key_text(&entry.key), value_text(&entry.node)))
                .collect();
            format!("{{ {} }}", items.join(", "))
        }
    }
}
