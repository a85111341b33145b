//! What accuracy and bench measure with: labs and veth pairs between namespaces, and probes whose two ends share one clock.
//!
//! Both ends of a probe live in this process, their sockets in two namespaces, so send and receive times are of one
//! `CLOCK_MONOTONIC` and nothing has to be estimated or exchanged.

pub mod capture;
pub mod lab;
pub mod pair;
pub mod tcp;
pub mod udp;
