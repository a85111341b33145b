//! Joins the crates' slices; the only file that names every implementation crate.

use std::collections::BTreeMap;
use std::sync::LazyLock;
#[cfg(feature = "lab")]
use weir_core::chunk::{FieldSet, FieldSetRecord};
use weir_core::evidence::{Factor, SHARED};
use weir_core::fault::{FaultKinds, links};
#[cfg(feature = "lab")]
use weir_core::metric::Metric;
use weir_core::scenario::{Language, Opening, Shape, Systems, WorkloadSchema};
use weir_core::shown::Shown;
use weir_core::{Param, Values};
#[cfg(feature = "event")]
use weir_seams::membership::MembershipEntry;
use weir_seams::sink::Tables;
use weir_seams::target::TargetEntry;
use weir_seams::workload::WorkloadEntry;

pub fn workloads() -> &'static [WorkloadEntry] {
    static ALL: LazyLock<Vec<WorkloadEntry>> = LazyLock::new(|| {
        let slices: &[&[WorkloadEntry]] = &[
            weir_net::WORKLOADS,
            #[cfg(feature = "event")]
            weir_event::WORKLOADS,
            storage(),
            #[cfg(feature = "guide")]
            weir_guide::WORKLOADS,
        ];
        slices.concat()
    });
    &ALL
}

/// A folder of `systems/`: its recipe, and the files beside it.
#[cfg(feature = "lab")]
macro_rules! system {
    ($name:literal $(, $template:literal)*) => {
        weir_service::Builtin {
            name: $name,
            recipe: include_str!(concat!("../systems/", $name, "/system.toml")),
            templates: &[$(($template, include_str!(concat!("../systems/", $name, "/", $template)))),*],
        }
    };
}

/// Recipes of real systems.
#[cfg(feature = "lab")]
pub const SYSTEMS: &[weir_service::Builtin] = &[
    system!("door", "haproxy.cfg", "namespace.conf", "pool.conf"),
    system!("glusterfs", "glusterd.vol"),
    system!("null"),
    system!("s3"),
    system!("webdav", "nginx.conf"),
    system!(
        "xrootd",
        "copy.sh",
        "forget-cache.sh",
        "forget.sh",
        "load.sh",
        "look.sh",
        "names.sh",
        "proxy.cf",
        "queue.sh",
        "xrootd.cf"
    ),
];

/// The recipes that a scenario may name: those of this program, and folders beside its file.
#[cfg(feature = "lab")]
pub fn library(scenario: &std::path::Path) -> weir_service::Library {
    weir_service::Library::new(SYSTEMS, scenario.parent().unwrap_or(std::path::Path::new(".")))
}

/// The io workloads, which need to know the targets.
fn storage() -> &'static [WorkloadEntry] {
    static ALL: LazyLock<Vec<WorkloadEntry>> = LazyLock::new(|| weir_storage::workloads(targets()));
    &ALL
}

pub fn targets() -> &'static [TargetEntry] {
    static ALL: LazyLock<Vec<TargetEntry>> = LazyLock::new(|| {
        let slices: &[&[TargetEntry]] = &[
            weir_storage::target::TARGETS,
            #[cfg(feature = "xrootd")]
            weir_xrootd::TARGETS,
            #[cfg(feature = "http")]
            weir_http::TARGETS,
        ];
        slices.concat()
    });
    &ALL
}

#[cfg(feature = "event")]
pub fn memberships() -> Vec<MembershipEntry> {
    let slices: &[&[MembershipEntry]] = &[
        weir_agent::membership::MEMBERSHIPS,
        #[cfg(feature = "zookeeper")]
        weir_zookeeper::MEMBERSHIPS,
    ];
    slices.concat()
}

/// What may happen to links, processes, services and disks.
pub fn faults() -> FaultKinds {
    static ALL: LazyLock<FaultKinds> = LazyLock::new(|| {
        FaultKinds::join(&[
            links::LINKS,
            weir_agent::FAULTS,
            #[cfg(feature = "lab")]
            weir_service::FAULTS,
            #[cfg(feature = "lab")]
            weir_disk::FAULTS,
        ])
    });
    *ALL
}

/// What a scenario may say, with these systems.
pub fn language(systems: &dyn Systems) -> Language<'_> {
    static WORKLOADS: LazyLock<Vec<WorkloadSchema>> = LazyLock::new(workload_schemas);
    Language { workloads: &WORKLOADS, systems, faults: faults() }
}

/// What the scenario decoder needs to know of the workloads.
fn workload_schemas() -> Vec<WorkloadSchema> {
    let schema = |entry: &WorkloadEntry| WorkloadSchema {
        name: entry.name,
        about: entry.about,
        params: entry.params,
        metrics: entry.build.metrics(),
        roles: entry.build.roles(),
        factors: entry.build.factors(),
        fills_path: entry.build.fills_path(),
        refusal,
        opening,
    };
    let mut all: Vec<WorkloadSchema> = workloads().iter().map(schema).collect();
    // Metrics that every step has, whatever its workload.
    let beside = |metrics| WorkloadSchema {
        name: WorkloadSchema::BESIDE,
        about: "",
        params: &[],
        metrics,
        roles: &[],
        factors: SHARED,
        fills_path: false,
        refusal,
        opening,
    };
    all.extend(weir_telemetry::METRICS.iter().copied().map(beside));
    all
}

