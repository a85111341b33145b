//! What goes out on the channels.

use super::Source;
use super::channel::{ChannelId, Flight};
use super::fragments::Stage;
use crate::wire::Header;
use std::io::IoSlice;
use weir_core::Instant;
use weir_seams::scheduler::BuilderId;

/// Fragments that are taken from the send order ahead of being written: enough to fill a write with small ones. What is taken keeps its
/// place when a more urgent one comes.
const AHEAD_BYTES_MAX: u64 = 256 << 10;
const AHEAD_MAX: usize = 256;

impl Source {
    /// A builder whose channel can take bytes now. The shell gathers, writes, and says how it went; then asks again.
    pub fn turn(&mut self) -> Option<ChannelId> {
        let builder = match self.begun() {
            Some(builder) => builder,
            None => self.order.as_mut()?.turn(&self.ready)?,
        };
        self.ready.binary_search(&builder).ok()?;
        let channel = self.channels.get(&builder.0)?;
        Some(ChannelId { builder: builder.0, attempt: channel.attempt })
    }

    /// The next builder with a fragment that has left the send order and is not all written: it goes before any other, in turn.
    fn begun(&mut self) -> Option<BuilderId> {
        let from = self.ready.partition_point(|builder| *builder <= self.last_turn);
        let (before, after) = self.ready.split_at(from);
        let begun = |builder: &&BuilderId| {
            self.channels.get(&builder.0).is_some_and(|channel| !channel.flight.is_empty())
        };
        let builder = after.iter().chain(before).find(begun).copied()?;
        self.last_turn = builder;
        Some(builder)
    }

    /// Puts what is to be written into `out` and says how many slices it is: headers, and one or two slices of payload each, no more
    /// than is granted.
    pub fn gather<'a>(&'a mut self, id: ChannelId, now: Instant, out: &mut [IoSlice<'a>]) -> usize {
        self.take_ahead(id.builder, now);
        let Some(channel) = self.channels.get(&id.builder) else { return 0 };
        let (mut allowed, mut written) = (channel.allowed_bytes() as usize, channel.first_written as usize);
        let mut count = 0;
        for flight in &channel.flight {
            let [first, second] = self.payload.block().slices(flight.window);
            for piece in [&flight.header[..], first, second] {
                let gone = written.min(piece.len());
                written -= gone;
                let piece = &piece[gone..];
                let piece = &piece[..piece.len().min(allowed)];
                if piece.is_empty() {
                    continue;
                }
                let Some(place) = out.get_mut(count) else { return count };
                *place = IoSlice::new(piece);
                allowed -= piece.len();
                count += 1;
            }
            if allowed == 0 {
                break;
            }
        }
        count
    }

    fn take_ahead(&mut self, slot: u32, now: Instant) {
        let (Some(channel), Some(order), Some(run)) =
            (self.channels.get_mut(&slot), &mut self.order, &self.run)
        else {
            return;
        };
        while channel.flight.len() < AHEAD_MAX
            && channel.flight_bytes < AHEAD_BYTES_MAX
            // Not before some of it may go.
            && channel.flight_bytes < channel.allowed_bytes() + channel.first_written
        {
            let Some(fragment) = order.pop(BuilderId(slot)) else { break };
            let Some(held) = self.held.get_mut(fragment.heartbeat) else { continue };
            let Some(assigned) = held.assigned.as_mut().filter(|assigned| assigned.builder == slot) else {
                continue;
            };
            assigned.stage = Stage::Begun;
            let window = self.payload.window(fragment.heartbeat);
            let header = Header {
                source: run.slot,
                bytes: window.bytes,
                id: fragment.heartbeat,
                epoch: assigned.epoch,
                payload_crc: self.payload.block().crc32c(window),
                age_ns: now.since(held.born).as_nanos() as u64,
            };
            let flight =
                Flight { header: header.encode(), window, id: fragment.heartbeat, epoch: assigned.epoch };
            channel.flight_bytes += flight.bytes();
            channel.flight.push_back(flight);
        }
    }

    /// The connection has taken so many of the gathered bytes.
    pub fn on_written(&mut self, id: ChannelId, bytes: u64, now: Instant) {
        let Some(channel) =
            self.channels.get_mut(&id.builder).filter(|channel| channel.attempt == id.attempt)
        else {
            return;
        };
        self.moved_bytes += bytes;
        channel.written_bytes += bytes;
        channel.first_written += bytes;
        while let Some(front) = channel.flight.front() {
            let whole = front.bytes();
            if channel.first_written < whole {
                break;
            }
            channel.first_written -= whole;
            channel.flight_bytes -= whole;
            let (heartbeat, epoch) = (front.id, front.epoch);
            channel.flight.pop_front();
            self.figures.sent += 1;
            self.figures.sent_bytes += whole;
            let held = self.held.get_mut(heartbeat);
            let Some(assigned) = held.and_then(|held| held.assigned.as_mut()) else { continue };
            if assigned.sent_before {
                self.figures.again += 1;
                self.figures.again_bytes += whole;
            }
            assigned.sent_before = true;
            if assigned.builder == id.builder && assigned.epoch == epoch && assigned.stage == Stage::Begun {
                assigned.stage = Stage::Sent;
            }
        }
        self.refresh(id.builder, now);
    }

    /// The connection takes no more now.
    pub fn on_blocked(&mut self, id: ChannelId, now: Instant) {
        self.set_writable(id, false, now);
    }

    pub fn on_writable(&mut self, id: ChannelId, now: Instant) {
        self.set_writable(id, true, now);
    }

    fn set_writable(&mut self, id: ChannelId, writable: bool, now: Instant) {
        if let Some(channel) = self.channels.get_mut(&id.builder)
            && channel.attempt == id.attempt
        {
            channel.writable = writable;
            self.refresh(id.builder, now);
        }
    }
}
