//! What event building may be short of: a scheduler that keeps up, and room at builders and sources.

use super::{Facts, MOST, THREAD_FULL, named, not_the_link, percent};
use crate::record::{Factor, LimitingFactor};
use serde::{Deserialize, Serialize};

/// Event building from its first heartbeat to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildingFacts {
    pub generated: u64,
    /// Dropped as they were born, because a source or every builder had no room.
    pub dropped_no_credit: u64,
    /// Share of the time in which an event waited for room at a builder.
    pub waiting_ratio: f64,
    /// Share of the time that the scheduler's thread spent on a CPU.
    pub scheduler_busy_ratio: f64,
    /// In which it could have run and waited for one: others had it.
    #[serde(default)]
    pub scheduler_wait_ratio: f64,
    /// Of the heartbeats of the last two thirds, the share by which what was held grew.
    #[serde(default)]
    pub held_growth_ratio: f64,
    /// A fault struck meanwhile: what was held then tells of it, and of no stall.
    #[serde(default)]
    pub faulty: bool,
    /// For how long a search tried each of its rates; `None`: there was one, and no search.
    #[serde(default)]
    pub of_each_rate_seconds: Option<f64>,
}

/// Below this what is held comes and goes.
const GROWS: f64 = 0.01;

impl BuildingFacts {
    /// The share of the heartbeats that was not built as it came, for no reason that is known.
    pub(super) fn shortfall(&self) -> f64 {
        let dropped = self.dropped_no_credit as f64 / self.generated.max(1) as f64;
        if self.faulty { dropped } else { self.held_growth_ratio.max(dropped) }
    }
    /// More heartbeats came than were built.
    pub(super) fn fell_behind(&self) -> bool {
        self.dropped_no_credit > 0 || self.held_growth_ratio >= GROWS
    }

    /// Something kept events from being built as they came.
    pub(super) fn is_short(&self) -> bool {
        self.fell_behind() || self.waiting_ratio >= MOST
    }
}

// Spec: evidence.md#building-1
pub(super) fn scheduler(facts: &Facts) -> Option<LimitingFactor> {
    let building = facts.building?;
    if building.scheduler_busy_ratio < THREAD_FULL {
        return None;
    }
    let mut evidence =
        vec![format!("the scheduler's thread ran {} of the time", percent(building.scheduler_busy_ratio))];
    evidence.extend(not_the_link(facts));
    named(Factor::Scheduler, building.scheduler_busy_ratio, evidence)
}

// Spec: evidence.md#building-2
pub(super) fn credits(facts: &Facts) -> Option<LimitingFactor> {
    let building = facts.building?;
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
    evidence.extend(not_the_link(facts));
    named(Factor::Credits, building.waiting_ratio.max(dropped), evidence)
}

/// Whatever came was built: more heartbeats were not asked for.
// Spec: evidence.md#building-3
pub(super) fn heartbeats(facts: &Facts) -> Option<LimitingFactor> {
    let building = facts.building?;
    if building.generated == 0 || building.fell_behind() {
        return None;
    }
    let mut evidence = vec![format!(
        "all {} heartbeats found room, and what was held did not grow: as many as were asked for",
        building.generated
    )];
    evidence.extend(not_the_link(facts));
    named(Factor::SourceApplication, 1.0 - building.waiting_ratio, evidence)
}

#[cfg(test)]
mod tests {
    use super::super::{EmulatorFacts, PortFacts, limiting_factor};
    use super::*;

    fn name(building: BuildingFacts) -> Factor {
        limiting_factor(&Facts { building: Some(building), ..Facts::default() }).name
    }

    // Spec: evidence.md#building-1
    // Spec: evidence.md#building-2
    #[test]
    fn a_scheduler_that_never_rests_stands_before_builders_without_room() {
        let idle = BuildingFacts { generated: 1_000, ..BuildingFacts::default() };
        assert_eq!(name(idle), Factor::SourceApplication);
        assert_eq!(name(BuildingFacts { held_growth_ratio: 0.2, ..idle }), Factor::Unknown);
        assert_eq!(name(BuildingFacts { waiting_ratio: 0.6, ..idle }), Factor::Credits);
        assert_eq!(name(BuildingFacts { dropped_no_credit: 1, ..idle }), Factor::Credits);
        let busy = BuildingFacts { scheduler_busy_ratio: 0.95, waiting_ratio: 0.9, ..idle };
        assert_eq!(name(busy), Factor::Scheduler);
    }

    // Spec: evidence.md#path-1
    #[test]
    fn a_full_link_is_named_where_events_want_for_room_and_not_where_all_were_built() {
        let name = |building: BuildingFacts, load: f64| {
            let port = PortFacts { load_ratio: Some(load), ..PortFacts::default() };
            limiting_factor(&Facts { building: Some(building), ports: vec![port], ..Facts::default() }).name
        };
        let all_built = BuildingFacts { generated: 1_000, ..BuildingFacts::default() };
        assert_eq!(name(all_built, 0.99), Factor::SourceApplication);
        let dropped = BuildingFacts { dropped_no_credit: 1, ..all_built };
        let waited = BuildingFacts { waiting_ratio: 0.6, ..all_built };
        for short in [dropped, waited] {
            assert_eq!(name(short, 0.99), Factor::LinkRate);
            assert_eq!(name(short, 0.9), Factor::Credits);
        }
        assert_eq!(name(BuildingFacts { held_growth_ratio: 0.2, ..all_built }, 0.99), Factor::LinkRate);
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
            [Factor::EmulatorLimited, Factor::Credits]
        );
        assert_eq!(
            [name(search, 0.001, 0.021), name(search, 0.011, 0.01)],
            [Factor::EmulatorLimited, Factor::EmulatorLimited]
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
        assert_eq!(
            [name(false, 0.001), name(true, 0.001)],
            [Factor::EmulatorLimited, Factor::SourceApplication]
        );
        assert_eq!(name(true, 0.011), Factor::EmulatorLimited);
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
        assert_eq!(name(behind, 0.15), Factor::EmulatorLimited);
        assert_eq!(name(behind, 0.25), Factor::Unknown);
        assert_eq!(name(kept_waiting, 0.25), Factor::EmulatorLimited);
        assert_eq!(name(kept_waiting, 0.35), Factor::Unknown);
        assert_eq!(name(follows, 0.0), Factor::SourceApplication);
        // Room that builders did not give explains it whatever the machine did.
        assert_eq!(name(BuildingFacts { waiting_ratio: 0.6, ..kept_waiting }, 0.0), Factor::Credits);
    }
}
