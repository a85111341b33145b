//! The scheduler's core: waits, heartbeats, whose turn it is, and acknowledgements. Time and messages come in, orders go out.

use super::account::{SchedulerAccount, Track};
use super::frame::{Beat, ChannelAt};
use super::limiter::Limiter;
use super::rules::{Acknowledgements, Rules};
use std::time::Duration;
use weir_core::Instant;

/// Builders that may register.
pub const CHANNELS_MAX: usize = 4_096;
/// Heartbeats of one run: a bit each is kept.
pub const HEARTBEATS_MAX: u64 = 100_000_000;
/// Listening for measuring's sake ends when nothing has come for so long.
const QUIET: Duration = Duration::from_secs(2);
/// How often what was told is looked at while the scheduler waits for it.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub struct ConductorPlan {
    pub rules: Rules,
    pub rate_hz: f64,
    pub heartbeats: u64,
    /// That must be ready, where readiness is checked.
    pub sources: u64,
    pub builders: u64,
    /// How long it goes on listening after it has stopped counting, so that what comes later is seen.
    pub drain: Duration,
}

/// What all sources are to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The channels, all of them, behind this.
    Configure(Beat),
    Beat(Beat),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dormant,
    /// For sources to subscribe, until then.
    Start(Instant),
    /// For sources to make their channels, until then.
    Channels(Instant),
    Beating,
    /// Until then acknowledgements count.
    Stopping(Instant),
    /// Until then they are still taken note of.
    Listening(Instant),
    Over,
}

pub struct Conductor {
    plan: ConductorPlan,
    limiter: Limiter,
    phase: Phase,
    wake_at: Instant,
    channels: Vec<ChannelAt>,
    /// Place of the builder that had the last turn.
    turn: usize,
    next_id: u64,
    /// One bit a heartbeat: acknowledged.
    acknowledged: Vec<u64>,
    subscribed: u64,
    ready: u64,
    heard: Instant,
    account: SchedulerAccount,
    beats: Track,
    acknowledgements: Track,
}

impl Conductor {
    /// The run begins `now`. `interval` is that of the series. Memory for all heartbeats is taken here.
    pub fn new(mut plan: ConductorPlan, interval: Duration, now: Instant) -> Conductor {
        plan.heartbeats = plan.heartbeats.min(HEARTBEATS_MAX);
        let limiter = Limiter::new(plan.rules.limiter, plan.rate_hz, now);
        let words = usize::try_from(plan.heartbeats.div_ceil(64)).unwrap_or(0);
        Conductor {
            limiter,
            phase: if plan.rules.dormant {
                Phase::Dormant
            } else {
                Phase::Start(now + plan.rules.start_wait)
            },
            wake_at: now,
            channels: Vec::new(),
            turn: 0,
            next_id: 0,
            acknowledged: vec![0; words],
            subscribed: 0,
            ready: 0,
            heard: now,
            account: SchedulerAccount { started_ns: now.as_ns(), ..SchedulerAccount::default() },
            beats: Track::new(interval),
            acknowledgements: Track::new(interval),
            plan,
        }
    }

    /// When `on_time` wants to be called again.
    pub fn wake_at(&self) -> Instant {
        self.wake_at
    }
    pub fn channels(&self) -> &[ChannelAt] {
        &self.channels
    }
    pub fn over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// To be called at `wake_at` or later, until that is later than `now`.
    pub fn on_time(&mut self, now: Instant) -> Option<Order> {
        match self.phase {
            Phase::Dormant => {
                if self.channels.is_empty() {
                    self.wake_at = self.limiter.ended(now, false);
                } else {
                    self.phase = Phase::Start(now + self.plan.rules.start_wait);
                }
                None
            }
            Phase::Start(until) => self.configure(now, until),
            Phase::Channels(until) => {
                let ready = self.ready >= self.plan.sources;
                if self.waits(now, until, ready) {
                    return None;
                }
                self.phase = Phase::Beating;
                self.wake_at = self.limiter.ended(now, false);
                None
            }
            Phase::Beating => self.beat(now),
            Phase::Stopping(until) => {
                self.wake_at = until;
                if now >= until {
                    self.stop_counting(now);
                }
                None
            }
            Phase::Listening(until) => {
                self.wake_at = until.min(self.heard + QUIET);
                if now >= self.wake_at || self.all_heard() {
                    self.end(now);
                }
                None
            }
            Phase::Over => {
                self.wake_at = Instant::NEVER;
                None
            }
        }
    }

