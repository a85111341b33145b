//! Random and bursty loss against the probabilities asked for.

use super::section::{Section, Verdict, Worst, percent};
use super::statistics::{Bursts, Z_95, Z_999, mean, runs_of_losses, share_interval};
use super::{Setup, two_hosts};
use crate::probe::lab::{Counters, TestLab};
use crate::probe::udp::{self, Flights, Plan};
use std::time::Duration;
use weir_core::fabric_page::link;
use weir_core::topology::{BurstLoss, Direction};

/// What the fabric splits and forwards with room to spare.
const PER_SECOND: f64 = 80_000.0;

/// The packets of one link, and how many of them the fabric says it lost.
struct Sent {
    flights: Flights,
    lost_by_fabric: u64,
}

impl Sent {
    fn count(&self) -> u64 {
        self.flights.sent_ns.len() as u64
    }
    fn missing(&self) -> u64 {
        self.count() - self.flights.received() as u64
    }
}

fn send(setup: &Setup, change: impl FnOnce(&mut Direction)) -> Result<Sent, String> {
    let text = two_hosts(1500, "rtt = \"2ms\"\nqueue = { bytes = \"16MiB\" }\n");
    let lab = TestLab::start_changed(&setup.weir, &text, setup.seed, |topology| {
        change(&mut topology.links[0].forward)
    })?;
    let wire = lab.link("link.wire.forward")?;
    let plan = Plan {
        count: setup.packets(1_000_000),
        ip_bytes: 64,
        per_second: Some(PER_SECOND),
        drain: Duration::from_millis(200),
    };
    let before = lab.counters();
    let flights = udp::run(&lab.pair("left-0", "right-0")?, &plan)?;
    let after = lab.counters();
    let lost = |counters: &Counters| {
        counters.link(wire, link::DROPPED_LOSS) + counters.link(wire, link::DROPPED_BURST_LOSS)
    };
    let lost_by_fabric = lost(&after) - lost(&before);
    Ok(Sent { flights, lost_by_fabric })
}

pub fn random(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Random loss",
        text: vec![format!(
            "{} packets through a link with `loss`, drawn for each packet. The interval is Wilson's for a binomial share (95 %); a row \
             is kept when the probability asked for lies within the 99.9 % interval, because of a dozen 95 % intervals of a perfect \
             lab one would often miss. *Unaccounted* packets neither came nor were lost by the fabric's own count.",
            setup.packets(1_000_000)
        )],
        head: vec!["asked for", "sent", "lost", "share, 95 % interval", "unaccounted", "within 99.9 %"],
        ..Section::default()
    };
    let (mut worst, mut accounts) = (Worst::default(), Worst::default());
    for loss in [1e-4, 1e-3, 1e-2, 0.1, 0.5] {
        let sent = send(setup, |forward| forward.loss = loss)?;
        let (lost, count) = (sent.missing(), sent.count());
        let share = lost as f64 / count as f64;
        let (low, high) = share_interval(lost, count, Z_95);
        let (least, most) = share_interval(lost, count, Z_999);
        let verdict = Verdict::of((least..=most).contains(&loss));
        let deviations = (share - loss).abs() / (loss * (1.0 - loss) / count as f64).sqrt();
        worst.see(
            verdict,
            deviations,
            format!("{} for {} ({deviations:.1} standard deviations)", percent(share, 4), percent(loss, 4)),
        );
        let unaccounted = lost.abs_diff(sent.lost_by_fabric);
        accounts.see(Verdict::of(unaccounted == 0), unaccounted as f64, format!("{unaccounted}"));
        section.rows.push(vec![
            percent(loss, 4),
            format!("{count}"),
            format!("{lost}"),
            format!("{} ({} to {})", percent(share, 4), percent(low, 4), percent(high, 4)),
            format!("{unaccounted}"),
            verdict.word().to_owned(),
        ]);
    }
    section.claims.extend(worst.claim("the share of packets lost is the one asked for", "binomial interval"));
    section.claims.extend(
        accounts.claim("every packet that did not come is counted by the link that lost it", "0 unaccounted"),
    );
    Ok(section)
}

pub fn bursty(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Bursty loss",
        text: vec![
            "The same with `burst_loss`, a Gilbert-Elliott chain. Losses in clumps make the share vary more than a binomial one: its \
             interval is the one that the chain's own correlation gives. A *run* is a row of packets lost one after the other; its mean \
             length is 1 / (1 − (1 − 1/length) × loss)."
                .to_owned(),
        ],
        head: vec![
            "in bad state", "stay there", "loss there", "share, theory", "share, measured", "run, theory", "run, measured", "runs", "within 99.9 %",
        ],
        ..Section::default()
    };
    let (mut shares, mut lengths) = (Worst::default(), Worst::default());
    for chain in [
        Bursts { bad: 0.01, length_packets: 5.0, loss: 1.0 },
        Bursts { bad: 0.01, length_packets: 50.0, loss: 0.5 },
        Bursts { bad: 0.1, length_packets: 10.0, loss: 0.8 },
    ] {
        let Bursts { bad, length_packets, loss } = chain;
        let burst_loss = Some(BurstLoss { bad, length_packets, loss });
        let sent = send(setup, |forward| forward.impairments.burst_loss = burst_loss)?;
        let (lost, count) = (sent.missing(), sent.count());
        let share = lost as f64 / count as f64;
        let runs: Vec<f64> =
            runs_of_losses(&sent.flights.received_ns).into_iter().map(|length| length as f64).collect();
        if runs.is_empty() {
            return Err("a link with bursty loss lost nothing".to_owned());
        }
        let run = mean(&runs);
        let share_off = (share - chain.share()) / chain.share_deviation(count);
        let run_off = (run - chain.run_length()) / chain.run_deviation(runs.len() as u64);
        let (share_kept, run_kept) =
            (Verdict::of(share_off.abs() <= Z_999), Verdict::of(run_off.abs() <= Z_999));
        shares.see(
            share_kept,
            share_off.abs(),
            format!(
                "{} for {} ({:.1} standard deviations)",
                percent(share, 4),
                percent(chain.share(), 4),
                share_off.abs()
            ),
        );
        lengths.see(
            run_kept,
            run_off.abs(),
            format!("{run:.3} for {:.3} ({:.1} standard deviations)", chain.run_length(), run_off.abs()),
        );
        section.rows.push(vec![
            percent(chain.bad, 4),
            format!("{} packets", chain.length_packets),
            format!("{}", chain.loss),
            percent(chain.share(), 4),
            format!("{} ± {}", percent(share, 4), percent(Z_95 * chain.share_deviation(count), 4)),
            format!("{:.3}", chain.run_length()),
            format!("{run:.3} ± {:.3}", Z_95 * chain.run_deviation(runs.len() as u64)),
            format!("{}", runs.len()),
            share_kept.max(run_kept).word().to_owned(),
        ]);
    }
    section.claims.extend(shares.claim("bursty loss takes the share asked for", "interval of the chain"));
    section.claims.extend(lengths.claim("in runs of the length asked for", "interval of the mean"));
    Ok(section)
}
