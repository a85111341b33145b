//! Judges criteria against records: estimates, intervals, verdicts and one sentence of why. Rules: docs/specs/judging.md.

mod along;
mod pairs;
mod shares;
mod summary;
mod why;

pub use summary::{summarise_ad_hoc, summarise_rows, summarise_run};

use crate::evidence::{EMULATOR_LIMITED, GENERATOR_LIMITED};
use crate::metric::Metric;
use crate::record::{CriterionResult, FitResult, TrialRecord, Verdict};
use crate::scenario::criterion_unit;
use crate::scenario::glob::Glob;
use crate::scenario::plan::{Bound, Criterion, Plan, Reference};
use crate::scenario::select::{self, Neighbours, PointIndex, parameter};
use crate::scenario::turns;
use crate::seed;
use crate::statistics::{
    INTERVAL_TRIALS_MIN, Pool, Resampler, Statistic, Uncertainty, interval95, most_frequent, range,
};
use crate::units::human;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Where the records of a run are. Those of days have no room in memory together, so one point's are asked for at a time.
pub trait Records {
    fn of(&self, point: &str) -> Trials;
    /// Every point that has records.
    fn points(&self) -> Vec<String>;
}

/// The records of one point, in the order of their trials.
#[derive(Clone, Debug, Default)]
pub struct Trials(Rc<Vec<TrialRecord>>);

impl Trials {
    pub fn new(mut all: Vec<TrialRecord>) -> Trials {
        all.sort_by_key(|record| record.trial);
        Trials(Rc::new(all))
    }
    pub fn push(&mut self, record: TrialRecord) {
        let all = Rc::make_mut(&mut self.0);
        all.insert(all.partition_point(|other| other.trial <= record.trial), record);
    }
    pub fn all(&self) -> &[TrialRecord] {
        &self.0
    }
    /// Those that are averaged in.
    fn valid(&self) -> Vec<&TrialRecord> {
        self.0.iter().filter(|record| record.counts()).collect()
    }
    /// Those that `metric` is judged on; without one, those that count.
    fn fit_for(&self, metric: Option<&Metric>) -> Vec<&TrialRecord> {
        self.0.iter().filter(|record| record.counts() && record.disturbed(metric).is_none()).collect()
    }
    /// With those that the machine or the generator bounded.
    fn measured(&self) -> Vec<&TrialRecord> {
        self.0.iter().filter(|record| record.measured()).collect()
    }
}

impl Records for Vec<TrialRecord> {
    fn of(&self, point: &str) -> Trials {
        Trials::new(self.iter().filter(|record| record.point == point).cloned().collect())
    }
    fn points(&self) -> Vec<String> {
        let points: BTreeSet<&String> = self.iter().map(|record| &record.point).collect();
        points.into_iter().cloned().collect()
    }
}

/// Judges every criterion of `plan`. `metrics` are the definitions of all that may be in `records`.
/// The run fails if one criterion fails, else is inconclusive if one is, else passes. A run without criteria passes if it
/// measured what it was to measure: `trials_min` valid trials of each point that it has records of.
pub fn judge(plan: &Plan, records: &dyn Records, metrics: &[Metric]) -> (Vec<CriterionResult>, Verdict) {
    let dimensions = plan.dimensions.iter().map(String::as_str).collect();
    let neighbours = Neighbours::new(&plan.configurations, dimensions);
    let results: Vec<CriterionResult> = plan
        .criteria
        .iter()
        .map(|criterion| Judge { plan, records, neighbours: &neighbours, metrics, criterion }.judge())
        .collect();
    let verdict = match results.as_slice() {
        [] if !suffices(records, plan.trials_min) => Verdict::Inconclusive,
        _ => overall(results.iter().filter(|it| it.otherwise.is_none()).map(|result| result.verdict)),
    };
    (results, verdict)
}

/// Fail before inconclusive before pass.
fn overall(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.min_by_key(|verdict| severity(*verdict)).unwrap_or(Verdict::Pass)
}

fn severity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fail => 0,
        Verdict::Inconclusive => 1,
        Verdict::Pass => 2,
    }
}

/// Whether each point has so many valid trials, and at least one; and each pair that takes turns so many turns that count.
fn suffices(records: &dyn Records, trials_min: u32) -> bool {
    let least = trials_min.max(1) as usize;
    records.points().iter().all(|point| {
        let trials = records.of(point);
        let valid = trials.valid();
        valid.len() >= least && pairs::least_measured(&valid) >= least
    })
}

