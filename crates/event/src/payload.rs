//! What is in a fragment: a window into a block of bytes, drawn from seed, source and heartbeat id. A fragment that is swapped for
//! another is known by its checksum, and one that has to be made again is the same.

use crate::sizes::{Draws, PAYLOAD_BYTES_MAX, Sizes, SizesError};
use crate::sums::Sums;
use crc_fast::{CrcAlgorithm, Digest};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use weir_core::seed;

/// A block holds at least so many of the largest fragments, within bounds: no more than what plain streams send again and again, so that what
/// memory and caches take from both is alike.
const WINDOWS_MIN: usize = 64;
const BLOCK_BYTES: RangeInclusive<usize> = 256 << 10..=1 << 20;
/// Blocks begin on a page.
const PAGE_BYTES: usize = 4096;
/// Windows begin at multiples of it: 32,768 different ones in the smallest block. They follow one another through the block, as in
/// the ring that a detector's electronics fill, and every turn begins a step later, so that those that are alike are far apart.
const STEP_BYTES: usize = 8;
/// Windows from this size on are large: about here a pass over their bytes begins to cost more than sums over the block do.
const LARGE_BYTES_MIN: u32 = 32 << 10;
/// Windows up to this size, all of one, have their sums ready: that of every place where one may begin, half as many bytes as the block has.
const SMALL_BYTES_MAX: u32 = 1 << 10;
/// All blocks of random bytes are alike, so that sources on one host can share one.
const CONTENT: u64 = 0x7765_6972_6576_656e;

/// Bytes that fragments show windows of.
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
    /// Made by `sum`.
    sums: OnceLock<Sums>,
    /// Made by `sum_small`.
    small: OnceLock<Small>,
}

/// The sums of all windows of one size, by where they begin, in steps.
struct Small {
    bytes: u32,
    sums: Vec<u32>,
}

