//! The closed account of every event. Rules: `docs/specs/event-building.md#ledger-1`.

use crate::interval::Intervals;
use crate::message::{Known, Outcome};
use crate::outcomes::{self, Outcomes, index};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ids between the oldest event that is held and the last heartbeat that keep their places when they are settled.
const BEHIND_MAX: u64 = 1 << 18;

/// Why an event was dropped: a closed list, in the order of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    NoCredit,
    NoBuilder,
    NoScheduler,
    SourceLost,
    Deadline,
    Corrupt,
    StaleEpoch,
    Shutdown,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::NoCredit => "no-credit",
            Reason::NoBuilder => "no-builder",
            Reason::NoScheduler => "no-scheduler",
            Reason::SourceLost => "source-lost",
            Reason::Deadline => "deadline",
            Reason::Corrupt => "corrupt",
            Reason::StaleEpoch => "stale-epoch",
            Reason::Shutdown => "shutdown",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl Reason {
    /// In the order of the wire format and of the ledger.
    pub const ALL: [Reason; 8] = [
        Reason::NoCredit,
        Reason::NoBuilder,
        Reason::NoScheduler,
        Reason::SourceLost,
        Reason::Deadline,
        Reason::Corrupt,
        Reason::StaleEpoch,
        Reason::Shutdown,
    ];
}

/// The account of all ids below `below`, as counts: what was settled needs no list of ids any more, so that a run of any length
/// fits in memory. Whoever has it holds nothing of what is below and not open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub below: u64,
    /// Without an outcome when this was said.
    pub open: Intervals,
    pub complete: u64,
    pub partial: u64,
    pub dropped: BTreeMap<Reason, u64>,
}

impl Settled {
    /// Whether the event had its outcome when this was said.
    pub fn covers(&self, id: u64) -> bool {
        id < self.below && !self.open.contains(id)
    }

    /// Those of `ids`, which ascend, that had their outcome when this was said.
    pub fn covered(&self, ids: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut open = self.open.ranges().peekable();
        ids.take_while(|id| *id < self.below)
            .filter(|id| {
                while open.next_if(|(_, end)| end <= id).is_some() {}
                open.peek().is_none_or(|(first, _)| id < first)
            })
            .collect()
    }

    /// Whether it is closed, as one that a peer says may not be.
    pub fn is_closed(&self) -> bool {
        let counts = [self.complete, self.partial, self.open.count()];
        let sum = counts.into_iter().chain(self.dropped.values().copied()).try_fold(0, u64::checked_add);
        sum == Some(self.below) && self.open.last().is_none_or(|last| last < self.below)
    }

    fn done(&self) -> u64 {
        self.below - self.open.count()
    }
    fn count(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Complete => self.complete,
            Outcome::Partial => self.partial,
            Outcome::Dropped(reason) => self.dropped.get(&reason).copied().unwrap_or(0),
        }
    }
}

/// Counted beside the sum (ledger-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    pub late: u64,
    pub mismatched: u64,
    pub duplicate: u64,
    pub stale: u64,
    pub corrupt: u64,
    /// Events taken from a builder and given to another, each time.
    pub reassigned: u64,
    /// Held when the last heartbeat was issued; `None` before.
    pub undelivered: Option<u64>,
}

/// The account as numbers, for a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub generated: u64,
    pub complete: u64,
    pub partial: u64,
    /// Every reason, also those that did not occur.
    pub dropped: BTreeMap<Reason, u64>,
    pub held: u64,
    #[serde(flatten)]
    pub aside: Aside,
}

impl Totals {
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
    pub fn is_closed(&self) -> bool {
        self.generated == self.complete + self.partial + self.dropped_total() + self.held
    }
}

