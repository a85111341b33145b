//! `weir lab down`.

use super::state::{Lock, Owner, State, list};
use super::{LabName, NAMESPACES};
use crate::error::LabError;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use weir_sys::netns::{Identity, identity_at, processes_in, unmount_named};
use weir_sys::process::{Signal, User, signal, with_descendants};

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
    end_processes(name, identities)?;
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

/// What runs in a lab: all in its namespaces, and what such a process started since that has moved into a namespace of its own,
/// as browsers do with the parts that they shut in.
struct Inmates {
    namespaces: Vec<Identity>,
    /// Seen before; found again although the process that started them may be gone.
    followed: Vec<Owner>,
}

impl Inmates {
    /// All of them but ourselves: whoever calls us from inside the lab is ended with it, ourselves last, by returning.
    fn alive(&mut self) -> Result<Vec<u32>, LabError> {
        let failed = || LabError::state("looking through /proc");
        let mut found = processes_in(&self.namespaces).map_err(failed())?;
        self.followed.retain(Owner::is_alive);
        found.extend(self.followed.iter().map(|process| process.pid));
        let mut all = with_descendants(&found).map_err(failed())?;
        all.retain(|process| *process != std::process::id());
        for process in &all {
            let known = found.contains(process);
            self.followed.extend(Owner::of(*process).filter(|_| !known));
        }
        Ok(all)
    }
}

fn end_processes(name: &LabName, namespaces: Vec<Identity>) -> Result<(), LabError> {
    if namespaces.is_empty() {
        return Ok(());
    }
    let mut inmates = Inmates { namespaces, followed: Vec::new() };
    let send = |inmates: &mut Inmates, which: Signal| -> Result<bool, LabError> {
        let sent = inmates.alive()?.into_iter().filter(|process| signal(*process, which)).count();
        Ok(sent == 0)
    };
    if send(&mut inmates, Signal::Terminate)? {
        return Ok(());
    }
    if within(GRACE, || Ok(inmates.alive()?.is_empty()))? {
        return Ok(());
    }
    // Again and again: a process may have started another one meanwhile.
    if within(KILLED_WITHIN, || send(&mut inmates, Signal::Kill))? {
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
