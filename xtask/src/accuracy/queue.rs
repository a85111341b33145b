//! A burst into a slow link: what the queue keeps, and how long each packet of it waits.

use super::section::{Section, Verdict, Worst, rate, seconds};
use super::statistics::quantile;
use super::theory::{Hop, arrivals};
use super::{Setup, two_hosts};
use crate::probe::lab::TestLab;
use crate::probe::udp::{self, Plan};
use std::time::Duration;

const BURST: usize = 400;
/// As fast as the fabric surely reads them, so that it sees each when it is sent; and the last of 400 comes neither just before nor
/// just after a packet leaves a link of 10 or 100 Mbit/s, which would leave the number kept to a few microseconds.
pub const PACKETS_PER_SECOND: f64 = 50_100.0;
const IP_BYTES: u64 = 1500;
/// Delay of a packet of the burst: what the fabric may be late (99 %), and what the probe and the kernel take.
const WAIT_ERROR_MAX: f64 = 250e-6;

pub fn bursts(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Queues",
        text: vec![format!(
            "{BURST} packets of {IP_BYTES} B, {PACKETS_PER_SECOND} a second, into a link of 10 ms one way. *Theory* is \
             the queue's own recursion over the times at which they were sent: which packets are kept, and when each of them arrives. \
             Figures are medians over {} bursts; the range of the number kept is shown where they differ.",
            setup.rounds
        )],
        head: vec![
            "rate",
            "queue",
            "kept, theory",
            "kept, measured",
            "last one's delay, theory",
            "measured − theory, median",
            "99 %",
            "as asked",
        ],
        ..Section::default()
    };
    let (mut kept_worst, mut wait_worst) = (Worst::default(), Worst::default());
    for bits_per_second in [10e6, 100e6, 1e9] {
        for (queue, shown) in [
            ("{ packets = 50 }", "50 packets"),
            ("{ packets = 1 }", "1 packet"),
            ("{ bytes = \"64000B\" }", "64,000 B"),
            ("{ bytes = \"150000B\", packets = 90 }", "150,000 B, 90 packets"),
            ("{ bytes = \"1MB\" }", "1 MB"),
        ] {
            let text = two_hosts(
                1500,
                &format!("rate = \"{bits_per_second}bit/s\"\nrtt = \"20ms\"\nqueue = {queue}\n"),
            );
            let lab = TestLab::start(&setup.weir, &text, setup.seed)?;
            let pair = lab.pair("left-0", "right-0")?;
            let hops: Vec<Hop> = lab.path("left-0", "right-0")?.into_iter().map(Hop::of).collect();
            let drained = BURST as f64 * 1538.0 * 8.0 / bits_per_second;
            let plan = Plan {
                count: BURST,
                ip_bytes: IP_BYTES,
                per_second: Some(PACKETS_PER_SECOND),
                drain: Duration::from_secs_f64(drained + 0.1),
            };
            let (mut kept, mut off) = (Vec::new(), Vec::new());
            let (mut medians, mut p99s, mut expected, mut last_wait) = (Vec::new(), Vec::new(), 0, 0.0_f64);
            for _ in 0..setup.rounds {
                let flights = udp::run(&pair, &plan)?;
                let theory = arrivals(&flights.sent_ns, IP_BYTES, &hops);
                expected = theory.iter().flatten().count();
                kept.push(flights.received());
                off.push(flights.received().abs_diff(expected) as f64);
                let mut errors = Vec::new();
                for ((sent, received), planned) in
                    flights.sent_ns.iter().zip(&flights.received_ns).zip(&theory)
                {
                    let Some(planned) = planned.filter(|_| *received > 0) else { continue };
                    errors.push((*received as f64 - planned) / 1e9);
                    last_wait = last_wait.max((planned - *sent as f64) / 1e9);
                }
                if errors.is_empty() {
                    return Err(format!("nothing came through a queue of {shown}"));
                }
                medians.push(quantile(&errors, 0.5));
                p99s.push(quantile(&errors, 0.99));
            }
            // Of the rounds the median: in one of them another program may have held the sender up in the middle of its burst.
            let [off, median, p99] = [&off, &medians, &p99s].map(|values| quantile(values, 0.5));
            let kept_verdict = Verdict::of(off == 0.0);
            let wait_verdict = Verdict::of(p99 <= WAIT_ERROR_MAX);
            if bits_per_second < 1e9 {
                kept_worst.see(
                    kept_verdict,
                    off,
                    format!(
                        "{off} of {BURST} more or less, queue of {shown} at {}",
                        rate(Some(bits_per_second))
                    ),
                );
                wait_worst.see(wait_verdict, p99, seconds(p99));
            }
            let shown_kept = match (kept.iter().min(), kept.iter().max()) {
                (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
                (least, _) => format!("{}", least.copied().unwrap_or_default()),
            };
            section.rows.push(vec![
                rate(Some(bits_per_second)),
                shown.to_owned(),
                format!("{expected}"),
                shown_kept,
                seconds(last_wait),
                seconds(median),
                seconds(p99),
                if bits_per_second < 1e9 { kept_verdict.max(wait_verdict).word() } else { "not judged" }
                    .to_owned(),
            ]);
        }
    }
    section.notes.push(
        "At 1 Gbit/s a packet leaves every 12 µs, sooner than the next one comes: nothing is to be dropped. What is, came in a bunch, since \
         the sender or the fabric had been kept from its core."
            .to_owned(),
    );
    section.claims.extend(
        kept_worst.claim("a queue keeps exactly what its limit says, up to 100 Mbit/s", "same number"),
    );
    section.claims.extend(
        wait_worst
            .claim("each packet of a burst waits for those before it (99 %)", "± 250 µs, probe included"),
    );
    Ok(section)
}
