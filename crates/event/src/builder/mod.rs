//! The builder: joins the fragments of its heartbeats to events, and says so.
//!
//! A pure machine. The shell accepts, reads and writes; it tells what has happened, and takes `poll`'s actions until there is none. Data
//! is read straight into its place: `space` gives it and `on_filled` takes the count; `on_bytes` is for what was read elsewhere, such
//! as many small fragments at once.

mod assembly;
mod early;
mod grants;
mod lane;
mod pool;
#[cfg(test)]
mod tests;

pub use lane::{Cut, Refusal};

use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::member::{Due, KNOWN_BYTES, KNOWN_FEW_BYTES, Member, highest};
use crate::message::{
    Answer, Done, Join, Known, Message, Outcome, Role, RunId, SourceList, VERSION, Welcome,
};
use crate::table::Table;
use assembly::{Events, Slots};
use early::Early;
use lane::Lane;
use pool::Pool;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;
use weir_core::Instant;

/// Bytes that are read only to be thrown away go here.
const SCRATCH_BYTES: usize = 64 << 10;
/// A fragment waits for its assignment for a quarter of `detect`, within these bounds. Meanwhile it holds up what comes behind it from its
/// source, and the scheduler must not take that for a builder that hangs.
const EARLY_LIMITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// A source waits no longer than an eighth of `detect` for another that moves, and not at all for one that has stood still for as long: a builder
/// that grants nothing until `detect` counts as one that hangs. At most the second; where it is below the first, before which nobody
/// might look again, none waits.
const WAIT_LIMITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
/// Ids that had their end here are remembered, so that a late fragment is known at once.
const PAST_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    pub host: String,
    /// Nanoseconds of real time when it was started.
    pub incarnation: u64,
    /// What it holds at most, headers included. An eighth more is taken from the system, since buffers come in classes.
    pub memory_bytes: u64,
    /// Where sources reach it.
    pub data: SocketAddr,
    /// What is done with a complete event takes so long, one event after the other; it is held meanwhile. Zero for nothing.
    pub work: Duration,
}

/// What the shell is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect to the scheduler; then `on_connected`, or `on_closed` where it could not be.
    Call,
    /// Close the connection to the scheduler, as far as there is one. Nothing is to be told of it.
    HangUp,
    /// To the scheduler.
    Send(Message),
    /// To the source at the other end of a data connection.
    SendTo { link: u64, message: Message },
    /// Close a data connection. Nothing is to be told of it.
    Cut { link: u64, why: Cut },
    /// For the figures; an event that is taken away or given up at the scheduler's word is not among them.
    Built(Built),
    /// The builder's part is over; the reason is for people.
    End(String),
}

/// How an event went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    pub id: u64,
    pub epoch: u32,
    pub outcome: Outcome,
    pub fragments: u32,
    /// Headers included.
    pub bytes: u64,
    /// What the builder holds of other events at this moment, headers included.
    pub held_bytes: u64,
    /// From the first fragment's header to the last byte of the last one.
    pub assembly_ns: u64,
    /// From the heartbeat to the end, by the ages that sources say.
    pub age_ns: u64,
}

/// Counts since the builder was started. Bytes are payload and headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub received_bytes: u64,
    /// Whole fragments, whatever became of them.
    pub received: u64,
    /// In complete and partial events.
    pub joined: u64,
    pub joined_bytes: u64,
    /// Joined or kept for later, and then given away: with an event that was dropped or assigned anew.
    pub given_away: u64,
    pub given_away_bytes: u64,
    pub complete: u64,
    pub partial: u64,
    pub dropped: u64,
    /// For an event that was given up because it was too old.
    pub late: u64,
    /// From a source that is not of the event.
    pub mismatched: u64,
    pub duplicate: u64,
    /// Of another epoch than the assignment's, or of none.
    pub stale: u64,
    pub corrupt: u64,
    /// Fragments asked for again.
    pub asked_again: u64,
    /// Sources cut off for what they sent.
    pub cut: u64,
    /// Messages that a scheduler must not send here.
    pub unexpected: u64,
}

