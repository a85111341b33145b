//! A source's way into the builder: its connection, and the fragment that is just coming.

use super::assembly::Verdict;
use super::{Builder, SCRATCH_BYTES};
use crate::payload::crc32c;
use crate::wire::{HEADER_BYTES, Header, HeaderError};
use crc_fast::{CrcAlgorithm, Digest};
use std::mem;
use thiserror::Error;
use weir_core::Instant;

/// Why a source's connection is closed. It may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cut {
    #[error("the source sent more than it was granted")]
    BeyondGrant,
    #[error("{0}")]
    Header(#[from] HeaderError),
    #[error("the source sent a fragment in the name of source {0}")]
    WrongSource(u16),
    #[error("the source has made a new connection")]
    Replaced,
    #[error("the source is not of this run any more")]
    NotListed,
    #[error("the builder is part of another run now")]
    OtherRun,
}

/// Why a source is not let in: it is told to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("the builder has not joined a run")]
    NoRun,
    #[error("the builder does not know of this source (yet)")]
    NotListed,
}

/// Where the bytes that come now go.
pub(super) enum Reading {
    /// So much of the header is there.
    Header(usize),
    Payload(Box<Coming>),
    Skip(u32),
}

/// A payload that is coming into its buffer.
pub(super) struct Coming {
    pub header: Header,
    pub buffer: Vec<u8>,
    filled: u32,
    digest: Option<Digest>,
    /// It came before its assignment.
    pub early: bool,
}

pub(super) struct Lane {
    pub listed: bool,
    pub link: Option<u64>,
    /// From the connection's beginning, as the next.
    pub granted_bytes: u64,
    /// When that last grew.
    pub granted_at: Instant,
    received_bytes: u64,
    /// Received and kept without an assignment: counts as not received, so that a source has never more than its share here.
    pub early_bytes: u64,
    /// Fragments of assigned events that are to come.
    pub missing: u32,
    /// When bytes last came, or it was last asked.
    pub moved_at: Instant,
    header: [u8; HEADER_BYTES],
    /// Payload of the last fragment of which the header has come.
    pub last_bytes: u32,
    pub reading: Reading,
    /// The `Coming` of the fragment before, to be used again.
    spare: Option<Box<Coming>>,
}

impl Lane {
    pub(super) fn new(now: Instant) -> Lane {
        Lane {
            listed: false,
            link: None,
            granted_bytes: 0,
            granted_at: now,
            received_bytes: 0,
            early_bytes: 0,
            missing: 0,
            moved_at: now,
            header: [0; HEADER_BYTES],
            last_bytes: 0,
            reading: Reading::Header(0),
            spare: None,
        }
    }
    /// What it may still send, and what it has sent too early.
    pub(super) fn out_bytes(&self) -> u64 {
        self.granted_bytes - self.received_bytes + self.early_bytes
    }
    /// A fragment has come whole.
    pub(super) fn receive(&mut self, bytes: u64, now: Instant) {
        self.moved_at = now;
        self.received_bytes += bytes;
    }
    pub(super) fn is_active(&self) -> bool {
        self.link.is_some() && self.missing > 0
    }
    /// The fragment that is coming, if it has no assignment.
    pub(super) fn early_header(&self) -> Option<Header> {
        match &self.reading {
            Reading::Payload(coming) if coming.early => Some(coming.header),
            _ => None,
        }
    }
    /// The assignment of what is coming is there. Whether it was that.
    pub(super) fn end_early(&mut self, id: u64, epoch: u32) -> bool {
        match &mut self.reading {
            Reading::Payload(coming)
                if coming.early && coming.header.id == id && coming.header.epoch == epoch =>
            {
                coming.early = false;
                self.early_bytes -= HEADER_BYTES as u64 + u64::from(coming.filled);
                true
            }
            _ => false,
        }
    }
    /// Whether a fragment of this event is coming.
    pub(super) fn is_reading(&self, id: u64) -> bool {
        matches!(&self.reading, Reading::Payload(coming) if coming.header.id == id && !coming.early)
    }
}

impl Builder {
    /// A source's data connection is open and has proven the key. One that it had before is closed.
    pub fn on_source(&mut self, link: u64, slot: u32, now: Instant) -> Result<(), Refusal> {
        self.now = now;
        if let Some(refusal) = self.would_refuse(slot) {
            return Err(refusal);
        }
        let slot = slot as u16;
        self.close_lane(slot, Some(Cut::Replaced));
        self.links.insert(link, slot);
        self.with_lane(slot, |lane| {
            lane.link = Some(link);
            lane.moved_at = now;
        });
        self.grant(slot);
        Ok(())
    }

