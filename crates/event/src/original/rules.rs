//! The rules by which the program of document 002 worked, each of them a switch.

use super::limiter::LimiterKind;
use std::time::Duration;
use weir_core::Values;
use weir_core::param::{Kind, Param};

/// How a builder joins fragments to events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// As many as there are sources, in the order in which they arrive.
    Arrivals,
    /// By heartbeat and source.
    Keyed,
}

/// What a source does when a builder's queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullQueue {
    /// A send with a time-out of zero: the fragment is dropped.
    Drop,
    /// It waits, and takes no further heartbeat meanwhile.
    Wait,
}

/// What the scheduler makes of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgements {
    /// Each one counts.
    Counted,
    /// Each event counts once.
    Keyed,
}

/// One field for each rule. `baseline` and `round_robin` are the original's two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub grouping: Grouping,
    /// With `Arrivals`: a group of differing heartbeats is not acknowledged.
    pub id_check: bool,
    /// Data messages begin with a part of 24 bytes that has the heartbeat in it.
    pub id_part: bool,
    /// A source's queue for one builder: whichever bound is met first.
    pub send_queue_bytes: u64,
    pub send_queue_messages: u64,
    pub full_queue: FullQueue,
    /// The scheduler's queue for one subscriber; what finds it full is dropped.
    pub broadcast_queue_messages: u64,
    /// Broadcasts wait for a subscriber that is not connected.
    pub keep_broadcasts: bool,
    pub limiter: LimiterKind,
    /// The scheduler does nothing until a builder has registered.
    pub dormant: bool,
    /// From its start until a builder registers.
    pub register_wait: Duration,
    /// For sources to subscribe and builders to register; then the channels are sent.
    pub start_wait: Duration,
    /// For sources to make their channels; then the first heartbeat.
    pub channel_wait: Duration,
    /// In place of both waits: until every source and builder has said that it is ready.
    pub ready_check: bool,
    /// Told of channels, a source takes down every connection, the broadcasts' too, and makes all anew.
    pub channel_rebuild: bool,
    /// How long it has none then, beside the time that making them takes.
    pub rebuild_time: Duration,
    /// Round-robin takes its step before it sends, the configuration's too, so the first heartbeat goes to the third of three.
    pub advance_first: bool,
    pub acknowledgements: Acknowledgements,
    /// From the last heartbeat until the scheduler stops counting acknowledgements.
    pub stop_wait: Duration,
    /// A builder whose connection to the scheduler has ended gets no more events.
    pub notice_dead: bool,
    /// The last source subscribes so much later. No rule of the original: an injected fault.
    pub late_source: Duration,
}

impl Rules {
    /// Commit cbaebb9: one builder, single parts, 20 ms.
    pub fn baseline() -> Rules {
        Rules {
            id_check: false,
            id_part: false,
            dormant: false,
            register_wait: Duration::ZERO,
            advance_first: false,
            stop_wait: Duration::from_millis(20),
            ..Rules::round_robin()
        }
    }

    /// Commit 5914f78: builders register and take turns, heartbeats are compared, one second.
    pub fn round_robin() -> Rules {
        Rules {
            grouping: Grouping::Arrivals,
            id_check: true,
            id_part: true,
            send_queue_bytes: 250_000_000,
            send_queue_messages: 1_000,
            full_queue: FullQueue::Drop,
            broadcast_queue_messages: 1_000,
            keep_broadcasts: false,
            limiter: LimiterKind::Adaptive,
            dormant: true,
            register_wait: Duration::from_secs(10),
            start_wait: Duration::from_secs(10),
            channel_wait: Duration::from_secs(2),
            ready_check: false,
            channel_rebuild: true,
            rebuild_time: Duration::ZERO,
            advance_first: true,
            acknowledgements: Acknowledgements::Counted,
            stop_wait: Duration::from_secs(1),
            notice_dead: false,
            late_source: Duration::ZERO,
        }
    }

