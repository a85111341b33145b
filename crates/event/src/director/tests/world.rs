//! Peers, their connections and the network between them, in virtual time.

use super::parts::{Policy, Random, Turns};
use super::peers::{Builder, Source};
use crate::director::{Action, Director, Failure, GroupRole, Settings, To};
use crate::message::{Answer, Join, Message, Outcome, Role};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_core::Instant;

pub const MS: u64 = 1_000_000;
const RETRY: u64 = 200 * MS;
pub const FRAGMENT: u64 = 1040;

pub enum Part {
    Source(Box<Source>),
    Builder(Box<Builder>),
}

pub struct Peer {
    pub name: String,
    pub part: Part,
    pub alive: bool,
    pub incarnation: u64,
    pub connection: Option<u64>,
    /// Nothing it has to say or hear passes until then.
    pub hung_until: u64,
    /// Fragments to it, or from it, stay on their way until then.
    pub data_cut_until: u64,
    /// No word from or to the director passes until then; what was said is lost with the connection.
    pub control_cut_until: u64,
}

enum Happening {
    ToDirector { connection: u64, message: Message },
    ToPeer { peer: usize, connection: u64, message: Message },
    PeerClosed { peer: usize, connection: u64 },
    DirectorClosed { connection: u64 },
    Connect { peer: usize },
    Channel { source: usize, builder: u32, generation: u32, incarnation: u64 },
    Fragment { source: usize, builder: usize, id: u64, epoch: u32, generation: u32, incarnation: u64 },
    Fault(Fault),
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill { peer: usize, down: u64 },
    Hang { peer: usize, how_long: u64 },
    CutData { peer: usize, how_long: u64 },
    CutControl { peer: usize, how_long: u64 },
    KillDirector { down: u64 },
    Start { peer: usize },
    StartDirector,
}

pub struct World {
    pub now: u64,
    pub director: Option<Director>,
    pub settings: Settings,
    policy: Policy,
    pub peers: Vec<Peer>,
    pub random: Random,
    happenings: BTreeMap<(u64, u64), Happening>,
    number: u64,
    connections: BTreeMap<u64, (usize, u64, u64)>,
    groups: BTreeMap<u64, GroupRole>,
    pub buffer_bytes: u64,
    pub memory_bytes: u64,
    fixed: bool,
    lives: u64,
    pub finished: bool,
    /// The one outcome of each event, as any source was told in any director's life.
    pub outcomes: BTreeMap<u64, Outcome>,
    pub trace: VecDeque<String>,
}

impl World {
    pub fn new(seed: u64, sources: usize, builders: usize, policy: Policy, settings: Settings) -> World {
        let peer = |name: String, part| Peer {
            name,
            part,
            alive: true,
            incarnation: 1,
            connection: None,
            hung_until: 0,
            data_cut_until: 0,
            control_cut_until: 0,
        };
        let mut peers = Vec::new();
        for at in 0..sources {
            peers.push(peer(format!("source-{at}"), Part::Source(Box::default())));
        }
        for at in 0..builders {
            peers.push(peer(format!("builder-{at}"), Part::Builder(Box::default())));
        }
        let mut world = World {
            now: 1_000 * MS,
            director: None,
            settings: Settings { sources: sources as u32, ..settings },
            policy,
            peers,
            random: Random(seed),
            happenings: BTreeMap::new(),
            number: 0,
            connections: BTreeMap::new(),
            groups: BTreeMap::new(),
            buffer_bytes: 10_000 * FRAGMENT,
            memory_bytes: 100 * FRAGMENT,
            fixed: true,
            lives: 0,
            finished: false,
            outcomes: BTreeMap::new(),
            trace: VecDeque::new(),
        };
        world.start_director();
        for peer in 0..world.peers.len() {
            let later = world.random.within(0, 300 * MS);
            world.after(later, Happening::Connect { peer });
        }
        world
    }

    pub fn varying(mut self) -> World {
        self.fixed = false;
        self
    }

