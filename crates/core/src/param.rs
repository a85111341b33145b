//! A parameter is declared once, here or in a registry entry; the command line, `weir explain`, the scenario decoder
//! and the guide derive from the declaration.

mod member;

pub use member::{MEMBER_NAME, Member, MemberSchema, Seam, takes_no};

use crate::units::{self, BitsPerSecond, Bytes, Hertz, UnitError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text, or a list of them.
    Texts,
    /// One of a closed list.
    Choice(&'static [&'static str]),
    /// A plain whole number.
    Count,
    /// A plain number, or with `%` or `ppm`.
    Ratio,
    /// `1Gbit/s`
    Rate,
    /// `64KiB`
    Size,
    /// `16ms`
    Duration,
    /// `200Hz`
    Frequency,
    /// `true` or `false`
    Flag,
    /// A host name, a glob or a list of either.
    Hosts,
    /// What is loaded: a path, a URL, or `service:NAME/PATH`.
    Target,
    /// A user's name or number.
    Account,
    /// Tables of options by engine, which the engines' recipes declare.
    Options,
    /// A nested table with its own keys.
    Table(&'static [Param]),
    /// A table whose keys are names of the scenario, each with a value of this parameter's kind.
    Map(&'static Param),
    /// A member of a seam: its name, or a table of `name` and the member's own parameters.
    Member(&'static Seam),
}

/// One parameter's declaration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    /// The default as it would be written in a scenario; `None`: no default (optional unless `required`).
    pub default: Option<&'static str>,
    pub required: bool,
    /// Inclusive bounds in the base unit (bits/s, bytes, ns for durations, hertz, ratio); ±infinity for none.
    pub range: (f64, f64),
    /// One sentence for `weir explain` and the guide.
    pub about: &'static str,
    /// Every point says it, swept or not, a size in bytes.
    pub is_in_points: bool,
    /// The value with which the step's hosts speak over the auxiliary network.
    pub auxiliary: Option<&'static str>,
}

impl Param {
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        let range = (f64::NEG_INFINITY, f64::INFINITY);
        let (default, required, is_in_points, auxiliary) = (None, false, false, None);
        Param { name, kind, default, required, range, about, is_in_points, auxiliary }
    }
    /// A share or a probability.
    pub const fn ratio(name: &'static str, about: &'static str) -> Self {
        Param::new(name, Kind::Ratio, about).range(0.0, 1.0)
    }
    /// A time by which something is later: an hour at most.
    pub const fn delay(name: &'static str, about: &'static str) -> Self {
        Param::new(name, Kind::Duration, about).range(0.0, 3_600e9)
    }
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }
    pub const fn range(mut self, least: f64, most: f64) -> Self {
        self.range = (least, most);
        self
    }
    pub const fn in_points(mut self) -> Self {
        self.is_in_points = true;
        self
    }
    pub const fn auxiliary(mut self, value: &'static str) -> Self {
        self.auxiliary = Some(value);
        self
    }
    /// Whether a value lies in the range, whose numbers are of the base unit, of durations nanoseconds.
    pub fn allows(&self, value: &Value) -> bool {
        let number = match value {
            Value::Duration(duration) => Some(duration.as_nanos() as f64),
            other => other.as_number(),
        };
        number.is_none_or(|number| (self.range.0..=self.range.1).contains(&number))
    }
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    Text(String),
    Count(u64),
    Ratio(f64),
    Rate(BitsPerSecond),
    Size(Bytes),
    /// In nanoseconds on the wire.
    #[serde(with = "duration_ns")]
    Duration(Duration),
    Frequency(Hertz),
    Flag(bool),
    List(Vec<Value>),
    Table(BTreeMap<String, Value>),
}

/// What a scalar is written as in TOML, before its kind is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw<'a> {
    Text(&'a str),
    Integer(i64),
    Float(f64),
    Flag(bool),
}

