//! What the fabric carries in single segments, and how late it is.

use super::Settings;
use super::groups::ROUNDS;
use super::record::{Outcome, Row};
use super::statistics::Bound;
use crate::probe::lab::TestLab;
use crate::probe::{tcp, udp};
use std::thread;
use std::time::{Duration, Instant};
use weir_core::fabric_page::link;

const SEED: u64 = 1;
/// Slow start is over by then.
const WARM_UP: Duration = Duration::from_millis(500);
const PACKETS_PER_SECOND: f64 = 150_000.0;

/// Pairs of hosts on a trunk that takes single segments; `mtu` of everything.
fn trunk(pairs: usize, mtu: u64) -> String {
    let site = |name: &str| {
        format!("[[lab.site]]\nname = \"{name}\"\nhosts = {pairs}\naccess = {{ mtu = {mtu} }}\n")
    };
    let link = "[[lab.link]]\nname = \"trunk\"\nbetween = [\"left\", \"right\"]\nrate = \"2.4Gbit/s\"\nrtt = \"2ms\"\nqueue = { bytes = \"4MiB\" }\n";
    format!("[lab]\n{}{}{link}", site("left"), site("right"))
}

fn row(name: String, unit: &'static str, bound: Bound, values: Vec<f64>) -> Row {
    Row { name, unit, bound, values, arms: vec![] }
}

/// Segments a second that left the trunk while every pair sent over TCP, by the fabric's own count.
fn segments_per_second(lab: &TestLab, pairs: usize, duration: Duration) -> Result<f64, String> {
    let trunk = lab.link("link.trunk.forward")?;
    let plan = tcp::Plan { warm_up: WARM_UP, duration, window_bytes: None };
    let ends = (0..pairs).map(|pair| lab.pair(&format!("left-{pair}"), &format!("right-{pair}")));
    let ends = ends.collect::<Result<Vec<_>, String>>()?;
    thread::scope(|scope| {
        let flows: Vec<_> = ends.iter().map(|pair| scope.spawn(|| tcp::run(pair, &plan))).collect();
        thread::sleep(WARM_UP);
        let (started, before) = (Instant::now(), lab.counters_now());
        thread::sleep(duration.mul_f64(0.9));
        let (seconds, after) = (started.elapsed().as_secs_f64(), lab.counters_now());
        for flow in flows {
            flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok((after.link(trunk, link::PACKETS_SENT) - before.link(trunk, link::PACKETS_SENT)) as f64 / seconds)
    })
}

pub fn split(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    // At 2.4 Gbit/s frames of MTU 1500 are 195,000 a second, those of MTU 576 489,000: there the CPU is the limit.
    for (pairs, mtu, name) in [
        (1, 1500, "one TCP flow, MTU 1500"),
        (1, 576, "one TCP flow, MTU 576"),
        (16, 1500, "32 hosts on one trunk, a TCP flow a pair, MTU 1500"),
        (16, 576, "32 hosts on one trunk, a TCP flow a pair, MTU 576"),
    ] {
        let lab = TestLab::start(&settings.weir, &trunk(pairs, mtu), SEED)?;
        let values =
            (0..settings.rounds(ROUNDS)).map(|_| segments_per_second(&lab, pairs, settings.duration));
        let values = values.collect::<Result<Vec<f64>, String>>()?;
        outcome.rows.push(row(
            format!("segments through the link, {name}"),
            "1/s",
            Bound::AtLeast(PACKETS_PER_SECOND),
            values,
        ));
    }
    outcome.notes.push("A link of 2.4 Gbit/s and 2 ms takes super-packets apart; segments are what it counts as sent. It has room for 195,000 a second of MTU 1500 and 489,000 of MTU 576. Sender, receiver and fabric share the machine.".to_owned());
    outcome.notes.push(
        "The window is the kernel's (profile modern): slow start and the queue of 4 MiB are part of it."
            .to_owned(),
    );
    Ok(outcome)
}

pub fn lateness(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let text = trunk(1, 1500);
    for per_second in [10_000.0, 50_000.0, 100_000.0] {
        let lab = TestLab::start(&settings.weir, &text, SEED)?;
        let pair = lab.pair("left-0", "right-0")?;
        let plan = udp::Plan {
            count: (per_second * settings.duration.as_secs_f64()) as usize,
            ip_bytes: 200,
            per_second: Some(per_second),
            drain: Duration::from_millis(100),
        };
        let (mut medians, mut p99s, mut missing) = (Vec::new(), Vec::new(), 0);
        for _ in 0..settings.rounds(ROUNDS) {
            let before = lab.counters();
            let flights = udp::run(&pair, &plan)?;
            let after = lab.counters();
            missing += plan.count - flights.received();
            medians.extend(after.lateness_seconds(&before, 0.5));
            p99s.extend(after.lateness_seconds(&before, 0.99));
        }
        outcome.rows.push(row(
            format!("lateness at {per_second} packets/s, median"),
            "s",
            Bound::AtMost(30e-6),
            medians,
        ));
        outcome.rows.push(row(
            format!("lateness at {per_second} packets/s, 99 %"),
            "s",
            Bound::AtMost(200e-6),
            p99s,
        ));
        outcome
            .notes
            .push(format!("At {per_second} packets/s {missing} packets of all rounds did not come."));
    }
    outcome.notes.push("UDP packets of 200 B through a link of 2.4 Gbit/s and 2 ms, one thread sends and receives them all. Lateness is written − planned, by the fabric's own histogram, whose buckets are 19 % wide.".to_owned());
    Ok(outcome)
}
