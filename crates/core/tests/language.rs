//! What the scenario language accepts, what it refuses, and where it points.

mod common;

use common::*;
use std::time::Duration;
use weir_core::scenario::{Overrides, StepStart, load};
use weir_core::topology::Access;

const LAB: &str = r#"[scenario]
name = "s"
[lab]
[[lab.site]]
name = "a"
hosts = 3
[[lab.site]]
name = "b"
hosts = 3
[[lab.link]]
name = "wan"
between = ["a", "b"]
rate = "1Gbit/s"
rtt = "9ns"
"#;

const STEP: &str = r#"[[step]]
name = "x"
workload = "stream"
from = "a-*"
to = "b-*"
duration = "2s"
"#;

fn whole() -> String {
    format!("{LAB}{STEP}")
}

#[track_caller]
fn refused(text: &str, message: &str, help: &str) -> (usize, usize) {
    let all = problems(text, &[]);
    let found = all.iter().find(|problem| problem.2.contains(message));
    let Some(found) = found else { panic!("no problem says {message:?}: {all:#?}") };
    assert!(found.3.contains(help), "the help is {:?}", found.3);
    (found.0, found.1)
}

#[track_caller]
fn refused_set(set: &str, message: &str, help: &str) {
    let all = problems(&whole(), &[set]);
    let good = all.iter().any(|problem| problem.2.contains(message) && problem.3.contains(help));
    assert!(good, "{set}: {all:#?}");
}

// Spec: scenario.md#file-1
#[test]
fn keys_that_do_not_go_together_are_refused_where_the_first_of_them_stands() {
    let text = whole().replacen("workload = \"stream\"", "workload = \"stream\"\nbytes = \"1MB\"", 1);
    let line = text.lines().position(|line| line.starts_with("duration")).unwrap() + 1;
    assert_eq!(refused(&text, "`duration` and `bytes` both", "").0, line);
}

// Spec: scenario.md#file-1, scenario.md#file-2
#[test]
fn a_misspelt_key_is_refused_with_file_line_column_caret_and_the_nearest_name() {
    let text = whole().replace("rtt =", "rtr =");
    assert_eq!(refused(&text, "unknown key `rtr` in [[lab.link]] \"wan\"", "did you mean `rtt`?"), (14, 1));
    let shown = try_load(&text, &[], false).unwrap_err().render(false);
    assert_eq!(
        shown,
        "error: unknown key `rtr` in [[lab.link]] \"wan\"\n  --> test.toml:14:1\n   |\n14 | rtr = \"9ns\"\n   | ^^^\n   \
         |\n   = help: did you mean `rtt`?\n\n1 problem in test.toml; nothing was started"
    );
}

// Spec: scenario.md#file-1
#[test]
fn every_problem_is_reported_and_not_only_the_first() {
    let text = whole()
        .replace("rtt =", "rtr =")
        .replace("duration = \"2s\"", "duration = 2")
        .replace("\"s\"", "\"S\"");
    let lines: Vec<usize> = problems(&text, &[]).iter().map(|problem| problem.0).collect();
    assert_eq!(lines, [2, 14, 20]);
}

// Spec: scenario.md#file-3
#[test]
fn units_are_mandatory_and_plain_numbers_stay_plain() {
    refused(&whole().replace("\"2s\"", "2"), "expected a time with its unit", "");
    refused(&whole().replace("\"2s\"", "\"2\""), "has no unit", "");
    refused(&whole().replace("\"1Gbit/s\"", "\"1GB\""), "unit", "");
    refused(&whole().replace("hosts = 3", "hosts = \"3\""), "expected a whole number without quotes", "");
    refused(&whole().replace("hosts = 3", "hosts = 3.0"), "expected a whole number", "");
}

