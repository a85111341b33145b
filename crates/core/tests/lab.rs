//! What `[lab]` can describe: stages, routes, impairments, queues, the auxiliary network.

mod common;

use common::*;
use weir_core::scenario::Plan;
use weir_core::topology::{
    Auxiliary, BurstLoss, Discipline, Impairments, Jitter, Queue, Reorder, Stage, TcpProfile, Topology,
};
use weir_core::units::{BitsPerSecond, Bytes};

const RING: &str = r#"[scenario]
name = "ring"
[lab]
auxiliary = { rate = "100Mbit/s", delay = "20us" }
[[lab.site]]
name = "a"
hosts = 2
access = { rate = "1Gbit/s", loss = "1%", jitter = "10us" }
tcp_profile = "legacy"
buffer = "512KiB"
[[lab.site]]
name = "b"
hosts = 2
[[lab.switch]]
name = "mid"
buffer = "1MiB"
[[lab.router]]
name = "far"
replies = false
[[lab.host]]
name = "a-1"
access = { jitter = { reorder = true } }
[[lab.link]]
name = "a-mid"
between = ["a", "mid"]
rate = "1Gbit/s"
rtt = "1ms"
queue = { bytes = "1MB", discipline = "red" }
[[lab.link]]
name = "mid-b"
between = ["mid", "b"]
rate = "1Gbit/s"
rtt = "1ms"
jitter = "1ms"
burst_loss = { bad = "1%", length = 10 }
corrupt = "0.5%"
reorder = { share = "50%", by = "2ms" }
queue = { packets = 100 }
forward = { loss = "2%", jitter = { reorder = true }, burst_loss = { loss = "50%" }, queue = { discipline = "codel", target = "1ms" } }
[[lab.link]]
name = "a-far"
between = ["a", "far"]
rtt = "30ms"
[[lab.link]]
name = "far-b"
between = ["far", "b"]
rtt = "30ms"
[[step]]
name = "x"
workload = "stream"
from = "a-*"
to = "b-*"
duration = "2s"
"#;

fn topology(text: &str) -> Topology {
    plan(text).configurations.remove(0).topology
}

fn with(sets: &[&str]) -> Topology {
    plan_with(RING, sets, false).configurations.remove(0).topology
}

#[track_caller]
fn refused(text: &str, message: &str, help: &str) {
    let all = problems(text, &[]);
    let good = all.iter().any(|problem| problem.2.contains(message) && problem.3.contains(help));
    assert!(good, "no problem says {message:?} and {help:?}: {all:#?}");
}

fn changed(from: &str, to: &str) -> String {
    assert!(RING.contains(from), "{from}");
    RING.replacen(from, to, 1)
}

// Spec: scenario.md#stage-1
#[test]
fn switches_and_routers_are_stages_after_the_sites() {
    let topology = topology(RING);
    let stages: Vec<(&str, Stage, Option<Bytes>)> =
        topology.sites.iter().map(|site| (site.name.as_str(), site.stage, site.buffer)).collect();
    let expected = [
        ("a", Stage::Site, Some(Bytes(512 << 10))),
        ("b", Stage::Site, None),
        ("mid", Stage::Switch, Some(Bytes(1 << 20))),
        ("far", Stage::Router { replies: false }, None),
    ];
    assert_eq!(stages, expected);
    assert_eq!(topology.sites[0].tcp_profile, TcpProfile::Legacy);
    refused(
        &changed("name = \"mid\"", "name = \"a\""),
        "two sites, switches or routers are called \"a\"",
        "",
    );
    refused(&changed("\"a\", \"mid\"", "\"a\", \"mad\""), "no site, switch or router is called", "`mid`");
    refused(&changed("replies = false", "replies = 0"), "expected true or false", "");
    refused(&changed("buffer = \"1MiB\"", "buffers = 1"), "unknown key `buffers`", "`buffer`");
}

