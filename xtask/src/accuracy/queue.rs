//! A burst into a slow link: what the queue keeps, and how long each packet of it waits.

use super::section::{Section, Verdict, Worst, rate, seconds, seconds_with_interval};
use super::statistics::quantile;
use super::theory::{Hop, arrivals};
use super::{Setup, two_hosts};
use crate::bench::statistics::Estimate;
use crate::probe::capture::{Sighting, taken_up};
use crate::probe::lab::TestLab;
use crate::probe::udp::{self, Flights, Plan};
use std::time::Duration;

const BURST: usize = 400;
/// As fast as the fabric surely reads them; and the last of 400 comes neither just before nor just after a packet leaves a link of
/// 10 Mbit/s, which would leave the number kept to a few microseconds.
pub const PACKETS_PER_SECOND: f64 = 50_100.0;
/// Of a round, beside one that is captured: a burst is short, and so many that a few programs that took the lab's CPU in the middle of one do not
/// make the median.
const BURSTS: usize = 4;
const IP_BYTES: u64 = 1500;
/// Delay of a packet of the burst: what the fabric may be late (99 %), and what the probe and the kernel take.
const WAIT_ERROR_MAX: f64 = 250e-6;
/// Of one packet on the link, for its queue's number of packets to follow from the times of sending however late the lab may read
/// (some 30 µs as a rule): decision 0008.
const PACKET_SECONDS_MIN: f64 = 100e-6;
const QUEUES: [(&str, &str); 5] = [
    ("{ packets = 50 }", "50 packets"),
    ("{ packets = 1 }", "1 packet"),
    ("{ bytes = \"64000B\" }", "64,000 B"),
    ("{ bytes = \"150000B\", packets = 90 }", "150,000 B, 90 packets"),
    ("{ bytes = \"1MB\" }", "1 MB"),
];

/// One row: a link's rate and queue, and what its bursts met.
#[derive(Default)]
struct Row {
    bits_per_second: f64,
    shown: &'static str,
    /// By round, of bursts whose links were captured: packets kept, and packets whose fate or instant is not the model's.
    kept: Vec<usize>,
    otherwise: Vec<usize>,
    /// By round, of the other bursts: packets kept less those kept by the times at which they were sent.
    off: Vec<f64>,
    /// By round, in seconds: measured less planned.
    medians: Vec<f64>,
    p99s: Vec<f64>,
    last_wait: f64,
}

pub fn bursts(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Queues",
        text: vec![format!(
            "{BURST} packets of {IP_BYTES} B, {PACKETS_PER_SECOND} a second, into a link of 10 ms one way, {} times with both links \
             captured and {} times without, lab and probe on CPUs of their own. *Theory* is the queue's own recursion: which packets are kept, and when each of them \
             leaves. Over the times at which the lab read the packets (from the capture) it is to name the same packets and the \
             same nanoseconds as the lab did, *otherwise* being the packets for which it does not. Over the times at which they were sent (without a \
             capture) the lab's lateness comes in: *by sending* is how many more or fewer were kept than those times say, and *measured \
             − theory* is when packets arrived.",
            setup.rounds,
            setup.rounds * BURSTS
        )],
        head: vec![
            "rate",
            "queue",
            "kept",
            "otherwise",
            "by sending",
            "last one's delay, theory",
            "measured − theory, median",
            "99 %",
            "queue as asked",
            "delay as asked",
        ],
        ..Section::default()
    };
    let [mut exact, mut number, mut wait] = <[Worst; 3]>::default();
    let mut repeated = 0;
    for bits_per_second in [10e6, 100e6, 1e9] {
        for (queue, shown) in QUEUES {
            let row = Row::measure(setup, bits_per_second, queue, shown, &mut repeated)?;
            section.rows.push(row.judge(&mut exact, &mut number, &mut wait)?);
        }
    }
    section.notes.push(format!(
        "By the times of sending the number is judged where a packet takes 100 µs or longer to leave. On a faster link it depends \
         on when the lab read each packet ([decision 0008](../decisions/0008-queues-and-lateness.md)). Bursts during whose sending the probe, \
         which never sleeps, saw no time pass for {} or longer were sent again ({repeated}), and packets on their way in such a time have no \
         part in delays.",
        seconds(udp::LOOK_MAX.as_secs_f64())
    ));
    section.claims.extend(exact.claim(
        "a queue keeps the packets that its limit says, and each leaves when those before it have",
        "the same packets and nanoseconds",
    ));
    section.claims.extend(number.claim(
        "by the times of sending, too, where a packet takes 100 µs or longer (median)",
        "same number",
    ));
    section.claims.extend(
        wait.claim("each packet of a burst waits for those before it (99 %)", "± 250 µs, probe included"),
    );
    Ok(section)
}

