//! `[[lab.link]]`: both directions with their overrides, and the defaults that need the whole lab.

use super::errors::Problems;
use super::impairments;
use super::lab::{lab_path, titled};
use super::path::link_name;
use super::reader::{Context, Hop, Reader};
use super::schema;
use super::tree::{Data, Node, Table};
use super::wire::{Notes, laid_over, read_queue};
use crate::nearest::suggestion;
use crate::topology::{Direction, Link, Queue, Topology};

pub(super) const LINKS_MAX: usize = 2_048;

/// What a link says before the defaults that need the whole lab.
struct Draft {
    link: Link,
    path: Vec<Hop>,
    at: super::errors::Place,
    what: String,
    /// The keys of each direction, the link's own under its overrides.
    directions: [Table; 2],
}

const DIRECTIONS: [&str; 2] = ["forward", "backward"];

/// Decodes the links between the stages of `topology` and adds them to it.
pub(super) fn read_links(context: &Context<'_>, lab: &Table, topology: &mut Topology) -> Option<()> {
    let problems = context.problems;
    let tables = super::array_of_tables(lab, "link", problems);
    if tables.len() > LINKS_MAX {
        problems.add(tables[0].1, format!("a lab has at most {LINKS_MAX} links, not {}", tables.len()));
        return None;
    }
    let mtu_default = topology.hosts.iter().map(|host| host.access.mtu).max().unwrap_or(1500);
    let mut drafts: Vec<Draft> = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for (index, (table, at)) in tables.into_iter().enumerate() {
        let name = link_name(table);
        let what = titled("[[lab.link]]", name.as_deref());
        let path = lab_path("link", index);
        let reader = Reader::new(context, table, at, what, "lab.link", schema::LINK, &[], path.clone());
        let Some(between) = read_between(&reader, topology, problems) else { continue };
        let name = match (reader.has("name"), name) {
            (true, _) => reader.name("name"),
            (false, Some(name)) => {
                reader.note_default("name", Data::Text(name.clone()), false);
                super::reader::check_name(&name, reader.at, "name", problems).then_some(name)
            }
            _ => None,
        };
        let Some(name) = name else { continue };
        if !names.insert(name.clone()) {
            problems.add(reader.place_of("name"), format!("two links are called {name:?}"));
            continue;
        }
        let delays = read_delays(&reader, problems);
        let mtu = match reader.has("mtu") {
            true => reader.count("mtu").and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(mtu_default),
            false => {
                reader.note_default("mtu", Data::Integer(i64::from(mtu_default)), true);
                mtu_default
            }
        };
        // For the defaults: what the directions have is read below, with their overrides.
        let own = ["loss", "framing", "queue"].into_iter();
        for key in own.chain(impairments::KEYS.iter().map(|param| param.name)) {
            if reader.has(key) || !reader.is_table(key) {
                reader.value(key);
            }
        }
        let directions = DIRECTIONS.map(|key| direction_table(&reader, key));
        let [forward, backward] = [0, 1].map(|side| {
            let read = read_direction(problems, &reader, &directions[side], delays[side]);
            read.unwrap_or_default()
        });
        let link = Link { name, between, forward, backward, mtu };
        drafts.push(Draft { link, path, at, what: reader.what.clone(), directions });
    }
    // The default queue depends on every delay, so it comes last.
    topology.links = drafts.iter().map(|draft| draft.link.clone()).collect();
    size_queues(context, topology, &drafts);
    Some(())
}

fn size_queues(context: &Context<'_>, topology: &mut Topology, drafts: &[Draft]) {
    let longest = topology.longest_rtt();
    for (link, draft) in topology.links.iter_mut().zip(drafts) {
        for (side, key) in DIRECTIONS.into_iter().enumerate() {
            let direction = if side == 0 { &mut link.forward } else { &mut link.backward };
            let default = Topology::queue_for(direction.rate, longest).bytes;
            let mut path = draft.path.clone();
            path.extend([key, "queue"].map(|key| Hop::Key(key.to_owned())));
            let notes = Notes { context, path };
            // Its defaults are noted where the link itself has the table.
            let inner = Context::new(context.problems);
            let mut table = Table::default();
            let queue = draft.directions[side].get("queue").cloned();
            let node = queue.unwrap_or(Node { data: Data::Table(Table::default()), at: draft.at });
            table.set("queue", node.at, node);
            let what = draft.what.clone();
            let reader =
                Reader::new(&inner, &table, draft.at, what, "direction", schema::DIRECTION, &[], Vec::new());
            let read = reader.table("queue").and_then(|queue| read_queue(&queue, default, &notes));
            direction.queue = read.unwrap_or(Queue::drop_tail(default, None));
        }
    }
}

