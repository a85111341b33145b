//! Sources and builders: names, slots, coming and going. Rules: `docs/specs/event-building.md#names-1`.

use super::figures::{BuilderLine, FailureKind};
use super::outbox::{GroupRole, To};
use super::table::{Place, UNANNOUNCED};
use super::{Director, Phase};
use crate::message::{Assignment, Join, Message, Refused, Release, Role, SourceList, VERSION};
use crate::wire::HEADER_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_core::Instant;
use weir_seams::membership;
use weir_seams::scheduler::BuilderId;

/// Ids from here on are no heartbeats of any run: at 10 MHz this is a year.
const ID_MAX: u64 = 1 << 48;
/// Half of what an epoch can count to: the rest is for this scheduler.
const EPOCH_MAX: u32 = 1 << 31;
const HOST_BYTES_MAX: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Source(u32),
    Builder(u32),
}

#[derive(Debug)]
pub(super) struct Connection {
    /// `None`: it has not joined, or its join is not answered yet.
    pub member: Option<Member>,
    pub since: Instant,
    pub heard: Instant,
}

#[derive(Debug)]
pub(super) struct Source {
    pub name: String,
    pub host: String,
    pub incarnation: u64,
    pub connection: Option<u64>,
    pub away_since: Option<Instant>,
    pub buffer_bytes: u64,
    pub fragment_bytes_max: u64,
    pub fixed: bool,
    /// Of its fragments, from the first event of the table: bytes, or `UNANNOUNCED`. Empty for one of fixed size.
    pub sizes: VecDeque<u32>,
    /// Bytes of its buffer that are taken; fragments without a size count as the largest.
    pub used_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Builder {
    pub name: String,
    pub host: String,
    pub host_number: u32,
    pub incarnation: u64,
    pub connection: Option<u64>,
    pub address: SocketAddr,
    pub memory_bytes: u64,
    pub outstanding_bytes: u64,
    pub outstanding_events: u32,
    /// The death policy wants it listed.
    pub wanted: bool,
    /// There shall be a channel to it, of this generation.
    pub channel: Option<u32>,
    /// The last generation that was given.
    pub generation: u32,
    /// Whether each source has a working channel of this generation to it, by source slot.
    working: Vec<bool>,
    /// Sources without one.
    missing: usize,
    /// A channel that worked has been broken since then.
    pub broken_since: Option<Instant>,
    pub line: BuilderLine,
}

impl Builder {
    pub fn is_working(&self, source: u32) -> bool {
        self.working.get(source as usize).copied().unwrap_or(false)
    }
    pub fn all_work(&self) -> bool {
        self.missing == 0
    }
    /// Whether that is news.
    pub fn set_working(&mut self, source: u32, works: bool) -> bool {
        let Some(bit) = self.working.get_mut(source as usize) else { return false };
        let news = *bit != works;
        *bit = works;
        match (news, works) {
            (true, true) => self.missing -= 1,
            (true, false) => self.missing += 1,
            (false, _) => {}
        }
        news
    }
    pub fn none_work(&mut self) {
        self.working.fill(false);
        self.missing = self.working.len();
    }
}

#[derive(Debug)]
pub(super) struct Members {
    /// By slot; as many as the run wants.
    pub sources: Vec<Option<Source>>,
    pub builders: Vec<Option<Builder>>,
    pub present_sources: usize,
    /// Bytes of the fragments of all sources with fixed sizes.
    pub fixed_bytes: u64,
    pub variable_sources: u32,
    /// Events that every source of fixed size has room for.
    pub fixed_room: u64,
    /// The host whose sources send most.
    pub main_host: u32,
    /// Largest memory of the builders that are there.
    pub memory_max: u64,
    /// Slots of builders below this were given.
    pub builder_slots: u32,
    pub source_version: u32,
    host_count: u32,
}

impl Members {
    pub fn new(sources: usize) -> Members {
        Members {
            sources: (0..sources).map(|_| None).collect(),
            builders: Vec::new(),
            present_sources: 0,
            fixed_bytes: 0,
            variable_sources: 0,
            fixed_room: 0,
            main_host: u32::MAX,
            memory_max: 0,
            builder_slots: 0,
            source_version: 0,
            host_count: 0,
        }
    }