    pub fn fault_at(&mut self, at: u64, fault: Fault) {
        self.number += 1;
        self.happenings.insert((at, self.number), Happening::Fault(fault));
    }

    fn after(&mut self, later: u64, happening: Happening) {
        self.number += 1;
        self.happenings.insert((self.now + later, self.number), happening);
    }

    fn note(&mut self, what: String) {
        self.trace.push_back(format!("{:10.3} ms {what}", self.now as f64 / 1e6));
        if self.trace.len() > 60 {
            self.trace.pop_front();
        }
    }

    /// Until the director has finished, or `limit`.
    pub fn run_until(&mut self, limit: u64) {
        while !self.finished && self.now < limit {
            let wake = self.director.as_ref().map_or(u64::MAX, |director| director.wake_at().as_ns());
            let next = self.happenings.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let at = wake.min(next).min(limit).max(self.now);
            self.now = at;
            if next <= at
                && let Some((_, happening)) = self.happenings.pop_first()
            {
                self.happen(happening);
            }
            self.tend();
            self.check();
        }
    }

    /// The shell of the director.
    fn tend(&mut self) {
        let now = Instant::from_ns(self.now);
        let mut turns = 0;
        loop {
            let Some(director) = &mut self.director else { return };
            if director.wake_at() <= now {
                director.on_wake(now);
            }
            let Some(action) = director.poll() else {
                assert!(director.wake_at() > now, "it wants to be woken now and does nothing");
                return;
            };
            self.perform(action);
            turns += 1;
            assert!(turns < 1_000_000, "the director never comes to rest");
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Admit { connection, role } => {
                self.groups.insert(connection, role);
            }
            Action::Send { to, message } => {
                let in_group = |role: &GroupRole| match to {
                    To::One(_) => false,
                    To::Sources => *role == GroupRole::Source,
                    To::Builders => *role == GroupRole::Builder,
                    To::Peers => true,
                };
                let all: Vec<u64> = match to {
                    To::One(connection) => vec![connection],
                    _ => self.groups.iter().filter(|(_, role)| in_group(role)).map(|(at, _)| *at).collect(),
                };
                for connection in all {
                    self.send_to_peer(connection, message.clone());
                }
                if let Some(director) = &mut self.director {
                    director.recycle(message);
                }
            }
            Action::Close { connection, why } => {
                self.note(format!("director closes {connection}: {why}"));
                self.groups.remove(&connection);
                if let Some((peer, at, _)) = self.connections.remove(&connection) {
                    let later = at.max(self.now + MS / 10) - self.now;
                    self.after(later, Happening::PeerClosed { peer, connection });
                }
            }
            Action::Finished => self.finished = true,
        }
    }

    fn send_to_peer(&mut self, connection: u64, message: Message) {
        let later = self.random.within(MS / 20, MS / 2);
        let Some((peer, to_peer, _)) = self.connections.get_mut(&connection) else { return };
        let at = (self.now + later).max(*to_peer);
        *to_peer = at;
        let peer = *peer;
        self.after(at - self.now, Happening::ToPeer { peer, connection, message });
    }

    fn say(&mut self, peer: usize, message: Message) {
        let later = self.random.within(MS / 20, MS / 2);
        let Some(connection) = self.peers[peer].connection else { return };
        let Some((_, _, to_director)) = self.connections.get_mut(&connection) else { return };
        let at = (self.now + later).max(*to_director);
        *to_director = at;
        self.after(at - self.now, Happening::ToDirector { connection, message });
    }

