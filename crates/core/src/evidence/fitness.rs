//! Whether the measurement itself was fit: an emulator or a generator that could not follow judges nothing.

use super::{
    Around, Candidate, CoreTime, EMULATOR_LIMITED, EmulatorFacts, GENERATOR_LIMITED, Load, MOST, fullest,
    percent,
};
use crate::record::LimitingFactor;
use crate::units::human;

/// A link this full was kept busy whatever the machine did.
const LINK_FULL_BEYOND_DOUBT: f64 = 0.99;
/// What its receivers got may differ by so much from what it carried; else the machine was between them.
const FIGURES_AGREE: f64 = 0.002;
/// Time taken away that cannot move a figure which anyone asks for.
const MOVES_FIGURES: f64 = 0.01;
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
/// Ways over the fabric that an operation waits for, one after the other, at most: asking and answer, sent on to a server.
const WAYS_OF_AN_OPERATION: f64 = 4.0;
/// A single stall as long as this part of an operation moves what its slowest took.
const STALL_MOST: f64 = 0.2;
/// Of fewer ticks the 99th percentile is the lateness of a handful, and one late wake-up proves nothing.
const DUE_LEAST: u64 = 500;

/// Largest lateness that leaves a trial valid: the larger of 5 % of the path's one-way delay and 500 µs, in seconds.
// Spec: evidence.md#fitness-1
pub fn lateness_allowed_seconds(one_way_seconds: f64) -> f64 {
    (0.05 * one_way_seconds).max(LATENESS_ALLOWED_NS_LEAST as f64 / 1e9)
}

// Spec: evidence.md#fitness-1
pub(super) fn emulator_limited(
    around: &Around,
    load: &Load,
    cause: Option<&Candidate>,
) -> Option<LimitingFactor> {
    let emulator = around.emulator.map(|it| if load.is_off_links { without_fabric(it) } else { it })?;
    let mut evidence = taken_away(around, load, &emulator);
    let full = fullest(around).is_some_and(|(_, load)| load >= LINK_FULL_BEYOND_DOUBT);
    if !full || load.counts_losses {
        evidence.extend(short_of_machine(around, load, cause, &emulator));
    }
    (!evidence.is_empty()).then(|| LimitingFactor::new(&EMULATOR_LIMITED, 0.9, evidence))
}

/// What is left for a load that sends nothing over links.
fn without_fabric(emulator: EmulatorFacts) -> EmulatorFacts {
    EmulatorFacts {
        behind_ratio: 0.0,
        behind_seconds_max: 0.0,
        behind_seconds_mean: 0.0,
        fabric_busy_ratio: 0.0,
        fabric_looking_ratio: 0.0,
        fabric_wait_ratio: 0.0,
        ..emulator
    }
}

/// What others took away beside a full link: its total is proven, and how its flows shared it, stalled or waited is not.
// Spec: evidence.md#fitness-3
pub(super) fn disturbed(around: &Around, load: &Load) -> Option<String> {
    let emulator = around.emulator?;
    let by_others = taken_by_others(&emulator) >= MOVES_FIGURES;
    if load.counts_losses || !by_others || !full_and_agreed(around, load) {
        return None;
    }
    taken(&emulator, Moves::ratio(MOVES_FIGURES), load).into_iter().next()
}

/// What of the trial's time the machine took away from the fabric and from the threads at the ends, by time and not by count: a
/// stall stops traffic that waits for its acknowledgements, and few packets are late.
// Spec: evidence.md#fitness-3
// Spec: evidence.md#fitness-4
fn taken_away(around: &Around, load: &Load, emulator: &EmulatorFacts) -> Vec<String> {
    let moves = match load.moves {
        Some(moves) => moves,
        None if full_and_agreed(around, load) => return Vec::new(),
        None => Moves::ratio(MOVES_FIGURES),
    };
    taken(emulator, moves, load)
}

/// Whether a fabric that was behind by so much leaves the times of operations as they are, for these take much longer.
// Spec: evidence.md#fitness-5
fn is_nothing_to(load: &Load, emulator: &EmulatorFacts) -> bool {
    load.operation_seconds.is_some_and(|seconds| {
        WAYS_OF_AN_OPERATION * emulator.behind_seconds_mean < MOVES_FIGURES * seconds
            && emulator.behind_seconds_max < STALL_MOST * seconds
    })
}

/// What, taken away, moves a figure: this share of the time, or one stall of so long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    pub ratio: f64,
    pub longest_seconds: f64,
}

