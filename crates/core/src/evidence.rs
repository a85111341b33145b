//! Names the limiting factor of a trial from what was counted.
//!
//! Who can see a factor declares it and says when it holds: a workload of its own load (`derive` gets what was `Around` it and
//! returns `Candidate`s), core of what every load may meet. Here one is chosen, by the ranks of `docs/specs/evidence.md`, after
//! what disqualifies the measurement itself. Where none holds it is `unknown`, with what was seen.

mod factor;
mod fitness;
mod path;
#[cfg(test)]
mod tests;

use crate::record::LimitingFactor;
use serde::{Deserialize, Serialize};

pub use factor::*;
pub use fitness::{LATENESS_ALLOWED_NS_LEAST, Moves, lateness_allowed_seconds};
pub use path::link_rate;

/// How well the load's generators kept their own clocks, over the ticks that count (measuring rule 9). A generator's ticks are
/// at t0 + n / rate; one that wakes up after the next tick is due gives up those it slept through instead of repaying them by
/// a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorFacts {
    /// Ticks that were due, missed ones included.
    pub due_count: u64,
    /// Ticks given up because the generator was late by a period or more.
    pub missed_count: u64,
    /// 99th percentile of issued − intended over all ticks that were due; for a missed one until it was given up. Seconds.
    pub lateness_seconds: f64,
    pub lateness_seconds_max: f64,
    /// Between two ticks of one generator: what lateness is judged against. Seconds.
    pub period_seconds: f64,
}

/// One directed link on the path of the step's flows, over its steady state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortFacts {
    pub name: String,
    /// Wire bytes sent against what the rate allowed; `None` for a link without a rate.
    pub load_ratio: Option<f64>,
    /// Its queue or the buffer that it shares was full, or a discipline dropped early.
    pub dropped_queue: u64,
    /// Lost on the wire, at random, in a burst or to a rule of a fault.
    pub dropped_loss: u64,
    pub dropped_outage: u64,
    /// Too large for the link, or at the end of its hop limit.
    pub dropped_unfit: u64,
    /// Carried on with a bit inverted: the receiver throws it away.
    pub corrupted: u64,
    /// Arrived after a packet that was sent later, in the steady state.
    pub reordered_steady: u64,
    /// Of the steady state alone, which is what retransmissions are compared with: the warm-up overflows queues that the
    /// steady state does not.
    pub dropped_queue_steady: u64,
    /// As that, for all other reasons, corrupted packets included.
    pub dropped_otherwise_steady: u64,
    /// Time that what was in the queue takes to leave at the link's rate, mean of the steady state's samples; 0 for a link
    /// without a rate.
    pub queue_seconds: f64,
    /// Sent below its rate by this share although packets waited the whole time; 0 when it kept its rate.
    pub missed_rate_ratio: f64,
}

/// What the emulator and the machine did meanwhile; absent on real hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EmulatorFacts {
    /// Share of the time in which the fabric was behind by more than the path allows, and the longest that it was.
    pub behind_ratio: f64,
    pub behind_seconds_max: f64,
    /// How far it was behind in the mean of the time, lateness of less than 0.22 ms left out.
    pub behind_seconds_mean: f64,
    /// Of the thread on a host that waited longest for a core: the share of the time in waits, beyond what the path allows of
    /// each, and the longest.
    pub end_wait_ratio: f64,
    pub end_wait_seconds_max: f64,
    pub core_count: f64,
    /// Smallest one-way delay of the step's paths, seconds.
    pub one_way_seconds: f64,
    /// Share of the steady state that the fabric's thread spent on a CPU.
    pub fabric_busy_ratio: f64,
    /// Share of the steady state that it looked for packets and found none: the part of the above it could have spared.
    pub fabric_looking_ratio: f64,
    /// Share of the steady state that it could have run and waited for a CPU.
    pub fabric_wait_ratio: f64,
    /// Share of all cores' time that a hypervisor gave to others.
    pub stolen_ratio: f64,
    /// Share of all cores' time that was idle, or that the fabric spent looking for packets that were not there.
    pub machine_idle_ratio: f64,
    /// Share of all cores' time that programs outside the run took.
    pub foreign_busy_ratio: f64,
}

/// What the TCP of the step's hosts counted in the steady state, all their programs; 0 where nobody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StackFacts {
    /// Segments that arrived before an earlier one (`stack.out_of_order_segments`).
    pub out_of_order_segments: u64,
    /// Times that senders found the path's order broken (`stack.reordering_count`).
    pub reordering_count: u64,
}

/// What was around a load in its steady state. On real hosts, and of an ad-hoc measurement, most of it is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// What the links on the flows' way leave for the payload of all of them; `None` where no link has a rate, nobody knows, or
    /// the load does not try to fill the path.
    pub ceiling_bits_per_second: Option<f64>,
    /// Of the links between the step's hosts.
    pub ports: Vec<PortFacts>,
    pub stack: StackFacts,
    /// Of the services that the step uses.
    pub disks: Vec<DiskFacts>,
    pub daemons: Vec<DaemonFacts>,
    pub emulator: Option<EmulatorFacts>,
}

/// A disk of a service, over the steady state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFacts {
    pub name: String,
    /// What was asked of it against what it can do.
    pub busy_ratio: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Not of the steady state but of the whole load.
    pub read_bytes: f64,
}