/// Whether an entity's values belong to the metric of `entity`, or of all but pairs that are there as a control.
fn belongs(one: &str, entity: Option<&str>) -> bool {
    entity.map_or(!turns::is_local(one), |entity| one == entity)
}

/// What one criterion came to at one point (and entity).
#[derive(Clone, Debug)]
struct Outcome {
    verdict: Verdict,
    /// Distance to the nearest bound, negative beyond it; sorts outcomes of one verdict.
    margin: f64,
    value: Option<serde_json::Value>,
    uncertainty: Uncertainty,
    why: String,
    /// The line drawn, of a criterion with a fit.
    fit: Option<FitResult>,
}

impl Outcome {
    fn inconclusive(why: String) -> Outcome {
        Outcome {
            verdict: Verdict::Inconclusive,
            margin: f64::INFINITY,
            value: None,
            uncertainty: Uncertainty::default(),
            why,
            fit: None,
        }
    }
}

/// Where a value that is compared with comes from.
enum Base {
    Constant(f64),
    Pool(Pool),
}

struct Judge<'a> {
    plan: &'a Plan,
    records: &'a dyn Records,
    neighbours: &'a Neighbours<'a>,
    metrics: &'a [Metric],
    criterion: &'a Criterion,
}

impl Judge<'_> {
    fn judge(&self) -> CriterionResult {
        let points = self.plan.points_of(self.criterion);
        let metric = self.criterion.metric.as_deref();
        let mut outcomes: Vec<(PointIndex, Outcome)> = Vec::new();
        if let Some(fit) = &self.criterion.fit {
            for line in select::lines(&self.plan.configurations, fit, &points) {
                let Some((_, first)) = line.first() else { continue };
                let first = *first;
                outcomes.extend(self.along(fit, &line).into_iter().map(|outcome| (first, outcome)));
            }
        } else {
            for point in &points {
                outcomes.extend(self.at_point(*point).into_iter().map(|outcome| (*point, outcome)));
            }
        }
        let fits = outcomes.iter_mut().filter_map(|(_, outcome)| outcome.fit.take()).collect();
        let tally = why::Tally::of(&outcomes, points.len(), self.criterion.fit.is_some());
        // The first of the worst, in the order of the points.
        let worst = outcomes.into_iter().reduce(|worst, next| {
            let key = |outcome: &Outcome| (severity(outcome.verdict), outcome.margin);
            let (a, b) = (key(&worst.1), key(&next.1));
            if (b.0, b.1) < (a.0, a.1) { next } else { worst }
        });
        let (point, outcome) = match worst {
            Some((point, outcome)) => (Some(point), outcome),
            None => (None, Outcome::inconclusive("no point was measured for it".to_owned())),
        };
        let why = match point {
            Some(point) => tally.said(self.id(point), &outcome.why),
            None => outcome.why,
        };
        let otherwise = self.criterion.otherwise.clone().filter(|_| outcome.verdict == Verdict::Fail);
        CriterionResult {
            text: self.criterion.text.clone(),
            metric: metric.map(|metric| match self.criterion.statistic.as_str() {
                "mean" => metric.to_owned(),
                statistic => format!("{metric}.{statistic}"),
            }),
            unit: metric.map(|_| self.unit().to_owned()),
            bound: bound_json(&self.criterion.bound),
            value: outcome.value,
            ci95: outcome.uncertainty.ci95,
            range: outcome.uncertainty.range,
            verdict: if otherwise.is_some() { Verdict::Inconclusive } else { outcome.verdict },
            otherwise,
            why,
            points: points.iter().map(|point| self.id(*point).to_owned()).collect(),
            fits,
        }
    }

    fn id(&self, (configuration, step): PointIndex) -> &str {
        &self.plan.configurations[configuration].steps[step].point
    }

    fn definition(&self) -> Option<&Metric> {
        let name = self.criterion.metric.as_deref()?;
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Unit of what is judged.
    fn unit(&self) -> &'static str {
        match self.definition() {
            _ if self.criterion.of.is_some() => "1",
            Some(metric) => match &self.criterion.fit {
                Some(fit) if fit.value.is_along() => fit.x_unit,
                _ => criterion_unit(*metric, &self.criterion.statistic),
            },
            None => "1",
        }
    }

    fn trials_min(&self) -> usize {
        self.criterion.trials_min.unwrap_or(self.plan.trials_min).max(1) as usize
    }

    fn at_point(&self, point: PointIndex) -> Vec<Outcome> {
        let id = self.id(point);
        let trials = self.records.of(id);
        let metric = self.definition();
        let valid = if self.asks_for_the_unfit() { trials.measured() } else { trials.fit_for(metric) };
        if let Some(why) = self.not_judgeable(&trials, &valid) {
            return vec![Outcome::inconclusive(why)];
        }
        if let Bound::LimitingFactor(expected) = &self.criterion.bound {
            return vec![limiting_factor(expected, self.criterion.share, &valid)];
        }
        let Some(metric) = metric else {
            return vec![Outcome::inconclusive("its metric is not defined in this version".to_owned())];
        };
        let entities = self.entities(metric, &valid);
        if entities.is_empty() {
            let of = self.criterion.on.as_deref().map_or(String::new(), |on| format!(" of {on}"));
            return vec![Outcome::inconclusive(format!("{}{of} was not measured", metric.name))];
        }
        entities.iter().map(|entity| self.of_entity(point, metric, entity.as_deref(), &valid)).collect()
    }

    /// Whether the criterion is about trials that the machine or the generator bounded.
    fn asks_for_the_unfit(&self) -> bool {
        let Bound::LimitingFactor(expected) = &self.criterion.bound else { return false };
        [&GENERATOR_LIMITED, &EMULATOR_LIMITED].iter().any(|factor| factor.name == expected)
    }

    /// Why the trials of a point cannot be judged at all.
    fn not_judgeable(&self, all: &Trials, valid: &[&TrialRecord]) -> Option<String> {
        let least = self.trials_min();
        if valid.len() >= least {
            return None;
        }
        let metric = self.definition();
        let disturbed = |record: &TrialRecord| record.disturbed(metric).map(str::to_owned);
        let reason = all.all().iter().find_map(|record| record.against().or_else(|| disturbed(record)));
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        Some(format!(
            "{} of {} trials are valid and {least} are needed{reason}",
            valid.len(),
            all.all().len()
        ))
    }

    /// Whose values to judge: `None` for the point's as a whole.
    fn entities(&self, metric: &Metric, valid: &[&TrialRecord]) -> Vec<Option<String>> {
        let rows = valid.iter().flat_map(|trial| &trial.rows).filter(|row| row.metric == metric.name);
        if self.criterion.of_pairs {
            return self.pair_entities(metric, valid);
        }
        if !metric.scope.has_entities() {
            return if rows.count() == 0 { Vec::new() } else { vec![None] };
        }
        let glob = self.criterion.on.as_deref().and_then(|on| Glob::parse(on).ok());
        let names: BTreeSet<&str> = rows
            .map(|row| row.entity.as_str())
            .filter(|entity| glob.as_ref().is_none_or(|glob| glob.matches(entity)))
            .collect();
        names.into_iter().map(|name| Some(name.to_owned())).collect()
    }

    /// The pool of a point's metric, or why there is none to be trusted.
    fn pool(
        &self,
        id: &str,
        metric: &Metric,
        entity: Option<&str>,
        valid: &[&TrialRecord],
    ) -> Result<Pool, String> {
        if let Some(why) = pairs::failed(metric, entity, valid, self.trials_min()) {
            return Err(why);
        }
        let valid = &pairs::without_the_unfit(entity, valid);
        let pool = Pool::new(&pairs::observations(valid, metric.name, &|one| belongs(one, entity)));
        let whose = entity.map_or(String::new(), |entity| format!(" of {entity}"));
        if pool.trial_count() < valid.len() {
            // Averaging only over the trials that have a value would hide those that failed to reach one.
            let missing = valid.len() - pool.trial_count();
            return Err(format!(
                "{}{whose} has no value in {missing} of {} valid trials of {id}",
                metric.name,
                valid.len()
            ));
        }
        Ok(pool)
    }

    fn of_entity(
        &self,
        point: PointIndex,
        metric: &Metric,
        entity: Option<&str>,
        valid: &[&TrialRecord],
    ) -> Outcome {
        match self.compare(point, metric, entity, valid) {
            Ok(outcome) => outcome,
            Err(why) => Outcome::inconclusive(why),
        }
    }

    fn compare(
        &self,
        point: PointIndex,
        metric: &Metric,
        entity: Option<&str>,
        valid: &[&TrialRecord],
    ) -> Result<Outcome, String> {
        let id = self.id(point);
        let statistic = Statistic::parse(&self.criterion.statistic)
            .ok_or_else(|| format!("no statistic is called {:?}", self.criterion.statistic))?;
        let pool = self.pool(id, metric, entity, valid)?;
        let reference = self.criterion.of.as_ref().or(self.criterion.minus.as_ref());
        let base = match reference {
            Some(reference) => Some(self.base(point, metric, entity, reference)?),
            None => None,
        };
        let per = match &self.criterion.per {
            Some(name) => {
                let step = &self.plan.configurations[point.0].steps[point.1];
                parameter(step, name).and_then(|value| value.as_number())
            }
            None => None,
        };
        let combine = |value: f64, base: Option<f64>| {
            let compared = match (base, self.criterion.of.is_some()) {
                (Some(base), true) => value / base,
                (Some(base), false) => value - base,
                (None, _) => value,
            };
            let value = compared / per.unwrap_or(1.0);
            value.is_finite().then_some(value)
        };
        if let Some(share) = self.criterion.share {
            let of_share = shares::Asked { judge: self, id, metric, entity, statistic, share };
            return of_share.outcome(&pool, base.as_ref(), &combine);
        }
        let base_estimate = match &base {
            Some(Base::Constant(value)) => Some(*value),
            Some(Base::Pool(pool)) => {
                Some(pool.estimate(statistic).ok_or("what it is compared with has no value")?)
            }
            None => None,
        };
        let own = pool
            .estimate(statistic)
            .ok_or_else(|| format!("the {} has no value", self.criterion.statistic))?;
        let value =
            combine(own, base_estimate).ok_or("it cannot be divided by what it is compared with, nought")?;
        let seed = self.seed(id, metric, entity);
        let uncertainty = uncertainty(&pool, base.as_ref(), statistic, seed, &combine);
        let sentence = why::Sentence {
            criterion: self.criterion,
            entity,
            unit: self.unit(),
            own_unit: criterion_unit(*metric, &self.criterion.statistic),
            own,
            base: base_estimate,
            value,
            uncertainty,
            trials: pool.trial_count(),
        };
        let holds = holds(&self.criterion.bound, value);
        Ok(Outcome {
            verdict: self.verdict(holds, uncertainty),
            margin: margin(&self.criterion.bound, value),
            value: Some(value.into()),
            uncertainty,
            why: sentence.text(holds),
            fit: None,
        })
    }

    fn seed(&self, id: &str, metric: &Metric, entity: Option<&str>) -> u64 {
        let name =
            format!("judge/{id}/{}/{}/{}", metric.name, self.criterion.statistic, entity.unwrap_or(""));
        seed::split(self.plan.seed, &name)
    }

    fn verdict(&self, holds: bool, uncertainty: Uncertainty) -> Verdict {
        let whole = uncertainty.ci95.map(|[low, high]| {
            self::holds(&self.criterion.bound, low) && self::holds(&self.criterion.bound, high)
        });
        match (holds, self.criterion.confident, whole) {
            (false, ..) | (true, true, Some(false)) => Verdict::Fail,
            (true, true, None) => Verdict::Inconclusive,
            (true, ..) => Verdict::Pass,
        }
    }

    /// What the value is reduced by or divided by.
    fn base(
        &self,
        point: PointIndex,
        metric: &Metric,
        entity: Option<&str>,
        reference: &Reference,
    ) -> Result<Base, String> {
        let configuration = &self.plan.configurations[point.0];
        let step = &configuration.steps[point.1];
        match reference {
            Reference::Model(model) => {
                pairs::predict(*model, configuration, step, metric, entity).map(Base::Constant)
            }
            Reference::Pairs(pattern) => {
                let trials = self.records.of(&step.point);
                pairs::pool(pattern, metric, &trials.fit_for(Some(metric)), self.trials_min()).map(Base::Pool)
            }
            Reference::Published => {
                let name = format!("{}.{}", metric.name, self.criterion.statistic);
                let published = configuration.published.get(&name).copied().map(Base::Constant);
                published.ok_or_else(|| format!("nothing is published for {name}"))
            }
            Reference::Point(_) | Reference::Case(_) => {
                let other = self
                    .neighbours
                    .find(point, reference)
                    .ok_or("the point it is compared with is not in this run")?;
                let id = self.id(other);
                let trials = self.records.of(id);
                let valid = trials.fit_for(Some(metric));
                if let Some(why) = self.not_judgeable(&trials, &valid) {
                    return Err(format!("{id}, which it is compared with: {why}"));
                }
                self.pool(id, metric, entity, &valid).map(Base::Pool)
            }
        }
    }
}

