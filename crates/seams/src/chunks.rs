//! The way of fine series out of a running task: a bounded queue between the threads that measure and whoever carries what
//! they measured away. Who measures never waits, and after the first moments takes no memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::chunk::{Chunk, FieldSet, Packer, SAMPLE_BYTES_MAX};

/// Packed bytes after which a chunk is handed on.
pub const CHUNK_BYTES: usize = 24 << 10;
/// What a chunk's room holds at most: no sample is cut.
const ROOM_BYTES: usize = CHUNK_BYTES + SAMPLE_BYTES_MAX;
/// A chunk is handed on after so long, so that a run that is killed has lost no more.
pub const CHUNK_NS_MAX: u64 = 2_000_000_000;
/// Chunks that wait at most, 6 MiB; samples of those that find no place are lost and counted.
const WAITING_MAX: usize = 256;

struct Waiting {
    entity: Arc<str>,
    set: &'static FieldSet,
    start_ns: u64,
    count: u32,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Places {
    waiting: VecDeque<Waiting>,
    /// Rooms of chunks that were carried away.
    spare: Vec<Vec<u8>>,
}

#[derive(Default)]
pub struct ChunkQueue {
    places: Mutex<Places>,
    lost_samples: AtomicU64,
}

impl std::fmt::Debug for ChunkQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ChunkQueue")
            .field("lost_samples", &self.lost_samples())
            .finish_non_exhaustive()
    }
}

impl ChunkQueue {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest chunk that waits. `start_ns` is on the clock of the thread that measured.
    pub fn next(&self) -> Option<Chunk> {
        let mut places = self.places();
        let Waiting { entity, set, start_ns, count, bytes } = places.waiting.pop_front()?;
        let chunk = Chunk {
            entity: entity.to_string(),
            fields: set.name.to_owned(),
            start_ns: i64::try_from(start_ns).unwrap_or(i64::MAX),
            count,
            data: bytes.clone(),
        };
        places.spare.push(bytes);
        Some(chunk)
    }

    /// Samples that found no place since nobody carried chunks away.
    pub fn lost_samples(&self) -> u64 {
        self.lost_samples.load(Ordering::Relaxed)
    }

    fn hand_on(&self, entity: &Arc<str>, set: &'static FieldSet, packer: &mut Packer) {
        if packer.is_empty() {
            return;
        }
        let mut places = self.places();
        if places.waiting.len() >= WAITING_MAX {
            self.lost_samples.fetch_add(u64::from(packer.count()), Ordering::Relaxed);
            drop(places);
            let (_, _, room) = packer.take(Vec::new());
            *packer = Packer::new(set, room);
            return;
        }
        let room = places.spare.pop().unwrap_or_else(|| Vec::with_capacity(ROOM_BYTES));
        let (start_ns, count, bytes) = packer.take(room);
        places.waiting.push_back(Waiting { entity: Arc::clone(entity), set, start_ns, count, bytes });
    }
}

/// The fine series of one end of one flow, on its way into the queue.
#[derive(Debug)]
pub struct Tape {
    entity: Arc<str>,
    set: &'static FieldSet,
    queue: Arc<ChunkQueue>,
    packer: Packer,
}

impl Tape {
    pub fn new(entity: &str, set: &'static FieldSet, queue: Arc<ChunkQueue>) -> Tape {
        let packer = Packer::new(set, Vec::with_capacity(ROOM_BYTES));
        Tape { entity: entity.into(), set, queue, packer }
    }

    /// Takes a sample; what is full or old enough is handed on.
    pub fn push(&mut self, at_ns: u64, values: &[Option<u64>]) {
        if !self.packer.push(at_ns, values) {
            self.queue.hand_on(&self.entity, self.set, &mut self.packer);
            self.packer.push(at_ns, values);
        }
        let age_ns = at_ns.saturating_sub(self.packer.start_ns());
        if self.packer.len() >= CHUNK_BYTES || age_ns >= CHUNK_NS_MAX {
            self.queue.hand_on(&self.entity, self.set, &mut self.packer);
        }
    }

    /// No more samples will come.
    pub fn finish(mut self) {
        self.queue.hand_on(&self.entity, self.set, &mut self.packer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::chunk::RECEIVED;

    #[test]
    fn samples_come_out_in_order_and_those_nobody_carries_away_are_counted_as_lost() {
        let queue = Arc::new(ChunkQueue::default());
        let mut tape = Tape::new("flow.a.b.0", &RECEIVED, Arc::clone(&queue));
        let mut seen = 0;
        for at in 0..10_u64 {
            tape.push(at * CHUNK_NS_MAX / 3, &[Some(at)]);
        }
        tape.finish();
        while let Some(chunk) = queue.next() {
            chunk
                .unpack(1, |at, values| {
                    assert_eq!((at as u64, values), (seen * CHUNK_NS_MAX / 3, [Some(seen)].as_slice()));
                    seen += 1;
                })
                .unwrap();
        }
        assert_eq!((seen, queue.lost_samples()), (10, 0));

        let mut tape = Tape::new("flow.a.b.0", &RECEIVED, Arc::clone(&queue));
        for at in 0..WAITING_MAX as u64 + 7 {
            tape.push(at, &[Some(at)]);
            tape.queue.hand_on(&tape.entity, tape.set, &mut tape.packer);
        }
        assert_eq!(queue.lost_samples(), 7);
        assert_eq!(queue.places().waiting.len(), WAITING_MAX);
    }
}
