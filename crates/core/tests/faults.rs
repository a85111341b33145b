//! What `[[fault]]` can say: on what, of which packets, when for whom.

mod common;

use common::*;
use std::time::Duration;
use weir_core::fault::Act;
use weir_core::scenario::{Affected, Fault, FaultPart};
use weir_core::schedule::{Effect, Match, Protocol};

const BASE: &str = r#"[scenario]
name = "s"
[lab]
auxiliary = true
[[lab.site]]
name = "a"
hosts = 3
[[lab.site]]
name = "b"
hosts = 2
[[lab.link]]
name = "wan"
between = ["a", "b"]
rate = "1Gbit/s"
[[step]]
name = "x"
workload = "stream"
from = "a-0"
to = "b-0"
duration = "2s"
"#;

const SWAP: &str = r#"[[fault]]
name = "swap"
at = "5s"
every = "61s"
phase = { "a-0" = "0s", "a-1" = "17s" }
on = "link.wan.forward"
match = { from = "a-*" }
do = { delay_some = { share = 0.5, by = "2ms", for = "3ms" } }
"#;

fn with(fault: &str) -> String {
    format!("{BASE}{fault}")
}

fn fault(text: &str) -> Fault {
    plan(&with(text)).configurations.remove(0).faults.remove(0)
}

#[track_caller]
fn refused(fault: &str, message: &str, help: &str) {
    let all = problems(&with(fault), &[]);
    let good = all.iter().any(|problem| problem.2.contains(message) && problem.3.contains(help));
    assert!(good, "no problem says {message:?} and {help:?}: {all:#?}");
}