    pub fn all_sources(&self) -> bool {
        self.present_sources == self.sources.len()
    }
    pub fn builder(&self, slot: u32) -> Option<&Builder> {
        self.builders.get(slot as usize)?.as_ref()
    }
    pub fn builder_mut(&mut self, slot: u32) -> Option<&mut Builder> {
        self.builders.get_mut(slot as usize)?.as_mut()
    }
    pub fn source_mut(&mut self, slot: u32) -> Option<&mut Source> {
        self.sources.get_mut(slot as usize)?.as_mut()
    }
    pub fn connection_of(&self, role: GroupRole, name: &str) -> Option<u64> {
        match role {
            GroupRole::Source => self.sources.iter().flatten().find(|source| source.name == name)?.connection,
            GroupRole::Builder => {
                self.builders.iter().flatten().find(|builder| builder.name == name)?.connection
            }
        }
    }
    /// With their slots.
    pub fn known_builders(&self) -> impl Iterator<Item = (u32, &Builder)> {
        (0..).zip(&self.builders).filter_map(|(slot, builder)| Some((slot, builder.as_ref()?)))
    }
    pub fn known_sources(&self) -> impl Iterator<Item = (u32, &Source)> {
        (0..).zip(&self.sources).filter_map(|(slot, source)| Some((slot, source.as_ref()?)))
    }

    /// The number of a host's name among those of today's members; a new one if it is new. Numbers of hosts that are gone are not kept.
    fn host_number(&mut self, host: &str) -> u32 {
        let known = self.builders.iter().flatten().find(|builder| builder.host == host);
        match known.map(|builder| builder.host_number) {
            Some(number) => number,
            None => {
                self.host_count += 1;
                self.host_count
            }
        }
    }

    /// What follows from the sources that are there.
    fn sum_sources(&mut self) {
        let known = || self.sources.iter().flatten();
        self.present_sources = known().filter(|source| source.connection.is_some()).count();
        let fixed = || known().filter(|source| source.fixed);
        self.fixed_bytes = fixed().map(|source| source.fragment_bytes_max).sum();
        self.fixed_room =
            fixed().map(|source| source.buffer_bytes / source.fragment_bytes_max).min().unwrap_or(u64::MAX);
        self.variable_sources = known().filter(|source| !source.fixed).count() as u32;
        let mut sent: BTreeMap<&str, u64> = BTreeMap::new();
        for source in known() {
            *sent.entry(&source.host).or_default() += source.fragment_bytes_max;
        }
        let main = sent.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(host, _)| host);
        let number = main.and_then(|host| {
            self.builders
                .iter()
                .flatten()
                .find(|builder| builder.host == host)
                .map(|builder| builder.host_number)
        });
        self.main_host = number.unwrap_or(u32::MAX);
    }

    fn sum_builders(&mut self) {
        let there = self.builders.iter().flatten().filter(|builder| builder.connection.is_some());
        self.memory_max = there.map(|builder| builder.memory_bytes).max().unwrap_or(0);
        self.sum_sources();
    }
}

/// What is wrong with a join by itself.
pub(super) fn check(join: &Join) -> Result<(), String> {
    if join.version != VERSION {
        return Err(format!(
            "it speaks version {} of the event protocol, the scheduler {VERSION}; use the same weir everywhere",
            join.version
        ));
    }
    if !membership::is_name(&join.name) {
        return Err("a name is made of at most 63 of a-z, 0-9 and -, and does not begin with -".to_owned());
    }
    if join.host.len() > HOST_BYTES_MAX {
        return Err(format!("the name of its host is longer than {HOST_BYTES_MAX} bytes"));
    }
    if let Role::Source { buffer_bytes, fragment_bytes_max, .. } = join.role {
        if fragment_bytes_max < HEADER_BYTES as u64 || fragment_bytes_max >= u64::from(UNANNOUNCED) {
            return Err(format!("a fragment has {HEADER_BYTES} to 4,294,967,294 bytes with its header"));
        }
        if buffer_bytes < fragment_bytes_max {
            return Err("its buffer does not hold one of its fragments".to_owned());
        }
    }
    if let Some(known) = &join.known
        && known.behind() >= ID_MAX
    {
        return Err("it knows of heartbeats that no run can have reached".to_owned());
    }
    if join.known.as_ref().is_some_and(|known| known.epoch >= EPOCH_MAX) {
        return Err("it knows of more changes of membership than a run can have had".to_owned());
    }
    Ok(())
}

