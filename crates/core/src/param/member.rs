//! Parameters that choose a member of a seam, and the members' own parameters.

use super::{Param, Value, Values, parse_default};
use crate::nearest::nearest;
use crate::text::shown;
use crate::units::UnitError;
use serde::{Deserialize, Serialize};

/// Of a name that is none.
const NAME_BYTES_SHOWN: usize = 63;

/// Where something is chosen by name, as a parameter knows it.
#[derive(Clone, Copy, Debug)]
pub struct Seam {
    /// As `weir list` takes it.
    pub name: &'static str,
    pub members: fn() -> Vec<MemberSchema>,
}

/// There is one seam of a name.
impl PartialEq for Seam {
    fn eq(&self, other: &Seam) -> bool {
        self.name == other.name
    }
}

/// One that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberSchema {
    pub name: &'static str,
    pub params: &'static [Param],
}

impl Seam {
    pub fn member(&self, name: &str) -> Option<MemberSchema> {
        (self.members)().into_iter().find(|member| member.name == name)
    }
    /// A parameter that some member has.
    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params().find(|param| param.name == name)
    }
    /// Of all members.
    pub fn params(&self) -> impl Iterator<Item = &'static Param> {
        (self.members)().into_iter().flat_map(|member| member.params)
    }
    /// `NAME`, where a member is called so. Errors: the nearest of those there are.
    pub(super) fn read(&self, name: &str) -> Result<Value, UnitError> {
        if self.member(name).is_some() {
            return Ok(Value::Text(name.to_owned()));
        }
        let seam = self.name;
        let all = (self.members)();
        let names = all.iter().map(|member| member.name);
        let help = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean \"{near}\"? See `weir list {seam}`"),
            None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
        };
        let (what, name) = (seam.replace('-', " "), shown(name, NAME_BYTES_SHOWN));
        Err(UnitError { problem: format!("no {what} is called \"{name}\"; {help}") })
    }
}

/// A chosen member with those of its parameters that were given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    pub given: Values,
}

impl Member {
    pub fn named(name: impl Into<String>) -> Member {
        Member { name: name.into(), given: Values::default() }
    }
    /// What it is built with: the defaults of its declaration, and over them what was given.
    pub fn values(&self, params: &[Param]) -> Values {
        let mut all = Values::defaults(params);
        all.0.extend(self.given.0.clone());
        all
    }
    /// As a parameter's value: a text where nothing but the name is given.
    pub fn into_value(self) -> Value {
        if self.given.0.is_empty() {
            return Value::Text(self.name);
        }
        let mut table = self.given.0;
        table.insert(MEMBER_NAME.to_owned(), Value::Text(self.name));
        Value::Table(table)
    }
    /// `None`: the value is no member.
    pub fn of(value: &Value) -> Option<Member> {
        match value {
            Value::Text(name) => Some(Member::named(name.clone())),
            Value::Table(table) => {
                let mut given = table.clone();
                match given.remove(MEMBER_NAME)? {
                    Value::Text(name) => Some(Member { name, given: Values(given) }),
                    _ => None,
                }
            }
            _ => None,
        }
    }
    /// Sets what `KEY=VALUE` says, as a command line has it. Errors name `flag` and what the member takes.
    pub fn set_pair(&mut self, seam: &Seam, flag: &str, pair: &str) -> Result<(), UnitError> {
        let wrong = |problem: String| Err(UnitError { problem: format!("{flag} {pair:?}: {problem}") });
        let Some((key, text)) = pair.split_once('=') else {
            return wrong("write it as KEY=VALUE".to_owned());
        };
        let params = seam.member(&self.name).map_or(&[][..], |member| member.params);
        let Some(param) = params.iter().find(|param| param.name == key) else {
            return wrong(takes_no(&self.name, key, params));
        };
        match parse_default(param.kind, text) {
            Ok(value) if param.allows(&value) => self.given.set(key, value),
            Ok(_) => return wrong(format!("out of range; see `weir list {}`", seam.name)),
            Err(error) => return wrong(error.problem),
        }
        Ok(())
    }
}

/// The key of a member's table that says which it is.
pub const MEMBER_NAME: &str = "name";

/// That a member has no such parameter, with the nearest of those it has.
pub fn takes_no(member: &str, key: &str, params: &[Param]) -> String {
    let names = params.iter().map(|param| param.name);
    let help = match nearest(key, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if params.is_empty() => "it takes none".to_owned(),
        None => format!("it takes {}", names.collect::<Vec<_>>().join(", ")),
    };
    format!("{member} takes no `{}`; {help}", shown(key, NAME_BYTES_SHOWN))
}
