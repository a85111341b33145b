//! What stands in a frame of each kind.

use super::{BODY_BYTES_MAX, EncodeError, FRAME_HEADER_BYTES, Spare, WireError, kind, taken};
use crate::ledger::Reason;
use crate::message::{Answer, Assignment, Done, Message, Outcome, Release};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};

/// "Taken from this builder", in an outcome's place.
const TAKEN: u8 = 255;

/// Which lengths a body may have.
pub(super) enum Shape {
    /// One JSON document.
    Text,
    Fixed(usize),
    /// Entries of so many bytes behind so many of a start.
    List {
        start: usize,
        entry: usize,
    },
}

impl Shape {
    pub(super) fn allows(&self, bytes: usize) -> bool {
        match *self {
            Shape::Text => bytes > 0,
            Shape::Fixed(fixed) => bytes == fixed,
            Shape::List { start, entry } => bytes >= start && (bytes - start).is_multiple_of(entry),
        }
    }
    /// So many entries fit a frame.
    fn entries_max(&self) -> usize {
        match *self {
            Shape::List { start, entry } => (BODY_BYTES_MAX - start) / entry,
            _ => 1,
        }
    }
}

pub(super) fn shape(of: u8) -> Option<Shape> {
    Some(match of {
        kind::JOIN..=kind::SETTLED => Shape::Text,
        kind::BEATS => Shape::Fixed(24),
        kind::ANNOUNCE => Shape::List { start: 16, entry: 4 },
        kind::ASSIGN | kind::RELEASE | kind::DONE | kind::LOST | kind::AGAIN => {
            Shape::List { start: 0, entry: 16 }
        }
        kind::START => Shape::Fixed(16),
        kind::PROBE | kind::GRANT => Shape::Fixed(8),
        kind::ANSWER => Shape::List { start: 32, entry: 8 },
        kind::CHANNEL => Shape::List { start: 0, entry: 8 },
        _ => return None,
    })
}

/// On the wire: 0 complete, 1 partial, 2… dropped, in the order of the reasons.
pub fn outcome_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Complete => 0,
        Outcome::Partial => 1,
        Outcome::Dropped(reason) => 2 + reason as u8,
    }
}

pub fn outcome_of(code: u8) -> Option<Outcome> {
    Some(match code {
        0 => Outcome::Complete,
        1 => Outcome::Partial,
        _ => Outcome::Dropped(*Reason::ALL.get(usize::from(code - 2))?),
    })
}

pub(super) fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match message {
        Message::Join(join) => text(kind::JOIN, join, out),
        Message::Welcome(welcome) => text(kind::WELCOME, welcome, out),
        Message::Refused(refused) => text(kind::REFUSED, refused, out),
        Message::Builders(list) => text(kind::BUILDERS, list, out),
        Message::Sources(list) => text(kind::SOURCES, list, out),
        Message::Leave(why) => text(kind::LEAVE, why, out),
        Message::Settled(settled) => text(kind::SETTLED, settled, out),
        Message::Beats { first, count, age_ns } => {
            head(kind::BEATS, 24, out);
            words(out, &[*first, u64::from(*count), *age_ns]);
            Ok(())
        }
        Message::Announce { first, bytes } => {
            encode_announce(*first, bytes, out);
            Ok(())
        }
        Message::Assign(all) => list(kind::ASSIGN, all, out, |entry, out| {
            words(out, &[entry.id, u64::from(entry.builder) | u64::from(entry.epoch) << 32]);
        }),
        Message::Release(all) => list(kind::RELEASE, all, out, |entry, out| {
            let code = entry.outcome.map_or(TAKEN, outcome_code);
            words(out, &[entry.first, u64::from(entry.count) | u64::from(code) << 32]);
        }),
        Message::Done(all) => list(kind::DONE, all, out, |entry, out| {
            words(out, &[entry.id, u64::from(entry.epoch) | u64::from(outcome_code(entry.outcome)) << 32]);
        }),
        Message::Lost(all) => list(kind::LOST, all, out, |(first, count), out| {
            words(out, &[*first, u64::from(*count)]);
        }),
        Message::Probe(number) => {
            head(kind::PROBE, 8, out);
            words(out, &[*number]);
            Ok(())
        }
        Message::Answer(answer) => encode_answer(answer, out),
        Message::Channel(all) => list(kind::CHANNEL, all, out, |(builder, works), out| {
            words(out, &[u64::from(*builder) | u64::from(*works) << 32]);
        }),
        Message::Start { first, in_ns } => {
            head(kind::START, 16, out);
            words(out, &[*first, *in_ns]);
            Ok(())
        }
        Message::Grant { total_bytes } => {
            head(kind::GRANT, 8, out);
            words(out, &[*total_bytes]);
            Ok(())
        }
        Message::Again(all) => list(kind::AGAIN, all, out, |(id, epoch), out| {
            words(out, &[*id, u64::from(*epoch)]);
        }),
    }
}

