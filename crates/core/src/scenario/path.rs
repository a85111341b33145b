//! The one path grammar, by name: `step.NAME.key`, `fault.NAME.key`, `link.NAME[.forward|.backward].key`,
//! `site.NAME.key`, `host.NAME.key`, `switch.NAME.key`, `router.NAME.key`, `service.NAME.key`, `lab.auxiliary.key`,
//! `scenario.key`; NAME may be a glob.

use super::errors::{Place, Problems};
use super::glob::Glob;
use super::hosts::is_host;
use super::plan::{Language, WorkloadSchema};
use super::reader::{Hop, TreePath, read_value};
use super::schema;
use super::tree::{Data, Entry, Node, Table, shortened};
use super::wire::spelled_out;
use crate::nearest::{nearest, suggestion};
use crate::param::{Kind, MEMBER_NAME, Param};
use std::collections::BTreeMap;

/// What a path may begin with.
const ROOTS: [&str; 11] =
    ["step", "fault", "service", "link", "site", "host", "switch", "router", "lab", "scenario", "sweep"];

pub(super) fn is_root(word: &str) -> bool {
    ROOTS.contains(&word)
}

/// More hosts than any lab has; a count in a file may be anything.
pub(super) const HOSTS_MAX: u64 = 4_094;

/// Places a path leads to, and the declaration of the key at its end.
#[derive(Debug)]
pub(super) struct Target {
    paths: Vec<TreePath>,
    /// Hosts that need an entry of their own before something can be set on them.
    new_hosts: Vec<String>,
    /// The key is a parameter of a seam's member, which may be written as its name alone.
    in_member: bool,
    pub param: &'static Param,
}

/// Who may say the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// `--set` and `[short]`: anything, `scenario.key` included.
    Whole,
    /// `[sweep]` and `[[case]]`: what differs between configurations.
    Configuration,
}

struct Named {
    name: String,
    path: TreePath,
    keys: Vec<&'static Param>,
    new_host: bool,
    /// A step whose own keys are not known.
    unknown_workload: bool,
}

