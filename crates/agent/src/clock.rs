//! How far a host's clock is from ours, from exchanges of four timestamps. Pure: instants in, estimates out.
//!
//! A question leaves at `sent` and the answer is back at `returned`, both on our clock; the host heard it at `heard` and
//! answered at `answered`, both on its own. Since neither way takes less than no time, the host's clock minus ours is at
//! least `answered − returned` and at most `heard − sent`: an interval as wide as the time on the way, whose middle is right
//! where both ways took equally long (RFC 5905, section 8). Of many exchanges the one that was fastest knows best.
//!
//! Rules: `docs/specs/agent-protocol.md`.

use weir_core::Instant;

/// Two clocks drift apart by no more than this share of the time: what a kernel corrects at most (500 ppm).
pub const DRIFT_RATIO_MAX: f64 = 500e-6;
/// Exchanges kept of one trial; at four a second, half a day. Later ones replace none.
const EXCHANGES_MAX: usize = 200_000;

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    sent: Instant,
    heard: Instant,
    answered: Instant,
    returned: Instant,
}

impl Exchange {
    /// `None` for what no two clocks can have seen: an answer before its question, or more time spent at the host than
    /// between question and answer.
    pub fn new(sent: Instant, heard: Instant, answered: Instant, returned: Instant) -> Option<Exchange> {
        let away = returned.as_ns().checked_sub(sent.as_ns())?;
        let inside = answered.as_ns().checked_sub(heard.as_ns())?;
        (inside <= away).then_some(Exchange { sent, heard, answered, returned })
    }

    /// Least and most that the host's clock can be ahead of ours, in nanoseconds.
    fn bounds_ns(&self) -> [i128; 2] {
        let ns = |at: Instant| i128::from(at.as_ns());
        [ns(self.answered) - ns(self.returned), ns(self.heard) - ns(self.sent)]
    }

    /// What this exchange alone says.
    pub fn reading(&self) -> Reading {
        let [least, most] = self.bounds_ns();
        let width = most - least;
        let away_ns = self.returned.as_ns() - self.sent.as_ns();
        // The clocks go on drifting while the exchange is under way.
        let drifted_ns = (away_ns as f64 * DRIFT_RATIO_MAX).ceil() as u64;
        Reading {
            at: Instant::from_ns(self.sent.as_ns() + away_ns / 2),
            offset_ns: least + width / 2,
            uncertainty_ns: (u64::try_from(width - width / 2).unwrap_or(0)).saturating_add(drifted_ns),
        }
    }
}

/// The host's clock minus ours at one instant of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub at: Instant,
    pub offset_ns: i128,
    /// The offset is within this of the truth, whatever the two ways took.
    pub uncertainty_ns: u64,
}

impl Reading {
    /// The uncertainty at another instant, for clocks that drift as much as clocks may.
    fn uncertainty_at_ns(&self, at: Instant) -> f64 {
        self.uncertainty_ns as f64 + self.at.seconds_from(at).abs() * 1e9 * DRIFT_RATIO_MAX
    }
}

/// What is known of one host's clock while exchanges go on.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    /// Since the last `begin`, in the order in which the answers came.
    all: Vec<Exchange>,
}

impl Exchanges {
    pub fn add(&mut self, exchange: Exchange) {
        if self.all.len() < EXCHANGES_MAX {
            self.all.push(exchange);
        }
    }

    /// Forgets what is older than `at`: a trial begins.
    pub fn begin(&mut self, at: Instant) {
        self.all.retain(|exchange| exchange.returned >= at);
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The reading that knows most about `at`: a fast exchange, less so the older it is.
    pub fn best(&self, at: Instant) -> Option<Reading> {
        Self::best_of(self.all.iter(), at)
    }

    fn best_of<'a>(exchanges: impl Iterator<Item = &'a Exchange>, at: Instant) -> Option<Reading> {
        exchanges
            .map(Exchange::reading)
            .min_by(|one, other| one.uncertainty_at_ns(at).total_cmp(&other.uncertainty_at_ns(at)))
    }

