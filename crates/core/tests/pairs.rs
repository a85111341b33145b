//! Criteria on pairs that take turns.

mod common;

use common::*;
use weir_core::evidence::{EMULATOR_LIMITED, LINK_RATE};
use weir_core::judge::{judge, summarise_run};
use weir_core::record::{CriterionResult, LimitingFactor, Observed, PairRecord, Row, TrialRecord, Verdict};

const TOTAL: &str = "stream.total_goodput_bits_per_second";

#[track_caller]
fn judged(text: &str, records: &[TrialRecord]) -> (CriterionResult, Verdict) {
    let (mut results, verdict) = judge(&plan(text), &records.to_vec(), &metrics());
    let result = results.remove(0);
    println!("{:?}: {}", result.verdict, result.why);
    (result, verdict)
}

const MATRIX: &str = r#"
[scenario]
name = "s"
trials = 1
[lab]
[[lab.site]]
name = "a"
hosts = 2
access = { rate = "1Gbit/s" }
[[lab.site]]
name = "b"
access = { rate = "1Gbit/s" }
[[lab.link]]
name = "wan"
between = ["a", "b"]
rate = "2Gbit/s"
[[step]]
name = "x"
workload = "stream"
from = "*"
to = "*"
pairing = "all"
turns = "disjoint"
duration = "2s"
"#;

/// Turns of a-0, a-1 and b-0 with each other; `values` are of the pairs between the sites, the control's value is 900 Mbit/s.
fn matrix(number: u32, values: [f64; 4], failed: Option<(&str, &str)>) -> TrialRecord {
    let mut record = TrialRecord {
        point: "x".to_owned(),
        configuration: String::new(),
        step: "x".to_owned(),
        trial: number,
        valid: true,
        reason: None,
        start_ns: 0,
        end_ns: 1,
        limiting_factor: LimitingFactor::new(&LINK_RATE, 0.9, Vec::new()),
        rows: Vec::new(),
        pairs: Vec::new(),
        granted: serde_json::Map::new(),
        failure_count: 0,
    };
    let remote = [("a-0", "b-0"), ("a-1", "b-0"), ("b-0", "a-0"), ("b-0", "a-1")];
    let local = [("a-0", "a-1"), ("a-1", "a-0")].map(|pair| (pair, "local", 900e6));
    for ((from, to), first, value) in
        remote.into_iter().zip(values).map(|(pair, value)| (pair, "pair", value)).chain(local)
    {
        let entity = format!("{first}.{from}.{to}");
        let row = Row { entity: entity.clone(), metric: TOTAL.to_owned(), value: Observed::Value(value) };
        let failure = failed.filter(|(pair, _)| *pair == entity).map(|(_, why)| why.to_owned());
        let rows = if failure.is_some() {
            vec![row]
        } else {
            record.rows.push(row);
            Vec::new()
        };
        let limiting_factor = record.limiting_factor.clone();
        let (from, to) = (from.to_owned(), to.to_owned());
        record.pairs.push(PairRecord {
            entity,
            from,
            to,
            round: 0,
            start_ns: 0,
            end_ns: 1,
            failure,
            limiting_factor,
            rows,
        });
    }
    record
}

fn of_matrix(criterion: &str) -> String {
    format!("{MATRIX}\n[[criterion]]\ntext = \"c\"\nmetric = \"{TOTAL}\"\n{criterion}\n")
}

const EVEN: [f64; 4] = [500e6, 600e6, 700e6, 800e6];

// Spec: judging.md#pairs-1
#[test]
fn pairs_are_pooled_without_the_control_and_each_is_judged_by_its_name() {
    let records = [matrix(0, EVEN, None)];
    let value = |criterion: &str| judged(&of_matrix(criterion), &records).0.value.unwrap().as_f64().unwrap();
    assert_eq!(value("at_least = \"1Mbit/s\""), 650e6);
    assert_eq!(value("on = \"pair.b-0.a-0\"\nat_least = \"1Mbit/s\""), 700e6);
    assert_eq!(value("on = \"pair.*\"\nat_least = \"1Mbit/s\""), 500e6, "the worst");
    assert_eq!(value("on = \"local.a-0.a-1\"\nat_least = \"1Mbit/s\""), 900e6);
    let points = summarise_run(&plan(MATRIX), &records.to_vec(), &metrics());
    let summary = &points[0].metrics[TOTAL];
    assert_eq!((summary.n, summary.mean, summary.max), (4, 650e6, 800e6));
}

// Spec: judging.md#pairs-2
#[test]
fn a_pair_is_compared_with_other_pairs_and_with_the_ceiling_of_its_own_path() {
    let records = [matrix(0, EVEN, None)];
    let (result, _) =
        judged(&of_matrix("on = \"pair.b-0.*\"\nof = { on = \"local.*\" }\nat_most = 1.02"), &records);
    assert_eq!(result.value, Some((800e6 / 900e6).into()));
    assert!(result.why.contains("local.*'s 900 Mbit/s"), "{}", result.why);
    let (result, _) =
        judged(&of_matrix("on = \"pair.b-0.a-1\"\nof = { model = \"ceiling\" }\nat_least = 0.8"), &records);
    // 1 Gbit/s of Ethernet, though four pairs would share it if they all loaded at once.
    assert!((result.value.unwrap().as_f64().unwrap() - 800.0 / 941.482).abs() < 1e-4, "{}", result.why);
    let (result, _) = judged(&of_matrix("of = { model = \"ceiling\" }\nat_least = 0.6"), &records);
    assert!((result.value.unwrap().as_f64().unwrap() - 650.0 / 941.482).abs() < 1e-4, "{}", result.why);
}

