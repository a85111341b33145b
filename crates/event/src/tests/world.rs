//! Sources and builders under virtual time, with connections that carry real bytes in pieces, fail and corrupt as a seed says.

use super::mind::{Mind, Peer};
use super::order::ORDERS;
use super::script::{PROBE_NS, Script};
use crate::builder::{self, Builder, Built};
use crate::message::{Message, Outcome, Welcome};
use crate::payload::{Block, Payload};
use crate::sizes::{Draws, Sizes, Spec};
use crate::source::{self, ChannelId, Recover, Source};
use crate::wire::HEADER_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_core::Instant;

/// What is wrong with the world, drawn before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub sources: usize,
    pub builders: usize,
    pub sizes: String,
    pub events: u64,
    pub beat: Duration,
    pub window_bytes: u64,
    pub memory_bytes: u64,
    pub buffer_bytes: u64,
    /// Of a million pieces of data, how many have a bit turned.
    pub corrupt_ppm: u64,
    /// How many of each, at times drawn over the run.
    pub cuts: usize,
    pub source_restarts: usize,
    pub builder_restarts: usize,
    pub control_cuts: usize,
    pub reassigns: usize,
    pub work: Duration,
    /// The real scheduler core instead of the script.
    pub real: bool,
}

/// Numbers are of the connection, where nothing else is said.
enum What {
    ToScheduler(Peer, u64, Message),
    FromScheduler(Peer, u64, Message),
    /// A peer of this incarnation has connected to the scheduler.
    Control(Peer, u64),
    ControlLost(Peer, u64),
    Connect {
        source: usize,
        life: u64,
        channel: ChannelId,
        builder: usize,
    },
    Data(u64),
    FromBuilder(u64, Message),
    Beat,
    Probe,
    Wake,
    Fault(u8),
}

impl What {
    /// A line of the story that `WEIR_TRACE` prints.
    fn text(&self, now: Instant) -> String {
        let what = match self {
            What::ToScheduler(peer, control, message) => format!("{peer:?} {control} says {message:?}"),
            What::FromScheduler(peer, control, message) => format!("{peer:?} {control} hears {message:?}"),
            What::Control(peer, life) => format!("{peer:?} of life {life} connects"),
            What::ControlLost(peer, control) => format!("{peer:?} loses {control}"),
            What::Connect { source, channel, .. } => format!("source {source} opens {channel:?}"),
            What::Data(link) => format!("data on {link}"),
            What::FromBuilder(link, message) => format!("{link} brings {message:?}"),
            What::Fault(kind) => format!("fault {kind}"),
            What::Beat | What::Probe | What::Wake => return String::new(),
        };
        format!("{:.6} {what}", now.as_ns() as f64 / 1e9 - 1000.0)
    }
}

/// A data connection.
struct Pipe {
    source: usize,
    channel: ChannelId,
    builder: usize,
    bytes: VecDeque<u8>,
    moving: bool,
}

/// What a host's kernel takes before it says that it is full.
const PIPE_BYTES: usize = 30_000;

pub struct World {
    pub plan: Plan,
    pub now: Instant,
    pub draws: Draws,
    pub mind: Mind,
    /// Connections to the scheduler.
    controls: BTreeMap<Peer, u64>,
    pub sources: Vec<(Source, u64)>,
    pub builders: Vec<(Builder, u64)>,
    payloads: Vec<Payload>,
    block: Arc<Block>,
    pipes: BTreeMap<u64, Pipe>,
    queue: BTreeMap<(Instant, u64), What>,
    sequence: u64,
    /// By peer: no message overtakes another.
    last_word: BTreeMap<(Peer, bool), Instant>,
    pub built: Vec<Built>,
    incarnations: u64,
    /// Figures of builders that are no more.
    pub past: Vec<builder::Figures>,
}