    /// The clock over a trial that ran from `from` to `to`: a straight line from the best reading before to the best
    /// after. Exchanges in between that contradict the line widen its uncertainty by as much. `None` without an exchange.
    pub fn map(&self, from: Instant, to: Instant) -> Option<ClockMap> {
        let middle = |exchange: &&Exchange| exchange.reading().at;
        let before = self.all.iter().filter(|exchange| middle(exchange) <= from);
        let after = self.all.iter().filter(|exchange| middle(exchange) >= to);
        let first = Self::best_of(before, from).or_else(|| self.best(from))?;
        let last = Self::best_of(after, to).or_else(|| self.best(to))?;
        let (first, last) = if first.at <= last.at { (first, last) } else { (last, first) };
        let mut map = ClockMap { first, last, excess_ns: 0, exchange_count: self.all.len() };
        let excess = |exchange: &Exchange| {
            let [least, most] = exchange.bounds_ns();
            let line = map.offset_ns(exchange.reading().at);
            (least - line).max(line - most).max(0)
        };
        map.excess_ns = u64::try_from(self.all.iter().map(excess).max().unwrap_or(0)).unwrap_or(u64::MAX);
        Some(map)
    }
}

/// From a host's clock to ours and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockMap {
    first: Reading,
    last: Reading,
    excess_ns: u64,
    exchange_count: usize,
}

impl ClockMap {
    /// Of a host that reads the same clock as we.
    pub const SHARED: ClockMap = {
        let reading = Reading { at: Instant::ZERO, offset_ns: 0, uncertainty_ns: 0 };
        ClockMap { first: reading, last: reading, excess_ns: 0, exchange_count: 0 }
    };

    /// From one reading: a clock that is taken not to drift.
    pub fn of(reading: Reading) -> ClockMap {
        ClockMap { first: reading, last: reading, excess_ns: 0, exchange_count: 1 }
    }

    /// Nanoseconds that the host's clock gains each nanosecond of ours.
    pub fn drift_ratio(&self) -> f64 {
        let elapsed = self.last.at.seconds_from(self.first.at) * 1e9;
        if elapsed > 0.0 { (self.last.offset_ns - self.first.offset_ns) as f64 / elapsed } else { 0.0 }
    }

    /// The host's clock minus ours at an instant of ours.
    pub fn offset_ns(&self, at: Instant) -> i128 {
        self.first.offset_ns + (self.drift_ratio() * at.seconds_from(self.first.at) * 1e9).round() as i128
    }

    /// How far `offset_ns` can be from the truth between the two readings, if the host's clock ran evenly or showed that
    /// it did not.
    pub fn uncertainty_ns(&self) -> u64 {
        // One more for rounding.
        let edge = self.first.uncertainty_ns.max(self.last.uncertainty_ns);
        if *self == Self::SHARED { 0 } else { edge.saturating_add(self.excess_ns).saturating_add(1) }
    }

    pub fn exchange_count(&self) -> usize {
        self.exchange_count
    }