    /// Whether a wait is not over: fixed, or with `ready_check` until what is waited for is there.
    fn waits(&mut self, now: Instant, until: Instant, ready: bool) -> bool {
        let checks = self.plan.rules.ready_check;
        let over = if checks { ready } else { now >= until };
        self.wake_at = match (over, checks) {
            (true, _) => now,
            (false, true) => now + LOOK,
            (false, false) => until,
        };
        !over
    }

    fn configure(&mut self, now: Instant, until: Instant) -> Option<Order> {
        let registered = self.channels.len() as u64 >= self.plan.builders.max(1);
        let ready = registered && self.subscribed >= self.plan.sources;
        if self.waits(now, until, ready) {
            return None;
        }
        if self.channels.is_empty() {
            // The original ends here with an error, too.
            self.account.failure = Some("no builder has registered".to_owned());
            self.end(now);
            return None;
        }
        // It takes a turn of its own where the step comes first.
        let first = if self.plan.rules.advance_first { self.take_turn() } else { self.channels[0].index };
        self.account.configured_ns = Some(now.as_ns());
        self.phase = Phase::Channels(now + self.plan.rules.channel_wait);
        Some(Order::Configure(Beat { id: 0, channel: first, configure: true }))
    }

    fn beat(&mut self, now: Instant) -> Option<Order> {
        if self.next_id >= self.plan.heartbeats {
            self.phase = Phase::Stopping(now + self.plan.rules.stop_wait);
            self.account.last_iteration_ns = Some(now.as_ns());
            return None;
        }
        if self.channels.is_empty() {
            // Only where deaths are noticed: there is nobody to send to, and the heartbeat waits.
            self.wake_at = now + LOOK;
            return None;
        }
        let beat = Beat { id: self.next_id, channel: self.take_turn(), configure: false };
        self.next_id += 1;
        self.account.on_beat(now, self.next_id, self.plan.rate_hz);
        self.beats.sample(now, self.next_id as f64);
        self.wake_at = self.limiter.ended(now, true);
        Some(Order::Beat(beat))
    }

    /// Whose turn it is.
    fn take_turn(&mut self) -> u64 {
        let count = self.channels.len();
        let next = if self.turn + 1 >= count { 0 } else { self.turn + 1 };
        let place = if self.plan.rules.advance_first { next } else { self.turn.min(count - 1) };
        self.turn = next;
        self.channels[place].index
    }

    fn stop_counting(&mut self, now: Instant) {
        let account = &mut self.account;
        account.stopped_ns = Some(now.as_ns());
        account.acknowledged_at_stop = match self.plan.rules.acknowledgements {
            Acknowledgements::Counted => account.acknowledgements,
            Acknowledgements::Keyed => account.distinct,
        };
        account.distinct_at_stop = account.distinct;
        self.heard = now;
        self.phase = Phase::Listening(now + self.plan.drain);
        self.wake_at = now;
    }

    fn all_heard(&self) -> bool {
        self.account.distinct >= self.next_id
    }

    fn end(&mut self, now: Instant) {
        self.account.ended_ns = now.as_ns();
        self.phase = Phase::Over;
        self.wake_at = Instant::NEVER;
    }

    /// The run is to end: no more heartbeats.
    pub fn stop(&mut self, now: Instant) {
        match self.phase {
            Phase::Dormant | Phase::Start(_) | Phase::Channels(_) => self.end(now),
            Phase::Beating => self.plan.heartbeats = self.next_id,
            Phase::Stopping(_) | Phase::Listening(_) | Phase::Over => {}
        }
        self.wake_at = self.wake_at.min(now);
    }