impl Value {
    /// Reads a scalar as `kind`. Errors say what was expected and give an example; the caller adds the place.
    /// `Table` and lists are the caller's to walk.
    pub fn from_raw(kind: Kind, raw: &Raw<'_>) -> Result<Value, UnitError> {
        let wrong = |expected: &str| {
            let found = match raw {
                Raw::Text(text) => format!("the text {text:?}"),
                Raw::Integer(number) => format!("the plain number {number}"),
                Raw::Float(number) => format!("the plain number {number}"),
                Raw::Flag(flag) => format!("{flag}"),
            };
            Err(UnitError { problem: format!("expected {expected}, found {found}") })
        };
        match (kind, raw) {
            (Kind::Text | Kind::Texts | Kind::Hosts | Kind::Target, Raw::Text(text)) => {
                Ok(Value::Text((*text).to_owned()))
            }
            (Kind::Text | Kind::Texts | Kind::Hosts | Kind::Target, _) => wrong("a text in quotes"),
            (Kind::Account, Raw::Text(text)) if !text.is_empty() => Ok(Value::Text((*text).to_owned())),
            (Kind::Account, Raw::Integer(number)) if u32::try_from(*number).is_ok() => {
                Ok(Value::Text(number.to_string()))
            }
            (Kind::Account, _) => wrong("a user's name in quotes or a number"),
            (Kind::Choice(choices), Raw::Text(text)) => {
                if choices.contains(text) {
                    Ok(Value::Text((*text).to_owned()))
                } else {
                    wrong(&format!("one of {}", quoted(choices)))
                }
            }
            (Kind::Choice(choices), _) => wrong(&format!("one of {}", quoted(choices))),
            (Kind::Count, Raw::Integer(number)) => match u64::try_from(*number) {
                Ok(number) => Ok(Value::Count(number)),
                Err(_) => wrong("a whole number, zero or more"),
            },
            (Kind::Count, _) => wrong("a whole number without quotes"),
            (Kind::Ratio, Raw::Integer(number)) => Ok(Value::Ratio(*number as f64)),
            (Kind::Ratio, Raw::Float(number)) if number.is_finite() => Ok(Value::Ratio(*number)),
            (Kind::Ratio, Raw::Text(text)) => Ok(Value::Ratio(units::parse_ratio(text)?)),
            (Kind::Ratio, _) => wrong("a ratio like \"2%\" or 0.02"),
            (Kind::Rate, Raw::Text(text)) => Ok(Value::Rate(BitsPerSecond::parse(text)?)),
            (Kind::Rate, _) => wrong("a rate with its unit, like \"1Gbit/s\""),
            (Kind::Size, Raw::Text(text)) => Ok(Value::Size(Bytes::parse(text)?)),
            (Kind::Size, _) => wrong("a size with its unit, like \"64KiB\""),
            (Kind::Duration, Raw::Text(text)) => Ok(Value::Duration(units::parse_duration(text)?)),
            (Kind::Duration, _) => wrong("a time with its unit, like \"16ms\""),
            (Kind::Frequency, Raw::Text(text)) => Ok(Value::Frequency(Hertz::parse(text)?)),
            (Kind::Frequency, _) => wrong("a frequency with its unit, like \"200Hz\""),
            (Kind::Flag, Raw::Flag(flag)) => Ok(Value::Flag(*flag)),
            (Kind::Flag, _) => wrong("true or false"),
            (Kind::Table(_), _) => wrong("a table like { key = value }"),
            (Kind::Options, _) => wrong("a table like { engine = { option = value } }"),
            (Kind::Map(_), _) => wrong("a table like { name = value }"),
            (Kind::Member(seam), Raw::Text(text)) => seam.read(text),
            (Kind::Member(_), _) => wrong("a name, or a table of it and its parameters"),
        }
    }

    /// The value in its base unit (bit/s, bytes, **seconds**, hertz, ratio, count), for comparing and plotting.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Count(number) => Some(*number as f64),
            Value::Ratio(number) => Some(*number),
            Value::Rate(rate) => Some(rate.as_f64()),
            Value::Size(size) => Some(size.0 as f64),
            Value::Duration(duration) => Some(duration.as_secs_f64()),
            Value::Frequency(frequency) => Some(frequency.0),
            Value::Flag(_) | Value::Text(_) | Value::List(_) | Value::Table(_) => None,
        }
    }

    /// The same quantity with another number of its base unit, rounded to what it is counted in (bits per second, bytes,
    /// nanoseconds, ones). `None` for what is no quantity, or where the number does not fit.
    pub fn with_number(&self, number: f64) -> Option<Value> {
        let whole = number.round();
        let fits = whole >= 0.0 && whole < u64::MAX as f64;
        match self {
            Value::Count(_) => fits.then_some(Value::Count(whole as u64)),
            Value::Ratio(_) => Some(Value::Ratio(number)),
            Value::Rate(_) => fits.then_some(Value::Rate(BitsPerSecond(whole as u64))),
            Value::Size(_) => fits.then_some(Value::Size(Bytes(whole as u64))),
            Value::Duration(_) => Duration::try_from_secs_f64(number).ok().map(Value::Duration),
            Value::Frequency(_) => Some(Value::Frequency(Hertz(number))),
            Value::Flag(_) | Value::Text(_) | Value::List(_) | Value::Table(_) => None,
        }
    }

    /// The value as JSON for a point's `parameters`: plain numbers stay numbers, quantities become their text.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Text(text) => text.as_str().into(),
            Value::Count(number) => (*number).into(),
            Value::Ratio(number) => (*number).into(),
            Value::Rate(rate) => rate.to_string().into(),
            Value::Size(size) => size.to_string().into(),
            Value::Duration(duration) => units::duration_text(*duration).into(),
            Value::Frequency(frequency) => frequency.to_string().into(),
            Value::Flag(flag) => (*flag).into(),
            Value::List(list) => list.iter().map(Value::to_json).collect::<Vec<_>>().into(),
            Value::Table(table) => serde_json::Value::Object(
                table.iter().map(|(key, value)| (key.clone(), value.to_json())).collect(),
            ),
        }
    }
}

