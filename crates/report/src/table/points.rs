//! The summary's points: one row a point and metric.

use super::{Cell, Column, Kind, Rows};
use crate::words::{parameter_text, verdict_name};
use std::collections::BTreeSet;
use std::io;
use weir_core::record::Summary;

/// Statistics over the valid trials of each point.
pub(crate) fn points(summary: &Summary, rows: &mut dyn Rows) -> io::Result<()> {
    let parameters: BTreeSet<&String> = summary.points.iter().flat_map(|it| it.parameters.keys()).collect();
    let mut columns = vec![
        Column::new("scenario", Kind::Text),
        Column::new("verdict", Kind::Text),
        Column::new("point", Kind::Text),
        Column::new("step", Kind::Text),
        Column::optional("case", Kind::Text),
    ];
    columns.extend(parameters.iter().map(|name| Column::optional(format!("parameter.{name}"), Kind::Text)));
    columns.extend([
        Column::new("trials", Kind::Integer),
        Column::new("valid_trials", Kind::Integer),
        Column::new("limiting_factor", Kind::Text),
        Column::new("metric", Kind::Text),
        Column::new("unit", Kind::Text),
        Column::new("count", Kind::Integer),
    ]);
    columns.extend(["min", "mean", "median", "p95", "p99", "max"].map(|it| Column::new(it, Kind::Number)));
    columns.extend(
        ["ci95_low", "ci95_high", "range_low", "range_high"].map(|it| Column::optional(it, Kind::Number)),
    );
    rows.begin(&columns)?;
    for point in &summary.points {
        let values: Vec<Option<String>> =
            parameters.iter().map(|name| point.parameters.get(*name).map(parameter_text)).collect();
        for (metric, of) in &point.metrics {
            let mut cells = vec![
                Cell::Text(&summary.scenario),
                Cell::Text(verdict_name(summary.verdict)),
                Cell::Text(&point.id),
                Cell::Text(&point.step),
                Cell::text(point.case.as_deref()),
            ];
            cells.extend(values.iter().map(|value| Cell::text(value.as_deref())));
            cells.extend([
                Cell::Integer(i64::from(point.trials)),
                Cell::Integer(i64::from(point.valid_trials)),
                Cell::Text(&point.limiting_factor.name),
                Cell::Text(metric),
                Cell::Text(&of.unit),
                Cell::Integer(i64::try_from(of.n).unwrap_or(i64::MAX)),
            ]);
            cells.extend([of.min, of.mean, of.median, of.p95, of.p99, of.max].map(Cell::Number));
            for interval in [of.ci95, of.range] {
                cells.extend([0, 1].map(|end| Cell::number(interval.map(|it| it[end]))));
            }
            rows.row(&cells)?;
        }
    }
    Ok(())
}
