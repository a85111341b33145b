//! Builders as a ring, in the order of their slots: the next with room after any of them.

use super::tournament::Tournament;
use weir_seams::scheduler::{Builder, BuilderId, Builders};

/// What counts as room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// What a builder could hold if it held nothing: those that are full for now have room.
    Ever,
    /// What it could hold now.
    Now,
}

impl Room {
    pub(super) fn bytes(self, builder: &Builder) -> u64 {
        match self {
            Room::Ever => builder.memory_bytes,
            Room::Now => builder.free_bytes(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ring {
    room: Room,
    /// Bytes of room by slot; none for what is not listed.
    slots: Tournament<u64>,
}

impl Ring {
    pub(super) fn new(room: Room) -> Ring {
        Ring { room, slots: Tournament::default() }
    }

    pub(super) fn on_membership(&mut self, builders: &Builders) {
        let room = self.room;
        let slots = 0..builders.slot_count();
        let bytes = |slot| builders.get(BuilderId(slot as u32)).map(|builder| room.bytes(builder));
        self.slots.fill(slots.map(bytes));
    }

    pub(super) fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        // What a builder could ever hold does not change with what it holds.
        if let (Room::Now, Some(builder)) = (self.room, builders.get(id)) {
            self.slots.set(id.0 as usize, Some(builder.free_bytes()));
        }
    }

    /// The first listed builder at or behind slot `from` that has room for `bytes`, round the ring.
    pub(super) fn next(&self, from: u32, bytes: u64) -> Option<BuilderId> {
        let found = self.slots.first_reaching(from as usize, bytes);
        found.or_else(|| self.slots.first_reaching(0, bytes)).map(|slot| BuilderId(slot as u32))
    }
}