impl Row {
    fn measure(
        setup: &Setup,
        bits_per_second: f64,
        queue: &str,
        shown: &'static str,
        repeated: &mut usize,
    ) -> Result<Row, String> {
        let link = format!("rate = \"{bits_per_second}bit/s\"\nrtt = \"20ms\"\nqueue = {queue}\n");
        let mut lab = TestLab::start(&setup.weir, &two_hosts(1500, &link), setup.seed)?;
        let pair = lab.pair("left-0", "right-0")?;
        let path = lab.path("left-0", "right-0")?;
        let names: Vec<String> = path.iter().take(2).map(|link| link.name.clone()).collect();
        let hops: Vec<Hop> = path.into_iter().map(Hop::of).collect();
        let drained = BURST as f64 * 1538.0 * 8.0 / bits_per_second;
        let plan = Plan {
            count: BURST,
            ip_bytes: IP_BYTES,
            per_second: Some(PACKETS_PER_SECOND),
            drain: Duration::from_secs_f64(drained + 0.1),
        };
        let mut row = Row { bits_per_second, shown, ..Row::default() };
        let _apart = lab.apart()?;
        for _ in 0..setup.rounds {
            let (_, seen) = lab.captured(&names, || udp::run(&pair, &plan))?;
            row.see_capture(&seen, &hops)?;
            for _ in 0..BURSTS {
                let flights = udp::run_calm(&pair, &plan, repeated)?;
                row.see_flights(&flights, &hops)?;
            }
        }
        Ok(row)
    }

    /// Compares what the lab did with each packet with the recursion over the times at which it read them.
    fn see_capture(&mut self, seen: &[Sighting], hops: &[Hop]) -> Result<(), String> {
        let read_ns: Option<Vec<u64>> = taken_up(seen, 0, BURST).into_iter().collect();
        let read_ns = read_ns.ok_or("not every packet of a burst reached the lab")?;
        let left_ns = taken_up(seen, 1, BURST);
        let wire = hops[1];
        let theory = arrivals(&read_ns, IP_BYTES, &hops[..2]);
        let same = |(left_ns, planned_ns): (&Option<u64>, &Option<f64>)| match (left_ns, planned_ns) {
            (Some(left_ns), Some(planned_ns)) => {
                let arrives_ns = *left_ns as f64 + wire.service_ns(IP_BYTES) + wire.delay_ns;
                // Half a nanosecond: the recursion is not in whole ones.
                (arrives_ns - planned_ns).abs() <= 0.5
            }
            (left_ns, planned_ns) => left_ns.is_none() && planned_ns.is_none(),
        };
        self.kept.push(left_ns.iter().flatten().count());
        self.otherwise.push(left_ns.iter().zip(&theory).filter(|both| !same(*both)).count());
        Ok(())
    }

    fn see_flights(&mut self, flights: &Flights, hops: &[Hop]) -> Result<(), String> {
        let theory = arrivals(&flights.sent_ns, IP_BYTES, hops);
        let expected = theory.iter().flatten().count();
        self.off.push(flights.received() as f64 - expected as f64);
        let mut errors = Vec::new();
        for number in flights.undisturbed() {
            let Some(planned) = theory[number] else { continue };
            errors.push((flights.received_ns[number] as f64 - planned) / 1e9);
            self.last_wait = self.last_wait.max((planned - flights.sent_ns[number] as f64) / 1e9);
        }
        if errors.is_empty() {
            return Err(format!("nothing came through a queue of {}", self.shown));
        }
        self.medians.push(quantile(&errors, 0.5));
        self.p99s.push(quantile(&errors, 0.99));
        Ok(())
    }

