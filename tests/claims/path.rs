//! `weir net path` and steps `path`: what a topology says of itself is what is found.

use crate::support::lab::{NamedLab, two_sites};
use crate::support::{beside, eventually, need_lab, run_settled, start, weir};
use serde_json::Value;
use std::time::Duration;

/// left - one - two - right: 2 ms one way each link.
fn chain(mtu: u64, middle: &str, second_replies: bool) -> String {
    let link = |name: &str, from: &str, to: &str, more: &str| {
        format!(
            "[[lab.link]]\nname = \"{name}\"\nbetween = [\"{from}\", \"{to}\"]\nrate = \"1Gbit/s\"\ndelay = \"2ms\"\n{more}\n"
        )
    };
    let rest = format!(
        "[[lab.router]]\nname = \"one\"\n[[lab.router]]\nname = \"two\"\nreplies = {second_replies}\n{}{}{}",
        link("west", "left", "one", ""),
        link("middle", "one", "two", middle),
        link("east", "two", "right", "")
    );
    two_sites(["", ""], &rest).replace("mtu = 1500", &format!("mtu = {mtu}"))
}

/// What `weir net path` finds from left-0 to a server on right-0.
fn found(lab: &NamedLab, target: &str, more: &[&str]) -> Value {
    let program = weir().get_program().to_str().unwrap().to_owned();
    let serve = ["net", "serve", "--listen", "[::]:5301"];
    let exec = ["lab", "exec", lab.0, "right-0", "--", &program];
    let mut server = start(weir().args(exec).args(serve));
    eventually("the server listens", Duration::from_secs(5), || {
        lab.exec("right-0", &["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5301"]).status == 0
    });
    let mut command = vec![program.as_str(), "net", "path", target, "--json"];
    command.extend(more);
    let client = lab.exec("left-0", &command);
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(client.status, 0, "{}{}", client.stdout, client.stderr);
    serde_json::from_str(&client.stdout).unwrap()
}

fn of(summary: &Value, metric: &str, entity: &str) -> f64 {
    let value = &summary["points"][0]["metrics"][format!("{metric}@{entity}")]["min"];
    value.as_f64().unwrap_or_else(|| panic!("no {metric} of {entity}: {summary:#}"))
}

const THERE: &str = "flow.client.server.0";
const BACK: &str = "flow.server.client.0";

// Spec: net-protocol.md#path-1
// Spec: net-protocol.md#path-3
#[test]
fn the_routers_and_the_peer_are_listed_at_their_distances_over_both_versions_and_both_ways() {
    need_lab();
    let _turn = beside();
    let lab = NamedLab::up("t-path", &chain(1500, "", true));
    let v4 = ["10.64.0.1", "10.127.0.3", "10.127.0.4", "10.64.0.2"];
    let v6 = ["fd77:6569:7200::1", "fd77:6569:7200::1:3", "fd77:6569:7200::1:4", "fd77:6569:7200::2"];
    for (target, [near, one, two, far]) in [("right-0", v4), ("right-0.v6", v6)] {
        let summary = found(&lab, target, &["--probes", "10"]);
        for (flow, hops) in [(THERE, [one, two, far]), (BACK, [two, one, near])] {
            assert_eq!(of(&summary, "path.hop_count", flow), 3.0);
            for (number, (address, least)) in hops.into_iter().zip([0.00404, 0.00804, 0.01208]).enumerate() {
                let hop = format!("{}.{}.{address}", flow.replace("flow", "hop"), number + 1);
                for metric in ["path.hop_round_trip_seconds", "path.hop_full_round_trip_seconds"] {
                    let seconds = of(&summary, metric, &hop);
                    assert!((least..least + 0.02).contains(&seconds), "{metric} of {hop}: {seconds}");
                }
            }
            for metric in
                ["path.round_trip_seconds", "path.full_round_trip_seconds", "path.tcp_round_trip_seconds"]
            {
                let seconds = of(&summary, metric, flow);
                assert!((0.01208..0.032).contains(&seconds), "{metric} of {flow}: {seconds}");
            }
            assert_eq!(of(&summary, "path.mtu_bytes", flow), 1500.0);
        }
    }
}