    fn happen(&mut self, happening: Happening) {
        let now = Instant::from_ns(self.now);
        match happening {
            Happening::ToDirector { connection, message } => {
                let Some((peer, _, _)) = self.connections.get(&connection) else { return };
                if self.peers[*peer].control_cut_until > self.now {
                    // It would come again by TCP, unless the connection is given up before.
                    let later = self.peers[*peer].control_cut_until - self.now;
                    self.after(later, Happening::ToDirector { connection, message });
                } else if let Some(director) = &mut self.director {
                    director.on_message(connection, &message, now);
                }
            }
            Happening::DirectorClosed { connection } => {
                self.connections.remove(&connection);
                self.groups.remove(&connection);
                if let Some(director) = &mut self.director {
                    director.on_closed(connection, now);
                }
            }
            Happening::ToPeer { peer, connection, message } => {
                let free = self.peers[peer].hung_until.max(self.peers[peer].control_cut_until);
                if free > self.now {
                    self.after(free - self.now, Happening::ToPeer { peer, connection, message });
                } else if self.peers[peer].alive && self.peers[peer].connection == Some(connection) {
                    self.hear(peer, message);
                }
            }
            Happening::PeerClosed { peer, connection } => {
                let free = self.peers[peer].hung_until.max(self.peers[peer].control_cut_until);
                if free > self.now {
                    self.after(free - self.now, Happening::PeerClosed { peer, connection });
                } else if self.peers[peer].connection == Some(connection) {
                    self.peers[peer].connection = None;
                    self.after(RETRY, Happening::Connect { peer });
                }
            }
            Happening::Connect { peer } => self.connect(peer),
            Happening::Channel { source, builder, generation, incarnation } => {
                self.try_channel(source, builder, generation, incarnation);
            }
            Happening::Fragment { source, builder, id, epoch, generation, incarnation } => {
                self.fragment(source, builder, id, epoch, generation, incarnation);
            }
            Happening::Fault(fault) => self.fault(fault),
        }
    }

    fn connect(&mut self, peer: usize) {
        let at = &self.peers[peer];
        if !at.alive || at.connection.is_some() {
            return;
        }
        if self.director.is_none() || at.control_cut_until.max(at.hung_until) > self.now {
            return self.after(RETRY, Happening::Connect { peer });
        }
        let connection = self.number;
        self.connections.insert(connection, (peer, 0, 0));
        if let Some(director) = &mut self.director {
            director.on_connected(connection, Instant::from_ns(self.now));
        }
        let (buffer_bytes, memory_bytes) = (self.buffer_bytes, self.memory_bytes);
        let fixed = self.fixed;
        let at = &mut self.peers[peer];
        at.connection = Some(connection);
        let (role, mut known) = match &at.part {
            Part::Source(source) => (
                Role::Source { buffer_bytes, fragment_bytes_max: FRAGMENT, fixed },
                source.memory.known.clone(),
            ),
            Part::Builder(builder) => {
                let data = ([127, 0, 0, 1], 1000 + peer as u16).into();
                (Role::Builder { memory_bytes, data }, builder.memory.known.clone())
            }
        };
        if let Some((_, due_ns)) = &mut known.last {
            *due_ns = self.now.saturating_sub(*due_ns);
        }
        let join = Join {
            version: crate::message::VERSION,
            name: at.name.clone(),
            host: "host".into(),
            incarnation: at.incarnation,
            role,
            known: (!known.run.is_empty()).then_some(known),
        };
        self.say(peer, Message::Join(Box::new(join)));
    }

