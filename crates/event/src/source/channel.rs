//! A source's connections to builders: made, kept, made anew as the scheduler's list says.

use super::fragments::Stage;
use super::{Action, Source};
use crate::member::RETRY;
use crate::message::{BuilderAt, BuilderList, Message};
use crate::payload::Window;
use crate::wire::HEADER_BYTES;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_core::Instant;
use weir_seams::scheduler::BuilderId;

/// One attempt at a connection: what comes of an older one is not mistaken for what comes of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId {
    /// The builder's slot.
    pub builder: u32,
    pub attempt: u32,
}

/// A fragment on its way out.
#[derive(Debug)]
pub(super) struct Flight {
    pub header: [u8; HEADER_BYTES],
    pub window: Window,
    pub id: u64,
    pub epoch: u32,
}

impl Flight {
    pub(super) fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.window.bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down { retry_at: Instant },
    Opening,
    Open,
}

pub(super) struct Channel {
    address: SocketAddr,
    incarnation: u64,
    generation: u32,
    pub attempt: u32,
    link: Link,
    /// By the builder's grants, from the connection's beginning, as the next two.
    pub granted_bytes: u64,
    pub written_bytes: u64,
    acknowledged_bytes: u64,
    /// Fragments taken from the send order; the first may be written in part.
    pub flight: VecDeque<Flight>,
    pub flight_bytes: u64,
    pub first_written: u64,
    pub writable: bool,
    /// It is among those that are to be looked after.
    touched: bool,
    /// Since when there has been something to move and nothing has moved.
    still_since: Option<Instant>,
}

impl Channel {
    pub(super) fn is_open(&self) -> bool {
        self.link == Link::Open
    }
    /// Bytes that may be written now.
    pub(super) fn allowed_bytes(&self) -> u64 {
        self.granted_bytes.saturating_sub(self.written_bytes)
    }
    pub(super) fn wake_at(&self) -> Instant {
        match self.link {
            Link::Down { retry_at } => retry_at,
            _ => Instant::NEVER,
        }
    }
    /// How long it has stood still; `None` where it has nothing to move.
    pub(super) fn stuck_ns(&self, now: Instant) -> Option<u64> {
        self.still_since.map(|since| now.since(since).as_nanos() as u64)
    }
    /// Takes a fragment out of which nothing has been written.
    pub(super) fn withdraw(&mut self, id: u64, epoch: u32) {
        let begun = usize::from(self.first_written > 0);
        let found =
            self.flight.iter().skip(begun).position(|flight| flight.id == id && flight.epoch == epoch);
        if let Some(flight) = found.and_then(|at| self.flight.remove(begun + at)) {
            self.flight_bytes -= flight.bytes();
        }
    }
    /// `moved`: something has gone on.
    fn note(&mut self, pending: bool, moved: bool, now: Instant) {
        if !pending {
            self.still_since = None;
        } else if moved || self.still_since.is_none() {
            self.still_since = Some(now);
        }
    }
    fn fits(&self, at: &BuilderAt, generation: u32) -> bool {
        self.address == at.address && self.incarnation == at.incarnation && self.generation == generation
    }
}

impl Source {
    // Spec: event-building.md#failure-6
    pub(super) fn on_builders(&mut self, list: &BuilderList, now: Instant) {
        if let Some(run) = &mut self.run {
            run.epoch = run.epoch.max(list.epoch);
        }
        let wanted = |slot: u32| list.builders.iter().any(|at| at.slot == slot && at.channel.is_some());
        // Lists come at changes of membership only, so that a search in a search is no matter up to thousands of builders: most of
        // the list is in ascending order, and found at once.
        let gone: Vec<u32> =
            self.channels.keys().copied().filter(|slot| !in_list(list, *slot, &wanted)).collect();
        for slot in gone {
            self.take_down(slot, now);
            self.channels.remove(&slot);
        }
        for at in &list.builders {
            let Some(generation) = at.channel else { continue };
            if self.channels.get(&at.slot).is_some_and(|channel| channel.fits(at, generation)) {
                continue;
            }
            self.take_down(at.slot, now);
            let channel = Channel {
                address: at.address,
                incarnation: at.incarnation,
                generation,
                attempt: 0,
                link: Link::Down { retry_at: now },
                granted_bytes: 0,
                written_bytes: 0,
                acknowledged_bytes: 0,
                flight: VecDeque::new(),
                flight_bytes: 0,
                first_written: 0,
                writable: false,
                touched: false,
                still_since: None,
            };
            self.channels.insert(at.slot, channel);
            self.open(at.slot);
        }
    }

