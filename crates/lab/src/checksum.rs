//! The Internet checksum (RFC 1071).

/// A ones' complement sum in the making. Parts are added in any order; each but the last has an even length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes as big-endian words, an odd last one padded with zero.
    #[must_use]
    pub fn add(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0;
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        let mut last = [0; 4];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        // Two bytes count as one word, so that they stand where a word of two would.
        Sum(sum + u64::from(u32::from_be_bytes(last)))
    }

    /// Adds a number as two words.
    #[must_use]
    pub fn add_number(self, number: u32) -> Sum {
        Sum(self.0 + u64::from(number))
    }

    /// The sum, not complemented.
    pub fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// What goes into a header.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// The checksum after one of the words that it covers has changed (RFC 1624, equation 3).
pub fn update(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!before) + u64::from(after);
    Sum(sum).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_has_the_sum_it_gives() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).folded(), 0xddf2);
        // In parts, and with an odd end.
        assert_eq!(Sum::default().add(&bytes[..2]).add(&bytes[2..]).folded(), 0xddf2);
        assert_eq!(Sum::default().add(&[0x12, 0x34, 0x56]).folded(), 0x1234 + 0x5600);
        assert_eq!(Sum::default().add(&[0xff]).add_number(0x0001_0002).folded(), 0xff00 + 3);
    }
}
