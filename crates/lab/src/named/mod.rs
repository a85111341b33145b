//! Labs with a name, which outlive the command that made them: `weir lab up`, `exec`, `down`, `list`.
//!
//! What there is of one: a folder `/run/weir/labs/NAME`, a namespace `/run/netns/weir.NAME.HOST` for each host, and the
//! fabric process. Everything is found again from the name alone, so that whatever a killed `lab up` got done can be undone.

mod capture;
mod down;
mod exec;
mod state;
mod up;

pub use capture::capture;
pub use down::{down, remove_all, remove_dead};
pub use exec::{Entry, exec};
pub use state::{AuxiliaryState, HostState, Owner, State, list};
pub use up::{Up, up};

use crate::error::LabError;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/run/weir/labs";
const NAMESPACES: &str = "/run/netns";
const NAME_BYTES_MAX: usize = 63;

/// A checked name: `[a-z0-9][a-z0-9-]{0,62}`. It becomes part of paths, so nothing else may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabName(String);

impl LabName {
    pub fn new(text: &str) -> Result<Self, LabError> {
        if is_name(text) {
            return Ok(LabName(text.to_owned()));
        }
        Err(LabError::Usage(format!(
            "{text:?} is no name for a lab: small letters, digits and hyphens, a letter or digit first, at most \
             {NAME_BYTES_MAX} of them"
        )))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.0)
    }
    fn state_file(&self) -> PathBuf {
        self.folder().join("lab.json")
    }
    fn hosts_file(&self) -> PathBuf {
        self.folder().join("hosts")
    }
    fn resolv_file(&self) -> PathBuf {
        self.folder().join("resolv.conf")
    }
    /// Where its fabric takes others' wishes.
    fn socket(&self) -> PathBuf {
        self.folder().join("fabric.sock")
    }
    /// What the names of its namespaces begin with. No name has a dot, so none of another lab's begins like it.
    fn namespace_prefix(&self) -> String {
        format!("weir.{}.", self.0)
    }
    fn namespace(&self, host: &str) -> PathBuf {
        Path::new(NAMESPACES).join(format!("{}{host}", self.namespace_prefix()))
    }
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_BYTES_MAX
        && text.bytes().next().is_some_and(letter)
        && text.bytes().all(|byte| letter(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: lab.md#lab-14
    #[test]
    fn a_name_that_could_lead_elsewhere_is_refused() {
        for bad in [
            "",
            "../../x",
            "a/b",
            ".",
            "-oProxyCommand=x",
            "A",
            "a.b",
            "a b",
            "<script>",
            "é",
            &"a".repeat(64),
        ] {
            assert!(LabName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "0", "lab-1", &"a".repeat(63)] {
            assert_eq!(LabName::new(good).unwrap().as_str(), good);
        }
    }

    // Spec: lab.md#lab-14
    #[test]
    fn no_labs_namespaces_begin_like_anothers() {
        let (one, other) = (LabName::new("a").unwrap(), LabName::new("a-b").unwrap());
        assert!(!other.namespace("h-0").to_str().unwrap().contains(&one.namespace_prefix()));
    }
}
