//! `[[service]]`: real systems on the lab's hosts, or what is there already.

use super::errors::Place;
use super::lab::titled;
use super::plan::{Content, DiskShape, Mount, Origin, Priority, Role, Service, Step, SystemSchema, Systems};
use super::reader::{Context, Hop, Reader};
use super::schema;
use super::tree::{Data, Node, Table, shortened};
use crate::nearest::suggestion;
use crate::param::{Kind, Param, Value, Values};
use crate::topology::Topology;

const SERVICES_MAX: usize = 64;
/// What a target begins with that is on a service.
const SERVICE_TARGET: &str = "service:";

/// Decodes the services of one configuration.
pub(super) fn services(context: &Context<'_>, root: &Table, topology: Option<&Topology>) -> Vec<Service> {
    let problems = context.problems;
    let tables = super::array_of_tables(root, "service", problems);
    if tables.len() > SERVICES_MAX {
        let message = format!("a scenario has at most {SERVICES_MAX} services, not {}", tables.len());
        problems.add(tables[0].1, message);
        return Vec::new();
    }
    let real = root.get("hosts").is_some();
    let mut all: Vec<Service> = Vec::new();
    for (index, (table, at)) in tables.into_iter().enumerate() {
        let what = titled("[[service]]", table.text("name"));
        let path = vec![Hop::Key("service".to_owned()), Hop::Index(index)];
        let reader = Reader::new(context, table, at, what, "service", schema::SERVICE, &[], path);
        let Some(name) = reader.name("name") else { continue };
        if all.iter().any(|other| other.name == name) {
            problems.add(reader.place_of("name"), format!("two services are called {name:?}"));
            continue;
        }
        let service = read(&reader, name, topology, real, &all);
        all.extend(service);
    }
    all
}

/// `before`: the services above it in the file.
fn read(
    reader: &Reader<'_>,
    name: String,
    topology: Option<&Topology>,
    real: bool,
    before: &[Service],
) -> Option<Service> {
    let problems = reader.problems();
    let met = problems.count();
    let mount = reader.table("mount").and_then(|table| read_mount(&table));
    let content = reader.table("content").and_then(|table| read_content(&table));
    let disk = reader.table("disk").map(|table| (read_disk(&table), table.at));
    if reader.has("given") {
        return given(reader, name, content);
    }
    if real {
        let help = "say where it is: given = \"root://server.example.org//store\" or given = \"/mount\"";
        problems.add_help(reader.place_of("name"), "weir starts no services on real hosts", help);
        return None;
    }
    if !reader.has("system") {
        let help = "`weir list system` has those that weir can start; or say where it is with `given`";
        problems.add_help(reader.place_of("name"), format!("service {name:?} lacks `system`"), help);
        return None;
    }
    let system = reader.text("system")?;
    let schema = match problems.language.systems.find(&system) {
        Ok(schema) => schema,
        Err(text) => {
            let names = problems.language.systems.names();
            let help = suggestion(&system, names.iter().map(String::as_str));
            problems.add_helped(reader.place_of("system"), text, help);
            return None;
        }
    };
    let place = read_place(reader, schema, topology)?;
    let mut options = read_options(reader, schema)?;
    let servers = place.iter().find(|(role, _)| *role == Role::Server).map_or(0, |(_, hosts)| hosts.len());
    read_common(reader, schema, servers, &mut options);
    // Another engine may be mounted: one that clients speak to leaves that alone, as it does roles that it does not have.
    let mount = mount.filter(|_| schema.mounts);
    if content.is_some() && !schema.takes_content {
        let at = reader.place_of("content");
        problems.add(at, format!("{}: weir cannot put content on it before a run", schema.name));
    }
    match &disk {
        Some((_, at)) if schema.disks_most == 0 => {
            problems.add(*at, format!("{}: its recipe puts nothing on a disk", schema.name));
        }
        Some((Some(shape), at)) if shape.count > schema.disks_most => problems.add(
            *at,
            format!(
                "`count`: a server of {} can have {} of them, not {}",
                schema.name, schema.disks_most, shape.count
            ),
        ),
        _ => {}
    }
    let priority = reader.table("priority").map(|table| {
        let said = |role: &Role| Some((*role, Priority::parse(&table.text(role.name())?)?));
        let all = Role::ALL.iter().filter_map(said);
        // What is said and what is left out are the same service.
        all.filter(|(_, priority)| *priority != Priority::Low).collect()
    });
    let clients = place.iter().any(|(role, _)| *role == Role::Client);
    if schema.mounts && mount.is_none() && clients {
        problems.add(reader.place_of("place"), format!("service {name:?} has clients and lacks `mount`"));
    }
    if schema.mounts && mount.is_some() && !clients {
        problems
            .add(reader.place_of("mount"), format!("service {name:?} has no `client` that could mount it"));
    }
    let disk = disk.and_then(|(disk, _)| disk);
    if problems.count() != met {
        return None;
    }
    // A service whose origin is wrong is one all the same: what else names it is not wrong for that.
    let origin = read_origin(reader, schema, before);
    if let (Some(_), Some(shape)) = (&origin, &disk)
        && shape.count > 1
    {
        let at = reader.table("disk").map_or(reader.at, |table| table.place_of("count"));
        let message = format!("`count`: what {name} copies from its origin it keeps on one disk a server");
        problems.add(at, message);
        return None;
    }
    let mut service = Service {
        name,
        system,
        at: String::new(),
        place,
        priority: priority.unwrap_or_default(),
        options,
        mount: mount.map(|(at, _)| at),
        content,
        disk,
        origin,
    };
    match problems.language.systems.address(&service, topology?) {
        Ok(at) => service.at = at,
        Err(text) => {
            problems.add(reader.place_of("system"), text);
            return None;
        }
    }
    Some(service)
}

