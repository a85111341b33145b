//! The cores together under virtual time: heartbeats, queues, links and grouping without a socket.

use super::account::{BuilderAccount, SchedulerAccount};
use super::conductor::{Conductor, ConductorPlan, Order};
use super::frame::ChannelAt;
use super::grouping::{Ended, Joiner};
use super::limiter::LimiterKind;
use super::line::message_bytes;
use super::model::Load;
use super::queue::SendQueue;
use super::rules::{Acknowledgements, FullQueue, Grouping, Rules};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::Instant;
use weir_core::seed::split;

/// TCP payload that 100 Mbit/s of Ethernet carry: 1448 of 1538.
const CEILING: f64 = 100e6 * 1448.0 / 1538.0;

#[derive(Clone)]
struct Setting {
    rules: Rules,
    rate_hz: f64,
    heartbeats: u64,
    fragment_bytes: u64,
    sources: usize,
    builders: usize,
    /// All sources share one link, that of the only builder, or each has its own.
    shared: bool,
    link_bits_per_second: f64,
    /// Heartbeats of the last source come so much later.
    late: Duration,
    /// Links take any waiting queue, drawn from this, instead of each in turn: connections do not share alike.
    seed: Option<u64>,
    drain: Duration,
}

impl Setting {
    fn new(rules: Rules, sources: usize, builders: usize) -> Setting {
        Setting {
            rules,
            rate_hz: 200.0,
            heartbeats: 6_000,
            fragment_bytes: 58_750,
            sources,
            builders,
            shared: builders == 1,
            link_bits_per_second: CEILING,
            late: Duration::ZERO,
            seed: None,
            drain: Duration::from_secs(60),
        }
    }
}

#[derive(Debug)]
struct Replay {
    scheduler: SchedulerAccount,
    builders: BuilderAccount,
    dropped: u64,
}

#[derive(Clone, Copy)]
enum Event {
    /// A source hears of a heartbeat.
    Heard {
        source: usize,
        id: u64,
        builder: usize,
    },
    /// A link has sent the first fragment of the queue whose turn it was.
    Sent {
        link: usize,
        queue: usize,
    },
    /// A fragment is at its builder.
    Arrived {
        source: usize,
        id: u64,
        builder: usize,
    },
    Acknowledged {
        id: u64,
    },
}

/// A sender's link: a fragment of each waiting queue in turn.
#[derive(Default)]
struct Link {
    queues: Vec<usize>,
    busy: bool,
    turn: usize,
}

/// One way, propagation and everything that is not the link's rate.
const DELAY: Duration = Duration::from_micros(200);

struct World {
    setting: Setting,
    events: BTreeMap<(Instant, u64), Event>,
    number: u64,
    links: Vec<Link>,
    queues: Vec<SendQueue>,
    joiners: Vec<Joiner>,
    builders: BuilderAccount,
    dropped: u64,
}

impl World {
    fn new(setting: Setting) -> World {
        let Setting { rules, sources, builders, .. } = &setting;
        let length = message_bytes(setting.fragment_bytes, rules.id_part);
        let queue = SendQueue::new(length, rules.send_queue_bytes, rules.send_queue_messages);
        let mut links: Vec<Link> =
            (0..if setting.shared { 1 } else { *sources }).map(|_| Link::default()).collect();
        for number in 0..sources * builders {
            let link = if setting.shared { 0 } else { number / builders };
            links[link].queues.push(number);
        }
        World {
            events: BTreeMap::new(),
            number: 0,
            links,
            queues: vec![queue; sources * builders],
            joiners: vec![Joiner::new(rules, *sources as u64); *builders],
            builders: BuilderAccount::default(),
            dropped: 0,
            setting,
        }
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.number += 1;
        self.events.insert((when, self.number), event);
    }

    fn serve(&mut self, now: Instant, link: usize) {
        let bits = 8.0 * message_bytes(self.setting.fragment_bytes, self.setting.rules.id_part) as f64;
        let Link { queues, busy, turn } = &mut self.links[link];
        if *busy {
            return;
        }
        let skipped = self.setting.seed.as_mut().map_or(0, |seed| {
            *seed = split(*seed, "turn");
            *seed as usize % queues.len()
        });
        let next = (1..=queues.len()).map(|step| step + skipped).find(|step| {
            let queue = queues[(*turn + step) % queues.len()];
            self.queues[queue].messages() > 0
        });
        let Some(step) = next else { return };
        (*busy, *turn) = (true, (*turn + step) % queues.len());
        let queue = queues[*turn];
        let took = Duration::from_secs_f64(bits / self.setting.link_bits_per_second);
        self.at(now + took, Event::Sent { link, queue });
    }

