//! What goes over the wire: parts of messages with a length before each, as the original's message queues have them. A part of up to
//! 255 bytes costs 2 bytes more, a longer one 9.
//!
//! ```text
//! part      flags u8 (1: another part of this message follows, 2: long) · length u8, or u64 big-endian · body
//! beat      part of 24: heartbeat u64 · channel u64 · configure u8 · 0 × 7
//! channel   part of 32: index u64 · IPv6 address, IPv4 mapped · port u16 · 0 × 6
//! word      part of 1: 1 subscribe, 2 ready, 3 the run is over
//! payload   part of any length; its first 16 bytes are heartbeat u64 · source u64
//! ```
//!
//! Other numbers are little-endian. Layout of parts: ZMTP 3.0 (rfc.zeromq.org/spec/23), section "Framing".

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use thiserror::Error;

pub const BEAT_BYTES: usize = 24;
pub const CHANNEL_BYTES: usize = 32;
/// What the payload says of itself, so that a run can be measured; the original's payload says nothing.
pub const STAMP_BYTES: usize = 16;
/// Most of what goes before a length: flags and a long length.
pub const PREFIX_BYTES_MAX: usize = 9;
/// Bytes of a part that are kept; what is behind them is only counted.
pub const KEPT_BYTES: usize = CHANNEL_BYTES;

const MORE: u8 = 1;
const LONG: u8 = 2;

/// The other end does not speak this; its connection is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("flags {0:#04x} are none")]
    Flags(u8),
    #[error("a part of {bytes} bytes is more than {most}")]
    Length { bytes: u64, most: u64 },
}

/// A heartbeat, an acknowledgement, or the head of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    pub id: u64,
    /// The builder's number.
    pub channel: u64,
    /// Channels follow.
    pub configure: bool,
}

impl Beat {
    pub fn encode(&self) -> [u8; BEAT_BYTES] {
        let mut bytes = [0; BEAT_BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.channel.to_le_bytes());
        bytes[16] = u8::from(self.configure);
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Option<Beat> {
        let bytes: &[u8; BEAT_BYTES] = bytes.try_into().ok()?;
        Some(Beat { id: number(bytes, 0)?, channel: number(bytes, 8)?, configure: bytes[16] != 0 })
    }
}

/// Where a builder is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelAt {
    pub index: u64,
    pub address: SocketAddr,
}

impl ChannelAt {
    pub fn encode(&self) -> [u8; CHANNEL_BYTES] {
        let mut bytes = [0; CHANNEL_BYTES];
        let address = match self.address.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        bytes[..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..24].copy_from_slice(&address.octets());
        bytes[24..26].copy_from_slice(&self.address.port().to_le_bytes());
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Option<ChannelAt> {
        let bytes: &[u8; CHANNEL_BYTES] = bytes.try_into().ok()?;
        let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
        let address = Ipv6Addr::from(octets).to_canonical();
        let port = u16::from_le_bytes([bytes[24], bytes[25]]);
        Some(ChannelAt { index: number(bytes, 0)?, address: SocketAddr::new(address, port) })
    }
}

/// What one end says to the other besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Broadcasts from now on.
    Subscribe = 1,
    /// Channels to all builders are there.
    Ready = 2,
    /// Nothing more comes.
    Over = 3,
}

impl Word {
    pub fn decode(bytes: &[u8]) -> Option<Word> {
        match bytes {
            [1] => Some(Word::Subscribe),
            [2] => Some(Word::Ready),
            [3] => Some(Word::Over),
            _ => None,
        }
    }
}

/// Heartbeat and source, as a payload begins.
pub fn stamp(id: u64, source: u64) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&source.to_le_bytes());
    bytes
}

