//! Buffers that ports share, and queues that drop before they are full.

use super::queue::PACKETS_PER_SECOND;
use super::section::{Section, Verdict, Worst, digits, percent, seconds};
use super::statistics::{mean, quantile};
use super::theory::{Hop, arrivals, kept_by_shared_buffer, red_share};
use super::{Setup, two_hosts};
use crate::probe::lab::TestLab;
use crate::probe::tcp;
use crate::probe::udp::{self, Flights, Plan};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const IP_BYTES: u64 = 1000;
/// The first of a steady load's packets, which find the queue still growing: so many of ten.
const SETTLING_TENTHS: usize = 3;
/// What RED's share of drops may be off, relative: the mean of the queue is known from the packets that were kept, to some 1 %.
const RED_ERROR_MAX: f64 = 0.05;
/// By which factor the standing queue may miss CoDel's target, either way.
const CODEL_FACTOR_MAX: f64 = 2.0;
/// Of the link of RED and CoDel: slow enough that what the machine adds to a wait is far less than a packet's time on it.
const BITS_PER_SECOND: f64 = 8e6;
const LINK: &str = "rate = \"8Mbit/s\"\nrtt = \"20ms\"\n";
const BURST: usize = 400;
/// Of each row of RED and CoDel.
const SECONDS: f64 = 20.0;
/// UDP packets a second beside the flows that fill CoDel's queue, and their size: 2 % of the link.
const PROBES_PER_SECOND: f64 = 200.0;
const PROBE_BYTES: u64 = 64;

pub fn shared_buffer(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Shared buffers",
        text: vec![format!(
            "{BURST} packets of {IP_BYTES} B, {PACKETS_PER_SECOND} a second, for two hosts in turn, through a site whose `buffer` the queues of both hosts' links \
             share. *Theory* is the recursion of both queues over the times at which the packets were sent. Medians over {} bursts.",
            setup.rounds
        )],
        head: vec![
            "rate of each",
            "buffer",
            "kept, theory",
            "kept, measured",
            "for the one and the other",
            "as asked",
        ],
        ..Section::default()
    };
    let mut worst = Worst::default();
    for bits_per_second in [1e6, 4e6] {
        for buffer_bytes in [20_000_u64, 50_500, 150_000] {
            let site = |name: &str, keys: &str| format!("[[lab.site]]\nname = \"{name}\"\n{keys}\n");
            let text = format!(
                "[lab]\n{}{}[[lab.link]]\nbetween = [\"left\", \"right\"]\nrtt = \"20ms\"\n",
                site("left", "access = { mtu = 1500 }"),
                site(
                    "right",
                    &format!(
                        "hosts = 2\nbuffer = \"{buffer_bytes}B\"\naccess = {{ rate = \"{bits_per_second}bit/s\", mtu = 1500 }}"
                    )
                )
            );
            let lab = TestLab::start(&setup.weir, &text, setup.seed)?;
            let pairs = [lab.pair("left-0", "right-0")?, lab.pair("left-0", "right-1")?];
            let path: Vec<Hop> = lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
            let (port, before) = path.split_last().ok_or("an empty path")?;
            // One port may hold all of it.
            let drained = (buffer_bytes / IP_BYTES + 2) as f64 * port.service_ns(IP_BYTES) / 1e9;
            let drain = Duration::from_secs_f64(drained + 0.1);
            let plan = Plan { count: BURST, ip_bytes: IP_BYTES, per_second: Some(PACKETS_PER_SECOND), drain };
            let (mut off, mut kept, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            let mut each = [0, 0];
            for _ in 0..setup.rounds {
                let flights = udp::run_over(&[&pairs[0], &pairs[1]], &plan)?;
                let at_ns: Vec<f64> =
                    arrivals(&flights.sent_ns, IP_BYTES, before).into_iter().flatten().collect();
                let theory = kept_by_shared_buffer(&at_ns, IP_BYTES, *port, 2, buffer_bytes);
                expected.push(theory.iter().filter(|kept| **kept).count() as f64);
                kept.push(flights.received() as f64);
                off.push((kept[kept.len() - 1] - expected[expected.len() - 1]).abs());
                each = [0, 1].map(|port| flights.order.iter().filter(|number| **number % 2 == port).count());
            }
            let [off, kept, expected] = [&off, &kept, &expected].map(|values| quantile(values, 0.5));
            let verdict = Verdict::of(off == 0.0);
            let shown = format!("{buffer_bytes} B at {} Mbit/s", bits_per_second / 1e6);
            worst.see(verdict, off, format!("{off} of {BURST} more or less, {shown}"));
            section.rows.push(vec![
                format!("{} Mbit/s", bits_per_second / 1e6),
                format!("{buffer_bytes} B"),
                format!("{expected}"),
                format!("{kept}"),
                format!("{} and {}", each[0], each[1]),
                verdict.word().to_owned(),
            ]);
        }
    }
    section.claims.extend(worst.claim("ports keep together what their shared buffer holds", "same number"));
    Ok(section)
}

