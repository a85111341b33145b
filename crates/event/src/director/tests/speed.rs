//! What an event costs. Prints; a machine that is busy elsewhere must not fail it.

use super::hand::{Hand, assigned, at_ms, builder, source};
use crate::director::{Action, Director, Settings, To};
use crate::message::{Done, Join, Message, Outcome, Role};
use crate::{death_policy, scheduler};
use std::time::Duration;
use weir_core::Values;
use weir_seams::scheduler::SchedulerEntry;

const BUILDERS: u64 = 1_750;

/// Each event is done a while after it was assigned, in an order that is not theirs. CPU time of an event in ns, and messages.
fn cost(entry: &SchedulerEntry, sources: u64, events: u64) -> (f64, u64) {
    // Nobody answers probes here.
    let detect = Duration::from_secs(3600);
    let settings = Settings { sources: sources as u32, rate_hz: 100_000.0, detect, ..Hand::settings() };
    let policy = death_policy::entry("whitelist").expect("a policy of that name");
    let director = Director::new(
        settings,
        (entry.build)(&Values::defaults(entry.params)),
        (policy.build)(&Values::defaults(policy.params)),
        "fresh".into(),
    );
    let mut hand = Hand { director, now: at_ms(0) };
    for at in 0..sources {
        let role = Role::Source { buffer_bytes: 1 << 40, fragment_bytes_max: 1000, fixed: true };
        hand.join(10_000 + at, &Join { role, ..source(&format!("s{at}")) });
    }
    for at in 0..BUILDERS {
        let role = Role::Builder { memory_bytes: 1 << 40, data: ([127, 0, 0, 1], 1).into() };
        hand.join(at, &Join { role, ..builder(&format!("b{at}")) });
    }
    let works: Vec<(u32, bool)> = (0..BUILDERS as u32).map(|slot| (slot, true)).collect();
    for at in 0..sources {
        hand.say(10_000 + at, &Message::Channel(works.clone()));
    }
    hand.wake(0);
    let begun = weir_sys::clock::thread_cpu_time();
    let mut flight: Vec<(u64, u32, u32)> = Vec::new();
    let (mut messages, mut ended) = (0u64, 0u64);
    let mut ms = 0;
    while ended < events {
        ms += 1;
        // Every millisecond 100 heartbeats.
        let actions = hand.wake(ms);
        messages += actions.len() as u64;
        flight.extend(assigned(&actions));
        for action in actions {
            if let Action::Send { to: To::Sources | To::One(_), message } = action {
                hand.director.recycle(message);
            }
        }
        while flight.len() > 3000 {
            let (id, slot, epoch) = flight.swap_remove((ended * 7919 % 1500) as usize);
            let done = Message::Done(vec![Done { id, epoch, outcome: Outcome::Complete }]);
            hand.director.on_message(u64::from(slot), &done, hand.now);
            ended += 1;
        }
    }
    let used = weir_sys::clock::thread_cpu_time() - begun;
    assert_eq!(hand.director.ledger().totals().complete, ended);
    (used.as_nanos() as f64 / ended as f64, messages)
}

#[test]
fn an_event_costs_the_same_however_many_sources_there_are_whoever_chooses() {
    let events: u64 = if cfg!(debug_assertions) { 10_000 } else { 300_000 };
    for entry in scheduler::SCHEDULERS {
        for sources in [250, 1] {
            let (ns, messages) = cost(entry, sources, events);
            println!("{}, {sources} sources: {ns:.0} ns of CPU an event, {messages} messages", entry.name);
            assert!(messages < 4 * events, "{}: messages grow with the sources", entry.name);
        }
    }
}