// Spec: scenario.md#file-4
#[test]
fn names_follow_the_rule_wherever_they_are_given() {
    for bad in ["../../x", "<script>", "-oProxyCommand=x", "A", "", "x_y", "é", &"x".repeat(64)] {
        refused(&whole().replace("name = \"s\"", &format!("name = {bad:?}")), "is no name", "63 letters");
        refused(&whole().replace("name = \"x\"", &format!("name = {bad:?}")), "is no name", "63 letters");
        refused(&whole().replace("name = \"wan\"", &format!("name = {bad:?}")), "is no name", "63 letters");
        refused(&format!("{}\n[[case]]\nname = {bad:?}", whole()), "is no name", "63 letters");
    }
    plan(&whole().replace("name = \"s\"", &format!("name = \"{}\"", "x".repeat(63))));
}

// Spec: scenario.md#file-4
#[test]
fn two_of_a_name_are_refused() {
    refused(&format!("{}{STEP}", whole()), "two steps are called \"x\"", "");
    refused(&whole().replace("name = \"b\"", "name = \"a\""), "two sites are called \"a\"", "");
    refused(&format!("{}[[case]]\nname = \"c\"\n[[case]]\nname = \"c\"\n", whole()), "two cases", "");
}

// Spec: scenario.md#file-2
#[test]
fn keys_of_later_versions_are_refused_by_name() {
    refused(&whole().replace("\"stream\"", "\"copy\""), "workload \"copy\": not yet", "latency");
    let criterion = |body: &str| format!("{}[[criterion]]\ntext = \"c\"\n{body}\n", whole());
    refused(
        &criterion("metric = \"transfer.errors\"\nat_most = 0"),
        "metric \"transfer.errors\": not yet",
        "",
    );
}

// Spec: scenario.md#lab-2
#[test]
fn an_odd_round_trip_gives_forward_the_smaller_half() {
    let link = plan(LAB).configurations[0].topology.links[0].clone();
    assert_eq!((link.forward.delay_ns, link.backward.delay_ns), (4, 5));
    refused(
        &LAB.replace("rtt = \"9ns\"", "rtt = \"9ns\"\ndelay = \"1ms\""),
        "both `rtt` and `delay`",
        "one way",
    );
    let none = plan(&LAB.replace("rtt = \"9ns\"\n", "")).configurations[0].topology.links[0].clone();
    assert_eq!((none.forward.delay_ns, none.backward.delay_ns), (0, 0));
}

// Spec: scenario.md#file-4, scenario.md#lab-3
#[test]
fn defaults_are_those_of_the_design() {
    let topology = plan(&LAB.replace("name = \"wan\"\n", "").replace("hosts = 3", "access = { mtu = 9000 }"));
    let topology = &topology.configurations[0].topology;
    let link = &topology.links[0];
    assert_eq!((link.name.as_str(), link.mtu, link.forward.framing_bytes), ("a-b", 9000, 38));
    assert_eq!(link.forward.queue.bytes.unwrap().0, 256 * 1024);
    assert_eq!(topology.hosts.len(), 2, "one host a site");
    assert_eq!(plan(LAB).configurations[0].topology.hosts[0].access, Access::default());
    let other =
        |rate: &str| plan(&LAB.replace("rate = \"1Gbit/s\"", rate)).configurations[0].topology.clone();
    assert_eq!(other("").links[0].forward.rate, None, "as fast as the machine");
    let queue = other("queue = { packets = 7 }").links[0].forward.queue;
    assert_eq!((queue.bytes, queue.packets), (None, Some(7)));
    let long = plan(&LAB.replace("9ns", "100ms"));
    assert_eq!(long.configurations[0].topology.links[0].forward.queue.bytes.unwrap().0, 12_500_000);
    let values = &plan(&whole()).configurations[0].steps[0].values;
    assert_eq!(values.duration("interval"), Some(Duration::from_millis(10)));
    assert_eq!(
        (values.count("streams"), values.count("pairs"), values.count("ip")),
        (Some(1), Some(3), Some(4))
    );
    assert_eq!(values.table("tcp").unwrap().text("congestion").as_deref(), Some("cubic"));
    assert_eq!(values.text("direction").as_deref(), Some("up"));
}

