//! `[[fault]]`: what happens to links, to some of their packets, or to hosts' processes while a trial runs.

use super::errors::Place;
use super::glob::Glob;
use super::lab::titled;
use super::plan::{Affected, Fault, FaultPart, Role, Service, Step};
use super::reader::{Context, Hop, Reader};
use super::schema;
use super::tree::{Table, shortened};
use crate::fault::{Act, FaultKind, FaultOn, duration_of};
use crate::nearest::suggestion;
use crate::param::{Param, Value, Values};
use crate::schedule::{Match, Protocol};
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const FAULTS_MAX: usize = 200_000;
/// Links that all faults of a configuration are on, and hosts that they name: what they cost before they happen.
const PARTS_MAX: usize = 2_000_000;

/// What faults may be on.
struct Names {
    /// Directed links by index.
    links: Vec<String>,
    /// Faults of long lists are on few things, each looked up once.
    found: BTreeMap<String, Option<Vec<usize>>>,
    real: bool,
}

/// Services that a fault may be on.
#[derive(Clone, Copy)]
struct Serving<'a> {
    /// By the steps of this configuration.
    needed: &'a [Service],
    /// Names of those in the file that none of them needs.
    unneeded: &'a BTreeSet<&'a str>,
    /// Whether the fault happens in this one.
    is_enabled: bool,
}

