//! The highest rate that is carried, found by loading at one rate after another. Rules: `docs/specs/event-building.md#search-1`.

use super::Director;
use crate::message::Outcome;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::Instant;

/// Rates that are nearer to each other than this are one.
const RESOLUTION: f64 = 0.02;
/// What is held may grow by so much of what was issued meanwhile: half of what the resolution can tell.
const GROWTH_MAX: f64 = 0.01;
/// Or by so many, where that is more: what is under way at any moment.
const GROWTH_FREE: u64 = 2;
/// Where the first rate is not carried, it is halved so often.
const HALVINGS_MAX: i32 = 16;

/// What is looked for, from the run's own rate upwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchPlan {
    /// The highest rate that is tried, Hz.
    pub to_hz: f64,
    /// How long each is.
    pub probe: Duration,
}

/// What came of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub rate_hz: f64,
    pub issued: u64,
    /// Partial or dropped.
    pub lost: u64,
    /// By how much what is held had grown from a third of the time to the end.
    pub held_growth: i64,
    pub carried: bool,
}

/// The run's account at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    generated: u64,
    lost: u64,
    held: u64,
}

enum Stage {
    Loading,
    /// No heartbeats until what is held has ended, or this time.
    Settling(Instant),
}

enum Next {
    Load,
    Wait,
    Rate(f64),
    Done,
}

pub(super) struct Search {
    plan: SearchPlan,
    first_hz: f64,
    rate_hz: f64,
    began: Instant,
    before: Account,
    third: Option<Account>,
    end: Account,
    stage: Stage,
    carried_hz: Option<f64>,
    refused_hz: Option<f64>,
    probes: Vec<Probe>,
}

impl Search {
    fn new(plan: SearchPlan, rate_hz: f64, began: Instant, before: Account) -> Search {
        Search {
            plan,
            first_hz: rate_hz,
            rate_hz,
            began,
            before,
            third: None,
            end: before,
            stage: Stage::Loading,
            carried_hz: None,
            refused_hz: None,
            probes: Vec::new(),
        }
    }

    fn look(&mut self, now: Instant, account: Account, settle: Duration) -> Next {
        match self.stage {
            Stage::Loading => {
                let elapsed = now.since(self.began);
                if self.third.is_none() && elapsed >= self.plan.probe / 3 {
                    self.third = Some(account);
                }
                if elapsed < self.plan.probe {
                    return Next::Load;
                }
                self.end = account;
                self.stage = Stage::Settling(now + settle);
                Next::Wait
            }
            Stage::Settling(until) if account.held > 0 && now < until => Next::Wait,
            Stage::Settling(_) => {
                self.judge(account);
                let Some(rate_hz) = self.next_rate() else { return Next::Done };
                (self.rate_hz, self.began, self.before) = (rate_hz, now, account);
                (self.third, self.stage) = (None, Stage::Loading);
                Next::Rate(rate_hz)
            }
        }
    }

    fn judge(&mut self, account: Account) {
        let third = self.third.unwrap_or(self.before);
        let growth = self.end.held as i64 - third.held as i64;
        let allowed = GROWTH_FREE.max(((self.end.generated - third.generated) as f64 * GROWTH_MAX) as u64);
        let lost = account.lost - self.before.lost;
        let carried = lost == 0 && account.held == 0 && growth <= allowed as i64;
        let issued = self.end.generated - self.before.generated;
        self.probes.push(Probe { rate_hz: self.rate_hz, issued, lost, held_growth: growth, carried });
        if carried {
            self.carried_hz = Some(self.rate_hz);
        } else {
            self.refused_hz = Some(self.rate_hz);
        }
    }

    /// `None` when it is found.
    fn next_rate(&self) -> Option<f64> {
        let found = |low: f64, high: f64| high - low <= RESOLUTION * high;
        match (self.carried_hz, self.refused_hz) {
            (Some(carried), None) => {
                (!found(carried, self.plan.to_hz)).then_some((2.0 * carried).min(self.plan.to_hz))
            }
            (Some(carried), Some(refused)) => (!found(carried, refused)).then_some((carried + refused) / 2.0),
            (None, Some(refused)) => {
                (refused > self.first_hz * 0.5f64.powi(HALVINGS_MAX)).then_some(refused / 2.0)
            }
            (None, None) => Some(self.first_hz),
        }
    }
}