    /// The version that `rules` names, with the rules that are given in place of its own. `values` were checked against `PARAMS`.
    pub fn from_values(values: &Values) -> Rules {
        let preset = match values.text("rules").as_deref() {
            Some("baseline") => Rules::baseline(),
            _ => Rules::round_robin(),
        };
        let flag = |key: &str, own| values.flag(key).unwrap_or(own);
        let count = |key: &str, own| values.count(key).unwrap_or(own);
        let time = |key: &str, own| values.duration(key).unwrap_or(own);
        Rules {
            grouping: choice(
                values,
                "grouping",
                ("keyed", Grouping::Keyed),
                Grouping::Arrivals,
                preset.grouping,
            ),
            id_check: flag("id_check", preset.id_check),
            id_part: flag("id_part", preset.id_part),
            send_queue_bytes: values.size("send_queue").map_or(preset.send_queue_bytes, |size| size.0),
            send_queue_messages: count("send_queue_messages", preset.send_queue_messages),
            full_queue: choice(
                values,
                "full_queue",
                ("wait", FullQueue::Wait),
                FullQueue::Drop,
                preset.full_queue,
            ),
            broadcast_queue_messages: count("broadcast_queue_messages", preset.broadcast_queue_messages),
            keep_broadcasts: flag("keep_broadcasts", preset.keep_broadcasts),
            limiter: choice(
                values,
                "limiter",
                ("absolute", LimiterKind::Absolute),
                LimiterKind::Adaptive,
                preset.limiter,
            ),
            dormant: flag("dormant", preset.dormant),
            register_wait: time("register_wait", preset.register_wait),
            start_wait: time("start_wait", preset.start_wait),
            channel_wait: time("channel_wait", preset.channel_wait),
            ready_check: flag("ready_check", preset.ready_check),
            channel_rebuild: flag("channel_rebuild", preset.channel_rebuild),
            rebuild_time: time("rebuild_time", preset.rebuild_time),
            advance_first: flag("advance_first", preset.advance_first),
            acknowledgements: choice(
                values,
                "acknowledgements",
                ("keyed", Acknowledgements::Keyed),
                Acknowledgements::Counted,
                preset.acknowledgements,
            ),
            stop_wait: time("stop_wait", preset.stop_wait),
            notice_dead: flag("notice_dead", preset.notice_dead),
            late_source: time("late_source", preset.late_source),
        }
    }
}

impl Rules {
    /// From the start of the roles until acknowledgements stop counting; without what making connections takes and with what the
    /// adaptive limiter is off by left out.
    pub fn planned(&self, rate_hz: f64, heartbeats: u64) -> Duration {
        let registered = if self.dormant { self.register_wait } else { Duration::ZERO };
        let waits = if self.ready_check { Duration::ZERO } else { self.start_wait + self.channel_wait };
        let run = Duration::try_from_secs_f64(heartbeats as f64 / rate_hz).unwrap_or(Duration::MAX);
        run.saturating_add(registered + waits + self.stop_wait)
    }
}

/// The value that goes with the word given, `other` for another word, `own` where none is given.
fn choice<T>(values: &Values, key: &str, (word, one): (&str, T), other: T, own: T) -> T {
    match values.text(key) {
        Some(text) if text == word => one,
        Some(_) => other,
        None => own,
    }
}

const HOUR_NS: f64 = 3.6e12;

const fn wait(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Duration, about).range(0.0, HOUR_NS)
}
const fn flag(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Flag, about)
}