    fn hear(&mut self, peer: usize, message: Message) {
        let now = self.now;
        match (&mut self.peers[peer].part, message) {
            (Part::Source(source), Message::Welcome(welcome)) => {
                source.memory.welcome(&welcome.run, welcome.slot, welcome.epoch);
                let works = source.channels.iter().filter(|(_, channel)| channel.works);
                let works = works.map(|(slot, _)| (*slot, true)).collect();
                self.say(peer, Message::Channel(works));
            }
            (Part::Builder(builder), Message::Welcome(welcome)) => {
                builder.memory.welcome(&welcome.run, welcome.slot, welcome.epoch);
            }
            (Part::Source(source), Message::Settled(settled)) => {
                source.memory.settle(&settled);
                source.forget_beyond();
            }
            (Part::Builder(builder), Message::Settled(settled)) => builder.settle(&settled),
            (Part::Source(source), Message::Builders(list)) => {
                source.memory.known.epoch = source.memory.known.epoch.max(list.epoch);
                for builder in source.on_builders(&list.builders) {
                    let Part::Source(source) = &self.peers[peer].part else { unreachable!() };
                    let channel = source.channels[&builder];
                    let (generation, incarnation) = (channel.generation, channel.incarnation);
                    self.after(MS, Happening::Channel { source: peer, builder, generation, incarnation });
                }
                self.pump(peer);
            }
            (Part::Builder(builder), Message::Sources(list)) => {
                builder.sources = list.sources.iter().map(|(slot, _)| *slot).collect();
            }
            (Part::Source(source), Message::Beats { first, count, age_ns }) => {
                let end = first + u64::from(count);
                source.memory.known.held.insert_range(first, end);
                source.memory.heard(first, now.saturating_sub(age_ns));
                // Only the first's age is said; the last's follows from the rate.
                let gap = 1e9 / self.settings.rate_hz;
                let last = end - 1;
                let due = now.saturating_sub(age_ns) + ((last - first) as f64 * gap) as u64;
                source.memory.heard(last, due);
                let bytes: u64 = match self.fixed {
                    true => source.memory.known.held.count() * FRAGMENT,
                    false => source.memory.known.held.iter().map(|id| u64::from(size(id))).sum(),
                };
                assert!(bytes <= self.buffer_bytes, "source {peer} holds {bytes} bytes");
                if !self.fixed {
                    let sizes = (first..end).map(size).collect();
                    self.say(peer, Message::Announce { first, bytes: sizes });
                }
                self.pump(peer);
            }
            (Part::Source(source), Message::Assign(list)) => {
                for assignment in list {
                    source.memory.known.epoch = source.memory.known.epoch.max(assignment.epoch);
                    source.assigned.insert(assignment.id, (assignment.builder, assignment.epoch));
                }
                self.pump(peer);
            }
            (Part::Builder(_), Message::Assign(list)) => {
                for assignment in list {
                    let Part::Builder(builder) = &mut self.peers[peer].part else { unreachable!() };
                    let sources = builder.sources.len() as u64;
                    if let Some(done) = builder.on_assign(assignment.id, assignment.epoch) {
                        self.say(peer, done);
                    }
                    let Part::Builder(builder) = &self.peers[peer].part else { unreachable!() };
                    let fixed = self.fixed;
                    let bytes: u64 = builder
                        .assigned
                        .keys()
                        .map(|id| sources * if fixed { FRAGMENT } else { u64::from(size(*id)) })
                        .sum();
                    assert!(bytes <= self.memory_bytes, "builder {peer} has {bytes} bytes assigned");
                }
            }
            (Part::Source(source), Message::Release(list)) => {
                for release in &list {
                    source.release(release);
                    let outcome = release.outcome.unwrap();
                    for id in release.first..release.first + u64::from(release.count) {
                        let first = *self.outcomes.entry(id).or_insert(outcome);
                        assert_eq!(first, outcome, "event {id} has two outcomes");
                    }
                }
            }
            (Part::Builder(builder), Message::Release(list)) => {
                list.iter().for_each(|one| builder.release(one))
            }
            (Part::Source(source), Message::Probe(number)) => {
                let stuck =
                    source.stuck_since.iter().map(|(slot, since)| (*slot, ((now - since) / 1000) as u32));
                let answer = Answer { number, stuck: stuck.collect(), ..Answer::default() };
                self.say(peer, Message::Answer(answer));
            }
            (Part::Builder(_), Message::Probe(number)) => {
                self.say(peer, Message::Answer(Answer { number, ..Answer::default() }));
            }
            (_, Message::Refused(refused)) => {
                panic!("{} was refused: {}", self.peers[peer].name, refused.why)
            }
            (_, Message::Leave(_)) => {}
            (_, message) => panic!("{} was told {message:?}", self.peers[peer].name),
        }
    }

