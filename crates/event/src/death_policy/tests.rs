use super::{DEATH_POLICIES, DEFAULT, entry};
use weir_core::Values;
use weir_seams::death_policy::Remedy::{self, CloseChannel, List, OpenChannel, ReopenAll};
use weir_seams::death_policy::conformance;
use weir_seams::scheduler::BuilderId;

const ID: BuilderId = BuilderId(3);

// Spec: event-building.md#failure-6
#[test]
fn every_death_policy_keeps_the_claims_of_the_seam() {
    weir_seams::entry::conformance::check_all(DEATH_POLICIES);
    DEATH_POLICIES.iter().for_each(conformance::check);
}

/// First joining, death, return.
fn life(name: &str) -> [Vec<Remedy>; 3] {
    let mut policy = (entry(name).expect(name).build)(&Values::default());
    [policy.on_join(ID, false), policy.on_death(ID), policy.on_join(ID, true)]
}

// Spec: event-building.md#failure-6
#[test]
fn a_death_costs_the_whitelist_nothing_the_blacklist_one_channel_and_the_third_all_of_them() {
    let joined = vec![OpenChannel(ID), List(ID)];
    assert_eq!(life("whitelist"), [joined.clone(), vec![], joined.clone()]);
    assert_eq!(life("blacklist"), [joined.clone(), vec![CloseChannel(ID)], joined.clone()]);
    assert_eq!(
        life("re-initialise"),
        [joined, vec![CloseChannel(ID), ReopenAll], vec![OpenChannel(ID), ReopenAll, List(ID)]]
    );
}

#[test]
fn the_death_policy_used_unless_another_is_asked_for_exists() {
    assert!(entry(DEFAULT).is_some() && entry("greylist").is_none());
}
