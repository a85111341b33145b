//! A source's sockets: heartbeats in, fragments out, one thread and one epoll. What waits for a builder is a count, not memory.

use super::account::{SourceAccount, Track};
use super::conductor::CHANNELS_MAX;
use super::frame::{
    self, BEAT_BYTES, Beat, ChannelAt, KEPT_BYTES, PREFIX_BYTES_MAX, Parts, STAMP_BYTES, Word,
};
use super::line::{self, BROADCAST_TOKEN, Call, DATA_TOKEN, LOOK, Line, Looked, READ_BYTES};
use super::queue::{Outbox, SendQueue};
use super::rules::{FullQueue, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock::monotonic;
use weir_sys::epoll::Epoll;
use weir_transport::key::Key;
use weir_transport::tcp_options::TcpOptions;

/// Token of the broadcasts' connection; those of channels count from 1.
const BEATS: u64 = 0;
/// Given to TCP at once.
const BLOCK_BYTES: usize = 256 << 10;
/// What a turn of a channel takes of messages, unless it is the rest of one that so much is gone of: that goes whole.
const TURN_BYTES: u64 = 8_192;
/// A part with the heartbeat, the payload's length, and the payload's first bytes.
const HEAD_BYTES_MAX: usize = 2 + BEAT_BYTES + PREFIX_BYTES_MAX + STAMP_BYTES;
/// After an order to stop and `drain`, for the scheduler to say that it is over.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct SourcePlan {
    pub rules: Rules,
    /// From 0.
    pub number: u32,
    /// How many there are; the last is the late one.
    pub sources: u32,
    /// Payload; at least 16.
    pub fragment_bytes: u64,
    pub scheduler: SocketAddr,
    pub key: Option<Key>,
    /// Of connections to builders.
    pub tcp: TcpOptions,
    pub interval: Duration,
    /// As the scheduler's: it is waited for after a stop.
    pub drain: Duration,
    /// Longest time from the start.
    pub limit: Duration,
}

pub struct Source {
    plan: SourcePlan,
    block: Vec<u8>,
}

struct Channel {
    line: Line,
    queue: SendQueue,
}

/// What the scheduler has broadcast.
enum Heard {
    Beat(Beat),
    Channels,
}

struct Running<'a> {
    plan: &'a SourcePlan,
    block: &'a [u8],
    epoll: Epoll,
    beats: Line,
    outbox: Outbox,
    parts: Parts,
    heard: VecDeque<Heard>,
    /// The channels that are being told, while they are.
    telling: Option<Vec<ChannelAt>>,
    told: Vec<ChannelAt>,
    channels: Vec<Channel>,
    /// Place of a builder's channel.
    places: BTreeMap<u64, usize>,
    ready_said: bool,
    /// The heartbeat that should come next.
    expected: Option<u64>,
    over: bool,
    account: SourceAccount,
    waiting: Track,
}

impl Source {
    /// Errors: a payload that has no room for what is measured by it.
    pub fn prepare(plan: SourcePlan) -> Result<Source, WorkloadError> {
        if plan.fragment_bytes < STAMP_BYTES as u64 {
            let text = format!(
                "`fragment_size` is {} bytes; this profile needs {STAMP_BYTES} at least",
                plan.fragment_bytes
            );
            return Err(WorkloadError::new(text));
        }
        let length = usize::try_from(plan.fragment_bytes).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        // As the original's.
        Ok(Source { plan, block: vec![b'a'; length] })
    }

