//! What the path did to the packets: a full link, broken order, loss, queues too small or too long.

use super::{Facts, MOST, PortFacts, TransportFacts, fullest, named, not_the_link, percent};
use crate::record::{Factor, LimitingFactor};
use crate::units::human;

/// A link this full leaves nothing to gain: what is missing is within a congestion control's normal swing.
const LINK_FULL: f64 = 0.97;
/// Of the segments sent again, fewer than this share lost on a path whose every port counts: the rest was needless.
const HARDLY_LOST: f64 = 0.1;

// Spec: evidence.md#path-1
pub(super) fn link_rate(facts: &Facts) -> Option<LimitingFactor> {
    let pressed = facts.transport.is_some() || facts.building.is_some_and(|building| building.is_short());
    let (port, load) = fullest(facts)?;
    if !pressed || load < LINK_FULL {
        return None;
    }
    let mut evidence = vec![format!("{} carried {} of its rate", port.name, percent(load))];
    if port.dropped_queue > 0 {
        evidence.push(format!("its queue overflowed: {} packets dropped", port.dropped_queue));
    }
    named(Factor::LinkRate, load, evidence)
}

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
fn over_ports(facts: &Facts, of: fn(&PortFacts) -> u64) -> u64 {
    facts.ports.iter().map(of).sum()
}

fn dropped_steady(facts: &Facts) -> u64 {
    over_ports(facts, |port| port.dropped_queue_steady + port.dropped_otherwise_steady)
}

/// Segments sent again although they had arrived: as the receivers said (DSACK), or, on a path whose ports count every drop,
/// all beyond those.
fn needless(facts: &Facts, transport: &TransportFacts) -> u64 {
    let proven = if facts.emulator.is_some() && !facts.ports.is_empty() {
        transport.retransmitted_segments.saturating_sub(dropped_steady(facts))
    } else {
        0
    };
    transport.duplicate_segments.max(proven)
}

// Spec: evidence.md#path-3
pub(super) fn reordering(facts: &Facts) -> Option<LimitingFactor> {
    let transport = facts.transport?;
    let held = held_elsewhere(&transport)?;
    let stack = facts.stack;
    let overtaken = over_ports(facts, |port| port.reordered_steady);
    let order_broken = stack.reordering_count > 0 || stack.out_of_order_segments > 0 || overtaken > 0;
    let counted = facts.emulator.is_some() && !facts.ports.is_empty();
    let again = transport.retransmitted_segments as f64;
    let needless = needless(facts, &transport);
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
    for port in facts.ports.iter().filter(|port| port.reordered_steady > 0) {
        let count = port.reordered_steady;
        evidence.push(format!("{count} packets were overtaken by later ones on {}", port.name));
    }
    if counted {
        evidence.push(format!("the path dropped {} packets", dropped_steady(facts)));
    }
    evidence.extend(not_the_link(facts));
    named(Factor::Reordering, share * (1.0 - held), evidence)
}

/// Segments that had to be sent again because they were gone, and `held_elsewhere`.
fn needed(transport: &TransportFacts) -> Option<(u64, f64)> {
    let held = held_elsewhere(transport)?;
    let needed = transport.retransmitted_segments.saturating_sub(transport.duplicate_segments);
    (needed > 0).then_some((needed, held))
}

fn lost_lines(facts: &Facts, transport: &TransportFacts, needed: u64) -> Vec<String> {
    let share = needed as f64 / transport.sent_segments as f64;
    let mut evidence = vec![format!("{needed} segments sent again ({} of all)", percent(share))];
    for port in &facts.ports {
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
    evidence.extend(not_the_link(facts));
    evidence
}

// Spec: evidence.md#path-4
pub(super) fn small_queue(facts: &Facts) -> Option<LimitingFactor> {
    let transport = facts.transport?;
    let (needed, held) = needed(&transport)?;
    let by_queues = over_ports(facts, |port| port.dropped_queue_steady);
    let otherwise = over_ports(facts, |port| port.dropped_otherwise_steady);
    if by_queues <= otherwise {
        return None;
    }
    let share = by_queues as f64 / (by_queues + otherwise) as f64;
    named(Factor::Queue, share * (1.0 - held), lost_lines(facts, &transport, needed))
}

// Spec: evidence.md#path-5
pub(super) fn loss(facts: &Facts) -> Option<LimitingFactor> {
    let transport = facts.transport?;
    let (needed, held) = needed(&transport)?;
    named(Factor::Loss, 1.0 - held, lost_lines(facts, &transport, needed))
}

/// For a load that fills nothing: the longest queue on its path holds packets longer than the rest of the round trip.
// Spec: evidence.md#path-6
pub(super) fn long_queue(facts: &Facts) -> Option<LimitingFactor> {
    if facts.transport.is_some() {
        return None;
    }
    let round_trip = 2.0 * facts.emulator?.one_way_seconds;
    let longest = facts.ports.iter().max_by(|a, b| a.queue_seconds.total_cmp(&b.queue_seconds))?;
    if round_trip <= 0.0 || longest.queue_seconds < round_trip {
        return None;
    }
    let share = longest.queue_seconds / (longest.queue_seconds + round_trip);
    let evidence = vec![format!(
        "packets waited {} on average in the queue of {}; the round trip without queues is {}",
        human(longest.queue_seconds, "s"),
        longest.name,
        human(round_trip, "s")
    )];
    named(Factor::Queue, share, evidence)
}

pub(super) fn unknown(facts: &Facts) -> LimitingFactor {
    let mut evidence = Vec::new();
    match facts.transport {
        None if facts.generator.is_some() => evidence
            .push("the load was sent at the rate asked for; no resource was asked for more".to_owned()),
        None => evidence.push(
            "each operation waits for the one before and for the path; no resource was asked for more"
                .to_owned(),
        ),
        Some(transport) => {
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
    LimitingFactor::new(Factor::Unknown, 0.0, evidence)
}
