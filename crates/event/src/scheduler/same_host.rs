//! A builder on the host that most of the event comes from.

use super::least::{Among, Least};
use weir_core::{Instant, Kind, Param, Values};
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

pub const PARAMS: &[Param] = &[Param::new(
    "lead",
    Kind::Size,
    "How many more bytes than at the least loaded of all may be outstanding at a builder that is preferred. Without it there is no limit but its memory.",
)];

/// The least loaded builder with room on the event's host, unless it is more than `lead` ahead of the least loaded of all; else the least
/// loaded of all that has room.
pub struct SameHost {
    lead_bytes: Option<u64>,
    hosts: Least,
    all: Least,
}

impl SameHost {
    /// `values`: of `PARAMS`.
    pub fn new(values: &Values) -> SameHost {
        SameHost {
            lead_bytes: values.size("lead").map(|bytes| bytes.0),
            hosts: Least::new(Among::Hosts),
            all: Least::new(Among::All),
        }
    }

    fn near(&self, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        let id = self.hosts.least(event.host, event.bytes)?;
        let Some(lead_bytes) = self.lead_bytes else { return Some(id) };
        let most_bytes = self.all.least_bytes()?.saturating_add(lead_bytes);
        builders.get(id).is_some_and(|builder| builder.outstanding_bytes <= most_bytes).then_some(id)
    }
}

impl Scheduler for SameHost {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        let id = self.near(event, builders).or_else(|| self.all.least(0, event.bytes))?;
        self.hosts.took(id);
        self.all.took(id);
        Some(id)
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.hosts.on_membership(builders);
        self.all.on_membership(builders);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.hosts.on_load(id, builders);
        self.all.on_load(id, builders);
    }
}
