//! Long-run rates of TCP and UDP against what the link's rate and framing leave.

use super::section::{Section, Verdict, Worst, digits, percent_with_interval, rate};
use super::{Setup, two_hosts};
use crate::bench::statistics::Estimate;
use crate::probe::lab::TestLab;
use crate::probe::tcp::{self, slope};
use crate::probe::udp::{self, HEADER_BYTES};
use std::thread;
use std::time::Duration;
use weir_core::fabric_page::link;

const ERROR_MAX: f64 = 0.005;
/// A link less busy than this was not full: what was missing is the sender's, not the link's.
const FULL: f64 = 0.99;
const RTT: Duration = Duration::from_millis(2);
/// IPv4, TCP and its timestamps.
const TCP_HEADER_BYTES: u64 = 52;
/// Offered to a link above its rate, so that its queue never runs dry.
const EXCESS: f64 = 1.1;

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Tcp,
    Udp,
}

struct Cell {
    protocol: Protocol,
    bits_per_second: f64,
    mtu: u64,
    lab: TestLab,
    /// Measured over theory, less 1, by round.
    errors: Vec<f64>,
    /// Share of the time that the serialiser was busy, by round.
    busy: Vec<f64>,
}

impl Cell {
    fn new(setup: &Setup, protocol: Protocol, bits_per_second: f64, mtu: u64) -> Result<Cell, String> {
        let queue = queue_bytes(bits_per_second, mtu);
        let link =
            format!("rate = \"{bits_per_second}bit/s\"\nrtt = \"2ms\"\nqueue = {{ bytes = \"{queue}B\" }}\n");
        let lab = TestLab::start(&setup.weir, &two_hosts(mtu, &link), setup.seed)?;
        Ok(Cell { protocol, bits_per_second, mtu, lab, errors: Vec::new(), busy: Vec::new() })
    }

    fn wire_bytes(&self) -> f64 {
        (self.mtu + 38) as f64
    }

    fn payload_bytes(&self) -> f64 {
        let header = if self.protocol == Protocol::Tcp { TCP_HEADER_BYTES } else { HEADER_BYTES };
        (self.mtu - header) as f64
    }

    fn round(&mut self, setup: &Setup) -> Result<(), String> {
        // Long enough for some dozen packets at the lowest rate.
        let packets_per_second = self.bits_per_second / 8.0 / self.wire_bytes();
        let seconds = setup.seconds(0.8).max(40.0 / packets_per_second);
        let pair = self.lab.pair("left-0", "right-0")?;
        let wire = self.lab.link("link.wire.forward")?;
        let protocol = self.protocol;
        // UDP fills the queue within a tenth of the time.
        let warm_up = match protocol {
            Protocol::Tcp => 0.3_f64.max(20.0 / packets_per_second),
            Protocol::Udp => 0.2 * seconds,
        };
        let run = || match protocol {
            Protocol::Tcp => {
                let window = self.bits_per_second / 8.0 * RTT.as_secs_f64()
                    + queue_bytes(self.bits_per_second, self.mtu) as f64 / 2.0;
                let plan = tcp::Plan {
                    warm_up: Duration::from_secs_f64(warm_up),
                    duration: Duration::from_secs_f64(seconds),
                    window_bytes: Some(window as u64),
                };
                Ok(tcp::run(&pair, &plan)?.bits_per_second())
            }
            Protocol::Udp => {
                let plan = udp::Plan {
                    count: (packets_per_second * EXCESS * (warm_up + seconds)) as usize,
                    ip_bytes: self.mtu,
                    per_second: Some(packets_per_second * EXCESS),
                    drain: Duration::from_millis(20),
                };
                Ok::<_, String>(udp_rate(&udp::run(&pair, &plan)?, self.payload_bytes()))
            }
        };
        let (found, busy) = thread::scope(|scope| {
            let flow = scope.spawn(run);
            thread::sleep(Duration::from_secs_f64(warm_up));
            let before = self.lab.counters_now();
            thread::sleep(Duration::from_secs_f64(0.9 * seconds));
            let after = self.lab.counters_now();
            let lasted_ns = after.at_ns().saturating_sub(before.at_ns()).max(1);
            let busy_ns = after.link(wire, link::BUSY_NS) - before.link(wire, link::BUSY_NS);
            let found = flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (found, busy_ns as f64 / lasted_ns as f64)
        });
        let found = found?;
        self.busy.push(busy);
        let theory = self.bits_per_second * self.payload_bytes() / self.wire_bytes();
        self.errors.push(found.ok_or("a receiver got fewer than two packets")? / theory - 1.0);
        Ok(())
    }

