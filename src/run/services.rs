//! Services of a run or of a named lab: from a plan to processes in the lab's hosts, and what is kept of them.

use crate::run::faults::ServiceRole;
use anyhow::{Context, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use weir_core::fault::DiskTrouble;
use weir_core::scenario::{Configuration, Role, Service, Step};
use weir_core::topology::Topology;
use weir_disk::model::Settings;
use weir_disk::{DiskProcess, Mounted};
use weir_lab::Lab;
use weir_lab::data::SHARED_NAME;
use weir_service::{Daemon, Folder, Ground, Library, Running, Setting, prepare, shares_disks};
use weir_storage::content::Content;
use weir_sys::directory::Directory;
use weir_telemetry::service::Watched;
use weir_telemetry::transfers::TransferList;

/// In a host's folder on the machine, what its disks keep. The host does not see it: it would go around the disk.
const DISKS_FOLDER: &str = "disks";
/// Of each log this much, its end, is kept with the results.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// What daemons write themselves: content, sockets. Nothing in it is followed, and it is not kept.
const OF_DAEMONS: [&str; 2] = ["data", "run"];

/// Hosts by index on which services of these configurations live.
pub fn places<'a>(configurations: impl IntoIterator<Item = &'a Configuration>) -> BTreeSet<usize> {
    let services = configurations.into_iter().flat_map(|configuration| &configuration.services);
    services.flat_map(Service::hosts).collect()
}

/// Services that a trial of this configuration begins with empty caches: those of which no step says that they are kept.
pub fn cold(configuration: &Configuration) -> BTreeSet<&str> {
    let keeps = |step: &&Step| step.values.text(weir_storage::CACHES_KEY).as_deref() == Some("kept");
    let kept: BTreeSet<&str> = configuration
        .steps
        .iter()
        .filter(keeps)
        .flat_map(|step| &step.services)
        .map(String::as_str)
        .collect();
    let names = configuration.services.iter().map(|service| service.name.as_str());
    names.filter(|name| !kept.contains(name)).collect()
}

/// What is up of services.
#[derive(Default)]
pub struct Up {
    /// Ended before their disks are.
    pub running: Vec<Running>,
    /// The process of their disks, where they have some.
    pub disks: Option<DiskProcess>,
    /// What the disks are called, in the order of the process's page.
    pub disk_names: Vec<DiskName>,
    /// Something was wrong with a disk, and may still be.
    is_troubled: bool,
}

/// What is of a service is called so, and on.
pub const SERVICE_ENTITY: &str = "service.";

/// A disk of a service's server.
pub struct DiskName {
    service: String,
    host: String,
    number: u32,
    /// As records have it.
    pub entity: String,
}

