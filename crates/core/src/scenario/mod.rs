//! Scenarios: from TOML text to a plan in which every default is filled in and every name checked.

pub mod plan;

pub use plan::{
    Bound, Condition, Configuration, Criterion, Fault, FaultAction, Overrides, Plan, Reference, Select, Step,
    StepStart, WorkloadSchema,
};