/// What holds for a run.
struct Run {
    id: RunId,
    slot: u32,
    /// Highest seen.
    epoch: u32,
    /// No assignment comes under an earlier one: the latest one's, and after a welcome one above the welcome's.
    assigned_epoch: u32,
    window_bytes: u64,
    deadline: Option<Duration>,
    partial: bool,
    /// After so long a peer counts as gone.
    detect: Duration,
    /// The last heartbeat heard of, and when it was.
    last: Option<(u64, Instant)>,
}

impl Run {
    /// How long a fragment waits for its assignment.
    fn early_limit(&self) -> Duration {
        (self.detect / 4).clamp(EARLY_LIMITS.0, EARLY_LIMITS.1)
    }
    /// How long a source may be silent before it is asked again.
    fn patience(&self) -> Duration {
        self.detect.saturating_mul(2).max(assembly::PATIENCE_MIN)
    }
    /// How long a source that is far ahead waits for others.
    fn wait(&self) -> Duration {
        let wait = self.detect / 8;
        if wait < WAIT_LIMITS.0 { Duration::ZERO } else { wait.min(WAIT_LIMITS.1) }
    }
}

pub struct Builder {
    settings: Settings,
    member: Member,
    run: Option<Run>,
    /// By the source's slot.
    lanes: Vec<Lane>,
    /// Of which sources a new event is made.
    listed: Slots,
    /// Data connections and the slots of their sources.
    links: BTreeMap<u64, u16>,
    sources_version: Option<u32>,
    events: Events,
    early: Early,
    /// Said to be done and not confirmed.
    finished: Table<(u32, Outcome)>,
    /// Confirmed or taken away: their epochs.
    past: Table<u32>,
    settled: Settled,
    done: Vec<Done>,
    pool: Pool,
    /// Room that is taken by fragments, whole or on their way, headers included.
    held_bytes: u64,
    shares: grants::Shares,
    scratch: Vec<u8>,
    working: VecDeque<(Instant, u64, u32)>,
    look_at: Instant,
    /// As it was said last.
    now: Instant,
    actions: VecDeque<Action>,
    figures: Figures,
}

