//! `weir lab exec`.

use super::LabName;
use super::state::{Owner, State};
use crate::error::LabError;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use weir_sys::control_group;
use weir_sys::holder::Holder;
use weir_sys::mount::enter_private_view;
use weir_sys::netns::{enter_for_good, open};
use weir_sys::process::{User, become_user, end_like, replace_by, run_in_foreground};

/// What to run and as whom.
pub struct Entry<'a> {
    pub host: &'a str,
    pub program: &'a OsString,
    pub arguments: &'a [OsString],
    /// Stay root instead of becoming the user who invoked weir.
    pub root: bool,
}

/// The exit statuses a shell gives for a program that is not there, and one that cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_RUNNABLE: i32 = 126;

/// Replaces the calling process, which must have one thread, by a program on a host of the lab: signals and the exit status
/// are then the program's own. Returns only if that failed: with the status to exit with if the program is at fault.
pub fn exec(name: &LabName, entry: &Entry<'_>) -> Result<(i32, io::Error), LabError> {
    let state = State::find(name)?;
    state.must_be_up()?;
    if !state.hosts.iter().any(|host| host.name == entry.host) {
        let names: Vec<&str> = state.hosts.iter().map(|host| host.name.as_str()).take(20).collect();
        let more = if state.hosts.len() > names.len() { ", …" } else { "" };
        return Err(LabError::Usage(format!(
            "lab {} has no host {:?}; it has {}{more}",
            state.name,
            entry.host,
            names.join(", ")
        )));
    }
    let user = (!entry.root).then(User::invoking);
    let error = match state.holders.get(entry.host) {
        Some(holder) => in_the_host(*holder, entry, user)?,
        None => in_the_network(name, entry, user)?,
    };
    Ok(match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, error),
        // The search reports a folder of PATH that this user may not look into; for a shell that is "not found" too.
        io::ErrorKind::PermissionDenied if !is_on_path(entry.program) => {
            (NOT_FOUND, io::Error::new(io::ErrorKind::NotFound, "not found in PATH"))
        }
        _ => (NOT_RUNNABLE, error),
    })
}

/// On a host with processes, names and files of its own the program is a child: only what is started in there is one of its processes.
fn in_the_host(holder: Owner, entry: &Entry<'_>, user: Option<User>) -> Result<io::Error, LabError> {
    let entering = || LabError::state(format!("entering {}", entry.host));
    let folder = std::env::current_dir();
    let found = Holder::of(holder.pid).map_err(entering())?;
    for group in control_group::of_process(holder.pid) {
        control_group::enter(&group).map_err(entering())?;
    }
    if !holder.is_alive() {
        let gone = io::Error::new(
            io::ErrorKind::NotFound,
            "its first process has ended, and with it all that ran there",
        );
        return Err(entering()(gone));
    }
    found.enter_for_good().map_err(entering())?;
    if let Ok(folder) = folder {
        let _ = std::env::set_current_dir(folder); // where the host has none of that name it begins at its root
    }
    match run_in_foreground(entry.program, entry.arguments, user) {
        Ok(status) => end_like(status),
        Err(error) => Ok(error),
    }
}

fn in_the_network(name: &LabName, entry: &Entry<'_>, user: Option<User>) -> Result<io::Error, LabError> {
    let path = name.namespace(entry.host);
    let namespace = open(&path).map_err(LabError::state(format!("opening {}", path.display())))?;
    enter_for_good(std::os::fd::AsFd::as_fd(&namespace))
        .map_err(LabError::state(format!("entering the network of {}", entry.host)))?;
    drop(namespace);
    control_group::join(&format!("{}.{}", name.groups(), entry.host))
        .map_err(LabError::state(format!("entering the control group of {}", entry.host)))?;
    enter_private_view(&name.hosts_file(), &name.resolv_file())
        .map_err(LabError::state("giving the program the lab's host names"))?;
    if let Some(user) = user {
        become_user(user).map_err(LabError::state("becoming the user who invoked weir"))?;
    }
    Ok(replace_by(entry.program, entry.arguments))
}

/// Whether there is such a file, runnable or not, where the program is looked for.
fn is_on_path(program: &OsString) -> bool {
    if Path::new(program).components().count() > 1 || Path::new(program).is_absolute() {
        return true; // not looked for at all
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