    /// From `control.start_at()` until the scheduler says that it is over.
    pub fn run(self, control: &Control) -> Result<SourceAccount, WorkloadError> {
        let plan = &self.plan;
        if !line::wait_for_start(control) {
            return Ok(SourceAccount::default());
        }
        let failed = line::failed("a source");
        let call = Call {
            address: plan.scheduler,
            token: BROADCAST_TOKEN,
            number: plan.number,
            key: plan.key.clone(),
            tcp: TcpOptions::unasked(),
        };
        let mut beats = Line::new(call, BEATS);
        let start = monotonic();
        if plan.number + 1 == plan.sources {
            beats.down(start + plan.rules.late_source);
        }
        let mut running = Running {
            plan,
            block: &self.block,
            epoll: Epoll::new(64).map_err(&failed)?,
            beats,
            outbox: Outbox::default(),
            parts: Parts::new(KEPT_BYTES as u64),
            heard: VecDeque::with_capacity(READ_BYTES / 3),
            telling: None,
            told: Vec::new(),
            channels: Vec::new(),
            places: BTreeMap::new(),
            ready_said: false,
            expected: None,
            over: false,
            account: SourceAccount::default(),
            waiting: Track::new(plan.interval),
        };
        running.carry_out(start + plan.limit, control).map_err(&failed)?;
        Ok(running.finish())
    }
}

