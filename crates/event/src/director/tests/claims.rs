use super::parts::Policy;
use super::world::{Fault, MS, World, seeds, settings, with_seed};
use crate::ledger::{Reason, Totals};
use std::collections::BTreeMap;

const POLICIES: [Policy; 3] = [Policy::Whitelist, Policy::Blacklist, Policy::Reinitialise];
const LIMIT: u64 = 60_000 * MS;

fn finish(world: &mut World) -> Totals {
    world.run_until(LIMIT);
    if !world.finished {
        world.trace.iter().for_each(|line| eprintln!("{line}"));
    }
    assert!(world.finished, "the run has not ended: {:?}", world.totals());
    let totals = world.totals();
    assert!(totals.is_closed() && totals.held == 0, "{totals:?}");
    totals
}

fn all_complete(world: &mut World) {
    let totals = finish(world);
    if totals.complete != totals.generated {
        world.trace.iter().for_each(|line| eprintln!("{line}"));
    }
    assert_eq!((totals.complete, totals.generated), (600, 600), "{totals:?}");
}

// Spec: event-building.md#beats-1
#[test]
fn without_faults_every_event_is_complete_and_on_time() {
    for policy in POLICIES {
        for (sources, builders) in [(1, 1), (2, 5), (6, 3)] {
            let mut world = World::new(1, sources, builders, policy, settings());
            all_complete(&mut world);
            assert_eq!(world.totals().aside.reassigned, 0);
            // The first heartbeat, 599 gaps of 5 ms, and the way of the last event.
            assert!(world.now < 1_000 * MS + 1_000 * MS + 2_995 * MS, "it took until {} ms", world.now / MS);
        }
    }
}

// Spec: event-building.md#failure-3
#[test]
fn no_event_is_lost_when_builders_die_hang_or_are_cut_off() {
    let mut kinds = BTreeMap::new();
    let mut reassigned = 0;
    for seed in seeds(120) {
        with_seed(seed, |seed| {
            let policy = POLICIES[seed as usize % 3];
            let (sources, builders) = (1 + seed as usize % 3, 2 + seed as usize % 4);
            let mut world = World::new(seed, sources, builders, policy, settings());
            if seed % 2 == 1 {
                world = world.varying();
            }
            for _ in 0..3 {
                let at = world.random.within(1_300 * MS, 4_000 * MS);
                let peer = sources + world.random.within(0, builders as u64) as usize;
                let how_long = world.random.within(50 * MS, 1_500 * MS);
                let fault = match world.random.within(0, 4) {
                    0 => Fault::Kill { peer, down: how_long },
                    1 => Fault::Hang { peer, how_long },
                    2 => Fault::CutData { peer, how_long },
                    _ => Fault::CutControl { peer, how_long },
                };
                world.fault_at(at, fault);
            }
            all_complete(&mut world);
            reassigned += world.totals().aside.reassigned;
            for failure in world.failures() {
                assert!(failure.recover_ns.is_some(), "{failure:?}");
                *kinds.entry(format!("{:?}", failure.kind)).or_insert(0) += 1;
            }
        });
    }
    println!("failures {kinds:?}, events assigned again {reassigned}");
    if kinds.len() > 1 {
        for kind in ["Closed", "Silent", "Stuck"] {
            assert!(kinds.contains_key(kind), "no fault was seen as {kind}: {kinds:?}");
        }
        assert!(reassigned > 100, "the faults hit nothing");
    }
}

