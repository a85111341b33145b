//! Membership: who takes part now, told by a service that all roles of a system ask.
//!
//! A role that takes part holds a `Seat`; who wants to know of them holds a `Watch`. Nothing here waits: each has a descriptor
//! that is readable when it has something to say, for a shell that waits with epoll, and says it by `next`.

pub mod conformance;
mod roster;
mod seat_word;

pub use roster::Roster;
pub use seat_word::SeatWord;

use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use thiserror::Error;
use weir_core::Values;

/// Members of one group at most; what is beyond is not listed, and a `Change::Odd` says so.
pub const MEMBERS_MAX: usize = 4_096;
/// Of a member as JSON. ZooKeeper itself takes up to 1 MiB a node; a list of many members is to stay small.
pub const MEMBER_BYTES_MAX: usize = 8 << 10;
const NAME_BYTES_MAX: usize = 63;

/// Whose members are meant: those of one role in one system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The system or run: `[a-z0-9][a-z0-9-]{0,62}`.
    pub run: String,
    /// What its members are, in the plural, as `builders`: `[a-z0-9][a-z0-9-]{0,62}`.
    pub role: String,
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// `[a-z0-9][a-z0-9-]{0,62}`, one of its kind in the group.
    pub name: String,
    /// Nanoseconds of real time when it was started; of two with one name the later stays. 0: not known.
    pub incarnation: u64,
    /// Where it is reached; the service does not look into it.
    pub address: String,
    /// What else the others should know of it.
    #[serde(default)]
    pub details: serde_json::Value,
}

/// How the end of a member that does not leave by itself comes to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// At once: the service is told by who holds the seat.
    AtOnce,
    /// After a silence of this length: what the service grants, or what was asked for as long as it has not answered.
    Silence(Duration),
    /// Never: whoever is listed counts.
    None,
}

/// What a watch says.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Takes part from now on; with the incarnation of a member that is known: has something new in its address or details. A later
    /// incarnation is told only after the `Left` of the older.
    Joined(Member),
    Left {
        name: String,
        incarnation: u64,
    },
    /// What was told so far is the whole list and up to date.
    Current,
    /// The service does not answer. The list stays as it is; what has changed meanwhile is told before the next `Current`.
    Stale(String),
    /// Something in the service is not as it should be, and is left out: which, why, and what to do.
    Odd(String),
}

/// What a seat says; only the newest is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeatChange {
    /// The others see this member.
    Held,
    /// The others may not see it any more, or not yet: the service is away, or has forgotten it. It is tried for ever.
    Lapsed(String),
    /// This member must end its part: a later incarnation has the name, or this one was fenced. Nothing follows.
    Fenced {
        /// The incarnation that may have the name from now on, or a later one.
        by: u64,
        why: String,
    },
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct MembershipError {
    /// What happened, and what to do.
    pub text: String,
}

impl MembershipError {
    pub fn new(text: impl Into<String>) -> Self {
        MembershipError { text: text.into() }
    }
}

/// A service as one role sees it, for one group. A call never waits for the service: what it asks is done as soon as it answers.
pub trait Membership: Send + Sync {
    fn liveness(&self) -> Liveness;
    /// Takes part as `member` until the seat is dropped. An older incarnation of the name is fenced by it.
    ///
    /// Errors: the member cannot take part here (name, size, not on a fixed list).
    fn join(&self, member: &Member) -> Result<Box<dyn Seat>, MembershipError>;
    /// Tells everyone who takes part already, then `Current`, then what changes.
    fn watch(&self) -> Result<Box<dyn Watch>, MembershipError>;
    /// Incarnations of `name` below `incarnation` have to stop, and cannot take part again.
    fn fence(&self, name: &str, incarnation: u64) -> Result<(), MembershipError>;
}

/// One member's part; it leaves when this is dropped.
pub trait Seat: Send {
    /// Readable while `next` may have something.
    fn ready(&self) -> BorrowedFd<'_>;
    /// Never waits.
    fn next(&mut self) -> Option<SeatChange>;
    /// Leaves, and waits up to `limit` until the others can see it; true if they can.
    fn leave(self: Box<Self>, limit: Duration) -> bool;
}

pub trait Watch: Send {
    /// Readable while `next` may have something.
    fn ready(&self) -> BorrowedFd<'_>;
    /// Never waits. What has come and gone again between two calls is not told.
    fn next(&mut self) -> Option<Change>;
}

/// Values have been checked against the entry's parameters; no service is waited for.
pub type MembershipEntry = crate::Entry<fn(&Values, &Group) -> Result<Box<dyn Membership>, MembershipError>>;

/// Names become parts of paths in a service: nothing else may pass.
pub fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_BYTES_MAX
        && text.bytes().next().is_some_and(letter)
        && text.bytes().all(|byte| letter(byte) || byte == b'-')
}

/// Errors name the place (`what`).
pub fn check_name(what: &str, name: &str) -> Result<(), MembershipError> {
    if is_name(name) {
        return Ok(());
    }
    let mut shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    Err(MembershipError::new(format!(
        "{what} {shown:?} is no name: names have 1 to {NAME_BYTES_MAX} letters a-z, digits and -, and do not begin with -"
    )))
}

impl Group {
    pub fn check(&self) -> Result<(), MembershipError> {
        check_name("run", &self.run)?;
        check_name("role", &self.role)
    }
}

impl Member {
    /// Its name is one, and it is small enough to be listed.
    pub fn check(&self) -> Result<(), MembershipError> {
        check_name("member", &self.name)?;
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |text| text.len());
        if bytes > MEMBER_BYTES_MAX {
            return Err(MembershipError::new(format!(
                "member {:?} says {bytes} bytes of itself, and {MEMBER_BYTES_MAX} are allowed: put less into its details",
                self.name
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: membership.md#membership-1
    #[test]
    fn a_member_that_could_not_be_listed_is_refused_in_words() {
        let member = |name: &str, address: String| Member {
            name: name.to_owned(),
            incarnation: 1,
            address,
            details: serde_json::Value::Null,
        };
        assert_eq!(member("b-1", "10.0.0.1:4000".to_owned()).check(), Ok(()));
        for name in ["", "-b", "B", "../b", "b/c", "b c", &"x".repeat(64)] {
            let refused = member(name, String::new()).check().unwrap_err();
            assert!(refused.text.contains("is no name"), "{refused}");
        }
        assert_eq!(member(&"x".repeat(63), String::new()).check(), Ok(()));
        let refused = member("b", "x".repeat(MEMBER_BYTES_MAX)).check().unwrap_err();
        assert!(refused.text.contains("put less into its details"), "{refused}");
    }
}
