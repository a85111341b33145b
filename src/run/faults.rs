//! From the faults of a scenario to changes of links at exact times, to orders to hosts' processes, and to the ground truth
//! of what was injected. Pure: it is told how far ahead to look and gives what falls due until then.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;
use weir_core::Instant;
use weir_core::fault::Act;
use weir_core::scenario::{Affected, Fault, Role};
use weir_core::schedule::{Change, Rule, Set};
use weir_core::seed;
use weir_core::time::nanoseconds;
use weir_core::topology::Topology;
use weir_core::units::share;

/// Most occurrences that a trial keeps the truth of; a link that flaps a thousand times a second reaches it in a quarter
/// of an hour.
const OCCURRENCES_MAX: usize = 1_000_000;

/// One occurrence, on the experiment's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    pub fault: Arc<str>,
    pub on: Arc<str>,
    pub what: Arc<str>,
    pub start: Instant,
    pub end: Instant,
    /// Carried out by orders, which know their own true times.
    pub by_orders: bool,
    /// Of the configuration's faults, and of the fault's parts.
    pub part: (usize, usize),
}

/// What of a host an order is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Whose {
    /// All its processes.
    Host,
    /// Those of a service, of one role.
    Daemons(ServiceRole),
    /// The disks of a service, or of each server the one of this number.
    Disk(String, Option<u32>),
}

impl Whose {
    /// The processes of a service that it is about; `None`: all of the host.
    pub fn daemons(&self) -> Option<&ServiceRole> {
        match self {
            Whose::Daemons(of) => Some(of),
            Whose::Host | Whose::Disk(..) => None,
        }
    }
}

/// The name of a service, and the role of processes of it.
pub type ServiceRole = (String, Role);

/// An order for the processes of a host, by index, at its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    pub at: Instant,
    pub host: usize,
    pub whose: Whose,
    pub act: Act,
    /// It begins; else it ends.
    pub begins: bool,
    pub fault: Arc<str>,
    pub on: Arc<str>,
    pub what: Arc<str>,
}

/// What falls due until a horizon.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// In the order of their times.
    pub changes: Vec<Change>,
    pub orders: Vec<Due>,
    pub occurrences: Vec<Occurrence>,
}

/// A part of a fault that runs by its own times.
struct Source {
    fault: usize,
    part: usize,
    /// Of the first occurrence, before what is drawn.
    start: Instant,
    until: Instant,
    name: Arc<str>,
    on: Arc<str>,
    what: Arc<str>,
}

impl Source {
    fn due(&self, at: Instant, (host, whose): (usize, &Whose), (act, begins): (&Act, bool)) -> Due {
        let [fault, on, what] = [&self.name, &self.on, &self.what].map(Arc::clone);
        Due { at, host, whose: whose.clone(), act: act.clone(), begins, fault, on, what }
    }
}

/// Faults of one kind on one link replace each other, so the one that began last holds, and when it ends the one before.
type Slot = (usize, u32);

/// Injects the faults of one trial.
pub struct Injector<'a> {
    faults: &'a [Fault],
    seed: u64,
    sources: Vec<Source>,
    /// Beginnings to come: time, source, number of the occurrence.
    starts: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    /// Ends to come of what has begun.
    ends: BinaryHeap<Reverse<(Instant, usize)>>,
    /// What holds on each link, the last that began at the end; by source.
    active: BTreeMap<Slot, Vec<usize>>,
    occurred: usize,
}

impl<'a> Injector<'a> {
    /// `seed` draws the parts of `spread`; trials that are compared have the same, whatever else differs between them.
    pub fn new(faults: &'a [Fault], seed: u64) -> Self {
        Injector {
            faults,
            seed,
            sources: Vec::new(),
            starts: BinaryHeap::new(),
            ends: BinaryHeap::new(),
            active: BTreeMap::new(),
            occurred: 0,
        }
    }

