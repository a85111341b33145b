//! Control groups: what programs together may have of the machine's CPU and memory. Version 1 of the kernel's interface has a tree a
//! controller, version 2 one tree (`cgroups(7)`).

use crate::process::{Signal, signal};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const MOUNTED_AT: &str = "/sys/fs/cgroup";
/// Groups of ours are called so, and on.
const OURS: &str = "weir.";
/// Shares of a core are given in pieces of this time, so that nobody who has some left waits longer.
const PERIOD_US: u64 = 10_000;
/// The kernel gives no smaller pieces.
const QUOTA_US_LEAST: u64 = 1_000;
/// What is left in a group that goes away has this time to end.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

/// What programs may have together; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
}

/// A group that goes away with this value, and with it all that is in it.
#[derive(Debug)]
pub struct ControlGroup {
    folders: Vec<PathBuf>,
    members: Vec<File>,
}

/// Trees of groups: the folder of each, and what it controls; the one of version 2 controls all.
fn trees(root: &Path) -> Vec<(PathBuf, &'static [&'static str])> {
    if root.join("cgroup.controllers").exists() {
        return vec![(root.to_owned(), &["cpu", "memory"])];
    }
    let controllers: [&[&str]; 2] = [&["cpu"], &["memory"]];
    controllers.into_iter().map(|it| (root.join(it[0]), it)).collect()
}

/// What a limit is written to and as: version 1, then version 2.
fn settings(limits: Limits, controller: &str, is_one_tree: bool) -> Vec<(&'static str, String)> {
    match (controller, limits) {
        ("cpu", Limits { cpu_cores: Some(cores), .. }) => {
            let stretch = (QUOTA_US_LEAST as f64 / (cores * PERIOD_US as f64)).max(1.0);
            let period = (PERIOD_US as f64 * stretch).round() as u64;
            let quota = ((cores * period as f64).round() as u64).max(QUOTA_US_LEAST);
            match is_one_tree {
                true => vec![("cpu.max", format!("{quota} {period}"))],
                false => {
                    vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
                }
            }
        }
        ("memory", Limits { memory_bytes: Some(bytes), .. }) => {
            vec![(if is_one_tree { "memory.max" } else { "memory.limit_in_bytes" }, bytes.to_string())]
        }
        _ => Vec::new(),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Written as a whole to a file that is there: the kernel's own.
fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(at(path))
}

impl ControlGroup {
    /// Makes a group of what lies between dots after `weir.` in its name. What is left of one that was called the same goes first.
    ///
    /// Errors: the machine has no such controller, or does not let us.
    pub fn create(name: &str, limits: Limits) -> io::Result<ControlGroup> {
        ControlGroup::create_below(Path::new(MOUNTED_AT), name, limits)
    }

    fn create_below(root: &Path, name: &str, limits: Limits) -> io::Result<ControlGroup> {
        let mut made = ControlGroup { folders: Vec::new(), members: Vec::new() };
        for (tree, controllers) in trees(root) {
            let is_one_tree = controllers.len() > 1;
            let wanted: Vec<_> =
                controllers.iter().flat_map(|it| settings(limits, it, is_one_tree)).collect();
            if wanted.is_empty() {
                continue;
            }
            if is_one_tree {
                put(&tree.join("cgroup.subtree_control"), "+cpu +memory")?;
            }
            let folder = tree.join(format!("{OURS}{name}"));
            if folder.exists() {
                remove(&folder)?;
            }
            fs::create_dir(&folder).map_err(at(&folder))?;
            made.folders.push(folder.clone());
            for (file, text) in wanted {
                put(&folder.join(file), &text)?;
            }
            made.members.push(members(&folder)?);
        }
        Ok(made)
    }

    /// Files that take whoever writes `0` to them into the group.
    pub fn members(&self) -> &[File] {
        &self.members
    }

    /// Lets it stay.
    pub fn release(mut self) {
        self.folders.clear();
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = remove(folder); // what cannot be removed limits nobody, and is found by its name
        }
    }
}

fn members(folder: &Path) -> io::Result<File> {
    let path = folder.join("cgroup.procs");
    OpenOptions::new().write(true).open(&path).map_err(at(&path))
}

