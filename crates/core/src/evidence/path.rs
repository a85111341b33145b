//! What the ports of the path show of any load.

use super::{Around, Candidate, QUEUE, fullest, percent};
use crate::evidence::LINK_RATE;
use crate::units::human;

/// A link this full leaves nothing to gain: what is missing is within a congestion control's normal swing.
const LINK_FULL: f64 = 0.97;
/// Asked after everything that a load may say of itself.
const LONG_QUEUE_RANK: u16 = 900;

/// Of a load that wants more than it gets: a link is full.
// Spec: evidence.md#path-1
pub fn link_rate(around: &Around) -> Option<Candidate> {
    let (port, load) = fullest(around)?;
    if load < LINK_FULL {
        return None;
    }
    let mut evidence = vec![format!("{} carried {} of its rate", port.name, percent(load))];
    if port.dropped_queue > 0 {
        evidence.push(format!("its queue overflowed: {} packets dropped", port.dropped_queue));
    }
    Some(Candidate::new(&LINK_RATE, load, evidence))
}

/// For a load that fills nothing: the longest queue on its path holds packets longer than the rest of the round trip.
// Spec: evidence.md#path-6
pub(super) fn long_queue(around: &Around) -> Option<Candidate> {
    let round_trip = 2.0 * around.emulator?.one_way_seconds;
    let longest = around.ports.iter().max_by(|a, b| a.queue_seconds.total_cmp(&b.queue_seconds))?;
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
    Some(Candidate::new(&QUEUE, share, evidence).ranked(LONG_QUEUE_RANK))
}
