//! Scenarios: from TOML text to a plan in which every default is filled in and every name checked.
//!
//! A file becomes a tree that knows where each value stands; `[short]` and the command line change it; cases × sweep
//! make a changed copy of it for each configuration; each copy is decoded by the declared keys of `schema`. Nothing is
//! started while anything is wrong, and everything that is wrong is reported at once.

mod criterion;
mod errors;
mod expand;
mod explain;
mod fault;
pub mod glob;
mod hosts;
mod impairments;
mod lab;
mod link;
mod load;
mod on;
pub mod order;
mod overrides;
mod path;
pub mod plan;
mod reach;
mod reader;
mod resolved;
mod schema;
pub mod select;
mod service;
mod settle;
mod step;
mod tree;
pub mod turns;
mod wire;

pub(crate) use criterion::unit_of as criterion_unit;
pub use errors::{Place, Problem, ScenarioErrors};
pub use expand::CONFIGURATIONS_MAX;
pub use explain::explain;
pub use load::{FILE_BYTES_MAX, load};
pub use plan::{
    Affected, Bound, Condition, Configuration, Content, Criterion, DiskShape, FROM_TO, Fault, FaultPart, Fit,
    Language, Mount, Opening, Overrides, Plan, Priority, RealHost, Reference, Role, RoleHosts, RoleKey,
    RoleNeed, Select, Service, Shape, Step, StepStart, SystemSchema, Systems, WorkloadSchema,
};
pub(crate) use schema::FAULT as FAULT_KEYS;
pub use schema::TRIALS_MAX;
pub use service::NoSystems;

/// The key of this name that steps of every workload take.
pub fn step_key(name: &str) -> Option<&'static crate::Param> {
    schema::STEP.iter().find(|param| param.name == name)
}

/// The key of this name in a step's table `tcp`.
pub fn tcp_key(name: &str) -> Option<&'static crate::Param> {
    schema::TCP.iter().find(|param| param.name == name)
}

use errors::Problems;
use tree::{Data, Node, Table};

/// The tables of `[[key]]` with their places; anything else there is a problem.
fn array_of_tables<'a>(table: &'a Table, key: &str, problems: &Problems<'_>) -> Vec<(&'a Table, Place)> {
    let Some(node) = table.get(key) else { return Vec::new() };
    let wrong = |node: &Node| {
        problems.add_help(
            node.at,
            format!("`{key}`: expected tables with a header [[…{key}]], found {}", node.what()),
            "an array of tables has double brackets",
        );
    };
    let Data::List(list) = &node.data else {
        wrong(node);
        return Vec::new();
    };
    let mut tables = Vec::new();
    for item in list {
        match &item.data {
            Data::Table(table) => tables.push((table, item.at)),
            _ => wrong(item),
        }
    }
    tables
}
