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

/// What a model can say of a metric beside what its unit tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modelled {
    #[default]
    ByUnit,
    /// The time of moving a step's bytes.
    Completion,
    /// The share of a load beyond capacity that is not delivered.
    Undelivered,
    /// The time of a replayed job.
    JobTime,
}

/// A metric's definition; travels with the results in `metrics.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// `domain.quantity_unit`; `domain.total_…` is of all flows together.
    pub name: &'static str,
    /// `s`, `bit/s`, `B`, `1` for ratios, or a counted noun in the plural.
    pub unit: &'static str,
    pub better: Better,
    pub scope: Scope,
    pub definition: &'static str,
    /// Its place among the columns beside every point, lowest first; without one it stands in the full table only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u8>,
    /// Drawn against a swept parameter whether it is judged or not.
    #[serde(skip_serializing_if = "is_false")]
    pub swept: bool,
    #[serde(skip)]
    pub modelled: Modelled,
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl Metric {
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
        scope: Scope,
        definition: &'static str,
    ) -> Metric {
        let (column, swept, modelled) = (None, false, Modelled::ByUnit);
        Metric { name, unit, better, scope, definition, column, swept, modelled }
    }

    pub const fn column(self, place: u8) -> Metric {
        Metric { column: Some(place), ..self }
    }

    pub const fn swept(self) -> Metric {
        Metric { swept: true, ..self }
    }

    pub const fn modelled(self, modelled: Modelled) -> Metric {
        Metric { modelled, ..self }
    }

    /// Whether it is a rate of a whole step or link: what a link that was full all the time proves, whoever shared it and however.
    // Spec: evidence.md#fitness-3
    pub fn is_whole_rate(&self) -> bool {
        matches!((self.scope, self.unit), (Scope::Trial, "bit/s") | (Scope::Port, "1"))
    }
}
