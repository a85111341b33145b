//! What the two ends of the flows may be short of: data, buffers, CPU, a reader.

use super::{
    Around, Candidate, RECEIVE_WINDOW, RECEIVER_APPLICATION, RECEIVER_CPU, SEND_BUFFER, SENDER_CPU,
    SOURCE_APPLICATION, TransportFacts, percent,
};
use weir_core::evidence::{CoreTime, MOST, THREAD_FULL, not_the_link};
use weir_core::units::human;

/// A window that was closed less than this was not what the sender felt.
const CLOSED_AT_TIMES: f64 = 0.1;

impl TransportFacts {
    /// Share of all connection time.
    fn of_observed(&self, seconds: f64) -> f64 {
        if self.observed_seconds > 0.0 { seconds / self.observed_seconds } else { 0.0 }
    }
    /// Share of the time in which there was something to send or in flight.
    fn of_busy(&self, seconds: f64) -> f64 {
        if self.busy_seconds > 0.0 { seconds / self.busy_seconds } else { 0.0 }
    }
    /// Payload in flight of one flow, mean, bytes: rate × round trip.
    fn in_flight_bytes(&self) -> Option<f64> {
        (self.rtt_seconds > 0.0 && self.flow_count > 0)
            .then(|| self.goodput_bits_per_second * self.rtt_seconds / 8.0 / self.flow_count as f64)
    }
}

/// A sender whose data nobody gets fills its buffer, waits, and sends again: that tells of no resource.
// Spec: evidence.md#order-3
pub(super) fn nothing_arrived(transport: &TransportFacts) -> Option<Vec<String>> {
    (transport.goodput_bits_per_second <= 0.0).then(|| {
        vec![
            "no byte arrived in the steady state: a time in which nothing moves shows no limit".to_owned(),
            format!("{} segments sent again", transport.retransmitted_segments),
        ]
    })
}

// Spec: evidence.md#ends-1
pub(super) fn receiver_application(transport: &TransportFacts, _around: &Around) -> Option<Candidate> {
    let share = transport.receiver_waiting_seconds / transport.receive_observed_seconds.max(1e-9);
    if share < MOST {
        return None;
    }
    let mut evidence =
        vec![format!("the receiving program held back from reading {} of the time", percent(share))];
    if transport.receive_queue_bytes > 0.0 {
        evidence
            .push(format!("{} a flow had arrived and lay unread", human(transport.receive_queue_bytes, "B")));
    }
    let closed = transport.of_busy(transport.receive_window_limited_seconds);
    if closed > 0.0 {
        evidence.push(format!("senders waited for its window {} of their busy time", percent(closed)));
    }
    Some(Candidate::new(&RECEIVER_APPLICATION, share, evidence))
}

// Spec: evidence.md#ends-2
pub(super) fn source_application(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let share = transport.of_observed(transport.source_waiting_seconds);
    if share < MOST {
        return None;
    }
    let mut evidence =
        vec![format!("the sending program waited for its source {} of the time", percent(share))];
    let idle = transport.of_observed(transport.observed_seconds - transport.busy_seconds);
    if idle > 0.005 {
        evidence.push(format!("TCP had nothing to send or in flight {} of the time", percent(idle)));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&SOURCE_APPLICATION, share, evidence))
}

// Spec: evidence.md#ends-3
pub(super) fn send_buffer(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let counted = transport.of_busy(transport.send_buffer_limited_seconds);
    // The kernel counts that time only while nothing at all is left to send, and the last part of a segment, which waits for the
    // rest of it, hides it. It calls its rate limited by the application then; where the program neither waited for its
    // source nor for a core, it was the buffer that took no more.
    let (ran, waited) = (transport.sender_thread_busy_ratio, transport.sender_thread_wait_ratio);
    let program_kept_up = transport.of_observed(transport.source_waiting_seconds) < CLOSED_AT_TIMES
        && !starved(ran, waited)
        && transport.of_busy(transport.receive_window_limited_seconds) < CLOSED_AT_TIMES;
    let ran_dry = transport.of_observed(transport.application_limited_seconds);
    let (share, line) = if counted >= MOST || !program_kept_up {
        let line = "senders had sent all their buffer holds and waited for acknowledgements";
        (counted, format!("{line} {} of their busy time", percent(counted)))
    } else {
        let line = "TCP had no whole segment left to send";
        (ran_dry, format!("{line} {} of the time, though the program always had data", percent(ran_dry)))
    };
    if share < MOST {
        return None;
    }
    let mut evidence = vec![line];
    if let Some(bytes) = transport.in_flight_bytes() {
        evidence.push(format!(
            "{} in flight a flow over a round trip of {}: more needs a larger send buffer",
            human(bytes, "B"),
            human(transport.rtt_seconds, "s")
        ));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&SEND_BUFFER, share, evidence).of_room_in_flight())
}

// Spec: evidence.md#ends-4
pub(super) fn receiver_cpu(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let (ran, waited) = (transport.receiver_thread_busy_ratio, transport.receiver_thread_wait_ratio);
    let closed = transport.of_busy(transport.receive_window_limited_seconds);
    let sender = transport.sender_thread_busy_ratio + transport.sender_thread_wait_ratio;
    if !starved(ran, waited) || (closed < CLOSED_AT_TIMES && sender >= ran + waited) {
        return None;
    }
    let mut evidence = cpu_lines("receiving", ran, waited);
    if closed > 0.0 {
        evidence.push(format!("senders waited for its window {} of their busy time", percent(closed)));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&RECEIVER_CPU, ran + waited, evidence).of_thread(CoreTime { ran, waited }))
}

// Spec: evidence.md#ends-6
pub(super) fn sender_cpu(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let (ran, waited) = (transport.sender_thread_busy_ratio, transport.sender_thread_wait_ratio);
    if !starved(ran, waited) {
        return None;
    }
    let mut evidence = cpu_lines("sending", ran, waited);
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&SENDER_CPU, ran + waited, evidence).of_thread(CoreTime { ran, waited }))
}

/// Whether a thread with these shares was held back by its core: never idle, or kept waiting for it most of the time (a sender
/// that gets the core seldom fills its buffer at once, and waits for room until it is kept waiting again).
fn starved(ran: f64, waited: f64) -> bool {
    ran + waited >= THREAD_FULL || waited >= MOST
}

fn cpu_lines(which: &str, ran: f64, waited: f64) -> Vec<String> {
    let mut lines = vec![format!(
        "the busiest {which} thread ran {} of the time and waited for a core {} of it",
        percent(ran),
        percent(waited)
    )];
    if waited > ran {
        lines.push("other programs had the core, or a CPU quota was used up".to_owned());
    }
    lines
}

// Spec: evidence.md#ends-5
pub(super) fn receive_window(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let share = transport.of_busy(transport.receive_window_limited_seconds);
    if share < MOST {
        return None;
    }
    let mut evidence =
        vec![format!("senders waited for the receiver's window {} of their busy time", percent(share))];
    if let Some(bytes) = transport.in_flight_bytes() {
        evidence.push(format!(
            "{} in flight a flow over a round trip of {}: more needs a larger window",
            human(bytes, "B"),
            human(transport.rtt_seconds, "s")
        ));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&RECEIVE_WINDOW, share, evidence).of_room_in_flight())
}
