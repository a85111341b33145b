//! Delay of single packets against propagation and serialisation, and how late the fabric says that it is.

use super::section::{Section, Verdict, Worst, digits, rate, seconds, seconds_with_interval};
use super::statistics::quantile;
use super::theory::{Hop, arrivals};
use super::{Setup, two_hosts};
use crate::bench::statistics::Estimate;
use crate::probe::lab::TestLab;
use crate::probe::pair::{Pair, Veth};
use crate::probe::udp::{self, Plan};
use std::time::Duration;
use weir_core::fabric_page;

/// What the fabric's lateness may be, in seconds.
const MEDIAN_MAX: f64 = 30e-6;
const P99_MAX: f64 = 200e-6;
const SHARES: [f64; 2] = [0.5, 0.99];

/// One row of a grid: a lab and what is sent through it.
struct Cell {
    rtt_ms: f64,
    bits_per_second: Option<f64>,
    ip_bytes: u64,
    per_second: f64,
    lab: TestLab,
    /// `[median, 99 %][round]`, in seconds: measured − theory.
    errors: [Vec<f64>; 2],
    /// The same of the fabric's own lateness.
    lateness: [Vec<f64>; 2],
    /// Packets that did not come.
    missing: usize,
    /// The fabric thread's share of a CPU, by round.
    fabric: Vec<f64>,
}

impl Cell {
    fn new(
        setup: &Setup,
        rtt_ms: f64,
        bits_per_second: Option<f64>,
        ip_bytes: u64,
        per_second: f64,
    ) -> Result<Cell, String> {
        let rate = bits_per_second.map_or_else(String::new, |rate| format!("rate = \"{rate}bit/s\"\n"));
        let text = two_hosts(9000, &format!("rtt = \"{rtt_ms}ms\"\nqueue = {{ bytes = \"16MiB\" }}\n{rate}"));
        let lab = TestLab::start(&setup.weir, &text, setup.seed)?;
        Ok(Cell {
            rtt_ms,
            bits_per_second,
            ip_bytes,
            per_second,
            lab,
            errors: Default::default(),
            lateness: Default::default(),
            missing: 0,
            fabric: Vec::new(),
        })
    }

    fn round(&mut self, seconds: f64) -> Result<(), String> {
        let plan = Plan {
            count: (self.per_second * seconds).ceil().max(20.0) as usize,
            ip_bytes: self.ip_bytes,
            per_second: Some(self.per_second),
            drain: Duration::from_secs_f64(self.rtt_ms / 1e3 + 0.1),
        };
        let pair = self.lab.pair("left-0", "right-0")?;
        let before = self.lab.counters();
        let flights = udp::run(&pair, &plan)?;
        let lasted_ns = flights.sent_ns[plan.count - 1] - flights.sent_ns[0];
        let after = self.lab.counters();
        let hops: Vec<Hop> = self.lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
        let theory = arrivals(&flights.sent_ns, plan.ip_bytes, &hops);
        let both = flights.received_ns.iter().zip(&theory).filter(|(received, _)| **received > 0);
        let errors: Vec<f64> =
            both.filter_map(|(received, theory)| Some((*received as f64 - (*theory)?) / 1e9)).collect();
        self.missing += plan.count - flights.received();
        if errors.is_empty() {
            return Err(format!("no probe came through a link of {} ms", self.rtt_ms));
        }
        for (place, share) in SHARES.into_iter().enumerate() {
            self.errors[place].push(quantile(&errors, share));
            self.lateness[place].extend(after.lateness_seconds(&before, share));
        }
        // The pause before the counters are read adds next to nothing to an idle fabric's time.
        self.fabric.push((after.cpu_ns() - before.cpu_ns()) as f64 / lasted_ns as f64);
        Ok(())
    }

    /// Two-sided bound on a median of values rounded to the histogram's buckets, and the row's place in the claims.
    fn judge(&self, worst: &mut [Worst; 2]) -> Vec<String> {
        let mut shown = Vec::new();
        for (place, limit) in [MEDIAN_MAX, P99_MAX].into_iter().enumerate() {
            match Estimate::of(&self.lateness[place]) {
                Some(found) => {
                    worst[place].see(Verdict::at_most(&found, limit), found.median, seconds(found.median));
                    shown.push(seconds_with_interval(&found));
                }
                None => shown.push("none".to_owned()),
            }
        }
        shown
    }
}

fn estimate(values: &[f64]) -> String {
    Estimate::of(values).map_or_else(|| "none".to_owned(), |found| seconds_with_interval(&found))
}

fn run_grid(cells: &mut [Cell], rounds: usize, seconds: f64) -> Result<(), String> {
    for round in 0..rounds {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..cells.len()).collect() } else { (0..cells.len()).rev().collect() };
        order.into_iter().try_for_each(|cell| cells[cell].round(seconds))?;
    }
    Ok(())
}

const WORDS: [&str; 2] =
    ["the fabric delivers at most 30 µs late (median)", "and at most 200 µs late (99 % of the packets)"];

fn claims(worst: [Worst; 2], when: &str) -> Vec<super::section::Claim> {
    let limits = ["≤ 30 µs", "≤ 200 µs"];
    let all = worst.into_iter().zip(WORDS).zip(limits);
    all.filter_map(|((worst, text), limit)| worst.claim(&format!("{text}, {when}"), limit)).collect()
}

