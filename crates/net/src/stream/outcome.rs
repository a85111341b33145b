//! From what the threads counted to an outcome.

use super::audit;
use super::clock::Schedule;
use super::cpu::ThreadCpu;
use super::engine::{Half, Load};
use super::pace::Pace;
use super::receive::{Edge, Receiver, Unread};
use super::send::{InfoAt, Sender, TcpSample};
use crate::evidence::{TransportFacts, WindowFacts};
use crate::generator::Account;
use crate::watch::metrics;
use crate::watch::seconds::Seconds;
use crate::watch::tape::ReceiverTape;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::record::{Observed, Row, Series};
use weir_core::time::nanoseconds;
use weir_seams::workload::Outcome;

/// What `derive` needs of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamBody {
    /// CPU time of the data threads, user and system, over the whole step.
    pub cpu_ns: u64,
    pub received: Vec<ReceivedFlow>,
    pub sent: Vec<SentFlow>,
    pub interval_ns: u64,
    /// Share of the steady state that the busiest thread that sends spent on a core; likewise that receives. The busiest is the one
    /// that ran or waited for a core longest.
    #[serde(default)]
    pub sender_thread_busy_ratio: f64,
    #[serde(default)]
    pub receiver_thread_busy_ratio: f64,
    /// Share of the steady state in which the same thread could have run and waited for a core.
    #[serde(default)]
    pub sender_thread_wait_ratio: f64,
    #[serde(default)]
    pub receiver_thread_wait_ratio: f64,
    /// How this end's kernel sizes buffers by itself: least, first and most bytes; `None` where it does not tell.
    #[serde(default)]
    pub send_memory_bytes: Option<[u64; 3]>,
    #[serde(default)]
    pub receive_memory_bytes: Option<[u64; 3]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedFlow {
    pub entity: String,
    /// Over the whole step, drain included.
    pub bytes: u64,
    /// The steady state as it was: `[at, bytes]` at its start and at its end; `None` when it never began.
    pub steady_ns_bytes: Option<[[u64; 2]; 2]>,
    /// Time within it in which the reader waited for its own clock.
    #[serde(default)]
    pub waited_ns: u64,
    /// What lay unread just after the program had read: mean bytes, and mean share of the window; `None` when nobody looked.
    #[serde(default)]
    pub unread: Option<[f64; 2]>,
    /// Of the reader's own clock.
    #[serde(default)]
    pub clock: Option<Account>,
    /// Of a flow that was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Seconds>,
    /// How much longer than planned the steady state may be: its edges are messages that travel.
    #[serde(default)]
    pub slack_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SentFlow {
    pub entity: String,
    pub bytes: u64,
    /// What the kernel took in the steady state and how long that was, ns; `None` when it never began.
    #[serde(default)]
    pub steady_bytes_ns: Option<[u64; 2]>,
    /// What was acknowledged from the end of the warm-up to the last acknowledgement and how long that was, ns.
    #[serde(default)]
    pub acknowledged_bytes_ns: Option<[u64; 2]>,
    /// `None` where the kernel does not keep what is needed.
    pub facts: Option<TransportFacts>,
    /// Of the source's own clock.
    #[serde(default)]
    pub clock: Option<Account>,
}

impl ReceivedFlow {
    /// Goodput and length of the steady state, bit/s and seconds.
    pub fn goodput(&self) -> Option<(f64, f64)> {
        let [[from_ns, from], [to_ns, to]] = self.steady_ns_bytes?;
        let seconds = to_ns.checked_sub(from_ns)? as f64 / 1e9;
        (seconds > 0.0).then(|| (to.saturating_sub(from) as f64 * 8.0 / seconds, seconds))
    }

    /// Whether there was a steady state, and no byte in it.
    pub fn got_nothing(&self) -> bool {
        self.steady_ns_bytes.is_some_and(|[[_, from], [_, to]]| to <= from)
    }
}

pub fn assemble(
    load: &Load,
    schedule: &Schedule,
    interval: Duration,
    granted: serde_json::Map<String, serde_json::Value>,
    halves: Vec<Half>,
    cpus: &[ThreadCpu],
) -> Outcome {
    let mut outcome = Outcome {
        host: load.host.clone(),
        role: load.role.clone(),
        started_ns: schedule.start_ns,
        ended_ns: weir_sys::clock::monotonic().as_ns(),
        granted,
        ..Outcome::default()
    };
    let busiest = |of: fn(&ThreadCpu) -> bool| {
        let all = cpus.iter().filter(|cpu| of(cpu)).filter_map(ThreadCpu::shares);
        all.max_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1))).unwrap_or_default()
    };
    let (sender, receiver) = (busiest(|cpu| cpu.sends), busiest(|cpu| cpu.receives));
    let mut body = StreamBody {
        cpu_ns: cpus.iter().map(|cpu| cpu.total_ns).sum(),
        interval_ns: nanoseconds(interval),
        sender_thread_busy_ratio: sender.0,
        sender_thread_wait_ratio: sender.1,
        receiver_thread_busy_ratio: receiver.0,
        receiver_thread_wait_ratio: receiver.1,
        send_memory_bytes: audit::memory("net.ipv4.tcp_wmem"),
        receive_memory_bytes: audit::memory("net.ipv4.tcp_rmem"),
        ..StreamBody::default()
    };
    for half in halves {
        match half {
            Half::Receive(receiver) => receiver_part(&mut outcome, &mut body, schedule, *receiver),
            Half::Send(sender) => sender_part(&mut outcome, &mut body, *sender),
        }
    }
    if interval != load.plan.interval {
        outcome.granted.insert(
            "series".to_owned(),
            serde_json::json!({
                "asked_interval_ns": nanoseconds(load.plan.interval),
                "interval_ns": nanoseconds(interval),
                "why": format!("{} flows share 1600 samples a second", load.flow_total),
            }),
        );
    }
    if load.plan.discard && !body.received.is_empty() {
        outcome.granted.insert("receive".to_owned(), "discarded in the kernel".into());
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
    outcome
}