// Spec: scenario.md#lab-3
#[test]
fn the_default_queue_is_that_of_the_topology_itself() {
    let topology = &plan(&LAB.replace("9ns", "100ms")).configurations[0].topology;
    let rate = topology.links[0].forward.rate;
    assert_eq!(topology.links[0].forward.queue, topology.default_queue(rate));
}

// Spec: scenario.md#step-1, scenario.md#step-2
#[test]
fn hosts_are_paired_one_with_one_or_each_with_all() {
    let pairs = |from: &str, to: &str, more: &str| {
        let text = whole()
            .replace("\"a-*\"", from)
            .replace("\"b-*\"", to)
            .replace("duration", &format!("{more}\nduration"));
        plan(&text).configurations[0].steps[0].pairs.clone()
    };
    assert_eq!(pairs("\"a-*\"", "\"b-*\"", ""), [(0, 3), (1, 4), (2, 5)]);
    assert_eq!(pairs("\"a-[1-2]\"", "[\"b-2\", \"b-0\"]", ""), [(1, 5), (2, 3)]);
    assert_eq!(pairs("\"a-*\"", "\"b-*\"", "pairs = 2"), [(0, 3), (1, 4)]);
    assert_eq!(pairs("\"a-[0-1]\"", "\"a-[0-1]\"", "pairing = \"all\""), [(0, 1), (1, 0)]);
    assert_eq!(pairs("\"a-[0-1]\"", "\"b-[0-1]\"", "pairing = \"all\"\npairs = 3"), [(0, 3), (0, 4), (1, 3)]);
    refused(&whole().replace("\"a-*\"", "\"a-0\""), "`from` names 1 hosts and `to` 3", "pairing");
    refused(&whole().replace("\"a-*\"", "\"b-*\""), "paired with itself", "");
    refused(&whole().replace("duration", "pairs = 4\nduration"), "make only 3", "");
    refused(&whole().replace("\"a-*\"", "\"c-*\""), "no host is called \"c-*\"", "");
}

#[test]
fn sites_without_a_path_between_a_steps_hosts_are_refused() {
    let text = whole().replace("between = [\"a\", \"b\"]", "between = [\"a\", \"c\"]")
        + "[[lab.site]]\nname = \"c\"\n";
    refused(&text, "no path from site \"a\" to site \"b\"", "[[lab.link]]");
}

// Spec: scenario.md#step-3
#[test]
fn steps_follow_each_other_unless_they_say_otherwise() {
    let more = |line: &str| {
        format!(
            "{}{}",
            whole(),
            STEP.replace("\"x\"", "\"y\"").replace("duration", &format!("{line}\nduration"))
        )
    };
    let start = |text: &str| plan(text).configurations[0].steps[1].start.clone();
    assert_eq!(start(&more("")), StepStart::After(Some(0)));
    assert_eq!(start(&more("after = \"x\"")), StepStart::After(Some(0)));
    assert_eq!(start(&more("at = \"5s\"")), StepStart::At(Duration::from_secs(5)));
    refused(&more("after = \"y\""), "is not before", "");
    refused(&more("after = \"z\""), "no step is called \"z\"", "");
    refused(&more("at = \"1s\"\nafter = \"x\""), "both `after` and `at`", "");
}

// Spec: scenario.md#step-4, scenario.md#step-5
#[test]
fn a_step_says_when_it_ends_and_warms_up_for_less_than_that() {
    refused(&whole().replace("duration = \"2s\"\n", ""), "does not say when it ends", "");
    refused(
        &whole().replace("duration", "warm_up = \"2s\"\nduration"),
        "leaves nothing",
        "part of the duration",
    );
}

