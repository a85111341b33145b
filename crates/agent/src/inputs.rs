//! What a step's hosts read and the coordinator has: carried to hosts elsewhere by content, in pieces, once a run. It has no name there
//! and so is gone with its agent, however that ends.

use blake3::Hasher;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_core::{Value, Values};

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 128 << 10;
/// Pieces on their way at once: the clock is asked between them, and must be heard within seconds on a slow path.
pub const PIECES_AHEAD: u64 = 4;

/// One file on an agent's host.
struct Input {
    file: File,
    bytes: u64,
    have_bytes: u64,
    hasher: Hasher,
}

/// What an agent was given, by the digest of its content.
#[derive(Default)]
pub struct Inputs(BTreeMap<String, Input>);

impl Inputs {
    /// Room for a content of that many bytes, unless it is there; how many of them are here already.
    ///
    /// Errors: no room can be made.
    pub fn begin(&mut self, digest: &str, bytes: u64) -> io::Result<u64> {
        if let Some(input) = self.0.get(digest).filter(|input| input.have_bytes == input.bytes) {
            return Ok(input.have_bytes);
        }
        let file = weir_sys::directory::unnamed_file(&std::env::temp_dir())?;
        let input = Input { file, bytes, have_bytes: 0, hasher: Hasher::new() };
        self.0.insert(digest.to_owned(), input);
        Ok(0)
    }

    /// The next bytes of a content that has begun; how many are here now.
    ///
    /// Errors: more than was said, another content than was said, or no room. What came by then is gone.
    pub fn add(&mut self, digest: &str, data: &[u8]) -> io::Result<u64> {
        let Some(input) = self.0.get_mut(digest) else {
            return Err(io::Error::other("a piece of what never began"));
        };
        let added = input.add(digest, data);
        if added.is_err() {
            self.0.remove(digest);
        }
        added
    }

    /// Names in the place of the coordinator's paths what is here of them. `paths`: digests by path.
    ///
    /// Errors: something of them is not here.
    pub fn put_into(&self, values: &mut Values, paths: &BTreeMap<String, String>) -> Result<(), String> {
        let mut own = BTreeMap::new();
        for (path, digest) in paths {
            let whole = self.0.get(digest).filter(|input| input.have_bytes == input.bytes);
            let input = whole.ok_or_else(|| format!("{path} was not carried to this host"))?;
            own.insert(path.as_str(), format!("/proc/self/fd/{}", input.file.as_raw_fd()));
        }
        values.0.values_mut().for_each(|value| rename(value, &own));
        Ok(())
    }
}

fn rename(value: &mut Value, names: &BTreeMap<&str, String>) {
    match value {
        Value::Text(text) => {
            if let Some(own) = names.get(text.as_str()) {
                own.clone_into(text);
            }
        }
        Value::List(all) => all.iter_mut().for_each(|value| rename(value, names)),
        _ => {}
    }
}

impl Input {
    fn add(&mut self, digest: &str, data: &[u8]) -> io::Result<u64> {
        if self.have_bytes + data.len() as u64 > self.bytes {
            return Err(io::Error::other("more came than was said"));
        }
        self.file.write_all(data)?;
        self.hasher.update(data);
        self.have_bytes += data.len() as u64;
        if self.have_bytes == self.bytes && self.hasher.finalize().to_hex().as_str() != digest {
            return Err(io::Error::other(
                "what came is not what was said: was it changed on its way, or written to?",
            ));
        }
        Ok(self.have_bytes)
    }
}

/// What the coordinator knows of files that it carries, so that each is read for its digest once.
#[derive(Default)]
pub struct Digests(BTreeMap<(PathBuf, Option<SystemTime>, u64), String>);

impl Digests {
    /// Digest and length of a file's content. Errors: it cannot be read.
    pub fn of(&mut self, path: &Path) -> io::Result<(String, u64)> {
        let about = fs::metadata(path)?;
        let key = (path.to_owned(), about.modified().ok(), about.len());
        if let Some(digest) = self.0.get(&key) {
            return Ok((digest.clone(), about.len()));
        }
        let mut hasher = Hasher::new();
        let mut file = File::open(path)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                count => hasher.update(&piece[..count]),
            };
        }
        let digest = hasher.finalize().to_hex().to_string();
        self.0.insert(key, digest.clone());
        Ok((digest, about.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(content: &[u8]) -> String {
        blake3::hash(content).to_hex().to_string()
    }

    // Spec: agent-protocol.md#inputs-1
    #[test]
    fn a_content_is_there_once_all_of_it_came_and_it_is_what_was_said() {
        let (mut inputs, content) = (Inputs::default(), vec![7_u8; 300_000]);
        let name = digest(&content);
        let paths = BTreeMap::from([("t/trace".to_owned(), name.clone())]);
        let list = Value::List(vec![Value::Text("t/trace".to_owned()), Value::Text("random-1".to_owned())]);
        let given = Values(BTreeMap::from([("trace".to_owned(), list)]));
        assert_eq!(inputs.begin(&name, content.len() as u64).unwrap(), 0);
        let mut values = given.clone();
        let missing = inputs.put_into(&mut values, &paths).unwrap_err();
        assert!(missing.contains("t/trace was not carried"), "{missing}");
        for piece in content.chunks(PIECE_BYTES) {
            inputs.add(&name, piece).unwrap();
        }
        assert_eq!(inputs.begin(&name, content.len() as u64).unwrap(), content.len() as u64, "it is here");
        inputs.put_into(&mut values, &paths).unwrap();
        let named = values.texts("trace");
        assert_eq!((fs::read(&named[0]).unwrap(), named[1].as_str()), (content, "random-1"));
    }

    #[test]
    fn what_is_not_as_it_was_said_is_refused_and_forgotten() {
        let mut inputs = Inputs::default();
        let name = digest(b"abc");
        assert!(inputs.add(&name, b"abc").is_err(), "it never began");
        for wrong in [&b"abcd"[..], b"abd"] {
            inputs.begin(&name, 3).unwrap();
            assert!(inputs.add(&name, wrong).is_err());
            assert!(inputs.add(&name, b"abc").is_err(), "it is gone");
        }
    }

    #[test]
    fn a_file_that_was_written_to_has_another_digest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut digests = Digests::default();
        fs::write(file.path(), "one").unwrap();
        assert_eq!(digests.of(file.path()).unwrap(), (digest(b"one"), 3));
        fs::write(file.path(), "three").unwrap();
        assert_eq!(digests.of(file.path()).unwrap(), (digest(b"three"), 5));
    }
}
