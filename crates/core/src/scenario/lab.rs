//! `[lab]` to a topology: hosts numbered, defaults filled in.

use super::errors::Problems;
use super::nearest::suggestion;
use super::path::{HOSTS_MAX, link_name};
use super::reader::{Context, Hop, Reader, data_of};
use super::schema;
use super::tree::{Data, Node, Table};
use crate::param::Value;
use crate::topology::{Access, Direction, Host, Impairments, Link, Queue, Site, TcpProfile, Topology};

use std::collections::{BTreeMap, BTreeSet};

/// Enough for any network people draw; routes are computed between all sites.
const SITES_MAX: usize = 256;
const LINKS_MAX: usize = 512;

fn lab_path(key: &str, index: usize) -> Vec<Hop> {
    vec![Hop::Key("lab".to_owned()), Hop::Key(key.to_owned()), Hop::Index(index)]
}

/// Decodes the lab of one configuration. `None` (and problems) where it cannot be built.
pub(super) fn topology(context: &Context<'_>, node: &Node) -> Option<Topology> {
    let problems = context.problems;
    let before = problems.count();
    let Data::Table(lab) = &node.data else {
        problems.add(node.at, format!("`lab`: expected a table [lab], found {}", node.what()));
        return None;
    };
    let reader = Reader::new(
        context,
        lab,
        node.at,
        "[lab]".to_owned(),
        "lab",
        schema::LAB,
        &[],
        vec![Hop::Key("lab".to_owned())],
    );
    let mut topology = Topology::default();
    let overrides = super::array_of_tables(lab, "host", problems);
    let mut overridden = vec![false; overrides.len()];
    let named =
        overrides.iter().enumerate().filter_map(|(index, (table, _))| Some((table.text("name")?, index)));
    // Of two for one host the first; the second is refused below.
    let by_name: BTreeMap<&str, usize> = named.rev().collect();
    let sites = super::array_of_tables(lab, "site", problems);
    if sites.is_empty() {
        problems.add(node.at, "[lab] has no [[lab.site]]");
    }
    if sites.len() > SITES_MAX {
        problems.add(
            reader.place_of("site"),
            format!("a lab has at most {SITES_MAX} sites, not {}", sites.len()),
        );
        return None;
    }
    for (index, (table, at)) in sites.iter().enumerate() {
        let what = titled("[[lab.site]]", table.text("name"));
        let site =
            Reader::new(context, table, *at, what, "lab.site", schema::SITE, &[], lab_path("site", index));
        let name = site.name("name");
        let hosts = site.count("hosts").unwrap_or(0);
        let tcp_profile = match site.text("tcp_profile").as_deref() {
            Some("stock") => TcpProfile::Stock,
            _ => TcpProfile::Modern,
        };
        let access = read_access(context, &site, table.get("access"), lab_path("site", index));
        let (Some(name), Some(access)) = (name, access) else { continue };
        if topology.sites.iter().any(|other| other.name == name) {
            problems.add(site.place_of("name"), format!("two sites are called {name:?}"));
            continue;
        }
        if topology.hosts.len() as u64 + hosts > HOSTS_MAX {
            problems.add(site.place_of("hosts"), format!("a lab has at most {HOSTS_MAX} hosts"));
            return None;
        }
        topology.sites.push(Site::new(&name, tcp_profile));
        for number in 0..hosts {
            let host = format!("{name}-{number}");
            let mut own = access.clone();
            if let Some(index) = by_name.get(host.as_str()) {
                let (entry, at) = overrides[*index];
                overridden[*index] = true;
                own = override_access(context, table.get("access"), entry, at, *index).unwrap_or(own);
            }
            topology.hosts.push(Host { name: host, site: topology.sites.len() - 1, access: own });
        }
    }
    check_overrides(context, &overrides, &overridden, &topology);
    read_links(context, lab, &mut topology)?;
    (problems.count() == before).then_some(topology)
}

pub(super) fn titled(header: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{header} {:?}", super::tree::shortened(name)),
        None => header.to_owned(),
    }
}