/// Interval or range of the compared value; both sides are resampled by themselves.
fn uncertainty(
    pool: &Pool,
    base: Option<&Base>,
    statistic: Statistic,
    seed: u64,
    combine: &dyn Fn(f64, Option<f64>) -> Option<f64>,
) -> Uncertainty {
    let others = match base {
        Some(Base::Pool(base)) => base.trial_count(),
        _ => INTERVAL_TRIALS_MIN,
    };
    if pool.trial_count() >= INTERVAL_TRIALS_MIN && others >= INTERVAL_TRIALS_MIN {
        let resample = |resampler: &mut Resampler| {
            let own = pool.weighted(statistic, &resampler.weights(pool.trial_count()))?;
            let base = match base {
                Some(Base::Pool(base)) => {
                    Some(base.weighted(statistic, &resampler.weights(base.trial_count()))?)
                }
                Some(Base::Constant(value)) => Some(*value),
                None => None,
            };
            combine(own, base)
        };
        return Uncertainty { ci95: interval95(seed, resample), range: None };
    }
    let own = (0..pool.trial_count()).filter_map(|trial| pool.of_trial(statistic, trial));
    let bases: Vec<Option<f64>> = match base {
        Some(Base::Pool(base)) => {
            (0..base.trial_count()).map(|trial| base.of_trial(statistic, trial)).collect()
        }
        Some(Base::Constant(value)) => vec![Some(*value)],
        None => vec![None],
    };
    let values = own.flat_map(|own| bases.iter().filter_map(move |base| combine(own, *base)));
    Uncertainty { ci95: None, range: range(values) }
}

