//! Length-prefixed JSON frames: a little-endian `u32` and as many bytes of JSON. Control connections and agents speak
//! them. Whoever reads is safe from whoever writes: a length beyond the reader's maximum is refused before a byte of
//! the body is read, and memory grows with what has arrived, never with what was announced.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use thiserror::Error;

/// What the reader gains at once; more memory is taken only after so much has really come.
const STEP_BYTES: usize = 64 * 1024;

#[derive(Debug, Error)]
pub enum FrameError {
    /// The stream ended inside a frame.
    #[error("the stream ended after {got} of the {wanted} bytes of a frame")]
    Truncated { got: usize, wanted: usize },
    #[error(
        "a frame announces {announced} bytes; at most {limit} are allowed here (is the peer speaking this protocol?)"
    )]
    TooLong { announced: u64, limit: usize },
    #[error("a frame does not hold what is expected here: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes one frame with a single `write_all`, so that a slow peer never sees half a length, and flushes.
/// Errors: what the stream says; `InvalidInput` for a message of 4 GiB or more.
pub fn write_frame(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(io::Error::from)?;
    let length = u32::try_from(bytes.len() - 4)
        .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "a frame of 4 GiB or more"))?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    out.write_all(&bytes)?;
    out.flush()
}

/// Reads one frame of at most `max_bytes`; `None` when the stream ends cleanly before the first byte of it.
/// A read that times out is `FrameError::Io`; the stream cannot be used further then, unless no byte had come.
pub fn read_frame<T: DeserializeOwned>(
    input: &mut impl Read,
    max_bytes: usize,
) -> Result<Option<T>, FrameError> {
    let mut prefix = [0; 4];
    match read_up_to(input, &mut prefix)? {
        0 => return Ok(None),
        4 => {}
        got => return Err(FrameError::Truncated { got, wanted: 4 }),
    }
    let announced = u32::from_le_bytes(prefix) as usize;
    if announced > max_bytes {
        return Err(FrameError::TooLong { announced: announced as u64, limit: max_bytes });
    }
    let mut body = Vec::new();
    while body.len() < announced {
        let before = body.len();
        let step = (announced - before).min(STEP_BYTES.max(before));
        body.resize(before + step, 0);
        let got = read_up_to(input, &mut body[before..])?;
        if got < step {
            return Err(FrameError::Truncated { got: before + got, wanted: announced });
        }
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Fills `bytes` unless the stream ends before; returns how many came.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its bytes a few at a time and counts how far it was read.
    struct Trickle<'a> {
        bytes: &'a [u8],
        at_most: usize,
    }
    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = out.len().min(self.bytes.len()).min(self.at_most);
            out[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    #[test]
    fn a_garbage_length_is_refused_before_the_body_is_read() {
        let garbage = 0x8000_0000_0000_0000u64.to_be_bytes();
        let huge = [0xff; 12];
        for (bytes, refused) in [(&garbage[..], false), (&huge[..], true)] {
            let mut input = bytes;
            let result = read_frame::<u32>(&mut input, 1 << 20);
            match result {
                Err(FrameError::TooLong { announced, .. }) => {
                    assert!(refused && announced == 0xffff_ffff);
                    assert_eq!(input.len(), 8, "the body was touched");
                }
                other => assert!(!refused, "{other:?}"),
            }
        }
    }

    // Spec: net-protocol.md#frames-2
    #[test]
    fn a_long_announcement_without_a_body_costs_one_step_of_memory_and_is_truncated() {
        let mut bytes = (1u32 << 30).to_le_bytes().to_vec();
        bytes.extend([b'1'; 10]);
        match read_frame::<u32>(&mut bytes.as_slice(), 1 << 30) {
            Err(FrameError::Truncated { got: 10, wanted }) => assert_eq!(wanted, 1 << 30),
            other => panic!("{other:?}"),
        }
    }

    // Spec: net-protocol.md#frames-3
    #[test]
    fn the_end_before_a_frame_is_none_and_inside_the_length_an_error() {
        assert!(matches!(read_frame::<u32>(&mut [].as_slice(), 10), Ok(None)));
        let error = read_frame::<u32>(&mut [1, 0].as_slice(), 10).unwrap_err();
        assert!(matches!(error, FrameError::Truncated { got: 2, wanted: 4 }), "{error}");
    }

    proptest! {
        // Spec: net-protocol.md#frames-1
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(".{0,80}", 0..5), 0..5),
            at_most in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for message in &messages {
                write_frame(&mut bytes, message).unwrap();
            }
            let mut input = Trickle { bytes: &bytes, at_most };
            for message in &messages {
                let read: Option<Vec<String>> = read_frame(&mut input, 1 << 16).unwrap();
                prop_assert_eq!(read.as_ref(), Some(message));
            }
            prop_assert!(read_frame::<Vec<String>>(&mut input, 1 << 16).unwrap().is_none());
        }

        #[test]
        fn no_bytes_make_the_reader_panic_or_read_past_its_limit(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut input = bytes.as_slice();
            while let Ok(Some(_)) = read_frame::<serde_json::Value>(&mut input, 64) {}
            prop_assert!(bytes.len() - input.len() <= bytes.len());
        }

        #[test]
        fn a_frame_cut_short_is_never_taken_for_a_whole_one(text in ".{1,60}", cut in 1usize..100) {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, &text).unwrap();
            let keep = bytes.len().saturating_sub(cut);
            let result = read_frame::<String>(&mut &bytes[..keep], 1 << 16);
            let refused = matches!(result, Ok(None) | Err(FrameError::Truncated { .. }));
            prop_assert!(refused);
            prop_assert_eq!(matches!(result, Ok(None)), keep == 0);
        }
    }
}
