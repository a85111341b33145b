//! `profile = "o2balancer2"`: the program of document 002 replayed, each of its rules a switch, so that what it called loss can be
//! reproduced and then taken apart. Rules: `docs/specs/event-original.md`.
//!
//! Pure: `limiter`, `conductor` (the scheduler), `grouping` (the builder), `queue`, `frame`. Around them one thread and one epoll for
//! each role: `scheduler`, `source`, `builder`, each with `prepare` (binds, allocates) and `run` (connects, works, gives its account).

pub mod account;
pub mod builder;
pub mod conductor;
pub mod frame;
pub mod grouping;
pub mod limiter;
mod line;
#[cfg(test)]
mod loopback_tests;
pub mod model;
pub mod queue;
#[cfg(test)]
mod replay_tests;
pub mod rules;
pub mod scheduler;
pub mod source;

pub use account::{BuilderAccount, SchedulerAccount, SourceAccount};
pub use builder::{Builder, BuilderPlan};
pub use conductor::ConductorPlan;
pub(crate) use line::CONNECT_LIMIT;
pub use rules::{PARAMS, Rules};
pub use scheduler::{Scheduler, SchedulerPlan};
pub use source::{Source, SourcePlan};
