//! What makes a criterion pass, fail or stay undecided.

mod common;

use common::*;
use weir_core::evidence::{EMULATOR_LIMITED, GENERATOR_LIMITED, LINK_RATE, LOSS};
use weir_core::judge::{judge, summarise_run};
use weir_core::record::{CriterionResult, LimitingFactor, Observed, Row, TrialRecord, Verdict};
use weir_core::regression::FitKind;

const HEAD: &str = r#"
[scenario]
name = "s"
[lab]
[[lab.site]]
name = "a"
[[lab.site]]
name = "b"
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

fn scenario(criterion: &str) -> String {
    format!("{HEAD}\n[[criterion]]\ntext = \"c\"\n{criterion}\n")
}

const TOTAL: &str = "stream.total_goodput_bits_per_second";

fn trial(point: &str, number: u32, value: f64) -> TrialRecord {
    let row = |entity: &str, metric: &str, value| Row {
        entity: entity.to_owned(),
        metric: metric.to_owned(),
        value: Observed::Value(value),
    };
    TrialRecord {
        point: point.to_owned(),
        configuration: String::new(),
        step: point.split('/').next().unwrap().to_owned(),
        trial: number,
        valid: true,
        reason: None,
        start_ns: 0,
        end_ns: 1,
        limiting_factor: LimitingFactor::new(
            &LINK_RATE,
            0.9,
            vec!["link.wan.forward was busy 99.9 % of the time".to_owned()],
        ),
        rows: vec![
            row("trial", TOTAL, value),
            row("link.wan.forward", "port.load_ratio", 0.9),
            row("link.wan.backward", "port.load_ratio", 0.1),
        ],
        pairs: Vec::new(),
        granted: serde_json::Map::new(),
        failure_count: 0,
    }
}

fn trials(point: &str, values: &[f64]) -> Vec<TrialRecord> {
    values.iter().enumerate().map(|(number, value)| trial(point, number as u32, *value)).collect()
}

#[track_caller]
fn judged(text: &str, records: &[TrialRecord]) -> (CriterionResult, Verdict) {
    let (mut results, verdict) = judge(&plan(text), &records.to_vec(), &metrics());
    let result = results.remove(0);
    println!("{:?}: {}", result.verdict, result.why);
    (result, verdict)
}

#[track_caller]
fn verdict_of(criterion: &str, records: &[TrialRecord]) -> Verdict {
    judged(&scenario(criterion), records).0.verdict
}

fn total(bound: &str) -> String {
    format!("metric = \"{TOTAL}\"\n{bound}")
}

// Spec: judging.md#verdict-1
#[test]
fn the_estimate_is_judged_and_the_sentence_says_whether_the_interval_crosses_the_bound() {
    let records = trials("x", &[940e6, 941e6, 939e6, 940e6, 942e6]);
    let (result, verdict) = judged(&scenario(&total("at_least = \"930Mbit/s\"")), &records);
    assert_eq!((result.verdict, verdict), (Verdict::Pass, Verdict::Pass));
    assert_eq!(result.value, Some(940.4e6.into()));
    assert_eq!(
        result.why,
        "mean 940.4 Mbit/s keeps to at least 930 Mbit/s; the 95 % interval over 5 trials, 939.6 Mbit/s to 941.4 Mbit/s, \
         does not cross the bound"
    );
    let (result, verdict) = judged(&scenario(&total("at_least = \"940.3Mbit/s\"")), &records);
    assert_eq!((result.verdict, verdict), (Verdict::Pass, Verdict::Pass));
    assert!(result.why.ends_with("crosses the bound") && !result.why.contains("not cross"), "{}", result.why);
    assert_eq!(verdict_of(&total("at_least = \"941Mbit/s\""), &records), Verdict::Fail);
    assert_eq!(verdict_of(&total("at_most = \"941Mbit/s\""), &records), Verdict::Pass);
    assert_eq!(verdict_of(&total("between = [\"1Mbit/s\", \"2Mbit/s\"]"), &records), Verdict::Fail);
}

#[test]
fn the_sentence_never_shows_a_value_equal_to_the_bound_it_breaks() {
    let records = trials("x", &[939_999_990.0; 5]);
    let (result, _) = judged(&scenario(&total("at_least = \"940Mbit/s\"")), &records);
    assert_eq!(result.verdict, Verdict::Fail);
    assert!(result.why.starts_with("mean 939999990 bit/s breaks at least 940 Mbit/s"), "{}", result.why);
}

