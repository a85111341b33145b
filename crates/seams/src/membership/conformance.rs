//! Claims every membership must keep; called by each crate that has some, and by adapters.

use super::{
    Change, Liveness, MEMBER_BYTES_MAX, Member, Membership, MembershipEntry, Seat, SeatChange, Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use weir_core::Values;

/// Declarations are complete, and the defaults are values.
pub fn check_entries(entries: &[MembershipEntry]) {
    for entry in entries {
        let name = entry.name;
        assert!(!entry.about.is_empty(), "{name}: no description");
        let mut seen = BTreeSet::new();
        for param in entry.params {
            assert!(seen.insert(param.name), "{name}: parameter {} is declared twice", param.name);
            assert!(!param.about.is_empty(), "{name}: parameter {} says nothing about itself", param.name);
        }
        Values::defaults(entry.params);
    }
}

/// One membership under test.
pub struct Trial<'a> {
    pub name: &'a str,
    /// The service as another role sees it; each time for the same group, which nobody else uses.
    pub open: &'a dyn Fn() -> Box<dyn Membership>,
    /// Who may take part: all there are where the list is fixed.
    pub names: [&'a str; 2],
    /// Waits for the descriptor to be readable, at most so long.
    pub readable: &'a dyn Fn(BorrowedFd<'_>, Duration) -> bool,
    /// For each thing that is waited for.
    pub limit: Duration,
}

/// All claims but those of `Liveness::Silence`, which need a member that dies.
pub fn check(trial: &Trial<'_>) {
    names_and_sizes_are_checked(trial);
    who_joins_and_leaves_is_told(trial);
    a_later_incarnation_takes_the_name(trial);
    a_fence_keeps_older_incarnations_out(trial);
    a_silent_descriptor_means_that_nothing_is_new(trial);
}

fn member(name: &str, incarnation: u64) -> Member {
    Member {
        name: name.to_owned(),
        incarnation,
        address: format!("192.0.2.1:{incarnation}"),
        details: serde_json::json!({ "memory_bytes": u64::MAX, "host": "h-0" }),
    }
}

impl Trial<'_> {
    fn seat(&self, seat: &mut Box<dyn Seat>, wanted: impl Fn(&SeatChange) -> bool) -> SeatChange {
        let until = Instant::now() + self.limit;
        let mut heard = Vec::new();
        loop {
            while let Some(change) = seat.next() {
                if wanted(&change) {
                    return change;
                }
                heard.push(change);
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: the seat said {heard:?} and nothing else", self.name);
            (self.readable)(seat.ready(), left);
        }
    }

    fn held(&self, seat: &mut Box<dyn Seat>) {
        self.seat(seat, |change| *change == SeatChange::Held);
    }

    fn fenced(&self, seat: &mut Box<dyn Seat>) -> u64 {
        match self.seat(seat, |change| matches!(change, SeatChange::Fenced { .. })) {
            SeatChange::Fenced { by, why } => {
                assert!(!why.is_empty(), "{}: fenced without a word", self.name);
                by
            }
            _ => unreachable!(),
        }
    }
}

/// One who follows a watch, and knows what it was told.
struct Follower<'a> {
    trial: &'a Trial<'a>,
    watch: Box<dyn Watch>,
    members: BTreeMap<String, Member>,
    heard: Vec<Change>,
    /// The list was whole once.
    current: bool,
}

impl<'a> Follower<'a> {
    fn of(trial: &'a Trial<'a>, service: &dyn Membership) -> Self {
        let watch = service.watch().expect(trial.name);
        let mut follower =
            Follower { trial, watch, members: BTreeMap::new(), heard: Vec::new(), current: false };
        follower.until("the list is whole", |follower| follower.current);
        follower
    }