fn row(entity: &str, metric: &str, value: f64) -> Row {
    Row { entity: entity.to_owned(), metric: metric.to_owned(), value: Observed::Value(value) }
}

/// Rows of a program's own clock, and its account.
fn clock_part(outcome: &mut Outcome, entity: &str, program: Option<&Pace>) -> Option<Account> {
    let (lateness, ticks) = program?.lateness();
    outcome.rows.extend(lateness.rows(entity));
    lateness.account(ticks)
}

fn mean_unread(unread: &Unread) -> Option<[f64; 2]> {
    let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
    (unread.looks > 0)
        .then(|| [mean(unread.bytes_sum, unread.looks), mean(unread.ratio_sum, unread.ratio_looks)])
}

fn receiver_part(outcome: &mut Outcome, body: &mut StreamBody, schedule: &Schedule, receiver: Receiver) {
    let stalled = receiver.stalled_ns();
    let clock = clock_part(outcome, &receiver.spec.entity, receiver.reader.as_ref());
    let Receiver { spec, bytes, steady_start, steady_end, samples, tape, failure, unread, .. } = receiver;
    let waited_ns = |edge: Option<Edge>| edge.map_or(0, |edge| edge.waited_ns);
    // Clocks of two machines differ by a little; more than measuring rule 6 allows is an end before its time.
    let planned_ns = schedule.end_ns.saturating_sub(schedule.start_ns);
    let early = steady_end.is_some_and(|edge| edge.at_ns < schedule.end_ns - planned_ns / 100);
    if let Some(failure) = failure {
        outcome.failures.push(failure);
    } else if schedule.duration_bounded() && early {
        let at_ns = steady_end.map_or(schedule.start_ns, |edge| edge.at_ns);
        let seconds = at_ns.saturating_sub(schedule.start_ns) as f64 / 1e9;
        let text = format!("its sender ended it {seconds:.3} s after the start");
        outcome.failures.push(spec.gave_up(spec.operation(), at_ns, text));
    }
    let flow = ReceivedFlow {
        entity: spec.entity,
        bytes,
        steady_ns_bytes: steady_start
            .zip(steady_end)
            .map(|(start, end)| [[start.at_ns, start.bytes], [end.at_ns, end.bytes]]),
        waited_ns: waited_ns(steady_end).saturating_sub(waited_ns(steady_start)),
        unread: mean_unread(&unread),
        clock,
        seconds: tape.map(ReceiverTape::finish),
        slack_ns: 0,
    };
    let entity = &flow.entity;
    if let Some((goodput, _)) = flow.goodput() {
        outcome.rows.push(row(entity, "stream.flow_goodput_bits_per_second", goodput));
    }
    outcome.rows.push(row(entity, "stream.stalled_seconds", stalled as f64 / 1e9));
    let items = samples.into_items();
    outcome.series.push(Series {
        entity: entity.clone(),
        name: "stream.received_bytes".to_owned(),
        unit: "B".to_owned(),
        cumulative: true,
        t_ns: items.iter().map(|(at, _)| *at as i64).collect(),
        value: items.iter().map(|(_, bytes)| *bytes as f64).collect(),
    });
    body.received.push(flow);
}

