//! Names the limiting factor of a trial from what was counted.
//!
//! The rules are tried in a fixed order and the first that holds names the factor: what disqualifies the measurement
//! itself, then a full link, then a closed window, then loss. Everything else is `unknown`, with what was seen.

use crate::record::{Factor, LimitingFactor};
use crate::units::human;
use serde::{Deserialize, Serialize};

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
    pub dropped_queue: u64,
    pub dropped_loss: u64,
    pub dropped_outage: u64,
    /// Sent below its rate by this share although packets waited the whole time; 0 when it kept its rate.
    pub missed_rate_ratio: f64,
}

/// What the emulator and the machine did meanwhile; absent on real hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EmulatorFacts {
    /// 99th percentile of written − planned, seconds.
    pub lateness_seconds: Option<f64>,
    /// The least that percentile may be, with 97.5 % confidence: what is judged.
    pub lateness_seconds_least: Option<f64>,
    /// Smallest one-way delay of the step's paths, seconds.
    pub one_way_seconds: f64,
    /// Share of the steady state that the fabric's thread spent on a CPU.
    pub fabric_busy_ratio: f64,
    /// Share of all cores' time that was idle.
    pub machine_idle_ratio: f64,
    /// Share of all cores' time that programs outside the run took.
    pub foreign_busy_ratio: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `None` for workloads that do not try to fill the path.
    pub transport: Option<TransportFacts>,
    pub ports: Vec<PortFacts>,
    pub emulator: Option<EmulatorFacts>,
    /// `None` for loads without a clock of their own.
    pub generator: Option<GeneratorFacts>,
}

/// A link this full leaves nothing to gain: what is missing is within a congestion control's normal swing.
const LINK_FULL: f64 = 0.97;
/// Above this the model was kept whatever the lateness (DESIGN section 8).
const LINK_FULL_BEYOND_DOUBT: f64 = 0.99;
/// A thread this busy, or a machine this little idle, had nothing left to give.
const SATURATED: f64 = 0.95;

/// Other programs that take this much of a machine without idle time slow hosts and fabric at moments nobody chose.
const DISTURBED: f64 = 0.15;

/// Largest lateness that leaves a trial valid: the larger of 5 % of the path's one-way delay and 500 µs, in seconds.
pub fn lateness_allowed_seconds(one_way_seconds: f64) -> f64 {
    (0.05 * one_way_seconds).max(500e-6)
}

/// Names the factor that bounded one step of one trial.
pub fn limiting_factor(facts: &Facts) -> LimitingFactor {
    emulator_limited(facts)
        .or_else(|| link_rate(facts))
        .or_else(|| receive_window(facts))
        .or_else(|| loss(facts))
        .unwrap_or_else(|| unknown(facts))
}