    fn until(&mut self, what: &str, reached: impl Fn(&Self) -> bool) {
        let until = Instant::now() + self.trial.limit;
        loop {
            if reached(self) {
                return;
            }
            if let Some(change) = self.watch.next() {
                self.follow(change);
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: not so: {what}; told: {:#?}", self.trial.name, self.heard);
            (self.trial.readable)(self.watch.ready(), left);
        }
    }

    fn follow(&mut self, change: Change) {
        let name = self.trial.name;
        match &change {
            Change::Joined(member) => {
                let known = self.members.insert(member.name.clone(), member.clone());
                let again = known.is_none_or(|known| known.incarnation == member.incarnation);
                assert!(
                    again,
                    "{name}: {member:?} joined before its older incarnation was said to have left"
                );
            }
            Change::Left { name: who, incarnation } => {
                let known = self.members.remove(who).map(|known| known.incarnation);
                assert_eq!(known, Some(*incarnation), "{name}: {who:?} left otherwise than it had joined");
            }
            Change::Current => self.current = true,
            Change::Stale(_) => {}
            Change::Odd(what) => panic!("{name}: odd: {what}"),
        }
        self.heard.push(change);
    }

    fn sees(&mut self, member: &Member) {
        self.until(&format!("{member:?} takes part"), |follower| {
            follower.members.get(&member.name) == Some(member)
        });
    }
}

fn names_and_sizes_are_checked(trial: &Trial<'_>) {
    let service = (trial.open)();
    for name in ["", "../up", "Upper", "-", &"x".repeat(64)] {
        assert!(service.join(&member(name, 1)).is_err(), "{}: {name:?} can join", trial.name);
        assert!(service.fence(name, 1).is_err(), "{}: {name:?} can be fenced", trial.name);
    }
    let details = serde_json::Value::String("x".repeat(MEMBER_BYTES_MAX));
    let large = Member { details, ..member(trial.names[0], 1) };
    assert!(service.join(&large).is_err(), "{}: {MEMBER_BYTES_MAX} bytes and more are taken", trial.name);
}

fn who_joins_and_leaves_is_told(trial: &Trial<'_>) {
    let (near, far) = ((trial.open)(), (trial.open)());
    let fixed = near.liveness() == Liveness::None;
    let mut watch = Follower::of(trial, &*far);
    let names: Vec<&String> = watch.members.keys().collect();
    assert_eq!(names, if fixed { trial.names.to_vec() } else { Vec::new() }, "{}", trial.name);

    let one = member(trial.names[0], 10);
    let mut seat = near.join(&one).expect(trial.name);
    trial.held(&mut seat);
    watch.sees(&one);
    // Who comes later is told the same.
    let mut late = Follower::of(trial, &*near);
    late.sees(&one);

    let two = member(trial.names[1], 20);
    let mut other = far.join(&two).expect(trial.name);
    trial.held(&mut other);
    watch.sees(&two);
    late.sees(&two);
    assert!(seat.leave(trial.limit), "{}: nobody could be told in time", trial.name);
    drop(other);
    if fixed {
        let mut late = Follower::of(trial, &*near);
        late.sees(&one);
        late.sees(&two);
    } else {
        watch.until("both have left", |watch| watch.members.is_empty());
        late.until("both have left", |late| late.members.is_empty());
    }
}

fn a_later_incarnation_takes_the_name(trial: &Trial<'_>) {
    let (near, far) = ((trial.open)(), (trial.open)());
    let mut watch = Follower::of(trial, &*near);
    let (older, later) = (member(trial.names[0], 30), member(trial.names[0], 31));
    let mut first = near.join(&older).expect(trial.name);
    trial.held(&mut first);
    watch.sees(&older);
    let mut second = far.join(&later).expect(trial.name);
    trial.held(&mut second);
    watch.sees(&later);
    assert_eq!(trial.fenced(&mut first), 31, "{}", trial.name);
    assert_eq!(first.next(), None, "{}: more than the end", trial.name);
    // The older one tries again: it has nothing to win, and the later one nothing to notice.
    drop(first);
    let mut again = near.join(&older).expect(trial.name);
    assert_eq!(trial.fenced(&mut again), 31, "{}", trial.name);
    drop(again);
    assert_eq!(second.next(), None, "{}", trial.name);
    let mut fresh = Follower::of(trial, &*far);
    fresh.sees(&later);
    // Nor when the later one is gone.
    assert!(second.leave(trial.limit), "{}", trial.name);
    let mut again = far.join(&older).expect(trial.name);
    assert_eq!(trial.fenced(&mut again), 31, "{}", trial.name);
    // It may itself come back.
    let mut back = near.join(&later).expect(trial.name);
    trial.held(&mut back);
    watch.sees(&later);
}

fn a_fence_keeps_older_incarnations_out(trial: &Trial<'_>) {
    let (near, far) = ((trial.open)(), (trial.open)());
    let mut watch = Follower::of(trial, &*far);
    let name = trial.names[1];
    let (older, later) = (member(name, 40), member(name, 50));
    let mut seat = near.join(&older).expect(trial.name);
    trial.held(&mut seat);
    watch.sees(&older);
    far.fence(name, 50).expect(trial.name);
    assert_eq!(trial.fenced(&mut seat), 50, "{}", trial.name);
    if far.liveness() != Liveness::None {
        watch.until("the fenced one is gone", |watch| watch.members.is_empty());
    }
    let mut again = far.join(&member(name, 49)).expect(trial.name);
    assert_eq!(trial.fenced(&mut again), 50, "{}", trial.name);
    // A fence that is repeated or lower changes nothing.
    far.fence(name, 45).expect(trial.name);
    let mut again = near.join(&member(name, 49)).expect(trial.name);
    assert_eq!(trial.fenced(&mut again), 50, "{}", trial.name);
    let mut seat = near.join(&later).expect(trial.name);
    trial.held(&mut seat);
    watch.sees(&later);
}

fn a_silent_descriptor_means_that_nothing_is_new(trial: &Trial<'_>) {
    let service = (trial.open)();
    let mut watch = Follower::of(trial, &*service);
    let mut seat = service.join(&member(trial.names[0], 60)).expect(trial.name);
    trial.held(&mut seat);
    watch.sees(&member(trial.names[0], 60));
    while let Some(change) = watch.watch.next() {
        watch.follow(change);
    }
    assert_eq!(seat.next(), None, "{}", trial.name);
    assert!(!(trial.readable)(seat.ready(), Duration::ZERO), "{}: the seat has nothing to say", trial.name);
    let silent = !(trial.readable)(watch.watch.ready(), Duration::ZERO);
    // Something may have come between the two calls: then there is something.
    assert!(silent || watch.watch.next().is_some(), "{}: the watch has nothing to say", trial.name);
}
