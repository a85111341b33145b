//! Whether the measurement itself was fit: an emulator or a generator that could not follow judges nothing.

use super::{EmulatorFacts, Facts, MOST, cause, fullest, named, percent};
use crate::record::{Factor, LimitingFactor};
use crate::units::human;

/// A link this full was kept busy whatever the machine did.
const LINK_FULL_BEYOND_DOUBT: f64 = 0.99;
/// What its receivers got may differ by so much from what it carried; else the machine was between them.
const FIGURES_AGREE: f64 = 0.002;
/// Time taken away that cannot move a figure which anyone asks for.
const MOVES_FIGURES: f64 = 0.01;
/// Event building is asked for parts in two thousand.
const MOVES_LOSS: f64 = 0.000_5;
/// Traffic that stood still takes a while to be what it was: what the machine took may cost so many times as much.
const COSTS_AT_MOST: f64 = 20.0;
/// So much of an idle machine is always in other hands: its kernel's own threads, and a hypervisor's.
const TAKEN_ALWAYS: f64 = 0.02;
/// A machine this little idle had nothing left to give.
const SATURATED: f64 = 0.95;
/// A host that wants for CPU on a machine with less to spare than this wants for what the lab itself takes.
const HOSTS_SHORT: f64 = 0.8;
/// And with less than this one that waits for a core more than it runs.
const LAB_SHORT: f64 = 0.7;
/// Nor had a fabric that ran, or wanted to and had no core, for so much of the time: what is left of it comes in pieces too short
/// to be used.
const FABRIC_SATURATED: f64 = 0.9;
/// Less of the cores' time than this in other hands is not worth a word.
const WORTH_A_WORD: f64 = 0.005;
/// Other programs that take this much of a machine without idle time slow hosts and fabric at moments nobody chose.
const DISTURBED: f64 = 0.15;
/// A generator that gave up more than this share of what its clock asked for did not make the load that was asked for.
const MISSED_MOST: f64 = 0.01;
/// The allowance of the shortest path.
pub const LATENESS_ALLOWED_NS_LEAST: u64 = 500_000;
/// Of fewer ticks the 99th percentile is the lateness of a handful, and one late wake-up proves nothing.
const DUE_LEAST: u64 = 500;

/// Largest lateness that leaves a trial valid: the larger of 5 % of the path's one-way delay and 500 µs, in seconds.
// Spec: evidence.md#fitness-1
pub fn lateness_allowed_seconds(one_way_seconds: f64) -> f64 {
    (0.05 * one_way_seconds).max(LATENESS_ALLOWED_NS_LEAST as f64 / 1e9)
}

// Spec: evidence.md#fitness-1
pub(super) fn emulator_limited(facts: &Facts) -> Option<LimitingFactor> {
    let emulator = facts.emulator?;
    let mut evidence = taken_away(facts, &emulator);
    let full = fullest(facts).is_some_and(|(_, load)| load >= LINK_FULL_BEYOND_DOUBT);
    if !full || facts.building.is_some() {
        evidence.extend(short_of_machine(facts, &emulator));
    }
    (!evidence.is_empty()).then(|| LimitingFactor::new(Factor::EmulatorLimited, 0.9, evidence))
}

/// What others took away beside a full link: its total is proven, and how its flows shared it, stalled or waited is not.
// Spec: evidence.md#fitness-3
pub(super) fn disturbed(facts: &Facts) -> Option<String> {
    let emulator = facts.emulator?;
    let by_others = taken_by_others(&emulator) >= MOVES_FIGURES;
    if facts.building.is_some() || !by_others || !full_and_agreed(facts) {
        return None;
    }
    taken(&emulator, Moves::ratio(MOVES_FIGURES)).into_iter().next()
}

/// What of the trial's time the machine took away from the fabric and from the threads at the ends, by time and not by count: a
/// stall stops traffic that waits for its acknowledgements, and few packets are late.
// Spec: evidence.md#fitness-3
// Spec: evidence.md#fitness-4
fn taken_away(facts: &Facts, emulator: &EmulatorFacts) -> Vec<String> {
    share_that_matters(facts).map_or_else(Vec::new, |share| taken(emulator, share))
}

/// What, taken away, moves a figure: this share of the time, or one stall of so long.
#[derive(Clone, Copy)]
struct Moves {
    ratio: f64,
    longest_seconds: f64,
}

impl Moves {
    fn ratio(ratio: f64) -> Moves {
        Moves { ratio, longest_seconds: f64::INFINITY }
    }
    fn is_reached(self, ratio: f64, longest_seconds: f64) -> bool {
        ratio >= self.ratio || longest_seconds >= self.longest_seconds
    }
}

