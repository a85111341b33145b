//! Network workloads: `stream` (bulk TCP) and `latency` (ping-pong). What they say on the wire is in
//! `docs/specs/net-protocol.md`.

pub mod adhoc;
pub mod generator;
pub mod latency;
pub mod rendezvous;
pub mod stream;

use weir_seams::Entry;
use weir_seams::workload::WorkloadEntry;

pub static WORKLOADS: &[WorkloadEntry] = &[
    Entry {
        name: "stream",
        about: "bulk TCP: goodput of each flow, fairness, stalls, recovery from faults, CPU cost",
        params: stream::plan::PARAMS,
        needs: &[],
        build: &stream::Stream,
    },
    Entry {
        name: "latency",
        about: "TCP ping-pong: distribution of round trips",
        params: latency::PARAMS,
        needs: &[],
        build: &latency::Latency,
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_workload_keeps_the_claims_of_the_seam() {
        weir_seams::workload::conformance::check(super::WORKLOADS);
    }
}
