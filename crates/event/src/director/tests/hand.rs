//! A director played by hand: every message is in the test.

use super::parts::{Policy, Turns};
use crate::director::{Action, Director, Settings, To};
use crate::message::{Done, Join, Known, Message, Outcome, Role, VERSION};
use std::time::Duration;
use weir_core::Instant;

pub struct Hand {
    pub director: Director,
    pub now: Instant,
}

pub fn at_ms(ms: u64) -> Instant {
    Instant::from_ns(1_000_000_000 + ms * 1_000_000)
}

pub fn source(name: &str) -> Join {
    Join {
        version: VERSION,
        name: name.into(),
        host: "one".into(),
        incarnation: 1,
        role: Role::Source { buffer_bytes: 1 << 20, fragment_bytes_max: 1000, fixed: true },
        known: None,
    }
}
pub fn builder(name: &str) -> Join {
    let role = Role::Builder { memory_bytes: 10_000, data: ([127, 0, 0, 1], 1).into() };
    Join { role, ..source(name) }
}
pub fn known(run: &str, slot: u32) -> Known {
    Known { run: run.into(), slot, ..Known::default() }
}

impl Hand {
    pub fn new(settings: Settings) -> Hand {
        Hand::with_policy(settings, Policy::Whitelist)
    }
    pub fn with_policy(settings: Settings, policy: Policy) -> Hand {
        let director = Director::new(settings, Box::<Turns>::default(), Box::new(policy), "fresh".into());
        Hand { director, now: at_ms(0) }
    }
    pub fn settings() -> Settings {
        Settings { rate_hz: 1000.0, start_pause: Duration::ZERO, ..Settings::default() }
    }
    /// One source on connection 1 and builders on 11, 12, …, with channels; heartbeat 0 is issued.
    pub fn running(settings: Settings, builders: u64) -> Hand {
        Hand::new(settings).begun(builders)
    }
    pub fn begun(self, builders: u64) -> Hand {
        let mut hand = self;
        hand.join(1, &source("s"));
        for at in 0..builders {
            hand.join(11 + at, &builder(&format!("b{at}")));
        }
        hand.say(1, &Message::Channel((0..builders as u32).map(|slot| (slot, true)).collect()));
        hand.wake(0);
        assert!(hand.director.is_running());
        hand
    }
    pub fn join(&mut self, connection: u64, join: &Join) -> Vec<Action> {
        self.director.on_connected(connection, self.now);
        self.say(connection, &Message::Join(Box::new(join.clone())))
    }
    pub fn say(&mut self, connection: u64, message: &Message) -> Vec<Action> {
        self.director.on_message(connection, message, self.now);
        self.actions()
    }
    pub fn done(&mut self, connection: u64, id: u64, epoch: u32, outcome: Outcome) -> Vec<Action> {
        self.say(connection, &Message::Done(vec![Done { id, epoch, outcome }]))
    }
    pub fn closed(&mut self, connection: u64) -> Vec<Action> {
        self.director.on_closed(connection, self.now);
        self.actions()
    }
    /// Time goes on to `ms`; everyone answers.
    pub fn wake(&mut self, ms: u64) -> Vec<Action> {
        self.now = at_ms(ms);
        self.director.on_wake(self.now);
        self.actions()
    }
    pub fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.director.poll()).collect()
    }
}

/// Of the assignments to sources: heartbeat, builder, epoch.
pub fn assigned(actions: &[Action]) -> Vec<(u64, u32, u32)> {
    let lists = actions.iter().filter_map(|action| match action {
        Action::Send { to: To::Sources, message: Message::Assign(list) } => Some(list),
        _ => None,
    });
    lists.flatten().map(|one| (one.id, one.builder, one.epoch)).collect()
}

/// Messages to one connection.
pub fn told(actions: &[Action], connection: u64) -> Vec<&Message> {
    let to_one = |action| match action {
        &Action::Send { to: To::One(to), ref message } if to == connection => Some(message),
        _ => None,
    };
    actions.iter().filter_map(to_one).collect()
}

pub fn closes(actions: &[Action], connection: u64) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Close { connection: closed, .. } if *closed == connection))
}