/// A service that others run.
fn given(reader: &Reader<'_>, name: String, content: Option<Content>) -> Option<Service> {
    let problems = reader.problems();
    let given = reader.text("given")?;
    if content.is_some() {
        let message = "`content` is put on systems that weir starts; what is given has its own";
        problems.add(reader.place_of("content"), message);
        return None;
    }
    if !given.starts_with('/') && !given.contains("://") {
        let message = format!("`given` {:?} is neither a URL nor a path from /", shortened(&given));
        problems.add_help(
            reader.place_of("given"),
            message,
            "like \"root://server.example.org//store\" or \"/mount\"",
        );
        return None;
    }
    Some(Service {
        name,
        system: String::new(),
        at: given,
        place: Vec::new(),
        priority: Vec::new(),
        options: Values::default(),
        mount: None,
        content: None,
        disk: None,
        origin: None,
    })
}

/// Options of a mount where none are said: what belongs to another site gains nobody rights here.
const MOUNT_OPTIONS: &str = "nosuid,nodev";

fn read_mount(table: &Reader<'_>) -> Option<(Mount, Place)> {
    let (problems, place) = (table.problems(), table.place_of("at"));
    let at = table.text("at")?;
    if !is_plain_path(&at, true) {
        let message = format!("`at` {:?} is no folder to mount on", shortened(&at));
        problems.add_help(place, message, "like \"/data\"");
    }
    let mut options = Vec::new();
    for (option, place) in table.texts("options") {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.=".contains(letter);
        if option.is_empty() || !option.chars().all(is_plain) {
            problems.add(place, format!("{:?} is no mount option", shortened(&option)));
        }
        options.push(option);
    }
    let options = if table.has("options") { options.join(",") } else { MOUNT_OPTIONS.to_owned() };
    Some((Mount { at, options }, place))
}

/// Puts options that mean the same everywhere among the engine's; refuses those that it does not have.
fn read_common(reader: &Reader<'_>, schema: &'static SystemSchema, servers: usize, options: &mut Values) {
    for (group, params) in [("replicas", schema::REPLICAS), ("stripe", schema::STRIPE)] {
        let Some(table) = reader.table(group) else { continue };
        for param in params.iter().filter(|param| table.has(param.name)) {
            let Some(value) = table.value(param.name) else { continue };
            let name = format!("{group}-{}", param.name);
            if let (Value::Count(copies), "replicas") = (&value, group)
                && *copies > servers as u64
            {
                let message =
                    format!("`replicas.{}` is {copies}, and the service has {servers} servers", param.name);
                reader.problems().add(table.place_of(param.name), message);
            } else if schema.options.iter().any(|own| own.name == name) {
                options.0.insert(name, value);
            } else {
                let message = format!("{} has no `{group}.{}`", schema.name, param.name);
                reader.problems().add(table.place_of(param.name), message);
            }
        }
    }
}

