//! The source: makes a fragment of every heartbeat, keeps it until it is released, and sends it where the scheduler says.
//!
//! A pure machine. The shell connects, reads and writes; it tells what has happened, and takes `poll`'s actions until there is none.
//! Data goes past the actions: `turn` says which builder can be written to, `gather` gives the bytes, `on_written` takes the count.

mod channel;
mod delivery;
mod fragments;
mod past;
#[cfg(test)]
mod tests;
mod trigger;

pub use channel::ChannelId;

use crate::ledger::Settled;
use crate::member::{Due, KNOWN_BYTES, KNOWN_FEW_BYTES, Member, highest};
use crate::message::{Answer, Join, Known, Message, Role, RunId, VERSION, Welcome};
use crate::payload::Payload;
use crate::table::Table;
use crate::wire::HEADER_BYTES;
use channel::Channel;
use fragments::Held;
use past::Past;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use trigger::Trigger;
use weir_core::{Instant, Values};
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::{SendOrder, SendOrderEntry};

/// Rates of heartbeats that make sense: one in a day to ten in a microsecond.
const RATE_HZ: RangeInclusive<f64> = 1e-5..=1e7;

/// What a source that was started again does about fragments of heartbeats from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recover {
    /// They are a function of seed, source and id: it makes them again.
    Remake,
    /// As with data from a detector: they are lost, and it says so.
    Lose,
}

#[derive(Clone)]
pub struct Settings {
    pub name: String,
    pub host: String,
    /// Nanoseconds of real time when it was started.
    pub incarnation: u64,
    /// What it holds at most, headers included.
    pub buffer_bytes: u64,
    pub recover: Recover,
    /// Where the run's send order is looked up.
    pub orders: &'static [SendOrderEntry],
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
    /// Connect to a builder (mode data, flow `slot()`, token of the run); then `on_channel_open` or `on_channel_closed`.
    Open { channel: ChannelId, address: SocketAddr },
    /// Close the connection, or stop making it. Nothing is to be told of it.
    Close(ChannelId),
    /// The source's part is over; the reason is for people.
    End(String),
}

/// Counts since the source was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub made: u64,
    /// Payload and headers, as all bytes here.
    pub made_bytes: u64,
    /// Whole fragments handed to the connection, those sent again included.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Of the sent: not the first time.
    pub again: u64,
    pub again_bytes: u64,
    /// Said to be lost: no room, or not to be made again.
    pub lost: u64,
    /// Messages that a scheduler or builder must not send here.
    pub unexpected: u64,
}

/// What holds for a run.
struct Run {
    id: RunId,
    slot: u16,
    epoch: u32,
    period_ns: f64,
    probe_ns: u64,
    /// When this process was first part of it: what is older was made by another.
    since: Instant,
    /// The last heartbeat heard of, and when it was.
    last: Option<(u64, Instant)>,
}

pub struct Source {
    settings: Settings,
    payload: Payload,
    member: Member,
    run: Option<Run>,
    trigger: Option<Trigger>,
    order: Option<Box<dyn SendOrder>>,
    order_name: String,
    held: Table<Held>,
    held_bytes: u64,
    past: Past,
    settled: Settled,
    channels: BTreeMap<u32, Channel>,
    attempts: u32,
    /// Builders that could be written to now, ascending.
    ready: Vec<BuilderId>,
    /// Builders whose channels have changed since `ready` was looked after: once for a message and not for each of its entries.
    touched: Vec<u32>,
    /// Whose turn it was last among those with a fragment begun.
    last_turn: BuilderId,
    actions: VecDeque<Action>,
    /// Sizes that are not announced yet: first id, and one behind the other.
    announced: (u64, Vec<u32>),
    lost: Vec<(u64, u32)>,
    figures: Figures,
    moved_bytes: u64,
}

