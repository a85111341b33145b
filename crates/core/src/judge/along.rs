//! A criterion on a line through points: its slope, or where it bends.

use super::{Judge, Outcome, holds, margin, why};
use crate::metric::Metric;
use crate::record::{FitPoint, FitResult};
use crate::regression::{FitKind, Fitted};
use crate::scenario::criterion_unit;
use crate::scenario::plan::Fit;
use crate::scenario::select::PointIndex;
use crate::statistics::{INTERVAL_TRIALS_MIN, Pool, Resampler, Statistic, Uncertainty, interval95, range};
use crate::units::human;
use std::collections::BTreeSet;

impl Judge<'_> {
    /// What the fit comes to along one line of points, for each entity.
    pub(super) fn along(&self, fit: &Fit, line: &[(f64, PointIndex)]) -> Vec<Outcome> {
        let Some(metric) = self.definition() else {
            return vec![Outcome::inconclusive("its metric is not defined in this version".to_owned())];
        };
        let mut entities: Option<BTreeSet<Option<String>>> = None;
        for (_, point) in line {
            let id = self.id(*point);
            let trials = self.records.of(id);
            let valid = trials.fit_for(Some(metric));
            if let Some(why) = self.not_judgeable(&trials, &valid) {
                return vec![Outcome::inconclusive(format!("{id}: {why}"))];
            }
            let here: BTreeSet<Option<String>> = self.entities(metric, &valid).into_iter().collect();
            if here.is_empty() {
                return vec![Outcome::inconclusive(format!("{} was not measured at {id}", metric.name))];
            }
            entities = Some(match entities {
                None => here,
                Some(before) => before.union(&here).cloned().collect(),
            });
        }
        let of = |entity: Option<String>| match self.fitted(fit, line, metric, entity.as_deref()) {
            Ok(outcome) => outcome,
            Err(why) => Outcome::inconclusive(why),
        };
        entities.unwrap_or_default().into_iter().map(of).collect()
    }

    fn fitted(
        &self,
        fit: &Fit,
        line: &[(f64, PointIndex)],
        metric: &Metric,
        entity: Option<&str>,
    ) -> Result<Outcome, String> {
        let statistic = Statistic::parse(&self.criterion.statistic)
            .ok_or_else(|| format!("no statistic is called {:?}", self.criterion.statistic))?;
        let mut pools: Vec<(f64, Pool)> = Vec::new();
        for (x, point) in line {
            let id = self.id(*point);
            pools.push((*x, self.pool(id, metric, entity, &self.records.of(id).fit_for(Some(metric)))?));
        }
        let values = |y: &mut dyn FnMut(&Pool) -> Option<f64>| -> Option<Vec<(f64, f64)>> {
            pools.iter().map(|(x, pool)| Some((*x, y(pool)?))).collect()
        };
        let through = |y: &mut dyn FnMut(&Pool) -> Option<f64>| Some(fit.value.draw(&values(y)?)?.value);
        let [from, to] = fit.over;
        let name = fit.value.name();
        let measured = values(&mut |pool| pool.estimate(statistic)).unwrap_or_default();
        let Fitted { value, corners } = fit.value.draw(&measured).ok_or_else(|| {
            format!("there is no {name} of {} over {} from {from} to {to}: one line fits", metric.name, fit.x)
        })?;
        let fewest = pools.iter().map(|(_, pool)| pool.trial_count()).min().unwrap_or(0);
        let uncertainty = if fewest >= INTERVAL_TRIALS_MIN {
            let seed = self.seed(self.id(line[0].1), metric, entity);
            let resample = |resampler: &mut Resampler| {
                through(&mut |pool| pool.weighted(statistic, &resampler.weights(pool.trial_count())))
            };
            Uncertainty { ci95: interval95(seed, resample), range: None }
        } else {
            // One line through the first trial of every point, one through the second, and so on.
            let of_trial = |trial: usize| through(&mut |pool| pool.of_trial(statistic, trial));
            Uncertainty { ci95: None, range: range((0..fewest).filter_map(of_trial)) }
        };
        let holds = holds(&self.criterion.bound, value);
        let keeps = if holds { "keeps to" } else { "breaks" };
        let whose = entity.map_or(String::new(), |entity| format!(" on {entity}"));
        let unit = self.unit();
        let shown = why::told_apart(value, &self.criterion.bound, unit);
        let shown = match fit.value {
            FitKind::Slope => format!("{shown} for each {}", fit.x),
            FitKind::Knee => format!("{} = {shown}", fit.x),
            FitKind::Intercept => shown,
        };
        Ok(Outcome {
            verdict: self.verdict(holds, uncertainty),
            margin: margin(&self.criterion.bound, value),
            value: Some(value.into()),
            uncertainty,
            why: format!(
                "the {name} over {} from {} to {}{whose}, {shown}, {keeps} {}; {}",
                fit.x,
                human(from, fit.x_unit),
                human(to, fit.x_unit),
                why::bound_text(&self.criterion.bound, unit),
                why::trust(uncertainty, &self.criterion.bound, unit, fewest),
            ),
            fit: Some(FitResult {
                kind: fit.value,
                metric: entity
                    .map_or_else(|| metric.name.to_owned(), |entity| format!("{}@{entity}", metric.name)),
                statistic: self.criterion.statistic.clone(),
                x: fit.x.clone(),
                x_unit: fit.x_unit.to_owned(),
                y_unit: criterion_unit(*metric, &self.criterion.statistic).to_owned(),
                points: (line.iter().zip(&measured))
                    .map(|((_, point), (x, y))| FitPoint { point: self.id(*point).to_owned(), x: *x, y: *y })
                    .collect(),
                corners,
                value,
                ci95: uncertainty.ci95,
                range: uncertainty.range,
            }),
        })
    }
}