    /// The link was always full, as the fabric's own counters have it.
    fn full(&self) -> bool {
        self.busy.iter().all(|busy| *busy >= FULL)
    }
}

/// Eight packets at least, and 20 ms.
fn queue_bytes(bits_per_second: f64, mtu: u64) -> u64 {
    ((bits_per_second / 8.0 * 0.02) as u64).max(64 * mtu)
}

/// Payload per second over the arrivals while the queue stood: the first fifth may have found it filling, what came after
/// the last send found it draining.
fn udp_rate(flights: &udp::Flights, payload_bytes: f64) -> Option<f64> {
    let last_sent = *flights.sent_ns.last()?;
    let mut times: Vec<u64> =
        flights.received_ns.iter().copied().filter(|at| *at > 0 && *at <= last_sent).collect();
    times.sort_unstable();
    let kept = &times[times.len() / 5..];
    slope(kept, (0..kept.len()).map(|number| number as f64)).map(|per_ns| per_ns * payload_bytes * 8e9)
}

pub fn grid(setup: &Setup) -> Result<Section, String> {
    let mut cells = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for bits_per_second in [1e6, 10e6, 100e6, 1e9, 10e9] {
            for mtu in [576, 1500, 9000] {
                // A probe hands the kernel one packet a call: more than this it cannot send.
                let packets_per_second = bits_per_second / 8.0 / (mtu + 38) as f64 * EXCESS;
                if protocol == Protocol::Tcp || packets_per_second <= 160_000.0 {
                    cells.push(Cell::new(setup, protocol, bits_per_second, mtu)?);
                }
            }
        }
    }
    for round in 0..setup.rounds {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..cells.len()).collect() } else { (0..cells.len()).rev().collect() };
        for cell in order {
            cells[cell].round(setup)?;
        }
    }
    let mut worst = Worst::default();
    let mut section = Section {
        title: "Rate",
        text: vec![
            "One flow through a link of 2 ms, its queue never empty: TCP (cubic, its window held between the bandwidth-delay product \
             and the queue's end) and UDP (offered a tenth more than fits, the queue drops the rest). *Theory* is the payload's share \
             of a packet on the wire, 38 B of framing included, times the rate; *measured* is the slope of \
             the receiver's payload over its own time stamps (least squares). A row whose link was less than 99 % busy by the fabric's own count is shown and not judged: there the sender \
             or the CPU was the limit."
                .to_owned(),
        ],
        head: vec!["flow", "rate", "MTU", "theory, goodput", "measured / theory − 1", "link busy", "limit of 0.5 %"],
        ..Section::default()
    };
    for cell in &cells {
        let Some(found) = Estimate::of(&cell.errors) else { continue };
        let size = |value: f64| value.abs();
        // The farther end of the interval from 0, and the nearer.
        let (far, near) = match found.low <= 0.0 && found.high >= 0.0 {
            true => (size(found.low).max(size(found.high)), 0.0),
            false => (size(found.low).max(size(found.high)), size(found.low).min(size(found.high))),
        };
        let of_size = Estimate { n: found.n, median: size(found.median), low: near, high: far };
        let verdict = cell.full().then(|| Verdict::at_most(&of_size, ERROR_MAX));
        if let Some(verdict) = verdict {
            worst.see(verdict, of_size.median, format!("{:+.3} %", found.median * 100.0));
        }
        let busy = cell.busy.iter().copied().fold(f64::INFINITY, f64::min);
        section.rows.push(vec![
            if cell.protocol == Protocol::Tcp { "TCP" } else { "UDP" }.to_owned(),
            rate(Some(cell.bits_per_second)),
            format!("{}", cell.mtu),
            rate(Some((cell.bits_per_second * cell.payload_bytes() / cell.wire_bytes() / 1e3).round() * 1e3)),
            percent_with_interval(&found),
            format!("{} %", digits(busy.min(1.0) * 100.0)),
            verdict.map_or("not full", Verdict::word).to_owned(),
        ]);
    }
    section.notes.push(
        "UDP rows that would need more than 160,000 packets a second are left out: the probe makes one system call a packet."
            .to_owned(),
    );
    section.claims.extend(worst.claim("a link in use keeps its rate in the long run", "± 0.5 %"));
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_between_arrivals_while_the_queue_stands() {
        // One packet a millisecond, of which the last two come after the sender has ended.
        let received_ns: Vec<u64> = (1..=12).map(|number| number * 1_000_000).collect();
        let flights = udp::Flights { sent_ns: vec![10_000_000; 12], received_ns, ..udp::Flights::default() };
        let rate = udp_rate(&flights, 100.0).unwrap();
        assert!((rate - 800_000.0).abs() < 1e-6, "{rate}");
    }
}