/// Removes a group, and ends what is in it.
fn remove(folder: &Path) -> io::Result<()> {
    let until = Instant::now() + EMPTY_WITHIN;
    loop {
        let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for process in inside.lines().filter_map(|line| line.parse().ok()) {
            signal(process, Signal::Kill);
        }
        match fs::remove_dir(folder) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(folder)(error)),
            _ => return Ok(()),
        }
    }
}

/// Folders of groups of ours whose names, after `weir.`, begin so.
fn ours(prefix: &str) -> impl Iterator<Item = PathBuf> {
    let begins = format!("{OURS}{prefix}");
    let entries = trees(Path::new(MOUNTED_AT)).into_iter().filter_map(|(tree, _)| fs::read_dir(tree).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    paths.filter(move |path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins)))
}

/// Removes groups whose names begin so and of whose names, after `weir.`, this is true, and ends what is in them.
///
/// Errors: the first that could not be removed; the others are.
pub fn remove_all(prefix: &str, is_meant: impl Fn(&str) -> bool) -> io::Result<usize> {
    let (mut count, mut problem) = (0, Ok(()));
    for folder in ours(prefix) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_meant(name.trim_start_matches(OURS)) {
            match remove(&folder) {
                Ok(()) => count += 1,
                Err(error) => problem = problem.and(Err(error)),
            }
        }
    }
    problem.map(|()| count)
}

/// Takes the calling process into the group of this name, where there is one.
pub fn join(name: &str) -> io::Result<()> {
    let wanted = format!("{OURS}{name}");
    for folder in ours(name).filter(|folder| folder.ends_with(&wanted)) {
        enter(&members(&folder)?)?;
    }
    Ok(())
}

/// Of the groups that a process is in, those of ours: the files that take others in.
pub fn of_process(process: u32) -> Vec<File> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((_, name)) = line.rsplit_once('/').filter(|(_, name)| name.starts_with(OURS)) else {
            continue;
        };
        // A line for each tree: `NUMBER:CONTROLLERS:PATH`.
        let controllers = line.split(':').nth(1).unwrap_or_default();
        for (tree, own) in trees(Path::new(MOUNTED_AT)) {
            if own.len() > 1 || controllers.split(',').any(|it| own.contains(&it)) {
                found.extend(members(&tree.join(name)).ok());
            }
        }
    }
    found
}

/// Takes the calling process in.
pub fn enter(mut members: &File) -> io::Result<()> {
    members.write_all(b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_core_come_in_pieces_that_the_kernel_takes() {
        let cpu = |cores: f64, is_one_tree| {
            settings(Limits { cpu_cores: Some(cores), memory_bytes: None }, "cpu", is_one_tree)
        };
        assert_eq!(cpu(1.5, true), [("cpu.max", "15000 10000".to_owned())]);
        let small = [("cpu.cfs_period_us", "50000".to_owned()), ("cpu.cfs_quota_us", "1000".to_owned())];
        assert_eq!(cpu(0.02, false), small);
        assert_eq!(settings(Limits::default(), "memory", true), []);
    }

    #[test]
    fn one_tree_and_several_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(trees(root.path()).len(), 2);
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        assert_eq!(trees(root.path()).len(), 1);
    }

    #[test]
    fn who_enters_has_no_more_than_the_group_until_it_goes() {
        let name = format!("test.{}.x", std::process::id());
        let limits = Limits { cpu_cores: Some(0.2), memory_bytes: Some(64 << 20) };
        let group =
            ControlGroup::create(&name, limits).expect("root, and control groups that may be written");
        let mut command = std::process::Command::new("sh");
        // As many as there are cores: it has a fifth of one all the same.
        command.args([
            "-c",
            "echo $$ > /dev/null; read go; (while :; do :; done) & (while :; do :; done) & wait",
        ]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        for folder in &group.folders {
            fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        assert_eq!(of_process(child.id()).len(), group.members.len());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let used = || {
            let all = crate::process::with_descendants(&[child.id()]).unwrap();
            let ran = |process: &u32| {
                let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
                text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
            };
            all.iter().map(ran).sum::<u64>() as f64 / 1e9
        };
        thread::sleep(Duration::from_millis(100));
        let (before, began) = (used(), Instant::now());
        thread::sleep(Duration::from_millis(800));
        let cores = (used() - before) / began.elapsed().as_secs_f64();
        drop(group);
        assert!(cores < 0.3, "{cores} cores of 0.2");
        assert!(!child.wait().unwrap().success(), "it ends with its group");
        assert_eq!(ours(&name).count(), 0);
    }
}
