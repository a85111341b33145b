//! Who gets an event: one file an algorithm. When each wins and loses: `docs/guide/event-schedulers.md`.

pub mod least_outstanding;
pub mod membership_hash;
pub mod memory_aware;
pub mod round_robin;
pub mod same_host;
pub mod two_choices;
pub mod weighted_calendar;

mod least;
mod ring;
mod tournament;

#[cfg(test)]
mod tests;

use weir_seams::Entry;
use weir_seams::scheduler::SchedulerEntry;

/// Name of the one that is used unless another is asked for.
pub const DEFAULT: &str = "least-outstanding";

pub static SCHEDULERS: &[SchedulerEntry] = &[
    Entry {
        name: "least-outstanding",
        about: "the builder with the fewest bytes outstanding",
        params: &[],
        needs: &[],
        build: |_values| Box::new(least_outstanding::LeastOutstanding::default()),
    },
    Entry {
        name: "round-robin",
        about: "builders in turn",
        params: round_robin::PARAMS,
        needs: &[],
        build: |values| Box::new(round_robin::RoundRobin::new(values)),
    },
    Entry {
        name: "memory-aware",
        about: "the builder with the most free memory",
        params: &[],
        needs: &[],
        build: |_values| Box::new(memory_aware::MemoryAware::default()),
    },
    Entry {
        name: "two-choices",
        about: "two builders at random, and the less loaded of them",
        params: two_choices::PARAMS,
        needs: &[],
        build: |values| Box::new(two_choices::TwoChoices::new(values)),
    },
    Entry {
        name: "same-host",
        about: "a builder on the host that most of the event comes from, else the least loaded",
        params: same_host::PARAMS,
        needs: &[],
        build: |values| Box::new(same_host::SameHost::new(values)),
    },
    Entry {
        name: "membership-hash",
        about: "the builder that heartbeat and membership alone decide",
        params: membership_hash::PARAMS,
        needs: &[],
        build: |values| Box::new(membership_hash::MembershipHash::new(values)),
    },
    Entry {
        name: "weighted-calendar",
        about: "a calendar of builders, drawn up anew from how full they are",
        params: weighted_calendar::PARAMS,
        needs: &[],
        build: |values| Box::new(weighted_calendar::WeightedCalendar::new(values)),
    },
];

pub fn entry(name: &str) -> Option<&'static SchedulerEntry> {
    SCHEDULERS.iter().find(|entry| entry.name == name)
}
