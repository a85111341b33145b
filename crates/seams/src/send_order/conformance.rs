//! Claims every send order must keep: `docs/specs/event-building.md#order-1`.

use super::{SendOrder, SendOrderEntry, Sendable};
use crate::entry::conformance::variants;
use crate::scheduler::BuilderId;
use std::collections::BTreeMap;
use weir_core::{Values, seed};

const SEEDS: u64 = 24;
const STEPS: u64 = 2_000;
/// The last is beyond any table that is kept by slot.
const SLOTS: [u32; 6] = [0, 1, 2, 3, 900, u32::MAX];

/// What is pushed comes out once and at its own builder, whether popped, removed or drained; a look changes nothing; a turn goes to a
/// builder that is ready and has something.
pub fn check(entry: &SendOrderEntry) {
    crate::entry::conformance::check(entry);
    for values in variants(entry.params) {
        for seed in 0..SEEDS {
            walk(entry, &values, seed);
        }
    }
}

/// What is pushed and not yet out, by heartbeat.
type Pending = BTreeMap<u64, Sendable>;

fn walk(entry: &SendOrderEntry, values: &Values, seed: u64) {
    let mut order = (entry.build)(values);
    let mut pending = Pending::new();
    let mut draws = (0..).map(|draw: u64| seed::split(seed << 32 | draw, "send order"));
    let mut draw = |bound: u64| draws.next().expect("draws do not end") % bound;
    for step in 0..STEPS {
        let place = format!("{}: seed {seed}, step {step}", entry.name);
        let builder = BuilderId(SLOTS[draw(SLOTS.len() as u64) as usize]);
        match draw(12) {
            0..=5 => {
                // Mostly ascending; some come again, as those of a builder that died do.
                let heartbeat = if draw(4) == 0 { draw(step + 1) } else { step };
                let fragment = Sendable { heartbeat, builder, bytes: draw(5_000) as u32 };
                if pending.get(&heartbeat).is_some_and(|there| there.builder != builder) {
                    assert_eq!(order.remove(heartbeat), pending.remove(&heartbeat), "{place}");
                }
                order.push(fragment);
                pending.insert(heartbeat, fragment);
            }
            6 => {
                let heartbeat = draw(step + 1);
                assert_eq!(order.remove(heartbeat), pending.remove(&heartbeat), "{place}: {heartbeat}");
            }
            7 if draw(20) == 0 => drain(order.as_mut(), &mut pending, builder, &place),
            _ => {
                let bits = draw(1 << SLOTS.len());
                let ready: Vec<BuilderId> = (0..SLOTS.len())
                    .filter(|bit| bits >> bit & 1 == 1)
                    .map(|bit| BuilderId(SLOTS[bit]))
                    .collect();
                send(order.as_mut(), &mut pending, &ready, &place);
            }
        }
    }
    for slot in SLOTS {
        drain(order.as_mut(), &mut pending, BuilderId(slot), entry.name);
    }
    assert!(pending.is_empty(), "{}: {pending:?} never came out", entry.name);
    assert_eq!(order.turn(&SLOTS.map(BuilderId)), None, "{}: something came from nowhere", entry.name);
}

fn send(order: &mut dyn SendOrder, pending: &mut Pending, ready: &[BuilderId], place: &str) {
    let with_something = |id: &BuilderId| pending.values().any(|fragment| fragment.builder == *id);
    let Some(builder) = order.turn(ready) else {
        assert!(!ready.iter().any(with_something), "{place}: nobody of {ready:?} has a turn");
        return;
    };
    assert!(ready.contains(&builder), "{place}: {builder:?} has its turn and is not in {ready:?}");
    assert!(with_something(&builder), "{place}: {builder:?} has its turn and nothing to be sent");
    let seen = order.peek(builder);
    assert_eq!(order.peek(builder), seen, "{place}: a look changed what is next");
    let popped = order.pop(builder);
    assert_eq!(popped, seen, "{place}: another came than was seen");
    let fragment = popped.expect(place);
    assert_eq!(fragment.builder, builder, "{place}: a fragment of another builder");
    assert_eq!(pending.remove(&fragment.heartbeat), Some(fragment), "{place}: not what was pushed");
}

