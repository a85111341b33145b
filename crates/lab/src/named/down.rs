//! `weir lab down`.

use super::state::{Lock, State, list};
use super::{LabName, NAMESPACES};
use crate::error::LabError;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use weir_sys::netns::{Identity, identity_at, processes_in, unmount_named};
use weir_sys::process::{Signal, User, signal};

/// What a program gets between being asked to end and being ended.
const GRACE: Duration = Duration::from_secs(1);
/// How long the kernel may take to carry out a kill.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// Ends every process in the lab's namespaces, the fabric, and takes all traces away.
pub fn down(name: &LabName) -> Result<(), LabError> {
    let _lock = Lock::take()?;
    State::find(name)?;
    remove(name)
}

/// Takes down what is left of labs whose fabric, or whose `lab up`, is gone. Returns their names.
pub fn remove_dead() -> Result<Vec<String>, LabError> {
    remove_where(State::is_dead)
}

/// Takes down all labs of the user who invoked weir. Returns their names.
pub fn remove_all() -> Result<Vec<String>, LabError> {
    let user = User::invoking().uid;
    remove_where(|state| state.owner_uid == user)
}

fn remove_where(wanted: impl Fn(&State) -> bool) -> Result<Vec<String>, LabError> {
    if list()?.is_empty() {
        return Ok(Vec::new()); // also without the rights that taking something down needs
    }
    let _lock = Lock::take()?;
    let mut removed = Vec::new();
    for state in list()?.into_iter().filter(wanted) {
        remove(&LabName::new(&state.name)?)?;
        removed.push(state.name);
    }
    Ok(removed)
}

/// The caller holds the lock.
pub(super) fn remove(name: &LabName) -> Result<(), LabError> {
    let paths = namespaces(name)?;
    // A name that is not (or no more) a mount leads to no namespace, and so to no process.
    let identities: Vec<Identity> = paths.iter().filter_map(|path| identity_at(path).ok()).collect();
    end_processes(name, &identities)?;
    if let Some(fabric) = State::read(name)?.and_then(|state| state.fabric) {
        fabric.kill();
        if !within(KILLED_WITHIN, || Ok(!fabric.is_alive()))? {
            return Err(LabError::Usage(format!(
                "lab {}: the fabric process {} cannot be killed",
                name.as_str(),
                fabric.pid
            )));
        }
    }
    for path in &paths {
        unmount_named(path).map_err(LabError::state(format!("removing {}", path.display())))?;
    }
    let folder = name.folder();
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LabError::state(format!("removing {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

/// The names under `/run/netns` that are the lab's, whatever its state file says.
fn namespaces(name: &LabName) -> Result<Vec<PathBuf>, LabError> {
    let prefix = name.namespace_prefix();
    match fs::read_dir(NAMESPACES) {
        Ok(entries) => Ok(entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LabError::state(format!("listing {NAMESPACES}"))(error)),
    }
}

fn end_processes(name: &LabName, namespaces: &[Identity]) -> Result<(), LabError> {
    if namespaces.is_empty() {
        return Ok(());
    }
    let send = |which: Signal| -> Result<bool, LabError> {
        let inside = processes_in(namespaces).map_err(LabError::state("looking through /proc"))?;
        // Whoever called us from inside the lab is ended with it; ourselves last, by returning.
        let others = inside.into_iter().filter(|process| *process != std::process::id());
        let sent = others.map(|process| signal(process, which)).filter(|sent| *sent).count();
        Ok(sent == 0)
    };
    if send(Signal::Terminate)? {
        return Ok(());
    }
    let empty = || {
        let inside = processes_in(namespaces).map_err(LabError::state("looking through /proc"))?;
        Ok(inside.iter().all(|process| *process == std::process::id()))
    };
    if within(GRACE, empty)? {
        return Ok(());
    }
    // Again and again: a process may have started another one meanwhile.
    if within(KILLED_WITHIN, || send(Signal::Kill))? {
        return Ok(());
    }
    Err(LabError::Usage(format!("lab {}: a process in it cannot be killed", name.as_str())))
}

fn within(limit: Duration, mut holds: impl FnMut() -> Result<bool, LabError>) -> Result<bool, LabError> {
    let until = Instant::now() + limit;
    loop {
        if holds()? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
