//! What is written down of a named lab.

use super::{LabName, Place, is_name};
use crate::error::LabError;
use crate::protocol::SUBCOMMAND;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};
use weir_sys::netns::Identity;
use weir_sys::process::{Signal, hold, runs_subcommand, start_ticks};
use weir_sys::trusted;

pub const SCHEMA: &str = "weir.lab/2";
/// `up` and `down` take at most a few seconds each.
const LOCK_WITHIN: Duration = Duration::from_secs(30);
/// A lab of 100,000 hosts needs less.
const STATE_BYTES_MAX: u64 = 64 << 20;

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
    /// Kills it if it is a fabric. False if it lives and is none: then it is left alone.
    pub(super) fn kill_fabric(&self) -> bool {
        // Held first, so that what is looked at and what is killed are one process.
        let Some(process) = hold(self.pid).filter(|_| self.is_alive()) else { return true };
        let fabric = runs_subcommand(self.pid, SUBCOMMAND);
        if fabric {
            process.signal(Signal::Kill);
        }
        fabric || !self.is_alive()
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
    /// Device and inode of each host's namespace. The kernel may give the numbers away again once the fabric, which holds them,
    /// is gone.
    #[serde(default)]
    pub namespaces: Vec<[u64; 2]>,
    /// First processes of hosts on which services live, by the host's name.
    #[serde(default)]
    pub holders: BTreeMap<String, Owner>,
    #[serde(default)]
    pub services: Vec<ServiceState>,
}

/// A service that is up in the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    pub name: String,
    pub system: String,
    /// The URL, or the folder on its clients, at which programs in the lab find it.
    pub at: String,
    /// Whose logs are where, by host.
    pub logs: BTreeMap<String, String>,
}

impl State {
    /// The hosts' namespaces, as long as nothing else can have their numbers.
    pub(super) fn held_namespaces(&self) -> Vec<Identity> {
        let held = self.fabric.is_some_and(|fabric| fabric.is_alive());
        let known = self.namespaces.iter().filter(|_| held);
        known.map(|[device, inode]| Identity { device: *device, inode: *inode }).collect()
    }

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
        let _ = fs::remove_file(&beside); // of one that was killed
        trusted::write_new(&beside, 0o644, (text + "\n").as_bytes()).map_err(failed())?;
        fs::rename(&beside, &path).map_err(failed())
    }

    /// `None` if there is no such lab. One whose file cannot be understood counts as a dead one without hosts. Errors: others may
    /// have written what is there.
    pub(super) fn read(name: &LabName) -> Result<Option<State>, LabError> {
        let path = name.state_file();
        let failed = || LabError::state(format!("lab {}", name.as_str()));
        match name.check_folder() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed()(error)),
        }
        match trusted::read(&path, STATE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).unwrap_or_else(|_| State::unknown(name)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(State::unknown(name))),
            Err(error) => Err(failed()(error)),
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
            namespaces: Vec::new(),
            holders: BTreeMap::new(),
            services: Vec::new(),
        }
    }

    /// A lab that is there; the error lists those that are.
    pub(super) fn find(name: &LabName) -> Result<State, LabError> {
        if let Some(state) = State::read(name)? {
            return Ok(state);
        }
        let known: Vec<String> = list(&name.place)?.states.into_iter().map(|state| state.name).collect();
        let known = match known.as_slice() {
            [] => "no lab is up".to_owned(),
            some => format!("there are: {}", some.join(", ")),
        };
        Err(LabError::Usage(format!("there is no lab {:?}; {known}", name.as_str())))
    }
}

/// What labs there are.
pub struct Listed {
    /// Dead ones too, by name.
    pub states: Vec<State>,
    /// Why some are not among them.
    pub problems: Vec<LabError>,
}

/// All labs of a place.
pub fn list(place: &Place) -> Result<Listed, LabError> {
    let folder = place.labs();
    let mut listed = Listed { states: Vec::new(), problems: Vec::new() };
    let entries = match place.check().and_then(|()| fs::read_dir(&folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listed),
        Err(error) => return Err(LabError::state(format!("listing {}", folder.display()))(error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_name(name))
        .collect();
    names.sort_unstable();
    for name in names {
        match State::read(&LabName::new(place, &name)?) {
            Ok(state) => listed.states.extend(state),
            Err(problem) => listed.problems.push(problem),
        }
    }
    Ok(listed)
}

/// Held while labs are made or taken down; the kernel lets it go with the process.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(place: &Place) -> Result<Lock, LabError> {
        Lock::take_within(place, LOCK_WITHIN)
    }

    fn take_within(place: &Place, limit: Duration) -> Result<Lock, LabError> {
        let path = place.lock();
        let failed = || LabError::state(format!("locking {}", path.display()));
        place.ensure().map_err(failed())?;
        let until = Instant::now() + limit;
        loop {
            // Opened again each time: a lock file that others could open is replaced.
            let file = trusted::lock_file(&path).map_err(failed())?;
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    let holder = trusted::lock_holder(&file);
                    let holder = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                    return Err(LabError::Usage(format!(
                        "{holder} has held {} for {} s, as `weir lab up` and `down` do while they work; end it, or wait",
                        path.display(),
                        limit.as_secs_f64()
                    )));
                }
                Err(fs::TryLockError::Error(error)) => return Err(failed()(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: lab.md#lab-15
    #[test]
    fn who_waits_for_the_lock_too_long_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::at(folder.path());
        let held = Lock::take(&place).unwrap();
        let refused = Lock::take_within(&place, Duration::from_millis(20)).err().unwrap().to_string();
        assert!(refused.starts_with(&format!("process {} has held", std::process::id())), "{refused}");
        drop(held);
        Lock::take_within(&place, Duration::ZERO).unwrap();
    }

    // Spec: lab.md#lab-28
    #[test]
    fn a_process_that_is_no_fabric_is_not_killed_whatever_the_state_says() {
        let mut bystander = weir_sys::process::Spawn::new("/bin/sleep").argument("1000").start().unwrap();
        let claimed = Owner::of(bystander.id()).unwrap();
        assert!(!claimed.kill_fabric());
        assert_eq!(bystander.wait(Duration::from_millis(20)), None);
        // Of a process that is gone nothing is left to kill.
        assert!(Owner { start_ticks: claimed.start_ticks + 1, ..claimed }.kill_fabric());
        assert_eq!(bystander.wait(Duration::from_millis(20)), None);
    }
}
