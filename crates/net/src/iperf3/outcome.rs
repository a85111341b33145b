//! What is made of a test's load: the words for the other end, and the outcomes of both ends where the server is stock.

use super::datagrams;
use super::results::{Results, StreamResults};
use super::stream_id;
use crate::adhoc::{AdhocError, CLIENT, SERVER};
use crate::rendezvous::{self, FlowSpec};
use crate::stream::outcome::{ReceivedFlow, SentFlow, StreamBody};
use crate::stream::plan::{StreamPlan, Until};
use crate::udp::outcome as udp_outcome;
use crate::udp::plan::UdpPlan;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::record::{Observed, Row};
use weir_seams::workload::{Control, Outcome};
use weir_sys::clock::{self, CpuTime};

/// A server's clock may run longer than the load; beyond this share it is said.
const LONGER_RATIO: f64 = 0.01;

/// What the load at one end came to.
pub enum Ran {
    Streams(Box<Outcome>),
    Datagrams(Vec<datagrams::Report>),
}

impl Results {
    /// With what the whole process has cost over `seconds`.
    pub fn with_cost(self, cpu: CpuTime, seconds: f64) -> Results {
        let percent = |time: Duration| time.as_secs_f64() / seconds.max(1e-9) * 100.0;
        Results {
            cpu_util_total: percent(cpu.user + cpu.system),
            cpu_util_user: percent(cpu.user),
            cpu_util_system: percent(cpu.system),
            ..self
        }
    }
}

/// What a sender's kernel sent again.
fn retransmitted(outcome: &Outcome, entity: &str) -> Option<i64> {
    let row = outcome
        .rows
        .iter()
        .find(|row| row.metric == "stream.retransmitted_segments" && row.entity == entity)?;
    if let Observed::Value(value) = row.value { Some(value as i64) } else { None }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Fills in what a thread counted of a stream of datagrams.
fn tell_datagrams(stream: &mut StreamResults, report: &datagrams::Report, warm_ns: u64, ended_ns: u64) {
    if let Some(sent) = &report.sent {
        stream.packets = signed(sent.in_all);
        stream.omitted_packets = Some(signed(sent.omitted));
        stream.bytes = signed((sent.in_all - sent.omitted).saturating_mul(sent.size_bytes));
    }
    if let Some(received) = &report.received {
        let numbers = received.account.next();
        stream.packets = signed(numbers);
        stream.omitted_packets = Some(signed(received.counted_from));
        // Those before are in neither count.
        stream.errors = signed((numbers - received.counted_from).saturating_sub(received.account.distinct));
        stream.omitted_errors = Some(0);
        stream.bytes = signed(received.bytes);
        // What came after the client's word has come within a longer time.
        let last_ns = received.account.last_ns.max(ended_ns);
        stream.end_time = Some(last_ns.saturating_sub(warm_ns) as f64 / 1e9);
        stream.jitter_seconds = received.account.jitter_ns / 1e9;
    }
}

/// What the other end hears of this one's streams. `warm_ns` is when counting began, `ended_ns` when the client said that the
/// test was over.
pub fn results(specs: &[FlowSpec], ran: &Ran, warm_ns: u64, ended_ns: u64) -> Results {
    let seconds = ended_ns.saturating_sub(warm_ns) as f64 / 1e9;
    let body: StreamBody = match ran {
        Ran::Streams(outcome) => serde_json::from_value(outcome.body.clone()).unwrap_or_default(),
        Ran::Datagrams(_) => StreamBody::default(),
    };
    let streams = specs.iter().enumerate().map(|(index, spec)| {
        let mut stream = StreamResults {
            id: signed(stream_id(index)),
            retransmits: -1,
            omitted_errors: Some(0),
            omitted_packets: Some(0),
            start_time: Some(0.0),
            end_time: Some(seconds),
            ..StreamResults::default()
        };
        match ran {
            Ran::Streams(outcome) => {
                if let Some(flow) = body.received.iter().find(|flow| flow.entity == spec.entity)
                    && let Some([[from_ns, from], [_, to]]) = flow.steady_ns_bytes
                {
                    // What came after the client's word has come within a longer time.
                    let last_ns = last_byte_ns(outcome, &spec.entity).max(ended_ns);
                    stream.bytes = signed(to.saturating_sub(from));
                    stream.end_time = Some(last_ns.saturating_sub(from_ns) as f64 / 1e9);
                }
                if let Some(flow) = body.sent.iter().find(|flow| flow.entity == spec.entity) {
                    stream.bytes = flow.steady_bytes_ns.map_or(0, |[bytes, _]| signed(bytes));
                    stream.retransmits = retransmitted(outcome, &spec.entity).unwrap_or(-1);
                }
            }
            Ran::Datagrams(reports) => {
                if let Some(report) = reports.iter().find(|report| report.entity == spec.entity) {
                    tell_datagrams(&mut stream, report, warm_ns, ended_ns);
                }
            }
        }
        stream
    });
    let streams: Vec<StreamResults> = streams.collect();
    let sends = specs.iter().any(|spec| spec.sends);
    let known = streams.iter().any(|stream| stream.retransmits >= 0);
    Results {
        sender_has_retransmits: if sends { i64::from(known) } else { -1 },
        streams,
        ..Results::default()
    }
}

/// When the last byte of a stream came.
fn last_byte_ns(outcome: &Outcome, entity: &str) -> u64 {
    let series = outcome
        .series
        .iter()
        .find(|series| series.entity == entity && series.name == "stream.received_bytes");
    let last = series.and_then(|series| series.t_ns.last().copied());
    last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0)
}