    /// Why this source would not be let in now.
    pub fn would_refuse(&self, slot: u32) -> Option<Refusal> {
        if self.run.is_none() {
            return Some(Refusal::NoRun);
        }
        let lane = u16::try_from(slot).ok().and_then(|slot| self.lanes.get(usize::from(slot)));
        (!lane.is_some_and(|lane| lane.listed)).then_some(Refusal::NotListed)
    }

    /// A source's connection has ended.
    pub fn on_source_closed(&mut self, link: u64) {
        if let Some(slot) = self.links.get(&link) {
            self.close_lane(*slot, None);
        }
    }

    /// Forgets a lane's connection; the shell is told where `why` is given.
    pub(super) fn close_lane(&mut self, slot: u16, why: Option<Cut>) {
        // First, so that nothing is granted on it any more.
        let closed = self.with_lane(slot, |lane| lane.link.take());
        self.turn_away(slot);
        self.drop_early_of(slot);
        self.with_lane(slot, |lane| {
            lane.reading = Reading::Header(0);
            lane.granted_bytes = 0;
            lane.received_bytes = 0;
        });
        if let Some(link) = closed.flatten() {
            self.links.remove(&link);
            if let Some(why) = why {
                self.actions.push_back(super::Action::Cut { link, why });
            }
        }
    }

    /// What of the coming fragment is still to come is thrown away.
    pub(super) fn turn_away(&mut self, slot: u16) {
        let Some(lane) = self.lanes.get_mut(usize::from(slot)) else { return };
        if !matches!(lane.reading, Reading::Payload(_)) {
            return;
        }
        if let Reading::Payload(mut coming) = mem::replace(&mut lane.reading, Reading::Header(0)) {
            lane.reading = Reading::Skip(coming.header.bytes - coming.filled);
            self.held_bytes -= HEADER_BYTES as u64 + u64::from(coming.header.bytes);
            self.pool.give(mem::take(&mut coming.buffer));
            if coming.early {
                let kept = u64::from(coming.filled) + HEADER_BYTES as u64;
                self.with_lane(slot, |lane| lane.early_bytes -= kept);
            }
        }
    }

    /// Where the next bytes of a connection go; never empty for one that is open. Then `on_filled`.
    pub fn space(&mut self, link: u64) -> &mut [u8] {
        let lane = self.links.get(&link).and_then(|slot| self.lanes.get_mut(usize::from(*slot)));
        match lane {
            None => &mut [],
            Some(lane) => match &mut lane.reading {
                Reading::Header(filled) => &mut lane.header[*filled..],
                Reading::Payload(coming) => {
                    &mut coming.buffer[coming.filled as usize..coming.header.bytes as usize]
                }
                Reading::Skip(left) => &mut self.scratch[..SCRATCH_BYTES.min(*left as usize)],
            },
        }
    }

    /// Bytes that were read elsewhere.
    ///
    /// Errors: the source is cut off, and the shell closes the connection.
    pub fn on_bytes(&mut self, link: u64, mut bytes: &[u8], now: Instant) -> Result<(), Cut> {
        self.now = now;
        bytes = self.take_whole(link, bytes, now);
        while !bytes.is_empty() {
            let space = self.space(link);
            let count = space.len().min(bytes.len());
            if count == 0 {
                return Ok(());
            }
            space[..count].copy_from_slice(&bytes[..count]);
            self.on_filled(link, count, now)?;
            bytes = self.take_whole(link, &bytes[count..], now);
        }
        Ok(())
    }

