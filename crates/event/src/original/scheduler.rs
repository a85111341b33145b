//! The scheduler's sockets: one thread, one epoll around the `Conductor`.

use super::account::SchedulerAccount;
use super::conductor::{CHANNELS_MAX, Conductor, ConductorPlan, Order};
use super::frame::{Beat, ChannelAt, KEPT_BYTES, Parts, Word};
use super::grouping::SOURCES_MAX;
use super::line::{self, BROADCAST_TOKEN, FEEDBACK_TOKEN, LOOK, READ_BYTES};
use super::queue::Outbox;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock::monotonic;
use weir_sys::epoll::Epoll;
use weir_transport::gate::{Admitted, Gate, GateLimits};
use weir_transport::handshake::Status;
use weir_transport::key::Key;

/// Builders' tokens are above those of sources.
const BUILDERS: u64 = 1 << 32;
/// Heartbeats in a row before the connections are looked at.
const BURST: usize = 64;
/// For the last words to be taken.
const FAREWELL: Duration = Duration::from_millis(500);

pub struct SchedulerPlan {
    pub conductor: ConductorPlan,
    /// Between points of the series.
    pub interval: Duration,
    /// `None` lets anyone in.
    pub key: Option<Key>,
}

pub struct Scheduler {
    plan: SchedulerPlan,
    gate: Gate,
}

/// One end of a connection that the scheduler has with a source or a builder, kept when it ends.
struct Peer {
    token: u64,
    stream: Option<TcpStream>,
    parts: Parts,
    outbox: Outbox,
    waits_for_room: bool,
    /// A source: wants broadcasts on this connection; has its channels.
    subscribed: bool,
    ready: bool,
    /// A builder: the part that has come is the head of its registration.
    registers: bool,
}

impl Peer {
    fn new(token: u64) -> Peer {
        Peer {
            token,
            stream: None,
            parts: Parts::new(KEPT_BYTES as u64),
            outbox: Outbox::default(),
            waits_for_room: false,
            subscribed: false,
            ready: false,
            registers: false,
        }
    }

    fn connect(&mut self, stream: TcpStream, kept: bool, epoll: &Epoll) -> io::Result<()> {
        epoll.add(stream.as_fd(), self.token)?;
        self.outbox.reconnect(kept);
        let outbox = std::mem::take(&mut self.outbox);
        *self = Peer { stream: Some(stream), outbox, ready: self.ready, ..Peer::new(self.token) };
        Ok(())
    }

    fn flush(&mut self, epoll: &Epoll) {
        let Some(stream) = &self.stream else { return };
        if line::flush(stream, &mut self.outbox).is_err() {
            self.leave();
            return;
        }
        let wants = !self.outbox.is_empty();
        if wants != self.waits_for_room && line::watch(epoll, stream, self.token, wants).is_ok() {
            self.waits_for_room = wants;
        }
    }

    fn leave(&mut self) {
        self.stream = None;
        self.subscribed = false;
    }
}

/// What peers have said, taken in after the bytes of one read.
enum Said {
    Subscribe,
    Ready,
    Register(ChannelAt),
    Acknowledge(u64),
}

struct Running {
    conductor: Conductor,
    epoll: Epoll,
    peers: BTreeMap<u64, Peer>,
    said: Vec<Said>,
    /// Tokens of connections that have something.
    ready: Vec<u64>,
    buffer: Vec<u8>,
    /// The channels as they are sent.
    encoded: Vec<Vec<u8>>,
    broadcasts_dropped: u64,
    broadcast_queue_messages: u64,
    keep_broadcasts: bool,
}

impl Scheduler {
    /// Sources and builders connect to `listener`. Errors: those of the socket.
    pub fn prepare(plan: SchedulerPlan, listener: TcpListener) -> io::Result<Scheduler> {
        let gate = Gate::new(listener, plan.key.clone(), GateLimits::default())?;
        Ok(Scheduler { plan, gate })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.gate.address()
    }

