//! The program that is copied to hosts that have none.

use std::path::Path;

/// A program with what tells it from others and from damaged copies of itself.
#[derive(Debug)]
pub struct Image {
    pub bytes: Vec<u8>,
    /// `weir-agent-` and the beginning of a hash of the bytes.
    pub name: String,
    /// As `cksum` computes it, which every Unix has.
    pub sum: u32,
}

impl Image {
    /// Errors: a sentence for people.
    pub fn read(path: &Path) -> Result<Image, String> {
        let bytes = std::fs::read(path)
            .map_err(|error| format!("the program to copy, {}, cannot be read: {error}", path.display()))?;
        let hash = blake3::hash(&bytes).to_hex();
        let name = format!("weir-agent-{}", &hash.as_str()[..16]);
        Ok(Image { name, sum: posix_cksum(&bytes), bytes })
    }

    /// Whether it can run where `uname -s` and `uname -m` say this. Errors: why not, and what to do.
    pub fn fits(&self, machine: &str) -> Result<(), String> {
        let ours = format!("Linux {}", std::env::consts::ARCH);
        if machine == ours {
            return Ok(());
        }
        let theirs = weir_core::text::shown(machine, 60);
        Err(format!(
            "this weir is for {ours} and the host is {theirs}, so it cannot be copied there; install weir there and name it \
             with `agent`"
        ))
    }
}

/// The checksum of POSIX `cksum`: CRC-32 with polynomial 0x04c11db7, most significant bit first, over the bytes and then
/// their number, least significant byte first; inverted.
fn posix_cksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = (index as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 0x8000_0000 != 0 { (value << 1) ^ 0x04c1_1db7 } else { value << 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| (sum << 8) ^ TABLE[usize::from((sum >> 24) as u8 ^ byte)];
    let length = (bytes.len() as u64).to_le_bytes();
    let significant = length.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    !length[..significant].iter().fold(bytes.iter().fold(0, step), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_command() {
        // What cksum prints for nothing, for "123456789", and for 70,000 zeros.
        assert_eq!(posix_cksum(b""), 4_294_967_295);
        assert_eq!(posix_cksum(b"123456789"), 930_766_865);
        assert_eq!(posix_cksum(&[0; 70_000]), 1_774_371_287);
    }

    #[test]
    fn a_copy_goes_only_where_it_can_run() {
        let image = Image { bytes: Vec::new(), name: String::new(), sum: 0 };
        assert_eq!(image.fits(&format!("Linux {}", std::env::consts::ARCH)), Ok(()));
        let other = image.fits("Linux sparc64").unwrap_err();
        assert!(other.contains("sparc64") && other.contains("`agent`"), "{other}");
        assert!(image.fits("Darwin arm64").is_err());
    }
}