// Spec: scenario.md#path-1, scenario.md#path-4
#[test]
fn a_set_reaches_everything_by_name_and_says_what_it_does_not() {
    let of = |sets: &[&str]| plan_with(&whole(), sets, false).configurations.remove(0);
    assert_eq!(of(&["site.*.access.mtu=9000"]).topology.hosts[4].access.mtu, 9000);
    assert_eq!(of(&["host.a-1.access.delay=1ms"]).topology.hosts[1].access.delay_ns, 1_000_000);
    assert_eq!(of(&["host.a-1.access.delay=1ms"]).topology.hosts[0].access.delay_ns, 0);
    assert_eq!(of(&["link.wan.backward.loss=5%"]).topology.links[0].backward.loss, 0.05);
    assert_eq!(
        of(&["step.x.duration=5s"]).steps[0].values.duration("duration"),
        Some(Duration::from_secs(5))
    );
    assert_eq!(of(&["duration=\"5s\""]).steps[0].values.duration("duration"), Some(Duration::from_secs(5)));
    assert_eq!(
        of(&["direction=down", "direction=both"]).steps[0].values.text("direction").as_deref(),
        Some("both")
    );
    assert_eq!(
        of(&["tcp.window=64KiB"]).steps[0].values.table("tcp").unwrap().size("window").unwrap().0,
        65_536
    );
    assert_eq!(plan_with(&whole(), &["scenario.trials=7"], false).trials, 7);
    refused_set("link.wan.rttt=5ms", "no such path: `link.wan.rttt`", "`link.wan.rtt`");
    refused_set("link.wam.rtt=5ms", "no such path", "`link.wan.rtt`");
    refused_set("lnk.wan.rtt=5ms", "no such path", "`link.wan.rtt`");
    refused_set("durtion=5s", "no such path", "`duration`");
    refused_set("lab.link.rtt=5s", "no such path", "link.NAME.rtt");
    refused_set("step.x.name=y", "no such path", "");
    refused_set("sweep.streams=[1]", "no dimension", "sweeps nothing");
    refused_set("link.wan.rtt", "PATH=VALUE", "");
    refused_set("link.wan.rtt=", "no value", "");
    let origin = try_load(&whole(), &["link.wan.rtt=5"], false).unwrap_err().problems.remove(0).origin;
    assert_eq!(origin, "--set link.wan.rtt=5");
}

// Spec: scenario.md#path-4
#[test]
fn a_bare_key_of_several_steps_lists_them() {
    let text = format!("{}{}", whole(), STEP.replace("\"x\"", "\"y\""));
    let all = problems(&text, &["duration=1s"]);
    assert_eq!(all[0].3, "say which: step.x.duration, step.y.duration");
    plan_with(&text, &["step.*.duration=1s"], false);
}

// Spec: scenario.md#path-2, scenario.md#point-1, scenario.md#point-2, scenario.md#point-4
#[test]
fn a_sweep_reaches_the_lab_and_its_dimensions_are_called_by_their_last_word() {
    let swept = plan(&format!(
        "{}[sweep]\n\"link.wan.rtt\" = [\"1ms\", \"2ms\"]\n\"step.x.pairs\" = [3, 1]\n",
        whole()
    ));
    assert_eq!(swept.dimensions, ["rtt", "pairs"]);
    let points: Vec<&str> =
        swept.configurations.iter().map(|configuration| configuration.steps[0].point.as_str()).collect();
    assert_eq!(points, ["x/pairs=3,rtt=1ms", "x/pairs=1,rtt=1ms", "x/pairs=3,rtt=2ms", "x/pairs=1,rtt=2ms"]);
    assert_eq!(swept.configurations[3].steps[0].pairs.len(), 1);
    assert_eq!(swept.configurations[3].topology.rtt(0, 3), Some(Duration::from_millis(2)));
    let of = |line: &str| format!("{}[sweep]\n{line}\n", whole());
    refused(&of("\"scenario.trials\" = [1, 2]"), "is the same for the whole run", "--set");
    let odd = plan(&of("\"step.x.tcp\" = [{ congestion = \"reno\" }]"));
    assert_eq!(odd.configurations[0].steps[0].point, "x/tcp=__congestion___reno__");
}