// Spec: judging.md#verdict-1
#[test]
fn confident_demands_the_whole_interval_and_enough_trials_for_one() {
    let records = trials("x", &[940e6, 941e6, 939e6, 940e6, 942e6]);
    assert_eq!(verdict_of(&total("at_least = \"940.3Mbit/s\"\nconfident = true"), &records), Verdict::Fail);
    assert_eq!(verdict_of(&total("at_least = \"930Mbit/s\"\nconfident = true"), &records), Verdict::Pass);
    assert_eq!(
        verdict_of(&total("at_least = \"930Mbit/s\"\nconfident = true"), &records[..4]),
        Verdict::Inconclusive
    );
    assert_eq!(
        verdict_of(&total("at_least = \"990Mbit/s\"\nconfident = true"), &records[..4]),
        Verdict::Fail
    );
}

#[test]
fn below_five_trials_the_range_is_given_and_the_estimate_still_judged() {
    let (result, _) =
        judged(&scenario(&total("at_least = \"930Mbit/s\"")), &trials("x", &[940e6, 941e6, 939e6]));
    assert_eq!(result.verdict, Verdict::Pass);
    assert_eq!((result.ci95, result.range), (None, Some([939e6, 941e6])));
    assert!(result.why.contains("3 trials range from 939 Mbit/s to 941 Mbit/s"), "{}", result.why);
}

// Spec: judging.md#verdict-2
#[test]
fn fewer_valid_trials_than_half_leave_it_undecided_whatever_they_say() {
    let mut records = trials("x", &[940e6, 941e6, 939e6, 940e6, 942e6]);
    for record in &mut records[2..] {
        record.valid = false;
        record.reason = Some("it ran 5 % too long".to_owned());
    }
    let (result, verdict) = judged(&scenario(&total("at_least = \"1bit/s\"")), &records);
    assert_eq!((result.verdict, verdict), (Verdict::Inconclusive, Verdict::Inconclusive));
    assert_eq!(result.why, "2 of 5 trials are valid and 3 are needed (it ran 5 % too long)");
    assert_eq!(verdict_of(&total("at_least = \"1bit/s\"\ntrials_min = 2"), &records), Verdict::Pass);
    assert_eq!(verdict_of(&total("at_least = \"1bit/s\""), &[]), Verdict::Inconclusive);
}

// Spec: judging.md#verdict-5
#[test]
fn a_run_that_asks_for_nothing_passes_only_if_it_measured() {
    let plan = plan(HEAD);
    let mut records = trials("x", &[940e6; 5]);
    assert_eq!(judge(&plan, &records, &metrics()).1, Verdict::Pass);
    for record in &mut records[..3] {
        record.valid = false;
    }
    assert_eq!(judge(&plan, &records, &metrics()).1, Verdict::Inconclusive);
}

// Spec: judging.md#pool-1
#[test]
fn an_invalid_trial_is_not_averaged_in() {
    let mut records = trials("x", &[940e6, 940e6, 940e6, 940e6, 1.0]);
    records[4].valid = false;
    assert_eq!(judged(&scenario(&total("at_least = \"940Mbit/s\"")), &records).0.value, Some(940e6.into()));
}

