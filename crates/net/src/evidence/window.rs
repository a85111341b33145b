//! The window audit: what a path needs in flight, what the ends allow, which of it held the flows, and what to change.

use super::{
    Factor, LINK_RATE, LOSS, QUEUE, RECEIVE_WINDOW, RECEIVER_APPLICATION, RECEIVER_CPU, REORDERING,
    SEND_BUFFER, SENDER_CPU, SOURCE_APPLICATION, TransportFacts, UNKNOWN, percent,
};
use serde::{Deserialize, Serialize};
use weir_core::units::human;

/// What may be in flight. Bytes of each flow; means over flows where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowFacts {
    /// Shortest round trip that senders saw (`tcpi_min_rtt`), seconds; 0 where the kernel does not tell.
    pub min_rtt_seconds: f64,
    /// Largest window that receivers offered in the steady state (`tcpi_snd_wnd`); 0 where the kernel does not tell.
    pub offered_bytes: f64,
    /// Most that samples of the steady state found sent and not acknowledged (`tcpi_unacked` segments).
    pub in_flight_bytes_max: f64,
    /// `tcp.window`
    pub asked_window_bytes: Option<u64>,
    pub send: BufferFacts,
    pub receive: BufferFacts,
    /// What the programs and the pacing let through of each flow.
    pub source_bits_per_second: Option<u64>,
    pub read_bits_per_second: Option<u64>,
    pub pacing_bits_per_second: Option<u64>,
}

/// The buffers of one end of the flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BufferFacts {
    /// `tcp.send_buffer`, `tcp.receive_buffer`
    pub asked_bytes: Option<u64>,
    /// What the kernel granted of it, the least of all flows.
    pub granted_bytes: Option<u64>,
    /// How the kernel sizes a buffer by itself: least, first and most bytes, as in `net.ipv4.tcp_wmem` or `tcp_rmem`; of the host
    /// that gives least.
    pub kernel_bytes: Option<[u64; 3]>,
}

/// A buffer holds the kernel's bookkeeping too, about as much as data (`tcp_adv_win_scale` of 1, Linux ip-sysctl).
const BUFFER_OF_WINDOW: f64 = 2.0;
/// Flows that carry this share of what `tcp.pacing` lets through are held by it.
const PACED: f64 = 0.9;

/// One end, in words.
struct End {
    name: &'static str,
    /// `tcp.window`, which is the receivers'.
    window_bytes: Option<u64>,
    buffer: BufferFacts,
    buffer_key: &'static str,
    /// The kernel's settings of buffers that it sizes by itself, and of those that are asked for.
    memory: &'static str,
    memory_asked: &'static str,
}

/// Payload that the path needs in flight for all flows together: their ceiling × the shortest round trip. `None` where either is
/// unknown.
fn needed_bytes(transport: &TransportFacts, ceiling: Option<f64>) -> Option<f64> {
    let needed = ceiling? * transport.window.min_rtt_seconds / 8.0;
    (needed > 0.0).then_some(needed)
}

/// Lines for the evidence of `factor`; none where the kernel told nothing of the flows' windows.
// Spec: evidence.md#window-1
pub(super) fn audit(transport: &TransportFacts, ceiling: Option<f64>, factor: &Factor) -> Vec<String> {
    let window = transport.window;
    if window.min_rtt_seconds <= 0.0 && window.offered_bytes <= 0.0 && window.in_flight_bytes_max <= 0.0 {
        return Vec::new();
    }
    let paced = *factor == UNKNOWN && held_by_pacing(transport);
    let mut lines = vec![need(transport, ceiling)];
    lines.extend(granted(&window));
    lines.push(binding(transport, factor, paced));
    // A full link or a slow program is not mended by room in flight.
    let by_room = [&RECEIVE_WINDOW, &SEND_BUFFER, &LOSS, &REORDERING, &QUEUE];
    let mended = by_room.contains(&factor) || *factor == UNKNOWN && !paced;
    if mended {
        let needed =
            needed_bytes(transport, ceiling).map(|needed| needed / transport.flow_count.max(1) as f64);
        lines.extend(mend(needed, *factor == RECEIVE_WINDOW, &receivers(&window)));
        lines.extend(mend(needed, *factor == SEND_BUFFER, &senders(&window)));
    }
    lines
}

fn held_by_pacing(transport: &TransportFacts) -> bool {
    let flows = transport.flow_count as f64;
    let most = transport.window.pacing_bits_per_second.map(|pacing| pacing as f64 * flows);
    most.is_some_and(|most| transport.goodput_bits_per_second >= most * PACED)
}