impl<'a> Serving<'a> {
    /// The service that a fault is on. Where none is called so a problem is told, unless the fault is left out and another case needs
    /// the service.
    // Spec: scenario.md#fault-9
    fn named(&self, reader: &Reader<'_>, name: &str, with_disks: bool) -> Option<&'a Service> {
        let known = self.needed.iter().filter(|service| !with_disks || service.disk.is_some());
        if let Some(service) = known.clone().find(|service| service.name == name) {
            return Some(service);
        }
        let (problems, at) = (reader.problems(), reader.place_of("on"));
        let what = if with_disks { " with disks" } else { "" };
        let message = format!("`on`: no step needs a service {:?}{what}", shortened(name));
        match (self.unneeded.contains(name), self.is_enabled) {
            (true, false) => {}
            (true, true) => problems.add_help(
                at,
                message,
                "`enabled = false` leaves the fault out; cases whose steps need the service set it to true",
            ),
            (false, _) => {
                let names = known.map(|service| service.name.as_str());
                problems.add_helped(at, message, suggestion(name, names));
            }
        }
        None
    }
}

/// Decodes the enabled faults of one configuration.
pub(super) fn faults(
    context: &Context<'_>,
    root: &Table,
    topology: Option<&Topology>,
    steps: &[Step],
    services: &[Service],
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
    let links = topology.filter(|_| !tables.is_empty()).map(|topology| topology.directed_links());
    let mut known = Names {
        links: links.into_iter().flatten().map(|link| link.name).collect(),
        found: BTreeMap::new(),
        real: root.get("hosts").is_some(),
    };
    let declared = root.tables("service").into_iter().filter_map(|table| table.text("name"));
    let unneeded = declared.filter(|name| services.iter().all(|service| service.name != *name)).collect();
    let mut parts = 0usize;
    for (index, (table, at)) in tables.into_iter().enumerate() {
        if problems.full() {
            break;
        }
        let what = titled("[[fault]]", table.text("name"));
        let path = vec![Hop::Key("fault".to_owned()), Hop::Index(index)];
        let reader =
            Reader::new(context, table, at, what, "fault", problems.language.faults.keys(), &[], path);
        let Some(name) = reader.name("name") else { continue };
        if names.contains(&name) {
            problems.add(reader.place_of("name"), format!("two faults are called {name:?}"));
            continue;
        }
        names.insert(name.clone());
        let enabled = reader.flag("enabled");
        let serving = Serving { needed: services, unneeded: &unneeded, is_enabled: enabled != Some(false) };
        let read = read_fault(&reader, name, topology, (steps, serving), &mut known);
        let (Some(true), Some(fault)) = (enabled, read) else { continue };
        let hosts = |part: &FaultPart| match &part.affected {
            Affected::Link => 1,
            Affected::Packets(matches) => 1 + matches.from.len() + matches.to.len(),
            of_hosts => of_hosts.hosts().len(),
        };
        parts += fault.on.len() + fault.parts.iter().map(hosts).sum::<usize>();
        if parts > PARTS_MAX {
            let message = format!("the faults are on more than {PARTS_MAX} links and hosts together");
            problems.add_help(at, message, "name fewer links in `on`, or fewer hosts in `match` and `phase`");
            return faults;
        }
        faults.push(fault);
    }
    faults
}

fn read_fault(
    reader: &Reader<'_>,
    name: String,
    topology: Option<&Topology>,
    (steps, serving): (&[Step], Serving<'_>),
    known: &mut Names,
) -> Option<Fault> {
    let (at, every) = (reader.duration("at"), reader.duration("every"));
    let spread = reader.duration("spread").unwrap_or_default();
    let step = read_step(reader, topology, steps);
    let on_text = reader.text("on");
    let done = read_do(reader);
    let longest = done.as_ref().and_then(|(_, values)| duration_of(values)).unwrap_or_default() + spread;
    if let (Some(every), Some(_)) = (every, &done)
        && every <= longest
    {
        reader.problems().add_help(
            reader.place_of("every"),
            format!("`every` {every:?} is not longer than the fault itself with its `spread`, {longest:?}"),
            "one occurrence must end before the next begins",
        );
    }
    let matches = read_match(reader, topology);
    let (on_text, (kind, values), matches) = (on_text?, done?, matches?);
    let topology = topology?;
    let act = (kind.act)(&values);
    let mut on = Vec::new();
    let of_hosts = match (kind.on, on_text.strip_prefix("service.")) {
        (FaultOn::Links, _) => None,
        (FaultOn::Disks, _) => Some(read_disks_on(reader, &on_text, topology, serving)?),
        (_, Some(on)) => Some(read_daemons_on(reader, on, kind, topology, serving)?),
        (FaultOn::Processes, None) => {
            Some(Affected::Processes(read_hosts_on(reader, &on_text, topology, known.real)?))
        }
        (FaultOn::Daemons, None) => {
            let name = kind.name;
            let message =
                format!("`on`: {:?} cannot have `{name}`, servers of a service can", shortened(&on_text));
            let help = "service.NAME.ROLE or service.NAME.ROLE.HOST";
            reader.problems().add_help(reader.place_of("on"), message, help);
            return None;
        }
    };
    let parts = if let Some(affected) = of_hosts {
        if matches.is_some() {
            let message = format!("`match` chooses packets, and {} is of {}", kind.name, kind.on.plural());
            reader.problems().add(reader.place_of("match"), message);
            return None;
        }
        let phased = by_phase(reader, topology, affected.hosts())?;
        let part = |(phase, hosts)| FaultPart { phase, affected: affected.on_hosts(hosts) };
        phased.into_iter().map(part).collect()
    } else {
        on = read_on(reader, &on_text, topology, known)?;
        packets(reader, topology, matches, (kind, &act))?
    };
    let (duration, sentence) = (duration_of(&values), (kind.sentence)(&values));
    Some(Fault { name, at: at?, step: step?, every, spread, on, on_text, act, duration, sentence, parts })
}

fn read_step(reader: &Reader<'_>, topology: Option<&Topology>, steps: &[Step]) -> Option<Option<usize>> {
    let Some(step) = reader.text("step") else { return Some(None) };
    let found = steps.iter().position(|other| other.name == step);
    if found.is_some() || topology.is_none() {
        return Some(found);
    }
    let all = steps.iter().map(|step| step.name.as_str());
    let message = format!("`step`: no step is called {:?}", shortened(&step));
    reader.problems().add_helped(reader.place_of("step"), message, suggestion(&step, all));
    None
}

/// Directed links by index: `link.NAME` means both directions, and so do `host.NAME`, `host.NAME.access` and
/// `host.NAME.auxiliary`; `site.NAME` means the access links of all its hosts.
fn read_on(reader: &Reader<'_>, on: &str, topology: &Topology, known: &mut Names) -> Option<Vec<usize>> {
    if let Some(found) = known.found.get(on) {
        return found.clone();
    }
    let found = if known.real { no_links(reader) } else { find_links(reader, on, topology, &known.links) };
    known.found.insert(on.to_owned(), found.clone());
    found
}

fn no_links(reader: &Reader<'_>) -> Option<Vec<usize>> {
    reader.problems().add_help(
        reader.place_of("on"),
        "a fault on a link needs [lab]: nothing can be done to the links between real hosts",
        "take the fault out, or run the scenario in a lab",
    );
    None
}

fn find_links(reader: &Reader<'_>, on: &str, topology: &Topology, links: &[String]) -> Option<Vec<usize>> {
    let (problems, at) = (reader.problems(), reader.place_of("on"));
    let directed = on.ends_with(".forward") || on.ends_with(".backward");
    if let Some(site) = on.strip_prefix("site.") {
        let (site, direction) = match site.rsplit_once('.') {
            Some((site, direction @ ("forward" | "backward"))) => (site, Some(direction)),
            _ => (site, None),
        };
        let glob = parsed(site, at, reader)?;
        let of_site = |host: usize| glob.matches(&topology.sites[topology.hosts[host].site].name);
        let chosen: Vec<usize> = (0..topology.hosts.len())
            .filter(|host| of_site(*host))
            .flat_map(|host| [2 * host, 2 * host + 1])
            .filter(|index| direction.is_none_or(|direction| (index % 2 == 0) == (direction == "forward")))
            .collect();
        if chosen.is_empty() {
            let message = format!("`on`: no site with hosts is called {:?}", shortened(site));
            let names: Vec<&str> = topology.sites.iter().map(|site| site.name.as_str()).collect();
            problems.add_helped(at, message, suggestion(site, names));
            return None;
        }
        return Some(chosen);
    }
    let host_alone = on.starts_with("host.") && on.matches('.').count() == 1;
    let pattern = match (host_alone, directed || on.ends_with('*')) {
        (true, _) => format!("{on}.access.*"),
        (_, true) => on.to_owned(),
        _ => format!("{on}.*"),
    };
    let glob = parsed(&pattern, at, reader)?;
    let chosen: Vec<usize> = (0..links.len()).filter(|index| glob.matches(&links[*index])).collect();
    if chosen.is_empty() {
        let known: BTreeSet<&str> = links
            .iter()
            .flat_map(|name| [name.trim_end_matches(".forward").trim_end_matches(".backward"), name])
            .collect();
        let help = suggestion(on, known.iter().copied());
        problems.add_helped(at, format!("`on`: no link is called {:?}", shortened(on)), help);
        return None;
    }
    Some(chosen)
}

fn parsed(pattern: &str, at: Place, reader: &Reader<'_>) -> Option<Glob> {
    match Glob::parse(pattern) {
        Ok(glob) => Some(glob),
        Err(problem) => {
            reader.problems().add(at, problem);
            None
        }
    }
}

/// Hosts by index whose processes are meant: `host.NAME`, or `site.NAME` for all of a site.
fn read_hosts_on(reader: &Reader<'_>, on: &str, topology: &Topology, real: bool) -> Option<Vec<usize>> {
    let (problems, at) = (reader.problems(), reader.place_of("on"));
    if real {
        problems.add_help(
            at,
            "a fault of processes on real hosts: not yet in this version of weir",
            "run the scenario in a lab, or take the fault out",
        );
        return None;
    }
    let (pattern, of_site) = match (on.strip_prefix("host."), on.strip_prefix("site.")) {
        (Some(host), _) => (host, false),
        (_, Some(site)) => (site, true),
        _ => {
            let message = format!("`on` {:?}: only hosts have processes", shortened(on));
            let kinds = problems.language.faults.names(|kind| kind.on == FaultOn::Processes);
            let help = format!(
                "{kinds} are on host.NAME, on site.NAME for all of its hosts, or on service.NAME.ROLE"
            );
            problems.add_help(at, message, help);
            return None;
        }
    };
    let glob = parsed(pattern, at, reader)?;
    let name = |host: &crate::topology::Host| match of_site {
        true => topology.sites[host.site].name.clone(),
        false => host.name.clone(),
    };
    let all: Vec<String> = topology.hosts.iter().map(name).collect();
    let chosen: Vec<usize> = (0..all.len()).filter(|index| glob.matches(&all[*index])).collect();
    if chosen.is_empty() {
        let sort = if of_site { "site with hosts" } else { "host" };
        let message = format!("`on`: no {sort} is called {:?}", shortened(pattern));
        problems.add_helped(at, message, suggestion(pattern, all.iter().map(String::as_str)));
        return None;
    }
    Some(chosen)
}

/// The disks of `service.NAME.disk` or `service.NAME.disk.HOST`, which may be a glob, or of several on a host `…HOST.NUMBER`.
fn read_disks_on(
    reader: &Reader<'_>,
    on: &str,
    topology: &Topology,
    serving: Serving<'_>,
) -> Option<Affected> {
    let (problems, at) = (reader.problems(), reader.place_of("on"));
    let words: Vec<&str> = on.splitn(5, '.').collect();
    let (name, host, number) = match words.as_slice() {
        ["service", name, "disk"] => (*name, "*", None),
        ["service", name, "disk", host] => (*name, *host, None),
        ["service", name, "disk", host, number] => (*name, *host, Some(*number)),
        _ => {
            let kinds = problems.language.faults.names(|kind| kind.on == FaultOn::Disks);
            let message = format!("`on` {:?}: {kinds} are of disks", shortened(on));
            problems.add_help(at, message, "service.NAME.disk, or service.NAME.disk.HOST for one of them");
            return None;
        }
    };
    let service = serving.named(reader, name, true)?;
    let hosts = hosts_of(reader, host, topology, (service, Role::Server, "disk"))?;
    let count = service.disk.as_ref().map_or(0, |shape| shape.count);
    let number = match number.map(|text| (text, text.parse::<u32>())) {
        None => None,
        Some((_, Ok(number))) if number < count => Some(number),
        Some((text, _)) => {
            let message = format!("`on`: no disk of a server of {name} has the number {:?}", shortened(text));
            problems.add_help(at, message, format!("they are numbered from 0 to {}", count - 1));
            return None;
        }
    };
    Some(Affected::Disks { service: name.to_owned(), hosts, number })
}

/// The processes of `NAME.ROLE` or `NAME.ROLE.HOST`, which may be a glob; where `kind` is for those that can be
/// told: of a system whose recipe says how.
fn read_daemons_on(
    reader: &Reader<'_>,
    on: &str,
    kind: &FaultKind,
    topology: &Topology,
    serving: Serving<'_>,
) -> Option<Affected> {
    let (problems, at) = (reader.problems(), reader.place_of("on"));
    let mut words = on.splitn(3, '.');
    let (name, role, host) = (words.next().unwrap_or_default(), words.next(), words.next().unwrap_or("*"));
    let service = serving.named(reader, name, false)?;
    let Some((role, _)) = service.place.iter().find(|(own, _)| Some(own.name()) == role) else {
        let roles: Vec<&str> = service.place.iter().map(|(role, _)| role.name()).collect();
        let message =
            format!("`on`: service {name} has no processes of the role {:?}", shortened(role.unwrap_or("")));
        problems.add_help(
            at,
            message,
            format!("service.{name}.ROLE or service.{name}.ROLE.HOST; it has {}", roles.join(", ")),
        );
        return None;
    };
    let hosts = hosts_of(reader, host, topology, (service, *role, role.name()))?;
    let system = &service.system;
    if kind.on == FaultOn::Daemons
        && !problems.language.systems.find(system).is_ok_and(|schema| schema.drains.contains(role))
    {
        let message = format!(
            "`on`: no {} of {system} can have `{}`: its recipe does not say how",
            role.name(),
            kind.name
        );
        let others = problems.language.faults.names(|kind| kind.on == FaultOn::Processes);
        problems.add_help(at, message, format!("{others} need nothing of the recipe"));
        return None;
    }
    Some(Affected::Daemons { service: name.to_owned(), role: *role, hosts })
}

/// Hosts by index of a service's role that a pattern names; `what` is on them, for the message where it names none.
fn hosts_of(
    reader: &Reader<'_>,
    pattern: &str,
    topology: &Topology,
    (service, role, what): (&Service, Role, &str),
) -> Option<Vec<usize>> {
    let at = reader.place_of("on");
    let glob = parsed(pattern, at, reader)?;
    let name = |host: &usize| topology.hosts[*host].name.as_str();
    let hosts = service.hosts_as(role);
    let chosen: Vec<usize> = hosts.iter().copied().filter(|host| glob.matches(name(host))).collect();
    if chosen.is_empty() {
        let message = format!("`on`: service {} has no {what} on {:?}", service.name, shortened(pattern));
        reader.problems().add_helped(at, message, suggestion(pattern, hosts.iter().map(name)));
        return None;
    }
    Some(chosen)
}

/// `match`, with its hosts by index; `Some(None)` where it is not written.
fn read_match(reader: &Reader<'_>, topology: Option<&Topology>) -> Option<Option<Match>> {
    if !reader.has("match") {
        return Some(None);
    }
    let body = reader.table("match")?;
    let protocol = match body.text("protocol").as_deref() {
        Some("tcp") => Some(Protocol::Tcp),
        Some("udp") => Some(Protocol::Udp),
        Some("icmp") => Some(Protocol::Icmp),
        _ => None,
    };
    if body.has("protocol") && protocol.is_none() {
        return None;
    }
    let port = match body.has("port") {
        true => Some(u16::try_from(body.count("port")?).ok()?),
        false => None,
    };
    if port.is_some() && protocol == Some(Protocol::Icmp) {
        body.problems().add(body.place_of("port"), "`port`: packets of icmp have none");
        return None;
    }
    let share = body.ratio("share")?;
    let (from, to) = (read_ends(&body, "from", topology?), read_ends(&body, "to", topology?));
    Some(Some(Match { from: from?, to: to?, port, protocol, share }))
}

/// Hosts of `from` or `to`, sorted; none where it is not written, which means any.
fn read_ends(body: &Reader<'_>, key: &str, topology: &Topology) -> Option<Vec<u32>> {
    if !body.has(key) {
        return Some(Vec::new());
    }
    let mut hosts = super::step::read_hosts(body, key, topology)?;
    hosts.sort_unstable();
    hosts.dedup();
    Some(hosts.into_iter().map(|host| host as u32).collect())
}

/// Which packets each part of a fault on links takes, and when.
fn packets(
    reader: &Reader<'_>,
    topology: &Topology,
    matches: Option<Match>,
    (kind, act): (&FaultKind, &Act),
) -> Option<Vec<FaultPart>> {
    let Act::Link { whole, packets } = act else { return None };
    let some = matches.is_some() || reader.has("phase");
    if some && packets.is_none() {
        let key = if reader.has("phase") { "phase" } else { "match" };
        let message = format!("`{key}` chooses packets, and a {} is of the whole link", kind.name);
        let of_some = |other: &FaultKind| other.on == FaultOn::Links && other.name != kind.name;
        let help = format!("{} can be of some packets", reader.problems().language.faults.names(of_some));
        reader.problems().add_help(reader.place_of(key), message, help);
        return None;
    }
    if !reader.has("phase") {
        let needs_rule = some || whole.is_none();
        let affected = match needs_rule {
            true => Affected::Packets(matches.unwrap_or_default()),
            false => Affected::Link,
        };
        return Some(vec![FaultPart { phase: Duration::ZERO, affected }]);
    }
    let matches = matches.unwrap_or_default();
    let senders: Vec<usize> = match matches.from.is_empty() {
        true => (0..topology.hosts.len()).collect(),
        false => matches.from.iter().map(|host| *host as usize).collect(),
    };
    let part = |(phase, hosts): (Duration, Vec<usize>)| {
        let from = hosts.into_iter().map(|host| host as u32).collect();
        FaultPart { phase, affected: Affected::Packets(Match { from, ..matches.clone() }) }
    };
    Some(by_phase(reader, topology, &senders)?.into_iter().map(part).collect())
}

/// Groups hosts by the phase that `phase` gives them, nought where it names them not; the earliest group first.
fn by_phase(
    reader: &Reader<'_>,
    topology: &Topology,
    hosts: &[usize],
) -> Option<Vec<(Duration, Vec<usize>)>> {
    let mut phase_of: BTreeMap<usize, Duration> = BTreeMap::new();
    if reader.has("phase") {
        let node = reader.node("phase")?;
        let Some(table) = node.as_table() else {
            let message = format!("`phase`: expected a table {{ host = \"17s\" }}, found {}", node.what());
            reader.problems().add(node.at, message);
            return None;
        };
        for entry in &table.entries {
            let glob = parsed(&entry.key, entry.key_at, reader)?;
            let value = super::reader::read_value(&schema::PHASE, &entry.node, reader.problems())?;
            let crate::Value::Duration(phase) = value else { return None };
            let named: Vec<usize> =
                hosts.iter().copied().filter(|host| glob.matches(&topology.hosts[*host].name)).collect();
            if named.is_empty() {
                let names: Vec<&str> = hosts.iter().map(|host| topology.hosts[*host].name.as_str()).collect();
                let message = format!("`phase`: the fault is on no host called {:?}", shortened(&entry.key));
                reader.problems().add_helped(entry.key_at, message, suggestion(&entry.key, names));
                return None;
            }
            for host in named {
                if phase_of.insert(host, phase).is_some() {
                    let name = &topology.hosts[host].name;
                    reader.problems().add(entry.key_at, format!("`phase`: {name} has two of them"));
                    return None;
                }
            }
        }
    }
    let mut groups: BTreeMap<Duration, Vec<usize>> = BTreeMap::new();
    for host in hosts {
        groups.entry(phase_of.get(host).copied().unwrap_or_default()).or_default().push(*host);
    }
    Some(groups.into_iter().collect())
}

/// The kind that `do` names, with its values.
fn read_do(reader: &Reader<'_>) -> Option<(&'static FaultKind, Values)> {
    let action = reader.table("do")?;
    let written: Vec<&str> =
        action.params().iter().map(|param| param.name).filter(|name| action.has(name)).collect();
    let problems = reader.problems();
    let [name] = written.as_slice() else {
        // A key that is unknown has been refused by name already.
        if action.table.entries.len() == written.len() {
            let forms: Vec<String> = problems.language.faults.all().iter().map(form).collect();
            let message = format!("`do` names {} actions", written.len());
            problems.add_help(action.at, message, format!("one of {}", forms.join(", ")));
        }
        return None;
    };
    let kind = problems.language.faults.find(name)?;
    let met = problems.count();
    let Value::Table(values) = action.value(name)? else { return None };
    // Values of which one was refused are not whole.
    (problems.count() == met).then_some((kind, Values(values)))
}

/// `loss = { ratio, for }`: how a kind is written, what may be left out in brackets.
fn form(kind: &FaultKind) -> String {
    let key = |param: &Param| match param.required {
        true => param.name.to_owned(),
        false => format!("[{}]", param.name),
    };
    let keys: Vec<String> = kind.params.iter().map(key).collect();
    format!("{} = {{ {} }}", kind.name, keys.join(", "))
}