fn swap(from: &str, to: &str) -> String {
    assert!(SWAP.contains(from), "{from}");
    SWAP.replacen(from, to, 1)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

// Spec: scenario.md#fault-4
#[test]
fn a_phase_for_each_sender_makes_a_part_for_each_group() {
    let fault = fault(SWAP);
    let part = |phase, from: &[u32]| FaultPart {
        phase: seconds(phase),
        affected: Affected::Packets(Match { from: from.to_vec(), ..Match::default() }),
    };
    assert_eq!(fault.parts, [part(0, &[0, 2]), part(17, &[1])], "a-2 is named by the match alone");
    let late = Effect::DelaySome { share: 0.5, by_ns: 2_000_000 };
    assert_eq!(fault.act, Act::Link { whole: None, packets: Some(late) });
    assert_eq!(
        (fault.duration, fault.sentence.as_str()),
        (Some(Duration::from_millis(3)), "50 % of the packets 2ms later for 3ms")
    );
    assert_eq!((fault.at, fault.every, fault.on), (seconds(5), Some(seconds(61)), vec![10]));
    let all = self::fault(&swap("match = { from = \"a-*\" }\n", ""));
    assert_eq!(all.parts, [part(0, &[0, 2, 3, 4]), part(17, &[1])], "without a match every host sends");
    refused(&swap("\"a-1\" = \"17s\"", "\"b-1\" = \"17s\""), "on no host called \"b-1\"", "");
    refused(&swap("\"a-1\" = \"17s\"", "\"a-*\" = \"17s\""), "a-0 has two of them", "");
    refused(&swap("\"17s\"", "17"), "`phase`: expected a time", "");
    refused(&swap("by = \"2ms\", ", ""), "lacks `by`", "");
}

// Spec: scenario.md#fault-3
#[test]
fn a_match_chooses_packets_by_ends_port_protocol_and_share() {
    let chosen = |matches: &str| {
        let fault = fault(&format!(
            "[[fault]]\nname = \"f\"\non = \"link.wan\"\nmatch = {matches}\ndo = {{ loss = {{ ratio = \"5%\", for = \"1s\" }} }}\n"
        ));
        fault.parts[0].affected.clone()
    };
    let expected = Match {
        from: vec![0, 2],
        to: vec![3, 4],
        port: Some(5201),
        protocol: Some(Protocol::Tcp),
        share: 0.5,
    };
    let written =
        "{ from = [\"a-2\", \"a-0\", \"a-0\"], to = \"b-*\", port = 5201, protocol = \"tcp\", share = 0.5 }";
    assert_eq!(chosen(written), Affected::Packets(expected));
    assert_eq!(chosen("{}"), Affected::Packets(Match::default()));
    refused(&swap("from = \"a-*\"", "from = \"c-*\""), "no host is called \"c-*\"", "");
    refused(&swap("from = \"a-*\"", "frm = \"a-*\""), "unknown key `frm` in `match`", "`from`");
    refused(&swap("from = \"a-*\"", "port = 5201, protocol = \"icmp\""), "packets of icmp have none", "");
    refused(&swap("from = \"a-*\"", "port = 70000"), "`port` is out of range", "");
    let rate = "do = { rate = { to = \"1Mbit/s\", for = \"3ms\" } }\n";
    let matched = swap("do = { delay_some = { share = 0.5, by = \"2ms\", for = \"3ms\" } }\n", rate);
    refused(&matched, "`phase` chooses packets, and a rate is of the whole link", "");
}

// Spec: scenario.md#fault-1
#[test]
fn a_fault_is_on_links_on_a_hosts_own_or_on_all_of_a_site() {
    let on = |on: &str| {
        fault(&format!(
            "[[fault]]\nname = \"f\"\non = \"{on}\"\ndo = {{ corrupt = {{ ratio = \"1%\", for = \"1ms\" }} }}\n"
        ))
    };
    assert_eq!(on("link.wan").on, [10, 11]);
    assert_eq!(on("host.a-1").on, [2, 3]);
    assert_eq!(on("host.a-1.access.backward").on, [3]);
    assert_eq!(on("host.a-1.auxiliary").on, [14, 15]);
    assert_eq!(on("site.b").on, [6, 7, 8, 9]);
    assert_eq!(on("site.b.forward").on, [6, 8]);
    assert_eq!(on("link.wan").parts, [FaultPart { phase: Duration::ZERO, affected: Affected::Link }]);
    let wrong = |on: &str| {
        format!("[[fault]]\nname = \"f\"\non = \"{on}\"\ndo = {{ outage = {{ for = \"1ms\" }} }}\n")
    };
    refused(&wrong("site.c"), "no site with hosts is called \"c\"", "");
    refused(&wrong("link.wam"), "no link is called \"link.wam\"", "`link.wan`");
    refused(&wrong("host.a-9"), "no link is called \"host.a-9\"", "");
}

// Spec: scenario.md#fault-6
#[test]
fn processes_are_paused_and_killed_on_hosts() {
    let of = |on: &str, action: &str| {
        fault(&format!("[[fault]]\nname = \"f\"\non = \"{on}\"\ndo = {{ {action} }}\n"))
    };
    let processes = |fault: Fault| (fault.on, fault.parts[0].affected.clone(), (fault.act, fault.duration));
    let pause = (Act::Stop, Some(seconds(1)));
    assert_eq!(
        processes(of("host.a-1", "pause = { for = \"1s\" }")),
        (vec![], Affected::Processes(vec![1]), pause)
    );
    let all = Affected::Processes(vec![3, 4]);
    assert_eq!(processes(of("site.b", "kill = {}")), (vec![], all, (Act::Kill, None)));
    let refuse = |on: &str, more: &str, message: &str| {
        refused(
            &format!("[[fault]]\nname = \"f\"\non = \"{on}\"\n{more}do = {{ kill = {{}} }}\n"),
            message,
            "",
        );
    };
    refuse("link.wan", "", "only hosts have processes");
    refuse("host.c-0", "", "no host is called \"c-0\"");
    refuse("host.a-0", "match = { port = 80 }\n", "`match` chooses packets, and kill is of processes");
}

#[test]
fn a_resolved_fault_is_the_fault() {
    let first = plan_with(&with(SWAP), &["fault.swap.match.share=0.25", "fault.swap.phase.a-1=18s"], false);
    let again = plan(&first.resolved);
    assert_eq!(again.configurations, first.configurations, "{}", first.resolved);
    assert_eq!(first.configurations[0].faults[0].parts[1].phase, seconds(18));
}

// Spec: scenario.md#host-3
#[test]
fn real_hosts_have_no_links_to_disturb() {
    let text = format!(
        "[scenario]\nname = \"s\"\n[hosts.a-0]\naddress = \"h\"\n[[fault]]\nname = \"f\"\non = \"host.a-0\"\n{}",
        "do = { outage = { for = \"1ms\" } }\n"
    );
    assert!(problems(&text, &[])[0].2.contains("needs [lab]"));
}