impl World {
    pub fn new(plan: Plan, block: &Arc<Block>) -> World {
        let welcome = Welcome {
            run: "0123456789abcdef0123456789abcdef".to_owned(),
            slot: 0,
            epoch: 0,
            rate_hz: 1.0 / plan.beat.as_secs_f64(),
            probe_ns: PROBE_NS,
            detect_ns: 400_000_000,
            grant_window_bytes: plan.window_bytes,
            deadline_ns: None,
            partial: false,
            trigger_at_source: false,
            send_order: "plain".to_owned(),
            seed: plan.seed,
        };
        let mut world = World {
            now: Instant::from_ns(1_000_000_000_000),
            draws: Draws::of(plan.seed, 1),
            mind: if plan.real {
                Mind::real(&welcome, plan.sources, plan.builders, plan.events)
            } else {
                Mind::Script(Box::new(Script::new(welcome, plan.sources, plan.builders, plan.memory_bytes)))
            },
            controls: BTreeMap::new(),
            sources: Vec::new(),
            builders: Vec::new(),
            payloads: Vec::new(),
            block: Arc::clone(block),
            pipes: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            last_word: BTreeMap::new(),
            built: Vec::new(),
            incarnations: 0,
            past: Vec::new(),
            plan,
        };
        for at in 0..world.plan.sources {
            let made = world.new_source(at);
            world.sources.push(made);
            let mut payload = Payload::synthetic(&world.block, world.sizes());
            payload.seeded(world.plan.seed, &format!("s{at}"));
            world.payloads.push(payload);
        }
        for at in 0..world.plan.builders {
            let made = world.new_builder(at);
            world.builders.push(made);
        }
        if !world.plan.real {
            world.after(Duration::from_millis(500), What::Beat);
            world.after(Duration::from_nanos(PROBE_NS), What::Probe);
        }
        let kinds = [
            world.plan.cuts,
            world.plan.source_restarts,
            world.plan.builder_restarts,
            world.plan.control_cuts,
            world.plan.reassigns,
        ];
        let span = world.plan.beat.as_nanos() as u64 * world.plan.events;
        for (kind, count) in kinds.into_iter().enumerate() {
            for _ in 0..count {
                let at = 400_000_000 + world.below(span + 300_000_000);
                world.after(Duration::from_nanos(at), What::Fault(kind as u8));
            }
        }
        world
    }

    fn sizes(&self) -> Sizes {
        let Ok(Spec::Ready(sizes)) = Spec::parse(&self.plan.sizes) else { panic!("{}", self.plan.sizes) };
        sizes
    }
    fn new_source(&mut self, at: usize) -> (Source, u64) {
        self.incarnations += 1;
        let settings = source::Settings {
            name: format!("s{at}"),
            host: "host".to_owned(),
            incarnation: self.incarnations,
            buffer_bytes: self.plan.buffer_bytes,
            recover: Recover::Remake,
            orders: ORDERS,
        };
        let payload = Payload::synthetic(&self.block, self.sizes());
        (Source::new(settings, payload, self.now), self.incarnations)
    }
    fn new_builder(&mut self, at: usize) -> (Builder, u64) {
        self.incarnations += 1;
        let settings = builder::Settings {
            name: format!("b{at}"),
            host: "host".to_owned(),
            incarnation: self.incarnations,
            memory_bytes: self.plan.memory_bytes,
            data: ([10, 0, 0, at as u8], 5555).into(),
            work: self.plan.work,
        };
        (Builder::new(settings, self.now), self.incarnations)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.draws.next() % limit.max(1)
    }
    fn after(&mut self, wait: Duration, what: What) {
        self.sequence += 1;
        self.queue.insert((self.now + wait, self.sequence), what);
    }
    fn delay(&mut self) -> Duration {
        Duration::from_nanos(20_000 + self.below(300_000))
    }
    /// A message between a peer and the scheduler: in order, after a while.
    fn word(&mut self, peer: Peer, to_peer: bool, what: What) {
        let at = self.now + self.delay();
        let last = self.last_word.entry((peer, to_peer)).or_insert(at);
        *last = at.max(*last);
        self.sequence += 1;
        self.queue.insert((*last, self.sequence), what);
    }
    fn life(&self, peer: Peer) -> u64 {
        match peer {
            Peer::Source(at) => self.sources[at].1,
            Peer::Builder(at) => self.builders[at].1,
        }
    }

