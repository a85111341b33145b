//! How the series of TCP flows are shown.

use std::borrow::Cow::Borrowed;
use weir_core::shown::{Place, SeriesShown, Shown};

pub static SHOWN: Shown = Shown { series: Borrowed(SERIES), ledgers: Borrowed(&[]), views: Borrowed(&[]) };

const SERIES: &[SeriesShown] = &[
    SeriesShown::new("stream.received_bytes", "goodput", Place::Lead(0)),
    SeriesShown::new("tcp.congestion_window_segments", "congestion window", Place::Open(10)),
    SeriesShown::new("tcp.rtt_seconds", "round trip as TCP saw it", Place::Open(11)),
    SeriesShown::new("tcp.retransmitted_segments", "retransmissions so far", Place::Open(12)),
    SeriesShown::new("tcp.in_flight_segments", "in flight", Place::Folded),
    SeriesShown::new("tcp.peer_window_bytes", "window the peer offers", Place::Folded),
];
