//! What event building may be short of: a scheduler that keeps up, and room at builders and sources.

use weir_core::evidence::{
    Around, Candidate, CoreTime, Factor, Load, MOST, Moves, SOURCE_APPLICATION, THREAD_FULL, link_rate,
    not_the_link, percent,
};

pub static SCHEDULER: Factor = Factor {
    name: "scheduler",
    rank: 30,
    about: "The scheduler's thread had no time left.",
    next: "ask for fewer heartbeats or larger events, or give its host a core of its own; find the rate that it carries",
    command: "weir explain search_to",
};
pub static CREDITS: Factor = Factor {
    name: "credits",
    rank: 40,
    about: "Events waited for room at builders, or found none at a source.",
    next: "give builders more (`memory`), or add builders",
    command: "weir explain memory",
};

/// Those that event building may name beside the shared ones.
pub static FACTORS: &[&Factor] = &[&SCHEDULER, &CREDITS];

/// After every other rule: whatever came was built.
const ALL_BUILT_RANK: u16 = 130;
/// Time taken away that cannot move a figure which anyone asks for.
const MOVES_FIGURES: f64 = 0.01;
/// Event building is asked for parts in two thousand.
const MOVES_LOSS: f64 = 0.000_5;
/// Traffic that stood still takes a while to be what it was: what the machine took may cost so many times as much.
const COSTS_AT_MOST: f64 = 20.0;

/// Event building from its first heartbeat to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BuildingFacts {
    pub generated: u64,
    /// Dropped as they were born, because a source or every builder had no room.
    pub dropped_no_credit: u64,
    /// Share of the time in which an event waited for room at a builder.
    pub waiting_ratio: f64,
    /// Share of the time that the scheduler's thread spent on a CPU.
    pub scheduler_busy_ratio: f64,
    /// In which it could have run and waited for one: others had it.
    pub scheduler_wait_ratio: f64,
    /// Of the heartbeats of the last two thirds, the share by which what was held grew.
    pub held_growth_ratio: f64,
    /// A fault struck meanwhile: what was held then tells of it, and of no stall.
    pub faulty: bool,
    /// For how long a search tried each of its rates; `None`: there was one, and no search.
    pub of_each_rate_seconds: Option<f64>,
}

/// Below this what is held comes and goes.
const GROWS: f64 = 0.01;

impl BuildingFacts {
    /// The share of the heartbeats that was not built as it came, for no reason that is known.
    fn shortfall(&self) -> f64 {
        let dropped = self.dropped_no_credit as f64 / self.generated.max(1) as f64;
        if self.faulty { dropped } else { self.held_growth_ratio.max(dropped) }
    }
    /// More heartbeats came than were built.
    fn fell_behind(&self) -> bool {
        self.dropped_no_credit > 0 || self.held_growth_ratio >= GROWS
    }

    /// Something kept events from being built as they came.
    fn is_short(&self) -> bool {
        self.fell_behind() || self.waiting_ratio >= MOST
    }

    /// What, taken away, may have moved the figures.
    // Spec: evidence.md#fitness-3
    fn moves(&self) -> Moves {
        // Each rate of a search is judged by itself, and those that were not carried are what it is for.
        if let Some(seconds) = self.of_each_rate_seconds {
            return Moves { ratio: MOVES_FIGURES, longest_seconds: MOVES_FIGURES * seconds };
        }
        let short = self.shortfall();
        // Where all was built, a stall still moves the time that it took.
        let of_loss = (short / COSTS_AT_MOST).max(MOVES_LOSS);
        Moves::ratio(if short >= MOVES_LOSS { of_loss } else { MOVES_FIGURES })
    }
}

/// What event building says of itself, and what may have bounded it.
pub fn of_building(building: &BuildingFacts, around: &Around) -> (Load, Vec<Candidate>) {
    let load = Load {
        wants_machine: building.fell_behind(),
        counts_losses: true,
        moves: Some(building.moves()),
        thread: Some(CoreTime { ran: building.scheduler_busy_ratio, waited: building.scheduler_wait_ratio }),
        ..Load::default()
    };
    let links = if building.is_short() { link_rate(around) } else { None };
    let rules = [scheduler(building, around), credits(building, around), heartbeats(building, around), links];
    (load, rules.into_iter().flatten().collect())
}

// Spec: evidence.md#building-1
fn scheduler(building: &BuildingFacts, around: &Around) -> Option<Candidate> {
    if building.scheduler_busy_ratio < THREAD_FULL {
        return None;
    }
    let mut evidence =
        vec![format!("the scheduler's thread ran {} of the time", percent(building.scheduler_busy_ratio))];
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&SCHEDULER, building.scheduler_busy_ratio, evidence))
}