/// Finds what `path` names. A path that leads nowhere is a problem with the nearest one that does not.
pub(super) fn find(
    root: &Table,
    path: &str,
    at: Place,
    speaker: Speaker,
    problems: &Problems<'_>,
) -> Option<Target> {
    let words: Vec<&str> = path.split('.').collect();
    let refuse = |help: Option<String>| {
        problems.add_helped(at, format!("no such path: `{}`", shortened(path)), help);
        None
    };
    if path.len() > 512 {
        return refuse(None);
    }
    match words[0] {
        "scenario" if speaker == Speaker::Configuration => {
            problems.add_help(
                at,
                format!("`{path}` is the same for the whole run"),
                "change it in [scenario], [short] or with --set",
            );
            None
        }
        "scenario" => {
            let keys: Vec<&'static Param> =
                schema::SCENARIO.iter().filter(|key| key.name != "name").collect();
            let param = walk(&keys, &words[1..], "scenario", path, at, problems)?;
            let mut target = vec![Hop::Key("scenario".to_owned())];
            target.extend(words[1..].iter().map(|word| Hop::Key((*word).to_owned())));
            Some(Target { paths: vec![target], new_hosts: Vec::new(), in_member: false, param })
        }
        "lab" if words.get(1) == Some(&"auxiliary") => {
            let keys: Vec<&'static Param> =
                schema::LAB.iter().filter(|key| key.name == "auxiliary").collect();
            let param = walk(&keys, &words[1..], "lab", path, at, problems)?;
            let target = words.iter().map(|word| Hop::Key((*word).to_owned())).collect();
            Some(Target { paths: vec![target], new_hosts: Vec::new(), in_member: false, param })
        }
        word if !ROOTS.contains(&word) || matches!(word, "sweep" | "lab") => {
            if word == "lab" && words.len() > 2 {
                let rest = words[2..].join(".");
                return refuse(Some(format!("paths go by name: {}.NAME.{rest}", words[1])));
            }
            let whole = whole_path(root, &words, &problems.language);
            let help = match nearest(word, ROOTS) {
                _ if whole.is_some() => format!("did you mean `{}`?", whole.unwrap_or_default()),
                Some(near) => format!(
                    "did you mean `{}`?",
                    std::iter::once(near).chain(words[1..].iter().copied()).collect::<Vec<_>>().join(".")
                ),
                None => {
                    "a path begins with step.NAME, fault.NAME, service.NAME, link.NAME, site.NAME, host.NAME, \
                     switch.NAME, router.NAME, lab.auxiliary or scenario"
                        .to_owned()
                }
            };
            refuse(Some(help))
        }
        word => {
            let named = named(root, word, &problems.language);
            let names = || named.iter().map(|named| named.name.as_str());
            if words.len() < 3 {
                let example = names().next().unwrap_or("NAME");
                let key = named.first().and_then(|named| named.keys.iter().find(|key| key.name != "name"));
                let key = key.map_or("KEY", |key| key.name);
                return refuse(Some(format!("a path goes on to a key: `{word}.{example}.{key}`")));
            }
            let glob = match Glob::parse(words[1]) {
                Ok(glob) => glob,
                Err(problem) => {
                    problems.add(at, problem);
                    return None;
                }
            };
            let chosen: Vec<&Named> = named.iter().filter(|named| glob.matches(&named.name)).collect();
            if chosen.is_empty() {
                let rest = words[2..].join(".");
                let help = match nearest(words[1], names()) {
                    Some(near) => Some(format!("did you mean `{word}.{near}.{rest}`?")),
                    None if named.is_empty() => Some(format!("the scenario has no {word}")),
                    None => suggestion(words[1], names()),
                };
                return refuse(help);
            }
            let of_member = |key: &Param| key.name == words[2] && matches!(key.kind, Kind::Member(_));
            let in_member = words.len() > 3 && chosen[0].keys.iter().any(|key| of_member(key));
            let param = chosen[0].keys.first()?;
            let mut target = Target { paths: Vec::new(), new_hosts: Vec::new(), in_member, param };
            for (index, named) in chosen.iter().enumerate() {
                let prefix = format!("{word}.{}", words[1]);
                if named.unknown_workload && !named.keys.iter().any(|key| key.name == words[2]) {
                    return None; // the step itself is refused for its workload; what follows from that helps nobody
                }
                let param = walk(&named.keys, &words[2..], &prefix, path, at, problems)?;
                if index == 0 {
                    target.param = param;
                } else if target.param.kind != param.kind {
                    problems.add(at, format!("`{path}` means different things for different steps"));
                    return None;
                }
                let mut place = named.path.clone();
                if named.new_host {
                    // Entries are appended in this order when the target is applied.
                    place.pop();
                    place.push(Hop::Index(host_entries(root) + target.new_hosts.len()));
                    target.new_hosts.push(named.name.clone());
                }
                place.extend(words[2..].iter().map(|word| Hop::Key((*word).to_owned())));
                target.paths.push(place);
            }
            Some(target)
        }
    }
}

/// A path whose beginning was left out: `load.streams` of a step called load, or `streams` of the only thing that has it.
fn whole_path(root: &Table, words: &[&str], language: &Language<'_>) -> Option<String> {
    let sorts = || ROOTS.into_iter().map(|sort| (sort, named(root, sort, language)));
    let has = |named: &Named, key: &str| named.keys.iter().any(|param| param.name == key && key != "name");
    let of_name = sorts().find_map(|(sort, all)| {
        let key = words.get(1)?;
        all.iter().find(|named| named.name == words[0] && has(named, key)).map(|_| sort.to_owned())
    });
    let before = of_name.or_else(|| {
        sorts().find_map(|(sort, all)| {
            let found = all.iter().find(|named| has(named, words[0]))?;
            Some(format!("{sort}.{}", found.name))
        })
    });
    Some(format!("{}.{}", before?, words.join(".")))
}

