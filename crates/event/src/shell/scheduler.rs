//! The scheduler on real sockets.

use super::ShellError;
use super::hub::Hub;
use super::news::{CONTROL, Door, News};
use super::order::Order;
use crate::director::{Action, Director, GroupRole, To};
use crate::message::Outcome;
use crate::wire;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;
use weir_core::Instant;
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
    finished: bool,
    control_bytes: u64,
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
            finished: false,
            control_bytes: 0,
        })
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
            let (ready, news) =
                self.hub.wait(limit).map_err(ShellError::of("cannot wait for connections"))?;
            let now = clock::monotonic();
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
                self.serve(*number, now);
            }
            self.hub.give_back(ready);
        }
    }

    /// Bytes said to sources and builders.
    pub fn control_bytes(&self) -> u64 {
        self.control_bytes
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

    fn send(&mut self, to: To, now: Instant) {
        let one;
        let groups: [Option<&BTreeSet<u64>>; 2] = match to {
            To::One(number) => {
                one = BTreeSet::from([number]);
                [Some(&one), None]
            }
            To::Sources => [Some(&self.sources), None],
            To::Builders => [None, Some(&self.builders)],
            To::Peers => [Some(&self.sources), Some(&self.builders)],
        };
        let mut lost = Vec::new();
        for number in groups.into_iter().flatten().flatten() {
            self.control_bytes += self.frames.len() as u64;
            if self.hub.send_bytes(*number, &self.frames).is_err() {
                lost.push(*number);
            }
        }
        for number in lost {
            self.lose(number, now);
        }
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
