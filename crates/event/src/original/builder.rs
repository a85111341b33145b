//! A builder's sockets: fragments in, acknowledgements out, one thread and one epoll around the `Joiner`.

use super::account::{BuilderAccount, Track};
use super::frame::{self, Beat, ChannelAt, KEPT_BYTES, Parts, Word};
use super::grouping::{Ended, Joiner};
use super::line::{self, Call, DATA_TOKEN, FEEDBACK_TOKEN, LOOK, Line, Looked, READ_BYTES};
use super::queue::Outbox;
use super::rules::Rules;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock::monotonic;
use weir_sys::epoll::Epoll;
use weir_transport::gate::{Gate, GateLimits};
use weir_transport::handshake::Status;
use weir_transport::key::Key;
use weir_transport::tcp_options::TcpOptions;

/// Token of the connection to the scheduler; those of sources count from 1.
const FEEDBACK: u64 = 0;
/// Data connections at once.
const SOURCES_AT_ONCE: usize = 1_024;
/// Acknowledgements that wait, the message library's default.
const ACKNOWLEDGEMENTS_MAX: u64 = 1_000;
/// Longest part that is believed.
const PART_BYTES_MAX: u64 = 1 << 32;
/// After an order to stop and `drain`, for the scheduler to say that it is over.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct BuilderPlan {
    pub rules: Rules,
    /// Its channel's index.
    pub number: u32,
    /// Fragments that make an event.
    pub sources: u32,
    pub scheduler: SocketAddr,
    /// Where sources reach it, if not where it listens.
    pub announced: Option<SocketAddr>,
    pub key: Option<Key>,
    pub interval: Duration,
    /// As the scheduler's: it is waited for after a stop.
    pub drain: Duration,
    /// Longest time from the start.
    pub limit: Duration,
}

pub struct Builder {
    plan: BuilderPlan,
    gate: Gate,
}

struct Incoming {
    stream: TcpStream,
    parts: Parts,
    /// Whole fragments, heartbeat and source, that the event builder has not looked at.
    come: VecDeque<(u64, u64)>,
}

struct Running<'a> {
    plan: &'a BuilderPlan,
    epoll: Epoll,
    feedback: Line,
    parts: Parts,
    outbox: Outbox,
    registers_at: Option<Instant>,
    sources: Vec<Option<Incoming>>,
    /// Whose turn it is among those of whom something has come.
    turn: usize,
    joiner: Joiner,
    over: bool,
    account: BuilderAccount,
    received: Track,
}

impl Builder {
    /// Sources connect to `listener`. Errors: those of the socket.
    pub fn prepare(plan: BuilderPlan, listener: TcpListener) -> io::Result<Builder> {
        let gate = Gate::new(listener, plan.key.clone(), GateLimits::default())?;
        Ok(Builder { plan, gate })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.gate.address()
    }

    /// From `control.start_at()` until the scheduler says that it is over.
    pub fn run(self, control: &Control) -> Result<BuilderAccount, WorkloadError> {
        let Builder { plan, mut gate } = self;
        if !line::wait_for_start(control) {
            return Ok(BuilderAccount::default());
        }
        let failed = line::failed("a builder");
        let call = Call {
            address: plan.scheduler,
            token: FEEDBACK_TOKEN,
            number: plan.number,
            key: plan.key.clone(),
            tcp: TcpOptions::unasked(),
        };
        let start = monotonic();
        let mut running = Running {
            epoll: Epoll::new(64).map_err(&failed)?,
            feedback: Line::new(call, FEEDBACK),
            parts: Parts::new(KEPT_BYTES as u64),
            outbox: Outbox::default(),
            registers_at: Some(start + plan.rules.register_wait),
            sources: Vec::new(),
            turn: 0,
            joiner: Joiner::new(&plan.rules, u64::from(plan.sources)),
            over: false,
            account: BuilderAccount::default(),
            received: Track::new(plan.interval),
            plan: &plan,
        };
        running.carry_out(&mut gate, start + plan.limit, control).map_err(&failed)?;
        Ok(running.finish())
    }
}