fn sender_part(outcome: &mut Outcome, body: &mut StreamBody, sender: Sender) {
    let clock = clock_part(outcome, &sender.spec.entity, sender.source.as_ref());
    let Sender { spec, sent_bytes, at_start, at_warm, at_end, at_last, samples, tape, failure, .. } = sender;
    let taken = samples.taken();
    if let Some(tape) = tape {
        tape.finish();
        outcome.rows.push(row(&spec.entity, metrics::SAMPLES, taken as f64));
    }
    failure.into_iter().for_each(|failure| outcome.failures.push(failure));
    if let (Some(first), Some(last)) = (at_start, at_last) {
        let count = last.info.total_retrans_segments.wrapping_sub(first.info.total_retrans_segments);
        outcome.rows.push(row(&spec.entity, "stream.retransmitted_segments", f64::from(count)));
    }
    let items = samples.into_items();
    let facts = at_warm.zip(at_end).and_then(|(warm, end)| facts(&warm, &end, &items));
    tcp_series(outcome, &spec.entity, &items);
    let steady_bytes_ns = at_warm.zip(at_end).map(|(warm, end)| {
        [end.sent_bytes.saturating_sub(warm.sent_bytes), end.at_ns.saturating_sub(warm.at_ns)]
    });
    let acknowledged_bytes_ns = at_warm.zip(at_last).and_then(|(warm, last)| acknowledged(&warm, &last));
    body.sent.push(SentFlow {
        entity: spec.entity,
        bytes: sent_bytes,
        steady_bytes_ns,
        acknowledged_bytes_ns,
        facts,
        clock,
    });
}

/// `None` where the kernel does not tell, or nothing was acknowledged.
fn acknowledged(warm: &InfoAt, last: &InfoAt) -> Option<[u64; 2]> {
    let bytes = last.info.bytes_acked?.checked_sub(warm.info.bytes_acked?).filter(|bytes| *bytes > 0)?;
    let since_ns = u64::from(last.info.last_ack_received_ms) * 1_000_000;
    let length_ns = last.at_ns.checked_sub(since_ns)?.checked_sub(warm.at_ns)?;
    (length_ns > 0).then_some([bytes, length_ns])
}