fn check_overrides(
    context: &Context<'_>,
    overrides: &[(&Table, super::errors::Place)],
    used: &[bool],
    topology: &Topology,
) {
    // Only for the problems: what is not written here is the site's, so no default is noted.
    let inner = Context::new(context.problems);
    let mut seen = BTreeSet::new();
    for (index, (table, at)) in overrides.iter().enumerate() {
        let what = titled("[[lab.host]]", table.text("name"));
        let reader =
            Reader::new(&inner, table, *at, what, "lab.host", schema::HOST, &[], lab_path("host", index));
        let Some(name) = reader.name("name") else { continue };
        reader.value("access");
        if !seen.insert(name.clone()) {
            context.problems.add(reader.place_of("name"), format!("two [[lab.host]] are called {name:?}"));
        } else if !used[index] {
            let names = topology.hosts.iter().map(|host| host.name.as_str());
            let message = format!("no site has a host {name:?}");
            context.problems.add_helped(reader.place_of("name"), message, suggestion(&name, names));
        }
    }
}

/// The site's access with the host's keys laid over it.
fn override_access(
    context: &Context<'_>,
    site: Option<&Node>,
    entry: &Table,
    at: super::errors::Place,
    index: usize,
) -> Option<Access> {
    let own = entry.get("access")?.as_table()?;
    let mut merged = site.and_then(Node::as_table).cloned().unwrap_or_default();
    for entry in &own.entries {
        let base = merged.get_mut(&entry.key).and_then(Node::as_table_mut);
        match (base, entry.node.as_table()) {
            (Some(base), Some(over)) => {
                for inner in &over.entries {
                    base.set(&inner.key, inner.key_at, inner.node.clone());
                }
            }
            _ => merged.set(&entry.key, entry.key_at, entry.node.clone()),
        }
    }
    // Its defaults are the site's and spelled out there, so they are noted nowhere.
    let inner = Context::new(context.problems);
    let what = titled("[[lab.host]]", entry.text("name"));
    let mut table = Table::default();
    let node = Node { data: Data::Table(merged), at };
    table.set("name", at, Node { data: Data::Text("x".to_owned()), at });
    table.set("access", at, node);
    let reader =
        Reader::new(&inner, &table, at, what, "lab.host", schema::SITE, &[], lab_path("host", index));
    read_access(&inner, &reader, table.get("access"), Vec::new())
}

fn read_access<'a>(
    context: &'a Context<'a>,
    site: &Reader<'a>,
    node: Option<&'a Node>,
    path: Vec<Hop>,
) -> Option<Access> {
    static EMPTY: Table = Table { entries: Vec::new() };
    let reader = match node {
        Some(_) => site.table("access")?,
        None => {
            let mut path = path;
            path.push(Hop::Key("access".to_owned()));
            Reader::new(context, &EMPTY, site.at, site.what.clone(), "access", schema::ACCESS, &[], path)
        }
    };
    let queue = if reader.has("queue") { Some(read_queue(&reader, None)?) } else { None };
    Some(Access {
        rate: reader.rate("rate"),
        delay_ns: reader.duration_ns("delay")?,
        mtu: u32::try_from(reader.count("mtu")?).ok()?,
        queue,
        framing_bytes: u32::try_from(reader.size("framing")?.0).ok()?,
    })
}

/// Reads `queue`. Where neither limit is written the default applies: `None` for an access link, which is sized later.
fn read_queue(reader: &Reader<'_>, default: Option<Queue>) -> Option<Queue> {
    let Some(queue) = reader.table("queue") else {
        return if reader.has("queue") { None } else { default };
    };
    queue.text("discipline");
    let bytes = if queue.has("bytes") { Some(queue.size("bytes")?) } else { None };
    let packets = if queue.has("packets") { Some(queue.count("packets")?) } else { None };
    if bytes.is_none() && packets.is_none() {
        return default.or_else(|| {
            queue.problems().add_help(
                queue.at,
                "`queue` of an access link without a limit",
                "give `bytes` or `packets`, or leave `queue` out: then the host's interface holds packets back",
            );
            None
        });
    }
    Some(Queue::drop_tail(bytes, packets))
}

/// What a link says before the defaults that need the whole lab.
struct LinkDraft<'a> {
    reader: Reader<'a>,
    link: Link,
    path: Vec<Hop>,
}