/// Follows the words of a path below a name through the declared keys.
fn walk(
    keys: &[&'static Param],
    words: &[&str],
    prefix: &str,
    path: &str,
    at: Place,
    problems: &Problems<'_>,
) -> Option<&'static Param> {
    let [word, rest @ ..] = words else {
        problems.add(at, format!("no such path: `{}`: it ends before a key", shortened(path)));
        return None;
    };
    let settable = keys.iter().copied().filter(|param| param.name != "name");
    let Some(param) = settable.clone().find(|param| param.name == *word) else {
        let member = settable.clone().find(|param| match param.kind {
            Kind::Member(seam) => seam.param(word).is_some(),
            _ => false,
        });
        let help = match (member, nearest(word, settable.clone().map(|param| param.name))) {
            (Some(Param { name, .. }), _) => Some(format!("did you mean `{prefix}.{name}.{word}`?")),
            (None, Some(near)) => {
                let end = rest.iter().fold(String::new(), |end, word| end + "." + word);
                Some(format!("did you mean `{prefix}.{near}{end}`?"))
            }
            (None, None) => suggestion(word, settable.map(|param| param.name)),
        };
        problems.add_helped(at, format!("no such path: `{}`", shortened(path)), help);
        return None;
    };
    if rest.is_empty() {
        return Some(param);
    }
    match param.kind {
        Kind::Table(inner) => {
            let inner: Vec<&'static Param> = inner.iter().collect();
            walk(&inner, rest, &format!("{prefix}.{word}"), path, at, problems)
        }
        Kind::Map(inner) if rest.len() == 1 => Some(inner),
        Kind::Options => option(rest, prefix, path, at, problems),
        Kind::Member(_) if rest == [MEMBER_NAME] => Some(param),
        Kind::Member(seam) => {
            let inner: Vec<&'static Param> = seam.params().collect();
            walk(&inner, rest, &format!("{prefix}.{word}"), path, at, problems)
        }
        _ => {
            problems.add_help(
                at,
                format!("no such path: `{}`", shortened(path)),
                format!("`{prefix}.{word}` is a value and has no keys"),
            );
            None
        }
    }
}

/// `ENGINE.OPTION` behind a service's `set`.
fn option(
    rest: &[&str],
    prefix: &str,
    path: &str,
    at: Place,
    problems: &Problems<'_>,
) -> Option<&'static Param> {
    let refuse = |help: Option<String>| {
        problems.add_helped(at, format!("no such path: `{}`", shortened(path)), help);
        None
    };
    let [engine, option] = rest else {
        return refuse(Some(format!("options are `{prefix}.set.ENGINE.OPTION`")));
    };
    let Ok(schema) = problems.language.systems.find(engine) else {
        let names = problems.language.systems.names();
        return refuse(suggestion(engine, names.iter().map(String::as_str)));
    };
    match schema.options.iter().find(|param| param.name == *option) {
        Some(param) => Some(param),
        None => refuse(suggestion(option, schema.options.iter().map(|param| param.name))),
    }
}

/// Everything of one sort that has a name.
fn named(root: &Table, word: &str, language: &Language<'_>) -> Vec<Named> {
    let workloads = language.workloads;
    static LAB_EMPTY: Table = Table { entries: Vec::new() };
    let lab = root.get("lab").and_then(Node::as_table).unwrap_or(&LAB_EMPTY);
    let list = |table: &Table,
                key: &str,
                prefix: &[&str],
                keys: &dyn Fn(&Table) -> Vec<&'static Param>,
                name: &dyn Fn(&Table) -> Option<String>| {
        let Some(Data::List(items)) = table.get(key).map(|node| &node.data) else { return Vec::new() };
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some((item, name)) = item.as_table().and_then(|item| Some((item, name(item)?))) else {
                continue;
            };
            let mut path: TreePath = prefix.iter().map(|hop| Hop::Key((*hop).to_owned())).collect();
            path.extend([Hop::Key(key.to_owned()), Hop::Index(index)]);
            let workload = item.text("workload");
            let unknown_workload = word == "step"
                && !workloads.iter().any(|schema| schema.is_workload() && Some(schema.name) == workload);
            all.push(Named { name, path, keys: keys(item), new_host: false, unknown_workload });
        }
        all
    };
    let own_name = |table: &Table| table.text("name").map(str::to_owned);
    match word {
        "step" => list(root, "step", &[], &|step| step_keys(step, workloads), &own_name),
        "service" => list(root, "service", &[], &|_| schema::SERVICE.iter().collect(), &own_name),
        "fault" => list(root, "fault", &[], &|_| language.faults.keys().iter().collect(), &own_name),
        "site" => list(lab, "site", &["lab"], &|_| schema::SITE.iter().collect(), &own_name),
        "switch" => list(lab, "switch", &["lab"], &|_| schema::SWITCH.iter().collect(), &own_name),
        "router" => list(lab, "router", &["lab"], &|_| schema::ROUTER.iter().collect(), &own_name),
        "link" => list(lab, "link", &["lab"], &|_| schema::LINK.iter().collect(), &link_name),
        "host" if root.get("hosts").is_some() => {
            let table = root.get("hosts").and_then(Node::as_table);
            let hosts = table.into_iter().flat_map(|table| &table.entries).filter(|entry| is_host(entry));
            hosts
                .map(|entry| Named {
                    name: entry.key.clone(),
                    path: vec![Hop::Key("hosts".to_owned()), Hop::Key(entry.key.clone())],
                    keys: schema::REAL_HOST.iter().collect(),
                    new_host: false,
                    unknown_workload: false,
                })
                .collect()
        }
        "host" => {
            let entries = list(lab, "host", &["lab"], &|_| schema::HOST.iter().collect(), &own_name);
            let mut all = Vec::new();
            let by_name: BTreeMap<&str, &Named> =
                entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
            for name in host_names(lab) {
                match by_name.get(name.as_str()) {
                    Some(entry) => all.push(Named {
                        name,
                        path: entry.path.clone(),
                        keys: entry.keys.clone(),
                        new_host: false,
                        unknown_workload: false,
                    }),
                    None => {
                        let path =
                            vec![Hop::Key("lab".to_owned()), Hop::Key("host".to_owned()), Hop::Index(0)];
                        all.push(Named {
                            name,
                            path,
                            keys: schema::HOST.iter().collect(),
                            new_host: true,
                            unknown_workload: false,
                        });
                    }
                }
            }
            all
        }
        _ => Vec::new(),
    }
}