    fn broadcast(&mut self, now: Instant, id: u64, builder: usize) {
        for source in 0..self.setting.sources {
            let late = if source + 1 == self.setting.sources { self.setting.late } else { Duration::ZERO };
            self.at(now + DELAY + late, Event::Heard { source, id, builder });
        }
    }

    fn on_event(&mut self, now: Instant, event: Event, conductor: &mut Conductor) {
        let builders = self.setting.builders;
        match event {
            Event::Heard { source, id, builder } => {
                let queue = source * builders + builder;
                if !self.queues[queue].push(id) {
                    self.dropped += 1;
                }
                self.serve(now, if self.setting.shared { 0 } else { source });
            }
            Event::Sent { link, queue } => {
                let whole = message_bytes(self.setting.fragment_bytes, self.setting.rules.id_part);
                let id = self.queues[queue].advance(whole).unwrap();
                let (source, builder) = (queue / builders, queue % builders);
                self.at(now + DELAY, Event::Arrived { source, id, builder });
                self.links[link].busy = false;
                self.serve(now, link);
            }
            Event::Arrived { source, id, builder } => {
                self.builders.fragments += 1;
                match self.joiners[builder].on_fragment(id, source as u64) {
                    Some(Ended::Acknowledge { id, mixed }) => {
                        self.builders.mixed += u64::from(mixed);
                        self.at(now + DELAY, Event::Acknowledged { id });
                    }
                    Some(Ended::Refuse { id, .. }) => self.builders.on_mismatch(now, id),
                    None => {}
                }
            }
            Event::Acknowledged { id } => conductor.on_acknowledged(now, id),
        }
    }
}

fn replay(setting: &Setting) -> Replay {
    let plan = ConductorPlan {
        rules: setting.rules.clone(),
        rate_hz: setting.rate_hz,
        heartbeats: setting.heartbeats,
        sources: setting.sources as u64,
        builders: setting.builders as u64,
        drain: setting.drain,
    };
    let mut conductor = Conductor::new(plan, Duration::from_secs(1), Instant::ZERO);
    let mut world = World::new(setting.clone());
    let mut unregistered = setting.builders;
    while !conductor.over() {
        let event_at = world.events.first_key_value().map_or(Instant::NEVER, |(key, _)| key.0);
        let register_at =
            if unregistered > 0 { Instant::ZERO + setting.rules.register_wait } else { Instant::NEVER };
        let now = conductor.wake_at().min(event_at).min(register_at);
        if now == register_at {
            let index = (setting.builders - unregistered) as u64;
            conductor.on_registered(ChannelAt { index, address: "10.0.0.1:5555".parse().unwrap() });
            conductor.on_subscribed(setting.sources as u64);
            unregistered -= 1;
        } else if now == event_at {
            let (_, event) = world.events.pop_first().unwrap();
            world.on_event(now, event, &mut conductor);
        } else if let Some(order) = conductor.on_time(now) {
            match order {
                Order::Configure(_) => (0..setting.sources).for_each(|_| conductor.on_ready()),
                Order::Beat(beat) => world.broadcast(now, beat.id, beat.channel as usize),
            }
        }
    }
    Replay { scheduler: conductor.into_account(0), builders: world.builders, dropped: world.dropped }
}

/// What a switch may change.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    unacknowledged: u64,
    /// In hundredths of a percent, as printed.
    ratio: u64,
    undelivered: u64,
    mismatched: u64,
    mixed: u64,
    dropped: u64,
    /// Heartbeats ahead of their time at the most, whole ones.
    ahead: u64,
}

impl Replay {
    fn seen(&self) -> Seen {
        let Replay { scheduler, builders, dropped } = self;
        Seen {
            unacknowledged: scheduler.heartbeats - scheduler.acknowledged_at_stop,
            ratio: (1e4 * scheduler.unacknowledged_ratio().unwrap()).round() as u64,
            undelivered: scheduler.heartbeats - scheduler.distinct,
            mismatched: builders.mismatched,
            mixed: builders.mixed,
            dropped: *dropped,
            ahead: scheduler.ahead_max.round() as u64,
        }
    }
}

