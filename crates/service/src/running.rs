//! A service that is up.

use crate::daemon::{Daemon, LOOK_AGAIN, Order};
use crate::error::last_lines;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::scenario::Role;
use weir_sys::holder::Holder;
use weir_sys::process::{Child, Signal};
use weir_telemetry::transfers::Transfers;

/// Daemons that were asked to end have this time.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Folder of a host's logs in its state.
pub(crate) const LOG: &str = "log";

/// What is run on a host where caches are emptied.
pub(crate) struct WhenCold {
    pub host: usize,
    pub within: Duration,
    pub order: Order,
}

/// A service that is up. Dropping it kills its processes, but for those that outlive us.
pub struct Running {
    pub name: String,
    pub system: String,
    /// Where clients find it.
    pub at: String,
    pub version: String,
    /// Options of its engine that are not as its recipe has them by itself.
    pub tuning: BTreeMap<String, String>,
    pub daemons: Vec<Daemon>,
    /// On the machine, folders of logs and of configuration by host and role.
    pub folders: BTreeMap<String, PathBuf>,
    /// What its daemons have said of transfers, by host; it outlasts them.
    pub transfers: Vec<(String, Arc<Transfers>)>,
    pub(crate) when_cold: Vec<WhenCold>,
    /// On the machine, what its hosts share.
    pub(crate) shared: PathBuf,
    pub(crate) outlives_us: bool,
}

fn empty(folder: &Path) {
    fs::read_dir(folder).into_iter().flatten().flatten().for_each(|entry| remove(&entry.path()));
}

fn remove(path: &Path) {
    let is_folder = path.symlink_metadata().is_ok_and(|about| about.is_dir());
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Asks daemons to end, the last that began first, and kills what does not.
fn end_all(daemons: &mut [&mut Daemon]) {
    for daemon in daemons.iter().rev() {
        daemon.signal(Signal::Continue);
        daemon.signal(Signal::Terminate);
    }
    let until = Instant::now() + END_WITHIN;
    for daemon in daemons.iter_mut().rev() {
        daemon.end(until.saturating_duration_since(Instant::now()));
    }
}

impl Running {
    /// Its daemons on a host, of one role where `of` names it and this service.
    pub fn daemons_of<'a>(
        &'a mut self,
        host: usize,
        of: Option<&'a (String, Role)>,
    ) -> impl Iterator<Item = &'a mut Daemon> {
        let is_meant = of.is_none_or(|(service, _)| *service == self.name);
        let role = of.map(|(_, role)| *role);
        let own = self.daemons.iter_mut().filter(move |daemon| is_meant && daemon.host == host);
        own.filter(move |daemon| role.is_none_or(|role| daemon.role == role))
    }

    /// A daemon that ended by itself, with the last lines of its log.
    pub fn failed(&mut self) -> Option<String> {
        let how = self.daemons.iter_mut().find_map(|daemon| {
            let how = daemon.failed()?;
            let lines = last_lines(&daemon.order.log);
            Some(lines.into_iter().fold(how, |text, line| text + "\n  | " + &line))
        })?;
        Some(format!("service {}: {how}", self.name))
    }

    /// Mounts it anew on its clients, so that nothing is left of what they had read; daemons of which its recipe says so begin anew, and
    /// commands that it has for this are run between. `holder_of` is by index in the topology.
    ///
    /// Errors: what does not come back, a command that fails, or `interrupted`.
    pub fn begin_cold<'h>(
        &mut self,
        holder_of: impl Fn(usize) -> Option<&'h Holder>,
        interrupted: impl Fn() -> bool,
    ) -> Result<(), String> {
        let there = "its host is not there";
        // What is down was ended on purpose, and comes back at its own time.
        let mut anew: Vec<&mut Daemon> =
            self.daemons.iter_mut().filter(|daemon| daemon.is_cold && !daemon.is_down).collect();
        end_all(&mut anew);
        let start = |cold: &WhenCold| {
            let started = cold.order.start(holder_of(cold.host).ok_or(there)?);
            started.map_err(|error| format!("{}: {error}", cold.order.run.join(" ")))
        };
        let children: Vec<Child> = self.when_cold.iter().map(start).collect::<Result<_, String>>()?;
        for (cold, mut child) in self.when_cold.iter().zip(children) {
            let until = Instant::now() + cold.within;
            let mut ended = None;
            while ended.is_none() && Instant::now() < until {
                if interrupted() {
                    return Err("interrupted".to_owned());
                }
                ended = child.wait(LOOK_AGAIN);
            }
            if !ended.is_some_and(|status| status.success()) {
                let how = ended.map_or_else(|| "did not end".to_owned(), weir_sys::process::describe);
                let lines = last_lines(&cold.order.log).join("\n  | ");
                return Err(format!("{} {how}\n  | {lines}", cold.order.run.join(" ")));
            }
        }
        for daemon in anew {
            daemon.bring_back(holder_of(daemon.host).ok_or(there)?)?;
        }
        Ok(())
    }

    /// Removes what it kept, once it is down. Folders of logs stay, empty: a recipe may have mounted them where a program writes, and
    /// a folder that is gone takes no other mount.
    pub fn remove_folders(&self) {
        // What cannot be removed goes with the lab's folder at the latest.
        for folder in self.folders.values() {
            for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                match path.file_name().is_some_and(|name| name == LOG) {
                    true => empty(&path),
                    false => remove(&path),
                }
            }
        }
        remove(&self.shared);
    }

    /// Ends its processes, the last that began first.
    pub fn take_down(&mut self) {
        end_all(&mut self.daemons.iter_mut().collect::<Vec<_>>());
        self.daemons.clear();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.outlives_us {
            for daemon in &mut self.daemons {
                if let Some(child) = daemon.child.take() {
                    child.release();
                }
            }
        } else {
            self.take_down();
        }
    }
}
