//! What the path did to the flows' segments: broken order, loss, queues too small.

use super::{Around, Candidate, LOSS, QUEUE, REORDERING, TransportFacts, percent};
use weir_core::evidence::{MOST, PortFacts, not_the_link};

/// Of the segments sent again, fewer than this share lost on a path whose every port counts: the rest was needless.
const HARDLY_LOST: f64 = 0.1;

/// The share of the time in which something else than the congestion window held the senders back; `None` when that was
/// most of it, or nothing was sent again.
// Spec: evidence.md#path-2
fn held_elsewhere(transport: &TransportFacts) -> Option<f64> {
    if transport.retransmitted_segments == 0 || transport.sent_segments == 0 {
        return None;
    }
    // A sender that waits for its application or its buffers is not held back by the losses it also sees.
    let free = transport.observed_seconds - transport.busy_seconds + transport.send_buffer_limited_seconds;
    let share = (free / transport.observed_seconds.max(1e-9)).clamp(0.0, 1.0);
    (share <= MOST).then_some(share)
}

/// Packets over all ports of the path.
fn over_ports(around: &Around, of: fn(&PortFacts) -> u64) -> u64 {
    around.ports.iter().map(of).sum()
}

fn dropped_steady(around: &Around) -> u64 {
    over_ports(around, |port| port.dropped_queue_steady + port.dropped_otherwise_steady)
}

/// Segments sent again although they had arrived: as the receivers said (DSACK), or, on a path whose ports count every drop,
/// all beyond those.
fn needless(around: &Around, transport: &TransportFacts) -> u64 {
    let proven = if around.emulator.is_some() && !around.ports.is_empty() {
        transport.retransmitted_segments.saturating_sub(dropped_steady(around))
    } else {
        0
    };
    transport.duplicate_segments.max(proven)
}

// Spec: evidence.md#path-3
pub(super) fn reordering(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let held = held_elsewhere(transport)?;
    let stack = around.stack;
    let overtaken = over_ports(around, |port| port.reordered_steady);
    let order_broken = stack.reordering_count > 0 || stack.out_of_order_segments > 0 || overtaken > 0;
    let counted = around.emulator.is_some() && !around.ports.is_empty();
    let again = transport.retransmitted_segments as f64;
    let needless = needless(around, transport);
    let share = (needless as f64 / again).min(1.0);
    let enough = if counted { 1.0 - HARDLY_LOST } else { MOST };
    if !order_broken || share <= enough {
        return None;
    }
    let mut evidence = vec![format!(
        "{} segments sent again, {needless} of them although they had arrived",
        transport.retransmitted_segments
    )];
    if stack.out_of_order_segments > 0 {
        evidence.push(format!("{} segments arrived before an earlier one", stack.out_of_order_segments));
    }
    if stack.reordering_count > 0 {
        evidence.push(format!("senders found the order broken {} times", stack.reordering_count));
    }
    for port in around.ports.iter().filter(|port| port.reordered_steady > 0) {
        let count = port.reordered_steady;
        evidence.push(format!("{count} packets were overtaken by later ones on {}", port.name));
    }
    if counted {
        evidence.push(format!("the path dropped {} packets", dropped_steady(around)));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&REORDERING, share * (1.0 - held), evidence))
}

/// Segments that had to be sent again because they were gone, and `held_elsewhere`.
fn needed(transport: &TransportFacts) -> Option<(u64, f64)> {
    let held = held_elsewhere(transport)?;
    let needed = transport.retransmitted_segments.saturating_sub(transport.duplicate_segments);
    (needed > 0).then_some((needed, held))
}

fn lost_lines(around: &Around, transport: &TransportFacts, needed: u64) -> Vec<String> {
    let share = needed as f64 / transport.sent_segments as f64;
    let mut evidence = vec![format!("{needed} segments sent again ({} of all)", percent(share))];
    for port in &around.ports {
        for (count, what) in [
            (port.dropped_loss, "lost on the wire of"),
            (port.dropped_outage, "lost in an outage of"),
            (port.dropped_queue, "dropped by the queue of"),
            (port.dropped_unfit, "too large, or at the end of their hop limit, for"),
            (port.corrupted, "corrupted on the wire of"),
        ] {
            if count > 0 {
                evidence.push(format!("{count} packets {what} {}", port.name));
            }
        }
    }
    evidence.extend(not_the_link(around));
    evidence
}

// Spec: evidence.md#path-4
pub(super) fn small_queue(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let (needed, held) = needed(transport)?;
    let by_queues = over_ports(around, |port| port.dropped_queue_steady);
    let otherwise = over_ports(around, |port| port.dropped_otherwise_steady);
    if by_queues <= otherwise {
        return None;
    }
    let share = by_queues as f64 / (by_queues + otherwise) as f64;
    Some(Candidate::new(&QUEUE, share * (1.0 - held), lost_lines(around, transport, needed)))
}

// Spec: evidence.md#path-5
pub(super) fn loss(transport: &TransportFacts, around: &Around) -> Option<Candidate> {
    let (needed, held) = needed(transport)?;
    Some(Candidate::new(&LOSS, 1.0 - held, lost_lines(around, transport, needed)))
}
