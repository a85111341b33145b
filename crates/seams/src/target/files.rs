//! What sessions of every kind keep of the files that are open.

use super::{FileId, TargetError};
use std::collections::BTreeMap;

/// Refuses a name that leads out of the target. Errors: says so.
pub fn inside(path: &str) -> Result<(), TargetError> {
    let leaves = path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0');
    if leaves {
        return Err(TargetError::coded("EPERM", format!("{path:?} leads outside the target")));
    }
    Ok(())
}

/// What is open in a session, by number.
#[derive(Debug)]
pub struct OpenFiles<F> {
    files: BTreeMap<FileId, F>,
    next: u32,
}

impl<F> Default for OpenFiles<F> {
    fn default() -> Self {
        OpenFiles { files: BTreeMap::new(), next: 0 }
    }
}

impl<F> OpenFiles<F> {
    /// Numbers are not used again, so that one of a file that was closed is never taken for another's.
    pub fn add(&mut self, file: F) -> FileId {
        let id = FileId(self.next);
        self.next = self.next.wrapping_add(1);
        self.files.insert(id, file);
        id
    }

    /// Errors: the file is not open.
    pub fn get(&self, id: FileId) -> Result<&F, TargetError> {
        self.files.get(&id).ok_or_else(|| not_open(id))
    }

    /// Errors: the file is not open.
    pub fn get_mut(&mut self, id: FileId) -> Result<&mut F, TargetError> {
        self.files.get_mut(&id).ok_or_else(|| not_open(id))
    }

    /// Errors: the file is not open.
    pub fn remove(&mut self, id: FileId) -> Result<F, TargetError> {
        self.files.remove(&id).ok_or_else(|| not_open(id))
    }
}

fn not_open(id: FileId) -> TargetError {
    TargetError::coded("EBADF", format!("file {} of this session is not open", id.0)).lost()
}