/// How many `[[lab.host]]` there are.
fn host_entries(root: &Table) -> usize {
    let lab = root.get("lab").and_then(Node::as_table);
    lab.and_then(|lab| lab.get("host")).and_then(Node::as_list).map_or(0, <[Node]>::len)
}

/// Every key a step may have: the common ones and its workload's.
pub(super) fn step_keys(step: &Table, workloads: &[WorkloadSchema]) -> Vec<&'static Param> {
    let own = step.text("workload").and_then(|name| workloads.iter().find(|schema| schema.name == name));
    let own: &'static [Param] = own.map_or(&[], |schema| schema.params);
    let common = schema::STEP.iter().filter(|key| !own.iter().any(|other| other.name == key.name));
    own.iter().chain(common).collect()
}

/// A link's name as written, or the two sites' joined.
pub(super) fn link_name(link: &Table) -> Option<String> {
    if let Some(name) = link.text("name") {
        return Some(name.to_owned());
    }
    match link.get("between")?.as_list()? {
        [left, right] => Some(format!("{}-{}", left.as_text()?, right.as_text()?)),
        _ => None,
    }
}

fn host_names(lab: &Table) -> Vec<String> {
    let mut names = Vec::new();
    for site in lab.tables("site") {
        let count = match site.get("hosts").map(|node| &node.data) {
            Some(Data::Integer(count)) => u64::try_from(*count).unwrap_or(0).min(HOSTS_MAX),
            _ => 1,
        };
        if let Some(name) = site.text("name") {
            names.extend((0..count).map(|number| format!("{name}-{number}")));
        }
        if names.len() > HOSTS_MAX as usize {
            break;
        }
    }
    names
}

/// Sets what `target` names. A value in the way of a path's inner word is a problem.
pub(super) fn apply(root: &mut Table, target: &Target, at: Place, node: &Node, problems: &Problems<'_>) {
    for name in &target.new_hosts {
        let mut entry = Table::default();
        entry.set("name", at, Node { data: Data::Text(name.clone()), at });
        let lab = root.get_mut("lab").and_then(Node::as_table_mut).expect("its sites named the host");
        if lab.get("host").is_none() {
            lab.set("host", at, Node { data: Data::List(Vec::new()), at });
        }
        if let Some(Data::List(hosts)) = lab.get_mut("host").map(|node| &mut node.data) {
            hosts.push(Node { data: Data::Table(entry), at });
        }
    }
    for path in &target.paths {
        if let (true, [member @ .., _]) = (target.in_member, path.as_slice()) {
            spell_out_member(root, member, problems);
        }
        set_at(root, path, at, node, problems);
    }
}

