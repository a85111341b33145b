//! A source's or a builder's way to its scheduler: call, join, be welcomed, call again when it is lost.

use crate::interval::Intervals;
use std::time::Duration;
use weir_core::Instant;

/// How long a peer waits before it tries again.
// Spec: event-building.md#connections-3
pub const RETRY: Duration = Duration::from_millis(200);
/// How long a connection may take to be welcomed. A scheduler that was stopped must not hold its peers for ever.
const WELCOME_LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away {
        call_at: Instant,
    },
    /// The shell has been asked to connect.
    Calling,
    Joining {
        until: Instant,
    },
    In,
    Ended,
}

/// What the passing of time asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Call,
    HangUp,
}

#[derive(Debug)]
pub struct Member {
    state: State,
}

impl Member {
    pub fn new(now: Instant) -> Member {
        Member { state: State::Away { call_at: now } }
    }
    pub fn is_in(&self) -> bool {
        self.state == State::In
    }
    pub fn is_joining(&self) -> bool {
        matches!(self.state, State::Joining { .. })
    }
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }
    pub fn wake_at(&self) -> Instant {
        match self.state {
            State::Away { call_at } => call_at,
            State::Joining { until } => until,
            _ => Instant::NEVER,
        }
    }
    pub fn on_wake(&mut self, now: Instant) -> Option<Due> {
        match self.state {
            State::Away { call_at } if call_at <= now => {
                self.state = State::Calling;
                Some(Due::Call)
            }
            State::Joining { until } if until <= now => {
                self.state = State::Away { call_at: now + RETRY };
                Some(Due::HangUp)
            }
            _ => None,
        }
    }
    /// Whether it is time to join.
    pub fn on_connected(&mut self, now: Instant) -> bool {
        let calling = self.state == State::Calling;
        if calling {
            self.state = State::Joining { until: now + WELCOME_LIMIT };
        }
        calling
    }
    pub fn on_welcome(&mut self) {
        self.state = State::In;
    }
    /// The connection has ended, or could not be made.
    pub fn on_closed(&mut self, now: Instant) {
        if !matches!(self.state, State::Ended | State::Away { .. }) {
            self.state = State::Away { call_at: now + RETRY };
        }
    }
    pub fn end(&mut self) {
        self.state = State::Ended;
    }
}

/// Bytes of sets of ids in a join, as JSON, so that it fits a frame whatever has happened: of those that may be long, and of the others.
/// The first hold every other one of all the events that a scheduler holds at once.
pub const KNOWN_BYTES: usize = 300_000;
pub const KNOWN_FEW_BYTES: usize = 10_000;

/// The highest ids, as many as so many bytes say.
pub fn highest(ids: &Intervals, bytes_max: usize) -> Intervals {
    let mut kept = ids.clone();
    kept.keep_highest_written(bytes_max);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::director::Settings;

    #[test]
    fn every_other_event_of_a_full_scheduler_is_said() {
        let (mut ids, held_max) = (Intervals::default(), Settings::default().held_max);
        // Late in a long run.
        (1 << 40..(1 << 40) + held_max).step_by(2).for_each(|id| _ = ids.insert(id));
        assert!(highest(&ids, KNOWN_BYTES) == ids);
    }
}