// Spec: scenario.md#auxiliary-1
#[test]
fn the_auxiliary_network_is_a_table_or_true_and_is_reached_by_path() {
    let shaped = Auxiliary { rate: Some(BitsPerSecond(100_000_000)), delay_ns: 20_000 };
    assert_eq!(topology(RING).auxiliary, Some(shaped));
    let unshaped = Auxiliary { rate: None, delay_ns: 0 };
    let plain = changed("{ rate = \"100Mbit/s\", delay = \"20us\" }", "true");
    assert_eq!(topology(&plain).auxiliary, Some(unshaped));
    assert_eq!(topology(&changed("{ rate = \"100Mbit/s\", delay = \"20us\" }", "false")).auxiliary, None);
    assert_eq!(with(&["lab.auxiliary.rate=1Mbit/s"]).auxiliary.unwrap().rate, Some(BitsPerSecond(1_000_000)));
    let set = plan_with(&plain, &["lab.auxiliary.delay=1ms"], false).configurations.remove(0).topology;
    assert_eq!(set.auxiliary.unwrap().delay_ns, 1_000_000);
    assert_eq!(with(&["lab.auxiliary=false"]).auxiliary, None);
    refused(&changed("delay = \"20us\" }", "dela = \"20us\" }"), "unknown key `dela`", "`delay`");
}

// Spec: scenario.md#impairment-1, scenario.md#impairment-2, scenario.md#lab-1, scenario.md#lab-2
#[test]
fn impairments_are_of_both_directions_and_each_may_lay_single_keys_over_them() {
    let topology = topology(RING);
    let link = &topology.links[1];
    let backward = Impairments {
        jitter: Some(Jitter { by_ns: 1_000_000, reorder: false }),
        burst_loss: Some(BurstLoss { bad: 0.01, length_packets: 10.0, loss: 1.0 }),
        corrupt: 0.005,
        reorder: Some(Reorder { share: 0.5, by_ns: 2_000_000 }),
    };
    assert_eq!((link.backward.loss, link.backward.impairments), (0.0, backward));
    let forward = Impairments {
        jitter: Some(Jitter { by_ns: 1_000_000, reorder: true }),
        burst_loss: Some(BurstLoss { bad: 0.01, length_packets: 10.0, loss: 0.5 }),
        ..backward
    };
    assert_eq!((link.forward.loss, link.forward.impairments), (0.02, forward));
    let access = &topology.hosts[0].access;
    assert_eq!(
        (access.loss, access.impairments.jitter),
        (0.01, Some(Jitter { by_ns: 10_000, reorder: false }))
    );
    let overridden = topology.hosts[1].access.impairments.jitter;
    assert_eq!(overridden, Some(Jitter { by_ns: 10_000, reorder: true }));
    let set = with(&["link.mid-b.jitter.reorder=true", "link.*.backward.corrupt=1%"]);
    assert!(set.links[1].backward.impairments.jitter.unwrap().reorder);
    assert_eq!(set.links[2].backward.impairments.corrupt, 0.01);
    let at = with(&["link.mid-b.forward.jitter=5ms"]).links[1].forward.impairments.jitter;
    assert_eq!(at, Some(Jitter { by_ns: 5_000_000, reorder: false }));
    refused(&changed("jitter = \"1ms\"", "jitter = 1"), "`jitter`: expected", "");
    refused(&changed("bad = \"1%\", ", ""), "`burst_loss` of [[lab.link]] \"mid-b\" lacks `bad`", "");
    refused(&changed("bad = \"1%\"", "bad = \"99%\""), "more than stays of 10 packets", "at most 0.9091");
    refused(&changed("share = \"50%\"", "share = \"150%\""), "`share` is out of range", "");
    refused(&changed("forward = { loss", "forward = { los"), "unknown key `los` in `forward`", "`loss`");
}

