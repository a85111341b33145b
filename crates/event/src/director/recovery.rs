//! What a scheduler that is started learns from its peers. Rules: `docs/specs/event-building.md#failure-5`.

use super::{Director, Phase};
use crate::interval::Intervals;
use crate::ledger::{Ledger, Reason};
use crate::message::{Join, Known, Outcome, Role, RunId};
use std::collections::BTreeMap;
use weir_core::Instant;

/// Joins that wait for an answer, until it is known whether there is a run already.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// By connection, with the time when they came.
    joins: BTreeMap<u64, (Instant, Box<Join>)>,
    /// When the first came that knows of a run.
    known_since: Option<Instant>,
}

impl Learning {
    pub fn forget(&mut self, connection: u64) {
        self.joins.remove(&connection);
    }

    /// Names of sources.
    fn source_count(&self) -> usize {
        let mut names: Vec<&str> = self
            .joins
            .values()
            .filter(|(_, join)| matches!(join.role, Role::Source { .. }))
            .map(|(_, join)| join.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The run that most peers know.
    fn run(&self) -> Option<RunId> {
        let mut votes: BTreeMap<&RunId, usize> = BTreeMap::new();
        for (_, join) in self.joins.values() {
            if let Some(known) = &join.known {
                *votes.entry(&known.run).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(run, _)| run.clone())
    }
}

impl Director {
    pub(super) fn is_learning(&self) -> bool {
        matches!(self.phase, Phase::Learning(_))
    }
    /// Whether there have been heartbeats.
    pub(super) fn is_started(&self) -> bool {
        !matches!(self.phase, Phase::Learning(_) | Phase::Gathering)
    }

    pub(super) fn learn(&mut self, connection: u64, join: &Join) {
        let Phase::Learning(learning) = &mut self.phase else { return };
        if join.known.is_some() {
            learning.known_since.get_or_insert(self.now);
        }
        learning.joins.insert(connection, (self.now, Box::new(join.clone())));
        self.end_learning();
    }

    /// Goes on when enough has been heard.
    pub(super) fn end_learning(&mut self) {
        let Phase::Learning(learning) = &mut self.phase else { return };
        let all_sources = learning.source_count() >= self.settings.sources as usize;
        let enough = match learning.known_since {
            None => all_sources,
            Some(since) => {
                let heard = self.now.since(since);
                (all_sources && heard >= self.settings.learn) || heard >= self.settings.source_deadline
            }
        };
        if !enough {
            return;
        }
        let learning = std::mem::take(learning);
        self.phase = Phase::Gathering;
        let run = learning.run();
        let mut joins: Vec<(u64, Instant, Box<Join>)> =
            learning.joins.into_iter().map(|(connection, (at, join))| (connection, at, join)).collect();
        if let Some(run) = run {
            self.run = run;
            self.recover(&joins);
        }
        // Those that had a slot get it before others look for one; of two with one name the later comes after the earlier.
        joins
            .sort_by_key(|(connection, _, join)| (self.known(join).is_none(), join.incarnation, *connection));
        for (connection, _, join) in joins {
            let slot = self.known(&join).map(|known| known.slot);
            self.take_in(connection, &join, slot);
        }
    }

    /// What a peer knows of this run.
    fn known<'a>(&self, join: &'a Join) -> Option<&'a Known> {
        join.known.as_ref().filter(|known| known.run == self.run)
    }

    fn recover(&mut self, joins: &[(u64, Instant, Box<Join>)]) {
        let is_source = |join: &Join| matches!(join.role, Role::Source { .. });
        let of = |sources: bool| {
            joins
                .iter()
                .filter(move |(_, _, join)| is_source(join) == sources)
                .filter_map(|(_, at, join)| Some((*at, self.known(join)?)))
        };
        let all = || of(true).chain(of(false));
        let mut ledger = Ledger::recover(all().map(|(_, known)| known));
        let epoch = all().map(|(_, known)| known.epoch).max().unwrap_or(0).wrapping_add(1);
        let slots = joins.iter().filter(|(_, _, join)| !is_source(join));
        let slots = slots.filter_map(|(_, _, join)| self.known(join)).map(|known| known.slot);
        let slots = slots.filter(|slot| *slot < self.settings.builders_max).max();

        // An event can be had if some source has heard of it; the others make their fragments then.
        let mut seen = Intervals::default();
        of(true).for_each(|(_, known)| seen.union(&known.held));
        let mut unseen = ledger.held();
        unseen.difference(&seen);
        for (first, end) in unseen.ranges() {
            ledger.finish_range(first, end, Outcome::Dropped(Reason::NoScheduler));
        }
        for (first, end) in ledger.held().ranges() {
            let over = ledger.held_count().saturating_sub(self.settings.held_max);
            ledger.finish_range(first, end.min(first + over), Outcome::Dropped(Reason::NoScheduler));
        }

        // The earliest of the peers' clocks: messages are late and never early.
        let clocks = all().filter_map(|(at, known)| {
            let (id, age_ns) = known.last?;
            Some((id, i128::from(at.as_ns()) - i128::from(age_ns)))
        });
        let clocks: Vec<(u64, i128)> = clocks.collect();
        self.members.builder_slots = slots.map_or(0, |slot| slot + 1);
        self.ledger = ledger;
        self.epoch = epoch;
        let mut origin = None;
        for (id, at_ns) in clocks {
            self.set_clock(id, at_ns);
            origin = Some(origin.map_or(self.origin_ns, |origin: i128| origin.min(self.origin_ns)));
        }
        if let Some(origin) = origin {
            self.origin_ns = origin;
            self.recovered_at = self.now;
            self.phase = Phase::Running;
        }
        self.fill_table();
    }
}