// Spec: judging.md#verdict-2
#[test]
fn trials_that_the_machine_or_the_generator_bounded_leave_the_pool_and_the_others_are_judged() {
    let criterion = total("at_least = \"900Mbit/s\"");
    for factor in [&EMULATOR_LIMITED, &GENERATOR_LIMITED] {
        // Three of six were bounded to nothing: the mean of all would break what the others keep.
        let mut records = trials("x", &[1e6, 940e6, 1e6, 940e6, 1e6, 940e6]);
        let limit = |record: &mut TrialRecord| {
            record.limiting_factor.name = factor.name.to_owned();
            record.reason = record.limiting_factor.unfit();
            record.valid = false;
        };
        records.iter_mut().step_by(2).for_each(limit);
        let (result, _) = judged(&scenario(&criterion), &records);
        assert_eq!((result.verdict, result.value), (Verdict::Pass, Some(940e6.into())));
        let points = summarise_run(&plan(HEAD), &records, &metrics());
        assert_eq!((points[0].trials, points[0].valid_trials, points[0].metrics[TOTAL].n), (6, 3, 3));
        // Nor do they make a criterion pass that the others break.
        assert_eq!(verdict_of(&total("at_most = \"900Mbit/s\""), &records), Verdict::Fail);
        limit(&mut records[1]);
        let (result, _) = judged(&scenario(&criterion), &records);
        assert_eq!(result.verdict, Verdict::Inconclusive);
        let reason = records[0].reason.clone().unwrap();
        assert_eq!(result.why, format!("2 of 6 trials are valid and 3 are needed ({reason})"));
        assert_eq!(verdict_of(&format!("{criterion}\ntrials_min = 2"), &records), Verdict::Pass);
        assert_eq!(verdict_of("limiting_factor = \"loss\"", &records), Verdict::Inconclusive);
        // A criterion that asks for just that is judged on all that were measured as planned.
        let expected = format!("limiting_factor = \"{}\"", factor.name);
        assert_eq!(verdict_of(&expected, &records), Verdict::Pass);
        // Where none is left, the point says what bounded them.
        records.iter_mut().for_each(limit);
        let point = summarise_run(&plan(HEAD), &records, &metrics()).remove(0);
        assert_eq!((point.limiting_factor.name.as_str(), point.valid_trials), (factor.name, 0));
        assert_eq!(judge(&plan(HEAD), &records, &metrics()).1, Verdict::Inconclusive);
    }
}

// Spec: evidence.md#fitness-3
#[test]
fn beside_a_full_link_that_was_disturbed_the_whole_rate_is_judged_and_how_it_was_shared_is_not() {
    let mut records = trials("x", &[940e6, 941e6]);
    for record in &mut records {
        let share = Row {
            metric: "stream.fairness_jain".to_owned(),
            value: Observed::Value(0.5),
            ..record.rows[0].clone()
        };
        record.rows.push(share);
    }
    let shared = "metric = \"stream.fairness_jain\"\nat_least = 0.6\ntrials_min = 2";
    assert_eq!(verdict_of(shared, &records), Verdict::Fail);
    records[1].limiting_factor.disturbed = Some("a thread waited for a core".to_owned());
    let (result, _) = judged(&scenario(shared), &records);
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert!(
        result.why.contains("1 of 2 trials") && result.why.contains("waited for a core"),
        "{}",
        result.why
    );
    assert_eq!(verdict_of(&total("at_least = \"900Mbit/s\"\ntrials_min = 2"), &records), Verdict::Pass);
    assert_eq!(verdict_of("limiting_factor = \"link-rate\"\ntrials_min = 2", &records), Verdict::Pass);
    // Of a rate that it does not concern it is no reason.
    records[0].limiting_factor.disturbed = records[1].limiting_factor.disturbed.take();
    (records[1].valid, records[1].reason) = (false, Some("cut short".to_owned()));
    let (result, _) = judged(&scenario(&total("at_least = \"900Mbit/s\"\ntrials_min = 2")), &records);
    assert!(result.why.contains("(cut short)"), "{}", result.why);
}

// Spec: judging.md#verdict-2
#[test]
fn one_trial_of_two_suffices_where_one_is_asked_for_and_not_where_two_are() {
    let mut records = trials("x", &[940e6, 1e6]);
    records[1].limiting_factor.name = EMULATOR_LIMITED.name.to_owned();
    let with =
        |least: u32| verdict_of(&total(&format!("at_least = \"900Mbit/s\"\ntrials_min = {least}")), &records);
    assert_eq!((with(1), with(2)), (Verdict::Pass, Verdict::Inconclusive));
}

// Spec: judging.md#verdict-2
#[test]
fn a_metric_that_some_valid_trial_lacks_is_not_judged_on_the_others() {
    let mut records = trials("x", &[940e6; 5]);
    records[1].rows.clear();
    let (result, _) = judged(&scenario(&total("at_least = \"1bit/s\"")), &records);
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert_eq!(result.why, format!("{TOTAL} has no value in 1 of 5 valid trials of x"));
    for record in &mut records {
        record.rows.clear();
    }
    let (result, _) = judged(&scenario(&total("at_least = \"1bit/s\"")), &records);
    assert_eq!(result.why, format!("{TOTAL} was not measured"));
}

