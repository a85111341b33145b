use super::hand::{Hand, assigned, at_ms, builder, known, source, told};
use crate::director::Settings;
use crate::interval::Intervals;
use crate::ledger::Reason;
use crate::message::{Known, Message, Outcome, Release};

// Spec: event-building.md#failure-5
#[test]
fn a_new_scheduler_goes_on_where_peers_say_the_run_was() {
    let mut hand = Hand::new(Settings { sources: 2, ..Hand::settings() });
    let mut one = source("s0");
    one.known = Some(Known {
        epoch: 7,
        last: Some((100, 20_000_000)),
        held: Intervals::of(95, 101),
        complete: Intervals::of(0, 95),
        ..known("old", 1)
    });
    let mut other = source("s1");
    // It has not heard of the last heartbeats, nor of the last releases.
    other.known = Some(Known {
        epoch: 6,
        last: Some((97, 22_000_000)),
        held: Intervals::of(90, 98),
        complete: Intervals::of(0, 90),
        ..known("old", 0)
    });
    let mut far = builder("far");
    far.known = Some(Known {
        epoch: 8,
        complete: Intervals::of(96, 97),
        held: Intervals::of(97, 98),
        ..known("old", 4)
    });
    hand.join(1, &one);
    hand.join(2, &other);
    hand.join(11, &far);
    assert!(!hand.director.is_running());
    let actions = hand.wake(400);
    assert!(hand.director.is_running());
    assert_eq!(hand.director.run(), "old");
    let ledger = hand.director.ledger();
    assert_eq!(
        (ledger.count(Outcome::Complete), ledger.held()),
        (96, {
            let mut held = Intervals::of(95, 96);
            held.insert_range(97, 101);
            // Heartbeat 100 was due 20 ms before time 0: 420 more by now, those of the last 100 ms not too late.
            held.insert_range(420, 521);
            held
        })
    );
    assert_eq!(ledger.count(Outcome::Dropped(Reason::NoScheduler)), 420 - 101);
    let welcomed = |connection| {
        told(&actions, connection).into_iter().find_map(|message| match message {
            Message::Welcome(welcome) => Some((welcome.slot, welcome.epoch, welcome.run.clone())),
            _ => None,
        })
    };
    assert_eq!(welcomed(1), Some((1, 9, "old".into())));
    assert_eq!(welcomed(2).map(|(slot, ..)| slot), Some(0));
    assert_eq!(welcomed(11).map(|(slot, ..)| slot), Some(4));
    // What the builder had begun is taken from it; what it had finished is not.
    let taken = Message::Release(vec![Release { first: 97, count: 1, outcome: None }]);
    assert!(told(&actions, 11).contains(&&taken), "{actions:?}");
    // The source that had not heard of 98 to 100 makes their fragments now.
    let beats: Vec<(u64, u32)> = told(&actions, 2)
        .into_iter()
        .filter_map(|message| match message {
            Message::Beats { first, count, .. } => Some((*first, *count)),
            _ => None,
        })
        .collect();
    assert!(beats.contains(&(97, 4)), "{beats:?}");
    hand.say(1, &Message::Channel(vec![(4, true)]));
    let given = assigned(&hand.say(2, &Message::Channel(vec![(4, true)])));
    assert_eq!(given.iter().map(|(id, ..)| *id).take(3).collect::<Vec<_>>(), [95, 97, 98]);
    assert!(given.iter().all(|(_, slot, epoch)| *slot == 4 && *epoch > 8));
}

// Spec: event-building.md#failure-5
#[test]
fn a_gap_of_any_length_costs_no_memory() {
    let mut hand = Hand::new(Hand::settings());
    let mut one = source("s");
    let year_ns = 365 * 86_400 * 1_000_000_000;
    one.known = Some(Known { last: Some((10, year_ns)), held: Intervals::of(5, 11), ..known("old", 0) });
    hand.join(1, &one);
    hand.now = at_ms(0);
    hand.wake(400);
    let totals = hand.director.ledger().totals();
    assert_eq!(totals.held, 6 + 101);
    assert!(totals.dropped[&Reason::NoScheduler] > 31_000_000_000);
    assert!(hand.director.table.width() < 200);
}

// Spec: event-building.md#names-1
#[test]
fn a_scheduler_that_finds_no_peer_with_a_run_names_its_own_at_once() {
    let mut hand = Hand::new(Hand::settings());
    let actions = hand.join(1, &source("s"));
    assert_eq!(hand.director.run(), "fresh");
    assert!(told(&actions, 1).iter().any(|message| matches!(message, Message::Welcome(_))));
    // One that comes later with another run is part of this one, and what it knows of the other counts for nothing.
    let mut stray = builder("b");
    stray.known =
        Some(Known { complete: Intervals::of(0, 50), held: Intervals::of(50, 60), ..known("other", 3) });
    let actions = hand.join(11, &stray);
    assert!(
        told(&actions, 11)
            .iter()
            .any(|message| matches!(message, Message::Welcome(welcome) if welcome.slot == 0))
    );
    assert_eq!(hand.director.ledger().generated(), 0);
}