/// Keys of a step with `profile = "o2balancer2"`. But for `rules` they have no default: what is not given is as `rules` says.
pub const PARAMS: &[Param] = &[
    Param::new(
        "rules",
        Kind::Choice(&["round-robin", "baseline"]),
        "Version of the original: `baseline` (one builder, mixed heartbeats acknowledged) or `round-robin`",
    )
    .default("round-robin"),
    Param::new(
        "grouping",
        Kind::Choice(&["arrivals", "keyed"]),
        "How builders join fragments: by the number that has arrived (both versions) or by heartbeat and source",
    ),
    flag(
        "id_check",
        "A group of differing heartbeats is not acknowledged (round-robin: true, baseline: false)",
    ),
    flag(
        "id_part",
        "Data messages have a part with the heartbeat before the payload (round-robin: true, baseline: false)",
    ),
    Param::new("send_queue", Kind::Size, "Bytes that wait in a source for one builder at most (250 MB)")
        .range(1.0, 1e12),
    Param::new(
        "send_queue_messages",
        Kind::Count,
        "Messages that wait in a source for one builder at most (1000, the library's default)",
    )
    .range(1.0, 1e6),
    Param::new(
        "full_queue",
        Kind::Choice(&["drop", "wait"]),
        "What a source does with a fragment for which its queue has no room (drop, as a send with time-out zero does)",
    ),
    Param::new(
        "broadcast_queue_messages",
        Kind::Count,
        "Heartbeats that wait in the scheduler for one source at most (1000); more are dropped",
    )
    .range(1.0, 1e6),
    flag(
        "keep_broadcasts",
        "Heartbeats wait for a source that is not connected, instead of being lost to it (false)",
    ),
    Param::new(
        "limiter",
        Kind::Choice(&["adaptive", "absolute"]),
        "The heartbeats' clock: the library's controller, which catches up after waits with a burst (both versions), or t0 + n / rate",
    ),
    flag(
        "dormant",
        "The scheduler waits for the first builder before `start_wait` (round-robin: true, baseline: false)",
    ),
    wait("register_wait", "How long a builder waits before it registers (round-robin: 10 s, baseline: 0 s)"),
    wait("start_wait", "How long the scheduler waits before it sends the channels to the sources (10 s)"),
    wait("channel_wait", "How long it waits after that before the first heartbeat (2 s)"),
    flag(
        "ready_check",
        "In place of both waits the scheduler goes on when every source and builder has said that it is ready (false)",
    ),
    flag(
        "channel_rebuild",
        "A source that hears of channels takes down all connections, the heartbeats' too, and makes them anew (true)",
    ),
    wait(
        "rebuild_time",
        "How long a source that does so has none, beside the time that making them takes (0 s)",
    ),
    flag("advance_first", "Round-robin takes its step before it sends (round-robin: true, baseline: false)"),
    Param::new(
        "acknowledgements",
        Kind::Choice(&["counted", "keyed"]),
        "What the scheduler makes of acknowledgements: their number (both versions) or the events that they are of",
    ),
    wait(
        "stop_wait",
        "How long after the last heartbeat acknowledgements count (round-robin: 1 s, baseline: 20 ms)",
    ),
    flag("notice_dead", "A builder whose connection to the scheduler has ended gets no more events (false)"),
    wait(
        "late_source",
        "The last source subscribes so much later: an injected fault, no rule of the original (0 s)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::param::parse_default;

    fn rules(pairs: &[(&str, &str)]) -> Rules {
        let mut values = Values::defaults(PARAMS);
        for (key, text) in pairs {
            let param = PARAMS.iter().find(|param| param.name == *key).unwrap();
            values.set(key, parse_default(param.kind, text).unwrap());
        }
        Rules::from_values(&values)
    }

    #[test]
    fn what_is_not_given_is_as_the_version_has_it() {
        assert_eq!(rules(&[]), Rules::round_robin());
        assert_eq!(rules(&[("rules", "baseline")]), Rules::baseline());
    }

    // Spec: event-original.md#rules-1
    #[test]
    fn every_key_changes_its_own_rule_and_no_other() {
        let preset = Rules::round_robin();
        type Change = fn(&mut Rules);
        let cases: &[(&str, &str, Change)] = &[
            ("grouping", "keyed", |it| it.grouping = Grouping::Keyed),
            ("id_check", "false", |it| it.id_check = false),
            ("id_part", "false", |it| it.id_part = false),
            ("send_queue", "1MB", |it| it.send_queue_bytes = 1_000_000),
            ("send_queue_messages", "7", |it| it.send_queue_messages = 7),
            ("full_queue", "wait", |it| it.full_queue = FullQueue::Wait),
            ("broadcast_queue_messages", "9", |it| it.broadcast_queue_messages = 9),
            ("keep_broadcasts", "true", |it| it.keep_broadcasts = true),
            ("limiter", "absolute", |it| it.limiter = LimiterKind::Absolute),
            ("dormant", "false", |it| it.dormant = false),
            ("register_wait", "3s", |it| it.register_wait = Duration::from_secs(3)),
            ("start_wait", "4s", |it| it.start_wait = Duration::from_secs(4)),
            ("channel_wait", "5s", |it| it.channel_wait = Duration::from_secs(5)),
            ("ready_check", "true", |it| it.ready_check = true),
            ("channel_rebuild", "false", |it| it.channel_rebuild = false),
            ("rebuild_time", "6s", |it| it.rebuild_time = Duration::from_secs(6)),
            ("advance_first", "false", |it| it.advance_first = false),
            ("acknowledgements", "keyed", |it| it.acknowledgements = Acknowledgements::Keyed),
            ("stop_wait", "20ms", |it| it.stop_wait = Duration::from_millis(20)),
            ("notice_dead", "true", |it| it.notice_dead = true),
            ("late_source", "1s", |it| it.late_source = Duration::from_secs(1)),
        ];
        for (key, text, change) in cases {
            let mut expected = preset.clone();
            change(&mut expected);
            assert_ne!(expected, preset, "{key}");
            assert_eq!(rules(&[(key, text)]), expected, "{key}");
        }
        let tried: Vec<&str> = cases.iter().map(|case| case.0).collect();
        for param in PARAMS.iter().filter(|param| param.name != "rules") {
            assert!(tried.contains(&param.name), "no case for {}", param.name);
            assert_eq!(param.default, None, "{}: the version says it", param.name);
        }
    }

    #[test]
    fn a_run_of_thirty_seconds_takes_42_02_in_the_baseline_and_53_in_round_robin() {
        let planned = |rules: Rules| rules.planned(200.0, 6_000).as_secs_f64();
        assert_eq!((planned(Rules::baseline()), planned(Rules::round_robin())), (42.02, 53.0));
        assert_eq!(planned(Rules { ready_check: true, ..Rules::baseline() }), 30.02);
    }

    #[test]
    fn a_rule_given_holds_in_both_versions() {
        let baseline = rules(&[("rules", "baseline"), ("stop_wait", "1s"), ("grouping", "arrivals")]);
        assert_eq!(baseline, Rules { stop_wait: Duration::from_secs(1), ..Rules::baseline() });
    }
}