fn holds(bound: &Bound, value: f64) -> bool {
    match bound {
        Bound::AtLeast(least) => value >= *least,
        Bound::AtMost(most) => value <= *most,
        Bound::Between(least, most) => (*least..=*most).contains(&value),
        Bound::LimitingFactor(_) => false,
    }
}

fn margin(bound: &Bound, value: f64) -> f64 {
    match bound {
        Bound::AtLeast(least) => value - least,
        Bound::AtMost(most) => most - value,
        Bound::Between(least, most) => (value - least).min(most - value),
        Bound::LimitingFactor(_) => 0.0,
    }
}

fn limiting_factor(expected: &str, share: Option<f64>, valid: &[&TrialRecord]) -> Outcome {
    if let Some(share) = share {
        return limiting_share(expected, share, valid);
    }
    let Some((found, count)) = most_frequent(valid.iter().map(|record| record.limiting_factor.name.as_str()))
    else {
        return Outcome::inconclusive("no trial is valid".to_owned());
    };
    let evidence = valid
        .iter()
        .find(|record| record.limiting_factor.name == found)
        .and_then(|record| record.limiting_factor.evidence.first());
    let evidence = evidence.map_or(String::new(), |evidence| format!(": {evidence}"));
    let passes = found == expected;
    let but = if passes { String::new() } else { format!(", not {expected}") };
    Outcome {
        verdict: if passes { Verdict::Pass } else { Verdict::Fail },
        margin: count as f64 / valid.len() as f64,
        value: Some(found.into()),
        uncertainty: Uncertainty::default(),
        why: format!("{count} of {} valid trials were limited by {}{but}{evidence}", valid.len(), found),
        fit: None,
    }
}