/// Steady packets at `load` times what the link carries, those of the settled part: how many were sent and
/// kept, and how long each one kept waited for its turn, in seconds.
struct Settled {
    sent: usize,
    load: f64,
    waits: Vec<f64>,
}

impl Settled {
    fn dropped_share(&self) -> f64 {
        1.0 - self.waits.len() as f64 / self.sent as f64
    }

    fn measure(setup: &Setup, queue: &str, load: f64) -> Result<Settled, String> {
        let lab = TestLab::start(&setup.weir, &two_hosts(1500, &format!("{LINK}{queue}\n")), setup.seed)?;
        let path: Vec<Hop> = lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
        let service_seconds: f64 = path.iter().map(|hop| hop.service_ns(IP_BYTES) / 1e9).sum();
        let delay_seconds: f64 = path.iter().map(|hop| hop.delay_ns / 1e9).sum();
        let per_second = load / service_seconds;
        let count = (per_second * setup.seconds(SECONDS)) as usize;
        let drain = Duration::from_secs(1);
        let plan = Plan { count, ip_bytes: IP_BYTES, per_second: Some(per_second), drain };
        let Flights { sent_ns, received_ns, .. } = udp::run(&lab.pair("left-0", "right-0")?, &plan)?;
        let first = count * SETTLING_TENTHS / 10;
        let kept = sent_ns.iter().zip(&received_ns).skip(first).filter(|(_, received)| **received > 0);
        let wait = |(sent, received): (&u64, &u64)| {
            (*received as f64 - *sent as f64) / 1e9 - delay_seconds - service_seconds
        };
        let waits: Vec<f64> = kept.map(wait).collect();
        if waits.is_empty() {
            return Err("nothing came through the queue".to_owned());
        }
        let settled_seconds = (sent_ns[count - 1] - sent_ns[first]) as f64 / 1e9;
        let load = (count - 1 - first) as f64 / settled_seconds * service_seconds;
        Ok(Settled { sent: count - first, load, waits })
    }
}

pub fn red(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Random early detection",
        text: vec![format!(
            "Packets of {IP_BYTES} B at a steady rate above what a link of 8 Mbit/s carries, {:.0} s for each row, of which the last {} % \
             count. The mean queue is that of the waits of the packets that came, in IP bytes. *Theory* is the share of drops that Floyd and \
             Jacobson's evenly spread gaps give at that mean: it must be the excess, too.",
            setup.seconds(SECONDS),
            100 - 10 * SETTLING_TENTHS
        )],
        head: vec![
            "`min`",
            "`max`",
            "`probability`",
            "load",
            "mean queue",
            "drops, theory",
            "drops, measured",
            "excess",
            "within 5 %",
        ],
        ..Section::default()
    };
    let mut worst = Worst::default();
    for (min, max, probability, load) in
        [(20e3, 200e3, 0.2, 1.1), (20e3, 200e3, 0.4, 1.3), (50e3, 400e3, 0.3, 1.2), (10e3, 300e3, 0.5, 1.5)]
    {
        let queue = format!(
            "queue = {{ bytes = \"1MB\", discipline = \"red\", min = \"{min}B\", max = \"{max}B\", probability = {probability} }}"
        );
        let settled = Settled::measure(setup, &queue, load)?;
        // What is left of the packet in service is half of one in the mean, and is no part of the queue.
        let service_seconds = (IP_BYTES + 38) as f64 * 8.0 / BITS_PER_SECOND;
        let mean_bytes = (mean(&settled.waits) / service_seconds - 0.5) * IP_BYTES as f64;
        let (theory, measured) = (red_share(mean_bytes, min, max, probability), settled.dropped_share());
        let error = (measured / theory - 1.0).abs();
        let verdict = Verdict::of(error <= RED_ERROR_MAX);
        worst.see(verdict, error, format!("{} for {}", percent(measured, 2), percent(theory, 2)));
        section.rows.push(vec![
            format!("{min} B"),
            format!("{max} B"),
            format!("{probability}"),
            digits(settled.load),
            format!("{mean_bytes:.0} B"),
            percent(theory, 2),
            percent(measured, 2),
            percent(1.0 - 1.0 / settled.load, 2),
            verdict.word().to_owned(),
        ]);
    }
    section
        .claims
        .extend(worst.claim("RED drops the share that its mean queue asks for", "± 5 % of the share"));
    Ok(section)
}