// Spec: judging.md#verdict-3
#[test]
fn the_limiting_factor_is_the_one_of_most_valid_trials() {
    let mut records = trials("x", &[1e6; 5]);
    records[0].limiting_factor.name = LOSS.name.to_owned();
    records[1].limiting_factor.name = LOSS.name.to_owned();
    assert_eq!(verdict_of("limiting_factor = \"link-rate\"", &records), Verdict::Pass);
    let (result, _) = judged(&scenario("limiting_factor = \"loss\""), &records);
    assert_eq!(result.verdict, Verdict::Fail);
    assert_eq!(result.value, Some("link-rate".into()));
    assert_eq!(
        result.why,
        "3 of 5 valid trials were limited by link-rate, not loss: link.wan.forward was busy 99.9 % of the time"
    );
}

#[test]
fn of_the_ceiling_is_a_share_of_what_framing_leaves() {
    let (result, _) = judged(
        &scenario(&total("of = { model = \"ceiling\" }\nat_least = 0.95")),
        &trials("x", &[941_482_444.7; 5]),
    );
    assert_eq!((result.verdict, result.unit.as_deref()), (Verdict::Pass, Some("1")));
    assert!((result.value.unwrap().as_f64().unwrap() - 1.0).abs() < 1e-6);
    assert!(
        result.why.starts_with("1 (941.5 Mbit/s of the ceiling 941.5 Mbit/s) keeps to at least 0.95"),
        "{}",
        result.why
    );
}

// Spec: judging.md#verdict-4
#[test]
fn one_host_or_link_is_picked_by_on_and_the_worst_of_several_is_judged() {
    let records = trials("x", &[1e6; 5]);
    let on = |on: &str, bound: &str| {
        judged(&scenario(&format!("metric = \"port.load_ratio\"\non = \"{on}\"\n{bound}")), &records).0
    };
    assert_eq!(on("link.wan.forward", "at_least = 0.8").verdict, Verdict::Pass);
    assert_eq!(on("link.wan.backward", "at_least = 0.8").verdict, Verdict::Fail);
    let both = on("link.*", "at_least = 0.8");
    assert_eq!((both.verdict, both.value.clone()), (Verdict::Fail, Some(0.1.into())));
    assert!(
        both.why.starts_with("1 of 2 values miss; worst at x: mean 0.1 on link.wan.backward breaks"),
        "{}",
        both.why
    );
    assert_eq!(on("link.wan", "at_most = 0.8").value, Some(0.9.into()));
}

const SWEPT: &str = r#"
[sweep]
"step.x.streams" = [1, 2, 4]
[[case]]
name = "plain"
[[case]]
name = "lossy"
set = { "link.wan.forward.loss" = "1%" }
published = { "stream.total_goodput_bits_per_second" = "90Mbit/s" }
"#;

fn swept(criterion: &str) -> String {
    format!("{HEAD}\n{SWEPT}\n[[criterion]]\ntext = \"c\"\n{}\n", total(criterion))
}

fn swept_records() -> Vec<TrialRecord> {
    let mut records = Vec::new();
    for (case, scale) in [("plain", 1.0), ("lossy", 0.1)] {
        for streams in [1, 2, 4] {
            let value = f64::from(streams) * 1e8 * scale;
            records.extend(trials(&format!("x/{case},streams={streams}"), &[value; 5]));
        }
    }
    records
}

#[test]
fn references_find_their_point_case_and_published_figure() {
    let value =
        |criterion: &str| judged(&swept(criterion), &swept_records()).0.value.unwrap().as_f64().unwrap();
    let near = |criterion: &str, expected: f64| {
        let found = value(criterion);
        assert!((found - expected).abs() < 1e-6 * expected.abs(), "{criterion}: {found}, not {expected}");
    };
    near("case = \"plain\"\nwhere = { streams = 4 }\nof = { point = { streams = 1 } }\nat_least = 1", 4.0);
    near("case = \"lossy\"\nwhere = { streams = 4 }\nof = { case = \"plain\" }\nat_most = 1", 0.1);
    near(
        "case = \"lossy\"\nwhere = { streams = 2 }\nminus = { case = \"plain\" }\nat_most = \"1bit/s\"",
        -1.8e8,
    );
    near("case = \"lossy\"\nwhere = { streams = 2 }\nof = { published = true }\nat_most = 1", 20.0 / 90.0);
    near(
        "case = \"plain\"\nwhere = { streams = 4 }\nof = { point = { streams = 1 } }\nper = \"streams\"\nat_most = 1",
        1.0,
    );
    near("case = \"plain\"\nwhere = { streams = 4 }\nper = \"streams\"\nat_most = \"1Gbit/s\"", 1e8);
}

