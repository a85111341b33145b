//! Names the limiting factor of a trial from what was counted.

use serde::{Deserialize, Serialize};

/// What TCP said of all senders' connections over the steady state, summed (times) or counted.
/// From `TCP_INFO`; times in seconds of connection time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransportFacts {
    pub flow_count: u64,
    /// Connection time observed: flows × interval.
    pub observed_seconds: f64,
    /// Time with data to send or in flight (`tcpi_busy_time`).
    pub busy_seconds: f64,
    /// Part of it stalled by the receiver's window (`tcpi_rwnd_limited`).
    pub receive_window_limited_seconds: f64,
    /// Part of it stalled by the send buffer (`tcpi_sndbuf_limited`).
    pub send_buffer_limited_seconds: f64,
    pub sent_segments: u64,
    pub retransmitted_segments: u64,
    /// Retransmissions that proved needless (`tcpi_dsack_dups`).
    pub duplicate_segments: u64,
    pub goodput_bits_per_second: f64,
    /// Mean smoothed round trip, seconds.
    pub rtt_seconds: f64,
}