fn head(of: u8, bytes: usize, out: &mut Vec<u8>) {
    debug_assert!(bytes <= BODY_BYTES_MAX, "a body of {bytes} bytes");
    out.extend_from_slice(&[of, 0, 0, 0]);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
}

fn words(out: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Cut into frames; an empty list is one empty frame.
fn list<T>(
    of: u8,
    entries: &[T],
    out: &mut Vec<u8>,
    mut each: impl FnMut(&T, &mut Vec<u8>),
) -> Result<(), EncodeError> {
    let Some(Shape::List { start: 0, entry }) = shape(of) else { unreachable!("kind {of} is a plain list") };
    if entries.is_empty() {
        head(of, 0, out);
    }
    for part in entries.chunks(Shape::List { start: 0, entry }.entries_max()) {
        head(of, part.len() * entry, out);
        part.iter().for_each(|one| each(one, out));
    }
    Ok(())
}

fn encode_announce(first: u64, bytes: &[u32], out: &mut Vec<u8>) {
    let mut at = first;
    for part in bytes.chunks((BODY_BYTES_MAX - 16) / 4) {
        head(kind::ANNOUNCE, 16 + part.len() * 4, out);
        words(out, &[at, part.len() as u64]);
        for size in part {
            out.extend_from_slice(&size.to_le_bytes());
        }
        at = at.saturating_add(part.len() as u64);
    }
}

fn encode_answer(answer: &Answer, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let bytes = 32 + answer.stuck.len() * 8;
    if bytes > BODY_BYTES_MAX {
        return Err(EncodeError { kind: kind::ANSWER, bytes });
    }
    head(kind::ANSWER, bytes, out);
    let counts = u64::from(answer.held_events) | (answer.stuck.len() as u64) << 32;
    words(out, &[answer.number, answer.held_bytes, answer.moved_bytes, counts]);
    for (builder, stuck_us) in &answer.stuck {
        words(out, &[u64::from(*builder) | u64::from(*stuck_us) << 32]);
    }
    Ok(())
}

/// Writes into a vector, at most as much as a frame holds; counts the rest.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    written: usize,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        if self.written <= BODY_BYTES_MAX {
            self.out.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn text(of: u8, what: &impl Serialize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let before = out.len();
    head(of, 0, out);
    let mut bounded = Bounded { out, written: 0 };
    // Maps with keys that are not text are what JSON cannot say; there are none in a message.
    let said = serde_json::to_writer(&mut bounded, what);
    let bytes = bounded.written;
    if bytes > BODY_BYTES_MAX || said.is_err() {
        return Err(EncodeError { kind: of, bytes });
    }
    out[before + 4..before + FRAME_HEADER_BYTES].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(())
}

/// `body` has a length that its kind allows.
pub(super) fn decode(of: u8, body: &[u8], spare: &mut Spare) -> Result<Message, WireError> {
    Ok(match of {
        kind::JOIN => Message::Join(parse(of, body)?),
        kind::WELCOME => Message::Welcome(parse(of, body)?),
        kind::REFUSED => Message::Refused(parse(of, body)?),
        kind::BUILDERS => Message::Builders(parse(of, body)?),
        kind::SOURCES => Message::Sources(parse(of, body)?),
        kind::LEAVE => Message::Leave(parse(of, body)?),
        kind::SETTLED => Message::Settled(parse(of, body)?),
        kind::BEATS => {
            let (first, count) = range(of, word(body, 0), word(body, 1))?;
            Message::Beats { first, count, age_ns: word(body, 2) }
        }
        kind::ANNOUNCE => decode_announce(body, taken(&mut spare.announce))?,
        kind::ASSIGN => Message::Assign(entries(body, taken(&mut spare.assign), |id, rest| {
            Ok(Assignment { id, builder: rest as u32, epoch: (rest >> 32) as u32 })
        })?),
        kind::RELEASE => Message::Release(entries(body, taken(&mut spare.release), |first, rest| {
            let code = small(of, rest >> 32)?;
            let outcome = if code == TAKEN { None } else { Some(outcome(of, code)?) };
            let (first, count) = range(of, first, rest & LOW)?;
            Ok(Release { first, count, outcome })
        })?),
        kind::DONE => Message::Done(entries(body, taken(&mut spare.done), |id, rest| {
            Ok(Done { id, epoch: rest as u32, outcome: outcome(of, small(of, rest >> 32)?)? })
        })?),
        kind::LOST => Message::Lost(entries(body, Vec::new(), |first, rest| range(of, first, rest))?),
        kind::PROBE => Message::Probe(word(body, 0)),
        kind::ANSWER => decode_answer(body, taken(&mut spare.stuck))?,
        kind::CHANNEL => Message::Channel(decode_channel(body)?),
        kind::START => Message::Start { first: word(body, 0), in_ns: word(body, 1) },
        kind::GRANT => Message::Grant { total_bytes: word(body, 0) },
        kind::AGAIN => Message::Again(entries(body, Vec::new(), |id, rest| {
            let epoch = u32::try_from(rest).map_err(|_| NOT_ZERO.of(of))?;
            Ok((id, epoch))
        })?),
        _ => return Err(WireError::UnknownKind(of)),
    })
}

const LOW: u64 = 0xffff_ffff;

/// A reason that needs its kind yet.
struct What(&'static str);
const NOT_ZERO: What = What("a field that must be zero is not");

impl What {
    fn of(&self, kind: u8) -> WireError {
        WireError::Malformed { kind, what: self.0 }
    }
}

fn parse<T: DeserializeOwned>(of: u8, body: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(body).map_err(|source| WireError::Json { kind: of, source })
}

/// The word at `index`; the body's length was checked.
fn word(body: &[u8], index: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&body[index * 8..index * 8 + 8]);
    u64::from_le_bytes(bytes)
}

/// First id and count, when the count is in the low half of its word and the range does not run over.
fn range(of: u8, first: u64, count: u64) -> Result<(u64, u32), WireError> {
    let count = u32::try_from(count).map_err(|_| NOT_ZERO.of(of))?;
    if first.checked_add(u64::from(count)).is_none() {
        return Err(What("ids run over").of(of));
    }
    Ok((first, count))
}

fn small(of: u8, value: u64) -> Result<u8, WireError> {
    u8::try_from(value).map_err(|_| NOT_ZERO.of(of))
}

fn outcome(of: u8, code: u8) -> Result<Outcome, WireError> {
    outcome_of(code).ok_or_else(|| What("no such outcome").of(of))
}

/// Two words an entry.
fn entries<T>(
    body: &[u8],
    mut list: Vec<T>,
    mut each: impl FnMut(u64, u64) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    list.reserve(body.len() / 16);
    for entry in body.chunks_exact(16) {
        list.push(each(word(entry, 0), word(entry, 1))?);
    }
    Ok(list)
}

fn decode_announce(body: &[u8], mut bytes: Vec<u32>) -> Result<Message, WireError> {
    let (first, count) = range(kind::ANNOUNCE, word(body, 0), word(body, 1))?;
    let sizes = &body[16..];
    if sizes.len() / 4 != count as usize {
        return Err(What("the count is not that of the sizes").of(kind::ANNOUNCE));
    }
    bytes.extend(sizes.chunks_exact(4).map(|size| u32::from_le_bytes([size[0], size[1], size[2], size[3]])));
    Ok(Message::Announce { first, bytes })
}

fn decode_answer(body: &[u8], mut stuck: Vec<(u32, u32)>) -> Result<Message, WireError> {
    let counts = word(body, 3);
    let pairs = &body[32..];
    if pairs.len() as u64 / 8 != counts >> 32 {
        return Err(What("the count is not that of the builders").of(kind::ANSWER));
    }
    stuck.extend(pairs.chunks_exact(8).map(|pair| {
        let both = word(pair, 0);
        (both as u32, (both >> 32) as u32)
    }));
    Ok(Message::Answer(Answer {
        number: word(body, 0),
        held_bytes: word(body, 1),
        moved_bytes: word(body, 2),
        held_events: counts as u32,
        stuck,
    }))
}

fn decode_channel(body: &[u8]) -> Result<Vec<(u32, bool)>, WireError> {
    body.chunks_exact(8)
        .map(|pair| {
            let both = word(pair, 0);
            match both >> 32 {
                0 => Ok((both as u32, false)),
                1 => Ok((both as u32, true)),
                _ => Err(What("a channel is neither working nor broken").of(kind::CHANNEL)),
            }
        })
        .collect()
}
