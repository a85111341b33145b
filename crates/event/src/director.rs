//! The scheduler role's pure core. It takes what peers say and the time, and gives what to do next; the shell around it owns sockets and
//! the clock. Rules: `docs/specs/event-building.md`.
//!
//! ```text
//! on_connected, on_message, on_closed, on_wake  →  state changes and batches grow
//! poll                                          →  events get builders, batches become messages
//! ```
//!
//! The shell hands over all that has come before it polls, so that batches are as large as the moment allows.

mod assignments;
mod beats;
mod channels;
mod detection;
mod figures;
mod members;
mod outbox;
mod recovery;
mod roll;
mod search;
mod settings;
mod table;
#[cfg(test)]
mod tests;

pub use figures::{BuilderLine, Failure, FailureKind};
pub use outbox::{Action, GroupRole, To};
pub use search::{Probe, SearchPlan};
pub use settings::Settings;

use crate::ledger::Ledger;
use crate::message::{Message, RunId};
use figures::Figures;
use members::{Connection, Member, Members};
use outbox::Outbox;
use recovery::Learning;
use roll::Roll;
use search::Search;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use table::Table;
use weir_core::Instant;
use weir_seams::death_policy::DeathPolicy;
use weir_seams::scheduler::{Builders, Scheduler};

/// For each interval of held events that a settling names, so long until the next that does: all peers read it.
const SETTLE_PAUSE_OF_OPEN: Duration = Duration::from_micros(20);

/// Where a run stands.
#[derive(Debug)]
enum Phase {
    /// Hears from peers whether there is a run already.
    Learning(Learning),
    /// Waits until everyone whom the first heartbeat needs is ready.
    Gathering,
    Running,
    /// No more heartbeats; what is held is given up at this time.
    Draining {
        until: Instant,
    },
    Finished,
}

pub struct Director {
    settings: Settings,
    scheduler: Box<dyn Scheduler>,
    policy: Box<dyn DeathPolicy>,
    run: RunId,
    phase: Phase,
    /// The last time that was told.
    now: Instant,
    /// Silence counts from here at the earliest: before, this core itself was not running.
    awake_since: Instant,
    /// Heartbeat 0 was due, or is, ns; before the clock began after a recovery.
    origin_ns: i128,
    recovered_at: Instant,
    /// When heartbeats were last told of.
    beaten: Instant,
    /// When it may next be settled, and when that may name what is held.
    settle_at: Instant,
    settle_all_at: Instant,
    connections: BTreeMap<u64, Connection>,
    members: Members,
    /// Who may join.
    roll: Roll,
    /// Membership epoch (names-3).
    epoch: u32,
    /// What the scheduler sees: builders that may be chosen.
    view: Builders,
    /// After `ReopenAll`: nothing is assigned until every channel works.
    reopening: bool,
    ledger: Ledger,
    table: Table,
    /// Events without a builder, ascending. Some may have ended since.
    waiting: VecDeque<u64>,
    next_probe: Instant,
    probe_number: u64,
    /// The list of builders has changed since the sources were told.
    builders_changed: bool,
    builders_told: Instant,
    outbox: Outbox,
    figures: Figures,
    search: Option<Search>,
}

impl Director {
    /// `run`: the name of the run if no peer knows one, 32 hexadecimal digits of randomness.
    pub fn new(
        settings: Settings,
        scheduler: Box<dyn Scheduler>,
        policy: Box<dyn DeathPolicy>,
        run: RunId,
    ) -> Director {
        let members = Members::new(settings.sources as usize);
        Director {
            scheduler,
            policy,
            run,
            phase: Phase::Learning(Learning::default()),
            now: Instant::ZERO,
            awake_since: Instant::ZERO,
            origin_ns: 0,
            recovered_at: Instant::ZERO,
            beaten: Instant::ZERO,
            settle_at: Instant::ZERO,
            settle_all_at: Instant::ZERO,
            connections: BTreeMap::new(),
            members,
            roll: Roll::default(),
            epoch: 0,
            view: Builders::default(),
            reopening: false,
            ledger: Ledger::new(),
            table: Table::default(),
            waiting: VecDeque::new(),
            next_probe: Instant::ZERO,
            probe_number: 0,
            builders_changed: false,
            builders_told: Instant::ZERO,
            outbox: Outbox::default(),
            figures: Figures::default(),
            search: None,
            settings,
        }
    }

    /// A connection has proven itself; `connection` is a number that is not used again.
    pub fn on_connected(&mut self, connection: u64, now: Instant) {
        self.advance(now);
        let limit = self.settings.connections_max();
        if matches!(self.phase, Phase::Finished) || self.connections.len() >= limit {
            self.outbox.close(connection, "no more connections are taken now");
            return;
        }
        self.connections.insert(connection, Connection { member: None, since: now, heard: now });
    }