/// What is to be said of a server that counted over more than the planned time, seconds.
fn longer(counted: f64, planned: f64) -> Option<String> {
    (counted > planned * (1.0 + LONGER_RATIO)).then(|| {
        format!(
            "the server counted over {counted:.3} s where {planned:.3} s were planned: its clock runs until it hears of the end, so \
             its figure is that much too low at worst"
        )
    })
}

/// What is known here of a test beside what the server tells.
pub struct Told<'a> {
    pub specs: &'a [FlowSpec],
    /// How much longer than the load the server's clock may have run.
    pub slack: Duration,
}

impl Told<'_> {
    fn of<'r>(&self, far: &'r Results, index: usize) -> Result<&'r StreamResults, AdhocError> {
        far.stream(stream_id(index)).ok_or_else(|| {
            AdhocError::new(format!("the iperf3 server's results have no stream {}", stream_id(index)))
        })
    }

    /// The server's end as if it were one of weir's, as far as it tells; and what is to be said of it.
    pub fn streams(
        &self,
        plan: &StreamPlan,
        near: Outcome,
        far: &Results,
    ) -> Result<([Outcome; 2], Vec<String>), AdhocError> {
        let near_body: StreamBody = serde_json::from_value(near.body.clone())
            .map_err(|error| AdhocError::new(format!("this end's outcome is malformed: {error}")))?;
        let (mut outcome, mut body, mut warnings) = (self.far(&near), StreamBody::default(), Vec::new());
        let mut row = |entity: &str, metric: &str, value: f64| {
            let value = Observed::Value(value);
            outcome.rows.push(Row { entity: entity.to_owned(), metric: metric.to_owned(), value });
        };
        let planned = match plan.until {
            Until::Duration(duration) => (duration - plan.warm_up).as_secs_f64(),
            Until::Bytes(_) => 0.0,
        };
        let (mut longest, mut lies) = (0.0_f64, Vec::new());
        for (index, spec) in self.specs.iter().enumerate() {
            let stream = self.of(far, index)?;
            let entity = spec.entity.clone();
            let bytes = u64::try_from(stream.bytes).unwrap_or(0);
            if spec.sends {
                let seconds = stream.seconds().ok_or_else(|| {
                    AdhocError::new(format!(
                        "the iperf3 server does not tell how long it received stream {}; servers before 3.2 do not",
                        stream.id
                    ))
                })?;
                longest = longest.max(seconds);
                let sent =
                    near_body.sent.iter().find(|flow| flow.entity == entity).map_or(0, |flow| flow.bytes);
                if bytes > sent {
                    let text = format!("the server counted {bytes} bytes where {sent} were sent");
                    lies.push(spec.gave_up("count", near.started_ns, text));
                }
                let flow = ReceivedFlow {
                    entity,
                    bytes,
                    steady_ns_bytes: Some([[0, 0], [(seconds * 1e9) as u64, bytes]]),
                    waited_ns: 0,
                    unread: None,
                    clock: None,
                    seconds: None,
                    slack_ns: weir_core::time::nanoseconds(self.slack),
                };
                if let Some((goodput, _)) = flow.goodput() {
                    row(&flow.entity, "stream.flow_goodput_bits_per_second", goodput);
                }
                body.received.push(flow);
            } else {
                if far.sender_has_retransmits == 1 && stream.retransmits >= 0 {
                    row(&entity, "stream.retransmitted_segments", stream.retransmits as f64);
                }
                body.sent.push(SentFlow { entity, bytes, ..SentFlow::default() });
            }
        }
        lies.into_iter().for_each(|lie| outcome.failures.push(lie));
        outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
        if self.specs.iter().any(|spec| spec.sends) {
            warnings.push(
                "what went up is as the iperf3 server counted it, by its own clock; its stalls were not measured".to_owned(),
            );
            warnings.extend(longer(longest, planned));
        }
        if let Some(used) = far.congestion_used.as_ref().filter(|used| **used != plan.tcp.congestion) {
            let used = weir_core::text::shown(used, 16);
            warnings
                .push(format!("the server used congestion control {used:?}, not {:?}", plan.tcp.congestion));
        }
        Ok(([near, outcome], warnings))
    }

    fn far(&self, near: &Outcome) -> Outcome {
        Outcome {
            host: SERVER.to_owned(),
            role: rendezvous::ACCEPT.to_owned(),
            started_ns: near.started_ns,
            ended_ns: near.ended_ns,
            ..Outcome::default()
        }
    }

    pub fn datagrams(
        &self,
        plan: &UdpPlan,
        reports: Vec<datagrams::Report>,
        far: &Results,
        control: &Control,
    ) -> Result<([Outcome; 2], Vec<String>), AdhocError> {
        let mut near = rendezvous::outcome(CLIENT, rendezvous::CONNECT, control);
        near.ended_ns = clock::monotonic().as_ns();
        let mut outcome = self.far(&near);
        let omitting = !plan.warm_up.is_zero();
        let mut reports: BTreeMap<String, datagrams::Report> =
            reports.into_iter().map(|report| (report.entity.clone(), report)).collect();
        let (mut own, mut body, mut longest) = (Vec::new(), udp_outcome::UdpBody::default(), 0.0_f64);
        for (index, spec) in self.specs.iter().enumerate() {
            let stream = self.of(far, index)?;
            let entity = spec.entity.clone();
            let Some(datagrams::Report { sent, received, failure, .. }) = reports.remove(&entity) else {
                continue;
            };
            let mut report = udp_outcome::Report { entity: entity.clone(), failure, ..Default::default() };
            if let Some(sent) = sent {
                let unclear = || {
                    AdhocError::new(format!(
                        "the iperf3 server's counts of stream {} do not tell what came{}",
                        stream.id,
                        if omitting {
                            " after the warm-up; leave --warm-up out with this server"
                        } else {
                            ""
                        }
                    ))
                };
                let (came, omitted) = stream.came(omitting).ok_or_else(unclear)?;
                let counted = sent
                    .in_all
                    .checked_sub(omitted)
                    .filter(|counted| came <= *counted)
                    .ok_or_else(unclear)?;
                let seconds = stream.seconds().ok_or_else(unclear)?;
                if !(0.0..1e6).contains(&stream.jitter_seconds) {
                    return Err(unclear());
                }
                // It may have received all the time that the end was held back: what a queue had kept.
                longest = longest.max(seconds);
                let flow = udp_outcome::SentFlow {
                    entity: entity.clone(),
                    sent: counted,
                    refused: Some(sent.refused),
                    sent_in_all: sent.in_all,
                    clock: None,
                };
                report.sent = Some((flow, sent.lateness, sent.ticks));
                body.received.push(udp_outcome::ReceivedFlow {
                    entity: entity.clone(),
                    distinct: came,
                    jitter_ns: stream.jitter_seconds * 1e9,
                    over_ns: Some((seconds * 1e9) as u64),
                    ..Default::default()
                });
            }
            if let Some(received) = received {
                // A thread of the server's may send one more after it has counted.
                let in_all = u64::try_from(stream.packets).unwrap_or(0).max(received.account.next());
                body.sent.push(udp_outcome::SentFlow {
                    entity,
                    sent: in_all - received.counted_from,
                    refused: None,
                    sent_in_all: in_all,
                    clock: None,
                });
                report.received = Some((received.account, received.overflowed));
            }
            own.push(report);
        }
        udp_outcome::assemble(&mut near, own);
        outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
        let mut warnings = Vec::new();
        if self.specs.iter().any(|spec| spec.sends) {
            warnings.push(
                "what went up is as the iperf3 server counted it; reordering and repetition there were not measured".to_owned(),
            );
            warnings.extend(longer(longest, (plan.planned() - plan.warm_up).as_secs_f64()));
        }
        Ok(([near, outcome], warnings))
    }
}