    /// From `control.start_at()` until all heartbeats are sent, acknowledgements have stopped counting, and the rest has come or
    /// `drain` is over. A stop ends the heartbeats, an abort everything.
    pub fn run(self, control: &Control) -> Result<SchedulerAccount, WorkloadError> {
        let Scheduler { plan, mut gate } = self;
        if !line::wait_for_start(control) {
            return Ok(SchedulerAccount {
                failure: Some("stopped before its start".to_owned()),
                ..Default::default()
            });
        }
        let failed = line::failed("the scheduler");
        let rules = &plan.conductor.rules;
        let mut peers = BTreeMap::new();
        if rules.keep_broadcasts {
            // What is sent before a source comes waits for it, too.
            for number in 0..plan.conductor.sources.min(SOURCES_MAX) {
                peers.insert(number, Peer::new(number));
            }
        }
        let mut running = Running {
            epoll: Epoll::new(64).map_err(&failed)?,
            peers,
            said: Vec::with_capacity(READ_BYTES / 3),
            ready: Vec::with_capacity(64),
            buffer: vec![0; READ_BYTES],
            encoded: Vec::new(),
            broadcasts_dropped: 0,
            broadcast_queue_messages: rules.broadcast_queue_messages,
            keep_broadcasts: rules.keep_broadcasts,
            conductor: Conductor::new(plan.conductor, plan.interval, monotonic()),
        };
        running.carry_out(&mut gate, control).map_err(&failed)?;
        running.part(control);
        Ok(running.conductor.into_account(running.broadcasts_dropped))
    }
}

impl Running {
    fn carry_out(&mut self, gate: &mut Gate, control: &Control) -> io::Result<()> {
        let mut look_at = Instant::ZERO;
        while !self.conductor.over() && !control.aborted() {
            if control.stopping() {
                self.conductor.stop(monotonic());
            }
            self.beat();
            let now = monotonic();
            if now >= look_at {
                look_at = now + LOOK;
                for client in gate.next(Duration::ZERO)? {
                    self.admit(client)?;
                }
            }
            let patience = line::patience(now, self.conductor.wake_at());
            self.ready.clear();
            self.ready.extend_from_slice(self.epoll.wait(Some(patience))?);
            for index in 0..self.ready.len() {
                self.hear(self.ready[index]);
            }
        }
        Ok(())
    }

    /// Sends what is due, and for a burst of it each as soon as the one before is sent.
    fn beat(&mut self) {
        for _ in 0..BURST {
            let now = monotonic();
            if self.conductor.over() || self.conductor.wake_at() > now {
                return;
            }
            match self.conductor.on_time(now) {
                Some(Order::Beat(beat)) => self.broadcast(&beat),
                Some(Order::Configure(beat)) => self.configure(&beat),
                None => {}
            }
        }
    }

    fn configure(&mut self, beat: &Beat) {
        self.encoded = self.conductor.channels().iter().map(|channel| channel.encode().to_vec()).collect();
        self.broadcast(beat);
        self.encoded.clear();
    }

    /// To every source that is subscribed now; what finds a queue full is dropped.
    fn broadcast(&mut self, beat: &Beat) {
        let head = beat.encode();
        for (_, peer) in self.peers.range_mut(..BUILDERS) {
            if !peer.subscribed && !self.keep_broadcasts {
                continue;
            }
            let most = self.broadcast_queue_messages;
            let taken = if self.encoded.is_empty() {
                peer.outbox.push(&[&head], most)
            } else {
                let parts: Vec<&[u8]> =
                    std::iter::once(head.as_slice()).chain(self.encoded.iter().map(Vec::as_slice)).collect();
                peer.outbox.push(&parts, most)
            };
            self.broadcasts_dropped += u64::from(!taken);
            if peer.subscribed {
                peer.flush(&self.epoll);
            }
        }
    }