    pub fn on_message(&mut self, connection: u64, message: &Message, now: Instant) {
        self.advance(now);
        let Some(peer) = self.connections.get_mut(&connection) else { return };
        peer.heard = now;
        match (peer.member, message) {
            (None, Message::Join(join)) => self.on_join(connection, join),
            (None, _) => self.expel(connection, "the first word of a peer is join"),
            (Some(_), Message::Leave(_)) => self.expel(connection, "it has left"),
            (Some(Member::Source(slot)), Message::Answer(answer)) => self.on_stuck(slot, &answer.stuck),
            (Some(Member::Source(slot)), Message::Announce { first, bytes }) => {
                self.on_announce(connection, slot, *first, bytes);
            }
            (Some(Member::Source(slot)), Message::Channel(changes)) => self.on_channel(slot, changes),
            (Some(Member::Source(_)), Message::Lost(ranges)) => self.on_lost(ranges),
            (Some(Member::Builder(_)), Message::Answer(_)) => {}
            (Some(Member::Builder(slot)), Message::Done(all)) => self.on_done(connection, slot, all),
            (Some(_), _) => self.expel(connection, "its role does not say this"),
        }
    }

    /// The connection has ended, or what came over it was not of the protocol.
    pub fn on_closed(&mut self, connection: u64, now: Instant) {
        self.advance(now);
        self.forget(connection, FailureKind::Closed);
    }

    pub fn on_wake(&mut self, now: Instant) {
        self.advance(now);
        self.end_learning();
        self.begin();
        self.issue_beats();
        self.probe();
        self.watch();
        self.give_up_late();
        self.end_drain();
    }

    /// An event waits for room at a builder.
    pub fn waits_for_room(&self) -> bool {
        !self.waiting.is_empty() && !self.view.listed().is_empty()
    }

    /// `on_wake` is to be called then.
    pub fn wake_at(&self) -> Instant {
        let mut wake = self.next_probe;
        if self.builders_changed {
            wake = wake.min(self.builders_told + self.list_pause());
        }
        if let (Some(deadline), Some(oldest)) = (self.settings.deadline, self.waiting.front()) {
            wake = wake.min(self.due(*oldest) + deadline);
        }
        match self.phase {
            Phase::Finished => return Instant::NEVER,
            Phase::Running => wake = wake.min(self.next_beat()),
            Phase::Draining { until } => wake = wake.min(until),
            Phase::Learning(_) | Phase::Gathering => {}
        }
        wake
    }

    /// No more heartbeats: what is held is drained (beats-4).
    pub fn stop(&mut self, now: Instant) {
        self.advance(now);
        match self.phase {
            Phase::Learning(_) | Phase::Gathering => self.finish(),
            Phase::Running => self.drain(),
            Phase::Draining { .. } | Phase::Finished => {}
        }
    }

    /// What to do next; `None` when there is nothing more until something happens.
    pub fn poll(&mut self) -> Option<Action> {
        if self.outbox.is_empty() {
            self.assign_waiting();
            self.end_drain();
            self.outbox.flush();
            self.settle_when_long();
            self.tell_builders();
        }
        self.outbox.next()
    }

    /// Takes a message's vectors back when it is encoded, so that the next is built in them.
    pub fn recycle(&mut self, message: Message) {
        self.outbox.recycle(message);
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    pub fn run(&self) -> &RunId {
        &self.run
    }
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
    /// Events without a builder; of the held ones, the others are in flight.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
    /// Whether heartbeats are being issued.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }
    /// The latest failures of peers, oldest first.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.figures.failures.iter()
    }

    fn advance(&mut self, now: Instant) {
        // It is asked to wake at least once a probe. After a pause of its own, silence of others proves nothing.
        if now.since(self.now) > 2 * self.settings.probe {
            self.awake_since = now;
        }
        self.now = self.now.max(now);
    }

    /// No more heartbeats from now on.
    fn drain(&mut self) {
        self.ledger.aside.undelivered = Some(self.ledger.held_count());
        self.phase = Phase::Draining { until: self.now + self.settings.drain };
    }

    fn end_drain(&mut self) {
        let Phase::Draining { until } = self.phase else { return };
        if self.ledger.held_count() == 0 || self.now >= until {
            self.finish();
        }
    }

    /// Closes the ledger and sends everyone away.
    fn finish(&mut self) {
        self.drop_all(crate::ledger::Reason::Shutdown);
        self.outbox.flush();
        self.outbox.send(To::Peers, Message::Leave("the run has ended".to_owned()));
        self.outbox.finished();
        self.phase = Phase::Finished;
    }

    /// So that no ledger, here or at a peer, grows with the length of a run.
    fn settle_when_long(&mut self) {
        if self.ledger.is_long() {
            return self.settle();
        }
        if self.ledger.unsettled() <= self.settings.unsettled_max || self.now < self.settle_at {
            return;
        }
        self.settle_at = self.now + self.settings.settle_pause;
        if self.now >= self.settle_all_at || self.ledger.settles_briefly().is_some() {
            self.settle();
        }
    }

    fn settle(&mut self) {
        // What it covers was said before.
        self.outbox.flush();
        let settled = self.ledger.settle().clone();
        let open = u32::try_from(settled.open.interval_count()).unwrap_or(u32::MAX);
        self.settle_at = self.now + self.settings.settle_pause;
        self.settle_all_at = self.now + SETTLE_PAUSE_OF_OPEN * open;
        self.outbox.send(To::Peers, Message::Settled(settled));
    }
}
