//! Memory that data is read into and written from.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Boundary at which buffers begin, as direct I/O asks for.
pub const ALIGNED_BYTES: usize = 4096;

/// Some bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub length_bytes: u32,
}

/// What a session that has seen a buffer remembers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which session: what another one remembers says nothing to it.
    pub session: u64,
    /// Under which number the kernel knows its memory. `None`: under none, and there is no use in asking again.
    pub place: Option<u16>,
}

/// Bytes that begin at a page's boundary. It is made once and goes back and forth between load and target.
pub struct Buffer {
    memory: Vec<u8>,
    from: usize,
    length: usize,
    /// Of a file, where it is to be filled from several places of it.
    pieces: Vec<Piece>,
    /// It goes with the memory: where that is given back to the system, so is this.
    mark: Option<Mark>,
}

impl Buffer {
    /// Zeroes, `length` bytes of them.
    pub fn new(length: usize) -> Buffer {
        let memory = vec![0; length + ALIGNED_BYTES];
        let from = boundary(&memory);
        Buffer { memory, from, length, pieces: Vec::new(), mark: None }
    }

    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    pub fn capacity(&self) -> usize {
        self.memory.len() - ALIGNED_BYTES
    }

    /// Its memory, and which part of that counts: the first byte, and how many.
    pub fn into_parts(self) -> (Vec<u8>, usize, usize) {
        (self.memory, self.from, self.length)
    }

    /// Of what `into_parts` gave, and with what its session remembers of that memory.
    pub fn from_parts(memory: Vec<u8>, from: usize, length: usize, mark: Option<Mark>) -> Buffer {
        Buffer { memory, from, length, pieces: Vec::new(), mark }
    }

    /// How many of its bytes count from here on, from its beginning; never more than its capacity.
    pub fn resize(&mut self, length: usize) {
        (self.from, self.length) = (boundary(&self.memory), length.min(self.capacity()));
    }

    /// Only so many of its bytes count from here on, from byte `from` of it; as far as it goes.
    pub fn narrow(&mut self, from: usize, length: usize) {
        let from = from.min(self.capacity());
        self.from = boundary(&self.memory) + from;
        self.length = length.min(self.capacity() - from);
    }

    /// Places of a file whose bytes are to fill it, one after the other.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Those places, and the memory that their bytes fill.
    pub fn pieces_and_memory(&mut self) -> (&[Piece], &mut [u8]) {
        (&self.pieces, &mut self.memory[self.from..self.from + self.length])
    }

    /// It is to be filled from these places from here on: as many of its bytes count as they have together.
    pub fn scatter(&mut self, pieces: impl Iterator<Item = Piece>) {
        self.pieces.clear();
        self.pieces.extend(pieces);
        let length: usize = self.pieces.iter().map(|piece| piece.length_bytes as usize).sum();
        self.resize(length);
    }
}

fn boundary(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(ALIGNED_BYTES).min(ALIGNED_BYTES)
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_boundary_whatever_its_length_and_grows_no_further_than_it_is() {
        for length in [0, 1, 512, 4095, 4096, 70_000] {
            let mut buffer = Buffer::new(length);
            assert_eq!((buffer.as_ptr() as usize % ALIGNED_BYTES, buffer.len()), (0, length));
            buffer.fill(7);
            buffer.resize(length + 1);
            assert_eq!(buffer.len(), length);
            buffer.narrow(100, 1_000);
            assert_eq!(buffer.len(), length.saturating_sub(100).min(1_000));
            buffer.resize(length);
            assert_eq!((buffer.as_ptr() as usize % ALIGNED_BYTES, buffer.len()), (0, length));
        }
    }
}