// Spec: judging.md#verdict-4, scenario.md#criterion-1
#[test]
fn of_several_points_every_one_must_hold_and_the_worst_is_shown() {
    let (result, _) = judged(&swept("case = \"plain\"\nat_least = \"150Mbit/s\""), &swept_records());
    assert_eq!((result.verdict, result.value), (Verdict::Fail, Some(1e8.into())));
    assert_eq!(result.points.len(), 3);
    let (result, _) = judged(&swept("case = \"plain\"\nat_least = \"50Mbit/s\""), &swept_records());
    assert_eq!((result.verdict, result.value), (Verdict::Pass, Some(1e8.into())));
    let (result, _) = judged(
        &swept("case = \"plain\"\nwhere = { streams = { from = 2, to = 4 } }\nat_most = \"300Mbit/s\""),
        &swept_records(),
    );
    assert_eq!((result.verdict, result.value, result.points.len()), (Verdict::Fail, Some(4e8.into()), 2));
}

// Spec: judging.md#interval-3
#[test]
fn a_ratio_resamples_both_sides_by_themselves() {
    let mut records = trials("x/plain,streams=1", &[1.0, 2.0, 3.0, 4.0, 5.0]);
    records.extend(trials("x/plain,streams=2", &[10.0; 5]));
    let text =
        swept("case = \"plain\"\nwhere = { streams = 2 }\nof = { point = { streams = 1 } }\nat_least = 1");
    let (result, _) = judged(&text, &records);
    let [low, high] = result.ci95.unwrap();
    assert!(low < 3.0 && high > 4.0, "the other side's variation counts: {low} {high}");
    assert_eq!(judged(&text, &records).0.ci95, Some([low, high]), "and the seed makes it the same again");
}

// Spec: judging.md#verdict-2
#[test]
fn what_is_compared_with_must_be_valid_too() {
    let mut records = swept_records();
    records.retain(|record| record.point != "x/plain,streams=1");
    let text =
        swept("case = \"plain\"\nwhere = { streams = 2 }\nof = { point = { streams = 1 } }\nat_least = 1");
    let (result, _) = judged(&text, &records);
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert_eq!(
        result.why,
        "x/plain,streams=1, which it is compared with: 0 of 0 trials are valid and 3 are needed"
    );
}

// Spec: judging.md#verdict-5
#[test]
fn the_run_fails_before_it_is_undecided_before_it_passes() {
    let two = |first: &str, second: &str| {
        let text = format!("{}\n[[criterion]]\ntext = \"d\"\n{second}\n", scenario(first));
        judge(&plan(&text), &trials("x", &[940e6; 5]), &metrics()).1
    };
    let (passes, fails) = (total("at_least = \"1bit/s\""), total("at_most = \"1bit/s\""));
    let undecided = "metric = \"stream.fairness_jain\"\nat_least = 0.5";
    assert_eq!(two(&passes, &passes), Verdict::Pass);
    assert_eq!(two(&passes, undecided), Verdict::Inconclusive);
    assert_eq!(two(undecided, &fails), Verdict::Fail);
}

// Spec: scenario.md#criterion-8
#[test]
fn a_criterion_with_a_word_of_its_own_says_it_and_does_not_fail_the_run() {
    let judged = |first: &str, values: &[f64]| {
        let passes = total("at_least = \"1bit/s\"");
        let text = format!("{}\n[[criterion]]\ntext = \"d\"\n{passes}\n", scenario(first));
        let (results, verdict) = judge(&plan(&text), &trials("x", values), &metrics());
        (results[0].verdict, results[0].otherwise.clone(), verdict)
    };
    let noted = total("at_most = \"1bit/s\"\notherwise = \"not explained\"");
    let word = Some("not explained".to_owned());
    assert_eq!(judged(&noted, &[940e6; 5]), (Verdict::Inconclusive, word, Verdict::Pass));
    assert_eq!(judged(&noted, &[0.5; 5]), (Verdict::Pass, None, Verdict::Fail));
    // Not measured is not beyond the bound.
    let other = "metric = \"stream.fairness_jain\"\nat_least = 0.5\notherwise = \"not explained\"";
    assert_eq!(judged(other, &[940e6; 5]), (Verdict::Inconclusive, None, Verdict::Inconclusive));
}

