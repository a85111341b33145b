//! The scheduler on real sockets.

use super::ShellError;
use super::hub::Hub;
use super::news::{Door, News};
use super::order::Order;
use super::way::CONTROL;
use crate::director::{Action, Director, GroupRole, To};
use crate::message::Outcome;
use crate::wire;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::membership::{Change, Watch};
use weir_sys::clock;
use weir_transport::Key;
use weir_transport::gate::Admitted;
use weir_transport::handshake::{Mode, Status};

const NOTICE: Duration = Duration::from_millis(20);
/// How long peers are given to take the last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub struct SchedulerShell {
    pub core: Director,
    hub: Hub,
    _door: Door,
    sources: BTreeSet<u64>,
    builders: BTreeSet<u64>,
    /// Connections to close once what they were told is sent.
    leaving: BTreeMap<u64, Instant>,
    frames: Vec<u8>,
    /// Those that could not be told; kept for its memory.
    lost: Vec<u64>,
    finished: bool,
    told_bytes: u64,
    watches: Vec<Watched>,
}

/// The members of one role, as a membership service says.
struct Watched {
    role: GroupRole,
    watch: Box<dyn Watch>,
    number: u64,
}

impl SchedulerShell {
    /// `listener` is where sources and builders connect.
    pub fn new(
        core: Director,
        listener: TcpListener,
        key: Option<Key>,
    ) -> Result<SchedulerShell, ShellError> {
        let hub = Hub::new().map_err(ShellError::of("cannot watch connections"))?;
        let door = Door::open(listener, key, hub.desk()).map_err(ShellError::of("cannot let peers in"))?;
        Ok(SchedulerShell {
            core,
            hub,
            _door: door,
            sources: BTreeSet::new(),
            builders: BTreeSet::new(),
            leaving: BTreeMap::new(),
            frames: Vec::new(),
            lost: Vec::new(),
            finished: false,
            told_bytes: 0,
            watches: Vec::new(),
        })
    }

    /// From now on a peer of this role may join only while the service behind the watch lists it.
    pub fn watch(&mut self, role: GroupRole, watch: Box<dyn Watch>) -> Result<(), ShellError> {
        let number = self.hub.attend(watch.ready()).map_err(ShellError::of("cannot watch members"))?;
        self.core.ask_membership(role);
        self.watches.push(Watched { role, watch, number });
        Ok(())
    }

    /// Runs until the ledger is closed: after the heartbeats asked for and their drain, or a stop and its drain. `look` is called at
    /// every turn.
    pub fn run(
        &mut self,
        order: &dyn Order,
        mut look: impl FnMut(&Director, Instant),
    ) -> Result<(), ShellError> {
        let mut stopping = false;
        loop {
            let now = clock::monotonic();
            if !stopping && order.stopping() {
                stopping = true;
                self.core.stop(now);
            }
            if self.core.wake_at() <= now {
                self.core.on_wake(now);
            }
            self.perform(now);
            for (number, _) in self.hub.flush() {
                self.lose(number, now);
            }
            self.let_go(now);
            look(&self.core, now);
            if self.finished && self.leaving.is_empty() {
                return Ok(());
            }
            order.report(self.core.ledger().count(Outcome::Complete));
            let leaving = self.leaving.values().min().copied().unwrap_or(Instant::NEVER);
            let limit = self.core.wake_at().min(leaving).since(now).min(NOTICE);
            let rest = self.core.rest();
            if !rest.is_zero() {
                thread::sleep(rest);
            }
            let (ready, news) =
                self.hub.wait(limit).map_err(ShellError::of("cannot wait for connections"))?;
            let now = clock::monotonic();
            self.hub.complaints().iter().for_each(|words| order.warn(words));
            for item in news {
                match item {
                    News::Arrived(client) => self.on_arrival(*client, now),
                    News::Dialled { .. } => {}
                    News::Broken(error) => {
                        return Err(ShellError(format!("the control port broke: {error}")));
                    }
                }
            }
            for number in &ready {
                if self.watches.iter().any(|watched| watched.number == *number) {
                    self.hear_of_members(order, now);
                } else {
                    self.serve(*number, now);
                }
            }
            self.hub.give_back(ready);
        }
    }