impl Director {
    pub(super) fn on_join(&mut self, connection: u64, join: &Join) {
        if let Err(why) = check(join) {
            self.refuse(connection, why, false);
        } else if let Err((why, again)) = self.roll.check(join) {
            self.refuse(connection, why, again);
        } else if matches!(self.phase, Phase::Learning(_)) {
            self.learn(connection, join);
        } else {
            self.take_in(connection, join, None);
        }
    }

    pub(super) fn refuse(&mut self, connection: u64, why: String, again: bool) {
        self.outbox.send(To::One(connection), Message::Refused(Refused { why, again }));
        self.outbox.close(connection, "it was refused");
        self.connections.remove(&connection);
    }

    /// Lets a peer in, if there is a place for it. `slot`: the one it had, where this scheduler does not know it yet.
    pub(super) fn take_in(&mut self, connection: u64, join: &Join, slot: Option<u32>) {
        let place = match self.place(join, slot) {
            Ok(place) => place,
            Err((why, again)) => return self.refuse(connection, why, again),
        };
        let (member, holder) = place;
        if let Some((old, incarnation)) = holder {
            if join.incarnation < incarnation {
                return self.refuse(
                    connection,
                    "another of its name and role was started later".to_owned(),
                    false,
                );
            }
            if join.incarnation > incarnation {
                let why = "another of its name and role was started later".to_owned();
                self.outbox.send(To::One(old), Message::Refused(Refused { why, again: false }));
            }
            self.expel(old, "another of its name has taken its place");
        }
        let Some(peer) = self.connections.get_mut(&connection) else { return };
        peer.member = Some(member);
        peer.heard = self.now;
        let role = GroupRole::from(&join.role);
        let slot = match member {
            Member::Source(slot) | Member::Builder(slot) => slot,
        };
        self.outbox.admit(connection, role);
        let welcome = self.settings.welcome(&self.run, slot, self.epoch);
        self.outbox.send(To::One(connection), Message::Welcome(Box::new(welcome)));
        let settled = self.ledger.settle_all().clone();
        self.outbox.send(To::One(connection), Message::Settled(settled));
        match &join.role {
            Role::Source { buffer_bytes, fragment_bytes_max, fixed } => {
                self.take_in_source(connection, slot, join, *buffer_bytes, *fragment_bytes_max, *fixed);
            }
            Role::Builder { memory_bytes, data } => {
                self.take_in_builder(connection, slot, join, *memory_bytes, *data);
            }
        }
    }

    /// Which slot a join gets, and who holds it now: its connection and incarnation.
    #[allow(clippy::type_complexity)]
    fn place(&self, join: &Join, wish: Option<u32>) -> Result<(Member, Option<(u64, u64)>), (String, bool)> {
        let members = &self.members;
        match join.role {
            Role::Source { fragment_bytes_max, fixed, .. } => {
                if let Some((slot, source)) =
                    members.known_sources().find(|(_, source)| source.name == join.name)
                {
                    if (source.fragment_bytes_max, source.fixed) != (fragment_bytes_max, fixed) {
                        let why = "its fragments had another size before in this run".to_owned();
                        return Err((why, false));
                    }
                    let holder = source.connection.map(|old| (old, source.incarnation));
                    return Ok((Member::Source(slot), holder));
                }
                let free = |slot: u32| matches!(members.sources.get(slot as usize), Some(None));
                let slot = wish
                    .filter(|slot| free(*slot))
                    .or_else(|| (0..members.sources.len() as u32).find(|slot| free(*slot)));
                let why = || format!("the run has its {} sources", members.sources.len());
                slot.map(|slot| (Member::Source(slot), None)).ok_or_else(|| (why(), true))
            }
            Role::Builder { .. } => {
                if let Some((slot, builder)) =
                    members.known_builders().find(|(_, builder)| builder.name == join.name)
                {
                    let holder = builder.connection.map(|old| (old, builder.incarnation));
                    return Ok((Member::Builder(slot), holder));
                }
                let slot = wish
                    .filter(|slot| *slot < self.settings.builders_max && members.builder(*slot).is_none())
                    .unwrap_or(members.builder_slots);
                if slot >= self.settings.builders_max {
                    let why =
                        format!("the run has had {} builders of other names", self.settings.builders_max);
                    return Err((why, true));
                }
                Ok((Member::Builder(slot), None))
            }
        }
    }

