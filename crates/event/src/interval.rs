//! Sets of heartbeat ids as intervals.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ascending, apart from each other: first id and the one behind the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Intervals {
    ends: BTreeMap<u64, u64>,
}

impl From<Vec<(u64, u64)>> for Intervals {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        Intervals { ends: pairs.into_iter().collect() }
    }
}
impl From<Intervals> for Vec<(u64, u64)> {
    fn from(set: Intervals) -> Self {
        set.ends.into_iter().collect()
    }
}
