//! Checksums of parts of a block without a pass over their bytes: a CRC is linear, so that of a part follows from those of all that is
//! before its end and of all that is before its beginning.

use crate::payload::crc32c;
use crc_fast::{CrcAlgorithm, Digest};

/// What is between two known sums is summed when it is asked for: at most so much.
const PAGE_BYTES: usize = 4096;
/// Castagnoli's polynomial without its highest power, the lowest bit first (RFC 3720, 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x to the power of 0 in the same order of bits.
const ONE: u32 = 1 << 31;

/// The CRC32C of every beginning of a block that ends with a page.
pub(crate) struct Sums {
    pages: Vec<u32>,
    /// x to the power of 8 · 2^k, for every k that a length has a bit for.
    powers: [u32; 32],
}

impl Sums {
    pub fn of(block: &[u8]) -> Sums {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let mut pages = vec![crc32c([&[], &[]])];
        for page in block.chunks_exact(PAGE_BYTES) {
            digest.update(page);
            pages.push(digest.finalize() as u32);
        }
        let mut next = ONE >> 8;
        let powers = std::array::from_fn(|_| {
            let power = next;
            next = product(power, power);
            power
        });
        Sums { pages, powers }
    }

    /// The CRC32C of a window that begins at `offset` of `block`, which these are the sums of: `first` bytes from there and `rest` from the
    /// block's beginning, where the window passes its end.
    pub fn window(&self, block: &[u8], offset: usize, [first, rest]: [usize; 2]) -> u32 {
        self.followed_by_zeros(self.part(block, offset, offset + first), rest) ^ self.until(block, rest)
    }

    fn part(&self, block: &[u8], from: usize, end: usize) -> u32 {
        self.until(block, end) ^ self.followed_by_zeros(self.until(block, from), end - from)
    }

    /// Of all before `end`.
    fn until(&self, block: &[u8], end: usize) -> u32 {
        let page = end / PAGE_BYTES;
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.pages[page]));
        digest.update(&block[page * PAGE_BYTES..end]);
        digest.finalize() as u32
    }

    /// What a sum turns into when so many bytes follow, but for the sum of these.
    fn followed_by_zeros(&self, sum: u32, bytes: usize) -> u32 {
        let powers = self.powers.iter().enumerate().filter(|(bit, _)| bytes >> bit & 1 == 1);
        powers.fold(sum, |sum, (_, power)| product(sum, *power))
    }
}

/// The product of two polynomials, modulo Castagnoli's.
fn product(left: u32, mut right: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        product ^= right & (left >> bit & 1).wrapping_neg();
        right = right >> 1 ^ POLYNOMIAL & (right & 1).wrapping_neg();
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_windows_checksum_is_that_of_its_bytes(
            block in prop::collection::vec(any::<u8>(), 1..20_000),
            place in any::<prop::sample::Index>(),
            length in any::<prop::sample::Index>(),
        ) {
            let (offset, bytes) = (place.index(block.len()), length.index(block.len() + 1));
            let around: Vec<u8> = block.iter().chain(&block).skip(offset).take(bytes).copied().collect();
            let rest = (offset + bytes).saturating_sub(block.len());
            let sum = Sums::of(&block).window(&block, offset, [bytes - rest, rest]);
            prop_assert_eq!(sum, crc32c([&around, &[]]));
        }
    }
}