    fn take_in_source(
        &mut self,
        connection: u64,
        slot: u32,
        join: &Join,
        buffer_bytes: u64,
        fragment_bytes_max: u64,
        fixed: bool,
    ) {
        let old = self.members.sources[slot as usize].take();
        let is_new = old.is_none();
        let (sizes, used_bytes) = old.map(|old| (old.sizes, old.used_bytes)).unwrap_or_default();
        self.members.sources[slot as usize] = Some(Source {
            name: join.name.clone(),
            host: join.host.clone(),
            incarnation: join.incarnation,
            connection: Some(connection),
            away_since: None,
            buffer_bytes,
            fragment_bytes_max,
            fixed,
            sizes,
            used_bytes,
        });
        self.members.sum_sources();
        if is_new {
            self.add_sizes(slot);
            self.members.source_version += 1;
            for builder in self.members.builders.iter_mut().flatten() {
                builder.set_working(slot, false);
            }
            let list = self.source_list();
            self.outbox.send(To::Builders, Message::Sources(list));
        }
        let list = self.builder_list();
        self.outbox.send(To::One(connection), Message::Builders(list));
        self.tell_open(connection);
        self.refresh_all();
    }

    /// What a source that joins needs to know of the events that are held.
    fn tell_open(&mut self, connection: u64) {
        let to = To::One(connection);
        for (first, end) in self.ledger.held().ranges() {
            let age_ns = self.age_ns(first);
            let count = u32::try_from(end - first).unwrap_or(u32::MAX);
            self.outbox.send(to, Message::Beats { first, count, age_ns });
        }
        let assigned: Vec<Assignment> = self
            .table
            .held()
            .filter_map(|event| match event.place {
                Place::At { builder, epoch } => Some(Assignment { id: event.id, builder, epoch }),
                _ => None,
            })
            .collect();
        if !assigned.is_empty() {
            self.outbox.send(to, Message::Assign(assigned));
        }
        self.tell_start(to);
    }

    fn take_in_builder(
        &mut self,
        connection: u64,
        slot: u32,
        join: &Join,
        memory_bytes: u64,
        address: SocketAddr,
    ) {
        let members = &mut self.members;
        let at = slot as usize;
        if members.builders.len() <= at {
            members.builders.resize_with(at + 1, || None);
        }
        members.builder_slots = members.builder_slots.max(slot + 1);
        let host_number = members.host_number(&join.host);
        let again = members.builders[at].is_some();
        let builder = members.builders[at].get_or_insert_with(|| Builder {
            name: join.name.clone(),
            host: String::new(),
            host_number,
            incarnation: join.incarnation,
            connection: None,
            address,
            memory_bytes,
            outstanding_bytes: 0,
            outstanding_events: 0,
            wanted: false,
            channel: None,
            generation: 0,
            working: vec![false; members.sources.len()],
            missing: members.sources.len(),
            broken_since: None,
            line: BuilderLine { name: join.name.clone(), ..BuilderLine::default() },
        });
        if builder.incarnation != join.incarnation || builder.address != address {
            // Channels to what was there before lead nowhere; sources see it by the incarnation and make them anew.
            builder.none_work();
        }
        builder.host.clone_from(&join.host);
        builder.host_number = host_number;
        builder.incarnation = join.incarnation;
        builder.connection = Some(connection);
        builder.address = address;
        builder.memory_bytes = memory_bytes;
        builder.broken_since = None;
        members.sum_builders();
        self.outbox.set_builder(slot, Some(connection));
        let list = self.source_list();
        self.outbox.send(To::One(connection), Message::Sources(list));
        self.take_back(slot, join);
        self.epoch += 1;
        self.builders_changed = true;
        let remedies = self.policy.on_join(BuilderId(slot), again);
        self.remedy(&remedies);
        self.refresh(slot);
    }

