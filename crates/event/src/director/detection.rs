//! Who is gone. Rules: `docs/specs/event-building.md#failure-1`.

use super::Director;
use super::figures::FailureKind;
use super::outbox::To;
use crate::ledger::Reason;
use crate::message::Message;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::scheduler::BuilderId;

impl Director {
    pub(super) fn probe(&mut self) {
        if self.now < self.next_probe || self.is_finished() {
            return;
        }
        self.next_probe = self.now + self.settings.probe;
        self.probe_number += 1;
        self.outbox.send(To::Peers, Message::Probe(self.probe_number));
        self.fence();
        self.watch_channels();
    }

    /// Closes connections that are silent for too long.
    fn fence(&mut self) {
        let mut late = Vec::new();
        for (connection, peer) in &self.connections {
            let (last, limit) = match peer.member {
                Some(_) => (peer.heard, self.settings.detect),
                None if self.is_learning() => continue,
                None => (peer.since, self.settings.join_within),
            };
            if self.now.since(last.max(self.awake_since)) > limit {
                late.push(*connection);
            }
        }
        for connection in late {
            self.outbox.close(connection, "it was silent for too long");
            self.forget(connection, FailureKind::Silent);
        }
    }

    /// Channels that worked and have been broken for too long.
    fn watch_channels(&mut self) {
        let detect = self.settings.detect;
        let late: Vec<(u32, Instant)> = self
            .members
            .known_builders()
            .filter_map(|(slot, builder)| Some((slot, builder.broken_since?)))
            .filter(|(_, since)| self.now.since(*since) >= detect)
            .collect();
        for (slot, since) in late {
            self.builder_stuck(slot, since);
        }
    }

    /// A source says to which builders its bytes do not move, µs (failure-2).
    pub(super) fn on_stuck(&mut self, source: u32, stuck: &[(u32, u32)]) {
        for (slot, stuck_us) in stuck {
            let stuck = Duration::from_micros(u64::from(*stuck_us));
            let works = self
                .members
                .builder(*slot)
                .is_some_and(|builder| builder.connection.is_some() && builder.is_working(source));
            if works && stuck >= self.settings.detect {
                self.builder_stuck(*slot, self.now - stuck);
            }
        }
    }

    /// A builder that answers and cannot be reached by some source: as if it had died and joined again.
    fn builder_stuck(&mut self, slot: u32, since: Instant) {
        self.builder_gone(slot, FailureKind::Stuck, since);
        let has_channel = self.members.builder(slot).is_some_and(|builder| builder.channel.is_some());
        if has_channel {
            // Only a channel made anew shows that the way is free.
            self.set_channel(slot, true, true);
        }
        let remedies = self.policy.on_join(BuilderId(slot), true);
        self.remedy(&remedies);
    }

    /// Events that need a source which is away for too long are given up (failure-4).
    pub(super) fn watch(&mut self) {
        if self.ledger.held_count() > 0 && self.sources_lost() {
            self.drop_all(Reason::SourceLost);
        }
    }

    /// Whether some source is away for longer than the deadline.
    pub(super) fn sources_lost(&self) -> bool {
        if self.members.all_sources() || !self.is_started() {
            return false;
        }
        let away = |since: Instant| self.now.since(since) >= self.settings.source_deadline;
        self.members.sources.iter().any(|source| match source {
            Some(source) => source.away_since.is_some_and(away),
            // After a recovery: it was never here in this scheduler's life.
            None => away(self.recovered_at),
        })
    }
}
