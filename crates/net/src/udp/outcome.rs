//! What the ends of a udp step come to.

use super::account::Account;
use super::plan::UdpPlan;
use crate::generator::{self, Lateness, Ticks};
use crate::latency::pingpong::Until;
use crate::rendezvous;
use crate::stream::derive::TRIAL;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_core::failure::Failure;
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::{Observed, Row};
use weir_seams::workload::{DeriveContext, Derived, Outcome};

pub const LOSS: &str = "udp.loss_ratio";
pub const DUPLICATE: &str = "udp.duplicate_ratio";
pub const REORDERED: &str = "udp.reordered_ratio";
pub const EXTENT: &str = "udp.reordering_extent_packets";
pub const JITTER: &str = "udp.jitter_seconds";
pub const VARIATION: &str = "udp.delay_variation_seconds";
pub const GOODPUT: &str = "udp.flow_goodput_bits_per_second";
pub const TOTAL: &str = "udp.total_goodput_bits_per_second";
pub const SENT: &str = "udp.sent_per_second";
pub const UNSENT: &str = "udp.unsent_ratio";
pub const OVERFLOWED: &str = "udp.socket_dropped_ratio";
pub const ARRIVED: &str = "udp.arrived_bits_per_second";

pub static METRICS: &[Metric] = &[
    Metric::new(
        LOSS,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the datagrams sent in the steady state that the receiving program never got. What the sender did not \
            send is not in it (udp.unsent_ratio, generator.missed_ratio); what the receiver's socket dropped is \
            (udp.socket_dropped_ratio).",
    ).column(16).swept(),
    Metric::new(
        DUPLICATE,
        "1",
        Better::Lower,
        Scope::Flow,
        "Datagrams that came again, divided by those that came. Not seen where 65,536 newer ones came between.",
    ),
    Metric::new(
        REORDERED,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the datagrams that came after one sent later (RFC 4737, section 3.3), repetitions apart.",
    ),
    Metric::new(
        EXTENT,
        "packets",
        Better::Lower,
        Scope::Flow,
        "Largest extent of reordering (RFC 4737, section 4.2): how many datagrams came from the first that was sent later \
            to the one that came too late. Up to 16,384; beyond, a lower bound.",
    ),
    Metric::new(
        JITTER,
        "s",
        Better::Lower,
        Scope::Flow,
        "Interarrival jitter at the end of the flow (RFC 3550, section 6.4.1): the mean difference of one-way delays of \
            datagrams that came one after the other, smoothed by 1/16.",
    ),
    Metric::new(
        VARIATION,
        "s",
        Better::Lower,
        Scope::Operation,
        "One-way delay of a datagram above the smallest that the flow had seen so far. It needs no common clock; clocks \
            that run at different speeds add their drift.",
    ),
    Metric::new(
        GOODPUT,
        "bit/s",
        Better::Higher,
        Scope::Flow,
        "Bytes of the datagrams that came in the steady state, above their UDP headers and repetitions apart, divided by \
            the time from the first to the last of them by the receiver's clock, that of one more datagram added. None where that is \
            no time: of a single datagram, or of some that came at once.",
    ),
    Metric::new(
        TOTAL,
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "Sum of udp.flow_goodput_bits_per_second over all flows of the trial, both directions included.",
    ),
    Metric::new(
        SENT,
        "1/s",
        Better::Higher,
        Scope::Flow,
        "Datagrams of the steady state that the kernel took, divided by its planned length.",
    ),
    Metric::new(
        UNSENT,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the steady state's datagrams that the sender meant to send and its kernel refused.",
    ),
    Metric::new(
        OVERFLOWED,
        "1",
        Better::Lower,
        Scope::Flow,
        "Buffers that the receiver's socket dropped because it was full, divided by the datagrams sent, warm-up \
            included (SO_MEMINFO): the receiving program was too slow, not the network. A buffer holds one datagram, or several that \
            came together: a lower bound.",
    ),
    Metric::new(
        ARRIVED,
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "Only where the receiving end was lost: what it last said that it had received, datagrams that were repeated \
            and those of the warm-up included, divided by the time from the start to that word.",
    ),
    generator::LATENESS,
    generator::MISSED,
];