impl Up {
    /// Daemons on a host, of one service and role or of all.
    pub fn daemons_of<'a>(
        &'a mut self,
        host: usize,
        of: Option<&'a ServiceRole>,
    ) -> impl Iterator<Item = &'a mut Daemon> {
        self.running.iter_mut().flat_map(move |running| running.daemons_of(host, of))
    }

    /// Its daemons, for whoever counts what they do.
    pub fn watched(&self) -> Vec<Watched> {
        let watched = |running: &Running, daemon: &Daemon| Watched {
            entity: format!("{SERVICE_ENTITY}{}.{}.{}", running.name, daemon.name, daemon.host_name),
            processes: daemon.processes(),
            counters: daemon.counters.clone(),
            transfers: daemon.transfers.clone(),
        };
        let of_service = |running: &'_ Running| -> Vec<Watched> {
            running.daemons.iter().map(|daemon| watched(running, daemon)).collect()
        };
        self.running.iter().flat_map(of_service).collect()
    }

    /// Has something be wrong with the disks of a service on a host, or the one of that number, or nothing any more.
    ///
    /// Errors: for people.
    pub fn trouble(
        &mut self,
        service: &str,
        host: &str,
        number: Option<u32>,
        trouble: DiskTrouble,
    ) -> Result<(), String> {
        let is_meant = |name: &DiskName| {
            name.service == service && name.host == host && number.is_none_or(|number| number == name.number)
        };
        let meant = self.disk_names.iter().enumerate().filter(|(_, name)| is_meant(name));
        let meant: Vec<usize> = meant.map(|(index, _)| index).collect();
        let (false, Some(disks)) = (meant.is_empty(), &mut self.disks) else {
            return Err("there is no such disk".to_owned());
        };
        self.is_troubled = true;
        meant.into_iter().try_for_each(|index| disks.set_trouble(index, trouble))
    }

    /// Forgets what services of these names have cached: clients mount them anew, and disks begin cold.
    ///
    /// Errors: a mount that does not come back, for people.
    pub fn reset_caches(&mut self, lab: &Lab, names: &BTreeSet<&str>) -> Result<(), String> {
        for running in self.running.iter_mut().filter(|running| names.contains(running.name.as_str())) {
            running
                .begin_cold(|host| lab.holder(host), || weir_sys::signal::interrupts() > 0)
                .map_err(|error| format!("service {}: {error}", running.name))?;
        }
        match &mut self.disks {
            Some(disks) if !names.is_empty() => disks.forget(),
            _ => Ok(()),
        }
    }

    /// Has all disks be well again.
    pub fn mend_disks(&mut self) -> Result<(), String> {
        if let (true, Some(disks)) = (self.is_troubled, &mut self.disks) {
            for index in 0..self.disk_names.len() {
                disks.set_trouble(index, DiskTrouble::default())?;
            }
            self.is_troubled = false;
        }
        Ok(())
    }

    /// Lets all of it live on without this process.
    pub fn release(self) {
        drop(self.running); // those of a lab that outlives us are let go so
        if let Some(disks) = self.disks {
            disks.release();
        }
    }
}