fn read_links(context: &Context<'_>, lab: &Table, topology: &mut Topology) -> Option<()> {
    let problems = context.problems;
    let tables = super::array_of_tables(lab, "link", problems);
    if tables.len() > LINKS_MAX {
        problems.add(tables[0].1, format!("a lab has at most {LINKS_MAX} links, not {}", tables.len()));
        return None;
    }
    let mtu_default = topology.hosts.iter().map(|host| host.access.mtu).max().unwrap_or(1500);
    let mut drafts: Vec<LinkDraft<'_>> = Vec::new();
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
        if drafts.iter().any(|draft| draft.link.name == name) {
            problems.add(reader.place_of("name"), format!("two links are called {name:?}"));
            continue;
        }
        let (forward, backward) = read_delays(&reader, problems);
        let mtu = match reader.has("mtu") {
            true => reader.count("mtu").and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(mtu_default),
            false => {
                reader.note_default("mtu", Data::Integer(i64::from(mtu_default)), true);
                mtu_default
            }
        };
        let link = Link {
            name,
            between,
            forward: read_direction(&reader, "forward", forward),
            backward: read_direction(&reader, "backward", backward),
            mtu,
        };
        drafts.push(LinkDraft { reader, link, path });
    }
    // The default queue depends on every delay, so it comes last.
    topology.links = drafts.iter().map(|draft| draft.link.clone()).collect();
    let longest = topology.longest_rtt();
    for (index, draft) in drafts.iter().enumerate() {
        for key in ["forward", "backward"] {
            let direction = match key {
                "forward" => &mut topology.links[index].forward,
                _ => &mut topology.links[index].backward,
            };
            let default = Topology::queue_for(direction.rate, longest);
            direction.queue = link_queue(context, draft, key, default);
        }
    }
    Some(())
}

fn link_queue(context: &Context<'_>, draft: &LinkDraft<'_>, key: &str, default: Queue) -> Queue {
    let own = draft
        .reader
        .table
        .get(key)
        .and_then(Node::as_table)
        .is_some_and(|table| table.get("queue").is_some());
    if own && let Some(direction) = draft.reader.table(key) {
        return read_queue(&direction, Some(default)).unwrap_or(default);
    }
    if draft.reader.has("queue") {
        let both = read_queue(&draft.reader, Some(default)).unwrap_or(default);
        if both != default
            || draft.reader.table("queue").is_some_and(|queue| queue.has("bytes") || queue.has("packets"))
        {
            return both;
        }
    }
    let bytes = default.bytes.expect("the default is in bytes");
    let node = Node { data: data_of(&Value::Size(bytes)), at: Default::default() };
    let mut path = draft.path.clone();
    path.extend([key, "queue", "bytes"].map(|key| Hop::Key(key.to_owned())));
    let default_noted = super::reader::Default { node, computed: true };
    context.defaults.borrow_mut().insert(path, default_noted);
    default
}

fn read_between(reader: &Reader<'_>, topology: &Topology, problems: &Problems) -> Option<[usize; 2]> {
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
                problems.add_helped(*at, format!("no site is called {name:?}"), suggestion(name, names));
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
fn read_delays(reader: &Reader<'_>, problems: &Problems) -> (u64, u64) {
    match (reader.has("rtt"), reader.has("delay")) {
        (true, true) => {
            let entry = reader.table.entry("delay").expect("just seen");
            problems.add_help(
                entry.key_at,
                format!("{} has both `rtt` and `delay`", reader.what),
                "`rtt` is there and back, `delay` one way: give one of them",
            );
            (0, 0)
        }
        (true, false) => {
            let rtt = reader.duration_ns("rtt").unwrap_or(0);
            (rtt / 2, rtt - rtt / 2)
        }
        (false, true) => {
            let delay = reader.duration_ns("delay").unwrap_or(0);
            (delay, delay)
        }
        (false, false) => {
            reader.note_default("rtt", Data::Text("0ns".to_owned()), true);
            (0, 0)
        }
    }
}

fn read_direction(link: &Reader<'_>, key: &str, delay_ns: u64) -> Direction {
    let mut direction = Direction {
        rate: link.rate("rate"),
        delay_ns,
        loss: link.ratio("loss").unwrap_or(0.0),
        impairments: Impairments::default(),
        queue: Queue::drop_tail(None, None),
        framing_bytes: link.size("framing").and_then(|size| u32::try_from(size.0).ok()).unwrap_or(0),
    };
    let Some(own) = link.table(key) else { return direction };
    direction.rate = own.rate("rate").or(direction.rate);
    direction.delay_ns = own.duration_ns("delay").unwrap_or(direction.delay_ns);
    direction.loss = own.ratio("loss").unwrap_or(direction.loss);
    if let Some(framing) = own.size("framing") {
        direction.framing_bytes = u32::try_from(framing.0).unwrap_or(direction.framing_bytes);
    }
    direction
}
