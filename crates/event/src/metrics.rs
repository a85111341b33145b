//! What an event step measures. Names and meanings: DESIGN section 6, `docs/specs/event-building.md#ledger-1`.

use weir_core::metric::{Better, Metric, Modelled, Scope};

const fn ratio(name: &'static str, definition: &'static str) -> Metric {
    Metric::new(name, "1", Better::Lower, Scope::Trial, definition)
}
/// Of a part of the events: a reason's, a builder's.
const fn parts(name: &'static str, better: Better, definition: &'static str) -> Metric {
    Metric { scope: Scope::Part, ..events(name, better, definition) }
}

const fn events(name: &'static str, better: Better, definition: &'static str) -> Metric {
    Metric::new(name, "events", better, Scope::Trial, definition)
}
const fn fragments(name: &'static str, definition: &'static str) -> Metric {
    Metric::new(name, "fragments", Better::Lower, Scope::Trial, definition)
}
const fn seconds(name: &'static str, scope: Scope, definition: &'static str) -> Metric {
    Metric::new(name, "s", Better::Lower, scope, definition)
}

pub const LOSS: &str = "event.loss_ratio";
pub const GOODPUT: &str = "event.goodput_bits_per_second";
pub const ASSEMBLY: &str = "event.assembly_seconds";
pub const HELD_SLOPE: &str = "event.held_slope_hertz";
pub const UNACKNOWLEDGED_SECONDS: &str = "event.unacknowledged_seconds";
pub const DROPPED_FOR: &str = "event.dropped_for";
pub const HIGHEST_RATE: &str = "event.highest_rate_hertz";
pub const BUILT: &str = "event.built";
pub const RESIDENT: &str = "event.resident_bytes_max";

pub static METRICS: &[Metric] = &[
    ratio(LOSS, "(partial + dropped) / generated events, when the run has ended, drain included.").modelled(Modelled::Undelivered).column(20),
    events(
        "event.generated",
        Better::Higher,
        "Heartbeats issued, and those that could not be issued in time.",
    ),
    events(
        "event.complete",
        Better::Higher,
        "Events of which one builder has every fragment, whole, and said so.",
    ),
    events(
        "event.partial",
        Better::Lower,
        "Events that were given out with fragments missing, at their deadline.",
    ),
    events(
        "event.dropped",
        Better::Lower,
        "Events that ended otherwise; the ledger names a reason for each.",
    ),
    parts(
        DROPPED_FOR,
        Better::Lower,
        "Those of one reason; the entity is reason.NAME: no-credit, no-builder, no-scheduler, source-lost, deadline, corrupt, stale-epoch, shutdown.",
    ),
    events("event.held", Better::Lower, "Events without an end when the run has ended, drain included."),
    Metric::new(
        HELD_SLOPE,
        "Hz",
        Better::Lower,
        Scope::Trial,
        "Events by which the number held grew a second, over the last two thirds of the heartbeats; above nought the load is more than is built, whether or not anything was lost yet.",
    ),
    ratio(
        "event.undelivered_ratio",
        "Events without an end / generated, at the moment the last heartbeat is issued.",
    ).modelled(Modelled::Undelivered),
    ratio(
        "event.unacknowledged_ratio",
        "Heartbeats of which the scheduler has not heard the end / heartbeats issued, when it stops listening: what document 002 calls loss.",
    ).modelled(Modelled::Undelivered).column(21),
    seconds(
        UNACKNOWLEDGED_SECONDS,
        Scope::Trial,
        "The same as time: heartbeats not heard of to their end, divided by the rate. A loss at the start or the end alone is as long in a long run as in a short one.",
    ),
    ratio(
        "event.mismatched_ratio",
        "Events at whose builder fragments of different heartbeats met / heartbeats issued. Assembly by key has none.",
    ).column(22),
    ratio("event.late_ratio", "Events given up at their deadline / generated."),
    seconds("event.drain_seconds", Scope::Trial, "From the last heartbeat to the end of the last event."),
    Metric::new(
        GOODPUT,
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "Payload that all builders took for events, from the first heartbeat after the warm-up to the last one, by the time it came; that of events which were dropped or given to another builder is taken back.",
    ).column(23),
    seconds(
        ASSEMBLY,
        Scope::Operation,
        "From an event's heartbeat to its last byte at the builder, on the scheduler's clock: how old the heartbeat was when the last fragment was sent, and from there on the builder's own time.",
    ).column(24),
    parts(BUILT, Better::Neither, "Complete events of one builder; the entity is builder.NAME."),
    Metric::new(
        "event.rate_hertz",
        "Hz",
        Better::Neither,
        Scope::Trial,
        "Heartbeats issued, divided by the time from the first to the last.",
    ),
    seconds(
        "event.detection_seconds",
        Scope::Operation,
        "From the last sign of life of a peer that is gone to the moment the scheduler says so.",
    ).column(25),
    seconds(
        "event.recovery_seconds",
        Scope::Operation,
        "From the moment a builder counts as gone to the end of the last event that was in flight there; 0 where none was.",
    ).column(26),
    Metric::new(
        HIGHEST_RATE,
        "Hz",
        Better::Higher,
        Scope::Trial,
        "Of a search: the highest rate tried at which nothing was lost and what was held did not grow by more than 1 % of the heartbeats; 0 where none was carried.",
    ),
    events(
        "event.reassigned",
        Better::Lower,
        "Events that were taken from a builder that is gone and assigned anew, each time.",
    ),
    Metric::new(
        "event.ahead_heartbeats",
        "heartbeats",
        Better::Lower,
        Scope::Trial,
        "Of the profile o2balancer2: by how many heartbeats the scheduler ran ahead of first + n / rate at the most, the burst of its rate limiter.",
    ),
    seconds(
        "event.last_mismatch_seconds",
        Scope::Trial,
        "Of the profile o2balancer2: from the first heartbeat to the last time that fragments of different heartbeats met; 0 where none did.",
    ),
    fragments("event.duplicate_fragments", "Fragments of a source that a builder had already."),
    fragments("event.stale_fragments", "Fragments of an assignment that was taken back."),
    fragments("event.corrupt_fragments", "Fragments whose payload is not what its checksum says."),
    Metric::new(
        RESIDENT,
        "B",
        Better::Lower,
        Scope::Host,
        "Memory of a host's process above what it had when its role began, at the most; entity host.NAME.",
    ),
    Metric::new(
        "event.control_bytes",
        "B",
        Better::Lower,
        Scope::Trial,
        "What scheduler, sources and builders said to each other beside the fragments, both ways.",
    ),
];