/// The keys of one direction: the link's own, and over them what `forward` or `backward` says. What these do not know is
/// refused where they are read themselves.
fn direction_table(link: &Reader<'_>, key: &str) -> Table {
    let known = |name: &str| schema::DIRECTION.iter().any(|param| param.name == name);
    let keep = |table: &Table, delay: bool| {
        let entries = table.entries.iter();
        Table {
            entries: entries.filter(|it| known(&it.key) && (delay || it.key != "delay")).cloned().collect(),
        }
    };
    let base = keep(link.table, false);
    if !link.has(key) {
        return base;
    }
    match link.table(key) {
        Some(own) => laid_over(&base, &keep(own.table, true)),
        None => base,
    }
}

fn read_direction(
    problems: &Problems<'_>,
    link: &Reader<'_>,
    table: &Table,
    delay_ns: u64,
) -> Option<Direction> {
    let inner = Context::new(problems);
    let (at, what) = (link.at, link.what.clone());
    let reader = Reader::new(&inner, table, at, what, "direction", schema::DIRECTION, &[], Vec::new());
    let framing = if reader.has("framing") { reader.size("framing") } else { link.size("framing") };
    let (rate, impairments) = (reader.rate("rate"), impairments::read(&reader));
    let delay_ns = if reader.has("delay") { reader.duration_ns("delay")? } else { delay_ns };
    Some(Direction {
        rate,
        delay_ns,
        loss: reader.ratio("loss").unwrap_or(0.0),
        impairments: impairments?,
        queue: Queue::drop_tail(None, None),
        framing_bytes: u32::try_from(framing?.0).ok()?,
    })
}

fn read_between(reader: &Reader<'_>, topology: &Topology, problems: &Problems<'_>) -> Option<[usize; 2]> {
    let node = reader.node("between")?;
    let names = super::reader::texts(node, "between", problems);
    let [left, right] = names.as_slice() else {
        problems.add(node.at, "`between` names two sites, like [\"left\", \"right\"]");
        return None;
    };
    let mut ends = [0; 2];
    for (end, (name, at)) in ends.iter_mut().zip([left, right]) {
        match topology.sites.iter().position(|site| site.name == *name) {
            Some(index) => *end = index,
            None => {
                let names = topology.sites.iter().map(|site| site.name.as_str());
                let message = format!("no site, switch or router is called {name:?}");
                problems.add_helped(*at, message, suggestion(name, names));
                return None;
            }
        }
    }
    if ends[0] == ends[1] {
        problems.add(node.at, "a link runs between two different sites");
        return None;
    }
    Some(ends)
}

/// Propagation forward and backward. An odd number of nanoseconds gives the forward direction the smaller half.
fn read_delays(reader: &Reader<'_>, problems: &Problems<'_>) -> [u64; 2] {
    match (reader.has("rtt"), reader.has("delay")) {
        (true, true) => {
            let entry = reader.table.entry("delay").expect("just seen");
            problems.add_help(
                entry.key_at,
                format!("{} has both `rtt` and `delay`", reader.what),
                "`rtt` is there and back, `delay` one way: give one of them",
            );
            [0, 0]
        }
        (true, false) => {
            let rtt = reader.duration_ns("rtt").unwrap_or(0);
            [rtt / 2, rtt - rtt / 2]
        }
        (false, true) => [reader.duration_ns("delay").unwrap_or(0); 2],
        (false, false) => {
            reader.note_default("rtt", Data::Text("0ns".to_owned()), true);
            [0, 0]
        }
    }
}