// Spec: judging.md#pool-1, judging.md#pool-2
#[test]
fn the_summary_names_every_point_and_keeps_links_apart() {
    let points = summarise_run(
        &plan(&scenario(&total("at_least = \"1bit/s\""))),
        &trials("x", &[1.0, 2.0]),
        &metrics(),
    );
    assert_eq!(points.len(), 1);
    let names: Vec<&str> = points[0].metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["port.load_ratio@link.wan.backward", "port.load_ratio@link.wan.forward", TOTAL]);
    let summary = &points[0].metrics[TOTAL];
    assert_eq!((summary.n, summary.mean, summary.median, summary.ci95), (2, 1.5, 1.5, None));
    assert_eq!(summary.range, Some([1.0, 2.0]));
    assert_eq!(points[0].limiting_factor.name, LINK_RATE.name);
    let empty = summarise_run(&plan(&scenario(&total("at_least = \"1bit/s\""))), &Vec::new(), &metrics());
    assert_eq!((empty[0].trials, empty[0].valid_trials, empty[0].metrics.len()), (0, 0, 0));
}

const SIX: &str = r#"[sweep]
"step.x.streams" = [1, 2, 3, 4, 5, 6]
"#;

fn of_six(criterion: &str) -> String {
    format!("{HEAD}{SIX}\n[[criterion]]\ntext = \"c\"\nmetric = \"{TOTAL}\"\n{criterion}\n")
}

/// Trials of each number of streams, each with its value.
fn line(value: impl Fn(f64, u32) -> f64, count: u32) -> Vec<TrialRecord> {
    let of = |streams: u32| (0..count).map(move |number| (streams, number));
    (1..=6)
        .flat_map(of)
        .map(|(streams, number)| {
            trial(&format!("x/streams={streams}"), number, value(f64::from(streams), number))
        })
        .collect()
}

// Spec: judging.md#fit-1
#[test]
fn a_slope_is_judged_with_the_interval_of_lines_through_resampled_trials() {
    let fit =
        "fit = { x = \"streams\", over = [1, 4], value = \"slope\" }\nbetween = [\"9bit/s\", \"11bit/s\"]";
    // Beyond 4 the line bends, which is not looked at.
    let bent = |x: f64, number: u32| 10.0 * x.min(4.0) + f64::from(number) * x * 0.1;
    let (result, _) = judged(&of_six(fit), &line(bent, 5));
    assert_eq!(result.verdict, Verdict::Pass);
    let value = result.value.unwrap().as_f64().unwrap();
    assert!((value - 10.2).abs() < 1e-9, "{value}");
    let [low, high] = result.ci95.unwrap();
    assert!(low < 10.2 && high > 10.2 && low >= 10.0 && high <= 10.4, "{low} {high}");
    assert!(result.why.contains("the slope over streams from 1 to 4"), "{}", result.why);
    let [fit_drawn] = result.fits.as_slice() else { panic!("{:?}", result.fits) };
    assert_eq!(
        (fit_drawn.kind, fit_drawn.metric.as_str(), fit_drawn.x.as_str()),
        (FitKind::Slope, TOTAL, "streams")
    );
    assert_eq!((fit_drawn.value, fit_drawn.ci95), (value, result.ci95));
    let through: Vec<(&str, f64, f64)> =
        fit_drawn.points.iter().map(|it| (it.point.as_str(), it.x, (it.y * 1e6).round() / 1e6)).collect();
    assert_eq!(
        through,
        [
            ("x/streams=1", 1.0, 10.2),
            ("x/streams=2", 2.0, 20.4),
            ("x/streams=3", 3.0, 30.6),
            ("x/streams=4", 4.0, 40.8)
        ]
    );
    let corners: Vec<f64> = fit_drawn.corners.iter().flatten().map(|it| (it * 1e6).round() / 1e6).collect();
    assert_eq!(corners, [1.0, 10.2, 4.0, 40.8]);
    let (few, _) = judged(&of_six(fit), &line(bent, 3));
    let [low, high] = few.range.unwrap();
    assert!((low - 10.0).abs() < 1e-9 && (high - 10.2).abs() < 1e-9 && few.ci95.is_none(), "{low} {high}");
    let steep = judged(&of_six(fit), &line(|x, _| 12.0 * x, 5)).0;
    assert_eq!(steep.verdict, Verdict::Fail);
}