// Spec: scenario.md#point-7
#[test]
fn a_text_in_a_sweeps_list_may_be_a_range_whose_values_keep_the_parameters_bounds() {
    let of = |line: &str| format!("{}[sweep]\n{line}\n", whole());
    let ranged =
        plan(&of("\"step.x.streams\" = [1, \"2..16*2\"]\n\"link.wan.rate\" = [\"10Mbit/s..1Gbit/s\"]"));
    let listed = plan(&of(
        "\"step.x.streams\" = [1, 2, 4, 8, 16]\n\"link.wan.rate\" = [\"10Mbit/s\", \"100Mbit/s\", \"1Gbit/s\"]",
    ));
    assert_eq!(ranged.configurations, listed.configurations);
    let set = plan_with(&of("\"step.x.streams\" = [1]"), &["sweep.streams=[\"1..4*2\"]"], false);
    assert_eq!(set.configurations.len(), 3);
    refused(&of("\"step.x.streams\" = [\"0..4\"]"), "above zero", "");
    refused(&of("\"step.x.streams\" = [1, \"1..4*2\"]"), "has this value twice: 1", "");
    refused(&of("\"link.wan.loss\" = [\"10%..1000%\"]"), "", "");
}

// Spec: scenario.md#point-8
#[test]
fn a_case_may_have_a_list_of_its_own_of_what_the_sweep_varies() {
    let of = |line: &str| {
        format!(
            "{}[sweep]\n\"step.x.streams\" = [1, 2]\n\"link.wan.rtt\" = [\"1ms\", \"2ms\"]\n[[case]]\nname = \"a\"\n[[case]]\nname = \"b\"\n\
             set = {{ {line} }}\n",
            whole()
        )
    };
    let points = |text: &str, sets: &[&str]| -> Vec<String> {
        let plan = plan_with(text, sets, false);
        plan.configurations.iter().map(|configuration| configuration.id.clone()).collect()
    };
    let one = of("\"sweep.streams\" = 4");
    let of_a = ["a/rtt=1ms,streams=1", "a/rtt=2ms,streams=1", "a/rtt=1ms,streams=2", "a/rtt=2ms,streams=2"];
    assert_eq!(points(&one, &[]), [&of_a[..], &["b/rtt=1ms,streams=4", "b/rtt=2ms,streams=4"]].concat());
    let several = of("sweep.streams = [\"4..8*2\"], sweep.rtt = [\"3ms\"]");
    assert_eq!(
        points(&several, &["sweep.streams=7", "sweep.rtt=9ms"]),
        ["a/rtt=9ms,streams=7", "b/rtt=3ms,streams=4", "b/rtt=3ms,streams=8"]
    );
    refused(&of("\"sweep.stream\" = 4"), "no dimension of [sweep] is called so", "streams");
    refused(&of("\"sweep.streams\" = []"), "a list of 1 to", "");
    refused(&of("\"sweep.streams\" = [0]"), "out of range", "");
    refused(&of("\"step.x.streams\" = 4"), "which [sweep] varies", "sweep.streams");
}

// Spec: scenario.md#path-5
#[test]
fn a_path_may_be_written_as_nested_tables() {
    let dotted = plan(&format!("{}[sweep]\nstep.x.streams = [1, 2]\nlink.wan.rtt = [\"1ms\"]\n", whole()));
    let quoted =
        plan(&format!("{}[sweep]\n\"step.x.streams\" = [1, 2]\n\"link.wan.rtt\" = [\"1ms\"]\n", whole()));
    assert_eq!(dotted.dimensions, ["streams", "rtt"]);
    assert_eq!(dotted.configurations, quoted.configurations);
}