impl Running<'_> {
    fn carry_out(&mut self, mut end: Instant, control: &Control) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::with_capacity(64);
        let (mut look_at, mut stopped) = (Instant::ZERO, false);
        while !self.over && !control.aborted() {
            let now = monotonic();
            if control.stopping() && !stopped {
                stopped = true;
                end = end.min(now + self.plan.rules.stop_wait + self.plan.drain + GRACE);
            }
            if now >= end {
                break;
            }
            if now >= look_at {
                look_at = now + LOOK;
                self.look(now)?;
            }
            ready.clear();
            ready.extend_from_slice(self.epoll.wait(Some(LOOK))?);
            for &token in &ready {
                if token == BEATS {
                    self.hear(&mut buffer);
                } else {
                    self.serve(token as usize - 1, &mut buffer);
                }
            }
            self.act();
        }
        Ok(())
    }

    /// Connections that are to be made.
    fn look(&mut self, now: Instant) -> io::Result<()> {
        if self.beats.look(now, &self.epoll)? == Looked::Made {
            self.outbox = Outbox::default();
            self.parts = Parts::new(KEPT_BYTES as u64);
            self.telling = None;
            line::say(&mut self.outbox, Word::Subscribe);
            self.ready_said = false;
        }
        for place in 0..self.channels.len() {
            if self.channels[place].line.look(now, &self.epoll)? == Looked::Made {
                self.turn(place);
            }
        }
        let all = !self.channels.is_empty() && self.channels.iter().all(|channel| channel.line.connected());
        if all && self.beats.connected() && !self.ready_said {
            self.ready_said = true;
            line::say(&mut self.outbox, Word::Ready);
        }
        if !self.outbox.is_empty() && self.beats.flush(&mut self.outbox).is_err() {
            self.beats.ended(now);
        }
        self.note_waiting(now);
        Ok(())
    }

    fn note_waiting(&mut self, now: Instant) {
        let bytes = self.channels.iter().map(|channel| channel.queue.waiting_bytes()).sum();
        self.account.queue_bytes_max = self.account.queue_bytes_max.max(bytes);
        self.waiting.sample(now, bytes as f64);
    }

    /// Takes in broadcasts. Where heartbeats wait for room, no more of them do than may wait in the scheduler; others are missed.
    fn hear(&mut self, buffer: &mut [u8]) {
        let rules = &self.plan.rules;
        let waits = rules.full_queue == FullQueue::Wait;
        let most = if waits { rules.broadcast_queue_messages } else { u64::MAX };
        let Some(count) = self.beats.read(buffer) else { return };
        let (heard, telling, told) = (&mut self.heard, &mut self.telling, &mut self.told);
        let over = &mut self.over;
        let result = self.parts.on_bytes(&buffer[..count], |part| {
            if let Some(channels) = telling {
                channels.extend(ChannelAt::decode(part.head));
                channels.truncate(CHANNELS_MAX);
                if !part.more {
                    *told = telling.take().unwrap_or_default();
                    heard.push_back(Heard::Channels);
                }
            } else if let Some(beat) = Beat::decode(part.head) {
                if beat.configure && part.more {
                    *telling = Some(Vec::new());
                } else if (heard.len() as u64) < most {
                    heard.push_back(Heard::Beat(beat));
                }
            } else {
                *over |= Word::decode(part.head) == Some(Word::Over);
            }
        });
        if count == 0 || result.is_err() {
            self.beats.ended(monotonic());
        }
    }

    /// Does what was broadcast, in order, as far as there is room.
    fn act(&mut self) {
        while let Some(heard) = self.heard.front() {
            match heard {
                Heard::Channels => return self.configure(monotonic()),
                Heard::Beat(beat) => {
                    let beat = *beat;
                    if !self.on_beat(&beat) {
                        return;
                    }
                }
            }
            self.heard.pop_front();
        }
    }

    /// Makes the channels that were told: with the rebuild all anew, and the broadcasts' connection, too.
    fn configure(&mut self, now: Instant) {
        let rules = &self.plan.rules;
        self.heard.pop_front();
        self.account.told += 1;
        let mut dial_at = now;
        if rules.channel_rebuild {
            dial_at = now + rules.rebuild_time;
            self.account.rebuilds += 1;
            self.channels.clear();
            self.places.clear();
            // What was broadcast behind the channels is lost with the connection.
            self.heard.clear();
            self.beats.down(dial_at);
        }
        self.ready_said = false;
        let length = line::message_bytes(self.plan.fragment_bytes, rules.id_part);
        for channel in std::mem::take(&mut self.told) {
            if self.places.contains_key(&channel.index) {
                continue;
            }
            self.places.insert(channel.index, self.channels.len());
            let call = Call {
                address: channel.address,
                token: DATA_TOKEN,
                number: self.plan.number,
                key: self.plan.key.clone(),
                tcp: self.plan.tcp.clone(),
            };
            let mut line = Line::new(call, self.channels.len() as u64 + 1);
            line.down(dial_at);
            let queue = SendQueue::new(length, rules.send_queue_bytes, rules.send_queue_messages);
            self.channels.push(Channel { line, queue });
        }
    }

    /// Sends a fragment; false where it must wait for room.
    fn on_beat(&mut self, beat: &Beat) -> bool {
        let before = monotonic();
        let place = self.places.get(&beat.channel).copied();
        if let Some(place) = place
            && self.plan.rules.full_queue == FullQueue::Wait
            && !self.channels[place].queue.has_room()
        {
            return false;
        }
        let account = &mut self.account;
        account.heard += 1;
        account.first_heard_ns.get_or_insert(before.as_ns());
        account.last_heard_ns = Some(before.as_ns());
        account.missed += beat.id.saturating_sub(self.expected.unwrap_or(0));
        self.expected = Some(beat.id + 1);
        match place.map(|place| (place, self.channels[place].queue.push(beat.id))) {
            None => account.no_channel += 1,
            Some((_, false)) => account.dropped += 1,
            // The first one tries at once, others have their turn when TCP has room.
            Some((place, true)) if self.channels[place].queue.messages() == 1 => self.turn(place),
            Some(_) => {}
        }
        let after = monotonic();
        self.note_waiting(after);
        let took_ns = after.as_ns() - before.as_ns();
        self.account.handling_ns_max = self.account.handling_ns_max.max(took_ns);
        true
    }

    /// A channel can take bytes, or has ended.
    fn serve(&mut self, place: usize, buffer: &mut [u8]) {
        if self.channels.get_mut(place).is_some_and(|channel| channel.line.read(buffer) == Some(0)) {
            self.cut(place);
        } else {
            self.turn(place);
        }
    }

    fn cut(&mut self, place: usize) {
        let channel = &mut self.channels[place];
        if channel.line.connected() {
            channel.line.ended(monotonic());
            self.account.reconnects += 1;
            self.account.cut += u64::from(channel.queue.cut());
        }
    }

    /// Gives TCP some of a channel's queue; never waits. Channels that have more take turns.
    fn turn(&mut self, place: usize) {
        let Some(channel) = self.channels.get_mut(place) else { return };
        let Channel { line, queue } = channel;
        if !line.connected() {
            return;
        }
        let (plan, account) = (self.plan, &mut self.account);
        let length = line::message_bytes(plan.fragment_bytes, plan.rules.id_part);
        let mut given = 0;
        while given < TURN_BYTES
            && let Some((id, gone)) = queue.first()
        {
            let part = part_bytes(given, gone, length - gone);
            let (head, head_length) = head(plan, id);
            let head_gone = usize::try_from(gone).unwrap_or(usize::MAX).min(head_length);
            let head_end = usize::try_from(gone + part).unwrap_or(usize::MAX).min(head_length);
            let rest = usize::try_from(part).unwrap_or(usize::MAX) - (head_end - head_gone);
            let payload = IoSlice::new(&self.block[..rest.min(self.block.len())]);
            let Ok(count) = line.write(&[IoSlice::new(&head[head_gone..head_end]), payload]) else {
                self.cut(place);
                return;
            };
            account.bytes_sent += count as u64;
            account.fragments_sent += u64::from(queue.advance(count as u64).is_some());
            given += count as u64;
            if (count as u64) < part {
                break;
            }
        }
        let more = queue.messages() > 0;
        if line.want_room(more, &self.epoll).is_err() {
            self.cut(place);
        }
    }

    fn finish(mut self) -> SourceAccount {
        let waiting = |value: fn(&SendQueue) -> u64| self.channels.iter().map(|it| value(&it.queue)).sum();
        self.account.left_fragments = waiting(SendQueue::messages);
        self.account.left_bytes = waiting(SendQueue::waiting_bytes);
        let series = self.waiting.finish("event.queue_bytes", "B", false);
        SourceAccount { series: vec![series], ..self.account }
    }
}

