//! Jitter, reordering and corruption: what a wire does to packets beside delaying and losing them.

use super::section::{Section, Verdict, Worst, percent, seconds};
use super::statistics::{Z_95, Z_999, mean, quantile, share_interval};
use super::{Setup, two_hosts};
use crate::probe::capture::{Sighting, taken_up};
use crate::probe::lab::TestLab;
use crate::probe::udp::{self, Flights, Plan};
use std::time::Duration;
use weir_core::schedule::{Change, Effect, Match, Rule, Set};
use weir_core::topology::{Impairments, Jitter, Reorder, Topology};
use weir_sys::clock::monotonic;

const PER_SECOND: f64 = 50_000.0;
/// What a delay may be off: what the fabric may be late (99 %), and what the probe and the kernel take.
const DELAY_ERROR_MAX: f64 = 250e-6;
/// One way, of every link here.
const BASE_SECONDS: f64 = 2e-3;

struct Sent {
    flights: Flights,
    /// Of each packet that came, in seconds.
    delays: Vec<f64>,
    /// On the link in question (0) and the one behind it (1); nothing where they were not captured.
    seen: Vec<Sighting>,
}

/// Whether the lab says when it planned what it did. Writing that down costs it some of its punctuality.
#[derive(Clone, Copy, PartialEq)]
enum Captured {
    Yes,
    No,
}

fn send(
    setup: &Setup,
    impairments: Impairments,
    count: usize,
    per_second: f64,
    rule: Option<Effect>,
    captured: Captured,
) -> Result<Sent, String> {
    let text =
        two_hosts(1500, &format!("rtt = \"{}ms\"\nqueue = {{ bytes = \"16MiB\" }}\n", 2e3 * BASE_SECONDS));
    let change = |topology: &mut Topology| topology.links[0].forward.impairments = impairments;
    let mut lab = TestLab::start_changed(&setup.weir, &text, setup.seed, change)?;
    let wire = lab.link("link.wire.forward")?;
    if let Some(effect) = rule {
        let rule = Rule { matches: Match::default(), effect };
        let set = Set::Rule { number: 0, rule: Some(Box::new(rule)) };
        lab.schedule(&[Change { at_ns: monotonic().as_ns(), link: wire, set }])?;
    }
    let plan = Plan { count, ip_bytes: 64, per_second: Some(per_second), drain: Duration::from_millis(300) };
    let pair = lab.pair("left-0", "right-0")?;
    let _apart = lab.apart()?;
    let (flights, seen) = match captured {
        Captured::No => (udp::run(&pair, &plan)?, Vec::new()),
        Captured::Yes => {
            let path = lab.path("left-0", "right-0")?;
            let names: Vec<String> = path.iter().skip(1).map(|link| link.name.clone()).collect();
            lab.captured(&names, || udp::run(&pair, &plan))?
        }
    };
    let delays = flights.delays();
    if delays.is_empty() {
        return Err("no packet came through".to_owned());
    }
    Ok(Sent { flights, delays, seen })
}

/// Packets that came after one that was sent later (RFC 4737, type P reordered), each with its extent (section 4.2.1): how
/// many places before it the first of those came.
fn reordered(order: &[u32]) -> Vec<(u32, usize)> {
    let (mut next, mut found) = (0, Vec::new());
    // Arrivals that raised the highest number, by place: the first above a number is found by bisection.
    let mut rises: Vec<(u32, usize)> = Vec::new();
    for (place, number) in order.iter().enumerate() {
        if *number >= next {
            next = number + 1;
            rises.push((*number, place));
        } else {
            let first = rises.partition_point(|(rise, _)| rise < number);
            found.push((*number, place - rises[first].1));
        }
    }
    found
}

fn mean_extent(reordered: &[(u32, usize)]) -> String {
    let extents: Vec<f64> = reordered.iter().map(|(_, extent)| *extent as f64).collect();
    if extents.is_empty() { "none".to_owned() } else { format!("{:.1}", mean(&extents)) }
}

/// The order in which packets sent at these times arrive when some of them take longer.
fn expected_order(sent_ns: &[u64], late: impl Fn(usize) -> bool, by_ns: u64) -> Vec<u32> {
    let mut at: Vec<(u64, u32)> = sent_ns
        .iter()
        .enumerate()
        .map(|(number, sent)| (sent + if late(number) { by_ns } else { 0 }, number as u32))
        .collect();
    at.sort_unstable();
    at.into_iter().map(|(_, number)| number).collect()
}