/// A member of a seam that is written as its name alone becomes a table, in which its parameters can be set.
fn spell_out_member(root: &mut Table, path: &[Hop], problems: &Problems<'_>) {
    let Some((name, at)) = node_at(root, path).and_then(|node| Some((node.as_text()?.to_owned(), node.at)))
    else {
        return;
    };
    let mut table = Table::default();
    table.set(MEMBER_NAME, at, Node { data: Data::Text(name), at });
    set_at(root, path, at, &Node { data: Data::Table(table), at }, problems);
}

/// Checks what stands where a sweep or a case will set another value: written wrongly it is a mistake all the same.
pub(super) fn check_replaced(root: &Table, target: &Target, problems: &Problems<'_>) {
    // Names of hosts may be one or a list; what is no value of its own is read by its keys.
    if matches!(
        target.param.kind,
        Kind::Hosts | Kind::Texts | Kind::Table(_) | Kind::Map(_) | Kind::Member(_) | Kind::Options
    ) {
        return;
    }
    for node in target.paths.iter().filter_map(|path| node_at(root, path)) {
        read_value(target.param, node, problems);
    }
}

fn node_at<'a>(table: &'a Table, path: &[Hop]) -> Option<&'a Node> {
    match path {
        [Hop::Key(key)] => table.get(key),
        [Hop::Key(key), Hop::Index(index), rest @ ..] => match &table.get(key)?.data {
            Data::List(list) => match &list.get(*index)?.data {
                Data::Table(inner) => node_at(inner, rest),
                _ => None,
            },
            _ => None,
        },
        [Hop::Key(key), rest @ ..] => match &table.get(key)?.data {
            Data::Table(inner) => node_at(inner, rest),
            _ => None,
        },
        _ => None,
    }
}

fn set_at(table: &mut Table, path: &[Hop], at: Place, node: &Node, problems: &Problems<'_>) {
    match path {
        [Hop::Key(key)] => table.set(key, at, node.clone()),
        [Hop::Key(key), Hop::Index(index), rest @ ..] => {
            let list = table.get_mut(key).map(|node| &mut node.data);
            if let Some(Data::List(list)) = list
                && let Some(inner) = list.get_mut(*index).and_then(Node::as_table_mut)
            {
                set_at(inner, rest, at, node, problems);
            }
        }
        [Hop::Key(key), rest @ ..] => {
            match table.get(key) {
                Some(Node { data: Data::Table(_), .. }) => {}
                // `auxiliary = true` is the table of its defaults.
                None | Some(Node { data: Data::Flag(true), .. }) => {
                    table.set(key, at, Node { data: Data::Table(Table::default()), at });
                }
                Some(short) => {
                    let node = spelled_out(key, short);
                    table.set(key, at, node);
                }
            }
            match table.get_mut(key).and_then(Node::as_table_mut) {
                Some(inner) => set_at(inner, rest, at, node, problems),
                None => problems.add(at, format!("`{key}` is no table here, so nothing can be set in it")),
            }
        }
        _ => {}
    }
}

/// `PATH = value` entries of a `set` (or a `[sweep]`): quoted paths, or the same written as nested tables.
pub(super) fn settings<'a>(table: &'a Table, stop_key: Option<&str>) -> Vec<(String, Place, &'a Node)> {
    let mut all = Vec::new();
    for entry in &table.entries {
        if entry.key.contains('.') {
            all.push((entry.key.clone(), entry.key_at, &entry.node));
        } else {
            flatten(String::new(), entry, stop_key, &mut all);
        }
    }
    all
}

fn flatten<'a>(
    prefix: String,
    entry: &'a Entry,
    stop_key: Option<&str>,
    all: &mut Vec<(String, Place, &'a Node)>,
) {
    let path = if prefix.is_empty() { entry.key.clone() } else { format!("{prefix}.{}", entry.key) };
    match &entry.node.data {
        Data::Table(inner) if stop_key.is_none_or(|key| inner.get(key).is_none()) => {
            for entry in &inner.entries {
                flatten(path.clone(), entry, stop_key, all);
            }
        }
        _ => all.push((path, entry.key_at, &entry.node)),
    }
}
