use super::hand::{Hand, assigned, at_ms, builder, closes, known, source, told};
use super::parts::Policy;
use crate::director::{Action, FailureKind, GroupRole, Settings, To};
use crate::ledger::Reason;
use crate::message::{Answer, Join, Known, Message, Outcome, Release, Role};
use std::time::Duration;

fn refused(actions: &[Action], connection: u64) -> Option<bool> {
    told(actions, connection).into_iter().find_map(|message| match message {
        Message::Refused(refused) => Some(refused.again),
        _ => None,
    })
}
fn slot(actions: &[Action], connection: u64) -> u32 {
    let welcome = told(actions, connection).into_iter().find_map(|message| match message {
        Message::Welcome(welcome) => Some(welcome.slot),
        _ => None,
    });
    welcome.expect("it was not welcomed")
}
fn releases(actions: &[Action], to: To) -> Vec<Release> {
    let lists = actions.iter().filter_map(|action| match action {
        Action::Send { to: told, message: Message::Release(list) } if *told == to => Some(list.clone()),
        _ => None,
    });
    lists.flatten().collect()
}

// Spec: event-building.md#names-1
#[test]
fn of_two_with_one_name_the_later_stays_and_the_earlier_is_told_so() {
    let mut hand = Hand::running(Hand::settings(), 1);
    let mut again = builder("b0");
    again.incarnation = 5;
    let actions = hand.join(20, &again);
    assert_eq!(refused(&actions, 11), Some(false));
    assert!(closes(&actions, 11));
    assert_eq!(slot(&actions, 20), 0);
    again.incarnation = 4;
    let actions = hand.join(21, &again);
    assert_eq!(refused(&actions, 21), Some(false));
    assert!(closes(&actions, 21) && !closes(&actions, 20));
    // The same one, whose old connection has not ended yet: no reproach.
    again.incarnation = 5;
    let actions = hand.join(22, &again);
    assert_eq!((refused(&actions, 20), refused(&actions, 22)), (None, None));
    assert!(closes(&actions, 20));
}

// Spec: event-building.md#names-2
#[test]
fn a_slot_belongs_to_a_name_for_the_whole_run() {
    let mut hand = Hand::running(Hand::settings(), 2);
    hand.closed(11);
    assert_eq!(slot(&hand.join(20, &builder("other")), 20), 2);
    let mut back = builder("b0");
    back.incarnation = 9;
    assert_eq!(slot(&hand.join(21, &back), 21), 0);
    assert_eq!(refused(&hand.join(22, &source("one-too-many")), 22), Some(true));
}

// Spec: event-building.md#names-3
#[test]
fn an_event_assigned_anew_has_a_later_epoch_and_what_the_old_builder_says_is_stale() {
    let mut hand = Hand::running(Hand::settings(), 2);
    let first = assigned(&hand.wake(1));
    let (id, old, epoch) = first[0];
    let actions = hand.closed(11 + u64::from(old));
    let (again, other, later) = assigned(&actions)[0];
    assert_eq!(again, id);
    assert_ne!(other, old);
    assert!(later > epoch, "{later} after {epoch}");
    let mut back = builder(&format!("b{old}"));
    back.incarnation = 2;
    hand.join(30, &back);
    hand.done(30, id, epoch, Outcome::Complete);
    hand.done(30, id, later, Outcome::Complete);
    hand.done(11 + u64::from(other), id, epoch, Outcome::Complete);
    assert_eq!(hand.director.ledger().aside.stale, 3);
    assert!(hand.director.ledger().held().contains(id));
    hand.done(11 + u64::from(other), id, later, Outcome::Complete);
    hand.done(11 + u64::from(other), id, later, Outcome::Complete);
    let totals = hand.director.ledger().totals();
    assert_eq!((totals.complete, totals.aside.stale), (1, 4));
}

