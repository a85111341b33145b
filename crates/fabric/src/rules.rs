//! What happens on a link to the packets that a rule selects.

use crate::chance::{self, Chance, Generator, Spread};
use crate::packet::Packet;
use rand_core::Rng;
use std::collections::BTreeMap;
use weir_core::schedule::{Effect, Match, Rule};

/// In the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    active: Vec<Active>,
    /// Delays that have ended while packets were still on their way.
    ended: Vec<Ended>,
    /// How often each number has been set, so that each time has draws of its own.
    times_set: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Active {
    number: u32,
    matches: Match,
    /// Where only a share of what matches is meant.
    some: Option<Spread>,
    does: Does,
}

#[derive(Debug)]
enum Does {
    Cut,
    Lose { chance: Chance, generator: Generator },
    Corrupt { chance: Chance, generator: Generator },
    Delay { by_ns: u64, last_arrival_ns: u64 },
    DelaySome { spread: Spread, by_ns: u64 },
}

/// A delay that is over. What it delayed is not overtaken by what matches it too and comes after it.
#[derive(Debug)]
struct Ended {
    matches: Match,
    last_arrival_ns: u64,
}

/// What the rules do to a segment that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Lost,
    /// Arrives at this instant instead of the one it was asked about.
    Arrives(u64),
}

impl Rules {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.ended.is_empty()
    }

    /// Sets the rule with this number anew, or ends it. `name` is the link's, `run_seed` the run's.
    pub(crate) fn set(&mut self, number: u32, rule: Option<Box<Rule>>, run_seed: u64, name: &str) {
        if let Ok(index) = self.active.binary_search_by_key(&number, |active| active.number) {
            let Active { matches, some, does, .. } = self.active.remove(index);
            if some.is_none()
                && let Does::Delay { last_arrival_ns, .. } = does
            {
                self.ended.push(Ended { matches, last_arrival_ns });
            }
        }
        let Some(rule) = rule else { return };
        let Rule { matches, effect } = *rule;
        let times = self.times_set.entry(number).or_default();
        let generator = || chance::generator(run_seed, &format!("{name}.rule.{number}.{times}"));
        let does = match effect {
            Effect::Outage => Does::Cut,
            Effect::Loss(ratio) => Does::Lose { chance: Chance::of(ratio), generator: generator() },
            Effect::Corrupt(ratio) => Does::Corrupt { chance: Chance::of(ratio), generator: generator() },
            Effect::Delay(by_ns) => Does::Delay { by_ns, last_arrival_ns: 0 },
            Effect::DelaySome { share, by_ns } => Does::DelaySome { spread: Spread::of(share), by_ns },
        };
        *times += 1;
        let some = (matches.share < 1.0).then(|| Spread::of(matches.share));
        let index = self.active.partition_point(|active| active.number < number);
        self.active.insert(index, Active { number, matches, some, does });
    }

    /// Ends all of them and begins their draws anew.
    pub(crate) fn clear(&mut self) {
        for Active { matches, some, does, .. } in self.active.drain(..) {
            if some.is_none()
                && let Does::Delay { last_arrival_ns, .. } = does
            {
                self.ended.push(Ended { matches, last_arrival_ns });
            }
        }
        self.times_set.clear();
    }

    /// What becomes of a segment (or a run, where nothing needs single ones) that would arrive at `arrival_ns`, which is not
    /// before anything that was sent earlier and not delayed.
    pub(crate) fn judge(&mut self, packet: &mut Packet, arrival_ns: u64) -> Verdict {
        self.ended.retain(|ended| ended.last_arrival_ns > arrival_ns);
        let (mut at_ns, mut late_ns) = (arrival_ns, 0_u64);
        for ended in &self.ended {
            if selects(&ended.matches, packet) {
                at_ns = at_ns.max(ended.last_arrival_ns);
            }
        }
        for active in &mut self.active {
            if !selects(&active.matches, packet) || active.some.as_mut().is_some_and(|some| !some.takes()) {
                continue;
            }
            match &mut active.does {
                Does::Cut => return Verdict::Lost,
                Does::Lose { chance, generator } => {
                    if chance.hits(generator) {
                        return Verdict::Lost;
                    }
                }
                Does::Corrupt { chance, generator } => {
                    if chance.hits(generator) {
                        packet.invert(generator.next_u64());
                    }
                }
                Does::Delay { by_ns, last_arrival_ns } => {
                    at_ns = at_ns.saturating_add(*by_ns).max(*last_arrival_ns);
                    *last_arrival_ns = at_ns;
                }
                Does::DelaySome { spread, by_ns } => {
                    if spread.takes() {
                        late_ns = late_ns.saturating_add(*by_ns);
                    }
                }
            }
        }
        // Beside the others, because what is late must not hold back those that a delay keeps in order.
        Verdict::Arrives(at_ns.saturating_add(late_ns))
    }
}

fn selects(matches: &Match, packet: &Packet) -> bool {
    // The share is counted where the effect is.
    let Match { from, to, port, protocol, share: _ } = matches;
    let among = |hosts: &[u32], host: Option<u32>| {
        hosts.is_empty() || host.is_some_and(|host| hosts.binary_search(&host).is_ok())
    };
    protocol.is_none_or(|protocol| packet.protocol() == Some(protocol))
        && port.is_none_or(|port| packet.ports().contains(&port))
        && among(from, packet.from())
        && among(to, u32::try_from(packet.to()).ok())
}