impl Builder {
    pub fn new(settings: Settings, now: Instant) -> Builder {
        Builder {
            pool: Pool::new(settings.memory_bytes),
            settings,
            member: Member::new(now),
            run: None,
            lanes: Vec::new(),
            listed: Slots::default(),
            links: BTreeMap::new(),
            sources_version: None,
            events: Events::default(),
            early: Early::default(),
            finished: Table::default(),
            past: Table::default(),
            settled: Settled::default(),
            done: Vec::new(),
            held_bytes: 0,
            shares: grants::Shares::default(),
            scratch: vec![0; SCRATCH_BYTES],
            working: VecDeque::new(),
            look_at: Instant::NEVER,
            now,
            actions: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        if self.actions.is_empty() && !self.done.is_empty() && self.member.is_in() {
            // What has ended since the last time goes in one message.
            return Some(Action::Send(Message::Done(mem::take(&mut self.done))));
        }
        self.actions.pop_front()
    }

    /// When to call `on_wake`, if nothing else happens before.
    pub fn wake_at(&self) -> Instant {
        let work = self.working.front().map_or(Instant::NEVER, |(at, ..)| *at);
        self.member.wake_at().min(work).min(self.look_at)
    }

    pub fn on_wake(&mut self, now: Instant) {
        self.now = now;
        match self.member.on_wake(now) {
            Some(Due::Call) => self.actions.push_back(Action::Call),
            Some(Due::HangUp) => self.actions.push_back(Action::HangUp),
            None => {}
        }
        self.end_work(now);
        if self.look_at <= now {
            self.look_around(now);
        }
    }

    /// The scheduler is connected and has proven the key.
    pub fn on_connected(&mut self, now: Instant) {
        if self.member.on_connected(now) {
            // What is not said now is nobody's: the scheduler could not take it back.
            let ids = self.events.ids();
            let said = highest(&ids, KNOWN_BYTES);
            for id in ids.iter().filter(|id| !said.contains(*id)) {
                self.give_away(id);
            }
            let join = self.join(now);
            // The join says it all.
            self.done.clear();
            self.actions.push_back(Action::Send(Message::Join(Box::new(join))));
        }
    }

    /// The connection to the scheduler has ended or could not be made. What is under assembly goes on.
    pub fn on_closed(&mut self, now: Instant) {
        self.member.on_closed(now);
    }

    pub fn on_message(&mut self, message: &Message, now: Instant) {
        self.now = now;
        if self.member.has_ended() {
            return;
        }
        match message {
            Message::Welcome(welcome) if self.member.is_joining() => self.on_welcome(welcome, now),
            Message::Refused(refused) if refused.again => {
                self.member.on_closed(now);
                self.actions.push_back(Action::HangUp);
            }
            Message::Refused(refused) => self.end(&refused.why),
            Message::Leave(why) => self.end(why),
            _ if !self.member.is_in() => self.figures.unexpected += 1,
            Message::Sources(list) => self.on_sources(list, now),
            Message::Assign(list) => {
                for assignment in list {
                    self.on_assignment(*assignment, now);
                }
                self.grant_all();
            }
            Message::Release(list) => {
                for release in list {
                    self.on_release(*release);
                }
            }
            Message::Settled(settled) => self.on_settled(settled),
            Message::Probe(number) => self.on_probe(*number),
            _ => self.figures.unexpected += 1,
        }
    }

    /// Ends the builder's part of its own will: its events go to others.
    pub fn stop(&mut self, why: &str) {
        if self.member.is_in() {
            self.actions.push_back(Action::Send(Message::Leave(why.to_owned())));
        }
        self.end(why);
    }

    fn end(&mut self, why: &str) {
        if !self.member.has_ended() {
            self.member.end();
            self.forget_run();
            self.actions.push_back(Action::End(why.to_owned()));
        }
    }

    fn join(&self, now: Instant) -> Join {
        Join {
            version: VERSION,
            name: self.settings.name.clone(),
            host: self.settings.host.clone(),
            incarnation: self.settings.incarnation,
            role: Role::Builder { memory_bytes: self.settings.memory_bytes, data: self.settings.data },
            known: self.run.as_ref().map(|run| self.known(run, now)),
        }
    }

    // Spec: event-building.md#failure-5
    fn known(&self, run: &Run, now: Instant) -> Known {
        let (mut complete, mut partial) = (Intervals::default(), Intervals::default());
        let mut dropped: BTreeMap<Reason, Intervals> = BTreeMap::new();
        for (id, (_, outcome)) in self.finished.iter() {
            match outcome {
                Outcome::Complete => complete.insert(id),
                Outcome::Partial => partial.insert(id),
                Outcome::Dropped(reason) => dropped.entry(*reason).or_default().insert(id),
            };
        }
        Known {
            run: run.id.clone(),
            slot: run.slot,
            epoch: run.epoch,
            last: run.last.map(|(id, born)| (id, now.since(born).as_nanos() as u64)),
            held: highest(&self.events.ids(), KNOWN_BYTES),
            complete: highest(&complete, KNOWN_BYTES),
            partial: highest(&partial, KNOWN_FEW_BYTES),
            dropped: dropped.iter().map(|(reason, ids)| (*reason, highest(ids, KNOWN_FEW_BYTES))).collect(),
            settled: self.settled.clone(),
        }
    }

    fn on_welcome(&mut self, welcome: &Welcome, now: Instant) {
        let same = self.run.as_ref().is_some_and(|run| run.id == welcome.run && run.slot == welcome.slot);
        if !same {
            self.forget_run();
        }
        let before = self.run.take().filter(|_| same);
        let seen = before.as_ref().map_or(0, |run| run.epoch);
        self.run = Some(Run {
            id: welcome.run.clone(),
            slot: welcome.slot,
            epoch: welcome.epoch.max(seen),
            assigned_epoch: before
                .as_ref()
                .map_or(0, |run| run.assigned_epoch)
                .max(welcome.epoch.saturating_add(1)),
            window_bytes: welcome.grant_window_bytes,
            deadline: welcome.deadline_ns.map(Duration::from_nanos),
            partial: welcome.partial,
            detect: Duration::from_nanos(welcome.detect_ns),
            last: before.and_then(|run| run.last),
        });
        self.member.on_welcome();
        self.share_window();
        self.look_at = now + assembly::LOOK_EVERY;
    }

    /// Another run, or none: nothing of the one before counts.
    fn forget_run(&mut self) {
        for slot in 0..self.lanes.len() {
            self.close_lane(slot as u16, Some(Cut::OtherRun));
        }
        self.drop_early();
        for id in self.events.ids().iter() {
            self.give_away(id);
        }
        self.lanes.clear();
        self.listed = Slots::default();
        self.sources_version = None;
        self.finished.clear();
        self.past.clear();
        self.settled = Settled::default();
        self.done.clear();
        self.working.clear();
        self.run = None;
        self.look_at = Instant::NEVER;
        self.shares = grants::Shares::default();
    }

    fn on_sources(&mut self, list: &SourceList, now: Instant) {
        if list.sources.iter().any(|(slot, _)| u16::try_from(*slot).is_err()) {
            return self.end("a source's slot does not fit a fragment's header");
        }
        let highest = list.sources.iter().map(|(slot, _)| *slot as usize + 1).max().unwrap_or(0);
        for lane in &mut self.lanes {
            lane.listed = false;
        }
        while self.lanes.len() < highest {
            self.lanes.push(Lane::new(now));
        }
        self.listed.reset(self.lanes.len());
        for (slot, _) in &list.sources {
            self.lanes[*slot as usize].listed = true;
            self.listed.put(*slot as u16);
        }
        self.sources_version = Some(list.version);
        for slot in 0..self.lanes.len() {
            if !self.lanes[slot].listed {
                self.close_lane(slot as u16, Some(Cut::NotListed));
            }
        }
        self.share_window();
    }

    fn on_probe(&mut self, number: u64) {
        let answer = Answer {
            number,
            held_bytes: self.held_bytes,
            moved_bytes: self.figures.received_bytes,
            held_events: u32::try_from(self.events.len()).unwrap_or(u32::MAX),
            stuck: Vec::new(),
        };
        self.actions.push_back(Action::Send(Message::Answer(answer)));
    }

    /// Takes a message's list back when it has been sent, so that the next is built in it.
    pub fn recycle(&mut self, message: Message) {
        if let Message::Done(mut list) = message
            && self.done.capacity() == 0
        {
            list.clear();
            self.done = list;
        }
    }

    /// The run it is part of, once it has been welcomed.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref().map(|run| &run.id)
    }
    pub fn figures(&self) -> Figures {
        self.figures
    }
    /// Room that fragments take, headers included: never more than `memory_bytes`.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
    pub fn held_events(&self) -> usize {
        self.events.len()
    }
    /// What its buffers take from the system, idle ones included, and how many were made since it was started.
    pub fn buffers(&self) -> (u64, u64) {
        (self.pool.bytes(), self.pool.made())
    }
    /// Bytes that sources may send now, and those that are kept before their assignment: never more than the window.
    pub fn granted_bytes(&self) -> u64 {
        self.lanes.iter().map(Lane::out_bytes).sum()
    }
}