// Spec: judging.md#fit-2
#[test]
fn a_knee_is_judged_in_the_unit_of_its_parameter() {
    let fit = "fit = { x = \"streams\", over = [1, 6], value = \"knee\" }\nbetween = [2.5, 3.5]";
    let (result, _) = judged(&of_six(fit), &line(|x, _| 100.0 * x.min(3.0), 5));
    assert_eq!((result.verdict, result.unit.as_deref()), (Verdict::Pass, Some("1")));
    let corners: Vec<f64> = result.fits[0].corners.iter().flatten().map(|it| it.round()).collect();
    assert_eq!((result.fits[0].kind, corners), (FitKind::Knee, vec![1.0, 100.0, 3.0, 300.0, 6.0, 300.0]));
    assert_eq!((result.fits[0].x_unit.as_str(), result.fits[0].y_unit.as_str()), ("1", "bit/s"));
    let straight = judged(&of_six(fit), &line(|x, _| 100.0 * x, 5)).0;
    assert_eq!((straight.verdict, straight.fits.len()), (Verdict::Inconclusive, 0));
    assert!(straight.why.contains("there is no knee"), "{}", straight.why);
    let mut gone = line(|x, _| 100.0 * x.min(3.0), 5);
    gone.retain(|record| record.point != "x/streams=2");
    let lacking = judged(&of_six(fit), &gone).0;
    assert_eq!(lacking.verdict, Verdict::Inconclusive);
    assert!(lacking.why.contains("x/streams=2"), "{}", lacking.why);
}

// Spec: judging.md#fit-4
#[test]
fn an_intercept_is_judged_in_the_unit_of_its_metric() {
    let fit = "fit = { x = \"streams\", over = [1, 6], value = \"intercept\" }\nbetween = [\"39bit/s\", \"41bit/s\"]";
    let (result, _) = judged(&of_six(fit), &line(|x, _| 40.0 + 100.0 * x, 5));
    assert_eq!((result.verdict, result.unit.as_deref()), (Verdict::Pass, Some("bit/s")));
    assert_eq!(result.fits[0].kind, FitKind::Intercept);
    let none = judged(&of_six(fit), &line(|x, _| 100.0 * x, 5)).0;
    assert_eq!(none.verdict, Verdict::Fail);
    assert!(none.why.starts_with("the intercept over streams from 1 to 6, "), "{}", none.why);
}

// Spec: judging.md#fit-3
#[test]
fn points_that_differ_in_anything_else_make_lines_of_their_own_and_each_must_keep_the_bound() {
    let slope = |bound: &str| {
        let fit = "fit = { x = \"streams\", over = [1, 4], value = \"slope\" }";
        judged(&swept(&format!("{fit}\nat_least = \"{bound}\"")), &swept_records()).0
    };
    let steep = slope("50Mbit/s");
    assert_eq!(steep.verdict, Verdict::Fail);
    assert!(steep.why.contains("of 2 lines miss; worst at x/lossy,streams=1: "), "{}", steep.why);
    let slopes: Vec<f64> = steep.fits.iter().map(|fit| fit.value.round()).collect();
    assert_eq!(slopes, [1e7, 1e8], "a line for each case, in the order of their names");
    assert_eq!(slope("5Mbit/s").verdict, Verdict::Pass);
}

