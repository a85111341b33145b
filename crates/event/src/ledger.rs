//! The closed account of every event.

use serde::{Deserialize, Serialize};

/// Why an event was dropped: a closed list, in the order of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    NoCredit,
    NoBuilder,
    NoScheduler,
    SourceLost,
    Deadline,
    Corrupt,
    StaleEpoch,
    Shutdown,
}

impl Reason {
    /// In the order of the wire format and of the ledger.
    pub const ALL: [Reason; 8] = [
        Reason::NoCredit,
        Reason::NoBuilder,
        Reason::NoScheduler,
        Reason::SourceLost,
        Reason::Deadline,
        Reason::Corrupt,
        Reason::StaleEpoch,
        Reason::Shutdown,
    ];
}
