//! The members of a group as the service says, and what of it the watcher has been told.
//!
//! Pure: a service's shell puts in what it learns, and a watch takes out the difference. What is kept is bounded by `MEMBERS_MAX`,
//! however seldom somebody looks.

use super::{Change, MEMBERS_MAX, Member};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_core::Instant;

#[derive(Clone, Debug, Default, PartialEq)]
enum Standing {
    #[default]
    Unknown,
    Current,
    Stale(String),
}

#[derive(Debug, Default)]
pub struct Roster {
    /// As the service says.
    now: BTreeMap<String, Member>,
    /// As the watcher was told.
    told: BTreeMap<String, Member>,
    /// Invariant: the names in which the two differ.
    differ: BTreeSet<String>,
    /// Not in the service's new list, and until when they are listed all the same.
    spared: BTreeMap<String, Instant>,
    standing: Standing,
    standing_told: Standing,
    /// The newest.
    odd: Option<String>,
}

impl Roster {
    pub fn len(&self) -> usize {
        self.now.len()
    }
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.now.get(name)
    }

    fn compare(&mut self, name: &str) {
        if self.now.get(name) == self.told.get(name) {
            self.differ.remove(name);
        } else if !self.differ.contains(name) {
            self.differ.insert(name.to_owned());
        }
    }

    /// The service lists it.
    pub fn set(&mut self, member: Member) {
        let name = member.name.clone();
        if self.now.len() >= MEMBERS_MAX && !self.now.contains_key(&name) {
            self.odd(format!("{name:?} is not listed: the group has {MEMBERS_MAX} members already"));
            return;
        }
        self.spared.remove(&name);
        self.now.insert(name.clone(), member);
        self.compare(&name);
    }

    /// The service does not list it, or no longer.
    pub fn remove(&mut self, name: &str) {
        self.spared.remove(name);
        self.now.remove(name);
        self.compare(name);
    }

    /// The service's whole list. Members that are not in it are taken off, or kept for `spare`: after a service has
    /// lost its memory those who live come back by themselves, and are not to be mourned meanwhile. Who is spared already
    /// keeps the time it has.
    pub fn replace(&mut self, at: Instant, spare: Duration, members: impl IntoIterator<Item = Member>) {
        let mut gone: BTreeSet<String> = self.now.keys().cloned().collect();
        for member in members {
            gone.remove(&member.name);
            self.set(member);
        }
        gone.retain(|name| !self.spared.contains_key(name));
        for name in gone {
            if spare.is_zero() {
                self.remove(&name);
            } else {
                self.spared.insert(name, at + spare);
            }
        }
    }

    pub fn wake_at(&self) -> Option<Instant> {
        self.spared.values().min().copied()
    }

    /// Takes off those that had their time to come back.
    pub fn on_wake(&mut self, at: Instant) {
        let late: Vec<String> =
            self.spared.iter().filter(|(_, until)| **until <= at).map(|(name, _)| name.clone()).collect();
        for name in late {
            self.remove(&name);
        }
    }

    pub fn current(&mut self) {
        self.standing = Standing::Current;
    }
    pub fn stale(&mut self, why: impl Into<String>) {
        self.standing = Standing::Stale(why.into());
    }
    pub fn odd(&mut self, what: impl Into<String>) {
        self.odd = Some(what.into());
    }

    /// `tell` has something.
    pub fn has_news(&self) -> bool {
        self.odd.is_some() || !self.differ.is_empty() || self.standing != self.standing_told
    }

    /// What the watcher has not been told.
    pub fn tell(&mut self) -> Option<Change> {
        if let Some(odd) = self.odd.take() {
            return Some(Change::Odd(odd));
        }
        if let Some(name) = self.differ.first().cloned() {
            let now = self.now.get(&name);
            let later =
                |now: &Member| Some(now.incarnation) != self.told.get(&name).map(|told| told.incarnation);
            if self.told.contains_key(&name) && now.is_none_or(later) {
                let told = self.told.remove(&name)?;
                self.compare(&name);
                return Some(Change::Left { name, incarnation: told.incarnation });
            }
            let member = now.cloned()?;
            self.told.insert(name.clone(), member.clone());
            self.compare(&name);
            return Some(Change::Joined(member));
        }
        if self.standing == self.standing_told {
            return None;
        }
        self.standing_told = self.standing.clone();
        match &self.standing {
            Standing::Unknown => None,
            Standing::Current => Some(Change::Current),
            Standing::Stale(why) => Some(Change::Stale(why.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member(name: &str, incarnation: u64) -> Member {
        Member {
            name: name.to_owned(),
            incarnation,
            address: "10.0.0.1:4000".to_owned(),
            details: serde_json::Value::Null,
        }
    }

    fn left(name: &str, incarnation: u64) -> Change {
        Change::Left { name: name.to_owned(), incarnation }
    }

    fn told(roster: &mut Roster) -> Vec<Change> {
        std::iter::from_fn(|| roster.tell()).collect()
    }

    // Spec: membership.md#membership-4
    #[test]
    fn a_later_incarnation_is_told_after_the_end_of_the_older_and_new_details_without_one() {
        let mut roster = Roster::default();
        roster.set(member("a", 1));
        roster.current();
        assert_eq!(told(&mut roster), [Change::Joined(member("a", 1)), Change::Current]);
        roster.set(member("a", 2));
        assert_eq!(told(&mut roster), [left("a", 1), Change::Joined(member("a", 2))]);
        let moved = Member { address: "10.0.0.2:4000".to_owned(), ..member("a", 2) };
        roster.set(moved.clone());
        assert_eq!(told(&mut roster), [Change::Joined(moved)]);
        roster.remove("a");
        roster.set(member("b", 1));
        roster.remove("b");
        assert_eq!(told(&mut roster), [left("a", 2)], "b came and went unseen");
    }

    // Spec: membership.md#membership-7
    #[test]
    fn who_is_missing_after_the_service_forgot_is_spared_until_its_time_is_over() {
        let mut roster = Roster::default();
        roster.replace(Instant::ZERO, Duration::ZERO, [member("a", 1), member("b", 1), member("c", 1)]);
        told(&mut roster);
        let at = Instant::from_ns(10);
        roster.replace(at, Duration::from_nanos(5), [member("c", 2)]);
        assert_eq!(told(&mut roster), [left("c", 1), Change::Joined(member("c", 2))]);
        assert_eq!(roster.wake_at(), Some(Instant::from_ns(15)));
        roster.set(member("a", 1));
        // A second list without b gives it neither more time nor less.
        for spare in [5, 0] {
            let list = [member("a", 1), member("c", 2)];
            roster.replace(Instant::from_ns(12), Duration::from_nanos(spare), list);
        }
        roster.on_wake(Instant::from_ns(14));
        assert_eq!(told(&mut roster), []);
        roster.on_wake(Instant::from_ns(15));
        assert_eq!(told(&mut roster), [left("b", 1)]);
        assert_eq!(roster.wake_at(), None);
        // Without time to spare a member that is not listed is gone.
        roster.replace(Instant::from_ns(20), Duration::ZERO, [member("c", 2)]);
        assert_eq!(told(&mut roster), [left("a", 1)]);
    }

    // Spec: membership.md#membership-1, membership.md#membership-5
    #[test]
    fn a_service_that_lists_without_end_fills_no_memory() {
        let mut roster = Roster::default();
        for number in 0..2 * MEMBERS_MAX {
            roster.set(member(&format!("m{number}"), 1));
        }
        assert_eq!((roster.now.len(), roster.differ.len()), (MEMBERS_MAX, MEMBERS_MAX));
        assert!(matches!(roster.tell(), Some(Change::Odd(_))));
        assert_eq!(told(&mut roster).len(), MEMBERS_MAX);
        // Nobody looks while members come and go.
        for round in 0..3 {
            for number in 0..MEMBERS_MAX {
                roster.remove(&format!("m{number}"));
                roster.set(member(&format!("n{round}-{number}"), 1));
                if round > 0 {
                    roster.remove(&format!("n{}-{number}", round - 1));
                }
            }
        }
        assert!(roster.differ.len() <= 2 * MEMBERS_MAX, "{}", roster.differ.len());
    }

    #[derive(Clone, Debug)]
    enum Order {
        Set(u8, u64),
        Remove(u8),
        Replace(Vec<(u8, u64)>, bool),
        Wake,
        Look(usize),
    }

    fn order() -> impl Strategy<Value = Order> {
        prop_oneof![
            (0..4_u8, 0..3_u64).prop_map(|(name, incarnation)| Order::Set(name, incarnation)),
            (0..4_u8).prop_map(Order::Remove),
            (prop::collection::vec((0..4_u8, 0..3_u64), 0..4), any::<bool>())
                .prop_map(|(list, spare)| Order::Replace(list, spare)),
            Just(Order::Wake),
            (0..4_usize).prop_map(Order::Look),
        ]
    }

    proptest! {
        // Spec: membership.md#membership-4
        #[test]
        fn whoever_follows_the_changes_ends_with_the_services_list(orders in prop::collection::vec(order(), 0..60)) {
            let mut roster = Roster::default();
            let mut followed: BTreeMap<String, Member> = BTreeMap::new();
            let mut follow = |change: Change| match change {
                Change::Joined(member) => {
                    let known = followed.insert(member.name.clone(), member.clone());
                    assert!(known.is_none_or(|known| known.incarnation == member.incarnation), "no Left before {member:?}");
                }
                Change::Left { name, incarnation } => {
                    assert_eq!(followed.remove(&name).map(|member| member.incarnation), Some(incarnation));
                }
                _ => {}
            };
            for (at, order) in orders.into_iter().enumerate() {
                let at = Instant::from_ns(at as u64);
                match order {
                    Order::Set(name, incarnation) => roster.set(member(&format!("m{name}"), incarnation)),
                    Order::Remove(name) => roster.remove(&format!("m{name}")),
                    Order::Replace(list, spare) => {
                        let list = list.iter().map(|(name, incarnation)| member(&format!("m{name}"), *incarnation));
                        roster.replace(at, Duration::from_nanos(if spare { 3 } else { 0 }), list);
                    }
                    Order::Wake => roster.on_wake(at),
                    Order::Look(count) => (0..count).filter_map(|_| roster.tell()).for_each(&mut follow),
                }
            }
            roster.on_wake(Instant::NEVER);
            while roster.has_news() {
                follow(roster.tell().expect("what is new"));
            }
            assert_eq!(roster.tell(), None);
            prop_assert_eq!(followed, roster.now);
        }
    }
}