    /// Makes the faults that count from `origin` (the start of the trial, or of `step`) known; none begins at `until` or later.
    pub fn begin(&mut self, step: Option<usize>, origin: Instant, until: Instant, topology: &Topology) {
        for (index, fault) in self.faults.iter().enumerate().filter(|(_, fault)| fault.step == step) {
            for (part, own) in fault.parts.iter().enumerate() {
                let start = origin + fault.at + own.phase;
                let first = start + self.drawn(fault, 0);
                if first >= until {
                    continue;
                }
                let source = Source {
                    fault: index,
                    part,
                    start,
                    until,
                    name: fault.name.as_str().into(),
                    on: fault.on_text.as_str().into(),
                    what: sentence(fault, part, topology).into(),
                };
                self.starts.push(Reverse((first, self.sources.len(), 0)));
                self.sources.push(source);
            }
        }
    }

    /// By how much an occurrence is later: the same in all parts of a fault, so that phases stay what they are.
    fn drawn(&self, fault: &Fault, number: u64) -> Duration {
        let spread_ns = nanoseconds(fault.spread);
        if spread_ns == 0 {
            return Duration::ZERO;
        }
        let uniform = seed::split(self.seed, &format!("{} {number}", fault.name));
        Duration::from_nanos(((u128::from(uniform) * u128::from(spread_ns)) >> 64) as u64)
    }

    /// True when more happened than the truth is kept of: from there on nothing is injected.
    pub fn exhausted(&self) -> bool {
        self.occurred >= OCCURRENCES_MAX
    }

    /// Everything that falls due up to and at `horizon` and was not given before.
    pub fn advance(&mut self, horizon: Instant) -> Batch {
        let mut batch = Batch::default();
        loop {
            let start = self.starts.peek().map(|Reverse(next)| next.0).filter(|at| *at <= horizon);
            let end = self.ends.peek().map(|Reverse(next)| next.0).filter(|at| *at <= horizon);
            // What ends makes room before what begins at the same moment.
            match (start, end) {
                (None, None) => return batch,
                (Some(start), Some(end)) if start < end => self.start_next(&mut batch),
                (Some(_), None) => self.start_next(&mut batch),
                (_, Some(_)) => self.end_next(&mut batch),
            }
        }
    }

    fn start_next(&mut self, batch: &mut Batch) {
        let Some(Reverse((at, index, number))) = self.starts.pop() else { return };
        if self.exhausted() {
            return;
        }
        self.occurred += 1;
        let source = &self.sources[index];
        let fault = &self.faults[source.fault];
        let end = at + fault.duration.unwrap_or_default();
        batch.occurrences.push(Occurrence {
            fault: Arc::clone(&source.name),
            on: Arc::clone(&source.on),
            what: Arc::clone(&source.what),
            start: at,
            end,
            by_orders: ordered(&fault.parts[source.part].affected).is_some(),
            part: (source.fault, source.part),
        });
        if let Some(every) = fault.every.filter(|every| *every > Duration::ZERO) {
            // From the first one, so that no rounding adds up.
            let passed = every.as_nanos().saturating_mul(u128::from(number) + 1);
            let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX));
            let next = source.start + passed + self.drawn(fault, number + 1);
            if next < source.until {
                self.starts.push(Reverse((next, index, number + 1)));
            }
        }
        if let Some((hosts, whose)) = ordered(&fault.parts[source.part].affected) {
            batch.orders.extend(hosts.iter().map(|host| source.due(at, (*host, &whose), (&fault.act, true))));
            if fault.duration.is_some() {
                self.ends.push(Reverse((end, index)));
            }
            return;
        }
        self.ends.push(Reverse((end, index)));
        let set = self.setting(index);
        for link in &fault.on {
            self.active.entry((*link, set.slot())).or_default().push(index);
            batch.changes.push(Change { at_ns: at.as_ns(), link: *link, set: set.clone() });
        }
    }

    fn end_next(&mut self, batch: &mut Batch) {
        let Some(Reverse((at, index))) = self.ends.pop() else { return };
        let source = &self.sources[index];
        let fault = &self.faults[source.fault];
        if let Some((hosts, whose)) = ordered(&fault.parts[source.part].affected) {
            batch
                .orders
                .extend(hosts.iter().map(|host| source.due(at, (*host, &whose), (&fault.act, false))));
            return;
        }
        let ended = self.setting(index);
        for link in &fault.on {
            let slot = (*link, ended.slot());
            let Some(holding) = self.active.get_mut(&slot) else { continue };
            let was_last = holding.last() == Some(&index);
            if let Some(position) = holding.iter().rposition(|other| *other == index) {
                holding.remove(position);
            }
            let before = holding.last().copied();
            if holding.is_empty() {
                self.active.remove(&slot);
            }
            if !was_last {
                continue;
            }
            let set = before.map_or_else(|| ended.undone(), |before| self.setting(before));
            batch.changes.push(Change { at_ns: at.as_ns(), link: *link, set });
        }
    }

    /// What a source sets on its links while it lasts.
    fn setting(&self, index: usize) -> Set {
        let source = &self.sources[index];
        let fault = &self.faults[source.fault];
        let Act::Link { whole, packets } = &fault.act else { unreachable!("orders set no links") };
        match (&fault.parts[source.part].affected, whole, packets) {
            (Affected::Packets(matches), _, Some(effect)) => {
                let rule = Some(Box::new(Rule { matches: matches.clone(), effect: *effect }));
                // Each source is a rule of its own, which replaces no other.
                Set::Rule { number: u32::try_from(index).unwrap_or(u32::MAX), rule }
            }
            (_, Some(set), _) => set.clone(),
            _ => unreachable!("the decoder gives a kind only what it can be on"),
        }
    }
}

