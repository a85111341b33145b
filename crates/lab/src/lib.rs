//! The emulated lab: a topology becomes network namespaces whose only interface is a TUN device, and one process, the
//! fabric, moves every packet between them. Its rules are numbered in docs/specs/lab.md.

mod buffer;
mod delivery;
pub mod error;
pub mod fabric_process;
mod host;
mod lab;
pub mod named;
mod pace;
mod packet;
mod port;
mod protocol;
mod run;
mod turn;
mod vnet;

#[cfg(test)]
mod header_tests;

pub use error::LabError;
pub use lab::{Lab, Options};
