//! What happens to links while a trial runs: the faults of a scenario, resolved to single changes.

use crate::units::BitsPerSecond;
use serde::{Deserialize, Serialize};

/// One change of one directed link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When, in nanoseconds: relative to the trial's start in a plan, on the experiment's clock once it has begun.
    pub at_ns: u64,
    /// Index of the directed link, as `topology::DirectedLink` numbers them.
    pub link: usize,
    pub set: Set,
}

/// Each kind is independent of the others, and setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// While true every packet that arrives at the link, or would leave its serialiser, is lost.
    Outage(bool),
    /// `None` restores the link's own rate.
    Rate(Option<BitsPerSecond>),
    /// Added to the link's own delay, in nanoseconds; 0 restores it.
    DelayAdd(u64),
    /// Probability of loss instead of the link's own; `None` restores it.
    Loss(Option<f64>),
    /// Probability that a bit is inverted instead of the link's own; `None` restores it.
    Corrupt(Option<f64>),
    /// What happens to the packets that match, beside all else; `None` ends the rule with this number.
    Rule { number: u32, rule: Option<Box<Rule>> },
}

impl Set {
    /// Settings of one slot replace each other; rules have one each.
    pub fn slot(&self) -> u32 {
        match self {
            Set::Outage(_) => 0,
            Set::Rate(_) => 1,
            Set::DelayAdd(_) => 2,
            Set::Loss(_) => 3,
            Set::Corrupt(_) => 4,
            Set::Rule { number, .. } => RULES_FROM.saturating_add(*number),
        }
    }

    /// What ends it: the link is its own again.
    pub fn undone(&self) -> Set {
        match self {
            Set::Outage(_) => Set::Outage(false),
            Set::Rate(_) => Set::Rate(None),
            Set::DelayAdd(_) => Set::DelayAdd(0),
            Set::Loss(_) => Set::Loss(None),
            Set::Corrupt(_) => Set::Corrupt(None),
            Set::Rule { number, .. } => Set::Rule { number: *number, rule: None },
        }
    }
}

/// Slots of rules come after those of the whole-link settings.
const RULES_FROM: u32 = 5;

/// An effect on some of a link's packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    pub matches: Match,
    pub effect: Effect,
}

/// Which packets: every condition given must hold; none given means all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Match {
    /// Sending hosts by index in the topology, sorted; empty: any.
    pub from: Vec<u32>,
    /// Receiving hosts by index in the topology, sorted; empty: any.
    pub to: Vec<u32>,
    /// Port of either end, for TCP and UDP.
    pub port: Option<u16>,
    pub protocol: Option<Protocol>,
    /// Of the packets that meet the conditions this share, evenly spread (0.5 takes every second); 1 takes all.
    pub share: f64,
}

impl Default for Match {
    /// Every packet.
    fn default() -> Self {
        Match { from: Vec::new(), to: Vec::new(), port: None, protocol: None, share: 1.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Tcp,
    Udp,
    Icmp,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Every packet that matches is lost.
    Outage,
    /// Probability of loss, beside the link's own.
    Loss(f64),
    /// Probability that a bit is inverted, beside the link's own.
    Corrupt(f64),
    /// Added to the delay, in nanoseconds; packets of one flow stay in order among themselves.
    Delay(u64),
    /// The share of the matching packets, evenly spread (0.5 takes every second), takes longer and may be overtaken. Of a match
    /// that itself takes a share, a share of that.
    DelaySome { share: f64, by_ns: u64 },
}