/// The service above it from which it gets what it does not have: none can get things from itself, whatever stands between.
fn read_origin(reader: &Reader<'_>, schema: &SystemSchema, before: &[Service]) -> Option<Origin> {
    if !reader.has("origin") {
        return None;
    }
    let (name, at, problems) = (reader.text("origin")?, reader.place_of("origin"), reader.problems());
    let Some(service) = before.iter().find(|service| service.name == name) else {
        let message = format!("`origin`: no service above it is called {:?}", shortened(&name));
        problems.add_helped(at, message, suggestion(&name, before.iter().map(|own| own.name.as_str())));
        return None;
    };
    let speaks = |scheme: &String| service.at.starts_with(&format!("{scheme}://"));
    if !schema.origins.iter().any(speaks) {
        let schemes: Vec<String> = schema.origins.iter().map(|scheme| format!("{scheme}://")).collect();
        let message = match schemes.is_empty() {
            true => format!("{} gets nothing from other services", schema.name),
            false => {
                format!("{} gets files from {}, not from {}", schema.name, schemes.join(", "), service.at)
            }
        };
        problems.add(at, message);
        return None;
    }
    let behind = service.origin.iter().flat_map(|origin| origin.services.iter().cloned());
    let services = std::iter::once(name).chain(behind).collect();
    Some(Origin { services, at: service.at.clone() })
}

fn read_disk(table: &Reader<'_>) -> Option<DiskShape> {
    Some(DiskShape {
        size_bytes: table.size("size")?.0,
        rate: table.rate("rate"),
        position: table.duration("position")?,
        cache_bytes: table.size("cache")?.0,
        depth: u32::try_from(table.count("depth")?).unwrap_or(u32::MAX),
        array: table.text("array"),
        count: u32::try_from(table.count("count")?).unwrap_or(u32::MAX),
    })
}

fn read_place(
    reader: &Reader<'_>,
    schema: &SystemSchema,
    topology: Option<&Topology>,
) -> Option<Vec<(Role, Vec<usize>)>> {
    let problems = reader.problems();
    let Some(table) = reader.table("place") else {
        let roles: Vec<&str> = schema.roles.iter().map(|need| need.role.name()).collect();
        let help =
            format!("like place = {{ {} = \"SITE-0\" }}; {} has {}", roles[0], schema.name, roles.join(", "));
        problems.add_help(reader.place_of("name"), "the service says no `place` for its processes", help);
        return None;
    };
    let topology = topology?;
    let mut place = Vec::new();
    for role in Role::ALL {
        let need = schema.roles.iter().find(|need| need.role == role);
        if !table.has(role.name()) {
            if let Some(need) = need
                && need.least > 0
            {
                problems.add(reader.place_of("place"), format!("{} needs a {}", schema.name, role.name()));
            }
            continue;
        }
        let mut hosts = super::step::read_hosts(&table, role.name(), topology)?;
        let mut seen = std::collections::BTreeSet::new();
        hosts.retain(|host| seen.insert(*host));
        let at = table.place_of(role.name());
        match need {
            // Another engine may have the role: what this one has no use for it leaves alone.
            None => continue,
            Some(need) if hosts.len() < need.least => {
                let message = format!("{} needs {} hosts as {}", schema.name, need.least, role.name());
                problems.add(at, message);
            }
            Some(need) if hosts.len() > need.most => {
                let message =
                    format!("{} takes {} as {}, not {}", schema.name, need.most, role.name(), hosts.len());
                problems.add(at, message);
            }
            Some(_) => place.push((role, hosts)),
        }
    }
    Some(place)
}

