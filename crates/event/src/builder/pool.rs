//! Buffers that are used again, so that receiving allocates nothing once a builder is in its stride.

/// An eighth of a power of two.
const STEPS: u32 = 8;
const CLASSES: usize = 32 * STEPS as usize;

/// Buffers in classes an eighth apart: one is at most an eighth larger than what is asked for. All of them together, used and idle, have
/// at most an eighth more bytes than the pool was made for: where that is reached, idle ones of other sizes are given back to the system.
pub struct Pool {
    idle: Vec<Vec<Vec<u8>>>,
    idle_bytes: u64,
    used_bytes: u64,
    bytes_max: u64,
    /// Buffers that were made anew.
    made: u64,
}

/// The class whose buffers hold `bytes`, and their length.
fn class(bytes: usize) -> (usize, usize) {
    if bytes <= 64 {
        let step = bytes.div_ceil(8);
        return (step, step * 8);
    }
    // With 2^k < bytes <= 2^(k+1), the steps between are of 2^k / 8.
    let exponent = (bytes - 1).ilog2();
    let step = 1usize << (exponent - 3);
    let count = bytes.div_ceil(step);
    // 9…16 steps: the classes of one exponent follow on those of the one below, and those begin behind the 8 small ones.
    let index = (exponent as usize - 6) * STEPS as usize + count;
    (index, count * step)
}

impl Pool {
    pub fn new(bytes_max: u64) -> Pool {
        Pool {
            idle: (0..CLASSES).map(|_| Vec::new()).collect(),
            idle_bytes: 0,
            used_bytes: 0,
            bytes_max: bytes_max.saturating_add(bytes_max / 8).saturating_add(64),
            made: 0,
        }
    }

    /// A buffer of at least `bytes`; what is in it is left from before. Empty for none.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        let (class, length) = class(bytes);
        let buffer = self.idle.get_mut(class).and_then(Vec::pop);
        self.used_bytes += length as u64;
        if let Some(buffer) = buffer {
            self.idle_bytes -= length as u64;
            return buffer;
        }
        for idle in self.idle.iter_mut().rev() {
            while self.used_bytes + self.idle_bytes > self.bytes_max {
                let Some(buffer) = idle.pop() else { break };
                self.idle_bytes -= buffer.len() as u64;
            }
        }
        self.made += 1;
        vec![0; length]
    }

    pub fn give(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() {
            return;
        }
        let (class, length) = class(buffer.len());
        self.used_bytes -= length as u64;
        self.idle_bytes += length as u64;
        if let Some(idle) = self.idle.get_mut(class) {
            idle.push(buffer);
        }
    }

    /// Used and idle.
    pub fn bytes(&self) -> u64 {
        self.used_bytes + self.idle_bytes
    }
    pub fn made(&self) -> u64 {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_holds_what_it_is_for_and_wastes_at_most_an_eighth(bytes in 1usize..1 << 30) {
            let (index, length) = class(bytes);
            prop_assert!(length >= bytes && length <= bytes + (bytes / 8).max(7), "{bytes}: {length}");
            prop_assert_eq!(class(length), (index, length), "its own length is in it");
            prop_assert!(index < CLASSES);
            prop_assert!(class(length + 1).0 == index + 1, "{}", length);
        }

        #[test]
        fn a_pool_never_has_more_than_an_eighth_above_what_is_used_at_most(sizes in prop::collection::vec(1usize..5000, 1..300)) {
            let mut pool = Pool::new(20_000);
            let mut used: Vec<(Vec<u8>, usize)> = Vec::new();
            let mut sum = 0;
            for bytes in sizes {
                // Buffers count as what they are asked for plus a fragment's header, as a builder counts them.
                while sum + bytes + 40 > 20_000 {
                    let (buffer, asked) = used.swap_remove(bytes % used.len());
                    sum -= asked + 40;
                    pool.give(buffer);
                }
                let buffer = pool.take(bytes);
                prop_assert!(buffer.len() >= bytes);
                sum += bytes + 40;
                used.push((buffer, bytes));
                prop_assert!(pool.bytes() <= 20_000 * 9 / 8 + 64, "{}", pool.bytes());
            }
        }
    }

    #[test]
    fn the_same_sizes_again_need_no_new_buffers() {
        let mut pool = Pool::new(1 << 20);
        for _ in 0..10 {
            let buffers: Vec<_> =
                [1, 63, 64, 65, 20_000, 58_000].iter().map(|bytes| pool.take(*bytes)).collect();
            buffers.into_iter().for_each(|buffer| pool.give(buffer));
        }
        assert_eq!(pool.made(), 6);
    }
}