    /// What a builder that joins has begun, or finished without being believed, is built anew elsewhere.
    fn take_back(&mut self, slot: u32, join: &Join) {
        let Some(known) = join.known.as_ref().filter(|known| known.run == self.run) else { return };
        let mut stale = known.held.clone();
        for (_, set) in known.outcomes() {
            for (first, end) in set.ranges() {
                for id in self.table.held_within(first, end) {
                    stale.insert(id);
                }
            }
        }
        for (mut first, end) in stale.ranges() {
            while first < end {
                let count = u32::try_from(end - first).unwrap_or(u32::MAX);
                self.outbox.release_at_builder(slot, Release { first, count, outcome: None });
                first += u64::from(count);
            }
        }
    }

    fn source_list(&self) -> SourceList {
        let sources = self.members.known_sources().map(|(slot, source)| (slot, source.name.clone()));
        SourceList { version: self.members.source_version, sources: sources.collect() }
    }

    /// Ends a peer's connection; it may join again.
    pub(super) fn expel(&mut self, connection: u64, why: &'static str) {
        self.outbox.close(connection, why);
        self.forget(connection, FailureKind::Expelled);
    }

    /// A connection is no more.
    pub(super) fn forget(&mut self, connection: u64, kind: FailureKind) {
        let Some(peer) = self.connections.remove(&connection) else { return };
        match peer.member {
            None => {
                if let Phase::Learning(learning) = &mut self.phase {
                    learning.forget(connection);
                }
            }
            Some(Member::Source(slot)) => self.source_gone(slot, kind, peer.heard),
            Some(Member::Builder(slot)) => {
                if let Some(builder) = self.members.builder_mut(slot) {
                    builder.connection = None;
                }
                self.outbox.set_builder(slot, None);
                self.members.sum_builders();
                self.builder_gone(slot, kind, peer.heard);
            }
        }
    }

    fn source_gone(&mut self, slot: u32, kind: FailureKind, heard: Instant) {
        let Some(source) = self.members.source_mut(slot) else { return };
        source.connection = None;
        source.away_since = Some(self.now);
        let affected = self.ledger.held_count();
        self.figures.failed(&source.name, false, kind, self.now, heard, 0);
        if let Some(failure) = self.figures.failures.back_mut() {
            failure.events_affected = affected;
        }
        for builder in self.members.builders.iter_mut().flatten() {
            builder.set_working(slot, false);
        }
        self.members.sum_sources();
        self.refresh_all();
    }

    /// A builder gets nothing more, and what was in flight at it is waiting again. It may still be connected.
    pub(super) fn builder_gone(&mut self, slot: u32, kind: FailureKind, heard: Instant) {
        let taken = self.requeue(slot, kind, heard);
        let Some(builder) = self.members.builder_mut(slot) else { return };
        builder.wanted = false;
        builder.broken_since = None;
        builder.line.taken += taken;
        self.epoch += 1;
        self.builders_changed = true;
        self.refresh(slot);
        let remedies = self.policy.on_death(BuilderId(slot));
        self.remedy(&remedies);
    }

    /// Each builder's line, ascending by slot.
    pub fn builder_lines(&self) -> impl Iterator<Item = BuilderLine> + '_ {
        self.members.builders.iter().flatten().map(|builder| BuilderLine {
            held: u64::from(builder.outstanding_events),
            ..builder.line.clone()
        })
    }
}
