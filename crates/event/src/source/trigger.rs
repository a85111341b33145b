//! The source's own clock of heartbeats.

use super::Source;
use weir_core::Instant;

/// Where the clock stands, once it was told.
// Spec: event-building.md#beats-3
pub(super) struct Trigger {
    /// A heartbeat and when it is due.
    anchor: Option<(u64, Instant)>,
    /// The next one to be made, and when.
    next: (u64, Instant),
}

impl Trigger {
    pub(super) fn waiting() -> Trigger {
        Trigger { anchor: None, next: (0, Instant::NEVER) }
    }
    pub(super) fn due(&self) -> Instant {
        self.next.1
    }
    /// Heartbeat `id` is due at `at`, by the scheduler's word. The first word sets the clock, and it runs by itself from then on.
    pub(super) fn set(&mut self, id: u64, at: Instant) {
        if self.anchor.is_none() {
            self.anchor = Some((id, at));
            self.next = (id, at);
        }
    }
    /// Goes on with `id`.
    fn advance(&mut self, id: u64, period_ns: f64) {
        if let Some((from, at)) = self.anchor {
            self.next = (id, later(at, id.saturating_sub(from), period_ns));
        }
    }
}

/// `count` periods after `from`, by multiplication: no error adds up.
pub(super) fn later(from: Instant, count: u64, period_ns: f64) -> Instant {
    // A conversion saturates where a run cannot reach.
    Instant::from_ns(from.as_ns().saturating_add((count as f64 * period_ns + 0.5) as u64))
}

impl Source {
    /// Makes what is due by the own clock.
    pub(super) fn pull_trigger(&mut self, now: Instant) {
        let Some(period_ns) = self.run.as_ref().map(|run| run.period_ns) else { return };
        while let Some((id, at)) = self.trigger.as_ref().map(|trigger| trigger.next) {
            if at > now {
                return;
            }
            if !self.knows(id) && !self.make(id, at) {
                self.lose(id, 1);
            }
            if let Some(trigger) = &mut self.trigger {
                trigger.advance(id.saturating_add(1), period_ns);
            }
        }
    }
}