// Spec: event-building.md#beats-1
#[test]
fn a_heartbeat_is_due_by_the_clock_of_the_start_and_one_that_is_too_late_is_dropped() {
    let mut hand = Hand::running(Settings { rate_hz: 300.0, ..Hand::settings() }, 1);
    for beat in 1..=30u64 {
        let due = hand.director.due(beat);
        assert_eq!(due.as_ns(), at_ms(0).as_ns() + beat * 1_000_000_000 / 300, "{beat}");
        hand.now = due;
        hand.director.on_wake(due);
        hand.actions();
        assert_eq!(hand.director.ledger().generated(), beat + 1);
    }
    // Away for 300 ms: 30 of the heartbeats since then are not older than 100 ms.
    hand.wake(400);
    let totals = hand.director.ledger().totals();
    assert_eq!(totals.generated, 121);
    assert_eq!(totals.dropped[&Reason::NoScheduler], 121 - 31 - 31);
}

// Spec: event-building.md#beats-2
#[test]
fn the_first_heartbeat_waits_for_every_source_and_for_every_channel() {
    let mut hand = Hand::new(Settings { sources: 2, ..Hand::settings() });
    hand.join(1, &source("s0"));
    hand.join(11, &builder("b0"));
    hand.join(12, &builder("b1"));
    hand.wake(10);
    hand.join(2, &source("s1"));
    hand.say(1, &Message::Channel(vec![(0, true), (1, true)]));
    hand.say(2, &Message::Channel(vec![(0, true)]));
    hand.wake(20);
    assert!(!hand.director.is_running());
    hand.say(2, &Message::Channel(vec![(1, true)]));
    let actions = hand.wake(30);
    assert!(hand.director.is_running());
    assert_eq!(hand.director.ledger().generated(), 1);
    assert_eq!(assigned(&actions).len(), 1);
}

// Spec: event-building.md#beats-3
#[test]
fn sources_with_a_clock_of_their_own_are_told_when_to_begin_also_when_they_come_back() {
    let settings =
        Settings { trigger_at_source: true, start_pause: Duration::from_millis(40), ..Hand::settings() };
    let mut hand = Hand::new(settings);
    hand.join(1, &source("s"));
    hand.join(11, &builder("b0"));
    hand.say(1, &Message::Channel(vec![(0, true)]));
    let start = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::Send { message: Message::Start { first, in_ns }, .. } => Some((*first, *in_ns)),
            _ => None,
        })
    };
    assert_eq!(start(&hand.wake(0)), Some((0, 40_000_000)));
    hand.wake(45);
    assert_eq!(hand.director.ledger().generated(), 6);
    hand.closed(1);
    assert_eq!(start(&hand.join(2, &source("s"))), Some((6, 1_000_000)));
}

// Spec: event-building.md#beats-4
#[test]
fn after_the_last_heartbeat_what_is_held_is_drained_and_then_dropped() {
    let settings = Settings { events: Some(3), drain: Duration::from_millis(500), ..Hand::settings() };
    let mut hand = Hand::running(settings, 1);
    let mut given = assigned(&hand.wake(1));
    given.extend(assigned(&hand.wake(50)));
    assert_eq!(hand.director.ledger().generated(), 3);
    assert_eq!(hand.director.ledger().aside.undelivered, Some(3));
    for ms in (100..550).step_by(50) {
        hand.say(1, &Message::Answer(Answer::default()));
        hand.say(11, &Message::Answer(Answer::default()));
        assert!(!hand.wake(ms).contains(&Action::Finished), "at {ms}");
    }
    hand.done(11, 1, given[0].2, Outcome::Complete);
    let actions = hand.wake(551);
    assert_eq!(actions.last(), Some(&Action::Finished));
    let totals = hand.director.ledger().totals();
    assert_eq!((totals.complete, totals.dropped[&Reason::Shutdown], totals.held), (1, 2, 0));
    assert!(hand.director.is_finished());
    assert_eq!(hand.director.wake_at(), weir_core::Instant::NEVER);
}

