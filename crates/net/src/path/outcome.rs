//! What the ends of a path step come to.

use super::found::{Carried, Found, Hop, Received};
use super::metrics::*;
use crate::latency::trips::Trips;
use crate::rendezvous;
use serde::{Deserialize, Serialize};
use weir_core::failure::Failure;
use weir_core::record::{Histogram, Observed, Row};
use weir_seams::workload::{DeriveContext, Derived, Outcome};

#[derive(Default)]
pub struct Report {
    pub found: Option<Found>,
    pub received: Option<Received>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathBody {
    pub found: Vec<Found>,
    pub received: Vec<Received>,
}

/// Puts the reports of one end into its outcome.
pub fn assemble(outcome: &mut Outcome, reports: Vec<Report>) {
    let mut body = PathBody::default();
    for Report { found, received, failure } in reports {
        failure.into_iter().for_each(|failure| outcome.failures.push(failure));
        body.found.extend(found);
        body.received.extend(received);
    }
    outcome.body = serde_json::to_value(body).expect("names and numbers are JSON");
}

/// `hop.SOURCE.DESTINATION.FLOW.NUMBER.ADDRESS`, of the flow `flow.SOURCE.DESTINATION.FLOW`.
pub fn hop_entity(flow: &str, hop: &Hop) -> String {
    let of = flow.strip_prefix("flow.").unwrap_or(flow);
    let address = hop.addresses.first().map_or(SILENT.to_owned(), ToString::to_string);
    format!("hop.{of}.{}.{address}", hop.number)
}

/// Instead of the address of a hop that says nothing.
pub const SILENT: &str = "silent";

fn distribution(times_ns: &[u64]) -> Option<Histogram> {
    let mut trips = Trips::new().ok()?;
    times_ns.iter().for_each(|time_ns| trips.record(*time_ns));
    trips.distribution()
}

struct Rows(Vec<Row>);

impl Rows {
    fn value(&mut self, entity: &str, metric: &str, value: Option<f64>) {
        self.put(entity, metric, value.map(Observed::Value));
    }
    fn times(&mut self, entity: &str, metric: &str, times_ns: &[u64]) {
        self.put(entity, metric, distribution(times_ns).map(Observed::Histogram));
    }
    fn put(&mut self, entity: &str, metric: &str, value: Option<Observed>) {
        let row = |value| Row { entity: entity.to_owned(), metric: metric.to_owned(), value };
        self.0.extend(value.map(row));
    }
}

fn rows_of(found: &Found, received: Option<&Received>, rows: &mut Rows) {
    let flow = &found.entity;
    let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
    rows.value(flow, MTU, bytes(found.mtu_bytes));
    rows.value(flow, KERNEL_MTU, bytes(found.kernel_mtu_bytes));
    rows.value(flow, BLACK_HOLED, bytes(found.black_holed_bytes()));
    rows.value(flow, HOPS, found.reached.then_some(found.hops.len() as f64));
    for hop in &found.hops {
        let entity = hop_entity(flow, hop);
        rows.times(&entity, HOP, &hop.small_ns);
        rows.times(&entity, HOP_FULL, &hop.full_ns);
        let answered = hop.small_ns.len() as f64 / hop.asked.max(1) as f64;
        rows.value(&entity, HOP_ANSWERED, (hop.asked > 0).then_some(answered));
        rows.value(&entity, HOP_MTU, bytes(hop.mtu_bytes));
    }
    rows.times(flow, SMALL, &found.small_ns);
    rows.times(flow, FULL, &found.full_ns);
    if let Some(tcp) = &found.tcp {
        let count = |value: Option<u32>| value.map(f64::from);
        rows.value(flow, SEGMENT, Some(tcp.mss_bytes as f64));
        rows.value(flow, TCP, tcp.round_trip_us.map(|us| f64::from(us) / 1e6));
        rows.value(flow, RETRANSMITTED, Some(f64::from(tcp.retransmitted)));
        rows.value(flow, TCP_REORDERING, Some(f64::from(tcp.reordering)));
        rows.value(flow, TCP_EVENTS, count(tcp.reordering_events));
        rows.value(flow, TCP_DUPLICATES, count(tcp.duplicates));
        rows.value(flow, OUT_OF_ORDER, received.and_then(|received| count(received.out_of_order)));
    }
    if let Some(received) = received.filter(|_| found.train_sent > 0) {
        let share = |count: u64, of: u64| (of > 0).then(|| count as f64 / of as f64);
        rows.value(flow, LOST, share(found.train_sent.saturating_sub(received.distinct), found.train_sent));
        rows.value(flow, REORDERED, share(received.reordered, received.distinct));
        rows.value(flow, EXTENT, (received.distinct > 0).then_some(received.extent_max as f64));
        rows.value(flow, DUPLICATE, share(received.duplicate, received.distinct + received.duplicate));
    }
}

/// `a to b` of `flow.a.b.0`.
pub fn way(flow: &str) -> String {
    let mut words = flow.split('.').skip(1);
    match (words.next(), words.next()) {
        (Some(from), Some(to)) => format!("{from} to {to}"),
        _ => flow.to_owned(),
    }
}

/// What a reader should know of a way.
fn remarks(found: &Found) -> Vec<String> {
    let mut texts = Vec::new();
    let (Some(arrives), Some(kernel)) = (found.mtu_bytes, found.kernel_mtu_bytes) else { return texts };
    let black_hole = found.black_holed_bytes().is_some_and(|more| more > 0);
    if black_hole {
        let place = match found.vanished.as_ref().and_then(|vanished| vanished.after) {
            Some((number, address)) => {
                format!("; the last that such packets reach is hop {number} ({address})")
            }
            None => "; no hop answers such packets".to_owned(),
        };
        texts.push(format!(
            "black hole: packets above {arrives} B vanish and no packet-too-big comes back, so the kernel goes on sending up to \
             {kernel} B{place}. Let routers send ICMP packet-too-big, set net.ipv4.tcp_mtu_probing=1 at the sender, or lower the MTU \
             (or TCP's segments to {} B)",
            arrives.saturating_sub(found.tcp.as_ref().map_or(40, headers))
        ));
    } else if kernel < arrives {
        texts.push(format!(
            "packets of {arrives} B arrive, but the kernel sends no more than {kernel} B: it was told so before, by a router or a \
             route, and forgets after net.ipv4.route.mtu_expires (600 s)"
        ));
    }
    if !found.reached
        && let Some(last) = found.hops.last()
    {
        texts.push(format!(
            "the hop list ends with hop {} before the peer, which answers all the same",
            last.number
        ));
    }
    for hop in found.hops.iter().filter(|hop| hop.addresses.len() > 1) {
        let all: Vec<String> = hop.addresses.iter().map(ToString::to_string).collect();
        texts.push(format!(
            "hop {} is more than one: {}; packets take turns between ways",
            hop.number,
            all.join(", ")
        ));
    }
    if let Some(tcp) = &found.tcp {
        if tcp.packet_bytes > arrives {
            texts.push(format!(
                "TCP makes packets of {} B, of which none above {arrives} B arrives",
                tcp.packet_bytes
            ));
        }
        if !tcp.complete {
            texts.push(format!(
                "the transfer was given up: {} B of it were acknowledged, {} segments sent again",
                tcp.acknowledged_bytes, tcp.retransmitted
            ));
        }
    }
    texts
}

/// What a segment has beside its payload.
fn headers(tcp: &Carried) -> u64 {
    tcp.packet_bytes.saturating_sub(tcp.mss_bytes)
}

pub fn derive(_context: &DeriveContext<'_>, outcomes: &[Outcome]) -> Derived {
    let mut derived = Derived::default();
    let bodies: Vec<PathBody> = match rendezvous::bodies(outcomes) {
        Ok(bodies) => bodies,
        Err(text) => return Derived { invalid: Some(text), ..derived },
    };
    let mut found: Vec<&Found> = bodies.iter().flat_map(|body| &body.found).collect();
    found.sort_by_key(|found| &found.entity);
    let mut rows = Rows(Vec::new());
    for found in &found {
        let received = bodies.iter().flat_map(|body| &body.received).find(|it| it.entity == found.entity);
        rows_of(found, received, &mut rows);
        derived
            .warnings
            .extend(remarks(found).into_iter().map(|text| format!("{}: {text}", way(&found.entity))));
    }
    derived.rows = rows.0;
    derived.warnings.extend(rendezvous::clamped(outcomes));
    let broken = rendezvous::first_failure(outcomes);
    derived.invalid = broken.or_else(|| found.is_empty().then(|| "no path was probed".to_owned()));
    derived
}