// Spec: event-building.md#failure-4
#[test]
fn no_event_is_lost_when_sources_are_away_for_less_than_the_deadline() {
    for seed in seeds(120) {
        with_seed(seed, |seed| {
            let policy = POLICIES[seed as usize % 3];
            let (sources, builders) = (1 + seed as usize % 3, 1 + seed as usize % 4);
            let mut world = World::new(seed, sources, builders, policy, settings());
            if seed % 2 == 1 {
                world = world.varying();
            }
            for _ in 0..3 {
                let at = world.random.within(1_300 * MS, 4_000 * MS);
                let peer = world.random.within(0, (sources + builders) as u64) as usize;
                let how_long = world.random.within(50 * MS, 2_000 * MS);
                let fault = match world.random.within(0, 4) {
                    0 => Fault::Kill { peer, down: how_long },
                    1 => Fault::Hang { peer, how_long },
                    2 => Fault::CutData { peer, how_long },
                    _ => Fault::CutControl { peer, how_long },
                };
                world.fault_at(at, fault);
            }
            all_complete(&mut world);
        });
    }
}

// Spec: event-building.md#failure-5
#[test]
fn a_scheduler_that_is_started_again_goes_on_and_only_heartbeats_that_nobody_saw_are_missing() {
    for seed in seeds(120) {
        with_seed(seed, |seed| {
            let policy = POLICIES[seed as usize % 3];
            let (sources, builders) = (2 + seed as usize % 2, 1 + seed as usize % 4);
            let mut world = World::new(seed, sources, builders, policy, settings());
            if seed % 2 == 1 {
                world = world.varying();
            }
            let mut down_total = 0;
            for _ in 0..1 + seed % 2 {
                let at = world.random.within(1_300 * MS, 3_500 * MS);
                let down = world.random.within(1, 600 * MS);
                down_total += down;
                world.fault_at(at, Fault::KillDirector { down });
            }
            if seed % 3 == 0 {
                let (at, how_long) = (world.random.within(1_300 * MS, 4_000 * MS), 300 * MS);
                let peer = sources + world.random.within(0, builders as u64) as usize;
                world.fault_at(at, Fault::Kill { peer, down: how_long });
            }
            let totals = finish(&mut world);
            let missed = totals.dropped[&Reason::NoScheduler];
            assert_eq!(totals.complete + missed, totals.generated, "{totals:?}");
            assert_eq!(totals.generated, 600);
            // 200 Hz, while it was down and while it was learning: peers try every 200 ms and are heard out for 300 ms.
            let most = (down_total + (1 + seed % 2) * 750 * MS) / (5 * MS);
            assert!(missed <= most, "{missed} of at most {most} heartbeats are missing");
        });
    }
}

// Spec: event-building.md#failure-4
#[test]
fn events_that_need_a_source_which_stays_away_are_dropped_with_that_reason() {
    let mut world = World::new(3, 2, 2, Policy::Whitelist, settings());
    world.settings.source_deadline = std::time::Duration::from_secs(1);
    world.fault_at(world.now, Fault::KillDirector { down: 1 });
    world.fault_at(2_000 * MS, Fault::Kill { peer: 0, down: 3_000 * MS });
    let totals = finish(&mut world);
    let lost = totals.dropped[&Reason::SourceLost];
    assert_eq!(totals.complete + lost, totals.generated, "{totals:?}");
    assert!(lost >= 400, "{totals:?}");
}

// Spec: event-building.md#credits-1
#[test]
fn what_finds_no_room_is_dropped_whole_at_birth_and_memory_stays_within_bounds() {
    for seed in 0..6 {
        let mut world = World::new(seed, 2, 2, Policy::Whitelist, settings());
        if seed % 2 == 1 {
            world = world.varying();
        }
        world.buffer_bytes = 20 * super::world::FRAGMENT;
        world.memory_bytes = 10 * super::world::FRAGMENT;
        let cut = |peer| Fault::CutData { peer, how_long: 1_000 * MS };
        world.fault_at(2_000 * MS, cut(2));
        world.fault_at(2_000 * MS, cut(3));
        let totals = finish(&mut world);
        let dropped = totals.dropped[&Reason::NoCredit] + totals.dropped[&Reason::NoBuilder];
        assert_eq!(totals.complete + dropped, 600, "{totals:?}");
        assert!(dropped > 100 && totals.dropped[&Reason::NoBuilder] > 0, "{totals:?}");
    }
}