// Spec: event-building.md#credits-1
#[test]
fn a_builder_gets_no_more_than_its_memory_and_the_oldest_event_first() {
    // Ten events of 1,000 bytes fit into each of two.
    let mut hand = Hand::running(Hand::settings(), 2);
    let mut given = Vec::new();
    for ms in 1..=30 {
        given.extend(assigned(&hand.wake(ms)));
    }
    assert_eq!(given.len(), 19, "with heartbeat 0");
    let (id, builder, epoch) = given[5];
    let actions = hand.done(11 + u64::from(builder), id, epoch, Outcome::Complete);
    // Spec: event-building.md#credits-4
    assert_eq!(assigned(&actions), [(20, builder, epoch)]);
    // Those of a dead builder are older than those that wait.
    let taken: Vec<u64> = given.iter().filter(|(_, at, _)| *at == 0).map(|(id, _, _)| *id).collect();
    hand.closed(11);
    let actions =
        hand.done(12, given.iter().find(|(_, at, _)| *at == 1).unwrap().0, epoch, Outcome::Complete);
    let next = assigned(&actions)[0].0;
    assert!(next == 0 || taken.contains(&next), "{next} came before {taken:?}");
}

// Spec: event-building.md#credits-2
#[test]
fn an_event_larger_than_every_builder_is_dropped_and_does_not_stop_those_after_it() {
    let mut large = source("s");
    large.role = Role::Source { buffer_bytes: 1 << 24, fragment_bytes_max: 50_000, fixed: false };
    let mut hand = Hand::new(Hand::settings());
    hand.join(1, &large);
    hand.join(11, &builder("b0"));
    hand.say(1, &Message::Channel(vec![(0, true)]));
    hand.wake(0);
    hand.wake(2);
    assert!(assigned(&hand.actions()).is_empty(), "a size is not known");
    let actions = hand.say(1, &Message::Announce { first: 0, bytes: vec![9_000, 10_001, 1_000] });
    let given: Vec<u64> = assigned(&actions).into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(given, [0, 2]);
    let dropped = Release { first: 1, count: 1, outcome: Some(Outcome::Dropped(Reason::NoCredit)) };
    assert_eq!(releases(&actions, To::Sources), [dropped]);
}

// Spec: event-building.md#delivery-5
#[test]
fn an_event_without_a_builder_is_given_up_at_the_deadline() {
    let mut hand =
        Hand::running(Settings { deadline: Some(Duration::from_millis(30)), ..Hand::settings() }, 1);
    hand.closed(11);
    hand.wake(20);
    assert_eq!(hand.director.ledger().count(Outcome::Dropped(Reason::Deadline)), 0);
    hand.wake(40);
    assert_eq!(hand.director.ledger().count(Outcome::Dropped(Reason::Deadline)), 11);
}

// Spec: event-building.md#failure-1
#[test]
fn a_silent_peer_is_fenced_and_a_scheduler_that_slept_blames_nobody() {
    let mut hand = Hand::running(Hand::settings(), 2);
    // Everything stood still for three seconds, this core as well.
    let actions = hand.wake(3_000);
    assert!(!actions.iter().any(|action| matches!(action, Action::Close { .. })), "{actions:?}");
    let mut closed_at = None;
    for ms in (3_050..3_700).step_by(50) {
        hand.say(1, &Message::Answer(Answer::default()));
        hand.say(12, &Message::Answer(Answer::default()));
        let actions = hand.wake(ms);
        assert!(!closes(&actions, 1) && !closes(&actions, 12));
        if closes(&actions, 11) {
            closed_at.get_or_insert(ms);
        }
    }
    assert!(closed_at.is_some_and(|at| (3_400..=3_500).contains(&at)), "{closed_at:?}");
    let failure = hand.director.failures().next().unwrap();
    assert_eq!((failure.kind, failure.name.as_str()), (FailureKind::Silent, "b0"));
}

