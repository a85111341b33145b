//! Criteria on pairs that take turns: a turn that does not count is told, never averaged away.

use super::{Judge, observations_of};
use crate::metric::Metric;
use crate::model::Model;
use crate::record::{Factor, PairRecord, Row, TrialRecord};
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
        *counts.entry(&pair.entity).or_default() += usize::from(pair.failure.is_none());
    }
    counts.into_values().min().unwrap_or(valid.len())
}

/// Why a metric cannot be judged, of one pair or of all together: a turn that it would need does not count, or most of a pair's
/// turns show the generator or the emulator.
pub(super) fn failed(metric: &Metric, entity: Option<&str>, valid: &[&TrialRecord]) -> Option<String> {
    let needed = |pair: &PairRecord| match entity {
        Some(entity) => pair.entity == entity,
        None => !is_local(&pair.entity),
    };
    if entity.is_some_and(|entity| !is_pair(entity)) || !is_of_pairs(metric, valid) {
        return None;
    }
    if let Some(why) = first_failure(valid, &needed) {
        return Some(why);
    }
    let entity = entity?;
    let turns: Vec<&PairRecord> =
        valid.iter().flat_map(|trial| &trial.pairs).filter(|pair| pair.entity == entity).collect();
    [Factor::EmulatorLimited, Factor::GeneratorLimited].into_iter().find_map(|factor| {
        let limited: Vec<_> = turns.iter().filter(|turn| turn.limiting_factor.name == factor).collect();
        let evidence = limited.first().and_then(|turn| turn.limiting_factor.evidence.first());
        let evidence = evidence.map_or(String::new(), |evidence| format!(": {evidence}"));
        (limited.len() * 2 > turns.len()).then(|| {
            format!("{} of {} turns of {entity} were {}{evidence}", limited.len(), turns.len(), factor.name())
        })
    })
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
pub(super) fn pool(pattern: &str, metric: &Metric, valid: &[&TrialRecord]) -> Result<Pool, String> {
    let glob = Glob::parse(pattern)?;
    let matches = |entity: &str| is_pair(entity) && glob.matches(entity);
    if let Some(why) = first_failure(valid, &|pair| matches(&pair.entity)) {
        return Err(format!("{pattern}, which it is compared with: {why}"));
    }
    let rows: Vec<&[Row]> = valid.iter().map(|trial| trial.rows.as_slice()).collect();
    let pool = Pool::new(&observations_of(&rows, metric.name, &matches));
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
