//! Folders on disk for what services keep: one for a lab, in it one for each host.

use crate::error::LabError;
use crate::named::{Owner, Place};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_sys::{control_group, trusted};

/// What the folder that all hosts share is called in a lab's.
pub const SHARED_NAME: &str = "shared";

/// The folder of a lab that ends with this process, which goes with this value; what a killed process left, `lab down --dead` removes.
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn make() -> Result<RunFolder, LabError> {
        let place = Place::chosen()?;
        let own = Owner::of(std::process::id());
        let Owner { pid, start_ticks } =
            own.ok_or_else(|| LabError::Usage("this process is ending".to_owned()))?;
        let mut number = 0;
        loop {
            let path = place.runs().join(format!("{pid}-{start_ticks}-{number}"));
            let failed = LabError::state(format!("making {}", path.display()));
            match trusted::ensure_folder(&place.runs()).and_then(|()| trusted::make_folder(&path)) {
                Ok(()) => {
                    trusted::publish(&path).map_err(failed)?;
                    return Ok(RunFolder(path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(error)),
            }
        }
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by `lab down --dead`.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a host's folder in a lab's, with what its holder wants in it. One that is there is kept: the host comes back.
pub fn host_folder(of_lab: &Path, host: &str) -> io::Result<PathBuf> {
    let folder = of_lab.join(host);
    for made in [&folder, &folder.join("view"), &folder.join("data"), &shared_folder(&folder)] {
        trusted::ensure_folder(made)?;
    }
    Ok(folder)
}

/// The folder that all hosts of a lab share, from one of theirs. No host is called so: hosts have numbers.
pub(crate) fn shared_folder(of_host: &Path) -> PathBuf {
    of_host.with_file_name(SHARED_NAME)
}

/// Removes folders of labs whose process is gone. Returns how many, and what could not be removed.
pub fn remove_dead_runs(place: &Place) -> (usize, Vec<LabError>) {
    // Without the folder there has been no such lab.
    let entries = fs::read_dir(place.runs()).into_iter().flatten();
    let (mut removed, mut problems) = (0, Vec::new());
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = owner_in(name.to_str().unwrap_or_default().split('-')) else { continue };
        if owner.is_alive() {
            continue;
        }
        match fs::remove_dir_all(entry.path()) {
            Ok(()) => removed += 1,
            Err(error) => {
                problems.push(LabError::state(format!("removing {}", entry.path().display()))(error))
            }
        }
    }
    let is_dead = |name: &str| owner_in(name.split('.').skip(1)).is_some_and(|owner| !owner.is_alive());
    let groups = control_group::remove_all(RUN_GROUPS, is_dead);
    problems.extend(groups.map_err(LabError::state("removing control groups of dead runs")).err());
    (removed, problems)
}

/// Whose a name is: its process and when that began, in that order.
fn owner_in<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<Owner> {
    Some(Owner { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? })
}

/// Control groups of labs that end with their program are called so, and on.
const RUN_GROUPS: &str = "run.";

/// What a lab of this process calls its control groups before their host's name.
pub fn groups_of_run() -> String {
    static LABS: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    let start_ticks = Owner::of(process).map_or(0, |owner| owner.start_ticks);
    format!("{RUN_GROUPS}{process}.{start_ticks}.{}", LABS.fetch_add(1, Ordering::Relaxed))
}
