//! What the two ends of a flow find, as it travels to whoever derives.

use super::mtu::PACKET_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One hop of the way, as far as it said something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// From 1; the last one is the peer itself where it was reached.
    pub number: u8,
    /// Who answered, in the order they were first heard; several where packets take turns between ways.
    pub addresses: Vec<IpAddr>,
    /// Small packets sent, and times of those that were answered.
    pub asked: u64,
    pub small_ns: Vec<u64>,
    /// Times of those as large as the path takes.
    pub full_ns: Vec<u64>,
    /// What the link after it takes, as its packet-too-big said.
    pub mtu_bytes: Option<u64>,
}

impl Hop {
    pub fn heard_from(&mut self, address: IpAddr) {
        const ADDRESSES_MAX: usize = 8;
        if !self.addresses.contains(&address) && self.addresses.len() < ADDRESSES_MAX {
            self.addresses.push(address);
        }
    }
}

/// What became of packets that vanished without a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vanished {
    /// The smallest.
    pub bytes: u64,
    /// The last hop that such packets reach, as it said itself; `None`: none did.
    pub after: Option<(u8, IpAddr)>,
}

/// What TCP came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Payload of the largest segment it sends.
    pub mss_bytes: u64,
    /// The IP packet that this makes.
    pub packet_bytes: u64,
    pub round_trip_us: Option<u32>,
    pub retransmitted: u32,
    pub reordering: u32,
    pub reordering_events: Option<u32>,
    pub duplicates: Option<u32>,
    pub acknowledged_bytes: u64,
    /// Whether all arrived.
    pub complete: bool,
}

/// What the probing end of a flow found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub entity: String,
    pub peer: Option<IpAddr>,
    /// Whether the hop list ends at the peer.
    pub reached: bool,
    pub hops: Vec<Hop>,
    pub mtu_bytes: Option<u64>,
    /// What the route takes as the kernel holds it, after all probes.
    pub kernel_mtu_bytes: Option<u64>,
    pub vanished: Option<Vanished>,
    /// Round trips to the peer.
    pub small_ns: Vec<u64>,
    pub full_ns: Vec<u64>,
    /// Datagrams of the train that the kernel took.
    pub train_sent: u64,
    pub tcp: Option<Carried>,
}

impl Found {
    /// How much more the kernel would send in one packet than arrives.
    pub fn black_holed_bytes(&self) -> Option<u64> {
        let (kernel, arrives) = (self.kernel_mtu_bytes?, self.mtu_bytes?);
        Some(kernel.min(PACKET_BYTES_MAX).saturating_sub(arrives))
    }
}

/// What the answering end of a flow received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub entity: String,
    pub distinct: u64,
    pub duplicate: u64,
    pub reordered: u64,
    pub extent_max: u64,
    /// Segments that TCP got out of order.
    pub out_of_order: Option<u32>,
}