/// Options of the service's own engine, defaults filled in; those of other engines are checked where they are known, and left.
fn read_options(reader: &Reader<'_>, schema: &'static SystemSchema) -> Option<Values> {
    let problems = reader.problems();
    static NONE: Table = Table { entries: Vec::new() };
    let mut own = (&NONE, reader.place_of("name"));
    if let Some(node) = reader.node("set") {
        let Data::Table(engines) = &node.data else {
            problems.add(
                node.at,
                format!("`set`: expected set.ENGINE = {{ option = value }}, found {}", node.what()),
            );
            return None;
        };
        for entry in &engines.entries {
            let options = engine_options(reader, entry.key.as_str(), entry.key_at, &entry.node)?;
            if entry.key == schema.name {
                own = (options, entry.node.at);
            }
        }
    }
    let what = format!("`set.{}`", schema.name);
    let mut path = reader.path_of("set");
    path.push(Hop::Key(schema.name.to_owned()));
    let reader = Reader::new(reader.context, own.0, own.1, what, "", schema.options, &[], path);
    let values =
        schema.options.iter().filter_map(|param| Some((param.name.to_owned(), reader.value(param.name)?)));
    Some(Values(values.collect()))
}

fn engine_options<'a>(reader: &Reader<'_>, engine: &str, at: Place, node: &'a Node) -> Option<&'a Table> {
    let problems = reader.problems();
    if let Err(text) = problems.language.systems.find(engine) {
        let names = problems.language.systems.names();
        problems.add_helped(at, text, suggestion(engine, names.iter().map(String::as_str)));
        return None;
    }
    match &node.data {
        Data::Table(table) => Some(table),
        _ => {
            let message = format!("`set.{engine}`: expected {{ option = value }}, found {}", node.what());
            problems.add(node.at, message);
            None
        }
    }
}

fn read_content(table: &Reader<'_>) -> Option<Content> {
    let problems = table.problems();
    let (path, files, size) = (table.text("path")?, table.count("files")?, table.size("size")?);
    let at = table.place_of("path");
    if !is_plain_path(&path, false) {
        problems.add_help(
            at,
            format!("`path` {:?} is no path below the service's own", shortened(&path)),
            "like \"store/f-{n}\"",
        );
        return None;
    }
    if files > 1 && !path.contains("{n}") {
        problems.add(at, format!("{files} files need a path with {{n}}, the file's number from 0"));
        return None;
    }
    Some(Content { path, files, size_bytes: size.0 })
}

/// Words of letters, digits and `._-` with slashes between: nothing that leads upwards, or that a configuration file could take for
/// something else.
fn is_plain_path(path: &str, absolute: bool) -> bool {
    let below = match path.strip_prefix('/') {
        Some(rest) if absolute => rest,
        None if !absolute => path,
        _ => return false,
    };
    let plain = |word: &str| {
        let word = word.replace("{n}", "0");
        !word.is_empty()
            && word != "."
            && word != ".."
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    };
    path.len() <= 200 && below.split('/').all(plain)
}

/// Puts services in the place of their names in a step's targets. Returns the services by name; `None` (and a problem) for a target on
/// one that is not there, or not mounted where the step loads from.
pub(super) fn place_targets(
    reader: &Reader<'_>,
    params: &[Param],
    values: &mut Values,
    services: &[Service],
    (hosts, topology): (&[usize], Option<&Topology>),
) -> Option<Vec<String>> {
    let problems = reader.problems();
    let mut named = Vec::new();
    for param in params.iter().filter(|param| param.kind == Kind::Target) {
        let Some(Value::Text(target)) = values.0.get(param.name) else { continue };
        let Some(name) = service_of(target) else {
            if let Some((host, target)) = topology.and_then(|all| at_host(target, all)) {
                let theirs = services.iter().filter(|service| service.hosts().any(|own| own == host));
                theirs.for_each(|service| name_with_origins(&mut named, service));
                values.0.insert(param.name.to_owned(), Value::Text(target));
            }
            continue;
        };
        let (key, at) = (param.name, reader.place_of(param.name));
        let Some(service) = services.iter().find(|service| service.name == name) else {
            let names = services.iter().map(|service| service.name.as_str());
            let message = format!("`{key}`: no service is called {:?}", shortened(name));
            problems.add_helped(at, message, suggestion(name, names));
            return None;
        };
        let clients = service.hosts_as(Role::Client);
        if service.mount.is_some() && !hosts.iter().all(|host| clients.contains(host)) {
            let message = format!(
                "`{key}`: service {name} is mounted on its clients, and the step loads from other hosts"
            );
            problems.add_help(at, message, "name the step's hosts as `client` in the service's `place`");
            return None;
        }
        let placed = placed(target, &service.at);
        name_with_origins(&mut named, service);
        values.0.insert(key.to_owned(), Value::Text(placed));
    }
    Some(named)
}