/// What took so much of the time or more, a line each.
fn taken(emulator: &EmulatorFacts, moves: Moves) -> Vec<String> {
    let mut evidence = Vec::new();
    let allowed = human(lateness_allowed_seconds(emulator.one_way_seconds), "s");
    if moves.is_reached(emulator.behind_ratio, emulator.behind_seconds_max) {
        evidence.push(format!(
            "the fabric was behind by more than {allowed} for {} of the time, at most by {}",
            percent(emulator.behind_ratio),
            human(emulator.behind_seconds_max, "s")
        ));
    }
    // Waits that the lab's own programs caused each other are part of what is measured where they are short, and what others did
    // not take they did not keep anyone waiting for.
    let by_others = taken_by_others(emulator);
    let longest = if by_others > 0.0 { emulator.end_wait_seconds_max } else { 0.0 };
    if moves.is_reached(emulator.end_wait_ratio.min(by_others), longest) {
        evidence.push(format!(
            "a thread that measures waited for a core for more than {allowed} at a time, {} of the time together and {} at most, \
             while others took {} of the machine",
            percent(emulator.end_wait_ratio),
            human(emulator.end_wait_seconds_max, "s"),
            percent(emulator.foreign_busy_ratio + emulator.stolen_ratio)
        ));
    }
    evidence
}

/// What programs outside the run and a hypervisor took beyond what they always do, in cores.
fn taken_by_others(emulator: &EmulatorFacts) -> f64 {
    (emulator.foreign_busy_ratio + emulator.stolen_ratio - TAKEN_ALWAYS).max(0.0) * emulator.core_count
}

/// The share of the time that, taken away, may have moved the figures; `None` where it has not.
fn share_that_matters(facts: &Facts) -> Option<Moves> {
    if let Some(building) = facts.building {
        // Each rate of a search is judged by itself, and those that were not carried are what it is for.
        if let Some(seconds) = building.of_each_rate_seconds {
            return Some(Moves { ratio: MOVES_FIGURES, longest_seconds: MOVES_FIGURES * seconds });
        }
        let short = building.shortfall();
        // Where all was built, a stall still moves the time that it took.
        let of_loss = (short / COSTS_AT_MOST).max(MOVES_LOSS);
        return Some(Moves::ratio(if short >= MOVES_LOSS { of_loss } else { MOVES_FIGURES }));
    }
    (!full_and_agreed(facts)).then_some(Moves::ratio(MOVES_FIGURES))
}

/// Whether a link was full and what its receivers got is what it carried.
fn full_and_agreed(facts: &Facts) -> bool {
    let (Some(transport), Some(ceiling)) = (facts.transport, facts.ceiling_bits_per_second) else {
        return false;
    };
    fullest(facts).is_some_and(|(_, load)| {
        let carried = load * ceiling;
        load >= LINK_FULL_BEYOND_DOUBT
            && (transport.goodput_bits_per_second - carried).abs() <= FIGURES_AGREE * carried
    })
}

/// Where the fabric or the machine had nothing left to give.
fn short_of_machine(facts: &Facts, emulator: &EmulatorFacts) -> Vec<String> {
    let mut evidence = Vec::new();
    let loads = facts.transport.is_some() || facts.building.is_some_and(|building| building.fell_behind());
    for port in facts.ports.iter().filter(|port| port.missed_rate_ratio > 0.005) {
        evidence.push(format!(
            "{} missed its own rate by {} with packets waiting",
            port.name,
            percent(port.missed_rate_ratio)
        ));
    }
    let without_core = emulator.fabric_wait_ratio + emulator.stolen_ratio;
    let worked = (emulator.fabric_busy_ratio - emulator.fabric_looking_ratio).max(0.0);
    if loads && worked + without_core >= FABRIC_SATURATED {
        evidence.push(format!("the fabric had packets to move {} of the time", percent(worked)));
        if without_core >= WORTH_A_WORD {
            evidence.push(format!(
                "it was without a core {} of the time: other programs had it ({}), or the hypervisor ({})",
                percent(without_core),
                percent(emulator.fabric_wait_ratio),
                percent(emulator.stolen_ratio)
            ));
        }
    }
    let machine_busy = 1.0 - emulator.machine_idle_ratio;
    let machine_full = machine_busy >= SATURATED;
    if machine_full && loads && emulator.foreign_busy_ratio >= DISTURBED {
        evidence.push(format!(
            "the machine that carries the lab had no CPU left, and other programs took {} of it",
            percent(emulator.foreign_busy_ratio)
        ));
    }
    // A busy machine alone proves nothing against a trial that something else bounded. An end without CPU is no such thing:
    // hosts of a lab share the machine with what carries their packets.
    let cause = cause(facts).map(|cause| cause.name);
    let waited = waited_for_a_core(facts, cause);
    let short_of_cpu =
        cause.is_none_or(wants_cpu) && machine_busy >= if waited.is_some() { LAB_SHORT } else { HOSTS_SHORT };
    if loads && short_of_cpu {
        evidence.push(format!(
            "all cores of the machine that carries the lab were {} busy, and no link was full",
            percent(machine_busy)
        ));
    }
    // A quota leaves the machine idle; what others took is not the end's own want.
    if let Some(waited) = waited.filter(|waited| taken_by_others(emulator) >= MOST * waited) {
        evidence.push(format!(
            "the busiest thread waited for a core {} of the time, more than it ran, and others took {} of the machine",
            percent(waited),
            percent(emulator.foreign_busy_ratio + emulator.stolen_ratio)
        ));
    }
    evidence.extend(waited_elsewhere(facts, emulator.one_way_seconds));
    evidence
}