    fn open(&mut self, slot: u32) {
        self.attempts = self.attempts.wrapping_add(1);
        let Some(channel) = self.channels.get_mut(&slot) else { return };
        channel.link = Link::Opening;
        channel.attempt = self.attempts;
        let id = ChannelId { builder: slot, attempt: channel.attempt };
        self.actions.push_back(Action::Open { channel: id, address: channel.address });
    }

    pub(super) fn retry_channels(&mut self, now: Instant) {
        let due = |channel: &Channel| channel.wake_at() <= now;
        while let Some(slot) = self.channels.iter().find(|(_, channel)| due(channel)).map(|(slot, _)| *slot) {
            self.open(slot);
        }
    }

    /// Closes a connection of ours, and tells the shell.
    fn take_down(&mut self, slot: u32, now: Instant) {
        let Some(channel) = self.channels.get(&slot) else { return };
        if !matches!(channel.link, Link::Down { .. }) {
            self.actions.push_back(Action::Close(ChannelId { builder: slot, attempt: channel.attempt }));
        }
        self.fall(slot, now);
    }

    /// What follows when a connection is no more: its fragments wait for the next.
    fn fall(&mut self, slot: u32, now: Instant) {
        let Some(channel) = self.channels.get_mut(&slot) else { return };
        let worked = channel.is_open();
        channel.link = Link::Down { retry_at: now + RETRY };
        channel.granted_bytes = 0;
        channel.written_bytes = 0;
        channel.acknowledged_bytes = 0;
        channel.flight_bytes = 0;
        channel.first_written = 0;
        channel.writable = false;
        channel.still_since = None;
        let flights = std::mem::take(&mut channel.flight);
        let queued = self.order.as_mut().map(|order| order.drain(BuilderId(slot))).unwrap_or_default();
        let ids =
            flights.iter().map(|flight| flight.id).chain(queued.iter().map(|fragment| fragment.heartbeat));
        for id in ids {
            if let Some(assigned) = self.held.get_mut(id).and_then(|held| held.assigned.as_mut())
                && assigned.builder == slot
            {
                assigned.stage = Stage::Waiting;
            }
        }
        self.refresh(slot, now);
        if worked && self.member.is_in() {
            self.actions.push_back(Action::Send(Message::Channel(vec![(slot, false)])));
        }
    }

    pub(super) fn close_all(&mut self) {
        for slot in self.channels.keys().copied().collect::<Vec<_>>() {
            // Nothing waits for a time here: there is none left to wait for.
            self.take_down(slot, Instant::NEVER);
        }
        self.channels.clear();
        self.ready.clear();
    }