    /// An instant of ours on the host's clock.
    pub fn to_host(&self, at: Instant) -> Instant {
        let ns = i128::from(at.as_ns()) + self.offset_ns(at);
        Instant::from_ns(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
    }

    /// Nanoseconds on the host's clock as nanoseconds on ours; may be before our clock's zero.
    pub fn to_ours_ns(&self, host_ns: i128) -> i64 {
        let drift = self.drift_ratio();
        let undrifted = host_ns - self.first.offset_ns;
        let since_first = undrifted - i128::from(self.first.at.as_ns());
        let ours = undrifted - (since_first as f64 * (drift / (1.0 + drift))).round() as i128;
        ours.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A host whose clock was `offset_ns` ahead at our zero and gains `drift_ppm`.
    #[derive(Clone, Copy, Debug)]
    struct HostClock {
        offset_ns: i64,
        drift_ppm: f64,
    }

    impl HostClock {
        fn read(&self, ours_ns: u64) -> u64 {
            let drifted = (ours_ns as f64 * self.drift_ppm * 1e-6).round() as i64;
            u64::try_from(ours_ns as i64 + drifted + self.offset_ns).unwrap()
        }
        fn exchange(&self, sent_ns: u64, there_ns: u64, inside_ns: u64, back_ns: u64) -> Exchange {
            let heard = sent_ns + there_ns;
            let answered = heard + inside_ns;
            let at = Instant::from_ns;
            Exchange::new(at(sent_ns), at(self.read(heard)), at(self.read(answered)), at(answered + back_ns))
                .unwrap()
        }
        fn error_ns(&self, map: &ClockMap, ours_ns: u64) -> u64 {
            let truth = i128::from(self.read(ours_ns)) - i128::from(ours_ns);
            (map.offset_ns(Instant::from_ns(ours_ns)) - truth).unsigned_abs() as u64
        }
    }

    fn host() -> impl Strategy<Value = HostClock> {
        // Machines that were started up to three years apart.
        (0..100_000_000 * SECOND_NS as i64, -400.0..400.0f64)
            .prop_map(|(offset_ns, drift_ppm)| HostClock { offset_ns, drift_ppm })
    }

    /// Base delays there and back, then for each exchange what jitter added and the time at the host.
    type Path = (u64, u64, Vec<(u64, u64, u64)>);

    fn path() -> impl Strategy<Value = Path> {
        let jitter = || prop_oneof![Just(0u64), 0..200_000u64, 0..80_000_000u64];
        let each = (jitter(), jitter(), 0..3_000_000u64);
        (0..100_000_000u64, 0..100_000_000u64, proptest::collection::vec(each, 40..41))
    }

    /// Sixteen exchanges before a trial of `seconds`, eight during it, sixteen after.
    fn measured(host: HostClock, path: &Path, seconds: u64) -> (Exchanges, [u64; 2]) {
        let (there, back, jitters) = path;
        let mut exchanges = Exchanges::default();
        let mut now = 5 * SECOND_NS;
        let mut edges = [0; 2];
        for (index, (more_there, more_back, inside)) in jitters.iter().enumerate() {
            let exchange = host.exchange(now, there + more_there, *inside, back + more_back);
            now = exchange.returned.as_ns();
            exchanges.add(exchange);
            match index {
                15 => edges[0] = now,
                16..23 => now += seconds * SECOND_NS / 8,
                23 => {
                    now += seconds * SECOND_NS / 8;
                    edges[1] = now;
                }
                _ => {}
            }
        }
        (exchanges, edges)
    }

    proptest! {
        // Spec: agent-protocol.md#clock-2
        #[test]
        fn the_true_offset_is_within_the_stated_uncertainty_however_unequal_the_ways(
            host in host(), path in path(), seconds in 1..600u64,
        ) {
            let (exchanges, [from, to]) = measured(host, &path, seconds);
            let map = exchanges.map(Instant::from_ns(from), Instant::from_ns(to)).unwrap();
            for step in 0..=20 {
                let at = from + (to - from) / 20 * step;
                let error = host.error_ns(&map, at);
                let said = map.uncertainty_ns();
                prop_assert!(error <= said + 2, "off by {error} ns, said {said}, {map:?}");
            }
        }

        // Spec: agent-protocol.md#clock-2
        #[test]
        fn where_both_ways_take_equally_long_the_error_is_what_jitter_added_to_the_fastest(
            host in host(), (one_way, _, jitters) in path(),
        ) {
            let (exchanges, [from, to]) = measured(host, &(one_way, one_way, jitters.clone()), 30);
            let map = exchanges.map(Instant::from_ns(from), Instant::from_ns(to)).unwrap();
            // The exchange that is chosen waited no longer than the fastest and what drift could hide of it.
            let fastest = |part: &[(u64, u64, u64)]| {
                part.iter().map(|(there, back, _)| there + back).min().unwrap()
            };
            let longest_ns = 17.0 * (2.0 * one_way as f64 + 163e6);
            let spared = longest_ns * DRIFT_RATIO_MAX;
            let most = fastest(&jitters[..16]).max(fastest(&jitters[24..])) as f64 / 2.0 + spared;
            for at in [from, (from + to) / 2, to] {
                let error = host.error_ns(&map, at) as f64;
                prop_assert!(error <= most + 2.0, "off by {error} ns, at most {most}");
            }
        }

        #[test]
        fn there_and_back_between_the_clocks_is_the_same_instant(
            host in host(), path in path(), at in 0..600u64,
        ) {
            let (exchanges, [from, to]) = measured(host, &path, 60);
            let map = exchanges.map(Instant::from_ns(from), Instant::from_ns(to)).unwrap();
            let ours = from + at * SECOND_NS;
            let back = map.to_ours_ns(i128::from(map.to_host(Instant::from_ns(ours)).as_ns()));
            prop_assert!((i128::from(back) - i128::from(ours)).abs() <= 2, "{ours} came back as {back}");
        }

        #[test]
        fn what_a_host_makes_up_is_refused_or_survived(times in proptest::array::uniform4(any::<u64>())) {
            let [sent, heard, answered, returned] = times.map(Instant::from_ns);
            if let Some(exchange) = Exchange::new(sent, heard, answered, returned) {
                let mut exchanges = Exchanges::default();
                exchanges.add(exchange);
                let map = exchanges.map(sent, returned).unwrap();
                map.to_host(sent);
                map.to_ours_ns(i128::from(heard.as_ns()));
                map.uncertainty_ns();
            }
        }
    }

    // Spec: agent-protocol.md#clock-3
    #[test]
    fn a_clock_that_is_set_right_in_the_middle_of_a_trial_is_caught_by_the_exchanges_in_between() {
        let slow = HostClock { offset_ns: SECOND_NS as i64, drift_ppm: 0.0 };
        let ahead = HostClock { offset_ns: SECOND_NS as i64 + 5_000_000, drift_ppm: 0.0 };
        let mut exchanges = Exchanges::default();
        for second in 0..20u64 {
            // 5 ms ahead in the middle and back before the end: the edges alone see nothing.
            let host = if (8..12).contains(&second) { ahead } else { slow };
            exchanges.add(host.exchange((second + 10) * SECOND_NS, 100_000, 10_000, 100_000));
        }
        let map = exchanges.map(Instant::from_ns(11 * SECOND_NS), Instant::from_ns(28 * SECOND_NS)).unwrap();
        assert_eq!(map.drift_ratio(), 0.0);
        assert!((4_800_000..5_300_000).contains(&map.uncertainty_ns()), "{}", map.uncertainty_ns());
    }

    #[test]
    fn a_shared_clock_has_no_offset_and_no_doubt() {
        let at = Instant::from_ns(7_000_000_001);
        assert_eq!(ClockMap::SHARED.to_host(at), at);
        assert_eq!(ClockMap::SHARED.to_ours_ns(7_000_000_001), 7_000_000_001);
        assert_eq!(ClockMap::SHARED.uncertainty_ns(), 0);
    }

    #[test]
    fn an_answer_before_its_question_is_no_exchange() {
        let at = Instant::from_ns;
        assert_eq!(Exchange::new(at(10), at(5), at(6), at(9)), None);
        assert_eq!(Exchange::new(at(10), at(6), at(5), at(20)), None);
        assert_eq!(Exchange::new(at(10), at(0), at(100), at(20)), None);
        assert!(Exchange::new(at(10), at(5), at(15), at(20)).is_some());
    }

    #[test]
    fn what_came_before_a_trial_is_forgotten_when_it_begins() {
        let host = HostClock { offset_ns: 0, drift_ppm: 0.0 };
        let mut exchanges = Exchanges::default();
        exchanges.add(host.exchange(SECOND_NS, 1, 1, 1));
        exchanges.add(host.exchange(5 * SECOND_NS, 1, 1, 1));
        exchanges.begin(Instant::from_ns(4 * SECOND_NS));
        assert_eq!(exchanges.count(), 1);
        assert_eq!(exchanges.best(Instant::from_ns(SECOND_NS)).unwrap().at.as_ns(), 5 * SECOND_NS + 1);
    }
}
