use super::{DEFAULT, SCHEDULERS, entry};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant as Clock;
use weir_core::{Bytes, Instant, Value, Values, seed};
use weir_seams::scheduler::{Builder, BuilderId, Builders, Scheduler, SchedulerEntry, Wanted, conformance};

/// What a core does with a scheduler, and no more.
struct Yard {
    builders: Builders,
    scheduler: Box<dyn Scheduler>,
    in_flight: VecDeque<(BuilderId, u64)>,
    heartbeat: u64,
    /// Events by slot.
    counts: BTreeMap<u32, u64>,
}

impl Yard {
    fn new(name: &str, values: &[(&str, Value)]) -> Yard {
        let entry = entry(name).expect(name);
        let mut all = Values::defaults(entry.params);
        values.iter().for_each(|(key, value)| all.set(key, value.clone()));
        Yard::of(entry, &all)
    }

    fn of(entry: &SchedulerEntry, values: &Values) -> Yard {
        Yard {
            builders: Builders::default(),
            scheduler: (entry.build)(values),
            in_flight: VecDeque::new(),
            heartbeat: 0,
            counts: BTreeMap::new(),
        }
    }

    /// Builders 0, 1, 2 … on hosts 0, 1, 2 ….
    fn with(mut self, memories: &[u64]) -> Yard {
        for (slot, memory_bytes) in (0..).zip(memories) {
            self.list(slot, slot, *memory_bytes);
        }
        self
    }

    fn list(&mut self, slot: u32, host: u32, memory_bytes: u64) {
        let id = BuilderId(slot);
        self.builders.list(Builder { id, host, memory_bytes, outstanding_bytes: 0, outstanding_events: 0 });
        self.scheduler.on_membership(id, &self.builders);
    }

    fn unlist(&mut self, slot: u32) {
        self.builders.unlist(BuilderId(slot));
        self.scheduler.on_membership(BuilderId(slot), &self.builders);
    }

    /// Assigns the next event, of which most comes from `host`.
    fn assign_from(&mut self, host: u32, bytes: u64) -> Option<u32> {
        let event = Wanted { heartbeat: self.heartbeat, bytes, host, membership_epoch: 0 };
        let id = self.scheduler.choose(Instant::from_ns(self.heartbeat), &event, &self.builders)?;
        self.heartbeat += 1;
        self.builders.charge(id, bytes);
        self.scheduler.on_load(id, &self.builders);
        self.in_flight.push_back((id, bytes));
        *self.counts.entry(id.0).or_default() += 1;
        Some(id.0)
    }

    fn assign(&mut self, bytes: u64) -> Option<u32> {
        self.assign_from(u32::MAX, bytes)
    }

    fn end(&mut self, id: BuilderId, bytes: u64) {
        self.builders.discharge(id, bytes);
        self.scheduler.on_load(id, &self.builders);
    }

