//! `[[fault]]`: what happens to links while a trial runs.

use super::glob::Glob;
use super::lab::titled;
use super::nearest::suggestion;
use super::plan::{Fault, FaultAction, Step};
use super::reader::{Context, Hop, Reader};
use super::schema;
use super::tree::{Table, shortened};
use crate::topology::Topology;
use std::collections::BTreeSet;

const FAULTS_MAX: usize = 1_000;

/// Decodes the enabled faults of one configuration.
pub(super) fn faults(
    context: &Context<'_>,
    root: &Table,
    topology: Option<&Topology>,
    steps: &[Step],
) -> Vec<Fault> {
    let problems = context.problems;
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    let tables = super::array_of_tables(root, "fault", problems);
    if tables.len() > FAULTS_MAX {
        problems
            .add(tables[0].1, format!("a scenario has at most {FAULTS_MAX} faults, not {}", tables.len()));
        return faults;
    }
    let links: Option<Vec<String>> = topology
        .filter(|_| !tables.is_empty())
        .map(|topology| topology.directed_links().into_iter().map(|link| link.name).collect());
    for (index, (table, at)) in tables.into_iter().enumerate() {
        let what = titled("[[fault]]", table.text("name"));
        let path = vec![Hop::Key("fault".to_owned()), Hop::Index(index)];
        let reader = Reader::new(context, table, at, what, "fault", schema::FAULT, &[], path);
        let Some(name) = reader.name("name") else { continue };
        if !names.insert(name.clone()) {
            problems.add(reader.place_of("name"), format!("two faults are called {name:?}"));
            continue;
        }
        let enabled = reader.flag("enabled");
        let at = reader.duration("at");
        let every = reader.duration("every");
        let step = match reader.text("step") {
            None => Some(None),
            Some(_) if topology.is_none() => Some(None),
            Some(step) => match steps.iter().position(|other| other.name == step) {
                Some(index) => Some(Some(index)),
                None => {
                    let all = steps.iter().map(|step| step.name.as_str());
                    let message = format!("`step`: no step is called {:?}", shortened(&step));
                    problems.add_helped(reader.place_of("step"), message, suggestion(&step, all));
                    None
                }
            },
        };
        let on_text = reader.text("on");
        let on = on_text.as_deref().zip(links.as_deref()).and_then(|(on, links)| read_on(&reader, on, links));
        let action = read_action(&reader);
        if let (Some(every), Some(action)) = (every, &action)
            && every <= action.duration()
        {
            problems.add_help(
                reader.place_of("every"),
                format!("`every` {every:?} is not longer than the fault itself, {:?}", action.duration()),
                "one occurrence must end before the next begins",
            );
        }
        if let (Some(true), Some(at), Some(step), Some(on_text), Some(on), Some(action)) =
            (enabled, at, step, on_text, on, action)
        {
            faults.push(Fault { name, at, step, every, on, on_text, action });
        }
    }
    faults
}

/// Directed links by index: `link.NAME` means both directions, and so does `host.NAME.access`.
fn read_on(reader: &Reader<'_>, on: &str, links: &[String]) -> Option<Vec<usize>> {
    let problems = reader.problems();
    let at = reader.place_of("on");
    if on.starts_with("site.") || (on.starts_with("host.") && !on.contains(".access")) {
        problems.add_help(
            at,
            format!("a fault `on` {:?}: not yet in this version of weir", shortened(on)),
            "a fault is on link.NAME, link.NAME.forward, link.NAME.backward or host.NAME.access",
        );
        return None;
    }
    let directed = on.ends_with(".forward") || on.ends_with(".backward");
    let pattern = if directed || on.ends_with('*') { on.to_owned() } else { format!("{on}.*") };
    let glob = match Glob::parse(&pattern) {
        Ok(glob) => glob,
        Err(problem) => {
            problems.add(at, problem);
            return None;
        }
    };
    let chosen: Vec<usize> = (0..links.len()).filter(|index| glob.matches(&links[*index])).collect();
    if chosen.is_empty() {
        let known: BTreeSet<String> = links
            .iter()
            .flat_map(|name| {
                let both = name.trim_end_matches(".forward").trim_end_matches(".backward").to_owned();
                [both, name.clone()]
            })
            .collect();
        let help = suggestion(on, known.iter().map(String::as_str));
        problems.add_helped(at, format!("`on`: no link is called {:?}", shortened(on)), help);
        return None;
    }
    Some(chosen)
}

fn read_action(reader: &Reader<'_>) -> Option<FaultAction> {
    let action = reader.table("do")?;
    let written: Vec<&str> =
        action.params().iter().map(|param| param.name).filter(|name| action.has(name)).collect();
    let problems = reader.problems();
    let [name] = written.as_slice() else {
        // A key that is unknown or not yet there has been refused by name already.
        if action.table.entries.len() == written.len() {
            problems.add_help(
                action.at,
                format!("`do` names {} actions", written.len()),
                "one of outage = { for }, rate = { to, for }, delay = { add, for }, loss = { ratio, for }",
            );
        }
        return None;
    };
    let body = action.table(name)?;
    let duration = body.duration("for");
    Some(match *name {
        "outage" => FaultAction::Outage { duration: duration? },
        "rate" => FaultAction::Rate { to: body.rate("to")?, duration: duration? },
        "delay" => FaultAction::Delay { add: body.duration("add")?, duration: duration? },
        _ => FaultAction::Loss { ratio: body.ratio("ratio")?, duration: duration? },
    })
}
