//! The bytes of every message and of a fragment's header. Rules: `docs/specs/event-building.md#connections-2`, whose test vectors are
//! checked here.
//!
//! Whoever reads is safe from whoever writes: a frame is refused by its first eight bytes where they suffice, and memory grows with what
//! has come, never with what was announced.

mod body;
mod header;
#[cfg(test)]
mod tests;

pub use body::{outcome_code, outcome_of};
pub use header::{HEADER_BYTES, Header, HeaderError};

use crate::message::{Assignment, Done, Message, Release};
use std::mem;
use thiserror::Error;

/// Kind, three zero bytes, length of the body.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Longest body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Vectors with more room than this many entries are not kept for the next message.
const SPARE_ENTRIES_MAX: usize = 4096;

#[derive(Debug, Error)]
pub enum WireError {
    #[error("a frame of the unknown kind {0} (is the peer speaking this protocol?)")]
    UnknownKind(u8),
    #[error("a frame announces {announced} bytes; at most {BODY_BYTES_MAX} are allowed")]
    TooLong { announced: u64 },
    #[error("a frame of the kind {kind} must not have {bytes} bytes")]
    WrongLength { kind: u8, bytes: usize },
    /// A field has a value that it must not have.
    #[error("a frame of the kind {kind}: {what}")]
    Malformed { kind: u8, what: &'static str },
    #[error("a frame of the kind {kind} does not hold what is expected there: {source}")]
    Json { kind: u8, source: serde_json::Error },
}

/// A message that does not fit a frame: its JSON is longer than a frame may be.
#[derive(Debug, Error)]
#[error("a message of the kind {kind} has {bytes} bytes; a frame holds {BODY_BYTES_MAX}")]
pub struct EncodeError {
    pub kind: u8,
    pub bytes: usize,
}

/// The kinds, as numbers on the wire.
pub mod kind {
    pub const JOIN: u8 = 1;
    pub const WELCOME: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const BUILDERS: u8 = 4;
    pub const SOURCES: u8 = 5;
    pub const LEAVE: u8 = 6;
    pub const SETTLED: u8 = 7;
    pub const BEATS: u8 = 16;
    pub const ANNOUNCE: u8 = 17;
    pub const ASSIGN: u8 = 18;
    pub const RELEASE: u8 = 19;
    pub const DONE: u8 = 20;
    pub const LOST: u8 = 21;
    pub const PROBE: u8 = 22;
    pub const ANSWER: u8 = 23;
    pub const CHANNEL: u8 = 24;
    pub const START: u8 = 25;
    pub const GRANT: u8 = 32;
    pub const AGAIN: u8 = 33;
}

/// Appends `message` to `out`. Lists that are too long for one frame are cut into several; `out` is as before when it fails.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let before = out.len();
    let done = body::encode(message, out);
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// Takes a connection's bytes as they come and gives messages.
///
/// It holds at most one unfinished frame: what `next` has not taken stays with the caller. Vectors of messages that are given back by
/// `recycle` are used again, so that a connection in its stride allocates nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    /// An unfinished frame, from its first byte.
    partial: Vec<u8>,
    spare: Spare,
}

#[derive(Debug, Default)]
struct Spare {
    announce: Vec<u32>,
    assign: Vec<Assignment>,
    release: Vec<Release>,
    done: Vec<Done>,
    stuck: Vec<(u32, u32)>,
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Takes bytes off the front of `input` until a message is whole; `None` when all are taken and more are wanted. After an error the
    /// connection cannot be used further.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, WireError> {
        if self.partial.is_empty() {
            // The usual case: the frame lies whole in what was read, and is not copied.
            if let Some((head, rest)) = input.split_first_chunk::<FRAME_HEADER_BYTES>() {
                let (kind, length) = check_head(head)?;
                if let Some((body, rest)) = rest.split_at_checked(length) {
                    *input = rest;
                    return body::decode(kind, body, &mut self.spare).map(Some);
                }
            }
        }
        self.take(FRAME_HEADER_BYTES, input);
        let Some(head) = self.partial.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let (kind, length) = check_head(head)?;
        self.take(FRAME_HEADER_BYTES + length, input);
        if self.partial.len() < FRAME_HEADER_BYTES + length {
            return Ok(None);
        }
        let message = body::decode(kind, &self.partial[FRAME_HEADER_BYTES..], &mut self.spare);
        // A long frame is rare (lists of builders); its memory is given back.
        self.partial.clear();
        self.partial.shrink_to(64 * 1024);
        message.map(Some)
    }

    /// Fills `partial` up to `wanted` bytes.
    fn take(&mut self, wanted: usize, input: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.partial.len()).min(input.len());
        let (now, rest) = input.split_at(missing);
        self.partial.extend_from_slice(now);
        *input = rest;
    }

    /// Whether the stream may end here: no frame is unfinished.
    pub fn is_between_frames(&self) -> bool {
        self.partial.is_empty()
    }

    /// Gives a message's vectors back for the next of its kind.
    pub fn recycle(&mut self, message: Message) {
        match message {
            Message::Announce { bytes, .. } => keep(&mut self.spare.announce, bytes),
            Message::Assign(list) => keep(&mut self.spare.assign, list),
            Message::Release(list) => keep(&mut self.spare.release, list),
            Message::Done(list) => keep(&mut self.spare.done, list),
            Message::Answer(answer) => keep(&mut self.spare.stuck, answer.stuck),
            _ => {}
        }
    }
}

fn keep<T>(spare: &mut Vec<T>, mut list: Vec<T>) {
    if list.capacity() > spare.capacity() && list.capacity() <= SPARE_ENTRIES_MAX {
        list.clear();
        *spare = list;
    }
}

/// Kind and length of the body, if there may be such a frame.
fn check_head(head: &[u8; FRAME_HEADER_BYTES]) -> Result<(u8, usize), WireError> {
    let kind = head[0];
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let bytes = length as usize;
    let shape = body::shape(kind).ok_or(WireError::UnknownKind(kind))?;
    if head[1..4] != [0; 3] {
        return Err(WireError::Malformed { kind, what: "the bytes after the kind are not zero" });
    }
    if bytes > BODY_BYTES_MAX {
        return Err(WireError::TooLong { announced: u64::from(length) });
    }
    if !shape.allows(bytes) {
        return Err(WireError::WrongLength { kind, bytes });
    }
    Ok((kind, bytes))
}

/// A spare vector, empty.
fn taken<T>(spare: &mut Vec<T>) -> Vec<T> {
    mem::take(spare)
}
