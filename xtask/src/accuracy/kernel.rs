//! The fabric beside the kernel's own shapers, tbf and htb, on a veth pair of the same machine.

use super::section::{Section, percent_with_interval, rate, seconds};
use super::statistics::{mean, quantile};
use super::theory::{Hop, arrivals};
use super::{Setup, two_hosts};
use crate::bench::statistics::Estimate;
use crate::probe::lab::TestLab;
use crate::probe::pair::{Pair, Veth};
use crate::probe::udp::{self, Flights, Plan};
use std::time::Duration;

const IP_BYTES: u64 = 1500;
const WIRE_BYTES: f64 = 1538.0;
/// What the queue holds, in packets; the same for all three.
const QUEUE_PACKETS: u64 = 50;
const EXCESS: f64 = 1.2;
/// Of the rate; a sender that offered less was held up by the machine.
const OFFERED_MIN: f64 = 1.1;
const WINDOW_NS: u64 = 10_000_000;
const BURST: usize = 30;

/// One arm: its name, and what a run of it gave.
#[derive(Default)]
struct Arm {
    /// Measured over asked for, less 1.
    errors: Vec<f64>,
    /// Largest over mean of the packets in windows of 10 ms.
    burstiness: Vec<f64>,
    /// Of a packet that found the queue full but for its own place.
    waits: Vec<f64>,
    /// Of the packets of a burst into the idle link: largest amount by which one came earlier or later than the wire allows.
    burst_errors: Vec<f64>,
    /// Rounds in which the sender was too slow.
    left_out: usize,
}

const ARMS: [&str; 3] = ["fabric", "tbf", "htb"];

/// What `tc` is told. Both count 14 B of Ethernet header by themselves; 24 more make the 38 B that a frame takes on the wire.
fn shaper(arm: usize, bits_per_second: f64) -> Vec<String> {
    // One tick of a kernel with 250 Hz, as the manual advises, and never less than two frames.
    let burst = (bits_per_second / 8.0 / 250.0).max(2.0 * WIRE_BYTES) as u64;
    let limit = QUEUE_PACKETS * 1514;
    match arm {
        1 => vec![format!(
            "qdisc add dev veth0 root stab overhead 24 linklayer ethernet tbf rate {bits_per_second}bit burst {burst} limit {limit}"
        )],
        _ => vec![
            "qdisc add dev veth0 root handle 1: stab overhead 24 linklayer ethernet htb default 1".to_owned(),
            format!(
                "class add dev veth0 parent 1: classid 1:1 htb rate {bits_per_second}bit ceil {bits_per_second}bit burst {burst} cburst {burst}"
            ),
            format!("qdisc add dev veth0 parent 1:1 bfifo limit {limit}"),
        ],
    }
}

fn measure(arm: &mut Arm, pair: &Pair, bits_per_second: f64, seconds: f64) -> Result<(), String> {
    let packets_per_second = bits_per_second / 8.0 / WIRE_BYTES;
    // An idle link and a full bucket first.
    std::thread::sleep(Duration::from_millis(100));
    let drain = Duration::from_secs_f64(QUEUE_PACKETS as f64 / packets_per_second + 0.1);
    let burst = udp::run(pair, &Plan { count: BURST, ip_bytes: IP_BYTES, per_second: None, drain })?;
    let wire = Hop {
        bits_per_second: Some(bits_per_second),
        delay_ns: 0.0,
        queue_bytes: None,
        queue_packets: None,
        framing_bytes: 38,
    };
    let theory = arrivals(&burst.sent_ns, IP_BYTES, &[wire]);
    let errors = burst.received_ns.iter().zip(&theory).filter(|(received, _)| **received > 0);
    let errors: Vec<f64> =
        errors.filter_map(|(received, theory)| Some((*received as f64 - (*theory)?) / 1e9)).collect();
    arm.burst_errors
        .push(errors.into_iter().max_by(|one, other| one.abs().total_cmp(&other.abs())).unwrap_or(f64::NAN));
    let plan = Plan {
        count: (packets_per_second * EXCESS * seconds) as usize,
        ip_bytes: IP_BYTES,
        per_second: Some(packets_per_second * EXCESS),
        drain,
    };
    let flights = udp::run(pair, &plan)?;
    let offered =
        (plan.count - 1) as f64 * 1e9 / (flights.sent_ns[plan.count - 1] - flights.sent_ns[0]) as f64;
    if offered < OFFERED_MIN * packets_per_second {
        // A queue that ran dry says nothing of the shaper.
        arm.left_out += 1;
        return Ok(());
    }
    let (times, waits) = full_queue(&flights).ok_or("a shaper let nearly nothing through")?;
    let lasted = (times[times.len() - 1] - times[0]) as f64 / 1e9;
    arm.errors.push((times.len() - 1) as f64 / lasted / packets_per_second - 1.0);
    arm.burstiness.push(burstiness(&times).ok_or("a run is shorter than its windows")?);
    arm.waits.push(mean(&waits));
    Ok(())
}

