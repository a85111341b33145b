//! Labs with a name, which outlive the command that made them: `weir lab up`, `exec`, `down`, `list`.
//!
//! What there is of one is in its folder, `/run/weir/labs/NAME`, a mount for each host's namespace included, besides the fabric
//! process and, for `ip netns`, links in `/run/netns`. Everything is found again from the name alone, so that whatever a killed
//! `lab up` got done can be undone.

mod capture;
mod down;
mod exec;
mod place;
mod state;
mod up;

pub use capture::capture;
pub use down::{Down, down, down_all, down_dead};
pub use exec::{Entry, exec};
pub use place::Place;
pub use state::{AuxiliaryState, HostState, Listed, Owner, ServiceState, State, list};
pub use up::{Furnish, Up, up};

use crate::error::LabError;
use std::io;
use std::path::PathBuf;
use weir_sys::trusted;

const NAME_BYTES_MAX: usize = 63;

/// A checked name, `[a-z0-9][a-z0-9-]{0,62}`, at a place. It becomes part of paths, so nothing else may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabName {
    place: Place,
    name: String,
}

impl LabName {
    pub fn new(place: &Place, text: &str) -> Result<Self, LabError> {
        if is_name(text) {
            return Ok(LabName { place: place.clone(), name: text.to_owned() });
        }
        Err(LabError::Usage(format!(
            "{text:?} is no name for a lab: small letters, digits and hyphens, a letter or digit first, at most \
             {NAME_BYTES_MAX} of them"
        )))
    }
    pub fn as_str(&self) -> &str {
        &self.name
    }

    fn folder(&self) -> PathBuf {
        self.place.labs().join(&self.name)
    }
    /// Errors: it is not there, or others than root and we may have changed something in it.
    fn check_folder(&self) -> io::Result<()> {
        self.place.check()?;
        trusted::check_folder(&self.folder())
    }
    /// On disk, what services of its hosts keep.
    pub(crate) fn data(&self) -> PathBuf {
        self.place.data().join("labs").join(&self.name)
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
    /// What its control groups are called before their host's name.
    fn groups(&self) -> String {
        format!("lab.{}", self.as_str())
    }
    fn socket(&self) -> PathBuf {
        self.folder().join("fabric.sock")
    }
    fn namespaces(&self) -> PathBuf {
        self.folder().join("net")
    }
    fn namespace(&self, host: &str) -> PathBuf {
        self.namespaces().join(host)
    }
    /// What `ip netns` calls its hosts begins so. No name has a dot, so none of another lab's begins like it.
    fn link_prefix(&self) -> String {
        format!("weir.{}.", self.name)
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
        let place = Place::at("/run/weir");
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
            assert!(LabName::new(&place, bad).is_err(), "{bad:?}");
        }
        for good in ["a", "0", "lab-1", &"a".repeat(63)] {
            assert_eq!(LabName::new(&place, good).unwrap().as_str(), good);
        }
    }

    // Spec: lab.md#lab-14
    #[test]
    fn no_labs_links_begin_like_anothers() {
        let name = |text| LabName::new(&Place::at("/run/weir"), text).unwrap();
        assert!(!name("a-b").link_prefix().starts_with(&name("a").link_prefix()));
    }
}