// Spec: scenario.md#queue-1
#[test]
fn a_queue_has_a_limit_and_a_discipline_for_each_direction() {
    let topology = topology(RING);
    let red = Discipline::Red { min_bytes: 166_666, max_bytes: 500_000, probability: 0.1 };
    let both = Queue { bytes: Some(Bytes(1_000_000)), packets: None, discipline: red };
    assert_eq!((topology.links[0].forward.queue, topology.links[0].backward.queue), (both, both));
    let codel = Discipline::Codel { target_ns: 1_000_000, interval_ns: 100_000_000 };
    let own = Queue { bytes: None, packets: Some(100), discipline: codel };
    assert_eq!(topology.links[1].forward.queue, own);
    assert_eq!(topology.links[1].backward.queue, Queue::drop_tail(None, Some(100)));
    let set = with(&["link.a-mid.queue.max=600kB"]);
    let of = |queue: Queue| queue.discipline;
    assert_eq!(
        of(set.links[0].forward.queue),
        Discipline::Red { min_bytes: 200_000, max_bytes: 600_000, probability: 0.1 }
    );
    refused(
        &changed("packets = 100", "packets = 100, min = \"1kB\""),
        "`min` is of the discipline \"red\"",
        "",
    );
    refused(
        &changed("queue = { packets = 100 }", "queue = { packets = 100, discipline = \"red\" }"),
        "`max` of red is in bytes",
        "",
    );
    refused(
        &changed("discipline = \"red\"", "discipline = \"red\", min = \"900kB\""),
        "is not below its `max`",
        "",
    );
    refused(&changed("discipline = \"red\"", "discipline = \"rad\""), "`discipline`", "`red`");
}

// Spec: scenario.md#queue-2
#[test]
fn an_access_queue_has_a_limit_and_without_one_the_hosts_interface_holds_back() {
    let access = |access: &str| format!("[lab]\n[[lab.site]]\nname = \"a\"\naccess = {access}\n");
    refused(&access("{ queue = {} }"), "`queue` of an access link without a limit", "`bytes` or `packets`");
    assert_eq!(topology(&access("{ rate = \"1Gbit/s\" }")).hosts[0].access.queue, None);
    let limited = topology(&access("{ queue = { packets = 5 } }")).hosts[0].access.queue;
    assert_eq!(limited, Some(Queue::drop_tail(None, Some(5))));
}

#[test]
fn a_drop_tail_direction_of_a_red_link_refuses_what_only_red_has() {
    let text = changed(
        "queue = { bytes = \"1MB\", discipline = \"red\" }",
        "queue = { bytes = \"1MB\", discipline = \"red\", max = \"1MB\" }\nbackward = { queue = { discipline = \"drop-tail\" } }",
    );
    refused(&text, "`max` is of the discipline \"red\", and this queue's is \"drop-tail\"", "");
}

// Spec: scenario.md#route-1
#[test]
fn fixed_routes_make_the_way_there_another_than_the_way_back() {
    let text = changed("buffer = \"512KiB\"", "routes = { b = \"a-far\" }");
    let topology = topology(&text);
    let names = |path: Vec<usize>| -> Vec<String> {
        let links = topology.directed_links();
        path.into_iter().map(|index| links[index].name.clone()).collect()
    };
    assert_eq!(names(topology.site_path(0, 1).unwrap()), ["link.a-far.forward", "link.far-b.forward"]);
    assert_eq!(names(topology.site_path(1, 0).unwrap()), ["link.mid-b.backward", "link.a-mid.backward"]);
    let set = with(&["site.a.routes.b=a-far", "site.b.routes.a=far-b"]);
    assert_eq!(set.sites[1].routes, [(0, 3)]);
    refused(&text.replace("b = \"a-far\"", "c = \"a-far\""), "no site is called \"c\"", "");
    refused(&text.replace("b = \"a-far\"", "far = \"a-far\""), "no site is called \"far\"", "");
    refused(&text.replace("b = \"a-far\"", "a = \"a-far\""), "behind its own switch", "");
    refused(&text.replace("b = \"a-far\"", "b = \"far-b\""), "no link of it is called \"far-b\"", "a-far");
    refused(&text.replace("{ b = \"a-far\" }", "\"a-far\""), "expected a table { SITE = \"LINK\" }", "");
}