impl Running<'_> {
    fn carry_out(&mut self, gate: &mut Gate, mut end: Instant, control: &Control) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::with_capacity(64);
        let (mut look_at, mut stopped) = (Instant::ZERO, false);
        while !self.over && !control.aborted() {
            let now = monotonic();
            if control.stopping() && !stopped {
                stopped = true;
                end = end.min(now + self.plan.rules.stop_wait + self.plan.drain + GRACE);
            }
            if now >= end {
                break;
            }
            if now >= look_at {
                look_at = now + LOOK;
                self.look(now, gate)?;
            }
            ready.clear();
            ready.extend_from_slice(self.epoll.wait(Some(LOOK))?);
            for &token in &ready {
                match token {
                    FEEDBACK => self.hear(&mut buffer),
                    source => self.receive(source as usize - 1, &mut buffer, control),
                }
            }
            self.join(monotonic());
            self.speak();
        }
        Ok(())
    }

    /// New connections, and the registration when its time has come.
    fn look(&mut self, now: Instant, gate: &mut Gate) -> io::Result<()> {
        if self.feedback.look(now, &self.epoll)? == Looked::Made {
            self.parts = Parts::new(KEPT_BYTES as u64);
            self.outbox.reconnect(true);
        }
        if self.registers_at.is_some_and(|at| now >= at) {
            self.registers_at = None;
            let address = self.plan.announced.map_or_else(|| gate.address(), Ok)?;
            let channel = ChannelAt { index: u64::from(self.plan.number), address };
            let head = Beat { configure: true, ..Beat::default() };
            self.outbox.push(&[&head.encode(), &channel.encode()], ACKNOWLEDGEMENTS_MAX);
        }
        for client in gate.next(Duration::ZERO)? {
            if client.hello.token != DATA_TOKEN {
                client.refuse(Status::UnknownSession);
                continue;
            }
            let place = match self.sources.iter().position(Option::is_none) {
                Some(place) => place,
                None if self.sources.len() < SOURCES_AT_ONCE => {
                    self.sources.push(None);
                    self.sources.len() - 1
                }
                None => {
                    client.refuse(Status::Busy);
                    continue;
                }
            };
            let Ok(stream) = client.welcome().and_then(line::ready) else { continue };
            self.epoll.add(stream.as_fd(), place as u64 + 1)?;
            let come = VecDeque::with_capacity(READ_BYTES / frame::STAMP_BYTES);
            self.sources[place] = Some(Incoming { stream, parts: Parts::new(PART_BYTES_MAX), come });
        }
        Ok(())
    }

    /// The scheduler has said something: only that it is over.
    fn hear(&mut self, buffer: &mut [u8]) {
        let Some(count) = self.feedback.read(buffer) else { return };
        let over = &mut self.over;
        let heard = self.parts.on_bytes(&buffer[..count], |part| {
            *over |= Word::decode(part.head) == Some(Word::Over);
        });
        if count == 0 || heard.is_err() {
            self.feedback.ended(monotonic());
        }
    }

    fn receive(&mut self, place: usize, buffer: &mut [u8], control: &Control) {
        let Some(incoming) = self.sources.get_mut(place).and_then(Option::as_mut) else { return };
        let Some(count) = line::read(&incoming.stream, buffer) else { return };
        let account = &mut self.account;
        account.bytes_received += count as u64;
        control.advance(count as u64);
        let (come, mut short) = (&mut incoming.come, 0);
        let result = incoming.parts.on_bytes(&buffer[..count], |part| {
            // The parts before the last say what the payload says, too.
            if !part.more {
                account.payload_bytes += part.bytes;
                match frame::read_stamp(part.head) {
                    Some(fragment) => come.push_back(fragment),
                    None => short += 1,
                }
            }
        });
        account.garbage += short + u64::from(result.is_err());
        if count == 0 || result.is_err() {
            account.sources_gone += 1;
            // What has come whole of it counts.
            let rest = std::mem::take(&mut incoming.come);
            self.sources[place] = None;
            let now = monotonic();
            rest.into_iter().for_each(|fragment| self.take(now, fragment));
        }
    }

    /// Looks at what has come, one fragment of each source in turn, as the message library gives them to its user.
    fn join(&mut self, now: Instant) {
        let count = self.sources.len();
        let mut idle = 0;
        while idle < count {
            self.turn = (self.turn + 1) % count;
            let next = self.sources[self.turn].as_mut().and_then(|incoming| incoming.come.pop_front());
            match next {
                Some(fragment) => {
                    idle = 0;
                    self.take(now, fragment);
                }
                None => idle += 1,
            }
        }
        self.received.sample(now, self.account.bytes_received as f64);
    }

    fn take(&mut self, now: Instant, (id, source): (u64, u64)) {
        let account = &mut self.account;
        account.fragments += 1;
        account.first_ns.get_or_insert(now.as_ns());
        account.last_ns = Some(now.as_ns());
        match self.joiner.on_fragment(id, source) {
            Some(Ended::Acknowledge { id, mixed }) => {
                account.mixed += u64::from(mixed);
                let beat = Beat { id, channel: u64::from(self.plan.number), configure: false };
                let taken = self.outbox.push(&[&beat.encode()], ACKNOWLEDGEMENTS_MAX);
                account.acknowledged += u64::from(taken);
                account.acknowledgements_dropped += u64::from(!taken);
            }
            Some(Ended::Refuse { id, .. }) => account.on_mismatch(now, id),
            None => {}
        }
    }

    fn speak(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        let flushed = self.feedback.flush(&mut self.outbox);
        let wants = !self.outbox.is_empty();
        if flushed.is_err() || self.feedback.want_room(wants, &self.epoll).is_err() {
            self.feedback.ended(monotonic());
        }
    }

    fn finish(self) -> BuilderAccount {
        let series = self.received.finish("event.received_bytes", "B", true);
        BuilderAccount {
            discarded: self.joiner.discarded(),
            duplicates: self.joiner.duplicates(),
            left_fragments: self.joiner.open(),
            series: vec![series],
            ..self.account
        }
    }
}