pub fn reordering(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Reordering",
        text: vec![format!(
            "`reorder` delays a share of the packets, drawn at random; `delay_some` (here as a fault that lasts the whole time) delays the \
             same share evenly spread, 0.5 being every second one. Packets leave {PER_SECOND} times a second, so each one delayed is \
             overtaken by many, and no other is: *overtaken* packets came after one sent later (RFC 4737), and their *extent* is how \
             many places before them the first of those came. *Delay added* is their median delay less that of the rest. Theory applies \
             the delays to the times at which the packets were really sent: for `delay_some` to those that the rule must take, for \
             `reorder`, whose draws only the lab knows, to those that were overtaken.",
        )],
        head: vec![
            "what",
            "share",
            "by",
            "packets",
            "overtaken, 95 % interval",
            "delay added, median",
            "overtaken, theory",
            "overtaken",
            "mean extent, theory",
            "mean extent",
            "as asked",
        ],
        ..Section::default()
    };
    let (mut shares, mut orders, mut delays) = (Worst::default(), Worst::default(), Worst::default());
    for (name, share, by_ms) in
        [("reorder", 0.01, 1.0), ("reorder", 0.2, 5.0), ("delay_some", 0.5, 2.0), ("delay_some", 0.1, 10.0)]
    {
        let even = name == "delay_some";
        let count = setup.packets(1_000_000);
        let by_seconds = by_ms / 1e3;
        let by_ns = (by_ms * 1e6) as u64;
        let (impairments, rule) = match even {
            true => (Impairments::default(), Some(Effect::DelaySome { share, by_ns })),
            false => {
                (Impairments { reorder: Some(Reorder { share, by_ns }), ..Impairments::default() }, None)
            }
        };
        let sent = send(setup, impairments, count, PER_SECOND, rule, Captured::No)?;
        let seen = reordered(&sent.flights.order);
        let mut is_late = vec![false; count];
        seen.iter().for_each(|(number, _)| is_late[*number as usize] = true);
        let came = |late: bool| {
            let of_kind =
                (0..count).filter(|number| is_late[*number] == late && sent.flights.received_ns[*number] > 0);
            of_kind.map(|number| sent.flights.delay(number)).collect::<Vec<f64>>()
        };
        let (late, prompt) = (came(true), came(false));
        if late.is_empty() || prompt.is_empty() {
            return Err(format!("{name}: all packets or none were overtaken"));
        }
        let (found, total) = (late.len() as u64, sent.delays.len() as u64);
        let (low, high) = share_interval(found, total, Z_95);
        let (least, most) = share_interval(found, total, Z_999);
        // An even share is exact but for the last packet; one that this machine held up for long can look delayed.
        let off = (found as f64 / total as f64 - share).abs();
        let share_verdict = match even {
            true => Verdict::of(off * total as f64 <= 1.0 + 1e-4 * total as f64),
            false => Verdict::of((least..=most).contains(&share)),
        };
        let deviations = off / (share * (1.0 - share) / total as f64).sqrt();
        let shown = format!(
            "{} for {} ({deviations:.2} standard deviations)",
            percent(found as f64 / total as f64, 4),
            percent(share, 4)
        );
        shares.see(share_verdict, deviations, shown);
        let added = quantile(&late, 0.5) - quantile(&prompt, 0.5);
        let delay_off = (added - by_seconds).abs();
        let delay_verdict = Verdict::of(delay_off <= DELAY_ERROR_MAX);
        delays.see(delay_verdict, delay_off, format!("{} for {by_ms} ms ({name})", seconds(added)));
        let every = |number: usize| ((number as f64 + 1.0) * share).floor() > (number as f64 * share).floor();
        let theory = match even {
            true => expected_order(&sent.flights.sent_ns, every, by_ns),
            false => expected_order(&sent.flights.sent_ns, |number| is_late[number], by_ns),
        };
        let theory = reordered(&theory);
        let order_off = (seen.len() as f64 - theory.len() as f64).abs() / theory.len().max(1) as f64;
        let order_verdict = Verdict::of(order_off <= 0.005);
        orders.see(order_verdict, order_off, format!("{} for {} ({name})", seen.len(), theory.len()));
        section.rows.push(vec![
            name.to_owned(),
            percent(share, 4),
            format!("{by_ms} ms"),
            format!("{total}"),
            format!(
                "{} ({} to {})",
                percent(found as f64 / total as f64, 4),
                percent(low, 4),
                percent(high, 4)
            ),
            seconds(added),
            format!("{}", theory.len()),
            format!("{}", seen.len()),
            mean_extent(&theory),
            mean_extent(&seen),
            share_verdict.max(order_verdict).max(delay_verdict).word().to_owned(),
        ]);
    }
    section.claims.extend(
        shares.claim(
            "the share of packets delayed is the one asked for",
            "binomial interval; even shares 0.01 %",
        ),
    );
    section
        .claims
        .extend(delays.claim("and they are delayed by as much as asked", "± 250 µs, probe included"));
    section.claims.extend(orders.claim("as many packets are overtaken as the delays make", "± 0.5 %"));
    Ok(section)
}

