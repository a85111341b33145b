//! Who may join, where a membership service is asked. Rules: `docs/specs/event-building.md#names-4`.

use super::{Director, FailureKind, GroupRole};
use crate::message::Join;
use std::collections::BTreeMap;
use weir_core::Instant;

/// What the service lists, of the roles it is asked about: incarnations by name; 0 where it knows of none.
#[derive(Debug, Default)]
pub(super) struct Roll(BTreeMap<GroupRole, BTreeMap<String, u64>>);

impl Roll {
    /// Errors: why a join is refused, and whether another try may help.
    pub fn check(&self, join: &Join) -> Result<(), (String, bool)> {
        let Some(of_role) = self.0.get(&GroupRole::from(&join.role)) else { return Ok(()) };
        match of_role.get(&join.name) {
            Some(0) => Ok(()),
            Some(listed) if *listed == join.incarnation => Ok(()),
            Some(listed) if *listed > join.incarnation => Err((
                "the membership service lists another of its name that was started later".to_owned(),
                false,
            )),
            Some(_) | None => Err(("the membership service does not list it".to_owned(), true)),
        }
    }
}

impl Director {
    /// From now on a peer of this role may join only while it is listed.
    pub fn ask_membership(&mut self, role: GroupRole) {
        self.roll.0.entry(role).or_default();
    }

    /// The membership service lists a member, under this incarnation.
    pub fn on_listed(&mut self, role: GroupRole, name: &str, incarnation: u64) {
        if let Some(of_role) = self.roll.0.get_mut(&role) {
            of_role.insert(name.to_owned(), incarnation);
        }
    }

    /// The membership service does not list a member any more: it is fenced, as one that is silent.
    pub fn on_unlisted(&mut self, role: GroupRole, name: &str, now: Instant) {
        self.advance(now);
        if self.roll.0.get_mut(&role).and_then(|of_role| of_role.remove(name)).is_none() {
            return;
        }
        if let Some(connection) = self.members.connection_of(role, name) {
            self.outbox.close(connection, "the membership service says that it is gone");
            self.forget(connection, FailureKind::Unlisted);
        }
    }
}
