//! `weir explain KEY`: what a key of the scenario language means.

use super::nearest::suggestion;
use super::plan::WorkloadSchema;

/// Explains a key; `None` gives an overview. Errors: no such key, with the nearest.
pub fn explain(key: Option<&str>, _workloads: &[WorkloadSchema]) -> Result<String, String> {
    let key = key.unwrap_or_default();
    Err(suggestion(key, []).unwrap_or_default())
}