fn baseline(fragment_bytes: u64, change: impl Fn(&mut Rules)) -> Seen {
    let mut rules = Rules::baseline();
    change(&mut rules);
    replay(&Setting { fragment_bytes, ..Setting::new(rules, 1, 1) }).seen()
}

// Spec: event-original.md#stop-1
#[test]
fn one_source_of_the_baseline_loses_what_document_002_printed_and_all_of_it_comes_later() {
    for (fragment_bytes, published, ours) in [(58_000, 4, 0), (58_750, 70, 43), (59_500, 200, 168)] {
        let seen = baseline(fragment_bytes, |_| ());
        assert_eq!((seen.ratio, seen.undelivered, seen.ahead), (ours, 0, 45), "{fragment_bytes}");
        assert!(seen.ratio.abs_diff(published) <= 35, "{fragment_bytes}: {seen:?}");
    }
}

// Spec: event-original.md#stop-1 event-original.md#limiter-2
#[test]
fn at_the_ceiling_it_is_the_burst_and_the_short_wait_together() {
    assert!(baseline(58_750, |_| ()).unacknowledged > 20);
    let quiet =
        Seen { unacknowledged: 0, ratio: 0, undelivered: 0, mismatched: 0, mixed: 0, dropped: 0, ahead: 45 };
    assert_eq!(baseline(58_750, |it| it.stop_wait = Duration::from_secs(1)), quiet);
    let absolute = baseline(58_750, |it| it.limiter = LimiterKind::Absolute);
    assert_eq!(absolute, Seen { ahead: 0, ..quiet });
    // Above it neither alone is enough: what is offered in 30 s does not fit.
    assert!(baseline(59_500, |it| it.limiter = LimiterKind::Absolute).unacknowledged > 50);
}

fn configuration_7(heartbeats: u64, link_bits_per_second: f64) -> Replay {
    let setting = Setting::new(Rules::round_robin(), 1, 6);
    replay(&Setting { heartbeats, fragment_bytes: 65_000, link_bits_per_second, ..setting })
}

// Spec: event-original.md#stop-2
#[test]
fn configuration_7_loses_more_in_a_long_run_than_in_a_short_one_as_published() {
    let ratio = |heartbeats| configuration_7(heartbeats, 93.5e6).scheduler.unacknowledged_ratio().unwrap();
    let (short, long) = (ratio(6_000), ratio(36_000));
    // Published: 7.37 and 9.63 %.
    assert!((short - 0.0737).abs() < 0.005 && (long - 0.0963).abs() < 0.007, "{short} {long}");
    assert!((1.2..1.45).contains(&(long / short)), "{short} {long}");
}

/// Two sources whose connections do not share their links alike, five builders: configuration 12 of the round-robin experiment.
fn configuration_12(heartbeats: u64, change: impl Fn(&mut Rules)) -> Replay {
    let mut rules = Rules::round_robin();
    change(&mut rules);
    let setting = Setting::new(rules, 2, 5);
    replay(&Setting { heartbeats, fragment_bytes: 29_375, seed: Some(12), ..setting })
}

// Spec: event-original.md#grouping-2 event-original.md#limiter-1
#[test]
fn two_sources_meet_different_heartbeats_in_the_first_two_seconds_and_never_after() {
    let short = configuration_12(6_000, |_| ());
    let long = configuration_12(36_000, |_| ());
    let first_ns = short.scheduler.first_beat_ns.unwrap();
    let (count, last_ns) = (short.builders.mismatched, short.builders.mismatched_at.last().unwrap().0);
    assert!((1..100).contains(&count), "{count}");
    assert!(last_ns - first_ns < 2_000_000_000, "{}", last_ns - first_ns);
    // Its limiter had settled before the waits, so the burst is smaller than the baseline's.
    assert_eq!(short.seen().ahead, 32);
    assert_eq!(long.builders.mismatched_at, short.builders.mismatched_at);
    assert_eq!(short.seen().unacknowledged, count);
    assert_eq!((short.seen().undelivered, short.dropped), (count, 0));
}