// Spec: judging.md#pairs-3
#[test]
fn a_pair_that_failed_leaves_undecided_what_needs_it_and_nothing_else() {
    let dead = Some(("pair.b-0.a-0", "host a-0: its agent was lost"));
    let records = [matrix(0, EVEN, None), matrix(1, EVEN, dead), matrix(2, EVEN, None)];
    let verdict = |criterion: &str| {
        let (result, _) = judged(&of_matrix(criterion), &records);
        if result.verdict == Verdict::Inconclusive {
            let told = "pair.b-0.a-0 does not count in trial 1: host a-0: its agent was lost";
            assert!(result.why.contains(told), "{}", result.why);
        }
        result.verdict
    };
    let least = "at_least = \"1Mbit/s\"";
    assert_eq!(verdict(least), Verdict::Inconclusive, "the mean of the others would hide it");
    assert_eq!(verdict(&format!("on = \"pair.*\"\n{least}")), Verdict::Inconclusive);
    assert_eq!(verdict(&format!("on = \"pair.b-0.a-0\"\n{least}")), Verdict::Inconclusive);
    assert_eq!(verdict(&format!("on = \"pair.a-*\"\n{least}")), Verdict::Pass);
    assert_eq!(
        verdict("on = \"pair.a-*\"\nof = { on = \"pair.b-0.*\" }\nat_least = 0.1"),
        Verdict::Inconclusive
    );
    assert_eq!(verdict("on = \"pair.a-*\"\nat_least = \"550Mbit/s\""), Verdict::Fail);
    let points = summarise_run(&plan(MATRIX), &records.to_vec(), &metrics());
    assert_eq!(points[0].metrics[TOTAL].n, 11, "what does not count is not averaged in");
    let (_, overall) = judge(&plan(MATRIX), &records[1..2].to_vec(), &metrics());
    assert_eq!(overall, Verdict::Inconclusive, "without criteria every pair must have been measured");
}

// Spec: judging.md#pairs-4
#[test]
fn turns_that_the_machine_bounded_leave_the_pool_of_their_pair() {
    let mut records = [matrix(0, [1.0; 4], None), matrix(1, EVEN, None), matrix(2, EVEN, None)];
    records[0].pairs[1].limiting_factor.name = EMULATOR_LIMITED.name.to_owned();
    let judged = |records: &[TrialRecord], on: &str| {
        judged(&of_matrix(&format!("on = \"{on}\"\nat_least = \"1Mbit/s\"\ntrials_min = 2")), records).0
    };
    let [bounded, other] = ["pair.a-1.b-0", "pair.a-0.b-0"].map(|on| judged(&records, on).value.unwrap());
    let alone = |on: &str| judged(&records[1..], on).value.unwrap();
    assert_eq!(bounded, alone("pair.a-1.b-0"));
    assert_ne!(other, alone("pair.a-0.b-0"));
    records[1].pairs[1].limiting_factor.name = EMULATOR_LIMITED.name.to_owned();
    let result = judged(&records, "pair.a-1.b-0");
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert!(result.why.contains("1 of 3 turns of pair.a-1.b-0 count and 2 are needed"), "{}", result.why);
    let point = summarise_run(&plan(MATRIX), &records.to_vec(), &metrics()).remove(0);
    assert_eq!(point.metrics[TOTAL].n, 10, "of twelve turns");
}

// Spec: results.md#matrix-1
#[test]
fn the_matrix_of_a_point_has_every_pair_of_the_plan_and_says_why_a_cell_is_empty() {
    let dead = Some(("pair.b-0.a-0", "host a-0: its agent was lost"));
    // The metric that comes first of the workload's is per flow in these schemas.
    let renamed = |mut record: TrialRecord| {
        record.rows.iter_mut().for_each(|row| row.metric = "stream.flow_goodput_bits_per_second".to_owned());
        record
    };
    let records = [renamed(matrix(0, EVEN, dead)), renamed(matrix(1, [100e6; 4], dead))];
    let matrix = summarise_run(&plan(MATRIX), &records.to_vec(), &metrics()).remove(0).matrix.unwrap();
    assert_eq!(
        (matrix.metric.as_str(), matrix.statistic.as_str()),
        ("stream.flow_goodput_bits_per_second", "mean")
    );
    assert_eq!(matrix.cells.len(), 6);
    let cell =
        |from: &str, to: &str| matrix.cells.iter().find(|cell| cell.from == from && cell.to == to).unwrap();
    assert_eq!(cell("a-0", "b-0").value, Some(300e6), "the mean over the trials");
    assert!(cell("a-0", "a-1").local && !cell("a-0", "b-0").local);
    let failed = cell("b-0", "a-0");
    assert_eq!((failed.value, failed.trials, failed.valid_trials), (None, 2, 0));
    assert_eq!(failed.failure.as_deref(), Some("host a-0: its agent was lost"));
}
