//! Kinds of faults of links: what a link can be set to, and what can meet some of its packets.

use super::{Act, FOR, FaultKind, FaultOn, time_of};
use crate::param::{Kind, Param, Values};
use crate::schedule::{Effect, Set};
use crate::time::nanoseconds;
use crate::units::{BitsPerSecond, duration_text, share};
use std::time::Duration;

pub const LINKS: &[FaultKind] = &[
    FaultKind {
        name: "outage",
        about: "Everything is lost.",
        on: FaultOn::Links,
        params: &[FOR],
        act: |_| Act::Link { whole: Some(Set::Outage(true)), packets: Some(Effect::Outage) },
        sentence: |values| format!("outage for {}", time_of(values)),
    },
    FaultKind {
        name: "rate",
        about: "The link has another rate.",
        on: FaultOn::Links,
        params: &[Param::new("to", Kind::Rate, "The rate meanwhile.").required().range(1.0, 1e14), FOR],
        act: |values| Act::Link { whole: Some(Set::Rate(Some(rate(values)))), packets: None },
        sentence: |values| format!("rate {} for {}", rate(values), time_of(values)),
    },
    FaultKind {
        name: "delay",
        about: "The link is longer.",
        on: FaultOn::Links,
        params: &[Param::delay("add", "What is added to the delay.").required(), FOR],
        act: |values| {
            let add_ns = nanoseconds(time(values, "add"));
            Act::Link { whole: Some(Set::DelayAdd(add_ns)), packets: Some(Effect::Delay(add_ns)) }
        },
        sentence: |values| {
            format!("{} more delay for {}", duration_text(time(values, "add")), time_of(values))
        },
    },
    FaultKind {
        name: "loss",
        about: "The link loses at random.",
        on: FaultOn::Links,
        params: &[
            Param::ratio("ratio", "Probability that a packet is lost meanwhile, instead of the link's own.")
                .required(),
            FOR,
        ],
        act: |values| {
            let ratio = ratio(values, "ratio");
            Act::Link { whole: Some(Set::Loss(Some(ratio))), packets: Some(Effect::Loss(ratio)) }
        },
        sentence: |values| format!("loss of {} for {}", share(ratio(values, "ratio")), time_of(values)),
    },
    FaultKind {
        name: "delay_some",
        about: "A share of the packets takes longer and may be overtaken.",
        on: FaultOn::Links,
        params: &[
            Param::ratio("share", "Share of the packets, evenly spread: 0.5 takes every second.").required(),
            Param::delay("by", "How much longer they take.").required(),
            FOR,
        ],
        act: |values| {
            let by_ns = nanoseconds(time(values, "by"));
            let packets = Some(Effect::DelaySome { share: ratio(values, "share"), by_ns });
            Act::Link { whole: None, packets }
        },
        sentence: |values| {
            let (some, by) = (share(ratio(values, "share")), duration_text(time(values, "by")));
            format!("{some} of the packets {by} later for {}", time_of(values))
        },
    },
    FaultKind {
        name: "corrupt",
        about: "The link inverts bits at random.",
        on: FaultOn::Links,
        params: &[
            Param::ratio(
                "ratio",
                "Probability that one bit of a packet is inverted meanwhile, instead of the link's own.",
            )
            .required(),
            FOR,
        ],
        act: |values| {
            let ratio = ratio(values, "ratio");
            Act::Link { whole: Some(Set::Corrupt(Some(ratio))), packets: Some(Effect::Corrupt(ratio)) }
        },
        sentence: |values| format!("corruption of {} for {}", share(ratio(values, "ratio")), time_of(values)),
    },
];

fn ratio(values: &Values, key: &str) -> f64 {
    values.ratio(key).unwrap_or_default()
}

fn rate(values: &Values) -> BitsPerSecond {
    values.rate("to").unwrap_or(BitsPerSecond(1))
}

fn time(values: &Values, key: &str) -> Duration {
    values.duration(key).unwrap_or_default()
}
