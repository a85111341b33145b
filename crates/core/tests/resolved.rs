//! The resolved scenario repeats the run; no input makes the loader panic or hang.

mod common;

use common::*;
use proptest::prelude::*;
use weir_core::scenario::{Criterion, Plan};

/// All of a plan but line numbers, which are those of another file, and the text itself.
fn essence(plan: &Plan) -> String {
    let criteria: Vec<Criterion> =
        plan.criteria.iter().map(|criterion| Criterion { line: 0, ..criterion.clone() }).collect();
    format!(
        "{:#?}",
        (
            (&plan.name, &plan.about, &plan.origin, &plan.scale, plan.trials, plan.trials_min, plan.seed),
            (&plan.dimensions, &plan.configurations, criteria),
        )
    )
}

#[track_caller]
fn repeats(text: &str, sets: &[&str], short: bool) {
    let first = plan_with(text, sets, short);
    let again = plan(&first.resolved);
    assert!(
        essence(&first) == essence(&again),
        "the resolved scenario is another:\n{}\n--- first\n{}\n--- again\n{}",
        first.resolved,
        essence(&first),
        essence(&again)
    );
    assert_eq!(again.resolved, first.resolved, "and resolving again changes nothing");
}

const RICH: &str = r#"
[scenario]
name = "rich"
about = "a \"quoted\" name,\nand a second line"
scale = { rate = 10, time = 2.5 }
trials_min = 2
[lab]
[[lab.site]]
name = "a"
hosts = 4
access = { rate = "1Gbit/s", queue = { packets = 50 } }
[[lab.site]]
name = "b"
hosts = 4
tcp_profile = "stock"
access = { mtu = 9000 }
[[lab.site]]
name = "mid"
hosts = 0
[[lab.host]]
name = "a-1"
access = { rate = "10Mbit/s" }
[[lab.link]]
between = ["a", "mid"]
rate = "100Mbit/s"
rtt = "25.000001ms"
[[lab.link]]
between = ["b", "mid"]
delay = "3ms"
queue = { packets = 100 }
backward = { rate = "10Mbit/s", delay = "1ms", queue = {} }
[[step]]
name = "first"
workload = "stream"
from = "a-*"
to = ["b-[2-3]", "b-[0-1]"]
pairs = 3
duration = "5s"
tcp = { window = "64KiB" }
[[step]]
name = "beside"
workload = "latency"
at = "1s"
from = "a-0"
to = "b-0"
count = 10
[[step]]
name = "last"
workload = "stream"
after = "first"
from = "a-[0-1]"
to = "b-[0-1]"
pairing = "all"
bytes = "1MB"
direction = "both"
[sweep]
"step.first.streams" = [1, 2]
"link.a-mid.rate" = ["100Mbit/s", "1Gbit/s"]
"site.a.access.rate" = { values = ["1Gbit/s", "2Gbit/s"], alias = "access" }
[[case]]
name = "plain"
published = { "stream.flow_goodput_bits_per_second.p90" = "9Mbit/s" }
[[case]]
name = "deep"
set = { "link.a-mid.queue.bytes" = "64MiB", "host.a-*.access.delay" = "1ms", "fault.dip.enabled" = false }
[[fault]]
name = "dip"
on = "link.a-mid"
step = "first"
every = "2s"
do = { rate = { to = "1Mbit/s", for = "100ms" } }
[[fault]]
name = "cut"
on = "host.a-0.access.forward"
at = "3s"
do = { outage = { for = "10ms" } }
[[criterion]]
text = "c"
metric = "stream.flow_goodput_bits_per_second.p90"
where = { streams = [1, 2], step = "first" }
for_each = "rate"
case = "plain"
of = { published = true }
at_least = "1%"
[short]
trials = 1
cases = ["deep"]
set = { "sweep.rate" = ["1Gbit/s"] }
"#;

#[test]
fn a_resolved_scenario_repeats_the_run() {
    for text in [QUICKSTART, DEISA, G100_LATENCY, RICH] {
        repeats(text, &[], false);
        if text.contains("[short]") {
            repeats(text, &[], true);
        }
    }
    repeats(QUICKSTART, &["link.wan.rtt=50ms", "step.one.tcp.nodelay=true", "scenario.trials=2"], true);
    repeats(QUICKSTART, &["host.left-0.access.rate=1Gbit/s", "link.wan.queue={packets=10}"], false);
    repeats(RICH, &["step.last.pairs=2", "sweep.access=[\"5Gbit/s\"]"], false);
}

// Spec: scenario.md#resolved-1
#[test]
fn a_short_form_whose_criteria_name_cases_that_it_leaves_out_repeats_itself() {
    // Two cases set a `loss`, so that it is called by its whole path, though one alone runs in the short form.
    let more = r#"
[[case]]
name = "lossy"
set = { "link.a-mid.loss" = 0.01 }
[[case]]
name = "lossy-beyond"
set = { "link.b-mid.loss" = 0.01 }
[[criterion]]
text = "of one that runs and one that does not"
metric = "stream.flow_goodput_bits_per_second"
case = ["plain", "lossy"]
where = { "link.a-mid.loss" = [0.01, 0.02], step = "first" }
at_least = "1bit/s"
[short]
"#;
    let text = RICH.replace("[short]\n", more).replace("[\"deep\"]", "[\"deep\", \"lossy\"]");
    let short = plan_with(&text, &[], true);
    assert_eq!((short.criteria.len(), short.configurations.len()), (1, 8), "{:?}", short.not_judged);
    repeats(&text, &[], true);
    let none = G100_LATENCY.replace("[[case]]", "[[case]]\nenabled = false");
    let refused = try_load(&none, &[], false).unwrap_err().to_string();
    assert!(refused.contains("no [[case]] is left to run"), "{refused}");
}

