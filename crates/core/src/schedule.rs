//! What happens to links while a trial runs: the faults of a scenario, resolved to single changes.

use crate::units::BitsPerSecond;
use serde::{Deserialize, Serialize};

/// One change of one directed link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When, in nanoseconds: relative to the trial's start in a plan, on the experiment's clock once it has begun.
    pub at_ns: u64,
    /// Index of the directed link, as `topology::DirectedLink` numbers them.
    pub link: usize,
    pub set: Set,
}

/// Each kind is independent of the others, and setting one again replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// While true every packet that arrives at the link, or would leave its serialiser, is lost.
    Outage(bool),
    /// `None` restores the link's own rate.
    Rate(Option<BitsPerSecond>),
    /// Added to the link's own delay, in nanoseconds; 0 restores it.
    DelayAdd(u64),
    /// Probability of loss instead of the link's own; `None` restores it.
    Loss(Option<f64>),
}
