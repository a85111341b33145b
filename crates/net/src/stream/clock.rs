//! The instants a flow works by, all on its own host's monotonic clock.

use std::time::Duration;
use weir_core::time::nanoseconds;

/// How long the end of a flow may take before it is called a failure.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Without any byte arriving, after the load's end.
    pub drain_idle: Duration,
    /// Altogether after the load's end.
    pub drain: Duration,
    /// Without any progress in a flow bounded by bytes, which has no planned end.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            drain_idle: Duration::from_secs(5),
            drain: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

/// What the end of the load means to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The sender shuts its side; the receiver reads to the end and shuts its own.
    Drained,
    /// Both stop where they are and shut nothing: the ends agree on it elsewhere, and what is under way counts nowhere.
    Cut,
}

#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub start_ns: u64,
    /// Start of the steady state.
    pub warm_ns: u64,
    /// End of sending and of the steady state; `u64::MAX` for a flow bounded by bytes.
    pub end_ns: u64,
    pub patience: Patience,
    pub ending: Ending,
}

impl Schedule {
    pub fn new(start_ns: u64, warm_up: Duration, duration: Option<Duration>, patience: Patience) -> Self {
        let after = |time: Duration| start_ns.saturating_add(nanoseconds(time));
        let end_ns = duration.map_or(u64::MAX, after);
        Schedule { start_ns, warm_ns: after(warm_up), end_ns, patience, ending: Ending::Drained }
    }
    pub fn duration_bounded(&self) -> bool {
        self.end_ns != u64::MAX
    }
    /// The edge of the steady state that comes next after `now_ns`; `u64::MAX` after the last.
    pub fn next_edge_ns(&self, now_ns: u64) -> u64 {
        match now_ns {
            _ if now_ns < self.warm_ns => self.warm_ns,
            _ if now_ns < self.end_ns => self.end_ns,
            _ => u64::MAX,
        }
    }
}
