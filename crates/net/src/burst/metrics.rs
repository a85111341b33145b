//! What a burst step measures.

use crate::generator;
use weir_core::metric::{Better, Metric, Modelled, Scope};

pub const COMPLETION: &str = "burst.completion_seconds";
pub const FIRST_BYTE: &str = "burst.first_byte_seconds";
pub const GOODPUT: &str = "burst.goodput_bits_per_second";
pub const SPREAD: &str = "burst.spread_ratio";
pub const CONNECT: &str = "burst.connect_seconds";
pub const DISCONNECT: &str = "burst.disconnect_seconds";
pub const ARRIVED: &str = "burst.arrived_bits_per_second";
pub const CLOCK: &str = "burst.clock_uncertainty_seconds";

pub static METRICS: &[Metric] = &[
    Metric::new(
        COMPLETION,
        "s",
        Better::Lower,
        Scope::Operation,
        "One burst of one flow. From its beginning: with `every` the moment intended for it, else just before its \
            first send call (or before its connection is made, where that is within its time). To its end: with a reply when the \
            sending program has the reply's last byte; without one when the receiving program has the burst's last byte, by the \
            sender's clock (see burst.clock_uncertainty_seconds); with `disconnect` timed when the sender has seen both sides \
            closed. The first warm_up_count bursts of each flow do not count.",
    ).column(15).swept().modelled(Modelled::Completion),
    Metric::new(
        FIRST_BYTE,
        "s",
        Better::Lower,
        Scope::Operation,
        "From the beginning of a burst to the first byte: of the reply at the sending program, or without a reply of \
            the burst at the receiving program.",
    ),
    Metric::new(
        GOODPUT,
        "bit/s",
        Better::Higher,
        Scope::Operation,
        "Payload of one burst, one way, divided by its burst.completion_seconds.",
    ),
    Metric::new(
        SPREAD,
        "1",
        Better::Lower,
        Scope::Trial,
        "(slowest - fastest) / mean of burst.completion_seconds over all flows, one value for each repetition. There \
            is none with a single flow.",
    ),
    Metric::new(
        CONNECT,
        "s",
        Better::Lower,
        Scope::Operation,
        "Making the connection of a burst, from before the socket is made until it is connected.",
    ),
    Metric::new(
        DISCONNECT,
        "s",
        Better::Lower,
        Scope::Operation,
        "From the end of the burst to the moment at which the sender, having closed its side, sees the other closed.",
    ),
    Metric::new(
        CLOCK,
        "s",
        Better::Lower,
        Scope::Flow,
        "How far times of the receiver may be off on the sender's clock: 0 where both have the same clock, else half the \
            shortest of several exchanges of four timestamps made when the bursts are over.",
    ),
    Metric::new(
        ARRIVED,
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "Only of bursts without reply whose receiving end was lost: the payload that it last said it had received, warm-up \
            included, divided by the time from the start to that word.",
    ),
    generator::LATENESS,
    generator::MISSED,
];