/// A window or a buffer that is too small for the round trip, where most of the round trip is none of the path's: packets waited
/// for the fabric or for a core, which no larger buffer mends.
fn waited_elsewhere(facts: &Facts, one_way_seconds: f64) -> Option<String> {
    let seen_seconds = facts.transport?.rtt_seconds;
    if !matches!(cause(facts)?.name, Factor::SendBuffer | Factor::ReceiveWindow) {
        return None;
    }
    let queues_seconds: f64 = facts.ports.iter().map(|port| port.queue_seconds).sum();
    let path_seconds = 2.0 * one_way_seconds + queues_seconds;
    let doubt_seconds = 2.0 * lateness_allowed_seconds(one_way_seconds);
    (seen_seconds > 2.0 * path_seconds + doubt_seconds).then(|| {
        format!(
            "TCP saw a round trip of {}, of which the path and its queues account for {}: packets waited outside the model",
            human(seen_seconds, "s"),
            human(path_seconds, "s")
        )
    })
}

/// The share of the time in which the busiest thread of the end that wants for CPU waited for a core, if it did so more than it ran;
/// where events are built and nothing is named, their scheduler's.
fn waited_for_a_core(facts: &Facts, cause: Option<Factor>) -> Option<f64> {
    let (waited, ran) = match (cause, facts.transport, facts.building) {
        (Some(Factor::SenderCpu), Some(transport), _) => {
            (transport.sender_thread_wait_ratio, transport.sender_thread_busy_ratio)
        }
        (Some(Factor::ReceiverCpu), Some(transport), _) => {
            (transport.receiver_thread_wait_ratio, transport.receiver_thread_busy_ratio)
        }
        (None, _, Some(building)) => (building.scheduler_wait_ratio, building.scheduler_busy_ratio),
        _ => return None,
    };
    (waited > ran).then_some(waited)
}

fn wants_cpu(name: Factor) -> bool {
    matches!(name, Factor::SenderCpu | Factor::ReceiverCpu)
}

// Spec: evidence.md#fitness-2
pub(super) fn generator_limited(facts: &Facts) -> Option<LimitingFactor> {
    let generator = facts.generator?;
    let mut evidence = Vec::new();
    let missed = generator.missed_count as f64 / generator.due_count.max(1) as f64;
    if missed > MISSED_MOST {
        evidence.push(format!(
            "the generator gave up {} of the {} operations that its clock asked for ({})",
            generator.missed_count,
            generator.due_count,
            percent(missed)
        ));
    }
    // A stream's blocks may be late: what is measured is how many there were.
    let path_seconds = facts.emulator.map_or(0.0, |emulator| emulator.one_way_seconds);
    let allowed = lateness_allowed_seconds(path_seconds);
    if facts.transport.is_none() && generator.due_count >= DUE_LEAST && generator.lateness_seconds > allowed {
        evidence.push(format!(
            "operations left up to {} after their time (99 %), allowed are {}",
            human(generator.lateness_seconds, "s"),
            human(allowed, "s")
        ));
    }
    if evidence.is_empty() {
        return None;
    }
    evidence.push(format!("its clock asked for one every {}", human(generator.period_seconds, "s")));
    named(Factor::GeneratorLimited, 0.9, evidence)
}
