//! Agents inside a lab's hosts: the namespace is entered by its descriptor.

use super::local::start;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use weir_seams::launcher::{LaunchError, Launched, Launcher};
use weir_sys::process::Spawn;

pub struct LabLauncher<'a> {
    /// The program, this one normally, that is told to be an agent.
    pub program: PathBuf,
    /// Host name to network namespace.
    pub namespaces: BTreeMap<String, BorrowedFd<'a>>,
}

impl Launcher for LabLauncher<'_> {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        let Some(namespace) = self.namespaces.get(host) else {
            return Err(LaunchError { host: host.to_owned(), text: "the lab has no such host".to_owned() });
        };
        let mut spawn = Spawn::new(&self.program).argument("agent");
        spawn.namespace = Some(*namespace);
        start(spawn, host)
    }

    fn shares_clock(&self, _host: &str) -> bool {
        true
    }
}
