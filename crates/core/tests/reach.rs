//! Paths over which no connection can be made in the time it has; keys and values that are nowhere.

mod common;

use common::*;
use weir_core::scenario::ScenarioErrors;

const LAB: &str = r#"[scenario]
name = "far"
[lab]
[[lab.site]]
name = "a"
[[lab.site]]
name = "b"
[[lab.switch]]
name = "mid"
[[lab.link]]
name = "first"
between = ["a", "mid"]
rtt = "1s"
[[lab.link]]
name = "second"
between = ["mid", "b"]
delay = "1s"
[[step]]
name = "x"
workload = "stream"
from = "a-0"
to = "b-0"
duration = "5s"
"#;

/// What is wrong: the text of the message and of the help, and what the place says.
fn wrong(errors: &ScenarioErrors, text: &str) -> Vec<(String, String, String)> {
    let place = |problem: &weir_core::scenario::Problem| {
        let whole = problem.origin.strip_prefix("--set ").unwrap_or(text).to_owned();
        whole.get(problem.span.clone()).unwrap_or_default().to_owned()
    };
    let of = |problem: &weir_core::scenario::Problem| {
        (problem.message.clone(), problem.help.clone().unwrap_or_default(), place(problem))
    };
    errors.problems.iter().map(of).collect()
}

#[track_caller]
fn far(text: &str, sets: &[&str], part: &str, written: &str) {
    let errors = try_load(text, sets, false).expect_err("no connection can be made");
    let all = wrong(&errors, text);
    assert_eq!(all.len(), 1, "{all:#?}");
    let (message, help, place) = &all[0];
    assert!(message.contains("no connection of step \"x\" can be made over the"), "{message}");
    assert!(message.contains("3 round trips and has 10 s, so a round trip may be 3.333 s"), "{message}");
    assert!(help.contains(&format!("`{part}`")), "{help}");
    assert_eq!(place, written);
}

// Spec: scenario.md#step-7
#[test]
fn a_path_too_long_for_connections_is_refused_where_its_longest_part_is_written() {
    plan(LAB);
    plan_with(LAB, &["link.first.rtt=1333ms"], false);
    far(LAB, &["link.first.rtt=1334ms"], "link.second.delay", "\"1s\"");
    far(LAB, &["link.first.rtt=4s"], "link.first.rtt", "4s");
    far(LAB, &["link.second.backward.delay=3s"], "link.second.backward.delay", "3s");
    far(LAB, &["site.a.access.delay=500ms"], "link.second.delay", "\"1s\"");
    far(LAB, &["host.b-0.access.delay=2s"], "host.b-0.access.delay", "2s");
    far(&format!("{LAB}[sweep]\n\"link.first.rtt\" = [\"1ms\", \"5s\"]\n"), &[], "link.first.rtt", "\"5s\"");
    let case = "[[case]]\nname = \"long\"\nset = { \"link.first.rtt\" = \"6s\" }\n";
    far(&format!("{LAB}{case}"), &[], "link.first.rtt", "\"6s\"");
    // A lab without a step makes no connection.
    plan(&LAB.split("[[step]]").next().unwrap().replace("\"1s\"", "\"9s\""));
}

#[track_caller]
fn answered(text: &str, message: &str, help: &str) {
    let errors = try_load(text, &[], false).expect_err(text);
    let all = wrong(&errors, text);
    let found = all.iter().find(|(said, ..)| said.contains(message));
    let Some((_, said, _)) = found else { panic!("nothing says {message:?}: {all:#?}") };
    assert_eq!(said, help, "{message}");
}

