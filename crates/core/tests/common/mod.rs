//! Schemas like those of the real registry, which core does not know.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::LazyLock;
use std::time::Duration;
use weir_core::fault::{Act, FOR, FaultKind, FaultKinds, FaultOn, links};
use weir_core::metric::{Better, Metric, Scope};
use weir_core::scenario::{Language, Opening, Overrides, Plan, ScenarioErrors, Shape, WorkloadSchema, load};
use weir_core::{Kind, Param, Values};

const fn metric(name: &'static str, unit: &'static str, scope: Scope) -> Metric {
    Metric::new(name, unit, Better::Neither, scope, "for tests")
}

static LATENCY_PARAMS: &[Param] = &[
    Param::new("size", Kind::Size, "Payload of a request.").default("64B"),
    Param::new("transport", Kind::Choice(&["tcp"]), "How bytes travel.").default("tcp"),
    Param::new("rate", Kind::Frequency, "Open loop."),
];
static STREAM_PARAMS: &[Param] =
    &[Param::new("direction", Kind::Choice(&["up", "down", "both"]), "Which way.").default("up")];
static LATENCY_METRICS: &[Metric] = &[metric("latency.round_trip_seconds", "s", Scope::Operation)];
static STREAM_METRICS: &[Metric] = &[
    metric("stream.flow_goodput_bits_per_second", "bit/s", Scope::Flow),
    metric("stream.total_goodput_bits_per_second", "bit/s", Scope::Trial),
    metric("stream.fairness_jain", "1", Scope::Trial),
    metric("stream.stalled_seconds", "s", Scope::Flow),
    metric("stream.recovery_seconds", "s", Scope::Trial),
];
static BESIDE_METRICS: &[Metric] =
    &[metric("port.load_ratio", "1", Scope::Port), metric("port.dropped_packets", "packets", Scope::Port)];

pub fn workloads() -> Vec<WorkloadSchema> {
    let refusal = |_: &str, values: &Values, _: &Shape| {
        let both = values.duration("duration").is_some() && values.size("bytes").is_some();
        let ends = ["duration", "bytes", "count"].iter().any(|key| values.get(key).is_some());
        match (both, ends) {
            (true, _) => Some("`duration` and `bytes` both say when it ends".to_owned()),
            (_, false) => Some("it does not say when it ends".to_owned()),
            _ => None,
        }
    };
    let schema = |name, params, metrics| WorkloadSchema {
        name,
        about: "for tests",
        params,
        metrics,
        roles: weir_core::scenario::FROM_TO,
        factors: weir_core::evidence::SHARED,
        fills_path: name == "stream",
        refusal,
        opening: |_, _| Opening { limit: Duration::from_secs(10), round_trips: 3 },
    };
    vec![
        schema("latency", LATENCY_PARAMS, LATENCY_METRICS),
        schema("stream", STREAM_PARAMS, STREAM_METRICS),
        schema(WorkloadSchema::BESIDE, &[], BESIDE_METRICS),
    ]
}

/// Kinds of faults: those of links, and of processes two like those of the real registry.
pub static FAULTS: LazyLock<FaultKinds> = LazyLock::new(|| FaultKinds::join(&[links::LINKS, PROCESSES]));

const PROCESSES: &[FaultKind] = &[
    FaultKind {
        name: "pause",
        about: "They stand still.",
        on: FaultOn::Processes,
        params: &[FOR],
        act: |_| Act::Stop,
        sentence: |_| "paused".to_owned(),
    },
    FaultKind {
        name: "kill",
        about: "They are killed.",
        on: FaultOn::Processes,
        params: &[Param::new("for", Kind::Duration, "How long.")],
        act: |_| Act::Kill,
        sentence: |_| "killed".to_owned(),
    },
];

pub fn language(workloads: &[WorkloadSchema]) -> Language<'_> {
    Language { workloads, faults: *FAULTS, ..Language::NONE }
}

pub fn metrics() -> Vec<Metric> {
    workloads().iter().flat_map(|schema| schema.metrics).copied().collect()
}

pub const QUICKSTART: &str = include_str!("../data/quickstart.toml");
pub const DEISA: &str = include_str!("../data/deisa-streams-vs-loss.toml");
pub const G100_LATENCY: &str = include_str!("../data/g100-latency.toml");
pub const G100_SCALING: &str = include_str!("../data/g100-stream-scaling.toml");
pub const ROUND_ROBIN: &str = include_str!("../data/o2-round-robin.toml");

pub fn try_load(text: &str, sets: &[&str], short: bool) -> Result<Plan, ScenarioErrors> {
    let overrides =
        Overrides { sets: sets.iter().map(|set| (*set).to_owned()).collect(), short, ..Overrides::default() };
    load(text, "test.toml", &overrides, language(&workloads()))
}

#[track_caller]
pub fn plan(text: &str) -> Plan {
    plan_with(text, &[], false)
}

#[track_caller]
pub fn plan_with(text: &str, sets: &[&str], short: bool) -> Plan {
    try_load(text, sets, short).unwrap_or_else(|errors| panic!("{errors}"))
}

/// `(line, column, message, help)` of each problem.
#[track_caller]
pub fn problems(text: &str, sets: &[&str]) -> Vec<(usize, usize, String, String)> {
    match try_load(text, sets, false) {
        Ok(_) => panic!("this was accepted:\n{text}\n{sets:?}"),
        Err(errors) => errors
            .problems
            .into_iter()
            .map(|problem| (problem.line, problem.column, problem.message, problem.help.unwrap_or_default()))
            .collect(),
    }
}
