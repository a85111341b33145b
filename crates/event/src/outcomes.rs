//! How the latest events ended, a byte for each id: what costs the same whatever the order in which they end.

use crate::ledger::Reason;
use crate::message::Outcome;

/// Ids that have a place at once.
pub const IDS_MAX: usize = 1 << 20;
/// How many outcomes there are: complete, partial, and the reasons.
pub const COUNT: usize = 2 + Reason::ALL.len();

/// In an outcome's place: none yet, or none that is known.
const NONE: u8 = u8::MAX;

/// An outcome's place among all.
pub fn index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Complete => 0,
        Outcome::Partial => 1,
        Outcome::Dropped(reason) => 2 + reason as usize,
    }
}

/// Outcomes of the ids from `below` to `behind`.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    below: u64,
    /// By `index`, or `NONE`.
    codes: Vec<u8>,
    /// Runs of ids with the same outcome.
    runs: usize,
}

impl Outcomes {
    pub fn below(&self) -> u64 {
        self.below
    }
    pub fn behind(&self) -> u64 {
        self.below + self.codes.len() as u64
    }
    /// How many runs of ids with the same outcome there are.
    pub fn runs(&self) -> usize {
        self.runs
    }
    /// Whether there are places for all ids up to `behind`.
    pub fn reaches(&self, behind: u64) -> bool {
        behind.saturating_sub(self.below) <= IDS_MAX as u64
    }

    /// Begins anew with this id.
    pub fn restart(&mut self, below: u64) {
        (self.below, self.runs) = (below, 0);
        self.codes.clear();
    }
    /// Forgets those below an id.
    pub fn forget(&mut self, below: u64) {
        if below >= self.behind() {
            return self.restart(below);
        }
        let gone = below.saturating_sub(self.below) as usize;
        if gone > 0 {
            self.codes.drain(..gone);
            self.below = below;
            self.runs = (0..self.codes.len()).filter(|at| self.begins_run(*at)).count();
        }
    }
    fn begins_run(&self, at: usize) -> bool {
        self.codes[at] != NONE && at.checked_sub(1).is_none_or(|before| self.codes[before] != self.codes[at])
    }

    /// Makes places without an outcome up to `behind`, which `reaches`.
    pub fn extend(&mut self, behind: u64) {
        let len = (behind.saturating_sub(self.below) as usize).max(self.codes.len());
        self.codes.resize(len, NONE);
    }
    /// Puts an outcome behind all, for so many ids.
    pub fn push(&mut self, count: u64, outcome: Outcome) {
        let code = index(outcome) as u8;
        self.runs += usize::from(count > 0 && self.codes.last() != Some(&code));
        self.codes.resize(self.codes.len() + count as usize, code);
    }

    fn place(&self, id: u64) -> Option<usize> {
        let at = usize::try_from(id.checked_sub(self.below)?).ok()?;
        (at < self.codes.len()).then_some(at)
    }
    pub fn has(&self, id: u64) -> bool {
        self.place(id).is_some_and(|at| self.codes[at] != NONE)
    }
    /// Whether there is a place for `id`, and no outcome in it so far.
    pub fn put(&mut self, id: u64, outcome: Outcome) -> bool {
        let Some(at) = self.place(id).filter(|at| self.codes[*at] == NONE) else { return false };
        let code = index(outcome) as u8;
        let before = at.checked_sub(1).is_some_and(|before| self.codes[before] == code);
        let after = self.codes.get(at + 1) == Some(&code);
        self.codes[at] = code;
        self.runs += 1;
        self.runs -= usize::from(before) + usize::from(after);
        true
    }

    /// Behind the last of the ids from `id` on that have outcomes.
    pub fn end_from(&self, id: u64) -> u64 {
        let Some(from) = self.place(id) else { return id };
        let count = self.codes[from..].iter().take_while(|code| **code != NONE).count();
        id + count as u64
    }
    /// Ids with places and no outcome, ascending.
    pub fn open(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.spans().filter(|(.., code)| *code == NONE).map(|(first, end, _)| (first, end))
    }
    /// Ids with outcomes, ascending.
    pub fn ended(&self) -> impl Iterator<Item = (u64, u64, Outcome)> + '_ {
        let all: Vec<Outcome> = Outcome::all().collect();
        self.spans().filter_map(move |(first, end, code)| Some((first, end, *all.get(usize::from(code))?)))
    }
    fn spans(&self) -> impl Iterator<Item = (u64, u64, u8)> + '_ {
        let mut at = self.below;
        self.codes.chunk_by(|one, next| one == next).map(move |alike| {
            let first = at;
            at += alike.len() as u64;
            (first, at, alike[0])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, Outcome),
        Push(u64, Outcome),
        Extend(u64),
        Forget(u64),
    }
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let outcome = prop::sample::select(Outcome::all().take(3).collect::<Vec<_>>());
        let step = prop_oneof![
            6 => (0u64..40, outcome.clone()).prop_map(|(id, outcome)| Step::Put(id, outcome)),
            1 => (0u64..4, outcome).prop_map(|(count, outcome)| Step::Push(count, outcome)),
            2 => (0u64..40).prop_map(Step::Extend),
            1 => (0u64..40).prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_knows_what_a_list_would(steps in steps()) {
            let (mut outcomes, mut model) = (Outcomes::default(), Vec::<Option<Outcome>>::new());
            let mut below = 0;
            for step in steps {
                match step {
                    Step::Put(id, outcome) => {
                        let place = model.get_mut(id as usize).filter(|place| id >= below && place.is_none());
                        prop_assert_eq!(outcomes.put(id, outcome), place.is_some());
                        place.into_iter().for_each(|place| *place = Some(outcome));
                    }
                    Step::Push(count, outcome) => {
                        outcomes.push(count, outcome);
                        model.resize(model.len() + count as usize, Some(outcome));
                    }
                    Step::Extend(behind) => {
                        outcomes.extend(behind);
                        model.resize(model.len().max(behind as usize), None);
                    }
                    Step::Forget(id) => {
                        outcomes.forget(id);
                        below = below.max(id);
                        model.resize(model.len().max(id as usize), None);
                    }
                }
                let known = |id: u64| (id >= below).then(|| model[id as usize]).flatten();
                let ids = || 0..model.len() as u64;
                prop_assert_eq!((outcomes.below(), outcomes.behind()), (below, model.len() as u64));
                prop_assert!(ids().all(|id| outcomes.has(id) == known(id).is_some()));
                let ended: Vec<(u64, Outcome)> = outcomes
                    .ended()
                    .flat_map(|(first, end, outcome)| (first..end).map(move |id| (id, outcome)))
                    .collect();
                prop_assert_eq!(ended, ids().filter_map(|id| Some((id, known(id)?))).collect::<Vec<_>>());
                let open: Vec<u64> = outcomes.open().flat_map(|(first, end)| first..end).collect();
                prop_assert_eq!(open, ids().filter(|id| *id >= below && known(*id).is_none()).collect::<Vec<u64>>());
                for id in ids().filter(|id| *id >= below) {
                    let end = (id..model.len() as u64).find(|id| known(*id).is_none()).unwrap_or(model.len() as u64);
                    prop_assert_eq!(outcomes.end_from(id), end);
                }
                let begins = |id: &u64| known(*id).is_some() && (*id == below || known(*id - 1) != known(*id));
                prop_assert_eq!(outcomes.runs(), ids().filter(begins).count());
            }
        }
    }
}