    /// The builder has answered the opening: the channel works. All that is assigned to it goes over this one, since nobody knows
    /// what of it has come over the one before.
    pub fn on_channel_open(&mut self, id: ChannelId, now: Instant) {
        let Some(channel) = self.channels.get_mut(&id.builder) else { return };
        if channel.attempt != id.attempt || channel.link != Link::Opening {
            return;
        }
        channel.link = Link::Open;
        channel.writable = true;
        let mine = |assigned: &super::fragments::Assigned| assigned.builder == id.builder;
        let ids: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, held)| held.assigned.as_ref().is_some_and(mine))
            .map(|(heartbeat, _)| heartbeat)
            .collect();
        for heartbeat in ids {
            self.queue(heartbeat);
        }
        self.refresh(id.builder, now);
        if self.member.is_in() {
            self.actions.push_back(Action::Send(Message::Channel(vec![(id.builder, true)])));
        }
    }

    /// The connection has ended, or could not be made.
    pub fn on_channel_closed(&mut self, id: ChannelId, now: Instant) {
        let Some(channel) = self.channels.get(&id.builder) else { return };
        if channel.attempt == id.attempt && !matches!(channel.link, Link::Down { .. }) {
            self.fall(id.builder, now);
        }
    }

    /// A builder's word on its channel.
    pub fn on_builder_message(&mut self, id: ChannelId, message: &Message, now: Instant) {
        let Some(channel) = self.channels.get_mut(&id.builder) else { return };
        if channel.attempt != id.attempt || !channel.is_open() {
            return;
        }
        match message {
            Message::Grant { total_bytes } => {
                let more = *total_bytes > channel.granted_bytes;
                channel.granted_bytes = channel.granted_bytes.max(*total_bytes);
                self.refresh_moved(id.builder, more, now);
            }
            Message::Again(list) => {
                for (heartbeat, epoch) in list {
                    self.send_again(*heartbeat, id.builder, *epoch);
                }
                self.refresh(id.builder, now);
            }
            _ => self.figures.unexpected += 1,
        }
    }

    /// Only what has gone whole is sent again: what is on its way comes by itself.
    // Spec: event-building.md#delivery-3
    fn send_again(&mut self, heartbeat: u64, builder: u32, epoch: u32) {
        let assigned = self.held.get(heartbeat).and_then(|held| held.assigned);
        if assigned
            .is_some_and(|now| now.builder == builder && now.epoch == epoch && now.stage == Stage::Sent)
        {
            self.queue(heartbeat);
        }
    }

    /// Channels that have bytes under way: before a probe is passed on, the shell says of each how many.
    pub fn unacknowledged(&self) -> impl Iterator<Item = ChannelId> + '_ {
        let open = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.is_open() && channel.acknowledged_bytes < channel.written_bytes);
        open.map(|(slot, channel)| ChannelId { builder: *slot, attempt: channel.attempt })
    }

    /// So many of the bytes written are not acknowledged by the builder's host.
    pub fn on_unacknowledged(&mut self, id: ChannelId, bytes: u64, now: Instant) {
        let Some(channel) = self.channels.get_mut(&id.builder) else { return };
        if channel.attempt == id.attempt {
            let total = channel.written_bytes.saturating_sub(bytes);
            let moved = total > channel.acknowledged_bytes;
            channel.acknowledged_bytes = channel.acknowledged_bytes.max(total);
            self.refresh_moved(id.builder, moved, now);
        }
    }

    pub(super) fn report_channels(&mut self) {
        let open = self.channels.iter().filter(|(_, channel)| channel.is_open());
        let list: Vec<(u32, bool)> = open.map(|(slot, _)| (*slot, true)).collect();
        if !list.is_empty() {
            self.actions.push_back(Action::Send(Message::Channel(list)));
        }
    }

    /// A builder's channel is to be refreshed at the end of this message. Whether it is open.
    pub(super) fn touch(&mut self, slot: u32) -> bool {
        let Some(channel) = self.channels.get_mut(&slot) else { return false };
        if !channel.touched {
            channel.touched = true;
            self.touched.push(slot);
        }
        channel.is_open()
    }

    pub(super) fn refresh_touched(&mut self, now: Instant) {
        while let Some(slot) = self.touched.pop() {
            if let Some(channel) = self.channels.get_mut(&slot) {
                channel.touched = false;
            }
            self.refresh(slot, now);
        }
    }

    pub(super) fn refresh(&mut self, slot: u32, now: Instant) {
        self.refresh_moved(slot, false, now);
    }

    /// Keeps `ready` and the time of standing still in step with a channel.
    pub(super) fn refresh_moved(&mut self, slot: u32, moved: bool, now: Instant) {
        let builder = BuilderId(slot);
        let (mut ready, place) = (false, self.ready.binary_search(&builder));
        if let Some(channel) = self.channels.get_mut(&slot) {
            let waiting = !channel.flight.is_empty()
                || self.order.as_mut().is_some_and(|order| order.peek(builder).is_some());
            let under_way = channel.acknowledged_bytes < channel.written_bytes;
            channel.note(channel.is_open() && (waiting || under_way), moved, now);
            ready = channel.is_open() && channel.writable && waiting && channel.allowed_bytes() > 0;
        }
        match place {
            Ok(at) if !ready => {
                self.ready.remove(at);
            }
            Err(at) if ready => self.ready.insert(at, builder),
            _ => {}
        }
    }
}

/// Whether the list asks for a channel to `slot`.
fn in_list(list: &BuilderList, slot: u32, search: &dyn Fn(u32) -> bool) -> bool {
    match list.builders.binary_search_by_key(&slot, |at| at.slot) {
        Ok(at) => list.builders[at].channel.is_some(),
        Err(_) => search(slot),
    }
}
