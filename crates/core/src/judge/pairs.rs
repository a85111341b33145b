//! Criteria on pairs that take turns: a turn that does not count is told, never averaged away.

use super::Judge;
use crate::metric::Metric;
use crate::model::Model;
use crate::record::{Observed, PairRecord, Row, TrialRecord};
use crate::scenario::glob::Glob;
use crate::scenario::plan::{Configuration, Step};
use crate::scenario::turns::{is_local, is_pair};
use crate::statistics::Pool;
use std::collections::{BTreeMap, BTreeSet};

impl Judge<'_> {
    /// The pairs that the criterion is about, whether they were measured or not.
    pub(super) fn pair_entities(&self, metric: &Metric, valid: &[&TrialRecord]) -> Vec<Option<String>> {
        let Some(glob) = self.criterion.on.as_deref().and_then(|on| Glob::parse(on).ok()) else {
            return Vec::new();
        };
        let rows = valid.iter().flat_map(|trial| &trial.rows);
        let measured =
            rows.filter(|row| row.metric == metric.name && is_pair(&row.entity)).map(|row| &row.entity);
        let failed = valid.iter().flat_map(|trial| &trial.pairs).filter(|pair| pair.failure.is_some());
        let all: BTreeSet<&String> = measured.chain(failed.map(|pair| &pair.entity)).collect();
        all.into_iter().filter(|entity| glob.matches(entity)).cloned().map(Some).collect()
    }
}

/// In how many of the trials the pair counts that does so in the fewest; without pairs that take turns, in all.
pub(super) fn least_measured(valid: &[&TrialRecord]) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for pair in valid.iter().flat_map(|trial| &trial.pairs) {
        *counts.entry(&pair.entity).or_default() += usize::from(pair.counts());
    }
    counts.into_values().min().unwrap_or(valid.len())
}

/// Why a metric cannot be judged, of one pair or of all together: a turn that it would need does not count, or too few turns of a
/// pair are left without those that the generator or the emulator bounded.
pub(super) fn failed(
    metric: &Metric,
    entity: Option<&str>,
    valid: &[&TrialRecord],
    least: usize,
) -> Option<String> {
    let needed = |pair: &PairRecord| match entity {
        Some(entity) => pair.entity == entity,
        None => !is_local(&pair.entity),
    };
    if entity.is_some_and(|entity| !is_pair(entity)) || !is_of_pairs(metric, valid) {
        return None;
    }
    first_failure(valid, &needed).or_else(|| too_few(valid, &needed, least))
}

/// The first pair that is left with fewer turns than `least`.
fn too_few(valid: &[&TrialRecord], needed: &dyn Fn(&PairRecord) -> bool, least: usize) -> Option<String> {
    let mut turns: BTreeMap<&str, Vec<&PairRecord>> = BTreeMap::new();
    for pair in valid.iter().flat_map(|trial| &trial.pairs).filter(|pair| needed(pair)) {
        turns.entry(&pair.entity).or_default().push(pair);
    }
    turns.into_iter().find_map(|(entity, turns)| {
        let reason = turns.iter().find_map(|turn| turn.limiting_factor.unfit())?;
        let left = turns.iter().filter(|turn| turn.counts()).count();
        (left < least).then(|| {
            format!("{left} of {} turns of {entity} count and {least} are needed ({reason})", turns.len())
        })
    })
}

/// The trials in which the turn of `entity`, if it is a pair, counts.
pub(super) fn without_the_unfit<'a>(entity: Option<&str>, valid: &[&'a TrialRecord]) -> Vec<&'a TrialRecord> {
    let unfit = |trial: &&TrialRecord| {
        trial
            .pairs
            .iter()
            .any(|pair| Some(pair.entity.as_str()) == entity && pair.limiting_factor.unfit().is_some())
    };
    valid.iter().copied().filter(|trial| !unfit(trial)).collect()
}

/// The values of one metric in each trial, of what `of` says; without turns that the generator or the emulator bounded.
pub(super) fn observations<'a>(
    trials: &[&'a TrialRecord],
    metric: &str,
    of: &dyn Fn(&str) -> bool,
) -> Vec<Vec<&'a Observed>> {
    let of_trial = |trial: &&'a TrialRecord| {
        let unfit = unfit(trial);
        let wanted =
            |row: &&'a Row| row.metric == metric && of(&row.entity) && !unfit.contains(row.entity.as_str());
        trial.rows.iter().filter(wanted).map(|row| &row.value).collect()
    };
    trials.iter().map(of_trial).collect()
}

/// Pairs whose turns the generator or the emulator bounded.
pub(super) fn unfit(trial: &TrialRecord) -> BTreeSet<&str> {
    let unfit = trial.pairs.iter().filter(|pair| pair.limiting_factor.unfit().is_some());
    unfit.map(|pair| pair.entity.as_str()).collect()
}

/// Whether the metric is one that pairs have.
fn is_of_pairs(metric: &Metric, valid: &[&TrialRecord]) -> bool {
    let has = |trial: &&TrialRecord| {
        let failed = trial.pairs.iter().flat_map(|pair| &pair.rows);
        let rows = trial.rows.iter().filter(|row| is_pair(&row.entity)).chain(failed);
        rows.into_iter().any(|row| row.metric == metric.name)
    };
    valid.iter().any(has)
}

fn first_failure(valid: &[&TrialRecord], needed: &dyn Fn(&PairRecord) -> bool) -> Option<String> {
    valid.iter().find_map(|trial| {
        let failed = trial.pairs.iter().filter(|pair| needed(pair) && pair.failure.is_some());
        let first = failed.clone().next()?;
        let others = match failed.count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more in that trial)"),
        };
        let reason = first.failure.as_deref().unwrap_or_default();
        Some(format!("{} does not count in trial {}: {reason}{others}", first.entity, trial.trial))
    })
}

/// What other pairs of the point measured, together.
pub(super) fn pool(
    pattern: &str,
    metric: &Metric,
    valid: &[&TrialRecord],
    least: usize,
) -> Result<Pool, String> {
    let glob = Glob::parse(pattern)?;
    let matches = |entity: &str| is_pair(entity) && glob.matches(entity);
    if let Some(why) = first_failure(valid, &|pair| matches(&pair.entity)) {
        return Err(format!("{pattern}, which it is compared with: {why}"));
    }
    if let Some(why) = too_few(valid, &|pair| matches(&pair.entity), least) {
        return Err(format!("{pattern}, which it is compared with: {why}"));
    }
    let pool = Pool::new(&observations(valid, metric.name, &matches));
    if pool.trial_count() < valid.len() {
        return Err(format!(
            "{} of {pattern}, which it is compared with, was not measured in every trial",
            metric.name
        ));
    }
    Ok(pool)
}

/// What a model says of a point, or of one pair of it. Pairs that take turns have their paths to themselves: the mean over the
/// pairs that the metric is pooled over.
pub(super) fn predict(
    model: Model,
    configuration: &Configuration,
    step: &Step,
    metric: &Metric,
    entity: Option<&str>,
) -> Result<f64, String> {
    if step.rounds.is_empty() {
        return model.predict(configuration, step, metric);
    }
    let (mut sum, mut count) = (0.0, 0.0);
    for (pair, name) in step.pair_entities(&configuration.topology).enumerate() {
        if entity.map_or(!is_local(&name), |entity| name == entity) {
            sum += model.predict(configuration, &step.of_pair(pair), metric)?;
            count += 1.0;
        }
    }
    Ok(sum / count)
}
