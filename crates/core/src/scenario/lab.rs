//! `[lab]` to a topology: hosts numbered, defaults filled in.

use super::impairments;
use super::link::read_links;
use super::path::HOSTS_MAX;
use super::reader::{Context, Hop, Reader};
use super::schema;
use super::tree::{Data, Node, Table, shortened};
use super::wire::{Notes, laid_over, read_queue};
use crate::nearest::suggestion;
use crate::topology::{Access, Auxiliary, Host, HostLimits, Site, Stage, TcpProfile, Topology};

use std::collections::{BTreeMap, BTreeSet};

/// Enough for any network people draw; routes are computed between all of them.
const STAGES_MAX: usize = 1_024;

pub(super) fn lab_path(key: &str, index: usize) -> Vec<Hop> {
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
    let stages: usize = STAGE_KEYS.iter().map(|(key, ..)| lab.tables(key).len()).sum();
    if stages > STAGES_MAX {
        let message = format!("a lab has at most {STAGES_MAX} sites, switches and routers, not {stages}");
        problems.add(reader.place_of("site"), message);
        return None;
    }
    topology.auxiliary = read_auxiliary(&reader);
    for (index, (table, at)) in sites.iter().enumerate() {
        let what = titled("[[lab.site]]", table.text("name"));
        let site =
            Reader::new(context, table, *at, what, "lab.site", schema::SITE, &[], lab_path("site", index));
        let name = site.name("name");
        let hosts = site.count("hosts").unwrap_or(0);
        let tcp_profile = match site.text("tcp_profile").as_deref() {
            Some("stock") => TcpProfile::Stock,
            Some("legacy") => TcpProfile::Legacy,
            _ => TcpProfile::Modern,
        };
        let access = read_access(context, &site, table.get("access"), lab_path("site", index));
        let limits = read_limits(&site);
        let (Some(name), Some(access)) = (name, access) else { continue };
        if topology.sites.iter().any(|other| other.name == name) {
            problems.add(site.place_of("name"), format!("two sites are called {name:?}"));
            continue;
        }
        if topology.hosts.len() as u64 + hosts > HOSTS_MAX {
            problems.add(site.place_of("hosts"), format!("a lab has at most {HOSTS_MAX} hosts"));
            return None;
        }
        let buffer = site.size("buffer");
        topology.sites.push(Site { buffer, ..Site::new(&name, tcp_profile) });
        for number in 0..hosts {
            let host = format!("{name}-{number}");
            let (mut own, mut own_limits) = (access.clone(), limits);
            if let Some(index) = by_name.get(host.as_str()) {
                let (entry, at) = overrides[*index];
                overridden[*index] = true;
                let (laid, limits) = override_host(context, table, entry, at, *index);
                (own, own_limits) = (laid.unwrap_or(own), limits);
            }
            let site = topology.sites.len() - 1;
            topology.hosts.push(Host { name: host, site, access: own, limits: own_limits });
        }
    }
    check_overrides(context, &overrides, &overridden, &topology);
    read_between_stages(context, lab, &mut topology);
    read_links(context, lab, &mut topology)?;
    read_routes(context, lab, &mut topology);
    (problems.count() == before).then_some(topology)
}

/// Sorts of stages: their key, header and declared keys.
const STAGE_KEYS: [(&str, &str, &[crate::Param]); 3] = [
    ("site", "[[lab.site]]", schema::SITE),
    ("switch", "[[lab.switch]]", schema::SWITCH),
    ("router", "[[lab.router]]", schema::ROUTER),
];

/// Switches and routers.
fn read_between_stages(context: &Context<'_>, lab: &Table, topology: &mut Topology) {
    let problems = context.problems;
    for (key, header, keys) in &STAGE_KEYS[1..] {
        for (index, (table, at)) in super::array_of_tables(lab, key, problems).into_iter().enumerate() {
            let what = titled(header, table.text("name"));
            let schema_name = if *key == "router" { "lab.router" } else { "lab.switch" };
            let reader = Reader::new(context, table, at, what, schema_name, keys, &[], lab_path(key, index));
            let Some(name) = reader.name("name") else { continue };
            let stage = match *key {
                "router" => Stage::Router { replies: reader.flag("replies").unwrap_or(true) },
                _ => Stage::Switch,
            };
            let buffer = reader.size("buffer");
            if topology.sites.iter().any(|other| other.name == name) {
                let message = format!("two sites, switches or routers are called {name:?}");
                problems.add(reader.place_of("name"), message);
                continue;
            }
            // The profile is of hosts, and there are none.
            topology.sites.push(Site { stage, buffer, ..Site::new(&name, TcpProfile::Stock) });
        }
    }
}

fn read_auxiliary(lab: &Reader<'_>) -> Option<Auxiliary> {
    if let Data::Flag(there) = &lab.node("auxiliary")?.data {
        return there.then_some(Auxiliary { rate: None, delay_ns: 0 });
    }
    let body = lab.table("auxiliary")?;
    Some(Auxiliary { rate: body.rate("rate"), delay_ns: body.duration_ns("delay")? })
}