/// What a sender says of its flow, steady state alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SentFlow {
    pub entity: String,
    /// Datagrams that the kernel took; those it refused, where that is known.
    pub sent: u64,
    pub refused: Option<u64>,
    /// With the warm-up.
    pub sent_in_all: u64,
    pub clock: Option<generator::Account>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceivedFlow {
    pub entity: String,
    pub distinct: u64,
    /// `None` for a receiver that does not tell; so are the next two.
    pub duplicate: Option<u64>,
    pub reordered: Option<u64>,
    pub extent_max: Option<u64>,
    pub jitter_ns: f64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// What the receiver counted over, where it does not tell when the first and the last came.
    #[serde(default)]
    pub over_ns: Option<u64>,
    /// By the socket; `None` where the kernel does not tell.
    pub overflowed: Option<u64>,
}

impl ReceivedFlow {
    /// Payload a second, bit/s, of a flow of which `sent` datagrams of `size_bytes` were sent. `None` where there is no time to
    /// divide by: a single datagram, and several that were there at one look.
    // Spec: net-protocol.md#udp-5
    fn goodput(&self, sent: u64, size_bytes: u64) -> Option<f64> {
        let seconds = match (self.over_ns, self.distinct) {
            (Some(over_ns), _) => over_ns as f64 / 1e9,
            (None, 0) => return (sent > 1).then_some(0.0),
            (None, 1) => return None,
            // The last datagram came at the end of its own time; the first one's is added.
            (None, distinct) => {
                let between = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
                between * distinct as f64 / (distinct - 1) as f64
            }
        };
        (seconds > 0.0).then(|| self.distinct as f64 * size_bytes as f64 * 8.0 / seconds)
    }
}

impl ReceivedFlow {
    /// What it tells of itself, whatever was sent.
    fn rows(&self, rows: &mut Vec<Row>) {
        let mut put = |metric: &str, value: Option<f64>| {
            rows.extend(value.map(|value| row(&self.entity, metric, value)));
        };
        let share = |part: u64, whole: u64| (self.distinct > 0).then(|| part as f64 / whole as f64);
        put(DUPLICATE, self.duplicate.and_then(|again| share(again, self.distinct + again)));
        put(REORDERED, self.reordered.and_then(|late| share(late, self.distinct)));
        put(EXTENT, self.extent_max.filter(|_| self.distinct > 0).map(|extent| extent as f64));
        put(JITTER, (self.distinct > 1).then_some(self.jitter_ns / 1e9));
    }
}

fn row(entity: &str, metric: &str, value: f64) -> Row {
    Row { entity: entity.to_owned(), metric: metric.to_owned(), value: Observed::Value(value) }
}