// Spec: scenario.md#route-2
#[test]
fn routes_in_a_circle_are_refused_with_the_circle() {
    let text = changed("replies = false", "routes = { b = \"a-far\" }").replacen(
        "buffer = \"512KiB\"",
        "routes = { b = \"a-far\" }",
        1,
    );
    refused(&text, "fixed routes send packets for site \"b\" round and round: a → far → a", "shortest path");
}

// Spec: scenario.md#path-1, scenario.md#path-2
#[test]
fn everything_of_a_lab_can_be_set_by_path_or_swept() {
    let set = with(&["switch.mid.buffer=2MiB", "router.*.replies=true", "site.b.buffer=1MB"]);
    assert_eq!(set.sites[2].buffer, Some(Bytes(2 << 20)));
    assert_eq!(set.sites[3].stage, Stage::Router { replies: true });
    assert_eq!(set.sites[1].buffer, Some(Bytes(1_000_000)));
    let swept = plan(&format!(
        "{RING}[sweep]\n\"link.mid-b.jitter\" = [\"1ms\", \"2ms\"]\n\"router.far.replies\" = [true, false]\n\
         \"link.a-mid.queue.discipline\" = [\"drop-tail\", \"red\", \"codel\"]\n"
    ));
    assert_eq!(swept.configurations.len(), 12);
    let jitter = |index: usize| swept.configurations[index].topology.links[1].backward.impairments.jitter;
    assert_eq!((jitter(0).unwrap().by_ns, jitter(6).unwrap().by_ns), (1_000_000, 2_000_000));
    assert_eq!(swept.configurations[6].parameters["jitter"].to_json(), "2ms");
    let sites: Vec<Stage> =
        swept.configurations.iter().map(|configuration| configuration.topology.sites[3].stage).collect();
    assert!(sites.contains(&Stage::Router { replies: true }));
    let case = plan(&format!(
        "{RING}[[case]]\nname = \"round\"\nset = {{ \"site.a.routes\" = {{ b = \"a-far\" }}, \"lab.auxiliary\" = false }}\n"
    ));
    let topology = &case.configurations[0].topology;
    assert_eq!((topology.sites[0].routes.as_slice(), topology.auxiliary), ([(1, 2)].as_slice(), None));
}

fn again(plan: &Plan) -> Plan {
    common::plan(&plan.resolved)
}

// Spec: scenario.md#resolved-1
#[test]
fn the_resolved_lab_is_the_lab() {
    let sets: [&[&str]; 4] = [
        &[],
        &["link.mid-b.jitter.reorder=true", "site.a.routes.b=a-far"],
        &["link.a-mid.queue={discipline=\"codel\"}", "lab.auxiliary=true"],
        &["host.*.access.burst_loss={bad=\"1%\", length=3}", "link.*.forward.queue.discipline=codel"],
    ];
    for sets in sets {
        let first = plan_with(RING, sets, false);
        let again = again(&first);
        assert_eq!(again.configurations, first.configurations, "{}", first.resolved);
        assert_eq!(again.resolved, first.resolved);
    }
}

#[test]
fn a_lab_of_five_hundred_hosts_is_accepted() {
    let wide = RING.replace("hosts = 2", "hosts = 250");
    assert_eq!(topology(&wide).hosts.len(), 500);
    // One site each, all of them around one switch.
    let mut star = String::from("[scenario]\nname = \"star\"\n[lab]\n[[lab.switch]]\nname = \"hub\"\n");
    for number in 0..500 {
        star += &format!(
            "[[lab.site]]\nname = \"s{number}\"\n[[lab.link]]\nbetween = [\"s{number}\", \"hub\"]\n"
        );
    }
    let star = topology(&star);
    assert_eq!((star.hosts.len(), star.sites.len()), (500, 501));
    assert_eq!(star.path(0, 499).unwrap().len(), 4);
}
