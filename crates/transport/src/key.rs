//! Keys and challenges. Both ends prove that they know the key; it is never sent.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use thiserror::Error;

/// Fewest and most bytes a key may have. They may be any bytes: a key file is used as it is, its last newline included.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;
/// A number used once.
pub type Nonce = [u8; 32];
/// Proof of knowing the key, over one connection's opening.
pub type Proof = [u8; 32];

/// Separates these keys from any other use of the same bytes (BLAKE3's key derivation mode).
const CONTEXT: &str = "weir 2026 measuring connection, mutual challenge v1";

/// Who proves; in the proof, so that one end's proof is of no use as the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

#[derive(Debug, Error)]
pub enum KeyError {
    #[error("a key has 16 to 4096 bytes, not {0}; make one with: head -c 32 /dev/urandom > FILE")]
    Length(usize),
    #[error("key file {path}: {source}")]
    File { path: String, source: io::Error },
    #[error("the key of this run is not hexadecimal")]
    NotHexadecimal,
}

/// A secret both ends hold, kept only as what was derived from it.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(secret)")
    }
}

impl Key {
    pub fn from_bytes(bytes: &[u8]) -> Result<Key, KeyError> {
        if !KEY_BYTES.contains(&bytes.len()) {
            return Err(KeyError::Length(bytes.len()));
        }
        Ok(Key(blake3::derive_key(CONTEXT, bytes)))
    }

    /// Reads a key file whole. Errors: the file, or its length.
    pub fn from_file(path: &Path) -> Result<Key, KeyError> {
        let failed = |source| KeyError::File { path: path.display().to_string(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(*KEY_BYTES.end() as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        Key::from_bytes(&bytes)
    }

    /// A run's key as assignments carry it.
    pub fn from_hexadecimal(text: &str) -> Result<Key, KeyError> {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?))
            .collect();
        Key::from_bytes(&bytes.ok_or(KeyError::NotHexadecimal)?)
    }

    /// What `role` shows to have the key: a keyed hash over its role and everything both ends have said, their nonces
    /// included.
    pub fn prove(&self, role: Role, transcript: &[u8]) -> Proof {
        *self.hash(role, transcript).as_bytes()
    }

    /// Whether `proof` is the one that `role` had to give; takes the same time wherever they differ.
    pub fn verify(&self, role: Role, transcript: &[u8], proof: &Proof) -> bool {
        // `blake3::Hash` compares in constant time.
        self.hash(role, transcript) == blake3::Hash::from_bytes(*proof)
    }

    fn hash(&self, role: Role, transcript: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match role {
            Role::Client => b"client",
            Role::Server => b"server",
        });
        hasher.update(transcript);
        hasher.finalize()
    }
}

/// Bytes nobody can foresee, from the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Spec: net-protocol.md#keys-1
    #[test]
    fn a_key_shorter_than_16_or_longer_than_4096_bytes_is_refused() {
        assert!(Key::from_bytes(&[1; 15]).is_err());
        assert!(Key::from_bytes(&[1; 16]).is_ok());
        assert!(Key::from_bytes(&[1; 4096]).is_ok());
        assert!(Key::from_bytes(&[1; 4097]).is_err());
        assert!(Key::from_hexadecimal("zz").is_err());
        assert!(Key::from_hexadecimal("00112233445566778899aabbccddeef").is_err());
        assert!(Key::from_hexadecimal("00112233445566778899aabbccddeeff").is_ok());
    }

    proptest! {
        // Spec: net-protocol.md#keys-2
        #[test]
        fn a_proof_holds_for_its_key_role_and_words_only(
            bytes in prop::collection::vec(any::<u8>(), 16..64),
            words in prop::collection::vec(any::<u8>(), 1..64),
            flip in any::<prop::sample::Index>(),
        ) {
            let key = Key::from_bytes(&bytes).unwrap();
            let proof = key.prove(Role::Client, &words);
            prop_assert!(key.verify(Role::Client, &words, &proof));
            prop_assert!(!key.verify(Role::Server, &words, &proof));
            let mut other = words.clone();
            other[flip.index(words.len())] ^= 1;
            prop_assert!(!key.verify(Role::Client, &other, &proof));
            let mut near = bytes.clone();
            near[flip.index(bytes.len())] ^= 1;
            prop_assert!(!Key::from_bytes(&near).unwrap().verify(Role::Client, &words, &proof));
        }
    }
}