    /// The row as it is shown.
    fn judge(&self, exact: &mut Worst, number: &mut Worst, wait: &mut Worst) -> Result<Vec<String>, String> {
        let place = format!("queue of {} at {}", self.shown, rate(Some(self.bits_per_second)));
        let otherwise = self.otherwise.iter().copied().max().unwrap_or_default();
        let exact_verdict = Verdict::of(otherwise == 0);
        exact.see(exact_verdict, otherwise as f64, format!("{otherwise} of {BURST} otherwise, {place}"));

        // Of the rounds the median: in one of them another program may have held the sender up in the middle of its burst.
        let sizes: Vec<f64> = self.off.iter().map(|off| off.abs()).collect();
        let [off, median] = [&sizes, &self.medians].map(|values| quantile(values, 0.5));
        let judged = IP_BYTES as f64 * 8.0 / self.bits_per_second >= PACKET_SECONDS_MIN;
        let number_verdict = judged.then(|| Verdict::of(off == 0.0));
        if let Some(verdict) = number_verdict {
            number.see(verdict, off, format!("{off} of {BURST} more or less, {place}"));
        }
        let p99 = Estimate::of(&self.p99s).ok_or("no burst was measured")?;
        let wait_verdict = Verdict::at_most(&p99, WAIT_ERROR_MAX);
        wait.see(wait_verdict, p99.median, format!("{}, {place}", seconds(p99.median)));

        let span = |values: &[f64]| {
            let [least, most] = [0.0, 1.0].map(|share| quantile(values, share));
            if least < most { format!("{least} to {most}") } else { format!("{least}") }
        };
        let kept: Vec<f64> = self.kept.iter().map(|kept| *kept as f64).collect();
        Ok(vec![
            rate(Some(self.bits_per_second)),
            self.shown.to_owned(),
            span(&kept),
            format!("{otherwise}"),
            span(&self.off),
            seconds(self.last_wait),
            seconds(median),
            seconds_with_interval(&p99),
            exact_verdict.max(number_verdict.unwrap_or(Verdict::Kept)).word().to_owned(),
            wait_verdict.word().to_owned(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_leaves_a_nanosecond_late_or_should_have_been_dropped_is_otherwise() {
        let up = Hop {
            bits_per_second: None,
            delay_ns: 0.0,
            queue_bytes: None,
            queue_packets: None,
            framing_bytes: 38,
        };
        let wire = Hop { bits_per_second: Some(10e6), queue_packets: Some(1), delay_ns: 5e6, ..up };
        // One packet a µs: of 400 the first is in service, the second waits, the others find the queue full.
        let packets = |left: &[(usize, u64)]| {
            let read = (0..BURST).map(|number| (0, number, number as u64 * 1_000));
            let left = left.iter().map(|(number, at_ns)| (1, *number, *at_ns));
            read.chain(left)
                .map(|(link, number, at_ns)| Sighting { link, at_ns, number, dropped: false })
                .collect::<Vec<_>>()
        };
        let otherwise = |left: &[(usize, u64)]| {
            let mut row = Row { bits_per_second: 10e6, shown: "1 packet", ..Row::default() };
            row.see_capture(&packets(left), &[up, wire]).unwrap();
            row.otherwise[0]
        };
        assert_eq!(otherwise(&[(0, 0), (1, 1_230_400)]), 0);
        assert_eq!(otherwise(&[(0, 0), (1, 1_230_401)]), 1);
        assert_eq!(otherwise(&[(0, 0), (1, 1_230_400), (2, 2_460_800)]), 1);
        assert_eq!(otherwise(&[(0, 0)]), 1);
    }
}
