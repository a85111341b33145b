//! What can go wrong with a lab.

use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum LabError {
    #[error("the lab cannot be built: host {host}: {what}: {source}{}", hint(source))]
    Host { host: String, what: String, source: io::Error },
    #[error("the lab cannot be built: {what}: {source}{}", hint(source))]
    Start { what: String, source: io::Error },
    /// Its hosts could not be given what they were to have.
    #[error("{0}")]
    Furnish(String),
    #[error("the fabric process {0}")]
    Fabric(String),
    /// Wrong use: a name, a lab that is not there, one that already is.
    #[error("{0}")]
    Usage(String),
    #[error("{what}: {source}{}", hint(source))]
    State { what: String, source: io::Error },
}

/// What to do about it, where that is known.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "\n  a lab needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN",
        io::ErrorKind::NotFound if error.to_string().contains("/dev/net/tun") => {
            "\n  load the kernel module with `modprobe tun`, or pass /dev/net/tun into the container"
        }
        // The number is lost where the error got a text of its own.
        _ if error.to_string().contains("(os error 24)") => {
            "\n  a lab takes two descriptors a host, three with an auxiliary network; raise the limit with `ulimit -n`"
        }
        _ => "",
    }
}

impl LabError {
    pub(crate) fn start(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Start { what, source }
    }
    pub(crate) fn state(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::State { what, source }
    }
}