// Spec: event-building.md#failure-2
#[test]
fn a_builder_to_which_bytes_do_not_move_is_gone_until_its_channels_are_made_anew() {
    let mut hand = Hand::running(Hand::settings(), 2);
    hand.wake(1);
    let stuck = |us| Message::Answer(Answer { stuck: vec![(0, us)], ..Answer::default() });
    assert!(releases(&hand.say(1, &stuck(399_999)), To::One(11)).is_empty());
    let actions = hand.say(1, &stuck(400_000));
    let taken = releases(&actions, To::One(11));
    assert!(taken.iter().all(|release| release.outcome.is_none()) && !taken.is_empty());
    assert!(assigned(&actions).iter().all(|(_, builder, _)| *builder == 1) && !assigned(&actions).is_empty());
    // What was stuck is not told again, and the builder gets nothing before its channel works.
    let failures = hand.director.failures().count();
    hand.say(1, &stuck(500_000));
    assert_eq!(hand.director.failures().count(), failures);
    let others = assigned(&hand.wake(3));
    assert!(others.iter().all(|(_, builder, _)| *builder == 1), "{others:?}");
    hand.say(1, &Message::Channel(vec![(0, true)]));
    let given = [hand.wake(4), hand.wake(6)].concat();
    assert!(assigned(&given).iter().any(|(_, builder, _)| *builder == 0));
}

#[test]
fn a_peer_that_lies_or_speaks_out_of_turn_loses_its_connection_and_nothing_else_is_lost() {
    let varying = Role::Source { buffer_bytes: 1 << 20, fragment_bytes_max: 1000, fixed: false };
    let cases: [(u64, Message); 9] = [
        (1, Message::Announce { first: 0, bytes: vec![1001] }),
        (1, Message::Announce { first: 0, bytes: vec![39] }),
        (1, Message::Done(vec![])),
        (1, Message::Grant { total_bytes: 1 }),
        (1, Message::Join(Box::new(source("t")))),
        (11, Message::Done(vec![crate::message::Done { id: 0, epoch: 0, outcome: Outcome::Partial }])),
        (
            11,
            Message::Done(vec![crate::message::Done {
                id: 0,
                epoch: 0,
                outcome: Outcome::Dropped(Reason::Shutdown),
            }]),
        ),
        (11, Message::Lost(vec![(0, 9)])),
        (11, Message::Channel(vec![(0, true)])),
    ];
    for (connection, message) in cases {
        let mut hand = Hand::new(Hand::settings());
        hand.join(1, &crate::message::Join { role: varying.clone(), ..source("s") });
        hand.join(11, &builder("b0"));
        hand.say(1, &Message::Channel(vec![(0, true)]));
        hand.wake(0);
        hand.wake(3);
        let actions = hand.say(connection, &message);
        assert!(closes(&actions, connection), "{message:?}");
        let totals = hand.director.ledger().totals();
        assert_eq!((totals.generated, totals.held), (4, 4), "{message:?}");
    }
    let mut hand = Hand::new(Hand::settings());
    hand.director.on_connected(5, hand.now);
    assert!(closes(&hand.say(5, &Message::Probe(1)), 5), "its first word was not join");
    for wrong in [
        crate::message::Join { name: "-".into(), ..source("s") },
        crate::message::Join { version: 9, ..source("s") },
        crate::message::Join { known: Some(Known { epoch: u32::MAX, ..known("old", 0) }), ..source("s") },
        crate::message::Join {
            known: Some(Known { last: Some((1 << 48, 0)), ..known("old", 0) }),
            ..source("s")
        },
        crate::message::Join {
            role: Role::Source { buffer_bytes: 10, fragment_bytes_max: 1000, fixed: true },
            ..source("s")
        },
    ] {
        assert_eq!(refused(&hand.join(6, &wrong), 6), Some(false));
    }
}

// Spec: event-building.md#ledger-4
#[test]
fn neither_the_ledger_nor_the_table_grows_with_the_length_of_a_run() {
    let mut hand =
        Hand::running(Settings { unsettled_max: 10, settle_pause: Duration::ZERO, ..Hand::settings() }, 1);
    let mut given = Vec::new();
    let mut settled = 0;
    for ms in 1..5_000 {
        hand.say(1, &Message::Answer(Answer::default()));
        let actions = hand.wake(ms);
        given.extend(assigned(&actions));
        // Every other event is finished, the oldest stays for ever.
        if given.len() > 3 {
            let (id, _, epoch) = given.remove(2);
            let outcome = [Outcome::Complete, Outcome::Dropped(Reason::Corrupt)][id as usize % 2];
            let actions = hand.done(11, id, epoch, outcome);
            settled += actions
                .iter()
                .filter(|action| matches!(action, Action::Send { message: Message::Settled(_), .. }))
                .count();
            given.extend(assigned(&actions));
        }
        assert!(hand.director.ledger().unsettled() <= 11);
    }
    assert!(settled > 0);
    let held = hand.director.ledger().held_count() as usize;
    assert!(hand.director.table.width() <= 2 * held + 1024, "{} for {held}", hand.director.table.width());
    assert!(hand.director.waiting.len() <= hand.director.table.width());
}