/// By how much the median and the 99 % point of additions miss those of even draws from 0 to `by`, beyond the sampling error.
fn uneven(added: &[f64], by_seconds: f64) -> f64 {
    // Standard deviation of a sample quantile q of n even draws over `by`: by √(q(1 − q)/n).
    let beyond = |share: f64| {
        let sampling = Z_999 * by_seconds * (share * (1.0 - share) / added.len() as f64).sqrt();
        (quantile(added, share) - share * by_seconds).abs() - sampling
    };
    beyond(0.5).max(beyond(0.99)).max(0.0)
}

pub fn jitter(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Jitter",
        text: vec![
            "`jitter` draws an addition to the delay for each packet, even from 0 to `by`. Theory for packets far enough apart: a mean of \
             by/2, a median of by/2, 1 % above 0.99 by. *Planned* is what the lab added by its own instants (from a capture, of packets of \
             their own). In what was measured the fastest packet's delay stands for what kernel and probe take."
                .to_owned(),
        ],
        head: vec![
            "by",
            "may overtake",
            "packets",
            "median, theory",
            "planned",
            "measured",
            "99 %, theory",
            "planned",
            "measured",
            "overtaken",
            "as asked",
        ],
        ..Section::default()
    };
    let [mut plan_shape, mut shape, mut kept_order] = <[Worst; 3]>::default();
    let mut left_out = 0;
    for (by_ms, overtaking) in [(2.0, true), (2.0, false), (20.0, true)] {
        let by_seconds = by_ms / 1e3;
        // Without overtaking, one packet a `by`: else the late ones hold back those behind them, and the shape is another.
        let per_second = if overtaking { 10_000.0 } else { 1.0 / by_seconds };
        let count = if overtaking { setup.packets(50_000) } else { setup.packets(5_000) };
        let own = Jitter { by_ns: (by_ms * 1e6) as u64, reorder: overtaking };
        let impairments = Impairments { jitter: Some(own), ..Impairments::default() };

        let captured = send(setup, impairments, count, per_second, None, Captured::Yes)?;
        let [from, to] = [0, 1].map(|link| taken_up(&captured.seen, link, count));
        let planned: Vec<f64> = from
            .iter()
            .zip(&to)
            .filter_map(|(from, to)| Some(((*to)? as f64 - (*from)? as f64) / 1e9 - BASE_SECONDS))
            .collect();
        if planned.is_empty() {
            return Err("a capture has no packet of the probe's".to_owned());
        }
        let off = uneven(&planned, by_seconds);
        let [least, most] = [0.0, 1.0].map(|share| quantile(&planned, share));
        // A nanosecond for what halves of it the arithmetic leaves.
        let plan_verdict = Verdict::of(off == 0.0 && least > -1e-9 && most < by_seconds + 1e-9);
        plan_shape.see(plan_verdict, off, format!("{} beyond it, by {by_ms} ms", seconds(off)));

        let sent = send(setup, impairments, count, per_second, None, Captured::No)?;
        let calm = sent.flights.undisturbed_delays();
        left_out += sent.delays.len() - calm.len();
        if calm.is_empty() {
            return Err("the probe's core stood still all the time: weir doctor".to_owned());
        }
        let fastest = quantile(&calm, 0.0);
        let added: Vec<f64> = calm.iter().map(|delay| delay - fastest).collect();
        let off = uneven(&added, by_seconds);
        let shape_verdict = Verdict::of(off <= DELAY_ERROR_MAX);
        shape.see(shape_verdict, off, format!("{} beyond the sampling error, by {by_ms} ms", seconds(off)));
        let overtaken = reordered(&sent.flights.order).len();
        let order_verdict = Verdict::of(overtaking == (overtaken > 0));
        // Of rows that are as asked the one in which none may overtake is shown.
        let (figure, who) = if overtaking { (-1.0, "some") } else { (overtaken as f64, "none") };
        kept_order.see(order_verdict, figure, format!("{overtaken} overtaken where {who} may"));
        let [median, p99] = [0.5, 0.99].map(|share| {
            [share * by_seconds, quantile(&planned, share), quantile(&added, share)].map(seconds)
        });
        section.rows.push(
            [
                format!("{by_ms} ms"),
                if overtaking { "yes" } else { "no" }.to_owned(),
                format!("{}", added.len()),
            ]
            .into_iter()
            .chain(median)
            .chain(p99)
            .chain([
                format!("{overtaken}"),
                plan_verdict.max(shape_verdict).max(order_verdict).word().to_owned(),
            ])
            .collect(),
        );
    }
    section.notes.push(format!(
        "Of the measured packets {left_out} were left out: they were on their way while the probe, which never sleeps, saw no time pass for \
         {} or longer.",
        seconds(udp::LOOK_MAX.as_secs_f64())
    ));
    section.claims.extend(plan_shape.claim(
        "jitter is planned even from 0 to what was asked",
        "the sampling error (99.9 %), none outside",
    ));
    section.claims.extend(shape.claim("and packets meet it so", "± 250 µs, probe included"));
    section.claims.extend(kept_order.claim("and overtakes only where it may", "0 overtaken"));
    Ok(section)
}

