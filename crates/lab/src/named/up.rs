//! `weir lab up`.

use super::LabName;
use super::down;
use super::state::{AuxiliaryState, HostState, Lock, Owner, SCHEMA, ServiceState, State};
use crate::error::LabError;
use crate::lab::{Lab, Options};
use crate::names::names;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use weir_core::topology::Topology;
use weir_sys::netns::{identity, mount_named};
use weir_sys::process::{ErrorsTo, User};
use weir_sys::trusted;

/// A lab that is up.
pub struct Up {
    pub state: State,
    /// What the machine forbade, for people.
    pub notes: Vec<String>,
}

/// Brings to life what lives on a lab's hosts; the folder is for what it keeps.
pub type Furnish<'a> = &'a mut dyn FnMut(&mut Lab, &Path) -> Result<Vec<ServiceState>, LabError>;

/// Makes a lab that stays until `down`. `file` is the scenario's name, for `list`.
///
/// Errors: the name is taken, or the lab cannot be built; nothing is left behind then.
pub fn up(
    name: &LabName,
    topology: &Topology,
    options: &Options,
    file: &str,
    furnish: Furnish<'_>,
) -> Result<Up, LabError> {
    let _lock = Lock::take(&name.place)?;
    if let Some(state) = State::read(name)? {
        let name = name.as_str();
        return Err(LabError::Usage(match state.is_dead() {
            true => {
                format!("what is left of a dead lab is called {name} too; `weir lab down --dead` removes it")
            }
            false => format!("a lab called {name} is up; `weir lab down {name}` takes it down"),
        }));
    }
    let folder = name.folder();
    trusted::make_folder(&folder).map_err(LabError::state(format!("making {}", folder.display())))?;
    make(name, topology, options, file, furnish).inspect_err(|_| {
        // The first problem is the one to report; what this cannot undo, `down --dead` finds.
        down::remove(name);
    })
}

fn make(
    name: &LabName,
    topology: &Topology,
    options: &Options,
    file: &str,
    furnish: Furnish<'_>,
) -> Result<Up, LabError> {
    let host_state = |(index, host): (usize, &weir_core::topology::Host)| HostState {
        name: host.name.clone(),
        address: Topology::ipv4(index),
        address6: Topology::ipv6(index),
        auxiliary: topology.auxiliary.map(|_| AuxiliaryState {
            address: Topology::auxiliary_ipv4(index),
            address6: Topology::auxiliary_ipv6(index),
        }),
    };
    let mut state = State {
        schema: SCHEMA.to_owned(),
        name: name.as_str().to_owned(),
        owner_uid: User::invoking().uid,
        file: file.to_owned(),
        builder: Owner::of(std::process::id()),
        fabric: None,
        hosts: topology.hosts.iter().enumerate().map(host_state).collect(),
        namespaces: Vec::new(),
        holders: BTreeMap::new(),
        services: Vec::new(),
    };
    let socket = name.socket();
    let listener =
        listen(&socket).map_err(LabError::state(format!("making the socket {}", socket.display())))?;
    // Nobody else could reach the socket before it had its mode.
    let namespaces = name.namespaces();
    trusted::publish(&name.folder())
        .and_then(|()| trusted::ensure_folder(&namespaces))
        .map_err(LabError::state(format!("making {}", namespaces.display())))?;
    state.write(name)?;
    write_names(name, topology)?;
    let log = name.folder().join("fabric.log");
    let log =
        trusted::write_new(&log, 0o644, b"").map_err(LabError::state(format!("making {}", log.display())))?;
    let mut lab =
        Lab::start_with(topology, options, &name.groups(), ErrorsTo::File(log), Some(listener.as_fd()))?;
    let identities = (0..topology.hosts.len()).map(|index| identity(lab.namespace(index)));
    let identities = identities.collect::<io::Result<Vec<_>>>();
    let identities = identities.map_err(LabError::state("reading what tells the namespaces apart"))?;
    // Written before the fabric can outlive us, so that it is found whenever we are killed.
    state.fabric = Owner::of(lab.fabric_pid());
    state.namespaces = identities.iter().map(|known| [known.device, known.inode]).collect();
    state.write(name)?;
    for (index, host) in topology.hosts.iter().enumerate() {
        let path = name.namespace(&host.name);
        mount_named(lab.namespace(index), &path)
            .map_err(LabError::state(format!("naming the namespace {}", path.display())))?;
    }
    // Only now: by their names the namespaces, and all that runs in them, are found whenever we are killed.
    state.services = furnish(&mut lab, &name.data())?;
    let holder = |(host, id): (&str, u32)| Some((host.to_owned(), Owner::of(id)?));
    state.holders = lab.holder_ids().filter_map(holder).collect();
    let mut notes = lab.notes().to_vec();
    if let Some(links) = name.place.links()
        && let Err(problem) = link(name, &state.hosts, links)
    {
        notes.push(format!("`ip netns` does not know all hosts: {problem}"));
    }
    lab.detach()?;
    state.builder = None;
    state.write(name)?;
    Ok(Up { state, notes })
}

/// A socket that only root, or who made it, can connect to; in a folder that nobody else can enter yet.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Gives hosts names for `ip netns`. Links, not mounts: the first `ip netns add` of the machine mounts over the folder, and a
/// mount in it would be hidden, and busy for ever.
fn link(name: &LabName, hosts: &[HostState], links: &Path) -> io::Result<()> {
    match trusted::ensure_folder(links) {
        // Whoever may write there: a link says where our folder is, and nothing of what is there is believed.
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        _ => {}
    }
    for host in hosts {
        let path = links.join(format!("{}{}", name.link_prefix(), host.name));
        if path.is_symlink() {
            fs::remove_file(&path)?; // of a lab that went while the folder was hidden
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        symlink(name.namespace(&host.name), &path).map_err(named)?;
    }
    Ok(())
}

fn write_names(name: &LabName, topology: &Topology) -> Result<(), LabError> {
    let write = |path: &Path, text: &str| {
        let failed = LabError::state(format!("writing {}", path.display()));
        trusted::write_new(path, 0o644, text.as_bytes()).map(drop).map_err(failed)
    };
    write(&name.hosts_file(), &names(topology))?;
    // No servers: a name that is no host's fails at once instead of after a time-out into a network that is not there.
    write(&name.resolv_file(), "")
}