fn drain(order: &mut dyn SendOrder, pending: &mut Pending, builder: BuilderId, place: &str) {
    let mut drained = order.drain(builder);
    drained.sort_by_key(|fragment| fragment.heartbeat);
    let expected: Vec<Sendable> =
        pending.values().copied().filter(|fragment| fragment.builder == builder).collect();
    assert_eq!(drained, expected, "{place}: drained of {builder:?}");
    pending.retain(|_, fragment| fragment.builder != builder);
    assert_eq!((order.peek(builder), order.pop(builder)), (None, None), "{place}: more after a drain");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    /// The plainest order there is, with one fault.
    #[derive(Default)]
    struct Plain {
        held: Vec<Sendable>,
        fault: Fault,
    }

    #[derive(Clone, Copy, Default, PartialEq)]
    enum Fault {
        #[default]
        None,
        DoublesWhatComesAgain,
        LooksAreTaken,
        TurnsForTheIdle,
        DrainsOne,
    }

    impl SendOrder for Plain {
        fn push(&mut self, fragment: Sendable) {
            if self.fault != Fault::DoublesWhatComesAgain {
                self.remove(fragment.heartbeat);
            }
            self.held.push(fragment);
        }
        fn remove(&mut self, heartbeat: u64) -> Option<Sendable> {
            let at = self.held.iter().position(|fragment| fragment.heartbeat == heartbeat)?;
            Some(self.held.remove(at))
        }
        fn peek(&mut self, builder: BuilderId) -> Option<Sendable> {
            if self.fault == Fault::LooksAreTaken {
                return self.pop(builder);
            }
            self.held.iter().find(|fragment| fragment.builder == builder).copied()
        }
        fn pop(&mut self, builder: BuilderId) -> Option<Sendable> {
            let at = self.held.iter().position(|fragment| fragment.builder == builder)?;
            Some(self.held.remove(at))
        }
        fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId> {
            if self.fault == Fault::TurnsForTheIdle {
                return ready.first().copied();
            }
            let found = self.held.iter().find(|fragment| ready.contains(&fragment.builder));
            found.map(|fragment| fragment.builder)
        }
        fn drain(&mut self, builder: BuilderId) -> Vec<Sendable> {
            let most = if self.fault == Fault::DrainsOne { 1 } else { usize::MAX };
            std::iter::from_fn(|| self.pop(builder)).take(most).collect()
        }
    }

    fn entry(build: fn(&Values) -> Box<dyn SendOrder>) -> SendOrderEntry {
        Entry { name: "plain", about: "in the order of pushing", params: &[], needs: &[], build }
    }

    macro_rules! with {
        ($fault:ident) => {
            check(&entry(|_| Box::new(Plain { fault: Fault::$fault, ..Plain::default() })))
        };
    }

    #[test]
    fn the_plainest_order_passes() {
        with!(None);
    }

    #[test]
    #[should_panic(expected = "not what was pushed")]
    fn a_fragment_that_comes_out_twice_is_caught() {
        with!(DoublesWhatComesAgain);
    }

    #[test]
    #[should_panic(expected = "a look changed what is next")]
    fn a_look_that_takes_is_caught() {
        with!(LooksAreTaken);
    }

    #[test]
    #[should_panic(expected = "nothing to be sent")]
    fn a_turn_for_a_builder_without_fragments_is_caught() {
        with!(TurnsForTheIdle);
    }

    #[test]
    #[should_panic(expected = "drained of")]
    fn a_drain_that_leaves_some_is_caught() {
        with!(DrainsOne);
    }
}
