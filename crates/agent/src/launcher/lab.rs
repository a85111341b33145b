//! Agents inside a lab's hosts: entered by descriptors.

use super::local::start;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use weir_seams::launcher::{LaunchError, Launched, Launcher};
use weir_sys::holder::Holder;
use weir_sys::process::{Among, Spawn};

/// Where an agent begins.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// In the network of a host that has nothing else of its own, and in the control groups of these files.
    Network(BorrowedFd<'a>, &'a [File]),
    /// In a host with processes, names and files of its own.
    Host(&'a Holder),
}

pub struct LabLauncher<'a> {
    /// The program, this one normally, that is told to be an agent.
    pub program: PathBuf,
    /// By the host's name.
    pub places: BTreeMap<String, Place<'a>>,
}

impl Launcher for LabLauncher<'_> {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        let Some(place) = self.places.get(host) else {
            return Err(LaunchError { host: host.to_owned(), text: "the lab has no such host".to_owned() });
        };
        let mut spawn = Spawn::new(&self.program).argument("agent");
        match place {
            Place::Network(namespace, groups) => {
                spawn.namespace = Some(*namespace);
                spawn.groups = groups.iter().map(AsFd::as_fd).collect();
            }
            Place::Host(holder) => spawn.among = Among::Of(holder),
        }
        start(spawn, host)
    }

    fn shares_clock(&self, _host: &str) -> bool {
        true
    }
}
