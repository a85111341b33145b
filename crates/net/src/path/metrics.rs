//! What a path step measures.

use weir_core::metric::{Better, Metric, Scope};

pub const MTU: &str = "path.mtu_bytes";
pub const KERNEL_MTU: &str = "path.kernel_mtu_bytes";
pub const BLACK_HOLED: &str = "path.black_holed_bytes";
pub const SEGMENT: &str = "path.tcp_segment_bytes";
pub const HOPS: &str = "path.hop_count";
pub const HOP: &str = "path.hop_round_trip_seconds";
pub const HOP_FULL: &str = "path.hop_full_round_trip_seconds";
pub const HOP_ANSWERED: &str = "path.hop_answered_ratio";
pub const HOP_MTU: &str = "path.hop_mtu_bytes";
pub const SMALL: &str = "path.round_trip_seconds";
pub const FULL: &str = "path.full_round_trip_seconds";
pub const TCP: &str = "path.tcp_round_trip_seconds";
pub const LOST: &str = "path.lost_ratio";
pub const REORDERED: &str = "path.reordered_ratio";
pub const EXTENT: &str = "path.reordering_extent_packets";
pub const DUPLICATE: &str = "path.duplicate_ratio";
pub const RETRANSMITTED: &str = "path.tcp_retransmitted_segments";
pub const TCP_REORDERING: &str = "path.tcp_reordering_segments";
pub const TCP_EVENTS: &str = "path.tcp_reordering_events";
pub const TCP_DUPLICATES: &str = "path.tcp_duplicate_segments";
pub const OUT_OF_ORDER: &str = "path.tcp_out_of_order_segments";

const fn metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    scope: Scope,
    definition: &'static str,
) -> Metric {
    Metric::new(name, unit, better, scope, definition)
}

pub static METRICS: &[Metric] = &[
    metric(
        MTU,
        "B",
        Better::Higher,
        Scope::Flow,
        "Largest IP packet, headers included, that arrived whole at the flow's receiver: probed with packets that no router may cut. \
         At most 65,535.",
    ),
    metric(
        KERNEL_MTU,
        "B",
        Better::Neither,
        Scope::Flow,
        "Largest packet that the sender's kernel holds the route to take after all probes (IP_MTU): its interface's own, or less where \
         a packet-too-big said so. This is what TCP goes by.",
    ),
    metric(
        BLACK_HOLED,
        "B",
        Better::Lower,
        Scope::Flow,
        "How much larger packets the sender's kernel would send than arrive; above 0 the path is a black hole for full packets, and \
         connections stand still as soon as they fill their segments.",
    ),
    metric(
        SEGMENT,
        "B",
        Better::Higher,
        Scope::Flow,
        "Payload of the largest segment that TCP sends at the end of the transfer, options taken off (tcpi_snd_mss).",
    ),
    metric(
        HOPS,
        "hops",
        Better::Neither,
        Scope::Flow,
        "Hops to the flow's receiver, itself included: the smallest hop limit with which packets arrive. Absent where the list ended \
         before.",
    ),
    metric(
        HOP,
        "s",
        Better::Lower,
        Scope::Part,
        "From a small packet that ends at this hop to the hop's answer. Routers answer beside their work: the least is the path's, the \
         rest may be the router's. One entity a hop: hop.SOURCE.DESTINATION.FLOW.NUMBER.ADDRESS.",
    ),
    metric(
        HOP_FULL,
        "s",
        Better::Lower,
        Scope::Part,
        "Likewise for packets as large as the path takes: what is above the small ones is the time that links need to send them.",
    ),
    metric(
        HOP_ANSWERED,
        "1",
        Better::Neither,
        Scope::Part,
        "Share of the small packets for this hop that somebody answered. Routers may answer few or none and forward all.",
    ),
    metric(
        HOP_MTU,
        "B",
        Better::Higher,
        Scope::Part,
        "What the link after this hop takes, where its packet-too-big said so.",
    ),
    metric(
        SMALL,
        "s",
        Better::Lower,
        Scope::Operation,
        "Ten small datagrams to the flow's receiver, one after the other, each until its reply of the same size.",
    ),
    metric(
        FULL,
        "s",
        Better::Lower,
        Scope::Operation,
        "Ten datagrams as large as the path takes, each until its reply, which is small.",
    ),
    metric(
        TCP,
        "s",
        Better::Lower,
        Scope::Flow,
        "Least round trip that TCP saw on the flow's connection (tcpi_min_rtt).",
    ),
    metric(
        LOST,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the train's datagrams that the sender's kernel took and the receiver never got.",
    ),
    metric(
        REORDERED,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the train's datagrams that came after one sent later (RFC 4737, 3.3).",
    ),
    metric(
        EXTENT,
        "packets",
        Better::Lower,
        Scope::Flow,
        "Largest extent of reordering of the train (RFC 4737, 4.2): how many datagrams came since the first that a late one should have \
         come before.",
    ),
    metric(DUPLICATE, "1", Better::Lower, Scope::Flow, "Share of the train's arrivals that had come before."),
    metric(
        RETRANSMITTED,
        "segments",
        Better::Lower,
        Scope::Flow,
        "Segments that TCP sent again during the transfer (tcpi_total_retrans).",
    ),
    metric(
        TCP_REORDERING,
        "segments",
        Better::Lower,
        Scope::Flow,
        "By how many segments TCP expects packets to be out of order at the end (tcpi_reordering); it begins with \
         net.ipv4.tcp_reordering, 3 unless set, and grows with what it sees.",
    ),
    metric(
        TCP_EVENTS,
        "events",
        Better::Lower,
        Scope::Flow,
        "Times that TCP saw segments acknowledged out of order without a loss (tcpi_reord_seen).",
    ),
    metric(
        TCP_DUPLICATES,
        "segments",
        Better::Lower,
        Scope::Flow,
        "Segments that the receiver reports to have got twice (tcpi_dsack_dups): sent again for nothing, or doubled on the way.",
    ),
    metric(
        OUT_OF_ORDER,
        "segments",
        Better::Lower,
        Scope::Flow,
        "Segments that the receiver's TCP got out of order (tcpi_rcv_ooopack); each is answered by a duplicate acknowledgement.",
    ),
];