impl Director {
    /// True while no heartbeat may be issued, because what the rate before has left is still being built.
    pub(super) fn search_pauses(&mut self) -> bool {
        let Some(plan) = self.settings.search else { return false };
        let (generated, held) = (self.ledger.generated(), self.ledger.held_count());
        let lost = generated - held - self.ledger.count(Outcome::Complete);
        let account = Account { generated, lost, held };
        let began = self.due(generated);
        let (now, settle, rate_hz) = (self.now, self.settings.drain, self.settings.rate_hz);
        let search = self.search.get_or_insert_with(|| Search::new(plan, rate_hz, began, account));
        match search.look(now, account, settle) {
            Next::Load => false,
            Next::Wait => true,
            Next::Rate(rate_hz) => {
                self.settings.rate_hz = rate_hz;
                self.set_clock(generated, i128::from(now.as_ns()));
                false
            }
            Next::Done => {
                self.drain();
                true
            }
        }
    }

    /// What was tried so far, in order; empty without a search.
    pub fn searched(&self) -> &[Probe] {
        self.search.as_ref().map_or(&[], |search| &search.probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate found where `capacity_hz` events a second are built and `room` may be held.
    fn find(from_hz: f64, to_hz: f64, capacity_hz: f64, room: u64) -> (Option<f64>, Vec<Probe>) {
        let plan = SearchPlan { to_hz, probe: Duration::from_secs(3) };
        let mut search = Search::new(plan, from_hz, Instant::ZERO, Account::default());
        let (mut rate_hz, mut now) = (from_hz, Instant::ZERO);
        let (mut offered, mut built, mut account) = (0.0, 0.0, Account::default());
        loop {
            match search.look(now, account, Duration::from_secs(10)) {
                Next::Load => offered += rate_hz / 1e3,
                Next::Wait => {}
                Next::Rate(next) => rate_hz = next,
                Next::Done => return (search.carried_hz, search.probes),
            }
            now = now + Duration::from_millis(1);
            while account.generated < offered as u64 {
                account.generated += 1;
                if account.held < room { account.held += 1 } else { account.lost += 1 }
            }
            built = f64::min(built + capacity_hz / 1e3, 1.0 + account.held as f64);
            while built >= 1.0 && account.held > 0 {
                (built, account.held) = (built - 1.0, account.held - 1);
            }
        }
    }

    // Spec: event-building.md#search-1
    #[test]
    fn the_highest_rate_that_is_carried_is_found_from_either_side() {
        for (from, to, capacity, room) in
            [(50.0, 1e4, 197.8, 1_000_000), (2_000.0, 1e4, 197.8, 1_000_000), (50.0, 1e4, 3_000.0, 100)]
        {
            let (found, probes) = find(from, to, capacity, room);
            let found = found.unwrap();
            assert!(
                (0.96 * capacity..=1.015 * capacity).contains(&found),
                "{found} of {capacity}: {probes:?}"
            );
            assert!(probes.len() < 20, "{probes:?}");
        }
        // Few heartbeats in three seconds tell no less: what grows by more than 1 %, and by more than two, is not carried.
        for capacity in [67.6, 101.4, 202.9] {
            let found = find(20.0, 5_000.0, capacity, 1_000_000).0.unwrap();
            assert!((0.96 * capacity..=(1.011 * capacity).max(capacity + 1.0)).contains(&found), "{found}");
        }
        let (found, probes) = find(50.0, 400.0, 1e6, 1_000_000);
        assert_eq!((found, probes.len()), (Some(400.0), 4), "never above the highest rate");
        assert_eq!(find(50.0, 400.0, 0.0, 10).0, None);
    }
}