/// One packet at a time.
pub fn idle(setup: &Setup) -> Result<Section, String> {
    let mut cells = Vec::new();
    for rtt_ms in [0.2, 2.0, 20.0, 200.0] {
        for (rate, ip_bytes) in
            [(None, 100), (Some(10e6), 100), (Some(10e6), 1500), (Some(1e9), 1500), (Some(10e9), 9000)]
        {
            // Never more than a third of the rate: no packet waits for the one before.
            let most = rate.map_or(1_000.0, |rate: f64| rate / 3.0 / ((ip_bytes + 38) * 8) as f64);
            cells.push(Cell::new(setup, rtt_ms, rate, ip_bytes, most.min(1_000.0))?);
        }
    }
    run_grid(&mut cells, setup.rounds, setup.seconds(0.6))?;
    let veth = Veth::new()?;
    let own = own_cost(setup, &veth.pair, &[100, 1500, 9000])?;
    let mut worst = [Worst::default(), Worst::default()];
    let mut section = Section {
        title: "Delay of a packet on an idle network",
        text: vec![format!(
            "A sender and a receiver on two hosts of a lab, one packet after the other, up to 1,000 a second. *Theory* is the wire's \
             delay plus the packet's bits, framing included, over the rate. *Measured − theory* is from the moment before the send \
             call to the moment after the receive call, so the kernel's work at both ends and the probe's are in it: the same probe \
             over a veth pair, where theory is 0, takes {}. What the fabric answers for is its lateness, from the instant the \
             model planned a delivery to the end of the write that made it.",
            own.join(", ")
        )],
        head: vec![
            "round trip",
            "rate",
            "packet",
            "theory, one way",
            "measured − theory, median",
            "99 %",
            "fabric's lateness, median",
            "99 %",
        ],
        ..Section::default()
    };
    for cell in &cells {
        let hops: Vec<Hop> = cell.lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
        let theory_ns = arrivals(&[0], cell.ip_bytes, &hops)[0].unwrap_or_default();
        let mut row = vec![
            format!("{} ms", cell.rtt_ms),
            rate(cell.bits_per_second),
            format!("{} B", cell.ip_bytes),
            format!("{:.1} µs", theory_ns / 1e3),
            estimate(&cell.errors[0]),
            estimate(&cell.errors[1]),
        ];
        row.extend(cell.judge(&mut worst));
        section.rows.push(row);
    }
    section.notes.push(missing_note(&cells));
    section.claims = claims(worst, "up to 1,000 packets/s");
    Ok(section)
}

/// Many packets a second, each of them timed.
pub fn loaded(setup: &Setup) -> Result<Section, String> {
    let mut cells = Vec::new();
    for rtt_ms in [0.2, 20.0] {
        for ip_bytes in [100, 1000] {
            for per_second in [10_000.0, 50_000.0, 100_000.0] {
                // Below 2.5 Gbit/s the link takes single segments, and 100,000 packets of 1,000 B leave it idle half the time.
                cells.push(Cell::new(setup, rtt_ms, Some(2e9), ip_bytes, per_second)?);
            }
        }
    }
    run_grid(&mut cells, setup.rounds, setup.seconds(0.5))?;
    let mut worst = [Worst::default(), Worst::default()];
    let mut section = Section {
        title: "Delay under load",
        text: vec![
            "The same, at 10,000, 50,000 and 100,000 packets a second through a link of 2 Gbit/s with room for all: single packets, none joined to a \
             super-packet, every one of them timed. One thread sends and receives them all and takes most of one CPU for it at the \
             highest rate; what it is late itself is in *measured − theory* and not in the fabric's lateness."
                .to_owned(),
        ],
        head: vec![
            "round trip", "packet", "packets/s", "measured − theory, median", "99 %", "fabric's lateness, median", "99 %", "fabric, share of a CPU",
        ],
        ..Section::default()
    };
    for cell in &cells {
        let mut row = vec![
            format!("{} ms", cell.rtt_ms),
            format!("{} B", cell.ip_bytes),
            format!("{}", cell.per_second),
            estimate(&cell.errors[0]),
            estimate(&cell.errors[1]),
        ];
        row.extend(cell.judge(&mut worst));
        row.push(format!("{} %", digits(quantile(&cell.fabric, 0.5) * 100.0)));
        section.rows.push(row);
    }
    section.notes.push(missing_note(&cells));
    section.claims = claims(worst, "up to 100,000 packets/s");
    Ok(section)
}

fn missing_note(cells: &[Cell]) -> String {
    let missing: usize = cells.iter().map(|cell| cell.missing).sum();
    let edge = fabric_page::lateness_bucket_ns(0) / fabric_page::lateness_bucket_ns(1);
    format!(
        "Packets that did not come, all rows together: {missing}. The fabric keeps its lateness in buckets {} % wide; quantiles are \
         taken straight within one.",
        digits((1.0 / edge - 1.0) * 100.0)
    )
}

/// What the probe and the kernel take without a lab, by packet size.
fn own_cost(setup: &Setup, pair: &Pair, sizes: &[u64]) -> Result<Vec<String>, String> {
    let mut shown = Vec::new();
    for ip_bytes in sizes {
        let ip_bytes = (*ip_bytes).min(1500);
        let plan = Plan {
            count: (1_000.0 * setup.seconds(0.6)) as usize,
            ip_bytes,
            per_second: Some(1_000.0),
            drain: Duration::from_millis(100),
        };
        let delays = udp::run(pair, &plan)?.delays();
        if delays.is_empty() {
            return Err("no probe came over the veth pair".to_owned());
        }
        let [median, p99] = SHARES.map(|share| seconds(quantile(&delays, share)));
        shown.push(format!("{median} (median) and {p99} (99 %) for packets of {ip_bytes} B"));
    }
    shown.dedup();
    Ok(shown)
}