fn need(transport: &TransportFacts, ceiling: Option<f64>) -> String {
    let window = &transport.window;
    let of_each = if transport.flow_count > 1 { " of a flow" } else { "" };
    let seen = format!("at most {}{of_each}", human(window.in_flight_bytes_max, "B"));
    let (Some(needed), Some(rate)) = (needed_bytes(transport, ceiling), ceiling) else {
        let rtt = human(window.min_rtt_seconds, "s");
        return format!("{seen} was in flight, over a shortest round trip of {rtt}");
    };
    let each = match transport.flow_count {
        0 | 1 => String::new(),
        count => format!(", {} for each of {count} flows", human(needed / count as f64, "B")),
    };
    format!(
        "the path needs {} in flight ({} over {}){each}; {seen} was",
        human(needed, "B"),
        human(rate, "bit/s"),
        human(window.min_rtt_seconds, "s")
    )
}

/// What each flow was given, by whom.
fn granted(window: &WindowFacts) -> Option<String> {
    let bytes = |count: u64| human(count as f64, "B");
    let mut all = Vec::new();
    if window.offered_bytes > 0.0 {
        let asked = if window.asked_window_bytes.is_some() { " (tcp.window)" } else { "" };
        all.push(format!("a window of {}{asked}", human(window.offered_bytes, "B")));
    }
    for (what, end) in [("receive", receivers(window)), ("send", senders(window))] {
        let buffer = end.buffer;
        let fixed = buffer.asked_bytes.map(|asked| (buffer.granted_bytes.unwrap_or(asked), end.buffer_key));
        let grown = buffer.kernel_bytes.map(|[_, _, most]| (most, end.memory));
        // With a window goes a buffer that fits it.
        let with_window = what == "receive" && fixed.is_none() && window.asked_window_bytes.is_some();
        if let Some((most, by)) = fixed.or(grown).filter(|_| !with_window) {
            all.push(format!("a {what} buffer of {} ({by})", bytes(most)));
        }
    }
    for (rate, key) in [
        (window.source_bits_per_second, "source_rate"),
        (window.read_bits_per_second, "read_rate"),
        (window.pacing_bits_per_second, "tcp.pacing"),
    ] {
        all.extend(rate.map(|rate| format!("{} ({key})", human(rate as f64, "bit/s"))));
    }
    (!all.is_empty()).then(|| format!("each flow may have {}", all.join(", ")))
}

/// What held the flows back.
fn binding(transport: &TransportFacts, factor: &Factor, paced: bool) -> String {
    let share = |seconds: f64| (seconds / transport.busy_seconds.max(1e-9)).clamp(0.0, 1.0);
    let window = share(transport.receive_window_limited_seconds);
    let buffer = share(transport.send_buffer_limited_seconds);
    let told = [
        (&RECEIVE_WINDOW, "the receiver's window"),
        (&SEND_BUFFER, "the send buffer"),
        (&LINK_RATE, "the link"),
        (&SOURCE_APPLICATION, "the sending program"),
        (&RECEIVER_APPLICATION, "the receiving program"),
        (&SENDER_CPU, "the sender's CPU"),
        (&RECEIVER_CPU, "the receiver's CPU"),
    ];
    let what = match told.iter().find(|(one, _)| *one == factor) {
        Some((_, what)) => what,
        None if paced => "tcp.pacing",
        None if window >= buffer && window > 1.0 - window - buffer => "the receiver's window",
        None if buffer > 1.0 - window - buffer => "the send buffer",
        None => "the congestion window",
    };
    format!(
        "what held the flows was {what}; the receiver's window held them {} of their busy time, the send buffer {}",
        percent(window),
        percent(buffer)
    )
}

fn receivers(window: &WindowFacts) -> End {
    End {
        name: "receiver",
        window_bytes: window.asked_window_bytes,
        buffer: window.receive,
        buffer_key: "tcp.receive_buffer",
        memory: "net.ipv4.tcp_rmem",
        memory_asked: "net.core.rmem_max",
    }
}

fn senders(window: &WindowFacts) -> End {
    End {
        name: "sender",
        window_bytes: None,
        buffer: window.send,
        buffer_key: "tcp.send_buffer",
        memory: "net.ipv4.tcp_wmem",
        memory_asked: "net.core.wmem_max",
    }
}

