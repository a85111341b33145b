//! `[hosts]`: real machines instead of a lab, reached through a launcher.

use super::errors::Place;
use super::path::HOSTS_MAX;
use super::plan::RealHost;
use super::reader::{Context, Hop, Reader, check_name};
use super::schema;
use super::tree::{Data, Entry, Node, Table, shortened};
use crate::topology::{Access, Host, Site, TcpProfile, Topology};
use std::collections::BTreeMap;

/// Largest IP packet assumed of a real host's interface, in bytes; nothing is emulated by it.
const REAL_MTU: u32 = 1500;

/// Site and number of `SITE-NUMBER`; `None` for anything else.
pub(super) fn site_and_number(name: &str) -> Option<(&str, u64)> {
    let (site, number) = name.rsplit_once('-')?;
    let plain = !number.is_empty() && (number == "0" || !number.starts_with('0'));
    let digits = plain && number.chars().all(|letter| letter.is_ascii_digit());
    let number = number.parse().ok().filter(|_| digits && !site.is_empty())?;
    Some((site, number))
}

/// True for an entry of `[hosts]` that is a host and no key of all of them.
pub(super) fn is_host(entry: &Entry) -> bool {
    matches!(entry.node.data, Data::Table(_)) && !schema::HOSTS.iter().any(|key| key.name == entry.key)
}

/// Decodes the hosts of one configuration: they by themselves, and a topology without links that numbers them.
/// `None` (and problems) where something is wrong.
pub(super) fn hosts(context: &Context<'_>, node: &Node) -> Option<(Topology, Vec<RealHost>)> {
    let problems = context.problems;
    let before = problems.count();
    let Data::Table(table) = &node.data else {
        problems.add(node.at, format!("`hosts`: expected a table [hosts], found {}", node.what()));
        return None;
    };
    let path = vec![Hop::Key("hosts".to_owned())];
    let common = Table { entries: table.entries.iter().filter(|entry| !is_host(entry)).cloned().collect() };
    let of_all = Reader::new(
        context,
        &common,
        node.at,
        "[hosts]".to_owned(),
        "hosts",
        schema::HOSTS,
        &[],
        path.clone(),
    );
    let common = read_keys(&of_all);
    let launcher = of_all.text("launcher");
    let mut found: Vec<(&str, u64, RealHost)> = Vec::new();
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in table.entries.iter().filter(|entry| is_host(entry)) {
        let Data::Table(own) = &entry.node.data else { continue };
        let what = format!("[hosts.{}]", shortened(&entry.key));
        if !check_name(&entry.key, entry.key_at, "a host", problems) {
            continue;
        }
        let Some((site, number)) = site_and_number(&entry.key) else {
            let message = format!("the host {:?} is not named SITE-NUMBER", shortened(&entry.key));
            problems.add_help(
                entry.key_at,
                message,
                "like dresden-0: steps speak of hosts by site and number",
            );
            continue;
        };
        let mut path = path.clone();
        path.push(Hop::Key(entry.key.clone()));
        let reader =
            Reader::new(context, own, entry.node.at, what, "hosts.host", schema::REAL_HOST, &[], path);
        let (address, own) = (read_address(&reader), read_keys(&reader));
        let launcher = reader.text("launcher").or_else(|| launcher.clone());
        let (Some((address, port)), Some(own), Some(common), Some(launcher)) =
            (address, own, &common, launcher)
        else {
            continue;
        };
        let next = order.len();
        order.entry(site).or_insert(next);
        let or = |own: Option<String>, common: &Option<String>| own.or_else(|| common.clone());
        let host = RealHost {
            name: entry.key.clone(),
            address,
            port,
            launcher,
            user: or(own.user, &common.user),
            jump: or(own.jump, &common.jump),
            agent: or(own.agent, &common.agent),
            data_interface: or(own.data_interface, &common.data_interface),
            data_ports: own.data_ports.or(common.data_ports),
        };
        found.push((site, number, host));
    }
    if found.len() as u64 > HOSTS_MAX {
        problems.add(node.at, format!("there are at most {HOSTS_MAX} hosts, not {}", found.len()));
        return None;
    }
    if found.is_empty() && problems.count() == before {
        let help = "write each as [hosts.SITE-NUMBER] with its `address`";
        problems.add_help(node.at, "[hosts] names no host", help);
    }
    // As in a lab: site by site as they come, and within a site by number.
    found.sort_by_key(|(site, number, _)| (order[site], *number));
    let topology = topology_of(&found);
    let hosts = found.into_iter().map(|(.., host)| host).collect();
    (problems.count() == before).then_some((topology, hosts))
}