/// What is loaded loads those from which it gets what it does not have.
fn name_with_origins(named: &mut Vec<String>, service: &Service) {
    let behind = service.origin.iter().flat_map(|origin| &origin.services);
    for name in std::iter::once(&service.name).chain(behind) {
        if !named.contains(name) {
            named.push(name.clone());
        }
    }
}

/// The services that steps need, in the order of the file; all where there are no steps.
pub(super) fn used(mut services: Vec<Service>, steps: &[Step], root: &Table) -> Vec<Service> {
    if root.get("step").is_some() {
        services.retain(|service| steps.iter().any(|step| step.services.contains(&service.name)));
    }
    services
}

/// The service's name in `service:NAME/PATH`.
fn service_of(target: &str) -> Option<&str> {
    let rest = target.strip_prefix(SERVICE_TARGET)?;
    Some(rest.split(['/', '?']).next().unwrap_or(rest))
}

/// A host of the lab by index that a URL names, and the URL with its address.
fn at_host(target: &str, topology: &Topology) -> Option<(usize, String)> {
    let (scheme, rest) = target.split_once("://")?;
    let (name, behind) = rest.split_at(rest.find(['/', ':', '?']).unwrap_or(rest.len()));
    let host = topology.hosts.iter().position(|host| host.name == name)?;
    Some((host, format!("{scheme}://{}{behind}", Topology::ipv4(host))))
}

/// A target on a service that is at `at`.
fn placed(target: &str, at: &str) -> String {
    let rest = target.strip_prefix(SERVICE_TARGET).unwrap_or(target);
    let path = rest.trim_start_matches(|letter| letter != '/' && letter != '?').trim_start_matches('/');
    let (at, own) = at.split_once('?').unwrap_or((at, ""));
    let at = at.trim_end_matches('/');
    // XRootD's absolute paths begin with a second slash.
    let is_root = at.strip_prefix("root://").is_some_and(|authority| !authority.contains('/'));
    let (path, said) = path.split_once('?').unwrap_or((path, ""));
    let options = [own, said].into_iter().filter(|options| !options.is_empty()).collect::<Vec<_>>().join("&");
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{at}{}{path}{mark}{options}", if is_root { "//" } else { "/" })
}

/// A program that starts no systems.
#[derive(Debug)]
pub struct NoSystems;

impl Systems for NoSystems {
    fn find(&self, name: &str) -> Result<&'static SystemSchema, String> {
        Err(format!("no system is called {:?}", shortened(name)))
    }
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
    fn address(&self, _service: &Service, _topology: &Topology) -> Result<String, String> {
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_on_a_service_is_below_where_it_is() {
        assert_eq!(placed("service:a/store/f?x=1", "root://s-0:1094"), "root://s-0:1094//store/f?x=1");
        assert_eq!(placed("service:b/store", "/data"), "/data/store");
        assert_eq!(placed("service:c/x", "https://h:443/base/"), "https://h:443/base/x");
        assert_eq!(placed("service:d/f", "root://s:1094//store"), "root://s:1094//store/f");
        assert_eq!(placed("service:a?x=1", "/data"), "/data/?x=1");
        assert_eq!(
            placed("service:e/k?p=1", "s3://weir?endpoint=http://h:7"),
            "s3://weir/k?endpoint=http://h:7&p=1"
        );
        assert_eq!((service_of("service:a/b"), service_of("/data")), (Some("a"), None));
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_none() {
        for bad in ["", "/a", "../a", "a/../b", "a//b", "a b", "a;b", "a/", "ä"] {
            assert!(!is_plain_path(bad, false), "{bad:?}");
        }
        assert!(is_plain_path("store/f-{n}.root", false) && is_plain_path("/deisa/rzg", true));
        assert!(!is_plain_path("/", true) && !is_plain_path("deisa", true));
    }
}
