//! What the numbers of a folder's fine records are: as it says itself, or as it was before folders said so.

use crate::read::{FolderError, document};
use crate::writer::RECORDS;
use std::path::Path;
use weir_core::chunk::{FIELDS_MAX, FieldSetRecord, SETS};

/// Sets of fields that a folder may say; each makes columns of a table.
const SETS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Sets(Vec<FieldSetRecord>);

impl Sets {
    /// Errors: the file is damaged, or says more fields than a sample can have.
    pub fn read(folder: &Path, notes: &mut Vec<String>) -> Result<Sets, FolderError> {
        let own = if folder.join(RECORDS).exists() { document(folder, RECORDS, notes)? } else { None };
        let mut all: Vec<FieldSetRecord> = own.unwrap_or_default();
        if all.len() > SETS_MAX || all.iter().any(|set| set.fields.len() > FIELDS_MAX) {
            let problem = format!("has more than {SETS_MAX} sets, or a set of more than {FIELDS_MAX} fields");
            return Err(FolderError { path: folder.join(RECORDS), line: None, problem });
        }
        let known = |all: &[FieldSetRecord], name: &str| all.iter().any(|set| set.name == name);
        for set in SETS {
            if !known(&all, set.name) {
                all.push((*set).into());
            }
        }
        Ok(Sets(all))
    }

    pub fn all(&self) -> &[FieldSetRecord] {
        &self.0
    }

    pub fn named(&self, name: &str) -> Option<&FieldSetRecord> {
        self.0.iter().find(|set| set.name == name)
    }
}
