//! Where labs are kept.

use crate::error::LabError;
use std::io;
use std::path::{Path, PathBuf};
use weir_sys::trusted;

/// The machine's own, for all users.
const MACHINES: &str = "/run/weir";
/// The same on disk, for what services keep.
const MACHINES_DATA: &str = "/var/lib/weir";
/// Names another folder: labs there and labs elsewhere know nothing of each other.
const VARIABLE: &str = "WEIR_STATE_DIR";
/// Where `ip netns` looks.
const LINKS: &str = "/run/netns";

/// A folder of labs and of the lock for making them and taking them down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// That of `WEIR_STATE_DIR`, or the machine's own.
    pub fn chosen() -> Result<Place, LabError> {
        match std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
            None => Ok(Place::at(MACHINES)),
            Some(text) => {
                let failed = LabError::state(format!("{VARIABLE}={}", text.display()));
                std::path::absolute(text).map(Place::at).map_err(failed)
            }
        }
    }
    pub fn at(folder: impl Into<PathBuf>) -> Place {
        Place { folder: folder.into() }
    }

    /// On disk, what services keep.
    pub(super) fn data(&self) -> PathBuf {
        match self.folder == Path::new(MACHINES) {
            true => PathBuf::from(MACHINES_DATA),
            false => self.folder.join("data"),
        }
    }
    /// Of labs that end with the process that made them.
    pub(crate) fn runs(&self) -> PathBuf {
        self.data().join("runs")
    }
    pub(super) fn labs(&self) -> PathBuf {
        self.folder.join("labs")
    }
    pub(super) fn lock(&self) -> PathBuf {
        self.folder.join("labs.lock")
    }
    /// Where hosts get names for `ip netns`, too: two places may have labs of one name, and only one can have the links.
    pub(super) fn links(&self) -> Option<&'static Path> {
        (self.folder == Path::new(MACHINES)).then_some(Path::new(LINKS))
    }
    pub(super) fn ensure(&self) -> io::Result<()> {
        trusted::ensure_folder(&self.folder)?;
        trusted::ensure_folder(&self.labs())
    }
    /// Errors: `NotFound` where there has been no lab yet, and where others than root and we may have changed something.
    pub(super) fn check(&self) -> io::Result<()> {
        trusted::check_folder(&self.folder)?;
        trusted::check_folder(&self.labs())
    }
}