// Spec: scenario.md#path-3
#[test]
fn the_short_form_comes_before_each_set_and_both_before_trials_and_seed() {
    let text = format!(
        "{}[short]\ntrials = 2\nset = {{ \"step.x.duration\" = \"3s\", \"step.x.streams\" = 2 }}\n",
        whole()
    );
    let overrides = |trials, seed| Overrides {
        sets: ["step.x.duration=4s", "scenario.trials=7", "step.x.duration=5s", "scenario.seed=8"]
            .map(str::to_owned)
            .to_vec(),
        short: true,
        trials,
        seed,
    };
    let of =
        |trials, seed| load(&text, "test.toml", &overrides(trials, seed), language(&workloads())).unwrap();
    let plan = of(None, None);
    let values = &plan.configurations[0].steps[0].values;
    assert_eq!(values.duration("duration"), Some(Duration::from_secs(5)));
    assert_eq!((values.count("streams"), plan.trials, plan.seed), (Some(2), 7, 8));
    let plan = of(Some(9), Some(10));
    assert_eq!((plan.trials, plan.seed), (9, 10));
    let swept = format!("{}[sweep]\n\"step.x.streams\" = [1, 2]\n", whole());
    let refused = problems(&swept, &["step.x.streams=4"]);
    assert!(refused[0].2.contains("`step.x.streams` is swept"), "{refused:?}");
}

// Spec: scenario.md#point-2
#[test]
fn two_dimensions_of_one_name_need_an_alias() {
    let clash = format!("{}[sweep]\n\"link.wan.rate\" = [\"1Gbit/s\"]\n\"site.a.access.rate\" = ", whole());
    refused(&format!("{clash}[\"1Gbit/s\"]"), "two dimensions are called `rate`", "alias");
    let plan = plan(&format!("{clash}{{ values = [\"1Gbit/s\", \"2Gbit/s\"], alias = \"port\" }}"));
    assert_eq!(plan.dimensions, ["rate", "port"]);
    assert_eq!(plan.configurations[1].steps[0].point, "x/port=2Gbit/s,rate=1Gbit/s");
}

// Spec: scenario.md#path-2, scenario.md#point-3
#[test]
fn what_a_case_sets_is_in_the_points_parameters() {
    let plan = plan(&format!(
        "{}[[case]]\nname = \"deep\"\nset = {{ \"link.wan.queue.bytes\" = \"64MiB\" }}\n",
        whole()
    ));
    let step = &plan.configurations[0].steps[0];
    assert_eq!((step.point.as_str(), step.parameters["bytes"].to_json()), ("x/deep", "64MiB".into()));
    let clash = format!(
        "{}[sweep]\n\"step.x.pairs\" = [1]\n[[case]]\nname = \"c\"\nset = {{ \"step.x.pairs\" = 2 }}\n",
        whole()
    );
    refused(&clash, "which [sweep] varies", "");
}

