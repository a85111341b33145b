//! Packet memory: three sizes, the last one freed is the next one used (it is still in the cache), and nothing is allocated
//! once a load has reached its steady state.

use crate::packet::Packet;

/// Bytes of a buffer of each class, virtio-net header included: a plain packet, a jumbo frame, any super-packet.
const CLASS_BYTES: [usize; 3] = [2 << 10, 16 << 10, (64 << 10) + 64];
const LARGE: usize = CLASS_BYTES.len() - 1;

pub struct Buffer {
    data: Box<[u8]>,
    class: usize,
    used: usize,
    /// Segments whose fate is still open.
    left: u16,
    pub packet: Packet,
    /// How long the packet may have waited in the kernel before it was read, where that made it later.
    pub unread_ns: u64,
    /// Where this turn's open run of the buffer is in the turn's list, if the turn matches.
    pub open_run: usize,
    pub open_turn: u64,
}

impl Buffer {
    /// Virtio-net header and packet.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.used]
    }
}

#[derive(Default)]
pub struct Buffers {
    all: Vec<Buffer>,
    free: [Vec<u32>; CLASS_BYTES.len()],
    /// The large buffer that the next packet is read into.
    spare: Option<u32>,
}

impl Buffers {
    fn take(&mut self, class: usize) -> u32 {
        if let Some(number) = self.free[class].pop() {
            return number;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than four billion packets are in flight");
        self.all.push(Buffer {
            data: vec![0; CLASS_BYTES[class]].into_boxed_slice(),
            class,
            used: 0,
            left: 0,
            packet: Packet::default(),
            unread_ns: 0,
            open_run: 0,
            open_turn: 0,
        });
        number
    }

    /// Room for any packet. The same until `keep` is called.
    pub fn spare(&mut self) -> &mut [u8] {
        let number = match self.spare {
            Some(number) => number,
            None => self.take(LARGE),
        };
        self.spare = Some(number);
        &mut self.all[number as usize].data
    }

    /// Keeps the `used` bytes that were read into the spare buffer, and returns the number of the buffer they are in now: a
    /// small packet moves into a small one, so that many of them do not hold much memory.
    pub fn keep(&mut self, used: usize, packet: Packet, unread_ns: u64) -> u32 {
        let spare = self.spare.expect("something was read into the spare buffer");
        let class =
            CLASS_BYTES.iter().position(|bytes| used <= *bytes).expect("the spare buffer is the largest");
        let number = if class == LARGE {
            self.spare = None;
            spare
        } else {
            let number = self.take(class);
            let (from, to) = two(&mut self.all, spare as usize, number as usize);
            to.data[..used].copy_from_slice(&from.data[..used]);
            number
        };
        let buffer = &mut self.all[number as usize];
        buffer.used = used;
        buffer.left = packet.segments;
        buffer.packet = packet;
        buffer.unread_ns = unread_ns;
        buffer.open_turn = 0;
        number
    }

    pub fn get(&self, number: u32) -> &Buffer {
        &self.all[number as usize]
    }
    pub fn get_mut(&mut self, number: u32) -> &mut Buffer {
        &mut self.all[number as usize]
    }

    /// `segments` more of the buffer's segments are delivered or dropped; after the last the buffer is free.
    pub fn release(&mut self, number: u32, segments: u16) {
        let buffer = &mut self.all[number as usize];
        assert!(buffer.left >= segments, "a segment was released twice");
        buffer.left -= segments;
        if buffer.left == 0 {
            self.free[buffer.class].push(number);
        }
    }

    /// Buffers holding a packet.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::len).sum();
        self.all.len() - free - usize::from(self.spare.is_some())
    }
}

fn two<T>(all: &mut [T], one: usize, other: usize) -> (&T, &mut T) {
    assert_ne!(one, other);
    if one < other {
        let (left, right) = all.split_at_mut(other);
        (&left[one], &mut right[0])
    } else {
        let (left, right) = all.split_at_mut(one);
        (&right[0], &mut left[other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(segments: u16) -> Packet {
        Packet { segments, ..Packet::default() }
    }

    #[test]
    fn a_buffer_is_free_after_its_last_segment_and_the_next_packet_of_its_size_gets_it() {
        let mut buffers = Buffers::default();
        buffers.spare()[..4].copy_from_slice(b"abcd");
        let small = buffers.keep(4, packet(1), 0);
        assert_eq!(buffers.get(small).bytes(), b"abcd");
        buffers.spare()[59_999] = 7;
        let large = buffers.keep(60_000, packet(3), 0);
        assert_eq!(buffers.get(large).bytes()[59_999], 7);
        assert_eq!(buffers.in_use(), 2);
        buffers.release(large, 2);
        assert_eq!(buffers.in_use(), 2);
        buffers.release(large, 1);
        assert_eq!(buffers.in_use(), 1);
        buffers.spare();
        assert_eq!(buffers.keep(60_000, packet(1), 0), large);
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_segment_released_twice_is_a_bug_of_ours_and_stops_us() {
        let mut buffers = Buffers::default();
        buffers.spare();
        let number = buffers.keep(100, packet(1), 0);
        buffers.release(number, 1);
        buffers.release(number, 1);
    }
}
