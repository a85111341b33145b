//! The emulated lab: a topology becomes network namespaces whose interfaces are TUN devices, and one process, the
//! fabric, moves every packet between them. Its rules are numbered in docs/specs/lab.md.

mod buffer;
pub mod capture;
mod checksum;
mod delivery;
pub mod error;
pub mod fabric_process;
mod host;
mod icmp;
mod image;
mod ip;
mod lab;
mod limits;
pub mod named;
mod pace;
mod packet;
mod port;
mod profile;
mod protocol;
mod run;
mod segment;
mod station;
mod turn;
mod vnet;

#[cfg(test)]
mod header_tests;

pub use error::LabError;
pub use lab::{Lab, Options};
