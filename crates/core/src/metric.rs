//! Definitions of metrics. A metric that no entry declares cannot be emitted.

use serde::Serialize;

/// Which way is better, for comparisons and for colours in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// What a metric's single values belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One value a trial.
    Trial,
    /// One value a flow and trial.
    Flow,
    /// A distribution of many operations a trial, kept as a histogram.
    Operation,
    /// One value a port (directed link) and trial.
    Port,
    /// One value a host and trial.
    Host,
    /// One value a named part of the load and trial, such as a congestion control.
    Part,
}

impl Scope {
    /// Whether values are kept apart by whose they are, as `metric@entity`; the others are of the whole point.
    pub fn has_entities(self) -> bool {
        matches!(self, Scope::Port | Scope::Host | Scope::Part)
    }
}

/// A metric's definition; travels with the results in `metrics.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// `domain.quantity_unit`
    pub name: &'static str,
    /// `s`, `bit/s`, `B`, `1` for ratios, or a counted noun in the plural.
    pub unit: &'static str,
    pub better: Better,
    pub scope: Scope,
    pub definition: &'static str,
}

impl Metric {
    /// Whether it is a rate of a whole step or link: what a link that was full all the time proves, whoever shared it and however.
    // Spec: evidence.md#fitness-3
    pub fn is_whole_rate(&self) -> bool {
        matches!((self.scope, self.unit), (Scope::Trial, "bit/s") | (Scope::Port, "1"))
    }
}
