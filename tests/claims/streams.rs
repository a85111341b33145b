//! Stream steps whose flows differ: started one after the other, under several congestion controls, between unequal hosts.

use crate::support::{need_lab, run_settled, turn};
use serde_json::Value;

/// Two hosts on each side of a line of 100 Mbit/s, the second on the right with a slow interface of its own.
fn unequal(step: &str) -> String {
    format!(
        r#"
[scenario]
name = "streams"
about = "written by a test"
trials = 1
seed = 7

[lab]
[[lab.site]]
name = "left"
hosts = 2
access = {{ rate = "1Gbit/s", delay = "20us", mtu = 1500 }}
[[lab.site]]
name = "right"
hosts = 2
access = {{ rate = "1Gbit/s", delay = "20us", mtu = 1500 }}
[[lab.host]]
name = "right-1"
access = {{ rate = "20Mbit/s" }}
[[lab.link]]
name = "wan"
between = ["left", "right"]
rate = "100Mbit/s"
rtt = "10ms"

[[step]]
name = "load"
workload = "stream"
from = "left-*"
to = "right-*"
{step}
"#
    )
}

fn mean(summary: &Value, metric: &str) -> f64 {
    let metrics = &summary["points"][0]["metrics"];
    metrics[metric]["mean"].as_f64().unwrap_or_else(|| panic!("{metric} is missing: {metrics:#}"))
}

#[test]
fn a_pair_is_bounded_by_its_slower_host_and_a_paced_flow_by_its_pacing() {
    need_lab();
    let _turn = turn();
    // A window that fits the queues, so that nothing is lost: a loss keeps as much from the program as came after it until it is repaired, and
    // where that spans the start of the steady state it gets as much more than the line carries. A fabric that is late there does
    // the same; of 4 s the closest bound leaves it 9 ms. On a path as long as this a fabric may be late by 5 ms.
    let of_flows = |keys: &str| {
        let step = format!("duration = \"8s\"\nwarm_up = \"4s\"\ntcp = {{ window = \"2MB\"{keys} }}");
        let text = unequal(&step)
            .replace("rtt = \"10ms\"", "rtt = \"200ms\"")
            .replace("rate = \"20Mbit/s\"", "rate = \"20Mbit/s\", queue = { bytes = \"4MB\" }");
        let (_, summary, _) = run_settled(&text, &[]);
        let flows = &summary["points"][0]["metrics"]["stream.flow_goodput_bits_per_second"];
        assert_eq!(flows["n"], 2, "{summary:#}");
        [flows["min"].as_f64().unwrap(), flows["max"].as_f64().unwrap()]
    };
    // What framing leaves: 18.83 Mbit/s of the slow interface; the other pair has the rest of 94.15.
    let [slow, fast] = of_flows("");
    assert!((17.9e6..18.9e6).contains(&slow), "{slow}");
    assert!((70e6..77e6).contains(&fast), "{fast}");
    // The same rate for each flow of the step: below the one interface's, above the other's.
    let [slow, paced] = of_flows(", pacing = \"40Mbit/s\"");
    assert!((17.9e6..18.9e6).contains(&slow), "{slow}");
    assert!((37e6..40.1e6).contains(&paced), "{paced}");
}

// Spec: net-protocol.md#ramp-3
// Spec: net-protocol.md#mix-2
#[test]
fn a_ramp_shows_the_total_as_streams_are_added_and_a_mix_what_each_congestion_control_got() {
    need_lab();
    let _turn = turn();
    // Two streams are below what the line carries, the third fills it.
    let step = "pairs = 1\nstreams = 3\nramp = \"1s\"\nduration = \"4s\"\nwarm_up = \"500ms\"\n\
                tcp = { congestion = \"reno+cubic\", pacing = \"40Mbit/s\" }\n\
                [[criterion]]\ntext = \"the two of Reno\"\nmetric = \"stream.congestion_goodput_bits_per_second\"\n\
                on = \"reno\"\nbetween = [\"20Mbit/s\", \"80.1Mbit/s\"]";
    let (status, summary, _) = run_settled(&unequal(step), &[]);
    assert_eq!(status, 0, "{summary:#}");
    for (streams, expected) in [(1, 40e6), (2, 80e6), (3, 94e6)] {
        let total = mean(&summary, &format!("stream.ramp_goodput_bits_per_second@streams.{streams}"));
        assert!((total / expected - 1.0).abs() < 0.1, "{total} of {streams} streams");
    }
    let [reno, cubic] = ["reno", "cubic"]
        .map(|name| mean(&summary, &format!("stream.congestion_goodput_bits_per_second@{name}")));
    let total = mean(&summary, "stream.total_goodput_bits_per_second");
    assert!(cubic < reno && ((reno + cubic) / total - 1.0).abs() < 1e-6, "{reno}, {cubic} of {total}");
}