/// Arrival times, in order, and delays in seconds of what came between the first half of the run and its last send.
fn full_queue(flights: &Flights) -> Option<(Vec<u64>, Vec<f64>)> {
    let last_sent = *flights.sent_ns.last()?;
    let from = flights.sent_ns[0] + (last_sent - flights.sent_ns[0]) / 2;
    let inside = |at: &&u64| (from..=last_sent).contains(*at);
    let mut times: Vec<u64> = flights.received_ns.iter().filter(inside).copied().collect();
    times.sort_unstable();
    let both = flights.sent_ns.iter().zip(&flights.received_ns).filter(|(_, at)| inside(at));
    let waits = both.map(|(sent, at)| (*at as f64 - *sent as f64) / 1e9).collect();
    (times.len() >= 10).then_some((times, waits))
}

/// Most packets in a window of 10 ms over the mean of all windows.
fn burstiness(times: &[u64]) -> Option<f64> {
    let count = ((times.last()? - times.first()?) / WINDOW_NS) as usize;
    let mut windows = vec![0.0_f64; count];
    for at in times {
        if let Some(window) = windows.get_mut(((at - times[0]) / WINDOW_NS) as usize) {
            *window += 1.0;
        }
    }
    (count >= 10).then(|| quantile(&windows, 1.0) / mean(&windows))
}

pub fn beside(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Beside tbf and htb",
        text: vec![format!(
            "The same probe through the fabric and through the kernel's shapers on a veth pair, in turn (fabric, tbf, htb, htb, tbf, \
             fabric), UDP of {IP_BYTES} B, a queue of {QUEUE_PACKETS} packets, the shapers told of 24 B more than the Ethernet header \
             they count (`stab overhead 24`) and given a bucket of 4 ms. *Rate* and *windows* are of a flow offered a fifth more than \
             fits; *windows* is the fullest stretch of 10 ms over the mean one; *wait* is how long a packet of that flow took, against \
             the {} places before it; *burst* is the largest amount by which one of {BURST} packets sent at once into the idle link came \
             earlier (−) or later than a wire of that rate would bring it. A bucket lets a burst pass at once: it bounds a rate, it is \
             no wire.",
            QUEUE_PACKETS + 1
        )],
        head: vec!["rate", "by", "rate error", "windows of 10 ms", "wait, theory", "wait, measured", "burst"],
        ..Section::default()
    };
    let mut left_out = 0;
    for bits_per_second in [10e6, 100e6, 1e9] {
        let text = two_hosts(
            1500,
            &format!(
                "rate = \"{bits_per_second}bit/s\"\nrtt = \"0ms\"\nqueue = {{ packets = {QUEUE_PACKETS} }}\n"
            ),
        );
        let lab = TestLab::start(&setup.weir, &text, setup.seed)?;
        let through_fabric = lab.pair("left-0", "right-0")?;
        let veth = Veth::new()?;
        let mut arms: [Arm; 3] = Default::default();
        for round in 0..setup.rounds {
            let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
            for arm in order {
                if arm > 0 {
                    veth.shape(&shaper(arm, bits_per_second))?;
                }
                let pair = if arm == 0 { &through_fabric } else { &veth.pair };
                measure(&mut arms[arm], pair, bits_per_second, setup.seconds(1.0))?;
            }
        }
        let packet_seconds = WIRE_BYTES * 8.0 / bits_per_second;
        left_out += arms.iter().map(|arm| arm.left_out).sum::<usize>();
        for (name, arm) in ARMS.iter().zip(&arms) {
            let median = |values: &[f64]| Estimate::of(values).map(|found| found.median);
            let shown = |values: &[f64], show: fn(f64) -> String| {
                median(values).map_or_else(|| "none".to_owned(), show)
            };
            section.rows.push(vec![
                rate(Some(bits_per_second)),
                (*name).to_owned(),
                Estimate::of(&arm.errors)
                    .map_or_else(|| "none".to_owned(), |found| percent_with_interval(&found)),
                shown(&arm.burstiness, |value| format!("{value:.3}")),
                seconds((QUEUE_PACKETS + 1) as f64 * packet_seconds),
                shown(&arm.waits, seconds),
                shown(&arm.burst_errors, seconds),
            ]);
        }
    }
    if left_out > 0 {
        section.notes.push(format!(
            "{left_out} rounds are left out: other work on the machine kept the sender from filling the link."
        ));
    }
    section.notes.push(
        "The kernel has no part here that loses, delays or reorders: netem is not in every kernel (and not needed for a lab), so \
         delay, loss and reordering stand against theory alone."
            .to_owned(),
    );
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_has_even_windows_and_one_in_clumps_does_not() {
        let steady: Vec<u64> = (0..=1_000).map(|number| number * 1_000_000).collect();
        assert!((burstiness(&steady).unwrap() - 1.0).abs() < 1e-9);
        let clumps: Vec<u64> = (0..=1_000).map(|number| number / 40 * 40_000_000).collect();
        assert!(burstiness(&clumps).unwrap() > 3.9);
        assert_eq!(burstiness(&[0, 50_000_000]), None);
    }
}