pub fn codel(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Controlled delay",
        text: vec![format!(
            "TCP flows (cubic) fill a link of 8 Mbit/s and 20 ms round trip for {:.0} s, of which the last {} % count, and {PROBES_PER_SECOND} UDP packets a \
             second measure how long its queue of up to 1 MB makes them wait. CoDel acts on what stands there: the least wait within each \
             `interval`, here its median over all intervals. The last row has no CoDel.",
            setup.seconds(SECONDS),
            100 - 10 * SETTLING_TENTHS
        )],
        head: vec![
            "`target`",
            "`interval`",
            "flows",
            "standing, median",
            "wait, median",
            "95 %",
            "probes lost",
            "near target",
        ],
        ..Section::default()
    };
    let mut worst = Worst::default();
    for (target, interval, flows) in [
        (Some(5e-3), 100e-3, 2),
        (Some(5e-3), 100e-3, 4),
        (Some(10e-3), 100e-3, 4),
        (Some(20e-3), 200e-3, 8),
        (None, 100e-3, 4),
    ] {
        let ms = |seconds: f64| format!("{}ms", seconds * 1e3);
        let discipline = target.map_or_else(String::new, |target| {
            format!(", discipline = \"codel\", target = \"{}\", interval = \"{}\"", ms(target), ms(interval))
        });
        let queue = format!("queue = {{ bytes = \"1MB\"{discipline} }}");
        let (waits, lost) = probed(setup, &queue, flows)?;
        let standing = quantile(&least_within(&waits, interval), 0.5);
        let [median, most] = [0.5, 0.95].map(|share| {
            let all: Vec<f64> = waits.iter().map(|(_, wait)| *wait).collect();
            quantile(&all, share)
        });
        let verdict = target.map(|target| {
            let factor = (standing / target).max(target / standing.max(1e-9));
            let verdict = Verdict::of(factor <= CODEL_FACTOR_MAX);
            worst.see(verdict, factor, format!("{} for {}", seconds(standing), seconds(target)));
            verdict
        });
        section.rows.push(vec![
            target.map_or_else(|| "none".to_owned(), seconds),
            if target.is_some() { seconds(interval) } else { "none".to_owned() },
            format!("{flows}"),
            seconds(standing),
            seconds(median),
            seconds(most),
            percent(lost, 2),
            verdict.map_or("not judged", Verdict::word).to_owned(),
        ]);
    }
    section
        .claims
        .extend(worst.claim("CoDel keeps the standing queue near its target", "half to twice the target"));
    Ok(section)
}

/// When each probe was sent that came through beside so many TCP flows, and how long it waited, both in seconds; and the
/// share of those that did not come.
fn probed(setup: &Setup, queue: &str, flows: usize) -> Result<(Vec<(f64, f64)>, f64), String> {
    let lab = TestLab::start(&setup.weir, &two_hosts(1500, &format!("{LINK}{queue}\n")), setup.seed)?;
    let path: Vec<Hop> = lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
    let idle_seconds: f64 = path.iter().map(|hop| (hop.service_ns(PROBE_BYTES) + hop.delay_ns) / 1e9).sum();
    let pair = lab.pair("left-0", "right-0")?;
    let plan = Plan {
        count: (PROBES_PER_SECOND * setup.seconds(SECONDS)) as usize,
        ip_bytes: PROBE_BYTES,
        per_second: Some(PROBES_PER_SECOND),
        drain: Duration::from_secs(2),
    };
    let load = tcp::Plan {
        warm_up: Duration::ZERO,
        duration: Duration::from_secs_f64(setup.seconds(SECONDS) + 0.5),
        window_bytes: None,
    };
    let flights = thread::scope(|scope| {
        let loads: Vec<_> = (0..flows).map(|_| scope.spawn(|| tcp::run(&pair, &load))).collect();
        let flights = udp::run(&pair, &plan);
        for load in loads {
            load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        flights
    })?;
    let first = plan.count * SETTLING_TENTHS / 10;
    let settled = flights.sent_ns.iter().zip(&flights.received_ns).skip(first);
    let waits: Vec<(f64, f64)> = settled
        .filter(|(_, received)| **received > 0)
        .map(|(sent, received)| (*sent as f64 / 1e9, (*received as f64 - *sent as f64) / 1e9 - idle_seconds))
        .collect();
    if waits.is_empty() {
        return Err("no probe came through the queue".to_owned());
    }
    let lost = 1.0 - waits.len() as f64 / (plan.count - first) as f64;
    Ok((waits, lost))
}

/// The least wait of those sent within each stretch of so many seconds, which have some.
fn least_within(waits: &[(f64, f64)], seconds: f64) -> Vec<f64> {
    let mut least: BTreeMap<u64, f64> = BTreeMap::new();
    for (sent, wait) in waits {
        let least = least.entry((sent / seconds) as u64).or_insert(f64::INFINITY);
        *least = least.min(*wait);
    }
    least.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_queue_is_the_least_wait_of_each_stretch() {
        let waits = [(0.01, 5.0), (0.05, 3.0), (0.11, 4.0), (0.35, 9.0), (0.39, 8.0)];
        assert_eq!(least_within(&waits, 0.1), [3.0, 4.0, 8.0]);
    }
}