pub fn read_stamp(bytes: &[u8]) -> Option<(u64, u64)> {
    Some((number(bytes, 0)?, number(bytes, 8)?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What goes before a part; the array's first so many bytes.
pub fn prefix(body_bytes: u64, more: bool) -> ([u8; PREFIX_BYTES_MAX], usize) {
    let mut bytes = [0; PREFIX_BYTES_MAX];
    let flags = if more { MORE } else { 0 };
    match u8::try_from(body_bytes) {
        Ok(short) => {
            bytes[..2].copy_from_slice(&[flags, short]);
            (bytes, 2)
        }
        Err(_) => {
            bytes[0] = flags | LONG;
            bytes[1..].copy_from_slice(&body_bytes.to_be_bytes());
            (bytes, PREFIX_BYTES_MAX)
        }
    }
}

/// Appends a part.
pub fn put(out: &mut Vec<u8>, body: &[u8], more: bool) {
    let (bytes, length) = prefix(body.len() as u64, more);
    out.extend_from_slice(&bytes[..length]);
    out.extend_from_slice(body);
}

/// Bytes of a part with what goes before it.
pub fn part_bytes(body_bytes: u64) -> u64 {
    body_bytes + if body_bytes <= u64::from(u8::MAX) { 2 } else { PREFIX_BYTES_MAX as u64 }
}

/// A part that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub more: bool,
    pub bytes: u64,
    /// Its first `KEPT_BYTES`, or all of it.
    pub head: &'a [u8],
}

/// Takes bytes as they come and gives parts. It holds `KEPT_BYTES` of one part and nothing else, whatever length was announced.
#[derive(Clone, Debug)]
pub struct Parts {
    bytes_max: u64,
    prefix: [u8; PREFIX_BYTES_MAX],
    prefix_length: usize,
    head: [u8; KEPT_BYTES],
    /// Of the body: announced, and come.
    announced: Option<u64>,
    come: u64,
}

impl Parts {
    /// Parts of more than `bytes_max` are refused.
    pub fn new(bytes_max: u64) -> Parts {
        Parts {
            bytes_max,
            prefix: [0; PREFIX_BYTES_MAX],
            prefix_length: 0,
            head: [0; KEPT_BYTES],
            announced: None,
            come: 0,
        }
    }

    /// Whether a part has begun and not ended.
    pub fn inside(&self) -> bool {
        self.prefix_length > 0
    }

    pub fn on_bytes(&mut self, mut bytes: &[u8], mut each: impl FnMut(Part<'_>)) -> Result<(), FrameError> {
        loop {
            let Some(announced) = self.announced else {
                let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                self.prefix[self.prefix_length] = *first;
                self.prefix_length += 1;
                bytes = rest;
                self.announced = self.length()?;
                continue;
            };
            let kept = self.come.min(KEPT_BYTES as u64) as usize;
            let taken = (announced - self.come).min(bytes.len() as u64) as usize;
            let (now, rest) = bytes.split_at(taken);
            let copied = now.len().min(KEPT_BYTES - kept);
            self.head[kept..kept + copied].copy_from_slice(&now[..copied]);
            self.come += taken as u64;
            bytes = rest;
            if self.come < announced {
                return Ok(());
            }
            let length = announced.min(KEPT_BYTES as u64) as usize;
            each(Part { more: self.prefix[0] & MORE != 0, bytes: announced, head: &self.head[..length] });
            (self.prefix_length, self.announced, self.come) = (0, None, 0);
        }
    }

    /// The part's length once its prefix is whole.
    fn length(&self) -> Result<Option<u64>, FrameError> {
        let flags = self.prefix[0];
        if flags & !(MORE | LONG) != 0 {
            return Err(FrameError::Flags(flags));
        }
        let long = flags & LONG != 0;
        let bytes = match (long, self.prefix_length) {
            (false, 2) => u64::from(self.prefix[1]),
            (true, PREFIX_BYTES_MAX) => {
                self.prefix[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
            _ => return Ok(None),
        };
        if bytes > self.bytes_max {
            return Err(FrameError::Length { bytes, most: self.bytes_max });
        }
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(parts: &mut Parts, bytes: &[u8]) -> Result<Vec<(bool, u64, Vec<u8>)>, FrameError> {
        let mut all = Vec::new();
        parts.on_bytes(bytes, |part| all.push((part.more, part.bytes, part.head.to_vec())))?;
        Ok(all)
    }

    // Spec: event-original.md#wire-1
    #[test]
    fn a_part_costs_2_bytes_up_to_255_and_9_beyond() {
        assert_eq!(part_bytes(24), 26);
        assert_eq!(part_bytes(255), 257);
        assert_eq!(part_bytes(256), 265);
        assert_eq!(part_bytes(58_750), 58_759);
        for length in [0usize, 1, 255, 256, 70_000] {
            let mut out = Vec::new();
            put(&mut out, &vec![7; length], false);
            assert_eq!(out.len() as u64, part_bytes(length as u64));
        }
        assert_eq!(prefix(24, true).0[..2], [1, 24]);
        assert_eq!(prefix(0x1_02_03, false).0, [2, 0, 0, 0, 0, 0, 1, 2, 3]);
    }

    // Spec: event-original.md#wire-1
    #[test]
    fn what_is_no_part_or_too_long_is_refused_before_its_body() {
        let mut parts = Parts::new(1_000);
        assert_eq!(taken(&mut parts, &[8]), Err(FrameError::Flags(8)));
        let mut parts = Parts::new(1_000);
        let (bytes, length) = prefix(1_001, false);
        let refused = Err(FrameError::Length { bytes: 1_001, most: 1_000 });
        assert_eq!(taken(&mut parts, &bytes[..length]), refused);
    }

    #[test]
    fn beats_channels_and_words_come_back_as_they_were_said() {
        let beat = Beat { id: u64::MAX - 1, channel: 6, configure: true };
        assert_eq!(Beat::decode(&beat.encode()), Some(beat));
        for address in ["192.168.1.3:5555", "[fd00::7]:1"] {
            let channel = ChannelAt { index: 3, address: address.parse().unwrap() };
            assert_eq!(ChannelAt::decode(&channel.encode()), Some(channel));
        }
        for word in [Word::Subscribe, Word::Ready, Word::Over] {
            assert_eq!(Word::decode(&[word as u8]), Some(word));
        }
        assert_eq!(read_stamp(&stamp(5, 2)), Some((5, 2)));
        assert_eq!((Beat::decode(&[0; 23]), ChannelAt::decode(&[]), Word::decode(&[9])), (None, None, None));
    }

    proptest! {
        #[test]
        fn parts_come_out_as_they_went_in_however_the_stream_is_cut(
            lengths in prop::collection::vec(0usize..600, 1..20),
            cut in 1usize..700,
        ) {
            let mut out = Vec::new();
            let mut expected = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                let body = vec![index as u8; *length];
                put(&mut out, &body, index % 2 == 0);
                expected.push((index % 2 == 0, *length as u64, body[..(*length).min(KEPT_BYTES)].to_vec()));
            }
            let mut parts = Parts::new(1_000);
            let mut all = Vec::new();
            for piece in out.chunks(cut) {
                all.extend(taken(&mut parts, piece).unwrap());
            }
            prop_assert_eq!(all, expected);
            prop_assert!(!parts.inside());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut parts = Parts::new(1 << 20);
            let _ = taken(&mut parts, &bytes);
        }
    }
}