    pub fn event_bytes(&self, id: u64) -> u64 {
        self.payloads.iter().map(|payload| u64::from(payload.bytes(id)) + HEADER_BYTES as u64).sum()
    }

    /// Runs until all events have ended; panics where that takes an hour.
    pub fn run(&mut self) {
        let limit = self.now + Duration::from_secs(3600);
        loop {
            self.settle();
            self.check();
            let all = self.mind.has_ended(self.plan.events);
            // A source that is away at the end hears nothing any more.
            let away = self.plan.real || self.sources.iter().all(|source| source.0.held_count() == 0);
            if all && away {
                return;
            }
            let wakes = (self.sources.iter().map(|one| one.0.wake_at()))
                .chain(self.builders.iter().map(|one| one.0.wake_at()))
                .chain([self.mind.wake_at()]);
            let wake = wakes.min().unwrap_or(Instant::NEVER).max(self.now);
            let next = self.queue.first_key_value().map_or(Instant::NEVER, |((at, _), _)| *at);
            let what = if wake <= next {
                self.now = wake;
                What::Wake
            } else {
                let ((at, _), what) = self.queue.pop_first().expect("something is to come");
                self.now = at;
                what
            };
            if std::env::var("WEIR_TRACE").is_ok() {
                eprintln!("{}", what.text(self.now));
            }
            assert!(
                self.now < limit,
                "after an hour {:?} are held; source 0 has {}, {:?}; builders {:?}",
                self.mind.held_ids(),
                self.sources[0].0.held_count(),
                self.sources[0].0.figures(),
                self.builders.iter().map(|one| (one.0.held_events(), one.0.figures())).collect::<Vec<_>>(),
            );
            self.happen(what);
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        let plan = &self.plan;
        for (source, _) in &self.sources {
            assert!(source.held_bytes() <= plan.buffer_bytes, "a source holds {}", source.held_bytes());
        }
        for (builder, _) in &self.builders {
            assert!(builder.held_bytes() <= plan.memory_bytes, "a builder holds {}", builder.held_bytes());
            assert!(builder.buffers().0 <= plan.memory_bytes * 9 / 8 + 64, "{:?}", builder.buffers());
            let window = plan.window_bytes.max(256 * plan.sources as u64);
            assert!(builder.granted_bytes() <= window, "{} are granted", builder.granted_bytes());
        }
    }

    fn happen(&mut self, what: What) {
        let now = self.now;
        match what {
            What::Wake => {
                self.mind.on_wake(now);
                self.sources
                    .iter_mut()
                    .filter(|one| one.0.wake_at() <= now)
                    .for_each(|one| one.0.on_wake(now));
                self.builders
                    .iter_mut()
                    .filter(|one| one.0.wake_at() <= now)
                    .for_each(|one| one.0.on_wake(now));
            }
            What::ToScheduler(peer, control, message) if self.is_control(peer, control) => {
                self.mind.on_message(peer, control, &message, now, &mut self.draws);
            }
            What::FromScheduler(peer, control, message) if self.is_control(peer, control) => {
                self.tell(peer, &message);
            }
            What::Control(peer, life) if self.life(peer) == life => {
                self.sequence += 1;
                let control = self.sequence;
                self.controls.insert(peer, control);
                self.mind.on_connected(control, now);
                match peer {
                    Peer::Source(at) => self.sources[at].0.on_connected(now),
                    Peer::Builder(at) => self.builders[at].0.on_connected(now),
                }
            }
            What::ControlLost(peer, control) if self.is_control(peer, control) => {
                self.hang_up(peer);
                match peer {
                    Peer::Source(at) => self.sources[at].0.on_closed(now),
                    Peer::Builder(at) => self.builders[at].0.on_closed(now),
                }
            }
            What::Connect { source, life, channel, builder } if self.sources[source].1 == life => {
                self.connect(source, channel, builder);
            }
            What::Data(link) => self.move_data(link),
            What::FromBuilder(link, message) => {
                if let Some(pipe) = self.pipes.get(&link) {
                    self.sources[pipe.source].0.on_builder_message(pipe.channel, &message, now);
                }
            }
            What::Beat => {
                let Mind::Script(script) = &self.mind else { return };
                let held = script.held_count() as u64;
                let id = script.outcomes.len() as u64 + held;
                // A scheduler counts the sources' credits; here it waits for them.
                let room = (held + 1) * self.largest() <= self.plan.buffer_bytes;
                if id < self.plan.events {
                    let bytes = self.event_bytes(id);
                    if let Mind::Script(script) = &mut self.mind
                        && room
                    {
                        script.beat(bytes, now, &mut self.draws);
                    }
                    self.after(self.plan.beat, What::Beat);
                }
            }
            What::Probe => {
                if let Mind::Script(script) = &mut self.mind {
                    script.probe();
                }
                self.after(Duration::from_nanos(PROBE_NS), What::Probe);
            }
            What::Fault(kind) => self.fault(kind),
            _ => {}
        }
    }

    fn is_control(&self, peer: Peer, control: u64) -> bool {
        self.controls.get(&peer) == Some(&control)
    }

    /// The scheduler sees a connection end.
    fn hang_up(&mut self, peer: Peer) {
        if let Some(control) = self.controls.remove(&peer) {
            self.mind.on_gone(peer, control, self.now, &mut self.draws);
        }
    }

    fn largest(&self) -> u64 {
        u64::from(self.sizes().bytes_max()) + HEADER_BYTES as u64
    }

    fn tell(&mut self, peer: Peer, message: &Message) {
        match peer {
            Peer::Builder(at) => self.builders[at].0.on_message(message, self.now),
            Peer::Source(at) => {
                if matches!(message, Message::Probe(_)) {
                    let under_way: Vec<ChannelId> = self.sources[at].0.unacknowledged().collect();
                    for channel in under_way {
                        let pipe =
                            self.pipes.values().find(|pipe| pipe.source == at && pipe.channel == channel);
                        let bytes = pipe.map_or(0, |pipe| pipe.bytes.len() as u64);
                        self.sources[at].0.on_unacknowledged(channel, bytes, self.now);
                    }
                }
                self.sources[at].0.on_message(message, self.now);
            }
        }
    }

    /// The shells: every action is carried out, and all that may be written is.
    fn settle(&mut self) {
        loop {
            let mut calm = true;
            let (said, closed) = self.mind.said(&self.controls);
            for (peer, message) in said {
                calm = false;
                if let Some(control) = self.controls.get(&peer).copied() {
                    self.word(peer, true, What::FromScheduler(peer, control, message));
                }
            }
            for peer in closed {
                calm = false;
                if let Some(control) = self.controls.get(&peer).copied() {
                    self.word(peer, true, What::ControlLost(peer, control));
                }
            }
            for at in 0..self.sources.len() {
                while let Some(action) = self.sources[at].0.poll() {
                    calm = false;
                    self.act_for_source(at, action);
                }
                calm &= !self.write(at);
            }
            for at in 0..self.builders.len() {
                while let Some(action) = self.builders[at].0.poll() {
                    calm = false;
                    self.act_for_builder(at, action);
                }
            }
            if calm {
                return;
            }
        }
    }

    fn act_for_source(&mut self, at: usize, action: source::Action) {
        let (peer, life) = (Peer::Source(at), self.sources[at].1);
        match action {
            source::Action::Call => {
                let wait = self.delay();
                self.after(wait, What::Control(peer, life));
            }
            source::Action::Send(message) => self.say(peer, message),
            source::Action::Open { channel, address } => {
                let wait = self.delay();
                self.after(wait, What::Connect { source: at, life, channel, builder: host_number(&address) });
            }
            source::Action::Close(channel) => {
                let link = self.link(at, channel);
                self.drop_pipe(link, false, true);
            }
            source::Action::HangUp => self.hang_up(peer),
            source::Action::End(why) => assert!(self.mind.is_finished(), "source {at} has ended: {why}"),
        }
    }

    fn act_for_builder(&mut self, at: usize, action: builder::Action) {
        let (peer, life) = (Peer::Builder(at), self.builders[at].1);
        match action {
            builder::Action::Call => {
                let wait = self.delay();
                self.after(wait, What::Control(peer, life));
            }
            builder::Action::Send(message) => self.say(peer, message),
            builder::Action::SendTo { link, message } => {
                let wait = Duration::from_nanos(100_000);
                self.after(wait, What::FromBuilder(link, message));
            }
            builder::Action::Cut { link, .. } => self.drop_pipe(Some(link), true, false),
            builder::Action::Built(built) => {
                if built.outcome == Outcome::Complete {
                    assert_eq!(built.bytes, self.event_bytes(built.id), "event {} is not whole", built.id);
                    assert_eq!(built.fragments as usize, self.plan.sources);
                }
                self.built.push(built);
            }
            builder::Action::HangUp => self.hang_up(peer),
            builder::Action::End(why) => assert!(self.mind.is_finished(), "builder {at} has ended: {why}"),
        }
    }

    fn say(&mut self, peer: Peer, message: Message) {
        if let Some(control) = self.controls.get(&peer).copied() {
            self.word(peer, false, What::ToScheduler(peer, control, message));
        }
    }

    fn link(&self, source: usize, channel: ChannelId) -> Option<u64> {
        let found = self.pipes.iter().find(|(_, pipe)| pipe.source == source && pipe.channel == channel);
        found.map(|(link, _)| *link)
    }

    fn connect(&mut self, source: usize, channel: ChannelId, builder: usize) {
        self.sequence += 1;
        let link = self.sequence;
        let slot = self.sources[source].0.slot().map_or(u32::MAX, u32::from);
        if self.builders[builder].0.on_source(link, slot, self.now).is_err() {
            return self.sources[source].0.on_channel_closed(channel, self.now);
        }
        let pipe = Pipe { source, channel, builder, bytes: VecDeque::new(), moving: false };
        self.pipes.insert(link, pipe);
        self.sources[source].0.on_channel_open(channel, self.now);
    }

    /// Ends a connection and tells the ends that are to know.
    fn drop_pipe(&mut self, link: Option<u64>, tell_source: bool, tell_builder: bool) {
        let Some(pipe) = link.and_then(|link| self.pipes.remove(&link)) else { return };
        if tell_source {
            self.sources[pipe.source].0.on_channel_closed(pipe.channel, self.now);
        }
        if tell_builder && let Some(link) = link {
            self.builders[pipe.builder].0.on_source_closed(link);
        }
    }

    fn write(&mut self, at: usize) -> bool {
        let mut wrote = false;
        while let Some(channel) = self.sources[at].0.turn() {
            wrote = true;
            let link = self.link(at, channel).expect("a channel that works has its pipe");
            let pipe = self.pipes.get_mut(&link).expect("just found");
            let room = PIPE_BYTES - pipe.bytes.len();
            let mut slices = [IoSlice::new(&[]); 12];
            let count = self.sources[at].0.gather(channel, self.now, &mut slices);
            assert!(count > 0, "a turn without anything to write");
            let mut written = 0;
            for slice in &slices[..count] {
                let taken = slice.len().min(room - written);
                pipe.bytes.extend(&slice[..taken]);
                written += taken;
            }
            self.sources[at].0.on_written(channel, written as u64, self.now);
            if pipe.bytes.len() == PIPE_BYTES {
                self.sources[at].0.on_blocked(channel, self.now);
            }
            if !pipe.moving {
                pipe.moving = true;
                let wait = self.delay();
                self.after(wait, What::Data(link));
            }
        }
        wrote
    }

    fn move_data(&mut self, link: u64) {
        let piece_max = 1 + self.below(9000) as usize;
        let (corrupt, place) = (self.below(1_000_000) < self.plan.corrupt_ppm, self.below(1 << 30) as usize);
        let direct = self.below(2) == 0;
        let Some(pipe) = self.pipes.get_mut(&link) else { return };
        pipe.moving = false;
        let was_full = pipe.bytes.len() == PIPE_BYTES;
        let mut piece: Vec<u8> = pipe.bytes.drain(..piece_max.min(pipe.bytes.len())).collect();
        let (source, channel, builder, more) =
            (pipe.source, pipe.channel, pipe.builder, !pipe.bytes.is_empty());
        if more {
            pipe.moving = true;
            let wait = Duration::from_nanos(10_000 + place as u64 % 100_000);
            self.after(wait, What::Data(link));
        }
        if corrupt && !piece.is_empty() {
            let at = place % piece.len();
            piece[at] ^= 1 << (place % 8);
        }
        if was_full {
            self.sources[source].0.on_writable(channel, self.now);
        }
        let builder = &mut self.builders[builder].0;
        let result = if direct {
            let mut rest = &piece[..];
            loop {
                let space = builder.space(link);
                let count = space.len().min(rest.len());
                if count == 0 {
                    break Ok(());
                }
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                if let Err(cut) = builder.on_filled(link, count, self.now) {
                    break Err(cut);
                }
            }
        } else {
            builder.on_bytes(link, &piece, self.now)
        };
        if let Err(cut) = result {
            assert!(self.plan.corrupt_ppm > 0, "an honest source was cut off: {cut}");
            self.drop_pipe(Some(link), true, false);
        }
    }

    fn fault(&mut self, kind: u8) {
        let (source, builder) =
            (self.below(self.plan.sources as u64) as usize, self.below(self.plan.builders as u64) as usize);
        match kind {
            0 => {
                let links: Vec<u64> = self.pipes.keys().copied().collect();
                let at = self.below(links.len() as u64) as usize;
                self.drop_pipe(links.get(at).copied(), true, true);
            }
            1 => {
                self.hang_up(Peer::Source(source));
                for link in self.links(|pipe| pipe.source == source) {
                    self.drop_pipe(Some(link), false, true);
                }
                self.sources[source] = self.new_source(source);
            }
            2 => {
                self.hang_up(Peer::Builder(builder));
                for link in self.links(|pipe| pipe.builder == builder) {
                    self.drop_pipe(Some(link), true, false);
                }
                self.past.push(self.builders[builder].0.figures());
                self.builders[builder] = self.new_builder(builder);
            }
            3 => {
                let peer = if source % 2 == 0 { Peer::Builder(builder) } else { Peer::Source(source) };
                if let Some(control) = self.controls.get(&peer).copied() {
                    self.word(peer, true, What::ControlLost(peer, control));
                }
            }
            _ => {
                if let Mind::Script(script) = &mut self.mind {
                    script.reassign(&mut self.draws);
                }
            }
        }
    }

    fn links(&self, which: impl Fn(&Pipe) -> bool) -> Vec<u64> {
        self.pipes.iter().filter(|(_, pipe)| which(pipe)).map(|(link, _)| *link).collect()
    }
}

/// The builder that was given this address.
fn host_number(address: &SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => usize::from(address.ip().octets()[3]),
        SocketAddr::V6(_) => panic!("builders have addresses of 10.0.0.0/24 here"),
    }
}