    /// Takes fragments off the front that are whole and as they should be; the rest is for those who look closer.
    fn take_whole<'a>(&mut self, link: u64, mut bytes: &'a [u8], now: Instant) -> &'a [u8] {
        let Some(slot) = self.links.get(&link).copied() else { return bytes };
        let before = bytes.len();
        while let Some(rest) = self.take_one(slot, bytes, now) {
            bytes = rest;
        }
        if bytes.len() < before {
            self.grant_on(slot);
        }
        bytes
    }

    fn take_one<'a>(&mut self, slot: u16, bytes: &'a [u8], now: Instant) -> Option<&'a [u8]> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::decode(head).ok().filter(|header| header.source == slot)?;
        let (payload, rest) = rest.split_at_checked(header.bytes as usize)?;
        let whole = (HEADER_BYTES + payload.len()) as u64;
        let lane = self.lanes.get_mut(usize::from(slot))?;
        lane.last_bytes = header.bytes;
        let granted = lane.received_bytes + whole <= lane.granted_bytes;
        (granted
            && matches!(lane.reading, Reading::Header(0))
            && self.join_whole(slot, &header, payload, now))
        .then_some(rest)
    }

    /// Payload of the fragment that is coming over a connection, or of the one before: the next is likely alike.
    pub fn fragment_bytes(&self, link: u64) -> u32 {
        let lane = self.links.get(&link).and_then(|slot| self.lanes.get(usize::from(*slot)));
        lane.map_or(0, |lane| lane.last_bytes)
    }

    /// The first `count` bytes of `space` have been read.
    ///
    /// Errors: the source is cut off, and the shell closes the connection.
    pub fn on_filled(&mut self, link: u64, count: usize, now: Instant) -> Result<(), Cut> {
        let Some(slot) = self.links.get(&link).copied() else { return Ok(()) };
        self.now = now;
        let result = self.fill(slot, count as u32, now);
        match result {
            Ok(()) => self.grant_on(slot),
            Err(_) => {
                self.figures.cut += 1;
                self.close_lane(slot, None);
            }
        }
        result
    }

    fn fill(&mut self, slot: u16, count: u32, now: Instant) -> Result<(), Cut> {
        self.figures.received_bytes += u64::from(count);
        let taken = self.with_lane(slot, |lane| {
            lane.moved_at = now;
            let begun = if let Reading::Header(filled) = lane.reading { filled as u64 } else { 0 };
            if lane.received_bytes + begun + u64::from(count) > lane.granted_bytes {
                return Err(Cut::BeyondGrant);
            }
            match &mut lane.reading {
                Reading::Header(filled) => {
                    *filled += count as usize;
                    // A header counts when it is whole and it is known whether it is early: what it gives up is given again once.
                    if *filled == HEADER_BYTES {
                        lane.received_bytes += HEADER_BYTES as u64;
                    }
                    return Ok(());
                }
                Reading::Skip(left) => *left -= count,
                Reading::Payload(coming) => {
                    if coming.early {
                        lane.early_bytes += u64::from(count);
                    }
                    coming.take(count);
                }
            }
            lane.received_bytes += u64::from(count);
            Ok(())
        });
        taken.unwrap_or(Ok(()))?;
        let Some(lane) = self.lanes.get_mut(usize::from(slot)) else { return Ok(()) };
        match &lane.reading {
            Reading::Header(HEADER_BYTES) => {
                let header = Header::decode(&lane.header)?;
                lane.reading = Reading::Header(0);
                lane.last_bytes = header.bytes;
                if header.source != slot {
                    return Err(Cut::WrongSource(header.source));
                }
                self.begin(slot, header, now);
            }
            Reading::Payload(coming) if coming.is_whole() => self.end_payload(slot, now),
            Reading::Skip(0) => {
                lane.reading = Reading::Header(0);
                self.figures.received += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// A header has come: finds a place for what follows.
    fn begin(&mut self, slot: u16, header: Header, now: Instant) {
        let early = match self.judge(slot, &header, now) {
            Verdict::Place => false,
            Verdict::Early => true,
            Verdict::Skip => {
                match header.bytes {
                    0 => self.figures.received += 1,
                    bytes => self.lanes[usize::from(slot)].reading = Reading::Skip(bytes),
                }
                return;
            }
        };
        self.held_bytes += HEADER_BYTES as u64 + u64::from(header.bytes);
        let buffer = self.pool.take(header.bytes as usize);
        let fresh = Coming { header, buffer, filled: 0, digest: None, early };
        self.with_lane(slot, |lane| {
            let coming = match lane.spare.take() {
                Some(mut spare) => {
                    *spare = fresh;
                    spare
                }
                None => Box::new(fresh),
            };
            lane.reading = Reading::Payload(coming);
            if early {
                lane.early_bytes += HEADER_BYTES as u64;
            }
        });
        if header.bytes == 0 {
            self.end_payload(slot, now);
        }
    }

    fn end_payload(&mut self, slot: u16, now: Instant) {
        let Some(lane) = self.lanes.get_mut(usize::from(slot)) else { return };
        let Reading::Payload(mut coming) = mem::replace(&mut lane.reading, Reading::Header(0)) else {
            return;
        };
        let (header, buffer, early) = (coming.header, mem::take(&mut coming.buffer), coming.early);
        let right = coming.crc32c(&buffer) == header.payload_crc;
        lane.spare = Some(coming);
        self.figures.received += 1;
        if early {
            self.keep_early(slot, header, buffer, right, now);
        } else {
            self.join_fragment(slot, header, buffer, right, now);
        }
    }
}

impl Coming {
    fn is_whole(&self) -> bool {
        self.filled == self.header.bytes
    }

    /// The checksum goes on as bytes come, while they are in the cache; what comes at once is left for the end.
    fn take(&mut self, count: u32) {
        let (from, to) = (self.filled as usize, (self.filled + count) as usize);
        self.filled += count;
        if from == 0 && self.is_whole() {
            return;
        }
        self.digest
            .get_or_insert_with(|| Digest::new(CrcAlgorithm::Crc32Iscsi))
            .update(&self.buffer[from..to]);
    }

    fn crc32c(&self, buffer: &[u8]) -> u32 {
        match &self.digest {
            Some(digest) => digest.finalize() as u32,
            None => crc32c([&buffer[..self.header.bytes as usize], &[]]),
        }
    }
}