/// Brings services up in a lab; folders of what they keep are in `of_lab`.
///
/// Errors: the first that does not work, named with the last lines of its log. What was up by then is taken down.
pub fn start(
    lab: &mut Lab,
    topology: &Topology,
    services: &[Service],
    library: &Library,
    of_lab: &Path,
) -> anyhow::Result<Up> {
    let mut sharing = BTreeSet::new();
    for service in services.iter().filter(|service| !service.system.is_empty()) {
        if shares_disks(service, library.recipe(&service.system)?)? {
            sharing.insert(service.name.as_str());
        }
    }
    let shared = Folder { outside: of_lab.join(SHARED_NAME), inside: PathBuf::from(weir_lab::SHARED) };
    let hosts: BTreeSet<usize> = services.iter().flat_map(Service::hosts).collect();
    for host in &hosts {
        lab.hold(*host, of_lab)?;
    }
    let outlives_us = lab.outlives_us();
    let ground = |host: &usize| {
        let name = topology.hosts[*host].name.as_str();
        let own = of_lab.join(name);
        let disks = |service: &Service| {
            let shape = service.disk.as_ref()?;
            if sharing.contains(service.name.as_str()) {
                return Some((service.name.clone(), vec![shared.join(&service.name)]));
            }
            let folder = |number| {
                let below = shape.name_on(&service.name, number);
                let outside = own.join(DISKS_FOLDER).join(&below);
                Folder { outside, inside: Path::new(weir_lab::DISKS).join(below) }
            };
            Some((service.name.clone(), (0..shape.count).map(folder).collect()))
        };
        let ground = Ground {
            name,
            address: Topology::ipv4(*host).into(),
            address6: Topology::ipv6(*host).into(),
            holder: lab.holder(*host)?,
            folder: Folder { outside: own.join("data"), inside: PathBuf::from(weir_lab::DATA) },
            disks: services.iter().filter_map(disks).collect(),
        };
        Some((*host, ground))
    };
    let hosts: BTreeMap<usize, Ground<'_>> = hosts.iter().filter_map(ground).collect();
    let interrupted = || weir_sys::signal::interrupts() > 0;
    let filler = vec![lab.exe().display().to_string(), CONTENT_PROCESS.to_owned()];
    let setting = Setting {
        filler,
        hosts: &hosts,
        shared,
        fill: &write_content,
        outlives_us,
        interrupted: &interrupted,
    };
    let mut prepared = Vec::new();
    for service in services.iter().filter(|service| !service.system.is_empty()) {
        prepared.push(prepare(service, library.recipe(&service.system)?, &setting)?);
    }
    let (disk_names, mounted): (Vec<DiskName>, Vec<Mounted<'_>>) =
        disks(services, &hosts, &sharing).into_iter().unzip();
    let mut up = Up { disk_names, ..Up::default() };
    if let Some(first) = hosts.keys().next().filter(|_| !mounted.is_empty()) {
        let started = DiskProcess::start(lab.exe(), &mounted, lab.namespace(*first), outlives_us);
        up.disks = Some(started.map_err(|text| anyhow!(text))?);
    }
    for service in prepared {
        up.running.push(service.start()?);
    }
    Ok(up)
}

/// The disks of services, for each server; those of services that are `sharing` are an array of their own.
fn disks<'a>(
    services: &[Service],
    hosts: &'a BTreeMap<usize, Ground<'a>>,
    sharing: &BTreeSet<&str>,
) -> Vec<(DiskName, Mounted<'a>)> {
    let mut all = Vec::new();
    for service in services {
        let Some(shape) = &service.disk else { continue };
        for ground in service.hosts_as(Role::Server).iter().filter_map(|host| hosts.get(host)) {
            let folders = ground.disks.get(&service.name).into_iter().flatten();
            for (number, folder) in (0..).zip(folders) {
                let mounted = Mounted {
                    holder: ground.holder,
                    at: folder.inside.clone(),
                    folder: folder.outside.clone(),
                    settings: Settings {
                        size_bytes: shape.size_bytes,
                        rate_bytes_per_second: shape.rate.map_or(0, |rate| rate.0 / 8),
                        position_ns: weir_core::time::nanoseconds(shape.position),
                        cache_bytes: shape.cache_bytes,
                        depth: shape.depth,
                    },
                    array: shape.array.clone().or_else(|| {
                        // A name that no scenario can give.
                        sharing.contains(service.name.as_str()).then(|| format!("/{}", service.name))
                    }),
                };
                let entity =
                    format!("{SERVICE_ENTITY}{}.disk.{}", service.name, shape.name_on(ground.name, number));
                let (service, host) = (service.name.clone(), ground.name.to_owned());
                all.push((DiskName { service, host, number, entity }, mounted));
            }
        }
    }
    all
}

/// A new file of the content that reading it verifies.
fn write_content(mut file: File, name: &str, size: u64) -> io::Result<()> {
    let content = Content::of(name);
    let mut block = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < size {
        let bytes = (size - offset).min(block.len() as u64) as usize;
        content.fill(offset, &mut block[..bytes]);
        file.write_all(&block[..bytes])?;
        offset += bytes as u64;
    }
    Ok(())
}

/// Puts content on a mount, within the view of the host that has it: threads of ours never touch what may hang.
const CONTENT_PROCESS: &str = "content-process";

/// Not a command for people: writes a service's content, started by weir itself. Returns the exit status where `subcommand` is it.
pub fn hidden(subcommand: &std::ffi::OsStr) -> Option<i32> {
    (subcommand == CONTENT_PROCESS).then(|| match fill_mount(std::env::args().skip(2)) {
        Ok(()) => 0,
        Err(error) => {
            crate::output::tell(error);
            1
        }
    })
}

