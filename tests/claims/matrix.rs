//! Every site to every other in turn, end to end in real labs: rounds that share nothing, cells that fail alone.

use crate::support::{beside, light, need_lab, run, run_file, settled, turn};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Three sites, each two with a line of their own; the first has two hosts.
const LAB: &str = r#"
[scenario]
name = "triangle"
trials = 1
seed = 3
[lab]
[[lab.site]]
name = "a"
hosts = 2
access = { rate = "100Mbit/s", delay = "20us", mtu = 1500 }
[[lab.site]]
name = "b"
access = { rate = "100Mbit/s", delay = "20us", mtu = 1500 }
[[lab.site]]
name = "c"
access = { rate = "100Mbit/s", delay = "20us", mtu = 1500 }
[[lab.link]]
between = ["a", "b"]
rate = "50Mbit/s"
rtt = "4ms"
[[lab.link]]
between = ["b", "c"]
rate = "50Mbit/s"
rtt = "4ms"
[[lab.link]]
between = ["a", "c"]
rate = "50Mbit/s"
rtt = "4ms"
"#;

const STREAM: &str = r#"
[[step]]
name = "matrix"
workload = "stream"
from = "*"
to = "*"
pairing = "all"
turns = "disjoint"
duration = "1s"
warm_up = "300ms"
"#;

struct Done {
    status: i32,
    summary: Value,
    results: PathBuf,
    _folder: tempfile::TempDir,
}

impl Done {
    fn lines(&self, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.results.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
    fn cells(&self, point: usize) -> &[Value] {
        self.summary["points"][point]["matrix"]["cells"].as_array().unwrap()
    }
}

fn run_text(text: &str) -> Done {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, text).unwrap();
    let (status, summary, _) = run_file(&file, folder.path(), &[]);
    let results = Path::new(summary["results"].as_str().unwrap()).to_owned();
    Done { status, summary, results, _folder: folder }
}

fn touches(cell: &Value, host: &str) -> bool {
    cell["from"] == host || cell["to"] == host
}

