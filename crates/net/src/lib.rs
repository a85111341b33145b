//! Network workloads: `stream` (bulk TCP), `latency` (ping-pong), `burst` (single transfers),
//! `connect` (connections a second), `udp` (paced datagrams), `path` (what the way between two hosts is like) and `watch` (long
//! flows beside short tests). What they say on the wire is in `docs/specs/net-protocol.md`.

pub mod adhoc;
pub mod burst;
pub mod connect;
pub mod door;
pub mod evidence;
pub mod farewell;
pub mod generator;
pub mod iperf3;
pub mod latency;
pub mod offset;
pub mod path;
pub mod rendezvous;
pub mod stream;
pub mod threads;
pub mod udp;
pub mod watch;

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
    Entry {
        name: "burst",
        about: "transfers of one size: completion of each, spread between flows, cost of connections",
        params: burst::plan::PARAMS,
        needs: &[],
        build: &burst::Burst,
    },
    Entry {
        name: "connect",
        about: "connections made, used once and closed: how many a second, and the time of each phase",
        params: connect::plan::PARAMS,
        needs: &[],
        build: &connect::Connect,
    },
    Entry {
        name: "udp",
        about: "paced datagrams: loss, repetition, reordering, jitter, delay variation",
        params: udp::plan::PARAMS,
        needs: &[],
        build: &udp::Udp,
    },
    Entry {
        name: "path",
        about: "the way between two hosts: hops, path MTU and black holes, round trips, reordering, TCP's segments",
        params: path::plan::PARAMS,
        needs: &[],
        build: &path::Path,
    },
    Entry {
        name: "watch",
        about: "long flows looked at finely for hours, beside short tests: what each of the two views says",
        params: watch::plan::PARAMS,
        needs: &[],
        build: &watch::Watch,
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_workload_keeps_the_claims_of_the_seam() {
        weir_seams::workload::conformance::check(super::WORKLOADS);
    }
}