/// Fixed routes of all stages; circles are refused.
fn read_routes(context: &Context<'_>, lab: &Table, topology: &mut Topology) {
    let problems = context.problems;
    let before = problems.count();
    let mut fixed: Vec<super::errors::Place> = Vec::new();
    for (key, ..) in STAGE_KEYS {
        for (table, _) in super::array_of_tables(lab, key, problems) {
            let Some(node) = table.get("routes") else { continue };
            let Some(stage) = table.text("name").and_then(|name| stage_called(topology, name)) else {
                continue;
            };
            let Some(routes) = node.as_table() else {
                let message =
                    format!("`routes`: expected a table {{ SITE = \"LINK\" }}, found {}", node.what());
                problems.add(node.at, message);
                continue;
            };
            for entry in &routes.entries {
                let Some(route) = read_route(context, topology, stage, entry) else { continue };
                topology.sites[stage].routes.push(route);
                fixed.push(entry.key_at);
            }
        }
    }
    let (Some(at), true) = (fixed.first(), problems.count() == before) else { return };
    let next: Vec<_> = (0..topology.sites.len()).map(|stage| topology.next_links(stage)).collect();
    for to in 0..topology.sites.len() {
        let Some(circle) = topology.loop_towards(to, &next) else { continue };
        let name = |stage: &usize| topology.sites[*stage].name.as_str();
        let mut names: Vec<&str> = circle.iter().map(name).collect();
        names.extend(circle.first().map(name));
        let message = format!(
            "fixed routes send packets for site {:?} round and round: {}",
            topology.sites[to].name,
            names.join(" → ")
        );
        let help =
            "where a stage has no route of its own it takes the shortest path: fix the way on there too";
        problems.add_help(*at, message, help);
        return;
    }
}

fn stage_called(topology: &Topology, name: &str) -> Option<usize> {
    topology.sites.iter().position(|site| site.name == name)
}

/// One entry of `routes`, as stage and link by index.
fn read_route(
    context: &Context<'_>,
    topology: &Topology,
    stage: usize,
    entry: &super::tree::Entry,
) -> Option<(usize, usize)> {
    let problems = context.problems;
    let own = topology.sites[stage].name.as_str();
    let site = |index: &usize| topology.sites[*index].stage == Stage::Site;
    let Some(to) = stage_called(topology, &entry.key).filter(site) else {
        let sites = (0..topology.sites.len()).filter(site).map(|index| topology.sites[index].name.as_str());
        let message = format!("`routes` of {own:?}: no site is called {:?}", shortened(&entry.key));
        problems.add_helped(entry.key_at, message, suggestion(&entry.key, sites));
        return None;
    };
    if to == stage {
        problems.add(entry.key_at, format!("`routes` of {own:?}: its own hosts are behind its own switch"));
        return None;
    }
    let at_stage = || topology.links.iter().filter(|link| link.between.contains(&stage));
    let Some(name) = entry.node.as_text() else {
        let message = format!("`routes` of {own:?}: expected a link's name, found {}", entry.node.what());
        problems.add(entry.node.at, message);
        return None;
    };
    if !at_stage().any(|link| link.name == name) {
        let message = format!("`routes` of {own:?}: no link of it is called {:?}", shortened(name));
        let names: Vec<&str> = at_stage().map(|link| link.name.as_str()).collect();
        problems.add_helped(entry.node.at, message, suggestion(name, names));
        return None;
    }
    Some((to, topology.links.iter().position(|link| link.name == name)?))
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
        if !seen.insert(name.clone()) {
            context.problems.add(reader.place_of("name"), format!("two [[lab.host]] are called {name:?}"));
        } else if !used[index] {
            let names = topology.hosts.iter().map(|host| host.name.as_str());
            let message = format!("no site has a host {name:?}");
            context.problems.add_helped(reader.place_of("name"), message, suggestion(&name, names));
        }
    }
}

/// What a host has of its own: the site's access and limits, with the host's keys laid over them.
fn override_host(
    context: &Context<'_>,
    site: &Table,
    entry: &Table,
    at: super::errors::Place,
    index: usize,
) -> (Option<Access>, HostLimits) {
    let mut table = laid_over(site, entry);
    table.entries.retain(|entry| ["access", "cpu", "memory"].contains(&entry.key.as_str()));
    // Its name is looked at elsewhere, with all that is not laid over.
    table.set("name", at, Node { data: Data::Text("x".to_owned()), at });
    // Its defaults are the site's and spelled out there, so they are noted nowhere.
    let inner = Context::new(context.problems);
    let what = titled("[[lab.host]]", entry.text("name"));
    let path = lab_path("host", index);
    let reader = Reader::new(&inner, &table, at, what, "lab.host", schema::SITE, &[], path);
    (read_access(&inner, &reader, table.get("access"), Vec::new()), read_limits(&reader))
}

fn read_limits(reader: &Reader<'_>) -> HostLimits {
    let memory_bytes = reader.size("memory").map(|size| size.0);
    HostLimits { cpu_cores: reader.ratio("cpu"), memory_bytes }
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
            let path = below(path.clone(), &["access"]);
            Reader::new(context, &EMPTY, site.at, site.what.clone(), "access", schema::ACCESS, &[], path)
        }
    };
    let queue = match reader.has("queue") {
        true => {
            let notes = Notes { context, path: below(path, &["access", "queue"]) };
            Some(read_queue(&reader.table("queue")?, None, &notes)?)
        }
        false => None,
    };
    let (loss, impairments) = (reader.ratio("loss"), impairments::read(&reader));
    Some(Access {
        rate: reader.rate("rate"),
        delay_ns: reader.duration_ns("delay")?,
        loss: loss?,
        impairments: impairments?,
        mtu: u32::try_from(reader.count("mtu")?).ok()?,
        queue,
        framing_bytes: u32::try_from(reader.size("framing")?.0).ok()?,
    })
}

fn below(mut path: Vec<Hop>, keys: &[&str]) -> Vec<Hop> {
    path.extend(keys.iter().map(|key| Hop::Key((*key).to_owned())));
    path
}