fn refusal(workload: &str, values: &Values, shape: &Shape) -> Option<String> {
    let entry = workloads().iter().find(|entry| entry.name == workload)?;
    entry.build.estimate(values, shape).err().map(|error| error.text)
}

/// What is no workload connects nothing, so any path is short enough.
fn opening(workload: &str, values: &Values) -> Opening {
    let entry = workloads().iter().find(|entry| entry.name == workload);
    entry.map_or(Opening::NONE, |entry| entry.build.opening(values))
}

/// Every metric that can be emitted: the workloads' own, and those of the run around them.
#[cfg(feature = "lab")]
pub fn metrics() -> Vec<Metric> {
    let mut all: Vec<Metric> = weir_telemetry::METRICS.iter().copied().flatten().copied().collect();
    for entry in workloads() {
        for metric in entry.build.metrics() {
            if !all.iter().any(|known| known.name == metric.name) {
                all.push(*metric);
            }
        }
    }
    all
}

/// Every factor that may be named, in the order in which they are asked.
pub fn factors() -> impl Iterator<Item = &'static Factor> {
    let own = workloads().iter().flat_map(|entry| entry.build.factors());
    let all: BTreeMap<u16, &'static Factor> =
        SHARED.iter().chain(own).map(|factor| (factor.rank, *factor)).collect();
    all.into_values()
}

/// Fields of what workloads record operation by operation.
#[cfg(feature = "lab")]
pub fn records() -> Vec<FieldSetRecord> {
    let all: BTreeMap<&str, &FieldSet> =
        workloads().iter().flat_map(|entry| entry.build.records()).map(|set| (set.name, *set)).collect();
    all.into_values().map(FieldSetRecord::from).collect()
}

/// How series and counts are drawn.
pub fn shown() -> Shown {
    let own = workloads().iter().map(|entry| entry.build.shown());
    Shown::joined(own.chain([&weir_telemetry::SHOWN]))
}

/// One member of a seam, as `weir list` shows it.
pub struct Member {
    pub name: &'static str,
    pub about: &'static str,
    pub params: &'static [Param],
}

macro_rules! members {
    ($slice:expr) => {
        $slice
            .iter()
            .map(|entry| Member { name: entry.name, about: entry.about, params: entry.params })
            .collect()
    };
}

/// The sink of this name, where it makes tables of a results folder.
pub fn tables(sink: &str) -> Option<&'static dyn Tables> {
    weir_report::SINKS.iter().find(|entry| entry.name == sink)?.build.tables()
}

/// Seams that have members in this build, by the name `weir list` takes.
pub const SEAMS: &[&str] = &[
    "workload",
    "factor",
    "fault",
    "target",
    #[cfg(feature = "lab")]
    "system",
    #[cfg(feature = "event")]
    "scheduler",
    #[cfg(feature = "event")]
    "death-policy",
    #[cfg(feature = "event")]
    "membership",
    "launcher",
    "sampler",
    "sink",
];

/// `None` for a seam that is not in `SEAMS`.
pub fn members(seam: &str) -> Option<Vec<Member>> {
    Some(match seam {
        "workload" => members!(workloads()),
        "factor" => {
            factors().map(|factor| Member { name: factor.name, about: factor.about, params: &[] }).collect()
        }
        "fault" => members!(faults().all()),
        #[cfg(feature = "event")]
        "scheduler" => members!(weir_event::SCHEDULERS),
        #[cfg(feature = "event")]
        "death-policy" => members!(weir_event::DEATH_POLICIES),
        #[cfg(feature = "event")]
        "membership" => members!(memberships()),
        "target" => members!(targets()),
        #[cfg(feature = "lab")]
        "system" => {
            let library = library(std::path::Path::new("."));
            let member = |recipe: &&'static weir_service::Recipe| Member {
                name: recipe.schema.name,
                about: recipe.schema.about,
                params: recipe.schema.options,
            };
            library.all().ok()?.iter().map(member).collect()
        }
        "launcher" => members!(weir_agent::launcher::LAUNCHERS),
        "sampler" => members!(weir_telemetry::SAMPLERS),
        "sink" => members!(weir_report::SINKS),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_of_faults_do_what_they_say_they_are_on() {
        weir_core::fault::conformance::check_all(faults().all());
    }

    // Spec: evidence.md#order-4
    #[test]
    fn each_factor_is_declared_once_and_its_command_is_one_of_ours() {
        let declared = workloads().iter().map(|entry| entry.build.factors()).collect::<Vec<_>>();
        let own: BTreeSet<*const Factor> =
            declared.into_iter().flatten().map(|factor| *factor as *const _).collect();
        let all: Vec<&Factor> = factors().collect();
        assert_eq!(all.len(), SHARED.len() + own.len(), "two factors have one rank");
        let names: BTreeSet<&str> = all.iter().map(|factor| factor.name).collect();
        assert_eq!(names.len(), all.len(), "two factors have one name");
        for factor in all {
            assert!(!factor.next.is_empty(), "{}", factor.name);
            if !factor.command.is_empty() {
                let parsed = crate::commands::Cli::try_parse_from(factor.command.split(' '));
                assert!(parsed.is_ok(), "{}: {}: {}", factor.name, factor.command, parsed.err().unwrap());
            }
        }
    }
}