fn topology_of(found: &[(&str, u64, RealHost)]) -> Topology {
    let mut topology = Topology::default();
    for (site, _, host) in found {
        if topology.sites.last().is_none_or(|last| last.name != *site) {
            topology.sites.push(Site::new(site, TcpProfile::Stock));
        }
        let access = Access { mtu: REAL_MTU, ..Access::default() };
        topology.hosts.push(Host::new(&host.name, topology.sites.len() - 1, access));
    }
    topology
}

/// What may be said of all hosts and of one.
struct Keys {
    user: Option<String>,
    jump: Option<String>,
    agent: Option<String>,
    data_interface: Option<String>,
    data_ports: Option<[u16; 2]>,
}

fn read_keys(reader: &Reader<'_>) -> Option<Keys> {
    let before = reader.problems().count();
    let word = |key: &str, more: &str| {
        let text = reader.text(key)?;
        checked(&text, more, reader.place_of(key), key, reader).then_some(text)
    };
    let keys = Keys {
        user: word("user", "._-"),
        jump: word("jump", "._-@:[],%"),
        agent: word("agent", "._-+/~@"),
        data_interface: word("data_interface", "._-@:"),
        data_ports: match reader.has("data_ports") {
            true => reader.text("data_ports").and_then(|text| read_ports(reader, &text)),
            false => None,
        },
    };
    (reader.problems().count() == before).then_some(keys)
}

/// Only letters, digits and `more`, and no `-` at the beginning: nothing here can be taken for an option or reach a shell.
fn checked(text: &str, more: &str, at: Place, key: &str, reader: &Reader<'_>) -> bool {
    let known = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
    let good = !text.is_empty() && text.len() <= 255 && !text.starts_with('-') && text.chars().all(known);
    if !good {
        reader.problems().add_help(
            at,
            format!("`{key}` {:?} cannot be used", shortened(text)),
            format!("letters, digits and {more}, not beginning with -"),
        );
    }
    good
}

/// `NAME`, `10.1.2.3`, `NAME:2222`, `fd00::1` or `[fd00::1]:2222`.
fn read_address(reader: &Reader<'_>) -> Option<(String, Option<u16>)> {
    let text = reader.text("address")?;
    let at = reader.place_of("address");
    if !checked(&text, ".-_:[]%", at, "address", reader) {
        return None;
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None if text.matches(':').count() == 1 => {
            text.split_once(':').map_or((text.as_str(), None), |(a, b)| (a, Some(b)))
        }
        None => (text.as_str(), None),
    };
    let port = match port.map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => {
            reader
                .problems()
                .add(at, format!("`address` {:?} has no port from 1 to 65535", shortened(&text)));
            return None;
        }
    };
    if host.is_empty() || host.starts_with('-') || host.contains(['[', ']']) {
        let help = "a name or an address, with a port like gate.example.org:2222 or [fd00::1]:2222";
        reader.problems().add_help(at, format!("`address` {:?} names no host", shortened(&text)), help);
        return None;
    }
    Some((host.to_owned(), port))
}

fn read_ports(reader: &Reader<'_>, text: &str) -> Option<[u16; 2]> {
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let ports = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|port| (port, port)),
    };
    match ports {
        Some((first, last)) if first <= last => Some([first, last]),
        _ => {
            let message = format!("`data_ports` {:?} is no range of ports", shortened(text));
            reader.problems().add_help(reader.place_of("data_ports"), message, "like \"5300-5399\"");
            None
        }
    }
}