// Spec: scenario.md#criterion-1, scenario.md#criterion-2, scenario.md#criterion-3, scenario.md#criterion-4, scenario.md#criterion-5
#[test]
fn a_criterion_that_selects_nothing_or_names_nothing_known_is_refused() {
    let criterion = |body: &str| format!("{}[[criterion]]\ntext = \"c\"\n{body}\n", whole());
    let goodput = "metric = \"stream.total_goodput_bits_per_second\"";
    refused(&criterion("metric = \"latency.round_trip_seconds\"\nat_most = \"1s\""), "selects no point", "");
    refused(&criterion("metric = \"stream.total_goodput\"\nat_most = \"1s\""), "no metric is called", "");
    refused(&criterion("metric = \"stream.fairness_jain.p100\"\nat_most = 1"), "no statistic", "percentile");
    refused(
        &criterion(&format!("{goodput}\nat_most = \"1s\"")),
        "is in s, but what is judged is in bit/s",
        "",
    );
    refused(&criterion(&format!("{goodput}\nat_most = 5")), "has no unit", "1Gbit/s");
    refused(&criterion(goodput), "needs one bound and has none", "at_least");
    refused(&criterion(&format!("{goodput}\nat_most = 0\nat_least = 0")), "at_least and at_most", "");
    refused(
        &criterion(&format!("{goodput}\nat_most = 0\nwhere = {{ stap = \"x\" }}")),
        "no parameter \"stap\"",
        "`step`",
    );
    refused(
        &criterion(&format!("{goodput}\nat_most = 0\nwhere = {{ step = \"z\" }}")),
        "no step is called \"z\"",
        "",
    );
    refused(&criterion(&format!("{goodput}\nat_most = 0\ncase = \"z\"")), "no case is called \"z\"", "");
    refused(&criterion("limiting_factor = \"los\""), "no limiting factor", "`loss`");
    refused(&criterion("metric = \"port.load_ratio\"\nat_most = 1"), "needs `on`", "link.wan");
    refused(
        &criterion("metric = \"port.load_ratio\"\non = \"link.wam\"\nat_most = 1"),
        "nothing of this lab",
        "",
    );
    refused(
        &criterion(&format!("{goodput}\nof = {{ published = true }}\nat_most = 0")),
        "nothing is published",
        "",
    );
    refused(&criterion(&format!("{goodput}\nbetween = [\"2bit/s\", \"1bit/s\"]")), "above the second", "");
    plan(&criterion(&format!("{goodput}\nwhere = {{ streams = 1 }}\nat_most = \"1Gbit/s\"")));
    plan(&criterion(&format!("{goodput}\nat_least = 0")));
    let both = "of = { model = \"ceiling\" }\nminus = { model = \"ceiling\" }\nat_least = 0";
    refused(&criterion(&format!("{goodput}\n{both}")), "reduced by `minus` or divided by `of`, not both", "");
    let swept = format!(
        "{}[sweep]\n\"step.x.streams\" = [1, 2]\n",
        criterion(&format!("{goodput}\nwhere = {{ streams = 1 }}\nat_least = 0"))
    );
    let left = plan_with(&swept, &["sweep.streams=[2]"], false);
    assert_eq!((left.criteria.len(), left.not_judged), (0, vec!["c".to_owned()]));
}

// Spec: scenario.md#file-5
#[test]
fn a_file_with_a_lab_alone_is_enough_for_a_lab() {
    let plan = plan("[[lab.site]]\nname = \"a\"\nhosts = 2\n");
    assert_eq!(plan.configurations[0].topology.hosts.len(), 2);
    assert!(plan.configurations[0].steps.is_empty());
    refused(&whole().replace("[scenario]\nname = \"s\"\n", ""), "[scenario] lacks `name`", "");
}

#[test]
fn a_fault_reaches_both_directions_one_or_a_hosts_own_link() {
    let on = |on: &str| {
        let text = format!(
            "{}[[fault]]\nname = \"f\"\non = \"{on}\"\ndo = {{ outage = {{ for = \"1ms\" }} }}\n",
            whole()
        );
        plan(&text).configurations[0].faults[0].on.clone()
    };
    assert_eq!(on("link.wan"), [12, 13]);
    assert_eq!(on("link.wan.backward"), [13]);
    assert_eq!(on("host.a-1.access"), [2, 3]);
    assert_eq!(on("host.a-*.access.forward"), [0, 2, 4]);
    let off = format!(
        "{}[[fault]]\nname = \"f\"\nenabled = false\non = \"link.wan\"\ndo = {{ outage = {{ for = \"1ms\" }} }}\n",
        whole()
    );
    assert!(plan(&off).configurations[0].faults.is_empty());
    assert_eq!(plan_with(&off, &["fault.f.enabled=true"], false).configurations[0].faults.len(), 1);
}

// Spec: scenario.md#turns-1, scenario.md#turns-2
#[test]
fn pairs_take_turns_in_rounds_that_share_no_link() {
    let all = whole().replace(
        "from = \"a-*\"\nto = \"b-*\"",
        "from = \"*\"\nto = \"*\"\npairing = \"all\"\nturns = \"disjoint\"",
    );
    let step = plan(&all).configurations.remove(0).steps.remove(0);
    assert_eq!(step.pairs.len(), 30);
    // Eighteen pairs cross the one link between the sites, one at a time.
    assert_eq!(step.rounds.len(), 18);
    let duplex = plan_with(&all, &["turns=duplex"], false).configurations.remove(0).steps.remove(0);
    assert_eq!(duplex.rounds.len(), 9);
    assert!(plan(&whole()).configurations[0].steps[0].rounds.is_empty(), "without it all load at once");
    let topology = &plan(&all).configurations[0].topology;
    let names: Vec<String> = step.pair_entities(topology).collect();
    assert!(names.contains(&"local.a-0.a-1".to_owned()) && names.contains(&"pair.a-0.b-2".to_owned()));
}

