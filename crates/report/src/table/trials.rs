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
        Cell::Text(&trial.limiting_factor.name),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cells;
    use crate::{Writer, sample};
    use proptest::prelude::*;
    use weir_core::evidence::UNKNOWN;
    use weir_core::record::{Histogram, LimitingFactor};

    /// The numbers of the rows, bit by bit: what `value` holds, and `sum_ns` of distributions.
    struct Values(Vec<u64>);

    impl Rows for Values {
        fn begin(&mut self, _: &[Column]) -> io::Result<()> {
            Ok(())
        }
        fn rows(&mut self, _: usize, cells: &[Cells<'_>]) -> io::Result<()> {
            let value = cells.len() - STATISTICS.len() - 1;
            if let Cells::Same(Cell::Number(number)) = cells[value] {
                self.0.push(number.to_bits());
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        // Spec: results.md#results-13
        #[test]
        fn a_number_is_the_same_to_its_last_bit_in_the_run_in_its_lines_and_in_tables(
            values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 64),
            sum_ns in 1.0..1e18_f64, count in 1..1_000_000_u64,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut writer = Writer::create(directory.path()).unwrap();
            writer.plan(&sample::plan()).unwrap();
            let of_duration = Observed::Histogram(Histogram {
                value_ns: vec![u64::MAX], count: vec![count], min_ns: 0, max_ns: u64::MAX, sum_ns,
            });
            let pool = Pool::new(&[vec![&of_duration]]);
            let mut expected: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
            expected.push(pool.estimate(Statistic::Mean).unwrap().to_bits());
            let row = |value| Row { entity: "trial".to_owned(), metric: "m".to_owned(), value };
            let rows = values.into_iter().map(Observed::Value).chain([of_duration]).map(row).collect();
            writer.trial(&[TrialRecord {
                point: "one".to_owned(), configuration: String::new(), step: "one".to_owned(), trial: 0, valid: true,
                reason: None, start_ns: 0, end_ns: 1, rows, pairs: Vec::new(), granted: serde_json::Map::new(), failure_count: 0,
                limiting_factor: LimitingFactor::new(&UNKNOWN, 0.1, Vec::new()),
            }]).unwrap();
            let mut found = Values(Vec::new());
            trials(directory.path(), &mut found).unwrap();
            prop_assert_eq!(found.0, expected);
        }
    }
}