    fn builder_at(&self, slot: u32) -> Option<usize> {
        let here = |peer: &Peer| matches!(&peer.part, Part::Builder(builder) if builder.memory.known.slot == slot && !builder.memory.known.run.is_empty());
        self.peers.iter().position(here)
    }

    fn try_channel(&mut self, source: usize, slot: u32, generation: u32, incarnation: u64) {
        let now = self.now;
        let reached = self.builder_at(slot).is_some_and(|at| {
            let (from, to) = (&self.peers[source], &self.peers[at]);
            let cut = from.data_cut_until.max(to.data_cut_until).max(to.hung_until).max(from.hung_until);
            to.alive && to.incarnation == incarnation && cut <= now
        });
        let alive = self.peers[source].alive;
        let Part::Source(part) = &mut self.peers[source].part else { return };
        let Some(channel) = part.channels.get_mut(&slot) else { return };
        if !alive || channel.works || (channel.generation, channel.incarnation) != (generation, incarnation) {
            return;
        }
        channel.tries += 1;
        if reached {
            channel.works = true;
            part.forget_sent(slot);
            self.say(source, Message::Channel(vec![(slot, true)]));
            self.pump(source);
        } else {
            self.after(RETRY, Happening::Channel { source, builder: slot, generation, incarnation });
        }
    }

    /// A source sends what it may.
    fn pump(&mut self, source: usize) {
        let Part::Source(part) = &self.peers[source].part else { return };
        let mut ready = Vec::new();
        for (id, (slot, epoch)) in &part.assigned {
            let works = part.channels.get(slot).filter(|channel| channel.works);
            let Some(channel) = works else { continue };
            if part.memory.known.held.contains(*id) && !part.sent.contains(&(*id, *epoch)) {
                ready.push((*id, *slot, *epoch, *channel));
            }
        }
        for (id, slot, epoch, channel) in ready {
            let Some(builder) = self.builder_at(slot) else { continue };
            let Part::Source(part) = &mut self.peers[source].part else { return };
            part.sent.insert((id, epoch));
            part.stuck_since.entry(slot).or_insert(self.now);
            let (generation, incarnation) = (channel.generation, channel.incarnation);
            let later = self.random.within(MS / 10, 3 * MS);
            self.after(later, Happening::Fragment { source, builder, id, epoch, generation, incarnation });
        }
    }

    fn fragment(
        &mut self,
        source: usize,
        builder: usize,
        id: u64,
        epoch: u32,
        generation: u32,
        incarnation: u64,
    ) {
        let (from, to) = (&self.peers[source], &self.peers[builder]);
        let cut = from.data_cut_until.max(to.data_cut_until).max(to.hung_until).max(from.hung_until);
        let Part::Builder(part) = &to.part else { return };
        let slot = part.memory.known.slot;
        let alive = from.alive && to.alive && to.incarnation == incarnation;
        let Part::Source(part) = &from.part else { return };
        let channel = part.channels.get(&slot).filter(|channel| {
            channel.works && (channel.generation, channel.incarnation) == (generation, incarnation)
        });
        if !alive || channel.is_none() {
            return;
        }
        if cut > self.now {
            let happening = Happening::Fragment { source, builder, id, epoch, generation, incarnation };
            return self.after(cut - self.now, happening);
        }
        let source_slot = part.memory.known.slot;
        let now = self.now;
        let Part::Source(part) = &mut self.peers[source].part else { return };
        let waits = part.assigned.iter().any(|(other, (at, epoch))| {
            *at == slot
                && *other != id
                && part.sent.contains(&(*other, *epoch))
                && part.memory.known.held.contains(*other)
        });
        if waits {
            part.stuck_since.insert(slot, now);
        } else {
            part.stuck_since.remove(&slot);
        }
        let Part::Builder(part) = &mut self.peers[builder].part else { return };
        if let Some(done) = part.on_fragment(id, epoch, source_slot) {
            self.say(builder, done);
        }
    }

