//! `weir lab down`.

use super::LabName;
use super::Place;
use super::state::{Lock, Owner, State, list};
use crate::data::remove_dead_runs;
use crate::error::LabError;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use weir_sys::control_group;
use weir_sys::mount::remove_mounts;
use weir_sys::netns::{Identity, identity_at, processes_in};
use weir_sys::process::{Signal, User, signal, with_descendants};

/// What a program gets between being asked to end and being ended.
const GRACE: Duration = Duration::from_secs(1);
/// How long the kernel may take to carry out a kill.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// What came of taking labs down: whatever fails, all the rest is taken down.
#[derive(Default)]
pub struct Down {
    pub names: Vec<String>,
    /// Folders of runs that were killed.
    pub folders: usize,
    pub problems: Vec<LabError>,
}

/// Ends every process in the lab's namespaces, the fabric, and takes all traces away.
pub fn down(name: &LabName) -> Result<Down, LabError> {
    let _lock = Lock::take(&name.place)?;
    State::find(name)?;
    let mut down = Down::default();
    down.remove(name);
    Ok(down)
}

/// Takes down what is left of labs whose fabric, or whose `lab up`, is gone, and what killed runs left on disk.
pub fn down_dead(place: &Place) -> Result<Down, LabError> {
    let mut down = down_where(place, State::is_dead)?;
    let (count, problems) = remove_dead_runs(place);
    down.folders = count;
    down.problems.extend(problems);
    Ok(down)
}

/// Takes down all labs of the user who invoked weir.
pub fn down_all(place: &Place) -> Result<Down, LabError> {
    let user = User::invoking().uid;
    down_where(place, |state| state.owner_uid == user)
}

fn down_where(place: &Place, wanted: impl Fn(&State) -> bool) -> Result<Down, LabError> {
    let mut down = Down::default();
    let before = list(place)?;
    if before.states.is_empty() && before.problems.is_empty() {
        return Ok(down); // also without the rights that taking something down needs
    }
    let _lock = Lock::take(place)?;
    let listed = list(place)?;
    down.problems.extend(listed.problems);
    for state in listed.states.into_iter().filter(wanted) {
        down.remove(&LabName::new(place, &state.name)?);
    }
    Ok(down)
}

impl Down {
    fn remove(&mut self, name: &LabName) {
        let problems = remove(name);
        if problems.is_empty() {
            self.names.push(name.as_str().to_owned());
        }
        self.problems.extend(problems);
    }
}

/// Goes on after what fails, and returns it. The caller holds the lock.
pub(super) fn remove(name: &LabName) -> Vec<LabError> {
    let state = match State::read(name) {
        Ok(state) => state,
        Err(problem) => return vec![problem], // nothing there is to be believed
    };
    let mut problems = Vec::new();
    let paths = entries(&name.namespaces()).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    // A name that is not (or no more) a mount leads to no namespace, and so to no process.
    let mut identities: Vec<Identity> = paths.iter().filter_map(|path| identity_at(path).ok()).collect();
    identities.extend(state.iter().flat_map(State::held_namespaces));
    identities.sort_unstable();
    identities.dedup();
    problems.extend(end_processes(name, identities).err());
    if let Some(fabric) = state.and_then(|state| state.fabric) {
        problems.extend(end_fabric(name, fabric).err());
    }
    let groups = control_group::remove_all(&format!("{}.", name.groups()), |_| true);
    problems.extend(groups.map_err(LabError::state("removing its control groups")).err());
    let all_ended = problems.is_empty();
    for (path, error) in remove_mounts(&paths) {
        problems.push(LabError::state(format!("removing {}", path.display()))(error));
    }
    if let Some(links) = name.place.links() {
        let folder = name.folder();
        let ours = |path: &PathBuf| fs::read_link(path).is_ok_and(|target| target.starts_with(&folder));
        for link in entries(links).unwrap_or_default().iter().filter(|path| ours(path)) {
            let failed = LabError::state(format!("removing {}", link.display()));
            problems.extend(fs::remove_file(link).map_err(failed).err());
        }
    }
    // With what still runs stays what tells of it.
    if all_ended {
        for folder in [name.data(), name.folder()] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    problems.push(LabError::state(format!("removing {}", folder.display()))(error));
                }
                _ => {}
            }
        }
    }
    problems
}

fn end_fabric(name: &LabName, fabric: Owner) -> Result<(), LabError> {
    let (name, pid) = (name.as_str(), fabric.pid);
    if !fabric.kill_fabric() {
        return Err(LabError::Usage(format!(
            "lab {name}: process {pid}, which its state calls its fabric, is none and was left alone"
        )));
    }
    match within(KILLED_WITHIN, || Ok(!fabric.is_alive()))? {
        true => Ok(()),
        false => Err(LabError::Usage(format!("lab {name}: the fabric process {pid} cannot be killed"))),
    }
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &std::path::Path) -> Result<Vec<PathBuf>, LabError> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LabError::state(format!("listing {}", folder.display()))(error)),
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