// Spec: event-original.md#rules-1
#[test]
fn each_rule_switched_off_alone_changes_what_it_should_and_nothing_else() {
    let original = configuration_12(6_000, |_| ()).seen();
    let lost = original.mismatched;
    let clean = Seen { unacknowledged: 0, ratio: 0, undelivered: 0, mismatched: 0, ..original };
    let second = Duration::from_secs(1);
    type Change = fn(&mut Rules);
    let cases: &[(&str, Change, Seen)] = &[
        ("grouping", |it| it.grouping = Grouping::Keyed, clean),
        ("limiter", |it| it.limiter = LimiterKind::Absolute, Seen { ahead: 0, ..clean }),
        ("stop_wait", |it| it.stop_wait *= 10, original),
        ("acknowledgements", |it| it.acknowledgements = Acknowledgements::Keyed, original),
        ("full_queue", |it| it.full_queue = FullQueue::Wait, original),
        ("send_queue", |it| it.send_queue_messages = 500, original),
        ("channel_rebuild", |it| it.channel_rebuild = false, original),
        ("notice_dead", |it| it.notice_dead = true, original),
        ("keep_broadcasts", |it| it.keep_broadcasts = true, original),
    ];
    for (name, change, expected) in cases {
        assert_eq!(configuration_12(6_000, change).seen(), *expected, "{name}");
    }
    // Nobody looks any more: the same groups are acknowledged, each as the heartbeat of its first fragment, so that some heartbeats
    // are acknowledged twice and others never.
    let unseen = configuration_12(6_000, |it| it.id_check = false).seen();
    let expected = Seen { unacknowledged: 0, ratio: 0, mismatched: 0, ..original };
    assert_eq!(Seen { mixed: 0, ..unseen }, Seen { undelivered: unseen.undelivered, ..expected });
    assert!(unseen.mixed > 0 && (1..=lost).contains(&unseen.undelivered), "{unseen:?}");
    // Set-up waits show in nothing but the burst; without them there is none.
    let prompt = |it: &mut Rules| {
        (it.start_wait, it.channel_wait) = (Duration::ZERO, Duration::ZERO);
        it.register_wait = Duration::ZERO;
        it.stop_wait = second;
    };
    assert!(configuration_12(6_000, prompt).seen().ahead <= 2);
    let ready = configuration_12(6_000, |it| it.ready_check = true).seen();
    assert!(ready.ahead < original.ahead, "{ready:?}");
}

// Spec: event-original.md#send-1
#[test]
fn small_queues_drop_what_large_ones_hold_and_both_are_counted() {
    let setting = |messages| {
        let rules = Rules { send_queue_messages: messages, ..Rules::baseline() };
        let setting = Setting::new(rules, 1, 1);
        replay(&Setting { fragment_bytes: 65_000, ..setting }).seen()
    };
    let (large, small) = (setting(1_000), setting(10));
    assert_eq!((large.dropped, large.undelivered), (0, 0));
    assert!(small.dropped > 400, "{small:?}");
    assert_eq!(small.undelivered, small.dropped);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Spec: event-original.md#stop-2
    #[test]
    fn without_a_burst_the_share_not_acknowledged_follows_the_formula(
        rate_hz in 20.0f64..400.0,
        seconds in 2u64..30,
        load in 0.5f64..2.0,
        wait_ms in 0u64..2_000,
    ) {
        let rules = Rules {
            limiter: LimiterKind::Absolute,
            stop_wait: Duration::from_millis(wait_ms),
            send_queue_messages: 1_000_000,
            send_queue_bytes: u64::MAX / 4,
            ..Rules::baseline()
        };
        let fragment_bytes = (load * CEILING / 8.0 / rate_hz) as u64;
        let setting = Setting { rate_hz, fragment_bytes, heartbeats: (rate_hz * seconds as f64) as u64, ..Setting::new(rules, 1, 1) };
        let run = replay(&setting);
        let load = Load {
            rate_hz,
            fragment_bytes,
            sources_at_bottleneck: 1,
            heartbeat_share: 1.0,
            capacity_bits_per_second: CEILING,
            run: run.scheduler.run(),
            stop_wait: run.scheduler.listened(),
        };
        let expected = load.unacknowledged_ratio(&setting.rules).unwrap();
        let seen = run.scheduler.unacknowledged_ratio().unwrap();
        // Two heartbeats: one that is on its way, one at the edge of the run.
        let within = 2.5 / setting.heartbeats as f64;
        prop_assert!((seen - expected).abs() <= within, "{} instead of {}, within {}", seen, expected, within);
        prop_assert_eq!(run.seen().undelivered, 0);
    }
}
