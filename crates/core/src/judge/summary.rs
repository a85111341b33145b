//! The points of a run and their metrics, as the summary document lists them.

use super::{Records, belongs, pairs};
use crate::evidence::UNKNOWN;
use crate::metric::{Metric, Scope};
use crate::record::{
    LimitingFactor, Matrix, MatrixCell, MetricSummary, Observed, PairRecord, PointSummary, Row, TrialRecord,
};
use crate::scenario::plan::{Configuration, Plan, Step};
use crate::scenario::turns::is_local;
use crate::seed;
use crate::statistics::{Pool, Statistic, Uncertainty, most_frequent};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Every point of the plan, reached or not, with the statistics of its valid trials.
pub fn summarise_run(plan: &Plan, records: &dyn Records, metrics: &[Metric]) -> Vec<PointSummary> {
    summarise_points(plan, records, metrics, false)
}

/// As `summarise_run`; a point none of whose trials counts has the figures of those that measured something, since of a measurement
/// that nothing is judged of whoever asked wants to see what there is. `valid_trials` says that they do not count.
pub fn summarise_ad_hoc(plan: &Plan, records: &dyn Records, metrics: &[Metric]) -> Vec<PointSummary> {
    summarise_points(plan, records, metrics, true)
}

fn summarise_points(
    plan: &Plan,
    records: &dyn Records,
    metrics: &[Metric],
    shows_all: bool,
) -> Vec<PointSummary> {
    let mut points = Vec::new();
    for configuration in &plan.configurations {
        for step in &configuration.steps {
            let all = records.of(&step.point);
            let valid = all.valid();
            // Where nothing counts, what the trials were bounded by says why.
            let bounded = match valid.is_empty() {
                true if shows_all => all.all().iter().collect(),
                true => all.measured(),
                false => valid.clone(),
            };
            let summarised = if shows_all { &bounded } else { &valid };
            let kept: Vec<Cow<'_, [Row]>> =
                summarised.iter().map(|record| of_counting_turns(record)).collect();
            let rows: Vec<&[Row]> = kept.iter().map(AsRef::as_ref).collect();
            points.push(PointSummary {
                id: step.point.clone(),
                step: step.name.clone(),
                case: configuration.case.clone(),
                parameters: step.parameters_json().into_iter().collect(),
                trials: u32::try_from(all.all().len()).unwrap_or(u32::MAX),
                valid_trials: u32::try_from(valid.len()).unwrap_or(u32::MAX),
                metrics: summarise_rows(&rows, metrics, seed::split(plan.seed, &step.point)),
                limiting_factor: limiting_factor(bounded.iter().map(|record| &record.limiting_factor)),
                matrix: matrix(configuration, step, &valid, metrics),
            });
        }
    }
    points
}

/// The rows of a trial without those of turns that the machine or the generator bounded.
fn of_counting_turns(record: &TrialRecord) -> Cow<'_, [Row]> {
    let unfit = pairs::unfit(record);
    if unfit.is_empty() {
        return Cow::Borrowed(&record.rows);
    }
    record.rows.iter().filter(|row| !unfit.contains(row.entity.as_str())).cloned().collect()
}

/// The values of one metric in each trial.
fn observations<'a>(trials: &[&'a [Row]], metric: &str, entity: Option<&str>) -> Vec<Vec<&'a Observed>> {
    let wanted = |row: &&Row| row.metric == metric && belongs(&row.entity, entity);
    trials.iter().map(|rows| rows.iter().filter(wanted).map(|row| &row.value).collect()).collect()
}

/// The statistics of each metric over trials, `[trial][row]`. Values of flows are pooled; values of links, hosts and
/// parts of a load are kept apart as `metric@entity`. Rows of metrics that are not defined are left out. `seed` is of the intervals.
pub fn summarise_rows(trials: &[&[Row]], metrics: &[Metric], seed: u64) -> BTreeMap<String, MetricSummary> {
    let mut names: BTreeSet<(&str, Option<&str>)> = BTreeSet::new();
    for row in trials.iter().flat_map(|rows| rows.iter()) {
        let Some(metric) = metrics.iter().find(|metric| metric.name == row.metric) else { continue };
        let entity = metric.scope.has_entities().then_some(row.entity.as_str());
        names.insert((metric.name, entity));
    }
    let mut summaries = BTreeMap::new();
    for (name, entity) in names {
        let Some(metric) = metrics.iter().find(|metric| metric.name == name) else { continue };
        let pool = Pool::new(&observations(trials, name, entity));
        let key = entity.map_or_else(|| name.to_owned(), |entity| format!("{name}@{entity}"));
        if let Some(summary) = summarise(&pool, metric.unit, seed::split(seed, &key)) {
            summaries.insert(key, summary);
        }
    }
    summaries
}