/// The last list of builders to all sources: slot, listed, channel.
fn builders(actions: &[Action]) -> Vec<(u32, bool, Option<u32>)> {
    let mut lists = actions.iter().filter_map(|action| match action {
        Action::Send { to: To::Sources, message: Message::Builders(list) } => Some(list),
        _ => None,
    });
    let last = lists.next_back().expect("no list was sent");
    last.builders.iter().map(|builder| (builder.slot, builder.listed, builder.channel)).collect()
}

// Spec: event-building.md#failure-6
#[test]
fn a_death_policy_says_which_channels_go_and_nothing_is_assigned_while_all_are_made_anew() {
    for policy in [Policy::Whitelist, Policy::Blacklist, Policy::Reinitialise] {
        let mut hand = Hand::with_policy(Hand::settings(), policy).begun(3);
        hand.wake(1);
        hand.now = at_ms(2);
        let mut actions = hand.closed(12);
        actions.extend(hand.wake(3));
        let expected = match policy {
            Policy::Whitelist => [(0, true, Some(1)), (1, false, Some(1)), (2, true, Some(1))],
            Policy::Blacklist => [(0, true, Some(1)), (1, false, None), (2, true, Some(1))],
            Policy::Reinitialise => [(0, false, Some(2)), (1, false, None), (2, false, Some(2))],
        };
        assert_eq!(builders(&actions), expected, "{policy:?}");
        assert_eq!(assigned(&actions).is_empty(), policy == Policy::Reinitialise, "{policy:?}");
        if policy == Policy::Reinitialise {
            let half = [hand.say(1, &Message::Channel(vec![(0, true)])), hand.wake(4)].concat();
            assert!(assigned(&half).is_empty(), "assigned while a channel was down");
            let whole = [hand.say(1, &Message::Channel(vec![(2, true)])), hand.wake(5)].concat();
            assert!(!assigned(&whole).is_empty());
        }
    }
}

// Spec: event-building.md#ledger-5
#[test]
fn a_release_goes_to_every_source_and_confirms_the_event_to_its_builder_alone() {
    let mut hand = Hand::running(Hand::settings(), 2);
    let (id, slot, epoch) = assigned(&hand.wake(1))[0];
    let actions = hand.done(11 + u64::from(slot), id, epoch, Outcome::Complete);
    let release = [Release { first: id, count: 1, outcome: Some(Outcome::Complete) }];
    assert_eq!(releases(&actions, To::Sources), release);
    assert_eq!(releases(&actions, To::One(11 + u64::from(slot))), release);
    assert!(releases(&actions, To::One(12 - u64::from(slot))).is_empty());
}

// Spec: event-building.md#names-4
#[test]
fn a_member_that_the_membership_service_has_lost_is_fenced() {
    let mut hand = Hand::running(Hand::settings(), 2);
    hand.director.ask_membership(GroupRole::Builder);
    hand.director.on_listed(GroupRole::Builder, "b1", 1);
    hand.director.on_unlisted(GroupRole::Builder, "b1", hand.now);
    hand.director.on_unlisted(GroupRole::Builder, "never-seen", hand.now);
    let actions = hand.actions();
    assert!(closes(&actions, 12) && !closes(&actions, 11));
    assert!(assigned(&hand.wake(1)).iter().all(|(_, slot, _)| *slot == 0));
    assert_eq!(hand.director.failures().next().map(|failure| failure.kind), Some(FailureKind::Unlisted));
}