fn fullest(facts: &Facts) -> Option<(&PortFacts, f64)> {
    let loads = facts.ports.iter().filter_map(|port| Some((port, port.load_ratio?)));
    loads.max_by(|one, other| one.1.total_cmp(&other.1))
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn emulator_limited(facts: &Facts) -> Option<LimitingFactor> {
    let emulator = facts.emulator?;
    if fullest(facts).is_some_and(|(_, load)| load >= LINK_FULL_BEYOND_DOUBT) {
        return None;
    }
    let mut evidence = Vec::new();
    let allowed = lateness_allowed_seconds(emulator.one_way_seconds);
    if emulator.lateness_seconds_least.is_some_and(|least| least > allowed)
        && let Some(lateness) = emulator.lateness_seconds
    {
        evidence.push(format!(
            "the fabric delivered up to {} late (99 %), allowed are {}",
            human(lateness, "s"),
            human(allowed, "s")
        ));
    }
    for port in facts.ports.iter().filter(|port| port.missed_rate_ratio > 0.005) {
        evidence.push(format!(
            "{} missed its own rate by {} with packets waiting",
            port.name,
            percent(port.missed_rate_ratio)
        ));
    }
    if facts.transport.is_some() && emulator.fabric_busy_ratio >= SATURATED {
        evidence.push(format!("the fabric used {} of its core", percent(emulator.fabric_busy_ratio)));
    }
    let machine_full = 1.0 - emulator.machine_idle_ratio >= SATURATED;
    if machine_full && facts.transport.is_some() && emulator.foreign_busy_ratio >= DISTURBED {
        evidence.push(format!(
            "the machine that carries the lab had no CPU left, and other programs took {} of it",
            percent(emulator.foreign_busy_ratio)
        ));
    }
    // A busy machine alone proves nothing against a trial that something else bounded.
    if machine_full
        && facts.transport.is_some()
        && link_rate(facts).or_else(|| receive_window(facts)).or_else(|| loss(facts)).is_none()
    {
        evidence.push(format!(
            "all cores of the machine that carries the lab were {} busy, and no link was full",
            percent(1.0 - emulator.machine_idle_ratio)
        ));
    }
    (!evidence.is_empty()).then_some(LimitingFactor {
        name: Factor::EmulatorLimited,
        confidence: 0.9,
        evidence,
    })
}

fn link_rate(facts: &Facts) -> Option<LimitingFactor> {
    facts.transport?;
    let (port, load) = fullest(facts)?;
    if load < LINK_FULL {
        return None;
    }
    let mut evidence = vec![format!("{} carried {} of its rate", port.name, percent(load))];
    if port.dropped_queue > 0 {
        evidence.push(format!("its queue overflowed: {} packets dropped", port.dropped_queue));
    }
    Some(LimitingFactor { name: Factor::LinkRate, confidence: load.min(1.0), evidence })
}

fn receive_window(facts: &Facts) -> Option<LimitingFactor> {
    let transport = facts.transport?;
    if transport.busy_seconds <= 0.0 {
        return None;
    }
    let share = transport.receive_window_limited_seconds / transport.busy_seconds;
    if share < 0.5 {
        return None;
    }
    let mut evidence =
        vec![format!("senders waited for the receiver's window {} of their busy time", percent(share))];
    if transport.rtt_seconds > 0.0 && transport.flow_count > 0 {
        let window =
            transport.goodput_bits_per_second * transport.rtt_seconds / 8.0 / transport.flow_count as f64;
        evidence.push(format!(
            "{} in flight a flow over a round trip of {}: more needs a larger window",
            human(window, "B"),
            human(transport.rtt_seconds, "s")
        ));
    }
    if let Some((port, load)) = fullest(facts) {
        evidence.push(format!("the fullest link, {}, carried {} of its rate", port.name, percent(load)));
    }
    Some(LimitingFactor { name: Factor::ReceiveWindow, confidence: share.min(1.0), evidence })
}

fn loss(facts: &Facts) -> Option<LimitingFactor> {
    let transport = facts.transport?;
    let needed = transport.retransmitted_segments.saturating_sub(transport.duplicate_segments);
    if needed == 0 || transport.sent_segments == 0 {
        return None;
    }
    // A sender that waits for its application or its buffers is not held back by the losses it also sees.
    let free = transport.observed_seconds - transport.busy_seconds + transport.send_buffer_limited_seconds;
    let held_elsewhere = (free / transport.observed_seconds.max(1e-9)).clamp(0.0, 1.0);
    if held_elsewhere > 0.5 {
        return None;
    }
    let share = needed as f64 / transport.sent_segments as f64;
    let mut evidence = vec![format!("{needed} segments sent again ({} of all)", percent(share))];
    for port in &facts.ports {
        for (count, what) in [
            (port.dropped_loss, "lost on the wire of"),
            (port.dropped_outage, "lost in an outage of"),
            (port.dropped_queue, "dropped by the queue of"),
        ] {
            if count > 0 {
                evidence.push(format!("{count} packets {what} {}", port.name));
            }
        }
    }
    if let Some((port, load)) = fullest(facts) {
        evidence.push(format!("the fullest link, {}, carried only {} of its rate", port.name, percent(load)));
    }
    Some(LimitingFactor { name: Factor::Loss, confidence: 1.0 - held_elsewhere, evidence })
}

fn unknown(facts: &Facts) -> LimitingFactor {
    let mut evidence = Vec::new();
    match facts.transport {
        None => evidence.push(
            "one request at a time waits for the round trip; no resource was asked for more".to_owned(),
        ),
        Some(transport) => {
            if transport.send_buffer_limited_seconds > 0.5 * transport.busy_seconds {
                evidence.push("senders waited for send-buffer space most of their busy time".to_owned());
            }
            if let Some((port, load)) = fullest(facts) {
                evidence.push(format!(
                    "no link was full: {} carried {} of its rate",
                    port.name,
                    percent(load)
                ));
            }
            evidence.push(format!("{} segments sent again", transport.retransmitted_segments));
        }
    }
    LimitingFactor { name: Factor::Unknown, confidence: 0.0, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy_flow() -> TransportFacts {
        TransportFacts {
            flow_count: 1,
            observed_seconds: 10.0,
            busy_seconds: 10.0,
            sent_segments: 100_000,
            goodput_bits_per_second: 500e6,
            rtt_seconds: 0.016,
            ..TransportFacts::default()
        }
    }
    fn link(load: f64) -> PortFacts {
        PortFacts { name: "link.wan.forward".to_owned(), load_ratio: Some(load), ..PortFacts::default() }
    }
    fn calm() -> EmulatorFacts {
        EmulatorFacts {
            lateness_seconds: Some(80e-6),
            lateness_seconds_least: Some(70e-6),
            one_way_seconds: 0.008,
            fabric_busy_ratio: 0.3,
            machine_idle_ratio: 0.4,
            foreign_busy_ratio: 0.02,
        }
    }
    fn named(transport: TransportFacts, port: PortFacts, emulator: EmulatorFacts) -> Factor {
        let facts = Facts {
            transport: Some(transport),
            ports: vec![port],
            emulator: Some(emulator),
            generator: None,
        };
        limiting_factor(&facts).name
    }

    #[test]
    fn each_cause_alone_is_named_and_without_it_the_factor_is_unknown() {
        assert_eq!(named(busy_flow(), link(0.5), calm()), Factor::Unknown);
        assert_eq!(named(busy_flow(), link(0.985), calm()), Factor::LinkRate);
        let windowed = TransportFacts { receive_window_limited_seconds: 9.0, ..busy_flow() };
        assert_eq!(named(windowed, link(0.5), calm()), Factor::ReceiveWindow);
        let lossy = TransportFacts { retransmitted_segments: 80, ..busy_flow() };
        assert_eq!(named(lossy, link(0.5), calm()), Factor::Loss);
        let late =
            EmulatorFacts { lateness_seconds: Some(0.002), lateness_seconds_least: Some(0.001), ..calm() };
        let one_late_of_few = EmulatorFacts { lateness_seconds: Some(0.002), ..calm() };
        assert_eq!(named(busy_flow(), link(0.5), one_late_of_few), Factor::Unknown);
        assert_eq!(named(busy_flow(), link(0.5), late), Factor::EmulatorLimited);
        let saturated = EmulatorFacts { fabric_busy_ratio: 0.99, ..calm() };
        assert_eq!(named(busy_flow(), link(0.5), saturated), Factor::EmulatorLimited);
        let full_machine = EmulatorFacts { machine_idle_ratio: 0.01, ..calm() };
        assert_eq!(named(busy_flow(), link(0.5), full_machine), Factor::EmulatorLimited);
        let missed = PortFacts { missed_rate_ratio: 0.01, ..link(0.96) };
        assert_eq!(named(busy_flow(), missed, calm()), Factor::EmulatorLimited);
    }

    #[test]
    fn a_link_at_its_ceiling_is_never_discarded_for_lateness_or_a_busy_cpu() {
        let struggling = EmulatorFacts {
            lateness_seconds: Some(0.01),
            lateness_seconds_least: Some(0.009),
            one_way_seconds: 0.0003,
            fabric_busy_ratio: 1.0,
            machine_idle_ratio: 0.0,
            foreign_busy_ratio: 0.5,
        };
        assert_eq!(named(busy_flow(), link(0.995), struggling), Factor::LinkRate);
    }

    #[test]
    fn a_busy_machine_does_not_hide_a_cause_that_explains_the_rate() {
        let full_machine = EmulatorFacts { machine_idle_ratio: 0.0, ..calm() };
        let windowed = TransportFacts { receive_window_limited_seconds: 9.0, ..busy_flow() };
        assert_eq!(named(windowed, link(0.5), full_machine), Factor::ReceiveWindow);
    }

    #[test]
    fn a_machine_that_other_programs_fill_judges_nothing_but_a_full_link() {
        let disturbed = EmulatorFacts { machine_idle_ratio: 0.0, foreign_busy_ratio: 0.5, ..calm() };
        let lossy = TransportFacts { retransmitted_segments: 80, ..busy_flow() };
        assert_eq!(named(lossy, link(0.5), disturbed), Factor::EmulatorLimited);
        assert_eq!(named(lossy, link(0.995), disturbed), Factor::LinkRate);
        let room_left = EmulatorFacts { machine_idle_ratio: 0.2, foreign_busy_ratio: 0.5, ..calm() };
        assert_eq!(named(lossy, link(0.5), room_left), Factor::Loss);
    }

    #[test]
    fn needless_retransmissions_are_not_loss() {
        let reordered = TransportFacts { retransmitted_segments: 40, duplicate_segments: 40, ..busy_flow() };
        assert_eq!(named(reordered, link(0.5), calm()), Factor::Unknown);
    }

    #[test]
    fn lateness_is_judged_against_the_path() {
        assert_eq!(lateness_allowed_seconds(0.001), 500e-6);
        assert!((lateness_allowed_seconds(0.1) - 0.005).abs() < 1e-12);
    }
}