impl Block {
    /// Random bytes, enough for fragments of `payload_bytes_max` (at most 64 MiB).
    pub fn random(payload_bytes_max: u32) -> Block {
        let largest = (payload_bytes_max.min(PAYLOAD_BYTES_MAX) as usize).next_power_of_two();
        let len = (WINDOWS_MIN * largest).clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end()).max(largest);
        let mut block = Block::zeroed(len);
        let mut draws = Draws::of(CONTENT, 0);
        for piece in block.bytes[block.start..][..len].chunks_exact_mut(8) {
            piece.copy_from_slice(&draws.next().to_le_bytes());
        }
        block
    }

    /// The bytes of a file, which are replayed.
    pub fn of(bytes: &[u8]) -> Block {
        let mut block = Block::zeroed(bytes.len());
        block.bytes[block.start..][..bytes.len()].copy_from_slice(bytes);
        block
    }

    fn zeroed(len: usize) -> Block {
        let bytes = vec![0; len + PAGE_BYTES];
        // What can not be aligned is left as it is: nothing depends on it but speed.
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Block {
            start: if start < PAGE_BYTES { start } else { 0 },
            bytes,
            len,
            sums: OnceLock::new(),
            small: OnceLock::new(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    /// The window's bytes: two pieces where it passes the block's end, else the second is empty.
    pub fn slices(&self, window: Window) -> [&[u8]; 2] {
        let (all, first) = (self.bytes(), window.offset as usize);
        let end = first + window.bytes as usize;
        if end <= all.len() { [&all[first..end], &[]] } else { [&all[first..], &all[..end - all.len()]] }
    }

    /// Goes over the whole block once, so that checksums of large windows need not: some tenths of a second for a file of gigabytes, which
    /// a source spends before it joins and not between two heartbeats.
    fn sum(&self) {
        self.sums.get_or_init(|| Sums::of(self.bytes()));
    }

    /// The same for windows of `bytes`, whatever fragment shows them. Sources of another size that share the block do without.
    fn sum_small(&self, bytes: u32) {
        self.small.get_or_init(|| {
            let offsets = (0..self.len as u32).step_by(STEP_BYTES);
            let sums = offsets.map(|offset| crc32c(self.slices(Window { offset, bytes })));
            Small { bytes, sums: sums.collect() }
        });
    }

    pub fn crc32c(&self, window: Window) -> u32 {
        if let Some(small) = self.small.get()
            && small.bytes == window.bytes
            && (window.offset as usize).is_multiple_of(STEP_BYTES)
        {
            return small.sums[window.offset as usize / STEP_BYTES];
        }
        let slices = self.slices(window);
        match self.sums.get() {
            Some(sums) if window.bytes >= LARGE_BYTES_MIN => {
                sums.window(self.bytes(), window.offset as usize, slices.map(<[u8]>::len))
            }
            _ => crc32c(slices),
        }
    }
}

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub offset: u32,
    pub bytes: u32,
}

/// CRC32C (Castagnoli; RFC 3720, 12.1) of two pieces as if they were one.
pub fn crc32c(pieces: [&[u8]; 2]) -> u32 {
    if pieces[1].is_empty() {
        return crc_fast::crc32_iscsi(pieces[0]);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(pieces[0]);
    digest.update(pieces[1]);
    digest.finalize() as u32
}

/// What a source's fragments hold.
#[derive(Clone)]
pub struct Payload {
    block: Arc<Block>,
    sizes: Sizes,
    /// The block is a file: fragments show it from beginning to end and from the beginning again, where their sizes allow it.
    replayed: bool,
    sizes_salt: u64,
    /// Where the window of heartbeat 0 begins, and how far on the next one does; a replayed file of which the sizes are known comes without gaps.
    first_offset: u64,
    stride_bytes: u64,
}

impl Payload {
    /// Random bytes. `block` may be shared among sources; one that is too small for `sizes` is replaced by another.
    pub fn synthetic(block: &Arc<Block>, sizes: Sizes) -> Payload {
        let large = block.len >= sizes.bytes_max() as usize;
        let block = if large { Arc::clone(block) } else { Arc::new(Block::random(sizes.bytes_max())) };
        Payload::of(block, sizes, false)
    }

    /// The bytes of a file. Errors: it is empty, smaller than the largest fragment, or above 4 GiB.
    pub fn replayed(block: Arc<Block>, sizes: Sizes) -> Result<Payload, SizesError> {
        if block.len == 0 || block.len < sizes.bytes_max() as usize {
            return Err(SizesError(format!(
                "the file has {} bytes, and the largest fragment {}: replay a larger file or take smaller fragments",
                block.len,
                sizes.bytes_max()
            )));
        }
        if u32::try_from(block.len).is_err() {
            return Err(SizesError(format!("the file has {} bytes; at most 4 GiB are replayed", block.len)));
        }
        Ok(Payload::of(block, sizes, true))
    }

    fn of(block: Arc<Block>, sizes: Sizes, replayed: bool) -> Payload {
        if sizes.bytes_max() >= LARGE_BYTES_MIN {
            block.sum();
        } else if sizes.is_fixed() && sizes.bytes_max() <= SMALL_BYTES_MAX && !replayed {
            block.sum_small(sizes.bytes_max());
        }
        // From a window to the next, so that none overlaps the one before.
        let stride_bytes = u64::from(sizes.bytes_max().max(1)).next_multiple_of(STEP_BYTES as u64);
        Payload { block, sizes, replayed, sizes_salt: 0, first_offset: 0, stride_bytes }
    }

    /// From now on the payload of `source` in a run with `seed`.
    pub fn seeded(&mut self, seed: u64, source: &str) {
        let own = seed::split(seed, source);
        self.sizes_salt = seed::split(own, "sizes");
        let draw = u128::from(Draws::of(seed::split(own, "windows"), 0).next());
        self.first_offset = ((draw * (self.block.len / STEP_BYTES) as u128) >> 64) as u64 * STEP_BYTES as u64;
    }

    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }
    pub fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Payload bytes of heartbeat `id`.
    pub fn bytes(&self, id: u64) -> u32 {
        self.sizes.bytes(self.sizes_salt, id)
    }

    pub fn window(&self, id: u64) -> Window {
        let len = self.block.len;
        let offset = match self.replayed.then(|| self.sizes.before(id)).flatten() {
            Some(before) => (before % len as u128) as usize,
            None => {
                // Where the product has no room the way begins anew, for everyone alike.
                let way = id.wrapping_mul(self.stride_bytes);
                let turns = way / len as u64 * STEP_BYTES as u64;
                (way.wrapping_add(turns).wrapping_add(self.first_offset) % len as u64) as usize
            }
        };
        Window { offset: offset as u32, bytes: self.bytes(id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::{Listed, Spec};
    use proptest::prelude::*;
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    fn payload(seed: u64, source: &str, sizes: &str) -> Payload {
        let Ok(Spec::Ready(sizes)) = Spec::parse(sizes) else { panic!("{sizes}") };
        let mut payload = Payload::synthetic(&Arc::new(Block::random(0)), sizes);
        payload.seeded(seed, source);
        payload
    }
    fn crc(payload: &Payload, id: u64) -> u32 {
        payload.block().crc32c(payload.window(id))
    }

    // Spec: event-building.md#fragments-1
    #[test]
    fn a_source_that_is_started_again_makes_the_same_fragments_and_another_makes_others() {
        for sizes in ["20kB", "exponential:20kB", "uniform:min=1kB:max=5MiB"] {
            let (first, again) = (payload(3, "alpha", sizes), payload(3, "alpha", sizes));
            let others = [payload(4, "alpha", sizes), payload(3, "beta", sizes)];
            for id in [0, 1, 17, 1 << 40, u64::MAX] {
                assert_eq!(first.window(id), again.window(id), "{sizes} {id}");
                assert_eq!(crc(&first, id), crc(&again, id));
                assert!(others.iter().all(|other| crc(other, id) != crc(&first, id)), "{sizes} {id}");
                assert_ne!(crc(&first, id), crc(&first, id.wrapping_add(1)), "{sizes} {id}");
            }
        }
    }

    #[test]
    fn checksums_are_those_of_castagnoli() {
        assert_eq!(crc32c([b"123456789", b""]), 0xe306_9283);
        assert_eq!(crc32c([b"1234", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c([&[0; 32], b""]), 0x8a91_36aa);
    }

    #[test]
    fn a_replayed_file_comes_in_order_and_without_gaps_whatever_its_length() {
        let file: Vec<u8> = (0..=250).collect();
        let sizes = Sizes::Listed(Listed::read("100\n0\n33\n251\n").unwrap());
        let payload = Payload::replayed(Arc::new(Block::of(&file)), sizes).unwrap();
        let (mut shown, wanted) = (Vec::new(), 3 * file.len());
        let mut id = 0;
        while shown.len() < wanted {
            payload
                .block()
                .slices(payload.window(id))
                .iter()
                .for_each(|slice| shown.extend_from_slice(slice));
            id += 1;
        }
        assert_eq!(shown[..wanted], [file.clone(), file.clone(), file].concat());
    }

    #[test]
    fn a_file_smaller_than_a_fragment_is_refused() {
        let small = Payload::replayed(Arc::new(Block::of(&[1; 99])), Sizes::Fixed(100));
        assert!(small.is_err_and(|error| error.0.contains("99 bytes")));
        assert!(Payload::replayed(Arc::new(Block::of(&[])), Sizes::Fixed(0)).is_err());
    }

    proptest! {
        #[test]
        fn sums_that_are_ready_beforehand_are_those_of_the_bytes(id: u64, seed: u64, bytes in 0u32..1100, other in 0u32..1100) {
            let block = Arc::new(Block::random(0));
            for bytes in [bytes, other] {
                // The first size has its sums ready, the second shares the block and has none.
                let mut payload = Payload::synthetic(&block, Sizes::Fixed(bytes));
                payload.seeded(seed, "a");
                let window = payload.window(id);
                prop_assert_eq!(crc(&payload, id), crc32c(payload.block().slices(window)));
            }
        }

        #[test]
        fn every_window_is_in_its_block(id: u64, seed: u64, bytes in 0u32..6 << 20) {
            let payload = payload(seed, "a", &format!("{bytes}B"));
            let slices = payload.block().slices(payload.window(id));
            prop_assert_eq!(slices[0].len() + slices[1].len(), bytes as usize);
        }
    }

    /// Prints, and asserts nothing: the machine may be busy.
    #[test]
    fn how_fast_checksums_are() {
        for bytes in [4_000u32, 64_000, 1 << 20] {
            let payload = payload(1, "a", &format!("{bytes}B"));
            let (began, mut done) = (Instant::now(), 0u64);
            while began.elapsed() < Duration::from_millis(100) {
                for _ in 0..16 {
                    black_box(crc(&payload, black_box(done)));
                    done += 1;
                }
            }
            let per_second = done as f64 * f64::from(bytes) / began.elapsed().as_secs_f64();
            println!("CRC32C of windows of {bytes} B: {:.1} GB/s", per_second / 1e9);
        }
    }
}