    fn hear_of_members(&mut self, order: &dyn Order, now: Instant) {
        for Watched { role, watch, .. } in &mut self.watches {
            while let Some(change) = watch.next() {
                match change {
                    Change::Joined(member) => self.core.on_listed(*role, &member.name, member.incarnation),
                    Change::Left { name, .. } => self.core.on_unlisted(*role, &name, now),
                    Change::Current => {}
                    Change::Stale(what) | Change::Odd(what) => order.warn(&what),
                }
            }
        }
    }

    /// Bytes said to and heard from sources and builders.
    pub fn control_bytes(&self) -> u64 {
        self.told_bytes + self.hub.heard_bytes()
    }

    fn on_arrival(&mut self, client: Admitted, now: Instant) {
        if client.hello.mode != Mode::Control || client.hello.token != CONTROL || self.finished {
            return client.refuse(Status::UnknownSession);
        }
        // One that left before it heard the welcome comes again by itself.
        if let Some(number) = client.welcome().ok().and_then(|stream| self.hub.add(stream).ok()) {
            self.core.on_connected(number, now);
        }
    }

    fn serve(&mut self, number: u64, now: Instant) {
        let (core, gone) = (&mut self.core, self.leaving.contains_key(&number));
        let served = self.hub.serve(number, |message| {
            if !gone {
                core.on_message(number, &message, now);
            }
            Some(message)
        });
        if served.is_err() {
            self.lose(number, now);
        }
    }

    fn perform(&mut self, now: Instant) {
        while let Some(action) = self.core.poll() {
            match action {
                Action::Admit { connection, role } => {
                    let group = match role {
                        GroupRole::Source => &mut self.sources,
                        GroupRole::Builder => &mut self.builders,
                    };
                    group.insert(connection);
                }
                Action::Send { to, message } => {
                    self.frames.clear();
                    // What the core says always fits a frame; a list that does not is cut into several.
                    if wire::encode(&message, &mut self.frames).is_ok() {
                        self.send(to, now);
                    }
                    self.core.recycle(message);
                }
                Action::Close { connection, .. } => {
                    self.forget(connection);
                    self.leaving.insert(connection, now + LAST_WORDS);
                }
                Action::Finished => {
                    self.finished = true;
                    let all: Vec<u64> = self.sources.iter().chain(&self.builders).copied().collect();
                    self.leaving.extend(all.into_iter().map(|number| (number, now + LAST_WORDS)));
                }
            }
        }
    }

    /// Sends what was encoded.
    fn send(&mut self, to: To, now: Instant) {
        let mut lost = std::mem::take(&mut self.lost);
        let (hub, frames) = (&mut self.hub, &self.frames);
        let mut told = 0;
        let mut tell = |number: u64| {
            told += frames.len() as u64;
            if hub.send_bytes(number, frames).is_err() {
                lost.push(number);
            }
        };
        match to {
            To::One(number) => tell(number),
            To::Sources => self.sources.iter().copied().for_each(&mut tell),
            To::Builders => self.builders.iter().copied().for_each(&mut tell),
            To::Peers => self.sources.iter().chain(&self.builders).copied().for_each(&mut tell),
        }
        self.told_bytes += told;
        for number in lost.drain(..) {
            self.lose(number, now);
        }
        self.lost = lost;
    }

    /// Closes connections whose last words are sent, or not taken in time.
    fn let_go(&mut self, now: Instant) {
        let hub = &mut self.hub;
        self.leaving.retain(|number, until| {
            let waits = hub.pipe(*number).is_some_and(|pipe| pipe.has_backlog());
            if waits && now < *until {
                return true;
            }
            hub.close(*number);
            false
        });
    }

    fn forget(&mut self, number: u64) {
        self.sources.remove(&number);
        self.builders.remove(&number);
    }

    fn lose(&mut self, number: u64, now: Instant) {
        self.hub.close(number);
        self.forget(number);
        if self.leaving.remove(&number).is_none() {
            self.core.on_closed(number, now);
        }
    }
}