// Spec: scenario.md#turns-2, scenario.md#turns-4, scenario.md#turns-5, results.md#matrix-1
#[test]
fn rounds_follow_each_other_and_pairs_of_a_round_share_no_host_and_no_line() {
    need_lab();
    let _turn = light();
    let criterion = "[[criterion]]\ntext = \"each has its line\"\nmetric = \"stream.total_goodput_bits_per_second\"\non = \"pair.*\"\nof = { model = \"ceiling\" }\nat_least = 0.5\n";
    let done = settled(|| run_text(&format!("{LAB}{STREAM}{criterion}")), |done| &done.summary);
    assert_eq!(done.status, 0, "{:#}", done.summary);
    assert_eq!(done.cells(0).len(), 12);
    for cell in done.cells(0) {
        let local = cell["from"].as_str().unwrap()[..1] == cell["to"].as_str().unwrap()[..1];
        assert_eq!(cell["local"].as_bool().unwrap_or(false), local, "{cell}");
        // Two at once on a line of 50 Mbit/s would have half of it each; within a site there are 100.
        let least = if local { 80e6 } else { 30e6 };
        assert!(cell["value"].as_f64().unwrap() > least, "{cell}");
    }
    let trials = done.lines("trials.jsonl");
    let pairs = trials[0]["pairs"].as_array().unwrap();
    let at = |pair: &Value, key: &str| pair[key].as_i64().unwrap();
    for one in pairs {
        for other in pairs.iter().filter(|other| other["entity"] != one["entity"]) {
            let together =
                at(one, "start_ns") < at(other, "end_ns") && at(other, "start_ns") < at(one, "end_ns");
            assert_eq!(together, one["round"] == other["round"], "{one} {other}");
            if together {
                let hosts = [&one["from"], &one["to"]];
                assert!(!hosts.contains(&&other["from"]) && !hosts.contains(&&other["to"]), "{one} {other}");
            }
        }
    }
    let entities: Vec<&str> =
        trials[0]["rows"].as_array().unwrap().iter().map(|row| row["entity"].as_str().unwrap()).collect();
    assert!(
        entities.contains(&"local.a-0.a-1") && !entities.iter().any(|entity| entity.starts_with("flow."))
    );
    let begun = done.lines("timeline.jsonl").iter().filter(|event| event["event"] == "round-start").count();
    let plan: Value =
        serde_json::from_str(&fs::read_to_string(done.results.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["configurations"][0]["steps"][0]["rounds"].as_array().unwrap().len(), begun);
    let page = fs::read_to_string(done.results.join("report.html")).unwrap();
    assert_eq!(page.matches("<td class=none>").count(), 4, "a heat map with an empty diagonal");
}

// Spec: judging.md#pairs-3, scenario.md#turns-4
#[test]
fn a_host_that_dies_fails_its_own_cells_and_the_rest_of_the_matrix_goes_on() {
    need_lab();
    let _turn = light();
    let fault = "[[fault]]\nname = \"death\"\nstep = \"matrix\"\nat = \"2500ms\"\non = \"host.c-0\"\ndo = { kill = {} }\n";
    let criterion = |text: &str, on: &str| {
        format!(
            "[[criterion]]\ntext = \"{text}\"\nmetric = \"stream.total_goodput_bits_per_second\"\n{on}at_least = \"1Mbit/s\"\n"
        )
    };
    let criteria = criterion("of all", "")
        + &criterion("of the others", "on = \"pair.b-0.a-*\"\n")
        + &criterion("of the dead", "on = \"pair.c-0.*\"\n");
    let after =
        "[[step]]\nname = \"after\"\nworkload = \"latency\"\nfrom = \"a-0\"\nto = \"b-0\"\ncount = 10\n";
    let text = format!("{LAB}{STREAM}{after}{fault}{criteria}");
    let done = settled(|| run_text(&text), |done| &done.summary);
    assert_eq!(done.status, 3, "{:#}", done.summary);
    let verdicts: Vec<&str> = done.summary["criteria"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["inconclusive", "pass", "inconclusive"], "{:#}", done.summary["criteria"]);
    assert_eq!(done.summary["points"][0]["valid_trials"], 1, "the trial counts for the others");
    let (dead, alive): (Vec<&Value>, Vec<&Value>) =
        done.cells(0).iter().partition(|cell| touches(cell, "c-0"));
    assert!(alive.iter().all(|cell| cell["value"].as_f64().unwrap() > 20e6), "{alive:#?}");
    let failed: Vec<&&Value> = dead.iter().filter(|cell| cell["value"].is_null()).collect();
    assert!(!failed.is_empty(), "{dead:#?}");
    assert!(failed.iter().all(|cell| cell["failure"].as_str().unwrap().contains("host c-0")), "{failed:#?}");
    let told = done.summary["warnings"].to_string();
    assert!(told.contains("not count: host c-0"), "{told}");
    assert_eq!(done.summary["points"][1]["valid_trials"], 1, "the step after it ran");
    let events = done.lines("timeline.jsonl");
    assert_eq!(events.iter().filter(|event| event["event"] == "pair-failed").count(), failed.len());
    let page = fs::read_to_string(done.results.join("report.html")).unwrap();
    assert!(
        page.contains("not count in every trial") && page.contains("class=\"dead\">✗"),
        "the map says so"
    );
    let shown = run(&["report", done.results.to_str().unwrap()]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
}

// Spec: scenario.md#turns-4
#[test]
fn a_pair_that_cannot_reach_its_peer_fails_within_its_time_and_the_next_round_begins() {
    need_lab();
    let _turn = beside();
    let step = STREAM.replace(
        "from = \"*\"\nto = \"*\"\npairing = \"all\"",
        "from = [\"b-0\", \"a-0\", \"a-0\"]\nto = [\"c-0\", \"b-0\", \"c-0\"]",
    );
    let fault =
        "[[fault]]\nname = \"cut\"\nat = \"0s\"\non = \"link.b-c\"\ndo = { outage = { for = \"120s\" } }\n";
    // The first pair is connected before the trial's clock starts; a step before it makes the line dead by then.
    let before =
        "[[step]]\nname = \"before\"\nworkload = \"latency\"\nfrom = \"a-0\"\nto = \"b-0\"\ncount = 10\n";
    let done = run_text(&format!("{LAB}{before}{step}{fault}"));
    assert_eq!(done.status, 3, "a pair without a turn that counts: {:#}", done.summary);
    let cells = done.cells(1);
    assert!(
        cells[0]["value"].is_null() && cells[0]["failure"].as_str().is_some_and(|why| why.contains("b-0")),
        "{cells:#?}"
    );
    assert!(cells[1..].iter().all(|cell| cell["value"].as_f64().unwrap() > 20e6), "{cells:#?}");
    let trials = done.lines("trials.jsonl");
    let length_s =
        (trials[1]["end_ns"].as_i64().unwrap() - trials[1]["start_ns"].as_i64().unwrap()) / 1_000_000_000;
    assert!(length_s < 40, "{length_s} s");
}

// Spec: scenario.md#turns-1
#[test]
fn every_workload_takes_turns() {
    need_lab();
    let _turn = turn();
    let step = |name: &str, keys: &str| {
        format!(
            "[[step]]\nname = \"{name}\"\nworkload = \"{name}\"\nfrom = [\"a-0\", \"b-0\"]\nto = [\"a-1\", \"c-0\"]\npairing = \"all\"\nturns = \"duplex\"\n{keys}\n"
        )
    };
    let steps = step("latency", "count = 50")
        + &step("udp", "duration = \"500ms\"\nrate = \"5Mbit/s\"\nsize = \"1000B\"")
        + &step("burst", "size = \"100kB\"\nrepetitions = 5")
        + &step("connect", "count = 20")
        + &step("stream", "duration = \"500ms\"\ndirection = \"both\"\nstreams = 2");
    // Trials this short often do not count beside other programs; that each pair had its turn and its figure is the claim.
    let done = run_text(&format!("{LAB}{steps}"));
    let trials = done.lines("trials.jsonl");
    let metrics = [
        "latency.round_trip_seconds",
        "udp.loss_ratio",
        "burst.completion_seconds",
        "connect.per_second",
        "stream.total_goodput_bits_per_second",
    ];
    for (point, metric) in metrics.into_iter().enumerate() {
        assert_eq!(done.summary["points"][point]["matrix"]["metric"], metric);
        assert_eq!(done.cells(point).len(), 4);
        let rows = trials[point]["rows"].as_array().unwrap().iter().filter(|row| row["metric"] == metric);
        let pairs: BTreeSet<&str> =
            rows.filter_map(|row| row["entity"].as_str()?.split_once('.')).map(|it| it.1).collect();
        let cells = done.cells(point);
        assert_eq!(
            pairs,
            BTreeSet::from(["a-0.a-1", "a-0.c-0", "b-0.a-1", "b-0.c-0"]),
            "{metric}: {cells:#?}"
        );
    }
    // Two ways of four milliseconds, and none within the site.
    let asked = || run_text(&format!("{LAB}{}", step("latency", "count = 50")));
    let done = settled(asked, |done| &done.summary);
    let trip = |cell: usize| done.cells(0)[cell]["value"].as_f64().unwrap();
    assert!(trip(0) < 0.003 && trip(1) > 0.0039, "{:#?}", done.cells(0));
}