/// A daemon of a service, over the steady state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonFacts {
    pub name: String,
    pub host: String,
    /// Cores that its host has, where that is limited.
    pub host_cores: Option<f64>,
    /// CPU time of it and of what it started against the state's length.
    pub cpu_cores: f64,
    /// Share of the time that the first thread of its busiest process was on a core.
    pub thread_ratio: f64,
    /// Where it says what its slots do.
    pub slots: Option<SlotFacts>,
}

/// Slots of a daemon: how many requests it serves at a time, means over the steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlotFacts {
    pub slots: f64,
    pub taken: f64,
    /// Requests that waited for one, and how long its last ones had waited.
    pub waiters: f64,
    pub wait_seconds: f64,
}

/// What a load says of itself, for the question whether the trial may be judged. The default is that of a load which waits for
/// each operation and fills nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// It tries to fill the path: a queue that it waits in is its own.
    pub fills_path: bool,
    /// It got less than it asked for, so a machine that had nothing left may be why.
    pub wants_machine: bool,
    /// What the receivers got of a load for which a full link proves that the machine kept up; `None` for others.
    pub goodput_bits_per_second: Option<f64>,
    /// A full link is no excuse: what was lost beside it counts.
    pub counts_losses: bool,
    /// It uses no link: a late fabric is nothing to it.
    pub is_off_links: bool,
    /// What, taken away from the trial, moves its figures; `None`: a hundredth of its time, unless a full link proves otherwise.
    pub moves: Option<Moves>,
    /// Of a load that waits for each of its operations: how long those of its quickest kind take in the mean, seconds.
    pub operation_seconds: Option<f64>,
    /// Mean round trip that its transport saw, seconds; 0 where it says nothing.
    pub rtt_seconds: f64,
    /// Of the thread that it depends on, where no candidate says it.
    pub thread: Option<CoreTime>,
    pub generator: Option<GeneratorFacts>,
    /// Why nothing can be said where nothing moved.
    // Spec: evidence.md#order-3
    pub still: Option<Vec<String>>,
    /// What was seen, for when no candidate holds.
    pub unknown: Vec<String>,
}

/// How a thread spent its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreTime {
    /// Share of the steady state on a core.
    pub ran: f64,
    /// Share in which it could have run and waited for one.
    pub waited: f64,
}

/// A factor that may have bounded the trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub factor: &'static Factor,
    /// The factor's own, unless this rule is asked earlier or later.
    pub rank: u16,
    /// Share of the time (or of the packets) that speaks for it, 0 to 1.
    pub confidence: f64,
    pub evidence: Vec<String>,
    /// Of an end that wants for CPU: on a machine that has none left it is the lab's fault.
    pub thread: Option<CoreTime>,
    /// It is of a window or a buffer too small for the round trip, which only holds if that is the path's.
    pub is_room_in_flight: bool,
}

impl Candidate {
    pub fn new(factor: &'static Factor, confidence: f64, evidence: Vec<String>) -> Candidate {
        let confidence = confidence.clamp(0.0, 1.0);
        Candidate { factor, rank: factor.rank, confidence, evidence, thread: None, is_room_in_flight: false }
    }
    pub fn ranked(self, rank: u16) -> Candidate {
        Candidate { rank, ..self }
    }
    pub fn of_thread(self, thread: CoreTime) -> Candidate {
        Candidate { thread: Some(thread), ..self }
    }
    pub fn of_room_in_flight(self) -> Candidate {
        Candidate { is_room_in_flight: true, ..self }
    }
}

/// Half of the time: what holds more than this back bounds the trial, whatever else is there.
pub const MOST: f64 = 0.5;
/// A thread that ran or waited for a core this much of the time never waited for anything else.
pub const THREAD_FULL: f64 = 0.9;

/// Names the factor that bounded one step of one trial.
// Spec: evidence.md#order-1
pub fn limiting_factor(around: &Around, load: &Load, candidates: &[Candidate]) -> LimitingFactor {
    let waits = if load.fills_path { None } else { path::long_queue(around) };
    let cause = candidates.iter().chain(&waits).min_by_key(|candidate| candidate.rank);
    let unfit = fitness::emulator_limited(around, load, cause);
    if let Some(unfit) = unfit.or_else(|| fitness::generator_limited(around, load)) {
        return unfit;
    }
    if let Some(lines) = &load.still {
        return LimitingFactor::new(&UNKNOWN, 0.0, lines.clone());
    }
    let mut factor = match cause {
        Some(cause) => LimitingFactor::new(cause.factor, cause.confidence, cause.evidence.clone()),
        None => LimitingFactor::new(&UNKNOWN, 0.0, seen(load)),
    };
    factor.disturbed = fitness::disturbed(around, load);
    factor
}

fn seen(load: &Load) -> Vec<String> {
    if !load.unknown.is_empty() {
        return load.unknown.clone();
    }
    let line = match load.generator {
        Some(_) => "the load was sent at the rate asked for; no resource was asked for more",
        None => "each operation waits for the one before and for the path; no resource was asked for more",
    };
    vec![line.to_owned()]
}

/// The link that carried most of its rate, and how much.
pub fn fullest(around: &Around) -> Option<(&PortFacts, f64)> {
    let loads = around.ports.iter().filter_map(|port| Some((port, port.load_ratio?)));
    loads.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// What the fullest link carried, as a line that says that it was not the link.
pub fn not_the_link(around: &Around) -> Option<String> {
    let (port, load) = fullest(around)?;
    Some(format!("the fullest link, {}, carried only {} of its rate", port.name, percent(load)))
}

pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}