// Spec: event-building.md#names-4
#[test]
fn a_peer_may_join_only_while_the_membership_service_lists_it() {
    let mut hand = Hand::new(Hand::settings());
    hand.director.ask_membership(GroupRole::Builder);
    // Of sources nothing is asked.
    assert_eq!(refused(&hand.join(1, &source("s")), 1), None);
    assert_eq!(refused(&hand.join(11, &builder("b0")), 11), Some(true));
    // Not the one that is listed: the older of two will not be, the later may be yet.
    for (listed, again) in [(2, false), (1, true)] {
        hand.director.on_listed(GroupRole::Builder, "b0", listed);
        let other = Join { incarnation: 3 - listed, ..builder("b0") };
        assert_eq!(refused(&hand.join(10 + listed, &other), 10 + listed), Some(again));
    }
    assert_eq!(refused(&hand.join(13, &builder("b0")), 13), None);
    // A fixed list knows of no incarnations.
    hand.director.on_listed(GroupRole::Builder, "b9", 0);
    assert_eq!(refused(&hand.join(14, &builder("b9")), 14), None);
}

#[test]
fn a_source_that_comes_back_with_fragments_of_another_size_is_refused() {
    let mut hand = Hand::running(Hand::settings(), 1);
    hand.closed(1);
    let mut other = source("s");
    other.role = Role::Source { buffer_bytes: 1 << 20, fragment_bytes_max: 999, fixed: true };
    assert_eq!(refused(&hand.join(2, &other), 2), Some(false));
    assert_eq!(refused(&hand.join(3, &source("s")), 3), None);
}

// Spec: event-building.md#credits-5
#[test]
fn a_fragment_counts_as_the_largest_until_its_source_has_said_its_size() {
    let varying = Role::Source { buffer_bytes: 3_000, fragment_bytes_max: 1000, fixed: false };
    let mut hand = Hand::new(Hand::settings());
    hand.join(1, &Join { role: varying, ..source("s") });
    hand.join(11, &builder("b0"));
    hand.say(1, &Message::Channel(vec![(0, true)]));
    hand.wake(0);
    hand.wake(3);
    let totals = hand.director.ledger().totals();
    assert_eq!((totals.generated, totals.held), (4, 3), "room for three of the largest");
    hand.say(1, &Message::Announce { first: 0, bytes: vec![100; 3] });
    hand.wake(5);
    let totals = hand.director.ledger().totals();
    assert_eq!((totals.generated, totals.held), (6, 5), "300 B are known, and two more fit");
}

// Spec: event-building.md#credits-1
#[test]
fn a_source_has_the_room_that_a_heartbeat_counts_on_before_it_hears_of_it() {
    let mut small = source("s");
    small.role = Role::Source { buffer_bytes: 3_000, fragment_bytes_max: 1000, fixed: true };
    let mut hand = Hand::new(Hand::settings());
    hand.join(1, &small);
    hand.join(11, &builder("b0"));
    hand.say(1, &Message::Channel(vec![(0, true)]));
    let mut given = Vec::new();
    for ms in 0..3 {
        given.extend(assigned(&hand.wake(ms)));
    }
    // One ends and two are born, of which one has room, before the shell asks what to do.
    hand.now = at_ms(4);
    let done =
        Message::Done(vec![crate::message::Done { id: 1, epoch: given[1].2, outcome: Outcome::Complete }]);
    hand.director.on_wake(at_ms(2));
    hand.director.on_message(11, &done, hand.now);
    hand.director.on_wake(hand.now);
    let order: Vec<String> = hand
        .actions()
        .iter()
        .filter_map(|action| match action {
            Action::Send { to: To::Sources, message: Message::Beats { first, count, .. } } => {
                Some(format!("beats {first} {count}"))
            }
            Action::Send { to: To::Sources, message: Message::Release(list) } => {
                Some(list.iter().map(|one| format!("release {} {}", one.first, one.count)).collect())
            }
            _ => None,
        })
        .collect();
    assert_eq!(order, ["release 1 1", "beats 3 1", "release 4 1"]);
}
