//! What a stream step measures.

use crate::generator;
use weir_core::metric::{Better, Metric, Scope};

pub static METRICS: &[Metric] = &[
    Metric::new(
        "stream.total_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "Sum of the goodputs of all flows of the trial, both directions included.",
    ).column(10).swept(),
    Metric::new(
        "stream.flow_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Flow,
        "Payload that the receiving program got over the steady state, which begins with the step's start plus \
            warm-up and ends with its planned end (or the last byte of a flow bounded by bytes), divided by the time between \
            the receiver's own looks at the clock at these two edges.",
    ),
    Metric::new(
        super::derive::ACKNOWLEDGED,
        "bit/s",
        Better::Higher,
        Scope::Flow,
        "Only of a flow whose receiving end was lost: bytes that it had acknowledged to the sender's kernel since the \
            warm-up (tcpi_bytes_acked), divided by the time until the last acknowledgement. A receiving program may have got less.",
    ),
    Metric::new(
        "stream.congestion_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Part,
        "Sum of the goodputs of the flows whose senders use one congestion control; of each where a step has several \
            (tcp.congestion = \"cubic+bbr\").",
    ),
    Metric::new(
        "stream.ramp_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Part,
        "In a step whose streams start one after the other (ramp): payload of all flows from the start of each pair's \
            k-th stream (streams.k) to that of the next, or to the planned end, divided by that time. The slow start of the \
            newest stream is in it.",
    ),
    Metric::new(
        "stream.retransmitted_segments",
        "segments",
        Better::Lower,
        Scope::Flow,
        "Segments the sender's kernel sent again (tcpi_total_retrans) from the step's start to the end of its \
            drain, warm-up included.",
    ).column(13),
    Metric::new(
        "stream.stalled_seconds",
        "s",
        Better::Lower,
        Scope::Flow,
        "Longest time between two receives with data, by the receiver's clock, from the flow's first byte to the \
            step's planned end (or the last byte of a flow bounded by bytes). A flow that never got a byte was stalled from \
            its start to the end.",
    ),
    Metric::new(
        "stream.fairness_jain",
        "1",
        Better::Higher,
        Scope::Trial,
        "Jain's index of the flows' goodputs, (sum of x)^2 / (n * sum of x^2): 1 when all are equal, 1/n when one \
            flow has all. Jain, Chiu, Hawe, DEC-TR-301, 1984.",
    ).column(12),
    Metric::new(
        "stream.recovery_seconds",
        "s",
        Better::Lower,
        Scope::Trial,
        "From the end of a fault to the first moment from which the total rate of all flows is back at 90 % of \
            the rate before the fault: over every window of 100 ms that starts within 200 ms of that moment. The rate before is the \
            mean over up to 1 s before the fault. One value a fault that begins and ends within the step while bytes flow. If \
            the rate never came back, the time from the fault's end to the step's end: a lower bound. Resolved to the series' interval.",
    ).column(14),
    Metric::new(
        "cost.cpu_seconds_per_gigabyte",
        "s/GB",
        Better::Lower,
        Scope::Trial,
        "CPU time, user and system, of the data threads at both ends over the whole step (drain included), per \
            10^9 payload bytes received. What the kernel does for them on other threads is not in it.",
    ),
    generator::LATENESS,
    generator::MISSED,
];