fn summarise(pool: &Pool, unit: &str, seed: u64) -> Option<MetricSummary> {
    let of = |statistic| pool.estimate(statistic);
    let uncertainty = Uncertainty::of(pool, Statistic::Mean, seed);
    Some(MetricSummary {
        unit: unit.to_owned(),
        n: pool.count(),
        min: of(Statistic::Min)?,
        mean: of(Statistic::Mean)?,
        median: of(Statistic::Quantile(0.5))?,
        p95: of(Statistic::Quantile(0.95))?,
        p99: of(Statistic::Quantile(0.99))?,
        max: of(Statistic::Max)?,
        ci95: uncertainty.ci95,
        range: uncertainty.range,
    })
}

/// The main metric of each pair that takes turns.
fn matrix(
    configuration: &Configuration,
    step: &Step,
    valid: &[&TrialRecord],
    metrics: &[Metric],
) -> Option<Matrix> {
    let metric = metrics.iter().find(|metric| metric.name == step.main_metric)?;
    let (name, statistic) = match metric.scope {
        Scope::Operation => ("median", Statistic::Quantile(0.5)),
        _ => ("mean", Statistic::Mean),
    };
    // A folder of a thousand pairs and as many trials is gone through once, not once for each pair.
    let mut rows: BTreeMap<&str, Vec<Vec<&Row>>> = BTreeMap::new();
    let mut turns: BTreeMap<&str, Vec<&PairRecord>> = BTreeMap::new();
    for (trial, record) in valid.iter().enumerate() {
        let unfit = pairs::unfit(record);
        let counts = |row: &&Row| row.metric == metric.name && !unfit.contains(row.entity.as_str());
        for row in record.rows.iter().filter(counts) {
            let trials = rows.entry(&row.entity).or_insert_with(|| vec![Vec::new(); valid.len()]);
            trials[trial].push(row);
        }
        for pair in &record.pairs {
            turns.entry(&pair.entity).or_default().push(pair);
        }
    }
    let topology = &configuration.topology;
    let cells: Vec<MatrixCell> = step
        .pair_entities(topology)
        .zip(&step.pairs)
        .map(|(entity, (from, to))| {
            let values = rows.get(entity.as_str()).map_or(&[][..], Vec::as_slice);
            let observed: Vec<Vec<&Observed>> =
                values.iter().map(|trial| trial.iter().map(|row| &row.value).collect()).collect();
            let turns = turns.get(entity.as_str()).map_or(&[][..], Vec::as_slice);
            let good = turns.iter().filter(|turn| turn.counts());
            let measured = turns.iter().filter(|turn| turn.failure.is_none());
            let bounded = if good.clone().next().is_some() {
                good.clone().copied().collect()
            } else {
                measured.copied().collect::<Vec<_>>()
            };
            MatrixCell {
                from: topology.hosts[*from].name.clone(),
                to: topology.hosts[*to].name.clone(),
                local: is_local(&entity),
                value: Pool::new(&observed).estimate(statistic),
                trials: u32::try_from(turns.len()).unwrap_or(u32::MAX),
                valid_trials: u32::try_from(good.clone().count()).unwrap_or(u32::MAX),
                failure: turns.iter().find_map(|turn| turn.failure.clone()),
                limiting_factor: limiting_factor(bounded.iter().map(|turn| &turn.limiting_factor)),
            }
        })
        .collect();
    (!cells.is_empty()).then(|| Matrix {
        metric: metric.name.to_owned(),
        unit: metric.unit.to_owned(),
        statistic: name.to_owned(),
        cells,
    })
}

/// The factor of most valid trials (or turns), with the evidence of the one that is surest of it. Its confidence is that of
/// those that name it, weakened by those that do not.
fn limiting_factor<'a>(valid: impl Iterator<Item = &'a LimitingFactor> + Clone) -> LimitingFactor {
    let Some((name, _)) = most_frequent(valid.clone().map(|factor| factor.name.as_str())) else {
        return LimitingFactor::new(&UNKNOWN, 0.0, vec!["no trial is valid".to_owned()]);
    };
    let all = valid.clone().count();
    let agreeing: Vec<&LimitingFactor> = valid.filter(|factor| factor.name == name).collect();
    let sum: f64 = agreeing.iter().map(|factor| factor.confidence).sum();
    let surest = agreeing.iter().max_by(|a, b| a.confidence.total_cmp(&b.confidence));
    let (mut evidence, next) =
        surest.map(|factor| (factor.evidence.clone(), factor.next.clone())).unwrap_or_default();
    if agreeing.len() < all {
        evidence.push(format!("{} of {all} valid trials", agreeing.len()));
    }
    LimitingFactor { name: name.to_owned(), confidence: sum / all as f64, evidence, next, disturbed: None }
}