// Spec: net-protocol.md#path-4
// Spec: net-protocol.md#path-5
#[test]
fn the_path_mtu_is_found_whatever_it_is_and_who_said_so() {
    need_lab();
    let _turn = beside();
    for (name, mtu, middle, expected) in
        [("t-mtu-a", 9000, "", 9000), ("t-mtu-b", 1280, "", 1280), ("t-mtu-c", 9000, "mtu = 1400", 1400)]
    {
        let lab = NamedLab::up(name, &chain(mtu, middle, true));
        for (target, headers) in [("right-0", 52), ("right-0.v6", 72)] {
            let summary = found(&lab, target, &["--train", "10", "--transfer", "100kB"]);
            for flow in [THERE, BACK] {
                let is = |metric: &str| of(&summary, metric, flow);
                assert_eq!(is("path.mtu_bytes"), f64::from(expected), "{name} {target}");
                assert_eq!(is("path.kernel_mtu_bytes"), f64::from(expected), "{name} {target}");
                assert_eq!(is("path.black_holed_bytes"), 0.0, "{name} {target}");
                assert_eq!(is("path.tcp_segment_bytes"), f64::from(expected - headers), "{name} {target}");
            }
            if !middle.is_empty() && target == "right-0" {
                let hop = "hop.client.server.0.1.10.127.0.3";
                assert_eq!(of(&summary, "path.hop_mtu_bytes", hop), f64::from(expected));
            }
        }
    }
}

// Spec: net-protocol.md#path-5
// Spec: net-protocol.md#sessions-5
#[test]
fn a_black_hole_is_named_with_its_size_its_place_and_what_to_do_and_tcp_through_it_is_given_up() {
    need_lab();
    let _turn = beside();
    // Router two says nothing: what right-0 sends vanishes there; what left-0 sends is told by router one.
    let lab = NamedLab::up("t-hole-path", &chain(1500, "mtu = 1400", false));
    let summary = found(&lab, "right-0", &[]);
    assert_eq!(of(&summary, "path.mtu_bytes", THERE), 1400.0);
    assert_eq!(of(&summary, "path.black_holed_bytes", THERE), 0.0);
    assert_eq!(of(&summary, "path.mtu_bytes", BACK), 1400.0);
    assert_eq!(of(&summary, "path.kernel_mtu_bytes", BACK), 1500.0);
    assert_eq!(of(&summary, "path.black_holed_bytes", BACK), 100.0);
    assert_eq!(of(&summary, "path.hop_answered_ratio", "hop.client.server.0.2.silent"), 0.0);
    let warnings = summary["warnings"].to_string();
    for words in ["server to client: black hole", "above 1400 B", "net.ipv4.tcp_mtu_probing=1", "given up"] {
        assert!(warnings.contains(words), "{words}: {warnings}");
    }
    assert!(!warnings.contains("client to server"), "{warnings}");
}

#[test]
fn a_step_of_a_scenario_describes_the_path_of_each_pair_and_is_judged() {
    need_lab();
    let _turn = beside();
    let text = format!(
        r#"[scenario]
name = "look"
about = "written by a test"
trials = 1
seed = 7
{}
[[step]]
name = "look"
workload = "path"
from = "left-0"
to = "right-0"
[[criterion]]
text = "full packets pass"
metric = "path.mtu_bytes.min"
at_least = "1500B"
[[criterion]]
text = "and none vanish"
metric = "path.black_holed_bytes.max"
at_most = 0
"#,
        chain(1500, "", true)
    );
    // A trial in which the fabric was late judges nothing.
    let (_, summary, _) = run_settled(&text, &[]);
    assert_eq!(summary["points"][0]["valid_trials"], 1, "{summary:#}");
    assert_eq!(
        (&summary["criteria"][0]["value"], &summary["criteria"][1]["value"]),
        (&1500.0.into(), &0.0.into())
    );
    let metrics = &summary["points"][0]["metrics"];
    assert_eq!(
        (&metrics["path.hop_count"]["min"], &metrics["path.hop_count"]["n"]),
        (&3.0.into(), &2.into())
    );
}