fn quoted(choices: &[&str]) -> String {
    choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>().join(", ")
}

/// Checked values by parameter name. The getters assume that the declaration and the reader agree on the kind: a
/// mismatch is a bug of ours, so they panic with the parameter's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(pub BTreeMap<String, Value>);

macro_rules! getter {
    ($name:ident, $variant:ident, $type:ty, $copy:expr) => {
        /// The parameter's value, `None` when it was not given and has no default.
        pub fn $name(&self, key: &str) -> Option<$type> {
            self.0.get(key).map(|value| match value {
                Value::$variant(inner) => $copy(inner),
                other => panic!("parameter {key:?} is declared as another kind than {other:?}"),
            })
        }
    };
}

impl Values {
    /// Every declared default. Panics if a declaration's own default does not parse: a bug the conformance suite finds.
    pub fn defaults(params: &[Param]) -> Values {
        let mut values = BTreeMap::new();
        for param in params {
            if let Some(text) = param.default {
                let value = parse_default(param.kind, text)
                    .unwrap_or_else(|error| panic!("default of {:?}: {}", param.name, error.problem));
                values.insert(param.name.to_owned(), value);
            }
        }
        Values(values)
    }
    getter!(count, Count, u64, |inner: &u64| *inner);
    getter!(ratio, Ratio, f64, |inner: &f64| *inner);
    getter!(rate, Rate, BitsPerSecond, |inner: &BitsPerSecond| *inner);
    getter!(size, Size, Bytes, |inner: &Bytes| *inner);
    getter!(duration, Duration, Duration, |inner: &Duration| *inner);
    getter!(frequency, Frequency, Hertz, |inner: &Hertz| *inner);
    getter!(flag, Flag, bool, |inner: &bool| *inner);
    getter!(text, Text, String, |inner: &String| inner.clone());
    getter!(table, Table, Values, |inner: &BTreeMap<String, Value>| Values(inner.clone()));
    /// All texts of a parameter that takes one or several; none where it was not given.
    pub fn texts(&self, key: &str) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            other => panic!("parameter {key:?} is declared as another kind than {other:?}"),
        };
        match self.0.get(key) {
            Some(Value::List(list)) => list.iter().map(text).collect(),
            one => one.iter().map(|value| text(value)).collect(),
        }
    }
    /// The member of a seam that the parameter names, with what is given of its parameters.
    pub fn member(&self, key: &str) -> Option<Member> {
        let value = self.0.get(key)?;
        let member = Member::of(value);
        Some(member.unwrap_or_else(|| panic!("parameter {key:?} is declared as another kind than {value:?}")))
    }
    pub fn set(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }
}

/// Reads a default (or a command-line value) written without TOML quotes.
pub fn parse_default(kind: Kind, text: &str) -> Result<Value, UnitError> {
    let raw = match kind {
        Kind::Count => text.parse().map_or(Raw::Text(text), Raw::Integer),
        Kind::Flag => text.parse().map_or(Raw::Text(text), Raw::Flag),
        _ => Raw::Text(text),
    };
    Value::from_raw(kind, &raw)
}

mod duration_ns {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;
    pub fn serialize<S: Serializer>(duration: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(crate::time::nanoseconds(*duration))
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        u64::deserialize(input).map(Duration::from_nanos)
    }
}