/// Whether as many of the trials as asked for were limited by what is expected.
fn limiting_share(expected: &str, share: f64, valid: &[&TrialRecord]) -> Outcome {
    let so = valid.iter().filter(|record| record.limiting_factor.name == expected).count();
    let passes = so >= shares::needed(share, valid.len());
    let others = most_frequent(valid.iter().map(|record| record.limiting_factor.name.as_str()));
    Outcome {
        verdict: if passes { Verdict::Pass } else { Verdict::Fail },
        margin: so as f64 / valid.len().max(1) as f64 - share,
        value: others.map(|(factor, _)| factor.into()),
        uncertainty: Uncertainty::default(),
        why: format!(
            "{so} of {} valid trials were limited by {expected}, and {} of them is asked",
            valid.len(),
            human(share * 100.0, "%")
        ),
        fit: None,
    }
}

fn bound_json(bound: &Bound) -> serde_json::Map<String, serde_json::Value> {
    let (key, value) = match bound {
        Bound::AtLeast(value) => ("at_least", (*value).into()),
        Bound::AtMost(value) => ("at_most", (*value).into()),
        Bound::Between(least, most) => ("between", vec![*least, *most].into()),
        Bound::LimitingFactor(name) => ("limiting_factor", name.as_str().into()),
    };
    serde_json::Map::from_iter([(key.to_owned(), value)])
}