// Spec: scenario.md#criterion-6
#[test]
fn a_fit_without_enough_points_or_beside_a_comparison_is_refused() {
    let refused = |criterion: &str, message: &str| {
        let all = problems(&of_six(criterion), &[]);
        assert!(all.iter().any(|problem| problem.2.contains(message)), "{all:#?}");
    };
    let fit = |x: &str, over: &str, value: &str| {
        format!("fit = {{ x = \"{x}\", over = {over}, value = \"{value}\" }}\nat_least = 0")
    };
    refused(&fit("streams", "[1, 3]", "knee"), "only 3 values of \"streams\" from 1 to 3, and it takes 4");
    refused(&fit("streams", "[6, 9]", "slope"), "only 1 values");
    refused(&fit("streams", "[3, 1]", "slope"), "not below the second");
    refused(&fit("streems", "[1, 3]", "slope"), "no parameter \"streems\"");
    refused(&fit("direction", "[1, 3]", "slope"), "is no number");
    refused(&fit("streams", "[1, 3]", "bend"), "`value`");
    refused(
        &format!("of = {{ model = \"ceiling\" }}\n{}", fit("streams", "[1, 3]", "slope")),
        "takes no `of`",
    );
}

// Spec: judging.md#share-1
// Spec: scenario.md#criterion-6
#[test]
fn a_share_asks_the_bound_of_so_many_trials_each_by_itself() {
    let asked =
        |share: f64| scenario(&format!("metric = \"{TOTAL}\"\nshare = {share}\nat_least = \"10bit/s\""));
    // The mean is far above the bound, and two of ten are below it.
    let values = [50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 11.0, 9.0, 5.0];
    let (result, _) = judged(&asked(0.8), &trials("x", &values));
    assert_eq!((result.verdict, result.value.unwrap().as_f64()), (Verdict::Pass, Some(11.0)));
    assert!(
        result.why.starts_with("8 of 10 trials keep to at least 10 bit/s and 8 (80 %) are asked"),
        "{}",
        result.why
    );
    let (result, _) = judged(&asked(0.9), &trials("x", &values));
    assert_eq!((result.verdict, result.value.unwrap().as_f64()), (Verdict::Fail, Some(9.0)));
    let factor = |share: f64| scenario(&format!("share = {share}\nlimiting_factor = \"loss\""));
    let mut records = trials("x", &values);
    for record in &mut records[..4] {
        record.limiting_factor.name = LOSS.name.to_owned();
    }
    assert_eq!(judged(&factor(0.4), &records).0.verdict, Verdict::Pass);
    assert_eq!(judged(&factor(0.5), &records).0.verdict, Verdict::Fail);
}

// Spec: judging.md#model-1
// Spec: scenario.md#criterion-7
#[test]
fn a_model_is_a_constant_to_compare_with_and_says_why_it_says_nothing() {
    let of = |model: &str| {
        scenario(&format!("metric = \"{TOTAL}\"\nof = {{ model = \"{model}\" }}\nat_least = 0.9"))
    };
    let text = of("window").replace("duration = \"2s\"", "duration = \"2s\"\ntcp = { window = \"64KiB\" }");
    let text = text.replace("rate = \"1Gbit/s\"", "rate = \"1Gbit/s\"\nrtt = \"16ms\"");
    let (result, _) = judged(&text, &trials("x", &[32_768_000.0; 5]));
    assert_eq!((result.verdict, result.value.unwrap().as_f64()), (Verdict::Pass, Some(1.0)));
    assert!(result.why.contains("the model window's 32.77 Mbit/s"), "{}", result.why);
    let reno = of("mathis").replace(
        "rate = \"1Gbit/s\"",
        "rate = \"100Mbit/s\"\nrtt = \"25ms\"\nforward = { loss = \"820ppm\" }",
    );
    let reno = reno.replace("duration = \"2s\"", "duration = \"2s\"\ntcp = { congestion = \"reno\" }");
    assert_eq!(judged(&reno, &trials("x", &[19.8e6; 5])).0.verdict, Verdict::Pass);
    let refused = |text: &str, why: &str| {
        let all = problems(text, &[]);
        assert!(all.iter().any(|problem| problem.2.contains(why)), "{all:#?}");
    };
    refused(&of("window"), "says nothing of point x: the step sets no `tcp.window`");
    refused(&of("mathis"), "it is not valid for cubic, only for reno");
    refused(&reno.replace("forward = { loss = \"820ppm\" }", ""), "no link on the path loses at random");
    refused(&of("slow-start"), "the model is of the time that bytes take");
    refused(&of("overload-backlog"), "the model is of the share of events");
    refused(&of("closed-replay"), "the model is of the time of replayed jobs");
    refused(&of("ceilings"), "`model`");
}