impl Source {
    pub fn new(settings: Settings, payload: Payload, now: Instant) -> Source {
        Source {
            settings,
            payload,
            member: Member::new(now),
            run: None,
            trigger: None,
            order: None,
            order_name: String::new(),
            held: Table::default(),
            held_bytes: 0,
            past: Past::default(),
            settled: Settled::default(),
            channels: BTreeMap::new(),
            attempts: 0,
            ready: Vec::new(),
            touched: Vec::new(),
            last_turn: BuilderId(0),
            actions: VecDeque::new(),
            announced: (0, Vec::new()),
            lost: Vec::new(),
            figures: Figures::default(),
            moved_bytes: 0,
        }
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.say_sizes();
            self.say_lost();
        }
        self.actions.pop_front()
    }

    /// When to call `on_wake`, if nothing else happens before.
    pub fn wake_at(&self) -> Instant {
        let retry = self.channels.values().map(Channel::wake_at).min().unwrap_or(Instant::NEVER);
        let due = match &self.trigger {
            Some(trigger) if self.member.is_in() => trigger.due(),
            _ => Instant::NEVER,
        };
        self.member.wake_at().min(retry).min(due)
    }

    pub fn on_wake(&mut self, now: Instant) {
        match self.member.on_wake(now) {
            Some(Due::Call) => self.actions.push_back(Action::Call),
            Some(Due::HangUp) => self.actions.push_back(Action::HangUp),
            None => {}
        }
        self.retry_channels(now);
        if self.member.is_in() {
            self.pull_trigger(now);
        }
    }

    /// The scheduler is connected and has proven the key.
    pub fn on_connected(&mut self, now: Instant) {
        if self.member.on_connected(now) {
            let join = self.join(now);
            self.actions.push_back(Action::Send(Message::Join(Box::new(join))));
        }
    }

    /// The connection to the scheduler has ended or could not be made. Fragments go on to the builders that have them assigned.
    pub fn on_closed(&mut self, now: Instant) {
        self.member.on_closed(now);
    }

    /// A word of the scheduler. With a probe, `on_unacknowledged` comes before, for each of `unacknowledged()`.
    pub fn on_message(&mut self, message: &Message, now: Instant) {
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
            Message::Builders(list) => self.on_builders(list, now),
            Message::Beats { first, count, age_ns } => self.on_beats(*first, *count, *age_ns, now),
            // Spec: event-building.md#beats-3
            Message::Start { first, in_ns } => {
                if let Some(trigger) = &mut self.trigger {
                    trigger.set(*first, Instant::from_ns(now.as_ns().saturating_add(*in_ns)));
                }
            }
            Message::Settled(settled) => self.on_settled(settled, now),
            Message::Assign(list) => {
                for assignment in list {
                    self.on_assignment(*assignment, now);
                }
                self.refresh_touched(now);
            }
            Message::Release(list) => {
                for release in list {
                    self.on_release(*release, now);
                }
            }
            Message::Probe(number) => self.on_probe(*number, now),
            _ => self.figures.unexpected += 1,
        }
    }

    /// Ends the source's part of its own will. What it holds is lost to the run.
    pub fn stop(&mut self, why: &str) {
        if self.member.is_in() {
            self.actions.push_back(Action::Send(Message::Leave(why.to_owned())));
        }
        self.end(why);
    }

    fn end(&mut self, why: &str) {
        if !self.member.has_ended() {
            self.member.end();
            self.close_all();
            self.actions.push_back(Action::End(why.to_owned()));
        }
    }

    fn join(&mut self, now: Instant) -> Join {
        let held = highest(&self.held_ids(), KNOWN_BYTES);
        let (complete, partial, dropped) = self.past.sets();
        let known = self.run.as_ref().map(|run| Known {
            run: run.id.clone(),
            slot: u32::from(run.slot),
            epoch: run.epoch,
            last: run.last.map(|(id, born)| (id, now.since(born).as_nanos() as u64)),
            held,
            complete: highest(complete, KNOWN_BYTES),
            partial: highest(partial, KNOWN_FEW_BYTES),
            dropped: (dropped.iter()).map(|(reason, ids)| (*reason, highest(ids, KNOWN_FEW_BYTES))).collect(),
            settled: self.settled.clone(),
        });
        Join {
            version: VERSION,
            name: self.settings.name.clone(),
            host: self.settings.host.clone(),
            incarnation: self.settings.incarnation,
            role: Role::Source {
                buffer_bytes: self.settings.buffer_bytes,
                fragment_bytes_max: u64::from(self.payload.sizes().bytes_max()) + HEADER_BYTES as u64,
                fixed: self.payload.sizes().is_fixed(),
            },
            known,
        }
    }

    fn on_welcome(&mut self, welcome: &Welcome, now: Instant) {
        let Ok(slot) = u16::try_from(welcome.slot) else {
            return self.end(&format!("the slot {} does not fit a fragment's header", welcome.slot));
        };
        if !RATE_HZ.contains(&welcome.rate_hz) {
            return self.end(&format!("{} Hz is no rate of heartbeats", welcome.rate_hz));
        }
        let Some(entry) = self.settings.orders.iter().find(|entry| entry.name == welcome.send_order) else {
            return self.end(&format!("the send order {:?} is not known here", welcome.send_order));
        };
        let same = self.run.as_ref().is_some_and(|run| run.id == welcome.run && run.slot == slot);
        if !same {
            self.forget_run();
            self.payload.seeded(welcome.seed, &self.settings.name);
        }
        if self.order.is_none() || self.order_name != welcome.send_order {
            self.close_all();
            self.order = Some((entry.build)(&Values::defaults(entry.params)));
            self.order_name.clone_from(&welcome.send_order);
        }
        let before = self.run.take().filter(|_| same);
        self.run = Some(Run {
            id: welcome.run.clone(),
            slot,
            epoch: welcome.epoch.max(before.as_ref().map_or(0, |run| run.epoch)),
            period_ns: 1e9 / welcome.rate_hz,
            probe_ns: welcome.probe_ns,
            since: before.as_ref().map_or(now, |run| run.since),
            last: before.and_then(|run| run.last),
        });
        // The first beats after a welcome set the clock: a scheduler that was started again may go on at another pace.
        self.trigger = welcome.trigger_at_source.then(Trigger::waiting);
        self.member.on_welcome();
        self.announce_held();
        self.report_channels();
    }

    /// Another run: nothing of the one before counts.
    fn forget_run(&mut self) {
        self.close_all();
        self.held.clear();
        self.held_bytes = 0;
        self.past = Past::default();
        self.settled = Settled::default();
        self.announced.1.clear();
        self.lost.clear();
        self.trigger = None;
        self.run = None;
        self.order = None;
    }

    fn on_probe(&mut self, number: u64, now: Instant) {
        let probe_ns = self.run.as_ref().map_or(0, |run| run.probe_ns);
        let stuck = self.channels.iter().filter_map(|(slot, channel)| {
            let stuck_ns = channel.stuck_ns(now).filter(|ns| *ns >= probe_ns)?;
            Some((*slot, u32::try_from(stuck_ns / 1000).unwrap_or(u32::MAX)))
        });
        let answer = Answer {
            number,
            held_bytes: self.held_bytes,
            moved_bytes: self.moved_bytes,
            held_events: u32::try_from(self.held.len()).unwrap_or(u32::MAX),
            stuck: stuck.collect(),
        };
        self.actions.push_back(Action::Send(Message::Answer(answer)));
    }

    /// Takes a message's list back when it has been sent, so that the next is built in it.
    pub fn recycle(&mut self, message: Message) {
        match message {
            Message::Announce { mut bytes, .. } if self.announced.1.capacity() == 0 => {
                bytes.clear();
                self.announced.1 = bytes;
            }
            Message::Lost(mut list) if self.lost.capacity() == 0 => {
                list.clear();
                self.lost = list;
            }
            _ => {}
        }
    }

    /// The run it is part of, once it has been welcomed.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref().map(|run| &run.id)
    }
    /// Its number in the run.
    pub fn slot(&self) -> Option<u16> {
        self.run.as_ref().map(|run| run.slot)
    }
    pub fn figures(&self) -> Figures {
        self.figures
    }
    pub fn payload(&self) -> &Payload {
        &self.payload
    }
    /// Fragments that are kept, headers included.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
    pub fn held_count(&self) -> usize {
        self.held.len()
    }
}
