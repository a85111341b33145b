//! The whole files that show what the language must say.

mod common;

use common::*;

#[test]
fn the_quickstart_is_four_steps_of_one_configuration_and_six_criteria() {
    let plan = plan(QUICKSTART);
    println!("{}", plan.resolved);
    println!("{:#?}", plan.configurations[0].topology);
    assert_eq!(plan.configurations.len(), 1);
    let points: Vec<&str> = plan.configurations[0].steps.iter().map(|step| step.point.as_str()).collect();
    assert_eq!(points, ["idle", "one", "eight", "outage"]);
    assert_eq!(plan.criteria.len(), 6);
    assert_eq!((plan.trials, plan.trials_min, plan.seed), (5, 3, 42));
}

#[test]
fn the_others() {
    for text in [DEISA, G100_LATENCY] {
        let plan = plan(text);
        println!("{}", plan.resolved);
        for c in &plan.configurations {
            println!("{} {:?}", c.id, c.steps.iter().map(|s| &s.point).collect::<Vec<_>>());
        }
        println!("{:#?}", plan.criteria);
    }
    for text in [G100_SCALING, ROUND_ROBIN] {
        println!("{}", try_load(text, &[], false).unwrap_err());
    }
}