fn fill_mount(mut arguments: impl Iterator<Item = String>) -> io::Result<()> {
    let mut next = || arguments.next().ok_or(io::ErrorKind::InvalidInput);
    let path = next()?;
    let mut number = || next()?.parse::<u64>().map_err(io::Error::other);
    let (files, size) = (number()?, number()?);
    for number in 0..files {
        let path = PathBuf::from(path.replace("{n}", &number.to_string()));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let folder = Directory::create(path.parent().unwrap_or(Path::new("/")))?;
        let put = folder.create_new_unsynced(name).and_then(|file| write_content(file, name, size));
        put.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Removes what disks of a lab's hosts kept, once nothing serves it any more.
pub fn remove_disks(of_lab: &Path) {
    for host in fs::read_dir(of_lab).into_iter().flatten().flatten() {
        let _ = fs::remove_dir_all(host.path().join(DISKS_FOLDER)); // goes with the lab's folder at the latest
    }
}

/// Keeps a service's configuration, version and logs with the results: `services/NAME/HOST/ROLE/`; of one that is started again,
/// `services/NAME~2/`.
pub fn keep(running: &Running, results: &Path) -> anyhow::Result<()> {
    let keep = || {
        let all = Directory::open(results)?.folder("services")?;
        let names = (2..).map(|number| format!("{}~{number}", running.name));
        let mut names = std::iter::once(running.name.clone()).chain(names);
        let name = names.find(|name| !all.path().join(name).exists()).unwrap_or_default();
        let folder = all.folder(name)?;
        let mut place: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (host, role) in running.folders.keys().filter_map(|key| key.split_once('/')) {
            place.entry(role).or_default().push(host);
        }
        let (system, version, at) = (&running.system, &running.version, &running.at);
        let tuning = &running.tuning;
        let about = serde_json::json!({"system": system, "version": version, "at": at, "place": place, "tuning": tuning});
        folder.create_new_unsynced("service.json")?.write_all(format!("{about:#}\n").as_bytes())?;
        if !running.transfers.is_empty() {
            let mut out = BufWriter::new(folder.create_new_unsynced("transfers.jsonl")?);
            for (host, transfers) in &running.transfers {
                write_transfers(&mut out, host, &transfers.list())?;
            }
            out.flush()?;
        }
        for (place, from) in &running.folders {
            let mut into = Directory::open(folder.path())?;
            for word in place.split('/') {
                into = into.folder(word)?;
            }
            copy(from, &into)?;
        }
        io::Result::Ok(())
    };
    keep().with_context(|| format!("what service {} logged could not be kept", running.name))
}

/// Copies plain files of a folder and those below it, of each its end.
/// A line for each file that was open on a host, or is, and one for those that were too many.
fn write_transfers(out: &mut impl Write, host: &str, list: &TransferList) -> io::Result<()> {
    for it in &list.all {
        let line = serde_json::json!({
            "host": host,
            "path": it.path,
            "client": it.client,
            "size_bytes": it.size_bytes,
            "read_bytes": it.read_bytes,
            "written_bytes": it.written_bytes,
            "opened_unix_ns": it.opened_ns,
            "closed_unix_ns": it.closed_ns,
        });
        writeln!(out, "{line}")?;
    }
    match list.left_out {
        0 => Ok(()),
        left_out => writeln!(out, "{}", serde_json::json!({"host": host, "left_out": left_out})),
    }
}

fn copy(from: &Path, to: &Directory) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, kind, name) = (entry.path(), entry.file_type()?, entry.file_name());
        let Some(name) = name.to_str().filter(|name| !OF_DAEMONS.contains(name)) else { continue };
        if kind.is_dir() {
            copy(&path, &to.folder(name)?)?;
        } else if kind.is_file() {
            let mut source = File::open(&path)?;
            let length = source.metadata()?.len();
            source.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
            io::copy(&mut source, &mut to.create_new_unsynced(name)?)?;
        }
    }
    Ok(())
}

/// Refuses services whose programs are not there, before anything is started.
pub fn check_installed<'a>(
    library: &Library,
    configurations: impl IntoIterator<Item = &'a Configuration>,
) -> anyhow::Result<()> {
    for service in configurations.into_iter().flat_map(|configuration| &configuration.services) {
        if !service.system.is_empty() {
            let recipe = library.recipe(&service.system)?;
            recipe.check_installed(&service.name).map_err(|error| anyhow!(error))?;
        }
    }
    Ok(())
}
