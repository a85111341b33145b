//! A group's table in this process, and the seats and watches on it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use weir_core::Instant;
use weir_seams::membership::{
    Change, MEMBERS_MAX, Member, MembershipError, Roster, Seat, SeatChange, SeatWord, Watch,
};
use weir_sys::bell::Belled;

/// Names of which the lowest incarnation allowed is remembered; with more, new names are refused.
const FLOORS_MAX: usize = 16 * MEMBERS_MAX;

#[derive(Debug)]
struct Holder {
    member: Member,
    /// Dead for a member that only stands on the list.
    word: Weak<Belled<SeatWord>>,
}

#[derive(Debug)]
struct Table {
    holders: BTreeMap<String, Holder>,
    /// The lowest incarnation that may have the name.
    floors: BTreeMap<String, u64>,
    watches: Vec<Weak<Belled<Roster>>>,
    /// Members stay when they leave.
    fixed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Shared {
    table: Arc<Mutex<Table>>,
}

fn no_descriptor(problem: std::io::Error) -> MembershipError {
    MembershipError::new(format!(
        "no descriptor for a member or a watch: {problem}; raise the limit of open files (ulimit -n)"
    ))
}

impl Shared {
    /// With members that stay, or with none.
    pub(super) fn new(listed: Vec<Member>) -> Shared {
        let fixed = !listed.is_empty();
        let holder = |member: Member| (member.name.clone(), Holder { member, word: Weak::new() });
        let holders = listed.into_iter().map(holder).collect();
        let table = Table { holders, floors: BTreeMap::new(), watches: Vec::new(), fixed };
        Shared { table: Arc::new(Mutex::new(table)) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, member: &Member) -> Result<TableSeat, MembershipError> {
        let word = Arc::new(Belled::new(SeatWord::default()).map_err(no_descriptor)?);
        let seat = TableSeat { shared: self.clone(), member: member.clone(), word: Arc::clone(&word) };
        let mut table = self.table();
        let floor = table.floors.get(&member.name).copied().unwrap_or(0);
        if floor > member.incarnation {
            word.change(|word| word.say(fenced(floor)));
            return Ok(seat);
        }
        if table.holders.len() >= MEMBERS_MAX && !table.holders.contains_key(&member.name) {
            return Err(MembershipError::new(format!(
                "{:?} cannot take part: the group has {MEMBERS_MAX} members already",
                member.name
            )));
        }
        table.raise(&member.name, member.incarnation)?;
        word.change(|word| word.say(SeatChange::Held));
        table.put(Holder { member: member.clone(), word: Arc::downgrade(&word) });
        Ok(seat)
    }

    pub(super) fn watch(&self) -> Result<TableWatch, MembershipError> {
        let roster = Arc::new(Belled::new(Roster::default()).map_err(no_descriptor)?);
        let mut table = self.table();
        roster.change(|roster| {
            let members = table.holders.values().map(|holder| holder.member.clone());
            roster.replace(Instant::ZERO, Duration::ZERO, members);
            roster.current();
            true
        });
        table.watches.retain(|watch| watch.strong_count() > 0);
        table.watches.push(Arc::downgrade(&roster));
        Ok(TableWatch { roster })
    }

    pub(super) fn fence(&self, name: &str, incarnation: u64) -> Result<(), MembershipError> {
        let mut table = self.table();
        table.raise(name, incarnation)?;
        let older = table.holders.get(name).is_some_and(|holder| holder.member.incarnation < incarnation);
        if older {
            table.end(name, incarnation);
        }
        Ok(())
    }

    fn leave(&self, seat: &TableSeat) {
        let mut table = self.table();
        let name = &seat.member.name;
        let own = |holder: &Holder| std::ptr::eq(holder.word.as_ptr(), Arc::as_ptr(&seat.word));
        if !table.fixed && table.holders.get(name).is_some_and(own) {
            table.holders.remove(name);
            table.tell(|roster| roster.remove(name));
        }
    }
}

fn fenced(by: u64) -> SeatChange {
    SeatChange::Fenced { by, why: "a later incarnation has the name, or this one was fenced".to_owned() }
}

impl Table {
    fn tell(&mut self, tell: impl Fn(&mut Roster)) {
        self.watches.retain(|watch| match watch.upgrade() {
            Some(watch) => {
                watch.change(|roster| {
                    tell(roster);
                    roster.has_news()
                });
                true
            }
            None => false,
        });
    }

    fn raise(&mut self, name: &str, incarnation: u64) -> Result<(), MembershipError> {
        if self.floors.len() >= FLOORS_MAX && !self.floors.contains_key(name) {
            return Err(MembershipError::new(format!(
                "{name:?} cannot take part: {FLOORS_MAX} names have been used already; start the scheduler anew, and reuse names"
            )));
        }
        let floor = self.floors.entry(name.to_owned()).or_default();
        *floor = incarnation.max(*floor);
        Ok(())
    }

    /// Tells who holds the name that it must stop; a list goes on without an incarnation.
    fn end(&mut self, name: &str, by: u64) {
        let Some(holder) = self.holders.get_mut(name) else { return };
        if let Some(word) = holder.word.upgrade() {
            word.change(|word| word.say(fenced(by)));
        }
        if self.fixed {
            holder.word = Weak::new();
        } else {
            self.holders.remove(name);
            self.tell(|roster| roster.remove(name));
        }
    }

    fn put(&mut self, holder: Holder) {
        let name = holder.member.name.clone();
        let before = self.holders.get(&name).and_then(|before| before.word.upgrade());
        if let Some(before) = before {
            before.change(|word| word.say(fenced(holder.member.incarnation)));
        }
        let member = holder.member.clone();
        self.holders.insert(name, holder);
        self.tell(|roster| roster.set(member.clone()));
    }
}

pub(super) struct TableSeat {
    shared: Shared,
    member: Member,
    word: Arc<Belled<SeatWord>>,
}

impl Seat for TableSeat {
    fn ready(&self) -> BorrowedFd<'_> {
        self.word.as_fd()
    }
    fn next(&mut self) -> Option<SeatChange> {
        self.word.take(SeatWord::tell)
    }
    fn leave(self: Box<Self>, _limit: Duration) -> bool {
        true // by being dropped, which tells everyone at once
    }
}

impl Drop for TableSeat {
    fn drop(&mut self) {
        self.shared.leave(self);
    }
}

pub(super) struct TableWatch {
    roster: Arc<Belled<Roster>>,
}

impl Watch for TableWatch {
    fn ready(&self) -> BorrowedFd<'_> {
        self.roster.as_fd()
    }
    fn next(&mut self) -> Option<Change> {
        self.roster.take(Roster::tell)
    }
}