    fn end_oldest(&mut self) {
        if let Some((id, bytes)) = self.in_flight.pop_front() {
            self.end(id, bytes);
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.counts.values().copied().collect()
    }
}

fn choice(text: &str) -> Value {
    Value::Text(text.to_owned())
}

// Spec: event-building.md#choose-1, event-building.md#choose-2, event-building.md#choose-3
#[test]
fn every_scheduler_keeps_the_claims_of_the_seam() {
    weir_seams::entry::conformance::check_all(SCHEDULERS);
    SCHEDULERS.iter().for_each(conformance::check);
}

#[test]
fn every_algorithm_has_its_name_and_the_one_used_unless_asked_exists() {
    let names: Vec<&str> = SCHEDULERS.iter().map(|entry| entry.name).collect();
    let expected = [
        "least-outstanding",
        "round-robin",
        "memory-aware",
        "two-choices",
        "same-host",
        "membership-hash",
        "weighted-calendar",
    ];
    assert_eq!(names, expected);
    assert!(entry(DEFAULT).is_some() && entry("barrel-shift").is_none());
}

/// Whom a scheduler chose for each of the same events, over builders that differ in host, memory and speed.
fn choices(entry: &SchedulerEntry, values: &Values) -> Vec<Option<u32>> {
    let mut yard = Yard::of(entry, values).with(&[40_000, 60_000, 80_000, 100_000]);
    let choose = |event: u64| {
        let bytes = 1 + seed::split(event, "size") % 6_000;
        let chosen = yard.assign_from((seed::split(event, "host") % 4) as u32, bytes);
        // The first is never done, so that it fills; the others are, in the order in which they began.
        if !event.is_multiple_of(5)
            && let Some(place) = yard.in_flight.iter().position(|(id, _)| *id != BuilderId(0))
            && let Some((id, bytes)) = yard.in_flight.remove(place)
        {
            yard.end(id, bytes);
        }
        chosen
    };
    (0..4_000).map(choose).collect()
}

// Spec: scenario.md#member-3
#[test]
fn every_parameter_of_a_scheduler_moves_its_choices() {
    let mut tried = 0;
    for entry in SCHEDULERS {
        let defaults = Values::defaults(entry.params);
        let before = choices(entry, &defaults);
        for param in entry.params {
            let moves = weir_seams::entry::conformance::values_of(param).into_iter().any(|value| {
                let mut values = defaults.clone();
                values.set(param.name, value);
                choices(entry, &values) != before
            });
            assert!(moves, "{}: no value of {} changes anything", entry.name, param.name);
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried} parameters were tried");
}

// Spec: event-building.md#choose-4
#[test]
fn round_robin_gives_every_builder_the_same_count() {
    let mut yard = Yard::new("round-robin", &[]).with(&[1_000; 7]);
    for event in 0..7_000 {
        yard.assign(1 + event % 90).expect("there is room");
        if event > 20 {
            yard.end_oldest();
        }
    }
    assert_eq!(yard.counts(), [1_000; 7]);
    yard.unlist(3);
    yard.counts.clear();
    for _ in 0..6_000 {
        yard.end_oldest();
        yard.assign(10).expect("there is room");
    }
    assert_eq!(yard.counts, [0, 1, 2, 4, 5, 6].map(|slot| (slot, 1_000)).into());
}

// Spec: event-building.md#choose-4
#[test]
fn round_robin_passes_a_full_builder_over_or_waits_for_it_as_it_is_told() {
    let memories = [100, 50, 100, 20];
    let mut next = Yard::new("round-robin", &[]).with(&memories);
    let sent: Vec<_> = (0..6).map(|_| next.assign(40)).collect();
    // Builder 1 has room for one, builder 3 for none.
    assert_eq!(sent, [Some(0), Some(1), Some(2), Some(0), Some(2), None]);
    let mut hold = Yard::new("round-robin", &[("when_full", choice("hold"))]).with(&memories);
    let sent: Vec<_> = (0..6).map(|_| hold.assign(40)).collect();
    assert_eq!(sent, [Some(0), Some(1), Some(2), Some(0), None, None]);
    hold.end(BuilderId(1), 40);
    assert_eq!((hold.assign(40), hold.assign(40)), (Some(1), Some(2)));
}

// Spec: event-building.md#choose-7
#[test]
fn memory_aware_fills_until_all_have_the_same_left() {
    let mut yard = Yard::new("memory-aware", &[]).with(&[10_000, 20_000, 40_000]);
    for _ in 0..400 {
        yard.assign(100).expect("there is room");
    }
    let free: Vec<u64> = yard.builders.iter().map(Builder::free_bytes).collect();
    assert_eq!(free, [10_000; 3]);
    // From here on they are alike and have their turns.
    yard.counts.clear();
    for _ in 0..300 {
        yard.assign(100).expect("there is room");
    }
    assert_eq!((yard.counts(), yard.assign(1)), (vec![100; 3], None));
}

/// Builders work off so many bytes a tick each, of what they were given first. One event of 1,000 bytes a tick, as far as there is room.
/// Returns, of the second half, events by slot and the most that was outstanding at each.
fn work(name: &str, speeds: &[u64], ticks: u64) -> (Vec<u64>, Vec<u64>) {
    const BYTES: u64 = 1_000;
    let mut yard = Yard::new(name, &[]).with(&vec![20 * BYTES; speeds.len()]);
    let mut worked = vec![0; speeds.len()];
    let mut fullest = vec![0; speeds.len()];
    for tick in 0..ticks {
        if tick == ticks / 2 {
            yard.counts = (0..).zip(speeds).map(|(slot, _)| (slot, 0)).collect();
            fullest.fill(0);
        }
        for (slot, speed) in speeds.iter().enumerate() {
            let id = BuilderId(slot as u32);
            let waiting = |yard: &Yard| yard.builders.get(id).expect("is listed").outstanding_bytes;
            fullest[slot] = waiting(&yard).max(fullest[slot]);
            worked[slot] = if waiting(&yard) == 0 { 0 } else { worked[slot] + speed };
            while worked[slot] >= BYTES && waiting(&yard) > 0 {
                worked[slot] -= BYTES;
                yard.end(id, BYTES);
            }
        }
        yard.assign(BYTES);
    }
    (yard.counts(), fullest)
}

// Spec: event-building.md#choose-6
#[test]
fn least_outstanding_follows_the_speeds_of_the_builders() {
    // Together 84 % of what is asked of them: whoever is slow is full, the others take what they can.
    let (counts, _) = work("least-outstanding", &[120, 240, 480], 20_000);
    for (count, expected) in counts.iter().zip([1_200, 2_400, 4_800]) {
        assert!(count.abs_diff(expected) <= expected / 50, "{counts:?}");
    }
    // With capacity to spare the slow one has less than a third, and the fast one more.
    let (counts, _) = work("least-outstanding", &[200, 400, 800], 20_000);
    assert!(counts[0] < 2_500 && counts[2] > 4_000, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 10_000, "all were assigned");
}

// Spec: event-building.md#choose-6
#[test]
fn of_builders_loaded_alike_the_one_chosen_longest_ago_is_next() {
    for name in ["least-outstanding", "memory-aware", "same-host"] {
        let mut yard = Yard::new(name, &[]).with(&[1_000; 5]);
        for _ in 0..500 {
            // Each ends before the next: all are idle whenever one is chosen.
            yard.assign(10).expect("there is room");
            yard.end_oldest();
        }
        assert_eq!(yard.counts(), [100; 5], "{name}");
    }
}

// Spec: event-building.md#choose-8
#[test]
fn two_choices_keep_the_fullest_builder_far_below_what_one_choice_gives() {
    const BUILDERS: usize = 1_750;
    let mut one_choice_max = u64::MAX;
    for run in 1..=20 {
        let mut yard = Yard::new("two-choices", &[("seed", Value::Count(run))]).with(&[1_000; BUILDERS]);
        let mut one_choice = vec![0; BUILDERS];
        for event in 0..BUILDERS as u64 {
            yard.assign(1).expect("there is room");
            one_choice[(seed::split(run << 32 | event, "one choice") % BUILDERS as u64) as usize] += 1;
        }
        let fullest = yard.counts().into_iter().max();
        // ln ln n / ln 2 is 2.9.
        assert!(fullest <= Some(4), "seed {run}: {fullest:?}");
        one_choice_max = one_choice_max.min(*one_choice.iter().max().expect("there are builders"));
    }
    assert!(one_choice_max > 4, "the comparison shows nothing: {one_choice_max}");
}

// Spec: event-building.md#choose-3
#[test]
fn another_seed_gives_other_draws() {
    let draws = |run| {
        let mut yard = Yard::new("two-choices", &[("seed", Value::Count(run))]).with(&[1_000; 50]);
        (0..50).map(|_| yard.assign(1)).collect::<Vec<_>>()
    };
    assert_eq!(draws(7), draws(7));
    assert_ne!(draws(7), draws(8));
}

// Spec: event-building.md#choose-9
#[test]
fn same_host_prefers_the_events_host_and_goes_elsewhere_when_nobody_there_has_room() {
    let mut yard = Yard::new("same-host", &[]);
    for (slot, host) in [(0, 7), (1, 7), (2, 8), (3, 9)] {
        yard.list(slot, host, 100);
    }
    // Both builders there, in turns, while they have room.
    let sent: Vec<_> = (0..4).map(|_| yard.assign_from(7, 40)).collect();
    assert_eq!(sent, [Some(0), Some(1), Some(0), Some(1)]);
    assert_eq!(yard.assign_from(7, 40), Some(2), "the first of the idle ones");
    assert_eq!(yard.assign_from(6, 40), Some(3), "nobody is on host 6");
    yard.end(BuilderId(1), 40);
    assert_eq!(yard.assign_from(7, 40), Some(1), "there is room at home again");
}

// Spec: event-building.md#choose-9
#[test]
fn same_host_prefers_nobody_who_is_further_ahead_than_its_lead() {
    let mut yard = Yard::new("same-host", &[("lead", Value::Size(Bytes(100)))]).with(&[10_000; 4]);
    for _ in 0..1_000 {
        yard.assign_from(0, 30);
        let loads: Vec<u64> = yard.builders.iter().map(|builder| builder.outstanding_bytes).collect();
        let least = *loads[1..].iter().min().expect("there are others");
        assert!(loads[0] <= least + 100 + 30, "{loads:?}");
    }
    assert!(yard.counts[&0] > yard.counts[&1], "{:?}", yard.counts);
}

// Spec: event-building.md#choose-10
#[test]
fn a_weighted_calendar_learns_what_each_builder_can_do() {
    let speeds = [200, 400, 800];
    let (counts, fullest) = work("weighted-calendar", &speeds, 100_000);
    assert_eq!(counts.iter().sum::<u64>(), 50_000, "all were assigned: {counts:?}");
    assert!(fullest.iter().all(|bytes| *bytes < 20_000), "no builder is full: {fullest:?}, {counts:?}");
    // Turns alone leave the slow one full for good.
    assert_eq!(work("round-robin", &speeds, 100_000).1[0], 20_000);
}

// Spec: event-building.md#choose-10
#[test]
fn a_weighted_calendar_of_builders_alike_is_a_round_and_keeps_a_place_for_the_fullest() {
    let strong = ("integral", Value::Ratio(100.0));
    let mut yard = Yard::new("weighted-calendar", &[strong]).with(&[1_000_000; 4]);
    let sent: Vec<_> = (0..8).map(|_| yard.assign(1)).collect();
    assert_eq!(sent, [0, 1, 2, 3, 0, 1, 2, 3].map(Some));
    // Builder 2 never ends anything: in the end it has its one place, and the others share the rest.
    for _ in 0..512 * 200 {
        yard.assign(1).expect("there is room");
        let (id, bytes) = yard.in_flight.pop_back().expect("the last one");
        if id != BuilderId(2) {
            yard.end(id, bytes);
        }
    }
    yard.counts.clear();
    for _ in 0..512 {
        yard.assign(1).expect("there is room");
    }
    let counts = yard.counts();
    assert!(counts[2] == 1 && counts[0].abs_diff(counts[3]) <= 1, "{counts:?}");
}

fn hash(memories: &[u64], when_full: &str) -> Yard {
    Yard::new("membership-hash", &[("when_full", choice(when_full))]).with(memories)
}

/// Which builder each of the first so many heartbeats belongs to, nothing being outstanding.
fn row(yard: &mut Yard, count: u64) -> Vec<u32> {
    yard.heartbeat = 0;
    let mut of = |_| {
        let slot = yard.assign(1).expect("there is room");
        yard.end_oldest();
        slot
    };
    (0..count).map(&mut of).collect()
}

// Spec: event-building.md#choose-5
#[test]
fn membership_hash_gives_the_vectors_of_the_specification() {
    let mut five = hash(&[100; 5], "hold");
    assert_eq!(row(&mut five, 12), [3, 3, 0, 4, 3, 3, 0, 1, 0, 2, 2, 0]);
    five.unlist(0);
    assert_eq!(row(&mut five, 12), [3, 3, 4, 4, 3, 3, 4, 1, 4, 2, 2, 1]);
    let apart = |slots: [u32; 3]| {
        let mut yard = Yard::new("membership-hash", &[]);
        slots.iter().for_each(|slot| yard.list(*slot, 0, 100));
        row(&mut yard, 12)
    };
    assert_eq!(apart([3, 40, 70]), [3, 70, 70, 40, 3, 3, 3, 40, 70, 3, 40, 3]);
    // So far apart that all of them are numbered.
    assert_eq!(
        apart([3, 1_000, 70_000]),
        [3, 70_000, 70_000, 70_000, 3, 1_000, 3, 1_000, 1_000, 3, 1_000, 3]
    );
}

// Spec: event-building.md#choose-5
#[test]
fn membership_hash_asks_neither_load_nor_history() {
    let quiet = row(&mut hash(&[1_000_000; 9], "hold"), 2_000);
    let mut busy = hash(&[1_000_000; 9], "hold");
    for event in 0..500 {
        busy.assign(1 + event % 700);
    }
    busy.unlist(4);
    for _ in 0..500 {
        busy.assign(300);
    }
    busy.list(4, 0, 1_000_000);
    assert_eq!(row(&mut busy, 2_000), quiet);
}

// Spec: event-building.md#choose-5
#[test]
fn membership_hash_moves_only_the_events_of_who_left_and_gives_them_back() {
    let mut yard = hash(&[1_000; 20], "hold");
    let before = row(&mut yard, 20_000);
    for slot in 0..20 {
        let share = before.iter().filter(|at| **at == slot).count();
        assert!((850..1_150).contains(&share), "builder {slot} has {share} of 20000 events");
    }
    // One from the middle, and the highest after the one below it.
    for gone in [7, 18, 19] {
        let all = row(&mut yard, 20_000);
        yard.unlist(gone);
        let without = row(&mut yard, 20_000);
        assert!(all.iter().zip(&without).all(|(old, new)| if *old == gone {
            *new != gone
        } else {
            old == new
        }));
    }
    [7, 18, 19].iter().for_each(|slot| yard.list(*slot, *slot, 1_000));
    assert_eq!(row(&mut yard, 20_000), before);
    yard.list(20, 20, 1_000);
    let with = row(&mut yard, 20_000);
    let moved = before.iter().zip(&with).filter(|(old, new)| old != new).count();
    assert!(before.iter().zip(&with).all(|(old, new)| old == new || *new == 20));
    assert!((800..1_100).contains(&moved), "a 21st builder took {moved} of 20000");
}

// Spec: event-building.md#choose-5
#[test]
fn membership_hash_waits_for_a_full_builder_or_goes_on_and_passes_over_a_small_one_either_way() {
    let first = row(&mut hash(&[100; 4], "hold"), 1)[0];
    let mut hold = hash(&[100; 4], "hold");
    assert_eq!(hold.assign(80), Some(first));
    hold.heartbeat = 0;
    assert_eq!(hold.assign(80), None, "heartbeat 0 belongs to {first}");
    hold.end_oldest();
    assert_eq!(hold.assign(80), Some(first));
    let mut next = hash(&[100; 4], "next");
    let mut all: Vec<_> = (0..4)
        .map(|_| {
            next.heartbeat = 0;
            next.assign(80).expect("somebody has room")
        })
        .collect();
    assert_eq!(all[0], first);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    let mut memories = [100; 4];
    memories[first as usize] = 79;
    let around = hash(&memories, "hold").assign(80);
    assert!(around.is_some_and(|slot| slot != first), "{around:?}");
}

/// Nanoseconds an event: choice, charge, load, and the same event's end. A third of the memory is in use all the time, or nearly all.
fn cost_ns(entry: &SchedulerEntry, events: u64, memory_bytes: fn(u32) -> u64, full: bool) -> f64 {
    const BUILDERS: u32 = 1_750;
    // Longer than the time between two calendars.
    const BATCH: u64 = 10_000;
    let mut yard = Yard::of(entry, &Values::defaults(entry.params));
    for slot in 0..BUILDERS {
        let id = BuilderId(slot);
        let memory_bytes = memory_bytes(slot);
        yard.builders.list(Builder {
            id,
            host: slot / 7,
            memory_bytes,
            outstanding_bytes: 0,
            outstanding_events: 0,
        });
    }
    yard.scheduler.on_membership(BuilderId(BUILDERS - 1), &yard.builders);
    let sizes: Vec<u64> = (0..4_096).map(|event| 5_000 + seed::split(event, "size") % 10_000).collect();
    let sum: u64 = (0..BUILDERS).map(memory_bytes).sum();
    let mut used = 0;
    let limit = if full { u64::MAX } else { sum / 3 };
    let mut assigned = 0;
    // Of batches, so that what else the machine does spoils a few of them and not the figure.
    let mut batches: Vec<f64> = Vec::new();
    let mut begun = None;
    let mut at = 0;
    while assigned < events {
        at += 1;
        assert!(at < 20_000_000, "{}: nothing is assigned any more", entry.name);
        let bytes = sizes[at % sizes.len()];
        let host = (at % 250) as u32;
        let event = Wanted { heartbeat: at as u64, bytes, host, membership_epoch: 0 };
        let id = if used + bytes > limit {
            None
        } else {
            yard.scheduler.choose(Instant::from_ns(at as u64), &event, &yard.builders)
        };
        if let Some(id) = id {
            yard.builders.charge(id, bytes);
            yard.scheduler.on_load(id, &yard.builders);
            yard.in_flight.push_back((id, bytes));
            used += bytes;
            if let Some(since) = begun {
                assigned += 1;
                if assigned % BATCH == 0 {
                    batches.push(Clock::elapsed(&since).as_nanos() as f64 / BATCH as f64);
                    begun = Some(Clock::now());
                }
            }
        } else {
            // The steady state begins: one ends for each that begins.
            begun.get_or_insert_with(Clock::now);
            let (id, bytes) = yard.in_flight.pop_front().expect("something is in flight");
            used -= bytes;
            yard.end(id, bytes);
        }
    }
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

#[test]
fn every_scheduler_reaches_its_steady_state_and_says_what_an_event_costs() {
    let events = if cfg!(debug_assertions) { 50_000 } else { 200_000 };
    println!(
        "ns an event at 1750 builders: memories alike, all different, nearly full, different and nearly full"
    );
    for entry in SCHEDULERS {
        let alike = |_| 200_000;
        let different = |slot| 100_000 + 97 * u64::from(slot);
        let each = [(alike as fn(u32) -> u64, false), (different, false), (alike, true), (different, true)]
            .map(|(memory_bytes, full)| cost_ns(entry, events, memory_bytes, full));
        println!("{:20} {}", entry.name, each.map(|ns| format!("{ns:8.0}")).join(" "));
        assert!(each.iter().all(|ns| ns.is_finite()));
    }
}
