//! From measurements to the summary document.

use super::Measurement;
use std::collections::BTreeMap;
use weir_core::evidence::{Around, limiting_factor};
use weir_core::record::{
    LimitingFactor, MetricSummary, Observed, PointSummary, Row, SUMMARY_SCHEMA, Summary, Verdict,
};
use weir_core::statistics::{Pool, Statistic, range};
use weir_core::{Value, metric::Metric};

/// One value of a sweep, with what came of it.
pub struct Point {
    /// Swept parameters, in the order they were given.
    pub parameters: Vec<(String, Value)>,
    pub measurement: Measurement,
}

impl Point {
    /// What bounded it, as far as the two ends can tell: nothing is known of the links between them.
    pub fn limiting_factor(&self) -> LimitingFactor {
        limiting_factor(&Around::default(), &self.measurement.load, &self.measurement.candidates)
    }
}

/// Under which names a row is counted: those of parts of a load by their part alone, those of a path also by their way.
fn names(row: &Row, definitions: &[Metric]) -> Vec<String> {
    let definition = definitions.iter().find(|metric| metric.name == row.metric);
    let of_entity = format!("{}@{}", row.metric, row.entity);
    if definition.is_some_and(|definition| definition.scope.has_entities()) {
        vec![of_entity]
    } else if row.metric.starts_with("path.") {
        vec![row.metric.clone(), of_entity]
    } else {
        vec![row.metric.clone()]
    }
}

/// Statistics of every metric among `rows`, as the rows of one trial.
pub fn metrics(rows: &[Row], definitions: &[Metric]) -> BTreeMap<String, MetricSummary> {
    let mut by_name: BTreeMap<String, Vec<&Observed>> = BTreeMap::new();
    for row in rows {
        for name in names(row, definitions) {
            by_name.entry(name).or_default().push(&row.value);
        }
    }
    by_name
        .into_iter()
        .filter_map(|(name, values)| {
            let metric_name = name.split('@').next()?;
            let definition = definitions.iter().find(|metric| metric.name == metric_name)?;
            let pool = Pool::new(&[values]);
            let of = |statistic| pool.estimate(statistic);
            let mean = of(Statistic::parse("mean")?)?;
            let summary = MetricSummary {
                unit: definition.unit.to_owned(),
                n: pool.count(),
                min: of(Statistic::parse("min")?)?,
                mean,
                median: of(Statistic::parse("median")?)?,
                p95: of(Statistic::parse("p95")?)?,
                p99: of(Statistic::parse("p99")?)?,
                max: of(Statistic::parse("max")?)?,
                ci95: None,
                range: range(std::iter::once(mean)),
            };
            Some((name, summary))
        })
        .collect()
}

/// `stream` or `stream/streams=4,block=64KiB`.
pub fn point_id(workload: &str, parameters: &[(String, Value)]) -> String {
    let text = |value: &Value| match value.to_json() {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let all: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
    if all.is_empty() { workload.to_owned() } else { format!("{workload}/{}", all.join(",")) }
}

/// The document: verdict pass where every point was measured validly, else inconclusive.
pub fn summarise(workload: &str, definitions: &[Metric], points: &[Point]) -> Summary {
    let mut warnings = Vec::new();
    let points: Vec<PointSummary> = points
        .iter()
        .map(|point| {
            let id = point_id(workload, &point.parameters);
            let measurement = &point.measurement;
            if let Some(reason) = &measurement.invalid {
                warnings.push(format!("{id} does not count: {reason}"));
            }
            let more = measurement.failures.iter().filter(|text| Some(*text) != measurement.invalid.as_ref());
            warnings.extend(more.map(|text| format!("{id}: {text}")));
            warnings.extend(measurement.warnings.iter().map(|text| format!("{id}: {text}")));
            let valid = measurement.invalid.is_none();
            PointSummary {
                id,
                step: workload.to_owned(),
                case: None,
                parameters: point
                    .parameters
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_json()))
                    .collect(),
                trials: 1,
                valid_trials: u32::from(valid),
                // What the table shows, the document has; `valid_trials` says that it does not count.
                metrics: metrics(&measurement.rows, definitions),
                limiting_factor: point.limiting_factor(),
                matrix: None,
            }
        })
        .collect();
    let all_valid = points.iter().all(|point| point.valid_trials > 0);
    Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        scenario: format!("net-{workload}"),
        origin: None,
        scale: BTreeMap::new(),
        verdict: if all_valid { Verdict::Pass } else { Verdict::Inconclusive },
        criteria: Vec::new(),
        points,
        warnings,
        results: None,
    }
}
