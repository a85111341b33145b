//! What stands in the scheduler's place: the script, or the real core.

use super::script::Script;
use crate::director::{self, Director, To};
use crate::message::{Message, Welcome};
use crate::sizes::Draws;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::{Instant, Values};

/// A source or a builder by its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Source(usize),
    Builder(usize),
}

pub enum Mind {
    Script(Box<Script>),
    Real(Box<Director>),
}

impl Mind {
    pub fn real(welcome: &Welcome, sources: usize, builders: usize, events: u64) -> Mind {
        let settings = director::Settings {
            rate_hz: welcome.rate_hz,
            events: Some(events),
            sources: sources as u32,
            builders: builders as u32,
            grant_window_bytes: welcome.grant_window_bytes,
            send_order: welcome.send_order.clone(),
            seed: welcome.seed,
            drain: Duration::from_secs(60),
            ..director::Settings::default()
        };
        let scheduler = crate::SCHEDULERS.iter().find(|entry| entry.name == "least-outstanding").unwrap();
        let policies = ["whitelist", "blacklist", "re-initialise"];
        let policy = policies[(welcome.seed % 3) as usize];
        let policy = crate::DEATH_POLICIES.iter().find(|entry| entry.name == policy).unwrap();
        let (scheduler, policy) = (
            (scheduler.build)(&Values::defaults(scheduler.params)),
            (policy.build)(&Values::defaults(policy.params)),
        );
        Mind::Real(Box::new(Director::new(settings, scheduler, policy, welcome.run.clone())))
    }

    pub fn wake_at(&self) -> Instant {
        match self {
            Mind::Script(_) => Instant::NEVER,
            Mind::Real(real) => real.wake_at(),
        }
    }
    pub fn on_wake(&mut self, now: Instant) {
        if let Mind::Real(real) = self
            && real.wake_at() <= now
        {
            real.on_wake(now);
        }
    }
    pub fn on_connected(&mut self, control: u64, now: Instant) {
        if let Mind::Real(real) = self {
            real.on_connected(control, now);
        }
    }
    pub fn on_message(
        &mut self,
        from: Peer,
        control: u64,
        message: &Message,
        now: Instant,
        draws: &mut Draws,
    ) {
        match self {
            Mind::Script(script) => script.on_message(from, message, now, draws),
            Mind::Real(real) => real.on_message(control, message, now),
        }
    }
    pub fn on_gone(&mut self, peer: Peer, control: u64, now: Instant, draws: &mut Draws) {
        match self {
            Mind::Script(script) => script.on_gone(peer, draws),
            Mind::Real(real) => real.on_closed(control, now),
        }
    }

    /// What it has to say since the last time, and whose connections it closes.
    pub fn said(&mut self, controls: &BTreeMap<Peer, u64>) -> (Vec<(Peer, Message)>, Vec<Peer>) {
        let real = match self {
            Mind::Script(script) => return (script.said(), Vec::new()),
            Mind::Real(real) => real,
        };
        let (mut said, mut closed) = (Vec::new(), Vec::new());
        while let Some(action) = real.poll() {
            match action {
                director::Action::Send { to, message } => {
                    let hears = |(peer, control): (&Peer, &u64)| match to {
                        To::One(one) => one == *control,
                        To::Sources => matches!(peer, Peer::Source(_)),
                        To::Builders => matches!(peer, Peer::Builder(_)),
                        To::Peers => true,
                    };
                    let hearers = controls.iter().filter(|one| hears(*one)).map(|(peer, _)| *peer);
                    said.extend(hearers.map(|peer| (peer, message.clone())));
                }
                director::Action::Close { connection, .. } => {
                    closed.extend(controls.iter().filter(|one| *one.1 == connection).map(|one| *one.0));
                }
                director::Action::Admit { .. } | director::Action::Finished => {}
            }
        }
        (said, closed)
    }

    pub fn has_ended(&self, events: u64) -> bool {
        match self {
            Mind::Script(script) => script.outcomes.len() as u64 == events,
            Mind::Real(real) => real.is_finished(),
        }
    }
    pub fn is_finished(&self) -> bool {
        matches!(self, Mind::Real(real) if real.is_finished())
    }
    pub fn held_ids(&self) -> Vec<u64> {
        match self {
            Mind::Script(script) => script.held_ids().into_iter().collect(),
            Mind::Real(real) => real.ledger().held().iter().collect(),
        }
    }
}