    fn start_director(&mut self) {
        self.lives += 1;
        let run = format!("{:032x}", self.lives);
        let director =
            Director::new(self.settings.clone(), Box::<Turns>::default(), Box::new(self.policy), run);
        self.director = Some(director);
    }

    fn fault(&mut self, fault: Fault) {
        self.note(format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::Kill { peer, down } => {
                self.break_channels(peer);
                let at = &mut self.peers[peer];
                at.alive = false;
                at.hung_until = 0;
                let connection = at.connection.take();
                at.part = match at.part {
                    Part::Source(_) => Part::Source(Box::default()),
                    Part::Builder(_) => Part::Builder(Box::default()),
                };
                let cut = at.control_cut_until.saturating_sub(now);
                if let Some(connection) = connection {
                    self.after(cut + MS / 5, Happening::DirectorClosed { connection });
                }
                self.fault_at(now + down, Fault::Start { peer });
            }
            Fault::Start { peer } => {
                if !self.peers[peer].alive {
                    self.peers[peer].alive = true;
                    self.peers[peer].incarnation += 1;
                    self.after(MS, Happening::Connect { peer });
                }
            }
            Fault::Hang { peer, how_long } => self.peers[peer].hung_until = now + how_long,
            Fault::CutData { peer, how_long } => self.peers[peer].data_cut_until = now + how_long,
            Fault::CutControl { peer, how_long } => self.peers[peer].control_cut_until = now + how_long,
            Fault::KillDirector { down } => {
                self.director = None;
                self.groups.clear();
                for (connection, (peer, _, _)) in std::mem::take(&mut self.connections) {
                    self.after(MS / 5, Happening::PeerClosed { peer, connection });
                }
                self.fault_at(now + down, Fault::StartDirector);
            }
            Fault::StartDirector => {
                if self.director.is_none() {
                    self.start_director();
                }
            }
        }
    }

    /// A builder that dies takes its channels with it; sources see it and try again.
    fn break_channels(&mut self, builder: usize) {
        let Part::Builder(part) = &self.peers[builder].part else { return };
        let slot = part.memory.known.slot;
        for source in 0..self.peers.len() {
            let Part::Source(part) = &mut self.peers[source].part else { continue };
            let Some(channel) = part.channels.get_mut(&slot).filter(|channel| channel.works) else {
                continue;
            };
            channel.works = false;
            let (generation, incarnation) = (channel.generation, channel.incarnation);
            part.forget_sent(slot);
            self.say(source, Message::Channel(vec![(slot, false)]));
            self.after(RETRY, Happening::Channel { source, builder: slot, generation, incarnation });
        }
    }

    /// What holds at every moment.
    fn check(&mut self) {
        let Some(director) = &self.director else { return };
        let totals = director.ledger().totals();
        assert!(totals.is_closed(), "{totals:?}");
    }

    /// Failures that the director of today saw, of each kind.
    pub fn failures(&self) -> Vec<Failure> {
        self.director.as_ref().map(|director| director.failures().cloned().collect()).unwrap_or_default()
    }

    pub fn totals(&self) -> crate::ledger::Totals {
        self.director.as_ref().expect("the director is down").ledger().totals()
    }
}

/// Of an event's fragments where they vary.
fn size(id: u64) -> u32 {
    40 + (id * 7919 % (FRAGMENT - 39)) as u32
}

/// Runs `play` and prints the seed, and what happened last, if it panics.
pub fn with_seed(seed: u64, play: impl FnOnce(u64)) {
    struct Says(u64);
    impl Drop for Says {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("replay: WEIR_SEED={}", self.0);
            }
        }
    }
    let says = Says(seed);
    play(seed);
    drop(says);
}

/// The seeds of a claim: one if it is named by `WEIR_SEED`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

pub fn settings() -> Settings {
    Settings {
        rate_hz: 200.0,
        events: Some(600),
        start_pause: Duration::from_millis(5),
        unsettled_max: 16,
        ..Settings::default()
    }
}