/// Bytes that one write takes of a message, of which `gone` are gone and `rest` are left, in a turn that has taken `given` so far.
fn part_bytes(given: u64, gone: u64, rest: u64) -> u64 {
    if gone >= TURN_BYTES { rest } else { rest.min(TURN_BYTES - given.max(gone)) }
}

/// What comes before the part of the payload that is the same in all.
fn head(plan: &SourcePlan, id: u64) -> ([u8; HEAD_BYTES_MAX], usize) {
    let mut bytes = [0; HEAD_BYTES_MAX];
    let mut length = 0;
    let mut put = |piece: &[u8]| {
        bytes[length..length + piece.len()].copy_from_slice(piece);
        length += piece.len();
    };
    if plan.rules.id_part {
        let (prefix, count) = frame::prefix(BEAT_BYTES as u64, true);
        put(&prefix[..count]);
        put(&Beat { id, channel: 0, configure: false }.encode());
    }
    let (prefix, count) = frame::prefix(plan.fragment_bytes, false);
    put(&prefix[..count]);
    put(&frame::stamp(id, u64::from(plan.number)));
    (bytes, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each turn takes of so many messages of one length, where TCP takes all.
    fn turns(message_bytes: u64, messages: u64) -> Vec<u64> {
        let (mut turns, mut left, mut gone) = (Vec::new(), messages, 0);
        while left > 0 {
            let mut given = 0;
            while given < TURN_BYTES && left > 0 {
                let part = part_bytes(given, gone, message_bytes - gone);
                given += part;
                gone += part;
                if gone == message_bytes {
                    (gone, left) = (0, left - 1);
                }
            }
            turns.push(given);
        }
        turns
    }

    // Spec: event-original.md#send-3
    #[test]
    fn a_turn_takes_8_kib_of_small_messages_and_two_make_a_large_one() {
        assert_eq!(turns(29_044, 2), [8_192, 20_852, 8_192, 20_852]);
        assert_eq!(turns(9_000, 2), [8_192, 8_192, 1_616]);
        assert_eq!(turns(1_000, 20), [8_192, 8_192, 3_616]);
        assert_eq!(turns(8_192, 2), [8_192, 8_192]);
    }

    // Spec: event-original.md#send-3
    #[test]
    fn what_tcp_did_not_take_of_a_turn_comes_first_in_the_next() {
        assert_eq!(part_bytes(0, 8_000, 21_044), 192);
        assert_eq!(part_bytes(0, 20_000, 9_044), 9_044);
        assert_eq!(part_bytes(0, 800, 200), 200);
    }
}
