//! A scheduler by script: it never fails, assigns at random within the builders' memory, and keeps an exact account.

use super::mind::Peer;
use crate::ledger::{Reason, Settled};
use crate::message::{
    Assignment, BuilderAt, BuilderList, Join, Message, Outcome, Refused, Release, Role, SourceList, Welcome,
};
use crate::sizes::Draws;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_core::Instant;

pub const PROBE_NS: u64 = 50_000_000;

#[derive(Default)]
struct Member {
    there: bool,
    incarnation: u64,
    address: Option<SocketAddr>,
}

pub struct Script {
    pub welcome: Welcome,
    pub memory_bytes: u64,
    /// Held events: their bytes, when they were born, and where they are.
    held: BTreeMap<u64, (u64, Instant, Option<Assignment>)>,
    pub outcomes: BTreeMap<u64, Outcome>,
    sources: Vec<Member>,
    builders: Vec<Member>,
    outstanding: Vec<u64>,
    pub epoch: u32,
    next: u64,
    probe: u64,
    pub reassigned: u64,
    pub lost: Vec<(u64, u32)>,
    pub announced: BTreeMap<(usize, u64), u32>,
    out: Vec<(Peer, Message)>,
}

impl Script {
    pub fn new(welcome: Welcome, sources: usize, builders: usize, memory_bytes: u64) -> Script {
        Script {
            welcome,
            memory_bytes,
            held: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            sources: (0..sources).map(|_| Member::default()).collect(),
            builders: (0..builders).map(|_| Member::default()).collect(),
            outstanding: vec![0; builders],
            epoch: 1,
            next: 0,
            probe: 0,
            reassigned: 0,
            lost: Vec::new(),
            announced: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// What it has to say since the last time.
    pub fn said(&mut self) -> Vec<(Peer, Message)> {
        std::mem::take(&mut self.out)
    }
    pub fn held_count(&self) -> usize {
        self.held.len()
    }
    pub fn held_ids(&self) -> BTreeSet<u64> {
        self.held.keys().copied().collect()
    }

    fn tell_sources(&mut self, message: &Message) {
        for at in 0..self.sources.len() {
            if self.sources[at].there {
                self.out.push((Peer::Source(at), message.clone()));
            }
        }
    }

    pub fn on_message(&mut self, from: Peer, message: &Message, now: Instant, draws: &mut Draws) {
        match message {
            Message::Join(join) => self.on_join(from, join, now),
            Message::Done(list) => {
                let Peer::Builder(slot) = from else { panic!("only builders are done") };
                for done in list {
                    let there = Assignment { id: done.id, builder: slot as u32, epoch: done.epoch };
                    if self.held.get(&done.id).is_some_and(|held| held.2 == Some(there)) {
                        self.end(done.id, done.outcome);
                    }
                }
            }
            Message::Lost(list) => {
                self.lost.extend(list);
                for (first, count) in list {
                    for id in *first..*first + u64::from(*count) {
                        self.end(id, Outcome::Dropped(Reason::SourceLost));
                    }
                }
            }
            Message::Announce { first, bytes } => {
                let Peer::Source(slot) = from else { panic!("only sources announce") };
                for (id, bytes) in (*first..).zip(bytes) {
                    self.announced.insert((slot, id), *bytes);
                }
            }
            Message::Answer(_) | Message::Channel(_) | Message::Leave(_) => {}
            other => panic!("a scheduler is not told {other:?}"),
        }
        self.assign(draws);
    }

    fn on_join(&mut self, from: Peer, join: &Join, now: Instant) {
        let (Peer::Source(slot) | Peer::Builder(slot)) = from;
        self.epoch += 1;
        let welcome = Welcome { slot: slot as u32, epoch: self.epoch, ..self.welcome.clone() };
        let member = match from {
            Peer::Source(at) => &mut self.sources[at],
            Peer::Builder(at) => &mut self.builders[at],
        };
        if join.incarnation < member.incarnation {
            let refused = Refused { why: "another is newer".to_owned(), again: false };
            return self.out.push((from, Message::Refused(refused)));
        }
        member.there = true;
        member.incarnation = join.incarnation;
        self.out.push((from, Message::Welcome(Box::new(welcome))));
        let settled = self.settled();
        self.out.push((from, Message::Settled(settled)));
        match &join.role {
            Role::Source { .. } => {
                let list = self.builder_list();
                self.out.push((from, list));
                // In one frame each: ids may have ended in between, and the source passes over those it knows.
                for (id, (_, born, place)) in &self.held {
                    let age_ns = now.since(*born).as_nanos() as u64;
                    self.out.push((from, Message::Beats { first: *id, count: 1, age_ns }));
                    self.out.push((from, Message::Assign(place.iter().copied().collect())));
                }
            }
            Role::Builder { data, .. } => {
                self.builders[slot].address = Some(*data);
                self.take_from(slot);
                let sources = (0..self.sources.len()).map(|at| (at as u32, format!("s{at}"))).collect();
                self.out.push((from, Message::Sources(SourceList { version: 1, sources })));
                if let Some(known) = &join.known {
                    let outcomes = known.outcomes().map(|(_, ids)| ids);
                    for (first, end) in outcomes.chain([&known.held]).flat_map(|ids| ids.ranges()) {
                        let release = Release { first, count: (end - first) as u32, outcome: None };
                        self.out.push((from, Message::Release(vec![release])));
                    }
                }
                let list = self.builder_list();
                self.tell_sources(&list);
            }
        }
    }

    /// What a peer that was away has not heard.
    fn settled(&self) -> Settled {
        let mut settled = Settled { below: self.next, ..Settled::default() };
        self.held.keys().for_each(|id| {
            settled.open.insert(*id);
        });
        for outcome in self.outcomes.values() {
            match outcome {
                Outcome::Complete => settled.complete += 1,
                Outcome::Partial => settled.partial += 1,
                Outcome::Dropped(reason) => *settled.dropped.entry(*reason).or_default() += 1,
            }
        }
        assert!(settled.is_closed());
        settled
    }

    fn builder_list(&self) -> Message {
        let builders = self.builders.iter().enumerate().filter_map(|(at, member)| {
            Some(BuilderAt {
                slot: at as u32,
                name: format!("b{at}"),
                address: member.address?,
                incarnation: member.incarnation,
                listed: member.there,
                channel: Some(1),
            })
        });
        Message::Builders(BuilderList { epoch: self.epoch, builders: builders.collect() })
    }

    pub fn on_gone(&mut self, peer: Peer, draws: &mut Draws) {
        match peer {
            Peer::Source(at) => self.sources[at].there = false,
            Peer::Builder(at) => {
                self.builders[at].there = false;
                self.take_from(at);
            }
        }
        self.assign(draws);
    }

    /// Its events wait for another builder.
    fn take_from(&mut self, slot: usize) {
        self.epoch += 1;
        for (_, _, place) in self.held.values_mut() {
            if place.is_some_and(|at| at.builder as usize == slot) {
                *place = None;
                self.reassigned += 1;
            }
        }
        self.outstanding[slot] = 0;
    }

    /// A heartbeat, of `bytes` in all fragments.
    pub fn beat(&mut self, bytes: u64, now: Instant, draws: &mut Draws) {
        self.held.insert(self.next, (bytes, now, None));
        self.tell_sources(&Message::Beats { first: self.next, count: 1, age_ns: 0 });
        self.next += 1;
        self.assign(draws);
    }

    fn assign(&mut self, draws: &mut Draws) {
        let ids: Vec<u64> =
            self.held.iter().filter(|(_, held)| held.2.is_none()).map(|(id, _)| *id).collect();
        for id in ids {
            let bytes = self.held[&id].0;
            let fits =
                |at: &usize| self.builders[*at].there && self.outstanding[*at] + bytes <= self.memory_bytes;
            let open: Vec<usize> = (0..self.builders.len()).filter(fits).collect();
            if open.is_empty() {
                continue;
            }
            let slot = open[(draws.next() % open.len() as u64) as usize];
            self.place(id, slot);
        }
    }

    fn place(&mut self, id: u64, slot: usize) {
        let assignment = Assignment { id, builder: slot as u32, epoch: self.epoch };
        let held = self.held.get_mut(&id).expect("held");
        held.2 = Some(assignment);
        self.outstanding[slot] += held.0;
        let message = Message::Assign(vec![assignment]);
        self.tell_sources(&message);
        self.out.push((Peer::Builder(slot), message));
    }

    /// Takes an event from its builder for no reason, and gives it to any.
    pub fn reassign(&mut self, draws: &mut Draws) {
        let placed: Vec<(u64, Assignment)> =
            self.held.iter().filter_map(|(id, held)| Some((*id, held.2?))).collect();
        if placed.is_empty() {
            return;
        }
        let (id, old) = placed[(draws.next() % placed.len() as u64) as usize];
        self.epoch += 1;
        self.reassigned += 1;
        let slot = old.builder as usize;
        self.outstanding[slot] -= self.held[&id].0;
        self.held.get_mut(&id).expect("held").2 = None;
        let release = Release { first: id, count: 1, outcome: None };
        self.out.push((Peer::Builder(slot), Message::Release(vec![release])));
        self.assign(draws);
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        let Some((bytes, _, place)) = self.held.remove(&id) else { return };
        assert_eq!(self.outcomes.insert(id, outcome), None, "event {id} has two outcomes");
        let message = Message::Release(vec![Release { first: id, count: 1, outcome: Some(outcome) }]);
        self.tell_sources(&message);
        if let Some(at) = place {
            self.outstanding[at.builder as usize] -= bytes;
            self.out.push((Peer::Builder(at.builder as usize), message));
        }
    }

    pub fn probe(&mut self) {
        self.probe += 1;
        let there: Vec<Peer> = (0..self.sources.len())
            .filter(|at| self.sources[*at].there)
            .map(Peer::Source)
            .chain((0..self.builders.len()).filter(|at| self.builders[*at].there).map(Peer::Builder))
            .collect();
        for peer in there {
            self.out.push((peer, Message::Probe(self.probe)));
        }
    }
}