/// Every event of a run has one place in it: held, or one outcome. An event costs a byte from its heartbeat until
/// it and all before it have ended and are settled, and no search.
// Invariant: of what is below `recent`, `open` is held and all else has ended; what `settled` covers has ended.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    generated: u64,
    held_count: u64,
    counts: [u64; outcomes::COUNT],
    settled: Settled,
    /// What is held of the ids below `recent`.
    open: Intervals,
    recent: Outcomes,
    /// Since the last settling: how often some of `settled.open` have ended, and what runs there were then.
    open_ended: usize,
    settled_runs: usize,
    pub aside: Aside,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// What peers of a run know together (failure-5). The first to name an outcome is believed, so sources, which heard it from the
    /// scheduler, come before builders, whose word the scheduler may not have taken. Nothing that a peer says can open it.
    pub fn recover<'a>(peers: impl Iterator<Item = &'a Known> + Clone) -> Ledger {
        let settled = peers
            .clone()
            .map(|known| &known.settled)
            .filter(|settled| settled.is_closed())
            .max_by_key(|settled| (settled.done(), settled.below))
            .cloned()
            .unwrap_or_default();
        let generated = peers.clone().map(Known::behind).max().unwrap_or(0).max(settled.below);
        let mut open = settled.open.clone();
        open.insert_range(settled.below, generated);
        let mut counts = [0; outcomes::COUNT];
        for outcome in Outcome::all() {
            counts[index(outcome)] = settled.count(outcome);
        }
        let mut ledger = Ledger { generated, held_count: open.count(), counts, open, ..Ledger::default() };
        // However far a peer's ids reach, they have no places.
        ledger.recent.restart(generated);
        for known in peers {
            for (outcome, ids) in known.outcomes() {
                for (first, end) in ids.ranges() {
                    ledger.finish_range(first, end, outcome);
                }
            }
        }
        ledger.settle_all();
        ledger
    }

    /// The next `count` heartbeats have happened: their events are held. Gives the first id.
    pub fn generate(&mut self, count: u64) -> u64 {
        let first = self.generated;
        self.generated += count;
        self.held_count += count;
        self.recent.extend(self.generated);
        first
    }

    /// The next `count` heartbeats have happened, and their events ended at once; the first id.
    pub fn generate_ended(&mut self, count: u64, outcome: Outcome) -> u64 {
        let first = self.generated;
        self.generated += count;
        self.counts[index(outcome)] += count;
        if self.recent.reaches(self.generated) {
            self.recent.push(count, outcome);
        } else {
            self.settle_all();
        }
        first
    }

    /// Whether the event was held. One that has an outcome keeps it.
    pub fn finish(&mut self, id: u64, outcome: Outcome) -> bool {
        if id < self.recent.below() {
            return self.finish_open(id, id + 1, outcome) == 1;
        }
        let was_held = self.recent.put(id, outcome);
        if was_held {
            self.open_ended += usize::from(id < self.settled.below);
            self.held_count -= 1;
            self.counts[index(outcome)] += 1;
        }
        was_held
    }

    /// Ends what of `first..end` is held and says how many that were.
    pub fn finish_range(&mut self, first: u64, end: u64, outcome: Outcome) -> u64 {
        let mut finished = self.finish_open(first, end, outcome);
        for id in first.max(self.recent.below())..end.min(self.recent.behind()) {
            finished += u64::from(self.finish(id, outcome));
        }
        finished
    }

    /// Of those that were open at the last settling.
    fn finish_open(&mut self, first: u64, end: u64, outcome: Outcome) -> u64 {
        let finished = self.open.remove_range(first, end);
        self.open_ended += usize::from(finished > 0);
        self.held_count -= finished;
        self.counts[index(outcome)] += finished;
        finished
    }

    /// Folds outcomes into counts: those below the oldest event that is held, so that none is open, and all of them where that is no more
    /// than was folded before.
    pub fn settle(&mut self) -> &Settled {
        match self.settles_briefly() {
            Some(below) => {
                self.recent.forget(below);
                self.say_settled(below, Intervals::default());
            }
            None => _ = self.settle_all(),
        }
        &self.settled
    }

    /// Folds all outcomes into counts, and names what is held.
    pub fn settle_all(&mut self) -> &Settled {
        let held = self.held();
        assert_eq!(held.count(), self.held_count);
        let oldest = self.recent.open().next().map_or(self.generated, |(first, _)| first);
        // What is held keeps its place, if it does not lie too far back.
        if self.recent.behind() == self.generated && self.generated - oldest <= BEHIND_MAX {
            self.recent.forget(oldest);
        } else {
            self.open.clone_from(&held);
            self.recent.restart(self.generated);
        }
        self.say_settled(self.generated, held);
        &self.settled
    }

    /// Below what all has ended, if that is more than when it was settled last.
    pub fn settles_briefly(&self) -> Option<u64> {
        let below = self.recent.open().next().map_or(self.generated, |(first, _)| first);
        (self.open.is_empty() && below > self.settled.below && self.recent.behind() == self.generated)
            .then_some(below)
    }

    /// All below `below` has ended but what is open.
    fn say_settled(&mut self, below: u64, open: Intervals) {
        self.open_ended = 0;
        self.settled_runs = self.recent.runs();
        let mut counts = self.counts;
        for (first, end, outcome) in self.recent.ended().filter(|(first, ..)| *first >= below) {
            counts[index(outcome)] -= end - first;
        }
        let of = |outcome: Outcome| counts[index(outcome)];
        let dropped = Reason::ALL.map(|reason| (reason, of(Outcome::Dropped(reason))));
        self.settled = Settled {
            below,
            open,
            complete: of(Outcome::Complete),
            partial: of(Outcome::Partial),
            dropped: dropped.into_iter().filter(|(_, count)| *count > 0).collect(),
        };
        assert!(self.settled.is_closed(), "every event is held or has one outcome");
    }

    /// Intervals that outcomes since the last settling take.
    pub fn unsettled(&self) -> usize {
        (self.recent.runs() + self.open_ended).saturating_sub(self.settled_runs)
    }
    /// Whether it has grown so long that it should be settled, whatever that takes.
    pub fn is_long(&self) -> bool {
        !self.recent.reaches(self.generated + 1)
    }

    /// Those without an outcome: a walk through all that is not settled.
    pub fn held(&self) -> Intervals {
        let mut held = self.open.clone();
        for (first, end) in self.recent.open() {
            held.insert_range(first, end);
        }
        held
    }
    pub fn generated(&self) -> u64 {
        self.generated
    }
    pub fn held_count(&self) -> u64 {
        self.held_count
    }
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counts[index(outcome)]
    }
    pub fn totals(&self) -> Totals {
        let totals = Totals {
            generated: self.generated,
            complete: self.count(Outcome::Complete),
            partial: self.count(Outcome::Partial),
            dropped: Reason::ALL
                .into_iter()
                .map(|reason| (reason, self.count(Outcome::Dropped(reason))))
                .collect(),
            held: self.held_count,
            aside: self.aside,
        };
        assert!(totals.is_closed(), "{totals:?}");
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DROPPED: Outcome = Outcome::Dropped(Reason::NoCredit);

    #[derive(Clone, Debug)]
    enum Step {
        Generate(u64),
        GenerateEnded(u64, Outcome),
        Finish(u64, Outcome),
        FinishRange(u64, u64, Outcome),
        Settle,
        SettleAll,
    }
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let outcome = prop::sample::select(Outcome::all().collect::<Vec<_>>());
        let step = prop_oneof![
            (1u64..5).prop_map(Step::Generate),
            (0u64..5, outcome.clone()).prop_map(|(count, outcome)| Step::GenerateEnded(count, outcome)),
            (0u64..40, outcome.clone()).prop_map(|(id, outcome)| Step::Finish(id, outcome)),
            (0u64..40, 0u64..6, outcome).prop_map(|(id, count, outcome)| Step::FinishRange(
                id,
                id + count,
                outcome
            )),
            Just(Step::Settle),
            Just(Step::SettleAll),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// The ledger, and what each event's outcome must be.
    fn played(steps: &[Step]) -> (Ledger, Vec<Option<Outcome>>) {
        let (mut ledger, mut model) = (Ledger::new(), Vec::<Option<Outcome>>::new());
        for step in steps {
            match *step {
                Step::Generate(count) => {
                    assert_eq!(ledger.generate(count), model.len() as u64);
                    model.resize(model.len() + count as usize, None);
                }
                Step::GenerateEnded(count, outcome) => {
                    assert_eq!(ledger.generate_ended(count, outcome), model.len() as u64);
                    model.resize(model.len() + count as usize, Some(outcome));
                }
                Step::Finish(id, outcome) => {
                    let place = model.get_mut(id as usize).filter(|place| place.is_none());
                    assert_eq!(ledger.finish(id, outcome), place.is_some(), "{step:?}");
                    place.into_iter().for_each(|place| *place = Some(outcome));
                }
                Step::FinishRange(first, end, outcome) => {
                    let mut finished = 0;
                    for place in model.iter_mut().take(end as usize).skip(first as usize) {
                        finished += u64::from(place.is_none());
                        place.get_or_insert(outcome);
                    }
                    assert_eq!(ledger.finish_range(first, end, outcome), finished, "{step:?}");
                }
                Step::Settle => assert!(ledger.settle().is_closed()),
                Step::SettleAll => assert_eq!(ledger.settle_all().below, model.len() as u64),
            }
            check(&ledger, &model);
        }
        (ledger, model)
    }
    fn check(ledger: &Ledger, model: &[Option<Outcome>]) {
        let count = |wanted| model.iter().filter(|outcome| **outcome == wanted).count() as u64;
        let totals = ledger.totals();
        assert!(totals.is_closed());
        assert_eq!((totals.generated, totals.held), (model.len() as u64, count(None)));
        for outcome in Outcome::all() {
            assert_eq!(ledger.count(outcome), count(Some(outcome)), "{outcome:?}");
        }
        let held = (0..).zip(model).filter(|(_, outcome)| outcome.is_none());
        assert!(ledger.held().iter().eq(held.map(|(id, _)| id)));
    }
    /// What a peer that heard all of it knows.
    fn known((ledger, model): &(Ledger, Vec<Option<Outcome>>)) -> Known {
        let of = |wanted| {
            let mut ids = Intervals::default();
            for (id, outcome) in (0..).zip(model) {
                if *outcome == Some(wanted) && !ledger.settled.covers(id) {
                    ids.insert(id);
                }
            }
            ids
        };
        Known {
            held: ledger.held(),
            complete: of(Outcome::Complete),
            partial: of(Outcome::Partial),
            dropped: Reason::ALL.map(|reason| (reason, of(Outcome::Dropped(reason)))).to_vec(),
            settled: ledger.settled.clone(),
            last: ledger.generated.checked_sub(1).map(|last| (last, 0)),
            ..Known::default()
        }
    }

    proptest! {
        // Spec: event-building.md#ledger-1
        #[test]
        fn it_is_closed_at_every_moment_and_no_event_has_two_outcomes(steps in steps()) {
            played(&steps);
        }

        // Spec: event-building.md#failure-5
        #[test]
        fn peers_that_heard_different_parts_know_the_whole_account_together(steps in steps(), cuts in prop::collection::vec(0usize..60, 0..4)) {
            let whole = played(&steps);
            let mut peers = vec![known(&whole)];
            peers.extend(cuts.iter().map(|cut| known(&played(&steps[..*cut.min(&steps.len())]))));
            peers.rotate_left(cuts.len() / 2);
            let recovered = Ledger::recover(peers.iter());
            let (whole, model) = whole;
            check(&recovered, &model);
            prop_assert_eq!(recovered.totals(), whole.totals());
        }

        // Spec: event-building.md#failure-5
        #[test]
        fn nothing_that_peers_say_opens_it(
            pairs in prop::collection::vec((0u64..1 << 40, 1u64..1 << 20), 0..8),
            below in any::<u64>(), complete in any::<u64>(), last in 0u64..1 << 48,
        ) {
            let mut sets = vec![Intervals::default(); 4];
            for (at, (first, count)) in pairs.into_iter().enumerate() {
                sets[at % 4].insert_range(first, first + count);
            }
            let liar = Known {
                held: sets[0].clone(),
                complete: sets[1].clone(),
                partial: sets[2].clone(),
                dropped: vec![(Reason::Corrupt, sets[3].clone()), (Reason::Corrupt, sets[1].clone())],
                settled: Settled { below, complete, open: sets[3].clone(), ..Settled::default() },
                last: Some((last, u64::MAX)),
                ..Known::default()
            };
            let mut ledger = Ledger::recover([&liar, &liar].into_iter());
            prop_assert!(ledger.totals().is_closed());
            prop_assert!(ledger.settle().is_closed());
        }
    }

    #[test]
    fn the_summary_names_every_reason_and_is_flat() {
        let mut ledger = Ledger::new();
        ledger.generate(3);
        ledger.finish(0, Outcome::Complete);
        ledger.finish(1, DROPPED);
        ledger.aside.undelivered = Some(1);
        let text = serde_json::to_string(&ledger.totals()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"generated":3,"complete":1,"partial":0,"dropped":{"no-credit":1,"no-builder":0,"no-scheduler":0,"#,
                r#""source-lost":0,"deadline":0,"corrupt":0,"stale-epoch":0,"shutdown":0},"held":1,"late":0,"mismatched":0,"#,
                r#""duplicate":0,"stale":0,"corrupt":0,"reassigned":0,"undelivered":1}"#
            )
        );
    }

    #[test]
    fn heartbeats_of_an_absence_of_years_take_no_room() {
        let mut ledger = Ledger::new();
        ledger.generate(3);
        let count = 1 << 50;
        assert_eq!(ledger.generate_ended(count, DROPPED), 3);
        assert_eq!((ledger.count(DROPPED), ledger.held_count(), ledger.generated()), (count, 3, count + 3));
        assert!(ledger.finish(1, Outcome::Complete) && !ledger.finish(3, Outcome::Complete));
        assert!(ledger.settle().is_closed() && ledger.totals().is_closed());
    }

    #[test]
    fn what_is_settled_is_found_among_ids_in_order() {
        let mut open = Intervals::of(3, 5);
        open.insert_range(8, 9);
        let settled = Settled { below: 10, open, ..Settled::default() };
        assert_eq!(settled.covered(1..14), (1..14).filter(|id| settled.covers(*id)).collect::<Vec<u64>>());
        assert_eq!(settled.covered([4, 8, 9].into_iter()), [9]);
    }

    #[test]
    fn what_is_held_is_named_only_where_nothing_is_folded_otherwise_and_no_settling_takes_another_back() {
        let mut ledger = Ledger::new();
        let end_all = |ledger: &mut Ledger, ids: std::ops::Range<u64>| {
            ids.for_each(|id| assert!(ledger.finish(id, Outcome::Complete)));
        };
        let said = |settled: &Settled| (settled.below, settled.complete, settled.open.count());
        ledger.generate(100);
        end_all(&mut ledger, 0..40);
        end_all(&mut ledger, 41..90);
        assert_eq!(said(ledger.settle()), (40, 40, 0));
        assert_eq!(said(ledger.settle()), (100, 89, 11));
        end_all(&mut ledger, 40..41);
        assert_eq!(ledger.settles_briefly(), None, "all below 90 has ended, and 100 was said");
        end_all(&mut ledger, 90..100);
        // More than keeps its place.
        ledger.generate(BEHIND_MAX + 3);
        end_all(&mut ledger, 101..103);
        assert_eq!(said(ledger.settle_all()), (BEHIND_MAX + 103, 102, BEHIND_MAX + 1));
        ledger.generate(7);
        end_all(&mut ledger, 103..BEHIND_MAX + 103);
        assert_eq!(said(ledger.settle()), (BEHIND_MAX + 110, BEHIND_MAX + 102, 8));
        end_all(&mut ledger, 100..101);
        ledger.generate(1);
        end_all(&mut ledger, BEHIND_MAX + 103..BEHIND_MAX + 111);
        assert_eq!(said(ledger.settle()), (BEHIND_MAX + 111, BEHIND_MAX + 111, 0));
    }

    #[test]
    fn an_account_of_any_length_settles_to_a_few_numbers() {
        let mut ledger = Ledger::new();
        for _ in 0..1000 {
            let id = ledger.generate(2);
            ledger.finish(id, Outcome::Complete);
            ledger.finish(id + 1, DROPPED);
        }
        assert_eq!(ledger.unsettled(), 2000);
        let settled = ledger.settle();
        assert_eq!((settled.below, settled.complete, settled.open.interval_count()), (2000, 1000, 0));
        assert_eq!(ledger.unsettled(), 0);
        assert!(!ledger.finish(5, Outcome::Partial), "a settled event took another outcome");
    }
}