impl Moves {
    pub fn ratio(ratio: f64) -> Moves {
        Moves { ratio, longest_seconds: f64::INFINITY }
    }
    fn is_reached(self, ratio: f64, longest_seconds: f64) -> bool {
        ratio >= self.ratio || longest_seconds >= self.longest_seconds
    }
}

/// What took so much of the time or more, a line each.
fn taken(emulator: &EmulatorFacts, moves: Moves, load: &Load) -> Vec<String> {
    let mut evidence = Vec::new();
    let allowed = human(lateness_allowed_seconds(emulator.one_way_seconds), "s");
    let is_reached = moves.is_reached(emulator.behind_ratio, emulator.behind_seconds_max);
    if is_reached && !is_nothing_to(load, emulator) {
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

/// Whether a link was full and what its receivers got is what it carried.
fn full_and_agreed(around: &Around, load: &Load) -> bool {
    let (Some(goodput), Some(ceiling)) = (load.goodput_bits_per_second, around.ceiling_bits_per_second)
    else {
        return false;
    };
    fullest(around).is_some_and(|(_, ratio)| {
        let carried = ratio * ceiling;
        ratio >= LINK_FULL_BEYOND_DOUBT && (goodput - carried).abs() <= FIGURES_AGREE * carried
    })
}

/// Where the fabric or the machine had nothing left to give.
fn short_of_machine(
    around: &Around,
    load: &Load,
    cause: Option<&Candidate>,
    emulator: &EmulatorFacts,
) -> Vec<String> {
    let mut evidence = Vec::new();
    let loads = load.wants_machine;
    for port in around.ports.iter().filter(|port| port.missed_rate_ratio > 0.005) {
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
    let thread = cause.map_or(load.thread, |cause| cause.thread);
    let waited = waited_for_a_core(thread);
    let short_of_cpu = cause.is_none_or(|cause| cause.thread.is_some())
        && machine_busy >= if waited.is_some() { LAB_SHORT } else { HOSTS_SHORT };
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
    evidence.extend(waited_elsewhere(around, load, cause, emulator.one_way_seconds));
    evidence
}

/// A window or a buffer that is too small for the round trip, where most of the round trip is none of the path's: packets waited
/// for the fabric or for a core, which no larger buffer mends.
fn waited_elsewhere(
    around: &Around,
    load: &Load,
    cause: Option<&Candidate>,
    one_way_seconds: f64,
) -> Option<String> {
    let seen_seconds = load.rtt_seconds;
    if !cause?.is_room_in_flight {
        return None;
    }
    let queues_seconds: f64 = around.ports.iter().map(|port| port.queue_seconds).sum();
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

/// The share of the time in which a thread waited for a core, if it did so more than it ran.
fn waited_for_a_core(thread: Option<CoreTime>) -> Option<f64> {
    thread.filter(|thread| thread.waited > thread.ran).map(|thread| thread.waited)
}

// Spec: evidence.md#fitness-2
pub(super) fn generator_limited(around: &Around, load: &Load) -> Option<LimitingFactor> {
    let generator = load.generator?;
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
    let path_seconds = around.emulator.map_or(0.0, |emulator| emulator.one_way_seconds);
    let allowed = lateness_allowed_seconds(path_seconds);
    if !load.fills_path && generator.due_count >= DUE_LEAST && generator.lateness_seconds > allowed {
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
    Some(LimitingFactor::new(&GENERATOR_LIMITED, 0.9, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: evidence.md#fitness-5
    #[test]
    fn a_late_fabric_is_nothing_to_operations_that_take_much_longer_and_all_to_others() {
        let late = EmulatorFacts {
            behind_ratio: 0.03,
            behind_seconds_max: 0.02,
            behind_seconds_mean: 50e-6,
            machine_idle_ratio: 1.0,
            core_count: 2.0,
            ..EmulatorFacts::default()
        };
        let is_limited = |emulator: EmulatorFacts, operation_seconds: Option<f64>| {
            let around = Around { emulator: Some(emulator), ..Around::default() };
            emulator_limited(&around, &Load { operation_seconds, ..Load::default() }, None).is_some()
        };
        assert!(is_limited(late, None), "a load that waits for no operation");
        assert!(!is_limited(late, Some(0.137)) && !is_limited(late, Some(1.1)));
        assert!(is_limited(late, Some(0.019)), "a fifth of a millisecond in the mean is 1 % of 20 ms");
        assert!(is_limited(late, Some(0.09)), "a stall of 20 ms is more than a fifth of it");
        assert!(is_limited(EmulatorFacts { behind_seconds_max: 0.25, ..late }, Some(1.1)));
        assert!(is_limited(EmulatorFacts { behind_seconds_mean: 5e-3, ..late }, Some(1.1)));
    }
}
