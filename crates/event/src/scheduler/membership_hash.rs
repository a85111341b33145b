//! The builder that heartbeat id and membership alone decide, so that every source could work it out by itself.

use super::ring::{Ring, Room};
use weir_core::{Instant, Kind, Param, Values};
use weir_seams::scheduler::{BuilderId, Builders, Scheduler, Wanted};

pub const PARAMS: &[Param] = &[Param::new(
    "when_full",
    Kind::Choice(&["hold", "next"]),
    "What to do when the builder of an event has no room: wait for it, so that heartbeat and membership alone decide, or take the next of the event's row.",
)
.default("hold")];

/// Slots that are tried before the listed builders are numbered. With half of the slots listed one event in 256 gets so far.
const TRIES: u32 = 8;

/// Each event has a row of slots, drawn by its id: the first of them that is listed and large enough gets it. Rule and test vectors:
/// `docs/specs/event-building.md#choose-5`.
///
/// A builder that leaves changes the place of its own events only, and one that returns has them back; one that is new takes its share from
/// all. So two who see a change at different moments differ about few events. This is why the epoch itself is not hashed: it says which
/// list is meant, and no more.
///
/// Where the event does not fit: a builder whose whole memory is too small is passed over, since that is as good as membership. One that is
/// full for now is waited for (`hold`), and everything behind the event with it; or (`next`) the row goes on to one that has room,
/// which nobody but the scheduler can know.
pub struct MembershipHash {
    room: Room,
    ring: Ring,
}

impl MembershipHash {
    /// `values`: of `PARAMS`.
    pub fn new(values: &Values) -> MembershipHash {
        let next = values.text("when_full").as_deref() == Some("next");
        let room = if next { Room::Now } else { Room::Ever };
        MembershipHash { room, ring: Ring::new(room) }
    }

    /// The builder of an event of `bytes`: with `hold` whether it has room now or not.
    fn place(&self, heartbeat: u64, bytes: u64, builders: &Builders) -> Option<BuilderId> {
        let listed = builders.listed();
        if listed.is_empty() {
            return None;
        }
        // Not the highest that is listed: when that leaves, events of others would move too.
        let slots = builders.slot_count() as u32;
        let mut hash = mix(heartbeat);
        for _ in 0..TRIES {
            let id = BuilderId(jump(hash, slots));
            if builders.get(id).is_some_and(|builder| self.room.bytes(builder) >= bytes) {
                return Some(id);
            }
            hash = mix(hash);
        }
        let start = listed[jump(hash, listed.len() as u32) as usize];
        self.ring.next(start.0, bytes)
    }
}

impl Scheduler for MembershipHash {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        self.place(event.heartbeat, event.bytes, builders).filter(|id| builders.fits(*id, event.bytes))
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.ring.on_membership(builders);
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.ring.on_load(id, builders);
    }
}

/// One step of SplitMix64 from the state `state`: Steele, Lea, Flood, OOPSLA 2014.
fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `count` (at least 1): as `count` grows by one, one key in `count` changes, and to the new number.
///
/// Source: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.
fn jump(mut key: u64, count: u32) -> u32 {
    let mut found = 0;
    let mut next = 0.0;
    while next < f64::from(count) {
        found = next as u32;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((f64::from(found) + 1.0) * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)).floor();
    }
    found
}