/// Hosts, and what of them, of what is carried out by orders.
fn ordered(affected: &Affected) -> Option<(&[usize], Whose)> {
    match affected {
        Affected::Processes(hosts) => Some((hosts, Whose::Host)),
        Affected::Disks { service, hosts, number } => Some((hosts, Whose::Disk(service.clone(), *number))),
        Affected::Daemons { service, role, hosts } => Some((hosts, Whose::Daemons((service.clone(), *role)))),
        Affected::Link | Affected::Packets(_) => None,
    }
}

/// What happens, in words; and for whom, where that is not everyone.
fn sentence(fault: &Fault, part: usize, topology: &Topology) -> String {
    let what = fault.sentence.clone();
    let names = |hosts: &[usize]| {
        let shown: Vec<&str> = hosts.iter().take(4).map(|host| topology.hosts[*host].name.as_str()).collect();
        let more = hosts.len().saturating_sub(4);
        format!("{}{}", shown.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
    };
    let whole = |hosts: &[u32]| hosts.iter().map(|host| *host as usize).collect::<Vec<_>>();
    match &fault.parts[part].affected {
        Affected::Link => what,
        Affected::Processes(hosts) => format!("{what} on {}", names(hosts)),
        Affected::Disks { service, hosts, number } => {
            let which = number.map(|number| format!(" {number}")).unwrap_or_default();
            format!("{what}: disk{which} of {service} on {}", names(hosts))
        }
        Affected::Daemons { service, role, hosts } => {
            format!("{what} of {service}'s {} on {}", role.name(), names(hosts))
        }
        Affected::Packets(matches) => {
            let mut of = String::new();
            if !matches.from.is_empty() {
                of += &format!(" from {}", names(&whole(&matches.from)));
            }
            if !matches.to.is_empty() {
                of += &format!(" to {}", names(&whole(&matches.to)));
            }
            if let Some(protocol) = matches.protocol {
                of += &format!(" of {}", format!("{protocol:?}").to_lowercase());
            }
            if let Some(port) = matches.port {
                of += &format!(" with port {port}");
            }
            if matches.share < 1.0 {
                of += &format!(", {} of them", share(matches.share));
            }
            if of.is_empty() { what } else { format!("{what}, packets{of}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use weir_core::fault::duration_of;
    use weir_core::scenario::FaultPart;
    use weir_core::schedule::{Effect, Match};
    use weir_core::{BitsPerSecond, Value, Values};

    fn two_hosts() -> Topology {
        let access = weir_core::topology::Access::default();
        let host = |name: &str| weir_core::topology::Host::new(name, 0, access.clone());
        Topology { hosts: vec![host("a-0"), host("a-1")], ..Topology::default() }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(at: Duration) -> Instant {
        Instant::ZERO + at
    }

    /// What the kind of this name does for this long, `for` included among `values`.
    fn done(kind: &str, length: Option<Duration>, values: &[(&str, Value)]) -> Fault {
        let kind = registry::faults().find(kind).unwrap();
        let length = length.map(|length| ("for", Value::Duration(length)));
        let values = values.iter().cloned().chain(length).map(|(key, value)| (key.to_owned(), value));
        let values = Values(values.collect());
        Fault {
            name: "cut".to_owned(),
            at: Duration::ZERO,
            step: None,
            every: None,
            spread: Duration::ZERO,
            on: vec![4, 5],
            on_text: "link.wan".to_owned(),
            act: (kind.act)(&values),
            duration: duration_of(&values),
            sentence: (kind.sentence)(&values),
            parts: vec![FaultPart { phase: Duration::ZERO, affected: Affected::Link }],
        }
    }

    fn fault(at: u64, every: Option<Duration>, done: Fault, affected: Affected) -> Fault {
        Fault { at: ms(at), every, parts: vec![FaultPart { phase: Duration::ZERO, affected }], ..done }
    }

    fn outage(at: u64, every: Option<Duration>, length: u64) -> Fault {
        fault(at, every, done("outage", Some(ms(length)), &[]), Affected::Link)
    }

    /// All of a trial at once: time in ms, link, setting.
    fn all(faults: &[Fault], until: Duration) -> Vec<(u64, usize, Set)> {
        let mut injector = Injector::new(faults, 1);
        injector.begin(None, Instant::ZERO, at(until), &two_hosts());
        let changes = injector.advance(at(until)).changes;
        changes.into_iter().map(|change| (change.at_ns / 1_000_000, change.link, change.set)).collect()
    }

    #[test]
    fn an_outage_begins_and_ends_on_each_of_its_links() {
        let origin = Instant::from_ns(5_000_000_000);
        let faults = [outage(1_000, None, 300)];
        let mut injector = Injector::new(&faults, 1);
        injector.begin(None, origin, origin + Duration::from_secs(60), &Topology::default());
        let batch = injector.advance(Instant::NEVER);
        assert_eq!(batch.occurrences.len(), 1);
        let change = |at_ns, link, on| Change { at_ns, link, set: Set::Outage(on) };
        let expected = [
            change(6_000_000_000, 4, true),
            change(6_000_000_000, 5, true),
            change(6_300_000_000, 4, false),
            change(6_300_000_000, 5, false),
        ];
        assert_eq!(batch.changes, expected);
    }

    // Spec: scenario.md#fault-2
    #[test]
    fn a_repeated_fault_keeps_its_period_to_the_nanosecond_and_ends_with_the_trial() {
        let every = Duration::from_nanos(1_000_000_001);
        let faults = [outage(0, Some(every), 300)];
        let mut injector = Injector::new(&faults, 1);
        injector.begin(None, Instant::ZERO, at(Duration::from_secs(100)), &Topology::default());
        let starts: Vec<u64> =
            injector.advance(Instant::NEVER).occurrences.iter().map(|it| it.start.as_ns()).collect();
        let expected: Vec<u64> = (0..100).map(|number| number * 1_000_000_001).collect();
        assert_eq!(starts, expected);
    }

    // Spec: scenario.md#fault-2
    #[test]
    fn occurrences_are_drawn_within_the_spread_anew_for_each_and_alike_for_one_seed() {
        let mut fault = outage(500, Some(ms(100)), 20);
        fault.spread = ms(60);
        let faults = [fault];
        let starts = |seed| {
            let mut injector = Injector::new(&faults, seed);
            injector.begin(None, Instant::ZERO, at(Duration::from_secs(100)), &Topology::default());
            let batch = injector.advance(Instant::NEVER);
            batch.occurrences.iter().map(|it| it.start.as_ns() / 1_000).collect::<Vec<u64>>()
        };
        let one = starts(1);
        assert_eq!(one.len(), 995);
        let late = |(number, start): (u64, &u64)| start - 500_000 - number * 100_000;
        let late_us: Vec<u64> = (0..).zip(&one).map(late).collect();
        assert!(late_us.iter().all(|late| *late < 60_000), "{late_us:?}");
        // Uniform: mean 30 ms, deviation 17.3 ms / √995 = 0.55 ms.
        let mean_us = late_us.iter().sum::<u64>() / 995;
        assert!((28_000..32_000).contains(&mean_us), "{mean_us}");
        assert_eq!(one, starts(1));
        assert_ne!(one, starts(2));
    }

    // Spec: scenario.md#fault-5
    #[test]
    fn of_two_faults_of_one_kind_the_later_holds_and_then_the_earlier_again() {
        let rate = |to, length| done("rate", Some(ms(length)), &[("to", Value::Rate(BitsPerSecond(to)))]);
        let mut faults = [
            fault(0, None, rate(100, 1_000), Affected::Link),
            fault(200, None, rate(50, 300), Affected::Link),
        ];
        for fault in &mut faults {
            fault.on = vec![4];
        }
        let set = |to: Option<u64>| Set::Rate(to.map(BitsPerSecond));
        let inside = [
            (0, 4, set(Some(100))),
            (200, 4, set(Some(50))),
            (500, 4, set(Some(100))),
            (1_000, 4, set(None)),
        ];
        assert_eq!(all(&faults, Duration::from_secs(9)), inside);
        faults[1].duration = Some(ms(3_000));
        let across = [(0, 4, set(Some(100))), (200, 4, set(Some(50))), (3_200, 4, set(None))];
        assert_eq!(all(&faults, Duration::from_secs(9)), across, "the end of the first changes nothing");
    }

    #[test]
    fn what_is_given_out_piece_by_piece_is_the_same_as_all_at_once() {
        let faults = [outage(3, Some(ms(10)), 7), outage(5, Some(ms(13)), 4)];
        let whole = all(&faults, ms(500));
        let mut injector = Injector::new(&faults, 1);
        injector.begin(None, Instant::ZERO, at(ms(500)), &Topology::default());
        let mut pieces = Vec::new();
        for horizon in 1..=500 {
            let batch = injector.advance(at(ms(horizon)));
            pieces.extend(batch.changes.into_iter().map(|it| (it.at_ns / 1_000_000, it.link, it.set)));
        }
        assert_eq!(pieces, whole);
        assert!(whole.is_sorted_by_key(|(at, ..)| *at));
    }

    #[test]
    fn a_phase_for_each_sender_is_a_rule_for_each_group_at_its_own_times() {
        let matches = |host: u32| Match { from: vec![host], ..Match::default() };
        let late = [("share", Value::Ratio(0.5)), ("by", Value::Duration(ms(2)))];
        let part = |phase, host| FaultPart { phase: ms(phase), affected: Affected::Packets(matches(host)) };
        let mut faults = [fault(100, Some(ms(61)), done("delay_some", Some(ms(3)), &late), Affected::Link)];
        faults[0].parts = vec![part(0, 0), part(17, 1)];
        faults[0].on = vec![4];
        let effect = Effect::DelaySome { share: 0.5, by_ns: 2_000_000 };
        let rule = |number: u32, host: Option<u32>| Set::Rule {
            number,
            rule: host.map(|host| Box::new(Rule { matches: matches(host), effect })),
        };
        let expected = [
            (100, 4, rule(0, Some(0))),
            (103, 4, rule(0, None)),
            (117, 4, rule(1, Some(1))),
            (120, 4, rule(1, None)),
            (161, 4, rule(0, Some(0))),
            (164, 4, rule(0, None)),
        ];
        assert_eq!(all(&faults, ms(170)), expected);
    }

    // Spec: scenario.md#fault-8
    #[test]
    fn a_fault_concerns_only_the_steps_whose_hosts_it_can_touch() {
        let step = [(0, 2)];
        let packets = |from: &[u32], to: &[u32]| {
            Affected::Packets(Match { from: from.to_vec(), to: to.to_vec(), ..Match::default() })
        };
        assert!(Affected::Link.concerns(&step, &[0, 2]));
        assert!(packets(&[], &[]).concerns(&step, &[0, 2]));
        assert!(packets(&[0], &[]).concerns(&step, &[0, 2]) && packets(&[2], &[0]).concerns(&step, &[0, 2]));
        assert!(
            !packets(&[1], &[]).concerns(&step, &[0, 2]) && !packets(&[0], &[1, 3]).concerns(&step, &[0, 2])
        );
        assert!(
            Affected::Processes(vec![2]).concerns(&step, &[0, 2])
                && !Affected::Processes(vec![1, 3]).concerns(&step, &[0, 2])
        );
        // A step that loads no pairs is touched through its own hosts.
        assert!(Affected::Processes(vec![2]).concerns(&[], &[2]) && packets(&[], &[2]).concerns(&[], &[2]));
        assert!(
            !Affected::Processes(vec![0]).concerns(&[], &[2]) && !packets(&[0], &[1]).concerns(&[], &[2])
        );
    }

    #[test]
    fn a_pause_is_an_order_with_an_end_and_a_kill_has_one_if_they_return() {
        let hosts = Affected::Processes(vec![1]);
        let faults = [
            fault(10, None, done("pause", Some(ms(5)), &[]), hosts.clone()),
            fault(30, None, done("kill", None, &[]), hosts.clone()),
            fault(40, None, done("kill", Some(ms(7)), &[]), hosts),
        ];
        let mut injector = Injector::new(&faults, 1);
        injector.begin(None, Instant::ZERO, at(ms(500)), &two_hosts());
        assert!(injector.advance(at(ms(9))).orders.is_empty());
        let orders = injector.advance(Instant::NEVER).orders;
        let orders: Vec<(u64, usize, Act, bool)> = orders
            .into_iter()
            .map(|due| (due.at.as_ns() / 1_000_000, due.host, due.act, due.begins))
            .collect();
        let expected = [
            (10, 1, Act::Stop, true),
            (15, 1, Act::Stop, false),
            (30, 1, Act::Kill, true),
            (40, 1, Act::Kill, true),
            (47, 1, Act::Kill, false),
        ];
        assert_eq!(orders, expected);
    }

    // Spec: scenario.md#fault-7
    #[test]
    fn a_link_that_flaps_a_thousand_times_a_second_is_given_out_as_it_goes() {
        let faults = [outage(0, Some(ms(1)), 0)];
        let mut faults = faults;
        faults[0].duration = Some(Duration::from_micros(500));
        let mut injector = Injector::new(&faults, 1);
        injector.begin(None, Instant::ZERO, Instant::NEVER, &Topology::default());
        for second in 0..100u64 {
            let batch = injector.advance(at(ms(1_000 * second + 999)));
            assert_eq!(batch.occurrences.len(), 1_000);
        }
        assert!(!injector.exhausted());
        assert_eq!(injector.advance(Instant::NEVER).occurrences.len(), OCCURRENCES_MAX - 100_000);
        assert!(injector.exhausted() && injector.advance(Instant::NEVER) == Batch::default());
    }

    #[test]
    fn a_hundred_thousand_faults_are_given_out() {
        let faults: Vec<Fault> = (0..100_000).map(|number| outage(number, None, 1)).collect();
        assert_eq!(all(&faults, Duration::from_secs(1_000)).len(), 400_000);
    }
}