pub fn corruption(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Corruption",
        text: vec![
            "`corrupt` inverts one bit of a packet. The receiver's kernel finds it by the checksum of IP or UDP and drops the packet, so a \
             damaged packet is a missing one; a bit of the header that no checksum covers (none in IPv4) would still deliver it. Every \
             packet that came was compared with what was sent, byte by byte."
                .to_owned(),
        ],
        head: vec!["asked for", "sent", "missing", "share, 95 % interval", "came with wrong contents", "within 99.9 %"],
        ..Section::default()
    };
    let (mut shares, mut contents) = (Worst::default(), Worst::default());
    for corrupt in [1e-3, 1e-2] {
        let count = setup.packets(1_000_000);
        let sent = {
            let own = Impairments { corrupt, ..Impairments::default() };
            send(setup, own, count, PER_SECOND, None, Captured::No)?
        };
        let missing = (count - sent.flights.received()) as u64;
        let share = missing as f64 / count as f64;
        let (low, high) = share_interval(missing, count as u64, Z_95);
        let (least, most) = share_interval(missing, count as u64, Z_999);
        let verdict = Verdict::of((least..=most).contains(&corrupt));
        shares.see(
            verdict,
            (share - corrupt).abs() / corrupt,
            format!("{} for {}", percent(share, 4), percent(corrupt, 4)),
        );
        let wrong = sent.flights.damaged;
        contents.see(Verdict::of(wrong == 0), wrong as f64, format!("{wrong}"));
        section.rows.push(vec![
            percent(corrupt, 4),
            format!("{count}"),
            format!("{missing}"),
            format!("{} ({} to {})", percent(share, 4), percent(low, 4), percent(high, 4)),
            format!("{wrong}"),
            verdict.word().to_owned(),
        ]);
    }
    section
        .claims
        .extend(shares.claim("the share of packets corrupted is the one asked for", "binomial interval"));
    section
        .claims
        .extend(contents.claim("and the receiver's kernel notices every one", "0 with wrong contents"));
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_reordered_by_the_places_since_the_first_that_overtook_it() {
        assert_eq!(reordered(&[0, 1, 2, 3]), []);
        // 1 was overtaken by 2 first, two places before it.
        assert_eq!(reordered(&[0, 2, 3, 1, 4]), [(1, 2)]);
        // RFC 4737 8.2, figure with 2 and 3 after 4: extents 1 and 2.
        assert_eq!(reordered(&[1, 4, 2, 3, 5]), [(2, 1), (3, 2)]);
    }

    #[test]
    fn delays_make_the_order_that_the_times_give() {
        let order = expected_order(&[0, 10, 20, 30, 40], |number| number % 2 == 1, 25);
        assert_eq!(order, [0, 2, 1, 4, 3]);
    }
}
