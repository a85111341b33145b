//! Content that can be verified wherever it is read: each word follows from the file's name and its place.

use weir_core::seed;
use weir_seams::target::TargetError;

/// The golden ratio's bits: the SplitMix64 sequence (Steele, Lea, Flood, OOPSLA 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 8;

/// Code of what was read and is not what belongs there.
pub const DIFFERS: &str = "EBADMSG";

/// What a file of this name holds: the last part of its path, so that it is the same by whatever way it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

impl Content {
    pub fn of(path: &str) -> Content {
        let name = path.rsplit('/').next().unwrap_or(path);
        Content { seed: seed::split(0, name) }
    }

    fn word(self, index: u64) -> [u8; WORD] {
        let mut mixed = self.seed.wrapping_add(index.wrapping_mul(STEP));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    }

    /// Puts what stands from `offset` on into `bytes`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        self.words(offset, bytes.len(), |from, word| bytes[from..from + word.len()].copy_from_slice(word));
    }

    /// Where `bytes`, read from `offset` on, first differ from what stands there.
    pub fn difference(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut first = None;
        self.words(offset, bytes.len(), |from, word| {
            if first.is_none() && bytes[from..from + word.len()] != *word {
                let within =
                    bytes[from..].iter().zip(word).take_while(|(found, wanted)| found == wanted).count();
                first = Some(offset + (from + within) as u64);
            }
        });
        first
    }

    /// Why what was moved is not what was asked for, from places of the file (offset and length), `asked` bytes together. What was
    /// `read` is compared with what stands there; `None`: it is not to be.
    pub fn wrong(
        self,
        moved: u64,
        asked: u64,
        places: impl Iterator<Item = (u64, u64)>,
        read: Option<&[u8]>,
    ) -> Option<TargetError> {
        let mut places = places.peekable();
        if moved != asked {
            let offset = places.peek().map_or(0, |(offset, _)| *offset);
            let text = format!("{moved} of {asked} bytes at offset {offset}: the file ends there");
            return Some(TargetError::coded("ENODATA", text));
        }
        let mut rest = read?;
        let at = places.find_map(|(offset, length)| {
            let (bytes, others) = rest.split_at_checked(length as usize)?;
            rest = others;
            self.difference(offset, bytes)
        })?;
        let text = format!("the content differs from what belongs there from offset {at} on");
        Some(TargetError::coded(DIFFERS, text))
    }

    /// Calls `each` with every piece of a word that lies in `length` bytes from `offset` on.
    fn words(self, offset: u64, length: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut index = offset / WORD as u64;
        let skipped = (offset % WORD as u64) as usize;
        let mut at = 0;
        if skipped > 0 && length > 0 {
            let word = self.word(index);
            let end = WORD.min(skipped + length);
            each(0, &word[skipped..end]);
            at = end - skipped;
            index += 1;
        }
        while at + WORD <= length {
            each(at, &self.word(index));
            at += WORD;
            index += 1;
        }
        if at < length {
            each(at, &self.word(index)[..length - at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Spec: storage.md#verify-1
        #[test]
        fn any_piece_is_what_the_whole_has_there_and_any_changed_byte_is_found(
            from in 0_usize..300, length in 0_usize..300, changed in 0_usize..300, base in 0_u64..1 << 50,
        ) {
            let content = Content::of("store/f-7");
            let mut whole = vec![0; 700];
            content.fill(base, &mut whole);
            let mut piece = vec![0; length];
            content.fill(base + from as u64, &mut piece);
            prop_assert_eq!(&whole[from..from + length], &piece[..]);
            prop_assert_eq!(content.difference(base + from as u64, &piece), None);
            if let Some(byte) = piece.get_mut(changed) {
                *byte ^= 1;
                prop_assert_eq!(content.difference(base + from as u64, &piece), Some(base + (from + changed) as u64));
            }
        }
    }

    // Spec: storage.md#verify-1
    #[test]
    fn content_is_fixed_for_ever_and_differs_by_name_and_place() {
        let mut bytes = [0; 16];
        Content::of("f-0").fill(0, &mut bytes);
        let words: Vec<String> = bytes
            .chunks(8)
            .map(|word| format!("{:016x}", u64::from_le_bytes(word.try_into().unwrap())))
            .collect();
        assert_eq!(words, ["f124b6945bdf37e4", "a63f8a1bb299809c"]);
        assert_eq!(Content::of("a/b/f-0"), Content::of("f-0"));
        assert_ne!(Content::of("f-1"), Content::of("f-0"));
    }
}