    /// Broadcasts go to so many sources now.
    pub fn on_subscribed(&mut self, count: u64) {
        self.subscribed = count;
    }
    /// One more source has its channels.
    pub fn on_ready(&mut self) {
        self.ready += 1;
    }

    /// A builder has said where it is. One that registers when the channels have been sent already is not listed: the sources do
    /// not know of it. False where it is not.
    pub fn on_registered(&mut self, channel: ChannelAt) -> bool {
        let early = matches!(self.phase, Phase::Dormant | Phase::Start(_));
        let listed = early && self.channels.len() < CHANNELS_MAX;
        if listed {
            self.channels.retain(|known| known.index != channel.index);
            self.channels.push(channel);
        } else {
            self.account.registered_late += 1;
        }
        listed
    }

    /// A builder's connection has ended.
    pub fn on_gone(&mut self, index: u64) {
        self.account.builders_gone += 1;
        if self.plan.rules.notice_dead {
            self.channels.retain(|known| known.index != index);
        }
    }

    /// A builder has acknowledged an event.
    pub fn on_acknowledged(&mut self, now: Instant, id: u64) {
        if !matches!(self.phase, Phase::Beating | Phase::Stopping(_) | Phase::Listening(_)) {
            return;
        }
        self.heard = now;
        self.account.acknowledgements += 1;
        self.acknowledgements.sample(now, self.account.acknowledgements as f64);
        let place = usize::try_from(id / 64).unwrap_or(usize::MAX);
        let word = if id < self.next_id { self.acknowledged.get_mut(place) } else { None };
        let bit = 1u64 << (id % 64);
        match word {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                self.account.distinct += 1;
            }
            Some(_) => self.account.repeated += 1,
            None => self.account.unknown += 1,
        }
        if matches!(self.phase, Phase::Listening(_)) && self.all_heard() {
            self.wake_at = now;
        }
    }

    /// `broadcasts_dropped`: heartbeats that found a subscriber's queue full.
    pub fn into_account(self, broadcasts_dropped: u64) -> SchedulerAccount {
        let beats = self.beats.finish("event.heartbeats", "1", true);
        let acknowledgements = self.acknowledgements.finish("event.acknowledged", "1", true);
        SchedulerAccount { broadcasts_dropped, series: vec![beats, acknowledgements], ..self.account }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limiter::LimiterKind;
    use super::*;

    fn channels(count: u64) -> impl Iterator<Item = ChannelAt> {
        (0..count).map(|index| ChannelAt { index, address: "10.0.0.1:5555".parse().unwrap() })
    }

    fn conductor(rules: Rules, heartbeats: u64) -> Conductor {
        let plan = ConductorPlan { rules, rate_hz: 100.0, heartbeats, sources: 1, builders: 3, drain: QUIET };
        Conductor::new(plan, QUIET, Instant::ZERO)
    }

    /// All orders with their times in seconds, until it is over or nothing happens for a minute.
    fn orders(conductor: &mut Conductor) -> Vec<(f64, Order)> {
        let mut all = Vec::new();
        let mut now = conductor.wake_at();
        let end = now + Duration::from_secs(60);
        while !conductor.over() && now < end {
            all.extend(conductor.on_time(now).map(|order| (now.seconds_from(Instant::ZERO), order)));
            now = now.max(conductor.wake_at());
        }
        all
    }

    fn turns(conductor: &mut Conductor) -> Vec<u64> {
        let beats = orders(conductor).into_iter().filter_map(|(_, order)| match order {
            Order::Beat(beat) => Some(beat.channel),
            Order::Configure(_) => None,
        });
        beats.collect()
    }

    // Spec: event-original.md#turns-1
    #[test]
    fn round_robin_steps_before_it_sends_so_the_first_heartbeat_goes_to_the_third_of_three() {
        for (advance_first, expected) in [(true, [2, 0, 1, 2, 0]), (false, [0, 1, 2, 0, 1])] {
            let mut conductor = conductor(Rules { advance_first, ..Rules::round_robin() }, 5);
            channels(3).for_each(|channel| assert!(conductor.on_registered(channel)));
            assert_eq!(turns(&mut conductor), expected);
        }
    }

    // Spec: event-original.md#start-1
    #[test]
    fn waits_are_fixed_from_the_start_or_from_the_first_registration() {
        let mut early = conductor(Rules::baseline(), 2);
        channels(1).for_each(|channel| assert!(early.on_registered(channel)));
        let all = orders(&mut early);
        assert_eq!((all[0].0, all[1].0), (10.0, 12.0));

        let mut dormant = conductor(Rules::round_robin(), 2);
        assert_eq!(orders(&mut dormant), []);
        let now = dormant.wake_at();
        channels(1).for_each(|channel| assert!(dormant.on_registered(channel)));
        dormant.on_time(now);
        let from = now.seconds_from(Instant::ZERO);
        let all = orders(&mut dormant);
        assert!((all[0].0 - from - 10.0).abs() < 1e-6 && (all[1].0 - from - 12.0).abs() < 1e-6, "{all:?}");
    }

    // Spec: event-original.md#start-3
    #[test]
    fn with_the_ready_check_it_goes_on_when_all_are_there_and_not_before() {
        let rules = Rules { ready_check: true, limiter: LimiterKind::Absolute, ..Rules::baseline() };
        let mut conductor = conductor(rules, 2);
        assert_eq!(orders(&mut conductor), []);
        channels(3).for_each(|channel| assert!(conductor.on_registered(channel)));
        assert_eq!(orders(&mut conductor), []);
        conductor.on_subscribed(1);
        assert_eq!(orders(&mut conductor).len(), 1);
        conductor.on_ready();
        assert_eq!(orders(&mut conductor).len(), 2);
    }

    // Spec: event-original.md#acknowledgements-1
    #[test]
    fn acknowledgements_are_counted_whatever_they_are_of_unless_events_are() {
        for (acknowledgements, at_stop) in [(Acknowledgements::Counted, 4), (Acknowledgements::Keyed, 1)] {
            let mut conductor = conductor(Rules { acknowledgements, ..Rules::baseline() }, 3);
            channels(1).for_each(|channel| assert!(conductor.on_registered(channel)));
            let mut beats = 0;
            while !conductor.over() {
                let now = conductor.wake_at();
                beats += u64::from(matches!(conductor.on_time(now), Some(Order::Beat(_))));
                if beats == 3 {
                    beats += 1;
                    [2, 2, 2, 77].into_iter().for_each(|id| conductor.on_acknowledged(now, id));
                }
            }
            let account = conductor.into_account(0);
            assert_eq!((account.acknowledged_at_stop, account.distinct), (at_stop, 1));
            assert_eq!((account.repeated, account.unknown), (2, 1));
            assert_eq!(account.undelivered_ratio(), Some(2.0 / 3.0));
        }
    }

    // Spec: event-original.md#start-1
    #[test]
    fn without_a_builder_there_is_a_reason_and_no_heartbeat() {
        let mut conductor = conductor(Rules::baseline(), 2);
        assert_eq!(orders(&mut conductor), []);
        assert!(conductor.over());
        assert!(!conductor.on_registered(channels(1).next().unwrap()));
        let account = conductor.into_account(0);
        assert_eq!(
            (account.failure.as_deref(), account.registered_late),
            (Some("no builder has registered"), 1)
        );
        assert_eq!(account.unacknowledged_ratio(), None);
    }

    // Spec: event-original.md#stop-3
    #[test]
    fn a_stop_ends_the_heartbeats_and_counts_those_that_were_sent() {
        let mut conductor = conductor(Rules::baseline(), 1_000_000);
        channels(1).for_each(|channel| assert!(conductor.on_registered(channel)));
        for _ in 0..100 {
            let now = conductor.wake_at();
            conductor.on_time(now);
        }
        conductor.stop(conductor.wake_at());
        assert_eq!(turns(&mut conductor), [0; 0]);
        assert!(conductor.over());
        let account = conductor.into_account(0);
        assert!((90..100).contains(&account.heartbeats), "{}", account.heartbeats);
        assert_eq!(account.unacknowledged_ratio(), Some(1.0));
    }
}
