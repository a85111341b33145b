//! Peers that hold the key and say anything at all.

use super::hand::{Hand, builder, source};
use crate::director::{Action, Settings};
use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::message::{Answer, Assignment, Done, Known, Message, Outcome, Role};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Connect(u64),
    Say(u64, Message),
    Closed(u64),
    Wait(u64),
    Stop,
}

fn any_id() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..40, 1 => any::<u64>()]
}
fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(Outcome::all().collect::<Vec<_>>())
}
fn any_set() -> impl Strategy<Value = Intervals> {
    prop::collection::vec((0u64..60, 1u64..9), 0..4).prop_map(|ranges| {
        let mut set = Intervals::default();
        for (first, count) in ranges {
            set.insert_range(first, first + count);
        }
        set
    })
}
fn any_known() -> impl Strategy<Value = Known> {
    let last = prop::option::of((any_id(), any::<u64>()));
    (
        prop::sample::select(vec!["fresh", "old"]),
        any::<u32>(),
        0u32..4,
        last,
        any_set(),
        any_set(),
        any_set(),
        any_id(),
    )
        .prop_map(|(run, epoch, slot, last, held, complete, dropped, below)| Known {
            run: run.into(),
            slot: if slot == 3 { u32::MAX } else { slot },
            epoch,
            last,
            held: held.clone(),
            complete,
            partial: Intervals::default(),
            dropped: vec![(Reason::Corrupt, dropped)],
            settled: Settled { below, open: held, complete: below / 2, ..Settled::default() },
        })
}
fn any_message() -> impl Strategy<Value = Message> {
    let join = (0u32..3, any::<bool>(), any::<bool>(), 0u64..3, prop::option::of(any_known())).prop_map(
        |(name, is_source, fixed, incarnation, known)| {
            let mut join = if is_source { source(&format!("s{name}")) } else { builder(&format!("b{name}")) };
            if is_source {
                join.role = Role::Source { buffer_bytes: 20_000, fragment_bytes_max: 1000, fixed };
            }
            join.incarnation = incarnation;
            join.known = known;
            Message::Join(Box::new(join))
        },
    );
    let done =
        (any_id(), 0u32..12, any_outcome()).prop_map(|(id, epoch, outcome)| Done { id, epoch, outcome });
    prop_oneof![
        6 => join,
        3 => prop::collection::vec((0u32..5, prop::bool::weighted(0.9)), 0..5).prop_map(Message::Channel),
        2 => prop::collection::vec(done, 0..6).prop_map(Message::Done),
        2 => (any_id(), prop::collection::vec(0u32..1100, 0..9)).prop_map(|(first, bytes)| Message::Announce { first, bytes }),
        1 => prop::collection::vec((any_id(), any::<u32>()), 0..3).prop_map(Message::Lost),
        2 => prop::collection::vec((any::<u32>(), any::<u32>()), 0..3)
            .prop_map(|stuck| Message::Answer(Answer { stuck, ..Answer::default() })),
        1 => Just(Message::Leave("why not".into())),
        1 => Just(Message::Assign(vec![Assignment { id: 1, builder: 0, epoch: 1 }])),
    ]
}
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..8).prop_map(Step::Connect),
        12 => (0u64..8, any_message()).prop_map(|(connection, message)| Step::Say(connection, message)),
        1 => (0u64..8).prop_map(Step::Closed),
        4 => (0u64..400).prop_map(Step::Wait),
        1 => Just(Step::Stop),
    ]
}

proptest! {
    // Spec: event-building.md#ledger-1
    #[test]
    fn nothing_that_peers_say_makes_it_panic_open_its_ledger_or_hang(
        honest in any::<bool>(), sources in 1u32..3, steps in prop::collection::vec(any_step(), 0..80)
    ) {
        let settings = Settings {
            sources,
            rate_hz: 100.0,
            held_max: 50,
            unsettled_max: 8,
            builders_max: 3,
            deadline: Some(Duration::from_secs(2)),
            source_deadline: Duration::from_secs(1),
            drain: Duration::from_secs(1),
            ..Settings::default()
        };
        let mut hand = if honest && sources == 1 { Hand::running(settings, 2) } else { Hand::new(settings) };
        let mut ms = 0;
        for step in steps {
            match step {
                Step::Connect(connection) => hand.director.on_connected(connection + 20, hand.now),
                Step::Say(connection, message) => {
                    let connection = if connection < 3 { connection + 10 } else { connection + 20 };
                    hand.director.on_message(connection, &message, hand.now);
                }
                Step::Closed(connection) => hand.director.on_closed(connection + 20, hand.now),
                Step::Wait(step) => {
                    ms += step;
                    hand.now = super::hand::at_ms(ms);
                    hand.director.on_wake(hand.now);
                }
                Step::Stop => hand.director.stop(hand.now),
            }
            let actions = hand.actions();
            prop_assert!(actions.len() < 2000, "{}", actions.len());
            let totals = hand.director.ledger().totals();
            prop_assert!(totals.is_closed());
            prop_assert!(totals.held <= 50, "{:?}", totals);
        }
        // However it was left, a stop ends it.
        hand.director.stop(hand.now);
        let mut actions = Vec::new();
        for _ in 0..30 {
            ms += 50;
            actions.extend(hand.wake(ms));
        }
        prop_assert!(hand.director.is_finished());
        prop_assert_eq!(hand.director.ledger().totals().held, 0);
    }
}

#[test]
fn actions_after_the_end_are_only_refusals() {
    let mut hand = Hand::running(Settings { drain: Duration::ZERO, ..Hand::settings() }, 1);
    hand.director.stop(hand.now);
    hand.wake(50);
    assert!(hand.director.is_finished());
    hand.director.on_connected(50, hand.now);
    assert!(matches!(hand.actions()[..], [Action::Close { connection: 50, .. }]));
    assert!(hand.wake(1000).is_empty());
}
