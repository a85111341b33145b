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

/// The highest `most` intervals: what is said to a scheduler must fit a frame.
pub fn highest(ids: &Intervals, most: usize) -> Intervals {
    let mut kept = ids.clone();
    kept.keep_highest(most);
    kept
}
