//! Trials: one row a trial × entity × metric.

use super::{Cell, Column, Kind, Rows};
use crate::folder::Definition;
use crate::read::{document, lines};
use crate::words::parameter_text;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use weir_core::record::{Observed, PlanRecord, Row, StepRecord, TrialRecord};
use weir_core::statistics::{Pool, Statistic};

/// All trials that the folder records, those that do not count among them. A trial that measured nothing has one row without a
/// metric, so that a failure is a row too. Gives what was missing or cut short, in sentences.
pub(crate) fn trials(folder: &Path, rows: &mut dyn Rows) -> io::Result<Vec<String>> {
    let mut notes = Vec::new();
    let plan: Option<PlanRecord> = document(folder, "plan.json", &mut notes).map_err(io::Error::other)?;
    let definitions: Option<Vec<Definition>> =
        document(folder, "metrics.json", &mut notes).map_err(io::Error::other)?;
    let definitions = definitions.unwrap_or_default();
    let unit_of: BTreeMap<&str, &str> =
        definitions.iter().map(|it| (it.name.as_str(), it.unit.as_str())).collect();
    let planned: BTreeMap<&str, (&StepRecord, Option<&str>)> = plan
        .iter()
        .flat_map(|plan| &plan.configurations)
        .flat_map(|it| it.steps.iter().map(|step| (step.point.as_str(), (step, it.case.as_deref()))))
        .collect();
    let parameters: BTreeSet<&String> =
        planned.values().flat_map(|(step, _)| step.parameters.keys()).collect();
    rows.begin(&columns(&parameters))?;
    let mut failed = None;
    let read = lines(folder, "trials.jsonl", &mut notes, |trial: TrialRecord| {
        let (step, case) = planned.get(trial.point.as_str()).copied().unzip();
        let values: Vec<Option<String>> = parameters
            .iter()
            .map(|name| step.and_then(|step| step.parameters.get(*name)).map(parameter_text))
            .collect();
        let measured: Vec<Option<&Row>> =
            if trial.rows.is_empty() { vec![None] } else { trial.rows.iter().map(Some).collect() };
        for row in measured {
            if let Err(error) = one(rows, &trial, case.flatten(), &values, row, &unit_of) {
                failed = Some(error);
                return Err("could not be written on".to_owned());
            }
        }
        Ok(())
    });
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(io::Error::other(error)),
        (None, Ok(())) => Ok(notes),
    }
}

fn columns(parameters: &BTreeSet<&String>) -> Vec<Column> {
    let mut columns = vec![
        Column::new("point", Kind::Text),
        Column::new("configuration", Kind::Text),
        Column::optional("case", Kind::Text),
        Column::new("step", Kind::Text),
    ];
    columns.extend(parameters.iter().map(|name| Column::optional(format!("parameter.{name}"), Kind::Text)));
    columns.extend([
        Column::new("trial", Kind::Integer),
        Column::new("valid", Kind::Flag),
        Column::optional("reason", Kind::Text),
        Column::new("start_ns", Kind::Integer),
        Column::new("end_ns", Kind::Integer),
        Column::new("limiting_factor", Kind::Text),
        Column::new("confidence", Kind::Number),
        Column::optional("entity", Kind::Text),
        Column::optional("metric", Kind::Text),
        Column::optional("unit", Kind::Text),
        Column::new("count", Kind::Integer),
        Column::optional("value", Kind::Number),
    ]);
    columns.extend(STATISTICS.map(|(name, _)| Column::optional(name, Kind::Number)));
    columns
}

/// Of distributions alone: of one value they say nothing that the value does not.
const STATISTICS: [(&str, Statistic); 5] = [
    ("min", Statistic::Min),
    ("median", Statistic::Quantile(0.5)),
    ("p95", Statistic::Quantile(0.95)),
    ("p99", Statistic::Quantile(0.99)),
    ("max", Statistic::Max),
];

fn one(
    rows: &mut dyn Rows,
    trial: &TrialRecord,
    case: Option<&str>,
    parameters: &[Option<String>],
    row: Option<&Row>,
    unit_of: &BTreeMap<&str, &str>,
) -> io::Result<()> {
    let mut cells = vec![
        Cell::Text(&trial.point),
        Cell::Text(&trial.configuration),
        Cell::text(case),
        Cell::Text(&trial.step),
    ];
    cells.extend(parameters.iter().map(|value| Cell::text(value.as_deref())));
    cells.extend([
        Cell::Integer(i64::from(trial.trial)),
        Cell::Flag(trial.valid),
        Cell::text(trial.reason.as_deref()),
        Cell::Integer(trial.start_ns),
        Cell::Integer(trial.end_ns),
        Cell::Text(trial.limiting_factor.name.name()),
        Cell::Number(trial.limiting_factor.confidence),
        Cell::text(row.map(|row| row.entity.as_str())),
        Cell::text(row.map(|row| row.metric.as_str())),
        Cell::text(row.and_then(|row| unit_of.get(row.metric.as_str()).copied())),
    ]);
    match row.map(|row| &row.value) {
        None => {
            cells.extend([Cell::Integer(0), Cell::Absent]);
            cells.extend(STATISTICS.map(|_| Cell::Absent));
        }
        Some(Observed::Value(value)) => {
            cells.extend([Cell::Integer(1), Cell::Number(*value)]);
            cells.extend(STATISTICS.map(|_| Cell::Absent));
        }
        Some(distribution) => {
            let pool = Pool::new(&[vec![distribution]]);
            cells.push(Cell::Integer(i64::try_from(pool.count()).unwrap_or(i64::MAX)));
            cells.push(Cell::number(pool.estimate(Statistic::Mean)));
            cells.extend(STATISTICS.map(|(_, statistic)| Cell::number(pool.estimate(statistic))));
        }
    }
    rows.row(&cells)
}