/// What TCP counted over the steady state of one flow; the goodput is the receiver's to say.
fn facts(warm: &InfoAt, end: &InfoAt, items: &[(u64, TcpSample)]) -> Option<TransportFacts> {
    let seconds =
        |read: fn(&InfoAt) -> Option<u64>| Some(read(end)?.saturating_sub(read(warm)?) as f64 / 1e6);
    let steady: Vec<&TcpSample> = items
        .iter()
        .filter(|(at, _)| (warm.at_ns..=end.at_ns).contains(at))
        .map(|(_, sample)| sample)
        .collect();
    let mean = |read: fn(&TcpSample) -> f64, otherwise: f64| match steady.len() {
        0 => otherwise,
        count => steady.iter().map(|sample| read(sample)).sum::<f64>() / count as f64,
    };
    let rtt_us = mean(|sample| f64::from(sample.rtt_us), f64::from(end.info.rtt_us));
    let limited_ratio = mean(
        |sample| f64::from(u8::from(sample.application_limited)),
        f64::from(u8::from(end.info.application_limited)),
    );
    let observed_seconds = end.at_ns.saturating_sub(warm.at_ns) as f64 / 1e9;
    let offered = steady.iter().filter_map(|sample| sample.peer_window_bytes).chain(end.info.snd_wnd_bytes);
    let in_flight = steady.iter().map(|sample| sample.in_flight_segments).chain([end.info.unacked_segments]);
    let window = WindowFacts {
        min_rtt_seconds: f64::from(end.info.min_rtt_us.unwrap_or(0)) / 1e6,
        offered_bytes: f64::from(offered.max().unwrap_or(0)),
        in_flight_bytes_max: f64::from(in_flight.max().unwrap_or(0)) * f64::from(end.info.snd_mss_bytes),
        ..WindowFacts::default()
    };
    Some(TransportFacts {
        flow_count: 1,
        observed_seconds,
        source_waiting_seconds: end.waited_ns.saturating_sub(warm.waited_ns) as f64 / 1e9,
        application_limited_seconds: limited_ratio * observed_seconds,
        busy_seconds: seconds(|at| at.info.busy_us)?,
        receive_window_limited_seconds: seconds(|at| at.info.rwnd_limited_us)?,
        send_buffer_limited_seconds: seconds(|at| at.info.sndbuf_limited_us)?,
        sent_segments: u64::from(end.info.data_segs_out?.wrapping_sub(warm.info.data_segs_out?)),
        retransmitted_segments: u64::from(
            end.info.total_retrans_segments.wrapping_sub(warm.info.total_retrans_segments),
        ),
        duplicate_segments: u64::from(end.info.dsack_dups?.wrapping_sub(warm.info.dsack_dups?)),
        goodput_bits_per_second: 0.0,
        rtt_seconds: rtt_us / 1e6,
        window,
        ..TransportFacts::default()
    })
}

/// A series whose values seldom change keeps the samples where they do, the one before each, and the last.
fn thinned(items: &[(i64, f64)]) -> (Vec<i64>, Vec<f64>) {
    let keep = |index: usize| {
        index == 0
            || index + 1 == items.len()
            || items[index].1 != items[index - 1].1
            || items[index].1 != items[index + 1].1
    };
    (0..items.len()).filter(|index| keep(*index)).map(|index| items[index]).unzip()
}

fn tcp_series(outcome: &mut Outcome, entity: &str, items: &[(u64, TcpSample)]) {
    type Read = fn(&TcpSample) -> Option<f64>;
    let columns: [(&str, &str, bool, Read); 5] = [
        ("tcp.congestion_window_segments", "segments", false, |s| {
            Some(f64::from(s.congestion_window_segments))
        }),
        ("tcp.in_flight_segments", "segments", false, |s| Some(f64::from(s.in_flight_segments))),
        ("tcp.rtt_seconds", "s", false, |s| Some(f64::from(s.rtt_us) / 1e6)),
        ("tcp.retransmitted_segments", "segments", true, |s| Some(f64::from(s.retransmitted_segments))),
        ("tcp.peer_window_bytes", "B", false, |s| s.peer_window_bytes.map(f64::from)),
    ];
    for (name, unit, cumulative, read) in columns {
        let points: Vec<(i64, f64)> =
            items.iter().filter_map(|(at, sample)| Some((*at as i64, read(sample)?))).collect();
        if points.is_empty() {
            continue;
        }
        let (t_ns, value) = thinned(&points);
        outcome.series.push(Series {
            entity: entity.to_owned(),
            name: name.to_owned(),
            unit: unit.to_owned(),
            cumulative,
            t_ns,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: net-protocol.md#series-4
    #[test]
    fn thinning_keeps_both_ends_of_every_run_of_equals() {
        let items: Vec<(i64, f64)> = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0]
            .into_iter()
            .enumerate()
            .map(|(at, value)| (at as i64, value))
            .collect();
        assert_eq!(thinned(&items), (vec![0, 2, 3, 5, 6, 7], vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0]));
        assert_eq!(thinned(&[]), (vec![], vec![]));
    }
}
