//! Names the limiting factor of a trial from what was counted.
//!
//! The rules of `docs/specs/evidence.md` are tried in a fixed order and the first that holds names the factor: what
//! disqualifies the measurement itself, then a reader that holds back, a full link, the two ends, what the path did to
//! packets, and buffers. Everything else is `unknown`, with what was seen.

mod building;
mod ends;
mod fitness;
mod path;
#[cfg(test)]
mod tests;
mod window;

use crate::record::{Factor, LimitingFactor};
use serde::{Deserialize, Serialize};

pub use building::BuildingFacts;
pub use fitness::{LATENESS_ALLOWED_NS_LEAST, lateness_allowed_seconds};
pub use window::{BufferFacts, WindowFacts};

/// What TCP said of all senders' connections over the steady state, summed (times) or counted.
/// From `TCP_INFO`; times in seconds of connection time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransportFacts {
    pub flow_count: u64,
    /// Connection time observed: flows × interval.
    pub observed_seconds: f64,
    /// Time with data to send or in flight (`tcpi_busy_time`).
    pub busy_seconds: f64,
    /// Part of it stalled by the receiver's window (`tcpi_rwnd_limited`).
    pub receive_window_limited_seconds: f64,
    /// Part of it stalled by the send buffer (`tcpi_sndbuf_limited`).
    pub send_buffer_limited_seconds: f64,
    pub sent_segments: u64,
    pub retransmitted_segments: u64,
    /// Retransmissions that proved needless (`tcpi_dsack_dups`).
    pub duplicate_segments: u64,
    pub goodput_bits_per_second: f64,
    /// Mean smoothed round trip, seconds.
    pub rtt_seconds: f64,
    /// Connection time in which the sending program had nothing to send by its own account: it waited for its next tick
    /// (`source_rate`). Exact, by the program's clock.
    #[serde(default)]
    pub source_waiting_seconds: f64,
    /// Connection time in which TCP called its own delivery limited by the application: `observed_seconds` times the share of
    /// samples with `tcpi_delivery_rate_app_limited`. A slow source causes it, a sender without CPU, and a send buffer smaller
    /// than the congestion window; see `send_buffer_limited_seconds` and `sender_thread_busy_ratio` for which.
    #[serde(default)]
    pub application_limited_seconds: f64,
    /// Connection time observed at the receivers: flows × steady state.
    #[serde(default)]
    pub receive_observed_seconds: f64,
    /// Part of it in which the receiving program did not read by its own choice (`read_rate`). Exact, by the program's clock.
    #[serde(default)]
    pub receiver_waiting_seconds: f64,
    /// Bytes that lay unread in a receiver's kernel just after its program had read: mean over samples and flows
    /// (`SIOCINQ`).
    #[serde(default)]
    pub receive_queue_bytes: f64,
    /// Those bytes against themselves plus the window still advertised (`tcpi_rcv_wnd`), mean over samples and flows: near 0
    /// where the program keeps up, near 1 where it has closed the window by not reading. 0 where the kernel does not tell.
    #[serde(default)]
    pub receive_queue_ratio: f64,
    /// Share of the steady state that the busiest sending data thread spent on a CPU.
    #[serde(default)]
    pub sender_thread_busy_ratio: f64,
    /// Share of the steady state that the busiest receiving data thread spent on a CPU.
    #[serde(default)]
    pub receiver_thread_busy_ratio: f64,
    /// Share of the steady state in which the busiest sending data thread could have run and waited for a core: other programs
    /// had it, or a quota was used up (`weir_sys::clock::thread_cpu_wait_time`).
    #[serde(default)]
    pub sender_thread_wait_ratio: f64,
    /// As that, of the busiest receiving data thread.
    #[serde(default)]
    pub receiver_thread_wait_ratio: f64,
    /// For the window audit.
    #[serde(default)]
    pub window: WindowFacts,
}

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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `None` for workloads that do not try to fill the path.
    pub transport: Option<TransportFacts>,
    /// What the links on the flows' way leave for the payload of all of them; `None` where no link has a rate, or nobody knows.
    pub ceiling_bits_per_second: Option<f64>,
    pub ports: Vec<PortFacts>,
    pub stack: StackFacts,
    pub emulator: Option<EmulatorFacts>,
    /// `None` for loads without a clock of their own.
    pub generator: Option<GeneratorFacts>,
    /// `None` for workloads that build no events.
    pub building: Option<BuildingFacts>,
}

/// Half of the time: what holds more than this back bounds the trial, whatever else is there.
const MOST: f64 = 0.5;
/// A thread that ran or waited for a core this much of the time never waited for anything else.
const THREAD_FULL: f64 = 0.9;

/// A rule of `docs/specs/evidence.md`: its factor with the evidence, or nothing where it does not hold.
type Rule = fn(&Facts) -> Option<LimitingFactor>;

/// What may have bounded a load that was generated and carried as it should, in the order in which it is asked.
const CAUSES: [Rule; 14] = [
    ends::receiver_application,
    path::link_rate,
    building::scheduler,
    building::credits,
    ends::source_application,
    ends::send_buffer,
    ends::receiver_cpu,
    ends::receive_window,
    ends::sender_cpu,
    path::reordering,
    path::small_queue,
    path::loss,
    building::heartbeats,
    path::long_queue,
];

/// Names the factor that bounded one step of one trial.
// Spec: evidence.md#order-1
pub fn limiting_factor(facts: &Facts) -> LimitingFactor {
    let still = ends::nothing_arrived(facts);
    let without_transport = still.as_ref().map(|_| Facts { transport: None, ..facts.clone() });
    let moved = without_transport.as_ref().unwrap_or(facts);
    if let Some(unfit) = fitness::emulator_limited(moved).or_else(|| fitness::generator_limited(moved)) {
        return unfit;
    }
    if let Some(unknown) = still {
        return unknown;
    }
    let mut factor = cause(facts).unwrap_or_else(|| path::unknown(facts));
    factor.disturbed = fitness::disturbed(facts);
    factor.evidence.extend(window::audit(facts, factor.name));
    factor
}

fn cause(facts: &Facts) -> Option<LimitingFactor> {
    CAUSES.iter().find_map(|rule| rule(facts))
}

fn fullest(facts: &Facts) -> Option<(&PortFacts, f64)> {
    let loads = facts.ports.iter().filter_map(|port| Some((port, port.load_ratio?)));
    loads.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// What the fullest link carried, as a line that says that it was not the link.
fn not_the_link(facts: &Facts) -> Option<String> {
    let (port, load) = fullest(facts)?;
    Some(format!("the fullest link, {}, carried only {} of its rate", port.name, percent(load)))
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn named(name: Factor, confidence: f64, evidence: Vec<String>) -> Option<LimitingFactor> {
    Some(LimitingFactor::new(name, confidence.clamp(0.0, 1.0), evidence))
}
