//! Membership by a list in the configuration. It says where members would be, not whether they live: the scheduler's probes do.

use super::table::Shared;
use std::collections::BTreeMap;
use weir_core::{Kind, Param, Values};
use weir_seams::membership::{
    Group, Liveness, MEMBERS_MAX, Member, Membership, MembershipError, Seat, Watch, check_name,
};

pub(super) const PARAMS: &[Param] = &[Param::new(
    "members",
    Kind::Text,
    "Who counts as a member: NAME=ADDRESS:PORT, several with commas between.",
)
.required()];

/// Clones see the same list.
#[derive(Clone, Debug)]
pub struct Fixed {
    names: Vec<String>,
    shared: Shared,
}

impl Fixed {
    /// Errors: a name twice or no name, an entry without address, an empty list.
    pub fn new(group: &Group, list: &str) -> Result<Self, MembershipError> {
        group.check()?;
        let mut members: BTreeMap<String, Member> = BTreeMap::new();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, address)) = entry.split_once('=') else {
                return Err(MembershipError::new(format!(
                    "{entry:?} on the list of members has no address; write NAME=ADDRESS:PORT"
                )));
            };
            let (name, address) = (name.trim(), address.trim());
            check_name("member", name)?;
            let member = Member {
                name: name.to_owned(),
                incarnation: 0,
                address: address.to_owned(),
                details: serde_json::Value::Null,
            };
            member.check()?;
            if address.is_empty() || members.insert(name.to_owned(), member).is_some() {
                let what = if address.is_empty() { "has no address" } else { "stands there twice" };
                return Err(MembershipError::new(format!("{name:?} on the list of members {what}")));
            }
        }
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(MembershipError::new(format!(
                "the list of members has {} entries, and 1 to {MEMBERS_MAX} are allowed",
                members.len()
            )));
        }
        let names = members.keys().cloned().collect();
        Ok(Fixed { names, shared: Shared::new(members.into_values().collect()) })
    }

    pub(super) fn from_values(values: &Values, group: &Group) -> Result<Self, MembershipError> {
        Fixed::new(group, &values.text("members").unwrap_or_default())
    }

    fn listed(&self, name: &str) -> Result<(), MembershipError> {
        check_name("member", name)?;
        if self.names.iter().any(|listed| listed == name) {
            return Ok(());
        }
        Err(MembershipError::new(format!(
            "{name:?} is not on the list of members ({}): add it there, or use another name",
            shown(&self.names)
        )))
    }
}

fn shown(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

impl Membership for Fixed {
    fn liveness(&self) -> Liveness {
        Liveness::None
    }
    fn join(&self, member: &Member) -> Result<Box<dyn Seat>, MembershipError> {
        member.check()?;
        self.listed(&member.name)?;
        Ok(Box::new(self.shared.join(member)?))
    }
    fn watch(&self) -> Result<Box<dyn Watch>, MembershipError> {
        Ok(Box::new(self.shared.watch()?))
    }
    fn fence(&self, name: &str, incarnation: u64) -> Result<(), MembershipError> {
        self.listed(name)?;
        self.shared.fence(name, incarnation)
    }
}
