//! What bounded TCP's flows: facts of both ends, and the rules of `docs/specs/evidence.md` over them.

mod ends;
mod path;
#[cfg(test)]
mod tests;
mod window;

use serde::{Deserialize, Serialize};
use weir_core::evidence::{
    Around, Candidate, Factor, GeneratorFacts, LINK_RATE, LOSS, Load, QUEUE, RECEIVER_CPU, REORDERING,
    SENDER_CPU, SOURCE_APPLICATION, UNKNOWN, fullest, link_rate, percent,
};

pub use window::{BufferFacts, WindowFacts};

pub static RECEIVER_APPLICATION: Factor = Factor {
    name: "receiver-application",
    rank: 10,
    about: "The receiving program did not read what had arrived.",
    next: "let it read faster (`read_rate`), or leave the limit out",
    command: "weir explain read_rate",
};
pub static SEND_BUFFER: Factor = Factor {
    name: "send-buffer",
    rank: 60,
    about: "Senders had sent all that their buffer holds and waited for acknowledgements.",
    next: "raise what the evidence names, at the senders (`tcp.send_buffer`, net.ipv4.tcp_wmem)",
    command: "weir explain tcp.send_buffer",
};
pub static RECEIVE_WINDOW: Factor = Factor {
    name: "receive-window",
    rank: 80,
    about: "Senders waited for the window that the receivers offer.",
    next: "raise what the evidence names, at the receivers (`tcp.receive_buffer`, net.ipv4.tcp_rmem)",
    command: "weir explain tcp.receive_buffer",
};

/// Those that flows of TCP may name beside the shared ones.
pub static FACTORS: &[&Factor] = &[&RECEIVER_APPLICATION, &SEND_BUFFER, &RECEIVE_WINDOW];

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
    /// Connection time in which the sending program had nothing to send by its own account: it waited for its next tick
    /// (`source_rate`). Exact, by the program's clock.
    #[serde(default)]
    pub source_waiting_seconds: f64,
    /// Connection time in which TCP called its own delivery limited by the application: `observed_seconds` times the share of
    /// samples with `tcpi_delivery_rate_app_limited`. A slow source causes it, a sender without CPU, and a send buffer smaller
    /// than the congestion window; see `send_buffer_limited_seconds` and `sender_thread_busy_ratio` for which.
    #[serde(default)]
    pub application_limited_seconds: f64,
    /// Connection time observed at the receivers: flows × steady state.
    #[serde(default)]
    pub receive_observed_seconds: f64,
    /// Part of it in which the receiving program did not read by its own choice (`read_rate`). Exact, by the program's clock.
    #[serde(default)]
    pub receiver_waiting_seconds: f64,
    /// Bytes that lay unread in a receiver's kernel just after its program had read: mean over samples and flows
    /// (`SIOCINQ`).
    #[serde(default)]
    pub receive_queue_bytes: f64,
    /// Those bytes against themselves plus the window still advertised (`tcpi_rcv_wnd`), mean over samples and flows: near 0
    /// where the program keeps up, near 1 where it has closed the window by not reading. 0 where the kernel does not tell.
    #[serde(default)]
    pub receive_queue_ratio: f64,
    /// Share of the steady state that the busiest sending data thread spent on a CPU.
    #[serde(default)]
    pub sender_thread_busy_ratio: f64,
    /// Share of the steady state that the busiest receiving data thread spent on a CPU.
    #[serde(default)]
    pub receiver_thread_busy_ratio: f64,
    /// Share of the steady state in which the busiest sending data thread could have run and waited for a core: other programs
    /// had it, or a quota was used up (`weir_sys::clock::thread_cpu_wait_time`).
    #[serde(default)]
    pub sender_thread_wait_ratio: f64,
    /// As that, of the busiest receiving data thread.
    #[serde(default)]
    pub receiver_thread_wait_ratio: f64,
    /// For the window audit.
    #[serde(default)]
    pub window: WindowFacts,
}

/// A rule: its candidate, or nothing where it does not hold.
type Rule = fn(&TransportFacts, &Around) -> Option<Candidate>;

const RULES: [Rule; 9] = [
    ends::receiver_application,
    ends::source_application,
    ends::send_buffer,
    ends::receiver_cpu,
    ends::receive_window,
    ends::sender_cpu,
    path::reordering,
    path::small_queue,
    path::loss,
];

/// What a load over TCP says of itself, and what may have bounded it; `transport` is `None` where no flow told anything.
pub fn of_flows(
    transport: Option<&TransportFacts>,
    generator: Option<GeneratorFacts>,
    around: &Around,
) -> (Load, Vec<Candidate>) {
    let Some(transport) = transport else {
        return (Load { generator, ..Load::default() }, Vec::new());
    };
    if let Some(still) = ends::nothing_arrived(transport) {
        return (Load { generator, still: Some(still), ..Load::default() }, Vec::new());
    }
    let audited = |factor: &Factor| window::audit(transport, around.ceiling_bits_per_second, factor);
    let holding = RULES.iter().filter_map(|rule| rule(transport, around)).chain(link_rate(around));
    let candidates = holding.map(|mut candidate| {
        candidate.evidence.extend(audited(candidate.factor));
        candidate
    });
    let mut unknown = Vec::new();
    if let Some((port, load)) = fullest(around) {
        unknown.push(format!("no link was full: {} carried {} of its rate", port.name, percent(load)));
    }
    unknown.push(format!("{} segments sent again", transport.retransmitted_segments));
    unknown.extend(audited(&UNKNOWN));
    let load = Load {
        fills_path: true,
        wants_machine: true,
        goodput_bits_per_second: Some(transport.goodput_bits_per_second),
        rtt_seconds: transport.rtt_seconds,
        generator,
        unknown,
        ..Load::default()
    };
    (load, candidates.collect())
}
