//! What is written down of a named lab.

use super::{FOLDER, LabName, is_name};
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use weir_sys::process::{self, start_ticks};

pub const SCHEMA: &str = "weir.lab/2";
/// `up` and `down` take at most a few seconds each.
const LOCK_WITHIN: Duration = Duration::from_secs(30);

/// A process, told from later ones with its number by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub pid: u32,
    pub start_ticks: u64,
}

impl Owner {
    /// `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Owner> {
        Some(Owner { pid, start_ticks: start_ticks(pid)? })
    }
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
    pub fn kill(&self) {
        if self.is_alive() {
            process::signal(self.pid, process::Signal::Kill);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    pub name: String,
    pub address: Ipv4Addr,
    pub address6: Ipv6Addr,
    /// On the auxiliary network, where there is one.
    #[serde(default)]
    pub auxiliary: Option<AuxiliaryState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuxiliaryState {
    pub address: Ipv4Addr,
    pub address6: Ipv6Addr,
}

/// `lab.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub schema: String,
    pub name: String,
    /// The user who asked for it.
    pub owner_uid: u32,
    /// The scenario it was made from, as given.
    pub file: String,
    /// The `lab up` that makes it; `None` once it is up.
    pub builder: Option<Owner>,
    pub fabric: Option<Owner>,
    pub hosts: Vec<HostState>,
}

impl State {
    /// A lab is dead when its fabric is gone, or never came because the `lab up` that was to start it is gone.
    pub fn is_dead(&self) -> bool {
        match (&self.builder, &self.fabric) {
            (Some(builder), _) => !builder.is_alive(),
            (None, Some(fabric)) => !fabric.is_alive(),
            (None, None) => true,
        }
    }
    pub fn is_up(&self) -> bool {
        self.builder.is_none() && !self.is_dead()
    }

    /// Errors: it is dead, or not ready yet; the text says what to do.
    pub(super) fn must_be_up(&self) -> Result<(), LabError> {
        let name = &self.name;
        if self.is_dead() {
            return Err(LabError::Usage(format!(
                "lab {name} is dead: its fabric is gone; `weir lab down {name}` removes the rest"
            )));
        }
        if !self.is_up() {
            return Err(LabError::Usage(format!("lab {name} is still being made; try again when it is up")));
        }
        Ok(())
    }

    /// Replaces what is written in one step, so that a reader, or we after a crash, never see half of it.
    pub(super) fn write(&self, name: &LabName) -> Result<(), LabError> {
        let path = name.state_file();
        let failed = || LabError::state(format!("writing {}", path.display()));
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from).map_err(failed())?;
        let beside = path.with_extension("json.new");
        fs::write(&beside, text + "\n").map_err(failed())?;
        fs::rename(&beside, &path).map_err(failed())
    }

    /// `None` if there is no such lab. One whose file cannot be understood counts as a dead one without hosts.
    pub(super) fn read(name: &LabName) -> Result<Option<State>, LabError> {
        let path = name.state_file();
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).unwrap_or_else(|_| State::unknown(name)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.folder().exists() => {
                Ok(Some(State::unknown(name)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::state(format!("reading {}", path.display()))(error)),
        }
    }

    fn unknown(name: &LabName) -> State {
        State {
            schema: SCHEMA.to_owned(),
            name: name.as_str().to_owned(),
            owner_uid: 0,
            file: String::new(),
            builder: None,
            fabric: None,
            hosts: Vec::new(),
        }
    }

    /// A lab that is there; the error lists those that are.
    pub(super) fn find(name: &LabName) -> Result<State, LabError> {
        if let Some(state) = State::read(name)? {
            return Ok(state);
        }
        let known: Vec<String> = list()?.into_iter().map(|state| state.name).collect();
        let known = match known.as_slice() {
            [] => "no lab is up".to_owned(),
            some => format!("there are: {}", some.join(", ")),
        };
        Err(LabError::Usage(format!("there is no lab {:?}; {known}", name.as_str())))
    }
}

/// All labs of this machine, dead ones too, by name.
pub fn list() -> Result<Vec<State>, LabError> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LabError::state(format!("listing {FOLDER}"))(error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_name(name))
        .collect();
    names.sort_unstable();
    let mut states = Vec::new();
    for name in names {
        states.extend(State::read(&LabName::new(&name)?)?);
    }
    Ok(states)
}

/// Held while labs are made or taken down; the kernel lets it go with the process.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take() -> Result<Lock, LabError> {
        let path = Path::new(FOLDER).with_extension("lock");
        let failed = || LabError::state(format!("locking {}", path.display()));
        fs::create_dir_all(FOLDER).map_err(failed())?;
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed())?;
        let until = Instant::now() + LOCK_WITHIN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    return Err(LabError::Usage(format!(
                        "another `weir lab` command has held {} for {} s",
                        path.display(),
                        LOCK_WITHIN.as_secs()
                    )));
                }
                Err(fs::TryLockError::Error(error)) => return Err(failed()(error)),
            }
        }
    }
}
