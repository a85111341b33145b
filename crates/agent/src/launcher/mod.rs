//! How agents get to hosts.

mod image;
pub mod lab;
pub mod local;
pub mod ssh;
mod ssh_words;
pub(crate) mod words;

pub use lab::{LabLauncher, Place};
pub use local::LocalLauncher;
pub use ssh::SshLauncher;

use weir_seams::Entry;
use weir_seams::entry::Need;

/// What `weir list launcher` shows. Building one takes what only the run has (namespaces, a path), so nothing is built here.
pub static LAUNCHERS: &[Entry<()>] = &[
    Entry {
        name: "lab",
        about: "starts the agent inside a lab host's network namespace",
        params: &[],
        needs: &[Need::Root, Need::Tun],
        build: (),
    },
    Entry {
        name: "local",
        about: "starts the agent on this machine as it is, for measuring weir itself",
        params: &[],
        needs: &[],
        build: (),
    },
    Entry {
        name: "ssh",
        about: "logs in with the system's OpenSSH client and starts the agent there, copied if none is named",
        params: &[],
        needs: &[Need::SshClient],
        build: (),
    },
];