/// What to change at one end, if it is too small for what a flow needs: what was asked for, what the kernel granted of it, or
/// how far the kernel goes by itself. An end that `binds` is too small if nobody knows what is needed.
// Spec: evidence.md#window-2
fn mend(needed: Option<f64>, binds: bool, end: &End) -> Option<String> {
    let small = |bytes: u64, times: f64| needed.map_or(binds, |needed| (bytes as f64) < needed * times);
    let more =
        || needed.map_or_else(|| "more".to_owned(), |needed| format!("{} or more", human(needed, "B")));
    let asked = [("tcp.window", end.window_bytes), (end.buffer_key, end.buffer.asked_bytes)];
    for (key, bytes) in asked {
        if let Some(bytes) = bytes.filter(|bytes| small(*bytes, 1.0)) {
            let has = human(bytes as f64, "B");
            return Some(format!("{key} = {has} is too small: leave it out, or ask for {}", more()));
        }
    }
    if let (Some(asked), Some(granted)) = (end.buffer.asked_bytes, end.buffer.granted_bytes)
        && granted < asked
        && small(granted, 1.0)
    {
        return Some(format!(
            "the kernel granted {} of {}; on the {}s: sysctl -w {}={asked}",
            human(granted as f64, "B"),
            end.buffer_key,
            end.name,
            end.memory_asked
        ));
    }
    if asked.iter().any(|(_, bytes)| bytes.is_some()) {
        return None;
    }
    let [least, first, most] = end.buffer.kernel_bytes?;
    // Half of a buffer may be bookkeeping: where one binds, that half is missing. One that does not may hold more.
    if !small(most, if binds { BUFFER_OF_WINDOW } else { 1.0 }) {
        return None;
    }
    let wanted = needed.map_or(most.saturating_mul(2), |needed| (needed * BUFFER_OF_WINDOW) as u64);
    let wanted = wanted.max(1).checked_next_power_of_two().unwrap_or(wanted);
    let why =
        needed.map_or_else(String::new, |needed| format!(", a flow needs twice {}", human(needed, "B")));
    Some(format!(
        "a {} kernel gives at most {}{why}; on the {}s: sysctl -w {}=\"{least} {first} {wanted}\"",
        end.name.to_owned() + "'s",
        human(most as f64, "B"),
        end.name,
        end.memory
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: WindowFacts = WindowFacts {
        min_rtt_seconds: 0.1,
        offered_bytes: 3e6,
        in_flight_bytes_max: 2.9e6,
        asked_window_bytes: None,
        send: BufferFacts {
            asked_bytes: None,
            granted_bytes: None,
            kernel_bytes: Some([4096, 16_384, 4_194_304]),
        },
        receive: BufferFacts {
            asked_bytes: None,
            granted_bytes: None,
            kernel_bytes: Some([4096, 131_072, 6_291_456]),
        },
        source_bits_per_second: None,
        read_bits_per_second: None,
        pacing_bits_per_second: None,
    };

    /// The audit of flows over 1 Gbit/s, held by the receiver's window nine tenths of the time.
    fn audited(window: WindowFacts, flow_count: u64, factor: &Factor) -> Vec<String> {
        audit(&facts(window, flow_count), Some(1e9), factor)
    }

    fn facts(window: WindowFacts, flow_count: u64) -> TransportFacts {
        TransportFacts {
            flow_count,
            busy_seconds: 10.0,
            receive_window_limited_seconds: 9.0,
            rtt_seconds: 0.1,
            window,
            ..TransportFacts::default()
        }
    }

    // Spec: evidence.md#window-1, evidence.md#window-2
    #[test]
    fn the_need_the_grants_what_binds_and_the_settings_to_change_are_said() {
        assert_eq!(
            audited(LONG, 1, &RECEIVE_WINDOW),
            [
                "the path needs 12.5 MB in flight (1 Gbit/s over 100 ms); at most 2.9 MB was",
                "each flow may have a window of 3 MB, a receive buffer of 6.291 MB (net.ipv4.tcp_rmem), \
                 a send buffer of 4.194 MB (net.ipv4.tcp_wmem)",
                "what held the flows was the receiver's window; the receiver's window held them 90.0 % of their busy \
                 time, the send buffer 0.0 %",
                "a receiver's kernel gives at most 6.291 MB, a flow needs twice 12.5 MB; on the receivers: \
                 sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\"",
                "a sender's kernel gives at most 4.194 MB, a flow needs twice 12.5 MB; on the senders: \
                 sysctl -w net.ipv4.tcp_wmem=\"4096 16384 33554432\""
            ]
        );
    }

    // Spec: evidence.md#window-2
    #[test]
    fn what_was_asked_for_is_named_before_the_kernel_if_it_is_too_small() {
        let receive = |window: WindowFacts| audited(window, 1, &RECEIVE_WINDOW)[3].clone();
        let asked = WindowFacts { asked_window_bytes: Some(90_000), ..LONG };
        assert_eq!(
            receive(asked),
            "tcp.window = 90 kB is too small: leave it out, or ask for 12.5 MB or more"
        );
        let buffer = |asked, granted| BufferFacts {
            asked_bytes: Some(asked),
            granted_bytes: Some(granted),
            ..LONG.receive
        };
        let less = WindowFacts { receive: buffer(20_000_000, 212_992), ..LONG };
        assert_eq!(
            receive(less),
            "the kernel granted 213 kB of tcp.receive_buffer; on the receivers: sysctl -w net.core.rmem_max=20000000"
        );
        // Enough was asked for at this end and granted; the other is still short.
        let enough = WindowFacts { receive: buffer(20_000_000, 20_000_000), ..LONG };
        assert!(receive(enough).contains("tcp_wmem"), "{}", receive(enough));
    }

    // Spec: evidence.md#window-2
    #[test]
    fn flows_share_what_the_path_needs_and_enough_needs_no_mending() {
        let kernel_bytes = Some([4096, 131_072, 7_000_000]);
        let enough = WindowFacts { receive: BufferFacts { kernel_bytes, ..LONG.receive }, ..LONG };
        let lines = audited(enough, 4, &RECEIVE_WINDOW);
        assert!(
            lines[0].ends_with(", 3.125 MB for each of 4 flows; at most 2.9 MB of a flow was"),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 3, "{lines:?}");
        // The link is full: nothing is to be had from larger buffers.
        assert_eq!(audited(LONG, 1, &LINK_RATE).len(), 3);
        // Lost segments hold it now; the buffers would next.
        assert_eq!(audited(LONG, 1, &LOSS).len(), 5);
        let roomy = WindowFacts { send: enough.receive, ..enough };
        assert_eq!(audited(roomy, 2, &LOSS).len(), 3);
    }

    // Spec: evidence.md#window-1
    #[test]
    fn without_a_ceiling_it_says_what_was_in_flight_and_which_limit_it_met() {
        let of = |window, factor| audit(&facts(window, 1), None, factor);
        let lines = of(LONG, &RECEIVE_WINDOW);
        assert_eq!(lines[0], "at most 2.9 MB was in flight, over a shortest round trip of 100 ms");
        assert!(lines[2].starts_with("what held the flows was the receiver's window;"), "{lines:?}");
        assert_eq!(
            lines[3..],
            ["a receiver's kernel gives at most 6.291 MB; on the receivers: \
              sysctl -w net.ipv4.tcp_rmem=\"4096 131072 16777216\""]
        );
        let asked =
            WindowFacts { receive: BufferFacts { asked_bytes: Some(64_000), ..LONG.receive }, ..LONG };
        assert_eq!(
            of(asked, &RECEIVE_WINDOW)[3..],
            ["tcp.receive_buffer = 64 kB is too small: leave it out, or ask for more"]
        );
        assert_eq!(of(LONG, &LOSS).len(), 3);
    }

    // Spec: evidence.md#window-1
    #[test]
    fn programs_and_pacing_that_hold_the_flows_are_said_with_their_rates() {
        let slow = WindowFacts { source_bits_per_second: Some(50_000_000), ..LONG };
        let lines = audited(slow, 1, &SOURCE_APPLICATION);
        assert!(lines[1].ends_with(", 50 Mbit/s (source_rate)"), "{lines:?}");
        assert!(lines[2].starts_with("what held the flows was the sending program"), "{lines:?}");
        let mut paced = facts(WindowFacts { pacing_bits_per_second: Some(20_000_000), ..LONG }, 2);
        paced.receive_window_limited_seconds = 0.0;
        paced.goodput_bits_per_second = 39e6;
        let lines = audit(&paced, Some(1e9), &UNKNOWN);
        assert!(lines[2].starts_with("what held the flows was tcp.pacing"), "{lines:?}");
        assert_eq!(lines.len(), 3, "{lines:?}");
        paced.goodput_bits_per_second = 30e6;
        assert!(audit(&paced, Some(1e9), &UNKNOWN)[2].contains("was the congestion window"));
    }

    #[test]
    fn flows_of_which_the_kernel_told_nothing_are_not_audited() {
        assert_eq!(audited(WindowFacts::default(), 1, &UNKNOWN), Vec::<String>::new());
    }
}