// Spec: evidence.md#building-2
fn credits(building: &BuildingFacts, around: &Around) -> Option<Candidate> {
    let dropped = building.dropped_no_credit as f64 / building.generated.max(1) as f64;
    if dropped == 0.0 && building.waiting_ratio < MOST {
        return None;
    }
    let mut evidence =
        vec![format!("events waited for room at a builder {} of the time", percent(building.waiting_ratio))];
    if building.dropped_no_credit > 0 {
        evidence.push(format!(
            "{} heartbeats ({}) found no room at a source or no builder that could hold them",
            building.dropped_no_credit,
            percent(dropped)
        ));
    }
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&CREDITS, building.waiting_ratio.max(dropped), evidence))
}

/// Whatever came was built: more heartbeats were not asked for.
// Spec: evidence.md#building-3
fn heartbeats(building: &BuildingFacts, around: &Around) -> Option<Candidate> {
    if building.generated == 0 || building.fell_behind() {
        return None;
    }
    let mut evidence = vec![format!(
        "all {} heartbeats found room, and what was held did not grow: as many as were asked for",
        building.generated
    )];
    evidence.extend(not_the_link(around));
    Some(Candidate::new(&SOURCE_APPLICATION, 1.0 - building.waiting_ratio, evidence).ranked(ALL_BUILT_RANK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::evidence::{EMULATOR_LIMITED, EmulatorFacts, LINK_RATE, PortFacts, UNKNOWN};

    #[derive(Default)]
    struct Facts {
        building: Option<BuildingFacts>,
        ports: Vec<PortFacts>,
        emulator: Option<EmulatorFacts>,
    }

    fn limiting_factor(facts: &Facts) -> weir_core::record::LimitingFactor {
        let around = Around { ports: facts.ports.clone(), emulator: facts.emulator, ..Around::default() };
        let (load, candidates) = of_building(&facts.building.unwrap_or_default(), &around);
        weir_core::evidence::limiting_factor(&around, &load, &candidates)
    }

    fn name(building: BuildingFacts) -> String {
        limiting_factor(&Facts { building: Some(building), ..Facts::default() }).name
    }

    // Spec: evidence.md#building-1
    // Spec: evidence.md#building-2
    #[test]
    fn a_scheduler_that_never_rests_stands_before_builders_without_room() {
        let idle = BuildingFacts { generated: 1_000, ..BuildingFacts::default() };
        assert_eq!(name(idle), SOURCE_APPLICATION.name);
        assert_eq!(name(BuildingFacts { held_growth_ratio: 0.2, ..idle }), UNKNOWN.name);
        assert_eq!(name(BuildingFacts { waiting_ratio: 0.6, ..idle }), CREDITS.name);
        assert_eq!(name(BuildingFacts { dropped_no_credit: 1, ..idle }), CREDITS.name);
        let busy = BuildingFacts { scheduler_busy_ratio: 0.95, waiting_ratio: 0.9, ..idle };
        assert_eq!(name(busy), SCHEDULER.name);
    }

    // Spec: evidence.md#path-1
    #[test]
    fn a_full_link_is_named_where_events_want_for_room_and_not_where_all_were_built() {
        let name = |building: BuildingFacts, load: f64| {
            let port = PortFacts { load_ratio: Some(load), ..PortFacts::default() };
            limiting_factor(&Facts { building: Some(building), ports: vec![port], ..Facts::default() }).name
        };
        let all_built = BuildingFacts { generated: 1_000, ..BuildingFacts::default() };
        assert_eq!(name(all_built, 0.99), SOURCE_APPLICATION.name);
        let dropped = BuildingFacts { dropped_no_credit: 1, ..all_built };
        let waited = BuildingFacts { waiting_ratio: 0.6, ..all_built };
        for short in [dropped, waited] {
            assert_eq!(name(short, 0.99), LINK_RATE.name);
            assert_eq!(name(short, 0.9), CREDITS.name);
        }
        assert_eq!(name(BuildingFacts { held_growth_ratio: 0.2, ..all_built }, 0.99), LINK_RATE.name);
    }

    // Spec: evidence.md#fitness-3
    #[test]
    fn a_search_is_moved_by_a_stall_of_a_hundredth_of_one_of_its_rates_whatever_others_lost() {
        let name = |building: BuildingFacts, behind_ratio: f64, behind_seconds_max: f64| {
            let emulator = EmulatorFacts {
                machine_idle_ratio: 1.0,
                behind_ratio,
                behind_seconds_max,
                ..EmulatorFacts::default()
            };
            limiting_factor(&Facts { building: Some(building), emulator: Some(emulator), ..Facts::default() })
                .name
        };
        let one = BuildingFacts { generated: 10_000, dropped_no_credit: 20, ..BuildingFacts::default() };
        let search = BuildingFacts { of_each_rate_seconds: Some(2.0), ..one };
        assert_eq!(
            [name(one, 0.001, 0.01), name(search, 0.001, 0.01)],
            [EMULATOR_LIMITED.name, CREDITS.name]
        );
        assert_eq!(
            [name(search, 0.001, 0.021), name(search, 0.011, 0.01)],
            [EMULATOR_LIMITED.name, EMULATOR_LIMITED.name]
        );
    }

    // Spec: evidence.md#fitness-3
    #[test]
    fn what_is_held_while_a_fault_lasts_is_no_shortfall_of_which_a_stall_could_be_the_cause() {
        let name = |faulty: bool, behind_ratio: f64| {
            let emulator =
                EmulatorFacts { machine_idle_ratio: 1.0, behind_ratio, ..EmulatorFacts::default() };
            let held = BuildingFacts {
                generated: 5_400,
                held_growth_ratio: 0.005,
                faulty,
                ..BuildingFacts::default()
            };
            limiting_factor(&Facts { building: Some(held), emulator: Some(emulator), ..Facts::default() })
                .name
        };
        assert_eq!([name(false, 0.001), name(true, 0.001)], [EMULATOR_LIMITED.name, SOURCE_APPLICATION.name]);
        assert_eq!(name(true, 0.011), EMULATOR_LIMITED.name);
    }

    // Spec: evidence.md#fitness-1
    #[test]
    fn events_that_a_lab_without_cpu_could_not_follow_are_judged_by_nobody() {
        let name = |building: BuildingFacts, idle: f64| {
            let emulator = EmulatorFacts { machine_idle_ratio: idle, ..EmulatorFacts::default() };
            limiting_factor(&Facts { building: Some(building), emulator: Some(emulator), ..Facts::default() })
                .name
        };
        let follows =
            BuildingFacts { generated: 1_000, scheduler_busy_ratio: 0.1, ..BuildingFacts::default() };
        let behind = BuildingFacts { held_growth_ratio: 0.2, ..follows };
        let kept_waiting = BuildingFacts { scheduler_wait_ratio: 0.3, ..behind };
        assert_eq!(name(behind, 0.15), EMULATOR_LIMITED.name);
        assert_eq!(name(behind, 0.25), UNKNOWN.name);
        assert_eq!(name(kept_waiting, 0.25), EMULATOR_LIMITED.name);
        assert_eq!(name(kept_waiting, 0.35), UNKNOWN.name);
        assert_eq!(name(follows, 0.0), SOURCE_APPLICATION.name);
        // Room that builders did not give explains it whatever the machine did.
        assert_eq!(name(BuildingFacts { waiting_ratio: 0.6, ..kept_waiting }, 0.0), CREDITS.name);
    }

    // Spec: evidence.md#fitness-3
    #[test]
    fn event_building_is_asked_for_less_of_a_stall_and_a_shortfall_that_no_stall_explains_stays() {
        let name = |held_growth_ratio, dropped_no_credit, behind_ratio| {
            let building = BuildingFacts {
                generated: 10_000,
                held_growth_ratio,
                dropped_no_credit,
                ..BuildingFacts::default()
            };
            let emulator = EmulatorFacts {
                behind_ratio,
                behind_seconds_max: 0.002,
                core_count: 2.0,
                one_way_seconds: 0.008,
                fabric_busy_ratio: 0.3,
                fabric_wait_ratio: 0.01,
                stolen_ratio: 0.01,
                machine_idle_ratio: 0.4,
                foreign_busy_ratio: 0.02,
                ..EmulatorFacts::default()
            };
            let ports = vec![PortFacts { load_ratio: Some(0.995), ..PortFacts::default() }];
            limiting_factor(&Facts { building: Some(building), ports, emulator: Some(emulator) }).name
        };
        assert_eq!(name(0.009, 0, 0.001), EMULATOR_LIMITED.name);
        assert_eq!(name(0.0, 10, 0.001), EMULATOR_LIMITED.name);
        assert_eq!(name(0.009, 0, 0.000_1), SOURCE_APPLICATION.name);
        assert_eq!(name(0.2, 0, 0.001), LINK_RATE.name, "a stall of a thousandth holds back no fifth");
        // Where all was built, how long it took is still moved by what moves any other figure.
        assert_eq!(name(0.0, 0, 0.005), SOURCE_APPLICATION.name);
        assert_eq!(name(0.0, 0, 0.2), EMULATOR_LIMITED.name);
    }
}