    fn admit(&mut self, client: Admitted) -> io::Result<()> {
        let number = u64::from(client.hello.flow);
        let token = match client.hello.token {
            BROADCAST_TOKEN if number < SOURCES_MAX => number,
            FEEDBACK_TOKEN if number < CHANNELS_MAX as u64 => BUILDERS + number,
            _ => {
                client.refuse(Status::UnknownSession);
                return Ok(());
            }
        };
        let Ok(stream) = client.welcome().and_then(line::ready) else { return Ok(()) };
        let kept = self.keep_broadcasts && token < BUILDERS;
        self.peers.entry(token).or_insert_with(|| Peer::new(token)).connect(stream, kept, &self.epoll)
    }

    fn hear(&mut self, token: u64) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let Some(stream) = &peer.stream else { return };
        let Some(count) = line::read(stream, &mut self.buffer) else {
            peer.flush(&self.epoll);
            return;
        };
        let said = &mut self.said;
        let registers = &mut peer.registers;
        let heard = peer.parts.on_bytes(&self.buffer[..count], |part| {
            let head = part.head;
            let what = match (Word::decode(head), Beat::decode(head)) {
                (Some(Word::Subscribe), _) => Some(Said::Subscribe),
                (Some(Word::Ready), _) => Some(Said::Ready),
                (_, Some(beat)) if beat.configure => {
                    *registers = part.more;
                    None
                }
                (_, Some(beat)) => Some(Said::Acknowledge(beat.id)),
                _ if *registers => {
                    *registers = part.more;
                    ChannelAt::decode(head).map(Said::Register)
                }
                _ => None,
            };
            said.extend(what);
        });
        if count == 0 || heard.is_err() {
            peer.leave();
            if token >= BUILDERS {
                self.conductor.on_gone(token - BUILDERS);
            }
        }
        self.take_in(token);
    }

    fn take_in(&mut self, token: u64) {
        let now = monotonic();
        for said in self.said.drain(..) {
            match said {
                Said::Acknowledge(id) if token >= BUILDERS => self.conductor.on_acknowledged(now, id),
                // A builder speaks of itself and of no other.
                Said::Register(channel) if channel.index == token.wrapping_sub(BUILDERS) => {
                    self.conductor.on_registered(channel);
                }
                Said::Subscribe | Said::Ready if token < BUILDERS => {
                    let Some(peer) = self.peers.get_mut(&token) else { continue };
                    if matches!(said, Said::Subscribe) {
                        peer.subscribed = true;
                        peer.flush(&self.epoll);
                    } else if !peer.ready {
                        peer.ready = true;
                        self.conductor.on_ready();
                    }
                }
                _ => {}
            }
        }
        let subscribed = self.peers.range(..BUILDERS).filter(|(_, peer)| peer.subscribed).count();
        self.conductor.on_subscribed(subscribed as u64);
    }

    /// Tells everybody that it is over, and waits for them to leave: a connection that is closed while something comes in loses
    /// what was said last.
    fn part(&mut self, control: &Control) {
        for peer in self.peers.values_mut() {
            line::say(&mut peer.outbox, Word::Over);
            peer.flush(&self.epoll);
        }
        let end = monotonic() + FAREWELL;
        while monotonic() < end && !control.aborted() && self.peers.values().any(|peer| peer.stream.is_some())
        {
            let Ok(ready) = self.epoll.wait(Some(LOOK)).map(<[u64]>::to_vec) else { return };
            for token in ready {
                let Some(peer) = self.peers.get_mut(&token) else { continue };
                peer.flush(&self.epoll);
                let Some(stream) = &peer.stream else { continue };
                if peer.outbox.is_empty() {
                    let _ = stream.shutdown(Shutdown::Write);
                }
                if line::read(stream, &mut self.buffer) == Some(0) {
                    peer.leave();
                }
            }
        }
    }
}