// Spec: scenario.md#file-2
#[test]
fn a_key_in_the_wrong_place_is_answered_with_the_place_where_it_belongs() {
    let lab = |line: &str| LAB.replacen("[lab]\n", &format!("[lab]\n{line}\n"), 1);
    answered(&lab("streams = 4"), "`streams` in [lab]", "`streams` belongs in [[step]]");
    answered(&format!("streams = 4\n{LAB}"), "`streams` in a scenario", "`streams` belongs in [[step]]");
    let direction = "`direction` belongs in [[step]] with workload = \"stream\"";
    answered(&lab("direction = \"up\""), "`direction` in [lab]", direction);
    answered(
        &format!("{LAB}transport = \"tcp\"\n"),
        "`transport` in [[step]]",
        "`transport` belongs in [[step]] with workload = \"latency\"",
    );
    answered(&lab("fault = 1"), "`fault` in [lab]", "`fault` belongs in the file itself, as [[fault]]");
    answered(&format!("[[link]]\n{LAB}"), "`link` in a scenario", "`link` belongs in [lab], as [[lab.link]]");
    answered(
        &format!(
            "{LAB}[[criterion]]\ntext = \"quick\"\nmetric = \"stream.total_goodput_bits_per_second\"\nstreams = 4\nat_least = 1.0\n"
        ),
        "`streams` in [[criterion]]",
        "`where = { streams = … }` keeps a criterion to some points; `streams` belongs in [[step]]",
    );
    let own = LAB.replacen("rtt = \"1s\"", "rtt = \"1s\"\nbytes = \"1MB\"", 1);
    answered(
        &own,
        "`bytes` in [[lab.link]]",
        "`bytes` belongs in `queue` of [[lab.link]], or `forward.queue` of [[lab.link]], or `backward.queue` of [[lab.link]]; \
         `weir explain bytes` has 3 more places",
    );
    // A slip of the finger is still one.
    answered(&lab("sitte = 1"), "`sitte` in [lab]", "did you mean `site`?");
}

#[test]
fn a_path_without_its_beginning_is_answered_with_the_whole() {
    let sweep = |path: &str| format!("{LAB}[sweep]\n\"{path}\" = [1, 4]\n");
    answered(&sweep("x.streams"), "no such path: `x.streams`", "did you mean `step.x.streams`?");
    answered(&sweep("streams"), "no such path: `streams`", "did you mean `step.x.streams`?");
    answered(&sweep("tcp.window"), "no such path: `tcp.window`", "did you mean `step.x.tcp.window`?");
    answered(&sweep("second.rtt"), "no such path: `second.rtt`", "did you mean `link.second.rtt`?");
    answered(&sweep("stepp.x.streams"), "no such path: `stepp.x.streams`", "did you mean `step.x.streams`?");
}

// Spec: scenario.md#criterion-1
#[test]
fn a_criterion_without_a_point_is_answered_with_the_nearest_that_there_is() {
    let of = |conditions: &str| {
        format!(
            "{LAB}[sweep]\n\"link.first.rtt\" = [\"1ms\", \"16ms\", \"100ms\"]\n\"step.x.direction\" = [\"up\", \"both\"]\n\
             \"step.x.streams\" = [1, 4, 16]\n[[criterion]]\ntext = \"c\"\n\
             metric = \"stream.total_goodput_bits_per_second\"\nat_least = \"1Mbit/s\"\nwhere = {{ {conditions} }}\n"
        )
    };
    let never = |name: &str, near: &str, all: &str| {
        format!("`{name}` is never what `where` asks: nearest is {near}; its values are {all}")
    };
    let rtts = "\"1ms\", \"16ms\", \"100ms\"";
    answered(&of("rtt = \"20ms\""), "selects no point", &never("rtt", "\"16ms\"", rtts));
    answered(
        &of("rtt = { from = \"110ms\", to = \"1s\" }"),
        "selects no point",
        &never("rtt", "\"100ms\"", rtts),
    );
    answered(&of("streams = [20, 300]"), "selects no point", &never("streams", "16", "1, 4, 16"));
    let directions = "\"up\", \"both\"";
    answered(
        &of("direction = \"down\""),
        "selects no point",
        &format!("`direction` is never what `where` asks; its values are {directions}"),
    );
    let cases =
        "[[case]]\nname = \"one\"\nset = { \"step.x.interval\" = \"20ms\" }\n[[case]]\nname = \"two\"\n";
    answered(
        &of("interval = \"20ms\", streams = 4")
            .replace("where", "case = \"two\"\nwhere")
            .replace("[sweep]", &format!("{cases}[sweep]")),
        "selects no point",
        "the nearest point is x/one,direction=up,rtt=1ms,streams=4, where case is \"one\"",
    );
}