/// What this end counted of streams of datagrams whose server is lost.
pub fn datagrams_alone(reports: Vec<datagrams::Report>, control: &Control) -> Outcome {
    let mut near = rendezvous::outcome(CLIENT, rendezvous::CONNECT, control);
    near.ended_ns = clock::monotonic().as_ns();
    let own = reports.into_iter().map(|datagrams::Report { entity, sent, received, failure }| {
        let sent = sent.map(|sent| {
            let flow = udp_outcome::SentFlow {
                entity: entity.clone(),
                sent: sent.in_all - sent.omitted,
                refused: Some(sent.refused),
                sent_in_all: sent.in_all,
                clock: None,
            };
            (flow, sent.lateness, sent.ticks)
        });
        let received = received.map(|received| (received.account, received.overflowed));
        udp_outcome::Report { entity, sent, received, failure }
    });
    udp_outcome::assemble(&mut near, own.collect());
    near
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::udp::account::Account;
    use weir_core::{BitsPerSecond, Value, Values};

    const MS: u64 = 1_000_000;

    fn spec(sends: bool) -> FlowSpec {
        let (entity, peer) = ("flow.client.server.0".to_owned(), SERVER.to_owned());
        FlowSpec { index: 0, entity, peer, sends }
    }

    // Spec: net-protocol.md#iperf3-9
    #[test]
    fn datagrams_that_a_queue_gave_after_the_end_came_within_a_longer_time() {
        let told = |last_ns: u64| {
            let mut account = Account::new(0).unwrap();
            account.on_datagram(0, 0, 10 * MS);
            account.on_datagram(1, 0, last_ns);
            let received = datagrams::Received { account, counted_from: 0, bytes: 2_800, overflowed: None };
            let report = datagrams::Report {
                entity: spec(false).entity,
                received: Some(received),
                ..datagrams::Report::default()
            };
            results(&[spec(false)], &Ran::Datagrams(vec![report]), 0, 1_000 * MS).streams.remove(0)
        };
        assert_eq!((told(1_250 * MS).bytes, told(1_250 * MS).seconds()), (2_800, Some(1.25)));
        assert_eq!(told(900 * MS).seconds(), Some(1.0));
    }

    // Spec: net-protocol.md#iperf3-9
    #[test]
    fn what_went_up_over_udp_is_divided_by_all_the_time_that_the_server_counted_over() {
        let mut values = Values::defaults(crate::udp::plan::PARAMS);
        values.set("duration", Value::Duration(Duration::from_secs(1)));
        values.set("rate", Value::Rate(BitsPerSecond(11_200_000)));
        let plan = UdpPlan::from_values(&values).unwrap();
        let sent = datagrams::Sent {
            size_bytes: 1_400,
            in_all: 1_000,
            omitted: 0,
            refused: 0,
            lateness: crate::generator::Lateness::default(),
            ticks: crate::generator::Ticks::new(0, 1_000.0),
        };
        let report =
            datagrams::Report { entity: spec(true).entity, sent: Some(sent), ..datagrams::Report::default() };
        let stream = StreamResults {
            id: 1,
            packets: 1_000,
            errors: 120,
            end_time: Some(1.1),
            ..StreamResults::default()
        };
        let far = Results { streams: vec![stream], ..Results::default() };
        let told = Told { specs: &[spec(true)], slack: Duration::ZERO };
        let control = Control::new(clock::monotonic());
        let (outcomes, warnings) = told.datagrams(&plan, vec![report], &far, &control).unwrap();
        let body: udp_outcome::UdpBody = serde_json::from_value(outcomes[1].body.clone()).unwrap();
        // 880 came within 1.1 s, the last of them perhaps at its end: 800 a second is what is certain.
        assert_eq!((body.received[0].distinct, body.received[0].over_ns), (880, Some(1_100_000_000)));
        assert!(warnings.iter().any(|text| text.contains("that much too low at worst")), "{warnings:?}");
    }
}
