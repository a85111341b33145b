//! Kinds of faults: what may stand in `do` of a `[[fault]]`. Each is declared once, by who owns what it happens to, and joined by the
//! registry (decision 0030).

pub mod links;

use crate::param::{Kind, Param, Values};
use crate::scenario::FAULT_KEYS;
use crate::schedule::{Effect, Set};
use crate::units::duration_text;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultKind {
    /// As `do` names it.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// What it may be on.
    pub on: FaultOn,
    /// Its keys; `for` ([`FOR`]) says how long it lasts, and without it a fault has no end.
    pub params: &'static [Param],
    /// What is done for these values.
    pub act: fn(&Values) -> Act,
    /// What happens, in words that go on with "on HOST" or stand alone: "loss of 3 % for 2 s".
    pub sentence: fn(&Values) -> String,
}

/// How long a fault lasts, for kinds that must end.
pub const FOR: Param = Param::new("for", Kind::Duration, "How long.").required().range(1.0, FOR_MAX_NS);
/// Thirty days.
pub const FOR_MAX_NS: f64 = 30.0 * 86_400e9;

/// What `for` says, in words.
pub fn time_of(values: &Values) -> String {
    duration_text(values.duration(FOR.name).unwrap_or_default())
}

/// What a kind of fault may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    Links,
    /// All processes of hosts, or those of a service's role.
    Processes,
    /// A service's role whose recipe says how its daemons are told.
    Daemons,
    /// Disks of services.
    Disks,
}

impl FaultOn {
    /// What it happens to, for people.
    pub fn plural(self) -> &'static str {
        match self {
            FaultOn::Links => "packets",
            FaultOn::Processes | FaultOn::Daemons => "processes",
            FaultOn::Disks => "disks",
        }
    }
}

/// What a run can do to what it loads.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A whole link is set so while it lasts; or an effect meets the packets that match. One may be missing: a rate is of no packets, and
    /// some packets can be late while a whole link cannot.
    Link { whole: Option<Set>, packets: Option<Effect> },
    /// Processes stand still, and go on after.
    Stop,
    /// Processes are killed, and started again after.
    Kill,
    /// Daemons get nobody new, and are in service again after.
    Drain,
    /// Disks are in trouble, and well after.
    Disk(DiskTrouble),
}

impl Act {
    /// What it can be done to.
    pub fn on(&self) -> FaultOn {
        match self {
            Act::Link { .. } => FaultOn::Links,
            Act::Stop | Act::Kill => FaultOn::Processes,
            Act::Drain => FaultOn::Daemons,
            Act::Disk(_) => FaultOn::Disks,
        }
    }
}

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DiskTrouble {
    /// Everything takes so many times as long.
    pub slow: f64,
    /// Share of reads and writes that fail, evenly spread, and the number of their error.
    pub error_ratio: f64,
    pub error_code: i32,
    pub is_full: bool,
    /// Reads and writes are answered when it is over.
    pub is_stuck: bool,
}

impl Default for DiskTrouble {
    /// Nothing is wrong.
    fn default() -> DiskTrouble {
        DiskTrouble { slow: 1.0, error_ratio: 0.0, error_code: 5, is_full: false, is_stuck: false }
    }
}

/// The kinds that a scenario may have, and the keys of `[[fault]]` with them.
#[derive(Clone, Copy, Debug)]
pub struct FaultKinds {
    kinds: &'static [FaultKind],
    keys: &'static [Param],
}

impl FaultKinds {
    pub const NONE: FaultKinds = FaultKinds { kinds: &[], keys: FAULT_KEYS };

    /// Joins the owners' kinds. For once a program: it keeps what it makes for ever, as declarations live.
    pub fn join(slices: &[&[FaultKind]]) -> FaultKinds {
        let kinds: &'static [FaultKind] = slices.concat().leak();
        let table = |kind: &FaultKind| Param::new(kind.name, Kind::Table(kind.params), kind.about);
        let tables: &'static [Param] = kinds.iter().map(table).collect::<Vec<_>>().leak();
        let with_kinds = |param: &Param| match param.name {
            "do" => Param { kind: Kind::Table(tables), ..*param },
            _ => *param,
        };
        let keys = FAULT_KEYS.iter().map(with_kinds).collect::<Vec<_>>().leak();
        FaultKinds { kinds, keys }
    }

    /// The keys of `[[fault]]`, `do` with every kind.
    pub fn keys(&self) -> &'static [Param] {
        self.keys
    }

    pub fn all(&self) -> &'static [FaultKind] {
        self.kinds
    }

    pub fn find(&self, name: &str) -> Option<&'static FaultKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// Names of the kinds for which `is_meant` holds, for a sentence: "slow, errors and full".
    pub fn names(&self, is_meant: impl Fn(&FaultKind) -> bool) -> String {
        let names: Vec<&str> =
            self.kinds.iter().filter(|kind| is_meant(kind)).map(|kind| kind.name).collect();
        match names.as_slice() {
            [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
            _ => names.concat(),
        }
    }
}

/// How long a fault of these values lasts; `None`: it has no end.
pub fn duration_of(values: &Values) -> Option<Duration> {
    values.duration(FOR.name)
}

/// Claims every kind must keep.
pub mod conformance {
    use super::{Act, FOR, FaultKind};
    use crate::Value;
    use crate::param::{Kind, Param, Values};
    use crate::units::{BitsPerSecond, Bytes};
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// Names are told apart, each kind says what it is, and what it does to any values is of what it says it is on.
    pub fn check_all(kinds: &[FaultKind]) {
        let mut seen = BTreeSet::new();
        for kind in kinds {
            assert!(seen.insert(kind.name), "two kinds of fault are called {}", kind.name);
            assert!(kind.about.ends_with('.'), "{}: {:?} is no sentence", kind.name, kind.about);
            for least in [true, false] {
                let values = Values(
                    kind.params.iter().map(|param| (param.name.to_owned(), value_of(param, least))).collect(),
                );
                let act = (kind.act)(&values);
                assert_eq!(act.on(), kind.on, "{}", kind.name);
                assert!(act != Act::Link { whole: None, packets: None }, "{} does nothing", kind.name);
                let sentence = (kind.sentence)(&values);
                assert!(!sentence.is_empty() && !sentence.contains('\n'), "{}: {sentence:?}", kind.name);
                let Some(of) = kind.params.iter().find(|param| param.name == FOR.name) else { continue };
                assert_eq!(of.kind, Kind::Duration, "{}", kind.name);
            }
        }
    }

    /// The least or the greatest that a parameter takes.
    fn value_of(param: &Param, least: bool) -> Value {
        let bound = if least { param.range.0 } else { param.range.1 };
        let number = if bound.is_finite() { bound } else { f64::from(u8::from(!least)) };
        match param.kind {
            Kind::Duration => Value::Duration(Duration::from_nanos(number as u64)),
            Kind::Ratio => Value::Ratio(number),
            Kind::Rate => Value::Rate(BitsPerSecond(number as u64)),
            Kind::Size => Value::Size(Bytes(number as u64)),
            Kind::Count => Value::Count(number as u64),
            Kind::Flag => Value::Flag(!least),
            Kind::Choice(choices) => {
                Value::Text(choices[if least { 0 } else { choices.len() - 1 }].to_owned())
            }
            kind => panic!("{}: a fault has no parameters like {kind:?}", param.name),
        }
    }
}
