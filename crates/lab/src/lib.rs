//! The emulated lab: a topology becomes network namespaces whose interfaces are TUN devices, and one process, the
//! fabric, moves every packet between them. Its rules are numbered in docs/specs/lab.md.

mod buffer;
pub mod capture;
mod checksum;
pub mod data;
mod delivery;
pub mod error;
mod fabric_process;
mod holder_process;
mod host;
mod icmp;
mod image;
mod ip;
mod lab;
mod limits;
pub mod named;
mod names;
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
pub use holder_process::{DATA, DISKS, SHARED};
pub use lab::{Lab, Options};

/// Not commands for people: the other end of a lab's TUN devices, and the first process of a host with services, started by weir
/// itself. Returns the exit status where `subcommand` is one of them.
pub fn hidden(subcommand: &std::ffi::OsStr) -> Option<i32> {
    match subcommand.to_str()? {
        protocol::SUBCOMMAND => Some(fabric_process::main()),
        holder_process::SUBCOMMAND => Some(holder_process::main()),
        _ => None,
    }
}
