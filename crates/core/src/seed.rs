//! One seed, split by name, so that one more draw in a link does not reshuffle another part.

/// Derives a component's own seed from the run's seed and the component's name (FNV-1a, then the SplitMix64 finaliser;
/// Steele, Lea, Flood, OOPSLA 2014).
pub fn split(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut mixed = seed ^ hash;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_same_name_gives_the_same_seed_and_another_name_another() {
        assert_eq!(super::split(42, "link.wan.forward"), super::split(42, "link.wan.forward"));
        assert_ne!(super::split(42, "link.wan.forward"), super::split(42, "link.wan.backward"));
        assert_ne!(super::split(42, "a"), super::split(43, "a"));
    }
}