// Spec: scenario.md#resolved-2
#[test]
fn a_default_that_follows_what_is_swept_is_not_spelled_out_as_one_value() {
    let plan = plan(RICH);
    let queues: std::collections::BTreeSet<u64> = plan
        .configurations
        .iter()
        .map(|configuration| configuration.topology.links[0].forward.queue.bytes.unwrap().0)
        .collect();
    assert!(queues.len() > 2, "one for each rate and the case's own: {queues:?}");
    let link = plan.resolved.split("[[lab.link]]").nth(1).expect("a link");
    assert!(link.contains("between") && !link.contains("bytes ="), "{link}");
    let resolved = common::plan(QUICKSTART).resolved;
    assert!(!resolved.contains("trials_min"), "{resolved}");
    assert_eq!(plan_with(&resolved, &["scenario.trials=9"], false).trials_min, 5);
}

/// Bytes of a valid scenario replaced, cut out or doubled.
fn mutated() -> impl Strategy<Value = String> {
    let source = prop::sample::select(vec![QUICKSTART, DEISA, G100_LATENCY, RICH, ROUND_ROBIN]);
    let edit = (any::<prop::sample::Index>(), 0usize..20, "[ -~\n\"\\[\\]{}=.,0-9]{0,6}");
    (source, prop::collection::vec(edit, 1..6)).prop_map(|(source, edits)| {
        let mut text: Vec<char> = source.chars().collect();
        for (at, cut, put) in edits {
            let start = at.index(text.len());
            let end = (start + cut).min(text.len());
            text.splice(start..end, put.chars());
        }
        text.into_iter().collect()
    })
}

/// Values of a valid scenario replaced by others of the language.
fn reworded() -> impl Strategy<Value = String> {
    let source = prop::sample::select(vec![QUICKSTART, DEISA, G100_LATENCY, RICH]);
    let words = vec![
        "0",
        "-1",
        "9223372036854775807",
        "1e308",
        "nan",
        "true",
        "\"\"",
        "\"0s\"",
        "\"9e18ns\"",
        "\"1ms\"",
        "[]",
        "{}",
        "\"a-0\"",
        "\"*\"",
        "\"[0-9]\"",
        "\"link.*\"",
        "\"mean\"",
        "[[1]]",
        "\"100%\"",
        "\"1bit/s\"",
        "2026-01-01",
    ];
    let edit = (any::<prop::sample::Index>(), prop::sample::select(words));
    (source, prop::collection::vec(edit, 1..4)).prop_map(|(source, edits)| {
        let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
        for (at, word) in edits {
            let with_value: Vec<usize> = (0..lines.len()).filter(|line| lines[*line].contains('=')).collect();
            let line = with_value[at.index(with_value.len())];
            let key = lines[line].split('=').next().unwrap().to_owned();
            lines[line] = format!("{key}= {word}");
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_text_is_refused_and_never_panics(text in ".{0,200}") {
        let _ = try_load(&text, &[], false).map_err(|errors| errors.render(true));
    }

    #[test]
    fn a_mutated_scenario_is_refused_or_repeats_itself(text in mutated(), short in any::<bool>()) {
        match try_load(&text, &[], short) {
            Ok(plan) => {
                let again = try_load(&plan.resolved, &[], false);
                let again = again.map_err(|errors| TestCaseError::fail(format!("{}\n{errors}", plan.resolved)))?;
                prop_assert_eq!(essence(&plan), essence(&again));
            }
            Err(errors) => {
                prop_assert!(!errors.problems.is_empty());
                let _ = (errors.render(false), errors.render(true));
            }
        }
    }

    #[test]
    fn a_reworded_scenario_is_refused_or_repeats_itself(text in reworded()) {
        match try_load(&text, &[], false) {
            Ok(plan) => {
                let again = try_load(&plan.resolved, &[], false);
                let again = again.map_err(|errors| TestCaseError::fail(format!("{}\n{errors}", plan.resolved)))?;
                prop_assert_eq!(essence(&plan), essence(&again));
            }
            Err(errors) => {
                let _ = errors.render(true);
            }
        }
    }

    #[test]
    fn random_overrides_never_panic(
        path in prop::sample::select(vec![
            "step.first", "step.*", "link.a-mid", "link.*.forward", "site.a", "host.a-*", "fault.dip", "scenario", "sweep", "",
        ]),
        key in "[a-z_.]{0,20}|\\.?(rate|rtt|duration|queue\\.bytes|access\\.mtu|tcp|tcp\\.window|hosts|from|do|on|trials)",
        value in "[ -~é]{0,20}|[0-9]{1,4}(ms|s|Mbit/s|KiB|%)?|\\[[0-9,\" ]{0,8}\\]|\\{[a-z]{0,4} ?= ?[0-9]\\}",
    ) {
        let set = format!("{path}{key}={value}");
        let _ = try_load(RICH, &[&set], false).map_err(|errors| errors.render(true));
        let _ = try_load(RICH, &[&set], true).map_err(|errors| errors.render(false));
    }
}
