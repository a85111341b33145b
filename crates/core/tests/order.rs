//! In which order configurations run.

mod common;

use common::*;
use weir_core::Values;
use weir_core::scenario::Service;
use weir_core::scenario::order::{grouped, of_trial};

const SWEPT: &str = r#"[scenario]
name = "s"
[lab]
[[lab.site]]
name = "a"
[[lab.site]]
name = "b"
[[lab.link]]
name = "wan"
between = ["a", "b"]
[[step]]
name = "x"
workload = "stream"
from = "a-0"
to = "b-0"
duration = "2s"
[sweep]
"step.x.streams" = [1, 2]
"link.wan.rtt" = ["1ms", "2ms"]
"#;

fn labs_built(orders: &[Vec<usize>], text: &str) -> usize {
    let plan = plan(text);
    let labs: Vec<_> = orders.iter().flatten().map(|index| &plan.configurations[*index].topology).collect();
    1 + labs.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

// Spec: scenario.md#point-6
#[test]
fn configurations_of_one_lab_run_together_and_every_pass_turns_back() {
    let plan = plan(SWEPT);
    let ids: Vec<&str> = plan.configurations.iter().map(|configuration| configuration.id.as_str()).collect();
    assert_eq!(
        ids[0..2],
        ["rtt=1ms,streams=1", "rtt=2ms,streams=1"],
        "the file's order changes the lab each time"
    );
    let grouped = grouped(&plan.configurations);
    assert_eq!(grouped, [0, 2, 1, 3]);
    assert_eq!(of_trial(&grouped, 0), [0, 2, 1, 3]);
    assert_eq!(of_trial(&grouped, 1), [3, 1, 2, 0]);
    let passes: Vec<Vec<usize>> = (0..4).map(|trial| of_trial(&grouped, trial)).collect();
    assert_eq!(labs_built(&passes, SWEPT), 5, "once each in the first pass, one more in each other");
}

#[test]
fn a_sweep_that_leaves_the_lab_alone_builds_one() {
    let text = SWEPT.replace("\"link.wan.rtt\" = [\"1ms\", \"2ms\"]\n", "");
    let grouped = grouped(&plan(&text).configurations);
    assert_eq!(grouped, [0, 1]);
    assert_eq!(labs_built(&[of_trial(&grouped, 0), of_trial(&grouped, 1)], &text), 1);
}

// Spec: scenario.md#point-6
#[test]
fn configurations_with_the_same_services_run_together_within_their_lab() {
    let mut configurations = plan(SWEPT).configurations;
    // By the round trip there are two labs: 0 and 2, 1 and 3. Each has its streams from another service.
    let service = |name: &str| Service {
        name: name.to_owned(),
        system: name.to_owned(),
        at: String::new(),
        place: Vec::new(),
        priority: Vec::new(),
        options: Values::default(),
        mount: None,
        content: None,
        disk: None,
        origin: None,
    };
    let more = configurations.clone();
    configurations.extend(more);
    let names = ["one", "one", "two", "one", "one", "two", "two", "one"];
    for (configuration, name) in configurations.iter_mut().zip(names) {
        configuration.services = vec![service(name)];
    }
    assert_eq!(grouped(&configurations), [0, 4, 2, 6, 1, 3, 7, 5]);
}