// Spec: scenario.md#turns-1
#[test]
fn turns_that_cannot_be_are_refused() {
    let with = |more: &str| whole().replace("duration = \"2s\"", &format!("duration = \"2s\"\n{more}"));
    refused(&with("turns = true"), "turns", "");
    refused(&with("turns = \"each\""), "turns", "disjoint");
    let twice = with("turns = \"disjoint\"")
        .replace("\"a-*\"", "[\"a-0\", \"a-0\"]")
        .replace("\"b-*\"", "[\"b-1\", \"b-1\"]");
    refused(&twice, "has the pair a-0 and b-1 twice", "");
    let many = with("turns = \"disjoint\"\npairing = \"all\"").replace("hosts = 3", "hosts = 33");
    refused(&many, "has 1089 pairs; at most 1024 can take turns", "fewer hosts");
}

// Spec: scenario.md#turns-5
#[test]
fn on_names_a_pair_only_where_pairs_take_turns() {
    let criterion = "[[criterion]]\ntext = \"c\"\nmetric = \"stream.total_goodput_bits_per_second\"\nat_least = \"1Mbit/s\"\n";
    let on = |pair: &str| format!("{criterion}on = \"{pair}\"\n");
    refused(
        &format!("{}{}", whole(), on("pair.a-0.b-0")),
        "is not counted for each link, host or part of a load",
        "take `turns`",
    );
    let turns = whole().replace("duration", "turns = \"disjoint\"\nduration");
    assert!(plan(&format!("{turns}{}", on("pair.a-*"))).criteria[0].of_pairs);
    refused(&format!("{turns}{}", on("pair.a-0.b-1")), "is no pair of a step that has", "pair.a-");
    let of = format!("{turns}{criterion}of = {{ on = \"local.*\" }}\n").replace("\"1Mbit/s\"", "1");
    refused(&of, "no pair of point x is called \"local.*\"", "");
}

// Spec: scenario.md#criterion-1
#[test]
fn a_value_that_no_point_has_is_answered_with_those_that_there_are() {
    let criterion = "[[criterion]]\ntext = \"c\"\nmetric = \"stream.total_goodput_bits_per_second\"\n\
                     at_least = \"1Mbit/s\"\nwhere = { streams = 3 }\n";
    let text = format!("{}[sweep]\n\"step.x.streams\" = [1, 4, 16]\n{criterion}", whole());
    refused(&text, "selects no point", "its values are 1, 4, 16");
}

#[test]
fn a_list_in_a_step_is_shown_the_way_to_the_sweep_and_does_not_pass_beside_one() {
    let text = format!("{}streams = [1, 4, 16]\n", whole());
    refused(&text, "`streams`: expected", "[sweep]: \"step.NAME.streams\" = [value, value, …]");
    refused(&format!("{text}[sweep]\n\"step.x.streams\" = [1, 2]\n"), "`streams`: expected", "[sweep]");
}

#[test]
fn an_unknown_metric_is_answered_with_the_metrics_of_its_domain() {
    let criterion = |metric: &str| {
        format!("{}[[criterion]]\ntext = \"c\"\nmetric = \"{metric}\"\nat_least = \"1Mbit/s\"\n", whole())
    };
    let all = problems(&criterion("stream.goodput"), &[]);
    let help = &all.iter().find(|problem| problem.2.contains("no metric is called")).unwrap().3;
    assert!(help.contains("stream.total_goodput_bits_per_second") && !help.contains("port."), "{help}");
}
