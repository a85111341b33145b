//! Sampler: reads counters at time t with a cost budget.

use weir_core::Instant;
use weir_core::record::Series;

pub trait Sampler: Send {
    /// Reads the counters once. `now` is the experiment's clock just before.
    fn sample(&mut self, now: Instant);
    /// Hands over what was gathered and starts anew. Timestamps are on the experiment's clock.
    fn take(&mut self) -> Vec<Series>;
}

/// What a sampler is built for.
#[derive(Clone, Debug, Default)]
pub struct SamplerTarget {
    /// Process ids to watch, with the name each goes by.
    pub processes: Vec<(String, u32)>,
    /// Name of the host in records; empty for the machine itself.
    pub host: String,
}

pub type SamplerEntry = crate::Entry<fn(&SamplerTarget) -> Box<dyn Sampler>>;
