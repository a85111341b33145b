//! The whole files that show what the language must say.

mod common;

use common::*;
use weir_core::regression::FitKind;
use weir_core::scenario::{Bound, Fit, Reference};
use weir_core::units::Bytes;

// Spec: scenario.md#criterion-2
#[test]
fn the_quickstart_is_four_steps_of_one_configuration_and_six_criteria() {
    let plan = plan(QUICKSTART);
    assert_eq!(plan.configurations.len(), 1);
    let points: Vec<&str> = plan.configurations[0].steps.iter().map(|step| step.point.as_str()).collect();
    assert_eq!(points, ["idle", "one", "eight", "outage"]);
    assert_eq!(plan.criteria.len(), 6);
    assert_eq!((plan.trials, plan.trials_min, plan.seed), (5, 3, 42));
    let fault = &plan.configurations[0].faults[0];
    assert_eq!((fault.step, fault.on.as_slice()), (Some(3), [4, 5].as_slice()));
    let first = plan.points_of(&plan.criteria[0]);
    assert_eq!(first, [(0, 0)], "a latency metric is of the latency step");
}

// Spec: scenario.md#point-1
#[test]
fn deisa_is_two_cases_of_five_stream_counts_and_one_criterion_for_each_value() {
    let plan = plan(DEISA);
    let ids: Vec<&str> = plan.configurations.iter().map(|configuration| configuration.id.as_str()).collect();
    assert_eq!(ids[0], "lossy/streams=1");
    assert_eq!(ids.len(), 10);
    assert_eq!(plan.configurations[4].steps[0].point, "load/lossy,streams=12");
    let link = &plan.configurations[0].topology.links[0];
    assert!((link.forward.loss - 820e-6).abs() < 1e-12 && link.backward.loss == 0.0);
    assert_eq!(plan.configurations[5].topology.links[0].forward.loss, 0.0);
    assert_eq!(plan.configurations[5].parameters["loss"].to_json(), 0.0);
    let texts: Vec<&str> = plan.criteria.iter().map(|criterion| criterion.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "rate(n) = n rate(1) until 0.9 of the ceiling (streams = 2)",
            "rate(n) = n rate(1) until 0.9 of the ceiling (streams = 3)",
            "six streams at least three times one",
            "one stream alone is held by loss",
            "without loss one is enough",
        ]
    );
    assert_eq!(plan.criteria[0].per.as_deref(), Some("streams"));
    assert_eq!(plan.criteria[3].bound, Bound::LimitingFactor("loss".to_owned()));
    for criterion in &plan.criteria {
        assert_eq!(plan.points_of(criterion).len(), 1, "{}", criterion.text);
    }
}

// Spec: scenario.md#criterion-3
#[test]
fn the_short_form_of_deisa_runs_one_point_and_lists_what_it_cannot_judge() {
    let plan = plan_with(DEISA, &[], true);
    assert_eq!(plan.configurations.len(), 1);
    assert_eq!(plan.configurations[0].steps[0].point, "load/clean,streams=1");
    assert_eq!((plan.trials, plan.criteria.len(), plan.not_judged.len()), (3, 1, 3));
    let step = &plan.configurations[0].steps[0];
    assert_eq!(step.values.duration("duration").unwrap().as_secs(), 10);
}

// Spec: scenario.md#point-3
#[test]
fn the_latency_of_g100_compares_four_cases_over_a_site_without_hosts() {
    let plan = plan(G100_LATENCY);
    let names: Vec<&str> =
        plan.configurations.iter().filter_map(|configuration| configuration.case.as_deref()).collect();
    assert_eq!(names, ["path", "direct", "without-fibre", "without-elements"]);
    assert_eq!(plan.configurations[0].topology.rtt(0, 1).unwrap().as_micros(), 620);
    assert_eq!(plan.configurations[1].topology.rtt(0, 1).unwrap().as_micros(), 0);
    assert_eq!(plan.configurations[0].published["latency.round_trip_seconds.median"], 0.000_72);
    assert_eq!(plan.criteria[0].minus, Some(Reference::Case("direct".to_owned())));
    // Two paths end in `rtt`, so what cases set is called by the whole path.
    assert!(plan.configurations[2].parameters.contains_key("link.fibre.rtt"));
    let queue = plan.configurations[0].topology.links[0].forward.queue;
    assert_eq!(queue.bytes, Some(Bytes(7_750_000)), "100 Gbit/s × 0.62 ms / 8");
}

#[test]
fn the_scaling_of_g100_is_sixteen_points_two_fits_and_one_criterion_for_each_value() {
    let plan = plan(G100_SCALING);
    assert_eq!((plan.configurations.len(), plan.criteria.len()), (16, 10));
    assert!(plan.configurations[0].topology.auxiliary.is_some());
    let fits: Vec<&Fit> = plan.criteria.iter().filter_map(|criterion| criterion.fit.as_ref()).collect();
    let fit = |over, value| Fit { x: "pairs".to_owned(), over, value, x_unit: "1" };
    assert_eq!(fits, [&fit([1.0, 10.0], FitKind::Slope), &fit([1.0, 16.0], FitKind::Knee)]);
    let short = plan_with(G100_SCALING, &[], true);
    assert_eq!((short.configurations.len(), short.not_judged.len()), (6, 0));
}

// Spec: scenario.md#file-2
#[test]
fn what_this_version_lacks_is_refused_by_name_and_nothing_else_is() {
    let named = |text: &str| -> Vec<String> {
        try_load(text, &[], false).unwrap_err().problems.into_iter().map(|problem| problem.message).collect()
    };
    let later = "\"copy\"";
    let scaling = G100_SCALING.replace("\"stream\"", later);
    let problems = named(&scaling);
    assert!(problems.iter().all(|message| message.contains("not yet")), "{problems:#?}");
    assert!(problems[0].contains(later));
}