/// What one flow came to at one of its ends.
#[derive(Default)]
pub struct Report {
    pub entity: String,
    pub sent: Option<(SentFlow, Lateness, Ticks)>,
    pub received: Option<(Account, Option<u64>)>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UdpBody {
    pub sent: Vec<SentFlow>,
    pub received: Vec<ReceivedFlow>,
}

/// Puts the reports of one end into its outcome.
pub fn assemble(outcome: &mut Outcome, reports: Vec<Report>) {
    let mut body = UdpBody::default();
    for Report { entity, sent, received, failure } in reports {
        failure.into_iter().for_each(|failure| outcome.failures.push(failure));
        if let Some((mut flow, lateness, ticks)) = sent {
            outcome.rows.extend(lateness.rows(&entity));
            flow.clock = lateness.account(&ticks);
            body.sent.push(flow);
        }
        if let Some((account, overflowed)) = received {
            outcome.rows.extend(account.variation.distribution().map(|histogram| Row {
                entity: entity.clone(),
                metric: VARIATION.to_owned(),
                value: Observed::Histogram(histogram),
            }));
            body.received.push(ReceivedFlow {
                entity,
                distinct: account.distinct,
                duplicate: Some(account.duplicate),
                reordered: Some(account.reordered),
                extent_max: Some(account.extent_max),
                jitter_ns: account.jitter_ns,
                first_ns: account.first_ns,
                last_ns: account.last_ns,
                over_ns: None,
                overflowed,
            });
        }
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}

/// Longest part of its planned time that a steady state may miss (measuring rule 6).
const LENGTH_TOLERANCE: f64 = 0.01;

pub fn derive(context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let mut derived = Derived::default();
    let plan = match UdpPlan::from_values(context.values) {
        Ok(plan) => plan,
        Err(error) => {
            derived.invalid = Some(error.text);
            return derived;
        }
    };
    let (mut all_sent, mut all_received) = (Vec::new(), BTreeMap::new());
    let bodies = match rendezvous::bodies::<UdpBody>(outcomes) {
        Ok(bodies) => bodies,
        Err(text) => return Derived { invalid: Some(text), ..derived },
    };
    for body in bodies {
        all_sent.extend(body.sent);
        all_received.extend(body.received.into_iter().map(|flow| (flow.entity.clone(), flow)));
    }
    let steady_seconds = (plan.planned() - plan.warm_up).as_secs_f64();
    let mut total = Some(0.0);
    let mut invalid = None;
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    for sent in &all_sent {
        let mut put = |metric: &str, value: f64| derived.rows.push(row(&sent.entity, metric, value));
        if let Some(refused) = sent.refused.filter(|refused| sent.sent + refused > 0) {
            put(UNSENT, share(refused, sent.sent + refused));
        }
        // What was given up has come to its tick; what never came to one was cut off.
        let planned = plan.ticks().saturating_sub(plan.counted_from());
        let cut =
            sent.clock.filter(|clock| (clock.due as f64 + 1.0) < planned as f64 * (1.0 - LENGTH_TOLERANCE));
        if let (Until::Duration(_), Some(clock)) = (plan.until, cut) {
            invalid.get_or_insert(format!(
                "{}: sending ended after {} of {planned} ticks",
                sent.entity, clock.due
            ));
        }
        // One datagram is sent at a time, not over one.
        let seconds = cut.map_or(steady_seconds, |clock| clock.due as f64 * clock.period_ns as f64 / 1e9);
        if sent.sent != 1 && seconds > 0.0 {
            put(SENT, sent.sent as f64 / seconds);
        }
        // Of an end that was lost it is not known what came.
        let Some(received) = all_received.remove(&sent.entity) else {
            total = None;
            continue;
        };
        if sent.sent > 0 {
            put(LOSS, share(sent.sent.saturating_sub(received.distinct), sent.sent));
        }
        if let Some(overflowed) = received.overflowed.filter(|_| sent.sent_in_all > 0) {
            put(OVERFLOWED, share(overflowed, sent.sent_in_all));
        }
        if received.distinct == 0 && sent.sent > 0 {
            derived.warnings.push(format!(
                "{}: none of {} datagrams of {} bytes came; where smaller ones do, the path drops large packets: `weir net path` \
                 finds the largest that passes",
                sent.entity, sent.sent, plan.size_bytes
            ));
        }
        received.rows(&mut derived.rows);
        if let Some(goodput) = received.goodput(sent.sent, plan.size_bytes) {
            derived.rows.push(row(&sent.entity, GOODPUT, goodput));
            total = total.map(|total| total + goodput);
        } else if sent.sent > 0 {
            // A sum that leaves out what has no rate would be too low.
            total = None;
            derived.warnings.push(format!(
                "{}: {} of {} datagrams came, which is no rate: that takes two that come at different times, so a larger `count`",
                sent.entity, received.distinct, sent.sent
            ));
        }
    }
    let nothing = all_sent.is_empty() && all_received.is_empty();
    // Of a sender that was lost it is not known what it sent.
    for received in all_received.into_values() {
        received.rows(&mut derived.rows);
        let goodput = received.goodput(0, plan.size_bytes);
        derived.rows.extend(goodput.map(|goodput| row(&received.entity, GOODPUT, goodput)));
        total = total.zip(goodput).map(|(total, goodput)| total + goodput);
    }
    if let Some(total) = total.filter(|_| !nothing) {
        derived.rows.push(row(TRIAL, TOTAL, total));
    }
    let clocks: Vec<generator::Account> = all_sent.iter().filter_map(|sent| sent.clock).collect();
    derived.load.generator = generator::facts(&clocks, outcomes);
    let broken = rendezvous::first_failure(outcomes);
    let nothing = nothing.then(|| "nothing was sent".to_owned());
    derived.invalid = broken.or(invalid).or(nothing);
    derived
}
